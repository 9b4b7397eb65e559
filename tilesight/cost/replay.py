"""Replay of a schedule: iterations run as early as they can, each resource serving its actions in the schedule's order.

It knows nothing of how the schedule was found: start times follow from waits and queues alone. The replay may start
ahead of the schedule, never behind it, and in the long run it is exactly as fast.
"""

from collections import deque
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from tilesight.cost.orders import Schedule
from tilesight.errors import PlanError

Instance = tuple[int, int]
"""An action, by number, and an iteration."""


def replay(schedule: Schedule, iterations: int) -> NDArray[np.float64]:
    """Start times in seconds, shape (actions, iterations), actions in the order of the body.

    Raises
    ------
    PlanError
        If the schedule's order can't be run: an action waits for one that its resource serves later.

    Examples
    --------
    >>> from tilesight.cost.body import LoopBody, TimedAction
    >>> from tilesight.cost.orders import find_schedule
    >>> body = LoopBody((TimedAction("load", 4, {"tma": 4}), TimedAction("store", 3, {"tma": 3})), ())
    >>> replay(find_schedule(body), 3)
    array([[ 0.,  7., 14.],
           [ 4., 11., 18.]])
    """
    earlier: dict[Instance, list[tuple[Instance, float]]] = {}
    for i, action in enumerate(schedule.body.actions):
        for iteration in range(iterations):
            waits = [wait for wait in schedule.body.waits if wait.target == action.name and wait.distance <= iteration]
            earlier[i, iteration] = [
                ((number, iteration - wait.distance), source.delay_s)
                for wait in waits
                for number, source in enumerate(schedule.body.actions)
                if source.name == wait.source
            ]
    for resource in schedule.body.resources:
        queue = served(schedule, resource, iterations)
        for first, second in pairwise(queue):
            earlier[second].append((first, schedule.body.actions[first[0]].busy_s[resource]))

    later: dict[Instance, list[tuple[Instance, float]]] = {instance: [] for instance in earlier}
    for instance, needs in earlier.items():
        for need, seconds in needs:
            later[need].append((instance, seconds))
    missing = {instance: len(needs) for instance, needs in earlier.items()}
    ready = deque(instance for instance, count in missing.items() if count == 0)
    start, done = np.zeros((len(schedule.body.actions), iterations)), 0
    while ready:
        instance = ready.popleft()
        done += 1
        for follower, seconds in later[instance]:
            start[follower] = max(start[follower], start[instance] + seconds)
            missing[follower] -= 1
            if missing[follower] == 0:
                ready.append(follower)
    if done < len(missing):
        raise PlanError(
            f"the order {', '.join(schedule.order)} can't be run: {len(missing) - done} actions never start"
        )
    return start


def served(schedule: Schedule, resource: str, iterations: int) -> list[Instance]:
    """Actions of all iterations in the order in which a resource serves them.

    An action that is k iterations behind the newest takes its place in the body issued k iterations later.
    """
    number = {action.name: i for i, action in enumerate(schedule.body.actions)}
    queue = [
        (iteration + schedule.lags[name], place, number[name], iteration)
        for place, name in enumerate(schedule.served(resource))
        for iteration in range(iterations)
    ]
    return [(action, iteration) for _, _, action, iteration in sorted(queue)]
