"""DRAM reads, hit rate, lookups, crossings and time of products that nothing was fitted to, counted five times each.

Run        python3 validation/fresh_cache.py OUT_DIR                                      counts, on the machine with the GPU
           python3 validation/fresh_cache.py --score validation/records/h200_sxm [--gpu h200_sxm]          scores, anywhere
Output     OUT_DIR/fresh_cache.csv and .toml (a row a launch), and what ncu wrote (fresh_cache.ncu.csv, no record)

The shapes are in no table that the model is scored on and in no other record, and no constant of a profile may come from
this record: it says how far off the model is where nobody looked before. Pointer and TMA kernels, raster widths of 1 to 16,
k of 1,088 to 39,744, one grid smaller than the chip, one ragged at every edge.

The profiler runs this script with `OUT_DIR --launch`, which launches all points five times over. Caches are flushed before
every launch (cache control all) and clocks are left alone. Metric names are kept verbatim as column names. Each point is
first checked against a float64 product of its own size. Scores hold the model against the median of the five; their spread
is largest less smallest, over the median.
"""

from __future__ import annotations

import argparse
import multiprocessing
import pathlib
import sys
import time

from script import parsed, parser_of
from triton_lookups import counted, counts_of
from triton_plans import CHECK_SIZES, Config

NAME = "fresh_cache"
ATTEMPTS = 5
POINTS = [  # m, n, k
    ((3968, 5376, 1088), Config("ptr", 128, 256, 64, 3, 8, group_m=4)),
    ((6400, 4864, 3136), Config("ptr", 256, 128, 64, 3, 8, group_m=6)),
    ((3344, 4176, 5200), Config("ptr", 128, 128, 64, 3, 4, group_m=1)),  # ragged in m, n and k
    ((2624, 3968, 7104), Config("ptr", 64, 128, 64, 3, 4, group_m=2)),
    ((1152, 2304, 9664), Config("tma", 128, 256, 64, 3, 8, group_m=1)),  # 81 CTAs
    ((4992, 7168, 22592), Config("tma", 128, 256, 64, 3, 8, group_m=8)),
    ((4480, 5760, 29760), Config("ptr", 128, 128, 64, 3, 8, group_m=8)),
    ((3456, 4736, 39744), Config("tma", 128, 128, 64, 4, 8, group_m=16)),
]
METRICS = [
    "gpu__time_duration.sum",
    "lts__t_sectors_srcunit_tex.sum",
    "lts__t_sectors_srcunit_ltcfabric.sum",
    "dram__bytes_read.sum",
    "dram__bytes_write.sum",
    "lts__t_sector_hit_rate.pct",
    "launch__registers_per_thread",
    "launch__occupancy_limit_registers",
    "launch__occupancy_limit_shared_mem",
]
NOTES = (
    "Nsight Compute, caches flushed before each launch, clocks as found; "
    "for scores alone: no constant of a profile may be taken from this record"
)
TOLERANCE = 5e-3  # rounding to bf16 is 1.7e-3
SCORED = {  # what an estimate calls it: words, scale, unit
    "dram_read_bytes": ("DRAM reads", 1e-6, "MB"),
    "l2_hit_rate": ("hit rate", 100.0, "%"),
    "lookup_bytes": ("L2 lookups", 1e-6, "MB"),
    "crossing_bytes": ("crossings", 1e-6, "MB"),
    "seconds": ("time", 1e6, "us"),
}


def points() -> list[dict]:
    """Every launch, in the order it is made: all products once, then all again."""
    return [
        dict(m=m, n=n, k=k, attempt=attempt, config=config)
        for attempt in range(ATTEMPTS)
        for (m, n, k), config in POINTS
    ]


def _compile(config: Config) -> None:
    from triton_gemm import compile_only

    compile_only(config, stamped=False)


def check() -> list[str]:
    """Products of each configuration against float64, C poisoned, at the size that is counted and at ragged ones."""
    from triton_gemm import relative_error

    failures = []
    for seed, (shape, config) in enumerate(POINTS):
        for m, n, k in (shape, *CHECK_SIZES):
            error = relative_error(config, m, n, k, seed=seed)
            if not error < TOLERANCE:
                failures.append(f"{config} {m}x{n}x{k}: relative error {error}")
    return failures


def launch_points() -> None:
    """Launch the points once each; nothing else of ours runs a kernel named gemm_*."""
    import torch
    from triton_gemm import launch
    from triton_timing import Operands

    elements = max(max(m, n) * k for (m, n, k), _ in POINTS)
    operands = Operands(elements, max(m * n for (m, n, _), _ in POINTS))
    for point in points():
        a, b, c = operands.views(point["m"], point["n"], point["k"])
        launch(point["config"], a, b, c, operands.stamps)
    torch.cuda.synchronize()


def columns_of(point: dict) -> dict:
    """What a row says about its point."""
    return {key: value for key, value in point.items() if key != "config"} | point["config"].columns()


def count(folder: pathlib.Path) -> None:
    """Check, count, write the record."""
    import torch
    from triton_timing import sm_clock_hz, write_record

    begun = time.time()
    with multiprocessing.get_context("fork").Pool(len(POINTS)) as pool:
        pool.map(_compile, [config for _, config in POINTS])
    print(f"compiled in {time.time() - begun:.1f} s", flush=True)
    if failures := check():
        sys.exit("\n".join(failures))
    print(f"agrees with float64 ({time.time() - begun:.1f} s)", flush=True)
    torch.cuda.empty_cache()
    before_hz = sm_clock_hz()
    wanted = points()
    launches = counted(METRICS, [__file__, str(folder), "--launch"], len(wanted), folder / f"{NAME}.ncu.csv")
    if len(launches) != len(wanted):
        sys.exit("no record")
    rows = [
        columns_of(point) | dict(passes=int(row["profiler__replayer_passes"])) | counts_of(point, row, METRICS)
        for point, row in zip(wanted, launches, strict=True)
    ]
    write_record(folder, NAME, rows, NOTES, [before_hz, sm_clock_hz()])
    print(f"counted: {len(rows)} rows, {time.time() - begun:.1f} s", flush=True)


def score(folder: pathlib.Path, gpu: str) -> None:
    """Print what the model says of each product beside the median of its launches, all in the units of ``SCORED``."""
    import numpy as np

    from tilesight import load_profile
    from tilesight.calibrate.counted import measured, predicted
    from tilesight.calibrate.records import Records

    rows = Records(folder)[NAME]
    found, said = measured(rows), predicted(rows, load_profile(gpu))
    products = [
        tuple(row[name] for name in ("m", "n", "k", "kernel", "tile_m", "tile_n", "group_m")) for row in rows.rows
    ]
    errors: dict[str, list[float]] = {name: [] for name in SCORED}
    print("| product | kernel, tile, width | | model | median | error | spread |\n|---|---|---|---|---|---|---|")
    for product in dict.fromkeys(products):
        mask = np.array([each == product for each in products])
        m, n, k, kernel, tile_m, tile_n, width = product
        what = [f"{m} x {n} x {k}", f"{kernel} {tile_m} x {tile_n}, {width}"]
        for name, (words, scale, unit) in SCORED.items():
            runs, model = found[name][mask] * scale, float(said.column(name)[mask][0]) * scale
            median = float(np.median(runs))
            whole = 100.0 if name == "l2_hit_rate" else median  # a rate is off by points
            error, spread = (100.0 * float(value) / whole for value in (model - median, np.ptp(runs)))
            errors[name].append(abs(error))
            cells = [*what, words, f"{model:,.1f} {unit}", f"{median:,.1f} {unit}", f"{error:+.1f} {_unit(name)}"]
            print(f"| {' | '.join(cells)} | {spread:.1f} |")
            what = ["", ""]
    means = [f"{words} {np.mean(errors[name]):.1f} {_unit(name)}" for name, (words, _, _) in SCORED.items()]
    print(f"\nmean absolute errors of {len(errors['seconds'])} products: {', '.join(means)}")


def _unit(name: str) -> str:
    return "points" if name == "l2_hit_rate" else "%"


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--launch", action="store_true", help="launch all points, for the profiler")
    parser.add_argument(
        "--score", action="store_true", help="score the model on the record in that folder; needs no GPU"
    )
    parser.add_argument("--gpu", default="h200_sxm", help="profile that is scored")
    options = arguments(parser)
    folder = pathlib.Path(options.folder)
    if options.score:
        score(folder, options.gpu)
    elif options.launch:
        launch_points()
    else:
        count(folder)


def arguments(parser: argparse.ArgumentParser) -> argparse.Namespace:
    """Of the command line; a score needs none of what a count needs."""
    if "--score" in sys.argv:
        return parser.parse_args()
    return parsed(parser, tools=() if "--launch" in sys.argv else ("ncu",))


if __name__ == "__main__":
    main()
