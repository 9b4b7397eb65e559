"""Products of our in-order kernels that Nsight Compute counted, as rows of a record, and what the model says of them.

Caches are flushed before each launch and the board rests meanwhile: the model is asked for cold caches and the burst clock.
"""

from typing import Any

import numpy as np

from tilesight.calibrate.cache import SECTOR_BYTES
from tilesight.calibrate.records import Column, Record
from tilesight.cost.clock import busy_seconds
from tilesight.cost.estimate import Estimates
from tilesight.cost.price import Situation
from tilesight.hardware.profile import Profile
from tilesight.kernels.gemm_config import Gemm, GemmConfig, Kernel
from tilesight.search import price_many

TILE_K = 64
"""Of every configuration of a record that has no such column."""
KERNELS: dict[str, Kernel] = {"ptr": "cp_async", "tma": "tma_persistent"}
_SIZES = ("tile_m", "tile_n", "stages", "warps", "group_m")
_SECTORS = {"lookup_bytes": "lts__t_sectors_srcunit_tex.sum", "crossing_bytes": "lts__t_sectors_srcunit_ltcfabric.sum"}


def measured(rows: Record) -> dict[str, Column]:
    """What was counted, in bytes, seconds and shares, by the names that estimates have; shape (rows,) each."""
    sectors = {name: rows.column(metric) * SECTOR_BYTES for name, metric in _SECTORS.items()}
    return {
        "dram_read_bytes": rows.column("dram__bytes_read.sum"),
        "l2_hit_rate": rows.column("lts__t_sector_hit_rate.pct") / 100.0,
        **sectors,
        "seconds": rows.column("gpu__time_duration.sum") * 1e-9,
    }


def launches(rows: Record) -> tuple[list[Gemm], list[GemmConfig]]:
    """Product and configuration of each row."""
    problems, configs = [], []
    for row in rows.rows:
        sizes: dict[str, Any] = {name: int(row[name]) for name in _SIZES}
        sizes |= {
            "tile_k": int(row.get("tile_k", TILE_K)),
            "registers": int(float(row["launch__registers_per_thread"])),
        }
        problems.append(Gemm(int(row["m"]), int(row["n"]), int(row["k"])))
        configs.append(GemmConfig(**sizes, kernel=KERNELS[row["kernel"]]))
    return problems, configs


def predicted(rows: Record, hardware: Profile) -> Estimates:
    """The estimate of each row.

    Raises
    ------
    ConfigError, UnsupportedError
        If a row can't run on that GPU, or its profile lacks a number.
    """
    return price_many(*launches(rows), hardware, Situation("cold", busy_seconds("burst")))


def operand_bytes(rows: Record) -> Column:
    """Bytes of A and B, each once; bf16."""
    m, n, k = (rows.column(name) for name in "mnk")
    return np.asarray(2.0 * (m + n) * k)
