"""Charts of drift: how far CTAs of a class move apart, and what that does to DRAM reads of a deep product.

A class is what sets the pace of a loop, with one configuration that shows it; all on a product of many waves.
"""

import numpy as np

from tilesight.calibrate.chart import Axis, Chart, Series, series
from tilesight.calibrate.counted import measured, operand_bytes, predicted
from tilesight.calibrate.records import Column, Record, Records, spread_of
from tilesight.errors import UnsupportedError
from tilesight.hardware.profile import Profile

CLASSES = {
    "tensor cores bind": ("tensor", "", {"kernel": "tma", "tile_m": 128, "tile_n": 256}),
    "tensor cores, L2 near": ("dram", "", {"kernel": "tma", "tile_m": 128, "tile_n": 128}),
    "the ring waits": ("issue", "_stages", {"kernel": "tma", "tile_m": 128, "tile_n": 128, "stages": 2}),
    "CTAs share an SM": ("smem", "", {"kernel": "ptr", "tile_m": 128, "tile_n": 128, "warps": 8}),
    "L2 binds": ("l2", "", {"kernel": "ptr", "tile_m": 64, "tile_n": 128}),
}
"""What sets the pace, with the colour of its series, the end of the record's name and the rows that show it."""
WIDTH, DEEP_K = 8, 30016
"""Rows of tiles that a raster walks together and elements of k, where a chart shows one of them."""
RANK = Axis("rank", "tiles that an SM's slot has done before", "", "log2")
STARTS = Axis("start_spread", "standard deviation of starts, tiles", "", "log10")
DEPTH = Axis("k", "k, elements", "", "log2")
READS = Axis("reads_over_operands", "DRAM reads / operand bytes", "", "log2")


def _spread_of_a_rank(hardware: Profile, words: str, ranks: Column) -> Column:
    """Standard deviation of starts of the r-th tile of a class, in tiles: paces add up, who waits keeps together."""
    if words == "the ring waits":
        return np.full_like(ranks, hardware.require("drift.waiting_spread"))
    tensor, crowded, bound = (hardware.require(f"drift.{name}_spread") for name in ("tensor", "crowded", "bound"))
    paces = {"CTAs share an SM": tensor + crowded, "L2 binds": tensor + crowded + bound}
    return np.asarray(paces.get(words, tensor) * ranks)


def _by(rows: Record, column: str, values: Column) -> tuple[list[float], list[float], list[float | None]]:
    """Medians of values by a column, and their spreads."""
    keys = rows.column(column)
    found = sorted(set(keys.tolist()))
    groups = [values[keys == key] for key in found]
    return found, [float(np.median(group)) for group in groups], [spread_of(group) for group in groups]


def _base(records: Records) -> Profile:
    if records.hardware is None:
        raise UnsupportedError("a profile of the GPU is needed for what the model predicts; give one")
    return records.hardware


def drift_starts(records: Records) -> Chart:
    """Spread of starts over the rank of a tile by what sets the pace, with the law of each."""
    hardware, drawn = _base(records), list[Series]()
    for words, (resource, kind, which) in CLASSES.items():
        rows = records[f"triton_drift{kind}_tiles"].pick(part="rank", waves="many", group_m=WIDTH, k=DEEP_K, **which)
        rows = rows.where(rows.column("rank") > 0, "a later tile")
        ranks = rows.column("rank")
        drawn.append(series(words, resource, ranks, rows.column("start_sd_s") / rows.column("tile_time_s")))
        line = np.array([ranks.min(), ranks.max()])
        drawn.append(series("", resource, line, _spread_of_a_rank(hardware, words, line), measured=False))
    title = f"{_shape(rows, DEEP_K)}, bf16, width {WIDTH}, {records.gpu}"
    return Chart("drift_starts", title, RANK, STARTS, tuple(drawn))


def _shape(rows: Record, k: object) -> str:
    return f"{rows.count('m')} x {rows.count('n')} x {k}"


def _reads(records: Records, name: str, width: int) -> Chart:
    """Counted and predicted reads of products of one width; launches of one product have a spread."""
    hardware, drawn = _base(records), list[Series]()
    for words, (resource, kind, which) in CLASSES.items():
        rows = records[f"triton_drift{kind}"].pick(waves="many", group_m=width, **which)
        share = measured(rows)["dram_read_bytes"] / operand_bytes(rows)
        model = predicted(rows, hardware).column("dram_read_bytes") / operand_bytes(rows)
        drawn.append(series(words, resource, *_by(rows, "k", share)))
        depths, reads, _ = _by(rows, "k", model)
        drawn.append(series("", resource, depths, reads, measured=False))
    title = f"{_shape(rows, 'k')}, bf16, width {width}, cold, {records.gpu}"
    return Chart(name, title, DEPTH, READS, tuple(drawn))


def drift_reads_narrow(records: Records) -> Chart:
    """DRAM reads over operand bytes against k by what sets the pace, beside the model: the raster goes column by column."""
    return _reads(records, "drift_reads_narrow", 1)


def drift_reads_wide(records: Records) -> Chart:
    """The same where eight rows of tiles are walked together."""
    return _reads(records, "drift_reads_wide", WIDTH)
