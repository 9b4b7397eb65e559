"""What a launch costs beside its work: graph nodes, events, cold code, kernels that wait for others, starts of CTAs.

A difference of times spreads by as much as the times it is taken between, in seconds; see ``spread_of_difference``.
"""

import numpy as np

from tilesight.calibrate.cache import DIRTY_SHARES
from tilesight.calibrate.found import Derivation, Found, Numbers, one, spread_of_difference
from tilesight.calibrate.records import Record, Records, straight_line

SHORT_S = 20e-6
"""Products below this: what the gap adds is not lost in them."""
SHORT_GRAPH, LONG_GRAPH = 5, 50
"""Nodes."""
SMALL_BYTES = 2e6
"""Operands below this: a cold launch pays one fill's latency and no bandwidth."""
WORK_CYCLES = 4000
"""Work of a kernel in a chain, long enough to hide what the host and the front end prepare."""
DEPENDENT = {
    "launch.stream_dependent_s": ("stream", "plain"),
    "launch.graph_dependent_s": ("graph", "plain"),
    "launch.graph_programmatic_s": ("graph", "first"),
}
"""Number to how kernels follow each other in ``launch_dependent``, and when the earlier one triggers the next."""
CTA_THREADS = 128


def _single(records: Records) -> Record:
    """Products of the vendor's library that are one kernel."""
    return records["vendor_gemm"].pick(extra_kernels=0)


def graph_gap(records: Records) -> Found:
    """Time between kernels of a graph: a node's share of the graph less the kernel's own duration.

    The record's spread is that of the node; the duration is of one profiled call.
    """
    rows = _single(records)
    rows = rows.where(rows.column("warm_s") < SHORT_S, f"times below {SHORT_S:g} s")
    gap = float(np.median(rows.column("warm_s") - rows.column("main_s")))
    return Found(gap, spread_of_difference(gap, _term(rows, "warm_s")), ("vendor_gemm",))


def _term(rows: Record, column: str) -> tuple[float, float | None]:
    """A time of a difference that is a median over rows: how far it spreads in the middle row, of which all counts."""
    apart = rows.column(column) * (rows.column("spread") if "spread" in rows.columns else np.nan)
    known = apart[~np.isnan(apart)]
    return (float(np.median(known)), 1.0) if known.size else (0.0, None)


def kernel_start(records: Records) -> Found:
    """A node of a long graph of empty kernels."""
    rows = records["launch_overhead"].pick(part="nodes", kernel="empty", nodes=200)
    return Found(float(np.median(rows.column("seconds"))), rows.middle_spread, ("launch_overhead",))


def between_events(records: Records) -> Found:
    """An empty kernel between two events, with clean caches."""
    rows = records["dirty_lines"].pick(kernel="empty", state="clean")
    return Found(float(np.median(rows.column("seconds"))), rows.middle_spread, ("dirty_lines",))


def event(records: Records) -> Found:
    """What two events add to a kernel that starts in a graph."""
    between, node, gap = between_events(records), kernel_start(records), graph_gap(records)
    records_used = ("dirty_lines", "launch_overhead", "vendor_gemm")
    found = between.value - (node.value - gap.value)
    terms = ((each.value, each.spread) for each in (between, node, gap))
    return Found(found, spread_of_difference(found, *terms), records_used)


def cold_extra(records: Records) -> Found:
    """What a first launch pays beyond events and the latency of DRAM: cold instructions, parameters, descriptors.

    Products under 2 MB: cold less warm time, less what events add to a graph node, less the extra latency of one fill.
    """
    rows = _single(records)
    operand_bytes = 2.0 * rows.column("k") * (rows.column("m") + rows.column("n"))
    rows = rows.where(operand_bytes < SMALL_BYTES, f"operands below {SMALL_BYTES:g} B")
    colder = float(np.median(rows.column("cold_s") - rows.column("warm_s")))
    fill = records["stage_fill"].pick(
        part="fill", method="tma", active_sms=records.sm_count // 4, share=1, stage_bytes=8192, background="none"
    )
    l2, dram = (float(fill.pick(level=level).column("cycles").mean()) for level in ("l2", "dram"))
    between, node = between_events(records), kernel_start(records)
    found = colder - (between.value - node.value) - (dram - l2) / records.boost_hz
    spread = spread_of_difference(
        found,
        _term(rows, "warm_s"),
        (between.value, between.spread),
        (node.value, node.spread),
        ((dram + l2) / records.boost_hz, fill.spread),
    )
    return Found(found, spread, ("vendor_gemm", "dirty_lines", "launch_overhead", "stage_fill"))


def reduction(records: Records) -> Found:
    """Rate at which the second kernel of a split reads its partial sums, those that L2 holds."""
    rows = records["launch_reduction"]
    moved = rows.column("partial_bytes") + rows.column("out_bytes")
    held = rows.where(moved < DIRTY_SHARES[1] * records.l2_bytes, "sums that L2 holds")
    moved = held.column("partial_bytes") + held.column("out_bytes")
    slope, _ = straight_line(moved, held.column("seconds_second"), "launch_reduction")
    note = "fp32 partial sums read from L2 by the second kernel"
    return Found(1 / slope, held.spread, ("launch_reduction",), note=note)


def dependent_kernels(records: Records) -> Numbers:
    """Time between kernels of which each waits for the one before, its work taken off; of the largest grid."""
    chains = records["launch_dependent"].pick(part="chain", work_cycles=WORK_CYCLES)
    found = {}
    for name, (how, trigger) in DEPENDENT.items():
        rows = chains.pick(how=how, trigger=trigger)
        grid = rows.column("grid")
        rows = rows.where(grid == grid.max(), "the largest grid")
        note = f"{grid.max():g} CTAs that work for {WORK_CYCLES} cycles"
        gap = float(np.median(rows.column("gap_seconds")))
        found[name] = Found(gap, rows.middle_spread, ("launch_dependent",), note=note)
    return found


def cta_start(records: Records) -> Found:
    """Cycles in which an SM starts and ends one empty CTA after the other: the slope over their number."""
    rows = records["launch_ctas"].pick(part="cta_slope", block=CTA_THREADS, smem_bytes=0)
    cycles = float(np.median(rows.column("cycles_per_cta_and_sm")))
    return Found(cycles, rows.middle_spread, ("launch_ctas",), note=f"empty CTAs of {CTA_THREADS} threads")


def short_graphs(records: Records) -> Numbers:
    """What replays of a graph of few nodes pay: seconds = nodes * (node of a long graph + gap) + replay.

    Least squares over one to five nodes, median over the time that a node stays busy; 6 replays between two events.
    """
    rows = records["graph_replays"].pick(state="busy")
    gaps, replays = [], []
    for busy_ns in sorted(set(rows.column("busy_ns")) - {0.0}):
        here = rows.where(rows.column("busy_ns") == busy_ns, f"nodes busy for {busy_ns:g} ns")
        node_s = float(np.median(here.pick(nodes=LONG_GRAPH, replays=60).column("seconds_per_node")))
        few = here.pick(replays=6)
        few = few.where(few.column("nodes") <= SHORT_GRAPH, f"at most {SHORT_GRAPH} nodes")
        nodes = few.column("nodes")
        gap, replay = straight_line(nodes, few.column("seconds_per_replay") - nodes * node_s, "graph_replays")
        gaps.append(gap)
        replays.append(replay)
    spread = rows.pick(replays=6).middle_spread
    used = ("graph_replays",)
    return {
        "launch.short_graph_gap_s": Found(float(np.median(gaps)), spread, used),
        "launch.graph_replay_s": Found(float(np.median(replays)), spread, used),
    }


DERIVATIONS = (
    one("launch.graph_gap_s", ("vendor_gemm",), graph_gap),
    one("launch.kernel_start_s", ("launch_overhead",), kernel_start),
    one("launch.event_s", ("dirty_lines", "launch_overhead", "vendor_gemm"), event),
    one("launch.cold_extra_s", ("vendor_gemm", "dirty_lines", "launch_overhead", "stage_fill"), cold_extra),
    Derivation(("launch.short_graph_gap_s", "launch.graph_replay_s"), ("graph_replays",), short_graphs),
    one("launch.reduction_bytes_per_s", ("launch_reduction",), reduction),
    Derivation(tuple(DEPENDENT), ("launch_dependent",), dependent_kernels),
    one("launch.cta_start_cycles", ("launch_ctas",), cta_start),
)
