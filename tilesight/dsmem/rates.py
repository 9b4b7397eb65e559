"""The numbers of one GPU that the times rest on, read once from its profile, with the route taken where one is absent.

Every number is a field of the profile. Where a profile has no measured shared memory of other CTAs, table II of the
publication stands in (``published.py``); the routes taken are listed in ``assumptions``.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from tilesight.cost.cache import copies_of_line
from tilesight.cost.occupancy import CLUSTER_ARCHITECTURES, cluster_sms
from tilesight.dsmem.published import CLUSTERS, PUBLISHED, Constants
from tilesight.errors import UnsupportedError
from tilesight.hardware.profile import Profile

LANES = 128.0
"""Lanes that an SM issues a cycle, and results of special functions (CUDA programming guide, arithmetic instructions)."""
SPECIAL = 16.0
CLUSTER_CTAS = 8.0
"""CTAs of clusters on one SM where nobody asked: as on the H200."""
SCALAR_LATENCY = 34.0
"""Cycles of a barrier or a shuffle where nobody measured them: table II, local load of the RTX 5090."""


@dataclass(frozen=True)
class Exchange:
    """What CTAs of one cluster size pay to know each other's partials, in cycles and bytes a cycle.

    ``busy_barrier_cycles`` is a cluster barrier behind stores to global memory, as it was published where it was.
    ``measured_cycles`` is a whole exchange of 16 bytes with one CTA on an SM, merged by eight warps, and
    ``service_cycles`` what each further CTA adds; None where nobody measured it.
    """

    busy_barrier_cycles: float
    one_way_cycles: float
    store_bytes_per_cycle: float
    measured_cycles: float | None = None
    service_cycles: float = 0.0


@dataclass(frozen=True)
class Rates:
    """Numbers of one GPU in SI units; rates of one SM unless they say chip."""

    sms: int
    clock_hz: float
    chip_read_s_per_byte: float
    chip_write_s_per_byte: float
    chip_write_in_order_s_per_byte: float
    chip_lookup_s_per_byte: float
    chip_store_s_per_byte: float
    bulk_bytes_per_s: float
    load_bytes_per_s: float
    store_bytes_per_s: float
    bulk_shared: float
    load_shared: float
    latency_l2_s: float
    latency_dram_s: float
    smem_bytes_per_s: float
    lanes_per_s: float
    special_per_s: float
    shuffle_s: float
    barrier_s: float
    start_s: float
    cta_start_s: float
    gap_s: float
    pace_spread: float
    l2_bytes: float
    l2_line_bytes: float
    l2_ways: int
    copies: float
    smem_sm_bytes: float
    smem_cta_bytes: float
    smem_reserved_bytes: float
    registers: int
    registers_most: int
    threads: int
    ctas: int
    cluster_slots: Mapping[int, float]
    cluster_ctas: float
    exchange: Mapping[int, Exchange]
    assumptions: tuple[str, ...] = field(default=())


_KNOWN: dict[tuple[str, ...], Rates] = {}
_KNOWN_MOST = 64


def rates_of(hardware: Profile) -> Rates:
    """Numbers of a profile; those of the last few profiles are kept.

    Raises
    ------
    UnsupportedError
        If the profile lacks a number that has no other route; the error names the field.
    """
    parent = hardware.derived.parent if hardware.derived else ""
    key = (hardware.name, parent, hardware.hash)
    if key not in _KNOWN:
        found = _read(hardware)
        if len(_KNOWN) >= _KNOWN_MOST:
            _KNOWN.clear()
        _KNOWN[key] = found
    return _KNOWN[key]


def _read(hardware: Profile) -> Rates:
    said: list[str] = []

    def other(name: str, value: float, why: str) -> float:
        known = hardware.get(name)
        if known is None:
            said.append(f"{hardware.name} has no {name}: {why}")
        return value if known is None else known

    need, hz = hardware.require, hardware.clock.boost_hz
    read, copy = need("dram.bandwidth_read_bytes_per_s"), need("dram.bandwidth_sustained_bytes_per_s")
    in_order = max(hardware.get("dram.bandwidth_in_order_bytes_per_s") or 0.0, copy)
    cycle, guide = 1 / hz, "as the CUDA programming guide states it"
    slots = _cluster_slots(hardware)
    return Rates(
        sms=hardware.sm_count,
        clock_hz=hz,
        chip_read_s_per_byte=1 / read,
        # a byte written beside reads takes what it takes in a copy, as for kernels around a product (cost/ends.py)
        chip_write_s_per_byte=max(2 / copy - 1 / read, 1e-15),
        chip_write_in_order_s_per_byte=max(2 / in_order - 1 / read, 1e-15),
        chip_lookup_s_per_byte=1 / need("l2.lookup_bytes_per_s"),
        chip_store_s_per_byte=1 / need("l2.store_bytes_per_s"),
        bulk_bytes_per_s=need(f"fill.{'tma' if slots else 'cp_async'}_bytes_per_s"),
        load_bytes_per_s=need("fill.cp_async_bytes_per_s"),
        store_bytes_per_s=need(f"epilogue.{'specialized' if slots else 'in_order'}_bytes_per_s"),
        bulk_shared=need("merging.requests_async"),
        load_shared=other("merging.requests_plain", 1.0, "requests for a row that all share do not merge"),
        latency_l2_s=need("fill.latency_l2_s"),
        latency_dram_s=need("fill.latency_l2_s") + need("fill.latency_dram_extra_s"),
        smem_bytes_per_s=need("sm.smem_bandwidth_bytes_per_cycle") * hz,
        lanes_per_s=other("alu.fp32_fma.ops_per_cycle_per_sm", LANES, f"{LANES:.0f}, {guide}") * hz,
        special_per_s=other("alu.exp2.ops_per_cycle_per_sm", SPECIAL, f"{SPECIAL:.0f}, {guide}") * hz,
        shuffle_s=other("alu.shuffle.latency_cycles", SCALAR_LATENCY, f"{SCALAR_LATENCY:.0f}, a local load") * cycle,
        barrier_s=other("sync.barrier_cycles", SCALAR_LATENCY, f"{SCALAR_LATENCY:.0f}, a local load") * cycle,
        start_s=need("launch.kernel_start_s"),
        cta_start_s=need("launch.cta_start_cycles") * cycle,
        gap_s=need("launch.graph_dependent_s"),
        pace_spread=other("drift.bound_spread", 0.0, "rows keep step for the whole launch"),
        l2_bytes=float(hardware.l2.capacity_bytes),
        l2_line_bytes=float(hardware.l2.line_bytes),
        l2_ways=int(need("l2.associativity")),
        copies=copies_of_line(hardware)[0],
        smem_sm_bytes=float(hardware.sm.smem_bytes),
        smem_cta_bytes=float(hardware.sm.smem_per_cta_max_bytes),
        smem_reserved_bytes=float(hardware.sm.smem_reserved_per_cta_bytes),
        registers=hardware.sm.registers,
        registers_most=hardware.sm.registers_per_thread_max,
        threads=hardware.sm.threads_max,
        ctas=hardware.sm.ctas_max,
        cluster_slots=slots,
        cluster_ctas=other("gpc.cluster_ctas_per_sm_max", CLUSTER_CTAS, f"{CLUSTER_CTAS:.0f}, as on the H200")
        if slots
        else 0.0,
        exchange={size: _exchange(hardware, size, said) for size in slots},
        assumptions=tuple(dict.fromkeys(said)),
    )


def _cluster_slots(hardware: Profile) -> dict[int, float]:
    """SMs that clusters of each size fill, for the sizes that this GPU can hold."""
    if hardware.architecture not in CLUSTER_ARCHITECTURES:
        return {}
    known = {int(size): count for size, count in (hardware.gpc.max_active_clusters or {}).items()}
    if not known:
        hardware.require("gpc.max_active_clusters.2")
    sizes = [size for size in CLUSTERS if size in known and size <= hardware.sm_count]
    return {size: float(cluster_sms(np.array([float(size)]), hardware.sm_count, hardware)[0]) for size in sizes}


def _exchange(hardware: Profile, size: int, said: list[str]) -> Exchange:
    """Exchange of one cluster size: measured, or table II of that GPU."""
    table = f"dsmem.{size}"
    stated = PUBLISHED.get(hardware.derived.parent if hardware.derived else hardware.name)
    trip = hardware.get(f"{table}.round_trip_cycles")
    if trip is not None:
        store = hardware.require(f"{table}.async_store_bytes_per_cycle")
        measured = hardware.require(f"{table}.barrier_cycles")
        busy = stated.barrier_cycles or measured if stated else measured
        whole, service = (hardware.get(f"{table}.exchange{part}_cycles") for part in ("", "_service"))
        return Exchange(busy, trip / 2, store, whole, service or 0.0)
    if stated is None or stated.barrier_cycles is None:
        name = f"{table}.round_trip_cycles"
        raise UnsupportedError(f"profile {hardware.name!r} has no {name}; measure it or state it", field=name)
    said.append(_stated(hardware.name, stated))
    return Exchange(stated.barrier_cycles, stated.barrier_cycles, stated.remote_store_bytes_per_cycle)


def _stated(name: str, stated: Constants) -> str:
    return (
        f"{name} has no dsmem.*.round_trip_cycles: an exchange takes a cluster barrier, {stated.barrier_cycles:.0f} cycles, "
        f"and remote stores {stated.remote_store_bytes_per_cycle} B a cycle (published, table II)"
    )
