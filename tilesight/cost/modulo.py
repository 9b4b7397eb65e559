"""First schedules of a loop body, quickly: one iteration in program order, iterative modulo scheduling, and a descent.

Modulo scheduling (Rau, Iterative modulo scheduling, 1996) tries one period after the other. At a given period it places
one action at a time, the one with the longest way to the end first, at the earliest time within one period at which all
its resources are free modulo the period. Where there is none it takes the place of others, which are placed anew, as are
actions that it makes too early. After some number of placements the period is given up for a longer one.
"""

from collections.abc import Sequence
from math import ceil

from tilesight.cost.body import LoopBody, Problem
from tilesight.cost.cycles import Arc, SteadyState

PERIOD_STEP = 1.02
PERIOD_TRIES = 24
"""Periods tried: 1.02 apart, 1.58 times the lower bound at most."""
PLACEMENTS = 10
"""Placements for each action at one period."""


def first_schedule(body: LoopBody, problem: Problem, root: SteadyState) -> SteadyState:
    """The better of program order and modulo scheduling, after a descent.

    Parameters
    ----------
    body, problem
        What is scheduled, and the same in numbers.
    root
        Least period and start times without any turns.
    """
    place = {action: position for position, action in enumerate(body.order_by(root.start_s))}
    best = _descent(problem, root, [0 if place[pair.first] < place[pair.second] else 1 for pair in problem.pairs])
    period = root.period_s
    for _ in range(PERIOD_TRIES if problem.pairs else 0):
        if period >= best.period_s:
            break
        start = modulo_starts(problem, period)
        if start is not None:
            return min(best, improved(problem, root, SteadyState(period, start, ())), key=lambda state: state.period_s)
        period *= PERIOD_STEP
    return best


def improved(problem: Problem, root: SteadyState, state: SteadyState) -> SteadyState:
    """A schedule after a descent; the schedule itself if that is no better."""
    turns = [problem.turns(pair, state.period_s, state.start_s) for pair in problem.pairs]
    return min(state, _descent(problem, root, turns), key=lambda found: found.period_s)


def _descent(problem: Problem, root: SteadyState, turns: Sequence[int]) -> SteadyState:
    """Neighbours on a resource that lie on the critical cycle change places for as long as the period falls."""
    number = {(pair.first, pair.second): i for i, pair in enumerate(problem.pairs)}
    best = problem.decided(turns)
    assert best is not None  # a schedule to begin with
    while best.period_s > root.period_s:
        swaps = [
            (number[arc[:2]], 1) if arc[:2] in number else (number[arc.target, arc.source], -1)
            for arc in best.cycle
            if arc.reason not in ("value", "ring") and arc.source != arc.target
        ]
        better = None
        for i, change in swaps:
            tried = [*turns[:i], turns[i] + change, *turns[i + 1 :]]
            if problem.rotated or tried[i] in (0, 1):
                state = problem.decided(tried, below_s=(better[0] if better else best).period_s)
                better = (state, tried) if state is not None else better
        if better is None:
            break
        best, turns = better
    return best


def modulo_starts(problem: Problem, period: float) -> list[float] | None:
    """Start times of a schedule of that period, by iterative modulo scheduling; None if none was found.

    Raises nothing: the period must allow all waits.
    """
    height = _heights(problem, period)
    before: list[list[Arc]] = [[] for _ in range(problem.size)]
    for arc in problem.searched:
        before[arc.target].append(arc)
    rivals: list[list[tuple[int, float, float]]] = [[] for _ in range(problem.size)]
    for pair in problem.pairs:
        rivals[pair.first].append((pair.second, pair.first_s, pair.second_s))
        rivals[pair.second].append((pair.first, pair.second_s, pair.first_s))
    start: dict[int, float] = {}
    last: dict[int, float] = {}

    def colliding(action: int, at: float) -> list[int]:
        found = []
        for rival, own_s, rival_s in rivals[action]:
            if rival in start:
                after = (start[rival] - at) % period
                after = 0.0 if period - after <= problem.tolerance else after
                overlap = max(own_s - after, rival_s - (period - after)) > problem.tolerance
                apart = not problem.rotated and abs(start[rival] - at) >= period
                found += [rival] if overlap or apart else []
        return found

    for _ in range(PLACEMENTS * problem.size):
        left = [action for action in range(problem.size) if action not in start]
        if not left:
            break
        action = max(left, key=lambda i: (height[i], -i))
        known = [
            start[arc.source] + arc.length_s - period * arc.distance for arc in before[action] if arc.source in start
        ]
        earliest = max([0.0, *known])
        ends = [start[rival] + rival_s for rival, _, rival_s in rivals[action] if rival in start]
        slots = sorted([earliest, *(end + ceil((earliest - end) / period) * period for end in ends)])
        at = next((slot for slot in slots if not colliding(action, slot)), None)
        if at is None:
            at = next((slot for slot in slots if slot > last.get(action, -1.0)), last.get(action, 0.0) + period)
        for rival in colliding(action, at):
            del start[rival]
        start[action] = last[action] = at
        for arc in problem.searched:
            late = arc.source == action and arc.target in start and arc.target != action
            if late and start[arc.target] + problem.tolerance < at + arc.length_s - period * arc.distance:
                del start[arc.target]
    return [start[i] for i in range(problem.size)] if len(start) == problem.size else None


def _heights(problem: Problem, period: float) -> list[float]:
    """Longest way from each action to the end of its iteration, lengths less the periods that arcs span."""
    height = [0.0] * problem.size
    moved = True
    while moved:
        moved = False
        for arc in problem.searched:
            longest = height[arc.target] + arc.length_s - period * arc.distance
            if longest > height[arc.source] + problem.tolerance:
                height[arc.source], moved = longest, True
    return height
