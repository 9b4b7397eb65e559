"""Requests in flight: the share of asked bytes that reaches L2 as lookups.

CTAs are launched GPC by GPC and TPC by TPC, so neighbours in the raster are neighbours on the chip. Requests of up to
``merging.requests_async`` such neighbours for the same line (cp.async and TMA), or ``merging.requests_plain`` (plain
loads), share one lookup while they are in flight together. CTAs that share an operand drift apart along k, which pulls
the share back towards 1:

    s' = s + (1 - s) * drift

with s = distinct tiles among one such group of neighbours / the group's size. Cluster multicast divides an operand's
lookups by the CTAs that receive the copy.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tilesight.hardware.profile import Profile
from tilesight.plan.access import Access
from tilesight.plan.tile import Counts


@dataclass(frozen=True)
class LookupShares:
    """Lookups / asked bytes, for the A and the B operand, shape (L,) each, in (0, 1]."""

    a: Counts
    b: Counts


def distinct_among_neighbours(sharers: Counts, size: Counts) -> Counts:
    """Distinct tiles seen by ``size`` neighbours when runs of ``sharers`` neighbours share one tile, over ``size``.

    Groups of neighbours and runs both begin at the first CTA. Where neither length divides the other, the average over
    all places in a run: (size - 1) / sharers boundaries fall inside.

    Examples
    --------
    >>> import numpy as np
    >>> distinct_among_neighbours(np.array([1.0, 4.0, 8.0]), np.array(4.0))
    array([1.  , 0.25, 0.25])
    """
    aligned = (sharers % size == 0) | (size % sharers == 0)
    distinct = np.where(aligned, np.maximum(size / sharers, 1.0), 1.0 + (size - 1.0) / sharers)
    return np.minimum(distinct, size) / size


def lookup_shares(access: Access, ctas_per_sm: Counts, in_order: bool, hardware: Profile) -> LookupShares:
    """Share of asked operand bytes that L2 looks up, after multicast and merging of requests in flight.

    ``in_order`` loops load with one instruction stream per CTA (pointer loads, bulk loads without multicast);
    warp-specialised clusters merge on top of their multicast only the operand that is not multicast.
    """
    size = np.asarray(hardware.require("merging.requests_async"))
    drift = np.where(
        ctas_per_sm > 1, hardware.require("merging.drift_many_ctas"), hardware.require("merging.drift_one_cta")
    )
    group = np.minimum(access.group, access.tiles_m)
    if in_order:
        a = np.minimum(size, group) / size  # neighbours lie in different rows of tiles until the group ends
        b = distinct_among_neighbours(group, size)
        return LookupShares(a + (1 - a) * drift, b + (1 - b) * drift)
    cluster = access.multicast_a * access.multicast_b
    neighbours = np.maximum(size / cluster, 1.0)  # clusters whose requests can meet

    def share(multicast: Counts) -> Counts:
        alone = 1.0 / multicast
        merged = 1.0 / neighbours
        return np.where(multicast > 1, alone, merged + (1 - merged) * drift)

    return LookupShares(share(access.multicast_a), share(access.multicast_b))


def has_sharing(access: Access) -> NDArray[np.bool_]:
    """Whether any two CTAs of the launch read the same tile, shape (L,)."""
    return (access.tiles_m > 1) | (access.tiles_n > 1)
