"""torch.compile of the reduction-reuse workloads: compiled for one shape, checked, timed, and which kernels ran.

mode="max-autotune-no-cudagraphs", dynamic=False, everything forgotten before each shape. Inductor's own autotuning picks
the configuration: `autotune` does it in worker processes, of which one at a time has the GPU for its benchmarks, and the
process that times finds the outcome in Inductor's cache. A result counts only if one graph without a break was compiled and
the profiler saw its kernels run.
"""

from __future__ import annotations

import collections
import re

import torch
import torch._dynamo
from dsmem_record import Point, failed_row, timed_row
from dsmem_timing import launch_seconds
from dsmem_workloads import Problem, outputs_of
from torch._inductor import metrics
from torch._inductor.codecache import PyCodeCache
from torch._inductor.runtime.triton_heuristics import CachingAutotuner
from torch.profiler import ProfilerActivity, profile

MODE = "max-autotune-no-cudagraphs"
LOOP = re.compile(r"^\s*for r0_offset in ", re.MULTILINE)
LOAD = re.compile(r"tl\.load\(\w+ \+ \([^)]*r0_\d[^)]*x0")  # of an element of a row
SOURCE = re.compile(r"async_compile\.triton\('(\w+)',\s*'''(.*?)'''", re.DOTALL)
KINDS = {"triton_per": "persistent", "triton_red": "looped", "triton_poi": "pointwise"}


def compiled(problem: Problem):
    """The compiled function, called once, and the kernels it is made of by name."""
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    metrics.reset()
    before = len(PyCodeCache.modules)
    function = torch.compile(problem.function, mode=MODE, dynamic=False)
    function(*problem.given)
    torch.cuda.synchronize()
    made = {}
    for module in PyCodeCache.modules[before:]:
        made |= {name: each for name, each in vars(module).items() if isinstance(each, CachingAutotuner)}
    return function, made


def complaint(made: dict, ran: collections.Counter) -> str | None:
    """Why this is no proof that the compiled code ran; None where it did."""
    counters = torch._dynamo.utils.counters
    breaks, graphs = sum(counters["graph_break"].values()), counters["stats"]["unique_graphs"]
    if breaks or graphs != 1:
        return f"{graphs} graphs and {breaks} graph breaks; one graph without a break is wanted"
    if metrics.generated_kernel_count == 0:
        return "Inductor generated no kernel"
    if not set(ran) & set(made):
        return f"ran {', '.join(ran) or 'nothing'}; compiled {', '.join(made) or 'nothing'}"
    return None


def kernels_that_ran(run) -> collections.Counter:
    """Kernels of one call by the profiler, in the order of their first launch."""
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as seen:
        run()
        torch.cuda.synchronize()
    events = [event for event in seen.events() if event.device_type == torch.autograd.DeviceType.CUDA]
    events.sort(key=lambda event: event.time_range.start)
    return collections.Counter(event.name for event in events)


def described(made: dict, ran: collections.Counter, sources: dict[str, str]) -> dict:
    """Columns on the kernels of a call: names with counts, kinds, loops over the row, configurations."""
    names = [name for name in ran if name in made]
    return dict(
        kernels="; ".join(f"{name} x{count}" for name, count in ran.items()),
        kinds="; ".join(KINDS.get(name[:10], "other") for name in names),
        passes="; ".join(str(len(LOOP.findall(sources.get(name, "")))) for name in names),
        loads="; ".join(str(len(LOAD.findall(sources.get(name, "")))) for name in names),
        configuration="; ".join(_configuration(made[name]) for name in names),
    )


def _configuration(kernel: CachingAutotuner) -> str:
    """What autotuning chose; empty where a kernel taken from Inductor's cache does not say."""
    if not kernel.launchers:
        return ""
    launcher = kernel.launchers[0]
    config = launcher.config
    parts = dict(config.kwargs) | dict(warps=config.num_warps, stages=config.num_stages)
    parts |= {word: getattr(launcher, name, None) for word, name in (("registers", "n_regs"), ("spills", "n_spills"))}
    return " ".join(f"{key}={value}" for key, value in parts.items())


def sources_of(made: dict) -> dict[str, str]:
    """Triton source of the kernels by name, from the modules that Inductor wrote."""
    found = {}
    for module in PyCodeCache.modules:
        if module.__file__ and any(getattr(module, name, None) is each for name, each in made.items()):
            with open(module.__file__) as file:
                found |= dict(SOURCE.findall(file.read()))
    return found


def poisoned_call(problem: Problem, function) -> tuple:
    """Outputs of a call whose buffers held poison before."""
    torch.cuda.empty_cache()
    poison = problem.poisoned()
    places = {each.data_ptr() for each in poison}
    torch.cuda.synchronize()
    del poison
    found = outputs_of(function(*problem.given))
    if {each.data_ptr() for each in found} - places:
        raise RuntimeError("outputs are not where the poison was, so that it is unknown whether all were written")
    return found


@torch.no_grad()
def measure(problem: Problem, point: Point, repeats: int) -> tuple[dict, dict[str, str]]:
    """The row of torch.compile at a point, and the sources of its kernels."""
    try:
        function, made = compiled(problem)
        error = problem.error(poisoned_call(problem, function))
        torch.cuda.empty_cache()
        sources = sources_of(made)

        def run():
            function(*problem.given)

        seconds, spread, launches = launch_seconds(run, repeats)
        ran = kernels_that_ran(run)
        wrong = complaint(made, ran) or (None if error <= 1 else "wrong result")
        more = described(made, ran, sources) | dict(max_error=error)
        if wrong:
            return failed_row(point, "torch_compile", wrong, **more), sources
    except Exception as problem_found:  # noqa: BLE001  the compiler may fail in any way; the row says how
        return failed_row(point, "torch_compile", problem_found), {}
    return timed_row(point, "torch_compile", seconds, spread, repeats=repeats, launches=launches, **more), sources


@torch.no_grad()
def autotune(point: Point, gpu) -> None:
    """Compile and autotune one shape in a worker; ``gpu`` is the lock that keeps benchmarks apart."""
    torch.set_num_threads(1)
    if not hasattr(CachingAutotuner, "bench_alone"):
        CachingAutotuner.bench_alone = CachingAutotuner.bench

        def bench(self, *args, **kwargs):
            with gpu:
                return self.bench_alone(*args, **kwargs)

        CachingAutotuner.bench = bench
    with gpu:
        problem = Problem.of(point)
        torch.cuda.synchronize()
    compiled(problem)
    del problem
    torch._dynamo.reset()
    torch.cuda.empty_cache()
