"""What loops and ends of compiled kernels cost, fitted to our own runs of them through the model itself.

Records: ``triton_steps``, ``triton_rounds``, ``triton_tails`` (in-order kernels) and ``vendor_gemm`` (the vendor
library's), all on shapes that no scored table has. One value a constant, for all shapes and tiles; everything that a
microbenchmark gives by itself stays as it is. The log error of times is minimised, large ones counted less (soft L1 beyond
8 %). The likely interval is the 90th percentile of what is left: of times by what binds, of lookups, hits and DRAM reads by
regime of the cache.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

from tilesight.calibrate.counted import KERNELS, launches, measured, predicted
from tilesight.calibrate.found import Found, Numbers
from tilesight.calibrate.records import Column, Records
from tilesight.cost.clock import busy_seconds
from tilesight.cost.estimate import CACHE_REGIMES, LIKELY, Estimates
from tilesight.cost.price import Situation
from tilesight.errors import TableError, TilesightError
from tilesight.hardware.profile import Profile
from tilesight.kernels.gemm_config import Gemm, GemmConfig
from tilesight.search import price_many

IN_ORDER_RECORDS = ("triton_steps", "triton_rounds", "triton_tails")
VENDOR_RECORDS = ("vendor_gemm",)
NOTE = "all at once, through the model (tilesight/calibrate/fits.py)"
START_CLOCK_SHARE, FEW_CTAS_SHARE = 0.8485, 0.41
"""Runs of few CTAs below this share of the boost clock came right after a heavy load; a fit of cycles must not see them."""
LIKELY_SHARE = 0.9
"""Of runs that a likely interval holds."""
RUNS_LEAST = 20
"""Runs with one binding resource from which their error gives an interval."""

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
MOST = {"merging.near_share": 1.0, "merging.far_share": 1.0, "merging.far_first_share": 1.0}
"""Where a fit ends: shares."""
MERGING_RECORDS = ("triton_lookups", "triton_drift")
MERGING = {
    "merging.near_share": 0.9,
    "merging.far_share": 0.2,
    "merging.far_first_share": 0.4,
    "merging.alone_loss": 1.5,
    "merging.spread_elements": 500.0,
}
UNCERTAIN = ("tensor", "l2", "dram", "tma", "ring", "recurrence", "issue", "launch")
FITTED = (
    *MERGING,
    *IN_ORDER,
    *SPECIALIZED,
    *(f"uncertainty.{kind}" for kind in UNCERTAIN),
    *(f"cache_uncertainty.{table}.{number}" for table in CACHE_REGIMES.values() for number in LIKELY.values()),
)
"""All numbers that come from a fit here."""
_VENDOR_NAME = re.compile(r"nvjet_sm90_tst_(\d+)x(\d+)_(\d+)x(\d+)_(\d+)x(\d+)_[hv]_bz.*_(NNT|NNN)")
_CONFIG = ("tile_m", "tile_n", "tile_k", "stages", "warps", "group_m", "registers", "smem_bytes")


@dataclass(frozen=True)
class Runs:
    """Products, configurations and measured seconds of a graph node, one each a run."""

    problems: list[Gemm]
    configs: list[GemmConfig]
    seconds: Column


def _problem(row: Mapping[str, str]) -> Gemm:
    return Gemm(int(row["m"]), int(row["n"]), int(row["k"]))


def in_order_runs(records: Records) -> Runs:
    """Runs of our in-order kernels."""
    problems, configs, seconds = [], [], []
    slow_hz, few = START_CLOCK_SHARE * records.boost_hz, FEW_CTAS_SHARE * records.sm_count
    for row in (row for name in IN_ORDER_RECORDS for row in records[name].rows):
        slow_clock = float(row["clock_hz"] or 0) < slow_hz and int(row["tiles"]) <= few
        if row["even_k"] == "True" or slow_clock or int(row["spills"]) > 0 or int(row["tile_m"]) < 64:
            continue
        problems.append(_problem(row))
        sizes: dict[str, Any] = {name: int(row[name]) for name in _CONFIG}
        configs.append(GemmConfig(**sizes, kernel=KERNELS[row["kernel"]]))
        seconds.append(float(row["time_s"]))
    return Runs(problems, configs, np.array(seconds))


def vendor_runs(records: Records) -> Runs:
    """Runs of the vendor's kernels, whose configuration is read from their column-major names."""
    problems, configs, seconds = [], [], []
    for row in records["vendor_gemm"].rows:
        found = _VENDOR_NAME.search(row["kernel"])
        if not found:
            continue
        tile_n, tile_m, tile_k, stages, cluster_n, cluster_m = (int(word) for word in found.groups()[:6])
        split_k = None if "splitK" in row["kernel"] else 1
        shape = {"cluster_m": cluster_m, "cluster_n": cluster_n, "swap_ab": found[7] == "NNT", "split_k": split_k}
        problems.append(_problem(row))
        configs.append(GemmConfig(tile_m, tile_n, tile_k, stages, **shape))  # type: ignore[arg-type]
        seconds.append(float(row["warm_s"]))
    return Runs(problems, configs, np.array(seconds))


def counted_runs(records: Records) -> tuple[Runs, Column]:
    """Runs of our in-order kernels under Nsight Compute, caches flushed, and the bytes that L2 looked up."""
    counted = [records[name] for name in MERGING_RECORDS]
    asked, found = [launches(rows) for rows in counted], [measured(rows) for rows in counted]
    problems = [problem for batch, _ in asked for problem in batch]
    configs = [config for _, batch in asked for config in batch]
    seconds, lookups = (np.concatenate([each[name] for each in found]) for name in ("seconds", "lookup_bytes"))
    return Runs(problems, configs, seconds), lookups


@dataclass(frozen=True)
class Fit:
    """Values of the fitted numbers, and of each run the signed error, relative, and what binds it.

    Numbers on which no run depends are not in ``values``.
    """

    values: Mapping[str, float]
    error: Column
    binding: tuple[str, ...]

    @property
    def rms(self) -> float:
        """Root mean square of the errors."""
        return float(np.sqrt(np.mean(self.error**2)))


def fit_runs(hardware: Profile, guess: Mapping[str, float], runs: Runs, lookups: Column | None = None) -> Fit:
    """The numbers named in ``guess`` that make the model's times of the runs those measured, or its lookups, in bytes."""
    if not runs.problems:
        raise TableError("no run that a fit can use")
    names, start = list(guess), np.array(list(guess.values()))
    why = {"kind": "assumed", "note": "on trial"}
    cache = "warm" if lookups is None else "cold"
    situation = Situation(cache, busy_seconds("burst"), None, 0.0, None)
    gap = hardware.require("launch.graph_gap_s")

    def predicted(scale: Column) -> Estimates:
        trial = hardware.with_numbers(
            dict(zip(names, map(float, start * scale), strict=True)), dict.fromkeys(names, why)
        )
        return price_many(runs.problems, runs.configs, trial, situation, skip_refused=True)

    def misfit(scale: Column) -> Column:
        estimates = predicted(scale)
        if lookups is None:
            error: Column = np.log((estimates.seconds + gap) / runs.seconds[estimates.positions])
        else:
            error = np.log(estimates.column("lookup_bytes") / lookups[estimates.positions])
        return error

    best = least_squares(
        misfit,
        np.ones(len(names)),
        bounds=(0.02, [min(6.0, MOST.get(name, np.inf) / value) for name, value in guess.items()]),
        loss="soft_l1",
        f_scale=0.08,
        diff_step=[1e-3] * len(names),
        max_nfev=40,
    )
    matters = np.any(best.jac != 0, axis=0)
    values = {name: float(value) for name, value, does in zip(names, start * best.x, matters, strict=True) if does}
    return Fit(values, np.exp(misfit(best.x)) - 1, tuple(map(str, predicted(best.x).binding)))


def fit_loops(records: Records, hardware: Profile) -> tuple[Numbers, Mapping[str, str]]:
    """Numbers of loops, ends and rounds, and the likely interval by what binds; and those that can't be had, with why.

    Parameters
    ----------
    hardware
        The profile with all that is measured in it.
    """
    wanted = MERGING | IN_ORDER | SPECIALIZED
    missing: dict[str, str] = {}
    why = {"kind": "assumed", "note": "first guess"}
    absent = {name: value for name, value in wanted.items() if hardware.get(name) is None}
    hardware = hardware.with_numbers(absent, dict.fromkeys(absent, why))
    numbers: dict[str, Found] = {}
    errors: dict[str, list[Column]] = {}
    used: list[str] = []
    try:
        merging = fit_runs(hardware, MERGING, *counted_runs(records))
    except (TilesightError, ValueError, LookupError) as error:
        missing |= dict.fromkeys(MERGING, str(error))
    else:
        note = "all at once, on lookups through the model (tilesight/calibrate/fits.py)"
        numbers |= {
            name: Found(value, None, MERGING_RECORDS, "fitted", note, merging.rms)
            for name, value in merging.values.items()
        }
        hardware = hardware.with_numbers(dict(merging.values), dict.fromkeys(merging.values, why))
    for guess, read, names in (
        (IN_ORDER, in_order_runs, IN_ORDER_RECORDS),
        (SPECIALIZED, vendor_runs, VENDOR_RECORDS),
    ):
        try:
            fit = fit_runs(hardware, guess, read(records))
        except (TilesightError, ValueError, LookupError) as error:
            missing |= dict.fromkeys(guess, str(error))
            continue
        missing |= dict.fromkeys(guess.keys() - fit.values.keys(), f"no run of {', '.join(names)} depends on it")
        found = {name: Found(value, None, names, "fitted", NOTE, fit.rms) for name, value in fit.values.items()}
        sources = {name: {"kind": "assumed", "note": NOTE} for name in found}
        hardware = hardware.with_numbers(dict(fit.values), sources)
        numbers |= found
        used += names
        for kind in set(fit.binding):
            errors.setdefault(kind, []).append(np.abs(fit.error[[bound == kind for bound in fit.binding]]))
    return numbers | _uncertainty(errors, tuple(used)) | _cache_uncertainty(records, hardware), missing


def _uncertainty(errors: Mapping[str, list[Column]], used: tuple[str, ...]) -> dict[str, Found]:
    """Half-widths of the likely interval: the 90th percentile of the relative error of the runs that a resource binds.

    Where too few runs are bound by it, that of all runs.
    """
    each = [error for kind in errors.values() for error in kind]
    everything = np.concatenate([np.empty(0), *each])
    numbers: dict[str, Found] = {}
    for kind in UNCERTAIN if len(everything) >= RUNS_LEAST else ():
        own = np.concatenate([np.empty(0), *errors.get(kind, [])])
        enough = len(own) >= RUNS_LEAST
        of_which = f"of {len(own)} runs" if enough else f"of all {len(everything)} runs, {len(own)} of which it binds"
        width = float(np.quantile(own if enough else everything, LIKELY_SHARE))
        numbers[f"uncertainty.{kind}"] = Found(width, None, used, "fitted", f"90th percentile of the error {of_which}")
    return numbers


def _cache_uncertainty(records: Records, hardware: Profile) -> dict[str, Found]:
    """Half-widths of what L2 and DRAM count, by regime of the cache: the 90th percentile of the error of counted launches.

    Bytes by their ratio, whichever way; hit rates by their difference. None where too few launches are in a regime, or
    the profile can't price them.
    """
    errors: dict[str, list[Column]] = {name: [] for name in LIKELY}
    regimes: list[NDArray[Any]] = []
    try:
        for rows in (records[name] for name in MERGING_RECORDS):
            found, made = measured(rows), predicted(rows, hardware)
            regimes.append(made.names["cache_regime"])
            for name in LIKELY:
                errors[name].append(_apart(name, made.column(name), found[name]))
    except (TilesightError, ValueError, LookupError):
        return {}
    regime = np.concatenate(regimes)
    numbers: dict[str, Found] = {}
    for word, table in CACHE_REGIMES.items():
        inside = regime == word
        runs = int(np.count_nonzero(inside))
        note = f"90th percentile of the error of {runs} counted launches"
        for name, number in LIKELY.items() if runs >= RUNS_LEAST else ():
            width = float(np.quantile(np.concatenate(errors[name])[inside], LIKELY_SHARE))
            numbers[f"cache_uncertainty.{table}.{number}"] = Found(width, None, MERGING_RECORDS, "fitted", note)
    return numbers


def _apart(name: str, predicted: Column, measured: Column) -> Column:
    """How far the two are apart: as a difference of hit rates, else how much larger the larger one is."""
    if name == "l2_hit_rate":
        return np.asarray(np.abs(predicted - measured))
    return np.asarray(np.exp(np.abs(np.log(predicted / measured))) - 1.0)
