"""Demand / rate: busy time per resource and delays of actions, for one k-step of everything resident.

One step advances every resident CTA by one iteration. With q CTAs on the busiest SM and ``total`` on the chip:

    tensor   q * [instructions * (max(flop / rate, operand bytes / shared-memory rate) + gap) + step overhead]
    l2       total * lookup bytes of a stage / lookup rate of the chip
    dram     total * DRAM bytes per CTA and step / read rate
    fill     latency + (share that misses L2) * extra latency + stage bytes / fill rate      (a delay, not busy time)

Cycles are SM cycles at the boost clock.
"""

from dataclasses import dataclass

import numpy as np

from tilesight.cost.merging import LookupShares
from tilesight.hardware.profile import Profile
from tilesight.plan.plan import Plan
from tilesight.plan.tile import Counts

BOX_ROW_BYTES = 128.0
"""Bytes of one row of a bulk-copy box: the swizzle width."""


@dataclass(frozen=True)
class StepCosts:
    """What one k-step costs, in cycles; arrays of shape (L,).

    ``tensor`` is for one CTA, ``lookups`` and ``dram`` for one CTA's share of the chip-wide rates, ``fill`` the time to
    fill one stage.
    """

    tensor: Counts
    lookups: Counts
    fill: Counts
    scalar_issue: Counts


def wgmma_cycles(n: Counts, flop_per_cycle: float, smem_bytes_per_cycle: float, operand_bytes: Counts) -> Counts:
    """Cycles of one m64 x n instruction with both operands in shared memory, shape (L,).

    max(2 * 64 * n * k / rate, (64 + n) * k * bytes / shared-memory rate), k = 32 bytes of operand: the second term is
    the read of A and B and binds below n = 64 for 16-bit types.

    Examples
    --------
    >>> import numpy as np
    >>> wgmma_cycles(np.array([8.0, 64.0, 256.0]), 4096.0, 128.0, np.array(2.0))
    array([ 18.,  32., 128.])
    """
    deep = 32.0 / operand_bytes
    return np.maximum(2.0 * 64.0 * n * deep / flop_per_cycle, (64.0 + n) * deep * operand_bytes / smem_bytes_per_cycle)


def mma_sync_step_cycles(plan: Plan, hardware: Profile) -> Counts:
    """Cycles of one k-step through mma.sync: bound by ldmatrix and stage writes at the shared-memory port, shape (L,).

    Warps form a grid of at most tile_m / 16 rows; each k16 a warp row re-reads B and a warp column re-reads A.
    """
    access, port = plan.access, hardware.require("sm.smem_bandwidth_bytes_per_cycle")
    warps = plan.launch.threads / 32.0
    warps_m = np.minimum(np.minimum(2.0, warps), np.maximum(access.tile_m / 16.0, 1.0))
    warps_n = warps / warps_m
    reads = (access.tile_m * warps_n + access.tile_n * warps_m) * access.tile_k * access.element_bytes
    writes = (access.tile_m + access.tile_n) * access.tile_k * access.element_bytes
    rate = hardware.tensor[plan.dtype].flop_per_cycle_per_sm * hardware.require("wgmma.mma_sync_rate_share")
    flop = 2.0 * access.tile_m * access.tile_n * access.tile_k
    return np.maximum((reads + writes) / port, flop / rate)


def step_costs(plan: Plan, shares: LookupShares, resident_share: Counts, hardware: Profile) -> StepCosts:
    """Costs of one k-step of one CTA under the given lookup shares and residency."""
    matrix = plan.demands["mma"].matrix
    assert matrix is not None  # every GEMM plan has matrix instructions
    loop_kind = "in_order" if plan.in_order else "specialized"
    rate = hardware.tensor[plan.dtype].flop_per_cycle_per_sm
    port = hardware.require("sm.smem_bandwidth_bytes_per_cycle")
    one = wgmma_cycles(matrix.n, rate, port, matrix.operand_bytes)
    tensor = matrix.count * (one + hardware.require(f"wgmma.gap_{loop_kind}_cycles"))
    tensor = tensor + hardware.require(f"wgmma.step_{loop_kind}_cycles")
    small = plan.flags["small_rows"]
    if np.any(small):
        tensor = np.where(small, mma_sync_step_cycles(plan, hardware), tensor)

    access = plan.access
    a_bytes = access.tile_m * access.tile_k * access.element_bytes
    b_bytes = access.tile_n * access.tile_k * access.element_bytes
    lookups = a_bytes * shares.a + b_bytes * shares.b
    return StepCosts(
        tensor=tensor,
        lookups=lookups / hardware.require("l2.lookup_bytes_per_cycle"),
        fill=_fill_cycles(plan, a_bytes, b_bytes, resident_share, hardware),
        scalar_issue=_scalar_cycles(plan, hardware),
    )


def _fill_cycles(plan: Plan, a_bytes: Counts, b_bytes: Counts, resident_share: Counts, hardware: Profile) -> Counts:
    """Time to fill one stage: latency + miss * extra latency + bytes / rate; unaligned rows cost their own rate.

    A stage waits for its slowest tile, so the share that misses counts by problem, not by average hit rate.
    """
    engine = plan.demands["load"].engine
    per_cycle = hardware.require(f"fill.{engine}_bytes_per_cycle")
    latency = hardware.require("fill.latency_l2_cycles")
    extra = hardware.require("fill.latency_dram_extra_cycles")
    a_rate, b_rate = np.full_like(a_bytes, per_cycle), np.full_like(b_bytes, per_cycle)
    if engine == "tma" and (np.any(plan.flags["unaligned_a"]) or np.any(plan.flags["unaligned_b"])):
        slow = BOX_ROW_BYTES / hardware.require("fill.tma_unaligned_row_cycles")
        a_rate = np.where(plan.flags["unaligned_a"], np.minimum(slow, per_cycle), a_rate)
        b_rate = np.where(plan.flags["unaligned_b"], np.minimum(slow, per_cycle), b_rate)
    return latency + (1.0 - resident_share) * extra + a_bytes / a_rate + b_bytes / b_rate


def _scalar_cycles(plan: Plan, hardware: Profile) -> Counts:
    """Cycles a k-step spends issuing element-wise loads where strides forbid vectors, 0 elsewhere, shape (L,)."""
    scalar = plan.flags["scalar_loads"]
    if not np.any(scalar):
        return np.zeros(len(plan))
    elements = (plan.access.tile_m + plan.access.tile_n) * plan.access.tile_k
    return np.where(scalar, elements / hardware.require("fill.scalar_elements_per_cycle"), 0.0)
