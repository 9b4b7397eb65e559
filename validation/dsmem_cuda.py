"""Runs the CUDA programs of kernels_cuda/dsmem, one executable a workload, and turns their JSON lines into rows.

A program prints a line a variant and width: what it timed, or why it left it out. A width is complete when the next begins
or the program ends well; what a program that is stopped had begun is dropped and measured again.
"""

from __future__ import annotations

import json
import pathlib
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence

from dsmem_record import SOURCES, Point, failed_row, timed_row

DTYPES = {"fp32": "f32", "bf16": "bf16"}  # what the programs call them
NO_LAUNCH = {
    *("bench", "variant", "protocol", "cluster", "dtype", "rows", "cols", "part", "reason", "seconds", "spread"),
    *("repeats", "launches", "compulsory_bytes", "bytes_per_s", "max_error", "bitwise_repeats"),
}
"""Keys of a line that say nothing on how the kernel was launched."""


def command_of(program: pathlib.Path, points: Sequence[Point], repeats: int) -> list[str]:
    """Command line for all variants at the widths of these points, which share everything else."""
    first = points[0]
    words = dict(
        variant="all",
        dtype=DTYPES[first.dtype],
        rows=first.rows,
        cols=",".join(str(point.cols) for point in points),
        repeats=repeats,
    )
    return [str(program), *(word for key, value in words.items() for word in (f"--{key}", str(value)))]


def once(program: pathlib.Path, row: dict) -> list[str]:
    """Command line that launches a measured row's kernel without timing it, for a profiler."""
    words = [str(program), "--once", "1", "--variant", row["alternative"], "--dtype", DTYPES[row["dtype"]]]
    words += ["--rows", row["rows"], "--cols", row["cols"]]
    if row["alternative"] == "cluster":
        words += ["--cluster", row["cluster"], "--protocol", row["protocol"]]
    return words


def row_of(point: Point, line: dict, repeats: int) -> dict | None:
    """The row of one JSON line; None for lines on something else.

    >>> point = Point("quantise_int8", "fp32", 4096, 65536)
    >>> row_of(point, dict(variant="cluster", cluster=16, protocol="fast", part="skipped", reason="too wide"), 5)["error"]
    'illegal: too wide'
    """
    alternative = line.get("variant")
    if alternative not in SOURCES["cuda"]:
        return None
    protocol = line.get("protocol") if alternative == "cluster" else None
    what = dict(cluster=line.get("cluster") or 1, protocol=protocol)
    if line.get("part") == "skipped":
        return failed_row(point, alternative, f"illegal: {line.get('reason', 'no reason given')}", **what)
    what["configuration"] = " ".join(f"{key}={value}" for key, value in line.items() if key not in NO_LAUNCH)
    what["max_error"] = line.get("max_error")
    seconds, error = line.get("seconds"), line.get("max_error")
    if error is None or not error <= 1:
        return failed_row(point, alternative, f"wrong result: error {error} of the tolerance", **what)
    same = line.get("bitwise_repeats")  # how many launches in a row gave the same, or whether they did
    if same is False or (same is not True and same is not None and same < 2):
        return failed_row(point, alternative, "results differ between repeats", **what)
    if not seconds:
        return failed_row(point, alternative, "no time given", **what)
    what |= dict(repeats=line.get("repeats", repeats), launches=line.get("launches"))
    row = timed_row(point, alternative, float(seconds), float(line.get("spread", 0.0)), **what)
    return row | {key: line[key] for key in ("compulsory_bytes", "bytes_per_s") if key in line}


def rows_of(lines: Sequence[dict], point: Point, repeats: int) -> list[dict]:
    """Rows of the lines on one width."""
    made = [row_of(point, line, repeats) for line in lines]
    return [row for row in made if row] or [failed_row(point, "cluster", "the program printed no variant")]


def measure(
    program: pathlib.Path, points: Sequence[Point], repeats: int, seconds_left: float
) -> Iterator[tuple[Point, list[dict]]]:
    """Each width with its rows as soon as it is complete; a width at which the program fails has one row that says so."""
    end, left = time.monotonic() + seconds_left, list(points)
    while left and time.monotonic() < end:
        failed = None
        for point, lines, failed in _widths(command_of(program, left, repeats), left, end):
            rows = rows_of(lines, point, repeats) if lines or not failed else []
            yield point, rows + ([failed_row(point, "cluster", failed)] if failed else [])
            left.remove(point)
        if not failed:
            return


def _widths(command: list[str], points: Sequence[Point], end: float) -> Iterator[tuple[Point, list[dict], str | None]]:
    """(point, its lines, why the program failed there or None); nothing of a width that time ran out on."""
    now, lines, stopped = points[0], [], threading.Event()
    with tempfile.TemporaryFile("w+") as complaints:
        try:
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=complaints, text=True)
        except OSError as error:
            yield now, [], f"{command[0]} does not start: {error.strerror}"
            return
        timer = threading.Timer(max(0.0, end - time.monotonic()), lambda: (stopped.set(), process.kill()))
        with process:
            timer.start()
            try:
                for line in map(_parsed, process.stdout):
                    point = next((each for each in points if each.cols == line.get("cols")), now)
                    if point != now and lines:
                        yield now, lines, None
                        lines = []
                    now = point
                    lines.append(line)
                status = process.wait()
            finally:
                timer.cancel()
                process.kill()
        if not stopped.is_set() and (lines or status):
            complaints.seek(0)
            yield now, lines, f"ended with status {status}: {complaints.read()[-300:]}" if status else None


def _parsed(text: str) -> dict:
    """One JSON line; what is none is empty."""
    try:
        line = json.loads(text)
    except json.JSONDecodeError:
        return {}
    return line if isinstance(line, dict) else {}
