"""Which GEMM configurations exist: instruction shapes, alignment, and the resources a CTA of each takes."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from tilesight.kernels.gemm_config import KERNELS, GemmColumns
from tilesight.plan.tile import Counts, Tile

CP_ASYNC, TMA_PERSISTENT, WARP_SPECIALIZED, TMA = range(len(KERNELS))
TILE_ROWS = 64
"""Rows below which instructions with operands in shared memory are not used."""
BARRIER_BYTES = 8
BYTE_BITS = 8
TMA_PITCH_BYTES = 16
VECTOR_ELEMENTS = 16
"""Pointer loads are vectorised only where strides are known to divide by 16 elements."""
ACCUMULATOR_BYTES = 4
SPECIALIZED_EXTRA_WARPS = 4
WARPGROUP_WARPS = 4
TENSOR_MEMORY_LANES, TENSOR_MEMORY_COLUMNS = 128, 512


def instruction_rows(columns: GemmColumns) -> Counts:
    """Tile size along the row side of the instruction, shape (L,)."""
    return np.where(columns.swap_ab, columns.tile_n, columns.tile_m)


def instruction_columns(columns: GemmColumns) -> Counts:
    """Tile size along the n side of the instruction, shape (L,)."""
    return np.where(columns.swap_ab, columns.tile_m, columns.tile_n)


def falls_back(columns: GemmColumns) -> NDArray[np.bool_]:
    """Whether a tile has too few rows for instructions that read shared memory and takes mma.sync instead, shape (L,)."""
    few = instruction_rows(columns) < TILE_ROWS
    found: NDArray[np.bool_] = few & columns.family.from_smem & (columns.kernel != WARP_SPECIALIZED)
    return found


def threads(columns: GemmColumns) -> Counts:
    """Threads of a CTA, the loading warpgroup of specialised kernels included, shape (L,)."""
    extra = np.where(columns.kernel == WARP_SPECIALIZED, SPECIALIZED_EXTRA_WARPS, 0)
    return float(columns.family.warp_threads) * (columns.warps + extra)


def is_bulk(columns: GemmColumns) -> NDArray[np.bool_]:
    """Whether operands come by bulk copies (TMA), shape (L,)."""
    bulk: NDArray[np.bool_] = columns.kernel != CP_ASYNC
    return bulk


def transposed(columns: GemmColumns) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Whether A and B go through a transposing kernel first, shape (L,) each.

    Instructions take some formats only with k contiguous; where one operand may come from registers instead, the smaller
    of two that have it not.
    """
    bits, family = columns.dtype.bits, columns.family
    turn_a = ~columns.row_a & (bits in family.k_major_bits)
    turn_b = columns.row_b & (bits in family.k_major_bits)
    if bits in family.register_bits:
        both, a_smaller = turn_a & turn_b, columns.m <= columns.n
        return both & a_smaller, both & ~a_smaller
    return turn_a, turn_b


def operand_tiles(columns: GemmColumns) -> tuple[Tile, Tile]:
    """What a CTA stages of A (tile_m, tile_k) and of B (tile_k, tile_n) in one k-step; a pair halves what it shares."""
    size = np.full_like(columns.tile_m, columns.operand_bytes)
    staged_m = columns.tile_m / np.where(columns.cta_pair & columns.swap_ab, 2.0, 1.0)
    staged_n = columns.tile_n / np.where(columns.cta_pair & ~columns.swap_ab, 2.0, 1.0)
    return Tile(staged_m, columns.tile_k, size), Tile(columns.tile_k, staged_n, size)


def stage_bytes(columns: GemmColumns) -> Counts:
    """Bytes of one ring slot, an A and a B tile, shape (L,)."""
    a, b = operand_tiles(columns)
    return a.bytes + b.bytes


def smem_bytes(columns: GemmColumns) -> Counts:
    """Dynamic shared memory of a CTA, as compiled where stated, else predicted, in bytes, shape (L,).

    Ring of S stages; in-order kernels with bulk loads add a staged output tile and one 8-byte barrier a stage. A
    specialised kernel needs a barrier pair a stage, and reuses ring slots for the output where both would not fit.
    """
    ring = columns.stages * stage_bytes(columns)
    tile = columns.tile_m * columns.tile_n * columns.output_bytes
    in_order = ring + tile + columns.stages * BARRIER_BYTES
    specialized = ring + 2 * columns.stages * BARRIER_BYTES
    predicted = np.select(
        [columns.kernel == CP_ASYNC, columns.kernel == WARP_SPECIALIZED], [ring, specialized], in_order
    )
    return np.where(np.isnan(columns.smem_bytes), predicted, columns.smem_bytes)


def registers(columns: GemmColumns) -> Counts:
    """Registers per thread, as compiled where stated, else predicted, shape (L,).

    Accumulators, where they live in registers, plus operand addresses and loop state. A specialised kernel moves
    registers from the loading warpgroup to the others, so that the CTA takes an even share.
    """
    in_order = accumulators_per_thread(columns) + np.where(columns.kernel == CP_ASYNC, 64.0, 40.0)
    even_share = np.floor(65536.0 / threads(columns) / 8.0) * 8.0
    specialized = np.minimum(even_share, 168.0)
    predicted = np.where(columns.kernel == WARP_SPECIALIZED, specialized, np.ceil(in_order / 8.0) * 8.0)
    return np.where(np.isnan(columns.registers), predicted, columns.registers)


def accumulators_per_thread(columns: GemmColumns) -> Counts:
    """fp32 accumulators that each computing thread holds in registers, shape (L,).

    None where they live in tensor memory; twice as many where each warpgroup has a tile of its own.
    """
    if columns.family.in_tensor_memory:
        return np.zeros_like(columns.tile_m)
    held = columns.tile_m * columns.tile_n / (columns.family.warp_threads * columns.warps)
    return held * np.where(columns.pingpong, columns.warps / 4.0, 1.0)


def least_smem_bytes(columns: GemmColumns) -> Counts:
    """Shared memory below which no compiler of these kernels gets, in bytes, shape (L,).

    A specialised kernel has its whole ring. An in-order loop may do with S - 1 slots, if its next load takes the one just
    read (narrow tiles in ``validation/records/sample/gemm_triton.csv`` do). With one stage, and where strides forbid
    vectors so that nothing is loaded asynchronously, there need be no ring: only warpgroup instructions then still find
    one operand in shared memory.
    """
    a, b = operand_tiles(columns)
    from_smem = columns.family.from_smem & ~falls_back(columns) & (columns.warps >= WARPGROUP_WARPS)
    no_ring = (columns.stages == 1) | ((columns.kernel == CP_ASYNC) & np.logical_or(*scalar_loads(columns)))
    ring = (columns.stages - 1) * stage_bytes(columns)
    in_order = np.where(no_ring, np.where(from_smem, np.minimum(a.bytes, b.bytes), 0.0), ring)
    return np.where(columns.kernel == WARP_SPECIALIZED, columns.stages * stage_bytes(columns), in_order)


def least_registers(columns: GemmColumns) -> Counts:
    """Registers per thread below which accumulators do not fit, shape (L,): those that are not spilled.

    A specialised kernel moves registers from the loading warpgroup to the others, so that its even share may be less
    than what a computing thread holds.
    """
    computing = float(columns.family.warp_threads) * columns.warps / threads(columns)
    held = accumulators_per_thread(columns) - np.nan_to_num(columns.spills, nan=0.0)
    return np.maximum(np.ceil(held * computing), 1.0)


def pitch_bytes(columns: GemmColumns) -> tuple[Counts, Counts]:
    """Bytes between consecutive rows (or columns) of A and of B as the kernel reads them, shape (L,) each."""
    turn_a, turn_b = transposed(columns)
    a = np.where(columns.row_a | turn_a, columns.k, columns.m)
    b = np.where(columns.row_b & ~turn_b, columns.n, columns.k)
    size = columns.dtype.bits / 8
    return a * size, b * size


def scalar_loads(columns: GemmColumns) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Whether strides of A and of B are not known to divide by 16 elements, so that pointer loads are no vectors,
    shape (L,) each."""
    element = columns.dtype.bits / 8
    a, b = (pitch / element % VECTOR_ELEMENTS != 0 for pitch in pitch_bytes(columns))
    return a, b


Problem = tuple[NDArray[np.bool_], str]


def illegal(columns: GemmColumns) -> Iterator[Problem]:
    """Masks of configurations that no compiler emits, each with a message.

    Fields of :class:`GemmColumns` in braces, ``{warps_said}`` (8 warps) and the name of the ``{gpu}`` are filled in per
    row by the caller.
    """
    family = columns.family
    specialized = columns.kernel == WARP_SPECIALIZED
    rows, cols = instruction_rows(columns), instruction_columns(columns)
    for code, name in enumerate(KERNELS):
        if name not in family.kernels:
            have = ", ".join(sorted(family.kernels))
            yield columns.kernel == code, f"kernel {name} needs bulk copies, which {{gpu}} lacks; it has {have}"
    deep = family.k_bytes * 8 / columns.dtype.bits
    yield columns.tile_k % deep != 0, f"tile_k = {{tile_k:g}} is not a multiple of {deep:g}, the k of one instruction"
    least = min(family.rows, TILE_ROWS)
    side = "tile_m (tile_n with swap_ab)"
    yield (
        specialized & (rows % least != 0),
        f"tile {{tile_m:g}}x{{tile_n:g}}: {family.name} works on {least} rows; {side} must be a multiple of {least}",
    )
    groups = columns.warps / WARPGROUP_WARPS
    yield (
        specialized & (columns.warps % WARPGROUP_WARPS != 0),
        f"warps = {{warps:g}}: specialised kernels compute in warpgroups of {WARPGROUP_WARPS} warps",
    )
    yield (
        specialized & (groups > 1) & (rows < least * groups),
        f"tile {{tile_m:g}}x{{tile_n:g}} on {{warps_said}}: each warpgroup wants {least} rows of its own",
    )
    step, most, n_side = family.column_step, family.columns_max, "n side, tile_n (tile_m with swap_ab),"
    yield (
        specialized & (cols % step != 0),
        f"tile {{tile_m:g}}x{{tile_n:g}}: the instruction's {n_side} must be a multiple of {step}",
    )
    yield (
        specialized & (cols > 2 * most),
        f"tile {{tile_m:g}}x{{tile_n:g}}: the instruction's {n_side} must be at most {2 * most}, two instructions of {most}",
    )
    if family.name == "wgmma" and columns.dtype.name == "int8":
        yield (
            specialized & (cols > 32) & (cols % 16 != 0),
            "tile {tile_m:g}x{tile_n:g}: int8 wgmma has n of 8, 16, 24, 32 and then multiples of 16",
        )
    if family.in_tensor_memory:
        held = np.ceil(rows / TENSOR_MEMORY_LANES) * cols
        yield (
            ~falls_back(columns) & (held > TENSOR_MEMORY_COLUMNS),
            f"tile {{tile_m:g}}x{{tile_n:g}} needs more than the {TENSOR_MEMORY_COLUMNS} columns of tensor memory",
        )
    power = (np.log2(columns.tile_m) % 1 != 0) | (np.log2(columns.tile_n) % 1 != 0) | (np.log2(columns.tile_k) % 1 != 0)
    small = (columns.tile_m < 16) | (columns.tile_n < 16)
    yield (
        ~specialized & (power | small),
        "tile {tile_m:g}x{tile_n:g}x{tile_k:g}: in-order kernels want powers of two, at least 16",
    )
    yield ~specialized & (np.log2(columns.warps) % 1 != 0), "warps = {warps:g}: in-order kernels want a power of two"
    yield ~specialized & columns.swap_ab, "swap_ab is for warp_specialized kernels; swap the operands yourself"
    yield ~specialized & columns.pingpong, "pingpong is for warp_specialized kernels"
    yield (
        columns.pingpong & ((columns.warps % 4 != 0) | (columns.warps < 8)),
        "pingpong with {warps_said}: it takes two warpgroups (8 warps) or more",
    )
    along_rows = np.where(columns.swap_ab, columns.cluster_n, columns.cluster_m)
    if not family.in_tensor_memory:
        yield columns.cta_pair, f"cta_pair is for tcgen05; {{gpu}} has {family.name}"
    yield (
        columns.cta_pair & ((along_rows % 2 != 0) | ~specialized),
        "cta_pair with a cluster of {cluster_m:g}x{cluster_n:g}: two CTAs of a warp_specialized kernel pair up along m "
        "(n with swap_ab)",
    )
    yield (
        columns.cta_pair & (rows % family.rows != 0),
        f"cta_pair: each CTA has whole instructions of {family.rows} rows",
    )
    yield (
        ~specialized & (columns.cluster_m * columns.cluster_n > 1),
        "cluster {cluster_m:g}x{cluster_n:g}: only warp_specialized kernels form clusters here",
    )
    yield columns.cluster_m * columns.cluster_n > 16, "cluster {cluster_m:g}x{cluster_n:g} has more than 16 CTAs"
    for operand, along_k, other in (("A", columns.row_a, "m"), ("B", ~columns.row_b, "n")):
        elements = np.where(along_k, columns.k, getattr(columns, other))
        yield (
            elements * columns.dtype.bits % BYTE_BITS != 0,
            f"m = {{m:.0f}}, n = {{n:.0f}}, k = {{k:.0f}}: rows of {operand}, {columns.dtype.bits} bits an element, are no "
            "whole bytes; pad them",
        )
    ksteps = np.ceil(columns.k / columns.tile_k)
    yield np.nan_to_num(columns.split_k, nan=1.0) > ksteps, "split_k = {split_k:g} is more than the k-steps there are"
    a, b = pitch_bytes(columns)
    yield (
        is_bulk(columns) & ((a % TMA_PITCH_BYTES != 0) | (b % TMA_PITCH_BYTES != 0)),
        "m = {m:.0f}, n = {n:.0f}, k = {k:.0f}: bulk loads want rows of a multiple of 16 bytes; use kernel cp_async",
    )
