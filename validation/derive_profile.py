"""Rewrite the measured numbers of hardware_profiles/h200_sxm.toml from validation/records/h200_sxm/.

Numbers that a microbenchmark gives by itself are read off its record (`measured`). What the loops and ends of compiled
kernels cost is fitted, all at once, to our own runs of them on shapes that no scored table has (`fitted`; see
fit_loops.py). Nothing here reads a scored table.

Run        python validation/derive_profile.py [--no-fit]       prints each number beside its old value
"""

from __future__ import annotations

import argparse
import csv
from pathlib import Path

import numpy as np
from fit_loops import fit_loops
from scipy.optimize import least_squares
from scipy.special import ndtr

import tilesight
from tilesight.hardware.write import to_toml

FOLDER = "validation/records/h200_sxm"
ROOT = Path(__file__).resolve().parent.parent
PROFILE = ROOT / "hardware_profiles/h200_sxm.toml"
NVML_CLOCK_STARTS = 0.3  # share of a run after which power and clock have settled


class Record:
    """Rows of one record, picked by column values."""

    def __init__(self, name: str):
        self.name = name
        with open(ROOT / FOLDER / f"{name}.csv", newline="") as file:
            self.rows = list(csv.DictReader(file))

    def pick(self, **wanted: object) -> Record:
        """Rows whose columns have the given values, compared as text."""
        chosen = Record.__new__(Record)
        chosen.name = self.name
        chosen.rows = [row for row in self.rows if all(row[key] == str(value) for key, value in wanted.items())]
        assert chosen.rows, f"{self.name}: no row with {wanted}"
        return chosen

    def column(self, name: str) -> np.ndarray:
        """A column as floats; empty cells are nan."""
        return np.array([float(row[name] or "nan") for row in self.rows])


def marginal_rate(record: Record) -> float:
    """Best marginal rate between the two largest sizes: launch and ramp drop out. Bytes per second."""
    rates = {}
    for row in record.rows:
        key = tuple(row[name] for name in record.rows[0] if name not in ("bytes", "seconds", "bytes_per_s", "spread"))
        rates.setdefault(key, []).append((float(row["bytes"]), float(row["seconds"])))
    best = []
    for points in rates.values():
        (less, short), (more, long) = sorted(points)[-2:]
        best.append((more - less) / (long - short))
    return max(best)


def power_law() -> dict[str, float]:
    """Energies from steady runs; thresholds and exponents from the clock of bursts and of lasting loads.

    demand = static + e_flop R + e_l2 L + e_dram D at full clock; clock = tensor_hz * min(1, limit / demand) ** exponent.
    """
    record = Record("power_clock")
    tensor_hz = float(np.median(record.pick(row="summary", sms=1, data="normal", duty=1).column("clock_hz")))
    normal = [row for row in record.pick(row="summary", data="normal").rows if float(row["duration_s"]) >= 1]
    steady = []
    for row in normal:  # runs of 1 s and more: NVML's average has settled
        flop, stream = float(row["rate_flop_per_s"]), float(row["stream_bytes_per_s"] or 0)
        is_dram = float(row["dram_asked_bytes_per_s"]) > 0
        clock = float(row["clock_hz"]) / tensor_hz
        watts = float(row["power_average_w"] or "nan")
        steady.append((flop, 0 if is_dram else stream, stream if is_dram else 0, min(clock, 1.0), watts))
    flop, l2, dram, clock, watts = np.array(steady).T

    def misfit(x: np.ndarray) -> np.ndarray:
        static, e_flop, e_l2, e_dram, falls = x
        return (static + e_flop * flop / 1e12 * clock**falls + (e_l2 * l2 + e_dram * dram) / 1e12 - watts) / watts

    static, e_flop, e_l2, e_dram, _ = least_squares(misfit, [150, 0.85, 30, 110, 1.5], loss="soft_l1", f_scale=0.03).x

    def clocks(low_s: float, high_s: float, least_s: float) -> tuple[np.ndarray, np.ndarray]:
        """Demand at full clock and measured clock of each normal-data run, in a window of its series."""
        demands, seen = [], []
        series = record.pick(row="series", data="normal").rows
        for run in sorted({(row["run"], row["duration_s"]) for row in series}):
            rows = [row for row in series if (row["run"], row["duration_s"]) == run]
            window = [row for row in rows if low_s < float(row["time_s"]) < high_s * float(run[1])]
            steady_load = float(rows[0]["duty"]) in (0.5, 0.75, 0.9, 1.0) and float(rows[0]["idle_before_s"]) >= 0.4
            if not window or float(run[1]) < least_s or not steady_load:
                continue
            middle = {
                name: np.median([float(row[name] or 0) for row in window])
                for name in ("clock_hz", "rate_flop_per_s", "stream_bytes_per_s")
            }
            scale = tensor_hz / middle["clock_hz"] if middle["clock_hz"] < tensor_hz else 1.0
            energy = e_dram if float(rows[0]["dram_asked_bytes_per_s"]) > 0 else e_l2
            work = e_flop * middle["rate_flop_per_s"] + energy * middle["stream_bytes_per_s"]
            demands.append(static + work * scale / 1e12)
            seen.append(middle["clock_hz"] / tensor_hz)
        return np.array(demands), np.array(seen)

    def threshold(demand: np.ndarray, clock: np.ndarray) -> tuple[float, float]:
        model = lambda x: np.minimum(1.0, x[0] / demand) ** x[1]  # noqa: E731
        limit, exponent = least_squares(lambda x: model(x) - clock, [900.0, 0.4]).x
        print(f"  clock law over {len(clock)} runs: rms {np.std(model((limit, exponent)) - clock):.4f}")
        return limit, exponent

    burst_w, burst_exponent = threshold(*clocks(5e-4, 0.2, 0.1))
    sustained_w, sustained_exponent = threshold(*clocks(0.15, 1.0, 1.0))
    return {
        "clock.tensor_hz": round(tensor_hz, -6),
        "power.static_w": static,
        "power.energy_j_per_flop": e_flop * 1e-12,
        "power.energy_j_per_l2_byte": e_l2 * 1e-12,
        "power.energy_j_per_dram_byte": e_dram * 1e-12,
        "power.burst_w": burst_w,
        "power.burst_exponent": burst_exponent,
        "power.sustained_w": sustained_w,
        "power.sustained_exponent": sustained_exponent,
    }


def cap_window() -> dict[str, float]:
    """When the board limit begins to act and has settled, from idle: medians over runs of all tensor cores with traffic.

    Products move operands, so the runs with a side stream from L2 or DRAM are theirs. The limit acts on power averaged
    over some 35 ms: a heavier load meets it sooner.
    """
    record = Record("power_clock").pick(row="series", data="normal", sms=132, duty=1)
    begins, ends = [], []
    for run, duration in sorted({(row["run"], row["duration_s"]) for row in record.rows}):
        rows = record.pick(run=run, duration_s=duration)
        if not np.nanmedian(rows.column("stream_bytes_per_s")) > 2e12 or rows.column("idle_before_s")[0] < 0.4:
            continue
        times, clocks = rows.column("time_s"), rows.column("clock_hz")
        burst = np.median(clocks[(times > 5e-4) & (times < 0.02)])
        settled = np.median(clocks[times > 0.075])
        if settled > 0.95 * burst:  # the run ended before the limit acted
            continue
        late = times > 1e-3
        begins.append(times[late & (clocks < burst - 0.2 * (burst - settled))][0])
        ends.append(times[late & (clocks < burst - 0.9 * (burst - settled))][0])
    return {"power.burst_s": float(np.median(begins)), "power.settle_s": float(np.median(ends))}


def residency() -> dict[str, float]:
    """Associativity and copies per line that give the residency of repeated products, counted in DRAM bytes.

    The law is the stochastic distance-based model at a reuse distance of everything the launch touches
    (cost/cache.py): wide products hold their operands twice, streams of a weight once for most lines.
    """
    rows = Record("warm_residency")
    a, b, c = (rows.column(name) * rows.column(other) * 2 for name, other in (("m", "k"), ("k", "n"), ("m", "n")))
    stream = rows.column("m") <= 48
    seen = np.clip(rows.column("resident_share"), 0, 1)
    capacity = 60 * 2**20

    def misfit(x: np.ndarray) -> np.ndarray:
        ways, copies = x
        held = 2 * a + np.where(stream, copies, 2.0) * b + c
        share = held / capacity * ways
        return ndtr((ways - 0.5 - share) / np.sqrt(share)) - seen

    ways, copies = least_squares(misfit, [50.0, 1.5], x_scale=[10.0, 0.1]).x
    print(f"  residency of {len(seen)} repeated products: rms {np.std(misfit((round(ways), copies))):.3f}")
    return {"l2.associativity": round(ways), "l2.copies_one_reader": copies}


def pitches(boost_hz: float) -> dict[str, float]:
    """Time of a 128-byte box row by pitch: k-step slopes of 64x256 bulk-load tiles, and the fill slope when aligned."""
    fill = Record("stage_fill").pick(part="fill", method="tma", level="l2", active_sms=1, share=1, background="none")
    cycles, _ = np.polyfit(fill.column("stage_bytes") / 128, fill.column("cycles"), 1)
    found = {"fill.row_128_s": cycles / boost_hz}
    ragged = Record("triton_ragged").pick(bench="ragged_pitch", n=512, tile_m=64, tile_n=256)

    def step_s(rows: Record) -> float:
        order = np.argsort(rows.column("k"))
        (short, long), (few, many) = rows.column("time_s")[order][[0, -1]], rows.column("k")[order][[0, -1]] / 64
        return (long - short) / (many - few)

    for power, pitch in ((32, 528), (64, 544)):  # elements: 1056 and 1088 bytes
        found[f"fill.row_{power}_s"] = (step_s(ragged.pick(pitch_b=pitch)) - 64 * found["fill.row_128_s"]) / 256
    sizes = Record("triton_outside").pick(bench="outside_b", tile_m=64, tile_n=256)
    shared = []
    for m, n in ((40 * 64, 320), (40 * 64, 384), (66 * 64, 320), (66 * 64, 384), (132 * 64, 64)):
        rows_outside = -n % 256
        inside = 64 + 256 - rows_outside
        row_s = (step_s(sizes.pick(m=m, n=n)) - inside * found["fill.row_128_s"]) / rows_outside
        if m == 132 * 64:
            found["fill.row_outside_s"] = row_s  # all SMs at once
        else:
            shared.append(m / 64 / row_s)
    found["fill.rows_outside_per_s"] = float(np.mean(shared))
    odd = Record("triton_unaligned").pick(kernel="tma")
    steps = odd.column("k") / odd.column("tile_k") * np.ceil(odd.column("tiles") / 132)
    both = np.array([int(row["k"]) % 16 == 8 and int(row["n"]) % 16 == 8 for row in odd.rows])
    per_row = odd.column("time_s") / steps / (odd.column("tile_m") + odd.column("tile_n")) / (odd.column("tile_k") / 64)
    found["fill.row_16_s"] = float(np.median(per_row[both]))
    return found


def specialized_loop(tensor_hz: float) -> dict[str, float]:
    """Overhead of a k-step of our own specialised product where tensor cores bind, and the store of its tiles.

    Stamps inside the kernel, one CTA: cycles from k-step to k-step less those of the instructions; cycles from the last
    instruction to the end of the store against the tile's bytes.
    """
    slopes = Record("ws_gemm").pick(part="slope", cluster=1, mode="full", ctas=1, epilogue=1)
    extra, size, store = [], [], []
    for tile_m, tile_n in sorted({(int(row["tile_m"]), int(row["tile_n"])) for row in slopes.rows}):
        rows = slopes.pick(tile_m=tile_m, tile_n=tile_n)
        steps, last = rows.column("k_steps"), rows.column("last_mma_cycles")
        many = steps >= 13
        size.append(2.0 * tile_m * tile_n)
        store.append(np.median((rows.column("store_done_cycles") - last)[many]))
        ideal = tile_m / 64 * 4 * max(tile_n / 2, 16 + tile_n / 4)
        if ideal >= 380:
            extra.append(np.polyfit(steps[many], last[many], 1)[0] - ideal)
    slope, fixed = np.polyfit(size, store, 1)
    return {
        "loop.step_specialized_cycles": max(float(np.median(extra)), 0.0),
        "epilogue.specialized_fixed_s": float(fixed) / tensor_hz,
        "epilogue.specialized_bytes_per_s": tensor_hz / float(slope),
    }


def register_loop() -> dict[str, float]:
    """Rate of mma.sync with two CTAs an SM, and the time of a k16 that one CTA alone can't go below."""
    rows = Record("mma_sync_loop").pick(order="free", sms=132)
    alone: dict[tuple[str, str], float] = {}
    for row in rows.pick(ctas_per_sm=1).rows:
        tile = (row["tile_m"], row["tile_n"])
        if float(row["tile_m"]) * float(row["tile_n"]) >= 2048:  # four instructions a warp and more
            alone[tile] = min(alone.get(tile, np.inf), float(row["cycles_per_k16"]))
    return {
        "loop.mma_sync_rate_share": float(rows.column("mma_flop_per_cycle").max()) / 4096,
        "loop.chain_registers_k16_cycles": float(np.median(list(alone.values()))),
    }


def unaligned_share() -> dict[str, float]:
    """Share of the cp.async rate that rows of B at an odd pitch keep, from k-steps bound by a ring of three stages.

    A period is half a fill, and B is four fifths of its bytes: with p and q the periods at aligned and odd pitch,
    share = (2 p * 4/5) / (2 p * 4/5 + 2 (q - p)).
    """
    rows = Record("triton_ragged").pick(bench="ragged_n", kernel="ptr", tile_m=64, tile_n=256, stages=3)

    def period_s(n: int) -> float:
        here = rows.pick(n=n)
        order = np.argsort(here.column("k"))
        (short, long), (few, many) = here.column("time_s")[order][[0, -1]], here.column("k")[order][[0, -1]] / 64
        return (long - short) / (many - few)

    aligned = np.mean([period_s(n) for n in (320, 384, 448, 512)])
    odd = np.array([period_s(n) for n in (272, 288, 304, 352, 416, 480, 496)])
    return {"fill.cp_async_unaligned_share": float(np.mean(0.8 * aligned / (0.8 * aligned + odd - aligned)))}


def scalar_loads() -> dict[str, float]:
    """Elements per cycle and SM that loops with element-wise loads move, with and without spills."""
    rows = Record("triton_unaligned").pick(kernel="ptr")
    n, k = (rows.column(name) for name in ("n", "k"))
    odd_a, odd_b = k % 16 != 0, n % 16 != 0
    tiles, per_sm = rows.column("tiles"), np.maximum(rows.column("most_ctas_per_sm"), 1)
    elements = (
        (odd_a * rows.column("tile_m") + odd_b * rows.column("tile_n")) * k * np.ceil(tiles / 132 / per_sm) * per_sm
    )
    rate = elements / (rows.column("time_s") * rows.column("clock_hz"))
    spilled = rows.column("spills") > 0
    some = elements > 0
    return {
        "fill.scalar_elements_per_cycle": float(np.median(rate[some & ~spilled])),
        "fill.spilled_elements_per_cycle": float(np.median(rate[some & spilled])),
    }


def merging() -> dict[str, float]:
    """Law of cost/merging.py on counted lookups of our own products: see the equations there."""
    rows = Record("triton_lookups")
    counted = rows.column("lts__t_sectors_srcunit_tex.sum") * 32
    m, n, k = (rows.column(name) for name in ("m", "n", "k"))
    tile_m, tile_n, group = (rows.column(name) for name in ("tile_m", "tile_n", "group_m"))
    tiles_m, tiles_n = np.ceil(m / tile_m), np.ceil(n / tile_n)
    asked_a, asked_b = tiles_n * m * k * 2, tiles_m * n * k * 2
    group = np.minimum(group, tiles_m)
    share_a = np.minimum(4, group) / 4
    share_b = np.where(group % 4 == 0, 0.25, np.where(4 % group == 0, 1 / group, np.minimum((1 + 3 / group), 4) / 4))
    resident = np.minimum(
        rows.column("launch__occupancy_limit_registers"), rows.column("launch__occupancy_limit_shared_mem")
    )
    is_bulk = np.array([row["kernel"] == "tma" for row in rows.rows])
    resident = np.where(is_bulk, 1, resident)
    rounds = np.maximum(tiles_m * tiles_n / (132 * resident), 1.0)
    operand = counted - m * n * 2

    def misfit(loss: np.ndarray, here: np.ndarray) -> np.ndarray:
        pulled = [np.clip(share + (1 - share) * loss, 0, 1) for share in (share_a[here], share_b[here])]
        return np.log((asked_a[here] * pulled[0] + asked_b[here] * pulled[1]) / operand[here])

    many, one = ~is_bulk & (resident > 1), ~is_bulk & (resident == 1)
    passed, further = k * (rounds - 0.5), rounds - 1
    options = dict(loss="soft_l1", f_scale=0.1)
    most, half = least_squares(
        lambda x: misfit(x[0] * passed[many] / (passed[many] + abs(x[1])), many),
        [0.8, 3e4],
        x_scale=[0.1, 1e4],
        **options,
    ).x
    begin, rise, rounds_half = least_squares(
        lambda x: misfit(x[0] + x[1] * further[one] / (further[one] + abs(x[2])), one), [-0.25, 0.5, 2.0], **options
    ).x
    bulk = least_squares(lambda x: misfit(np.full(is_bulk.sum(), x[0]), is_bulk), [0.05], **options).x[0]
    return {
        "merging.loss_many_ctas": most,
        "merging.loss_many_ctas_elements": abs(half),
        "merging.loss_one_cta_start": begin,
        "merging.loss_one_cta_rise": rise,
        "merging.loss_one_cta_rounds": abs(rounds_half),
        "merging.loss_bulk": bulk,
    }


def measured() -> dict[str, tuple[float, dict[str, object]]]:
    """Number and source by dotted name, each from one record (or a few)."""
    boost = Record("device_limits").pick(what="limits").column("clock_hz")[0]
    found: dict[str, tuple[float, dict[str, object]]] = {}

    def take(
        numbers: dict[str, float], records: list[str] | str, kind: str = "measured", note: str | None = None
    ) -> None:
        names = [records] if isinstance(records, str) else records
        refs = [f"{FOLDER}/{name}.csv" for name in names]
        source: dict[str, object] = {"kind": kind, "ref": refs[0] if len(refs) == 1 else refs}
        if note:
            source["note"] = note
        for name, value in numbers.items():
            found[name] = (value, source)

    copies = Record("dram_copy").pick(reads_per_write=1)
    take(
        {"dram.bandwidth_read_bytes_per_s": marginal_rate(Record("dram_read"))},
        "dram_read",
        note="marginal rate, 1 to 2 GiB",
    )
    take(
        {"dram.bandwidth_write_bytes_per_s": marginal_rate(Record("dram_write"))},
        "dram_write",
        note="marginal rate, 1 to 2 GiB",
    )
    take({"dram.bandwidth_sustained_bytes_per_s": marginal_rate(copies)}, "dram_copy", note="reads + writes of a copy")
    lookups = Record("l2_lookup_rate").pick(walk="permuted", group=1, active_sms=132)
    take(
        {"l2.lookup_bytes_per_s": float(np.median(lookups.column("bytes_per_s")))},
        "l2_lookup_rate",
        note="no two SMs on one line",
    )
    stores = Record("epilogue_store").pick(part="steady", method="stores", active_sms=132)
    take({"l2.store_bytes_per_s": store_rate(stores, boost)}, "epilogue_store", note="all SMs, tile after tile")
    take(residency(), "warm_residency", "fitted", "of the stochastic distance-based model, not a count of ways")
    take(power_law(), "power_clock", "fitted", "rms 1 % over the runs")
    take(cap_window(), "power_clock", note="from idle, all tensor cores and a stream of operands")
    take(
        {"power.idle_w": float(np.median(Record("power_clock").pick(row="summary").column("idle_power_w")[:5]))},
        "power_clock",
    )
    take(pitches(boost), ["stage_fill", "triton_ragged", "triton_outside", "triton_unaligned"])
    take(scalar_loads(), "triton_unaligned", note="median over tiles and warps; they spread by half")
    take(specialized_loop(found["clock.tensor_hz"][0]), "ws_gemm")
    take(unaligned_share(), "triton_ragged", note="64x256 tiles, 3 stages, rows of B at a pitch of 32 or 64 bytes")
    take(
        {"merging.requests_async": 4.0},
        "l2_lookup_share",
        note="4 neighbours look up 0.36 of what they ask, 2 look up 0.50",
    )
    take(merging(), "triton_lookups", "fitted")
    take(register_loop(), "mma_sync_loop", note="ldmatrix and mma.sync m16n8k16 from shared memory, 4 warps")
    ring = Record("dram_read").pick(method="bulk", ctas_per_sm=1, chunk_bytes=16384, stages=6)
    share = marginal_rate(ring) / found["dram.bandwidth_read_bytes_per_s"][0]
    take({"dram.tiles_read_share": share}, "dram_read", note="bulk copies of 16 KiB, ring of 6")
    take(launches(), ["vendor_gemm", "launch_overhead", "dirty_lines", "stage_fill"])
    take(tensor_rates(), "power_gemm", note="our 128x256x64 product of 6144 x 8448 x 9216, random normal data")
    take(reduction(), "launch_reduction", note="fp32 partial sums read from L2 by the second kernel")
    return found


def store_rate(rows: Record, boost_hz: float) -> float:
    """Bytes per second of all SMs that store tile after tile."""
    per_sm = rows.column("tile_bytes") * rows.column("tiles") / rows.column("complete_cycles")
    return float(np.median(per_sm[rows.column("tile_bytes") >= 32768])) * 132 * boost_hz


def tensor_rates() -> dict[str, float]:
    """What a large product reaches in its first 20 ms and after half a second."""
    rows = Record("power_gemm").pick(row="launch", data="normal", cluster=2)
    rate, time, lasting = (rows.column(name) for name in ("rate_flop_per_s", "time_s", "duration_s"))
    return {
        "tensor.bf16.rate_burst_flop_per_s": float(np.median(rate[time < 0.02])),
        "tensor.bf16.rate_sustained_flop_per_s": float(np.median(rate[(time > 0.5) & (lasting >= 1)])),
    }


def cold_extra_s(events_s: float) -> float:
    """What a first launch pays beyond events and the latency of DRAM: cold instructions, parameters, descriptors.

    Products under 2 MB of our own runs: cold less warm time, less what events add to a graph node, less the extra
    latency of one fill.
    """
    small = [row for row in Record("vendor_gemm").rows if row["extra_kernels"] == "0" and operand_bytes(row) < 2e6]
    colder = np.median([float(row["cold_s"]) - float(row["warm_s"]) for row in small])
    fill = Record("stage_fill").pick(
        part="fill", method="tma", active_sms=33, share=1, stage_bytes=8192, background="none"
    )
    latency = np.diff([float(fill.pick(level=level).column("cycles").mean()) for level in ("l2", "dram")])[0] / 1.98e9
    return float(colder - events_s - latency)


def operand_bytes(row: dict[str, str]) -> float:
    """Bytes of A and B of a bf16 product."""
    return 2.0 * int(row["k"]) * (int(row["m"]) + int(row["n"]))


def reduction() -> dict[str, float]:
    """Rate at which the second kernel of a split reads its partial sums, those that L2 holds."""
    rows = Record("launch_reduction")
    moved = rows.column("partial_bytes") + rows.column("out_bytes")
    held = moved < 40e6
    slope, _ = np.polyfit(moved[held], rows.column("seconds_second")[held], 1)
    return {"launch.reduction_bytes_per_s": 1 / slope}


def launches() -> dict[str, float]:
    """Costs of a launch that a protocol adds: graph gap, events, cold code, eviction of dirty lines."""
    vendor = [row for row in Record("vendor_gemm").rows if row["extra_kernels"] == "0" and float(row["warm_s"]) < 20e-6]
    gap = float(np.median([float(row["warm_s"]) - float(row["main_s"]) for row in vendor]))
    dirty = Record("dirty_lines")
    node = float(np.median(Record("launch_overhead").pick(part="nodes", kernel="empty", nodes=200).column("seconds")))
    between = float(np.median(dirty.pick(kernel="empty", state="clean").column("seconds")))
    clean, soiled = (dirty.pick(kernel="read", state=state) for state in ("clean", "dirty"))
    sizes = [size for size in clean.column("bytes") if 8e6 <= size <= 40e6 and size in soiled.column("bytes")]
    at = lambda rows, size: float(np.median(rows.column("seconds")[rows.column("bytes") == size]))  # noqa: E731
    slower = np.median([(at(soiled, size) - at(clean, size)) / size for size in sizes])
    write_rate = marginal_rate(Record("dram_write"))
    return {
        "launch.graph_gap_s": gap,
        "launch.kernel_start_s": node,
        "launch.event_s": between - (node - gap),
        "launch.cold_extra_s": cold_extra_s(between - node),
        "l2.dirty_evicted_share": float(slower) * write_rate,
    }


def main() -> None:
    """Derive, fit, show and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--no-fit", action="store_true", help="keep the fitted numbers of loops and ends as they are")
    options = parser.parse_args()
    old = tilesight.load_profile(PROFILE)
    found = measured()
    numbers = {name: value for name, (value, _) in found.items()}
    sources = {name: source for name, (_, source) in found.items()}
    profile = old.with_numbers({n: tidy(v) for n, v in numbers.items()}, sources)
    if not options.no_fit:
        fitted, fit_sources = fit_loops(profile)
        numbers |= fitted
        profile = profile.with_numbers({n: tidy(v) for n, v in fitted.items()}, fit_sources)
    for name, value in numbers.items():
        before = old.get(name)
        print(f"{name:45s} {value:12.5g}   before {'-' if before is None else f'{before:.5g}'}")
    PROFILE.write_text(to_toml(profile))


def tidy(value: float) -> float:
    """Four significant digits: no record is better than that."""
    return value if isinstance(value, int) else float(f"{value:.4g}")


if __name__ == "__main__":
    main()
