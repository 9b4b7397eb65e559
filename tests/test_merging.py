import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilesight.cost.merging import distinct_among_neighbours, lookup_shares, merging_loss
from tilesight.errors import UnsupportedError
from tilesight.plan.access import Access


def access_of(tiles_m, group, multicast_a=1, multicast_b=1):
    one = np.ones(1)
    return Access(
        m=tiles_m * 128.0 * one,
        n=4096 * one,
        k=4096 * one,
        split=one,
        batch=one,
        tile_m=128 * one,
        tile_n=128 * one,
        tile_k=64 * one,
        element_bytes=2 * one,
        output_bytes=2 * one,
        group=group * one,
        multicast_a=multicast_a * one,
        multicast_b=multicast_b * one,
    )


def shares_of(access, hardware, ctas=1.0, rounds=1.0, in_order=True, bulk=False):
    shares = lookup_shares(access, in_order, bulk, np.array([ctas]), np.array([rounds]), hardware)
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


def test_loss_by_hand(hw):
    def loss(ctas, rounds, bulk=False):
        return float(merging_loss(access_of(32, 8), bulk, np.array([ctas]), np.array([rounds]), hw)[0])

    # one CTA an SM: a quarter in the first round, half as much again of a further half after one more
    assert loss(1.0, 1.0) == 0.25
    assert loss(1.0, 2.0) == pytest.approx(0.25 + 0.5 * 1 / (1 + 1))
    # several: k = 4096 elements in half a round, of which 2048 lose half of 0.8; three times as many in the next
    assert loss(2.0, 1.0) == pytest.approx(0.8 * 2048 / (2048 + 2048))
    assert loss(2.0, 2.0) == pytest.approx(0.8 * 6144 / (6144 + 2048))
    # bulk loads: a constant
    assert loss(1.0, 5.0, bulk=True) == 0.125


def test_shares_of_in_order_loops_by_hand(hw):
    # groups of 8 rows: 4 neighbours lie in 4 rows (A: 4 distinct of 4) and one column (B: 1 of 4). One CTA an SM loses a
    # quarter of what merges: 0.25 + 0.75 * 0.25
    assert shares_of(access_of(32, 8), hw) == pytest.approx((1.0, 0.4375))
    # two CTAs an SM lose 0.4 of it: 0.25 + 0.75 * 0.4; bulk loads an eighth: 0.25 + 0.75 / 8
    assert shares_of(access_of(32, 8), hw, ctas=2.0) == pytest.approx((1.0, 0.55))
    assert shares_of(access_of(32, 8), hw, bulk=True) == pytest.approx((1.0, 0.34375))
    # row by row: neighbours share A, and each has its own B
    assert shares_of(access_of(32, 1), hw) == pytest.approx((0.4375, 1.0))
    # two rows: 2 of 4 distinct for both, 0.5 + 0.5 * 0.25
    assert shares_of(access_of(2, 8), hw) == pytest.approx((0.625, 0.625))


def test_shares_of_clusters_by_hand(hw):
    how = {"in_order": False, "bulk": True}
    # no cluster: four neighbours, two by two; 0.5 + 0.5 / 8 for both
    assert shares_of(access_of(32, 8), hw, **how) == pytest.approx((0.5625, 0.5625))
    # 2 CTAs along n receive one A tile: half of A's requests, not merged further; pairs of clusters merge B:
    # 0.5 + 0.5 / 8
    assert shares_of(access_of(32, 8, multicast_a=2), hw, **how) == pytest.approx((0.5, 0.5625))
    assert shares_of(access_of(32, 8, multicast_b=2), hw, **how) == pytest.approx((0.5625, 0.5))
    # 2 x 2: both are multicast
    assert shares_of(access_of(32, 8, 2, 2), hw, **how) == pytest.approx((0.5, 0.5))


@given(
    st.integers(1, 64),
    st.integers(1, 64),
    st.sampled_from([1, 2, 4]),
    st.sampled_from([1, 2, 4]),
    st.booleans(),
    st.booleans(),
    st.sampled_from([1.0, 2.0]),
    st.floats(1, 100),
    st.floats(1, 3),
)
def test_shares_are_shares_and_later_rounds_merge_less(
    gpu, tiles_m, group, multicast_a, multicast_b, in_order, bulk, ctas, rounds, further
):
    access = access_of(tiles_m, group, multicast_a, multicast_b)
    first, later = (shares_of(access, gpu, ctas, count, in_order, bulk) for count in (rounds, rounds * further))
    for few, many in zip(first, later, strict=True):
        assert 0 <= few <= many <= 1


def test_no_drift_no_loss(hw, altered):
    still = altered(hw, {"merging.loss_bulk": 0.0})
    assert shares_of(access_of(32, 8), still, bulk=True) == pytest.approx((1.0, 0.25))
    lost = altered(hw, {"merging.loss_bulk": 1.0})
    assert shares_of(access_of(32, 8), lost, bulk=True) == pytest.approx((1.0, 1.0))
    # further sharers merge too, but no more than all there are
    further = altered(hw, {"merging.loss_bulk": -0.2})
    assert shares_of(access_of(32, 8), further, bulk=True) == pytest.approx((1.0, 0.25 - 0.75 * 0.2))
    # each tile is looked up once: 32 rows of tiles ask for B, 4096 / 128 columns for A
    assert shares_of(access_of(32, 8), altered(hw, {"merging.loss_bulk": -1.0}), bulk=True) == (1.0, 1 / 32)


@pytest.mark.parametrize("in_order", [True, False])
def test_who_asks_alone_merges_with_nobody(hw, in_order):
    # one row of tiles: nobody else asks for a tile of B
    access = access_of(1, 8)
    found = lookup_shares(access, in_order, True, np.ones(1), np.ones(1), hw)
    assert (found.b, found.merged_b) == (1.0, 1.0)
    assert found.a < 1


@pytest.mark.parametrize("name", ["requests_async", "loss_one_cta_start", "loss_many_ctas_elements"])
def test_needs_its_numbers(hw, altered, name):
    with pytest.raises(UnsupportedError, match=f"has no merging.{name}") as caught:
        shares_of(access_of(4, 4), altered(hw, {f"merging.{name}": None}))
    assert caught.value.field == f"merging.{name}"
