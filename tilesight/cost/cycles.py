"""The largest ratio of delay to iterations over the cycles of a constraint graph, and start times that attain it.

An arc says start[target] >= start[source] + length - P * distance: the target of iteration i + distance waits for the
source of iteration i. Such start times exist exactly when no cycle is longer than P times its distance, so the least
period is

    P = max over cycles of (sum of lengths / sum of distances)        (Karp, Discrete Mathematics 23, 1978, for distances 1)

It is found exactly: as long as some cycle is too long at P, P becomes that cycle's ratio (Dinkelbach's method on
Bellman-Ford's longest paths); each step is a lower bound of the answer, and there are finitely many cycles.
"""

from collections.abc import Sequence
from typing import NamedTuple

TOLERANCE = 1e-11
"""What rounding may add to a cycle, relative to the longest arc."""


class Arc(NamedTuple):
    """``target`` of iteration i + ``distance`` starts at least ``length_s`` after ``source`` of iteration i.

    Actions by number. ``reason`` is ``"value"``, ``"ring"``, or the resource that serves one after the other.
    """

    source: int
    target: int
    length_s: float
    distance: int
    reason: str


class SteadyState(NamedTuple):
    """Least period, earliest start times of iteration 0 from 0 on, and a cycle that forces the period.

    The cycle is empty where the period is the one that was asked for at least.
    """

    period_s: float
    start_s: list[float]
    cycle: tuple[Arc, ...]


def steady_state(
    actions: int,
    arcs: Sequence[Arc],
    at_least_s: float = 0.0,
    start_s: Sequence[float] | None = None,
    below_s: float = float("inf"),
) -> SteadyState | None:
    """Least period of a constraint graph; None if there is none below ``below_s``.

    Parameters
    ----------
    actions
        Number of actions.
    arcs
        Constraints; distances may be negative.
    at_least_s
        A lower bound from which to search.
    start_s
        Start times that hold at ``at_least_s`` without some of the arcs: a head start, shape (actions,).
    below_s
        Periods from here on are of no interest. A cycle of positive length that spans no iteration gives None too.

    Examples
    --------
    A load of 9 s and a product of 3 s share 2 slots: 12 s an iteration, and two iterations at a time.

    >>> arcs = [Arc(0, 1, 9.0, 0, "value"), Arc(1, 0, 3.0, 2, "ring")]
    >>> steady_state(2, arcs).period_s
    6.0
    """
    period = at_least_s
    critical: tuple[Arc, ...] = ()
    tolerance = TOLERANCE * max((arc.length_s for arc in arcs), default=0.0)
    start = [0.0] * actions if start_s is None else list(start_s)
    while cycle := _too_long(arcs, start, period, tolerance):
        distance = sum(arc.distance for arc in cycle)
        if distance <= 0:
            return None
        period = sum(arc.length_s for arc in cycle) / distance
        if period >= below_s:
            return None
        critical, start = cycle, [0.0] * actions
    return SteadyState(period, start, critical)


def _too_long(arcs: Sequence[Arc], start: list[float], period: float, tolerance: float) -> tuple[Arc, ...]:
    """Moves start times up until all arcs hold; or a cycle that is longer than ``period`` times its distance."""
    last: list[Arc | None] = [None] * len(start)
    while True:
        moved = False
        for arc in arcs:
            source, target, length, distance, _ = arc
            earliest = start[source] + length - period * distance
            if earliest > start[target] + tolerance:
                start[target] = earliest
                last[target] = arc
                moved = True
        if not moved:
            return ()
        if cycle := _cycle(last):
            return cycle


def _cycle(last: list[Arc | None]) -> tuple[Arc, ...]:
    """A cycle among the arcs that last moved each action, in the order of the arcs; empty if there is none."""
    seen = [-1] * len(last)
    for first in range(len(last)):
        action = first
        while seen[action] < 0:
            seen[action] = first
            arc = last[action]
            if arc is None:
                break
            action = arc.source
        else:
            if seen[action] == first:
                found: list[Arc] = []
                begin = action
                while not found or action != begin:
                    arc = last[action]
                    assert arc is not None  # on a cycle every action has been moved
                    found.append(arc)
                    action = arc.source
                return tuple(reversed(found))
    return ()
