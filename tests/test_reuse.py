import time
from math import ceil

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilesight.cost.reuse import MAX_WAVES, hit_probability, hit_probability_gaussian, lockstep_touched
from tilesight.errors import PlanError
from tilesight.plan.access import Access


def access_of(m, n, k, tile_m, tile_n, group, split=1):
    """A launch of bf16 operands and output, one configuration."""
    one = np.ones(1)
    sizes = {"m": m, "n": n, "k": k, "tile_m": tile_m, "tile_n": tile_n, "group": group, "split": split}
    return Access(
        **{name: one * value for name, value in sizes.items()},
        tile_k=one * 64,
        batch=one,
        element_bytes=2 * one,
        output_bytes=2 * one,
        multicast_a=one,
        multicast_b=one,
    )


def raster(access):
    """Row and column of every tile, in launch order: groups of rows, walked with the row fastest."""
    tiles_m, tiles_n = int(access.tiles_m[0]), int(access.tiles_n[0])
    group = int(min(access.group[0], tiles_m))
    return [
        (row, column)
        for first in range(0, tiles_m, group)
        for column in range(tiles_n)
        for row in range(first, min(first + group, tiles_m))
    ]


def walk(access, slots):
    """Bytes of A and B per wave, first and repeated touches apart, tile by tile with sets: (waves, 4)."""
    tile_m, tile_n = int(access.tile_m[0]), int(access.tile_n[0])
    m, n = int(access.m[0]), int(access.n[0])
    row_bytes = int(access.k[0] * access.element_bytes[0])
    order, seen_a, seen_b, found = raster(access), set(), set(), []
    for start in range(0, len(order), slots):
        rows = {row for row, _ in order[start : start + slots]}
        columns = {column for _, column in order[start : start + slots]}

        def a_bytes(tiles):
            return sum(min(tile_m, m - row * tile_m) for row in tiles) * row_bytes

        def b_bytes(tiles):
            return sum(min(tile_n, n - column * tile_n) for column in tiles) * row_bytes

        found.append(
            [
                a_bytes(rows - seen_a),
                b_bytes(columns - seen_b),
                a_bytes(rows & seen_a),
                b_bytes(columns & seen_b),
            ]
        )
        seen_a |= rows
        seen_b |= columns
    return np.array(found, dtype=float)


grids = st.tuples(
    st.integers(1, 400), st.integers(1, 400), st.sampled_from([16, 17, 64]), st.sampled_from([16, 23, 48])
)


def test_walk_by_hand():
    # 3 x 2 tiles of 16 x 16, m = 40 (the last row of tiles is 8 high), n = 32, k = 8: rows of 16 B; groups of 2 rows.
    # Order (0,0) (1,0) | (0,1) (1,1) | (2,0) (2,1), waves of 2 tiles:
    #   wave 1: A rows 0-31 first, B column tile 0 first; wave 2: A again, B column tile 1 first;
    #   wave 3: A rows 32-39 first, both B tiles again
    access = access_of(40, 32, 8, 16, 16, group=2)
    assert raster(access) == [(0, 0), (1, 0), (0, 1), (1, 1), (2, 0), (2, 1)]
    assert walk(access, 2).tolist() == [[512, 256, 0, 0], [0, 256, 512, 0], [128, 0, 0, 512]]
    touched = lockstep_touched(access, np.array([2.0]))
    assert touched.first == 40 * 16 + 32 * 16
    assert (touched.again_a, touched.again_b) == (512, 512)
    assert (touched.tail_first, touched.tail_again_a, touched.tail_again_b) == (128, 0, 512)
    # reuse distance of A: bytes of a mean wave, A held twice, B 1.5 times (groups of 2 to 16 rows), and the wave's
    # output of 40 * 32 * 2 / 3 B: the waves hold 1024 + 384, 1024 + 384 and 256 + 768 B, 3840 in all
    assert touched.distance_a[0] == pytest.approx((3840 + 2560) / 3)
    # of B: a pass over a group, 2 * 32 rows of A and 1.5 * 32 of B at 16 B, and its output of 32 * 32 * 2 B
    assert touched.distance_b[0] == pytest.approx(2 * 512 + 1.5 * 512 + 2048)


@given(grids, st.integers(1, 40), st.integers(1, 60))
@settings(max_examples=600)
def test_against_a_walk_with_sets(grid, group, slots):
    access = access_of(grid[0], grid[1], 32, *grid[2:], group=group)
    waves = walk(access, slots)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tilesight.cost.reuse.MAX_WAVES", 10**9)
        touched = lockstep_touched(access, np.array([float(slots)]))
    assert touched.first[0] == waves[:, :2].sum() == access.a_bytes[0] + access.b_bytes[0]
    assert touched.again_a[0] == waves[:, 2].sum()
    assert touched.again_b[0] == waves[:, 3].sum()
    tail = touched.tail_first[0], touched.tail_again_a[0], touched.tail_again_b[0]
    assert tail == (waves[-1, :2].sum(), waves[-1, 2], waves[-1, 3])
    # the mean wave, whose bytes the reuse distance of A is made of
    copies = 1.5 if 1 < min(group, ceil(grid[0] / grid[2])) <= 16 else 2.0
    held = 2.0 * waves[:, [0, 2]].sum() + copies * waves[:, [1, 3]].sum() + access.c_bytes[0]
    longer = min(group, ceil(grid[0] / grid[2])) > slots  # than a wave is a column of a group
    assert touched.distance_a[0] == pytest.approx(held / len(waves)) or (
        longer and touched.distance_a[0] > held / len(waves)
    )
    assert touched.distance_b[0] >= touched.distance_a[0] * (1 - 1e-12)


def test_columns_longer_than_a_wave_by_hand():
    # 4 x 3 tiles of 16 x 16, k = 8, all four rows in a group, one tile a wave: A comes round once a column, behind
    # 64 rows of A held twice and 16 of B held 1.5 times at 16 B, and 64 x 16 outputs of 2 B
    touched = lockstep_touched(access_of(64, 48, 8, 16, 16, group=4), np.array([1.0]))
    assert touched.distance_a[0] == 2 * 64 * 16 + 1.5 * 16 * 16 + 64 * 16 * 2


def test_the_raster_has_no_preference_for_an_operand():
    # column by column, and its mirror image row by row
    tall = lockstep_touched(access_of(4096, 1024, 384, 128, 128, group=10**6), np.array([8.0]))
    wide = lockstep_touched(access_of(1024, 4096, 384, 128, 128, group=1), np.array([8.0]))
    assert (tall.again_a[0], tall.again_b[0]) == (wide.again_b[0], wide.again_a[0])
    assert tall.distance_a[0] == pytest.approx(wide.distance_b[0], rel=0.1)


def test_a_batch_is_its_configurations():
    grids = [(300, 200, 16, 16, 8, 7), (1, 1, 64, 64, 1, 132), (5000, 3000, 64, 48, 40, 11), (64, 9999, 64, 16, 3, 50)]
    one = np.ones(4)
    m, n, tile_m, tile_n, group, slots = (np.array(column, dtype=float) for column in zip(*grids, strict=True))
    batch = Access(m, n, 32 * one, one, one, tile_m, tile_n, 64 * one, 2 * one, 2 * one, group, one, one)
    together = lockstep_touched(batch, slots)
    for row, grid in enumerate(grids):
        alone = lockstep_touched(access_of(*grid[:2], 32, *grid[2:5]), np.array([float(grid[5])]))
        for name, values in vars(together).items():
            assert values[row] == getattr(alone, name)[0], name


@pytest.mark.parametrize("group", [1, 3, 8, 16, 100, 10**6])
@pytest.mark.parametrize(
    ("tiles_m", "tiles_n", "slots"),
    # in the last, groups of 8 rows and stretches of waves keep step: 3 groups are 4 waves, 10 times that a stretch
    [(500, 400, 17), (1111, 300, 20), (4096, 64, 16), (33, 9000, 13), (61206, 5, 30)],
)
def test_drawn_waves_stand_for_all(tiles_m, tiles_n, slots, group, monkeypatch):
    # 10,000 to 20,000 waves; those drawn stand for stretches, and must give each sum within 3 % of all operand reads
    access = access_of(tiles_m * 64 - 5, tiles_n * 64 - 7, 32, 64, 64, group=group)
    drawn = lockstep_touched(access, np.array([float(slots)]))
    assert access.tiles_m * access.tiles_n / slots > 10 * MAX_WAVES
    monkeypatch.setattr("tilesight.cost.reuse.MAX_WAVES", 10**9)
    every = lockstep_touched(access, np.array([float(slots)]))
    assert drawn.first == every.first
    for name in ("tail_first", "tail_again_a", "tail_again_b"):
        assert getattr(drawn, name) == getattr(every, name)
    reads = every.first + every.again_a + every.again_b
    for name in ("again_a", "again_b"):
        assert abs(getattr(drawn, name) - getattr(every, name)) <= 0.03 * reads
    for name in ("distance_a", "distance_b"):
        assert getattr(drawn, name) == pytest.approx(getattr(every, name), rel=0.02)


def test_huge_launches_are_cheap():
    one = np.ones(200)
    access = Access(*(2.0**31 * one,) * 3, one, one, *(16 * one,) * 3, 2 * one, 2 * one, 8 * one, one, one)
    start = time.perf_counter()
    touched = lockstep_touched(access, 132 * one)
    assert time.perf_counter() - start < 2
    assert np.all(np.isfinite(touched.again_b))


def test_the_parts_of_a_split_read_their_own_share_of_k():
    whole = lockstep_touched(access_of(300, 200, 64, 16, 16, group=4), np.array([10.0]))
    parts = lockstep_touched(access_of(300, 200, 16, 16, 16, group=4, split=4), np.array([10.0]))
    for name in ("first", "again_a", "again_b"):
        assert getattr(parts, name) == getattr(whole, name)
    # 19 * 13 tiles * 4 parts = 988 on 10 slots: 8 remain, and read the same share
    assert parts.tail_first[0] == pytest.approx(parts.first[0] * 8 / 988)


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
