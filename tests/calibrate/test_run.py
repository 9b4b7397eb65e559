"""One benchmark: rows to a record, and every way to fail."""

import csv
import tomllib

import pytest

from tilesight.calibrate.build import Built, Job, compile_all
from tilesight.calibrate.counters import Counting, find_ncu
from tilesight.calibrate.run import BadRunError, measure, run_program
from tilesight.calibrate.suite import Benchmark
from tilesight.calibrate.toolchain import find_gpu, find_nvcc

ROWS = [{"bench": "copy", "n": 1, "cycles": 2.5, "spread": 0.01}, {"bench": "copy", "n": 2, "part": "b"}]


@pytest.fixture
def ran(machine, tmp_path):
    """Function that runs a benchmark called copy and gives what became of it."""
    source = tmp_path / "copy.cu"
    source.write_text("/* copy */\n", encoding="utf-8")
    folder = tmp_path / "records"
    folder.mkdir()

    def run(*runs, timeout_s=10.0, counting=None):
        (built,) = compile_all([Job(source, "sm_90a")], find_nvcc())
        bench = Benchmark("copy", source, runs or ((),), timeout_s, None, counting)
        return measure(bench, built, find_gpu(), "release 13.0", folder, ncu=find_ncu())

    run.folder = folder
    return run


def test_a_record(machine, ran):
    machine.points("copy", ROWS[:1], "--part", "a")
    machine.points("copy", ROWS[1:], "--part", "b")
    outcome = ran(("--part", "a"), ("--part", "b"))
    assert (outcome.points, outcome.failed, outcome.skipped) == (2, None, ())
    with open(ran.folder / "copy.csv", newline="", encoding="utf-8") as file:
        assert list(csv.reader(file)) == [
            ["bench", "n", "cycles", "spread", "part"],
            ["copy", "1", "2.5", "0.01", ""],
            ["copy", "2", "", "", "b"],
        ]
    about = tomllib.loads((ran.folder / "copy.toml").read_text(encoding="utf-8"))
    assert list(about) == [
        "record", "source", "source_sha256", "gpu", "target", "driver", "compiler", "flags", "power_limit_w",
        "sm_clock_max_mhz", "memory_clock_max_mhz", "sm_clock_before_mhz", "sm_clock_after_mhz",
        "memory_clock_after_mhz", "power_after_w", "temperature_after_c", "date", "commands", "registers",
        "rows", "csv_sha256",
    ]  # fmt: skip
    assert (about["gpu"], about["target"], about["compiler"]) == ("NVIDIA H200", "sm_90a", "release 13.0")
    assert about["commands"] == ["./copy --part a", "./copy --part b"]
    assert about["registers"] == ["Used 40 registers, used 0 barriers"]
    assert (about["driver"], about["power_after_w"]) == ("580.0", 100.5)


def test_messages_between_rows_are_no_rows(machine, ran):
    machine.points("copy", ROWS)
    path = machine.home / "points" / "copy"
    path.write_text("warming up\n" + path.read_text(encoding="utf-8") + "\n", encoding="utf-8")
    assert ran().points == 2


def test_a_failed_check_fails_the_benchmark(machine, ran):
    machine.points("copy", ROWS)
    assert ran().failed is None
    machine.mark("wrong", "copy")
    assert ran().failed == "./copy ended with 1: check failed: sum is off"
    assert list(ran.folder.iterdir()) == []  # the earlier record is not this run's


def test_too_slow(machine, ran):
    machine.mark("hangs", "copy")
    outcome = ran(timeout_s=0.3)
    assert outcome.failed == "./copy took longer than 0.3 s"
    assert outcome.seconds < 5  # what it had started is gone too
    assert [path.name for path in ran.folder.iterdir()] == ["copy.incomplete.csv"]


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ('{"cycles": NaN}', "line 1 is no JSON object of numbers and text: NaN is no number"),
        ('{"cycles": [1]}', "a value is no number and no text"),
        ('{"cycles": 1', "line 1 is no JSON object"),
        ("", "it printed no point"),
        ('{"cycles": 1e999}', "cycles = inf is no finite number"),
        ('{"cycles": 1%s}' % ("0" * 400), "is no finite number"),
        ('{"name": "\\ud800"}', "surrogates not allowed"),
        ('{"\\udfff": 1}', "surrogates not allowed"),
        ('{"name": "a\\u2028b"}', "runs over several lines"),
        ('{"a": ' + "[" * 100_000, "it is nested too deeply"),
        ('{"spread": -0.1}', "spread = -0.1 is no spread; it is 0 or more"),
        ('{"spread": "wide"}', "spread = 'wide' is no spread"),
    ],
)
def test_output_that_is_no_record(machine, ran, line, problem):
    (machine.home / "points" / "copy").write_text(line + "\n", encoding="utf-8")
    assert problem in ran().failed


def test_rows_begin_with_a_brace_blanks_aside(machine, ran):
    (machine.home / "points" / "copy").write_text('warm {"n": 0}\n \t{"n": 1}\n', encoding="utf-8")
    assert ran().points == 1


def test_a_point_without_the_spread_that_its_source_prints(machine, ran, tmp_path):
    machine.points("copy", [{"n": 1, "spread": 0.1}, {"n": 2}])
    assert ran().failed is None
    (tmp_path / "copy.cu").write_text('/* copy */ put("spread", 0)\n', encoding="utf-8")
    assert ran().failed == "it printed a point without its spread"


def test_an_interrupted_run_leaves_the_earlier_record(machine, ran, monkeypatch):
    machine.points("copy", ROWS)
    assert ran().failed is None
    before = {path.name: path.read_bytes() for path in ran.folder.iterdir()}

    def interrupted(*_, **__):
        raise KeyboardInterrupt

    for what in ("run_program", "_about"):
        with monkeypatch.context() as patched:
            patched.setattr(f"tilesight.calibrate.run.{what}", interrupted)
            with pytest.raises(KeyboardInterrupt):
                ran()
        assert {path.name: path.read_bytes() for path in ran.folder.iterdir()} == before


@pytest.mark.parametrize("value", ["nan", "inf", "-inf", "[N/A]"])
def test_what_the_driver_says_can_be_read_back(machine, ran, value):
    machine.points("copy", [*ROWS, {"part": "skipped", "reason": "\x07bell \x7f del\nline"}])
    smi = machine.tools / "nvidia-smi"
    smi.write_text(smi.read_text(encoding="utf-8").replace("100.5", value), encoding="utf-8")
    assert ran().failed is None
    about = tomllib.loads((ran.folder / "copy.toml").read_text(encoding="utf-8"))
    assert about["power_after_w"] == "unknown"
    assert about["skipped"] == ["\x07bell \x7f del\nline"]


def test_a_child_that_left_holds_nothing_up(machine, ran):
    # a session of its own, with the program's stdout: neither the end nor the limit waits for it
    program = machine.home / "program"
    program.write_text("setsid sleep 20 &\necho '{\"n\": 1}'\n", encoding="utf-8")
    outcome = ran()
    assert (outcome.points, outcome.failed) == (1, None)
    assert outcome.seconds < 5
    program.write_text("setsid sleep 20 &\necho '{\"n\": 1}'\nsleep 20\n", encoding="utf-8")
    outcome = ran(timeout_s=0.5)
    assert outcome.failed == "./copy took longer than 0.5 s"
    assert outcome.seconds < 5


def test_a_program_that_does_not_start(tmp_path):
    built = Built(Job(tmp_path / "copy.cu", "sm_90a"), tmp_path / "nothing", "", 0.0)
    with pytest.raises(BadRunError, match="./copy does not start: No such file"):
        run_program(built, [], 1.0)


def test_parts_that_a_gpu_lacks(machine, ran):
    lacking = {"bench": "copy", "part": "skipped", "reason": "needs a cluster of 16"}
    machine.points("copy", [*ROWS, lacking])
    outcome = ran()
    assert (outcome.points, outcome.failed, outcome.skipped) == (2, None, ("needs a cluster of 16",))
    about = tomllib.loads((ran.folder / "copy.toml").read_text(encoding="utf-8"))
    assert about["skipped"] == ["needs a cluster of 16"]
    machine.points("copy", [lacking])
    assert (ran().points, ran().failed) == (0, None)
    assert not (ran.folder / "copy.csv").exists()


READ, TIME = "dram__bytes_read.sum", "gpu__time_duration.sum"
COUNTED = [{"n": 1, "launches": 2}, {"n": 2, "launches": 1}, {"part": "skipped", "reason": "no multicast"}]


def test_counters_beside_points(machine, ran):
    machine.points("copy", COUNTED)
    machine.counts("copy_", [{READ: 9, TIME: 1.5}, {READ: 1234567, TIME: 2.5}, {READ: 0, TIME: 3}])
    outcome = ran(counting=Counting("copy_", (READ, TIME)))
    assert (outcome.points, outcome.failed, outcome.skipped) == (2, None, ("no multicast",))
    with open(ran.folder / "copy.csv", newline="", encoding="utf-8") as file:
        rows = list(csv.reader(file))
    # the last launch of each point; 0 is a count
    assert rows == [["n", "launches", READ, TIME], ["1", "2", "1234567", "2.5"], ["2", "1", "0", "3"]]
    about = tomllib.loads((ran.folder / "copy.toml").read_text(encoding="utf-8"))
    assert about["commands"] == [
        "ncu --clock-control none --cache-control none -k regex:copy_ --csv --page raw --print-units base "
        f"--metrics {READ},{TIME} --log-file counters.csv ./copy"
    ]


@pytest.mark.parametrize(
    ("points", "launches", "problem"),
    [
        (COUNTED, [{READ: 1}] * 4, "./copy: 4 launches of 'copy_' were counted; the points say 3"),
        (COUNTED, [{READ: 1}] * 2, "2 launches of 'copy_' were counted; the points say 3"),
        ([{"n": 1}], [{READ: 1}], "a point with launches = None; a counted program prints how many it made"),
        ([{"launches": 1}], [{TIME: 1}], f"Nsight Compute gives {READ} = None, no number"),
        ([{"launches": 1}], [{READ: float("nan")}], f"Nsight Compute gives {READ} = 'nan', no number"),
    ],
)
def test_counters_that_fit_no_points(machine, ran, points, launches, problem):
    machine.points("copy", points)
    machine.counts("copy_", launches)
    assert problem in ran(counting=Counting("copy_", (READ,))).failed
    assert not (ran.folder / "copy.csv").exists()


def test_counting_that_is_not_allowed(machine, ran):
    machine.points("copy", COUNTED[:1])
    (machine.home / "points" / "copy_").write_text("==ERROR== ERR_NVGPUCTRPERM - no permission\n", encoding="utf-8")
    outcome = ran(counting=Counting("copy_", (READ,)))
    assert (outcome.points, outcome.failed) == (0, None)
    assert "only administrators" in outcome.skipped[0]
    machine.mark("wrong", "copy")  # as when ncu ends with an error
    assert ran(counting=Counting("copy_", (READ,))).skipped == outcome.skipped


def test_a_counted_program_that_fails(machine, ran):
    machine.points("copy", COUNTED[:1])
    machine.counts("copy_", [{READ: 1}])
    machine.mark("wrong", "copy")
    assert ran(counting=Counting("copy_", (READ,))).failed == "./copy ended with 1: check failed: sum is off"
    (machine.home / "points" / "copy_").write_text("==PROF== nothing was profiled\n", encoding="utf-8")
    (machine.home / "wrong" / "copy").unlink()
    failed = ran(counting=Counting("copy_", (READ,))).failed
    assert failed.endswith("counted no launch of 'copy_': ==PROF== nothing was profiled")
