"""Requests in flight: the share of asked bytes that reaches L2 as lookups.

CTAs are launched GPC by GPC and TPC by TPC, so neighbours in the raster are neighbours on the chip. Requests of up to
``merging.requests_async`` such neighbours for the same line (cp.async and TMA), or ``merging.requests_plain`` (plain
loads), share one lookup while they are in flight together. CTAs that share an operand drift apart along k, which pulls
the share back towards 1:

    s' = s + (1 - s) * loss

with s = distinct tiles among one such group of neighbours / the group's size. Cluster multicast divides an operand's
lookups by the CTAs that receive the copy.
"""

from dataclasses import dataclass

import numpy as np

from tilesight.hardware.profile import Profile
from tilesight.plan.access import Access
from tilesight.plan.tile import Counts


@dataclass(frozen=True)
class LookupShares:
    """Lookups / asked bytes, for the A and the B operand, shape (L,) each, in (0, 1].

    ``merged_a`` and ``merged_b`` are what they would be if drift ended no merging.
    """

    a: Counts
    b: Counts
    merged_a: Counts
    merged_b: Counts


def distinct_among_neighbours(sharers: Counts, size: Counts) -> Counts:
    """Distinct tiles seen by ``size`` neighbours when runs of ``sharers`` neighbours share one tile, over ``size``.

    Groups of neighbours and runs both begin at the first CTA; a group then begins at each multiple of gcd(size, sharers)
    in a run equally often, and (size - gcd) / sharers boundaries of runs fall inside it on average.

    Examples
    --------
    >>> import numpy as np
    >>> distinct_among_neighbours(np.array([1.0, 4.0, 8.0]), np.array(4.0))
    array([1.  , 0.25, 0.25])
    """
    common = np.gcd(sharers.astype(np.int64), size.astype(np.int64))
    distinct = 1.0 + (size - common) / sharers
    return np.minimum(distinct, size) / size


def merging_loss(access: Access, bulk: bool, ctas_per_sm: Counts, rounds: Counts, hardware: Profile) -> Counts:
    """How far drift along k ends merging: 0 all neighbours merge, 1 none do; below 0 further sharers merge too.

    ``rounds`` counts tiles over slots, at least 1. Bulk loads of persistent CTAs keep their pace (a constant). Pointer
    loads of one CTA an SM lose as successive rounds start apart; several CTAs on an SM compete for it, and lose with
    the elements of k that they have passed:

        one CTA    start + rise * y / (y + rounds_half),       y = rounds - 1
        several    most * x / (x + elements_half),             x = k * (rounds - 1/2)
    """
    if bulk:
        return np.full_like(access.k, hardware.require("merging.loss_bulk"))
    further = rounds - 1.0
    rise = hardware.require("merging.loss_one_cta_rise")
    half = hardware.require("merging.loss_one_cta_rounds")
    alone = hardware.require("merging.loss_one_cta_start") + rise * further / (further + half)
    passed = access.k * (rounds - 0.5)
    crowded = passed / (passed + hardware.require("merging.loss_many_ctas_elements"))
    return np.where(ctas_per_sm > 1, hardware.require("merging.loss_many_ctas") * crowded, alone)


def lookup_shares(
    access: Access, in_order: bool, bulk: bool, ctas_per_sm: Counts, rounds: Counts, hardware: Profile
) -> LookupShares:
    """Share of asked operand bytes that L2 looks up, after multicast and merging of requests in flight.

    ``in_order`` loops load with one instruction stream per CTA (pointer loads, bulk loads without multicast);
    warp-specialised clusters merge on top of their multicast only the operand that is not multicast.
    """
    size = np.asarray(hardware.require("merging.requests_async"))
    loss = merging_loss(access, bulk, ctas_per_sm, rounds, hardware)
    group = np.minimum(access.group, access.tiles_m)

    # each tile is looked up once at least: by whom no other CTA asks with, alone
    least_a, least_b = 1.0 / access.tiles_n, 1.0 / access.tiles_m

    def pulled(share: Counts) -> Counts:
        return share + (1.0 - share) * loss

    def shares(a: Counts, b: Counts, merged_a: Counts, merged_b: Counts) -> LookupShares:
        a, merged_a = (np.clip(share, least_a, 1.0) for share in (a, merged_a))
        b, merged_b = (np.clip(share, least_b, 1.0) for share in (b, merged_b))
        return LookupShares(a, b, merged_a, merged_b)

    if in_order:
        a = np.minimum(size, group) / size  # neighbours lie in different rows of tiles until the group ends
        b = distinct_among_neighbours(group, size)
        return shares(pulled(a), pulled(b), a, b)
    cluster = access.multicast_a * access.multicast_b
    # of clusters whose requests can meet; CTAs without a cluster meet two by two: as many rows as columns of tiles
    met = 1.0 / np.where(cluster > 1, np.maximum(size / cluster, 1.0), np.sqrt(size))
    merged = pulled(met)
    alone_a, alone_b = 1.0 / access.multicast_a, 1.0 / access.multicast_b
    several_a, several_b = access.multicast_a > 1, access.multicast_b > 1
    return shares(
        np.where(several_a, alone_a, merged),
        np.where(several_b, alone_b, merged),
        np.where(several_a, alone_a, met),
        np.where(several_b, alone_b, met),
    )
