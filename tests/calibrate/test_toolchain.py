"""What is missing is named with how to get it; the GPU decides the target."""

import pytest

from tilesight.calibrate.toolchain import Gpu, compiler_version, find_gpu, find_nvcc, known_targets, query
from tilesight.errors import MissingToolError, UnsupportedError


def test_the_gpu_and_its_target(machine):
    assert find_gpu() == Gpu("NVIDIA H200", "9.0", 1, "0")
    assert find_gpu().target == "sm_90a"
    assert find_nvcc() == machine.tools / "nvcc"
    assert compiler_version(find_nvcc()) == "Cuda compilation tools, release 13.0, V13.0.88"
    assert query(("name", "clocks.sm")) == [{"name": "NVIDIA H200", "clocks.sm": "100.5"}]


def test_nothing_there(bare):
    with pytest.raises(MissingToolError, match="no nvcc .* install the CUDA toolkit"):
        find_nvcc()
    with pytest.raises(MissingToolError, match="no nvidia-smi .* --from DIR"):
        find_gpu()


def test_a_driver_without_a_gpu(bare):
    tool = bare / "nvidia-smi"
    tool.write_text("#!/bin/sh\necho 'No devices were found'\nexit 6\n", encoding="utf-8")
    tool.chmod(0o755)
    with pytest.raises(MissingToolError, match="reports no GPU"):
        find_gpu()


def test_compiler_below_cuda_home(bare):
    (bare / "bin").mkdir()
    (bare / "bin" / "nvcc").touch()
    assert find_nvcc() == bare / "bin" / "nvcc"


@pytest.mark.parametrize(("visible", "gpus", "first"), [("1", 1, "1"), ("2,0", 2, "2"), ("GPU-abc", 1, "GPU-abc")])
def test_visible_devices_choose(machine, monkeypatch, visible, gpus, first):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert (find_gpu().count, find_gpu().id) == (gpus, first)


@pytest.mark.parametrize("visible", ["", " ", "-1"])
def test_hidden_devices(machine, monkeypatch, visible):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    with pytest.raises(MissingToolError, match="hides every GPU"):
        find_gpu()


def test_unknown_targets():
    with pytest.raises(UnsupportedError, match=r"Tesla T4 has compute capability 7\.5; .* 8\.0, 8\.9, 9\.0"):
        _ = Gpu("Tesla T4", "7.5", 1).target
    with pytest.raises(UnsupportedError, match="no target 'sm_90'; .* Did you mean 'sm_90a'"):
        known_targets(["sm_90"])
    assert known_targets(["sm_90a", "sm_80", "sm_90a"]) == ("sm_90a", "sm_80")
