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


def profile(folder: pathlib.Path, first: int, last: int) -> list[dict]:
    """Counted rows of points FIRST..LAST-1."""
    command = [
        "ncu",
        "--clock-control",
        "none",
        "--cache-control",
        "all",
        "-k",
        "regex:^gemm_",
        "--csv",
        "--page",
        "raw",
        "--print-units",
        "base",
        "--metrics",
        ",".join(METRICS),
        sys.executable,
        __file__,
        str(folder),
        "--launch",
        str(first),
        str(last),
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"triton_lookups.ncu_{first}.csv").write_text(done.stdout)
    lines = [line for line in done.stdout.splitlines() if line.startswith('"')]
    counted = [row for row in csv.DictReader(io.StringIO("\n".join(lines))) if row["ID"].isdigit()]
    points = points_lookups()[first:last]
    if len(counted) != len(points):
        print(done.stdout[-1500:], done.stderr[-1500:])
        print(f"{len(counted)} of {len(points)} launches counted: rows kept in launch order")
    rows = []
    for point, row in zip(points, counted, strict=False):
        config = point["config"]
        tiles_m, tiles_n = -(-point["m"] // config.tile_m), -(-point["n"] // config.tile_n)
        values = {name: float(row[name].replace(",", "")) for name in METRICS}
        asked = tiles_m * tiles_n * (config.tile_m + config.tile_n) * point["k"] * 2
        lookups = values["lts__t_sectors_srcunit_tex.sum"] * SECTOR_BYTES - 2 * point["m"] * point["n"]
        rows.append(
            dict(bench="lookups", m=point["m"], n=point["n"], k=point["k"])
            | config.columns()
            | dict(tiles=tiles_m * tiles_n, asked_bytes=asked, lookup_share=lookups / asked)
            | values
        )
    return rows


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
