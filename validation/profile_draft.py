"""A profile in the making: numbers with their sources, rates that published tables reach, copies of measured numbers.

What nobody published is copied from the measured GPU: times of stores and rounds by the SM clock, rates of an SM by the
SM clock, rates of L2 and DRAM by those of L2 and DRAM; latencies, launch times, cycles and shares as they are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tilesight.hardware.profile import Profile, field_names

MEASURED = "h200_sxm"
LOOP = next(name.partition(".")[0] for name in field_names() if name.endswith(".mma_sync_rate_share"))
WITHOUT_BULK_COPIES = ("sm_80", "sm_89", "cdna2")

TABLES = "NVIDIA, aiconfigurator measured tables (Apache-2.0), commit 095f58a, as summarised"
CEILINGS = {  # flop/s of large bf16 products, 95th percentile; bytes/s of weight-bound products, best
    "h100_sxm": (814e12, 2.921e12),
    "a100_sxm": (276e12, 1.775e12),
    "b200_sxm": (1643e12, 7.1e12),
    "b300_sxm": (1772e12, 6.976e12),
    "gb200": (1794e12, 7.38e12),
    "gb300": (2015e12, 7.08e12),
    "l40s": (238e12, 0.841e12),
    "rtx_pro_6000_server": (413e12, 1.683e12),
}
SMALLEST_PRODUCT_S = {
    "h200_sxm": 2.4e-6,
    "h100_sxm": 2.5e-6,
    "a100_sxm": 2.5e-6,
    "b200_sxm": 1.7e-6,
    "b300_sxm": 1.7e-6,
    "gb200": 1.75e-6,
    "gb300": 1.75e-6,
    "l40s": 1.7e-6,
    "rtx_pro_6000_server": 1.8e-6,
}
LASTING = 0.87  # of the burst rate: runs of 0.3 to 1 s in the same tables are 10 to 16 % slower


class Draft:
    """A profile that grows by one number and its source at a time."""

    def __init__(self, name: str, vendor: str, architecture: str) -> None:
        self.about = {"schema_version": 1, "name": name, "vendor": vendor, "architecture": architecture}
        self.numbers: dict[str, Any] = {}
        self.source: dict[str, dict[str, Any]] = {}

    def say(self, name: str, value: float, kind: str, ref: str = "", note: str = "", origin: str = "") -> None:
        """Set a number; a later one of the same name takes the place of an earlier one."""
        self.numbers[name] = value
        given = {"kind": kind, "ref": [ref] if ref else [], "note": note, "origin": origin}
        self.source[name] = {key: item for key, item in given.items() if item}

    def datasheet(self, ref: str, note: str = "", **numbers: float) -> None:
        """Numbers of one datasheet; ``__`` in a name stands for a dot."""
        for name, value in numbers.items():
            self.say(name.replace("__", "."), value, "datasheet", ref, note)

    def published(self, ref: str, note: str = "", **numbers: float) -> None:
        """Numbers of one publication."""
        for name, value in numbers.items():
            self.say(name.replace("__", "."), value, "published", ref, note)

    def assume(self, note: str, origin: str = "", **numbers: float) -> None:
        """Numbers that no document gives, and why these."""
        for name, value in numbers.items():
            self.say(name.replace("__", "."), value, "assumed", note=note, origin=origin)

    def tensor(self, kind: str, ref: str, note: str = "", **rates: tuple[float, float]) -> None:
        """Tensor rates by dtype: flop a cycle and SM, flop/s of the GPU; ``fp8`` stands for both 8-bit formats."""
        for dtype, (per_cycle, peak) in rates.items():
            for name in ("fp8", "fp8_e5m2") if dtype == "fp8" else (dtype,):
                why = note or f"rate / ({self.numbers['sm_count']} SMs * clock), as a power of two"
                self.say(f"tensor.{name}.flop_per_cycle_per_sm", float(per_cycle), "published", ref, why)
                self.say(f"tensor.{name}.rate_peak_flop_per_s", peak, kind, ref, note)

    def clusters(self, ref: str, note: str = "", **counts: int) -> None:
        """Maximum active clusters by size, ``P2=74``."""
        for size, count in counts.items():
            self.say(f"gpc.max_active_clusters.{size[1:]}", count, "published", ref, note)

    def profile(self) -> Profile:
        """The finished profile, checked."""
        data: dict[str, Any] = dict(self.about)
        for name, value in self.numbers.items():
            *tables, key = name.split(".")
            table = data
            for part in tables:
                table = table.setdefault(part, {})
            table[key] = value
        return Profile.from_dict(data | {"source": self.source}, where=str(self.about["name"]))


def rounded(value: float) -> float:
    """Four digits, as calibrated numbers have."""
    return float(f"{value:.4g}")


def add_ceilings(draft: Draft, measured: Profile) -> None:
    """Rates that published tables reach; where there are none, what the GPU's own part said stays."""
    name = str(draft.about["name"])
    burst = "tensor.bf16.rate_burst_flop_per_s"
    if name in CEILINGS:
        flop, read = CEILINGS[name]
        draft.say(burst, flop, "published", TABLES, "ceiling: 95th percentile of bf16 products above 500 us")
        note = "ceiling: the best weight-bound bf16 product"
        draft.say("dram.bandwidth_read_bytes_per_s", read, "published", TABLES, note)
    if burst in draft.numbers:
        lasting = rounded(LASTING * draft.numbers[burst])
        note = f"{LASTING} of the burst rate: runs of 0.3 to 1 s in published tables are 10 to 16 % slower"
        draft.assume(note, tensor__bf16__rate_sustained_flop_per_s=lasting)
        _add_ceilings_of_other_formats(draft, measured)


def _against_bf16(kind: str, measured: Profile) -> float:
    """Share of its peak that a format reaches under a power limit, over the share that bf16 reaches.

    ((static + bf16's power) / (static + its power)) ** exponent, both at full rate, as on the measured GPU; 1 where nobody
    measured the format.
    """
    rates, bf16 = measured.tensor.get(kind), measured.tensor["bf16"]
    if rates is None or rates.energy_j_per_flop is None:
        return 1.0
    cycles_per_s = measured.sm_count * measured.require("clock.tensor_hz")
    of_bf16 = measured.require("power.energy_j_per_flop") * bf16.flop_per_cycle_per_sm * cycles_per_s
    its = rates.energy_j_per_flop * rates.flop_per_cycle_per_sm * cycles_per_s
    static = measured.require("power.static_w")
    return ((static + of_bf16) / (static + its)) ** measured.require("power.sustained_exponent")


def _add_ceilings_of_other_formats(draft: Draft, measured: Profile) -> None:
    """Power leaves every format the share of its peak that it leaves bf16, by what the formats draw at full rate."""
    peaks = {name: rate for name, rate in draft.numbers.items() if name.endswith("rate_peak_flop_per_s")}
    for name, peak in peaks.items():
        kind = name.split(".")[1]
        if kind in ("bf16", "fp64", "fp32"):
            continue
        against = _against_bf16({"fp8_e5m2": "fp8"}.get(kind, kind), measured)
        note = "the share of its peak that bf16 reaches"
        note += f", times {against:.3f} by the power they draw on {MEASURED}" if against != 1.0 else ""
        for reached in ("rate_burst_flop_per_s", "rate_sustained_flop_per_s"):
            share = draft.numbers[f"tensor.bf16.{reached}"] / draft.numbers["tensor.bf16.rate_peak_flop_per_s"]
            rate = rounded(min(share * against, 1.0) * peak)
            draft.say(f"tensor.{kind}.{reached}", rate, "assumed", note=note, origin=MEASURED if against != 1.0 else "")


def add_copies(draft: Draft, measured: Profile) -> None:
    """What nobody published, copied from the measured GPU and scaled."""
    boost = draft.numbers["clock.boost_hz"]
    bf16 = {key: draft.numbers[f"tensor.bf16.{key}"] for key in ("flop_per_cycle_per_sm", "rate_peak_flop_per_s")}
    if "clock.tensor_hz" not in draft.numbers:
        at_peak = bf16["rate_peak_flop_per_s"] / (draft.numbers["sm_count"] * bf16["flop_per_cycle_per_sm"])
        note = f"the clock at which the bf16 peak holds, at most boost; of {MEASURED} this is 1.83 GHz, measured 1.8"
        draft.assume(note, MEASURED, clock__tensor_hz=rounded(min(at_peak, boost)))
    for name, value in measured.numbers.items():
        if name not in draft.numbers:
            for scaled, note in _copied(name, value, draft, measured):
                draft.say(name, scaled, "assumed", note=note, origin=MEASURED)
    if draft.about["name"] != "h100_sxm":
        share, note = 1.0, "mma.sync is the native instruction"
        if draft.about["architecture"] in ("sm_100", "sm_103"):
            share = measured.require(f"{LOOP}.mma_sync_rate_share")
            share = rounded(share * measured.tensor["bf16"].flop_per_cycle_per_sm / bf16["flop_per_cycle_per_sm"])
            note = "the flop a cycle of h200_sxm, over this tensor rate"
        draft.say(f"{LOOP}.mma_sync_rate_share", share, "assumed", note=note, origin=MEASURED)
    _meet_smallest_product(draft, measured)


def _copied(name: str, value: float, draft: Draft, measured: Profile) -> Iterator[tuple[float, str]]:
    """The number as it is or scaled, and a note that says how; nothing where it makes no sense on the GPU."""
    table, _, key = name.partition(".")
    bulk = ("tma", "row_", "full_box", "descriptor", "programmatic")  # came with the same architecture
    sister = draft.about["name"] == "h100_sxm"
    inside = ("alu", "sync", "dsmem", "sm", "tensor") if sister else ()
    if table not in ("l2", "fill", "merging", "drift", LOOP, "launch", "epilogue", "rounds", "dram", *inside):
        return
    if not sister and key.startswith(("latency_", "far_")) and table not in ("fill", "merging"):
        return
    if table == "tensor" and not key.endswith("energy_j_per_flop"):
        return
    if draft.about["architecture"] in WITHOUT_BULK_COPIES and any(word in key for word in bulk):
        return
    clock = draft.numbers["clock.boost_hz"] / measured.clock.boost_hz
    if sister and table != "dram":
        yield value, "same chip"
    elif table == "merging" and draft.about["architecture"] == "cdna2":
        halves = key == "spread_elements"
        yield value if halves else float(key.startswith("requests")), "no merging of requests in flight is known"
    elif name == "l2.copies_one_reader" and draft.numbers["l2.partitions"] == 1:
        yield 1.0, "one partition keeps one copy"
    elif table == "dram" and key.endswith("_per_s"):
        reads = "dram.bandwidth_read_bytes_per_s"
        yield rounded(value * draft.numbers[reads] / measured.require(reads)), "by the read bandwidth"
    elif name in ("l2.store_bytes_per_s", "launch.reduction_bytes_per_s"):
        lookups = "l2.lookup_bytes_per_s"
        yield rounded(value * draft.numbers[lookups] / measured.require(lookups)), "by the lookup rate of L2"
    elif key.endswith("_per_s"):
        yield rounded(value * clock), f"by the SM clock, times {clock:.3f}"
    elif key.endswith("_s") and table in ("fill", "launch"):
        yield value, "a time of L2, of memory or of the launch, as it is there"
    elif key.endswith("_s"):
        yield rounded(value / clock), f"by the SM clock, over {clock:.3f}"
    else:
        yield value, "as it is there"


def _smallest_product_s(numbers: Mapping[str, float], bulk_copies: bool = True) -> float:
    """Start, gap, fill, a k-step and epilogue of a product of one k-step in the kernels that libraries have for the GPU."""
    kind, chain = ("specialized", "warp_specialized") if bulk_copies else ("in_order", "cp_async")
    parts = (f"launch.start_{kind}_s", "launch.graph_gap_s", "fill.latency_l2_s", f"epilogue.{kind}_fixed_s")
    return sum(numbers[part] for part in parts) + numbers[f"{LOOP}.chain_{chain}_cycles"] / numbers["clock.boost_hz"]


def _meet_smallest_product(draft: Draft, measured: Profile) -> None:
    """Move the starts of kernels so that the smallest product differs from the measured GPU's as in published tables."""
    name = str(draft.about["name"])
    said = {"rtx_5090": "rtx_pro_6000_server"}.get(name, name)
    if said not in SMALLEST_PRODUCT_S:
        return
    faster = SMALLEST_PRODUCT_S[MEASURED] - SMALLEST_PRODUCT_S[said]
    bulk_copies = draft.about["architecture"] not in WITHOUT_BULK_COPIES
    lower = _smallest_product_s(draft.numbers, bulk_copies) - _smallest_product_s(measured.numbers) + faster
    for start in ("launch.start_in_order_s", "launch.start_specialized_s"):
        note = (
            f"moved by {-lower * 1e6:+.2f} us: gap, start, fill, a k-step and epilogue differ from those of {MEASURED} as "
            f"the published smallest products do, {SMALLEST_PRODUCT_S[said] * 1e6:g} us of {said} and "
            f"{SMALLEST_PRODUCT_S[MEASURED] * 1e6:g} us"
        )
        draft.say(start, rounded(draft.numbers[start] - lower), "assumed", TABLES, note, MEASURED)
