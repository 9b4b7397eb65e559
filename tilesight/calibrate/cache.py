"""L2: rates of lookups and of stored tiles, residency of repeated launches, dirty lines, merging of requests in flight."""

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

from tilesight.calibrate.found import Derivation, Found, Numbers, one
from tilesight.calibrate.memory import marginal_rate
from tilesight.calibrate.records import Record, Records, largest
from tilesight.cost.reuse import hit_probability_gaussian
from tilesight.errors import TableError

LINE_BYTES, SECTOR_BYTES = 128, 32
LARGE_TILE_BYTES = 32768
MERGE_ENDS = 0.05
"""Neighbours that share no more: doubling them lowers the share of lookups by less than this."""
DIRTY_SHARES = (0.125, 0.64)
"""Sizes, as shares of L2, at which dirty lines are displaced and the reader's own data still fit."""

Floats = NDArray[np.float64]


def lookup_rate(records: Records) -> Found:
    """Lookups of the whole chip, every SM on lines of its own in a random order."""
    rows = records["l2_lookup_rate"].pick(walk="permuted", group=1, active_sms=records.sm_count)
    rate = float(np.median(rows.column("bytes_per_s")))
    return Found(rate, rows.middle_spread, ("l2_lookup_rate",), note="no two SMs on one line")


def store_rate(records: Records) -> Found:
    """Bytes per second of all SMs that store tile after tile. The record's spread is that between SMs, not of repeats."""
    rows = records["epilogue_store"].pick(part="steady", method="stores", active_sms=records.sm_count)
    rows = rows.where(rows.column("tile_bytes") >= LARGE_TILE_BYTES, f"tiles of {LARGE_TILE_BYTES} B and more")
    per_sm = rows.column("tile_bytes") * rows.column("tiles") / rows.column("complete_cycles")
    rate = float(np.median(per_sm)) * records.sm_count * records.boost_hz
    return Found(rate, None, ("epilogue_store",), note="all SMs, tile after tile")


def residency(records: Records) -> Numbers:
    """Associativity and copies per line that give the residency of repeated products, counted in DRAM bytes.

    The law is the stochastic distance-based model at a reuse distance of everything the launch touches
    (``cost/cache.py``): wide products hold their operands twice, streams of a weight once for most lines.
    """
    rows = records["warm_residency"]
    a, b, c = (rows.column(name) * rows.column(other) * 2 for name, other in (("m", "k"), ("k", "n"), ("m", "n")))
    stream = rows.column("m") <= 48
    seen = np.clip(rows.column("resident_share"), 0, 1)
    blocks = records.l2_bytes / LINE_BYTES

    def misfit(x: Floats) -> Floats:
        ways, copies = x
        held = 2 * a + np.where(stream, copies, 2.0) * b + c
        return hit_probability_gaussian(held / LINE_BYTES, ways, blocks) - seen

    ways, copies = least_squares(misfit, [50.0, 1.5], x_scale=[10.0, 0.1]).x
    whole = round(float(ways))
    rms = float(np.std(misfit(np.array([whole, copies]))))
    note = "of the stochastic distance-based model, not a count of ways"
    values = {"l2.associativity": whole, "l2.copies_one_reader": float(copies)}
    return {name: Found(value, None, ("warm_residency",), "fitted", note, rms) for name, value in values.items()}


def dirty_share(records: Records) -> Found:
    """Dirty bytes written back for each byte that takes their place: how much slower a read is, times the write rate."""
    clean, soiled = (records["dirty_lines"].pick(kernel="read", state=state) for state in ("clean", "dirty"))
    low, high = (share * records.l2_bytes for share in DIRTY_SHARES)
    soiled_sizes = set(soiled.column("bytes"))
    sizes = [size for size in clean.column("bytes") if low <= size <= high and size in soiled_sizes]
    if not sizes:
        raise TableError(f"no size of {low:.3g} to {high:.3g} B both clean and dirty", file="dirty_lines.csv")

    def seconds(rows: Record, size: float) -> float:
        return float(np.median(rows.column("seconds")[rows.column("bytes") == size]))

    slower = np.median([(seconds(soiled, size) - seconds(clean, size)) / size for size in sizes])
    rate, rate_spread = marginal_rate(records["dram_write"])
    used = [rows.where(np.isin(rows.column("bytes"), sizes), "these sizes") for rows in (clean, soiled)]
    spread = largest(rate_spread, *(rows.middle_spread for rows in used))
    return Found(float(slower) * rate, spread, ("dirty_lines", "dram_write"))


def looked_up(rows: Record) -> Floats:
    """Share of the bytes that kernels ask for that the L2 looks up, counted."""
    return rows.column("lts__t_sectors_srcunit_tex.sum") * SECTOR_BYTES / rows.column("asked_bytes")


def merged_requests(records: Records) -> Found:
    """Requests of neighbours that share one lookup: where twice as many of them look up no smaller share."""
    rows = records["l2_lookup_share"].pick(
        method="cp_async", walk="private", ctas_per_sm=1, active_sms=records.sm_count
    )
    shares = dict(zip(rows.column("group").astype(int), looked_up(rows), strict=True))
    group = 1
    while 2 * group in shares and shares[2 * group] < shares[group] * (1 - MERGE_ENDS):
        group *= 2
    note = f"{group} neighbours look up {shares[group]:.2f} of what they ask"
    if 2 * group in shares:
        note += f", {2 * group} look up {shares[2 * group]:.2f}"
    return Found(float(group), None, ("l2_lookup_share",), note=note)


DERIVATIONS = (
    one("l2.lookup_bytes_per_s", ("l2_lookup_rate",), lookup_rate),
    one("l2.store_bytes_per_s", ("epilogue_store",), store_rate),
    Derivation(("l2.associativity", "l2.copies_one_reader"), ("warm_residency",), residency),
    one("l2.dirty_evicted_share", ("dirty_lines", "dram_write"), dirty_share),
    one("merging.requests_async", ("l2_lookup_share",), merged_requests),
)
