"""Inside an SM and along the way to memory: instruction rates, latencies, barriers, shared memory. Cycles are SM cycles."""

from collections.abc import Mapping

import numpy as np

from tilesight.calibrate.cache import Floats, looked_up
from tilesight.calibrate.found import Derivation, Found, Numbers, one
from tilesight.calibrate.records import Record, Records
from tilesight.errors import TableError

INSTRUCTIONS: Mapping[str, str] = {
    "fp32_fma": "ffma",
    "fp32_add": "fadd",
    "fp32_mul": "fmul",
    "fp32_min": "fmin",
    "fp16_fma": "hfma2",
    "bf16_fma": "hfma2_bf16",
    "fp64_fma": "dfma",
    "exp2": "ex2_ftz",
    "exp2_fp16": "ex2_f16x2",
    "log2": "lg2",
    "reciprocal": "rcp",
    "rsqrt": "rsqrt",
    "sqrt": "sqrt",
    "sin": "sin",
    "tanh": "tanh",
    "int32_add": "iadd3",
    "int32_mad": "imad",
    "logic": "lop3",
    "shift": "shf",
    "popcount": "popc",
    "convert_bf16": "cvt_bf16x2",
    "convert_fp16": "cvt_f16x2",
    "convert_fp8": "cvt_e4m3x4",
    "shuffle": "shfl",
    "warp_sum": "redux",
}
"""Instruction of a profile to the name in ``alu_rate``."""
EIGHT_WARPS = 8
L2_FOOTPRINTS = (2**20, 2**23)
"""Footprints of a pointer chase that miss L1 and stay in one partition of L2."""
SYNC: Mapping[str, tuple[str, str]] = {
    "sync.barrier_cycles": ("syncthreads", "nothing"),
    "sync.named_barrier_cycles": ("named_subset", "nothing"),
    "sync.mbarrier_cycles": ("mbarrier_all", "nothing"),
    "sync.mbarrier_signal_cycles": ("mbarrier_producer", "nothing"),
    "sync.fence_gpu_cycles": ("threadfence", "store"),
}


def best(rows: Record, column: str, *records: str, note: str | None = None) -> Found:
    """The largest value of a column and the spread of its row."""
    values = rows.column(column)
    row = int(np.nanargmax(values))
    spread = rows.column("spread")[row] if "spread" in rows.columns else np.nan
    return Found(float(values[row]), None if np.isnan(spread) else float(spread), records or (rows.name,), note=note)


def middle(rows: Record, column: str, scale: float = 1.0, note: str | None = None) -> Found:
    """The median of a column, scaled, with the median spread of its rows."""
    return Found(float(np.nanmedian(rows.column(column))) * scale, rows.middle_spread, (rows.name,), note=note)


def instructions(records: Records) -> Numbers:
    """Rate with as many warps as are best, latency of a dependent chain; instructions that the GPU lacks are left out."""
    rows, found = records["alu_rate"], {}
    known = {row["op"] for row in rows.rows}
    for name, op in INSTRUCTIONS.items():
        if op in known:
            rate = rows.pick(part="rate", op=op)
            found[f"alu.{name}.ops_per_cycle_per_sm"] = best(rate, "ops_per_cycle_per_sm")
            found[f"alu.{name}.latency_cycles"] = middle(rows.pick(part="latency", op=op), "cycles_per_instruction")
    return found


def shared_memory(records: Records) -> Numbers:
    """Best load of all widths; dependent loads of shared memory and of L1."""
    latency = records["smem_latency"]
    return {
        "sm.smem_bandwidth_bytes_per_cycle": best(records["smem_bandwidth"].pick(part="load"), "bytes_per_cycle"),
        "sm.smem_latency_cycles": middle(latency.pick(part="shared"), "cycles"),
        "sm.l1_latency_cycles": middle(latency.pick(part="l1"), "cycles"),
    }


def synchronisation(records: Records) -> Numbers:
    """Barriers and fences of eight warps."""
    rows = records["sync_cost"]
    return {
        name: middle(rows.pick(part=part, after=after, warps=EIGHT_WARPS), "cycles")
        for name, (part, after) in SYNC.items()
    }


def memory_latency(records: Records) -> Numbers:
    """A pointer chase past L1 at footprints that L2 holds, and at the largest, of which it holds next to nothing."""
    rows = records["l2_latency"].pick(part="cg")
    footprint = rows.column("footprint_bytes")
    low, high = L2_FOOTPRINTS
    held = rows.where((footprint >= low) & (footprint <= high), "footprints that L2 holds")
    largest = rows.where(footprint == footprint.max(), "the largest footprint")
    per_cycle = 1.0 / records.boost_hz
    return {
        "l2.latency_s": middle(held, "cycles_per_load", per_cycle),
        "dram.latency_s": middle(largest, "cycles_per_load", per_cycle),
    }


def partitions(records: Records) -> Numbers:
    """Near and far partition, of lines that an atomic has just written, so that no copy is nearer."""
    rows = records["l2_partition"]
    split = rows.pick(part="split", operation="load_after_atomic")
    far = rows.pick(part="bandwidth", reads="far", state="after_write")
    note = f"separation {split.column('separation')[0]:.2g} standard deviations"
    per_cycle = 1.0 / records.boost_hz
    return {
        "l2.latency_near_s": middle(split, "near_cycles", per_cycle, note),
        "l2.latency_far_s": middle(split, "far_cycles", per_cycle, note),
        "l2.far_bytes_per_s": middle(far, "bytes_per_s"),
    }


def shared_lookups(records: Records, **which: str | int) -> tuple[Record, Floats, str]:
    """Points of merging, the share of requests that needed a lookup at each, and how it is known.

    Counted where there is a record of that (Nsight Compute), else inferred from the rate, which is true only while lookups
    bind.
    """
    if "merge_counted" in records:
        rows = records["merge_counted"].pick(part="rate", **which)
        return rows, looked_up(rows), "counted"
    rows = records["merge_requests"].pick(part="rate", **which)
    return rows, rows.column("lookup_share_inferred"), "inferred from the rate"


def plain_requests(records: Records) -> Found:
    """Plain loads of one line in flight that share a lookup: what four neighbours ask over what they look up."""
    rows, share, how = shared_lookups(records, method="loads", sharers=4, skew_cycles=0)
    note = f"4 neighbours look up {share[0]:.2g} of what they ask, {how}"
    spread = rows.spread if rows.name == "merge_requests" else None  # a point is counted once
    return Found(float(round(1.0 / share[0])), spread, (rows.name,), note=note)


def merging_window(records: Records) -> Found:
    """How much later an SM may ask for a line of L2 and still share the lookup of the first (cp.async, two SMs).

    The skew at which half of the merging is lost that is lost between no skew and the largest, on the straight line
    between the two skews around it.
    """
    rows, share, how = shared_lookups(records, method="cp_async", sharers=2)
    order = np.argsort(rows.column("skew_cycles"))
    skew, share = rows.column("skew_begin_cycles")[order], share[order]
    half = (share[0] + share[-1]) / 2
    beyond = int(np.argmax(share >= half))
    if not (share[-1] > share[0] and beyond):
        raise TableError("merging does not end with the skew", file=f"{rows.name}.csv")
    cycles = np.interp(half, share[beyond - 1 : beyond + 1], skew[beyond - 1 : beyond + 1])
    used = Record(rows.name, rows.columns, [rows.rows[order[i]] for i in (0, beyond - 1, beyond, -1)])
    note = (
        f"2 SMs look up {share[0]:.2f} of what they ask without skew, {share[-1]:.2f} with {skew[-1]:g} cycles, {how}"
    )
    spread = used.spread if rows.name == "merge_requests" else None
    return Found(float(cycles) / records.boost_hz, spread, (rows.name,), note=note)


DERIVATIONS = (
    Derivation(
        tuple(f"alu.{name}.{number}" for name in INSTRUCTIONS for number in ("ops_per_cycle_per_sm", "latency_cycles")),
        ("alu_rate",),
        instructions,
    ),
    Derivation(
        ("sm.smem_bandwidth_bytes_per_cycle", "sm.smem_latency_cycles", "sm.l1_latency_cycles"),
        ("smem_bandwidth", "smem_latency"),
        shared_memory,
    ),
    Derivation(tuple(SYNC), ("sync_cost",), synchronisation),
    Derivation(("l2.latency_s", "dram.latency_s"), ("l2_latency",), memory_latency),
    Derivation(("l2.latency_near_s", "l2.latency_far_s", "l2.far_bytes_per_s"), ("l2_partition",), partitions),
    one("merging.requests_plain", ("merge_requests",), plain_requests),
    one("merging.window_l2_s", ("merge_requests",), merging_window),
)
