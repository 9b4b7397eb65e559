"""The list of benchmarks, and the targets that files state."""

import os

import pytest

from tilesight.calibrate.counters import Counting
from tilesight.calibrate.suite import ELSEWHERE, NEEDS, Targets, chosen, read_suite, split_by_machine, targets_of
from tilesight.calibrate.toolchain import TARGETS, Gpu
from tilesight.errors import TableError, UnsupportedError

HEADER = "/* name: what it does.\n   Checked    yes\n{line}\n   Run        ./name */\nint main() {{}}\n"


def source(folder, line, name="name.cu"):
    path = folder / name
    path.write_text(HEADER.format(line=line), encoding="utf-8")
    return path


def test_the_shipped_suite():
    suite = read_suite()
    assert next(iter(suite)) == "device_limits"  # sizes of the chip come first
    assert suite["stage_fill_ring"].source.name == "stage_fill.cu"
    assert suite["stage_fill_ring"].runs == (("--part", "ring"),)
    assert suite["power_clock"].timeout_s == 120
    assert not set(ELSEWHERE) & set(suite)
    for bench in suite.values():
        assert set(targets_of(bench.source).names) <= set(TARGETS.values())


@pytest.mark.parametrize(
    ("line", "names", "reasons"),
    [
        ("   Targets    sm_80 sm_89 sm_90a", ("sm_80", "sm_89", "sm_90a"), {}),
        ("   Targets    sm_90a (others: no wgmma)", ("sm_90a",), {"sm_80": "no wgmma", "sm_120a": "no wgmma"}),
        (
            "   Targets    sm_90a sm_100a (sm_120a: slow multicast; others: no clusters)",
            ("sm_90a", "sm_100a"),
            {"sm_120a": "slow multicast", "sm_80": "no clusters"},
        ),
        (" * Targets\tsm_103a", ("sm_103a",), {"sm_80": "its header does not name it"}),
        ("   Targets of local: shared::cta", ("sm_90a",), {"sm_80": "its header states no targets"}),
    ],
)
def test_targets_in_a_header(tmp_path, line, names, reasons):
    found = targets_of(source(tmp_path, line))
    assert found.names == names
    assert {target: found.why_not(target) for target in reasons} == reasons


def test_an_unknown_target_in_a_header(tmp_path):
    with pytest.raises(UnsupportedError, match="name.cu: no target 'sm_90'"):
        targets_of(source(tmp_path, "   Targets    sm_90"))


def test_a_header_that_changes_is_read_again(tmp_path):
    path = source(tmp_path, "   Targets    sm_80")
    assert targets_of(path) == Targets(("sm_80",), {})
    source(tmp_path, "   Targets    sm_89")
    os.utime(path, ns=(1, 1))
    assert targets_of(path).names == ("sm_89",)


def suite_of(folder, text):
    source(folder, "   Targets    sm_80 sm_90a (others: too new)", "a.cu")
    path = folder / "suite.toml"
    path.write_text(text, encoding="utf-8")
    return read_suite(path)


def test_what_is_counted(tmp_path):
    suite = suite_of(tmp_path, "[a]\nkernel = 'a_'\ncounters = ['x.sum', 'y.sum']\n")
    assert suite["a"].counting == Counting("a_", ("x.sum", "y.sum"))
    gpu = Gpu("one", "9.0", 1)
    assert split_by_machine(suite, gpu, ncu=True) == (suite, {})
    assert split_by_machine(suite, gpu, ncu=False)[1]["a"].startswith("needs Nsight Compute (ncu)")
    for text, problem in (
        ("kernel = 'a_'", "kernel and counters belong together"),
        ("counters = ['x.sum']", "kernel and counters belong together"),
        ("kernel = 1\ncounters = ['x.sum']", "kernel = 1"),
        ("kernel = 'a_'\ncounters = []", r"counters = \[\]"),
    ):
        with pytest.raises(TableError, match=problem):
            suite_of(tmp_path, f"[a]\n{text}\n")


def test_what_a_machine_can_run(tmp_path):
    suite = suite_of(tmp_path, "[a]\n[two]\nsource = 'a.cu'\nneeds = 'two_gpus'\nruns = [['--n', 3]]\ntimeout_s = 5\n")
    assert (suite["two"].runs, suite["two"].timeout_s, NEEDS) == ((("--n", "3"),), 5.0, {"two_gpus": 2})
    able, skipped = split_by_machine(suite, Gpu("one", "9.0", 1), ncu=True)
    assert (list(able), skipped) == (["a"], {"two": "needs 2 GPUs; 1 is visible"})
    assert not split_by_machine(suite, Gpu("two", "8.0", 2), ncu=False)[1]
    able, skipped = split_by_machine(suite, Gpu("new", "12.0", 2), ncu=False)
    assert (able, skipped["a"]) == ({}, "a.cu is not for sm_120a: too new")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[a]\nrun = []\n", r"suite.toml: \[a\]: unknown key 'run'; .*Did you mean 'runs'"),
        ("[b]\n", r"\[b\]: source = 'b.cu' is no file"),
        ("[a]\nruns = ['--part']\n", "give a list of lists"),
        ("[a]\nruns = []\n", "give a list of lists"),
        ("[a]\ntimeout_s = true\n", "timeout_s = True; give seconds"),
        ("[a]\ntimeout_s = nan\n", "timeout_s = nan; give seconds"),
        ("[a]\nneeds = 'three_gpus'\n", "needs = 'three_gpus'; known: two_gpus"),
        ("a = 1\n", r"\[a\]: give one table a record"),
        ("['../a']\nsource = 'a.cu'\n", "lower-case letters"),
        ("[a\n", "not a TOML file"),
    ],
)
def test_a_broken_list(tmp_path, text, problem):
    with pytest.raises(TableError, match=problem):
        suite_of(tmp_path, text)


def test_choosing(tmp_path):
    suite = suite_of(tmp_path, "[a]\n[b]\nsource = 'a.cu'\n")
    assert list(chosen(suite, [])) == ["a", "b"]
    assert list(chosen(suite, ["b"])) == ["b"]
    with pytest.raises(UnsupportedError, match="no microbenchmark 'c'; known: a, b"):
        chosen(suite, ["c"])
    with pytest.raises(UnsupportedError, match="triton_steps.*validation/triton_loops.py makes it, with PyTorch"):
        chosen(suite, ["triton_steps"])
