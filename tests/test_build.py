"""validation/build.py says clearly what is missing; that the kernels compile is for .ci/run, which takes minutes."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

BUILD = Path(__file__).parent.parent / "validation" / "build.py"


def run_build(folder, *arguments):
    environment = os.environ | {"PATH": str(folder), "CUDA_HOME": str(folder)}
    return subprocess.run(
        [sys.executable, BUILD, *arguments], capture_output=True, text=True, env=environment, check=False
    )


def compiler(folder, text):
    """A program called nvcc that prints a text and exits with 1 if the text speaks of an error."""
    path = folder / "nvcc"
    path.write_text(
        f"#!{sys.executable}\nimport sys\nprint({text!r})\nsys.exit({int('error' in text)})\n", encoding="utf-8"
    )
    path.chmod(0o755)


def test_no_compiler(tmp_path):
    done = run_build(tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("no nvcc on the path")
    assert done.stderr.count("\n") == 1


def test_unknown_kernel(tmp_path):
    compiler(tmp_path, "")
    done = run_build(tmp_path, "no_such_kernel")
    assert (done.returncode, done.stdout) == (2, "")
    assert "no kernel below kernels_cuda/ has no_such_kernel in its path" in done.stderr


@pytest.mark.parametrize(
    ("says", "code", "printed"),
    [
        ("ptxas info : Used 40 registers\n 8 bytes spill stores", 0, "1 kernels, registers at most 40, spilled 8 B"),
        ("error: expected a ;", 1, "does not compile"),
    ],
)
def test_report(tmp_path, says, code, printed):
    root = tmp_path / "checkout"
    (root / "validation").mkdir(parents=True)
    (root / "validation" / "build.py").write_bytes(BUILD.read_bytes())
    (root / "kernels_cuda" / "microbench").mkdir(parents=True)
    (root / "kernels_cuda" / "microbench" / "copy.cu").touch()
    compiler(tmp_path, says)
    environment = os.environ | {"PATH": str(tmp_path)}
    command = [sys.executable, root / "validation" / "build.py", "copy"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == code
    assert f"microbench/copy.cu: {printed}" in done.stdout
    assert f"{1 - code} of 1 kernels compile for sm_90a" in done.stdout
    assert ("expected a ;" in done.stderr) == bool(code)
