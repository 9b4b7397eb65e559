"""Reuse distance: the chance that a block is still in a cache, and what a tiled product re-reads.

Stochastic distance-based cache model (SDCM): of D distinct blocks touched since a block's last use,
X ~ Binomial(D, A / B) fall into its set, in a cache of B blocks and associativity A; LRU keeps the block if
X <= A - 1.

    exact      P(hit) = P(X <= A - 1)                                        (binomial distribution)
    Gaussian   P(hit) = Phi((A - 1/2 - D A/B) / sqrt(D (A/B) (1 - A/B)))
"""

from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tilesight.errors import PlanError
from tilesight.plan.access import Access
from tilesight.plan.tile import Counts


def _checked(distance_blocks: ArrayLike, associativity: float, cache_blocks: float) -> NDArray[np.float64]:
    distance = np.asarray(distance_blocks, dtype=float)
    if not (cache_blocks > 0 and 1 <= associativity <= cache_blocks):
        raise PlanError(
            f"SDCM needs 1 <= associativity <= blocks, got associativity {associativity}, blocks {cache_blocks}"
        )
    if not np.all(distance >= 0):
        raise PlanError(f"reuse distance must not be negative, got {distance.min()}")
    return distance


_MOST_TRIALS = 2**31 - 1
"""Largest D that ``bdtr`` takes; more blocks than any cache holds, so that nothing survives them."""


def hit_probability(distance_blocks: ArrayLike, associativity: int, cache_blocks: float) -> NDArray[np.float64]:
    """Exact SDCM hit probability for a reuse distance in blocks, shape as given.

    Raises
    ------
    PlanError
        If the distance is negative or the cache has no valid shape.

    Examples
    --------
    >>> round(float(hit_probability(16384, associativity=8, cache_blocks=16384)), 6)
    0.452927
    """
    from scipy.special import bdtr  # loaded when first asked for: a third of the import time

    distance = _checked(distance_blocks, associativity, cache_blocks)
    trials = np.minimum(distance, _MOST_TRIALS).astype(np.int64)
    result = bdtr(associativity - 1.0, trials, associativity / cache_blocks)
    return np.where(distance < associativity, 1.0, result)


def hit_probability_gaussian(
    distance_blocks: ArrayLike, associativity: int, cache_blocks: float
) -> NDArray[np.float64]:
    """Gaussian form of the SDCM hit probability; within 2.5 points of the exact one at associativity 8.

    Examples
    --------
    >>> round(float(hit_probability_gaussian(16384, associativity=8, cache_blocks=16384)), 6)
    0.429825
    """
    from scipy.special import ndtr

    distance = _checked(distance_blocks, associativity, cache_blocks)
    share = associativity / cache_blocks
    spread = np.sqrt(np.maximum(distance * share * (1.0 - share), 1e-300))
    result = ndtr((associativity - 0.5 - distance * share) / spread)
    return np.where(distance < associativity, 1.0, result)


@dataclass(frozen=True)
class Touched:
    """Operand bytes that the waves of a launch read, each block once a wave (lockstep); arrays of shape (L,).

    ``first`` are the first touches of a block; ``again_a`` and ``again_b`` later waves' touches of blocks seen
    before, whose reuse distances are ``distance_a`` and ``distance_b`` bytes (copies in both partitions counted).
    The ``tail_`` twins count the last, partly filled wave alone.
    """

    first: Counts
    again_a: Counts
    again_b: Counts
    distance_a: Counts
    distance_b: Counts
    tail_first: Counts
    tail_again_a: Counts
    tail_again_b: Counts


MAX_WAVES = 1 << 8
"""Waves walked one by one; of a longer launch as many are drawn, one from each of equal stretches, and scaled.

What is read again is then known to 3 % of all operand reads.
"""
GOLDEN = 0.6180339887498949
"""Fractions of i * GOLDEN spread evenly: draws that fall in step with no period of the raster."""


@dataclass(frozen=True)
class _Wave:
    """Rows and columns of C that waves of a launch span: runs of tiles in raster order; arrays of shape (W,).

    A wave cuts the raster into the end of one row group (the head), whole groups, and the start of another (the
    foot). ``a_rows`` and ``b_rows`` are rows of A and columns of B, clipped at the edges. ``again_rows`` of A were read
    by earlier waves, since the head continues their group; ``new_b_rows`` of B are read for the first time, which
    happens in the first group alone.
    """

    a_rows: Counts
    b_rows: Counts
    again_rows: Counts
    new_b_rows: Counts


def _wave(access: Access, row: NDArray[np.int64], start: Counts, end: Counts) -> _Wave:
    """Waves of the tiles ``start`` to ``end`` of the configurations ``row``, shape (W,) each, in closed form."""
    tiles_m, width = access.tiles_m[row], access.tiles_n[row]
    tile_m, tile_n = access.tile_m[row], access.tile_n[row]
    height = np.minimum(access.group[row], tiles_m)
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
    between = np.maximum(foot - head - 1, 0.0)

    ragged_m = tiles_m * tile_m - access.m[row]
    foot_start = np.where(several, 0.0, offset)
    foot_end = np.where(several, foot_count, head_end)
    to_last_row = (foot == groups - 1) & (np.floor(foot_end / foot_height) > np.floor(foot_start / foot_height))
    rows = np.minimum(head_height, head_count) + np.minimum(foot_height, foot_count) + between * height
    a_rows = rows * tile_m - to_last_row * ragged_m

    ragged_n = width * tile_n - access.n[row]
    first_column = np.floor(offset / head_height)
    head_columns = np.floor((head_end - 1) / head_height) - first_column + 1
    to_last_column = head_end > (width - 1) * head_height
    wrapped = np.minimum(width, head_columns + np.ceil(foot_count / foot_height))
    columns = np.where(between > 0, width, np.where(several, wrapped, head_columns))
    b_rows = columns * tile_n - to_last_column * ragged_n

    seen = np.minimum(head_height, offset)
    again = seen + np.minimum(head_height, head_count) - np.minimum(head_height, offset + head_count)
    again_last = to_last_row & ~several & (offset >= head_height)
    started = first_column * head_height < offset
    new = (head_columns - started) * tile_n
    new = new - (to_last_column & ~(started & (first_column == width - 1))) * ragged_n
    return _Wave(a_rows, b_rows, again * tile_m - again_last * ragged_m, np.where(head == 0, new, 0.0))


def lockstep_touched(access: Access, slots: Counts, partitions: int = 2) -> Touched:
    """Bytes each wave of ``slots`` tiles touches in raster order, if its CTAs advance along k together.

    The cost grows with waves, up to ``MAX_WAVES``, and not with tiles. A launch touches every operand byte a first
    time; whatever its waves read beyond that was read before. A split launch spreads its reads evenly over its tiles.

    Lines read from one side of the chip are held 1.5 times in an L2 of two partitions, those read from everywhere
    twice; B tiles shared by at most 16 neighbours in launch order stay within one GPC. An L2 of one partition holds
    each once.
    """
    columns = np.stack([slots, *(getattr(access, entry.name) for entry in fields(access))])
    # configurations that differ in stages or warps alone touch the same: each kind is walked once
    _, one_of, kind = np.unique(columns, axis=1, return_index=True, return_inverse=True)
    walked = _walk(access[one_of], slots[one_of], float(partitions))
    return Touched(**{entry.name: getattr(walked, entry.name)[kind.ravel()] for entry in fields(walked)})


def _walk(access: Access, slots: Counts, copies_a: float) -> Touched:
    """:func:`lockstep_touched` of configurations that all differ."""
    tiles = access.tiles_m * access.tiles_n
    count = np.ceil(tiles / slots)
    walked = np.minimum(count, MAX_WAVES).astype(np.int64)
    row = np.repeat(np.arange(len(tiles)), walked)
    place = np.arange(walked.sum()) - np.repeat(np.cumsum(walked) - walked, walked)
    # walked - 1 equal stretches of the waves before the last, and the last by itself
    stretch = ((count - 1) / np.maximum(walked - 1, 1))[row]
    begin, stop = np.floor(place * stretch), np.floor((place + 1) * stretch)
    is_last = place == walked[row] - 1
    weight = np.where(is_last, 1.0, stop - begin)
    wave = np.where(is_last, count[row] - 1, begin + np.floor((place * GOLDEN % 1.0) * weight))
    start = wave * slots[row]
    end = np.minimum(start + slots[row], tiles[row])
    spans = _wave(access, row, start, end)

    def total(values: NDArray[np.float64]) -> Counts:
        return np.bincount(row, values * weight, minlength=len(tiles)).astype(float)

    row_bytes = access.k * access.element_bytes
    height = np.minimum(access.group, access.tiles_m)
    copies_b = np.where((height > 1) & (height <= 16), (1.0 + copies_a) / 2.0, copies_a)
    wave_output = (end - start) / tiles[row] * (access.c_bytes / access.batch)[row]
    touched = (copies_a * spans.a_rows + copies_b[row] * spans.b_rows) * row_bytes[row] + wave_output
    group_pass = (copies_a * height * access.tile_m + copies_b * access.n) * row_bytes
    group_output = height * access.tile_m * access.n * access.output_bytes
    # a row of tiles comes round once a column of its group, which may be longer than a wave; a column once a group
    column = np.minimum(access.tile_n, access.n)
    column_pass = (copies_a * height * access.tile_m + copies_b * column) * row_bytes
    column_output = height * access.tile_m * column * access.output_bytes

    # no operand byte is asked for more often than there are tiles across; drawn waves may overshoot
    again_rows_a = np.clip(total(spans.a_rows) - access.m, 0.0, (access.tiles_n - 1.0) * access.m)
    again_rows_b = np.clip(total(spans.b_rows) - access.n, 0.0, (access.tiles_m - 1.0) * access.n)
    again_a = again_rows_a * row_bytes * access.parts
    again_b = again_rows_b * row_bytes * access.parts
    first = access.a_bytes + access.b_bytes
    last = np.cumsum(walked) - 1
    tail_again_a = spans.again_rows[last] * row_bytes
    tail_again_b = (spans.b_rows - spans.new_b_rows)[last] * row_bytes
    tail_first = (spans.a_rows - spans.again_rows + spans.new_b_rows)[last] * row_bytes
    is_split = access.parts > 1
    share = (tiles * access.parts) % slots / (tiles * access.parts)
    return Touched(
        first=first,
        again_a=again_a,
        again_b=again_b,
        distance_a=total(np.maximum(touched, np.where(height > slots, column_pass + column_output, 0.0)[row])) / count,
        distance_b=total(np.maximum(touched, (group_pass + group_output)[row])) / count,
        tail_first=np.where(is_split, first * share, tail_first),
        tail_again_a=np.where(is_split, again_a * share, tail_again_a),
        tail_again_b=np.where(is_split, again_b * share, tail_again_b),
    )
