"""Waves of a raster: which tiles of the operands a wave of CTAs reads, who shares them, and where on the chip those are.

CTA i of a wave takes the i-th place on the chip, and places are counted GPC by GPC and TPC by TPC (record ``chip_map``), so
that neighbours in the raster are neighbours on the chip. A wave cuts the raster into the end of one row group (the head),
whole groups, and the start of another (the foot). Its tiles fall into four kinds, whose members are alike:

    rows of A in the head, in whole groups, in the foot        one CTA in each ``stride`` places reads such a tile
    columns of B                                               a run of neighbours in each row group reads one
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from tilesight.plan.access import Access
from tilesight.plan.tile import Counts

MAX_WAVES = 1 << 8
"""Waves walked one by one; of a longer launch as many are drawn, one from each of equal stretches, and scaled.

What is read again is then known to 3 % of all operand reads.
"""
FOLLOWED = 32
"""Waves told apart by their number; later ones go on as the last of them, so that those that read alike are one."""
EXACT = 2.0**53
"""Whole numbers below this are exact in a float."""
GOLDEN = 0.6180339887498949
"""Fractions of i * GOLDEN spread evenly: draws that fall in step with no period of the raster."""
A_HEAD, A_WHOLE, A_FOOT, B = range(4)
KINDS_A = slice(0, 3)


@dataclass(frozen=True)
class Raster:
    """Waves of a batch of launches, shape (W,) each, and their tiles by kind, shape (4, W).

    ``row`` is the configuration that a wave is of, ``wave`` its number, ``weight`` how many waves it stands for; ``ctas``
    it has. ``elements`` are rows of A or columns of B, clipped at the edges, ``again`` those of them that an earlier wave
    has read, and ``cut`` the columns that the wave before reads too. A tile is read by ``sharers`` CTAs: by
    ``runs`` runs of ``run`` CTAs, ``apart`` places from one run to the next; the CTAs of a run are ``stride`` places apart.
    """

    row: NDArray[np.intp]
    wave: Counts
    weight: Counts
    last: NDArray[np.bool_]
    ctas: Counts
    elements: Counts
    again: Counts
    cut: Counts
    sharers: Counts
    run: Counts
    stride: Counts
    runs: Counts
    apart: Counts
    between: Counts

    def total(self, values: Counts, launches: int) -> Counts:
        """Sum over the waves of each launch, shape (launches,)."""
        return np.bincount(self.row, values * self.weight, minlength=launches).astype(float)

    def mean_full(self, values: Counts, launches: int) -> Counts:
        """Mean over the full waves of each launch, or of its only one, shape (launches,)."""
        only = np.bincount(self.row, self.weight, minlength=launches)[self.row] <= 1
        weight = np.where(self.last & ~only, 0.0, self.weight)
        return np.bincount(self.row, values * weight, minlength=launches) / np.bincount(
            self.row, weight, minlength=launches
        )


def raster(access: Access, slots: Counts) -> Raster:
    """The waves of ``slots`` CTAs of each launch, in closed form; the cost grows with waves, up to ``MAX_WAVES``.

    Examples
    --------
    >>> import numpy as np
    >>> from tilesight.plan.access import Access
    >>> one = np.ones(1)
    >>> sizes = [40 * one, 32 * one, 8 * one, one, one, 16 * one, 16 * one, 8 * one, 2 * one, 2 * one, 2 * one, one, one]
    >>> found = raster(Access(*sizes), np.array([2.0]))    # 3 x 2 tiles, groups of two rows, two tiles a wave
    >>> found.elements[A_HEAD], found.again[A_HEAD], found.elements[B]
    (array([32., 32.,  8.]), array([ 0., 32.,  0.]), array([16., 16., 32.]))
    """
    heights = np.where(access.tiles_n == 1, access.tiles_m, np.minimum(access.group, access.tiles_m))  # one column: any
    row, wave, weight, last = _unlike(*_draw(np.ceil(access.tiles_m * access.tiles_n / slots)), access, slots, heights)
    tiles_m, width, height = access.tiles_m[row], access.tiles_n[row], heights[row]
    tile_m, tile_n = access.tile_m[row], access.tile_n[row]
    start = wave * slots[row]
    end = np.minimum(start + slots[row], tiles_m * width)
    groups = np.ceil(tiles_m / height)
    last_height = tiles_m - (groups - 1) * height
    head = np.floor(start / (height * width))
    foot = np.floor((end - 1) / (height * width))
    head_height = np.where(head == groups - 1, last_height, height)
    foot_height = np.where(foot == groups - 1, last_height, height)
    offset = start - head * height * width
    head_end = np.minimum(end - head * height * width, head_height * width)
    head_count = head_end - offset
    several = foot > head
    foot_count = np.where(several, end - foot * height * width, 0.0)
    whole = np.maximum(foot - head - 1, 0.0)

    ragged_m = tiles_m * tile_m - access.m[row]
    head_rows, foot_rows = np.minimum(head_height, head_count), np.minimum(foot_height, foot_count)
    foot_start = np.where(several, 0.0, offset)
    foot_end = np.where(several, foot_count, head_end)
    to_last_row = (foot == groups - 1) & (np.floor(foot_end / foot_height) > np.floor(foot_start / foot_height))
    a_head = head_rows * tile_m - (to_last_row & ~several) * ragged_m
    a_foot = foot_rows * tile_m - (to_last_row & several) * ragged_m

    ragged_n = width * tile_n - access.n[row]
    first_column = np.floor(offset / head_height)
    head_columns = np.floor((head_end - 1) / head_height) - first_column + 1
    foot_columns = np.ceil(foot_count / foot_height)
    to_last_column = head_end > (width - 1) * head_height
    columns = np.where(
        whole > 0, width, np.where(several, np.minimum(width, head_columns + foot_columns), head_columns)
    )
    b = columns * tile_n - to_last_column * ragged_n

    seen = np.minimum(head_height, offset)
    again = seen + head_rows - np.minimum(head_height, offset + head_count)
    again_last = to_last_row & ~several & (offset >= head_height)
    started = first_column * head_height < offset
    new = (head_columns - started) * tile_n
    new = new - (to_last_column & ~(started & (first_column == width - 1))) * ragged_n
    again_b = b - np.where(head == 0, new, 0.0)
    cut = np.minimum(np.where(started, tile_n, 0.0), again_b)

    none, one = np.zeros_like(start), np.ones_like(start)
    segments = head_columns + whole * width + foot_columns
    runs = segments / columns
    head_share, foot_share = head_count / head_rows, foot_count / np.maximum(foot_rows, 1.0)
    pass_waves, column_waves = height * width / slots[row], head_height / slots[row]
    return Raster(
        row=row,
        wave=wave,
        weight=weight,
        last=last,
        ctas=end - start,
        elements=np.stack([a_head, whole * height * tile_m, a_foot, b]),
        again=np.stack([again * tile_m - again_last * ragged_m, none, none, again_b]),
        cut=cut,
        sharers=np.maximum(np.stack([head_share, width, foot_share, (end - start) / columns]), 1.0),
        run=np.maximum(np.stack([head_share, width, foot_share, (end - start) / segments]), 1.0),
        stride=np.stack([head_height, height, foot_height, one]),
        runs=np.stack([one, one, one, runs]),
        apart=np.stack([one, one, one, height * width]),
        between=np.stack([np.maximum(column_waves - 1, 0.0), none, none, np.maximum(pass_waves - 1, 0.0)]),
    )


def waves_walked(tiles: Counts, slots: Counts) -> NDArray[np.int64]:
    """Waves of each launch that are walked, shape (L,)."""
    return np.minimum(np.ceil(tiles / slots), MAX_WAVES).astype(np.int64)


def _draw(count: Counts) -> tuple[NDArray[np.intp], Counts, Counts, NDArray[np.bool_]]:
    """Configuration, number and weight of the waves to walk, shape (W,), and which of them are the last."""
    walked = np.minimum(count, MAX_WAVES).astype(np.int64)
    row = np.repeat(np.arange(len(count)), walked)
    place = np.arange(walked.sum()) - np.repeat(np.cumsum(walked) - walked, walked)
    # walked - 1 equal stretches of the waves before the last, and the last by itself
    stretch = ((count - 1) / np.maximum(walked - 1, 1))[row]
    begin, stop = np.floor(place * stretch), np.floor((place + 1) * stretch)
    last = place == walked[row] - 1
    weight = np.where(last, 1.0, stop - begin)
    return row, np.where(last, count[row] - 1, begin + np.floor((place * GOLDEN % 1.0) * weight)), weight, last


def _unlike(
    row: NDArray[np.intp],
    wave: Counts,
    weight: Counts,
    last: NDArray[np.bool_],
    access: Access,
    slots: Counts,
    heights: Counts,
) -> tuple[NDArray[np.intp], Counts, Counts, NDArray[np.bool_]]:
    """The waves that differ, each with the weight of those like it; the first ``FOLLOWED`` and the last stay by themselves.

    Two full waves are alike where they begin at one place of their groups, and both or neither are in the first group and in
    the last. Between the first and the last column of a group, the place in the column is enough.
    """
    late = np.flatnonzero((wave >= FOLLOWED - 1) & ~last)
    if not len(late):
        return row, wave, weight, last
    of = row[late]
    tiles_m, width, height = access.tiles_m[of], access.tiles_n[of], heights[of]
    groups = np.ceil(tiles_m / height)
    start = wave[late] * slots[of]
    head, foot = np.floor(start / (height * width)), np.floor((start + slots[of] - 1) / (height * width))
    offset = start - head * height * width
    tall = np.where(head == groups - 1, tiles_m - (groups - 1) * height, height)
    inside = (foot == head) & (offset >= tall) & (offset + slots[of] <= (width - 1) * tall)
    place = np.where(inside, tall + offset % tall, offset)
    kind = 4.0 * (head == 0) + 2.0 * (head == groups - 1) + (foot == groups - 1)
    most = float(place.max()) + 1.0
    if (row[-1] + 1.0) * 8.0 * most > EXACT:
        return row, wave, weight, last
    _, first, like = np.unique((of * 8.0 + kind) * most + place, return_index=True, return_inverse=True)
    weight = weight.copy()
    weight[late[first]] = np.bincount(like, weight[late])
    stays = np.ones(len(row), dtype=bool)
    stays[late] = False
    stays[late[first]] = True
    return row[stays], wave[stays], weight[stays], last[stays]


@dataclass(frozen=True)
class Places:
    """Where the sharers of a tile are, shape (4, W) each.

    ``gpcs`` that they reach, and lookups / requests if each
    aligned group of neighbours of the merging size shares one (``aligned``), or as many CTAs anywhere in a GPC do
    (``meeting``).
    """

    gpcs: Counts
    aligned: Counts
    meeting: Counts


def places(waves: Raster, ctas_per_gpc: Counts, gpcs: float, size: float, neighbours: Counts | float) -> Places:
    """Places of the sharers of each kind of tile.

    Parameters
    ----------
    waves
        The waves.
    ctas_per_gpc
        Neighbouring places in one GPC, scalar or shape (W,).
    gpcs
        Of the chip.
    size
        Requests that share a lookup.
    neighbours
        Of them those of CTAs next to each other in an aligned group, scalar or shape (W,); fewer than ``size`` where a
        launch leaves SMs empty.
    """
    low = np.floor(waves.runs)
    rest = waves.runs - low

    def mean(of: Callable[[Counts], Counts]) -> Counts:
        """Over tiles with ``low`` runs and tiles with one more."""
        return np.where(rest > 0, (1.0 - rest) * of(low) + rest * of(low + 1.0), of(low))

    length = (waves.run - 1.0) * waves.stride + 1.0

    def span(runs: Counts) -> Counts:
        return (runs - 1.0) * waves.apart + length

    def reached(runs: Counts) -> Counts:
        each = np.minimum(waves.run, 1.0 + (length - 1.0) / ctas_per_gpc)
        return np.clip(np.minimum(runs * each, 1.0 + (span(runs) - 1.0) / ctas_per_gpc), 1.0, gpcs)

    reach = mean(reached)
    # of CTAs ``stride`` places apart, neighbours / stride meet in an aligned group; runs end inside one
    whole = np.where(
        waves.stride > 1, waves.run * np.minimum(waves.stride, neighbours) / neighbours, _blocks(waves.run, neighbours)
    )
    near = np.minimum(waves.apart, neighbours) / neighbours
    aligned = np.clip(
        np.maximum(whole, 1.0) * np.where(near < 1, np.maximum(waves.runs * near, 1.0), waves.runs), 1.0, waves.sharers
    )
    each = waves.sharers / reach
    meeting = np.minimum(reach * np.maximum(1.0, (each + (size - 1.0) / 2.0) / size), aligned)
    return Places(reach, aligned / waves.sharers, meeting / waves.sharers)


def _blocks(run: Counts, size: Counts | float) -> Counts:
    """Aligned groups of ``size`` neighbours that a run of so many touches, on average over where runs begin."""
    common = np.gcd(np.maximum(np.round(run), 1.0).astype(np.int64), np.round(size).astype(np.int64))
    return np.minimum(1.0 + (size - common) / run, size) / size * run


def anywhere(waves: Raster, gpcs: float, size: float) -> Counts:
    """Lookups / requests of sharers that are anywhere on the chip and have no neighbour, shape (4, W).

    n CTAs reach G (1 - (1 - 1/G)^n) of G GPCs on average.
    """
    reach = gpcs * (1.0 - (1.0 - 1.0 / gpcs) ** waves.sharers)
    each = waves.sharers / reach
    return np.minimum(reach * np.maximum(1.0, (each + (size - 1.0) / 2.0) / size) / waves.sharers, 1.0)


def scattered(where: Places, alone: Counts, kept: Counts) -> Places:
    """Who can merge where only a share of neighbours in the raster, ``kept``, shape (W,), are neighbours on the chip.

    The others are :func:`anywhere`, with lookups / requests of ``alone``.
    """
    aligned = kept * where.aligned + (1.0 - kept)
    meeting = kept * where.meeting + (1.0 - kept) * alone
    return replace(where, aligned=aligned, meeting=np.minimum(meeting, aligned))
