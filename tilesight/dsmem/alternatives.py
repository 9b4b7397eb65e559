"""What may be launched: our kernels with and without clusters, a Triton kernel, torch.compile; how each goes about a row.

| name | on chip | passes over memory |
|---|---|---|
| cluster, P = 2 .. 16 | the row, in the shared memory and registers of P CTAs | one |
| staged | the row, in one CTA | one |
| reread | a block of it | those of the merged form, the second one backwards |
| triton | the row in registers while it fits, else a block of it | one, or those of the merged form, backwards |
| torch_compile | the row up to 1024 elements, else a block of it | one, or those that Inductor makes |

What Inductor does is public: rows of at most 1024 elements are reduced by persistent kernels (pytorch/pytorch#92267), a
maximum and a sum of exponentials are found in one pass (#127011), and a row is split among CTAs where there are few rows
and it is longer than 8192 (#188578).

The kernels of the publication differ from ours: a cluster for each row, stages as in the definition, two barriers a stage,
one row in flight, and rereads in the passes of the definition.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from tilesight.dsmem.rates import Rates
from tilesight.dsmem.staging import (
    VECTOR_BYTES,
    Floats,
    Placement,
    Truths,
    kernel_placement,
    loads_in_flight,
    published_placement,
    register_placement,
    reread_batch,
    reread_placement,
    row_inputs,
    streaming_placement,
)
from tilesight.dsmem.traffic import Walks, walks
from tilesight.dsmem.workload import Workload

ALTERNATIVES = ("cluster", "staged", "reread", "triton", "torch_compile")
Kernels = Literal["ours", "published"]
PERSISTENT_MOST = 1024
SPLIT_FROM, SPLIT_ROWS_A_SM = 8192, 2
"""Columns above which, and rows an SM below which, Inductor splits a row."""
TRITON_BLOCKS = ((1024, 4), (2048, 8), (4096, 16), (8192, 16))
TORCH_BLOCKS = ((2048, 8), (4096, 16), (2048, 32), (8192, 32))
"""Elements of a block and warps of a program that are tried."""
HELD_WARPS = (4, 8, 16)
TORCH_HELD_WARPS = (4,)
REGISTERS_LOOPED = {"triton": 24, "torch_compile": 28}
"""Registers of a thread of a compiled loop that hold no sums."""


@dataclass(frozen=True)
class Label:
    """Which alternative a candidate is: its name, CTAs a row, and how it is launched, in words."""

    name: str
    cluster: int
    settings: str


@dataclass(frozen=True)
class Candidates:
    """Ways to launch that go about a row alike: C of them, at W widths.

    Attributes
    ----------
    labels
        One for each.
    walks
        Their passes in bytes and instructions.
    placement
        How their CTAs lie on an SM, arrays of shape (C, W).
    block
        Elements of the row that one CTA asks for at once; it waits for them before it asks for more. Shape (C, W).
    on_chip
        Where a row is kept: ``"smem"``, ``"registers"``, or None for passes over memory.
    bulk
        Whether bulk copies load, not threads.
    backwards
        Whether later passes go backwards.
    split
        Whether a row is split among CTAs in kernels of their own, one a pass.
    streaming
        Whether loads are to be evicted first and stores stream: CTAs that take a row each then write as a copy in order.
    barriers
        Whether partials are exchanged between two barriers, not by stores that an mbarrier counts.
    """

    labels: tuple[Label, ...]
    walks: Walks
    placement: Placement
    block: Floats
    on_chip: str | None = None
    bulk: bool = False
    backwards: bool = False
    split: bool = False
    streaming: bool = False
    barriers: bool = False

    @property
    def cluster(self) -> Floats:
        """CTAs a row, shape (C, 1)."""
        return np.array([[float(label.cluster)] for label in self.labels])


def candidates(
    workload: Workload, rows: int, cols: Floats, dtype: str, rates: Rates, kernels: Kernels = "ours"
) -> Iterator[Candidates]:
    """Every way to launch that the model prices, legal or not, at the widths ``cols``, shape (W,)."""
    yield from _ours(workload, cols, dtype, rates) if kernels == "ours" else _published(workload, cols, dtype, rates)
    merged = walks(workload, "merged", dtype)
    values = row_inputs(workload, dtype)[0]
    yield _held("triton", HELD_WARPS, values, merged, cols, rates)
    yield _looped("triton", TRITON_BLOCKS, merged, cols, rates, backwards=True)
    yield from _torch(workload, rows, cols, dtype, rates)


def _ours(workload: Workload, cols: Floats, dtype: str, rates: Rates) -> Iterator[Candidates]:
    merged = walks(workload, "merged", dtype)
    labels = _cluster_labels(rates)
    placed = kernel_placement(workload, cols, _sizes(labels), dtype, rates)
    block = np.where(placed.aligned, placed.elements, _step(workload, placed, dtype))
    yield Candidates(labels, merged, placed, block, on_chip="smem", bulk=True, streaming=True)
    placed = reread_placement(workload, cols, dtype, rates)
    block = _step(workload, placed, dtype, reread_batch(workload, dtype))
    yield Candidates((Label("reread", 1, "two passes"),), merged, placed, block, backwards=True, streaming=True)


def _published(workload: Workload, cols: Floats, dtype: str, rates: Rates) -> Iterator[Candidates]:
    moved = walks(workload, "definition", dtype)
    labels = _cluster_labels(rates)
    placed = published_placement(workload, cols, _sizes(labels), dtype, rates)
    yield Candidates(labels, moved, placed, _step(workload, placed, dtype), on_chip="smem", barriers=True)
    placed = reread_placement(workload, cols, dtype, rates)
    said = (Label("reread", 1, f"{len(moved.passes)} passes"),)
    yield Candidates(said, moved, placed, _step(workload, placed, dtype))


def _step(workload: Workload, placed: Placement, dtype: str, batch: int | None = None) -> Floats:
    """Elements that the threads of a CTA ask for at once."""
    vector = VECTOR_BYTES / row_inputs(workload, dtype)[2]
    return placed.threads * (batch or loads_in_flight(workload, dtype)) * np.where(placed.aligned, vector, 1.0)


def _cluster_labels(rates: Rates) -> tuple[Label, ...]:
    sizes = (1, *rates.cluster_slots)
    return tuple(Label("staged" if size == 1 else "cluster", size, "") for size in sizes)


def _sizes(labels: tuple[Label, ...]) -> Floats:
    return np.array([[float(label.cluster)] for label in labels])


def _held(name: str, warps: tuple[int, ...], values: int, moved: Walks, cols: Floats, rates: Rates) -> Candidates:
    """Kernels that keep the row in registers."""
    labels = tuple(Label(name, 1, f"row in registers, {each} warps") for each in warps)
    placed = register_placement(values, cols, 32.0 * np.array([[float(each)] for each in warps]), rates)
    return Candidates(labels, moved, placed, placed.elements, on_chip="registers")


def _looped(
    name: str,
    blocks: tuple[tuple[int, int], ...],
    moved: Walks,
    cols: Floats,
    rates: Rates,
    *,
    backwards: bool,
) -> Candidates:
    """Kernels that walk over the row in blocks."""
    labels = tuple(Label(name, 1, f"blocks of {block}, {warps} warps") for block, warps in blocks)
    threads = np.array([[32.0 * warps] for _, warps in blocks])
    sizes = np.array([[float(block)] for block, _ in blocks])
    sums = max(each.statistics for each in moved.passes)  # every lane keeps its own for each element of a block
    placed = streaming_placement(cols, threads, REGISTERS_LOOPED[name] + sizes / threads * sums, rates)
    return Candidates(labels, moved, placed, sizes + 0.0 * placed.elements, backwards=backwards)


def _torch(workload: Workload, rows: int, cols: Floats, dtype: str, rates: Rates) -> Iterator[Candidates]:
    compiled = walks(workload, "compiled", dtype)
    values = row_inputs(workload, dtype)[0]
    if np.any(cols <= PERSISTENT_MOST):
        yield _only(_held("torch_compile", TORCH_HELD_WARPS, values, compiled, cols, rates), cols <= PERSISTENT_MOST)
    few = (cols > SPLIT_FROM) & (rows < SPLIT_ROWS_A_SM * rates.sms)
    looped = _looped("torch_compile", TORCH_BLOCKS, compiled, cols, rates, backwards=False)
    yield _only(looped, ~few & (cols > PERSISTENT_MOST))
    if np.any(few):
        said = tuple(replace(label, settings=f"{label.settings}, rows split") for label in looped.labels)
        yield replace(_only(looped, few), labels=said, split=True)


def _only(given: Candidates, where: Truths) -> Candidates:
    """The candidates at some widths alone."""
    ctas = np.where(where, given.placement.ctas_per_sm, 0.0)
    return replace(given, placement=replace(given.placement, ctas_per_sm=ctas))
