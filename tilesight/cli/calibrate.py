"""calibrate: microbenchmarks run on this machine's GPU, or records of an earlier run, made into a profile."""

import os
import sys
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Annotated, Any

import typer

from tilesight.cli.options import Json
from tilesight.errors import ConfigError, TilesightError, shown

MOVED = 1
"""Exit status where a number moved, a benchmark failed or a file does not compile."""
SAID_MOST = 60
"""Characters beside a progress bar."""
BUILT_FOR = "sm_90a"
"""Target where there is neither a GPU nor ``--target``."""


def calibrate(
    profile: Annotated[
        str | None,
        typer.Argument(metavar="PROFILE", help="With --check: what to hold against; by default the GPU's own."),
    ] = None,
    out: Annotated[str, typer.Option("--out", metavar="DIR", help="Where records and profile go.")] = "calibration",
    name: Annotated[
        str | None, typer.Option("--name", metavar="NAME", help="Name of the profile; by default that of the GPU.")
    ] = None,
    base: Annotated[
        str | None,
        typer.Option(
            "--base", metavar="NAME|FILE", help="States what no microbenchmark gives; by default the GPU's own."
        ),
    ] = None,
    only: Annotated[str | None, typer.Option("--only", metavar="NAME,...", help="Run these benchmarks alone.")] = None,
    keep: Annotated[
        str | None,
        typer.Option("--keep", metavar="NUMBER,...", help="Keep these numbers though they spread by over 5 %."),
    ] = None,
    given: Annotated[
        str | None, typer.Option("--from", metavar="DIR", help="Take the records of an earlier run; needs no GPU.")
    ] = None,
    check: Annotated[bool, typer.Option("--check", help="List numbers that moved; exit status 1 if one did.")] = False,
    listed: Annotated[bool, typer.Option("--list", help="List the microbenchmarks.")] = False,
    build_only: Annotated[
        bool, typer.Option("--build-only", help="Compile the microbenchmarks; needs nvcc alone.")
    ] = False,
    target: Annotated[
        str | None, typer.Option("--target", metavar="sm_90a,...", help="With --build-only: for which GPUs.")
    ] = None,
    cubin: Annotated[
        bool, typer.Option("--cubin", help="With --build-only: device code alone, in about half the time.")
    ] = False,
    fit: Annotated[
        bool,
        typer.Option("--fit/--no-fit", help="Fit loops and ends, or leave them as a base of the same GPU has them."),
    ] = True,
    jobs: Annotated[str | None, typer.Option("--jobs", metavar="COUNT", help="Compilers at a time.")] = None,
    as_json: Json = False,
) -> int:
    """Measure this machine's GPU and write its profile: every number with the record it is from.

    Clocks and power limits are left as they are. A number whose repeats spread by more than 5 % is left out and listed.
    """
    from tilesight.cli.asked import hardware_of

    _refuse_empty({"--only": only, "--keep": keep, "--target": target}, listed=True)
    _refuse_empty({"--out": out, "--from": given, "--name": name, "--base": base}, listed=False)
    modes = {"--list": listed, "--build-only": build_only, "--from": given is not None}
    if sum(modes.values()) > 1:
        raise ConfigError(f"{' and '.join(mode for mode, asked in modes.items() if asked)} exclude each other")
    if (target or cubin) and not build_only:
        raise ConfigError("--target and --cubin go with --build-only")
    if profile is not None and not check:
        raise ConfigError(f"{shown(profile)} goes with --check; what states the other numbers is --base")
    if check and (listed or build_only or base or name or keep):
        raise ConfigError("--check takes PROFILE, --from, --out, --only, --no-fit, --jobs and --json")
    if only is not None and given is not None:
        raise ConfigError("--only says what to run; --from runs nothing")
    if listed:
        return _list(as_json)
    if build_only:
        return _build(_words(only), _words(target), cubin, _count(jobs), as_json)
    options: dict[str, Any] = {"fit": fit}
    if check:
        held = None if profile is None else hardware_of(profile)
        return _check(held, given, Path(out), _words(only), _count(jobs), options, as_json)
    options |= {"base": None if base is None else hardware_of(base), "name": name, "keep": _words(keep)}
    return _calibrate(given, Path(out), _words(only), _count(jobs), options, as_json)


def _refuse_empty(options: Mapping[str, str | None], *, listed: bool) -> None:
    """Refuse options that were given and say nothing."""
    for option, text in options.items():
        if text is not None and not (_words(text) if listed else text.strip()):
            what = "names, separated by commas," if listed else "one"
            raise ConfigError(f"{option} {shown(text)} names nothing; give {what} or leave the option out")


def _words(text: str | None) -> list[str]:
    return [word.strip() for word in (text or "").split(",") if word.strip()]


def _count(text: str | None) -> int:
    if text is None:
        return os.cpu_count() or 1
    if not text.isascii() or not text.isdigit() or not 1 <= int(text[:9]) <= 1024:
        raise ConfigError(f"jobs = {shown(text)}; give a number of compilers, 1 to 1024")
    return int(text)


def _list(as_json: bool) -> int:
    from tilesight.calibrate.machine import suite_list
    from tilesight.cli.output import print_result

    print_result(suite_list(), as_json)
    return 0


def _build(only: list[str], targets: list[str], cubin: bool, workers: int, as_json: bool) -> int:
    from tilesight.calibrate.machine import build_suite
    from tilesight.calibrate.toolchain import find_gpu, known_targets
    from tilesight.cli.output import print_result
    from tilesight.errors import MissingToolError

    if not targets:
        try:
            targets = [find_gpu().target]
        except MissingToolError:
            targets = [BUILT_FOR]
    with _Progress() as told:
        builds = build_suite(only, known_targets(targets), cubin=cubin, workers=workers, told=told)
    print_result(builds, as_json)
    return MOVED if builds.failed else 0


def _calibrate(
    given: str | None, out: Path, only: list[str], workers: int, options: dict[str, Any], as_json: bool
) -> int:
    from dataclasses import replace

    from tilesight.calibrate.identity import records_folder
    from tilesight.calibrate.session import calibrate_records, check_names, write_calibration
    from tilesight.cli.output import print_result

    if given is not None:
        folder = records_folder(Path(given), options["name"])
        print_result(write_calibration(calibrate_records(folder, **options), folder, out), as_json)
        return 0
    check_names(options["keep"])
    folder, ran, gpu = _measured(out, only, workers, options["base"], options["name"])
    try:
        found = replace(calibrate_records(folder, **options), ran=ran)
    except TilesightError as error:
        return _unfinished(error, ran, gpu, as_json)
    print_result(write_calibration(found, folder, out), as_json)
    return MOVED if ran.failed else 0


def _unfinished(error: TilesightError, ran: Any, gpu: str, as_json: bool) -> int:
    """Print what failed where records were to be made and no profile can be; an error for another reason is raised again."""
    from tilesight.calibrate.result import Unfinished
    from tilesight.cli.output import print_result

    if not ran.failed and any(each.points for each in ran.outcomes):
        raise error
    nothing = not any(each.points and not each.failed for each in ran.outcomes)
    print_result(Unfinished(gpu, "no benchmark gave a record" if nothing else str(error), ran), as_json)
    return MOVED


def _check(
    held: str | None,
    given: str | None,
    out: Path,
    only: list[str],
    workers: int,
    options: dict[str, Any],
    as_json: bool,
) -> int:
    from dataclasses import replace

    from tilesight.calibrate.session import check_records
    from tilesight.cli.output import print_result

    if given is not None:
        result = check_records(Path(given), hardware=held, **options)
    else:
        folder, ran, gpu = _measured(out, only, workers, held, None, check=True)
        try:
            result = replace(check_records(folder, hardware=held, **options), ran=ran, records=folder)
        except TilesightError as error:
            return _unfinished(error, ran, gpu, as_json)
    print_result(result, as_json)
    return MOVED if result.moved or result.ran.failed else 0


def _measured(
    out: Path, only: list[str], workers: int, base: str | None, name: str | None, *, check: bool = False
) -> tuple[Path, Any, str]:
    """Run the suite; the folder of the records, what became of each benchmark, and the name of the GPU.

    The records of a check go to a folder of their own.

    What would be refused later is refused before anything runs: a wrong name, no GPU, no compiler, no base that fits.
    """
    from tilesight.calibrate.assemble import RECORDS
    from tilesight.calibrate.identity import check_same_gpu, identify
    from tilesight.calibrate.machine import about_to_run, folder_of_check, run_suite
    from tilesight.calibrate.suite import chosen, read_suite
    from tilesight.calibrate.toolchain import architecture_of, find_gpu, find_nvcc

    chosen(read_suite(), only)
    gpu = find_gpu()
    which = identify(gpu.name, base, name, architecture_of(gpu.target))
    nvcc = find_nvcc()
    folder = out / RECORDS / which.name
    again = about_to_run(folder, only)
    if check:
        folder = folder_of_check(out)
    else:
        check_same_gpu(folder, gpu.name, again)
    with _Progress() as told:
        return folder, run_suite(folder, gpu, nvcc, only=only, workers=workers, told=told), gpu.name


class _Progress(AbstractContextManager["_Progress"]):
    """Says on stderr how far building and running are: bars in a terminal, else a line for each step that ends."""

    def __init__(self) -> None:
        self._bars: Any = None
        self._tasks: dict[str, Any] = {}
        self._done: dict[str, int] = {}
        if sys.stderr is not None and sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

            columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
            self._bars = Progress(*columns, TextColumn("{task.fields[said]}"), console=Console(stderr=True))

    def __enter__(self) -> "_Progress":
        (self._bars or nullcontext()).__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        (self._bars or nullcontext()).__exit__(*error)

    def __call__(self, stage: str, said: str, done: int, of: int) -> None:
        if self._bars is None:
            if sys.stderr is not None and done > self._done.get(stage, 0):
                print(f"{stage} {done}/{of} {said}", file=sys.stderr, flush=True)
            self._done[stage] = done
            return
        if stage not in self._tasks:
            self._tasks[stage] = self._bars.add_task(stage, total=of, said="")
        self._bars.update(self._tasks[stage], completed=done, said=said[:SAID_MOST])
