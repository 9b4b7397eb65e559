"""Drift: how far the paces of CTAs lie apart, from tiles of our own products whose starts and ends were recorded.

Record ``triton_drift_tiles``: for each rank (the r-th tile of a slot) spreads of start times and of tile times, over the
chip and inside groups of SMs. Products with tiles of 256 columns go by the tensor cores, those of 128 x 128 with one CTA
an SM wait for their loop, those of 128 x 128 with several compete for their SM, and L2 binds those with 64 rows.
"""

import numpy as np
from numpy.typing import NDArray

from tilesight.calibrate.found import Derivation, Found, Numbers
from tilesight.calibrate.records import Column, Record, Records
from tilesight.errors import TableError

RECORD = "triton_drift_tiles"
LONG_K = 6208
"""k from which the start of a tile is short beside the tile."""
FIRST_RANK = 2


def _middle(values: Column, note: str) -> Found:
    """The median over points, and how far they are apart as a note: points differ, so that it is no spread of repeats."""
    known = values[np.isfinite(values)]
    if not len(known):
        raise TableError("no point of that kind", file=f"{RECORD}.csv")
    low, high = np.quantile(known, [0.1, 0.9])
    return Found(float(np.median(known)), None, (RECORD,), note=f"{note}; 80 % of points from {low:.2g} to {high:.2g}")


def spreads(records: Records) -> Numbers:
    """Spreads of the pace by what sets it; see ``cost/drift.py``."""
    rows = records[RECORD].pick(part="rank")
    k, rank = rows.column("k"), rows.column("rank")
    tile_m, tile_n = rows.column("tile_m"), rows.column("tile_n")
    alone = np.array([row["kernel"] == "tma" for row in rows.rows])  # persistent, one CTA an SM
    many = np.array([row["waves"] == "many" for row in rows.rows])
    square = (tile_m == 128) & (tile_n == 128)

    def those(mask: NDArray[np.bool_], what: str) -> Record:
        return rows.where(mask, what)

    wide = those(many & (tile_n == 256) & (k >= LONG_K) & (rank >= FIRST_RANK), "tiles of 256 columns")
    waiting = those(square & alone & (k >= LONG_K), "128 x 128, one CTA an SM")
    bound = those(many & (tile_m == 64) & (k >= LONG_K), "tiles of 64 rows")
    crowded = those(many & square & ~alone, "128 x 128, several CTAs an SM")
    short = those(many & (tile_n == 256) & (k < LONG_K) & (rank > 0), "tiles of 256 columns, short k")
    start = wide.column("start_sd_s") / wide.column("tile_time_s") / wide.column("rank")
    unfair = (crowded.column("younger_ratio") - 1.0) / 2.0
    return {
        "drift.tensor_spread": _middle(start, "starts of the r-th tile / r tiles"),
        "drift.waiting_spread": _middle(waiting.column("tile_time_rel_sd"), "times of tiles of one rank"),
        "drift.bound_spread": _middle(bound.column("tile_time_rel_sd"), "times of tiles of one rank"),
        "drift.bound_gain": _middle(1.0 - bound.column("small_cpc_ratio"), "how much faster SMs of small CPCs are"),
        "drift.crowded_spread": _middle(unfair, "half of what the older CTA of an SM is faster"),
        "drift.start_jitter_s": _middle(short.column("start_sd_within_four_s"), "starts among four neighbours"),
    }


def onset(records: Records) -> Numbers:
    """Share of the lookup rate that products reach where L2 binds them."""
    rows = records["triton_drift"]
    many = np.array([row["waves"] == "many" for row in rows.rows])
    rows = rows.where(many & (rows.column("tile_m") == 64) & (rows.column("k") >= LONG_K), "tiles of 64 rows")
    lookups = rows.column("lts__t_sectors_srcunit_tex.sum") * 32 / (rows.column("gpu__time_duration.sum") * 1e-9)
    rate = np.median(
        records["l2_lookup_rate"].pick(walk="permuted", group=1, active_sms=records.sm_count).column("bytes_per_s")
    )
    share = float(min(np.median(lookups / rate), 1.0))
    return {"drift.bound_onset": Found(share, None, ("triton_drift", "l2_lookup_rate"), note="lookups of 64-row tiles")}


DERIVATIONS = (
    Derivation(
        tuple(
            f"drift.{name}"
            for name in (
                "tensor_spread",
                "waiting_spread",
                "bound_spread",
                "bound_gain",
                "crowded_spread",
                "start_jitter_s",
            )
        ),
        (RECORD,),
        spreads,
    ),
    Derivation(("drift.bound_onset",), ("triton_drift", "l2_lookup_rate"), onset),
)
