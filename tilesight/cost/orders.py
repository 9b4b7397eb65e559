"""The steady period of a loop body whose actions compete for resources: the minimum over orders, and a schedule.

With start times start[x] + i * P of iteration i, for every wait (``body.py``) and every two actions a, b on one resource,

    start[target] >= start[source] + delay[source] - distance * P
    start[b] >= start[a] + busy[a] - turns * P         start[a] >= start[b] + busy[b] - (1 - turns) * P

``turns`` says whose turn it is: the resource serves b of iteration i + turns after a of iteration i and before a of i + 1.
Given all turns, the least P is the largest ratio of a cycle (``cycles.py``); the period is the minimum over turns (the
recurrent job shop: Hanen, European Journal of Operational Research 72, 1994). Two classes of schedules are searched:

- rotated (default): any whole turns. These are all schedules that repeat every P, one iteration a period: the modulo
  schedules of Rau (1996). They are also the topological orders of all rotations of the body, in which an action may
  belong to an iteration some ``lags`` behind the newest (retiming: Leiserson and Saxe, Algorithmica 6, 1991).
- not rotated: turns of 0 or 1. Every resource serves an iteration, in the order of one topological order of the body,
  before it serves the next; different resources may still work on different iterations.

Schedules that repeat only every second or third iteration are not searched.

The search decides one pair that collides at a time. A partial choice of turns has a least period, a lower bound of all that
follow it, and is left out when it can't beat the best schedule known. Small bodies are searched to the end. For larger ones
the search keeps the most promising choices of each level (a beam), and the least bound of those it dropped is the lower
bound that it certifies.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import ceil, floor, inf
from typing import NamedTuple

from tilesight.cost.body import LoopBody, Pair, PeriodBounds, Problem, period_bounds, problem_of, reaches_from
from tilesight.cost.cycles import Arc, SteadyState, steady_state
from tilesight.cost.modulo import first_schedule, improved
from tilesight.errors import PlanError

WIDTHS = (4, 32, 256)
"""Choices kept at each level, one search after the other until one drops nothing that could be better."""
MOST_NODES = 800
"""Partial choices looked at, at most."""
SAME = 1e-9
"""Periods this close, relative, count as equal."""


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


class _Node(NamedTuple):
    """A partial choice of turns: its least period, the pair to decide next (None: a schedule) and all overlap."""

    period_s: float
    overlap_s: float
    start_s: list[float]
    arcs: tuple[Arc, ...]
    pair: Pair | None


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

    >>> from tilesight.cost.body import LoopBody, TimedAction, Wait
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
    problem, bounds = problem_of(body, rotated), period_bounds(body)
    root = steady_state(problem.size, problem.searched, bounds.largest_s)
    assert root is not None  # the bounds are periods that all waits allow
    best = first_schedule(body, problem, root)
    lower, nodes = root.period_s, 0
    for width in WIDTHS:
        found, lower, seen = _beam(problem, root, best, width, most_nodes - nodes)
        best = best if found is best else improved(problem, root, found)
        nodes += seen
        if lower >= best.period_s * (1.0 - SAME) or nodes >= most_nodes:
            break
    return _schedule(body, problem, best, lower, bounds, nodes)


def _beam(
    problem: Problem, root: SteadyState, best: SteadyState, width: int, most: int
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


def _children(problem: Problem, node: _Node, pair: Pair, below: float) -> Iterator[_Node | None]:
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
    if reaches_from(problem.size, node.arcs, pair.first)[pair.second]:
        for step in (1, -1):
            turns = here + step
            while (found := child(turns)) is not None:
                yield found
                turns += step
            yield None


def _node(problem: Problem, state: SteadyState, arcs: tuple[Arc, ...]) -> _Node:
    """A choice with the pair that overlaps most at its start times, modulo the period."""
    overlaps = [(problem.overlap(pair, state.period_s, state.start_s), pair) for pair in problem.pairs]
    overlaps = [entry for entry in overlaps if entry[0] > problem.tolerance]
    worst = max(overlaps, key=lambda entry: entry[0])[1] if overlaps else None
    return _Node(state.period_s, sum(entry[0] for entry in overlaps), state.start_s, arcs, worst)


def _schedule(
    body: LoopBody, problem: Problem, best: SteadyState, lower: float, bounds: PeriodBounds, nodes: int
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


def _met(problem: Problem, best: SteadyState) -> list[float]:
    """Start times shifted by whole periods until the arcs that were left out hold too."""
    start, period = list(best.start_s), best.period_s
    if not problem.rotated or period == 0:
        return start
    joined = [reaches_from(problem.size, problem.arcs, i) for i in range(problem.size)]
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
