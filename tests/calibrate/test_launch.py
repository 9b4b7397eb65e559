"""What launches cost: kernels that wait for each other, starts of CTAs, replays of short graphs."""

from pathlib import Path

import pytest

from tilesight.calibrate import launch
from tilesight.calibrate.derive import derive_numbers
from tilesight.calibrate.records import Records

RECORDS = Path(__file__).parent.parent.parent / "validation" / "records" / "h200_sxm"


def chain(how, trigger, grid, work_cycles, gap_s, spread=0.001):
    return {
        "part": "chain", "how": how, "trigger": trigger, "grid": grid, "work_cycles": work_cycles, "gap_seconds": gap_s,
        "spread": spread,
    }  # fmt: skip


CHAINS = [
    chain("stream", "plain", 1, 4000, 1e-6),
    chain("stream", "plain", 132, 4000, 2e-6, 0.002),
    chain("stream", "plain", 132, 0, 9e-6),
    chain("stream", "first", 132, 4000, 9e-6),
    chain("graph", "plain", 132, 4000, 1.3e-6),
    chain("graph", "first", 132, 4000, 0.8e-6),
    {"part": "pair", "how": "graph", "trigger": "first", "grid": 132, "spread": 0.3},
]


def test_dependent_kernels(record):
    found = launch.dependent_kernels(record("launch_dependent", CHAINS))
    assert {name: each.value for name, each in found.items()} == {
        "launch.stream_dependent_s": 2e-6,  # of the largest grid, with work
        "launch.graph_dependent_s": 1.3e-6,
        "launch.graph_programmatic_s": 0.8e-6,
    }
    assert found["launch.stream_dependent_s"].spread == 0.002
    assert found["launch.stream_dependent_s"].note == "132 CTAs that work for 4000 cycles"


def test_a_gpu_without_programmatic_launches(record):
    missing = derive_numbers(record("launch_dependent", CHAINS[:-2])).missing
    assert missing["launch.graph_programmatic_s"] == "launch_dependent.csv: no row with how=graph, trigger=first"


def test_cta_start(record):
    rows = [
        {"part": "cta", "block": 128, "smem_bytes": 0, "seconds": 3e-6, "spread": 0.5},
        {"part": "cta_slope", "block": 128, "smem_bytes": 0, "cycles_per_cta_and_sm": 157.0, "spread": 0.001},
        {"part": "cta_slope", "block": 128, "smem_bytes": 102400, "cycles_per_cta_and_sm": 170.0, "spread": 0.01},
        {"part": "cta_slope", "block": 1024, "smem_bytes": 0, "cycles_per_cta_and_sm": 211.0, "spread": 0.01},
    ]
    found = launch.cta_start(record("launch_ctas", rows))
    assert (found.value, found.spread) == (157.0, 0.001)
    missing = derive_numbers(record("launch_ctas", rows[2:])).missing
    assert missing["launch.cta_start_cycles"] == (
        "launch_ctas.csv: no row with part=cta_slope, block=128, smem_bytes=0"
    )
    rows[1]["cycles_per_cta_and_sm"] = ""
    assert "nan is no number" in derive_numbers(record("launch_ctas", rows)).missing["launch.cta_start_cycles"]


def replays(node_s, gap_s, replay_s, busy_ns):
    """A GPU on which a replay of n nodes takes n (node + gap) + replay where it is short, n nodes where it is long."""
    rows = [
        {"state": "busy", "busy_ns": busy_ns, "nodes": nodes, "replays": 6, "spread": 0.02,
         "seconds_per_replay": nodes * (node_s + gap_s) + replay_s, "seconds_per_node": ""}
        for nodes in range(1, 6)
    ]  # fmt: skip
    long = {"seconds_per_replay": 50 * node_s, "seconds_per_node": node_s, "spread": 0.5}
    return [*rows, {"state": "busy", "busy_ns": busy_ns, "nodes": 50, "replays": 60, **long}]


def test_short_graphs(record):
    # two kernels, busy for 1 and 2 us: a gap of 0.1 and 0.3 us, a replay of 0.8 and 1 us; medians between. Empty nodes and
    # idle GPUs don't count
    rows = [
        *replays(2e-6, 0.1e-6, 0.8e-6, 1000),
        *replays(3e-6, 0.3e-6, 1.0e-6, 2000),
        *replays(1e-6, 9e-6, 9e-6, 0),
        *({**row, "state": "idle", "seconds_per_replay": 1.0} for row in replays(1e-6, 0.0, 0.0, 1000)),
    ]
    found = launch.short_graphs(record("graph_replays", rows))
    assert found["launch.short_graph_gap_s"].value == pytest.approx(0.2e-6)
    assert found["launch.graph_replay_s"].value == pytest.approx(0.9e-6)
    assert found["launch.graph_replay_s"].spread == 0.02  # of the rows of six replays


def test_short_graphs_that_lack_something(record):
    rows = replays(2e-6, 0.1e-6, 0.8e-6, 1000)
    missing = derive_numbers(record("graph_replays", rows[:-1])).missing
    assert missing["launch.graph_replay_s"] == "graph_replays.csv: no row with nodes=50, replays=60"
    missing = derive_numbers(record("graph_replays", [rows[0], rows[-1]])).missing
    assert missing["launch.short_graph_gap_s"] == "graph_replays.csv: one size only; a line needs two"
    rows[2]["seconds_per_replay"] = ""
    missing = derive_numbers(record("graph_replays", rows)).missing
    assert missing["launch.graph_replay_s"] == "graph_replays.csv: a cell that a line is drawn through is empty"


def test_the_h200(h200):
    records = Records(RECORDS, h200)
    found = {
        **launch.dependent_kernels(records),
        **launch.short_graphs(records),
        "launch.cta_start_cycles": launch.cta_start(records),
    }
    for name, each in found.items():
        assert each.kept, name
        assert each.rounded.value == h200.numbers[name], name
    in_turn = [found[name].value for name in launch.DEPENDENT]
    assert in_turn == sorted(in_turn, reverse=True)  # stream, graph, programmatic edge of a graph
