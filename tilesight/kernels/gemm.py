"""Matrix products: the plan of a tiled product in its forms, on any matrix instructions.

One loop body serves them all:

    issue   the loop's own instructions: waits, barriers, addresses, one iteration after the other
    load    fill one ring slot with an A and a B tile      (cp.async or TMA)
    wait    the slot's barrier
    mma     instructions one strip of the tile after another, tile_k deep

Iterations count the step whose operands are meant. A slot is free once its product is done: ``mma -> load`` spans S
iterations. A specialised producer runs ahead by itself and waits for nothing else. An in-order loop waits for step i,
then issues the load of step i + S - 1: ``load -> load`` spans S - 1 iterations, so its ring bound is (time to fill one
slot) / (S - 1); with one slot that edge is absent, and fill and product go in series. Tensor cores accumulate in place,
one instruction behind the other, so the sum itself adds no dependence beyond their busy time.
"""

from functools import cache

import numpy as np
from numpy.typing import NDArray

from tilesight.kernels.gemm_config import KERNELS, GemmColumns
from tilesight.kernels.gemm_legal import (
    ACCUMULATOR_BYTES,
    CP_ASYNC,
    TMA,
    TMA_PERSISTENT,
    VECTOR_ELEMENTS,
    WARP_SPECIALIZED,
    falls_back,
    instruction_columns,
    instruction_rows,
    pitch_bytes,
    registers,
    smem_bytes,
    stage_bytes,
    threads,
    transposed,
)
from tilesight.plan.access import Access
from tilesight.plan.action import Action, ActionKind, Demand, Demands, MatrixInstructions
from tilesight.plan.graph import Distance, Edge, TileGraph
from tilesight.plan.launch import Launch
from tilesight.plan.loop import Loop
from tilesight.plan.plan import Plan
from tilesight.plan.tile import Counts, Tile, tiles_to_cover

MAX_SPLIT = 24
MIN_KSTEPS_PER_SPLIT = 4


@cache
def loop_graph(kernel: int) -> TileGraph:
    """Loop body of one CTA of a kernel family, built once."""
    kinds = (ActionKind.ISSUE, ActionKind.LOAD, ActionKind.WAIT, ActionKind.MMA)
    actions = [Action(str(kind), kind) for kind in kinds]
    edges = [
        Edge("issue", "issue", Distance(offset=1)),
        Edge("load", "wait"),
        Edge("wait", "mma"),
        Edge("mma", "load", Distance("stages"), ring=True),
    ]
    if kernel != WARP_SPECIALIZED:
        edges.append(Edge("load", "load", Distance("stages", -1, absent_below=1), ring=True))
    return TileGraph(actions, edges)


def library_split(columns: GemmColumns, slots: Counts) -> Counts:
    """Splits of k, those left open filled in as libraries do for few tiles, shape (L,).

    As many as fill the ``slots`` (SMs that the clusters can hold) once, at least 2, leaving at least 4 k-steps a part
    and at most 24 parts.
    """
    ksteps = tiles_to_cover(columns.k, columns.tile_k)
    wanted = np.minimum(np.floor(slots / columns.tiles), np.floor(ksteps / MIN_KSTEPS_PER_SPLIT))
    chosen = np.minimum(np.clip(wanted, 2.0, MAX_SPLIT), np.maximum(ksteps, 1.0))
    return np.where(np.isnan(columns.split_k), chosen, columns.split_k)


def _instructions(columns: GemmColumns) -> MatrixInstructions:
    """Instructions of one k-step, strips of at most ``columns_max``; too few rows fall back to mma.sync."""
    family = columns.family
    rows, cols = instruction_rows(columns), instruction_columns(columns)
    strips = np.ceil(cols / family.columns_max)
    deep = columns.tile_k * columns.dtype.bits / 8 / family.k_bytes
    return MatrixInstructions(
        instruction=family.name,
        count=np.ceil(rows / family.rows) * strips * deep,
        m=np.full_like(rows, family.rows),
        n=cols / strips,
        k=np.full_like(rows, family.k_bytes * 8 / columns.dtype.bits),
        operand_bytes=np.full_like(rows, columns.operand_bytes),
        read_rows=family.rows + cols / strips / np.where(columns.cta_pair, 2.0, 1.0),
    )


QUANTISER_INPUT_BYTES = 2
"""A arrives in bf16 where it is quantised first."""


def _transposing_kernels(columns: GemmColumns) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Whether a kernel of its own transposes A and B first, shape (L,) each; a quantiser does so to A on its way."""
    turn_a, turn_b = transposed(columns)
    return turn_a & ~columns.quantise_a, turn_b


def _earlier(columns: GemmColumns) -> tuple[Counts, Counts, Counts]:
    """Kernels before the product, and the bytes they read and write: transposed operands, a quantised A."""
    size = columns.operand_bytes
    a, b = columns.m * columns.k * columns.batch, columns.k * columns.n * columns.batch
    turn_a, turn_b = _transposing_kernels(columns)
    turned = size * (np.where(turn_a, a, 0.0) + np.where(turn_b, b, 0.0))
    read = turned + np.where(columns.quantise_a, a * QUANTISER_INPUT_BYTES, 0.0)
    written = turned + np.where(columns.quantise_a, a * size, 0.0)
    return turn_a.astype(float) + turn_b + columns.quantise_a, read, written


def gemm_plan(columns: GemmColumns, slots: Counts) -> Plan:
    """Plan of a batch of products, all of one kernel family.

    Parameters
    ----------
    columns
        The batch, shape (L,); legal (:func:`tilesight.kernels.gemm_legal.illegal` names nothing).
    slots
        SMs that the clusters can fill at once, shape (L,), for splits left open.
    """
    kernel = int(columns.kernel[0])
    split = library_split(columns, slots)
    part_k = np.where(split > 1, np.ceil(columns.k / split), columns.k)
    size = np.full_like(columns.m, columns.operand_bytes)
    output = np.where(split > 1, float(ACCUMULATOR_BYTES), columns.output_bytes)
    engine = "cp_async" if kernel == CP_ASYNC else "tma"
    is_split = split > 1
    alone = np.where(is_split, 0.0, 1.0)  # partial sums take no old C and no bias: the reduction adds them
    added = Tile(columns.tile_m, columns.tile_n, columns.output_bytes).bytes * columns.reads_c
    added = alone * (added + columns.bias * columns.tile_n * columns.output_bytes)
    demands = Demands(
        {
            "load": Demand(global_bytes=stage_bytes(columns), engine=engine),
            "mma": Demand(
                flop=2.0 * columns.tile_m * columns.tile_n * columns.tile_k,
                smem_bytes=stage_bytes(columns),
                matrix=_instructions(columns),
            ),
            "add": Demand(global_bytes=added, engine="ld_global"),
            "store": Demand(
                global_bytes=Tile(columns.tile_m, columns.tile_n, output).bytes,
                engine="st_global" if kernel == CP_ASYNC else "tma",
            ),
        }
    )
    pitch_a, pitch_b = pitch_bytes(columns)
    one = np.ones_like(columns.m)
    specialized = kernel == WARP_SPECIALIZED
    element = columns.dtype.bits / 8
    turn_a, turn_b = transposed(columns)
    scalar = [(kernel == CP_ASYNC) & (pitch / element % VECTOR_ELEMENTS != 0) for pitch in (pitch_a, pitch_b)]
    earlier_kernels, earlier_read, earlier_written = _earlier(columns)
    results = columns.m * columns.n * columns.batch
    old_output = (results * columns.reads_c + columns.n * columns.bias) * columns.output_bytes
    size_a = np.where(columns.quantise_a, float(QUANTISER_INPUT_BYTES), size)
    operands = (columns.m * columns.k * size_a + columns.k * columns.n * size) * columns.batch
    return Plan(
        kernel=f"gemm.{KERNELS[kernel]}",
        dtype=columns.dtype.rate_name,
        graph=loop_graph(kernel),
        demands=demands,
        loop=Loop(iterations=tiles_to_cover(part_k, columns.tile_k), stages=columns.stages),
        launch=Launch(
            tiles=columns.tiles * split * columns.batch,
            threads=threads(columns),
            registers=registers(columns),
            smem_bytes=smem_bytes(columns),
            cluster=columns.cluster_m * columns.cluster_n,
            persistent=np.broadcast_to(np.asarray(kernel not in (CP_ASYNC, TMA)), len(columns)),
            device_descriptors=np.where(kernel == TMA_PERSISTENT, 3.0, 0.0) * one,
            dependent_kernels=np.where(is_split, 1.0, 0.0),
            dependent_read_bytes=np.where(is_split, results * split * ACCUMULATOR_BYTES + old_output, 0.0),
            dependent_written_bytes=np.where(is_split, results * columns.output_bytes, 0.0),
            earlier_kernels=earlier_kernels,
            earlier_read_bytes=earlier_read,
            earlier_written_bytes=earlier_written,
        ),
        access=Access(
            m=columns.m,
            n=columns.n,
            k=part_k,
            split=split,
            batch=columns.batch,
            tile_m=columns.tile_m,
            tile_n=columns.tile_n,
            tile_k=columns.tile_k,
            element_bytes=size,
            output_bytes=output,
            group=columns.group_m,
            multicast_a=columns.cluster_n if specialized else one,
            multicast_b=columns.cluster_m if specialized else one,
        ),
        flop=2.0 * columns.m * columns.n * columns.k * columns.batch,
        compulsory_bytes=operands + results * columns.output_bytes * (1.0 + columns.reads_c),
        old_output_bytes=alone * old_output,
        in_order=not specialized,
        pingpong=columns.pingpong,
        pitch_bytes=(pitch_a, pitch_b),
        flags={
            "small_rows": falls_back(columns),
            "scalar_a": scalar[0],
            "scalar_b": scalar[1],
            "made_a": turn_a | columns.quantise_a,
            "made_b": turn_b,
            "k_major_a": columns.row_a | turn_a,
            "k_major_b": ~columns.row_b | turn_b,
            "halved_a": columns.cta_pair & columns.swap_ab,
            "halved_b": columns.cta_pair & ~columns.swap_ab,
            "spills": np.nan_to_num(columns.spills, nan=0.0) > 0,
        },
        assumptions=_assumptions(columns),
    )


def _assumptions(columns: GemmColumns) -> dict[str, NDArray[np.bool_]]:
    return {
        "CTAs of one wave drift along k at measured paces": np.full(len(columns), True),
        "registers per thread predicted: accumulators plus addresses and loop state": np.isnan(columns.registers),
        "operands transposed by a kernel of their own first: the instructions want k contiguous (row A, column B)": (
            np.logical_or(*_transposing_kernels(columns))
        ),
        "split of k chosen as libraries do: fill the SMs once, at least 4 k-steps a part": np.isnan(columns.split_k),
    }
