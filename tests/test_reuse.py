import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilesight.cost.reuse import hit_probability, hit_probability_gaussian, survival
from tilesight.errors import PlanError


def test_hit_probability_check_values():
    # D/B = 1, A = 8, B = 16384
    assert hit_probability(16384, associativity=8, cache_blocks=16384) == pytest.approx(0.452927, abs=5e-7)
    assert hit_probability_gaussian(16384, associativity=8, cache_blocks=16384) == pytest.approx(0.429825, abs=5e-7)


def test_hit_probability_by_hand():
    # two ways of two blocks in all, 2 blocks since: the chance that both fall in the set (one set: certainly)
    assert hit_probability(2, associativity=2, cache_blocks=2) == 0
    # direct-mapped, 4 blocks, 3 others since: each misses the set with 3/4
    assert hit_probability(3, associativity=1, cache_blocks=4) == pytest.approx(0.75**3)
    # 2 ways of 4 blocks, 3 others, each in the set with 1/2: at most one of three, (1 + 3) / 8
    assert hit_probability(3, associativity=2, cache_blocks=4) == pytest.approx(0.5)


def test_gaussian_is_within_two_and_a_half_points_at_eight_ways():
    blocks = 16384
    distance = np.arange(8, 4 * blocks)
    apart = np.abs(hit_probability_gaussian(distance, 8, blocks) - hit_probability(distance, 8, blocks))
    assert apart.max() < 0.025
    assert distance[apart.argmax()] / blocks == pytest.approx(0.93, abs=0.01)


@pytest.mark.parametrize("law", [hit_probability, hit_probability_gaussian])
@pytest.mark.parametrize("ways", [1, 4, 16])
def test_hit_probability_limits(law, ways):
    blocks = 4096
    distance = np.array([0.0, ways - 1, ways, 100, 1000, 1e4, 1e5, 1e7, 1e12, 1e17])
    hit = law(distance, ways, blocks)
    assert np.all((hit >= 0) & (hit <= 1))
    assert np.all(np.diff(hit) <= 1e-12)
    assert hit[0] == hit[1] == 1
    assert hit[-1] == 0


@pytest.mark.parametrize("law", [hit_probability, hit_probability_gaussian])
def test_bad_caches(law):
    with pytest.raises(PlanError, match="reuse distance must not be negative"):
        law([-1.0], 8, 64)
    with pytest.raises(PlanError, match="reuse distance must not be negative"):
        law([float("nan")], 8, 64)
    for ways, blocks in ((0, 64), (65, 64), (8, 0)):
        with pytest.raises(PlanError, match="SDCM needs 1 <= associativity <= blocks"):
            law(1, ways, blocks)


@given(st.lists(st.floats(0, 1e7), min_size=1, max_size=50), st.integers(1, 128))
def test_what_is_certain_is_left_out(distances, ways):
    distance = np.array(distances)
    found = survival(ways, 2.0**19)(distance)
    assert found == pytest.approx(hit_probability_gaussian(distance, ways, 2.0**19), abs=1e-15)
