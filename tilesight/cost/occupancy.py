"""CTAs per SM, what limits them, and how tiles fall into waves.

Registers are allocated per warp in units of ``sm.register_allocation_unit``; each CTA reserves
``sm.smem_reserved_per_cta_bytes`` of shared memory beside its own (CUDA programming guide, compute capabilities).
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tilesight.hardware.profile import Profile
from tilesight.plan.launch import Launch
from tilesight.plan.tile import Counts

LIMITERS = ("registers", "shared memory", "threads", "CTA slots", "persistent grid")


@dataclass(frozen=True)
class Occupancy:
    """CTAs resident per SM, shape (L,), and the index into ``LIMITERS`` of what limits them.

    ``ctas_per_sm`` of 0 means that one CTA does not fit.
    """

    ctas_per_sm: Counts
    limiter: NDArray[np.intp]


def registers_per_cta(registers: Counts, threads: Counts, hardware: Profile) -> Counts:
    """Registers that one CTA occupies: each warp takes a multiple of the allocation unit, shape (L,)."""
    unit = hardware.sm.register_allocation_unit
    warps = np.ceil(threads / hardware.sm.warp_size)
    return np.ceil(registers * hardware.sm.warp_size / unit) * unit * warps


def occupancy(launch: Launch, hardware: Profile) -> Occupancy:
    """CTAs that fit on one SM at once.

    min over registers, shared memory, threads and CTA slots of floor(available / needed by one CTA); a persistent
    kernel starts one CTA an SM.
    """
    sm = hardware.sm
    limits = np.stack(
        [
            np.floor(sm.registers / registers_per_cta(launch.registers, launch.threads, hardware)),
            np.floor(sm.smem_bytes / (launch.smem_bytes + sm.smem_reserved_per_cta_bytes)),
            np.floor(sm.threads_max / launch.threads),
            np.full_like(launch.threads, sm.ctas_max),
            np.where(launch.persistent, 1.0, np.inf),
        ]
    )
    limiter = np.argmin(limits, axis=0)
    return Occupancy(np.min(limits, axis=0), limiter)


@dataclass(frozen=True)
class Waves:
    """How the tiles of a launch fall into rounds; arrays of shape (L,).

    ``slots`` tiles are in flight at once, ``per_sm`` on each SM; ``full`` rounds are complete, then ``tail`` tiles
    remain, at most ``tail_per_sm`` on an SM. CTAs are refilled one by one: there is no barrier between rounds.
    """

    slots: Counts
    per_sm: Counts
    full: Counts
    tail: Counts
    tail_per_sm: Counts

    @property
    def rounds(self) -> Counts:
        """Tiles that the busiest slot works through, shape (L,)."""
        return self.full + (self.tail > 0)

    @property
    def waves(self) -> Counts:
        """Tiles over slots, a fraction, shape (L,)."""
        return self.full + self.tail / self.slots


def waves(launch: Launch, resident: Occupancy, hardware: Profile, sms: int | None = None) -> Waves:
    """Rounds of tiles on ``sms`` SMs (all by default).

    Clusters of P CTAs occupy P SMs of one GPC, so fewer of them fit than SMs / P says: their number comes from
    ``gpc.max_active_clusters`` where the profile has it.
    """
    available = float(hardware.sm_count if sms is None else sms)
    sm_slots = cluster_sms(launch.cluster, available, hardware)
    slots = sm_slots * resident.ctas_per_sm
    # a grid that leaves SMs empty spreads one CTA an SM before it doubles up
    full = np.floor(launch.tiles / slots)
    tail = launch.tiles - full * slots
    return Waves(slots, resident.ctas_per_sm, full, tail, np.ceil(tail / sm_slots))


def cluster_sms(cluster: Counts, available: float, hardware: Profile) -> Counts:
    """SMs that hold a cluster's CTAs at one CTA an SM, shape (L,); at least one cluster."""
    slots = np.maximum(np.floor(available / cluster), 1) * cluster
    active = hardware.gpc.max_active_clusters if hardware.gpc else None
    for size, count in (active or {}).items():
        share = available / hardware.sm_count
        slots = np.where(
            cluster == float(size), np.minimum(slots, max(np.floor(count * share), 1) * float(size)), slots
        )
    return slots
