"""Rates of DRAM: reads, writes, a copy, and what one CTA an SM with a ring of tiles reaches of the reads.

    rate = (bytes of the largest size - bytes of the next) / (seconds - seconds)

so that launch and ramp, which both sizes pay, drop out. The best of all ways to read (or write) is the rate of DRAM.
"""

from collections import defaultdict

from tilesight.calibrate.found import Found, one
from tilesight.calibrate.records import Record, Records, largest
from tilesight.errors import TableError

_MEASURED = ("bytes", "seconds", "bytes_per_s", "spread")
MARGINAL = "marginal rate, 1 to 2 GiB"
RING = {"method": "bulk", "ctas_per_sm": 1, "chunk_bytes": 16384, "stages": 6}


def marginal_rate(record: Record) -> tuple[float, float | None]:
    """Best marginal rate between the two largest sizes, in bytes per second, and the larger spread of the two.

    Raises
    ------
    TableError
        If no way of reading has two sizes.
    """
    points: dict[tuple[str, ...], list[tuple[float, float, float | None]]] = defaultdict(list)
    ways = [name for name in record.columns if name not in _MEASURED]
    for row in record.rows:
        spread = float(row["spread"]) if row.get("spread") else None
        points[tuple(row[name] for name in ways)].append((float(row["bytes"]), float(row["seconds"]), spread))
    rates = []
    for sizes in points.values():
        if len(sizes) >= 2:
            (less, short, one), (more, long, other) = sorted(sizes, key=lambda point: point[:2])[-2:]
            rates.append(((more - less) / (long - short), largest(one, other)))
    if not rates:
        raise TableError("no two sizes of the same kind", file=f"{record.name}.csv")
    return max(rates, key=lambda rate: rate[0])


def read_bandwidth(records: Records) -> Found:
    """Best one-sided read."""
    return Found(*marginal_rate(records["dram_read"]), ("dram_read",), note=MARGINAL)


def write_bandwidth(records: Records) -> Found:
    """Best one-sided write."""
    return Found(*marginal_rate(records["dram_write"]), ("dram_write",), note=MARGINAL)


def copy_bandwidth(records: Records) -> Found:
    """Best copy, reads plus writes."""
    rate = marginal_rate(records["dram_copy"].pick(reads_per_write=1))
    return Found(*rate, ("dram_copy",), note="reads + writes of a copy")


def tiles_share(records: Records) -> Found:
    """Share of the read bandwidth that a ring of bulk copies, one CTA an SM, reaches."""
    best, spread = marginal_rate(records["dram_read"])
    ring, ring_spread = marginal_rate(records["dram_read"].pick(**RING))
    return Found(ring / best, largest(spread, ring_spread), ("dram_read",), note="bulk copies of 16 KiB, ring of 6")


DERIVATIONS = (
    one("dram.bandwidth_read_bytes_per_s", ("dram_read",), read_bandwidth),
    one("dram.bandwidth_write_bytes_per_s", ("dram_write",), write_bandwidth),
    one("dram.bandwidth_sustained_bytes_per_s", ("dram_copy",), copy_bandwidth),
    one("dram.tiles_read_share", ("dram_read",), tiles_share),
)
