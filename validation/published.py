"""What others state of the GPU's constants (published.toml), and the values of our records that stand beside it."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tilesight.calibrate.records import Records
from tilesight.hardware.profile import Profile

STATED = Path(__file__).with_name("published.toml")
THREADS = 256
LIMITS = {"credit": 0.10, "datasheets": 0.10, "earlier_fit": 0.15}
"""Tables, and the difference above which a row says why."""

Cell = Callable[..., float]
"""Record, column and values that pick rows, to the median of the column."""
Named = Callable[[str], float]
"""Name of a number of the profile to its value."""


@dataclass(frozen=True)
class Compared:
    """One value that others state, ours, where it is from, and why they differ."""

    what: str
    stated: float
    ours: float
    unit: str
    scale: float
    said: str
    source: str
    why: str

    @property
    def difference(self) -> float:
        """Relative to what is stated."""
        return self.ours / self.stated - 1


def comparisons(profile: Profile, records: Records) -> Mapping[str, list[Compared]]:
    """The rows of each table, with the numbers of the profile and of the records put in."""
    known = {name: value for name, value in profile.numbers.items() if not isinstance(value, tuple)}
    known |= values(profile, records)
    tables = tomllib.loads(STATED.read_text(encoding="utf-8"))
    return {
        name: [
            Compared(
                each["what"],
                float(each["stated"]),
                float(known[each["here"]]),
                each["unit"],
                each.get("scale", 1.0),
                each.get("said", ""),
                each["from"],
                " ".join(each.get("why", "").split()).format_map(known),
            )
            for each in rows
        ]
        for name, rows in tables.items()
    }


def values(profile: Profile, records: Records) -> dict[str, float]:
    """Values of records and sums of numbers that the tables name."""

    def cell(record: str, column: str, **where: object) -> float:
        return float(np.median(records[record].pick(**where).column(column)))

    number = profile.require
    return (
        _clusters(records, cell, number)
        | _memory(records, cell, number)
        | _tensor(cell, number)
        | _ends(records, number)
        | {"integer": number("alu.int32_mad.latency_cycles"), "link_load": number("link.load_bytes_per_s") / 1e9}
        | _instructions(cell, number)
    )


def _clusters(records: Records, cell: Cell, number: Named) -> dict[str, float]:
    """Shared memory of other CTAs: one CTA of 256 threads, 4 bytes a thread, one access in flight, one cluster."""

    def rate(operation: str, target: str, cluster: int) -> float:
        where = {"operation": operation, "target": target, "cluster": cluster, "clusters": 1, "block": THREADS}
        return cell("dsmem_rate", "bytes_per_cycle", **where, width_bytes=4, unroll=1)

    def latency(method: str, cluster: int) -> float:
        where = {
            "method": method,
            "active": "one",
            "clusters": 1,
            "cluster": cluster,
            "distance": int(method == "peer"),
        }
        return cell("dsmem_latency", "cycles_per_load", **where)

    def visible(method: str) -> float:
        return cell("dsmem_visible", "cycles", method=method, cluster=2, distance=1)

    def sync(part: str, after: str = "nothing") -> float:
        return cell("sync_cost", "cycles", part=part, after=after, warps=8)

    moved = 4 * THREADS
    issue = moved / rate("load", "local", 1) - latency("local", 1)
    remote_issue = moved / rate("load", "next", 2) - latency("peer", 2)
    relaxed = number("dsmem.2.barrier_relaxed_cycles")

    def around(record: str, cycles: float, **where: object) -> float:
        """Cycles of a chain beyond whole ones a load: the start and the end of its loop."""
        return cell(record, "loads", **where) * (cycles % 1)

    shared = cell("smem_latency", "cycles", part="shared")
    store = {"method": "store_release", "cluster": 2, "warps": 8}
    stored = records["cluster_barrier"].pick(**store)
    filled = stored.where(stored.column("clusters") == stored.column("clusters").max(), "all clusters")
    return {
        "local_latency": latency("local", 1),
        "local_whole": latency("local", 1) // 1,
        "local_loads": cell("dsmem_latency", "loads", method="local", clusters=1, cluster=1),
        "local_around": around("dsmem_latency", latency("local", 1), method="local", clusters=1, cluster=1),
        "shared_latency": shared,
        "shared_loads": cell("smem_latency", "loads", part="shared"),
        "shared_around": around("smem_latency", shared, part="shared"),
        "barrier_behind_store": float(np.median(filled.column("cycles"))),
        "self_latency": latency("self", 1),
        "self_and_integer": latency("self", 1) + number("alu.int32_mad.latency_cycles"),
        "pair_latency": latency("peer", 2),
        "peer_latency": latency("peer", 4),
        "local_load": rate("load", "local", 1),
        "local_load_cycles": moved / rate("load", "local", 1),
        "issue": issue,
        "issue_and_30": issue + 30,
        "local_load_rest": moved / 20.89 - issue - 30,
        "remote_load_at_191": moved / (remote_issue + 191),
        **{f"remote_load_{size}": rate("load", "next", size) for size in (2, 4, 8, 16)},
        "local_store": rate("store", "local", 1),
        "local_store_cycles": moved / rate("store", "local", 1),
        "self_store_cycles": moved / rate("store", "self", 1),
        "remote_store_2": rate("store", "next", 2),
        "remote_store_best": number("dsmem.2.store_bytes_per_cycle"),
        "relaxed": relaxed,
        "fence": sync("threadfence"),
        "fence_store": sync("threadfence", "store"),
        "relaxed_and_fence": relaxed + sync("threadfence"),
        "relaxed_and_fence_store": relaxed + sync("threadfence", "store"),
        "syncthreads": sync("syncthreads"),
        "store_load": visible("store_load"),
        "store_load_twice": 2 * visible("store_load"),
        "flag_relaxed": visible("relaxed"),
        "flag_release": visible("release"),
    }


def _memory(records: Records, cell: Cell, number: Named) -> dict[str, float]:
    """DRAM and its mixes, fills of a stage by themselves and as fitted, stores of a few SMs, sums of a split."""

    def mix(reads: int, writes: int) -> float:
        return float(np.nanmax(records["dram_mix"].pick(reads=reads, writes=writes).column("marginal_bytes_per_s")))

    def fills(sms: int) -> tuple[float, float]:
        """Nanoseconds at 0 bytes, and GB/s, of the line through fills by tensor copies from L2."""
        where = {"part": "fill", "method": "tma", "level": "l2", "active_sms": sms, "share": 1, "background": "none"}
        rows = records["stage_fill"].pick(**where)
        slope, fixed = np.polyfit(rows.column("stage_bytes"), rows.column("cycles"), 1)
        return float(fixed) / records.boost_hz * 1e9, records.boost_hz / float(slope) / 1e9

    def stage(size: int) -> float:
        return 1e9 * (number("fill.latency_l2_s") + size / number("fill.cp_async_bytes_per_s"))

    few = records.sm_count // 4
    stores = records["epilogue_store"].pick(part="steady", method="stores", active_sms=few)
    stored = stores.column("tile_bytes") * stores.column("tiles") / stores.column("complete_cycles")
    write, limits = number("dram.bandwidth_write_bytes_per_s"), {"what": "limits"}
    return {
        "dram_bits": cell("device_limits", "dram_bus_bits", **limits),
        "dram_mhz": cell("device_limits", "dram_clock_hz", **limits) / 1e6,
        "write_below_reads": 100 * (1 - write / number("dram.bandwidth_read_bytes_per_s")),
        "dram_tiles": number("dram.bandwidth_read_bytes_per_s") * number("dram.tiles_read_share"),
        "mix_costs": 100 * (1 - mix(7, 1) / mix(1, 0)),
        "mix_1_3": mix(1, 3) / 1e12,
        "write_rest": 100 * (1 - 3.4e12 / min(mix(1, 3), write)),
        "fill_16": stage(2**14),
        "fill_32": stage(2**15),
        "fill_alone": fills(few)[0],
        "fill_few": fills(few)[1],
        "fill_all": fills(records.sm_count)[1],
        "store_few": float(np.median(stored[stores.column("tile_bytes") >= 2**15])),
    }


def _instructions(cell: Cell, number: Named) -> dict[str, float]:
    """Rates as the programming guide counts them, and what more warps change."""

    def rate(op: str, warps: int) -> float:
        return cell("alu_rate", "ops_per_cycle_per_sm", part="rate", op=op, warps=warps)

    return {
        "convert_instructions": number("alu.convert_bf16.ops_per_cycle_per_sm") / 2,
        "fp32_issued": number("alu.fp32_fma.ops_per_cycle_per_sm") / 32,
        **{f"{op}_{warps}": rate(op, warps) for op in ("hfma2", "dfma") for warps in (16, 32)},
    }


def _tensor(cell: Cell, number: Named) -> dict[str, float]:
    """Rates and clocks of wgmma alone, and the law of power."""

    def alone(dtype: str, part: str, column: str) -> float:
        return cell("tensor_sustained", column, part=part, dtype=dtype)

    boost, tensor = number("clock.boost_hz"), number("clock.tensor_hz")
    one = {"dtype": "bf16", "n": 256, "a_source": "shared", "warpgroups": 1, "sms": 1}
    demand = number("power.burst_w") - number("power.static_w")
    return {
        "bf16_flop_per_cycle": alone("bf16", "burst", "flop_per_cycle_per_sm"),
        "bf16_burst": alone("bf16", "burst", "flop_per_s"),
        "bf16_lasting": alone("bf16", "sustained", "flop_per_s"),
        "bf16_burst_ghz": alone("bf16", "burst", "clock_hz") / 1e9,
        "bf16_lasting_ghz": alone("bf16", "sustained", "clock_hz") / 1e9,
        "fp8_lasting_ghz": alone("fp8", "sustained", "clock_hz") / 1e9,
        "boost_ghz": boost / 1e9,
        "tensor_ghz": tensor / 1e9,
        "wgmma_extra": cell("wgmma_rate", "cycles_per_instruction", **one) - 128,
        "wgmma_at_boost": 128 * boost / tensor,
        "step_at_boost": 1024 * boost / tensor,
        "chain": number("loop.chain_warp_specialized_cycles"),
        "power_ratio": demand / number("power.energy_j_per_flop"),
        "burst_w": number("power.burst_w"),
        "sustained_w": number("power.sustained_w"),
    }


def _ends(records: Records, number: Named) -> dict[str, float]:
    """Starts and ends of kernels."""
    gap, latency = number("launch.graph_gap_s"), number("fill.latency_l2_s")
    starts = {f"start_{kind}": gap + number(f"launch.start_{kind}_s") for kind in ("in_order", "specialized")}
    small = {
        kind: (starts[f"start_{kind}"] + latency + number(f"epilogue.{kind}_fixed_s")) * 1e6
        for kind in ("in_order", "specialized")
    }
    rows = records["launch_reduction"]
    moved, seconds = rows.column("partial_bytes") + rows.column("out_bytes"), rows.column("seconds_second")
    return starts | {
        "small_in_order": small["in_order"],
        "small_specialized": small["specialized"],
        "second_kernel": float(seconds[moved.argmin()]) * 1e6,
        "reduction_beyond_l2": float((moved / seconds)[moved.argmax()]),
        "graph_dependent": number("launch.graph_dependent_s") * 1e6,
        "cold": number("launch.event_s") + number("launch.cold_extra_s"),
    }
