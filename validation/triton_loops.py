"""Constants of a tiled GEMM's time: k-steps, rounds, tails, descriptors, ragged boxes, unaligned pitches.

Each point is one product of `triton_gemm` in a warm CUDA graph (operands in L2 where they fit), then the same launch with
clock stamps of every CTA. Units in the column names; `time_s` is a launch of the graph, `cta_cycles_*` are SM cycles from
a CTA's first instruction to its last.

Run        python3 validation/triton_loops.py OUT_DIR [--only steps,rounds]
Output     OUT_DIR/triton_NAME.csv and .toml for each experiment
"""

from __future__ import annotations

import multiprocessing
import pathlib
import sys
import time

import triton_plans as plans
from script import parsed, parser_of

EXPERIMENTS = {  # in the order they run
    "descriptors": (plans.points_descriptors, "device-made against host-made tensor descriptors; warm"),
    "steps": (plans.points_steps, "time against k; warm; grids of 1 to 396 tiles; steps_dram streams from DRAM"),
    "rounds": (plans.points_rounds, "132 * resident * rounds tiles; warm"),
    "tails": (plans.points_tails, "partly filled last rounds; warm"),
    "ragged": (plans.points_ragged, "boxes partly outside the matrix; pitch of B varied alone; warm"),
    "outside": (plans.points_outside, "few to many tiles at once that stick out of the matrix; warm"),
    "unaligned": (plans.points_unaligned, "row pitches of 8 mod 16 elements; warm"),
}


def _compile(job: tuple) -> None:
    from triton_gemm import compile_only

    config, stamped, sizes = job
    compile_only(config, stamped=stamped, sizes=sizes)


def compile_jobs(names: list[str]) -> list[tuple]:
    """Every distinct (config, stamped, divisibility by 16 of the sizes) the named experiments launch.

    All of them together bring those of the other scripts, which find the compiled kernels.
    """
    jobs = {}
    for name in names:
        for point in EXPERIMENTS[name][0]():
            m, n, k = point["m"], point["n"], point["k"]
            pitch = point.get("pitch_b") or n
            sizes = tuple(256 if size % 16 == 0 else 3400 for size in (m, n, k, k, pitch, n))
            for stamped in (False, True):
                jobs[(point["config"], stamped, sizes)] = None
    others = set(names) == set(EXPERIMENTS)
    for config in plans.POWER_CONFIGS + plans.COLD_CONFIGS if others else ():
        for stamped in (False, True):
            jobs[(config, stamped, (256,) * 6)] = None
    for point in plans.points_lookups() if others else ():
        jobs[(point["config"], False, (256,) * 6)] = None
    return list(jobs)


def run_experiment(operands, name: str, folder: pathlib.Path) -> None:
    """Measure every point of one experiment and write its record."""
    from triton_timing import measure, sm_clock_hz, write_record

    make, notes = EXPERIMENTS[name]
    rows, begun, before_hz = [], time.time(), sm_clock_hz()
    for index, point in enumerate(make()):
        if index % 100 == 99:  # what is measured so far survives an interruption
            write_record(folder, f"triton_{name}", rows, notes, [before_hz, sm_clock_hz()])
        rows.append(measure(operands, point))
    write_record(folder, f"triton_{name}", rows, notes, [before_hz, sm_clock_hz()])
    print(f"{name}: {len(rows)} points in {time.time() - begun:.1f} s", flush=True)


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--only", default=",".join(EXPERIMENTS), metavar="NAME,...", help="these: %(default)s")
    parser.add_argument("--workers", type=int, default=12, help="compilers at a time (%(default)s)")
    options = parsed(parser)
    for name in options.only.split(","):
        if name not in EXPERIMENTS:
            parser.error(f"no experiment {name!r}; known: {', '.join(EXPERIMENTS)}")
    folder = pathlib.Path(options.folder)
    begun = time.time()
    import torch  # before the fork: the workers share it
    import triton_gemm

    with multiprocessing.get_context("fork").Pool(options.workers) as pool:
        list(pool.imap_unordered(_compile, compile_jobs(options.only.split(",")), chunksize=2))
    print(f"compiled in {time.time() - begun:.1f} s", flush=True)
    problems = triton_gemm.check_all()
    print("\n".join(problems) or "all configurations agree with float64", f"({time.time() - begun:.1f} s)", flush=True)
    from triton_timing import Operands, software_versions

    print(software_versions())
    operands = Operands()
    for name in options.only.split(","):
        run_experiment(operands, name, folder)
    torch.cuda.synchronize()
    if problems:
        sys.exit("some configurations disagree with float64")


if __name__ == "__main__":
    main()
