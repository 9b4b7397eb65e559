"""Scripts of validation/: their help needs nothing but Python, and what they lack or can't read is told in one line."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

from tilesight.calibrate.suite import ELSEWHERE

ROOT = Path(__file__).parent.parent.parent
VALIDATION = ROOT / "validation"
GPU_SCRIPTS = sorted({script for script, _ in ELSEWHERE.values()} | {
    "validation/triton_clock.py", "validation/triton_power.py", "validation/triton_gemm.py"
})  # fmt: skip
OTHERS = ["validation/sample_records.py", "validation/constants.py", "validation/plot_records.py"]
NO_TORCH = "import sys, runpy; sys.modules.update(torch=None, triton=None, pynvml=None); del sys.argv[0]; "
RUN = "runpy.run_path(sys.argv[0], run_name='__main__')"


@pytest.fixture
def script():
    """validation/script.py, as the scripts beside it import it."""
    spec = importlib.util.spec_from_file_location("script", VALIDATION / "script.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("path", [*GPU_SCRIPTS, *OTHERS])
def test_help_needs_no_torch(path):
    code = f"{NO_TORCH}sys.path.insert(0, {str(VALIDATION)!r}); {RUN}"
    done = subprocess.run([sys.executable, "-c", code, path, "--help"], cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("usage: ")
    assert len(done.stdout.splitlines()) > 8  # what it does, not its arguments alone


def refused(capsys, call, *words):
    with pytest.raises(SystemExit) as ended:
        call(*words)
    assert ended.value.code == 2
    lines = capsys.readouterr().err.splitlines()
    assert not any("Traceback" in line for line in lines)
    return lines[-1]


def test_what_a_machine_lacks(script, capsys, monkeypatch):
    monkeypatch.setattr(script.importlib.util, "find_spec", lambda name: None if name == "pynvml" else object())
    monkeypatch.setattr(script.shutil, "which", lambda name: None)
    parser = script.parser_of("What it does.")
    line = refused(capsys, script.parsed, parser, ["out"])
    assert line.endswith("needs pynvml; pip install nvidia-ml-py, on the machine with the GPU")
    monkeypatch.setattr(script, "PACKAGES", {})
    assert script.parsed(parser, ["out"]).folder == "out"
    with pytest.raises(SystemExit):
        script.parsed(parser, ["out"], tools=("ncu",))
    assert "needs ncu on the path" in capsys.readouterr().err
    assert "the following arguments are required: OUT_DIR" in refused(capsys, script.parsed, parser, [])


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["plot_records.py", "nowhere", "OUT"], "no records in nowhere"),
        (["plot_records.py", "validation/records/h200_sxm", "OUT", "--only", "nosuch"], "no picture 'nosuch'"),
        (["plot_records.py", "validation/records/h200_sxm", "OUT", "--base", "h20"], "no hardware profile 'h20'"),
        (["constants.py", "--compare", "x", "nowhere", "validation/records/h200_sxm"], "no records in nowhere"),
        (["constants.py", "--compare", "../x", "validation/records/h200_sxm", "validation/records/h200_sxm"], "name"),
        (["sample_records.py", "nowhere", "OUT"], "no gemm_cublas.csv and no gemm_triton.csv in nowhere"),
    ],
)
def test_bad_arguments_end_in_one_line(words, why, tmp_path):
    file, *rest = (word.replace("OUT", str(tmp_path / "out")) for word in words)
    done = subprocess.run(
        [sys.executable, f"validation/{file}", *rest], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert why in line
    assert not (tmp_path / "out").exists()
