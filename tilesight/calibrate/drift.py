"""Drift: how far the paces of CTAs lie apart, from tiles of our own products whose starts and ends were recorded.

Record ``triton_drift_tiles``: for each rank (the r-th tile of a slot) spreads of start times and of tile times, over the
chip and inside groups of SMs. Products with tiles of 256 columns go by the tensor cores, those of 128 x 128 with one CTA
an SM and few stages wait for their ring, those of 128 x 128 with several compete for their SM, and L2 binds those with
64 rows. Those of few stages are in the record ``triton_drift_stages_tiles``.
"""

import numpy as np
from numpy.typing import NDArray

from tilesight.calibrate.found import Derivation, Found, Numbers
from tilesight.calibrate.records import Column, Record, Records
from tilesight.errors import TableError

RECORD, STAGES = "triton_drift_tiles", "triton_drift_stages_tiles"
LONG_K = 6208
"""k from which the start of a tile is short beside the tile."""
FIRST_RANK = 2


def _middle(values: Column, note: str, record: str = RECORD) -> Found:
    """The median over points, and how far they are apart as a note: points differ, so that it is no spread of repeats."""
    known = values[np.isfinite(values)]
    if not len(known):
        raise TableError("no point of that kind", file=f"{record}.csv")
    low, high = np.quantile(known, [0.1, 0.9])
    return Found(float(np.median(known)), None, (record,), note=f"{note}; 80 % of points from {low:.2g} to {high:.2g}")


def spreads(records: Records) -> Numbers:
    """Spreads of the pace by what sets it; see ``cost/drift.py``."""
    rows = records[RECORD].pick(part="rank")
    k, rank = rows.column("k"), rows.column("rank")
    tile_m, tile_n = rows.column("tile_m"), rows.column("tile_n")
    many = np.array([row["waves"] == "many" for row in rows.rows])
    square = (tile_m == 128) & (tile_n == 128)

    def those(mask: NDArray[np.bool_], what: str) -> Record:
        return rows.where(mask, what)

    wide = those(many & (tile_n == 256) & (k >= LONG_K) & (rank >= FIRST_RANK), "tiles of 256 columns")
    bound = those(many & (tile_m == 64) & (k >= LONG_K), "tiles of 64 rows")
    pointer = np.array([row["kernel"] == "ptr" for row in rows.rows])
    crowded = those(many & square & pointer, "128 x 128, several CTAs an SM")
    short = those(many & (tile_n == 256) & (k < LONG_K) & (rank > 0), "tiles of 256 columns, short k")
    start = wide.column("start_sd_s") / wide.column("tile_time_s") / wide.column("rank")
    unfair = (crowded.column("younger_ratio") - 1.0) / 2.0
    return {
        "drift.tensor_spread": _middle(start, "starts of the r-th tile / r tiles"),
        "drift.bound_spread": _middle(bound.column("tile_time_rel_sd"), "times of tiles of one rank"),
        "drift.bound_gain": _middle(1.0 - bound.column("small_cpc_ratio"), "how much faster SMs of small CPCs are"),
        "drift.crowded_spread": _middle(unfair, "half of what the older CTA of an SM is faster"),
        "drift.start_jitter_s": _middle(short.column("start_sd_within_four_s"), "starts among four neighbours"),
    }


def waiting_spread(records: Records) -> Numbers:
    """How far starts spread, of a tile, where the ring binds: two stages, and three of 128 x 128 tiles; any rank.

    Rasters of more than one row: in those of one row each CTA fetches columns of B that none of its neighbours reads.
    """
    rows = records[STAGES].pick(part="rank", kernel="tma")
    stages, rank, width = (rows.column(name) for name in ("stages", "rank", "group_m"))
    ring = (stages == 2) | ((stages == 3) & (rows.column("tile_n") == 128))
    rows = rows.where(ring & (rank >= FIRST_RANK) & (width > 1), "few stages")
    spread = rows.column("start_sd_s") / rows.column("tile_time_s")
    return {"drift.waiting_spread": _middle(spread, "starts of a rank over a tile, two or three stages", STAGES)}


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


def kept_neighbours(records: Records) -> Numbers:
    """Share of neighbours in the raster that are neighbours on the chip once tiles go to whoever is free.

    Counted as consecutive tiles in one GPC, less those that would be there by chance, over the same of the first wave.
    """
    rows = records["triton_drift"]
    gpcs = records.stated("gpc.count")
    pointer = np.array([row["kernel"] == "ptr" for row in rows.rows])
    k, tile_m, tile_n = (rows.column(name) for name in ("k", "tile_m", "tile_n"))
    later, first = rows.column("same_gpc_later"), rows.column("same_gpc_first")
    share = (later - 1.0 / gpcs) / (first - 1.0 / gpcs)
    kinds = {"steady": (tile_n == 256) & (k > LONG_K), "apart": tile_m == 64}
    return {
        f"drift.kept_{name}_share": _middle(share[pointer & kind], "consecutive tiles in one GPC", "triton_drift")
        for name, kind in kinds.items()
    }


DERIVATIONS = (
    Derivation(("drift.kept_steady_share", "drift.kept_apart_share"), ("triton_drift",), kept_neighbours),
    Derivation(
        tuple(
            f"drift.{name}"
            for name in (
                "tensor_spread",
                "bound_spread",
                "bound_gain",
                "crowded_spread",
                "start_jitter_s",
            )
        ),
        (RECORD,),
        spreads,
    ),
    Derivation(("drift.waiting_spread",), (STAGES,), waiting_spread),
    Derivation(("drift.bound_onset",), ("triton_drift", "l2_lookup_rate"), onset),
)
