"""L2 lookups and DRAM bytes of the Triton products, counted by Nsight Compute.

Run        python3 validation/triton_lookups.py OUT_DIR
Output     OUT_DIR/triton_lookups.csv and .toml, and what ncu wrote (triton_lookups.ncu_FIRST.csv, no record)

The profiler runs this script with `OUT_DIR --launch FIRST LAST`, which launches points FIRST..LAST-1 once each.

Caches are flushed before every launch (cache control all) and clocks are left alone. Metric names are kept verbatim as
column names. asked_bytes: operand bytes all tiles load (whole tiles, k as it is) ; lookup_share: L2 lookups by SMs for
operands (srcunit_tex less those for writing C) over asked bytes.
"""

from __future__ import annotations

import csv
import io
import pathlib
import subprocess
import sys
import time

from script import parsed, parser_of
from triton_plans import points_lookups

METRICS = [
    "gpu__time_duration.sum",
    "lts__t_sectors_srcunit_tex.sum",
    "lts__t_sectors_srcunit_tex_lookup_hit.sum",
    "lts__t_sectors_srcunit_ltcfabric.sum",
    "dram__bytes_read.sum",
    "dram__bytes_write.sum",
    "lts__t_sector_hit_rate.pct",
    "l1tex__m_xbar2l1tex_read_sectors.sum",
    "gpc__cycles_elapsed.max",
    "launch__registers_per_thread",
    "launch__occupancy_limit_registers",
    "launch__occupancy_limit_shared_mem",
]
SECTOR_BYTES = 32


def launch_points(first: int, last: int) -> None:
    """Launch the points once each; nothing else of ours runs a kernel named gemm_*."""
    import torch
    from triton_gemm import launch
    from triton_timing import Operands

    operands = Operands(75_000_000, 50_000_000)
    for point in points_lookups()[first:last]:
        a, b, c = operands.views(point["m"], point["n"], point["k"])
        launch(point["config"], a, b, c, operands.stamps)
    torch.cuda.synchronize()


def counted(metrics: list[str], launching: list[str], wanted: int, log: pathlib.Path) -> list[dict]:
    """Rows of Nsight Compute, one for each of ``wanted`` launches of ours by a script, ``launching`` being its command line.

    ``log`` keeps what it wrote, whose end is printed where launches are missing.
    """
    options = "--clock-control none --cache-control all -k regex:^gemm_ --csv --page raw --print-units base --metrics"
    command = ["ncu", *options.split(), ",".join(metrics), sys.executable, *launching]
    done = subprocess.run(command, capture_output=True, text=True)
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_text(done.stdout)
    lines = [line for line in done.stdout.splitlines() if line.startswith('"')]
    rows = [row for row in csv.DictReader(io.StringIO("\n".join(lines))) if row["ID"].isdigit()]
    if len(rows) != wanted:
        print(done.stdout[-1500:], done.stderr[-1500:], f"{len(rows)} of {wanted} launches counted")
    return rows


def counts_of(point: dict, row: dict, metrics: list[str]) -> dict:
    """Counters of one launch as numbers, after what its tiles ask for and the share of it that L2 looked up."""
    config = point["config"]
    tiles = -(-point["m"] // config.tile_m) * -(-point["n"] // config.tile_n)
    values = {name: float(row[name].replace(",", "")) for name in metrics}
    asked = tiles * (config.tile_m + config.tile_n) * point["k"] * 2
    lookups = values["lts__t_sectors_srcunit_tex.sum"] * SECTOR_BYTES - 2 * point["m"] * point["n"]
    return dict(tiles=tiles, asked_bytes=asked, lookup_share=lookups / asked) | values


def profile(folder: pathlib.Path, first: int, last: int) -> list[dict]:
    """Counted rows of points FIRST..LAST-1."""
    launching = [__file__, str(folder), "--launch", str(first), str(last)]
    points = points_lookups()[first:last]
    launches = counted(METRICS, launching, len(points), folder / f"triton_lookups.ncu_{first}.csv")
    return [  # in launch order, where some are missing
        dict(bench="lookups", m=point["m"], n=point["n"], k=point["k"])
        | point["config"].columns()
        | counts_of(point, row, METRICS)
        for point, row in zip(points, launches, strict=False)
    ]


def main(folder: pathlib.Path) -> None:
    from triton_timing import sm_clock_hz, write_record

    total = len(points_lookups())
    share, rows, begun, before_hz = 72, [], time.time(), sm_clock_hz()
    for first in range(0, total, share):
        rows += profile(folder, first, min(first + share, total))
        if rows:
            write_record(
                folder,
                "triton_lookups",
                rows,
                "Nsight Compute, caches flushed before each launch, clocks as found",
                [before_hz, sm_clock_hz()],
            )
        print(f"lookups: {len(rows)} rows, {time.time() - begun:.1f} s", flush=True)


if __name__ == "__main__":
    parser = parser_of(__doc__)
    parser.add_argument("--launch", nargs=2, type=int, metavar=("FIRST", "LAST"), help="launch these points alone")
    options = parsed(parser, tools=() if "--launch" in sys.argv else ("ncu",))
    if options.launch:
        launch_points(*options.launch)
    else:
        main(pathlib.Path(options.folder))
