"""The tile graph: actions of one loop body, and who waits for whom, in this or a later iteration.

Edges carry a distance in iterations. The distance-0 edges order one iteration and form a DAG; edges of a larger
distance carry a dependence to a later iteration (an accumulator, a slot of a buffer ring). A distance may depend on
the configuration (a ring of ``stages`` slots), so that one graph serves every configuration of a kernel family.

All of networkx's use is in this file. Node costs are passed in by name and a missing name raises.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Any

import numpy as np

from tilesight.errors import PlanError
from tilesight.plan.action import Action
from tilesight.plan.tile import Counts


@dataclass(frozen=True)
class Distance:
    """Iterations an edge spans: ``scale * columns[column] + offset``, or the constant ``offset``.

    An edge whose distance is below ``absent_below`` in a configuration does not exist there: a ring of one slot has
    no edge from a load to a load ahead of it.

    Examples
    --------
    >>> import numpy as np
    >>> Distance("stages", -1).iterations({"stages": np.array([1.0, 4.0])})
    array([0., 3.])
    """

    column: str | None = None
    offset: int = 0
    absent_below: int = 0

    def iterations(self, columns: Mapping[str, Counts]) -> Counts:
        """Iterations per configuration, shape (L,) or scalar shape (); PlanError if the column is missing."""
        if self.column is None:
            return np.asarray(float(self.offset))
        if self.column not in columns:
            raise PlanError(f"edge distance needs column '{self.column}'; given: {', '.join(sorted(columns))}")
        return columns[self.column] + self.offset


@dataclass(frozen=True)
class Edge:
    """``target`` of iteration i + distance waits for ``source`` of iteration i. ``ring``: through a buffer slot."""

    source: str
    target: str
    distance: Distance = Distance()
    ring: bool = False


@dataclass(frozen=True)
class Cycle:
    """One elementary dependence cycle: the actions on it and the edges it takes."""

    actions: tuple[str, ...]
    edges: tuple[Edge, ...]

    @property
    def is_ring(self) -> bool:
        """Whether the cycle passes through a buffer ring (else it is a recurrence of values)."""
        return any(edge.ring for edge in self.edges)


class TileGraph:
    """Actions and edges of one loop body; built once per kernel family and shared by all its configurations.

    Raises
    ------
    PlanError
        If a name repeats, an edge names an unknown action, or the distance-0 edges form a cycle.

    Examples
    --------
    >>> from tilesight.plan.action import Action, ActionKind
    >>> graph = TileGraph(
    ...     [Action("load", ActionKind.LOAD), Action("mma", ActionKind.MMA)],
    ...     [Edge("load", "mma"), Edge("mma", "load", Distance(offset=2), ring=True)],
    ... )
    >>> graph.order
    ('load', 'mma')
    >>> [cycle.actions for cycle in graph.cycles]
    [('load', 'mma')]
    """

    def __init__(self, actions: list[Action], edges: list[Edge]) -> None:
        self.actions: dict[str, Action] = {action.name: action for action in actions}
        self.edges: tuple[Edge, ...] = tuple(edges)
        if len(self.actions) != len(actions):
            raise PlanError(f"action names repeat: {[action.name for action in actions]}")
        for edge in edges:
            for name in (edge.source, edge.target):
                if name not in self.actions:
                    raise PlanError(f"edge {edge.source} -> {edge.target}: no action '{name}' in the graph")

    def to_networkx(self) -> Any:
        """The graph as a networkx MultiDiGraph with the attribute ``edge`` on edges and ``action`` on nodes."""
        import networkx

        graph: Any = networkx.MultiDiGraph()
        for name, action in self.actions.items():
            graph.add_node(name, action=action)
        for edge in self.edges:
            graph.add_edge(edge.source, edge.target, edge=edge)
        return graph

    @cached_property
    def order(self) -> tuple[str, ...]:
        """Actions in a topological order of the edges whose distance is always 0."""
        import networkx

        dag: Any = networkx.DiGraph()
        dag.add_nodes_from(self.actions)
        for edge in self.edges:
            if edge.distance.column is None and edge.distance.offset == 0:
                dag.add_edge(edge.source, edge.target)
        try:
            return tuple(networkx.lexicographical_topological_sort(dag, key=list(self.actions).index))
        except networkx.NetworkXUnfeasible:
            raise PlanError("the distance-0 edges of the tile graph form a cycle: no iteration could start") from None

    @cached_property
    def cycles(self) -> tuple[Cycle, ...]:
        """Every elementary dependence cycle, parallel edges counted separately."""
        import networkx

        _ = self.order  # refuses graphs that can't run
        graph = self.to_networkx()
        found = []
        for nodes in networkx.simple_cycles(networkx.DiGraph(graph)):
            steps = [
                [data["edge"] for data in graph[source][target].values()]
                for source, target in zip(nodes, [*nodes[1:], nodes[0]], strict=True)
            ]
            found += [_from_its_first(Cycle(tuple(nodes), edges), list(self.actions)) for edges in product(*steps)]
        return tuple(sorted(found, key=lambda cycle: cycle.actions))


def _from_its_first(cycle: Cycle, known: list[str]) -> Cycle:
    """The cycle begun at the action named first in the graph: networkx begins where it likes."""
    start = min(range(len(cycle.actions)), key=lambda place: known.index(cycle.actions[place]))
    return Cycle(cycle.actions[start:] + cycle.actions[:start], cycle.edges[start:] + cycle.edges[:start])
