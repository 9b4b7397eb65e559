"""The suite on this machine: which GPU and compiler there are, programs built, run one after the other, recorded."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tilesight.calibrate.build import Builds, Built, build, compile_all, jobs_for
from tilesight.calibrate.counters import find_ncu
from tilesight.calibrate.limits import RECORD as DEVICE
from tilesight.calibrate.result import Ran, SuiteList
from tilesight.calibrate.run import Outcome, measure
from tilesight.calibrate.suite import ELSEWHERE, Benchmark, chosen, read_suite, split_by_machine, targets_of
from tilesight.calibrate.toolchain import Gpu, compiler_version, find_nvcc

Told = Callable[[str, str, int, int], None]
"""What is told of the progress: stage (``build`` or ``run``), what has ended and how or what begins, how many have ended, of
how many."""


def suite_list() -> SuiteList:
    """The suite as a list, with the targets that each file states."""
    suite = tuple(read_suite().values())
    return SuiteList(suite, tuple(targets_of(bench.source).names for bench in suite), ELSEWHERE)


def build_suite(only: Sequence[str], targets: Sequence[str], *, cubin: bool, workers: int, told: Told) -> Builds:
    """Compile the programs of the suite into the cache; a cubin each where only that is asked for.

    Raises
    ------
    MissingToolError
        If there is no compiler.
    """
    nvcc = find_nvcc()
    benches = chosen(read_suite(), only)
    sources = list(dict.fromkeys(bench.source for bench in benches.values()))
    programs = () if cubin else targets
    jobs, _ = jobs_for(sources, targets, programs=programs)
    ended: list[Built] = []

    def tell(each: Built) -> None:
        ended.append(each)
        told("build", _said(each), len(ended), len(jobs))

    told("build", "nvcc", 0, len(jobs))
    return build(sources, nvcc, targets, programs, workers=workers, told=tell)


def _said(each: Built) -> str:
    what = each.usage if each.result is not None else "does not compile"
    how_long = f"{each.seconds:.0f} s" if each.seconds else "kept"
    return f"{each.job.source.name} for {each.job.target}: {what} ({how_long})"


def run_suite(folder: Path, gpu: Gpu, nvcc: Path, *, only: Sequence[str] = (), workers: int = 1, told: Told) -> Ran:
    """Build what this GPU can run, run it one after the other, and write the records to ``folder``.

    A benchmark that does not compile or fails is named and the suite goes on. The sizes of the chip (``device_limits``) are
    read in any case where they are not in the folder, since every number stands beside them.
    """
    folder.mkdir(parents=True, exist_ok=True)
    suite = read_suite()
    wanted = chosen(suite, only)
    if DEVICE in suite and not (folder / f"{DEVICE}.csv").is_file():
        wanted = {DEVICE: suite[DEVICE]} | wanted
    ncu = find_ncu()
    able, skipped = split_by_machine(wanted, gpu, ncu=ncu is not None)
    built, failed = _programs(able, gpu.target, nvcc, workers, told)
    ready = {name: bench for name, bench in able.items() if name not in failed}
    compiler = compiler_version(nvcc)
    outcomes: list[Outcome] = []
    for bench in ready.values():
        told("run", bench.name, len(outcomes), len(ready))
        outcome = measure(bench, built[bench.source], gpu, compiler, folder, ncu=ncu)
        outcomes.append(outcome)
        how = f"failed: {outcome.failed}" if outcome.failed else f"{outcome.points} points, {outcome.seconds:.1f} s"
        told("run", f"{bench.name}: {how}", len(outcomes), len(ready))
        if outcome.failed:
            failed[bench.name] = outcome.failed
        elif outcome.skipped:
            skipped[f"{bench.name}, in part"] = "; ".join(dict.fromkeys(outcome.skipped))
    for name, (script, needs) in ELSEWHERE.items():
        if not only and not (folder / f"{name}.csv").is_file():
            skipped[name] = f"not of the suite: {script} makes it, with {needs}"
    return Ran(tuple(outcomes), skipped, failed)


def _programs(
    benches: Mapping[str, Benchmark], target: str, nvcc: Path, workers: int, told: Told
) -> tuple[dict[Path, Built], dict[str, str]]:
    """Programs by source, and benchmarks whose program does not compile, with the reason."""
    sources = [bench.source for bench in benches.values()]
    jobs, _ = jobs_for(sources, (target,), programs=(target,))
    built: dict[Path, Built] = {}
    told("build", "nvcc", 0, len(jobs))
    for each in compile_all(jobs, nvcc, workers=workers):
        built[each.job.source] = each
        told("build", _said(each), len(built), len(jobs))
    failed = {}
    for name, bench in benches.items():
        if built[bench.source].result is None:
            complaint = built[bench.source].complaint.splitlines() or ["nvcc says nothing"]
            failed[name] = f"{bench.source.name} does not compile: {complaint[0]}"
    return built, failed
