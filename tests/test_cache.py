from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import ndtr

from tilesight.cost.cache import (
    flow,
    held_bytes,
    repeated_residency,
    resident_share,
    resident_shares,
    traffic,
)
from tilesight.cost.drift import Pace
from tilesight.cost.geometry import neighbours_in_a_group
from tilesight.cost.merging import LookupShares
from tilesight.errors import UnsupportedError
from tilesight.plan.access import Access

KIB = 1024
LOCKSTEP = Pace(*np.zeros((6, 1)), np.ones(1), *np.zeros((2, 1), dtype=bool))


def access_of(m, n, k, tile_m=128, tile_n=128, group=8, split=1):
    one = np.ones(1)
    return Access(
        m=m * one,
        n=n * one,
        k=k * one,
        split=split * one,
        batch=one,
        tile_m=tile_m * one,
        tile_n=tile_n * one,
        tile_k=64 * one,
        element_bytes=2 * one,
        output_bytes=(2 if split == 1 else 4) * one,
        group=group * one,
        multicast_a=one,
        multicast_b=one,
    )


def moved(access, hardware, slots=100, share_a=1.0, share_b=1.0, cache="cold", resident=None):
    shares = LookupShares(*np.array([[share_a], [share_b]] * 2))
    stated = None if resident is None else {name: np.asarray(share) for name, share in resident.items()}
    share = resident_share(access, *resident_shares(access, cache, stated, hardware)[:2])
    found = flow(access, np.array([float(slots)]), LOCKSTEP, hardware, share)
    return traffic(access, found, shares, hardware, share)


def test_neighbours_of_small_launches_by_hand(hw):
    # 100 SMs: a TPC, two SMs, gets one CTA before it gets a second; as many CTAs as there are GPCs, ten, are packed together
    found = neighbours_in_a_group(np.array([5.0, 10, 20, 50, 75, 100, 1000]), 4.0, hw)
    half, three = 1 / 2, 3 / 4
    by_hand = [1, 1, half + half * half, 1 / 5 + 4 / 5 * half, 2 / 15 + 13 / 15 * three, 1, 1]
    assert found == pytest.approx([4 * share for share in by_hand])


def test_what_stays_dirty_is_the_share_of_the_output_by_hand(hw):
    # 100 rows and 100 columns of tiles of 128, k = 512, 100 a wave: a group of 8 rows, 12.5 columns
    access, slots = access_of(12800, 12800, 512), np.array([100.0])
    found = flow(access, slots, LOCKSTEP, hw, np.zeros(1))
    wave = (8 + 12.5) * 128 * 512 * 2 * 2  # rows of A and columns of B, in both partitions
    output = 100 * 128 * 128 * 2
    assert found.output_share[0] == pytest.approx(output / (wave + output), rel=0.06)
    once, again = (
        traffic(access, found, LookupShares(*np.ones((4, 1))), hw, np.zeros(1), repeated=repeated)
        for repeated in (False, True)
    )
    assert once.dirty_after_bytes[0] == pytest.approx(2**26 * found.output_share[0], rel=1e-6)
    assert once.dram_write_bytes[0] == access.c_bytes[0] - once.dirty_after_bytes[0]
    # the launch before left as much, which this one writes back
    assert again.dirty_after_bytes == once.dirty_after_bytes
    assert again.dram_write_bytes[0] == access.c_bytes[0]


def test_pointers_wrap_at_the_edge(hw):
    # 200 rows in tiles of 128 and one column: nobody shares A; threads ask for 256 rows, bulk copies for 200
    access, share = access_of(200, 128, 256), np.zeros(1)
    asked = [
        flow(access, np.array([100.0]), replace(LOCKSTEP, loads_plainly=np.array([plainly])), hw, share).share_a[0]
        for plainly in (True, False)
    ]
    assert asked == pytest.approx([256 / 200, 1.0])


def test_one_wave_by_hand(hw):
    # 512 x 512 x 256 in tiles of 128 x 128: 16 tiles in one wave; A and B of 256 KiB each, C of 512 KiB.
    # Asked: 4 columns of tiles ask for A, 4 rows for B: 2 MiB of operands, and C is stored: 2.5 MiB
    found = moved(access_of(512, 512, 256), hw, share_a=1.0, share_b=0.25)
    assert found.requested_bytes == (1024 + 1024 + 512) * KIB
    # A is looked up as asked, B a quarter as often
    assert found.lookup_bytes == (1024 + 256 + 512) * KIB
    # each operand byte once, all in the one wave that is the tail of no full one
    assert found.dram_read_bytes == found.tail_read_bytes == 512 * KIB
    assert found.full_read_bytes == 0
    # 1.5 MiB stay in L2 entirely: nothing of C is written back yet
    assert (found.resident_after, found.dram_write_bytes, found.dirty_after_bytes) == (1, 0, 512 * KIB)
    # 512 KiB cross between the partitions and miss; half of C's lines cross and hit: of 1792 + 512 + 256 KiB asked for
    # at either side of the fabric, 512 + 512 miss
    assert found.hit_rate == pytest.approx(
        0.6, abs=0.01
    )  # a few lines less where the readers of a tile lie on one side


def test_everything_resident_reads_nothing(hw):
    found = moved(access_of(512, 512, 256), hw, share_b=0.25, resident={"a": 1.0, "b": 1.0})
    assert found.dram_read_bytes == 0
    assert found.resident_share == 1
    # lines that both sides read lie in both partitions; half of what is stored crosses, and hits
    assert (found.hit_rate, found.crossing_bytes) == (1, 256 * KIB)


def test_states_by_hand(hw):
    access = access_of(512, 1536, 256)  # A 256 KiB, B 768 KiB: a quarter and three quarters of the operands

    def shares(cache, **stated):
        stated = {name: np.asarray(share) for name, share in stated.items()}
        return tuple(float(share[0]) for share in resident_shares(access, cache, stated or None, hw))

    assert shares("cold") == (0, 0, 0)
    assert shares("cold", a=1.0) == (1, 0, 0)
    assert shares("warm", a=0.5, c=0.25) == (0.5, 0, 0.25)
    assert shares("warm") == (1, 1, 1)  # 2.5 MiB in all
    assert resident_share(access, np.array([1.0]), np.array([0.0])) == 0.25
    assert resident_share(access, np.array([0.5]), np.array([1.0])) == pytest.approx(0.875)
    assert moved(access, hw, resident={"b": 1.0}).dram_read_bytes == 256 * KIB


def test_repeated_residency_by_hand(hw):
    # a set as large as the cache has a reuse distance of all its 2**19 lines: Phi((16 - 0.5 - 16) / 4); half of it
    # Phi((15.5 - 8) / sqrt(8)), twice as much Phi((15.5 - 32) / sqrt(32)); sets of 2**-15 are left out of the variance
    found = repeated_residency(2.0**26 * np.array([1.0, 0.5, 2.0, 0.0, 100.0]), hw)
    assert found == pytest.approx([0.450262, 0.995998, 0.001769, 1, 0], abs=1e-5)


def test_held_bytes_by_hand(hw):
    # several rows and columns of tiles: both sides of the chip read A and B, which lie in both partitions; C lies in
    # the one that is its home. 8 MiB each
    assert held_bytes(access_of(2048, 2048, 2048), hw) == (2 + 2 + 1) * 8 * KIB**2
    # one row of tiles: each B tile is read by one CTA, and half of its lines have a copy beside the reader
    assert held_bytes(access_of(128, 2048, 2048), hw) == (2 * 0.5 + 1.5 * 8 + 0.5) * KIB**2
    assert held_bytes(access_of(2048, 128, 2048), hw) == (1.5 * 8 + 2 * 0.5 + 0.5) * KIB**2


def test_warm_is_the_share_left_by_the_launch_before(hw):
    # 2560 x 3072 x 2048: A of 10 MiB, B of 12, C of 15 hold 2 * 10 + 2 * 12 + 15 = 59 MiB of 64; all tiles in one wave
    found = moved(access_of(2560, 3072, 2048), hw, slots=480, cache="warm")
    left = ndtr((15.5 - 16 * 59 / 64) / (16 * 59 / 64) ** 0.5)
    assert 0.5 < left < 0.6
    assert found.resident_share == found.resident_after == pytest.approx(left, rel=1e-4)
    assert found.dram_read_bytes == pytest.approx(22 * KIB**2 * (1 - left), rel=1e-5)


def test_blocks_read_again_miss_with_their_reuse_distance(hw, altered):
    # 100 rows of tiles, 1 column, 1 tile a wave, k = 2**18: an A tile is read once, B's 64 MiB by each of 100 waves.
    # Between two uses pass 128 rows of A and of B, both held 1.5 times, and the tile's output: 3 times the cache
    access = access_of(12800, 128, 2**18, group=1)
    found = moved(access, hw, slots=1)
    assert found.dram_read_bytes == pytest.approx((12800 + 100 * 128) * 2**18 * 2, rel=2e-6)
    assert found.reread_hit_share < 1e-5
    # a quarter of k: between two uses pass 128 rows of A and of B and the tile's output, one SM's, which lie in L2 1.5
    # times; 48 MiB of the 64 that it holds at 16 ways: some of what is read again hits
    access = access_of(12800, 128, 2**16, group=1)
    found = moved(access, hw, slots=1)
    assert 0.05 < found.reread_hit_share < 0.95
    again = 99 * 128 * 2**16 * 2
    lost = again * (1 - found.reread_hit_share)
    assert found.dram_read_bytes == pytest.approx((12800 + 128) * 2**16 * 2 + lost, rel=1e-6)
    # and in a cache of twice the size next to all
    assert moved(access, altered(hw, {"l2.capacity_bytes": 2**28}), slots=1).reread_hit_share > 0.999


def test_a_split_stores_partial_sums(hw):
    # 4 parts of fp32: 4 * 4 B an element instead of 2
    found = moved(access_of(512, 512, 64, split=4), hw)
    assert found.requested_bytes == (1024 + 1024) * KIB + 512 * 512 * 16
    assert found.dram_read_bytes == 512 * KIB


accesses = st.builds(
    access_of,
    m=st.integers(1, 20000),
    n=st.integers(1, 20000),
    k=st.integers(1, 200_000),
    tile_m=st.sampled_from([16, 64, 128, 256]),
    tile_n=st.sampled_from([16, 64, 128, 256]),
    group=st.sampled_from([1, 2, 8, 64, 10**6]),
    split=st.sampled_from([1, 1, 2, 7]),
)
share = st.floats(0.25, 1)


@given(accesses, st.integers(1, 800), share, share, st.sampled_from(["cold", "warm"]))
@settings(max_examples=500)
def test_bytes_are_conserved(gpu, access, slots, share_a, share_b, cache):
    found = moved(access, gpu, slots, share_a, share_b, cache)
    slack = 1 + 1e-9
    operands = access.a_bytes + access.b_bytes
    output = access.c_bytes * access.split
    assert found.requested_bytes * slack >= found.lookup_bytes
    assert found.lookup_bytes * slack >= found.dram_read_bytes + output
    assert found.requested_bytes == access.requested_bytes + output
    assert found.dram_read_bytes * slack >= operands * (1 - found.resident_share)
    assert found.full_read_bytes + found.tail_read_bytes == pytest.approx(found.dram_read_bytes, rel=0.03)
    assert found.dram_write_bytes + found.dirty_after_bytes == pytest.approx(output)
    for ratio in (found.hit_rate, found.resident_share, found.reread_hit_share, found.resident_after):
        assert 0 <= ratio <= 1


@given(accesses, st.integers(1, 800), share, share)
@settings(max_examples=200)
def test_more_resident_reads_less_and_hits_more(gpu, access, slots, share_a, share_b):
    states = [{}, {"a": 0.5}, {"a": 1.0}, {"a": 1.0, "b": 0.5}, {"a": 1.0, "b": 1.0}]
    found = [moved(access, gpu, slots, share_a, share_b, resident=state) for state in states]
    for less, more in pairwise(found):
        assert more.dram_read_bytes < less.dram_read_bytes
        assert more.hit_rate >= less.hit_rate
        assert more.lookup_bytes == less.lookup_bytes
    # all that remains are lines lost since the launch itself read them
    assert found[0].dram_read_bytes - found[-1].dram_read_bytes == pytest.approx(access.a_bytes + access.b_bytes)


@given(accesses, st.integers(1, 800))
@settings(max_examples=200)
def test_a_larger_cache_reads_less(gpu, altered_cache, access, slots):
    assert moved(access, altered_cache, slots).dram_read_bytes <= moved(access, gpu, slots).dram_read_bytes * (1 + 1e-9)


@pytest.fixture(scope="session")
def altered_cache(gpu, altered):
    return altered(gpu, {"l2.capacity_bytes": int(1.5 * gpu.l2.capacity_bytes)})


def test_needs_its_numbers(hw, altered):
    with pytest.raises(UnsupportedError, match="has no l2.copies_one_reader"):
        moved(access_of(512, 512, 256), altered(hw, {"l2.copies_one_reader": None}), cache="warm")


def random_launches(seed, number=60):
    """Accesses, slots and paces of rasters of all kinds, from one wave to hundreds."""
    draw = np.random.default_rng(seed)
    sizes = [1, 100, 1000, 4096, 8192, 20000]
    numbers = {name: draw.choice(sizes, number).astype(float) for name in ("m", "n", "k")}
    numbers |= {name: draw.choice([64.0, 128.0, 256.0], number) for name in ("tile_m", "tile_n")}
    ones = np.ones(number)
    numbers |= {"group": draw.integers(1, 80, number).astype(float), "batch": draw.choice([1.0, 3.0], number)}
    numbers |= {"tile_k": 64 * ones, "split": ones, "element_bytes": 2 * ones, "output_bytes": 2 * ones}
    access = Access(**numbers, multicast_a=ones, multicast_b=ones)
    per_sm = draw.choice([1.0, 2.0], number)
    how = Pace(
        steady=0.005 * ones,
        unfair=0.01 * (per_sm > 1),
        held=draw.choice([0.0, 0.02], number),
        jitter_elements=draw.choice([0.0, 30.0], number),
        l2_share=draw.choice([0.1, 1.5], number),
        lead=0.2 * (per_sm > 1),
        ctas_per_sm=per_sm,
        loads_plainly=np.full(number, bool(seed % 2)),
        restarts=np.full(number, bool(seed % 2)),
    )
    return access, 100 * per_sm, how, draw.choice([0.0, 0.3], number)


@pytest.mark.parametrize("seed", range(6))
def test_waves_alike_are_walked_once(hw, monkeypatch, seed):
    access, slots, how, share = random_launches(seed)
    found = flow(access, slots, how, hw, share)
    monkeypatch.setattr("tilesight.cost.cache.WAVES_AT_ONCE", 64)  # a few launches at a time
    few = flow(access, slots, how, hw, share)
    monkeypatch.setattr("tilesight.cost.raster._unlike", lambda *waves: waves[:4])  # and every wave by itself
    each = flow(access, slots, how, hw, share)
    for name, values in vars(found).items():
        assert getattr(few, name) == pytest.approx(values, rel=1e-12), name
        assert getattr(each, name) == pytest.approx(values, rel=1e-9, abs=1e-9 * values.max()), name
