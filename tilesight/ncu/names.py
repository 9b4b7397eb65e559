"""What Nsight Compute calls things: one table of counters with the names they have had, one of units.

Names differ by architecture and version: Ampere, Hopper and B200 count ``dram__bytes_read``, consumer Blackwell (sm_120)
``dram__bytes_op_read``; a chip whose L2 is one partition has no ``ltcfabric``. Units differ by version and by
``--print-units``: prefixes are decimal, a sector is 32 bytes.

Sources: ``ncu --query-metrics --chips ga100,gb100,gb202,gh100`` and the raw pages of version 2025.3; the Nsight Compute
documentation, Kernel Profiling Guide (metric names) and CLI (pages, units).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from tilesight.records.schema import COUNTED

Dimension = Literal["s", "B", "Hz", "share", "count"]

SECTOR_BYTES = 32
SECTOR = "sector"
"""The unit of sectors without a prefix, of which there are no parts."""
COUNT_MOST = 1e18
"""Seconds, bytes, hertz and counts above this are none of a launch."""
GRID_MOST, BLOCK_MOST = 2**31 - 1, 1024
"""CTAs of a grid and threads of a CTA."""
_PREFIXES = {"": 1.0, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}


def _prefixed(unit: str, scale: float = 1.0) -> dict[str, float]:
    return {f"{prefix}{unit}": factor * scale for prefix, factor in _PREFIXES.items()}


_SECONDS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0}
UNITS: dict[Dimension, dict[str, float]] = {
    # nsecond … second until 2023, ns … s since
    "s": _SECONDS
    | {unit.replace("s", "second"): factor for unit, factor in _SECONDS.items() if unit != "ms"}
    | {"msecond": 1e-3},
    "B": {
        **_prefixed("byte"),
        **_prefixed("byte/block"),
        **_prefixed("sector", SECTOR_BYTES),
    },
    "Hz": {
        **_prefixed("hz"),
        "cycle/second": 1.0,
        "cycle/usecond": 1e6,
        "cycle/nsecond": 1e9,
        "cycle/s": 1.0,
        "cycle/us": 1e6,
        "cycle/ns": 1e9,
    },
    "share": {"%": 0.01},
    "count": dict.fromkeys(("", "register/thread", "block", "thread", "cluster"), 1.0),
}
"""Dimension -> unit as printed -> factor to the SI base unit."""


@dataclass(frozen=True)
class Counter:
    """One quantity: what it is measured in, and its names, the first one that a launch has being taken.

    ``least`` and ``most`` bound it, in its base unit; ``whole``: it has no fraction.
    """

    dimension: Dimension
    names: tuple[str, ...]
    least: float = 0.0
    most: float = COUNT_MOST
    whole: bool = False

    def allowed(self) -> str:
        """Its range in words."""
        number = "a whole number" if self.whole else "a finite number"
        return (
            f"{number}, {self.least:.0f} or more"
            if self.most == COUNT_MOST
            else (f"{number}, {self.least:.0f} to {self.most:.0f}")
        )


COUNTERS: Mapping[str, Counter] = {
    "time_s": Counter("s", ("gpu__time_duration.sum", "gpu__time_duration.avg", "gpu__time_duration.max")),
    "dram_read_bytes": Counter("B", ("dram__bytes_read.sum", "dram__bytes_op_read.sum", "dram__sectors_read.sum")),
    "dram_write_bytes": Counter("B", ("dram__bytes_write.sum", "dram__bytes_op_write.sum", "dram__sectors_write.sum")),
    # sectors that L1 and TMA send to L2, stores included
    "lookup_bytes": Counter("B", ("lts__t_sectors_srcunit_tex.sum",)),
    "crossing_bytes": Counter("B", ("lts__t_sectors_srcunit_ltcfabric.sum",)),
    "l2_hit_rate": Counter("share", ("lts__t_sector_hit_rate.pct",)),
    "l2_read_bytes": Counter("B", ("lts__t_sectors_op_read.sum",)),
    "l2_write_bytes": Counter("B", ("lts__t_sectors_op_write.sum",)),
    "clock_hz": Counter("Hz", ("sm__cycles_elapsed.avg.per_second", "smsp__cycles_elapsed.avg.per_second")),
    "registers": Counter("count", ("launch__registers_per_thread",), whole=True),
    "smem_dynamic_bytes": Counter("B", ("launch__shared_mem_per_block_dynamic",)),
    "smem_static_bytes": Counter("B", ("launch__shared_mem_per_block_static",)),
    "grid_size": Counter("count", ("launch__grid_size",), 1, GRID_MOST, whole=True),
    "block_size": Counter("count", ("launch__block_size",), 1, BLOCK_MOST, whole=True),
}
"""Our name -> counter. Bytes of sectors are 32 each."""

COLUMN_OF = {"time_us": "time_s"}
"""Columns of the table of counted launches that are not called as above: times in tables are in microseconds."""
GPU_NAME = "device__attribute_display_name"
ABSENT = frozenset(("", "n/a", "no data", "nan", "-nan", "(!) n/a"))
"""What stands where there is no value, in lower case."""


def wanted() -> tuple[str, ...]:
    """Every name by which Nsight Compute may know what is read here."""
    return (*(name for counter in COUNTERS.values() for name in counter.names), GPU_NAME)


def metrics_option() -> str:
    """The value of ``--metrics`` that collects what is compared, on every architecture.

    Examples
    --------
    >>> metrics_option().split(",")[0]
    'gpu__time_duration.sum'
    """
    names = [name for column in COUNTED for name in COUNTERS[COLUMN_OF.get(column, column)].names]
    return ",".join(name for name in names if name.endswith((".sum", ".pct")) and "dram__sectors" not in name)
