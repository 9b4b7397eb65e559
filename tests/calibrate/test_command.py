"""tilesight calibrate from the command line, on a machine whose tools are shell scripts."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from tilesight.calibrate.suite import ELSEWHERE, Benchmark, read_suite
from tilesight.check import check_profile
from tilesight.cli.program import main
from tilesight.hardware.load import load_profile, missing_records
from tilesight.hardware.write import to_toml

RECORDS = Path(__file__).parent.parent.parent / "validation" / "records" / "h200_sxm"
RESIDENCY = "validation/warm_residency.py"
FRESH = "validation/fresh_cache.py"  # for scores alone
"""The sweep of footprints stands for it."""
READ = "dram.bandwidth_read_bytes_per_s"


@pytest.fixture
def run(capsys, monkeypatch, tmp_path):
    """Function that runs the command in an empty folder: exit status, JSON of stdout, lines of stderr."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")

    def call(*words):
        status = main(["calibrate", *map(str, words), "--json"])
        out, err = capsys.readouterr()
        return status, json.loads(out) if out else None, err.splitlines()

    return call


@pytest.fixture
def refused(run):
    """Function that runs the command on bad input and gives its one line on stderr."""

    def call(*words):
        status, out, err = run(*words)
        assert (status, out, len(err)) == (2, None, 1)
        return err[0].removeprefix("tilesight: ")

    return call


def test_a_whole_calibration(machine, run, tmp_path):
    status, result, err = run("--jobs", 2)
    assert status == 0
    assert result["failed"] == {}
    # records and profile lie as in the repository, and each refers to the other
    path = tmp_path / "calibration" / "hardware_profiles" / "h200_sxm.toml"
    assert result["profile"] == "calibration/hardware_profiles/h200_sxm.toml"
    profile, shipped = load_profile(path), load_profile("h200_sxm")
    assert list(missing_records(profile, tmp_path / "calibration")) == []
    # what the programs printed is what was recorded, so the numbers are those of the shipped profile
    assert result["hash"] == profile.hash
    assert profile.numbers[READ] == shipped.numbers[READ]
    for name, value in profile.numbers.items():
        if name not in ("l2.associativity", "l2.copies_one_reader"):  # without counters from another law's fit
            assert value == pytest.approx(shipped.numbers[name], rel=2e-3), name
    assert result["kept"][READ]["records"] == ["dram_read"]
    assert result["kept"][READ]["spread"] == pytest.approx(0.0029, abs=1e-4)
    # what needs other tools is named with them, in skipped parts and in the numbers that are missing
    assert set(ELSEWHERE) <= set(result["skipped"])
    assert result["kept"]["merging.window_l2_s"]["records"] == ["merge_counted"]
    assert result["missing"]["fill.row_16_s"].endswith("(validation/triton_loops.py, with PyTorch, Triton and pynvml)")
    assert "fill.row_16_s" not in profile.numbers
    assert "l2.dirty_evicted_share" in result["left_out"]
    # what the profile can't do yet is what `profiles check` says, and which commands change that
    assert result["gemm"] == check_profile(path).to_dict()["gemm"]
    assert {"l2.dirty_evicted_share", "launch.start_specialized_s", "fill.row_16_s"} <= set(result["gemm"]["lacks"])
    assert result["tables"]["lack"] == ["launch.graph_gap_s", "launch.event_s", "launch.cold_extra_s"]
    folder = "calibration/validation/records/h200_sxm"
    *scripts, again = result["remedies"]
    assert [line.split()[1] for line in scripts] == sorted(
        {ELSEWHERE[name][0] for name in ELSEWHERE} - {RESIDENCY, FRESH}
    )
    assert all(line.split()[2] == f"{folder}:" and "PyTorch, Triton and pynvml" in line for line in scripts)
    assert again.startswith(f"tilesight calibrate --from {folder} --keep l2.dirty_evicted_share: ")
    # one line a step on stderr where it is no terminal
    assert err[0].startswith("build 1/")
    assert sum(line.startswith("run ") for line in err) == len(result["ran"])


def test_without_nsight_compute(machine, run, monkeypatch, tmp_path):
    monkeypatch.setattr("tilesight.calibrate.machine.find_ncu", lambda: None)
    status, result, _ = run("--only", "merge_requests,merge_counted,l2_lookup_share")
    assert status == 0
    assert result["skipped"]["merge_counted"].startswith("needs Nsight Compute (ncu)")
    assert result["kept"]["merging.requests_plain"]["records"] == ["merge_requests"]
    path = tmp_path / "calibration" / "hardware_profiles" / "h200_sxm.toml"
    assert (load_profile(path).source["merging.requests_plain"].note or "").endswith("inferred from the rate")


def test_progress_and_report_for_a_reader(machine, capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")
    assert main(["calibrate", "--only", "dram_read,dram_copy"]) == 0
    out, err = capsys.readouterr()
    assert out.startswith("calibration of h200_sxm\n")
    assert "dram.bandwidth_read_bytes_per_s" in out
    assert "suite      3 benchmarks in" in out  # device_limits comes along
    assert "run 3/3 dram_copy: 36 points" in err
    usable = " ".join(out[out.index("what the profile is good for") :].split())
    assert "matrix products lack: " in usable
    assert "tables that compare scores lack: launch.graph_gap_s" in usable
    assert "tilesight calibrate --only " in usable


def test_a_spread_above_five_percent(machine, run):
    path = machine.recorded / "dram_copy"
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    machine.points("dram_copy", [row | {"spread": 0.07} for row in rows])
    name = "dram.bandwidth_sustained_bytes_per_s"
    _, result, _ = run("--only", "dram_copy")
    assert result["left_out"][name]["reason"] == "spread 7.0 % is above 5 %"
    assert name not in load_profile(result_path(result)).numbers
    _, result, _ = run("--only", "dram_copy", "--keep", name)
    source = load_profile(result_path(result)).source[name]
    assert source.note == "reads + writes of a copy; kept by name at a spread of 7.0 %"


def result_path(result):
    return Path(result["profile"]).resolve()


def test_failures_are_named_and_the_suite_goes_on(machine, run, monkeypatch):
    suite = {name: replace(bench, timeout_s=0.5) for name, bench in read_suite().items()}
    monkeypatch.setattr("tilesight.calibrate.machine.read_suite", lambda: suite)
    machine.mark("broken", "dram_write")
    machine.mark("wrong", "launch_reduction")
    machine.mark("hangs", "dram_copy")
    status, result, _ = run("--only", "dram_read,dram_write,dram_copy,launch_reduction")
    assert status == 1
    assert result["failed"] == {
        "dram_write": 'dram_write.cu does not compile: x.cu(3): error: expected a ";"',
        "dram_copy": "./dram_copy took longer than 0.5 s",
        "launch_reduction": "./launch_reduction ended with 1: check failed: sum is off",
    }
    assert READ in result["kept"]
    assert result["missing"]["dram.bandwidth_write_bytes_per_s"] == "needs record dram_write"
    assert result["missing"]["launch.reduction_bytes_per_s"] == "needs record launch_reduction"


def test_a_gpu_that_can_run_less(machine, run, monkeypatch, tmp_path):
    suite = {}
    for name, targets, needs in (
        ("old", "sm_80 sm_90a", None), ("new", "sm_90a (others: no wgmma)", None), ("pair", "sm_80", "two_gpus")
    ):  # fmt: skip
        source = tmp_path / f"{name}.cu"
        source.write_text(f"/* {name}\n   Targets    {targets} */\n", encoding="utf-8")
        suite[name] = Benchmark(name, source, needs=needs)
        machine.points(
            name, [{"bench": name, "value": 1}, {"bench": name, "part": "skipped", "reason": "no copy engine"}]
        )
    monkeypatch.setattr("tilesight.calibrate.machine.read_suite", lambda: suite)
    machine.gpu("NVIDIA A100-SXM4-80GB", "8.0")
    status, result, _ = run()
    assert (status, result["name"], [row["name"] for row in result["ran"]]) == (0, "a100_sxm", ["old"])
    assert {name: result["skipped"][name] for name in ("new", "pair", "old, in part")} == {
        "new": "new.cu is not for sm_80: no wgmma",
        "pair": "needs 2 GPUs; 1 is visible",
        "old, in part": "no copy engine",
    }
    assert [line.split()[3] for line in machine.compiled] == ["-gencode=arch=compute_80,code=sm_80"]
    assert result["kept"] == {}
    # nothing was measured: the profile is what the base states
    assert load_profile(result_path(result)).numbers == load_profile("a100_sxm").numbers


def test_no_gpu(bare, refused):
    assert refused().startswith("no nvidia-smi on the path")


def test_bad_names_come_before_a_missing_driver(bare, refused):
    assert refused("--only", "nosuch").startswith("no microbenchmark 'nosuch'")
    assert refused("--check", "--only", "nosuch").startswith("no microbenchmark 'nosuch'")


def test_no_compiler(machine, refused):
    (machine.tools / "nvcc").unlink()
    assert "no nvcc on the path" in refused()


def test_no_host_compiler(machine, refused):
    # as nvcc says it on a machine with the toolkit and without g++
    said = "gcc: No such file or directory\\nnvcc fatal   : Failed to preprocess host compiler properties."
    nvcc = machine.tools / "nvcc"
    broken = nvcc.read_text(encoding="utf-8").replace("while [", f"printf '{said}' >&2; exit 1\nwhile [", 1)
    nvcc.write_text(broken, encoding="utf-8")
    for words in (["--only", "dram_read"], ["--build-only", "--only", "dram_read"]):
        assert "finds no host C++ compiler (gcc: No such file or directory); install one" in refused(*words)


def test_no_base_is_refused_before_anything_runs(machine, refused):
    machine.gpu("NVIDIA H20", "9.0")
    assert refused().startswith("no shipped profile fits 'NVIDIA H20'; give --base PROFILE")
    assert refused("--base", "a100_sxm").startswith("profile 'a100_sxm' is of sm_80 and NVIDIA H20 of sm_90")
    machine.gpu("NVIDIA H20", "7.5")
    assert "has compute capability 7.5" in refused()
    assert machine.compiled == []


def test_records_of_another_gpu_in_the_way(machine, run, refused):
    assert run("--only", "dram_read", "--name", "mine")[0] == 0
    machine.gpu("NVIDIA H100 80GB HBM3", "9.0")
    assert "holds records of 'NVIDIA H200' and this is 'NVIDIA H100 80GB HBM3'" in refused("--name", "mine")


def test_check(machine, run, tmp_path):
    status, result, _ = run("--check", "--only", "dram_read,dram_write")
    assert (status, result["moved"]) == (0, [])
    assert READ in result["checked"]
    assert not (tmp_path / "calibration" / "hardware_profiles").exists()  # a check writes no profile
    why = {"kind": "assumed", "note": "too fast"}
    profile = load_profile("h200_sxm").with_numbers({READ: 4.75e12}, {READ: why}, about={"name": "fast"})
    Path("fast.toml").write_text(to_toml(profile), encoding="utf-8")
    status, result, _ = run("--check", "fast.toml", "--only", "dram_read,dram_write")
    assert status == 1
    (moved,) = (each for each in result["moved"] if each["name"] == READ)
    assert (moved["before"], moved["after"], moved["allowed"]) == (4.75e12, 4.59e12, 0.02)
    assert (result["name"], result["gpu"]) == ("fast", "NVIDIA H200")


def files(folder):
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_check_leaves_the_records_of_a_profile_alone(machine, run, tmp_path):
    assert run("--only", "dram_read,dram_write")[0] == 0
    out = tmp_path / "calibration"
    before = files(out)
    machine.mark("wrong", "dram_write")
    status, result, _ = run("--check", "--only", "dram_read,dram_write")
    assert status == 1
    assert set(result["failed"]) == {"dram_write"}
    assert READ in result["checked"]
    assert before.items() <= files(out).items()
    folder = tmp_path / result["records"]
    assert folder.parent == out / "check"
    assert sorted(path.stem for path in folder.glob("*.csv")) == ["device_limits", "dram_read"]
    assert run("--check", "--only", "dram_read")[1]["records"] != result["records"]


def test_nothing_that_compiles(machine, run, capsys):
    for stem in ("dram_read", "device_limits"):
        machine.mark("broken", stem)
    for words in (["--only", "dram_read"], ["--check", "--only", "dram_read"]):
        status, result, _ = run(*words)
        assert status == 1
        assert result["problem"] == "no benchmark gave a record"
        assert result["failed"]["dram_read"] == 'dram_read.cu does not compile: x.cu(3): error: expected a ";"'
    assert main(["calibrate", "--only", "dram_read"]) == 1
    assert "dram_read.cu does not compile" in capsys.readouterr().out


def test_the_sizes_of_the_chip_fail(machine, run):
    machine.mark("wrong", "device_limits")
    status, result, _ = run("--only", "dram_read")
    assert status == 1
    assert result["failed"] == {"device_limits": "./device_limits ended with 1: check failed: sum is off"}
    assert "a profile needs sm_count (needs record device_limits)" in result["problem"]


def test_what_a_loss_of_power_left_is_measured_again(machine, run, tmp_path, refused):
    assert run("--only", "dram_read,dram_write")[0] == 0
    folder = tmp_path / "calibration" / "validation" / "records" / "h200_sxm"
    for name in ("device_limits", "dram_read"):
        (folder / f"{name}.csv").write_bytes(b"")
        (folder / f"{name}.toml").write_text('gpu = "NVID', encoding="utf-8")
    status, result, _ = run("--only", "dram_read")
    assert (status, [row["name"] for row in result["ran"]]) == (0, ["device_limits", "dram_read"])
    assert READ in result["kept"]
    (folder / "dram_write.toml").write_text('gpu = "NVID', encoding="utf-8")  # not of those that are measured again
    assert refused("--only", "dram_read").startswith("dram_write.toml: not a TOML file")


def test_from_records_of_another_gpu_than_those_there(machine, run, refused, tmp_path):
    assert run("--only", "dram_read", "--name", "mine")[0] == 0
    machine.gpu("NVIDIA H100 80GB HBM3", "9.0")
    assert run("--only", "dram_read", "--name", "mine", "--out", "other")[0] == 0
    before = files(tmp_path / "calibration")
    assert "holds records of 'NVIDIA H200' and this is 'NVIDIA H100 80GB HBM3'" in refused("--from", "other")
    assert files(tmp_path / "calibration") == before


def test_from_records_of_an_earlier_run(bare, run, tmp_path):
    earlier = tmp_path / "earlier"
    earlier.mkdir()
    for name in ("device_limits", "dram_read"):
        for ending in (".csv", ".toml"):
            shutil.copy(RECORDS / f"{name}{ending}", earlier)
    status, result, err = run("--from", earlier, "--out", "new", "--name", "again")
    assert (status, err) == (0, [])
    assert sorted(path.name for path in Path("new/validation/records/again").iterdir()) == [
        "device_limits.csv", "device_limits.toml", "dram_read.csv", "dram_read.toml"
    ]  # fmt: skip
    assert load_profile(result_path(result)).source[READ].ref == ("validation/records/again/dram_read.csv",)
    # what a run wrote can be given again, and the records stay where they are
    assert run("--from", "new", "--out", "new")[1]["name"] == "again"
    status, result, _ = run("--check", "--from", "new")
    assert (status, result["moved"]) == (0, [])


def test_list_needs_nothing(bare, run):
    status, result, err = run("--list")
    assert (status, err) == (0, [])
    rows = {row["name"]: row for row in result["suite"]}
    assert rows["stage_fill"]["runs"] == [["--part", "fill"], ["--part", "loaded"]]
    assert {row["name"] for row in result["elsewhere"]} == set(ELSEWHERE)


def test_build_only(machine, run):
    (machine.tools / "nvidia-smi").unlink()
    status, result, err = run("--build-only", "--only", "dram_read,stage_fill,stage_fill_ring", "--target", "sm_90a")
    assert status == 0
    assert [row["cubin"] for row in result["built"]] == [False, False]  # one program for two records
    assert err[-1].startswith("build 2/2 stage_fill.cu for sm_90a: 1 kernels, registers at most 40, spilled 0 B")
    _, result, _ = run("--build-only", "--only", "l2_lookup_rate", "--target", "sm_90a", "--cubin")
    assert result["built"][0]["cubin"]
    machine.mark("broken", "dram_copy")
    status, result, _ = run("--build-only", "--only", "dram_copy")  # without a GPU for sm_90a
    assert (status, result["built"][0]["result"], result["built"][0]["target"]) == (1, None, "sm_90a")


def test_build_only_needs_a_compiler(bare, refused):
    assert refused("--build-only").startswith("no nvcc on the path")


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["--list", "--build-only"], "--list and --build-only exclude each other"),
        (["h200_sxm"], "'h200_sxm' goes with --check"),
        (["--target", "sm_90a"], "--target and --cubin go with --build-only"),
        (["--build-only", "--target", "sm_91"], "no target 'sm_91'"),
        (["--build-only", "--only", "dram_reads"], "no microbenchmark 'dram_reads'"),
        (["--jobs", "0"], "jobs = '0'; give a number"),
        (["--jobs", "many"], "jobs = 'many'; give a number"),
        (["--keep", "launch.events"], "no record gives a number 'launch.events'"),
        (["--name", "My GPU"], "name 'My GPU' must be lower-case"),
        (["--base", "h20"], "no hardware profile 'h20'"),
        (["--check", "h20"], "no hardware profile 'h20'"),
        (["--check", "--keep", "launch.event_s"], "--check takes PROFILE"),
        (["--from", "nowhere"], "no records in nowhere"),
        (["--from", "nowhere", "--only", "dram_read"], "--only says what to run"),
        (["--only", "dram_reads"], "no microbenchmark 'dram_reads'"),
        (["--only", ""], "--only '' names nothing; give names, separated by commas, or leave the option out"),
        (["--only", ","], "--only ',' names nothing"),
        (["--keep", " "], "--keep ' ' names nothing"),
        (["--out", ""], "--out '' names nothing; give one or leave the option out"),
        (["--from", ""], "--from '' names nothing"),
        (["--name", ""], "--name '' names nothing"),
        (["--only", "vendor_gemm"], "record 'vendor_gemm' is not of the suite: validation/vendor_gemm.py makes it"),
    ],
)
def test_bad_input(machine, refused, words, problem):
    assert problem in refused(*words)
    assert machine.compiled == []
