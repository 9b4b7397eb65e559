"""The steady period of a loop body whose actions compete for resources: the minimum over orders, and a schedule.

An action has a delay (from its start to its result) and holds each of its resources for a busy time from its start on.
A resource serves one action at a time. ``target`` of iteration i + distance waits for the result of ``source`` of
iteration i; a ring of S slots is a wait of distance S from what reads a slot to what fills it. With start times
start[x] + i * P of iteration i, for every wait, and for every two actions a, b on one resource,

    start[target] >= start[source] + delay[source] - distance * P
    start[b] >= start[a] + busy[a] - turns * P         start[a] >= start[b] + busy[b] - (1 - turns) * P

``turns`` says whose turn it is: b of iteration i + turns is served after a of iteration i, and before a of i + 1. Given the
turns, the least P is the largest ratio of a cycle (``cycles.py``); the period is the minimum over turns (the recurrent job
shop: Hanen, European Journal of Operational Research 72, 1994). Two classes of schedules are searched:

- rotated (default): any whole ``turns``. These are all schedules that repeat every P, one iteration a period: the modulo
  schedules of Rau (Iterative modulo scheduling, 1996). They are also the topological orders of all rotations of the
  body, in which an action may belong to an iteration some ``lags`` behind the newest (retiming; Leiserson and Saxe, 1991).
- not rotated: ``turns`` 0 or 1. Every resource serves an iteration, in the order of one topological order of the body, before
  it serves the next one; different resources may still work on different iterations.

Schedules that repeat only every second or third iteration are not searched. A wait without a ring behind it has as many
buffers as it likes.

The search decides one pair that collides at a time. Each partial choice of turns has a least period, a lower bound of all
that follow it, so that a choice is left out when it can't beat the best schedule known. Small bodies are searched to the
end. For larger ones the search keeps the most promising choices of each level (a beam), and the least bound of those it
dropped is the lower bound that it certifies.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import ceil, floor, inf, isfinite
from typing import NamedTuple

from tilesight.cost.cycles import TOLERANCE, Arc, SteadyState, steady_state
from tilesight.errors import PlanError

WIDTHS = (4, 32, 256)
"""Choices kept at each level, one search after the other until one drops nothing that could be better."""
MOST_NODES = 2000
"""Partial choices looked at, at most."""
SAME = 1e-9
"""Periods this close, relative, count as equal."""


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
    tilesight.errors.PlanError: load waits for itself within one iteration
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
        return tuple(dict.fromkeys(name for action in self.actions for name, busy in action.busy_s.items() if busy > 0))

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
                stuck = [self.actions[i].name for i in sorted(left)]
                raise PlanError(f"{' and '.join(stuck)} waits for itself within one iteration" if len(stuck) == 1 else
                                f"{', '.join(stuck)} wait for each other within one iteration")  # fmt: skip
            order.append(min(ready, key=lambda i: (rank[i] if rank else 0.0, i)))
            left.remove(order[-1])
        return order


@dataclass(frozen=True)
class PeriodBounds:
    """What no order can beat: ``resource_s`` by resource; ``dependence_s``, recurrences and rings together."""

    resource_s: Mapping[str, float]
    dependence_s: float

    @property
    def largest_s(self) -> float:
        """The larger of all."""
        return max(self.dependence_s, *self.resource_s.values(), 0.0)


class CriticalStep(NamedTuple):
    """One step of the cycle that forces the period: why ``target``, ``distance`` iterations on, waits for ``source``."""

    source: str
    target: str
    length_s: float
    distance: int
    reason: str


@dataclass(frozen=True)
class Schedule:
    """The best schedule found, with its proof.

    Attributes
    ----------
    body, rotated
        What was scheduled, and in which class.
    period_s
        Time from one iteration to the next.
    lower_bound_s
        No schedule of the class has a shorter period.
    start_s
        Start of each action in iteration 0, the earliest possible; iteration i starts i * period later.
    order, lags
        The body as issued: its actions in order, and how many iterations each is behind the newest.
    critical
        The cycle that forces the period: its lengths over its distances. Empty if nothing does (a period of 0).
    bounds
        Resource and dependence bounds.
    nodes
        Partial choices looked at.
    """

    body: LoopBody
    rotated: bool
    period_s: float
    lower_bound_s: float
    start_s: Mapping[str, float]
    order: tuple[str, ...]
    lags: Mapping[str, int]
    critical: tuple[CriticalStep, ...]
    bounds: PeriodBounds
    nodes: int

    @property
    def gap(self) -> float:
        """How far the period may lie above the optimum, relative to the lower bound; 0 if it is the optimum."""
        return 0.0 if self.optimal else self.period_s / self.lower_bound_s - 1.0

    @property
    def optimal(self) -> bool:
        """Whether the period is certified to be the minimum of its class."""
        return self.period_s <= self.lower_bound_s * (1.0 + SAME)

    def served(self, resource: str) -> tuple[str, ...]:
        """Actions on one resource, in the order in which it serves them."""
        busy = {action.name: action.busy_s.get(resource, 0.0) for action in self.body.actions}
        return tuple(name for name in self.order if busy[name] > 0)


class _Pair(NamedTuple):
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
class _Problem:
    """A body in numbers. ``searched`` leaves out arcs that a shift by whole periods always meets."""

    size: int
    arcs: tuple[Arc, ...]
    searched: tuple[Arc, ...]
    pairs: tuple[_Pair, ...]
    rotated: bool
    tolerance: float

    def turns(self, pair: _Pair, period: float, start: Sequence[float]) -> int:
        """How many iterations of ``first`` start before ``second`` of the same iteration does, at these start times."""
        return ceil((start[pair.first] - start[pair.second]) / period)


class _Node(NamedTuple):
    """A partial choice of turns: its least period, the pair to decide next (None: a schedule) and all overlap."""

    period_s: float
    overlap_s: float
    start_s: list[float]
    arcs: tuple[Arc, ...]
    pair: _Pair | None


def period_bounds(body: LoopBody) -> PeriodBounds:
    """Resource bounds (summed busy time) and the dependence bound (largest ratio of a cycle of waits)."""
    busy = {name: sum(action.busy_s.get(name, 0.0) for action in body.actions) for name in body.resources}
    state = steady_state(len(body.actions), _waits(body))
    assert state is not None  # every cycle of waits spans an iteration
    return PeriodBounds(busy, state.period_s)


def find_schedule(body: LoopBody, *, rotated: bool = True, most_nodes: int = MOST_NODES) -> Schedule:
    """The schedule of least period that the search finds, with a certified lower bound.

    Parameters
    ----------
    body
        Actions and waits.
    rotated
        Whether a resource may serve an action of a later iteration before one of an earlier (see above).
    most_nodes
        Effort: partial choices looked at, at most. The same effort gives the same schedule.

    Raises
    ------
    PlanError
        If ``most_nodes`` is negative.

    Examples
    --------
    Load, product and store of a tile; loads and stores share a copy engine. In one order for each iteration, the engine
    waits for the product before the store; rotated, it loads the next tile meanwhile.

    >>> body = LoopBody(
    ...     (TimedAction("load", 4, {"tma": 4}), TimedAction("mma", 6, {"tensor": 6}), TimedAction("store", 3, {"tma": 3})),
    ...     (Wait("load", "mma"), Wait("mma", "store"), Wait("mma", "load", distance=2, ring=True)),
    ... )
    >>> [find_schedule(body, rotated=rotated).period_s for rotated in (False, True)]
    [13.0, 7.0]
    >>> schedule = find_schedule(body)
    >>> schedule.optimal, schedule.served("tma"), dict(schedule.lags)
    (True, ('load', 'store'), {'load': 0, 'mma': 0, 'store': 1})
    """
    if most_nodes < 0:
        raise PlanError(f"most_nodes = {most_nodes}; give 0 or more")
    problem, bounds = _problem(body, rotated), period_bounds(body)
    root = steady_state(problem.size, problem.searched, bounds.largest_s)
    assert root is not None  # the bounds are periods that all waits allow
    best = _program_order(body, problem, root)
    lower, nodes = root.period_s, 0
    for width in WIDTHS:
        best, lower, seen = _beam(problem, root, best, width, most_nodes - nodes)
        nodes += seen
        if lower >= best.period_s * (1.0 - SAME) or nodes >= most_nodes:
            break
    return _schedule(body, problem, best, lower, bounds, nodes)


def _beam(
    problem: _Problem, root: SteadyState, best: SteadyState, width: int, most: int
) -> tuple[SteadyState, float, int]:
    """Best schedule, lower bound and nodes of a search that keeps ``width`` choices a level."""
    dropped, nodes = inf, 0
    level = [_node(problem, root, problem.searched)]
    while level and best.period_s > root.period_s * (1.0 + SAME):
        children: list[_Node] = []
        for node in level:
            if node.pair is None:  # nothing overlaps: a schedule
                if node.period_s < best.period_s:
                    best = SteadyState(node.period_s, node.start_s, ())
            elif nodes >= most:
                dropped = min(dropped, node.period_s)
            elif node.period_s < best.period_s * (1.0 - SAME):
                for child in _children(problem, node, node.pair, best.period_s * (1.0 - SAME)):
                    nodes += 1
                    children += [child] if child is not None else []
        children.sort(key=lambda node: (node.period_s, node.overlap_s))
        level = children[:width]
        dropped = min([dropped, *(node.period_s for node in children[width : width + 1])])
    return best, max(root.period_s, min(best.period_s, dropped)), nodes


def _children(problem: _Problem, node: _Node, pair: _Pair, below: float) -> Iterator[_Node | None]:
    """The choices of one pair's turns that stay below a period; None for one that doesn't.

    More turns than the start times suggest only tighten one of the two arcs, fewer only the other, so each direction ends
    at the first choice that fails. Actions that nothing ties to each other yet can be shifted by whole periods: for them
    one choice stands for all.
    """

    def child(turns: int) -> _Node | None:
        arcs = (*node.arcs, *pair.arcs(turns))
        state = steady_state(problem.size, arcs, node.period_s, node.start_s, below)
        return None if state is None else _node(problem, state, arcs)

    if not problem.rotated:
        yield from map(child, (0, 1))
        return
    here = problem.turns(pair, node.period_s, node.start_s)
    yield child(here)
    if _reaches(problem.size, node.arcs, pair.first)[pair.second]:
        for step in (1, -1):
            turns = here + step
            while (found := child(turns)) is not None:
                yield found
                turns += step
            yield None


def _node(problem: _Problem, state: SteadyState, arcs: tuple[Arc, ...]) -> _Node:
    """A choice with the pair that overlaps most at its start times, modulo the period."""
    period, start = state.period_s, state.start_s
    most, overlap, worst = problem.tolerance, 0.0, None
    for pair in problem.pairs:
        turns = problem.turns(pair, period, start)
        after = start[pair.second] - start[pair.first] + turns * period
        lacks = max(pair.first_s - after, pair.second_s - (period - after))
        if not problem.rotated and turns not in (0, 1):
            lacks = period
        if lacks > problem.tolerance:
            overlap += lacks
        if lacks > most:
            most, worst = lacks, pair
    return _Node(period, overlap, start, arcs, worst)


def _program_order(body: LoopBody, problem: _Problem, root: SteadyState) -> SteadyState:
    """A first schedule, of either class: actions in topological order, those first that can start first."""
    place = {action: position for position, action in enumerate(body.order_by(root.start_s))}
    decided = [pair.arcs(0 if place[pair.first] < place[pair.second] else 1) for pair in problem.pairs]
    state = steady_state(problem.size, [*problem.searched, *(arc for arcs in decided for arc in arcs)], root.period_s)
    assert state is not None  # one iteration after the other always works
    return state


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


def _problem(body: LoopBody, rotated: bool) -> _Problem:
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
                pairs.append(_Pair(i, j, first.busy_s[one], second.busy_s[other], one, other))
    reaches = [_reaches(size, waits, i) for i in range(size)]
    closed = [arc for arc in waits if reaches[arc.target][arc.source]]
    return _Problem(
        size=size,
        arcs=(*waits, *itself),
        searched=(*(closed if rotated else waits), *itself),
        pairs=tuple(pairs),
        rotated=rotated,
        tolerance=100.0 * TOLERANCE * max((arc.length_s for arc in (*waits, *itself)), default=0.0),
    )


def _reaches(size: int, arcs: Sequence[Arc], action: int) -> list[bool]:
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


def _schedule(
    body: LoopBody, problem: _Problem, best: SteadyState, lower: float, bounds: PeriodBounds, nodes: int
) -> Schedule:
    """The schedule of the best choice of turns, its period computed anew from all arcs."""
    start = _met(problem, best)
    decided = [pair.arcs(problem.turns(pair, best.period_s, start)) for pair in problem.pairs]
    state = steady_state(problem.size, [*problem.arcs, *(arc for arcs in decided for arc in arcs)])
    assert state is not None  # the start times above meet all of them
    names, period, start = [action.name for action in body.actions], state.period_s, state.start_s
    lags = [0] * problem.size
    if problem.rotated and period > 0:
        lags = [floor(time / period + SAME) for time in start]
    phase = [time - lag * period for time, lag in zip(start, lags, strict=True)]
    place = {action: position for position, action in enumerate(body.order_by(start))}
    order = sorted(range(problem.size), key=lambda i: (phase[i], place[i]))
    return Schedule(
        body=body,
        rotated=problem.rotated,
        period_s=period,
        lower_bound_s=min(lower, period),
        start_s=dict(zip(names, start, strict=True)),
        order=tuple(names[i] for i in order),
        lags=dict(zip(names, lags, strict=True)),
        critical=tuple(CriticalStep(names[arc.source], names[arc.target], *arc[2:]) for arc in state.cycle),
        bounds=bounds,
        nodes=nodes,
    )


def _met(problem: _Problem, best: SteadyState) -> list[float]:
    """Start times shifted by whole periods until the arcs that were left out hold too."""
    start, period = list(best.start_s), best.period_s
    if not problem.rotated or period == 0:
        return start
    joined = [_reaches(problem.size, problem.arcs, i) for i in range(problem.size)]
    moved = True
    while moved:
        moved = False
        for arc in problem.arcs:
            late = start[arc.source] + arc.length_s - arc.distance * period - start[arc.target]
            periods = ceil(late / period - SAME)
            if periods > 0 and not joined[arc.target][arc.source]:
                moved = True
                group = [i for i in range(problem.size) if joined[arc.target][i] and joined[i][arc.target]]
                for i in group:
                    start[i] += periods * period
    return start
