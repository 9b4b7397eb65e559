"""Bytes at each level: asked by CTAs, looked up in L2, crossing between its partitions, read from and written to DRAM.

    DRAM reads = first touches * (1 - resident) + later touches * (1 - P(hit at their reuse distance))
    lookups    = max(asked operand bytes * merged share, first touches and misses) + output bytes
    hit rate   = 1 - (DRAM reads + crossings) / (lookups + crossings + output / 2)

The hit rate is the counters' definition: hits / (lookups of SMs + sectors between the partitions); output crosses the
fabric for the half of its lines that are homed in the far partition, and always hits.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from tilesight.cost.merging import LookupShares
from tilesight.cost.reuse import Touched, hit_probability_gaussian, lockstep_touched
from tilesight.hardware.profile import Profile
from tilesight.plan.access import Access
from tilesight.plan.tile import Counts


@dataclass(frozen=True)
class Traffic:
    """Bytes of a whole launch, shape (L,) each, and the share of first touches that finds its line in L2.

    ``full_read_bytes`` and ``tail_read_bytes`` split the DRAM reads between the complete waves and the last one.
    """

    requested_bytes: Counts
    lookup_bytes: Counts
    dram_read_bytes: Counts
    dram_write_bytes: Counts
    hit_rate: Counts
    resident_share: Counts
    full_read_bytes: Counts
    tail_read_bytes: Counts
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


def traffic(
    access: Access,
    slots: Counts,
    shares: LookupShares,
    hardware: Profile,
    share: Counts,
) -> Traffic:
    """Bytes per level of one launch, in lockstep, ``share`` of its first touches hitting; see the module's equations."""
    touched: Touched = lockstep_touched(access, slots, hardware.l2.partitions or 1)
    line = hardware.l2.line_bytes
    blocks = hardware.l2.capacity_bytes / line
    ways = int(hardware.require("l2.associativity"))
    miss_a = 1.0 - hit_probability_gaussian(touched.distance_a / line, ways, blocks)
    miss_b = 1.0 - hit_probability_gaussian(touched.distance_b / line, ways, blocks)

    again = touched.again_a + touched.again_b
    lost = touched.again_a * miss_a + touched.again_b * miss_b
    tail = touched.tail_first * (1 - share) + touched.tail_again_a * miss_a + touched.tail_again_b * miss_b
    reads = touched.first * (1 - share) + lost
    output = access.c_bytes * access.split
    asked_a = access.tiles_n * access.a_bytes
    asked_b = access.tiles_m * access.b_bytes
    fetched = touched.first + lost  # from the far partition or DRAM: looked up at least once, however much merges
    lookups = np.maximum(asked_a * shares.a + asked_b * shares.b, fetched) + output
    crossings = np.minimum(fetched, lookups / 2)
    hit_rate = 1.0 - (reads + crossings) / (lookups + crossings + output / 2)
    after = repeated_residency(held_bytes(access, hardware), hardware)
    dirty = np.floor(np.minimum(output, hardware.l2.capacity_bytes / 2) * after)
    return Traffic(
        requested_bytes=access.requested_bytes + output,
        lookup_bytes=lookups,
        dram_read_bytes=reads,
        dram_write_bytes=output - dirty,
        hit_rate=np.clip(hit_rate, 0.0, 1.0),
        resident_share=share,
        full_read_bytes=np.maximum(reads - tail, 0.0),
        tail_read_bytes=tail,
        reread_hit_share=1.0 - lost / np.maximum(again, 1.0) * (again > 0),
        resident_after=after,
        dirty_after_bytes=dirty,
    )
