"""The kernels of kernels_cuda/dsmem on a GPU: right in all variants, and free of races that the sanitizer can see."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from tilesight.dsmem.catalogue import SIX

FOLDER = Path(__file__).parent.parent / "kernels_cuda" / "dsmem"
SMALL = ("--check", "1", "--brief", "1")
RACES = (*SMALL, "--cols", "1000", "--rows", "4", "--same", "1", "--cluster", "2")


def missing() -> str | None:
    """What this machine lacks, None if nothing."""
    if not FOLDER.is_dir():
        return "kernels_cuda/ is not part of an installed wheel"
    if shutil.which("nvcc") is None:
        return "no nvcc on the path"
    if shutil.which("nvidia-smi") is None:
        return "no NVIDIA GPU"
    asked = subprocess.run(
        ["nvidia-smi", "--query-gpu=compute_cap", "--format=csv,noheader"], capture_output=True, text=True, check=False
    )
    capability = asked.stdout.split("\n")[0].strip()
    return None if capability == "9.0" else f"compute capability {capability or 'unknown'}; 9.0 is wanted"


pytestmark = [pytest.mark.gpu, pytest.mark.skipif(missing() is not None, reason=missing() or "")]


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    """Builds the program of a workload once."""
    folder, options = tmp_path_factory.mktemp("dsmem"), ("-O3", "-std=c++17", "-gencode=arch=compute_90a,code=sm_90a")

    def build(name: str) -> Path:
        made = folder / name
        if not made.exists():
            subprocess.run(["nvcc", *options, FOLDER / f"{name}.cu", "-o", made], check=True)
        return made

    return build


@pytest.mark.parametrize("name", SIX)
def test_against_float64(program, name):
    done = subprocess.run([program(name), *SMALL, "--dtype", "both"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    checked = [line for line in lines if "max_error" in line]
    assert {line["variant"] for line in checked} == {"cluster", "staged", "reread"}
    assert {line["cluster"] for line in checked} == {1, 2, 4, 8, 16}
    assert all(0 <= line["max_error"] <= 1 for line in checked)  # of the tolerance; NaN fails


@pytest.mark.skipif(shutil.which("compute-sanitizer") is None, reason="no compute-sanitizer on the path")
@pytest.mark.parametrize("name", SIX)
def test_a_planted_race_is_seen_and_no_other(program, name):
    for planted in (False, True):
        options = ("--plant-race", "1", "--protocol", "published") if planted else ()
        command = ["compute-sanitizer", "--tool", "racecheck", program(name), *RACES, *options]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        summary = next(line for line in done.stdout.splitlines() if "RACECHECK SUMMARY" in line)
        assert ("0 hazards" in summary) != planted, summary
