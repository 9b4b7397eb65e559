"""Schedules by hand; 500 random small bodies against brute force; witnesses replayed; honest bounds on larger bodies."""

import random
import time
from itertools import pairwise, product
from math import inf

import networkx
import numpy as np
import pytest

from tilesight.cost import orders
from tilesight.cost.body import LoopBody, TimedAction, Wait, body_of, period_bounds
from tilesight.cost.cycles import Arc, steady_state
from tilesight.cost.orders import Schedule, find_schedule
from tilesight.cost.replay import replay, served
from tilesight.errors import PlanError
from tilesight.plan.action import Action, ActionKind
from tilesight.plan.graph import Distance, Edge, TileGraph
from tilesight.plan.loop import Loop

CLASSES = pytest.mark.parametrize("rotated", [False, True], ids=["program order", "rotated"])


def body(actions, *waits):
    """``{name: (delay, {resource: busy})}`` and waits as (source, target, distance)."""
    return LoopBody(
        tuple(TimedAction(name, delay, busy) for name, (delay, busy) in actions.items()),
        tuple(Wait(*wait) for wait in waits),
    )


# --- brute force: nothing of the search is used ---


def largest_ratio(arcs):
    """Largest length / distance over all elementary cycles of (source, target, length, distance); inf if one spans none."""
    graph = networkx.MultiDiGraph()
    for source, target, length, distance in arcs:
        graph.add_edge(source, target, length=length, distance=distance)
    largest = 0.0
    for nodes in networkx.simple_cycles(networkx.DiGraph(graph)):
        steps = [list(graph[a][b].values()) for a, b in zip(nodes, [*nodes[1:], nodes[0]], strict=True)]
        for edges in product(*steps):
            length, distance = (sum(edge[what] for edge in edges) for what in ("length", "distance"))
            largest = max(largest, inf if distance <= 0 < length else length / distance if length else 0.0)
    return largest


def fixed_arcs(loop):
    delay = {action.name: action.delay_s for action in loop.actions}
    waits = [(wait.source, wait.target, delay[wait.source], wait.distance) for wait in loop.waits]
    return waits + [(x.name, x.name, busy, 1) for x in loop.actions for busy in x.busy_s.values() if busy > 0]


def best_program_order(loop):
    """Minimum over all topological orders: each resource serves its actions in that order, then the next iteration."""
    dag = networkx.DiGraph([(wait.source, wait.target) for wait in loop.waits if wait.distance == 0])
    dag.add_nodes_from(action.name for action in loop.actions)
    busy = {action.name: action.busy_s for action in loop.actions}
    queues = {
        tuple(tuple(x for x in order if busy[x].get(resource, 0) > 0) for resource in loop.resources)
        for order in networkx.all_topological_sorts(dag)
    }
    periods = []
    for chosen in queues:
        arcs = fixed_arcs(loop)
        for resource, queue in zip(loop.resources, chosen, strict=True):
            arcs += [(a, b, busy[a][resource], 0) for a, b in pairwise(queue)]
            arcs += [(queue[-1], queue[0], busy[queue[-1]][resource], 1)]
        periods.append(largest_ratio(arcs))
    return min(periods)


def rivals(loop):
    return [
        (a, b)
        for i, a in enumerate(loop.actions)
        for b in loop.actions[i + 1 :]
        if any(a.busy_s[name] > 0 and b.busy_s.get(name, 0) > 0 for name in a.busy_s)
    ]


def best_rotation(loop, reach=6):
    """Minimum over all turns in -reach .. reach + 1 of all pairs: every cycle with its distance as a sum of turns."""
    arcs = [(a, b, length, distance, None, 0) for a, b, length, distance in fixed_arcs(loop)]
    pairs = rivals(loop)
    for i, (a, b) in enumerate(pairs):
        common = [name for name in a.busy_s if a.busy_s[name] > 0 and b.busy_s.get(name, 0) > 0]
        arcs.append((a.name, b.name, max(a.busy_s[name] for name in common), 0, i, 1))
        arcs.append((b.name, a.name, max(b.busy_s[name] for name in common), 1, i, -1))
    steps = {}
    for arc in arcs:
        steps.setdefault(arc[:2], []).append(arc)
    choices = list(product(range(-reach, reach + 2), repeat=len(pairs)))
    turns = np.array(choices, float).reshape(len(choices), len(pairs))
    periods = np.zeros(len(turns))
    for nodes in networkx.simple_cycles(networkx.DiGraph(list(steps))):
        for cycle in product(*(steps[edge] for edge in zip(nodes, [*nodes[1:], nodes[0]], strict=True))):
            length, distance = sum(arc[2] for arc in cycle), np.full(len(turns), float(sum(arc[3] for arc in cycle)))
            for arc in cycle:
                if arc[4] is not None:
                    distance += arc[5] * turns[:, arc[4]]
            if length > 0:
                ratio = length / np.where(distance > 0, distance, 1.0)
                periods = np.maximum(periods, np.where(distance > 0, ratio, inf))
    return periods.min()


def random_body(rng, size, resources=2, density=0.4, several=0.2):
    """Whole times, so that periods that should be equal are equal."""
    names = [f"a{i}" for i in range(size)]
    actions = {
        name: (
            rng.randint(0, 9),
            {f"r{r}": rng.randint(0, 5) for r in range(resources) if rng.random() < 1 / resources + several},
        )
        for name in names
    }
    waits = []
    for i, j in product(range(size), repeat=2):
        if i < j and rng.random() < density:
            waits.append((names[i], names[j], rng.choice([0, 0, 0, 1])))
        if i >= j and rng.random() < density / 3:
            waits.append((names[i], names[j], rng.randint(1, 3), True))
    return body(actions, *waits)


def small_bodies(count, most_pairs, seed, sizes=(2, 6)):
    rng, found = random.Random(seed), []
    while len(found) < count:
        loop = random_body(rng, rng.randint(*sizes))
        found += [loop] if len(rivals(loop)) <= most_pairs else []
    return found


PROGRAM_ORDER = small_bodies(250, most_pairs=12, seed=1)
ROTATED = small_bodies(250, most_pairs=4, seed=2, sizes=(2, 5))


@pytest.fixture(scope="module")
def solved():
    """All random bodies with their brute-force optimum."""
    return [(loop, False, best_program_order(loop)) for loop in PROGRAM_ORDER] + [
        (loop, True, best_rotation(loop)) for loop in ROTATED
    ]


def test_the_search_equals_brute_force(solved):
    assert len(solved) == 500
    beyond = 0
    for loop, rotated, optimum in solved:
        schedule = find_schedule(loop, rotated=rotated)
        assert schedule.period_s == pytest.approx(optimum, rel=1e-9), loop
        assert schedule.optimal
        assert schedule.gap == 0
        beyond += optimum > schedule.bounds.largest_s * (1 + 1e-9)
    assert beyond > 100  # bodies whose orders matter: no closed form of bounds would do


def test_the_search_needs_no_good_start(solved, monkeypatch):
    # one iteration after the other is all it begins with: what is left to find, choices of turns must find
    def serial(loop, problem, root):
        place = {action: i for i, action in enumerate(loop.order_by([0.0] * problem.size))}
        return problem.decided([0 if place[pair.first] < place[pair.second] else 1 for pair in problem.pairs])

    monkeypatch.setattr(orders, "first_schedule", serial)
    monkeypatch.setattr(orders, "improved", lambda problem, root, state: state)
    for loop, rotated, optimum in solved:
        schedule = find_schedule(loop, rotated=rotated)
        assert schedule.period_s == pytest.approx(optimum, rel=1e-9), loop
        assert schedule.optimal


def test_the_lower_bound_is_never_above_the_optimum(solved):
    cut = 0
    for loop, rotated, optimum in solved:
        for nodes in (0, 1, 3, 8):
            schedule = find_schedule(loop, rotated=rotated, most_nodes=nodes)
            assert schedule.bounds.largest_s <= schedule.lower_bound_s * (1 + 1e-9)
            assert schedule.lower_bound_s <= optimum * (1 + 1e-9)
            assert optimum <= schedule.period_s * (1 + 1e-9)
            cut += not schedule.optimal
    assert cut > 20  # some searches did end early


def test_rotation_never_costs(solved):
    for loop, _, _ in solved:
        assert find_schedule(loop).period_s <= find_schedule(loop, rotated=False).period_s * (1 + 1e-9)


# --- witness ---


def check_witness(schedule: Schedule):
    """Waits hold, no resource serves two at once, the critical cycle gives the period, and the replay is as fast."""
    start, period = schedule.start_s, schedule.period_s
    actions = {action.name: action for action in schedule.body.actions}
    slack = 1e-9 * (1 + max(start.values()) + period)
    for wait in schedule.body.waits:
        assert start[wait.target] + wait.distance * period >= start[wait.source] + actions[wait.source].delay_s - slack
    lengths, spans = (sum(step[i] for step in schedule.critical) for i in (2, 3))
    assert lengths == pytest.approx(period * spans, rel=1e-9)
    assert bool(schedule.critical) == (period > 0)
    ends = max(schedule.lags.values(), default=0) + spans  # the first and the last iterations have fewer neighbours
    iterations = 2 * ends + 30
    for resource in schedule.body.resources:
        held = sorted(
            (start[name] + i * period, start[name] + i * period + action.busy_s[resource])
            for name, action in actions.items()
            if action.busy_s.get(resource, 0) > 0
            for i in range(iterations)
        )
        assert all(end <= begin + slack for (_, end), (begin, _) in pairwise(held)), resource
    times = replay(schedule, iterations)
    rows = {name: row for row, name in enumerate(actions)}
    latest = np.array([[start[name] + i * period for i in range(iterations)] for name in actions]).reshape(times.shape)
    assert np.all(times <= latest + slack)
    for step in schedule.critical:
        row = times[rows[step.source]][ends : iterations - ends]
        turn = row[spans:] - row[:-spans]
        assert np.all(turn >= spans * period - slack)
        assert turn[-1] == pytest.approx(spans * period, rel=1e-9)


def test_witnesses_of_random_bodies(solved):
    for loop, rotated, _ in solved[::3]:
        check_witness(find_schedule(loop, rotated=rotated))


@CLASSES
def test_in_program_order_no_resource_takes_the_next_iteration_early(rotated):
    schedule = find_schedule(LOAD_MMA_STORE, rotated=rotated)
    queue = [(schedule.body.actions[a].name, i) for a, i in served(schedule, "tma", 3)]
    if rotated:
        assert queue == [("load", 0), ("load", 1), ("store", 0), ("load", 2), ("store", 1), ("store", 2)]
    else:
        assert queue == [("load", 0), ("store", 0), ("load", 1), ("store", 1), ("load", 2), ("store", 2)]


def test_a_replay_in_an_impossible_order_is_refused():
    good = find_schedule(LOAD_MMA_STORE, rotated=False)
    bad = Schedule(**{**vars(good), "order": ("store", "load", "mma")})
    with pytest.raises(PlanError, match="the order store, load, mma can't be run"):
        replay(bad, 4)


def test_a_replay_in_a_worse_order_is_slower():
    # convert, then load of the next: 2 + 3 on one port, but the chain load 3, convert 2 now repeats every 5
    good = find_schedule(LOAD_MMA_STORE)
    worse = Schedule(**{**vars(good), "lags": dict.fromkeys(good.lags, 0)})
    assert np.diff(replay(good, 30)[0])[-1] == pytest.approx(7)
    assert np.diff(replay(worse, 30)[0])[-1] == pytest.approx(13)


# --- by hand ---

LOAD_MMA_STORE = body(
    {"load": (4, {"tma": 4}), "mma": (6, {"tensor": 6}), "store": (3, {"tma": 3})},
    ("load", "mma"),
    ("mma", "store"),
    ("mma", "load", 2, True),
)


def test_load_product_store_by_hand():
    # one order: load 4, product 6, store 3 in series on the engine's clock; rotated: the engine's 4 + 3 bind
    program, rotated = (find_schedule(LOAD_MMA_STORE, rotated=flag) for flag in (False, True))
    assert (program.period_s, rotated.period_s) == (13, 7)
    assert program.optimal
    assert rotated.optimal
    assert rotated.bounds.resource_s == {"tma": 7, "tensor": 6}
    assert rotated.bounds.dependence_s == 5  # (4 + 6) / 2 slots
    assert sorted(program.critical) == [
        ("load", "mma", 4, 0, "value"),
        ("mma", "store", 6, 0, "value"),
        ("store", "load", 3, 1, "tma"),
    ]
    assert {step.reason for step in rotated.critical} == {"tma"}
    check_witness(program)
    check_witness(rotated)


@CLASSES
def test_ring_of_one_slot_by_hand(rotated):
    # fill 9 and product 3 of the same slot: in series
    loop = body({"load": (9, {"l2": 2}), "mma": (3, {"tensor": 3})}, ("load", "mma"), ("mma", "load", 1, True))
    schedule = find_schedule(loop, rotated=rotated)
    assert schedule.period_s == 12
    assert schedule.optimal
    assert {step.reason for step in schedule.critical} == {"value", "ring"}
    check_witness(schedule)


@pytest.mark.parametrize(("slots", "period"), [(1, 13), (2, 6.5), (3, 13 / 3), (4, 4), (9, 4)])
def test_slots_by_hand(slots, period):
    # fill 9 + product 4, over the slots, until the tensor cores bind
    loop = body({"load": (9, {"l2": 2}), "mma": (4, {"tensor": 4})}, ("load", "mma"), ("mma", "load", slots, True))
    schedule = find_schedule(loop)
    assert schedule.period_s == pytest.approx(period)
    check_witness(schedule)


@CLASSES
def test_a_rigid_chain_collides_with_itself_by_hand(rotated):
    # a and b hold r for 2 each: 4. Their ring of 2 slots: (4 + 4) / 2 = 4. But at P = 4 the ring leaves b - a = 4 alone,
    # where b of i meets a of i + 1. In general 4 <= b - a <= 2 P - 4, and 2 <= b - a <= P - 2 modulo P: P = 6
    loop = body({"a": (4, {"r": 2}), "b": (4, {"r": 2})}, ("a", "b"), ("b", "a", 2, True))
    schedule = find_schedule(loop, rotated=rotated)
    assert schedule.bounds.largest_s == 4
    assert schedule.period_s == 6
    assert schedule.optimal
    check_witness(schedule)


@CLASSES
def test_self_loops_by_hand(rotated):
    # 10 s that the iteration after the next waits for: 5; the resource itself needs 3
    schedule = find_schedule(body({"reduce": (10, {"fp32": 3})}, ("reduce", "reduce", 2)), rotated=rotated)
    assert schedule.period_s == 5
    assert schedule.critical == (("reduce", "reduce", 10, 2, "value"),)
    check_witness(schedule)


@CLASSES
def test_nothing_to_do_takes_no_time(rotated):
    for loop in (body({}), body({"wait": (0, {"issue": 0})}), body({"a": (5, {}), "b": (0, {})}, ("a", "b"))):
        schedule = find_schedule(loop, rotated=rotated)
        assert (schedule.period_s, schedule.critical, schedule.optimal, schedule.gap) == (0, (), True, 0)


@CLASSES
def test_zero_delays_by_hand(rotated):
    # results at once, but the resource is held: 1 + 2 + 3
    loop = body({x: (0, {"issue": s}) for x, s in (("a", 1), ("b", 2), ("c", 3))}, ("c", "a"), ("a", "b", 0))
    schedule = find_schedule(loop, rotated=rotated)
    assert schedule.period_s == 6
    assert not rotated or schedule.optimal
    check_witness(schedule)


def test_far_behind_by_hand():
    # a latency of 95 at a period of 2 + 3: the store of a tile runs 19 iterations behind its load
    loop = body({"load": (95, {"l2": 2}), "store": (1, {"l2": 3})}, ("load", "store"))
    schedule = find_schedule(loop)
    assert schedule.period_s == 5
    assert schedule.lags["store"] >= 19
    assert find_schedule(loop, rotated=False).period_s == 98
    check_witness(schedule)


def test_several_resources_are_held_together():
    # engine and L2 from the start on: store can only follow 10 after load on the engine, load 10 after store on L2
    loop = body({"load": (0, {"tma": 10, "l2": 1}), "store": (0, {"tma": 1, "l2": 10})})
    schedule = find_schedule(loop)
    assert (schedule.period_s, schedule.bounds.largest_s) == (20, 11)
    assert schedule.optimal
    check_witness(schedule)


@pytest.mark.parametrize(
    ("actions", "waits", "message"),
    [
        ({"a": (1, {})}, [("a", "a")], "no iteration could start: a$"),
        ({"a": (0, {}), "b": (0, {}), "c": (1, {})}, [("a", "b"), ("b", "a"), ("b", "c")], "could start: a, b$"),
        ({"a": (1, {})}, [("a", "b")], "wait a -> b: no action 'b'"),
        ({"a": (1, {})}, [("a", "a", -1)], "wait a -> a: distance -1; give 0, 1, 2"),
        ({"a": (1, {})}, [("a", "a", 1.5)], "distance 1.5"),
        ({"a": (-1, {})}, [], "action 'a': delay = -1 s"),
        ({"a": (1, {"l2": float("nan")})}, [], "action 'a': l2 = nan s"),
    ],
)
def test_impossible_bodies_are_refused(actions, waits, message):
    with pytest.raises(PlanError, match=message):
        body(actions, *waits)


def test_repeated_names_and_negative_effort_are_refused():
    with pytest.raises(PlanError, match="action names repeat"):
        LoopBody((TimedAction("a", 1, {}), TimedAction("a", 1, {})), ())
    with pytest.raises(PlanError, match="most_nodes = -1"):
        find_schedule(LOAD_MMA_STORE, most_nodes=-1)


# --- the largest ratio of a cycle ---


def test_the_ratio_is_exact_on_random_graphs():
    rng = random.Random(5)
    for _ in range(200):
        size = rng.randint(1, 6)
        arcs = [
            Arc(rng.randrange(size), rng.randrange(size), rng.randint(0, 9), rng.randint(-1, 3), "value")
            for _ in range(rng.randint(0, 12))
        ]
        arcs = [arc for arc in arcs if arc.length_s > 0 or arc.distance > 0]  # of length 0, only those that span some
        state, want = steady_state(size, arcs), largest_ratio([arc[:4] for arc in arcs])
        assert (inf if state is None else state.period_s) == pytest.approx(want)
        if state is not None:
            for arc in arcs:
                need = state.start_s[arc.source] + arc.length_s - arc.distance * state.period_s
                assert state.start_s[arc.target] >= need - 1e-9


def test_a_ceiling_ends_the_search_for_the_ratio():
    arcs = [Arc(0, 0, 6.0, 1, "value")]
    assert steady_state(1, arcs, below_s=6.0) is None
    assert steady_state(1, arcs, below_s=6.5).period_s == 6


# --- larger bodies ---


def large_body(seed, size=30):
    return random_body(random.Random(seed), size, resources=3, density=4 / size, several=0.05)


@CLASSES
def test_larger_bodies_in_bounded_time_with_an_honest_gap(rotated):
    gaps = []
    for seed in range(4, 10):
        loop = large_body(seed)
        begin = time.process_time()
        schedule = find_schedule(loop, rotated=rotated)
        assert time.process_time() - begin < 1.0
        assert schedule.bounds.largest_s * (1 - 1e-9) <= schedule.lower_bound_s <= schedule.period_s
        assert schedule.gap == pytest.approx(0 if schedule.optimal else schedule.period_s / schedule.lower_bound_s - 1)
        check_witness(schedule)
        gaps.append(schedule.gap)
    assert 0 < max(gaps) < 0.2  # not all are solved to the end, and those that aren't say so


@CLASSES
def test_same_body_same_schedule(rotated):
    assert find_schedule(large_body(3, 16), rotated=rotated) == find_schedule(large_body(3, 16), rotated=rotated)


def test_more_effort_is_never_worse():
    for seed in range(4):
        few, many = (find_schedule(large_body(seed, 14), most_nodes=nodes) for nodes in (20, 2000))
        assert many.period_s <= few.period_s * (1 + 1e-9)
        assert many.lower_bound_s >= few.lower_bound_s * (1 - 1e-9)


# --- from a tile graph ---


def test_body_of_a_graph_by_hand():
    graph = TileGraph(
        [Action("load", ActionKind.LOAD), Action("mma", ActionKind.MMA)],
        [
            Edge("load", "mma"),
            Edge("mma", "load", Distance("stages"), ring=True),
            Edge("load", "load", Distance("stages", -1, absent_below=1), ring=True),
        ],
    )
    loop = Loop(iterations=np.full(2, 9.0), stages=np.array([1.0, 4.0]))
    times = {"load": 9.0, "mma": 4.0}, {"mma": {"tensor": 4.0}}
    one, four = (body_of(graph, loop, *times, row=row) for row in (0, 1))
    assert [wait.distance for wait in one.waits] == [0, 1]  # one slot: no load ahead
    assert [wait.distance for wait in four.waits] == [0, 4, 3]
    assert [period_bounds(each).dependence_s for each in (one, four)] == [13, 3.25]
    assert [find_schedule(each).period_s for each in (one, four)] == [13, 4]
    with pytest.raises(PlanError, match="no delay given for action 'mma'; given: load"):
        body_of(graph, loop, {"load": 1.0}, {})
    with pytest.raises(PlanError, match="busy time of 'store', which is not in the graph: load, mma"):
        body_of(graph, loop, times[0], {"store": {"l2": 1.0}})
