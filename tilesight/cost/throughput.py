"""Demand / rate: busy time per resource and delays of actions, for one k-step of everything resident.

One step advances every resident CTA by one iteration. With q CTAs on the busiest SM and ``total`` on the chip:

    tensor   q * [instructions * max(flop / rate, operand bytes / shared-memory rate) + step overhead] cycles
    l2       total * lookup bytes of a stage / lookup rate of the chip
    dram     total * DRAM bytes per CTA and step / read rate
    fill     latency + (share that misses L2) * extra latency + stage bytes / fill rate      (a delay, not busy time)

Tensor work goes by the SM clock, which falls under load; L2, DRAM and the way to them do not, so that their rates are
per second.
"""

from dataclasses import dataclass

import numpy as np

from tilesight.cost.merging import LookupShares
from tilesight.hardware.profile import Profile
from tilesight.plan.plan import Plan
from tilesight.plan.tile import Counts

FULL_BOX_ROWS = 64.0
BOX_ROW_BYTES = 128.0
"""Bytes of one row of a bulk-copy box: the swizzle width."""


@dataclass(frozen=True)
class StepCosts:
    """What one k-step of one CTA costs; arrays of shape (L,).

    ``tensor_cycles`` and ``issue_cycles`` of its SM, ``chain_cycles`` that its own instructions take one after the
    other, ``copy_s`` for which it holds the copy engine, ``lookup_bytes`` at L2, and the latency and transfer time of
    filling one stage; co-resident CTAs share the rate of their SM.
    """

    tensor_cycles: Counts
    chain_cycles: Counts
    issue_cycles: Counts
    copy_s: Counts
    lookup_bytes: Counts
    fill_latency_s: Counts
    fill_bytes_s: Counts

    @property
    def fill_s(self) -> Counts:
        """Time to fill one stage of one CTA, from issue to barrier, in seconds, shape (L,)."""
        return self.fill_latency_s + self.fill_bytes_s


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
    rate = hardware.tensor[plan.dtype].flop_per_cycle_per_sm * hardware.require("loop.mma_sync_rate_share")
    flop = 2.0 * access.tile_m * access.tile_n * access.tile_k
    return np.maximum((reads + writes) / port, flop / rate)


def step_costs(plan: Plan, shares: LookupShares, resident_share: Counts, hardware: Profile) -> StepCosts:
    """Costs of one k-step of one CTA under the given lookup shares and residency.

    A stage waits for its slowest tile, so the share that misses L2 counts by problem, not by average hit rate.
    """
    matrix = plan.demands["mma"].matrix
    assert matrix is not None  # every GEMM plan has matrix instructions
    loop_kind = "in_order" if plan.in_order else "specialized"
    rate = hardware.tensor[plan.dtype].flop_per_cycle_per_sm
    port = hardware.require("sm.smem_bandwidth_bytes_per_cycle")
    tensor = matrix.count * wgmma_cycles(matrix.n, rate, port, matrix.operand_bytes)
    tensor = tensor + hardware.require(f"loop.step_{loop_kind}_cycles")
    small = plan.flags["small_rows"]
    if np.any(small):
        tensor = np.where(small, mma_sync_step_cycles(plan, hardware), tensor)

    access = plan.access
    a_bytes = access.tile_m * access.tile_k * access.element_bytes
    b_bytes = access.tile_n * access.tile_k * access.element_bytes
    latency = hardware.require("fill.latency_l2_s")
    extra = hardware.require("fill.latency_dram_extra_s")
    transfer, held = _transfer_s(plan, a_bytes, b_bytes, hardware)
    return StepCosts(
        tensor_cycles=tensor,
        chain_cycles=_chain_cycles(plan, hardware),
        issue_cycles=_scalar_cycles(plan, hardware),
        lookup_bytes=a_bytes * shares.a + b_bytes * shares.b,
        fill_latency_s=latency + (1.0 - resident_share) * extra,
        fill_bytes_s=transfer,
        copy_s=held,
    )


def _chain_cycles(plan: Plan, hardware: Profile) -> Counts:
    """Least cycles of a k-step that the loop's own instructions take, shape (L,).

    Specialised loops whose bulk copies have boxes of 64 rows and more are slower at it than those that split their
    boxes over a cluster.
    """
    family = plan.kernel.split(".")[1]
    chain = np.full(len(plan), hardware.require(f"loop.chain_{family}_cycles"))
    if plan.in_order:
        return chain
    access = plan.access
    rows = np.maximum(access.tile_m / access.multicast_a, access.tile_k / access.multicast_b)
    return np.where(rows >= FULL_BOX_ROWS, hardware.require("loop.chain_full_box_cycles"), chain)


def _transfer_s(plan: Plan, a_bytes: Counts, b_bytes: Counts, hardware: Profile) -> tuple[Counts, Counts]:
    """Bytes of one stage / fill rate of an SM, and the time for which they hold its bulk-copy engine, shape (L,) each.

    Rows whose pitch is not a multiple of 128 bytes straddle lines. cp.async keeps a share of its rate for them. The
    engine of bulk copies works through boxes row by row, 128 bytes at a time, the slower the less aligned the pitch is.
    """
    engine = plan.demands["load"].engine
    per_s = hardware.require(f"fill.{engine}_bytes_per_s")
    transfer, held = (a_bytes + b_bytes) / per_s, np.zeros_like(a_bytes)
    copies = (plan.access.multicast_a, plan.access.multicast_b)  # a CTA issues its share of what a cluster shares
    for size, pitch, shared in zip((a_bytes, b_bytes), plan.pitch_bytes, copies, strict=True):
        odd = pitch % BOX_ROW_BYTES != 0
        if engine == "cp_async":
            if np.any(odd):
                left = hardware.require("fill.cp_async_unaligned_share")
                transfer = transfer + np.where(odd, size / per_s * (1.0 / left - 1.0), 0.0)
            continue
        row_s = np.full_like(size, hardware.require("fill.row_128_s"))
        for power in (64, 32, 16) if np.any(odd) else ():
            here = (pitch % power == 0) & (pitch % (2 * power) != 0)
            row_s = np.where(here, hardware.require(f"fill.row_{power}_s"), row_s)
        rows_s = size / shared / BOX_ROW_BYTES * row_s
        held = held + rows_s
        transfer = transfer + np.maximum(rows_s - size / per_s, 0.0)
    return transfer, held


def outside_rows_s(plan: Plan, hardware: Profile) -> Counts:
    """Time for which rows outside the matrix hold the bulk-copy engine, in the most ragged tile, shape (L,).

    A tile that sticks out of A has whole rows outside, one that sticks out of B whole boxes of 128 bytes, tile_k rows
    each. Other loads have none.
    """
    access = plan.access
    if plan.demands["load"].engine != "tma":
        return np.zeros(len(plan))
    box = BOX_ROW_BYTES / access.element_bytes
    rows_out = access.tiles_m * access.tile_m - access.m
    boxes_out = np.floor((access.tiles_n * access.tile_n - access.n) / box)
    deep = np.ceil(access.tile_k / box)
    return (rows_out * deep + boxes_out * access.tile_k) * hardware.require("fill.row_outside_s")


def _scalar_cycles(plan: Plan, hardware: Profile) -> Counts:
    """Cycles a k-step spends issuing element-wise loads where strides forbid vectors, 0 elsewhere, shape (L,)."""
    access = plan.access
    elements = plan.flags["scalar_a"] * access.tile_m + plan.flags["scalar_b"] * access.tile_n
    if not np.any(elements):
        return np.zeros(len(plan))
    spilled = plan.flags["spills"]
    rate = np.where(
        spilled, hardware.require("fill.spilled_elements_per_cycle"), hardware.require("fill.scalar_elements_per_cycle")
    )
    return elements * access.tile_k / rate
