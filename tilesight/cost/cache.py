"""Bytes at each level: asked by CTAs, looked up in L2, crossing between its partitions, read from and written to DRAM.

    DRAM reads = first touches * (1 - resident) + later touches * (1 - P(hit at their reuse distance))
    lookups    = max(asked operand bytes * merged share, first touches, misses and fetches of late CTAs) + output bytes
    hit rate   = 1 - (DRAM reads + crossings) / (lookups + crossings + output / 2)

The hit rate is the counters' definition: hits / (lookups of SMs + sectors between the partitions); output crosses the
fabric for the half of its lines that are homed in the far partition, and always hits.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from tilesight.cost.drift import EVEN_SHARE, Pace, fetches, lonely_tiles, spread_by_wave
from tilesight.cost.geometry import ALONE, Reads, geometry, taken
from tilesight.cost.merging import LookupShares, near_share
from tilesight.cost.raster import A_HEAD, B, waves_walked
from tilesight.cost.reuse import hit_probability_gaussian, survival
from tilesight.hardware.profile import Profile
from tilesight.plan.access import Access
from tilesight.plan.tile import Counts

WAVES_AT_ONCE = 1 << 16
"""Waves whose arrays are worked on together; speed alone goes by it."""


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


@dataclass(frozen=True)
class Flow:
    """What a launch's operands take from L2 and from beyond, shape (L,) each.

    ``first_bytes`` are the first touches of a block, ``again_bytes`` later waves' touches of blocks seen before and
    ``lost_bytes`` those of them that L2 holds no more. ``read_bytes`` come from DRAM, ``drift_bytes`` of them since late
    CTAs find their block evicted, and ``tail_bytes`` of them in the last wave; ``crossing_bytes`` come from the other
    partition. ``output_share`` is the share of the output in all that waves keep in L2, copies counted.
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
    output_share: Counts
    share_a: Counts
    share_b: Counts
    merged_a: Counts
    merged_b: Counts
    near: Counts


def flow(access: Access, slots: Counts, how: Pace, hardware: Profile, share: Counts) -> Flow:
    """Reads of a launch's waves, ``share`` of its first touches hitting; see ``cost/raster.py`` and ``cost/drift.py``.

    Configurations that differ in nothing that counts here are walked once, and a few at a time: what their waves need
    then stays in the processor's own caches.
    """
    shape = _shape(access, slots, how)
    rest = [values for name, values in vars(access).items() if name not in RASTER_FIELDS]
    columns = np.stack([*shape, share, *rest, *(vars(how)[name] for name in vars(how) if name != "ctas_per_sm")])
    _, one_of, kind = np.unique(columns, axis=1, return_index=True, return_inverse=True)
    waves = waves_walked(access.tiles_m[one_of] * access.tiles_n[one_of], slots[one_of])
    part = np.cumsum(waves) // WAVES_AT_ONCE
    walked = [
        vars(_flow(access[rows], slots[rows], how[rows], hardware, share[rows]))
        for rows in np.split(one_of, np.flatnonzero(np.diff(part)) + 1)
    ]
    return Flow(**{name: np.concatenate([each[name] for each in walked])[kind.ravel()] for name in walked[0]})


RASTER_FIELDS = ("m", "n", "tile_m", "tile_n", "group")
"""What of an access decides which tiles a wave reads, beside its parts."""


def _shape(access: Access, slots: Counts, how: Pace) -> list[Counts]:
    """What decides the geometry of a launch's waves, shape (L,) each."""
    return [slots, access.parts, how.ctas_per_sm, *(getattr(access, name) for name in RASTER_FIELDS)]


def _flow(access: Access, slots: Counts, how: Pace, hardware: Profile, share: Counts) -> Flow:
    """:func:`flow` of configurations in an order in which those of one geometry lie together."""
    shape = np.stack(_shape(access, slots, how))
    new = np.append(True, np.any(shape[:, 1:] != shape[:, :-1], axis=0))
    firsts = np.flatnonzero(new)
    kinds = geometry(access[firsts], slots[firsts], how.ctas_per_sm[firsts], bool(np.any(how.restarts)), hardware)
    kind = np.cumsum(new) - 1
    number = kinds.waves[kind]
    start = np.cumsum(number) - number
    row = np.repeat(np.arange(len(slots)), number)
    wave = np.arange(len(row)) + np.repeat(kinds.start[kind] - start, number)  # its place among those of the geometries

    def over(*values: Counts) -> tuple[Counts, ...]:
        """Sums over the waves of each launch, shape (L,) each."""
        return tuple(np.add.reduceat(np.stack(values) * weight, start, axis=1))

    weight = kinds.weight[wave]
    partitions, capacity, line = float(hardware.l2.partitions or 1), hardware.l2.capacity_bytes, hardware.l2.line_bytes
    bytes_k = access.k * access.element_bytes
    output_bytes = access.m * access.n * access.output_bytes

    # how far positions have spread in the middle of each wave, and who is still where its neighbours are
    alone, aligned, meeting = kinds.alone_share[kind], kinds.aligned_share[kind], kinds.meeting_share[kind]
    far_later, far_first = hardware.require("merging.far_share"), hardware.require("merging.far_first_share")

    def share_at(apart: Counts, kept: Counts, wave: int) -> Counts:
        """Lookups / requests in a wave whose neighbours, of whom a share is kept, are so many elements apart."""
        far = np.where(how.loads_plainly & (wave == 0), far_first, far_later)
        near = near_share(alone, apart, hardware) * kept
        found: Counts = np.maximum(1.0 - near * (1.0 - aligned) - far * (aligned - meeting), meeting)
        return found

    all_tiles = access.tiles_m * access.tiles_n
    spread = spread_by_wave(how, access.k, np.ceil(all_tiles / slots), share_at, hardware)
    at = np.minimum(kinds.wave[wave], len(spread.whole) - 1) * len(slots) + row

    # who is found again: a block's distance grows along k from one wave's bytes to the other's
    written = kinds.written[wave] * output_bytes[row]
    held = kinds.held[wave] * bytes_k[row] + written
    before = (kinds.mean_held[kind] * bytes_k + kinds.mean_written[kind] * output_bytes)[row]
    fresh = (kinds.mean_fresh[kind] * bytes_k + kinds.mean_written[kind] * output_bytes)[row]
    lives = survival(int(hardware.require("l2.associativity")), capacity / line)

    def lost(between: Counts, which: NDArray[np.bool_] | slice) -> Counts:
        """Chance that a block does not live until it is touched again, so many waves later."""
        first, last = ((ends[which] + between * fresh[which]) / line for ends in (before, held))
        found = (lives(first) + 4.0 * lives((first + last) / 2.0) + lives(last)) / 6.0
        gone: Counts = np.maximum(1.0 - found, 0.0)
        return gone

    between_a, between_b = kinds.between_a[wave], kinds.between_b[wave]
    soon = lost(np.zeros(1), slice(None))
    lost_a, lost_b = soon.copy(), soon.copy()
    for found, between in ((lost_a, between_a), (lost_b, between_b)):
        late = between > 0
        if np.any(late):
            found[late] = lost(between[late], late)

    def missed(reads: Reads) -> tuple[Counts, Counts]:
        """Elements of A's head and of B that later waves do not find."""
        return reads.again_a * lost_a, reads.again_b * lost_b + reads.cut_b * soon

    # who meets: neighbours that drift and DRAM have not parted, and others of the GPC
    kept = spread.kept.ravel()[at] if np.any(how.restarts) else None
    new_share = (1.0 - share)[row]
    if kept is None:
        reads = taken(kinds.alone, wave)
        parting = (reads.first_a + reads.first_b + reads.first_others) * new_share + sum(missed(reads))
    else:
        apart = kept * (1.0 - kinds.aligned[:, wave]) < 1.0 - ALONE
        head, foot = missed(taken(kinds.unscaled, wave))
        parting = (
            (kinds.unscaled_first[:, wave] * apart).sum(axis=0) * new_share + head * apart[A_HEAD] + foot * apart[B]
        )
    asked = kinds.asked[wave]
    near = near_share(parting / asked, spread.inside.ravel()[at], hardware)
    most = hardware.require("merging.near_share")
    far = np.where(how.loads_plainly[row] & (kinds.wave[wave] == 0), far_first, far_later)
    shares = []
    for name, of in (("a", kinds.asked_a[kind]), ("b", kinds.asked_b[kind])):
        saved, saved_far = getattr(kinds, f"near_{name}")[wave], getattr(kinds, f"far_{name}")[wave]
        if kept is not None:
            saved = kept * saved
            saved_far = kept * saved_far + (1.0 - kept) * getattr(kinds, f"gone_{name}")[wave]
        by_near, best, by_far = over(near * saved, saved, far * saved_far)
        shares += [
            np.clip(1.0 - (by_near + by_far) / of, 0.0, 1.0),
            np.clip(1.0 - (most * best + by_far) / of, 0.0, 1.0),
        ]
    (near_total,) = over(near * asked)
    (asked_total,) = over(asked)

    # what comes from DRAM, once a wave, and again for late CTAs where positions spread over more than blocks live
    reads = taken(kinds.reads, wave)
    head, foot = missed(reads)
    once_a, once_b = reads.first_a * new_share + head, reads.first_b * new_share + foot
    once = once_a + once_b + reads.first_others * new_share
    one_side = kinds.one_side
    crossing = once_a * (1.0 - one_side[A_HEAD][wave] / 2.0) + once_b * (1.0 - one_side[B][wave] / 2.0)
    crossing += kinds.crossing_others[wave] * new_share
    crowded = how.ctas_per_sm > 1
    window = capacity / np.maximum(held / access.k[row], 1e-9)
    whole_spread = spread.whole.ravel()[at]
    late = np.flatnonzero(window * EVEN_SHARE < whole_spread)
    drift = np.zeros_like(once)
    if len(late):
        of, rows = wave[late], row[late]
        held_k = kinds.copied[:, of] * (access.element_bytes[rows] * kinds.grids[of])
        fetched = fetches(
            kinds.sharers[:, of], kinds.gpcs[:, of], held_k, written[late], access.k[rows], whole_spread[late],
            crowded[rows], capacity,
        )  # fmt: skip
        once_late = kinds.first[:, of] * new_share[late]
        once_late[A_HEAD], once_late[B] = once_a[late], once_b[late]
        drift[late] = (once_late * (fetched.whole - 1.0)).sum(axis=0)
        one = one_side[:, of]
        further = one * (fetched.whole - 1.0) / 2.0 + (1.0 - one) * (fetched.side - 1.0)
        crossing[late] += (once_late * further).sum(axis=0)
        window[late] = fetched.window_elements
    last = start + number - 1
    lonely_bytes = np.zeros(len(slots))
    if np.any(crowded):
        ctas = kinds.ctas[wave[last]]
        lonely = lonely_tiles(ctas, slots, how.ctas_per_sm, access.k, how.lead, window[last]) * crowded
        high = np.minimum(np.minimum(access.group, access.tiles_m), np.maximum(lonely, 1.0))
        wide = (lonely > 0) * np.maximum(lonely / high, 1.0)
        sides = (lonely > 0) * np.minimum(high, lonely) * access.tile_m + wide * access.tile_n
        lonely_bytes = sides * np.minimum(lonely, 1.0) * bytes_k

    # threads that load by pointer wrap at the edge: they ask for the rows outside as well
    outside_a = np.where(how.loads_plainly, access.tiles_m * access.tile_m / access.m, 1.0)
    outside_b = np.where(how.loads_plainly, access.tiles_n * access.tile_n / access.n, 1.0)
    parts, per_element = access.parts, bytes_k * access.parts
    read, drifted, crossed, missing = over(once, drift, crossing, head + foot)
    written_total, held_total = over(written, held)
    asked_bytes = access.tiles_n * access.a_bytes + access.tiles_m * access.b_bytes
    in_step = read * per_element
    drift_bytes = np.clip(drifted * per_element + lonely_bytes * parts, 0.0, np.maximum(asked_bytes - in_step, 0.0))
    read_bytes = in_step + drift_bytes
    ragged = (all_tiles * parts) % slots / (all_tiles * parts)
    return Flow(
        first_bytes=access.a_bytes + access.b_bytes,
        again_bytes=kinds.again[kind] * per_element,
        lost_bytes=missing * per_element,
        read_bytes=read_bytes,
        drift_bytes=drift_bytes,
        tail_bytes=np.where(parts > 1, read_bytes * ragged, (once + drift)[last] * bytes_k + lonely_bytes),
        crossing_bytes=crossed * per_element * (partitions > 1),
        output_share=written_total / held_total,
        share_a=shares[0] * outside_a,
        share_b=shares[2] * outside_b,
        merged_a=shares[1] * outside_a,
        merged_b=shares[3] * outside_b,
        near=near_total / asked_total,
    )


def traffic(
    access: Access, moved: Flow, shares: LookupShares, hardware: Profile, share: Counts, *, repeated: bool = False
) -> Traffic:
    """Bytes per level of one launch; see the module's equations.

    L2 ends with what was touched last, of which the output has its share: so much of it is still dirty, at most what its
    homes take. A launch that is ``repeated`` writes back what the one before left as well.
    """
    output = access.c_bytes * access.split
    asked_a = access.tiles_n * access.a_bytes
    asked_b = access.tiles_m * access.b_bytes
    # from the far partition or DRAM, by late CTAs too: looked up at least once, however much merges
    fetched = moved.first_bytes + moved.lost_bytes + moved.drift_bytes
    lookups = np.maximum(asked_a * shares.a + asked_b * shares.b, fetched) + output
    crossings = np.minimum(moved.crossing_bytes, lookups / 2)
    hit_rate = 1.0 - (moved.read_bytes + crossings) / (lookups + crossings + output / 2)
    after = repeated_residency(held_bytes(access, hardware), hardware)
    most = np.minimum(output, hardware.l2.capacity_bytes / 2)
    kept = np.floor(most * after)
    dirty = np.maximum(np.floor(np.minimum(most, hardware.l2.capacity_bytes * moved.output_share)), kept)
    again = moved.again_bytes
    return Traffic(
        requested_bytes=access.requested_bytes + output,
        lookup_bytes=lookups,
        dram_read_bytes=moved.read_bytes,
        dram_write_bytes=output - (kept if repeated else dirty),
        crossing_bytes=crossings + output / 2 * ((hardware.l2.partitions or 1) > 1),
        hit_rate=np.clip(hit_rate, 0.0, 1.0),
        resident_share=share,
        full_read_bytes=np.maximum(moved.read_bytes - moved.tail_bytes, 0.0),
        tail_read_bytes=moved.tail_bytes,
        drift_read_bytes=moved.drift_bytes,
        reread_hit_share=np.maximum(1.0 - moved.lost_bytes / np.maximum(again, 1.0) * (again > 0), 0.0),
        resident_after=after,
        dirty_after_bytes=dirty,
    )
