"""Programs with a limit, and what happens to them when this process is ended."""

import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from tilesight.calibrate.process import programs_end_too, run_limited


def test_status_and_output():
    ended = run_limited(["sh", "-c", "echo out; echo err >&2; exit 3"], 10.0)
    assert (ended.status, ended.out, ended.err) == (3, "out\n", "err\n")


def test_what_it_started_ends_with_it(tmp_path):
    ended = run_limited(["sh", "-c", f"(sleep 1; touch {tmp_path}/late) & echo here; sleep 30"], 0.3)
    assert (ended.status, ended.out) == (None, "here\n")
    time.sleep(1.2)
    assert not (tmp_path / "late").exists()


def test_all_can_be_ended():
    stop = threading.Event()
    threading.Timer(0.3, stop.set).start()
    started = time.monotonic()
    assert run_limited(["sleep", "30"], 20.0, stop=stop).status is None
    assert time.monotonic() - started < 5


def test_handlers_are_put_back():
    @programs_end_too()
    def told_to_end():
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(1)

    with pytest.raises(SystemExit) as ended:
        told_to_end()
    assert ended.value.code == 143
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_a_signal_ends_the_program_too(machine, tmp_path):
    (machine.home / "program").write_text(f"echo $$ > {tmp_path}/running\nexec sleep 60\n", encoding="utf-8")
    command = [sys.executable, "-m", "tilesight", "calibrate", "--only", "dram_read", "--out", str(tmp_path / "out")]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    running = tmp_path / "running"
    for _ in range(300):
        if running.exists() and running.read_text(encoding="utf-8").strip():
            break
        time.sleep(0.1)
    number = int(running.read_text(encoding="utf-8"))
    process.terminate()
    assert process.wait(10) == 143
    with pytest.raises(ProcessLookupError):
        os.kill(number, 0)
