import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilesight.cost.raster import A_HEAD, KINDS_A, MAX_WAVES, B, anywhere, places, raster, scattered
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


def tiles_in_order(access):
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
    order, seen_a, seen_b, found = tiles_in_order(access), set(), set(), []
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


def sums(access, slots):
    """Bytes of A and B per wave, first and repeated touches apart, shape (waves, 4), and the waves."""
    waves = raster(access, np.array([float(slots)]))
    row_bytes = access.k[0] * access.element_bytes[0]
    a, again_a = waves.elements[KINDS_A].sum(axis=0), waves.again[KINDS_A].sum(axis=0)
    b, again_b = waves.elements[B], waves.again[B]
    return np.stack([a - again_a, b - again_b, again_a, again_b], axis=1) * row_bytes, waves


def test_walk_by_hand():
    # 3 x 2 tiles of 16 x 16, m = 40 (the last row of tiles is 8 high), n = 32, k = 8: rows of 16 B; groups of 2 rows.
    # Order (0,0) (1,0) | (0,1) (1,1) | (2,0) (2,1), waves of 2 tiles:
    #   wave 1: A rows 0-31 first, B column tile 0 first; wave 2: A again, B column tile 1 first;
    #   wave 3: A rows 32-39 first, both B tiles again
    access = access_of(40, 32, 8, 16, 16, group=2)
    assert tiles_in_order(access) == [(0, 0), (1, 0), (0, 1), (1, 1), (2, 0), (2, 1)]
    assert walk(access, 2).tolist() == [[512, 256, 0, 0], [0, 256, 512, 0], [128, 0, 0, 512]]
    found, waves = sums(access, 2)
    assert found.tolist() == walk(access, 2).tolist()
    # each row of A is read by one CTA of a wave, each column of B by both; in the last wave the other way round
    assert waves.sharers[A_HEAD].tolist() == [1, 1, 2]
    assert waves.sharers[B].tolist() == [2, 2, 1]
    assert waves.last.tolist() == [False, False, True]


@given(grids, st.integers(1, 40), st.integers(1, 60))
@settings(max_examples=600)
def test_against_a_walk_with_sets(grid, group, slots):
    access = access_of(grid[0], grid[1], 32, *grid[2:], group=group)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tilesight.cost.raster.MAX_WAVES", 10**9)
        some, unlike = sums(access, slots)
        patch.setattr("tilesight.cost.raster._unlike", lambda *waves: waves[:4])
        found, waves = sums(access, slots)
    assert found.tolist() == walk(access, slots).tolist()
    # waves that read alike are told once, with their number, each of the first and the last by itself
    assert unlike.weight @ some == pytest.approx(found.sum(axis=0))
    assert unlike.weight.sum() == len(found)
    assert unlike.wave.tolist()[:31] == list(range(min(31, len(found))))
    assert some[-1].tolist() == found[-1].tolist()
    # CTAs times tiles: who shares a tile counts once for each
    tiles = np.stack([waves.elements[kind] for kind in range(4)]) / np.array([[grid[2]]] * 3 + [[grid[3]]])
    readers = np.ceil(tiles - 1e-9) * waves.sharers
    assert readers[KINDS_A].sum(axis=0) == pytest.approx(waves.ctas)
    assert readers[B] == pytest.approx(waves.ctas)
    assert (waves.run * waves.runs)[B] == pytest.approx(waves.sharers[B])
    assert np.all(waves.cut <= waves.again[B])
    assert np.all(waves.again <= waves.elements)


def spots(access, slots):
    """Places of the sharers of each tile of the first wave: by operand and tile."""
    found = {}
    for place, (row, column) in enumerate(tiles_in_order(access)[:slots]):
        found.setdefault(("a", row), []).append(place)
        found.setdefault(("b", column), []).append(place)
    return found


@pytest.mark.parametrize(
    ("group", "tiles_m", "tiles_n"), [(8, 16, 16), (1, 16, 16), (4, 8, 33), (16, 16, 16), (2, 2, 100)]
)
def test_places_against_a_count(group, tiles_m, tiles_n):
    # 128 CTAs, 16 in each of 8 GPCs, groups of 4 neighbours
    access = access_of(tiles_m * 16, tiles_n * 16, 64, 16, 16, group=group)
    waves = raster(access, np.array([128.0]))
    where = places(waves, 16.0, 8.0, 4.0, 4.0)
    counted = spots(access, 128)
    for operand, kinds in (("a", range(3)), ("b", (B,))):
        lists = [spot for (name, _), spot in counted.items() if name == operand]
        weight = np.array([waves.elements[kind][0] / 16 for kind in kinds])
        for name, count in (
            # GPCs have 16 or 18 SMs, so that boundaries fall anywhere: the mean over where they do
            ("gpcs", lambda spot: np.mean([min(len({(place + i) // 16 for place in spot}), 8) for i in range(16)])),
            ("aligned", lambda spot: len({place // 4 for place in spot}) / len(spot)),
        ):
            mean = (np.array([getattr(where, name)[kind][0] for kind in kinds]) * weight).sum() / weight.sum()
            assert mean == pytest.approx(np.mean([count(spot) for spot in lists]), rel=0.1), (operand, name)


def test_one_column_of_tiles_has_one_raster():
    found = [raster(access_of(800, 16, 64, 16, 16, group=group), np.array([20.0])) for group in (1, 3, 8, 50)]
    for other in found[1:]:
        assert other.run.tolist() == found[0].run.tolist()
        assert other.runs.tolist() == found[0].runs.tolist()


def test_who_reads_alone_has_no_neighbours():
    waves = raster(access_of(16, 160, 64, 16, 16, group=8), np.array([10.0]))
    where = places(waves, 16.0, 8.0, 4.0, 4.0)
    # one row of tiles: A is shared by ten neighbours of one GPC, three aligned groups; each column is one CTA's
    assert waves.sharers[A_HEAD][0] == 10
    assert where.aligned[B][0] == 1 == where.meeting[B][0] == where.gpcs[B][0]
    assert where.gpcs[A_HEAD][0] == pytest.approx(1 + 9 / 16)


def test_scattered_neighbours_merge_less():
    waves = raster(access_of(256, 256, 64, 16, 16, group=8), np.array([128.0]))
    where = places(waves, 16.0, 8.0, 4.0, 4.0)
    one, alone = np.ones_like(waves.wave), anywhere(waves, 8.0, 4.0)
    assert scattered(where, alone, one).aligned.tolist() == where.aligned.tolist()
    # nobody is where a neighbour was: no aligned group merges; eight readers of a column reach 8 (1 - (7/8)^8) = 5.25 GPCs
    gone = scattered(where, alone, 0 * one)
    assert np.all(gone.aligned == 1)
    assert gone.meeting[B][0] == pytest.approx(8 * (1 - (7 / 8) ** 8) / 8)
    half = scattered(where, alone, 0.5 * one)
    assert np.all((where.aligned <= half.aligned) & (half.aligned <= 1))
    assert np.all(half.meeting <= half.aligned)


def test_the_raster_has_no_preference_for_an_operand():
    # column by column, and its mirror image row by row
    tall, _ = sums(access_of(4096, 1024, 384, 128, 128, group=10**6), 8)
    wide, _ = sums(access_of(1024, 4096, 384, 128, 128, group=1), 8)
    assert tall.sum(axis=0)[[2, 3]].tolist() == wide.sum(axis=0)[[3, 2]].tolist()


@pytest.mark.parametrize("group", [1, 3, 8, 16, 100, 10**6])
@pytest.mark.parametrize(
    ("tiles_m", "tiles_n", "slots"),
    # in the last, groups of 8 rows and stretches of waves keep step: 3 groups are 4 waves, 10 times that a stretch
    [(500, 400, 17), (1111, 300, 20), (4096, 64, 16), (33, 9000, 13), (61206, 5, 30)],
)
def test_drawn_waves_stand_for_all(tiles_m, tiles_n, slots, group, monkeypatch):
    # 10,000 to 20,000 waves; those drawn stand for stretches, and must give each sum within 3 % of all operand reads
    access = access_of(tiles_m * 64 - 5, tiles_n * 64 - 7, 32, 64, 64, group=group)
    assert access.tiles_m * access.tiles_n / slots > 10 * MAX_WAVES

    def totals():
        found, waves = sums(access, slots)
        return (found * waves.weight[:, None]).sum(axis=0), found[-1]

    drawn, drawn_last = totals()
    monkeypatch.setattr("tilesight.cost.raster.MAX_WAVES", 10**9)
    every, every_last = totals()
    assert drawn_last.tolist() == every_last.tolist()
    assert np.all(abs(drawn - every)[2:] <= 0.03 * every.sum())


def test_huge_launches_are_cheap():
    one = np.ones(200)
    access = Access(*(2.0**31 * one,) * 3, one, one, *(16 * one,) * 3, 2 * one, 2 * one, 8 * one, one, one)
    start = time.perf_counter()
    waves = raster(access, 132 * one)
    assert time.perf_counter() - start < 2
    assert np.all(np.isfinite(waves.again))
