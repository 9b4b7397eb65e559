"""CTAs per SM, what limits them, and how tiles fall into waves.

Registers are allocated per warp in units of ``sm.register_allocation_unit``; each CTA reserves
``sm.smem_reserved_per_cta_bytes`` of shared memory beside its own (CUDA programming guide, compute capabilities).
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tilesight.errors import ConfigError, UnsupportedError
from tilesight.hardware.profile import Profile
from tilesight.plan.launch import Launch
from tilesight.plan.tile import Counts

CLUSTER_ARCHITECTURES = ("sm_90", "sm_100", "sm_103", "sm_120")
"""GPUs whose CTAs form clusters."""
CLUSTER_MAX = 16
"""CTAs of the largest cluster; more than 8 are not portable."""

LIMITERS = ("registers", "shared memory", "threads", "CTA slots", "persistent grid")


@dataclass(frozen=True)
class Occupancy:
    """CTAs resident per SM, at least 1, shape (L,), and the index into ``LIMITERS`` of what limits them."""

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

    Raises
    ------
    ConfigError
        If not even one CTA fits; the error names the first such launch, the resource and what there is of it.
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
    fitting = np.min(limits, axis=0)
    if np.any(fitting < 1):
        row = int(np.argmax(fitting < 1))
        raise ConfigError(_too_large(launch, row, LIMITERS[limiter[row]], hardware))
    return Occupancy(fitting, limiter)


def _too_large(launch: Launch, row: int, resource: str, hardware: Profile) -> str:
    """Why no CTA of a launch fits on an SM."""
    sm = hardware.sm
    threads, smem = launch.threads[row], launch.smem_bytes[row]
    why = {
        "threads": f"it has {threads:.0f}, and sm.threads_max = {sm.threads_max}",
        "shared memory": f"it takes {smem:.0f} bytes and {sm.smem_reserved_per_cta_bytes} reserved ones, "
        f"and sm.smem_bytes = {sm.smem_bytes}",
        "registers": f"its {threads:.0f} threads of {launch.registers[row]:.0f} registers take "
        f"{registers_per_cta(launch.registers, launch.threads, hardware)[row]:.0f}, and sm.registers = {sm.registers}",
    }
    where = f"configuration {row}: " if len(launch.threads) > 1 else ""
    return f"{where}no CTA fits on an SM of {hardware.name} by {resource}: {why[resource]}; take a smaller tile"


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

    Clusters occupy fewer SMs than there are; see :func:`cluster_sms`.
    """
    available = float(hardware.sm_count if sms is None else sms)
    sm_slots = cluster_sms(launch.cluster, available, hardware)
    slots = sm_slots * resident.ctas_per_sm
    # a grid that leaves SMs empty spreads one CTA an SM before it doubles up
    full = np.floor(launch.tiles / slots)
    tail = np.clip(launch.tiles - full * slots, 0.0, slots)
    return Waves(slots, resident.ctas_per_sm, full, tail, np.ceil(tail / sm_slots))


def cluster_sms(cluster: Counts, available: float, hardware: Profile) -> Counts:
    """SMs that hold a cluster's CTAs at one CTA an SM, shape (L,); at least one cluster.

    Clusters of P CTAs occupy P SMs of one GPC, so fewer fit than SMs / P says. With C_P = ``gpc.max_active_clusters.P``
    that an idle GPU holds,

        clusters = min(floor(available / P), floor(available / SMs * C_S * S / P)),       S = P

    Where a size is not in the profile, S is the next larger one that is: a smaller cluster can use at least the SMs that
    a larger one does. GPUs without clusters are taken to place CTAs anywhere.

    Raises
    ------
    ConfigError
        If the GPU has clusters and a cluster has more CTAs than any can.
    UnsupportedError
        If the GPU has clusters and the profile knows no size of P or more; the error names the field.
    """
    slots = np.maximum(np.floor(available / cluster), 1.0) * cluster
    if hardware.architecture not in CLUSTER_ARCHITECTURES:
        return slots
    for size in np.unique(cluster[cluster > 1]):
        known = _known_size(float(size), hardware)
        usable = available * known * hardware.require(f"gpc.max_active_clusters.{known}")  # of all SMs, times sm_count
        clusters = max(np.floor(usable / (hardware.sm_count * size)), 1.0)
        slots = np.where(cluster == size, np.minimum(slots, clusters * size), slots)
    return slots


def _known_size(size: float, hardware: Profile) -> int:
    """The smallest cluster size of the profile that is no smaller than ``size``."""
    if size > CLUSTER_MAX:
        raise ConfigError(f"a cluster of {size:.0f} CTAs; the largest has {CLUSTER_MAX}")
    known = sorted(int(name) for name in hardware.gpc.max_active_clusters or ())
    larger = [each for each in known if each >= size]
    if larger:
        return larger[0]
    name = f"gpc.max_active_clusters.{1 << (int(size) - 1).bit_length()}"
    most = f"its largest cluster has {known[-1]} CTAs" if known else "it knows no clusters"
    raise UnsupportedError(
        f"profile {hardware.name!r} has no {name} for clusters of {size:.0f} CTAs, {most}; measure it or state it",
        field=name,
    )
