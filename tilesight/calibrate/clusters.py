"""Clusters and links: barriers and shared memory of other CTAs by cluster size, memory of other GPUs."""

from collections.abc import Iterator

from tilesight.calibrate.chip import best, middle
from tilesight.calibrate.found import Derivation, Found, Numbers
from tilesight.calibrate.records import Record, Records

SIZES = (2, 4, 8, 16)
RECORDS = ("cluster_barrier", "dsmem_latency", "dsmem_rate", "dsmem_visible")
NUMBERS = (
    "barrier_cycles",
    "barrier_relaxed_cycles",
    "load_latency_cycles",
    "load_bytes_per_cycle",
    "store_bytes_per_cycle",
    "async_store_bytes_per_cycle",
    "round_trip_cycles",
)
WARPS = 8
OPERATIONS = {"load": "load_bytes_per_cycle", "store": "store_bytes_per_cycle", "async": "async_store_bytes_per_cycle"}
LINK = (
    "link.copy_bytes_per_s",
    "link.copy_start_s",
    "link.load_bytes_per_s",
    "link.store_bytes_per_s",
    "link.load_latency_s",
    "link.flag_round_trip_s",
)


def all_clusters(rows: Record) -> Record:
    """Points at which as many clusters run as fit."""
    return rows.where(rows.column("clusters") == rows.column("clusters").max(), "as many clusters as fit")


def _of_size(records: Records, size: int) -> Iterator[tuple[str, Found]]:
    barrier = all_clusters(records["cluster_barrier"].pick(cluster=size, warps=WARPS))
    yield "barrier_cycles", middle(barrier.pick(method="release"), "cycles")
    yield "barrier_relaxed_cycles", middle(barrier.pick(method="relaxed"), "cycles")
    peers = records["dsmem_latency"].pick(cluster=size, method="peer", active="all")
    yield "load_latency_cycles", middle(all_clusters(peers), "cycles_per_load", note="all CTAs load")
    moved = all_clusters(records["dsmem_rate"].pick(cluster=size, target="next"))
    for operation, name in OPERATIONS.items():
        note = "next CTA of the cluster, as wide and as many in flight as is best"
        yield name, best(moved.pick(operation=operation), "bytes_per_cycle", note=note)
    visible = records["dsmem_visible"].pick(cluster=size, method="async")
    yield "round_trip_cycles", middle(visible, "cycles", note="st.async and mbarrier, both ways, any distance")


def shared_by_clusters(records: Records) -> Numbers:
    """What each size of cluster costs while clusters fill the GPU; sizes that it does not take are left out."""
    sizes = {int(size) for size in records["dsmem_rate"].column("cluster")}
    return {f"dsmem.{size}.{name}": found for size in SIZES if size in sizes for name, found in _of_size(records, size)}


def links(records: Records) -> Numbers:
    """One direction between two GPUs: copy engine, kernels of all SMs, latency of a load, a flag there and back."""
    copies = records["peer_copy"].pick(part="stream", ways=1)
    sizes, access = copies.column("bytes"), records["peer_access"]
    rates = access.pick(part="rate", ways=1)
    most = rates.where(rates.column("ctas") == rates.column("ctas").max(), "all SMs")
    remote = access.pick(part="latency")
    remote = remote.where(remote.column("gpu") != remote.column("memory_of"), "memory of the other GPU")
    return {
        "link.copy_bytes_per_s": middle(copies.where(sizes == sizes.max(), "the largest copies"), "bytes_per_s"),
        "link.copy_start_s": middle(copies.where(sizes == sizes.min(), "the smallest copies"), "seconds"),
        "link.load_bytes_per_s": best(most.pick(operation="load"), "bytes_per_s"),
        "link.store_bytes_per_s": best(most.pick(operation="store"), "bytes_per_s"),
        "link.load_latency_s": middle(remote, "seconds"),
        "link.flag_round_trip_s": middle(access.pick(part="pingpong", poll="local"), "seconds"),
    }


DERIVATIONS = (
    Derivation(tuple(f"dsmem.{size}.{name}" for size in SIZES for name in NUMBERS), RECORDS, shared_by_clusters),
    Derivation(LINK, ("peer_copy", "peer_access"), links),
)
