"""What the waves of a raster read by their tiles and places alone, whatever the pace of the CTAs and the length of k.

Configurations that differ in pace, stages, formats or what is resident share it: bytes follow from the elements here by the
factor bytes of an element * k.
"""

from dataclasses import dataclass, fields
from math import comb

import numpy as np
from numpy.typing import NDArray

from tilesight.cost.raster import A_HEAD, KINDS_A, B, Raster, anywhere, places, raster
from tilesight.hardware.profile import Profile
from tilesight.plan.access import Access
from tilesight.plan.tile import Counts

ALONE = 0.75
"""Lookups / requests of aligned neighbours above which an operand counts as not shared between them."""
SMS_OF_A_TPC = 2.0


def ctas_of_a_gpc(ctas: Counts, slots: Counts, hardware: Profile) -> Counts:
    """Neighbouring CTAs in one GPC, shape as given: SMs over GPCs, or fewer each where a launch leaves SMs empty.

    A launch of as many CTAs as there are GPCs, or fewer, is all in one; larger ones are spread in equal blocks (record
    ``chip_map``).
    """
    gpcs = float(hardware.gpc.count or 1)
    small = np.where(ctas <= gpcs, ctas, np.maximum(ctas / gpcs, 1.0))
    return np.minimum(np.where(ctas < slots, small, np.inf), hardware.sm_count / gpcs)


def neighbours_in_a_group(ctas: Counts, together: float, hardware: Profile) -> Counts:
    """CTAs next to each other on so many SMs next to each other, shape as given: as many, or fewer where SMs stay empty.

    As many CTAs as there are GPCs are packed into one; of further ones a launch puts one on each TPC, a pair of SMs, before
    it puts a second there (record ``chip_map``).
    """
    packed = np.minimum(float(hardware.gpc.count or 1) / ctas, 1.0)
    filled = packed + (1.0 - packed) * np.clip(ctas / hardware.sm_count, 1.0 / SMS_OF_A_TPC, 1.0)
    return np.maximum(together * filled, 1.0)


def on_one_side(reached: Counts, hardware: Profile) -> Counts:
    """Chance that so many GPCs all lie on the side of one partition of L2, shape as given; which do is not known.

    Of G GPCs, G / P a partition: P C(G / P, n) / C(G, n) for n of them, straight lines between.

    Examples
    --------
    >>> import numpy as np
    >>> from tilesight.hardware.load import load_profile
    >>> on_one_side(np.array([1.0, 2.0, 5.0]), load_profile("h200_sxm")).round(3).tolist()
    [1.0, 0.429, 0.0]
    """
    gpcs, partitions = hardware.gpc.count or 1, hardware.l2.partitions or 1
    numbers = range(1, gpcs + 1)
    chances = [min(partitions * comb(max(gpcs // partitions, 1), n) / comb(gpcs, n), 1.0) for n in numbers]
    return np.interp(reached, numbers, chances)


@dataclass(frozen=True)
class Reads:
    """Elements that each wave reads, shape (W,); those of A's head and of B that earlier waves have read stand apart.

    ``first_*`` are first touches: of A's head, of B, of the other rows of A; ``again_a`` are touched again, and of B
    ``again_b`` after a pass over a group and ``cut_b`` after a single wave.
    """

    first_a: Counts
    first_b: Counts
    first_others: Counts
    again_a: Counts
    again_b: Counts
    cut_b: Counts


@dataclass(frozen=True)
class Geometry:
    """Waves of a batch of rasters, shape (W,) each, and of their tiles by kind, shape (4, W).

    ``start`` and ``waves`` are the first wave and the number of waves of each raster, shape (G,).

    Attributes
    ----------
    asked
        Elements that CTAs ask for; ``near_*`` of them those that aligned neighbours save of A and of B, ``far_*`` those that
        CTAs anywhere in a GPC save beyond, and ``gone_*`` those that scattered ones save.
    held, written
        Elements and tiles of output that a wave keeps in L2, copies and grids in flight counted.
    reads
        Elements, scaled so that drawn waves stand for all; ``alone`` those not scaled, that CTAs without a neighbour read.
    crossing_others
        First touches of the rows of A that are not its head, by which share of them crosses to the other partition.
    mean_held, mean_written, mean_fresh
        Means over full waves, shape (G,): ``mean_fresh`` those that no wave before has brought.
    """

    start: NDArray[np.intp]
    waves: NDArray[np.intp]
    wave: NDArray[np.intp]
    weight: Counts
    ctas: Counts
    between_a: Counts
    between_b: Counts
    grids: Counts
    asked: Counts
    near_a: Counts
    near_b: Counts
    far_a: Counts
    far_b: Counts
    gone_a: Counts
    gone_b: Counts
    held: Counts
    written: Counts
    reads: Reads
    alone: Reads
    unscaled: Reads
    one_side: Counts
    crossing_others: Counts
    first: Counts
    unscaled_first: Counts
    copied: Counts
    sharers: Counts
    gpcs: Counts
    aligned: Counts
    asked_a: Counts
    asked_b: Counts
    meeting_share: Counts
    aligned_share: Counts
    alone_share: Counts
    mean_held: Counts
    mean_written: Counts
    mean_fresh: Counts
    again: Counts


def taken(values: Reads, which: NDArray[np.intp]) -> Reads:
    """The reads of some waves."""
    return Reads(*(getattr(values, entry.name)[which] for entry in fields(Reads)))


def _drawn_scales(access: Access, waves: Raster, launches: int) -> tuple[Counts, Counts]:
    """What makes drawn waves stand for all: factors on first and on repeated touches, shape (4, launches) each.

    A launch touches every row of A and column of B a first time, and none more often than there are tiles across.
    """
    scales = np.ones((2, 4, launches))
    several = (access.tiles_n, access.tiles_m)
    for which, size, across in zip((KINDS_A, slice(B, None)), (access.m, access.n), several, strict=True):
        again = waves.total(waves.again[which].sum(axis=0), launches)
        first = waves.total(waves.elements[which].sum(axis=0), launches) - again
        wanted = np.clip(first + again - size, 0.0, (across - 1.0) * size)
        scales[0, which] = size / first
        scales[1, which] = np.where(again > 0, wanted / np.maximum(again, 1.0), 1.0)
    return scales[0], scales[1]


def _reads(first: Counts, again: Counts, cut: Counts) -> Reads:
    """Reads of kinds of tiles, shape (4, W) each, ``cut`` of B alone."""
    return Reads(first[A_HEAD], first[B], first[A_HEAD + 1] + first[A_HEAD + 2], again[A_HEAD], again[B] - cut, cut)


def geometry(access: Access, slots: Counts, ctas_per_sm: Counts, restarts: bool, hardware: Profile) -> Geometry:
    """Waves of ``slots`` CTAs of each launch; of its sizes only tiles, groups and parts count.

    ``restarts``: whether any tile is a CTA of its own, so that ``gone_*`` is asked for; else it is 0.
    """
    launches, partitions = len(slots), float(hardware.l2.partitions or 1)
    waves = raster(access, slots)
    row = waves.row
    all_tiles = access.tiles_m * access.tiles_n
    ctas = all_tiles * access.parts
    gpcs, together = float(hardware.gpc.count or 1), hardware.require("merging.requests_async")
    in_gpc = ctas_of_a_gpc(ctas, slots / ctas_per_sm, hardware)[row]
    where = places(waves, in_gpc, gpcs, together, neighbours_in_a_group(ctas, together, hardware)[row])
    grids = np.clip(slots / all_tiles, 1.0, access.parts)[row]  # grids of tiles in flight at once
    one_side = on_one_side(where.gpcs, hardware)
    copied = waves.elements * (partitions - (partitions - 1.0) / 2.0 * one_side)
    held, written = copied.sum(axis=0) * grids, waves.ctas / all_tiles[row] * grids

    again = waves.again / np.maximum(waves.elements, 1.0)
    cut = waves.cut / np.maximum(waves.elements[B], 1.0)
    beyond = waves.between[B] > 0  # a pass over a group is longer than a wave
    fresh = held - copied[A_HEAD] * again[A_HEAD] - beyond * copied[B] * cut
    first = waves.elements - waves.again
    cut_b = np.where(beyond, waves.cut, 0.0)
    unscaled = _reads(first, waves.again, cut_b)
    first_scale, again_scale = (scale[:, row] for scale in _drawn_scales(access, waves, launches))
    scaled = first * first_scale
    apart = where.aligned > ALONE
    alone = _reads(first * apart, waves.again * apart, cut_b * apart[B])

    asked = waves.elements * waves.sharers
    near, far = asked * (1.0 - where.aligned), asked * (where.aligned - where.meeting)
    gone = asked * (1.0 - anywhere(waves, gpcs, together)) if restarts else np.zeros_like(asked)
    sums = asked.sum(axis=0)
    total = waves.total(sums, launches)

    def share(values: Counts) -> Counts:
        """Of all that is asked, shape (G,)."""
        return waves.total(values.sum(axis=0), launches) / total

    number = np.bincount(row, minlength=launches)
    return Geometry(
        start=np.cumsum(number) - number,
        waves=number,
        wave=waves.wave.astype(np.intp),
        weight=waves.weight,
        ctas=waves.ctas,
        between_a=waves.between[A_HEAD],
        between_b=waves.between[B],
        grids=grids,
        asked=sums,
        near_a=near[KINDS_A].sum(axis=0),
        near_b=near[B],
        far_a=far[KINDS_A].sum(axis=0),
        far_b=far[B],
        gone_a=gone[KINDS_A].sum(axis=0),
        gone_b=gone[B],
        held=held,
        written=written,
        reads=_reads(scaled, waves.again * again_scale, cut_b * again_scale[B]),
        alone=alone,
        unscaled=unscaled,
        one_side=one_side,
        crossing_others=(scaled * (1.0 - one_side / 2.0))[A_HEAD + 1 : B].sum(axis=0),
        first=scaled,
        unscaled_first=first,
        copied=copied,
        sharers=waves.sharers,
        gpcs=where.gpcs,
        aligned=where.aligned,
        asked_a=waves.total(asked[KINDS_A].sum(axis=0), launches),
        asked_b=waves.total(asked[B], launches),
        meeting_share=share(asked * where.meeting),
        aligned_share=share(asked * where.aligned),
        alone_share=share(first * apart),
        mean_held=waves.mean_full(held, launches),
        mean_written=waves.mean_full(written, launches),
        mean_fresh=waves.mean_full(fresh, launches),
        again=waves.total((waves.again * again_scale).sum(axis=0), launches),
    )
