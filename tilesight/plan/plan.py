"""The tile execution plan: everything that a cost model needs to know of a kernel, and nothing of a GPU."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tilesight.plan.access import Access
from tilesight.plan.action import Demands
from tilesight.plan.graph import TileGraph
from tilesight.plan.launch import Launch
from tilesight.plan.loop import Loop
from tilesight.plan.tile import Counts


@dataclass(frozen=True)
class Plan:
    """A batch of L configurations of one kernel family.

    Attributes
    ----------
    kernel
        Family name, such as ``"gemm.cp_async"``.
    dtype
        Operand type, by name.
    graph
        Loop body of one CTA, shared by the whole batch.
    demands
        What each action asks for, per CTA and iteration.
    loop, launch, access
        Iterations and ring, the launch, and the tiles it touches.
    flop, compulsory_bytes
        Work of the whole problem and the least bytes it moves (each operand once, each result once), shape (L,).
    old_output_bytes
        Bytes of an old C and a bias that the launch itself reads, each once, shape (L,).
    in_order
        Whether one instruction stream per CTA loads, waits and multiplies; else a warp of its own loads ahead.
    pingpong
        Whether one tile's ends overlap the loop of another on the same SM, shape (L,).
    pitch_bytes
        Bytes from row to row of A and of B as they lie in memory, shape (L,) each.
    flags
        Named conditions that the model must know of (``"unaligned_pitch"``, ``"scalar_a"``), shape (L,) each.
    assumptions
        What the plan took for granted, in words, and for which configurations, shape (L,) each.
    """

    kernel: str
    dtype: str
    graph: TileGraph
    demands: Demands
    loop: Loop
    launch: Launch
    access: Access
    flop: Counts
    compulsory_bytes: Counts
    old_output_bytes: Counts
    in_order: bool
    pingpong: NDArray[np.bool_]
    pitch_bytes: tuple[Counts, Counts]
    flags: Mapping[str, NDArray[np.bool_]]
    assumptions: Mapping[str, NDArray[np.bool_]]

    def __len__(self) -> int:
        return len(self.flop)
