"""Requests in flight: the share of asked bytes that reaches L2 as lookups.

CTAs are launched GPC by GPC and TPC by TPC, so neighbours in the raster are neighbours on the chip. Requests of up to
``merging.requests_async`` SMs of a GPC for the same line (cp.async and bulk copies), or ``merging.requests_plain`` (plain
loads), share one lookup while they are in flight together. Neighbours are; of those farther away in the GPC a share is:

    s' = 1 - near (1 - s_aligned) - far (s_aligned - s_gpc)
    near = near_share exp(-alone_loss nu) / (1 + sigma / spread_elements)

with s lookups / requests if aligned neighbours merge, or all of a GPC. Two things part neighbours: blocks that one of them
alone has to bring from DRAM (nu, their bytes / all that is asked), and the spread sigma of their positions along k that
drift has brought about when half of the launch is over. Cluster multicast divides an operand's lookups by the CTAs that
receive the copy.
"""

from dataclasses import dataclass

import numpy as np

from tilesight.hardware.profile import Profile
from tilesight.plan.access import Access
from tilesight.plan.tile import Counts


@dataclass(frozen=True)
class LookupShares:
    """Lookups / asked bytes, for the A and the B operand, shape (L,) each, in (0, 1].

    ``merged_a`` and ``merged_b`` are what they would be if nothing parted neighbours.
    """

    a: Counts
    b: Counts
    merged_a: Counts
    merged_b: Counts


def near_share(alone_share: Counts, spread_elements: Counts, hardware: Profile) -> Counts:
    """Share of what aligned neighbours could merge that they do: ``near`` of the module's equations, shape as given.

    ``alone_share`` is what one neighbour alone brings from DRAM over all that is asked, ``spread_elements`` the spread of
    positions along k.
    """
    kept = np.exp(-hardware.require("merging.alone_loss") * alone_share)
    drifted = 1.0 + spread_elements / hardware.require("merging.spread_elements")
    share: Counts = hardware.require("merging.near_share") * kept / drifted
    return share


def lookup_shares(access: Access, near: Counts, hardware: Profile) -> LookupShares:
    """Share of asked operand bytes that L2 looks up for CTAs of clusters, after multicast, shape (L,).

    Each merges on top of its multicast only the operand that is not multicast: as ``near``, the share of what neighbours
    could merge that they do.
    """
    most, size = hardware.require("merging.near_share"), hardware.require("merging.requests_async")
    cluster = access.multicast_a * access.multicast_b
    # of clusters whose requests can meet; CTAs without a cluster meet two by two: as many rows as columns of tiles
    met = 1.0 / np.where(cluster > 1, np.maximum(size / cluster, 1.0), np.sqrt(size))
    merged, best = (1.0 - kept * (1.0 - met) for kept in (near, np.full_like(near, most)))
    several_a, several_b = access.multicast_a > 1, access.multicast_b > 1
    return at_least_once(
        access,
        LookupShares(
            np.where(several_a, 1.0 / access.multicast_a, merged),
            np.where(several_b, 1.0 / access.multicast_b, merged),
            np.where(several_a, 1.0 / access.multicast_a, best),
            np.where(several_b, 1.0 / access.multicast_b, best),
        ),
    )


def at_least_once(access: Access, shares: LookupShares) -> LookupShares:
    """Shares at which each tile is looked up once: by whom no other CTA asks with, alone."""
    a, merged_a = (np.clip(share, 1.0 / access.tiles_n, 1.0) for share in (shares.a, shares.merged_a))
    b, merged_b = (np.clip(share, 1.0 / access.tiles_m, 1.0) for share in (shares.b, shares.merged_b))
    return LookupShares(a, b, merged_a, merged_b)
