import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilesight.cost.clock import StepLoad, busy_seconds, demand_w, loaded_clock_hz
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


def load_of(flop, delivered=0.0, dram=0.0, cycles=1000.0):
    """A k-step of 1000 cycles, 500 ns at 2 GHz."""
    return StepLoad(*(np.array([float(value)]) for value in (cycles, flop, delivered, dram)))


def test_demand_by_hand(hw):
    # 4e8 flop at 0.5 pJ are 0.2 mJ, 4e6 B from L2 at 10 pJ 0.04 mJ, 1e6 B of DRAM at 50 pJ 0.05 mJ, in 500 ns:
    # 100 W at rest + 400 + 80 + 100
    assert demand_w(load_of(4e8, 4e6, 1e6), "bf16", hw) == pytest.approx(680)
    assert demand_w(load_of(4e8, 4e6, 1e6, cycles=2000), "bf16", hw) == pytest.approx(390)


def test_clock_by_hand(hw):
    # 720 W of demand: at once 500 W are allowed, 2 GHz / sqrt(1.44) = 1.667 GHz; in the end 400, 2 GHz / sqrt(1.8).
    # Halfway in the logarithm of 1 ms to 1 s the geometric mean of both
    load = load_of(4e8, 6e6, 1e6)
    assert demand_w(load, "bf16", hw) == pytest.approx(720)
    at_once, in_the_end = 2e9 / 1.44**0.5, 2e9 / 1.8**0.5
    for busy, clock in (
        (0.0, at_once),
        (1e-3, at_once),
        (10**-1.5, (at_once * in_the_end) ** 0.5),
        (1.0, in_the_end),
        (np.inf, in_the_end),
    ):
        assert loaded_clock_hz(load, "bf16", busy_seconds(busy), hw) == pytest.approx(clock)
    # 390 W are allowed for ever
    assert loaded_clock_hz(load_of(4e8, 4e6, 1e6, cycles=2000), "bf16", busy_seconds("sustained"), hw) == 2e9


def test_a_lasting_load_is_never_faster_than_a_starting_one(hw, altered):
    mild = altered(hw, {"power.sustained_exponent": 0.1})
    load = load_of(4e8, 6e6, 1e6)
    assert loaded_clock_hz(load, "bf16", busy_seconds("sustained"), mild) == loaded_clock_hz(
        load, "bf16", busy_seconds("burst"), mild
    )


def test_time_under_load_launch_by_launch(hw):
    load = StepLoad(*(np.full(3, value) for value in (1000.0, 4e8, 6e6, 1e6)))
    clocks = loaded_clock_hz(load, "bf16", busy_seconds([0.0, 0.03, 10.0]), hw)
    assert clocks[0] > clocks[1] > clocks[2]


joules = st.floats(0, 1e9)


@given(joules, st.floats(0, 1e8), st.floats(0, 1e7), st.floats(1, 3), st.floats(0, 100), st.floats(0, 100))
def test_clock_falls_with_load_and_time(gpu, flop, delivered, dram, more, first, second):
    early, late = (busy_seconds(time) for time in sorted((first, second)))
    base = loaded_clock_hz(load_of(flop, delivered, dram), "bf16", early, gpu)
    assert 0 < base <= gpu.require("clock.tensor_hz")
    assert loaded_clock_hz(load_of(flop, delivered, dram), "bf16", late, gpu) <= base * (1 + 1e-12)
    for heavier in (
        load_of(flop * more, delivered, dram),
        load_of(flop, delivered * more, dram),
        load_of(flop, delivered, dram * more),
        load_of(flop, delivered, dram, cycles=1000 / more),
    ):
        assert loaded_clock_hz(heavier, "bf16", early, gpu) <= base * (1 + 1e-12)


@given(joules, st.floats(0, 1e8), st.floats(0, 1e7), st.floats(1, 3), st.floats(0, 100))
def test_fewer_cycles_are_never_slower_in_the_end(gpu, flop, delivered, dram, fewer, busy):
    # work done in fewer cycles draws more power; the clock falls by less than the cycles saved
    slow, fast = (
        cycles / loaded_clock_hz(load_of(flop, delivered, dram, cycles), "bf16", busy_seconds(busy), gpu)
        for cycles in (1000.0, 1000.0 / fewer)
    )
    assert fast <= slow * (1 + 1e-12)
