import itertools
import subprocess
import sys

import networkx
import numpy as np
import pytest

from tilesight.errors import PlanError
from tilesight.kernels.gemm import loop_graph
from tilesight.kernels.gemm_legal import CP_ASYNC, TMA_PERSISTENT, WARP_SPECIALIZED
from tilesight.plan.action import Action, ActionKind, Demand, Demands
from tilesight.plan.graph import Distance, Edge, TileGraph

LOAD, MMA, STORE = (
    Action("load", ActionKind.LOAD),
    Action("mma", ActionKind.MMA),
    Action("store", ActionKind.STORE),
)


def test_order_follows_the_edges_of_one_iteration():
    # named backwards: the edges decide, not the list; the edge to the next iteration orders nothing
    graph = TileGraph(
        [STORE, MMA, LOAD], [Edge("load", "mma"), Edge("mma", "store"), Edge("store", "load", Distance(offset=1))]
    )
    assert graph.order == ("load", "mma", "store")


def test_order_of_independent_actions_is_that_of_the_list():
    assert TileGraph([STORE, MMA, LOAD], []).order == ("store", "mma", "load")


def test_edges_whose_distance_depends_on_the_configuration_order_nothing():
    graph = TileGraph([LOAD, MMA], [Edge("mma", "load", Distance("stages")), Edge("load", "mma")])
    assert graph.order == ("load", "mma")


def test_cycle_within_one_iteration_is_refused():
    graph = TileGraph([LOAD, MMA], [Edge("load", "mma"), Edge("mma", "load")])
    with pytest.raises(PlanError, match="distance-0 edges of the tile graph form a cycle"):
        _ = graph.order
    with pytest.raises(PlanError, match="no iteration could start"):
        _ = graph.cycles


def test_an_action_that_waits_for_itself_is_refused():
    with pytest.raises(PlanError, match="form a cycle"):
        _ = TileGraph([MMA], [Edge("mma", "mma")]).order


def test_cycles_of_parallel_edges_are_counted_separately():
    slot, sum_ = Edge("mma", "load", Distance("stages"), ring=True), Edge("mma", "load", Distance(offset=1))
    forward = Edge("load", "mma")
    graph = TileGraph([LOAD, MMA], [forward, slot, sum_])
    assert [cycle.actions for cycle in graph.cycles] == [("load", "mma")] * 2
    assert {cycle.edges for cycle in graph.cycles} == {(forward, slot), (forward, sum_)}
    assert sorted(cycle.is_ring for cycle in graph.cycles) == [False, True]


def test_cycles_against_every_closed_walk():
    # all edges between three actions, distance 1: 3 loops, 3 pairs, 2 triangles
    names = [LOAD, MMA, STORE]
    edges = [Edge(a.name, b.name, Distance(offset=1)) for a, b in itertools.product(names, repeat=2)]
    cycles = TileGraph(names, edges).cycles
    assert sorted(len(cycle.actions) for cycle in cycles) == [1, 1, 1, 2, 2, 2, 3, 3]
    for cycle in cycles:
        steps = zip(cycle.actions, [*cycle.actions[1:], cycle.actions[0]], strict=True)
        assert [(edge.source, edge.target) for edge in cycle.edges] == list(steps)


def test_cycles_begin_at_the_action_named_first_whatever_the_hash_seed():
    code = (
        "from tilesight.kernels.gemm import loop_graph;"
        "print([cycle.actions for kernel in range(3) for cycle in loop_graph(kernel).cycles])"
    )
    said = {
        subprocess.run(
            [sys.executable, "-c", code], env={"PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True
        ).stdout
        for seed in "01234"
    }
    assert len(said) == 1
    assert "('load', 'wait', 'mma')" in said.pop()


def test_no_cycle_without_a_way_back():
    assert TileGraph([LOAD, MMA], [Edge("load", "mma")]).cycles == ()


def test_names_repeat():
    with pytest.raises(PlanError, match=r"action names repeat: \['load', 'load'\]"):
        TileGraph([LOAD, LOAD], [])


@pytest.mark.parametrize("edge", [Edge("load", "mna"), Edge("mna", "load")])
def test_unknown_action(edge):
    with pytest.raises(PlanError, match=r"edge .*: no action 'mna' in the graph"):
        TileGraph([LOAD, MMA], [edge])


def test_distances():
    stages = {"stages": np.array([1.0, 2.0, 4.0])}
    assert Distance("stages", -1).iterations(stages).tolist() == [0, 1, 3]
    assert Distance(offset=2).iterations(stages) == 2
    with pytest.raises(PlanError, match="edge distance needs column 'slots'; given: stages"):
        Distance("slots").iterations(stages)


def test_networkx_graph_keeps_actions_and_parallel_edges():
    edges = [Edge("load", "mma"), Edge("load", "mma", Distance(offset=1))]
    graph = TileGraph([LOAD, MMA], edges).to_networkx()
    assert isinstance(graph, networkx.MultiDiGraph)
    assert graph.nodes["load"]["action"] == LOAD
    assert [data["edge"] for _, _, data in graph.edges(data=True)] == edges


@pytest.mark.parametrize(("kernel", "rings"), [(CP_ASYNC, 2), (TMA_PERSISTENT, 2), (WARP_SPECIALIZED, 1)])
def test_gemm_loop(kernel, rings):
    # every family: load, wait, mma, slot free again; loops of one instruction stream: load after load as well.
    # And iterations are issued one after the other
    graph = loop_graph(kernel)
    assert graph.order == ("issue", "load", "wait", "mma")
    assert sum(cycle.is_ring for cycle in graph.cycles) == rings
    assert [cycle.actions for cycle in graph.cycles if not cycle.is_ring] == [("issue",)]
    assert loop_graph(kernel) is graph


def test_actions_without_a_demand_demand_nothing():
    demands = Demands({"load": Demand(global_bytes=np.ones(1))})
    assert demands["wait"] == Demand()
    assert demands["load"].global_bytes == 1
    with pytest.raises(TypeError):
        demands.by_action["mma"] = Demand()
