"""A program with a time limit, of which nothing goes on afterwards: it and all it started in its session are ended.

What it prints goes to files and not to pipes: a process that left the session and holds the other end can't delay anyone.
"""

import os
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import IO

POLL_S = 0.2
"""Seconds after which a waiting thread looks whether all programs shall end."""
ENDING = (signal.SIGTERM, signal.SIGHUP)
"""Signals that end this process; a program in a session of its own does not get them."""


@dataclass(frozen=True)
class Ended:
    """How a program ended and what it printed; ``status`` is None where it took longer than its limit."""

    status: int | None
    out: str
    err: str


def run_limited(
    command: Sequence[str | Path],
    limit_s: float,
    *,
    environment: Mapping[str, str] | None = None,
    stop: threading.Event | None = None,
) -> Ended:
    """Run a program to its end or to its limit; where ``stop`` is set meanwhile it ends as at its limit.

    Raises
    ------
    OSError
        If it can't be started.
    """
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=out, stderr=err, env=environment, start_new_session=True
        )
        try:
            status = _wait(process, time.monotonic() + limit_s, stop)
        finally:
            _end(process)
        return Ended(status, _text(out), _text(err))


def _wait(process: "subprocess.Popen[bytes]", until: float, stop: threading.Event | None) -> int | None:
    while (left := until - time.monotonic()) > 0 and not (stop is not None and stop.is_set()):
        try:
            return process.wait(left if stop is None else min(left, POLL_S))
        except subprocess.TimeoutExpired:
            continue
    return process.poll()


def _end(process: "subprocess.Popen[bytes]") -> None:
    """End a program and what it started in its session."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):  # it is gone, or on its way
        process.kill()
    process.wait()


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode("utf-8", "replace").replace("\r\n", "\n")


@contextmanager
def programs_end_too() -> Iterator[None]:
    """A signal that ends this process raises ``SystemExit`` first, so that the program it waits for ends with it."""

    def leave(number: int, _frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    own = threading.current_thread() is threading.main_thread()
    taken = [number for number in ENDING if own and signal.getsignal(number) is signal.SIG_DFL]
    for number in taken:
        signal.signal(number, leave)
    try:
        yield
    finally:
        for number in taken:
            signal.signal(number, signal.SIG_DFL)
