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
from numpy.typing import NDArray

from tilesight.hardware.profile import Profile
from tilesight.plan.action import MatrixInstructions
from tilesight.plan.plan import Plan
from tilesight.plan.tile import Counts

FROM_SMEM = {"wgmma": True, "tcgen05": True, "mma_sync": False, "mfma": False}
"""Whether matrix instructions read their operands from shared memory by themselves."""
K16_BYTES = 32.0
FULL_BOX_ROWS = 64.0
WARP_GRIDS = (1.0, 2.0, 4.0, 8.0)
LEAST_WARP_ROWS = 16.0
BOX_ROW_BYTES = 128.0
"""Bytes of one row of a bulk-copy box: the swizzle width."""


@dataclass(frozen=True)
class StepCosts:
    """What one k-step of one CTA costs; arrays of shape (L,).

    ``tensor_cycles`` and ``issue_cycles`` of its SM, ``chain_cycles`` that its own instructions take one after the
    other, ``copy_s`` for which it holds the copy engine, and the latency and transfer time of filling one stage;
    co-resident CTAs share the rate of their SM.
    """

    tensor_cycles: Counts
    chain_cycles: Counts
    issue_cycles: Counts
    copy_s: Counts
    fill_latency_s: Counts
    fill_bytes_s: Counts

    @property
    def fill_s(self) -> Counts:
        """Time to fill one stage of one CTA, from issue to barrier, in seconds, shape (L,)."""
        return self.fill_latency_s + self.fill_bytes_s


def instruction_cycles(matrix: MatrixInstructions, flop_per_cycle: float, smem_bytes_per_cycle: float) -> Counts:
    """Cycles of one m x n x k instruction with both operands in shared memory, shape (L,).

    max(2 * m * n * k / rate, rows read * k * bytes / shared-memory rate): the second term is the read of A and B and
    binds below n = 64 for 16-bit types of wgmma.

    Examples
    --------
    >>> import numpy as np
    >>> m, n, k, one = np.array(64.0), np.array([8.0, 64.0, 256.0]), np.array(16.0), np.array(1.0)
    >>> instruction_cycles(MatrixInstructions("wgmma", one, m, n, k, 2 * one, m + n), 4096.0, 128.0)
    array([ 18.,  32., 128.])
    """
    flop = 2.0 * matrix.m * matrix.n * matrix.k
    read = matrix.read_rows * matrix.k * matrix.operand_bytes
    return np.maximum(flop / flop_per_cycle, read / smem_bytes_per_cycle)


def register_step_cycles(plan: Plan, hardware: Profile) -> Counts:
    """Cycles of one k-step whose operands pass through registers, shape (L,).

    The larger of the shared-memory port (ldmatrix reads and stage writes) and the instructions' rate. Warps form the
    grid that reads least: each k a row of warps re-reads B and a column re-reads A.
    """
    access, port = plan.access, hardware.require("sm.smem_bandwidth_bytes_per_cycle")
    warps = plan.launch.threads / hardware.sm.warp_size
    size = access.tile_k * access.element_bytes
    reads = np.full_like(access.tile_m, np.inf)
    for across in WARP_GRIDS:  # warps along m
        fits = (across <= warps) & (access.tile_m >= LEAST_WARP_ROWS * across)
        asked = (access.tile_m * warps / across + access.tile_n * across) * size
        reads = np.where(fits | (across == 1), np.minimum(reads, asked), reads)
    writes = (access.tile_m + access.tile_n) * size
    share = hardware.require("loop.mma_sync_rate_share")
    rate = hardware.tensor[plan.dtype].flop_per_cycle_per_sm * share
    flop = plan.demands["mma"].flop
    assert flop is not None  # every product multiplies
    return np.maximum((reads + writes) / port, flop / rate)


def stage_lookups(plan: Plan, share_a: Counts, share_b: Counts) -> Counts:
    """Bytes that L2 looks up for one stage of one CTA, shape (L,)."""
    access = plan.access
    return access.tile_k * access.element_bytes * (access.tile_m * share_a + access.tile_n * share_b)


def step_costs(plan: Plan, resident_share: Counts, hardware: Profile) -> StepCosts:
    """Costs of one k-step of one CTA at the given residency.

    A stage waits for its slowest tile, so the share that misses L2 counts by problem, not by average hit rate.
    """
    matrix = plan.demands["mma"].matrix
    assert matrix is not None  # every GEMM plan has matrix instructions
    loop_kind = "in_order" if plan.in_order else "specialized"
    rate = hardware.tensor[plan.dtype].flop_per_cycle_per_sm
    port = hardware.require("sm.smem_bandwidth_bytes_per_cycle")
    from_smem = FROM_SMEM[matrix.instruction]
    tensor = (
        matrix.count * instruction_cycles(matrix, rate, port) if from_smem else register_step_cycles(plan, hardware)
    )
    if from_smem and np.any(plan.flags["small_rows"]):
        tensor = np.where(plan.flags["small_rows"], register_step_cycles(plan, hardware), tensor)
    tensor = tensor + hardware.require(f"loop.step_{loop_kind}_cycles")

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
        fill_latency_s=latency + (1.0 - resident_share) * extra,
        fill_bytes_s=transfer,
        copy_s=held,
    )


LIKE = {"tma": "tma_persistent"}
"""Kernel families whose loop is that of another."""


def _chain_cycles(plan: Plan, hardware: Profile) -> Counts:
    """Least cycles of a k-step that the loop's own instructions take, shape (L,).

    Operands that pass through registers are loaded and multiplied one after the other by each warp. Specialised loops
    that bring an operand in boxes of 64 rows of k and more are slower at it than those that split such boxes over a
    cluster, and than those whose boxes have k along the rows.
    """
    family = plan.kernel.split(".")[1]
    matrix = plan.demands["mma"].matrix
    assert matrix is not None  # every product multiplies
    chain = np.full(len(plan), hardware.require(f"loop.chain_{LIKE.get(family, family)}_cycles"))
    access = plan.access
    through_registers = plan.flags["small_rows"] | (not FROM_SMEM[matrix.instruction])
    if np.any(through_registers):
        deep = access.tile_k * access.element_bytes / K16_BYTES
        slow = deep * hardware.require("loop.chain_registers_k16_cycles")
        chain = np.where(through_registers, np.maximum(chain, slow), chain)
    if plan.in_order:
        return chain
    rows_a = np.where(plan.flags["k_major_a"], 0.0, access.tile_k / access.multicast_a)
    rows_b = np.where(plan.flags["k_major_b"], 0.0, access.tile_k / access.multicast_b)
    rows = np.maximum(rows_a, rows_b)
    full = hardware.require("loop.chain_full_box_cycles")
    return np.where(rows >= FULL_BOX_ROWS, np.maximum(chain, full), chain)


def _transfer_s(plan: Plan, a_bytes: Counts, b_bytes: Counts, hardware: Profile) -> tuple[Counts, Counts]:
    """Bytes of one stage / fill rate of an SM, and the time for which they hold its bulk-copy engine, shape (L,) each.

    Rows whose pitch is not a multiple of 128 bytes straddle lines. cp.async keeps a share of its rate for them. The
    engine of bulk copies works through boxes row by row, 128 bytes at a time, the slower the less aligned the pitch is.
    """
    engine = plan.demands["load"].engine
    per_s = hardware.require(f"fill.{engine}_bytes_per_s")
    half_a, half_b = 1.0 + plan.flags["halved_a"], 1.0 + plan.flags["halved_b"]
    a_bytes, b_bytes = a_bytes / half_a, b_bytes / half_b  # a pair of CTAs stages one operand in halves
    transfer, held = (a_bytes + b_bytes) / per_s, np.zeros_like(a_bytes)
    # a CTA issues its share of what a cluster shares
    copies = (plan.access.multicast_a / half_a, plan.access.multicast_b / half_b)
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


def outside_rows_s(plan: Plan, slots: Counts, rounds: Counts, hardware: Profile) -> Counts:
    """Time a k-step for which rows outside the matrix hold the bulk-copy engine of the busiest SM, shape (L,).

    A tile that sticks out of an operand has whole rows of 128 bytes outside: one for each row or column of C too many
    where k is contiguous, else tile_k for each 128 bytes too many. All that are outside at once, in up to ``slots``
    tiles, share ``fill.rows_outside_per_s``; the tile that sticks out of both has ``fill.row_outside_s`` a row at worst
    and the time of a row inside at best. Of its ``rounds`` tiles the busiest slot has ceil(such tiles / slots).
    """
    access = plan.access
    if plan.demands["load"].engine != "tma":
        return np.zeros(len(plan))
    box = BOX_ROW_BYTES / access.element_bytes
    deep = np.ceil(access.tile_k / box)

    def rows(sides: Counts, k_major: NDArray[np.bool_]) -> Counts:
        return np.where(k_major, sides * deep, np.floor(sides / box) * access.tile_k)

    # clusters of multicast_b x multicast_a tiles pad the grid with tiles that lie wholly outside
    padded_m = np.ceil(access.tiles_m / access.multicast_b) * access.multicast_b
    padded_n = np.ceil(access.tiles_n / access.multicast_a) * access.multicast_a
    over_a, over_b = padded_m * access.tile_m - access.m, padded_n * access.tile_n - access.n
    k_major_a, k_major_b = plan.flags["k_major_a"], plan.flags["k_major_b"]
    rows_a, rows_b = rows(over_a, k_major_a), rows(over_b, k_major_b)
    if not np.any(rows_a + rows_b):
        return np.zeros(len(plan))
    over_rows = np.ceil(over_a / access.tile_m) * (rows_a > 0)
    over_columns = np.ceil(over_b / access.tile_n) * (rows_b > 0)
    ragged = (over_rows * padded_n + over_columns * padded_m - over_rows * over_columns) * access.parts
    share = np.minimum(slots / np.maximum(ragged, 1.0), 1.0) * access.parts  # of what sticks out, at once
    least, most = hardware.require("fill.row_128_s"), hardware.require("fill.row_outside_s")
    # a cluster loads what it shares once
    at_once = share * (padded_n * rows_a / access.multicast_a + padded_m * rows_b / access.multicast_b)
    corner = rows(np.minimum(over_a, access.tile_m), k_major_a) + rows(np.minimum(over_b, access.tile_n), k_major_b)
    shared = at_once / hardware.require("fill.rows_outside_per_s")
    step_s = np.clip(shared, corner * least, corner * max(least, most))
    seconds: Counts = step_s * np.minimum(np.ceil(ragged / slots) / rounds, 1.0)
    return seconds


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
