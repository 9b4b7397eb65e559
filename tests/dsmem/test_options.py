"""Programs of kernels_cuda/dsmem without a GPU: options that make no sense, and the arithmetic of int8 at its ends."""

import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

FOLDER = Path(__file__).parent.parent.parent / "kernels_cuda" / "dsmem"
COMPILER = shutil.which("c++") or shutil.which("g++")
pytestmark = [
    pytest.mark.skipif(not FOLDER.is_dir(), reason="kernels_cuda/ is not part of an installed wheel"),
    pytest.mark.skipif(COMPILER is None, reason="needs a C++ compiler"),
]
MAIN = """
#include "options.cuh"
using namespace ts;
int main(int argc, char** argv) {
  check_options("mine", {argv + 1, argv + argc},
                {number("--rows", 1, MOST_INT), numbers("--cols", 1, 100), word("--dtype", "f32 bf16"),
                 number("--load", -1, 3)});
}
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    folder = tmp_path_factory.mktemp("options")
    source = folder / "mine.cpp"
    source.write_text(MAIN, encoding="utf-8")
    words = [
        COMPILER,
        "-std=c++17",
        "-Wall",
        "-Wextra",
        "-Werror",
        f"-I{FOLDER}",
        str(source),
        "-o",
        str(folder / "mine"),
    ]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return str(folder / "mine")


def run(program, *words):
    return subprocess.run([program, *words], capture_output=True, text=True, check=False)


def test_what_is_allowed_passes(program):
    for words in ((), ("--rows", "2147483647", "--cols", "1,100", "--dtype", "bf16", "--load", "-1")):
        done = run(program, *words)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--help",), "options, each with a value: --rows --cols --dtype --load"),
        (("--words", "3"), "no option '--words'; known: --rows"),
        (("rows", "3"), "no option 'rows'"),
        (("--rows",), "--rows has no value; give a whole number from 1 to 2147483647"),
        (("--rows", "many"), "--rows 'many'; give a whole number"),
        (("--rows", ""), "--rows ''; give"),
        (("--rows", "-"), "--rows '-'; give"),
        (("--rows", "1e3"), "--rows '1e3'; give"),
        (("--rows", "0"), "--rows '0'; give"),
        (("--rows", "9" * 30), "--rows '9+'; give"),
        (("--rows", "1", "--rows", "2"), "--rows is given twice"),
        (("--cols", "4,"), "--cols '4,'; give whole numbers from 1 to 100, by commas"),
        (("--cols", "4,101"), "--cols '4,101'; give"),
        (("--dtype", "f64"), "--dtype 'f64'; give one of f32 bf16"),
        (("--load", "4"), "--load '4'; give a whole number from -1 to 3"),
    ],
)
def test_nonsense_is_refused_in_one_line(program, words, message):
    done = run(program, *words)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert re.match(f"mine: {message}", done.stderr)


def test_programs_check_their_options_first():
    for name in ("row_main.cuh", "control.cu"):
        text = (FOLDER / name).read_text(encoding="utf-8")
        main = text[text.index("const Args args(argc, argv);") :]
        assert main.index("check_options(") < main.index("capability()")
        options = set(re.findall(r'args\.(?:get|list)\("(--[a-z-]+)"', text))
        assert options == set(re.findall(r'(?:number|numbers|word|flag)\("(--[a-z-]+)"', text))


def test_wide_slices_are_refused_before_the_rule():
    launch = (FOLDER / "row_launch.cuh").read_text(encoding="utf-8")
    plan = launch[launch.index("RowPlan<W, T> plan(") :]
    assert plan.index("why_impossible(") < plan.index("choose(")


def quantised(row):
    """finish() and apply() of quantise_int8.cu and rounded() of row_data.cuh in float32; fma as a float64 sum, rounded."""

    def fma(a, b, c):
        return (np.float64(a) * np.float64(b) + np.float64(c)).astype(np.float32)

    row = np.asarray(row, np.float32)
    most = np.fmax.reduce(np.abs(row), initial=np.float32(0))
    scale = np.float32(most / np.float32(127))
    factor = np.float32(2.0**100 if scale < 1e-25 else 1)
    divisor = scale * factor
    inverse = np.float32(1) / divisor if scale > 0 else np.float32(0)
    if np.isinf(scale):
        factor, divisor, inverse = np.float32(1), np.float32(-1), np.float32(2.0**-140)
    x = row * factor
    q = x * inverse
    for _ in range(2):
        q = fma(fma(-q, divisor, x), inverse, q)
    bits = (q + np.float32(12582912)).view(np.int32)
    return scale, np.minimum(np.maximum(bits, 0x4B400000 - 127), 0x4B400000 + 127) - 0x4B400000


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_int8_saturates():
    least, most = 2.0**-149, np.finfo(np.float32).max
    assert quantised([1.0, -127.0, 0.5, 2.5, 1.5])[1].tolist() == [1, -127, 0, 2, 2]  # half to even
    assert quantised([0.0, -0.0])[1].tolist() == [0, 0]
    scale, row = quantised([np.inf, -np.inf, 0.0, most, -most, 1.0])
    assert (scale, row.tolist()) == (np.inf, [127, -127, 0, 0, 0, 0])
    # 190 / 127 of the least float rounds to 1 of it, so that the quotient is 190
    assert quantised([190 * least, -190 * least, 100 * least])[1].tolist() == [127, -127, 100]
    assert np.abs(quantised([np.nan, 1.0, -3.0])[1]).max() <= 127
    random = np.random.default_rng(1).normal(size=10000).astype(np.float32)
    scale, row = quantised(random)
    assert row.tolist() == np.rint(random / scale).tolist()
    source = (FOLDER / "quantise_int8.cu").read_text(encoding="utf-8")
    assert "if (isinf(scale)) return {scale, 1, -1, 7.1746481e-43f};" in source
    assert "min(max(__float_as_int(v + 12582912.0f), ZERO - 127), ZERO + 127)" in (FOLDER / "row_data.cuh").read_text()
