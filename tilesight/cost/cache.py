"""Bytes at each level: asked by CTAs, looked up in L2, crossing between its partitions, read from and written to DRAM.

    DRAM reads = first touches * (1 - resident) + later touches * (1 - P(hit at their reuse distance))
    lookups    = max(asked operand bytes * merged share, first touches and misses) + output bytes
    hit rate   = 1 - (DRAM reads + crossings) / (lookups + crossings + output / 2)

The hit rate is the counters' definition: hits / (lookups of SMs + sectors between the partitions); output crosses the
fabric for the half of its lines that are homed in the far partition, and always hits.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import comb

import numpy as np
from numpy.typing import NDArray

from tilesight.cost.drift import Pace, fetches, lonely_tiles, spread_by_wave
from tilesight.cost.merging import LookupShares, near_share
from tilesight.cost.raster import A_HEAD, KINDS_A, B, Raster, places, raster, scattered
from tilesight.cost.reuse import hit_probability_gaussian
from tilesight.hardware.profile import Profile
from tilesight.plan.access import Access
from tilesight.plan.tile import Counts

ALONE = 0.75
"""Lookups / requests of aligned neighbours above which an operand counts as not shared between them."""


@dataclass(frozen=True)
class Traffic:
    """Bytes of a whole launch, shape (L,) each, and the share of first touches that finds its line in L2.

    ``full_read_bytes`` and ``tail_read_bytes`` split the DRAM reads between the complete waves and the last one.
    """

    requested_bytes: Counts
    lookup_bytes: Counts
    dram_read_bytes: Counts
    dram_write_bytes: Counts
    crossing_bytes: Counts
    hit_rate: Counts
    resident_share: Counts
    full_read_bytes: Counts
    tail_read_bytes: Counts
    drift_read_bytes: Counts
    reread_hit_share: Counts
    resident_after: Counts
    dirty_after_bytes: Counts


def with_more(moved: Traffic, read: Counts, missed: Counts, written: Counts, spilled: Counts) -> Traffic:
    """The traffic of a launch and of kernels around it, which ``read`` bytes, ``missed`` of them in L2, and write some.

    ``spilled`` of what they write goes to DRAM, the rest stays in L2, up to half of it.
    """
    lookups = moved.lookup_bytes + read + written
    hits = moved.hit_rate * moved.lookup_bytes + read - missed + written
    return replace(
        moved,
        requested_bytes=moved.requested_bytes + read + written,
        lookup_bytes=lookups,
        dram_read_bytes=moved.dram_read_bytes + missed,
        dram_write_bytes=moved.dram_write_bytes + spilled,
        hit_rate=np.where(lookups > 0, hits / np.maximum(lookups, 1.0), moved.hit_rate),
    )


def copies_of_line(hardware: Profile) -> tuple[float, float]:
    """Copies that L2 keeps of a line that one SM reads, and of one that SMs all over the chip read.

    A line homed in one partition is kept in each whose SMs read it; an L2 of one partition keeps one.
    """
    partitions = hardware.l2.partitions or 1
    if partitions == 1:
        return 1.0, 1.0
    return hardware.require("l2.copies_one_reader"), float(partitions)


def repeated_residency(held_bytes: Counts, hardware: Profile) -> Counts:
    """Share of a working set that a repeated launch finds in L2, shape (L,).

    Every line comes round after all the others: the hit probability at a reuse distance of the whole set, in the
    stochastic distance-based model. ``held_bytes`` counts every copy of a line.
    """
    line = hardware.l2.line_bytes
    ways = int(hardware.require("l2.associativity"))
    return hit_probability_gaussian(held_bytes / line, ways, hardware.l2.capacity_bytes / line)


Resident = Mapping[str, NDArray[np.float64]]
"""Share of each tensor that L2 holds, by name (``a``, ``b``, ``c``), scalar or shape (L,)."""


def resident_shares(
    access: Access, cache: str, resident: Resident | None, hardware: Profile
) -> tuple[Counts, Counts, Counts]:
    """Share of A, of B and of an old C that L2 holds before the launch, shape (L,) each: by state or as stated."""
    none = np.zeros_like(access.m)
    if resident is not None:
        a, b, c = (none + resident.get(name, 0.0) for name in "abc")
        return a, b, c
    if cache == "cold":
        return none, none, none
    share = repeated_residency(held_bytes(access, hardware), hardware)
    return share, share, share


def resident_share(access: Access, share_a: Counts, share_b: Counts) -> Counts:
    """Share of the operands' first touches that hit in L2, shape (L,)."""
    found: Counts = (share_a * access.a_bytes + share_b * access.b_bytes) / (access.a_bytes + access.b_bytes)
    return found


def held_bytes(access: Access, hardware: Profile) -> Counts:
    """Bytes of L2 that a launch's tensors take, copies in both partitions counted, shape (L,).

    An operand that several CTAs read lives in both partitions; lines of one that a single row of CTAs reads are copied
    where the reader sits on the far side of their home. The output is written to its home.
    """
    one, every = copies_of_line(hardware)
    copies_a = np.where(access.tiles_n > 1, every, one)
    copies_b = np.where(access.tiles_m > 1, every, one)
    return copies_a * access.a_bytes + copies_b * access.b_bytes + access.c_bytes


SMS_OF_A_TPC = 2.0


@dataclass(frozen=True)
class Flow:
    """What a launch's operands take from L2 and from beyond, shape (L,) each.

    ``first_bytes`` are the first touches of a block, ``again_bytes`` later waves' touches of blocks seen before and
    ``lost_bytes`` those of them that L2 holds no more. ``read_bytes`` come from DRAM, ``drift_bytes`` of them since late
    CTAs find their block evicted, and ``tail_bytes`` of them in the last wave; ``crossing_bytes`` come from the other
    partition.
    Shares of A and of B: lookups / requests of CTAs that load with one instruction stream, and what they would be if
    nothing parted neighbours. ``near`` is the share of what neighbours could merge that they do.
    """

    first_bytes: Counts
    again_bytes: Counts
    lost_bytes: Counts
    read_bytes: Counts
    drift_bytes: Counts
    tail_bytes: Counts
    crossing_bytes: Counts
    share_a: Counts
    share_b: Counts
    merged_a: Counts
    merged_b: Counts
    near: Counts


def flow(access: Access, slots: Counts, how: Pace, hardware: Profile, share: Counts) -> Flow:
    """Reads of a launch's waves, ``share`` of its first touches hitting; see ``cost/raster.py`` and ``cost/drift.py``.

    Configurations that differ in nothing that counts here are walked once.
    """
    columns = np.stack([slots, share, *vars(how).values(), *vars(access).values()])
    _, one_of, kind = np.unique(columns, axis=1, return_index=True, return_inverse=True)
    walked = _flow(access[one_of], slots[one_of], how[one_of], hardware, share[one_of])
    return Flow(**{name: values[kind.ravel()] for name, values in vars(walked).items()})


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


def _flow(access: Access, slots: Counts, how: Pace, hardware: Profile, share: Counts) -> Flow:
    """:func:`flow` of configurations that all differ."""
    launches, line, parts = len(slots), hardware.l2.line_bytes, access.parts
    capacity, partitions = hardware.l2.capacity_bytes, float(hardware.l2.partitions or 1)
    waves = raster(access, slots)
    row = waves.row
    all_tiles = access.tiles_m * access.tiles_n
    tiles = all_tiles[row]
    in_gpc = ctas_of_a_gpc(all_tiles * parts, slots / how.ctas_per_sm, hardware)[row]
    gpcs, together = float(hardware.gpc.count or 1), hardware.require("merging.requests_async")
    where = places(waves, in_gpc, gpcs, together, neighbours_in_a_group(all_tiles * parts, together, hardware)[row])
    grids = np.clip(slots[row] / tiles, 1.0, parts[row])  # grids of tiles in flight at once
    k = access.k[row]
    bytes_k = waves.elements * access.element_bytes[row]
    again = waves.again / np.maximum(waves.elements, 1.0)

    # how far positions have spread in the middle of each wave, and who is still where its neighbours are
    asked = bytes_k * k * waves.sharers
    total = waves.total(asked.sum(axis=0), launches)
    aligned = waves.total((asked * where.aligned).sum(axis=0), launches) / total
    fresh_alone = (bytes_k * k * (1.0 - again) * (where.aligned > ALONE)).sum(axis=0)
    alone = waves.total(fresh_alone, launches) / total

    meeting = waves.total((asked * where.meeting).sum(axis=0), launches) / total
    far_later, far_first = hardware.require("merging.far_share"), hardware.require("merging.far_first_share")

    def share_at(apart: Counts, kept: Counts, wave: int) -> Counts:
        """Lookups / requests in a wave whose neighbours, of whom a share is kept, are so many elements apart."""
        far = np.where(how.loads_plainly & (wave == 0), far_first, far_later)
        near = near_share(alone, apart, hardware) * kept
        return np.maximum(1.0 - near * (1.0 - aligned) - far * (aligned - meeting), meeting)

    spread = spread_by_wave(how, access.k, np.ceil(all_tiles / slots), share_at, hardware)
    at = np.minimum(waves.wave.astype(np.int64), len(spread.whole) - 1), row
    if np.any(how.restarts):
        where = scattered(where, waves, spread.kept[at], gpcs, together)
    one_side = on_one_side(where.gpcs, hardware)
    copies = partitions - (partitions - 1.0) / 2.0 * one_side
    output = waves.ctas / tiles * (access.c_bytes / access.batch)[row] * grids

    held = k * (bytes_k * copies).sum(axis=0) * grids + output
    cut = waves.cut / np.maximum(waves.elements[B], 1.0)
    beyond = waves.between[B] > 0  # a pass over a group is longer than a wave
    fresh = held - k * (bytes_k * copies)[A_HEAD] * again[A_HEAD] - beyond * k * (bytes_k * copies)[B] * cut
    held_before, fresh_before = (waves.mean_full(values, launches)[row] for values in (held, fresh))
    ways, blocks = int(hardware.require("l2.associativity")), capacity / line

    def kept(waves_between: Counts) -> Counts:
        """Chance that a block lives until its next wave: its distance grows along k from one wave's bytes to the other's."""
        ends = [ends + waves_between * fresh_before for ends in (held_before, held)]
        distances = (ends[0], (ends[0] + ends[1]) / 2.0, ends[1])
        first, middle, last = (hit_probability_gaussian(distance / line, ways, blocks) for distance in distances)
        return np.minimum((first + 4.0 * middle + last) / 6.0, 1.0)

    none = np.zeros_like(held)
    cut = np.where(beyond, cut, 0.0)
    hit_a, hit_b = again[A_HEAD] * kept(waves.between[A_HEAD]), (again[B] - cut) * kept(waves.between[B])
    hit = np.stack([hit_a, none, none, hit_b + (cut * kept(none) if np.any(cut > 0) else 0.0)])
    hit = np.minimum(hit, again)
    miss = np.clip(1.0 - hit - (1.0 - again) * share[row], 0.0, 1.0)  # of all that a wave reads

    alone = (bytes_k * k * miss * (where.aligned > ALONE)).sum(axis=0) / asked.sum(axis=0)
    crowded = (how.ctas_per_sm > 1)[row]
    fetched = fetches(waves, where, bytes_k * copies * grids, output, k, spread.whole[at], crowded, capacity)
    first_scale, again_scale = (scale[:, row] for scale in _drawn_scales(access, waves, launches))
    firsts, agains = (bytes_k * k * part for part in ((1.0 - again) * first_scale, again * again_scale))
    lost = agains - bytes_k * k * hit * again_scale
    once = np.maximum(firsts * (1.0 - share[row]) + lost, 0.0)
    reads = once * fetched.whole
    if np.any(crowded & waves.last):
        lonely = lonely_tiles(waves, slots[row], how.ctas_per_sm[row], k, how.lead[row], fetched.window_elements) * (
            waves.last & crowded
        )
        high = np.minimum(np.minimum(access.group[row], access.tiles_m[row]), np.maximum(lonely, 1.0))
        wide = (lonely > 0) * np.maximum(lonely / high, 1.0)
        sides = (lonely > 0) * np.minimum(high, lonely) * access.tile_m[row] + wide * access.tile_n[row]
        lonely_bytes = sides * np.minimum(lonely, 1.0) * access.element_bytes[row] * k
    else:
        lonely_bytes = none

    near = near_share(alone, spread.inside[at], hardware)
    first = (waves.wave == 0) & how.loads_plainly[row]
    far = np.where(first, hardware.require("merging.far_first_share"), hardware.require("merging.far_share"))
    side = one_side * fetched.whole / 2.0 + (1.0 - one_side) * fetched.side

    def of_asked(kept: Counts) -> tuple[Counts, Counts]:
        """Lookups / requests of A and of B, if neighbours merge that share of what they could."""
        shares = np.clip(1.0 - kept * (1.0 - where.aligned) - far * (where.aligned - where.meeting), 0.0, 1.0)
        sums = []
        for which in (KINDS_A, slice(B, None)):
            looked_up, of = ((asked * shares)[which].sum(axis=0), asked[which].sum(axis=0))
            sums.append(waves.total(looked_up, launches) / waves.total(of, launches))
        return sums[0], sums[1]

    # threads that load by pointer wrap at the edge: they ask for the rows outside as well
    outside_a = np.where(how.loads_plainly, access.tiles_m * access.tile_m / access.m, 1.0)
    outside_b = np.where(how.loads_plainly, access.tiles_n * access.tile_n / access.n, 1.0)

    def over(values: Counts) -> Counts:
        """Sum over waves, kinds and grids."""
        return waves.total(values.sum(axis=0), launches) * parts

    share_a, share_b = of_asked(near)
    merged_a, merged_b = of_asked(np.full_like(near, hardware.require("merging.near_share")))
    lonely_reads = waves.total(lonely_bytes, launches) * parts
    read_bytes = over(reads) + lonely_reads
    ragged = (all_tiles * parts) % slots / (all_tiles * parts)
    return Flow(
        first_bytes=access.a_bytes + access.b_bytes,
        again_bytes=over(agains),
        lost_bytes=np.maximum(over(lost), 0.0),
        read_bytes=read_bytes,
        drift_bytes=over(once * (fetched.whole - 1.0)) + lonely_reads,
        tail_bytes=np.where(parts > 1, read_bytes * ragged, (reads.sum(axis=0) + lonely_bytes)[waves.last]),
        crossing_bytes=over(once * side) * (partitions > 1),
        share_a=share_a * outside_a,
        share_b=share_b * outside_b,
        merged_a=merged_a * outside_a,
        merged_b=merged_b * outside_b,
        near=waves.total(near * asked.sum(axis=0), launches) / total,
    )


def traffic(access: Access, moved: Flow, shares: LookupShares, hardware: Profile, share: Counts) -> Traffic:
    """Bytes per level of one launch; see the module's equations."""
    output = access.c_bytes * access.split
    asked_a = access.tiles_n * access.a_bytes
    asked_b = access.tiles_m * access.b_bytes
    # from the far partition or DRAM: looked up at least once, however much merges
    fetched = moved.first_bytes + moved.lost_bytes
    lookups = np.maximum(asked_a * shares.a + asked_b * shares.b, fetched) + output
    crossings = np.minimum(moved.crossing_bytes, lookups / 2)
    hit_rate = 1.0 - (moved.read_bytes + crossings) / (lookups + crossings + output / 2)
    after = repeated_residency(held_bytes(access, hardware), hardware)
    dirty = np.floor(np.minimum(output, hardware.l2.capacity_bytes / 2) * after)
    again = moved.again_bytes
    return Traffic(
        requested_bytes=access.requested_bytes + output,
        lookup_bytes=lookups,
        dram_read_bytes=moved.read_bytes,
        dram_write_bytes=output - dirty,
        crossing_bytes=crossings + output / 2 * ((hardware.l2.partitions or 1) > 1),
        hit_rate=np.clip(hit_rate, 0.0, 1.0),
        resident_share=share,
        full_read_bytes=np.maximum(moved.read_bytes - moved.tail_bytes, 0.0),
        tail_read_bytes=moved.tail_bytes,
        drift_read_bytes=moved.drift_bytes,
        reread_hit_share=1.0 - moved.lost_bytes / np.maximum(again, 1.0) * (again > 0),
        resident_after=after,
        dirty_after_bytes=dirty,
    )
