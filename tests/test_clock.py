import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilesight.cost.clock import allowed_flop_per_s, busy_seconds, slowdown
from tilesight.errors import ConfigError


def test_names_of_clocks():
    assert busy_seconds("burst") == 0
    assert busy_seconds("sustained") == np.inf
    assert busy_seconds(0.25) == 0.25
    assert busy_seconds([0.0, 3.0]).tolist() == [0, 3]


@pytest.mark.parametrize("bad", [-1.0, float("nan"), [0.1, float("nan")]])
def test_bad_times(bad):
    with pytest.raises(ConfigError, match="is not a time under load in seconds; give 0 or more"):
        busy_seconds(bad)


def test_unknown_clock():
    with pytest.raises(ConfigError, match="clock = 'boost'; known: burst, sustained, or seconds under load"):
        busy_seconds("boost")


def test_allowed_load_by_hand(hw):
    # 6e14 up to 1 ms, 5e14 from 1 s; halfway in the logarithm, at 31.6 ms, 5.5e14
    times = np.array([0.0, 1e-3, 10**-1.5, 1.0, np.inf])
    assert allowed_flop_per_s(times, hw) == pytest.approx([6e14, 6e14, 5.5e14, 5e14, 5e14])


def test_slowdown_by_hand(hw):
    # 7e14 flop/s and 1e12 B/s at 50 flop a byte are 7.5e14; sustained 5e14 is allowed: sqrt(1.5)
    slow = slowdown(np.array([7e14]), np.array([1e12]), busy_seconds("sustained"), hw)
    assert slow == pytest.approx(1.5**0.5)
    # in bursts 6e14: sqrt(1.25); a load below the threshold is not slowed
    assert slowdown(np.array([7e14]), np.array([1e12]), busy_seconds("burst"), hw) == pytest.approx(1.25**0.5)
    assert slowdown(np.array([4e14]), np.array([1e12]), busy_seconds("sustained"), hw) == 1


@given(st.floats(0, 2e15), st.floats(0, 5e12), st.floats(1, 3), st.floats(0, 100), st.floats(0, 100))
def test_slowdown_grows_with_load_and_time(gpu, flop, dram, more, first, second):
    early, late = sorted((first, second))
    base = slowdown(np.array([flop]), np.array([dram]), busy_seconds(early), gpu)
    assert base >= 1
    assert slowdown(np.array([flop]), np.array([dram]), busy_seconds(late), gpu) >= base
    assert slowdown(np.array([flop * more]), np.array([dram]), busy_seconds(early), gpu) >= base
    assert slowdown(np.array([flop]), np.array([dram * more]), busy_seconds(early), gpu) >= base


@given(st.floats(1e14, 2e15), st.floats(1, 3))
def test_a_faster_load_is_never_slower_in_the_end(gpu, flop, faster):
    # at full clock the time is work / rate; stretched by the slowdown it must still fall as the rate rises
    slow, fast = (
        slowdown(np.array([rate]), np.array([0.0]), busy_seconds("sustained"), gpu) / rate
        for rate in (flop, flop * faster)
    )
    assert fast <= slow * (1 + 1e-12)
