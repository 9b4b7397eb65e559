"""Which GEMM configurations exist: instruction shapes, alignment, and the resources a CTA of each takes."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from tilesight.kernels.gemm_config import KERNELS, GemmColumns
from tilesight.plan.tile import Counts, Tile

CP_ASYNC, TMA_PERSISTENT, WARP_SPECIALIZED = range(len(KERNELS))
WGMMA_ROWS = 64
WGMMA_MAX_N = 256
BARRIER_BYTES = 8
TMA_PITCH_BYTES = 16
ACCUMULATOR_BYTES = 4
SPECIALIZED_EXTRA_WARPS = 4


def instruction_rows(columns: GemmColumns) -> Counts:
    """Tile size along the 64-row side of the instruction, shape (L,)."""
    return np.where(columns.swap_ab, columns.tile_n, columns.tile_m)


def instruction_columns(columns: GemmColumns) -> Counts:
    """Tile size along the n side of the instruction, shape (L,)."""
    return np.where(columns.swap_ab, columns.tile_m, columns.tile_n)


def uses_wgmma(columns: GemmColumns) -> NDArray[np.bool_]:
    """Whether the tile is computed with warpgroup instructions (64 rows or more), shape (L,)."""
    return instruction_rows(columns) >= WGMMA_ROWS


def threads(columns: GemmColumns) -> Counts:
    """Threads of a CTA, the loading warpgroup of specialised kernels included, shape (L,)."""
    extra = np.where(columns.kernel == WARP_SPECIALIZED, SPECIALIZED_EXTRA_WARPS, 0)
    return 32.0 * (columns.warps + extra)


def operand_tiles(columns: GemmColumns) -> tuple[Tile, Tile]:
    """The A tile (tile_m, tile_k) and the B tile (tile_k, tile_n) of one k-step."""
    size = np.full_like(columns.tile_m, columns.operand_bytes)
    return Tile(columns.tile_m, columns.tile_k, size), Tile(columns.tile_k, columns.tile_n, size)


def stage_bytes(columns: GemmColumns) -> Counts:
    """Bytes of one ring slot, an A and a B tile, shape (L,)."""
    a, b = operand_tiles(columns)
    return a.bytes + b.bytes


def smem_bytes(columns: GemmColumns) -> Counts:
    """Dynamic shared memory of a CTA, as compiled where stated, else predicted, in bytes, shape (L,).

    Ring of S stages; kernels with bulk loads add a staged output tile and one 8-byte barrier a stage. A specialised
    kernel needs a barrier pair a stage, and reuses ring slots for the output where both would not fit.
    """
    ring = columns.stages * stage_bytes(columns)
    tile = columns.tile_m * columns.tile_n * columns.operand_bytes
    persistent = ring + tile + columns.stages * BARRIER_BYTES
    specialized = ring + 2 * columns.stages * BARRIER_BYTES
    predicted = np.select(
        [columns.kernel == TMA_PERSISTENT, columns.kernel == WARP_SPECIALIZED], [persistent, specialized], ring
    )
    return np.where(np.isnan(columns.smem_bytes), predicted, columns.smem_bytes)


def registers(columns: GemmColumns) -> Counts:
    """Registers per thread, as compiled where stated, else predicted, shape (L,).

    Accumulators (tile_m * tile_n / threads) plus operand addresses and loop state. A specialised kernel moves
    registers from the loading warpgroup to the others, so that the CTA takes an even share.
    """
    accumulators = columns.tile_m * columns.tile_n / (32.0 * columns.warps)
    in_order = accumulators + np.where(columns.kernel == CP_ASYNC, 64.0, 40.0)
    even_share = np.floor(65536.0 / threads(columns) / 8.0) * 8.0
    specialized = np.minimum(even_share, 168.0)
    predicted = np.where(columns.kernel == WARP_SPECIALIZED, specialized, np.ceil(in_order / 8.0) * 8.0)
    return np.where(np.isnan(columns.registers), predicted, columns.registers)


def accumulators_per_thread(columns: GemmColumns) -> Counts:
    """fp32 accumulators that each computing thread holds, shape (L,)."""
    return columns.tile_m * columns.tile_n / (32.0 * columns.warps)


def pitch_bytes(columns: GemmColumns) -> tuple[Counts, Counts]:
    """Bytes between consecutive rows (or columns) of A and of B as they lie in memory, shape (L,) each."""
    a = np.where(columns.row_a, columns.k, columns.m) * columns.operand_bytes
    b = np.where(columns.row_b, columns.n, columns.k) * columns.operand_bytes
    return a, b


Problem = tuple[NDArray[np.bool_], str]


def illegal(columns: GemmColumns) -> Iterator[Problem]:
    """Masks of configurations that no compiler emits, each with a message.

    Fields of :class:`GemmColumns` in braces are filled in per row by the caller.
    """
    specialized = columns.kernel == WARP_SPECIALIZED
    rows, cols = instruction_rows(columns), instruction_columns(columns)
    k_instruction = 32.0 / columns.operand_bytes
    yield (
        columns.tile_k % k_instruction != 0,
        f"tile_k = {{tile_k:g}} is not a multiple of {k_instruction:g}, the k of one instruction",
    )
    yield (
        specialized & (rows % WGMMA_ROWS != 0),
        ("tile {tile_m:g}x{tile_n:g}: wgmma works on 64 rows; tile_m (tile_n with swap_ab) must be a multiple of 64"),
    )
    yield (
        specialized & ((cols % 8 != 0) | (cols > 2 * WGMMA_MAX_N)),
        ("tile {tile_m:g}x{tile_n:g}: the instruction's n side must be a multiple of 8, at most 512"),
    )
    power = (np.log2(columns.tile_m) % 1 != 0) | (np.log2(columns.tile_n) % 1 != 0) | (np.log2(columns.tile_k) % 1 != 0)
    small = (columns.tile_m < 16) | (columns.tile_n < 16)
    yield (
        ~specialized & (power | small),
        "tile {tile_m:g}x{tile_n:g}x{tile_k:g}: in-order kernels want powers of two, at least 16",
    )
    yield ~specialized & (np.log2(columns.warps) % 1 != 0), "warps = {warps:g}: in-order kernels want a power of two"
    yield ~specialized & columns.swap_ab, "swap_ab is for warp_specialized kernels; swap the operands yourself"
    yield (
        ~specialized & (columns.cluster_m * columns.cluster_n > 1),
        ("cluster {cluster_m:g}x{cluster_n:g}: only warp_specialized kernels form clusters here"),
    )
    yield (
        ~specialized & (np.nan_to_num(columns.split_k, nan=2.0) > 1),
        "split_k: only warp_specialized kernels split k here",
    )
    yield columns.cluster_m * columns.cluster_n > 16, "cluster {cluster_m:g}x{cluster_n:g} has more than 16 CTAs"
    ksteps = np.ceil(columns.k / columns.tile_k)
    yield np.nan_to_num(columns.split_k, nan=1.0) > ksteps, "split_k = {split_k:g} is more than the k-steps there are"
    a, b = pitch_bytes(columns)
    bulk = columns.kernel == TMA_PERSISTENT
    yield (
        bulk & ((a % TMA_PITCH_BYTES != 0) | (b % TMA_PITCH_BYTES != 0)),
        ("k = {k:g}, n = {n:g}: bulk loads want rows of a multiple of 16 bytes; use kernel cp_async"),
    )
