import numpy as np
import pytest

from tilesight.cost.schedule import cycle_period, dependence_bounds
from tilesight.errors import PlanError
from tilesight.kernels.gemm import loop_graph
from tilesight.kernels.gemm_legal import CP_ASYNC, TMA_PERSISTENT, WARP_SPECIALIZED
from tilesight.plan.action import Action, ActionKind
from tilesight.plan.graph import Distance, Edge, TileGraph
from tilesight.plan.loop import Loop

FILL, MMA, ISSUE = 1200.0, 300.0, 70.0


def bounds_of(kernel, stages, fill=FILL, mma=MMA):
    stages = np.asarray(stages, dtype=float)
    loop = Loop(iterations=np.full_like(stages, 64), stages=stages)
    delays = {"issue": ISSUE, "load": fill, "wait": 0.0, "mma": mma}
    return dependence_bounds(loop_graph(kernel), {name: np.full_like(stages, v) for name, v in delays.items()}, loop)


@pytest.mark.parametrize("kernel", [CP_ASYNC, TMA_PERSISTENT])
def test_ring_of_an_in_order_loop_by_hand(kernel):
    # S = 1: fill and product in series, 1200 + 300; S = 2: 1200 / 1; S = 3: 1200 / 2; S = 4: 1200 / 3;
    # S = 9: 1200 / 8 = 150 for the loads, (1200 + 300) / 9 = 166.7 for a slot's whole turn
    ring = bounds_of(kernel, [1, 2, 3, 4, 9]).ring
    assert ring == pytest.approx([1500, 1200, 600, 400, 1500 / 9])


def test_ring_of_a_specialised_loop_by_hand():
    # fill and product of one slot over the slots: 1500 / S
    assert bounds_of(WARP_SPECIALIZED, [1, 2, 3, 4]).ring == pytest.approx([1500, 750, 500, 375])


@pytest.mark.parametrize("kernel", [CP_ASYNC, WARP_SPECIALIZED])
def test_the_slots_turn_never_outlasts_product_and_loads(kernel):
    # with one CTA, (fill + mma) / S lies between or below fill / (S - 1) and mma, so that the period of an in-order
    # loop is max(mma, fill / (S - 1)) from two stages on
    stages = np.arange(2, 33)
    for mma in (1.0, 100.0, 300.0, 5000.0):
        ring = bounds_of(kernel, stages, mma=mma).ring
        assert np.all(np.maximum(ring, mma) <= np.maximum(FILL / (stages - 1), mma) * (1 + 1e-12))


@pytest.mark.parametrize("kernel", [CP_ASYNC, TMA_PERSISTENT, WARP_SPECIALIZED])
def test_iterations_are_issued_one_after_the_other(kernel):
    bounds = bounds_of(kernel, [3, 30])
    assert bounds.recurrence == pytest.approx([ISSUE, ISSUE])
    assert bounds.largest == pytest.approx(np.maximum(bounds.ring, ISSUE))


def test_recurrence_by_hand():
    # a chain of 100 + 40 cycles whose result is needed two iterations later: 70 cycles an iteration
    names = [Action("exp", ActionKind.EXP), Action("reduce", ActionKind.REDUCE)]
    graph = TileGraph(names, [Edge("exp", "reduce"), Edge("reduce", "exp", Distance(offset=2))])
    loop = Loop(iterations=np.ones(2), stages=np.ones(2))
    bounds = dependence_bounds(graph, {"exp": np.array([100.0, 0.0]), "reduce": np.array([40.0, 0.0])}, loop)
    assert bounds.recurrence == pytest.approx([70, 0])
    assert bounds.ring == pytest.approx([0, 0])
    assert bounds.largest == pytest.approx([70, 0])


def test_the_slower_of_two_parallel_edges_decides():
    names = [Action("load", ActionKind.LOAD), Action("mma", ActionKind.MMA)]
    edges = [Edge("load", "mma"), Edge("mma", "load", Distance(offset=3)), Edge("mma", "load", Distance(offset=2))]
    loop = Loop(iterations=np.ones(1), stages=np.ones(1))
    bounds = dependence_bounds(TileGraph(names, edges), {"load": np.array([5.0]), "mma": np.array([7.0])}, loop)
    assert bounds.recurrence == pytest.approx([6])


def test_missing_delay_raises():
    loop = Loop(iterations=np.ones(1), stages=np.full(1, 3.0))
    with pytest.raises(PlanError, match="no delay given for action 'wait'; given: issue, load, mma"):
        dependence_bounds(loop_graph(CP_ASYNC), dict.fromkeys(("issue", "load", "mma"), np.ones(1)), loop)


def test_cycle_that_spans_no_iteration_is_refused():
    names = [Action("load", ActionKind.LOAD), Action("mma", ActionKind.MMA)]
    graph = TileGraph(names, [Edge("load", "mma"), Edge("mma", "load", Distance("stages", -1))])
    delays = {"load": np.ones(2), "mma": np.ones(2)}
    (cycle,) = graph.cycles
    with pytest.raises(PlanError, match="cycle load -> mma spans no iteration: it waits for itself"):
        cycle_period(cycle, delays, Loop(iterations=np.ones(2), stages=np.array([2.0, 1.0])))


def test_absent_edges_bind_nothing():
    names = [Action("load", ActionKind.LOAD)]
    graph = TileGraph(names, [Edge("load", "load", Distance("stages", -2, absent_below=1), ring=True)])
    loop = Loop(iterations=np.ones(4), stages=np.array([1.0, 2.0, 3.0, 4.0]))
    assert dependence_bounds(graph, {"load": np.full(4, 10.0)}, loop).ring == pytest.approx([0, 0, 10, 5])
