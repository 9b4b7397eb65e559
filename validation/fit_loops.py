"""Fit what loops and ends of compiled kernels cost to our own runs of them, through the model itself.

Records: `triton_steps`, `triton_rounds`, `triton_tails` (in-order kernels) and `vendor_gemm` (the vendor library's), all on
shapes that no scored table has. One value a constant, for all shapes and tiles; everything that a microbenchmark gives
by itself stays as it is.
"""

from __future__ import annotations

import csv
import re
from pathlib import Path

import numpy as np
from scipy.optimize import least_squares

import tilesight
from tilesight import Gemm, GemmConfig

ROOT = Path(__file__).resolve().parent.parent
FOLDER = "validation/records/h200_sxm"
IN_ORDER_RECORDS = ("triton_steps", "triton_rounds", "triton_tails")
START_CLOCK_HZ = 1.68e9
"""Runs of few CTAs below this clock came right after a heavy load; a fit of cycles must not see them."""

IN_ORDER = {  # name: first guess
    "fill.latency_l2_s": 150e-9,
    "fill.latency_dram_extra_s": 350e-9,
    "fill.cp_async_bytes_per_s": 90e9,
    "fill.tma_bytes_per_s": 130e9,
    "loop.chain_cp_async_cycles": 340.0,
    "loop.chain_tma_persistent_cycles": 300.0,
    "loop.step_in_order_cycles": 10.0,
    "launch.start_in_order_s": 0.9e-6,
    "launch.descriptor_s": 2.2e-6,
    "epilogue.in_order_fixed_s": 0.3e-6,
    "epilogue.in_order_bytes_per_s": 60e9,
    "rounds.cp_async_fixed_s": 1.0e-6,
    "rounds.cp_async_bytes_per_s": 25e9,
    "rounds.tma_persistent_fixed_s": 0.2e-6,
    "rounds.tma_persistent_bytes_per_s": 70e9,
}
SPECIALIZED = {
    "loop.chain_warp_specialized_cycles": 160.0,
    "loop.chain_full_box_cycles": 280.0,
    "launch.start_specialized_s": 0.7e-6,
    "rounds.warp_specialized_fixed_s": 0.5e-6,
    "rounds.warp_specialized_bytes_per_s": 60e9,
    "launch.dependent_kernel_s": 1.2e-6,
}
VENDOR_NAME = re.compile(r"nvjet_sm90_tst_(\d+)x(\d+)_(\d+)x(\d+)_(\d+)x(\d+)_[hv]_bz.*_(NNT|NNN)")


def rows_of(name: str) -> list[dict[str, str]]:
    """Rows of one record."""
    with open(ROOT / FOLDER / f"{name}.csv", newline="") as file:
        return list(csv.DictReader(file))


def in_order_runs() -> tuple[list[Gemm], list[GemmConfig], np.ndarray]:
    """Problems, configurations and measured seconds a graph node of our in-order kernels."""
    problems, configs, seconds = [], [], []
    for row in (row for name in IN_ORDER_RECORDS for row in rows_of(name)):
        slow_clock = float(row["clock_hz"] or 0) < START_CLOCK_HZ and int(row["tiles"]) <= 54
        if row["even_k"] == "True" or slow_clock or int(row["spills"]) > 0 or int(row["tile_m"]) < 64:
            continue
        problems.append(Gemm(*(int(row[size]) for size in ("m", "n", "k"))))
        names = ("tile_m", "tile_n", "tile_k", "stages", "warps", "group_m", "registers", "smem_bytes")
        kernel = {"ptr": "cp_async", "tma": "tma_persistent"}[row["kernel"]]
        configs.append(GemmConfig(**{name: int(row[name]) for name in names}, kernel=kernel))
        seconds.append(float(row["time_s"]))
    return problems, configs, np.array(seconds)


def vendor_runs() -> tuple[list[Gemm], list[GemmConfig], np.ndarray]:
    """The same of the vendor's kernels, whose configuration is read from their column-major names."""
    problems, configs, seconds = [], [], []
    for row in rows_of("vendor_gemm"):
        found = VENDOR_NAME.search(row["kernel"])
        if not found:
            continue
        tile_n, tile_m, tile_k, stages, cluster_n, cluster_m = (int(word) for word in found.groups()[:6])
        problems.append(Gemm(*(int(row[size]) for size in ("m", "n", "k"))))
        configs.append(
            GemmConfig(
                tile_m,
                tile_n,
                tile_k,
                stages,
                cluster_m=cluster_m,
                cluster_n=cluster_n,
                swap_ab=found[7] == "NNT",
                split_k=None if "splitK" in row["kernel"] else 1,
            )
        )
        seconds.append(float(row["warm_s"]))
    return problems, configs, np.array(seconds)


def fit(profile, guess: dict[str, float], runs, records: tuple[str, ...]):
    """Fitted numbers and their sources; minimises the log error, large ones counted less (soft L1 beyond 8 %)."""
    problems, configs, seconds = runs
    names = list(guess)
    start = np.array([guess[name] for name in names])
    why = {"kind": "assumed", "note": "on trial"}

    def predicted(scale: np.ndarray):
        trial = profile.with_numbers(
            dict(zip(names, map(float, start * scale), strict=True)), dict.fromkeys(names, why)
        )
        return tilesight.predict_many(problems, configs, hardware=trial, clock="burst", skip_refused=True)

    gap = profile.require("launch.graph_gap_s")

    def misfit(scale: np.ndarray) -> np.ndarray:
        estimates = predicted(scale)
        return np.log((estimates.seconds + gap) / seconds[estimates.positions])

    found = least_squares(
        misfit, np.ones(len(names)), bounds=(0.02, 6.0), loss="soft_l1", f_scale=0.08, diff_step=1e-3, max_nfev=40
    )
    errors = 100 * (np.exp(misfit(found.x)) - 1)
    estimates = predicted(found.x)
    print(
        f"  {', '.join(records)}: {len(errors)} runs, mean error {np.mean(abs(errors)):.1f} %, bias {np.mean(errors):+.1f} %"
    )
    for kind in sorted(set(estimates.binding)):
        here = abs(errors[estimates.binding == kind])
        print(f"    {kind:12s} {len(here):5d} runs {here.mean():6.1f} %  80th percentile {np.quantile(here, 0.8):.1f}")
    refs = [f"{FOLDER}/{name}.csv" for name in records]
    source = {"kind": "fitted", "ref": refs, "note": "all at once, through the model (validation/fit_loops.py)"}
    numbers = dict(zip(names, map(float, start * found.x), strict=True))
    return numbers, dict.fromkeys(names, source), (errors, estimates)


def fit_loops(profile):
    """Numbers and sources of loops, ends and rounds, and the likely interval by what binds."""
    numbers, sources, errors = {}, {}, {}
    why = {"kind": "assumed", "note": "first guess"}
    missing = {name: value for name, value in (IN_ORDER | SPECIALIZED).items() if profile.get(name) is None}
    profile = profile.with_numbers(missing, dict.fromkeys(missing, why))
    for guess, runs, records in (
        (IN_ORDER, in_order_runs(), IN_ORDER_RECORDS),
        (SPECIALIZED, vendor_runs(), ("vendor_gemm",)),
    ):
        found, why_found, (error, estimates) = fit(profile, guess, runs, records)
        numbers |= found
        sources |= why_found
        profile = profile.with_numbers(found, why_found)
        for kind in set(estimates.binding):
            errors.setdefault(str(kind), []).append(np.abs(error[estimates.binding == kind]))
    refs = [f"{FOLDER}/{name}.csv" for name in (*IN_ORDER_RECORDS, "vendor_gemm")]
    for kind, parts in sorted(errors.items()):
        values = np.concatenate(parts)
        if len(values) >= 20:
            numbers[f"uncertainty.{kind}"] = float(np.quantile(values, 0.8)) / 100
            sources[f"uncertainty.{kind}"] = {"kind": "fitted", "ref": refs, "note": "80th percentile of the error"}
    return numbers, sources
