import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilesight.cost.envelope import envelope, published_envelope
from tilesight.errors import PlanError

cycles = st.floats(0, 1e6)


def test_by_hand():
    # fill 800 cycles, 64 k-steps of 1100, epilogue 3000
    assert envelope(800, np.array([64.0]), 1100, 3000) == 800 + 64 * 1100 + 3000


def test_published_by_hand():
    # 4 stages, 1 resident: d = 3. 3 loads of 100, 7 periods of 100, 3 computations of 50
    assert published_envelope(100, 50, np.array([10.0]), 100, 4, 1) == 3 * 100 + 7 * 100 + 3 * 50
    # 2 residents: d = 7; 7 loads, 3 periods, 7 computations
    assert published_envelope(100, 50, np.array([10.0]), 100, 4, 2) == 7 * 100 + 3 * 100 + 7 * 50
    # fewer iterations than d: only what happens is charged, 2 loads and 2 computations
    assert published_envelope(100, 50, np.array([2.0]), 100, 4, 1) == 2 * 100 + 2 * 50
    # one stage: d = 0
    assert published_envelope(100, 50, np.array([10.0]), 100, 1, 1) == 1000


@given(cycles, st.integers(0, 1000), cycles, cycles)
def test_time_grows_by_one_period_an_iteration(prologue, iterations, period, epilogue):
    short, long = envelope(prologue, np.array([iterations, iterations + 1.0]), period, epilogue)
    assert long - short == pytest.approx(period, abs=1e-6)
    assert short >= prologue + epilogue


@given(cycles, cycles, st.integers(0, 100), st.integers(1, 8), st.integers(1, 4))
def test_published_time_grows_with_iterations(load, compute, iterations, stages, residents):
    period = max(load, compute)
    both = published_envelope(load, compute, np.array([iterations, iterations + 1.0]), period, stages, residents)
    assert both[1] >= both[0] * (1 - 1e-12)


def test_many_iterations_approach_the_period():
    many = np.array([1e9])
    for seconds in (envelope(800, many, 1100, 3000), published_envelope(800, 300, many, 1100, 4, 2)):
        assert seconds / many == pytest.approx(1100, rel=1e-5)


def test_nothing_happens_in_no_iterations():
    assert published_envelope(100, 50, np.array([0.0]), 100, 4, 1) == 0
    assert envelope(0, np.array([0.0]), 1100, 0) == 0


@pytest.mark.parametrize("law", [lambda n: envelope(1, n, 1, 1), lambda n: published_envelope(1, 1, n, 1, 2, 1)])
def test_negative_iterations(law):
    with pytest.raises(PlanError, match="iterations must not be negative"):
        law(np.array([3.0, -1.0]))
