"""Launches the Triton kernels of the reduction-reuse workloads: every candidate checked and timed, the best timed anew."""

from __future__ import annotations

import dataclasses

import torch
from dsmem_candidates import Candidate, candidates, programs_of
from dsmem_record import Point, failed_row, timed_row
from dsmem_timing import launch_seconds
from dsmem_triton_kernels import KERNELS
from dsmem_workloads import INPUTS, OUTPUTS, TORCH_DTYPES, Problem


def _options(candidate: Candidate, cols: int) -> dict:
    even = cols % candidate.block == 0
    return dict(block=candidate.block, even=even, stages=candidate.stages, num_warps=candidate.warps)


def _kernel(workload: str, candidate: Candidate):
    return KERNELS[workload][candidate.kernel == "looped"]


def compile_only(point: Point, candidate: Candidate):
    """Fill Triton's cache for one candidate at a shape; the compiled kernel."""
    row = TORCH_DTYPES[point.dtype]
    types = [row] * len(INPUTS[point.workload])
    types += (
        [torch.int8, torch.float32] if point.workload == "quantise_int8" else [row] * OUTPUTS.get(point.workload, 1)
    )
    options = _options(candidate, point.cols)
    kernel = _kernel(point.workload, candidate)
    return kernel.warmup(*types, point.rows, point.cols, grid=(1,), **options)


def launcher(problem: Problem, point: Point, candidate: Candidate, out: tuple):
    """A call that launches the candidate, and what the compiler made of it."""
    made = compile_only(point, candidate)
    made._init_handles()
    sms = torch.cuda.get_device_properties(0).multi_processor_count
    smem_bytes = made.metadata.shared
    programs = programs_of(candidate, point.rows, made.n_regs, smem_bytes, sms)
    kernel, options = _kernel(problem.workload, candidate)[(programs,)], _options(candidate, problem.cols)

    def run():
        kernel(*problem.given, *out, problem.rows, problem.cols, **options)

    return run, dict(programs=programs, registers=made.n_regs, spills=made.n_spills, smem_bytes=smem_bytes)


def try_one(problem: Problem, point: Point, candidate: Candidate, out: tuple) -> dict:
    """The row of a candidate: a quick time, checked on the first and last rows."""
    row = dataclasses.asdict(point) | candidate.columns()
    try:
        run, made = launcher(problem, point, candidate, out)
        row |= made
        poison(out)
        run()
        row["max_error"] = problem.error(out, few=True)
        if not row["max_error"] <= 1:
            return row | dict(error="wrong result")
        row["seconds"], row["spread"], _ = launch_seconds(run, 3)
    except Exception as found:  # noqa: BLE001  out of registers, of shared memory, of the compiler's patience
        row["error"] = f"{type(found).__name__}: {found}"[:300]
    return row


def poison(out: tuple) -> None:
    """Fill output buffers with what no right result equals."""
    for each in out:
        each.fill_(-128 if each.dtype == torch.int8 else float("nan"))


@torch.no_grad()
def measure(problem: Problem, point: Point, repeats: int) -> tuple[dict, list[dict]]:
    """The row of the best candidate at a point, timed and checked anew on all rows, and the rows of all candidates."""
    out = problem.poisoned()
    wanted = candidates(point.workload, point.cols)
    tried = [try_one(problem, point, each, out) for each in wanted]
    timed = [(row["seconds"], each) for row, each in zip(tried, wanted, strict=True) if "error" not in row]
    if not timed:
        return failed_row(point, "triton", f"no candidate runs: {tried[0]['error']}"), tried
    best = min(timed, key=lambda pair: pair[0])[1]
    run, made = launcher(problem, point, best, out)
    poison(out)
    run()
    error = problem.error(out)
    settings = best.columns() | dict(programs=made["programs"], registers=made["registers"], spills=made["spills"])
    more = dict(
        max_error=error,
        configuration=" ".join(f"{key}={value}" for key, value in settings.items() if key != "kernel"),
        kernels=f"{_kernel(point.workload, best).__name__} x1",
        kinds=best.kernel,
        passes=2 if best.kernel == "looped" else 1,
    )
    if not error <= 1:
        return failed_row(point, "triton", "wrong result", **more), tried
    seconds, spread, launches = launch_seconds(run, repeats)
    return timed_row(point, "triton", seconds, spread, repeats=repeats, launches=launches, **more), tried
