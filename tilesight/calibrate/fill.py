"""Filling a stage: rows of bulk-copy boxes by their pitch, rows outside the matrix, loads that can't be vectorised."""

import numpy as np

from tilesight.calibrate.found import Derivation, Found, Numbers, one
from tilesight.calibrate.records import Record, Records, largest, straight_line
from tilesight.errors import TableError

ROW_BYTES = 128
WIDE = {"tile_m": 64, "tile_n": 256}
TILE_K = 64
PITCHES = {"fill.row_32_s": 528, "fill.row_64_s": 544}
"""Elements of a pitch that 32 bytes divide (1056) but 64 do not, and that 64 do (1088) but 128 do not."""
SHARED_FROM = 0.3
"""Share of the SMs from which tiles that stick out of the matrix share the chip's rate of such rows."""


def step_s(rows: Record) -> float:
    """Seconds of a k-step: from the shortest to the longest k of the same product."""
    order = np.argsort(rows.column("k"))
    short, long = rows.column("time_s")[order][[0, -1]]
    few, many = rows.column("k")[order][[0, -1]] / TILE_K
    if few == many:
        raise TableError("one k only; a slope needs two", file=f"{rows.name}.csv")
    return float((long - short) / (many - few))


def aligned_row(records: Records) -> Found:
    """Time of a 128-byte row whose pitch is a multiple of 128 bytes: the slope of one SM's fills from L2."""
    rows = records["stage_fill"].pick(part="fill", method="tma", level="l2", active_sms=1, share=1, background="none")
    cycles, _ = straight_line(rows.column("stage_bytes") / ROW_BYTES, rows.column("cycles"), "stage_fill")
    return Found(cycles / records.boost_hz, rows.spread, ("stage_fill",))


def odd_pitches(records: Records) -> Numbers:
    """A k-step of 64x256 tiles less its aligned rows of A, over its rows of B."""
    row = aligned_row(records)
    ragged = records["triton_ragged"].pick(bench="ragged_pitch", n=512, **WIDE)
    found = {}
    for name, pitch in PITCHES.items():
        rows = ragged.pick(pitch_b=pitch)
        seconds = (step_s(rows) - WIDE["tile_m"] * row.value) / WIDE["tile_n"]
        found[name] = Found(seconds, largest(rows.spread, row.spread), ("stage_fill", "triton_ragged"))
    return found


def pitch_16(records: Records) -> Found:
    """A k-step of products whose rows of both operands have such a pitch, over its rows; the median over products."""
    odd = records["triton_unaligned"].pick(kernel="tma")
    both = (odd.column("k") % 16 == 8) & (odd.column("n") % 16 == 8)
    odd = odd.where(both, "k and n of 8 mod 16")
    steps = odd.column("k") / odd.column("tile_k") * np.ceil(odd.column("tiles") / records.sm_count)
    seconds = (
        odd.column("time_s") / steps / (odd.column("tile_m") + odd.column("tile_n")) / (odd.column("tile_k") / TILE_K)
    )
    return Found(float(np.median(seconds)), odd.middle_spread, ("triton_unaligned",))


def outside(records: Records) -> Numbers:
    """Rows wholly outside the matrix: all SMs at once, and the rate that fewer of them share.

    Tiles of 256 columns stick out of a B of n columns by -n mod 256 rows of their box.
    """
    row = aligned_row(records)
    sizes = records["triton_outside"].pick(bench="outside_b", **WIDE)
    tile_m, tile_n = WIDE["tile_m"], WIDE["tile_n"]
    shared, spreads = [], [row.spread]
    alone = None
    for m, n in sorted({(int(each["m"]), int(each["n"])) for each in sizes.rows}):
        tiles, rows_outside = m // tile_m, -n % tile_n
        if not rows_outside or tiles < SHARED_FROM * records.sm_count:
            continue
        rows = sizes.pick(m=m, n=n)
        seconds = (step_s(rows) - (tile_m + tile_n - rows_outside) * row.value) / rows_outside
        if tiles >= records.sm_count:
            alone = Found(seconds, largest(rows.spread, row.spread), ("stage_fill", "triton_outside"))
        else:
            shared.append(tiles / seconds)
            spreads.append(rows.spread)
    if alone is None or not shared:
        raise TableError("no tiles outside on all SMs, or none on fewer", file="triton_outside.csv")
    rate = Found(float(np.mean(shared)), largest(*spreads), ("stage_fill", "triton_outside"))
    return {"fill.row_outside_s": alone, "fill.rows_outside_per_s": rate}


def unaligned_share(records: Records) -> Found:
    """Share of the cp.async rate that rows of B at an odd pitch keep, from k-steps bound by a ring of three stages.

    A period is half a fill, and B is four fifths of its bytes: with p and q the periods at aligned and odd pitch,
    share = (2 p * 4/5) / (2 p * 4/5 + 2 (q - p)).
    """
    rows = records["triton_ragged"].pick(bench="ragged_n", kernel="ptr", stages=3, **WIDE)
    aligned = float(np.mean([step_s(rows.pick(n=n)) for n in (320, 384, 448, 512)]))
    odd = np.array([step_s(rows.pick(n=n)) for n in (272, 288, 304, 352, 416, 480, 496)])
    share = float(np.mean(0.8 * aligned / (0.8 * aligned + odd - aligned)))
    note = "64x256 tiles, 3 stages, rows of B at a pitch of 32 or 64 bytes"
    return Found(share, rows.spread, ("triton_ragged",), note=note)


def scalar_loads(records: Records) -> Numbers:
    """Elements per cycle and SM that loops with element-wise loads move, with and without spills."""
    rows = records["triton_unaligned"].pick(kernel="ptr")
    n, k = (rows.column(name) for name in ("n", "k"))
    per_sm = np.maximum(rows.column("most_ctas_per_sm"), 1)
    loaded = (k % 16 != 0) * rows.column("tile_m") + (n % 16 != 0) * rows.column("tile_n")
    elements = loaded * k * np.ceil(rows.column("tiles") / records.sm_count / per_sm) * per_sm
    rate = elements / (rows.column("time_s") * rows.column("clock_hz"))
    spilled, some = rows.column("spills") > 0, elements > 0
    found = {}
    for name, mask in (("scalar", some & ~spilled), ("spilled", some & spilled)):
        used = rows.where(mask, f"element-wise loads, {name}")
        note = "median over tiles and warps; they spread by half"
        found[f"fill.{name}_elements_per_cycle"] = Found(
            float(np.median(rate[mask])), used.middle_spread, ("triton_unaligned",), note=note
        )
    return found


DERIVATIONS = (
    one("fill.row_128_s", ("stage_fill",), aligned_row),
    Derivation(tuple(PITCHES), ("stage_fill", "triton_ragged"), odd_pitches),
    one("fill.row_16_s", ("triton_unaligned",), pitch_16),
    Derivation(("fill.row_outside_s", "fill.rows_outside_per_s"), ("stage_fill", "triton_outside"), outside),
    one("fill.cp_async_unaligned_share", ("triton_ragged",), unaligned_share),
    Derivation(
        ("fill.scalar_elements_per_cycle", "fill.spilled_elements_per_cycle"), ("triton_unaligned",), scalar_loads
    ),
)
