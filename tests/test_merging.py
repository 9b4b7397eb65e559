import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilesight.cost.merging import distinct_among_neighbours, lookup_shares
from tilesight.errors import UnsupportedError
from tilesight.plan.access import Access


def access_of(tiles_m, group, multicast_a=1, multicast_b=1):
    one = np.ones(1)
    return Access(
        m=tiles_m * 128.0 * one,
        n=4096 * one,
        k=4096 * one,
        split=one,
        tile_m=128 * one,
        tile_n=128 * one,
        tile_k=64 * one,
        element_bytes=2 * one,
        output_bytes=2 * one,
        group=group * one,
        multicast_a=multicast_a * one,
        multicast_b=multicast_b * one,
    )


def shares_of(access, hardware, ctas=1.0, in_order=True):
    shares = lookup_shares(access, np.array([ctas]), in_order, hardware)
    return float(shares.a[0]), float(shares.b[0])


@given(st.integers(1, 64), st.sampled_from([2, 4]))
def test_distinct_tiles_against_a_count(sharers, size):
    # CTA i uses tile i // sharers; groups of neighbours begin at multiples of their size. Runs of 6, 10, ... begin only
    # at every other place of a group of 4: the average over all places is close to theirs, and exact for all others
    half = size == 4 and sharers % 4 == 2 and sharers > 2
    period = sharers * size
    tiles = np.arange(period) // sharers
    distinct = [len(set(tiles[start : start + size])) for start in range(0, period, size)]
    found = distinct_among_neighbours(np.array([float(sharers)]), np.array(size))
    assert found == pytest.approx(np.mean(distinct) / size, abs=0.05 if half else 1e-12)


def test_shares_of_in_order_loops_by_hand(hw):
    # groups of 8 rows: 4 neighbours lie in 4 rows (A: 4 distinct of 4) and one column (B: 1 of 4). One CTA an SM loses a
    # quarter of what merges: 0.25 + 0.75 * 0.25 = 0.4375; two lose half: 0.25 + 0.75 * 0.5 = 0.625
    assert shares_of(access_of(32, 8), hw) == pytest.approx((1.0, 0.4375))
    assert shares_of(access_of(32, 8), hw, ctas=2.0) == pytest.approx((1.0, 0.625))
    # row by row: neighbours share A, and each has its own B
    assert shares_of(access_of(32, 1), hw) == pytest.approx((0.4375, 1.0))
    # two rows: 2 of 4 distinct for both, 0.5 + 0.5 * 0.25
    assert shares_of(access_of(2, 8), hw) == pytest.approx((0.625, 0.625))


def test_shares_of_clusters_by_hand(hw):
    # no cluster: any four neighbours merge; 0.25 + 0.75 * 0.25 for both
    assert shares_of(access_of(32, 8), hw, in_order=False) == pytest.approx((0.4375, 0.4375))
    # 2 CTAs along n receive one A tile: half of A's requests, not merged further; pairs of clusters merge B:
    # 0.5 + 0.5 * 0.25
    assert shares_of(access_of(32, 8, multicast_a=2), hw, in_order=False) == pytest.approx((0.5, 0.625))
    assert shares_of(access_of(32, 8, multicast_b=2), hw, in_order=False) == pytest.approx((0.625, 0.5))
    # 2 x 2: both are multicast
    assert shares_of(access_of(32, 8, 2, 2), hw, in_order=False) == pytest.approx((0.5, 0.5))


@given(st.integers(1, 64), st.integers(1, 64), st.sampled_from([1, 2, 4]), st.sampled_from([1, 2, 4]), st.booleans())
def test_shares_are_shares_and_more_drift_is_more_lookups(hw, tiles_m, group, multicast_a, multicast_b, in_order):
    access = access_of(tiles_m, group, multicast_a, multicast_b)
    one, two = (shares_of(access, hw, ctas, in_order) for ctas in (1.0, 2.0))
    for few, many in zip(one, two, strict=True):
        assert 0.25 <= few <= many <= 1


def test_no_drift_no_loss(hw, altered):
    still = altered(hw, {"merging.drift_one_cta": 0.0})
    assert shares_of(access_of(32, 8), still) == pytest.approx((1.0, 0.25))
    lost = altered(hw, {"merging.drift_one_cta": 1.0})
    assert shares_of(access_of(32, 8), lost) == pytest.approx((1.0, 1.0))


def test_needs_its_numbers(hw, altered):
    with pytest.raises(UnsupportedError, match="has no merging.requests_async") as caught:
        shares_of(access_of(4, 4), altered(hw, {"merging.requests_async": None}))
    assert caught.value.field == "merging.requests_async"
