"""validation/build.py says clearly what is missing; that the kernels compile is for .ci/run, which takes minutes."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

BUILD = Path(__file__).parent.parent / "validation" / "build.py"


def run_build(folder, *arguments):
    environment = os.environ | {"PATH": str(folder), "CUDA_HOME": str(folder), "XDG_CACHE_HOME": str(folder / "cache")}
    return subprocess.run(
        [sys.executable, BUILD, *arguments], capture_output=True, text=True, env=environment, check=False
    )


def compiler(folder, text):
    """A program called nvcc that prints a text, makes a file, and exits with 1 if the text speaks of an error."""
    path = folder / "nvcc"
    makes = "if '-o' in sys.argv: open(sys.argv[-1], 'w').write('cubin'); os.chmod(sys.argv[-1], 0o755)"
    lines = (f"#!{sys.executable}", "import os, sys", f"print({text!r})", makes, f"sys.exit({int('error' in text)})")
    path.write_text("\n".join(lines), encoding="utf-8")
    path.chmod(0o755)


def test_no_compiler(tmp_path):
    done = run_build(tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("no nvcc on the path")
    assert done.stderr.count("\n") == 1


def test_unknown_target(tmp_path):
    compiler(tmp_path, "")
    done = run_build(tmp_path, "--target", "sm_91")
    assert (done.returncode, done.stdout) == (2, "")
    assert "no target 'sm_91'" in done.stderr


def test_unknown_kernel(tmp_path):
    compiler(tmp_path, "")
    done = run_build(tmp_path, "no_such_kernel")
    assert (done.returncode, done.stdout) == (2, "")
    assert "no kernel below kernels_cuda/ has no_such_kernel in its path" in done.stderr


@pytest.mark.parametrize(
    ("says", "code", "printed"),
    [
        ("ptxas info : Used 40 registers\n 8 bytes spill stores", 0, "1 kernels, registers at most 40, spilled 8 B"),
        ("x.cu(3): warning: unused", 1, "0 kernels"),
        ("error: expected a ;", 1, "does not compile"),
    ],
)
def test_report(tmp_path, says, code, printed):
    root = tmp_path / "checkout"
    (root / "validation").mkdir(parents=True)
    (root / "validation" / "build.py").write_bytes(BUILD.read_bytes())
    (root / "kernels_cuda" / "dsmem").mkdir(parents=True)
    header = "/* copy\n   Targets    sm_90a sm_100a (others: no clusters) */\n"
    (root / "kernels_cuda" / "dsmem" / "copy.cu").write_text(header, encoding="utf-8")
    compiler(tmp_path, says)
    command = [sys.executable, root / "validation" / "build.py", "copy", "--target", "sm_90a,sm_100a,sm_80"]
    environment = os.environ | {"PATH": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == code
    assert f"dsmem/copy.cu for sm_90a: {printed}" in done.stdout
    assert f"dsmem/copy.cu for sm_100a: {printed}" in done.stdout
    assert "left out for sm_80: no clusters: copy.cu" in done.stdout
    assert f"{0 if 'error' in says else 1} of 1 kernels compile for sm_90a" in done.stdout
    assert ("expected a ;" in done.stderr) == ("error" in says)
    assert ("unused" in done.stderr) == ("warning" in says)
