"""DRAM bytes of products repeated on the same buffers, counted by Nsight Compute: what of the operands L2 still holds.

Run        python3 validation/warm_residency.py OUT_DIR
Output     OUT_DIR/warm_residency.csv and .toml, and what ncu wrote (warm_residency.ncu.csv, no record)

The profiler runs this script with `OUT_DIR --launch`, which launches each product REPEATS times in a row.

Caches are left alone (cache control none) and the counters fit one pass, so that nothing replays; the last of the repeats
is kept. resident_share = 1 - DRAM bytes read / operand bytes (lockstep reads of tiny re-reads apart).
"""

from __future__ import annotations

import csv
import io
import pathlib
import subprocess
import sys

from script import parsed, parser_of

REPEATS = 4
METRICS = ["dram__bytes_read.sum", "dram__bytes_write.sum", "gpu__time_duration.sum", "lts__t_sectors_srcunit_tex.sum"]
STREAM = [(m, 6208, k) for m in (8, 48) for k in (576, 1024, 1472, 1984, 2624, 3264, 3904, 4544, 5184)]
WIDE = [(m, n, k) for m, n in ((1040, 1088), (2192, 2240)) for k in (960, 1984, 2944, 4032, 4992, 6080, 8128, 10304)]
POINTS = [("vendor", *shape) for shape in STREAM + WIDE] + [("ptr", *shape) for shape in WIDE]


def launch_points() -> None:
    """Launch every point REPEATS times; other kernels are few and have other names."""
    import torch
    from triton_gemm import launch
    from triton_plans import Config
    from triton_timing import Operands

    operands = Operands(75_000_000, 50_000_000)
    config = Config("ptr", 128, 128, 64, 3, 8)
    for kind, m, n, k in POINTS:
        a, b, c = operands.views(m, n, k)
        for _ in range(REPEATS):
            if kind == "ptr":
                launch(config, a, b, c, operands.stamps)
            else:
                torch.mm(a, b, out=c)
    torch.cuda.synchronize()


def main(folder: pathlib.Path) -> None:
    from triton_timing import sm_clock_hz, write_record

    before_hz = sm_clock_hz()
    command = ["ncu", "--clock-control", "none", "--cache-control", "none", "-k", "regex:^gemm_|nvjet|splitK"]
    command += ["--csv", "--page", "raw", "--print-units", "base", "--metrics", ",".join(METRICS)]
    done = subprocess.run([*command, sys.executable, __file__, str(folder), "--launch"], capture_output=True, text=True)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "warm_residency.ncu.csv").write_text(done.stdout)
    lines = [line for line in done.stdout.splitlines() if line.startswith('"')]
    counted = [row for row in csv.DictReader(io.StringIO("\n".join(lines))) if row["ID"].isdigit()]
    mains = [row for row in counted if "splitKreduce" not in row["Kernel Name"]]
    if len(mains) != REPEATS * len(POINTS):
        print(done.stdout[-1500:], done.stderr[-1500:], f"{len(mains)} launches for {len(POINTS)} points")
    rows = []
    for (kind, m, n, k), row in zip(POINTS, mains[REPEATS - 1 :: REPEATS], strict=True):
        values = {name: float(row[name].replace(",", "")) for name in METRICS}
        operands = 2 * (m * k + k * n)
        rows.append(
            dict(bench="warm_residency", kind=kind, m=m, n=n, k=k, kernel=row["Kernel Name"].split("(")[0])
            | dict(operand_bytes=operands, output_bytes=2 * m * n)
            | dict(resident_share=1 - values["dram__bytes_read.sum"] / operands)
            | values
        )
    notes = "Nsight Compute, one pass, caches left alone, the last of 4 launches in a row"
    write_record(folder, "warm_residency", rows, notes, [before_hz, sm_clock_hz()])
    for row in rows:
        print(
            row["kind"],
            row["m"],
            row["n"],
            row["k"],
            f"{row['operand_bytes'] / 1e6:.1f} MB",
            f"{row['resident_share']:.3f}",
        )


if __name__ == "__main__":
    parser = parser_of(__doc__)
    parser.add_argument("--launch", action="store_true", help="launch the products alone")
    options = parsed(parser, tools=() if "--launch" in sys.argv else ("ncu",))
    if options.launch:
        launch_points()
    else:
        main(pathlib.Path(options.folder))
