"""Measures reduction-reuse kernels beside torch.compile and Triton: six workloads, all variants, a row a variant and size.

Run        on the machine with the GPU; called again, it goes on where it stopped
           python3 validation/dsmem.py measure --out DIR --programs DIR              everything
           python3 validation/dsmem.py measure --out DIR --only torch triton         all but the CUDA programs
           python3 validation/dsmem.py counters --out DIR --programs DIR             DRAM and dshared bytes of the fastest
Output     DIR/dsmem.csv; dsmem_triton.csv: every candidate of the Triton kernels; dsmem_counters.csv: all counters; each
           with its .toml

--programs is a folder with one executable a workload, built from kernels_cuda/dsmem/NAME.cu. Alternatives: `cluster` (with P
in the column cluster, and a protocol), `staged` and `reread` are the CUDA program's, `torch_compile` and `triton` come from
here. Each is checked against float64 with its outputs poisoned, then timed warm: the launch repeated on the same buffers in
a CUDA graph whose replay takes 2 ms or more, median of the replays. Compiling and autotuning are not part of the time.

seconds, bytes_per_s    of one call; compulsory_bytes: each input read once, each output written once
max_error               largest error in units of the tolerance
kinds, passes, loads    of each kernel of a call: what it is, how many loops over the row its code has, and how often it
                        loads an element of a row: times the element's size, that is what it asks for
error                   why there is no time: what failed, or, `illegal: `, what a program leaves out and why
"""

from __future__ import annotations

import argparse
import datetime
import importlib.metadata
import os
import pathlib
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterable

import dsmem_counters
from dsmem_measure import Clock, measure_cuda, measure_frameworks
from dsmem_record import ALTERNATIVES, DTYPES, ROWS, SOURCES, WIDTHS, WORKLOADS, Record, header_text, points
from script import parsed, refuse

COUNTED_WIDTHS = (65536, 16384)
NOTES = (
    "warm: the same launch on the same buffers in a CUDA graph of 2 ms or more, median of replays; checked against float64 "
    "with poisoned outputs; torch.compile: max-autotune-no-cudagraphs, dynamic=False, reset for each shape, its kernels "
    "seen by the profiler"
)


def positive(text: str) -> int:
    """A positive integer, for argparse."""
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no positive integer")
    return int(text)


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = made.add_subparsers(dest="command", required=True)
    measure = commands.add_parser("measure", help="time what is not in the record yet")
    counters = commands.add_parser("counters", help="count bytes of what is fastest in the record")
    for each, widths in ((measure, WIDTHS), (counters, COUNTED_WIDTHS)):
        each.add_argument("--out", required=True, type=pathlib.Path, metavar="DIR", help="folder of the record")
        each.add_argument("--programs", type=pathlib.Path, metavar="DIR", help="folder with one executable a workload")
        each.add_argument("--workloads", nargs="+", choices=WORKLOADS, default=WORKLOADS, metavar="NAME")
        each.add_argument("--widths", nargs="+", type=positive, default=widths, metavar="N", help=f"default: {widths}")
        each.add_argument("--rows", type=positive, metavar="R", help=f"default: {ROWS}")
        each.add_argument("--dtype", choices=DTYPES, default="fp32")
        each.add_argument("--limit-s", type=float, default=float("inf"), help="start nothing after this many seconds")
    measure.add_argument("--only", nargs="+", choices=SOURCES, default=tuple(SOURCES), help="default: all three")
    measure.add_argument("--repeats", type=positive, default=5, help="replays of a graph (default: 5)")
    measure.add_argument("--batch", type=positive, default=5, help="widths that are compiled together (default: 5)")
    measure.add_argument("--again", action="store_true", help="measure again what failed; illegal stays so")
    measure.add_argument("--sources", type=pathlib.Path, metavar="FILE", help="append the kernels that Inductor wrote")
    counters.add_argument(
        "--alternatives",
        nargs="+",
        choices=("ours", *ALTERNATIVES),
        default=("ours",),
        help="ours: the fastest CUDA variant (default)",
    )
    launch = commands.add_parser("launch", help="launch one row of torch_compile or triton, for the profiler")
    for name in dsmem_counters.LAUNCHED:
        launch.add_argument(name)
    return made


def arguments(words: list[str]) -> argparse.Namespace:
    """Of the command line; what the machine lacks ends in one line."""
    made = parser()
    options = made.parse_args(words)
    if options.command == "launch" or (options.command == "measure" and set(options.only) - {"cuda"}):
        parsed(made, words)
    if options.command == "measure":
        wants_programs = "cuda" in options.only
    else:
        wants_programs = options.command == "counters" and set(options.alternatives) - {"triton", "torch_compile"}
    if wants_programs:
        check_programs(options.programs, options.workloads)
    tool = dict(measure="nvidia-smi", counters="ncu", launch=None)[options.command]
    if tool and shutil.which(tool) is None:
        refuse(f"needs {tool} on the path, on the machine with the GPU")
    return options


def check_programs(folder: pathlib.Path | None, workloads: Iterable[str]) -> None:
    """Refuse a folder that lacks a program."""
    if folder is None:
        refuse("--programs DIR is wanted: executables of kernels_cuda/dsmem/; or --only torch triton")
    absent = [name for name in workloads if not os.access(folder / name, os.X_OK)]
    if absent:
        refuse(f"{folder} has no executable {', '.join(absent)}; build kernels_cuda/dsmem/NAME.cu there")


def measure(options: argparse.Namespace) -> None:
    """Time what has no row yet."""
    clock, record = Clock(options.limit_s), Record(options.out / "dsmem.csv")
    if options.again:
        record.forget_failed()
    write_header(options.out, begins=True)
    if "cuda" in options.only:
        measure_cuda(options, record, clock)
    if set(options.only) - {"cuda"}:
        measure_frameworks(options, record, clock)
    write_header(options.out, begins=False)
    wanted = points(options.workloads, options.widths, options.rows, options.dtype)
    left = sum(not record.has(point, SOURCES[name]) for point in wanted for name in options.only)
    clock.tell(f"{len(record.rows)} rows; {left} of {len(wanted) * len(options.only)} left")


def write_header(folder: pathlib.Path, *, begins: bool) -> None:
    """A TOML beside each table: machine and versions as they are now, every run that added to the record, the clock."""
    path = folder / "dsmem.toml"
    old = tomllib.loads(path.read_text()) if path.exists() else {}
    today, words = (
        datetime.date.today().isoformat(),
        [pathlib.Path(each).name if "/" in each else each for each in sys.argv],
    )
    runs = old.get("runs", []) + ([f"{today} python3 {' '.join(words)}"] if begins else [])
    gpu, driver, limit, sm_clock, memory_clock = machine()
    header = dict(
        gpu=gpu,
        driver=driver,
        pytorch=version("torch"),
        triton=version("triton"),
        power_limit_w=float(limit),
        memory_clock_mhz=int(memory_clock),
        date=today,
        notes=NOTES,
        runs=runs,
        sm_clock_mhz=[*old.get("sm_clock_mhz", []), int(sm_clock)],
    )
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("dsmem", "dsmem_triton", *(["dsmem_counters"] if (folder / "dsmem_counters.csv").exists() else [])):
        (folder / f"{name}.toml").write_text(header_text(header))


def machine() -> list[str]:
    """GPU, driver, power limit in W, clock of the SMs and of memory in MHz."""
    query = "--query-gpu=name,driver_version,power.limit,clocks.sm,clocks.mem"
    command = ["nvidia-smi", query, "--format=csv,noheader,nounits", "--id=0"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip().split(", ")


def version(package: str) -> str:
    """Installed version of a package."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "absent"


def counters(options: argparse.Namespace) -> None:
    """Count what has no row of counts yet."""
    dsmem_counters.count(options, Record(options.out / "dsmem.csv"), Clock(options.limit_s), [sys.executable, __file__])
    write_header(options.out, begins=True)


def launch(options: argparse.Namespace) -> None:
    """Launch what a row says, for the profiler."""
    from dsmem_measure import set_caches

    set_caches()
    dsmem_counters.launch(vars(options))


def main(words: list[str]) -> None:
    options = arguments(words)
    dict(measure=measure, counters=counters, launch=launch)[options.command](options)


if __name__ == "__main__":
    main(sys.argv[1:])
