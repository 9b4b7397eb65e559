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
    epilogue
        Demand of a tile's epilogue (its store), and how it leaves: ``"in_order"`` from registers or
        ``"specialized"`` through shared memory and a bulk store.
    loop, launch, access
        Iterations and ring, the launch, and the tiles it touches.
    flop, compulsory_bytes
        Work of the whole problem and the least bytes it moves (each operand once, each result once), shape (L,).
    flags
        Named conditions that the model must know of (``"unaligned_pitch"``, ``"scalar_loads"``), shape (L,) each.
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
    in_order: bool
    flags: Mapping[str, NDArray[np.bool_]]
    assumptions: Mapping[str, NDArray[np.bool_]]

    def __len__(self) -> int:
        return len(self.flop)
