"""The steady period of a loop body: never less than its resources, its recurrences or its rings allow.

    T_steady = max(resource bound, recurrence bound, ring bound)

- resource bound: the largest sum of busy time on one resource (each resource serves one action at a time);
- recurrence bound: over dependence cycles, the sum of delays / the sum of distances;
- ring bound: the same over cycles that pass through a buffer slot. In a loop that waits for the load of step i before
  it issues that of step i + S - 1, that is (time to fill one stage) / (S - 1).

(Rau, Iterative modulo scheduling, 1996, for the first two.) Where a resource serves several actions, their order may
keep the period above this maximum: ``orders.py`` searches the orders.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tilesight.errors import PlanError
from tilesight.plan.graph import Cycle, TileGraph
from tilesight.plan.loop import Loop
from tilesight.plan.tile import Counts


@dataclass(frozen=True)
class DependenceBounds:
    """Periods that cycles force, in cycles per iteration, shape (L,); 0 where no such cycle exists."""

    recurrence: Counts
    ring: Counts

    @property
    def largest(self) -> Counts:
        """The larger of the two, shape (L,)."""
        return np.maximum(self.recurrence, self.ring)


def cycle_period(cycle: Cycle, delays: Mapping[str, Counts], loop: Loop) -> Counts:
    """Sum of delays / sum of distances of one cycle, shape (L,); 0 where one of its edges is absent.

    Raises
    ------
    PlanError
        If an action has no delay, or the cycle spans no iteration in some configuration (it could never run).
    """
    for action in cycle.actions:
        if action not in delays:
            raise PlanError(f"no delay given for action '{action}'; given: {', '.join(sorted(delays))}")
    delay = sum((np.asarray(delays[action]) for action in cycle.actions), start=np.zeros(()))
    span = np.zeros(())
    present: NDArray[np.bool_] = np.asarray(True)
    for edge in cycle.edges:
        iterations = edge.distance.iterations(loop.columns)
        present = present & (iterations >= edge.distance.absent_below)
        span = span + iterations
    if np.any(present & (span <= 0)):
        raise PlanError(f"cycle {' -> '.join(cycle.actions)} spans no iteration: it waits for itself")
    return np.where(present, delay / np.where(present, span, 1.0), 0.0)


def dependence_bounds(graph: TileGraph, delays: Mapping[str, Counts], loop: Loop) -> DependenceBounds:
    """Recurrence and ring bound of a loop body under the given delays (cycles per action, shape (L,))."""
    recurrence: Counts = np.zeros_like(loop.stages)
    ring: Counts = np.zeros_like(loop.stages)
    for cycle in graph.cycles:
        period = cycle_period(cycle, delays, loop)
        if cycle.is_ring:
            ring = np.maximum(ring, period)
        else:
            recurrence = np.maximum(recurrence, period)
    return DependenceBounds(recurrence, ring)
