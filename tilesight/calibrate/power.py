"""Power and clock: what work costs in joules, at which demand the clock falls and when, and rates of a large product.

    demand = static + e_flop R + e_l2 L + e_dram D     at full clock          (watts; R, L, D per second)
    clock  = tensor_hz * min(1, limit / demand) ** exponent                   (``cost/clock.py``)

Energies are fitted to runs that lasted, limits and exponents to the clock of bursts and of lasting loads.
"""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

from tilesight.calibrate.found import Derivation, Found, Numbers, one
from tilesight.calibrate.records import Column, Record, Records, largest, spread_of
from tilesight.errors import TableError

RECORD = ("power_clock",)
LASTS_S, BEGINS_S = 1.0, 5e-4
"""Runs of this length and more have settled, NVML's average too; what comes before the other is the ramp."""
RESTED_S = 0.4
"""Idle time before a run after which it starts from rest."""
STEADY_DUTY = (0.5, 0.75, 0.9, 1.0)
STREAM_SHARE = 0.42
"""Side stream, as a share of the DRAM peak, from which a run moves as much as products move operands."""
IDLE_RUNS = 5

Floats = NDArray[np.float64]


def _clocks_of_one_sm(records: Records) -> Column:
    return records["power_clock"].pick(row="summary", sms=1, data="normal", duty=1).column("clock_hz")


def tensor_clock(records: Records) -> float:
    """SM clock that tensor cores leave, in Hz: one SM at work, to the megahertz."""
    return round(float(np.median(_clocks_of_one_sm(records))), -6)


def clock(records: Records) -> Found:
    """The clock beside tensor cores."""
    return Found(tensor_clock(records), spread_of(_clocks_of_one_sm(records)), RECORD, note="one SM at work")


def power_law(records: Records) -> Numbers:
    """Energies, then the limits and exponents of bursts and of lasting loads."""
    record, tensor_hz = records["power_clock"], float(np.median(_clocks_of_one_sm(records)))
    energies, rms = _energies(record.pick(row="summary", data="normal"), tensor_hz)
    static, e_flop, e_l2, e_dram = energies
    found = {
        "power.static_w": static,
        "power.energy_j_per_flop": e_flop * 1e-12,
        "power.energy_j_per_l2_byte": e_l2 * 1e-12,
        "power.energy_j_per_dram_byte": e_dram * 1e-12,
    }
    numbers = {name: Found(float(value), None, RECORD, "fitted", misfit=rms) for name, value in found.items()}
    series = record.pick(row="series", data="normal")
    for kind, window in (("burst", (BEGINS_S, 0.2, 0.1)), ("sustained", (0.15, 1.0, LASTS_S))):
        demands, seen = _clocks(series, energies, tensor_hz, window)
        limit, exponent, off = _threshold(demands, seen)
        source: dict[str, Any] = {"records": RECORD, "kind": "fitted", "note": f"{len(seen)} runs", "misfit": off}
        numbers[f"power.{kind}_w"] = Found(limit, None, **source)
        numbers[f"power.{kind}_exponent"] = Found(exponent, None, **source)
    return numbers


def _energies(summary: Record, tensor_hz: float) -> tuple[tuple[float, float, float, float], float]:
    """Static watts and picojoules per flop, byte from L2, byte from DRAM; and the rms of what is left, relative.

    Work at a lower clock takes less energy, by a power of the clock that is fitted and not kept.
    """
    lasting = summary.where(summary.column("duration_s") >= LASTS_S, f"runs of {LASTS_S:g} s and more")
    flop = lasting.column("rate_flop_per_s")
    stream = np.nan_to_num(lasting.column("stream_bytes_per_s"))
    is_dram = lasting.column("dram_asked_bytes_per_s") > 0
    clock = np.minimum(lasting.column("clock_hz") / tensor_hz, 1.0)
    watts = lasting.column("power_average_w")
    l2, dram = np.where(is_dram, 0, stream), np.where(is_dram, stream, 0)

    def misfit(x: Floats) -> Floats:
        static, e_flop, e_l2, e_dram, falls = x
        drawn: Floats = static + e_flop * flop / 1e12 * clock**falls + (e_l2 * l2 + e_dram * dram) / 1e12
        return (drawn - watts) / watts

    best = least_squares(misfit, [150, 0.85, 30, 110, 1.5], loss="soft_l1", f_scale=0.03).x
    static, e_flop, e_l2, e_dram = (float(value) for value in best[:4])
    return (static, e_flop, e_l2, e_dram), float(np.sqrt(np.mean(misfit(best) ** 2)))


def _runs(series: Record) -> Iterator[tuple[Record, float]]:
    """Each run of a series, with its length in seconds."""
    for run, duration in sorted({(row["run"], row["duration_s"]) for row in series.rows}):
        yield series.pick(run=run, duration_s=duration), float(duration)


def _clocks(
    series: Record, energies: tuple[float, float, float, float], tensor_hz: float, window: tuple[float, float, float]
) -> tuple[Column, Column]:
    """Demand at full clock, in watts, and measured clock over full clock, of each run from rest that is long enough.

    ``window``: from when, up to which share of the run, and how long a run must be.
    """
    static, e_flop, e_l2, e_dram = energies
    low_s, high, least_s = window
    demands, seen = [], []
    for rows, duration in _runs(series):
        times = rows.column("time_s")
        inside = (times > low_s) & (times < high * duration)
        from_rest = rows.column("duty")[0] in STEADY_DUTY and rows.column("idle_before_s")[0] >= RESTED_S
        if not inside.any() or duration < least_s or not from_rest:
            continue
        clock, rate, stream = (
            float(np.median(np.nan_to_num(rows.column(name)[inside])))
            for name in ("clock_hz", "rate_flop_per_s", "stream_bytes_per_s")
        )
        scale = tensor_hz / clock if clock < tensor_hz else 1.0
        energy = e_dram if rows.column("dram_asked_bytes_per_s")[0] > 0 else e_l2
        demands.append(static + (e_flop * rate + energy * stream) * scale / 1e12)
        seen.append(clock / tensor_hz)
    if len(seen) < 3:
        raise TableError(f"{len(seen)} runs of {least_s:g} s from rest; a limit needs 3", file="power_clock.csv")
    return np.array(demands), np.array(seen)


def _threshold(demand: Column, clock: Column) -> tuple[float, float, float]:
    """Limit in watts, exponent, and the rms of what is left of the clock."""
    law: Callable[[Floats], Floats] = lambda x: np.minimum(1.0, x[0] / demand) ** x[1] - clock  # noqa: E731
    best = least_squares(law, [900.0, 0.4]).x
    return float(best[0]), float(best[1]), float(np.std(law(best)))


def cap_window(records: Records) -> Numbers:
    """When the board limit begins to act and has settled, from idle: medians over runs of all tensor cores with traffic.

    Products move operands, so the runs with a side stream from L2 or DRAM are theirs. The limit acts on power averaged
    over some 35 ms: a heavier load meets it sooner. Runs differ by their load: they are no repeats.
    """
    series = records["power_clock"].pick(row="series", data="normal", sms=records.sm_count, duty=1)
    stream_least = STREAM_SHARE * records.stated("dram.bandwidth_peak_bytes_per_s")
    begins, ends = [], []
    for rows, _ in _runs(series):
        streams = np.nan_to_num(rows.column("stream_bytes_per_s"))
        if not np.median(streams) > stream_least or rows.column("idle_before_s")[0] < RESTED_S:
            continue
        times, clock = rows.column("time_s"), rows.column("clock_hz")
        start, last = (times > BEGINS_S) & (times < 0.02), times > 0.075
        if not (start.any() and last.any()):
            continue
        burst, settled = np.median(clock[start]), np.median(clock[last])
        if settled > 0.95 * burst:  # the run ended before the limit acted
            continue
        late = times > 1e-3
        begins.append(times[late & (clock < burst - 0.2 * (burst - settled))][0])
        ends.append(times[late & (clock < burst - 0.9 * (burst - settled))][0])
    if not begins:
        raise TableError("no run with traffic was slowed by the board's limit", file="power_clock.csv")
    note = "from idle, all tensor cores and a stream of operands"
    return {
        "power.burst_s": Found(float(np.median(begins)), None, RECORD, note=note),
        "power.settle_s": Found(float(np.median(ends)), None, RECORD, note=note),
    }


def idle_power(records: Records) -> Found:
    """Power before the first runs."""
    watts = records["power_clock"].pick(row="summary").column("idle_power_w")[:IDLE_RUNS]
    return Found(float(np.median(watts)), spread_of(watts), RECORD)


def tensor_rates(records: Records) -> Numbers:
    """What a large product reaches in its first 20 ms, and after half a second of runs of a second and more.

    Launches of one run follow its power and clock: they are no repeats.
    """
    rows = records["power_gemm"].pick(row="launch", data="normal", cluster=2)
    rate, time, lasting = (rows.column(name) for name in ("rate_flop_per_s", "time_s", "duration_s"))
    shape = rows.rows[0]
    note = (
        f"our {shape['tile_m']}x{shape['tile_n']}x64 product of {shape['m']} x {shape['n']} x {shape['k']}, "
        "random normal data"
    )
    windows = {"burst": time < 0.02, "sustained": (time > 0.5) & (lasting >= LASTS_S)}
    found = {}
    for kind, window in windows.items():
        if not window.any():
            raise TableError(f"no launch in the {kind} window", file="power_gemm.csv")
        value = float(np.median(rate[window]))
        name = f"tensor.bf16.rate_{kind}_flop_per_s"
        found[name] = Found(value, None, ("power_gemm",), note=note)
    return found


FORMATS = ("fp16", "tf32", "fp8", "int8")


def formats(records: Records) -> Numbers:
    """Rates of formats beside bf16, and their energy a flop against that of bf16 by the clock that the limit leaves.

    Both lasted, both ran from shared memory: with demand = limit * (tensor_hz / clock) ** (1 / exponent),

        energy / energy of bf16 = (demand - static) / (demand of bf16 - static) * (flop a cycle of bf16 / flop a cycle)
    """
    rows = records["tensor_sustained"].pick(part="sustained")
    bursts = records["tensor_sustained"].pick(part="burst")
    law = {name.removeprefix("power."): found.value for name, found in power_law(records).items()}
    limit_w, exponent, static_w = law["sustained_w"], law["sustained_exponent"], law["static_w"]
    hz = float(np.median(_clocks_of_one_sm(records)))

    def beyond_static(dtype: str) -> tuple[float, float, float | None]:
        row = rows.pick(dtype=dtype)
        slower = hz / float(row.column("clock_hz")[0])
        watts = limit_w * slower ** (1.0 / exponent) - static_w
        return watts, float(row.column("flop_per_cycle_per_sm")[0]), row.spread

    of_bf16, bf16_flop, bf16_spread = beyond_static("bf16")
    known = {row["dtype"] for row in rows.rows}
    numbers: dict[str, Found] = {}
    for dtype in FORMATS:
        if dtype not in known:
            continue
        for kind, part in (("burst", bursts), ("sustained", rows)):
            row = part.pick(dtype=dtype)
            note = f"{row.rows[0]['instruction']} from shared memory, random data"
            rate = float(row.column("flop_per_s")[0])
            numbers[f"tensor.{dtype}.rate_{kind}_flop_per_s"] = Found(
                rate, row.spread, ("tensor_sustained",), note=note
            )
        watts, flop, spread = beyond_static(dtype)
        energy = law["energy_j_per_flop"] * watts / of_bf16 * bf16_flop / flop
        note = f"{energy / law['energy_j_per_flop']:.2g} of bf16's"
        used = ("tensor_sustained", "power_clock")
        numbers[f"tensor.{dtype}.energy_j_per_flop"] = Found(energy, largest(spread, bf16_spread), used, note=note)
    return numbers


LAW = ("static_w", "energy_j_per_flop", "energy_j_per_l2_byte", "energy_j_per_dram_byte")
LIMITS = ("burst_w", "burst_exponent", "sustained_w", "sustained_exponent")
DERIVATIONS = (
    one("clock.tensor_hz", RECORD, clock),
    Derivation(tuple(f"power.{name}" for name in (*LAW, *LIMITS)), RECORD, power_law),
    Derivation(("power.burst_s", "power.settle_s"), RECORD, cap_window),
    one("power.idle_w", RECORD, idle_power),
    Derivation(
        ("tensor.bf16.rate_burst_flop_per_s", "tensor.bf16.rate_sustained_flop_per_s"), ("power_gemm",), tensor_rates
    ),
    Derivation(
        tuple(
            f"tensor.{dtype}.{number}"
            for dtype in FORMATS
            for number in ("rate_burst_flop_per_s", "rate_sustained_flop_per_s", "energy_j_per_flop")
        ),
        ("tensor_sustained", "power_clock"),
        formats,
    ),
)
