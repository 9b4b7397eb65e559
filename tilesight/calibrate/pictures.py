"""What the records of a GPU show, a picture a concept: measured points beside the laws that hold them.

Each function takes the records of one GPU and gives a :class:`~tilesight.calibrate.chart.Chart`; ``tilesight.plots``
draws it. :data:`PICTURES` has them all by name.
"""

from collections.abc import Callable, Mapping

import numpy as np

from tilesight.calibrate.chart import Axis, Chart, Series, series
from tilesight.calibrate.clusters import NUMBERS, SIZES, shared_by_clusters
from tilesight.calibrate.drift_charts import drift_reads_narrow, drift_reads_wide, drift_starts
from tilesight.calibrate.footprint import fit_footprint
from tilesight.calibrate.launch import WORK_CYCLES
from tilesight.calibrate.loops import wgmma_cycles
from tilesight.calibrate.power import BEGINS_S, cap_window, power_law, tensor_clock
from tilesight.calibrate.records import Record, Records
from tilesight.errors import UnsupportedError
from tilesight.hardware.profile import Profile

FOOTPRINT = Axis("footprint_bytes", "footprint", "B", "log2")
BANDWIDTH = Axis("bandwidth_bytes_per_s", "bandwidth", "B/s")
BYTES_PER_CYCLE = Axis("bytes_per_cycle", "bytes a cycle of an SM")
LATENCY = Axis("latency_cycles", "latency of a dependent load, cycles")
LOOKUPS = Axis("lookup_share", "lookups / requests, from the rate")
TIME = Axis("time_s", "time since the load began", "s", "log10")
SMOOTH = 200
"""Points of a line."""


def points(words: str, resource: str, rows: Record, x: str, y: str) -> Series:
    """Measured points of two columns."""
    spread = rows.column("spread").tolist() if "spread" in rows.columns else ()
    return series(words, resource, rows.column(x), rows.column(y), spread)


def _hardware(records: Records) -> Profile:
    if records.hardware is None:
        raise UnsupportedError("a profile of the GPU is needed for what no record states; give one")
    return records.hardware


def l2_read(records: Records) -> Chart:
    """Rate at which a footprint is read again and again, with the fitted law."""
    drawn: list[Series] = []
    for part, words in (("rotating", "slices read in turn"), ("own", "a slice an SM")):
        rows = records["l2_read"].pick(part=part)
        sizes = rows.column("footprint_bytes")
        fit = fit_footprint(sizes, rows.column("bytes_per_s"), hardware=_hardware(records))
        line = np.geomspace(sizes.min(), sizes.max(), SMOOTH)
        said = f"{words}: {fit.capacity_bytes / 1e6:.0f} MB, {fit.associativity} ways"
        drawn.append(points(said, "l2", rows, "footprint_bytes", "bytes_per_s"))
        drawn.append(series("", "l2", line, fit.predict(line), measured=False))
    return Chart("l2_read", f"reads of a footprint, again and again, {records.gpu}", FOOTPRINT, BANDWIDTH, tuple(drawn))


def l2_latency(records: Records) -> Chart:
    """Pointer chase by footprint, through L1 and past it."""
    parts = {"ca": ("through L1", "smem"), "cg": ("past L1", "l2")}
    drawn = [
        points(words, resource, records["l2_latency"].pick(part=part), "footprint_bytes", "cycles_per_load")
        for part, (words, resource) in parts.items()
    ]
    return Chart("l2_latency", f"pointer chase of one thread, {records.gpu}", FOOTPRINT, LATENCY, tuple(drawn))


def merging_skew(records: Records) -> Chart:
    """Share of requests that look up, by how much later the last SM of a group asks."""
    rows = records["merge_requests"].pick(part="rate", method="cp_async")
    drawn = [
        points(f"{sharers} SMs", "l2", rows.pick(sharers=sharers), "skew_begin_cycles", "lookup_share_inferred")
        for sharers in (2, 4, 8, 16)
    ]
    skew = Axis("skew_begin_cycles", "the last SM of a group begins later by, cycles")
    return Chart("merging_skew", f"cp.async of the same lines, {records.gpu}", skew, LOOKUPS, tuple(drawn))


def merging_sharers(records: Records) -> Chart:
    """Share of requests that look up, by how many SMs ask for a line at once."""
    rows = records["merge_requests"].pick(part="rate", skew_cycles=0)
    drawn = [
        points(words, "l2", rows.pick(method=method), "sharers", "lookup_share_inferred")
        for method, words in (("loads", "ld.global"), ("cp_async", "cp.async"), ("bulk", "bulk copies"))
    ]
    most = np.geomspace(1, drawn[0].x[-1], SMOOTH)
    law = [
        series(f"at most {width} share", "l2", most, np.maximum(1 / most, 1 / width), measured=False)
        for width in (2, 4)
    ]
    sharers = Axis("sharers", "SMs that ask for a line at once", "", "log2")
    return Chart("merging_sharers", f"requests that share a lookup, {records.gpu}", sharers, LOOKUPS, (*drawn, *law))


def dram_mix(records: Records) -> Chart:
    """Rate of mixes of reads and writes, without launch and ramp."""
    rows = records["dram_mix"]
    rows = rows.where(~np.isnan(rows.column("marginal_bytes_per_s")), "a marginal rate")
    share = rows.column("writes") / (rows.column("reads") + rows.column("writes"))
    measured = series(
        "reads and writes", "dram", share, rows.column("marginal_bytes_per_s"), rows.column("spread").tolist()
    )
    peak = _hardware(records).dram.bandwidth_peak_bytes_per_s
    law = series("datasheet", "dram", (0, 1), (peak, peak), measured=False)
    writes = Axis("write_share", "share of the bytes that are written")
    return Chart("dram_mix", f"streams of 2 GiB, {records.gpu}", writes, BANDWIDTH, (measured, law))


LOADS = {
    "tensor cores, zeros": {"data": "zeros", "duty": 1, "dram_asked_bytes_per_s": 0, "l2_asked_bytes_per_s": 0},
    "tensor cores, random": {"data": "normal", "duty": 1, "dram_asked_bytes_per_s": 0, "l2_asked_bytes_per_s": 0},
    "... and 8 TB/s from L2": {"data": "normal", "duty": 1, "l2_asked_bytes_per_s": "8e+12"},
    "... and 3 TB/s of DRAM": {"data": "normal", "duty": 1, "dram_asked_bytes_per_s": "3e+12"},
}
"""Loads on all SMs that last, as ``power_clock`` has them."""


def _series_of_load(records: Records, which: Mapping[str, object]) -> Record:
    rows = records["power_clock"].pick(part="long", row="series", sms=records.sm_count, **which)
    return rows.where(rows.column("time_s") > 0, "a time")


def clock_under_load(records: Records) -> Chart:
    """SM clock from the start of a load on, with the law of bursts and of lasting loads."""
    law = {name.removeprefix("power."): found.value for name, found in power_law(records).items()}
    begins, settles = (found.value for found in cap_window(records).values())
    full = tensor_clock(records)
    drawn: list[Series] = []
    for words, which in LOADS.items():
        rows = _series_of_load(records, which)
        drawn.append(series(words, "tensor", rows.column("time_s"), rows.column("clock_hz")))
        if which["data"] != "normal":
            continue  # energies are of random data
        times, clock = rows.column("time_s"), rows.column("clock_hz")
        early = (times > BEGINS_S) & (times < begins / 2)
        scale = np.median(full / np.minimum(clock[early], full))
        energy = law["energy_j_per_dram_byte" if "dram_asked_bytes_per_s" in which else "energy_j_per_l2_byte"]
        rate, stream = (np.nan_to_num(rows.column(name)[early]) for name in ("rate_flop_per_s", "stream_bytes_per_s"))
        demand = law["static_w"] + scale * float(np.median(law["energy_j_per_flop"] * rate + energy * stream))
        burst, lasting = (
            full * min(1.0, law[f"{kind}_w"] / demand) ** law[f"{kind}_exponent"] for kind in ("burst", "sustained")
        )
        steps = (BEGINS_S, begins, settles, times.max())
        drawn.append(series("", "tensor", steps, (burst, burst, lasting, lasting), measured=False))
    clock_axis = Axis("clock_hz", "SM clock", "Hz")
    return Chart("clock_under_load", f"bf16 wgmma on all SMs from rest, {records.gpu}", TIME, clock_axis, tuple(drawn))


def power_under_load(records: Records) -> Chart:
    """Power that the driver reports, from the start of a load on."""
    drawn = []
    for words, which in LOADS.items():
        rows = _series_of_load(records, which)
        rows = rows.where(np.isfinite(rows.column("power_w")), "a power")
        drawn.append(series(words, "tensor", rows.column("time_s"), rows.column("power_w")))
    limit = _hardware(records).get("power.limit_w")
    if limit is not None:
        ends = (min(each.x[0] for each in drawn), max(each.x[-1] for each in drawn))
        drawn.append(series("limit", "tensor", ends, (limit, limit), measured=False))
    power = Axis("power_w", "power that the driver reports", "W")
    return Chart("power_under_load", f"bf16 wgmma on all SMs from rest, {records.gpu}", TIME, power, tuple(drawn))


def tensor_rates(records: Records) -> Chart:
    """Rates of tensor cores by format, of bursts and of loads that last, beside the datasheet's."""
    rows = records["tensor_sustained"]
    formats = tuple(dict.fromkeys(row["dtype"] for row in rows.rows))
    drawn = []
    for part, words in (("burst", "20 ms"), ("sustained", "1 s")):
        of_part = [rows.pick(part=part, dtype=dtype) for dtype in formats]
        rates = [float(each.column("flop_per_s")[0]) for each in of_part]
        drawn.append(series(words, "tensor", range(len(formats)), rates, [each.spread for each in of_part]))
    peaks = [_hardware(records).require(f"tensor.{dtype}.rate_peak_flop_per_s") for dtype in formats]
    drawn.append(series("datasheet", "tensor", range(len(formats)), peaks, measured=False))
    x, y = Axis("dtype", "format", categories=formats), Axis("rate_flop_per_s", "rate", "flop/s")
    return Chart("tensor_rates", f"wgmma m64n256, random data, {records.gpu}", x, y, tuple(drawn))


def wgmma(records: Records) -> Chart:
    """Cycles of one instruction by its columns, with max(n / 2, 16 + n / 4)."""
    rows = records["wgmma_rate"].pick(warpgroups=1, sms=1)
    drawn = [
        points(words, "tensor", rows.pick(dtype=dtype, a_source=source), "n", "cycles_per_instruction")
        for dtype, source, words in (
            ("bf16", "shared", "bf16 k16"),
            ("tf32", "shared", "tf32 k8"),
            ("fp8", "shared", "fp8 k32"),
            ("int8", "shared", "int8 k32"),
            ("bf16", "registers", "bf16, A from registers"),
        )
    ]
    n = np.linspace(drawn[0].x[0], drawn[0].x[-1], SMOOTH)
    cycles = [wgmma_cycles(64, size) / 4 for size in n]
    law = series("max(n / 2, 16 + n / 4)", "smem", n, cycles, measured=False)
    x, y = Axis("n", "columns of the instruction", "", "log2"), Axis("cycles_per_instruction", "cycles", "", "log2")
    return Chart("wgmma_cycles", f"wgmma m64, one after the other, {records.gpu}", x, y, (*drawn, law))


def smem_bandwidth(records: Records) -> Chart:
    """Bytes a cycle from and to shared memory, by warps and bytes of a thread."""
    drawn = [
        points(
            f"{instruction}, {width} B a thread",
            "smem",
            records["smem_bandwidth"].pick(instruction=instruction, bytes_per_thread=width),
            "warps",
            "bytes_per_cycle",
        )
        for instruction in ("ld.shared", "st.shared")
        for width in (4, 8, 16)
    ]
    law = series("32 banks of 4 B", "smem", (4, 32), (128, 128), measured=False)
    warps = Axis("warps", "warps of an SM", "", "log2")
    return Chart("smem_bandwidth", f"shared memory, {records.gpu}", warps, BYTES_PER_CYCLE, (*drawn, law))


def smem_conflicts(records: Records) -> Chart:
    """Cycles of an access of a warp by how many rows of banks it touches."""
    rows = records["smem_conflicts"].pick(warps=16)
    rows = rows.where(rows.column("stride_elements") > 0, "a stride")
    drawn = [
        points(
            f"{width} B a thread", "smem", rows.pick(bytes_per_thread=width), "wavefronts_model", "cycles_per_access"
        )
        for width in (4, 8, 16)
    ]
    law = series("one a cycle", "smem", (1, 32), (1, 32), measured=False)
    x = Axis("wavefronts", "wavefronts of an access, counted from the addresses", "", "log2")
    y = Axis("cycles_per_access", "cycles of an access", "", "log2")
    return Chart("smem_conflicts", f"strided loads of shared memory, {records.gpu}", x, y, (*drawn, law))


def tma_rate(records: Records) -> Chart:
    """Bytes a cycle that one thread of an SM brings by boxes of a size, rows of 32, 64 and 128 bytes."""
    rows = records["tma_load"].pick(part="ring", level="l2", issuers=1)
    drawn = []
    for sms in sorted(set(rows.column("active_sms").astype(int))):
        who = "1 SM" if sms == 1 else "all SMs"
        for columns in (64, 32, 16):
            of_width = rows.pick(active_sms=sms, box_cols=columns)
            resource = "smem" if sms == 1 else "l2"
            words = f"rows of {2 * columns} B, {who}"
            drawn.append(points(words, resource, of_width, "box_bytes", "bytes_per_cycle"))
    x = Axis("box_bytes", "bytes of a box", "B", "log2")
    return Chart(
        "tma_rate", f"tensor copies from L2, 64 KiB in flight, {records.gpu}", x, BYTES_PER_CYCLE, tuple(drawn)
    )


CLUSTER = Axis("cluster_ctas", "CTAs of a cluster", "", "log2")


def _by_cluster(records: Records, numbers: Mapping[str, str]) -> tuple[Series, ...]:
    found = shared_by_clusters(records)
    sizes = [size for size in SIZES if f"dsmem.{size}.{NUMBERS[0]}" in found]
    drawn = []
    for number, words in numbers.items():
        values = [found[f"dsmem.{size}.{number}"] for size in sizes]
        spreads = [value.spread for value in values]
        drawn.append(series(words, "link", sizes, [value.value for value in values], spreads))
    return tuple(drawn)


def dsmem_rate(records: Records) -> Chart:
    """Best rates of a CTA in the shared memory of the next one, while clusters fill the GPU."""
    numbers = {"load_bytes_per_cycle": "ld", "store_bytes_per_cycle": "st", "async_store_bytes_per_cycle": "st.async"}
    drawn = _by_cluster(records, numbers)
    return Chart("dsmem_rate", f"shared memory of the next CTA, {records.gpu}", CLUSTER, BYTES_PER_CYCLE, drawn)


def dsmem_latency(records: Records) -> Chart:
    """Latencies between CTAs of a cluster."""
    numbers = {
        "load_latency_cycles": "dependent load",
        "barrier_cycles": "barrier, release",
        "barrier_relaxed_cycles": "barrier, relaxed",
        "round_trip_cycles": "st.async and answer",
    }
    y = Axis("cycles", "cycles", "", "log2")
    drawn = _by_cluster(records, numbers)
    return Chart("dsmem_latency", f"CTAs of a cluster, clusters fill the GPU, {records.gpu}", CLUSTER, y, drawn)


def launch_gaps(records: Records) -> Chart:
    """Time from a kernel to the next that waits for it, by how they follow each other and when the next is triggered."""
    rows = records["launch_dependent"].pick(part="chain", work_cycles=WORK_CYCLES)
    rows = rows.where(rows.column("grid") == rows.column("grid").max(), "the largest grid")
    triggers = tuple(dict.fromkeys(row["trigger"] for row in rows.rows))
    drawn = []
    for how in dict.fromkeys(row["how"] for row in rows.rows):
        of_how = rows.pick(how=how)
        places = [triggers.index(row["trigger"]) for row in of_how.rows]
        drawn.append(series(how, "launch", places, of_how.column("gap_seconds"), of_how.column("spread").tolist()))
    x = Axis("trigger", "when the next kernel may start", categories=tuple(name.replace("_", " ") for name in triggers))
    y = Axis("gap_s", "gap between dependent kernels", "s")
    return Chart("launch_gaps", f"chains of kernels on all SMs, {records.gpu}", x, y, tuple(drawn))


def peer_copy(records: Records) -> Chart:
    """Rate of copies to another GPU by their size, with alpha + bytes beta through the ends."""
    rows = records["peer_copy"].pick(**{"from": 0})
    drawn = [
        points(words, "link", rows.pick(part=part, ways=ways), "bytes", "bytes_per_s")
        for part, ways, words in (
            ("stream", 1, "behind others"),
            ("stream", 2, "both ways at once, each"),
            ("single", 1, "alone"),
        )
    ]
    one = rows.pick(part="stream", ways=1)
    sizes, seconds = one.column("bytes"), one.column("seconds")
    alpha, beta = seconds[sizes.argmin()], 1.0 / one.column("bytes_per_s")[sizes.argmax()]
    line = np.geomspace(sizes.min(), sizes.max(), SMOOTH)
    law = series("alpha + bytes beta", "link", line, line / (alpha + line * beta), measured=False)
    x, y = Axis("bytes", "bytes of a copy", "B", "log2"), Axis(BANDWIDTH.column, "bandwidth", "B/s", "log10")
    return Chart("peer_copy", f"copies from GPU to GPU, {records.gpu}", x, y, (*drawn, law))


PICTURES: Mapping[str, Callable[[Records], Chart]] = {
    "l2_read": l2_read,
    "l2_latency": l2_latency,
    "merging_skew": merging_skew,
    "merging_sharers": merging_sharers,
    "drift_starts": drift_starts,
    "drift_reads_narrow": drift_reads_narrow,
    "drift_reads_wide": drift_reads_wide,
    "dram_mix": dram_mix,
    "clock_under_load": clock_under_load,
    "power_under_load": power_under_load,
    "tensor_rates": tensor_rates,
    "wgmma_cycles": wgmma,
    "smem_bandwidth": smem_bandwidth,
    "smem_conflicts": smem_conflicts,
    "tma_rate": tma_rate,
    "dsmem_rate": dsmem_rate,
    "dsmem_latency": dsmem_latency,
    "launch_gaps": launch_gaps,
    "peer_copy": peer_copy,
}
"""Every picture by its name."""
