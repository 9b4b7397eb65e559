"""Numbers inside an SM and along the way to memory: from a few rows worked by hand, and from the records of the H200."""

from pathlib import Path

import pytest

from tilesight.calibrate import chip
from tilesight.calibrate.derive import derive_numbers
from tilesight.calibrate.found import Found
from tilesight.calibrate.records import Records
from tilesight.errors import TableError

RECORDS = Path(__file__).parent.parent.parent / "validation" / "records" / "h200_sxm"
DEVICE = {"what": "limits", "sms": 100, "clock_hz": 2e9, "l2_bytes": 2**26}


def test_the_best_row_and_the_middle_of_rows(record):
    rows = [{"x": value, "spread": spread} for value, spread in ((1, 0.3), (4, 0.01), (3, 0.02), (2, ""))]
    rows = record("some", rows)["some"]
    assert chip.best(rows, "x") == Found(4.0, 0.01, ("some",))
    # median of 1, 2, 3, 4 is 2.5, twice that 5; the median spread of those that state one is 0.02
    assert chip.middle(rows, "x", 2.0) == Found(5.0, 0.02, ("some",))
    assert chip.best(rows.pick(x=2), "x").spread is None


def test_instructions(record):
    rows = [
        {"part": "rate", "op": "ffma", "warps": 4, "ops_per_cycle_per_sm": 110.0, "spread": 0.02},
        {"part": "rate", "op": "ffma", "warps": 16, "ops_per_cycle_per_sm": 124.0, "spread": 0.01},
        {"part": "latency", "op": "ffma", "warps": 1, "cycles_per_instruction": 4.0, "spread": 0.0},
    ]
    found = chip.instructions(record("alu_rate", rows))
    assert {name: each.value for name, each in found.items()} == {
        "alu.fp32_fma.ops_per_cycle_per_sm": 124.0,
        "alu.fp32_fma.latency_cycles": 4.0,
    }
    # what the GPU lacks is named with a reason, not guessed
    missing = derive_numbers(record("alu_rate", rows)).missing
    assert missing["alu.exp2.latency_cycles"] == "its records hold no such point"
    assert "alu_rate.csv: no row with part=latency" in derive_numbers(record("alu_rate", rows[:2])).missing.get(
        "alu.fp32_fma.latency_cycles", ""
    )


def test_shared_memory(record):
    record(
        "smem_bandwidth",
        [
            {"part": "load", "bytes_per_cycle": 100.0, "spread": 0.01},
            {"part": "load", "bytes_per_cycle": 128.0, "spread": 0.02},
            {"part": "store", "bytes_per_cycle": 999.0, "spread": 0.0},
        ],
    )
    latency = [{"part": part, "cycles": cycles, "spread": 0.0} for part, cycles in (("shared", 23.0), ("l1", 32.0))]
    found = chip.shared_memory(record("smem_latency", latency))
    assert [each.value for each in found.values()] == [128.0, 23.0, 32.0]
    assert found["sm.smem_bandwidth_bytes_per_cycle"].spread == 0.02
    missing = derive_numbers(record("smem_latency", latency[:1])).missing
    assert missing["sm.l1_latency_cycles"] == "smem_latency.csv: no row with part=l1"


def test_synchronisation(record):
    rows = [
        {"part": part, "after": after, "warps": warps, "cycles": 100 * i + warps, "spread": 0.0}
        for i, (part, after) in enumerate(chip.SYNC.values())
        for warps in (4, 8)
    ]
    found = chip.synchronisation(record("sync_cost", rows))
    assert [each.value for each in found.values()] == [8, 108, 208, 308, 408]  # eight warps
    missing = derive_numbers(record("sync_cost", rows[:-2])).missing
    assert missing["sync.fence_gpu_cycles"] == "sync_cost.csv: no row with part=threadfence, after=store, warps=8"


def test_latencies_of_memory(record):
    record("device_limits", [DEVICE])
    rows = [
        {"part": part, "footprint_bytes": size, "cycles_per_load": cycles, "spread": spread}
        for part, size, cycles, spread in (
            ("cg", 2**19, 90, 0.9),
            ("cg", 2**20, 200, 0.01),
            ("cg", 2**21, 220, 0.03),
            ("cg", 2**23, 300, 0.02),
            ("cg", 2**24, 400, 0.9),
            ("cg", 2**28, 600, 0.04),
            ("ca", 2**28, 9999, 0.9),
        )
    ]
    found = chip.memory_latency(record("l2_latency", rows))
    # median of 200, 220 and 300 cycles at 2 GHz: 110 ns; the largest footprint: 300 ns
    assert found["l2.latency_s"].value == pytest.approx(110e-9)
    assert found["l2.latency_s"].spread == 0.02
    assert (found["dram.latency_s"].value, found["dram.latency_s"].spread) == (pytest.approx(300e-9), 0.04)
    few = record("l2_latency", rows[-1:])
    assert derive_numbers(few).missing["l2.latency_s"] == "l2_latency.csv: no row with part=cg"


def test_partitions(record):
    record("device_limits", [DEVICE])
    rows = [
        {"part": "split", "operation": "load_after_atomic", "near_cycles": 280, "far_cycles": 460, "separation": 7.66},
        {"part": "split", "operation": "load", "near_cycles": 1, "far_cycles": 2, "separation": 3},
        {"part": "bandwidth", "reads": "far", "state": "after_write", "bytes_per_s": 2e12, "spread": 0.01},
        {"part": "bandwidth", "reads": "near", "state": "after_write", "bytes_per_s": 9e12, "spread": 0.01},
    ]
    found = chip.partitions(record("l2_partition", rows))
    assert [each.value for each in found.values()] == [pytest.approx(140e-9), pytest.approx(230e-9), 2e12]
    assert found["l2.latency_far_s"].note == "separation 7.7 standard deviations"
    missing = derive_numbers(record("l2_partition", rows[1:])).missing
    assert missing["l2.latency_near_s"] == "l2_partition.csv: no row with part=split, operation=load_after_atomic"


def merging(method, sharers, points):
    return [
        {"part": "rate", "method": method, "sharers": sharers, "skew_cycles": skew, "skew_begin_cycles": begin,
         "lookup_share_inferred": share, "spread": spread}
        for skew, begin, share, spread in points
    ]  # fmt: skip


def test_plain_requests(record):
    found = chip.plain_requests(record("merge_requests", merging("loads", 4, [(0, 5, 0.49, 0.02), (100, 9, 0.9, 0.5)])))
    # 1 / 0.49 = 2.04 requests share a lookup
    assert (found.value, found.spread) == (2.0, 0.02)
    assert "look up 0.49 of what they ask" in (found.note or "")


def test_window_of_merging(record):
    record("device_limits", [DEVICE])
    points = [
        (0, 0, 0.5, 0.01),
        (400, 300, 0.9, 0.04),
        (100, 100, 0.6, 0.02),
        (200, 200, 0.55, 0.9),
        (800, 700, 1.0, 0.03),
    ]
    found = chip.merging_window(record("merge_requests", merging("cp_async", 2, points)))
    # half of 0.5 to 1.0 is 0.75, between 0.55 at 200 cycles and 0.9 at 300: 200 + 100 * 0.20 / 0.35 = 257.1 cycles of
    # 0.5 ns; read off four rows, of which the one at 200 cycles spreads most
    assert found.value == pytest.approx((200 + 100 * 0.20 / 0.35) * 0.5e-9)
    assert found.spread == 0.9
    assert not found.kept
    assert (found.note or "").startswith("2 SMs look up 0.50 of what they ask without skew, 1.00 with 700 cycles")
    for never in ([(0, 0, 0.9, 0.0), (100, 90, 0.8, 0.0)], points[:1]):
        with pytest.raises(TableError, match="merging does not end with the skew"):
            chip.merging_window(record("merge_requests", merging("cp_async", 2, never)))
    missing = derive_numbers(record("merge_requests", merging("cp_async", 4, points))).missing
    assert missing["merging.window_l2_s"] == ("merge_requests.csv: no row with part=rate, method=cp_async, sharers=2")


def test_the_h200(h200):
    records = Records(RECORDS, h200)
    alu = chip.instructions(records)
    assert len(alu) == 2 * len(chip.INSTRUCTIONS)  # it lacks none of them
    # the programming guide's throughputs for compute capability 9.0, reached within 5 %
    for name, per_cycle in (("fp32_fma", 128), ("exp2", 16), ("int32_mad", 64), ("shuffle", 32), ("fp64_fma", 64)):
        reached = alu[f"alu.{name}.ops_per_cycle_per_sm"].value
        assert 0.9 * per_cycle < reached < 1.001 * per_cycle, name
    near, far, far_rate = (found.value for found in chip.partitions(records).values())
    held, beyond = (found.value for found in chip.memory_latency(records).values())
    assert near < far < beyond
    assert near == pytest.approx(held, rel=0.02)  # a chase through 1 to 8 MiB finds its lines in the near partition
    assert far_rate < 0.3 * h200.require("l2.lookup_bytes_per_s")
    assert chip.plain_requests(records).value == 2.0
    window = chip.merging_window(records)
    assert 100e-9 < window.value < 125e-9  # 110 by the rate, whose repeats are 5.7 % apart, 119 as counted
    for derive in (chip.shared_memory, chip.synchronisation):
        for name, found in derive(records).items():
            assert found.kept, name
            assert found.rounded.value == h200.numbers[name], name
