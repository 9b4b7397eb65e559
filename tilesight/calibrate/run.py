"""Run one microbenchmark and write its record: NAME.csv, a row a measured point, and NAME.toml, how it came about.

A program prints one JSON object a line. It checks its own results and ends with another status than 0 where one is wrong;
then, or when it takes too long, the benchmark has failed and leaves no record, only NAME.incomplete.csv with what it had
printed. A line whose ``part`` is ``skipped`` says that this GPU lacks what a part needs.
"""

import csv
import datetime
import hashlib
import json
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tilesight.calibrate.build import Built, flags_for
from tilesight.calibrate.counters import WITHOUT_RIGHT, BadCountersError, CountersNotAllowedError, Row, is_forbidden
from tilesight.calibrate.suite import FOLDER, Benchmark
from tilesight.calibrate.toolchain import Gpu, program_environment, query

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
    paths = [folder / f"{bench.name}{ending}" for ending in (".csv", ".toml", ".incomplete.csv")]
    for path in paths:  # what an earlier run left is not this one's
        path.unlink(missing_ok=True)
    seconds = time.monotonic() - started
    if problem is not None:
        if points:
            write_rows(paths[2], points)
        return Outcome(bench.name, len(points), seconds, problem, skipped)
    if points:
        write_rows(paths[0], points)
        about = _about(bench, built, gpu, compiler, before, _first(query(LOAD_QUERY, gpu=gpu.id)), skipped)
        paths[1].write_text(
            "".join(f"{key} = {json.dumps(value, ensure_ascii=False)}\n" for key, value in about.items()),
            encoding="utf-8",
        )
    return Outcome(bench.name, len(points), seconds, None, skipped)


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
        process = subprocess.Popen(
            [*before, str(built.result), *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            env=dict(program_environment()),
            start_new_session=True,
        )
    except OSError as error:
        raise BadRunError(f"{shown} does not start: {error.strerror}", []) from None
    try:
        out, err = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        out, _ = _stop(process)
        raise BadRunError(f"{shown} took longer than {timeout_s:g} s", _rows(out, shown, strict=False)) from None
    except BaseException:
        _stop(process)
        raise
    if process.returncode:
        said = " ".join(err.split())[-STDERR_SHOWN:] or "it says nothing"
        raise BadRunError(f"{shown} ended with {process.returncode}: {said}", _rows(out, shown, strict=False))
    return _rows(out, shown, strict=True)


def _stop(process: "subprocess.Popen[str]") -> tuple[str, str]:
    """End a program and what it started."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        process.kill()
    return process.communicate()


def _rows(out: str, shown: str, *, strict: bool) -> list[Row]:
    """The JSON objects of a program's output; lines that don't begin with a brace are messages."""
    rows: list[Row] = []
    for number, line in enumerate(out.splitlines(), start=1):
        if not line.startswith("{"):
            continue
        try:
            row = json.loads(line, parse_constant=_no_number)
            if not all(value is None or isinstance(value, str | int | float) for value in row.values()):
                raise ValueError("a value is no number and no text")
        except ValueError as error:
            if strict:
                raise BadRunError(
                    f"{shown}: line {number} is no JSON object of numbers and text: {error}", rows
                ) from None
            break
        rows.append(row)
    return rows


def _no_number(name: str) -> float:
    raise ValueError(f"{name} is no number")


def write_rows(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write a CSV file: columns in the order in which rows name them, empty cells where a row has no such value."""
    columns = list(dict.fromkeys(key for row in rows for key in row))
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, columns, restval="", lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


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
        "driver": board.get("driver_version", "unknown"),
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
        return float(text or "")
    except ValueError:
        return "unknown"
