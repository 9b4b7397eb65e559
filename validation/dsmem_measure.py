"""What `dsmem.py measure` does: CUDA programs workload by workload, then torch.compile and Triton some widths at a time.

Worker processes compile a batch of widths ahead, and Inductor autotunes in them, one at a time on the GPU; then this process
times the batch, alone on the GPU. Nothing is started after the limit; what has a row is not measured again.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import pathlib
import tempfile
import time
from collections.abc import Iterator

import dsmem_cuda
from dsmem_candidates import candidates
from dsmem_record import CANDIDATE_COLUMNS, KEY, SOURCES, Point, Record, points

MOST_SECONDS = 1e6  # that a timer takes
MOST_WORKERS = 14  # each holds a shape of up to 5.4 GB while it autotunes
Batch = list[tuple[Point, list[str]]]
"""Points, each with the sources that have no row yet."""


class Clock:
    """Seconds since the start, and until the limit."""

    def __init__(self, limit_s: float):
        self.begun, self.limit_s = time.monotonic(), min(limit_s, MOST_SECONDS)

    @property
    def passed_s(self) -> float:
        return time.monotonic() - self.begun

    @property
    def left_s(self) -> float:
        return self.limit_s - self.passed_s

    def tell(self, text: str) -> None:
        print(f"{self.passed_s:6.1f} {text}", flush=True)


def told(row: dict) -> str:
    """One line on a row.

    >>> told(dict(workload="lars_momentum", rows=4096, cols=8192, alternative="triton", error="no candidate runs"))
    'lars_momentum 4096 8192 triton: no candidate runs'
    """
    name = " ".join(str(row[key]) for key in KEY if key != "dtype" and row.get(key))
    if row.get("error"):
        return f"{name}: {row['error'][:160]}"
    return f"{name}: {row['seconds'] * 1e6:.1f} us, {row['bytes_per_s'] / 1e12:.3f} TB/s {row.get('kinds') or ''}"


def keep(record: Record, row: dict, clock: Clock) -> None:
    """Append a row and tell it."""
    record.append(row)
    clock.tell(told(row))


def measure_cuda(options: argparse.Namespace, record: Record, clock: Clock) -> None:
    """All variants of the CUDA programs, workload by workload."""
    wanted = points(options.workloads, options.widths, options.rows, options.dtype)
    for name in options.workloads:
        missing = [each for each in wanted if each.workload == name and not record.has(each, SOURCES["cuda"])]
        if not missing or clock.left_s <= 0:
            continue
        program = (options.programs / name).resolve()
        for _, rows in dsmem_cuda.measure(program, missing, options.repeats, clock.left_s):
            for row in rows:
                keep(record, row, clock)


def batches(options: argparse.Namespace, record: Record) -> Iterator[Batch]:
    """What torch.compile and Triton still have to do, some widths at a time."""
    sources = [name for name in ("torch", "triton") if name in options.only]
    for at in range(0, len(options.widths), options.batch):
        some = points(options.workloads, options.widths[at : at + options.batch], options.rows, options.dtype)
        lacking = [(point, [name for name in sources if not record.has(point, SOURCES[name])]) for point in some]
        if found := [(point, missing) for point, missing in lacking if missing]:
            yield found


# ---- compiling ahead

_gpu = None  # in a worker: the lock that keeps benchmarks apart


def begin_worker(lock) -> None:
    """Give a worker the lock of the GPU."""
    global _gpu
    _gpu = lock


def compile_job(job: tuple) -> str | None:
    """Compile in a worker; why it failed, or None."""
    import dsmem_torch
    import dsmem_triton

    source, point, candidate = job
    try:
        if source == "torch":
            dsmem_torch.autotune(point, _gpu)
        else:
            dsmem_triton.compile_only(point, candidate)
    except Exception as error:  # noqa: BLE001  it fails again where it is timed, and is recorded there
        return f"{source} {point} {candidate or ''}: {type(error).__name__}: {error}"[:300]
    return None


def jobs(batch: Batch) -> list[tuple]:
    """What is compiled before a batch is timed: every torch.compile, and each Triton kernel once."""
    kernels = {}
    for point, sources in batch:
        for each in candidates(point.workload, point.cols) if "triton" in sources else ():
            sizes = (
                point.cols % 16 == 0,
                point.rows % 16 == 0,
                point.cols % each.block == 0,
            )  # what Triton compiles for
            kernels.setdefault((point.workload, point.dtype, each, sizes), (point, each))
    made = [("torch", point, None) for point, sources in batch if "torch" in sources]
    return made + [("triton", *pair) for pair in kernels.values()]


def compile_ahead(pool, batch: Batch, clock: Clock) -> bool:
    """Whether everything was compiled before the time ran out."""
    made = jobs(batch)
    results = pool.imap_unordered(compile_job, made)
    for _ in made:
        try:
            failed = results.next(timeout=max(clock.left_s, 0.0))
        except multiprocessing.TimeoutError:
            return False
        if failed:
            clock.tell(failed)
    clock.tell(f"compiled {len(made)} kernels and graphs")
    return True


# ---- timing


def set_caches() -> None:
    """Folders in which workers leave what they compile; one compiler a process, since the workers are many."""
    folder = pathlib.Path(tempfile.gettempdir()) / "tilesight_dsmem"
    for name, part in (("TORCHINDUCTOR_CACHE_DIR", "inductor"), ("TRITON_CACHE_DIR", "triton")):
        os.environ.setdefault(name, str(folder / part))
    os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"


def measure_frameworks(options: argparse.Namespace, record: Record, clock: Clock) -> None:
    """torch.compile and Triton: compiled by workers, timed here."""
    set_caches()
    context = multiprocessing.get_context("spawn")  # importing Inductor has touched CUDA: a fork could not use it
    workers = max(1, min(MOST_WORKERS, (os.cpu_count() or 1) - 2))
    with context.Pool(workers, begin_worker, (context.Lock(),)) as pool:
        for batch in list(batches(options, record)):
            if clock.left_s <= 0 or not compile_ahead(pool, batch, clock):
                return
            for point, sources in batch:
                if clock.left_s <= 0:
                    return
                measure_point(options, record, clock, point, sources)


def measure_point(options: argparse.Namespace, record: Record, clock: Clock, point: Point, sources: list[str]) -> None:
    """torch.compile and Triton on the same data."""
    import dsmem_torch
    import dsmem_triton
    import torch
    from dsmem_timing import warm_clock
    from dsmem_workloads import Problem

    problem = Problem.of(point)
    warm_clock()
    if "torch" in sources:
        row, written = dsmem_torch.measure(problem, point, options.repeats)
        keep(record, row, clock)
        if options.sources:
            append_sources(options.sources, point, written)
    torch.cuda.empty_cache()
    if "triton" in sources:
        row, tried = dsmem_triton.measure(problem, point, options.repeats)
        candidates = Record(options.out / "dsmem_triton.csv", CANDIDATE_COLUMNS)
        for each in tried:
            candidates.append(each)
        keep(record, row, clock)
    del problem
    torch.cuda.empty_cache()


def append_sources(path: pathlib.Path, point: Point, written: dict[str, str]) -> None:
    """Keep the kernels that Inductor wrote."""
    with open(path, "a") as file:
        for name, text in written.items():
            file.write(f"# ---- {point} {name}\n{text}\n")
