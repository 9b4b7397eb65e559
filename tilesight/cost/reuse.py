"""Reuse distance: the chance that a block is still in a cache, and what a tiled product re-reads.

Stochastic distance-based cache model (SDCM): of D distinct blocks touched since a block's last use,
X ~ Binomial(D, A / B) fall into its set, in a cache of B blocks and associativity A; LRU keeps the block if
X <= A - 1.

    exact      P(hit) = P(X <= A - 1)                                        (binomial distribution)
    Gaussian   P(hit) = Phi((A - 1/2 - D A/B) / sqrt(D (A/B) (1 - A/B)))
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import bdtr, ndtr

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
    distance = _checked(distance_blocks, associativity, cache_blocks)
    result = bdtr(associativity - 1.0, np.floor(distance), associativity / cache_blocks)
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


MAX_WAVES = 1 << 14
"""Waves walked one by one; a longer launch is walked in strides and scaled (the raster repeats)."""


def lockstep_touched(access: Access, slots: Counts) -> Touched:
    """Bytes each wave of ``slots`` tiles touches in raster order, if its CTAs advance along k together.

    A wave cuts the raster into the end of one row group, whole groups, and the start of another; the rows and columns
    of tiles it touches follow in closed form, so the cost grows with waves and not with tiles. A block of A is seen
    again when a wave continues its row group, a block of B in every row group after the first.

    Lines read from one side of the chip are held 1.5 times in an L2 of two partitions, those read from everywhere
    twice; B tiles shared by at most 16 neighbours in launch order stay within one GPC.
    """
    tiles_m, tiles_n = access.tiles_m, access.tiles_n
    group = np.minimum(access.group, tiles_m)
    tiles = tiles_m * tiles_n
    count = np.ceil(tiles / slots)
    stride = np.ceil(count / MAX_WAVES)
    walked = np.ceil(count / stride).astype(np.int64)
    row = np.repeat(np.arange(len(tiles)), walked)
    wave = (np.arange(walked.sum()) - np.repeat(np.cumsum(walked) - walked, walked)) * stride[row]
    weight = np.minimum(stride[row], count[row] - wave)

    start = wave * slots[row]
    end = np.minimum(start + slots[row], tiles[row])
    height, width = group[row], tiles_n[row]
    group_tiles = height * width
    groups = np.ceil(tiles_m[row] / height)
    last_height = tiles_m[row] - (groups - 1) * height
    head = np.floor(start / group_tiles)
    foot = np.floor((end - 1) / group_tiles)
    head_height = np.where(head == groups - 1, last_height, height)
    foot_height = np.where(foot == groups - 1, last_height, height)
    offset = start - head * group_tiles
    head_end = np.minimum(end - head * group_tiles, head_height * width)
    first_column = np.floor(offset / head_height)
    head_columns = np.floor((head_end - 1) / head_height) - first_column + 1
    several = foot > head
    foot_count = np.where(several, end - foot * group_tiles, 0.0)
    between = np.maximum(foot - head - 1, 0.0)

    rows = np.minimum(head_height, head_end - offset) + np.minimum(foot_height, foot_count) + between * height
    wrapped = np.minimum(width, width - first_column + np.ceil(foot_count / foot_height))
    columns = np.where(between > 0, width, np.where(several, wrapped, head_columns))
    a_rows = np.minimum(rows * access.tile_m[row], access.m[row])
    b_rows = np.minimum(columns * access.tile_n[row], access.n[row])

    again_rows = np.minimum(np.minimum(head_height, offset) * access.tile_m[row], a_rows)
    new_columns = np.where(several, width - first_column, head_columns) - (first_column * head_height < offset)
    new_b = np.where(head == 0, np.minimum(np.maximum(new_columns, 0) * access.tile_n[row], b_rows), 0.0)

    row_bytes = (access.k * access.element_bytes)[row]
    copies_b = np.where((height > 1) & (height <= 16), 1.5, 2.0)
    wave_output = (end - start) / tiles[row] * access.c_bytes[row]
    touched = (2.0 * a_rows + copies_b * b_rows) * row_bytes + wave_output
    group_pass = (2.0 * height * access.tile_m[row] + copies_b * access.n[row]) * row_bytes
    group_output = height * access.tile_m[row] * access.n[row] * access.output_bytes[row]

    def total(values: NDArray[np.float64]) -> Counts:
        summed: Counts = np.bincount(row, values * weight, minlength=len(tiles))
        return summed

    is_last = wave + weight >= count[row]
    last = np.zeros(len(row)) + is_last
    first = (a_rows - again_rows + new_b) * row_bytes
    again_a, again_b = again_rows * row_bytes, (b_rows - new_b) * row_bytes
    mean_touched = total(touched) / count
    far = np.maximum(touched, group_pass + group_output)
    parts = access.split
    return Touched(
        first=total(first) * parts,
        again_a=total(again_a) * parts,
        again_b=total(again_b) * parts,
        distance_a=mean_touched,
        distance_b=total(far) / count,
        tail_first=np.bincount(row, first * last, minlength=len(tiles)) * parts,
        tail_again_a=np.bincount(row, again_a * last, minlength=len(tiles)) * parts,
        tail_again_b=np.bincount(row, again_b * last, minlength=len(tiles)) * parts,
    )
