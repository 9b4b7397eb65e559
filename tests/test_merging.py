import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilesight.cost.merging import LookupShares, at_least_once, lookup_shares, near_share
from tilesight.errors import UnsupportedError
from tilesight.plan.access import Access


def access_of(tiles_m, multicast_a=1, multicast_b=1):
    one = np.ones(1)
    sizes = {"m": tiles_m * 128.0, "n": 4096, "k": 4096, "tile_m": 128, "tile_n": 128, "tile_k": 64}
    return Access(
        **{name: one * value for name, value in sizes.items()},
        split=one,
        batch=one,
        element_bytes=2 * one,
        output_bytes=2 * one,
        group=8 * one,
        multicast_a=multicast_a * one,
        multicast_b=multicast_b * one,
    )


def of_cluster(hardware, tiles_m=32, multicast_a=1, multicast_b=1, near=0.8):
    shares = lookup_shares(access_of(tiles_m, multicast_a, multicast_b), np.array([near]), hardware)
    return tuple(float(getattr(shares, name)[0]) for name in ("a", "b", "merged_a", "merged_b"))


def test_what_neighbours_keep_by_hand(hw):
    def near(alone, spread):
        return float(near_share(np.array([alone]), np.array([spread]), hw)[0])

    # 0.8 of what neighbours could merge; half of it where positions spread over 1024 elements; a quarter of all that is
    # asked for comes from DRAM by one of them alone: exp(-1/4) of it
    assert near(0.0, 0.0) == 0.8
    assert near(0.0, 1024.0) == 0.4
    assert near(0.25, 0.0) == pytest.approx(0.8 * 0.778801, rel=1e-6)


@given(st.floats(0, 1), st.floats(0, 1e6), st.floats(0, 1), st.floats(0, 1e6))
def test_what_parts_neighbours_parts_them_more(gpu, alone, spread, more_alone, more_spread):
    less = near_share(np.array([alone]), np.array([spread]), gpu)
    more = near_share(np.array([alone + more_alone]), np.array([spread + more_spread]), gpu)
    assert 0 < more <= less <= gpu.merging.near_share


def test_shares_of_clusters_by_hand(hw):
    # no cluster: four neighbours meet two by two, and merge 0.8 of the half that they could: 1 - 0.8 / 2
    assert of_cluster(hw) == pytest.approx((0.6, 0.6, 0.6, 0.6))
    # with half of it: 1 - 0.4 / 2
    assert of_cluster(hw, near=0.4) == pytest.approx((0.8, 0.8, 0.6, 0.6))
    # 2 CTAs along n receive one A tile: half of A's requests, not merged further; pairs of clusters merge B
    assert of_cluster(hw, multicast_a=2, near=0.4) == pytest.approx((0.5, 0.8, 0.5, 0.6))
    assert of_cluster(hw, multicast_b=2, near=0.4) == pytest.approx((0.8, 0.5, 0.6, 0.5))
    # 2 x 2: both are multicast
    assert of_cluster(hw, multicast_a=2, multicast_b=2) == pytest.approx((0.5, 0.5, 0.5, 0.5))


@given(st.integers(1, 64), st.sampled_from([1, 2, 4]), st.sampled_from([1, 2, 4]), st.floats(0, 1), st.floats(0, 1))
def test_shares_are_shares_and_less_merges_with_less(gpu, tiles_m, multicast_a, multicast_b, near, part):
    best = gpu.merging.near_share
    more, less = (of_cluster(gpu, tiles_m, multicast_a, multicast_b, share * best) for share in (near, near * part))
    for few, many in zip(more, less, strict=True):
        assert 0 < few <= many <= 1


def test_each_tile_is_looked_up_once():
    # 2 rows of tiles ask for B, 4096 / 128 columns for A
    shares = at_least_once(access_of(2), LookupShares(*np.full((4, 1), 0.01)))
    assert (shares.a, shares.merged_a) == (1 / 32, 1 / 32)
    assert (shares.b, shares.merged_b) == (0.5, 0.5)
    # who asks alone merges with nobody
    alone = at_least_once(access_of(1), LookupShares(*np.full((4, 1), 0.3)))
    assert (alone.a, alone.b, alone.merged_b) == (0.3, 1, 1)


@pytest.mark.parametrize("name", ["near_share", "alone_loss", "spread_elements", "requests_async"])
def test_needs_its_numbers(hw, altered, name):
    poor = altered(hw, {f"merging.{name}": None})
    with pytest.raises(UnsupportedError, match=f"has no merging.{name}") as caught:
        lookup_shares(access_of(4), near_share(np.zeros(1), np.zeros(1), poor), poor)
    assert caught.value.field == f"merging.{name}"
