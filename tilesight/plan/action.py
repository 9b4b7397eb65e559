"""Tile actions and what one execution of each demands of a GPU's resources."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType

from tilesight.plan.tile import Counts


class ActionKind(StrEnum):
    """What an action does to its tile."""

    LOAD = "load"
    ISSUE = "issue"
    WAIT = "wait"
    MMA = "mma"
    ELEMENTWISE = "elementwise"
    REDUCE = "reduce"
    EXP = "exp"
    STORE = "store"
    PUT = "put"
    GET = "get"
    BARRIER = "barrier"


@dataclass(frozen=True)
class Action:
    """One tile action of a loop body: a name that is unique in its graph, and its kind."""

    name: str
    kind: ActionKind


@dataclass(frozen=True)
class MatrixInstructions:
    """Matrix instructions of one execution of an MMA action.

    ``instruction`` is the family (as ``"wgmma"`` or ``"mma_sync"``); ``count`` instructions are issued, each
    m x n x k = ``m`` x ``n`` x ``k``, with ``operand_bytes`` per element. An SM reads ``read_rows`` rows of k elements
    of both operands from its shared memory: m + n, less where two CTAs share one instruction. Arrays have shape (L,).
    """

    instruction: str
    count: Counts
    m: Counts
    n: Counts
    k: Counts
    operand_bytes: Counts
    read_rows: Counts


@dataclass(frozen=True)
class Demand:
    """Demand of one execution of an action by one CTA; arrays of shape (L,), absent ones None.

    ``flop`` counts one FMA as 2. ``global_bytes`` are the bytes asked of the memory system (L2 and beyond),
    ``smem_bytes`` those moved through the shared-memory port. ``engine`` names how they move: ``"cp_async"``,
    ``"tma"`` or ``"st_global"``.
    """

    flop: Counts | None = None
    global_bytes: Counts | None = None
    smem_bytes: Counts | None = None
    engine: str | None = None
    matrix: MatrixInstructions | None = None


@dataclass(frozen=True)
class Demands:
    """The demand of each action of a graph, by action name; actions without an entry demand nothing."""

    by_action: Mapping[str, Demand] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "by_action", MappingProxyType(dict(self.by_action)))

    def __getitem__(self, action: str) -> Demand:
        return self.by_action.get(action, Demand())
