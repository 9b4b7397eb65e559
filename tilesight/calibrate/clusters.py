"""Clusters and links: barriers and shared memory of other CTAs by cluster size, memory of other GPUs."""

from collections.abc import Iterator

import numpy as np

from tilesight.calibrate.chip import best, middle
from tilesight.calibrate.found import Derivation, Found, Numbers, one
from tilesight.calibrate.records import Record, Records
from tilesight.errors import TableError

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
EXCHANGES = ("exchange_cycles", "exchange_service_cycles")
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


def _launch_s(alone: Record) -> dict[float, float]:
    """By CTAs an SM, what a launch takes besides its rows: time of CTAs without a cluster less their rounds."""
    sms = float(alone.column("active_clusters").min())
    many, took = alone.column("active_clusters") / sms, alone.column("seconds")
    rounds = np.ceil(alone.column("rows") / alone.column("active_clusters"))
    if not {1.0, 2.0} <= set(many):
        raise TableError("no row without a cluster at 1 and 2 CTAs an SM", file=f"{alone.name}.csv")
    first, second = (int(np.argmax(many == number)) for number in (1.0, 2.0))
    row = (took[first] - took[second]) / (rounds[first] - rounds[second])
    return {float(number): float(took[at] - rounds[at] * row) for at, number in enumerate(many)}


def exchanges(records: Records) -> Numbers:
    """One exchange of a cluster whose CTAs do nothing else: with one CTA an SM, and what each further one adds.

    Partials of 16 bytes, blocks of 256 threads; (time - time of the launch) / rounds, the launch from CTAs without a
    cluster.
    """
    rows = records["dsmem_control"].pick(one_shot=0)
    launch = _launch_s(rows.pick(protocol="none"))
    found = {}
    for size in SIZES:
        if size not in rows.column("cluster"):
            continue
        known = rows.pick(protocol="fast", cluster=size)
        active = known.column("active_clusters")
        many = np.round(active / active.min())
        rounds = np.ceil(known.column("rows") / active)
        start = np.array([launch[float(number)] for number in many])
        cycles = (known.column("seconds") - start) / rounds * records.boost_hz
        least, most = int(np.argmin(many)), int(np.argmax(many))
        service = float((cycles[most] - cycles[least]) / (many[most] - many[least]))
        spread, table = known.spread, f"dsmem.{size}"
        found[f"{table}.exchange_cycles"] = Found(float(cycles[least]), spread, ("dsmem_control",))
        note = f"{many[most]:.0f} CTAs an SM against one"
        found[f"{table}.exchange_service_cycles"] = Found(service, spread, ("dsmem_control",), note=note)
    return found


def most_on_an_sm(records: Records) -> Found:
    """CTAs of clusters that an SM holds, whatever room their shared memory, registers and threads leave."""
    rows = records["dsmem_occupancy"].pick(cluster=2)
    held, room = rows.column("active_clusters"), rows.column("ctas_per_sm")
    one_each = held[np.argmin(room)] / room.min()
    most = int(held.max() / one_each)
    if most >= room.max():
        raise TableError(f"{most} CTAs an SM have room and are there: no limit to be seen", file=f"{rows.name}.csv")
    return Found(most, None, ("dsmem_occupancy",), note=f"{room.max():.0f} have room")


def in_order_bandwidth(records: Records) -> Found:
    """Best of kernels that read as much as they write, a CTA a row, so that rows begin in order; reads plus writes."""
    rows = records["dsmem_alone"].pick(kernel="pearson_backward", variant="staged", one_shot=1)
    return best(rows, "bytes_per_s", note="reads + writes; loads to be evicted first, streaming stores")


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
    Derivation(tuple(f"dsmem.{size}.{name}" for size in SIZES for name in EXCHANGES), ("dsmem_control",), exchanges),
    one("gpc.cluster_ctas_per_sm_max", ("dsmem_occupancy",), most_on_an_sm),
    one("dram.bandwidth_in_order_bytes_per_s", ("dsmem_alone",), in_order_bandwidth),
    Derivation(LINK, ("peer_copy", "peer_access"), links),
)
