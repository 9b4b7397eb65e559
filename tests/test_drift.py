import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilesight.cost.drift import EVEN_SHARE, Pace, fetches, lonely_tiles, pace, spread_by_wave
from tilesight.cost.raster import places, raster
from tilesight.plan.access import Access


def access_of(m, n, k, group=8):
    one = np.ones(1)
    sizes = {"m": m, "n": n, "k": k, "tile_m": 128, "tile_n": 128, "tile_k": 64, "group": group}
    return Access(
        **{name: one * value for name, value in sizes.items()},
        split=one, batch=one, element_bytes=2 * one, output_bytes=2 * one, multicast_a=one, multicast_b=one,
    )  # fmt: skip


def pace_of(*, restarts=False, **given):
    names = ("steady", "unfair", "held", "jitter_elements", "l2_share", "lead", "ctas_per_sm")
    values = {name: np.array([float(given.get(name, name == "ctas_per_sm"))]) for name in names}
    return Pace(**values, loads_plainly=np.ones(1, dtype=bool), restarts=np.array([restarts]))


def spreads(how, k, waves, share, hardware):
    found = spread_by_wave(how, np.array([float(k)]), np.array([float(waves)]), share, hardware)
    return found.whole[:, 0].tolist(), found.inside[:, 0].tolist()


def alone(far, kept, wave):
    """Nobody shares: each request is a lookup."""
    return far * 0 + 1


def test_neighbours_that_are_kept_by_hand(hw):
    def kept(how, k=1000.0):
        return spread_by_wave(how, np.array([k]), np.array([3.0]), alone, hw).kept[:, 0].tolist()

    # GPCs alone differ: three quarters of neighbours stay; CTAs of a GPC alone: a quarter; both alike: half
    assert kept(pace_of(steady=0.01, restarts=True)) == [1, 0.75, 0.75]
    assert kept(pace_of(unfair=0.01, restarts=True)) == [1, 0.25, 0.25]
    assert kept(pace_of(steady=0.01, unfair=0.01, restarts=True)) == pytest.approx([1, 0.5, 0.5])
    # persistent CTAs stay where they are
    assert kept(pace_of(unfair=0.01)) == [1, 1, 1]


def test_pace_by_hand(hw):
    # tensor cores take 2 us a step of 64 elements, the loop 1, L2 1 if nothing merges; with one CTA fewer 1.5
    seconds = (np.array([value]) for value in (2e-6, 1e-6, 1e-6, 1.5e-6, 64.0, 2.0))
    found = pace(*seconds, True, True, hw)
    assert (found.steady, found.held, found.unfair) == (2**-8, 0, 2**-8)
    # 0.1 us in which 3.2 elements pass; half of the time is L2's; a CTA that shares with one fewer is 1/4 ahead
    assert found.jitter_elements == pytest.approx(3.2)
    assert (found.l2_share, found.lead) == (0.5, 0.25)
    waiting = pace(*(np.array([value]) for value in (1e-6, 2e-6, 1e-6, 2e-6, 64.0, 1.0)), False, False, hw)
    assert (waiting.steady, waiting.held, waiting.unfair, waiting.lead) == (0, 2**-6, 0, 0)


def test_spread_by_hand(hw):
    # steady: 1 % of 1000 elements a tile, half of it in the middle of the first; neighbours keep step
    whole, inside = spreads(pace_of(steady=0.01), 1000, 3, alone, hw)
    assert whole == pytest.approx([5, 15, 25])
    assert inside == [0, 0, 0]
    # held together: groups are as far apart in every wave, their members keep step
    whole, inside = spreads(pace_of(held=0.01), 1000, 3, alone, hw)
    assert whole == pytest.approx([10, 10, 10])
    assert inside == [0, 0, 0]
    # L2 needs twice the time: (1 - 1/2) is more than the 1/4 of which small CPCs are faster, an eighth of a tile a wave
    whole, inside = spreads(pace_of(l2_share=2.0), 1000, 3, alone, hw)
    assert whole == inside == pytest.approx([62.5, 187.5, EVEN_SHARE * 1000])


def test_spread_feeds_itself(hw):
    # requests are merged four to one while neighbours keep together, and not at all once they are 100 elements apart
    def share(far, kept, wave):
        return np.clip(0.25 + 0.75 * far / 100, 0.25, 1.0)

    _, inside = spreads(pace_of(unfair=0.005, l2_share=3.0), 2000, 12, share, hw)
    steps = np.diff(inside)
    assert inside[0] == 5  # half of 0.5 % of 2000: L2 does not bind
    assert np.all(np.diff(steps[:4]) >= 0)
    assert steps[3] > 3 * steps[0]
    calm, _ = spreads(pace_of(unfair=0.005, l2_share=0.9), 2000, 12, share, hw)
    assert np.diff(calm) == pytest.approx([10] * 11)


@given(st.floats(0, 0.1), st.floats(0, 0.1), st.floats(0, 3), st.integers(1, 60), st.floats(1, 1e5))
def test_spread_grows_to_an_even_one(gpu, steady, held, l2_share, waves, k):
    whole, inside = spreads(pace_of(steady=steady, held=held, l2_share=l2_share), k, waves, alone, gpu)
    for values in (whole, inside):
        assert np.all(np.diff(values) >= -1e-9 * k)
        assert 0 <= values[0] <= values[-1] <= EVEN_SHARE * k * (1 + 1e-12)


def fetched(spread, k, capacity, crowded=False, slots=128.0):
    access = access_of(8192, 8192, k)
    waves = raster(access, np.array([slots]))
    where = places(waves, 16.0, 8.0, 4.0, 4.0)
    held = waves.elements * 2.0 * 2.0
    one = np.ones_like(waves.wave)
    found = fetches(waves.sharers, where.gpcs, held, 0 * one, k * one, spread * one, crowded * one > 0, capacity)
    return waves, where, found


def test_who_keeps_together_fetches_once():
    _, _, found = fetched(0.0, 4096.0, 2.0**26)
    assert np.all(found.whole == 1)
    assert np.all(found.side == 1)
    # 8 rows and 16 columns of tiles of 128, twice in L2 at 2 B: 12,288 B an element, 5461 elements in 64 MiB
    assert found.window_elements[0] == pytest.approx(2**26 / 12288)


def test_fetches_by_hand():
    # a window of next to nothing: every one of the GPCs a tile's readers lie in fetches it anew
    _, where, found = fetched(1000.0, 4096.0, 1.0)
    assert found.whole == pytest.approx(np.maximum(where.gpcs, 1.0), rel=2e-2)


@given(st.floats(0, 3e4), st.floats(1.0, 3.0), st.booleans())
def test_more_spread_fetches_more_and_a_larger_cache_less(spread, more, crowded):
    _, _, some = fetched(spread, 1e5, 2.0**24, crowded)
    _, _, larger = fetched(spread, 1e5, 2.0**24 * more, crowded)
    assert np.all(some.whole >= 1)
    assert np.all(larger.window_elements >= some.window_elements * (1 - 1e-9))
    assert np.all(larger.whole.sum(axis=0) <= some.whole.sum(axis=0) * (1 + 1e-6))


def test_lonely_ctas_by_hand():
    # 250 CTAs on 128 SMs, two each: six SMs have one. It ends a quarter of 1000 elements ahead; blocks live for 100, so
    # that it is alone for 1 - 100 / 250 of its way
    waves = raster(access_of(250 * 128, 128, 1000, group=10**6), np.array([256.0]))
    one = np.ones(1)
    found = lonely_tiles(waves.ctas, 256 * one, 2 * one, 1000 * one, 0.25 * one, 100 * one)
    assert found == pytest.approx(6 * 0.6)
    assert lonely_tiles(waves.ctas, 256 * one, 2 * one, 1000 * one, 0.25 * one, 300 * one) == 0
    full = raster(access_of(256 * 128, 128, 1000, group=10**6), np.array([256.0]))
    assert lonely_tiles(full.ctas, 256 * one, 2 * one, 1000 * one, 0.25 * one, 100 * one) == 0
