"""A loop body in seconds: actions with delays and busy times, who waits for whom, and what no order can beat.

An action has a delay (from its start to its result) and holds each of its resources for a busy time from its start on.
A resource serves one action at a time. ``target`` of iteration i + distance waits for the result of ``source`` of
iteration i; a ring of S slots is a wait of distance S from what reads a slot to what fills it. A wait without a ring behind
it has as many buffers as it likes.

    resource bound     largest sum of busy times on one resource
    dependence bound   largest (sum of delays) / (sum of distances) of a cycle of waits, rings included

(Rau, Iterative modulo scheduling, International Journal of Parallel Programming 24, 1996.)
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil, inf, isfinite
from typing import NamedTuple

import numpy as np

from tilesight.cost.cycles import TOLERANCE, Arc, SteadyState, steady_state
from tilesight.errors import PlanError
from tilesight.plan.graph import TileGraph
from tilesight.plan.loop import Loop


@dataclass(frozen=True)
class TimedAction:
    """An action with its ``delay_s`` from start to result and the time for which it holds each resource."""

    name: str
    delay_s: float
    busy_s: Mapping[str, float]


@dataclass(frozen=True)
class Wait:
    """``target`` of iteration i + ``distance`` waits for ``source`` of iteration i; ``ring``: for a buffer slot."""

    source: str
    target: str
    distance: int = 0
    ring: bool = False


@dataclass(frozen=True)
class LoopBody:
    """Actions of one iteration and their waits.

    Raises
    ------
    PlanError
        If a name repeats or is unknown, a time is negative or not finite, a distance is negative, or the waits of
        distance 0 form a cycle, so that no iteration could start.

    Examples
    --------
    >>> LoopBody((TimedAction("load", 9.0, {}),), (Wait("load", "load"),))
    Traceback (most recent call last):
    tilesight.errors.PlanError: waits of distance 0 form a cycle, so that no iteration could start: load
    """

    actions: tuple[TimedAction, ...]
    waits: tuple[Wait, ...]

    def __post_init__(self) -> None:
        names = [action.name for action in self.actions]
        if len(set(names)) != len(names):
            raise PlanError(f"action names repeat: {names}")
        for action in self.actions:
            for what, seconds in (("delay", action.delay_s), *action.busy_s.items()):
                if not (isfinite(seconds) and seconds >= 0):
                    raise PlanError(f"action '{action.name}': {what} = {seconds} s; give a finite time, 0 or more")
        for wait in self.waits:
            for name in (wait.source, wait.target):
                if name not in names:
                    raise PlanError(f"wait {wait.source} -> {wait.target}: no action '{name}' in the body")
            if wait.distance < 0 or wait.distance != int(wait.distance):
                raise PlanError(f"wait {wait.source} -> {wait.target}: distance {wait.distance}; give 0, 1, 2, ...")
        self._topological()

    @property
    def resources(self) -> tuple[str, ...]:
        """Resources that some action holds, in the order of the actions."""
        held = (name for action in self.actions for name, busy in action.busy_s.items() if busy > 0)
        return tuple(dict.fromkeys(held))

    def order_by(self, rank: Sequence[float]) -> list[int]:
        """The topological order of the waits of distance 0 that takes the lowest ``rank`` first, by number."""
        return self._topological(rank)

    def _topological(self, rank: Sequence[float] | None = None) -> list[int]:
        number = {action.name: i for i, action in enumerate(self.actions)}
        sources: list[set[int]] = [set() for _ in self.actions]
        for wait in self.waits:
            if wait.distance == 0:
                sources[number[wait.target]].add(number[wait.source])
        order: list[int] = []
        left = set(number.values())
        while left:
            ready = [i for i in left if not sources[i] & left]
            if not ready:
                while after := [i for i in left if not any(i in sources[j] for j in left)]:
                    left.difference_update(after)  # these only wait for the cycle
                stuck = ", ".join(self.actions[i].name for i in sorted(left))
                raise PlanError(f"waits of distance 0 form a cycle, so that no iteration could start: {stuck}")
            order.append(min(ready, key=lambda i: (rank[i] if rank else 0.0, i)))
            left.remove(order[-1])
        return order


def body_of(
    graph: TileGraph,
    loop: Loop,
    delay_s: Mapping[str, float],
    busy_s: Mapping[str, Mapping[str, float]],
    *,
    row: int = 0,
) -> LoopBody:
    """The body of one configuration of a tile graph.

    Parameters
    ----------
    graph, loop
        Actions and edges; ``loop`` gives the distances of rings, and ``row`` is the configuration in it.
    delay_s, busy_s
        Delay of every action; busy times by action and resource, for those that hold any.

    Raises
    ------
    PlanError
        If an action has no delay, or ``busy_s`` names an action that is not in the graph.
    """
    for name in graph.actions:
        if name not in delay_s:
            raise PlanError(f"no delay given for action '{name}'; given: {', '.join(sorted(delay_s))}")
    for name in busy_s:
        if name not in graph.actions:
            raise PlanError(f"busy time of '{name}', which is not in the graph: {', '.join(graph.actions)}")
    waits = []
    for edge in graph.edges:
        distance = float(np.broadcast_to(edge.distance.iterations(loop.columns), len(loop.stages))[row])
        if distance >= edge.distance.absent_below:
            waits.append(Wait(edge.source, edge.target, int(distance), edge.ring))
    actions = (TimedAction(name, float(delay_s[name]), dict(busy_s.get(name, {}))) for name in graph.actions)
    return LoopBody(tuple(actions), tuple(waits))


@dataclass(frozen=True)
class PeriodBounds:
    """What no order can beat: ``resource_s`` by resource; ``dependence_s``, recurrences and rings together."""

    resource_s: Mapping[str, float]
    dependence_s: float

    @property
    def largest_s(self) -> float:
        """The larger of all."""
        return max(self.dependence_s, *self.resource_s.values(), 0.0)


class Pair(NamedTuple):
    """Two actions on a common resource: numbers, how long each holds it, and which it is."""

    first: int
    second: int
    first_s: float
    second_s: float
    first_reason: str
    second_reason: str

    def arcs(self, turns: int) -> tuple[Arc, Arc]:
        return (
            Arc(self.first, self.second, self.first_s, turns, self.first_reason),
            Arc(self.second, self.first, self.second_s, 1 - turns, self.second_reason),
        )


@dataclass(frozen=True)
class Problem:
    """A body in numbers, for a search over ``turns`` (``orders.py``).

    ``arcs`` are the waits, and each action after itself. ``searched`` leaves out waits that lie on no cycle where the body
    may be rotated: a shift of what follows, by whole periods, always meets them. ``pairs`` compete for a resource.
    ``tolerance`` is in seconds.
    """

    size: int
    arcs: tuple[Arc, ...]
    searched: tuple[Arc, ...]
    pairs: tuple[Pair, ...]
    rotated: bool
    tolerance: float

    def turns(self, pair: Pair, period: float, start: Sequence[float]) -> int:
        """Turns at start times: ``second`` of i + turns starts no earlier than ``first`` of i, and before that of i + 1."""
        return ceil((start[pair.first] - start[pair.second]) / period)

    def overlap(self, pair: Pair, period: float, start: Sequence[float]) -> float:
        """For how long the two collide at these start times, modulo the period; 0 or less if they don't.

        Not rotated, turns other than 0 and 1 collide for a whole period.
        """
        turns = self.turns(pair, period, start)
        if not self.rotated and turns not in (0, 1):
            return period
        after = start[pair.second] - start[pair.first] + turns * period
        return max(pair.first_s - after, pair.second_s - (period - after))

    def decided(self, turns: Sequence[int], *, at_least_s: float = 0.0, below_s: float = inf) -> SteadyState | None:
        """Steady state with the turns of all pairs decided, one each."""
        chosen = (arc for pair, k in zip(self.pairs, turns, strict=True) for arc in pair.arcs(k))
        return steady_state(self.size, [*self.searched, *chosen], at_least_s, None, below_s)


def period_bounds(body: LoopBody) -> PeriodBounds:
    """Resource bounds (summed busy time) and the dependence bound (largest ratio of a cycle of waits)."""
    busy = {name: sum(action.busy_s.get(name, 0.0) for action in body.actions) for name in body.resources}
    state = steady_state(len(body.actions), _waits(body))
    assert state is not None  # every cycle of waits spans an iteration
    return PeriodBounds(busy, state.period_s)


def _waits(body: LoopBody) -> list[Arc]:
    number = {action.name: i for i, action in enumerate(body.actions)}
    delay = [action.delay_s for action in body.actions]
    return [
        Arc(
            number[wait.source],
            number[wait.target],
            delay[number[wait.source]],
            wait.distance,
            "ring" if wait.ring else "value",
        )
        for wait in body.waits
    ]


def problem_of(body: LoopBody, rotated: bool) -> Problem:
    """Arcs of waits, of each action after itself, and the pairs that compete."""
    size = len(body.actions)
    waits = _waits(body)
    itself, pairs = [], []
    for i, first in enumerate(body.actions):
        held = {name: busy for name, busy in first.busy_s.items() if busy > 0}
        if held:
            longest = max(held, key=held.__getitem__)
            itself.append(Arc(i, i, held[longest], 1, longest))
        for j, second in enumerate(body.actions[i + 1 :], i + 1):
            common = [name for name in held if second.busy_s.get(name, 0.0) > 0]
            if common:
                one = max(common, key=first.busy_s.__getitem__)
                other = max(common, key=second.busy_s.__getitem__)
                pairs.append(Pair(i, j, first.busy_s[one], second.busy_s[other], one, other))
    reaches = [reaches_from(size, waits, i) for i in range(size)]
    closed = [arc for arc in waits if reaches[arc.target][arc.source]]
    return Problem(
        size=size,
        arcs=(*waits, *itself),
        searched=(*(closed if rotated else waits), *itself),
        pairs=tuple(pairs),
        rotated=rotated,
        tolerance=100.0 * TOLERANCE * max((arc.length_s for arc in (*waits, *itself)), default=0.0),
    )


def reaches_from(size: int, arcs: Sequence[Arc], action: int) -> list[bool]:
    """Which actions a path of arcs leads to; an action reaches itself."""
    targets: list[list[int]] = [[] for _ in range(size)]
    for arc in arcs:
        targets[arc.source].append(arc.target)
    found, stack = [False] * size, [action]
    found[action] = True
    while stack:
        for target in targets[stack.pop()]:
            if not found[target]:
                found[target] = True
                stack.append(target)
    return found
