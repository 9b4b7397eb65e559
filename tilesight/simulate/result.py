"""What a simulated launch moved, how long it took, and how far its CTAs drifted apart."""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

SAMPLED = (0.1, 0.5, 0.9)
"""Shares of the run at which the spread of CTAs is taken."""


@dataclass(frozen=True)
class Simulated:
    """Bytes at each level, by the counters' definitions, and seconds of one launch.

    Attributes
    ----------
    requested_bytes
        Asked for by all CTAs and written, before multicast and merging.
    lookup_bytes
        Looked up by SMs, writes included.
    crossing_bytes
        Between the partitions, the written ones that are homed in the far one included.
    dram_read_bytes, dram_write_bytes
        During the launch.
    dirty_after_bytes
        Left in L2, still to be written.
    read_crossing_bytes, written_bytes
        Crossings of reads alone, and bytes written by SMs.
    hit_rate
        1 - (dram_read + read_crossing) / (lookup + crossing), as the counters of both sides of the fabric count it:
        writes cross for the share that is homed elsewhere, and hit.
    seconds
        From the first load to the last store.
    spread_steps
        Standard deviation of the steps done since the launch, over CTAs at work, at 10, 50 and 90 % of the run.
    """

    requested_bytes: float
    lookup_bytes: float
    crossing_bytes: float
    dram_read_bytes: float
    dram_write_bytes: float
    dirty_after_bytes: float
    read_crossing_bytes: float
    written_bytes: float
    hit_rate: float
    seconds: float
    spread_steps: tuple[float, float, float]


def counted_hit_rate(lookups: float, written: float, dram_read: float, read_crossing: float, partitions: int) -> float:
    """Hit rate of SMs' lookups and of those that cross: h = 1 - (D + F_read) / (L + F_read + O (1 - 1/P)).

    Examples
    --------
    >>> counted_hit_rate(1792.0, 512.0, 512.0, 512.0, 2)  # KiB
    0.6
    """
    asked = lookups + read_crossing + written * (1 - 1 / partitions)
    return 1.0 - (dram_read + read_crossing) / asked


def spread_at(
    ends_s: Sequence[Sequence[float]], done: Sequence[Sequence[float]], seconds: float
) -> tuple[float, float, float]:
    """Standard deviation over slots of steps done at 10, 50 and 90 % of ``seconds``; slots that have ended left out.

    ``ends_s`` and ``done`` hold, for each slot, times that never fall, from 0 on, and the steps done by then.
    """

    def at(share: float) -> float:
        now, steps = share * seconds, []
        for times, count in zip(ends_s, done, strict=True):
            after = bisect_right(times, now)
            if after < len(times):
                part = (now - times[after - 1]) / (times[after] - times[after - 1])
                steps.append(count[after - 1] + part * (count[after] - count[after - 1]))
        return float(np.std(steps)) if steps else 0.0

    low, middle, high = (at(share) for share in SAMPLED)
    return low, middle, high
