"""Run one microbenchmark and write its record: NAME.csv, a row a measured point, and NAME.toml, how it came about.

A program prints one JSON object a line. It checks its own results and ends with another status than 0 where one is wrong;
then, or when it takes too long, the benchmark has failed and leaves no record, only NAME.incomplete.csv with what it had
printed. An earlier record stays until it is known what became of the run. A line whose ``part`` is ``skipped`` says that
this GPU lacks what a part needs.
"""

import datetime
import hashlib
import json
import math
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tilesight.calibrate.build import Built, flags_for
from tilesight.calibrate.counters import WITHOUT_RIGHT, BadCountersError, CountersNotAllowedError, Row, is_forbidden
from tilesight.calibrate.process import run_limited
from tilesight.calibrate.stored import SPREAD, UNKNOWN, write_record, write_rows
from tilesight.calibrate.suite import FOLDER, Benchmark
from tilesight.calibrate.toolchain import Gpu, program_environment, query
from tilesight.errors import shown as shortly

GPU_QUERY = ("name", "driver_version", "power.limit", "clocks.max.sm", "clocks.max.mem")
LOAD_QUERY = ("clocks.sm", "clocks.mem", "power.draw", "temperature.gpu")
COUNTERS = "counters.csv"
STDERR_SHOWN = 400
"""Characters at the end of a failed program's messages that are repeated."""


@dataclass(frozen=True)
class Outcome:
    """What became of one benchmark: its points, or why it failed (None where it did not), and parts it left out."""

    name: str
    points: int
    seconds: float
    failed: str | None = None
    skipped: tuple[str, ...] = ()


class BadRunError(Exception):
    """A run that failed, with the rows it had printed; stays in this file."""

    def __init__(self, problem: str, rows: list[Row]) -> None:
        super().__init__(problem)
        self.rows = rows


def measure(
    bench: Benchmark, built: Built, gpu: Gpu, compiler: str, folder: Path, *, ncu: Path | None = None
) -> Outcome:
    """Run every command line of a benchmark and write its record to ``folder``; never raises for a program's failure.

    ``ncu`` is Nsight Compute, which a benchmark that counts needs.
    """
    started = time.monotonic()
    rows: list[Row] = []
    before = _first(query(LOAD_QUERY, gpu=gpu.id))
    problem = None
    try:
        for words in bench.runs:
            rows += _counted(bench, built, words, ncu) if bench.counting else run_program(built, words, bench.timeout_s)
    except BadRunError as error:
        rows += error.rows
        problem = str(error)
    skipped = tuple(str(row.get("reason", "no reason given")) for row in rows if row.get("part") == "skipped")
    points = [row for row in rows if row.get("part") != "skipped"]
    if problem is None and not points and not skipped:
        problem = "it printed no point"
    if problem is None and bench.prints_spread and any(row.get(SPREAD) is None for row in points):
        problem = "it printed a point without its spread"
    seconds = time.monotonic() - started
    *record, incomplete = (folder / f"{bench.name}{ending}" for ending in (".csv", ".toml", ".incomplete.csv"))
    if problem is None and points:
        about = _about(bench, built, gpu, compiler, before, _first(query(LOAD_QUERY, gpu=gpu.id)), skipped)
        write_record(folder, bench.name, points, about)
    else:
        for path in record:  # what an earlier run left is not this one's
            path.unlink(missing_ok=True)
    incomplete.unlink(missing_ok=True)
    if problem is not None and points:
        write_rows(incomplete, points)
    return Outcome(bench.name, len(points), seconds, problem, skipped)


def _counted(bench: Benchmark, built: Built, words: Sequence[str], ncu: Path | None) -> list[Row]:
    """Rows that one command line prints under Nsight Compute, with their counters."""
    assert bench.counting is not None
    assert ncu is not None, "what this machine can't count is left out before"
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / COUNTERS
        before = bench.counting.command(ncu, log)
        try:
            try:
                rows = run_program(built, words, bench.timeout_s, before)
            except BadRunError as error:
                if is_forbidden(log):
                    raise CountersNotAllowedError(WITHOUT_RIGHT) from None
                raise error from None
            return bench.counting.beside(rows, log)
        except CountersNotAllowedError as error:
            return [{"bench": bench.name, "part": "skipped", "reason": str(error)}]
        except BadCountersError as error:
            raise BadRunError(f"{_shown(built, words)}: {error}", []) from None


def _shown(built: Built, words: Sequence[str]) -> str:
    return " ".join([f"./{built.job.source.stem}", *words])


def run_program(built: Built, words: Sequence[str], timeout_s: float, before: Sequence[str] = ()) -> list[Row]:
    """Rows that one command line prints; ``before`` are words before the program's own.

    Raises
    ------
    BadRunError
        If it ends with another status than 0, takes longer than its limit, or prints a line that is no JSON object.
    """
    shown = _shown(built, words)
    try:
        ended = run_limited([*before, str(built.result), *words], timeout_s, environment=program_environment())
    except OSError as error:
        raise BadRunError(f"{shown} does not start: {error.strerror}", []) from None
    if ended.status is None:
        raise BadRunError(f"{shown} took longer than {timeout_s:g} s", _rows(ended.out, shown, strict=False))
    if ended.status:
        said = " ".join(ended.err.split())[-STDERR_SHOWN:] or "it says nothing"
        raise BadRunError(f"{shown} ended with {ended.status}: {said}", _rows(ended.out, shown, strict=False))
    return _rows(ended.out, shown, strict=True)


def _rows(out: str, shown: str, *, strict: bool) -> list[Row]:
    """The JSON objects of a program's output; lines that don't begin with a brace, blanks aside, are messages."""
    rows: list[Row] = []
    for number, line in enumerate(out.split("\n"), start=1):
        if not line.lstrip(" \t\r").startswith("{"):
            continue
        try:
            row = json.loads(line, parse_constant=_no_number)
            _check_row(row)
        except (ValueError, RecursionError) as error:
            why = "it is nested too deeply" if isinstance(error, RecursionError) else error
            if strict:
                raise BadRunError(
                    f"{shown}: line {number} is no JSON object of numbers and text: {why}", rows
                ) from None
            break
        rows.append(row)
    return rows


def _check_row(row: Row) -> None:
    """Refuse with a ``ValueError`` what no record can hold."""
    for key, value in row.items():
        if not (value is None or isinstance(value, str | int | float)):
            raise ValueError(f"{shortly(key)}: a value is no number and no text")
        for text in (key, value) if isinstance(value, str) else (key,):
            text.encode("utf-8")  # half a surrogate pair can't be
            if row.get("part") != "skipped" and text.splitlines() not in ([], [text]):
                raise ValueError(f"{shortly(text)} runs over several lines")
        if isinstance(value, int | float) and not _is_finite(value):
            raise ValueError(f"{key} = {shortly(value)} is no finite number")
    spread = row.get(SPREAD, 0.0)
    if spread is not None and (isinstance(spread, str | bool) or spread < 0):
        raise ValueError(f"{SPREAD} = {shortly(spread)} is no spread; it is 0 or more")


def _is_finite(value: float) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:  # an integer beyond what a float holds
        return False


def _no_number(name: str) -> float:
    raise ValueError(f"{name} is no number")


def _about(
    bench: Benchmark,
    built: Built,
    gpu: Gpu,
    compiler: str,
    before: Mapping[str, str],
    after: Mapping[str, str],
    skipped: Sequence[str],
) -> dict[str, Any]:
    """What the TOML file of a record says."""
    board = _first(query(GPU_QUERY, gpu=gpu.id))
    under = bench.counting.command("ncu", COUNTERS) if bench.counting else []
    used = [line.split("info    :")[-1].strip() for line in built.report.splitlines() if "Used" in line]
    about: dict[str, Any] = {
        "record": bench.name,
        "source": f"{FOLDER}/{bench.source.name}",
        "source_sha256": hashlib.sha256(bench.source.read_bytes()).hexdigest(),
        "gpu": gpu.name,
        "target": built.job.target,
        "driver": board.get("driver_version", UNKNOWN),
        "compiler": compiler,
        "flags": " ".join(flags_for(built.job.target)),
        "power_limit_w": _number(board.get("power.limit")),
        "sm_clock_max_mhz": _number(board.get("clocks.max.sm")),
        "memory_clock_max_mhz": _number(board.get("clocks.max.mem")),
        "sm_clock_before_mhz": _number(before.get("clocks.sm")),
        "sm_clock_after_mhz": _number(after.get("clocks.sm")),
        "memory_clock_after_mhz": _number(after.get("clocks.mem")),
        "power_after_w": _number(after.get("power.draw")),
        "temperature_after_c": _number(after.get("temperature.gpu")),
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "commands": [" ".join([*under, f"./{bench.source.stem}", *words]) for words in bench.runs],
        "registers": sorted(set(used)),
    }
    return about | ({"skipped": list(skipped)} if skipped else {})


def _first(rows: Sequence[dict[str, str]]) -> dict[str, str]:
    return rows[0] if rows else {}


def _number(text: str | None) -> float | str:
    try:
        number = float(text or "")
    except ValueError:
        return UNKNOWN
    return number if math.isfinite(number) else UNKNOWN
