"""Clusters and links: numbers from a few rows worked by hand, and from the records of the H200."""

from pathlib import Path

import pytest

from tilesight.calibrate import clusters
from tilesight.calibrate.derive import derive_numbers
from tilesight.calibrate.records import Records

RECORDS = Path(__file__).parent.parent.parent / "validation" / "records" / "h200_sxm"


def of_clusters(size):
    """Rows of the four records of one cluster size; one cluster alone is always better than many."""
    barrier = [
        {"cluster": size, "warps": warps, "clusters": count, "method": method, "cycles": cycles, "spread": 0.01}
        for warps, count, method, cycles in (
            (8, 1, "release", 1),
            (8, 50, "release", 370 + size),
            (8, 50, "relaxed", 90 + size),
            (4, 50, "release", 1),
        )
    ]
    latency = [
        {"cluster": size, "method": method, "distance": distance, "clusters": count, "active": active,
         "cycles_per_load": cycles, "spread": 0.02}
        for method, distance, count, active, cycles in (
            ("peer", 1, 50, "all", 180), ("peer", 2, 50, "all", 200), ("peer", 1, 1, "all", 1), ("peer", 1, 50, "one", 1),
            ("local", 0, 50, "all", 1),
        )
    ]  # fmt: skip
    rate = [
        {"cluster": size, "clusters": count, "target": target, "operation": operation, "width_bytes": width,
         "bytes_per_cycle": value, "spread": spread}
        for count, target, operation, width, value, spread in (
            (50, "next", "load", 4, 5.0, 0.9), (50, "next", "load", 16, 14.0, 0.01), (1, "next", "load", 16, 99.0, 0.9),
            (50, "all", "load", 16, 99.0, 0.9), (50, "next", "store", 16, 16.0, 0.02), (50, "next", "async", 8, 17.0, 0.03),
        )
    ]  # fmt: skip
    visible = [
        {"cluster": size, "method": method, "distance": 1, "cycles": cycles, "spread": 0.0}
        for method, cycles in (("async", 740), ("async", 760), ("release", 1400))
    ]
    return barrier, latency, rate, visible


def write(record, *sizes):
    tables = [of_clusters(size) for size in sizes]
    for name, rows in zip(clusters.RECORDS, zip(*tables, strict=True), strict=True):
        records = record(name, [row for part in rows for row in part])
    return records


def test_one_size_by_hand(record):
    found = clusters.shared_by_clusters(write(record, 2))
    assert {name.removeprefix("dsmem.2."): each.value for name, each in found.items()} == {
        "barrier_cycles": 372,  # eight warps, as many clusters as fit
        "barrier_relaxed_cycles": 92,
        "load_latency_cycles": 190,  # median over distances, all CTAs load
        "load_bytes_per_cycle": 14.0,  # the best width; the spread is that of its row
        "store_bytes_per_cycle": 16.0,
        "async_store_bytes_per_cycle": 17.0,
        "round_trip_cycles": 750,
    }
    assert found["dsmem.2.load_bytes_per_cycle"].spread == 0.01


def test_sizes_that_a_gpu_does_not_take_are_left_out(record):
    records = write(record, 2, 8)
    found = clusters.shared_by_clusters(records)
    assert {name.split(".")[1] for name in found} == {"2", "8"}
    assert found["dsmem.8.barrier_cycles"].value == 378
    missing = derive_numbers(records).missing
    assert missing["dsmem.16.barrier_cycles"] == "its records hold no such point"


def test_what_is_missing_says_why(record):
    barrier, *_ = of_clusters(2)
    write(record, 2)
    records = record("cluster_barrier", [row for row in barrier if row["method"] != "relaxed"])
    assert (
        derive_numbers(records).missing["dsmem.2.barrier_cycles"] == "cluster_barrier.csv: no row with method=relaxed"
    )
    for row in barrier:
        del row["warps"]
    records = record("cluster_barrier", barrier)
    assert "cluster_barrier.csv: no column 'warps'" in derive_numbers(records).missing["dsmem.2.barrier_cycles"]
    (records.folder / "dsmem_rate.csv").unlink()
    assert derive_numbers(Records(records.folder)).missing["dsmem.2.barrier_cycles"] == "needs record dsmem_rate"


def control(protocol, cluster, active, seconds, one_shot=0):
    return {"protocol": protocol, "cluster": cluster, "rows": 4096, "active_clusters": active, "one_shot": one_shot,
            "seconds": seconds, "spread": 0.001}  # fmt: skip


def test_exchanges_by_hand(record, h200):
    # alone: 32, 16, 8 and 4 rounds of 0.1 us after a launch of 2 us, and one that is 1 us longer at 8 CTAs an SM
    alone = [control("none", 1, 132 * many, 2e-6 + rounds * 1e-7 + (many == 8) * 1e-6)
             for many, rounds in ((1, 32), (2, 16), (4, 8), (8, 4))]  # fmt: skip
    # P = 2: 63 rounds of 1 us with one CTA an SM, 8 of 1.7 us with eight
    pairs = [control("fast", 2, 66, 2e-6 + 63e-6), control("fast", 2, 528, 3e-6 + 8 * 1.7e-6)]
    other = [control("published", 2, 66, 1.0), control("fast", 2, 66, 1.0, one_shot=1)]
    records = record("dsmem_control", [*alone, *pairs, *other])
    found = clusters.exchanges(Records(records.folder, h200))
    assert {name: each.value for name, each in found.items()} == {
        "dsmem.2.exchange_cycles": pytest.approx(1980),
        "dsmem.2.exchange_service_cycles": pytest.approx(198),  # 0.7 us over 7 CTAs
    }
    assert found["dsmem.2.exchange_service_cycles"].note == "8 CTAs an SM against one"
    records = record("dsmem_control", [alone[0], *pairs])
    assert "no row without a cluster at 1 and 2 CTAs" in derive_numbers(records).missing["dsmem.2.exchange_cycles"]


def test_ctas_of_clusters_on_an_sm_by_hand(record):
    rows = [
        {"cluster": 2, "ctas_per_sm": room, "active_clusters": held} for room, held in ((2, 132), (8, 528), (10, 528))
    ]
    assert clusters.most_on_an_sm(record("dsmem_occupancy", rows)).value == 8  # of 66 with one each
    missing = derive_numbers(record("dsmem_occupancy", rows[:2])).missing["gpc.cluster_ctas_per_sm_max"]
    assert "8 CTAs an SM have room and are there: no limit to be seen" in missing


def test_a_copy_in_order_by_hand(record):
    rows = [
        {"kernel": kernel, "variant": variant, "one_shot": alone, "bytes_per_s": rate, "spread": 0.01}
        for kernel, variant, alone, rate in (
            ("pearson_backward", "staged", 1, 4.0e12),
            ("pearson_backward", "staged", 1, 3.9e12),
            ("pearson_backward", "staged", 0, 4.5e12),  # walks from row to row
            ("pearson_backward", "reread", 1, 4.5e12),
            ("softmax_backward", "staged", 1, 4.5e12),  # reads more than it writes
        )
    ]
    assert clusters.in_order_bandwidth(record("dsmem_alone", rows)).value == 4.0e12


COPIES = [
    {"part": part, "ways": ways, "bytes": size, "seconds": seconds, "bytes_per_s": size / seconds, "spread": spread}
    for part, ways, size, seconds, spread in (
        ("stream", 1, 4096, 3e-6, 0.08),
        ("stream", 1, 4e9, 1e-2, 0.01),
        ("stream", 2, 4e9, 1.0, 0.9),
        ("single", 1, 4e9, 1.0, 0.9),
    )
]
ACCESS = [
    *(
        {"part": "rate", "ways": ways, "ctas": ctas, "operation": operation, "bytes": size, "bytes_per_s": rate,
         "spread": 0.01}
        for ways, ctas, operation, size, rate in (
            (1, 132, "load", 1e6, 1e11), (1, 132, "load", 1e9, 3.7e11), (1, 132, "store", 1e9, 3.6e11),
            (1, 1, "load", 1e9, 9e11), (2, 132, "load", 1e9, 9e11),
        )
    ),
    {"part": "latency", "gpu": 0, "memory_of": 0, "seconds": 3e-7, "spread": 0.0},
    {"part": "latency", "gpu": 0, "memory_of": 1, "seconds": 8e-7, "spread": 0.02},
    {"part": "pingpong", "poll": "local", "seconds": 2.4e-6, "spread": 0.01},
    {"part": "pingpong", "poll": "remote", "seconds": 9e-6, "spread": 0.01},
]  # fmt: skip


def test_links_by_hand(record):
    record("peer_copy", COPIES)
    found = clusters.links(record("peer_access", ACCESS))
    assert {name.removeprefix("link."): each.value for name, each in found.items()} == {
        "copy_bytes_per_s": 4e11,  # 4 GB in 10 ms
        "copy_start_s": 3e-6,
        "load_bytes_per_s": 3.7e11,  # all SMs, one direction
        "store_bytes_per_s": 3.6e11,
        "load_latency_s": 8e-7,
        "flag_round_trip_s": 2.4e-6,
    }
    assert not found["link.copy_start_s"].kept  # 8 % apart


def test_a_machine_of_one_gpu(record):
    missing = derive_numbers(record("peer_copy", COPIES)).missing
    assert missing["link.load_bytes_per_s"] == "needs record peer_access"
    alone = [row for row in ACCESS if row.get("memory_of") != 1]
    missing = derive_numbers(record("peer_access", alone)).missing
    assert missing["link.load_latency_s"] == "peer_access.csv: no row with memory of the other GPU"


def test_the_h200(h200):
    records = Records(RECORDS, h200)
    found = clusters.shared_by_clusters(records) | clusters.exchanges(records) | clusters.links(records)
    assert set(found) == {
        *(f"dsmem.{size}.{name}" for size in clusters.SIZES for name in (*clusters.NUMBERS, *clusters.EXCHANGES)),
        *clusters.LINK,
    }
    for name, each in found.items():
        if each.kept:
            assert each.rounded.value == h200.numbers[name], name
    assert [name for name, each in found.items() if not each.kept] == ["link.copy_start_s"]
    for size in clusters.SIZES:
        of_size = {name: found[f"dsmem.{size}.{name}"].value for name in clusters.NUMBERS}
        # a fence is most of a barrier that releases; a round trip takes two ways of a store, each longer than a load
        assert of_size["barrier_relaxed_cycles"] < 0.3 * of_size["barrier_cycles"]
        assert 2 * of_size["load_latency_cycles"] < of_size["round_trip_cycles"] < 4.5 * of_size["load_latency_cycles"]
        exchange = found[f"dsmem.{size}.exchange_cycles"].value
        assert of_size["round_trip_cycles"] / 2 < exchange < 1.5 * of_size["round_trip_cycles"]
        assert of_size["load_bytes_per_cycle"] == pytest.approx(of_size["store_bytes_per_cycle"], rel=0.2)
