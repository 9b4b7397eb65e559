"""The suite on this machine: which GPU and compiler there are, programs built, run one after the other, recorded."""

import datetime
import itertools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tilesight.calibrate.build import Builds, Built, build, compile_all, jobs_for
from tilesight.calibrate.counters import find_ncu
from tilesight.calibrate.limits import RECORD as DEVICE
from tilesight.calibrate.process import programs_end_too
from tilesight.calibrate.records import Records
from tilesight.calibrate.result import Ran, SuiteList
from tilesight.calibrate.run import Outcome, measure
from tilesight.calibrate.suite import ELSEWHERE, Benchmark, chosen, read_suite, split_by_machine, targets_of
from tilesight.calibrate.toolchain import Gpu, compiler_version, find_nvcc
from tilesight.errors import TilesightError

DATE = "%Y-%m-%dT%H-%M-%SZ"
Told = Callable[[str, str, int, int], None]
"""What is told of the progress: stage (``build`` or ``run``), what has ended and how or what begins, how many have ended, of
how many."""


def suite_list() -> SuiteList:
    """The suite as a list, with the targets that each file states."""
    suite = tuple(read_suite().values())
    return SuiteList(suite, tuple(targets_of(bench.source).names for bench in suite), ELSEWHERE)


@programs_end_too()
def build_suite(only: Sequence[str], targets: Sequence[str], *, cubin: bool, workers: int, told: Told) -> Builds:
    """Compile the programs of the suite into the cache; a cubin each where only that is asked for.

    Raises
    ------
    MissingToolError
        If there is no compiler.
    """
    benches = chosen(read_suite(), only)
    nvcc = find_nvcc()
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


def about_to_run(folder: Path, only: Sequence[str]) -> dict[str, Benchmark]:
    """Benchmarks of these names, or all, in the order in which they run.

    The sizes of the chip (``device_limits``) are among them in any case where the folder has none that can be read, since
    every number stands beside them.
    """
    suite = read_suite()
    wanted = chosen(suite, only)
    if DEVICE in suite and not _is_readable(folder, DEVICE):
        wanted = {DEVICE: suite[DEVICE]} | wanted
    return wanted


def _is_readable(folder: Path, record: str) -> bool:
    try:
        return len(Records(folder)[record]) > 0
    except TilesightError:
        return False


def folder_of_check(out: Path) -> Path:
    """A new folder for the records of a check, named after the time: those that a profile rests on stay as they are."""
    name = datetime.datetime.now(datetime.UTC).strftime(DATE)
    folders = (out / "check" / (f"{name}-{number}" if number else name) for number in itertools.count())
    folder = next(folder for folder in folders if not folder.exists())
    folder.mkdir(parents=True)
    return folder


@programs_end_too()
def run_suite(folder: Path, gpu: Gpu, nvcc: Path, *, only: Sequence[str] = (), workers: int = 1, told: Told) -> Ran:
    """Build what this GPU can run, run it one after the other, and write the records to ``folder``.

    A benchmark that does not compile or fails is named and the suite goes on.
    """
    folder.mkdir(parents=True, exist_ok=True)
    wanted = about_to_run(folder, only)
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
            error = next((line for line in complaint if "error" in line.lower()), complaint[0])
            failed[name] = f"{bench.source.name} does not compile: {error.strip()}"
    return built, failed
