"""Compiling into a cache: what changes is compiled again, what fails is not kept."""

import time

import pytest

from tilesight.calibrate.build import Job, build, cache_folder, compile_all, jobs_for
from tilesight.calibrate.toolchain import find_nvcc

TARGETS = "   Targets    sm_80 sm_90a (others: too new)"


@pytest.fixture
def kernel(tmp_path):
    """A source with a header that includes another."""
    (tmp_path / "common").mkdir()
    (tmp_path / "common" / "outer.cuh").write_text('#pragma once\n#include "inner.cuh"\n', encoding="utf-8")
    (tmp_path / "common" / "inner.cuh").write_text("constexpr int N = 1;\n", encoding="utf-8")
    path = tmp_path / "sources" / "copy.cu"
    path.parent.mkdir()
    path.write_text(f'/* copy\n{TARGETS} */\n#include "../common/outer.cuh"\n#include <cuda.h>\n', encoding="utf-8")
    return path


def compile_once(*jobs):
    return list(compile_all(jobs, find_nvcc(), workers=2))


def test_compiled_once_and_found_again(machine, kernel):
    first, again = compile_once(Job(kernel, "sm_90a"))[0], compile_once(Job(kernel, "sm_90a"))[0]
    assert len(machine.compiled) == 1
    assert machine.compiled[0].startswith("-O3 -lineinfo -std=c++17 -gencode=arch=compute_90a,code=sm_90a -Xptxas -v /")
    assert first.result == again.result
    assert first.result.parent == cache_folder()
    assert first.result.stat().st_mode & 0o100  # can be run
    assert first.usage == again.usage == "1 kernels, registers at most 40, spilled 0 B"
    assert again.seconds == 0 < first.seconds


@pytest.mark.parametrize("changed", ["sources/copy.cu", "common/outer.cuh", "common/inner.cuh"])
def test_a_change_is_compiled(machine, kernel, tmp_path, changed):
    compile_once(Job(kernel, "sm_90a"))
    with open(tmp_path / changed, "a", encoding="utf-8") as file:
        file.write("// more\n")
    compile_once(Job(kernel, "sm_90a"))
    assert len(machine.compiled) == 2


def test_what_a_loss_of_power_left_is_compiled_again(machine, kernel):
    (first,) = compile_once(Job(kernel, "sm_90a"))
    first.result.write_bytes(b"")
    (again,) = compile_once(Job(kernel, "sm_90a"))
    assert again.result.stat().st_size > 0
    again.result.chmod(0o644)
    (last,) = compile_once(Job(kernel, "sm_90a"))
    assert last.result.stat().st_mode & 0o100
    assert len(machine.compiled) == 3


def test_a_compiler_has_a_limit(machine, kernel, monkeypatch):
    monkeypatch.setattr("tilesight.calibrate.build.LIMIT_S", 0.3)
    nvcc = machine.tools / "nvcc"
    nvcc.write_text("#!/bin/sh\ncase $1 in --version) echo release 13; exit;; esac\nsleep 30\n", encoding="utf-8")
    started = time.monotonic()
    (failed,) = compile_once(Job(kernel, "sm_90a"))
    assert (failed.result, failed.complaint) == (None, "nvcc took longer than 0.3 s")
    assert time.monotonic() - started < 5


def test_target_and_kind_have_results_of_their_own(machine, kernel):
    results = [
        each.result for each in compile_once(Job(kernel, "sm_90a"), Job(kernel, "sm_80"), Job(kernel, "sm_80", True))
    ]
    assert len(set(results)) == 3
    assert [("-cubin" in line, "compute_80" in line) for line in sorted(machine.compiled)] == [
        (True, True), (False, True), (False, False)
    ]  # fmt: skip


def test_a_failure_is_told_and_not_kept(machine, kernel):
    machine.mark("broken", "copy")
    for _ in range(2):
        (failed,) = compile_once(Job(kernel, "sm_90a"))
        assert failed.result is None
        assert failed.complaint == 'x.cu(3): error: expected a ";"'
    assert len(machine.compiled) == 2
    assert not [path for path in cache_folder().iterdir() if path.stem.startswith("copy")]


def test_what_is_left_out_has_a_reason(kernel):
    jobs, left_out = jobs_for([kernel, kernel], ["sm_90a", "sm_80", "sm_120a"], programs=["sm_90a"])
    assert jobs == [Job(kernel, "sm_90a"), Job(kernel, "sm_80", cubin=True)]
    assert left_out == [("copy.cu", "sm_120a", "too new")]


def test_several_at_once(machine, kernel):
    told = []
    builds = build([kernel], find_nvcc(), ["sm_90a", "sm_80"], ["sm_90a"], workers=2, told=told.append)
    assert [each.job.target for each in builds.built] == [each.job.target for each in told] == ["sm_90a", "sm_80"]
    assert builds.failed == ()
    data = builds.to_dict()
    assert data["schema"] == "tilesight.builds/1"
    assert [row["cubin"] for row in data["built"]] == [False, True]
