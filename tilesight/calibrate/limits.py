"""What the driver says of the GPU: SMs, clock, limits of one SM, size of L2, clusters that fit at once. All counts."""

from tilesight.calibrate.found import Derivation, Found, Numbers
from tilesight.calibrate.records import Records

RECORD = "device_limits"
KIB, MIB = 2**10, 2**20

COUNTS = {
    "sm_count": "sms",
    "sm.threads_max": "threads_per_sm",
    "sm.ctas_max": "ctas_per_sm",
    "sm.warp_size": "warp_threads",
    "sm.registers": "registers_per_sm",
}
BYTES = {
    "sm.smem_bytes": "smem_per_sm_bytes",
    "sm.smem_per_cta_max_bytes": "smem_per_cta_bytes",
    "sm.smem_reserved_per_cta_bytes": "smem_reserved_per_cta_bytes",
    "l2.capacity_bytes": "l2_bytes",
}
CLUSTERS = {f"gpc.max_active_clusters.{size}": size for size in (2, 4, 8, 16)}


def limits(records: Records) -> Numbers:
    """Attributes of the device, as they are."""
    row = records[RECORD].pick(what="limits")
    found = {name: Found(row.count(column), None, (RECORD,)) for name, column in COUNTS.items()}
    for name, column in BYTES.items():
        size = row.count(column)
        note = f"{size / MIB:g} MiB" if size >= MIB else f"{size / KIB:g} KiB"
        found[name] = Found(size, None, (RECORD,), note=note)
    return found | {"clock.boost_hz": Found(row.only("clock_hz"), None, (RECORD,))}


def clusters(records: Records) -> Numbers:
    """Clusters that the GPU holds at once, by their size; sizes that it does not take are left out."""
    rows = records[RECORD].pick(what="clusters")
    sizes = rows.column("cluster_ctas")
    found = {}
    for name, size in CLUSTERS.items():
        held = rows.where(sizes == size, f"clusters of {size}").count("clusters") if size in sizes else 0
        if held:
            found[name] = Found(held, None, (RECORD,), note="one CTA of 200 KiB an SM")
    return found


DERIVATIONS = (
    Derivation((*COUNTS, *BYTES, "clock.boost_hz"), (RECORD,), limits),
    Derivation(tuple(CLUSTERS), (RECORD,), clusters),
)
