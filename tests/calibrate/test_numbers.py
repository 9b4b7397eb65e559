"""Numbers from a few rows, each worked by hand."""

import pytest

from tilesight.calibrate import cache, fill, launch, limits, loops, memory, power
from tilesight.calibrate.derive import DERIVATIONS, derive_numbers
from tilesight.calibrate.fits import FITTED
from tilesight.calibrate.found import Derivation, Found, one
from tilesight.calibrate.records import Records
from tilesight.errors import TableError
from tilesight.hardware.profile import field_names

DEVICE = {
    "what": "limits", "sms": 100, "clock_hz": 2e9, "threads_per_sm": 2048, "ctas_per_sm": 32, "warp_threads": 32,
    "registers_per_sm": 65536, "smem_per_sm_bytes": 233472, "smem_per_cta_bytes": 232448,
    "smem_reserved_per_cta_bytes": 1024, "l2_bytes": 2**26,
}  # fmt: skip


def stream(seconds, method="loads", **more):
    return [
        {"method": method, "ctas_per_sm": 1, **more, "bytes": size, "seconds": time, "spread": spread}
        for size, time, spread in seconds
    ]


def test_limits_of_the_device(record):
    clusters = [
        {"what": "clusters", "cluster_ctas": size, "clusters": count} for size, count in ((2, 50), (6, 9), (16, 0))
    ]
    records = record("device_limits", [DEVICE, *clusters])
    found = limits.limits(records)
    assert found["sm_count"] == Found(100, None, ("device_limits",))
    assert found["sm.smem_bytes"].note == "228 KiB"
    assert (found["l2.capacity_bytes"].value, found["l2.capacity_bytes"].note) == (2**26, "64 MiB")
    assert found["clock.boost_hz"].value == 2e9
    assert {name: each.value for name, each in limits.clusters(records).items()} == {"gpc.max_active_clusters.2": 50}


def test_marginal_rate(record):
    # 2 to 3 GB in 1 ms more, with 1 ms of launch that drops out: 1e12; the other way takes 2 ms more: 5e11
    fast = stream([(1e9, 2e-3, 0.9), (2e9, 3e-3, 0.01), (3e9, 4e-3, 0.02)])
    slow = stream([(2e9, 3e-3, 0.3), (3e9, 5e-3, 0.3)], "bulk")
    single = stream([(9e9, 1e-9, 0.3)], "other")
    records = record("dram_read", fast + slow + single)
    assert memory.marginal_rate(records["dram_read"]) == (pytest.approx(1e12), 0.02)
    with pytest.raises(TableError, match="no two sizes of the same kind"):
        memory.marginal_rate(records["dram_read"].pick(method="other"))


def test_tiles_share(record):
    # the ring moves 1 GB in 2 ms where the best moves it in 1 ms
    ring = stream([(1e9, 2e-3, 0.01), (2e9, 4e-3, 0.03)], "bulk", chunk_bytes=16384, stages=6)
    best = stream([(1e9, 1e-3, 0.02), (2e9, 2e-3, 0.01)], chunk_bytes=0, stages=0)
    found = memory.tiles_share(record("dram_read", ring + best))
    assert (found.value, found.spread) == (pytest.approx(0.5), 0.03)


def test_lookup_and_store_rates(record):
    def lookups(sms, rate, spread):
        shape = {"walk": "permuted", "group": 1, "active_sms": sms}
        return {**shape, "bytes_per_s": rate, "spread": spread}

    record("device_limits", [DEVICE])
    records = record("l2_lookup_rate", [lookups(100, 9e12, 0.01), lookups(100, 8e12, 0.03), lookups(50, 1e12, 0.9)])
    found = cache.lookup_rate(records)
    assert (found.value, found.spread) == (8.5e12, pytest.approx(0.02))
    # 4 tiles of 32 KiB in 4096 cycles: 32 bytes a cycle, 100 SMs at 2 GHz: 6.4e12; small tiles don't count
    steady = {"part": "steady", "method": "stores", "active_sms": 100, "tiles": 4, "spread": 0.3}
    rows = [
        {**steady, "tile_bytes": 32768, "complete_cycles": 4096},
        {**steady, "tile_bytes": 8192, "complete_cycles": 1},
    ]
    stored = cache.store_rate(record("epilogue_store", rows))
    assert (stored.value, stored.spread) == (pytest.approx(6.4e12), None)  # between SMs, not repeats


def test_dirty_share(record):
    # L2 of 64 MiB: sizes of 8.4 to 42.9 MB count. 16 MB read 2 us slower where 1e12 B/s are written: 2e6 / 16e6
    record("device_limits", [DEVICE])
    record("dram_write", stream([(1e9, 1e-3, 0.01), (2e9, 2e-3, 0.01)]))
    rows = [
        {"kernel": "read", "state": state, "bytes": size, "seconds": seconds, "spread": 0.04}
        for state, size, seconds in (
            ("clean", 16e6, 8e-6),
            ("dirty", 16e6, 10e-6),
            ("clean", 1e6, 1),
            ("dirty", 1e6, 9),
        )
    ]
    found = cache.dirty_share(record("dirty_lines", rows))
    assert (found.value, found.spread) == (pytest.approx(0.125), 0.04)


def test_merged_requests(record):
    record("device_limits", [DEVICE])
    rows = [
        {
            "method": "cp_async",
            "walk": "private",
            "ctas_per_sm": 1,
            "active_sms": 100,
            "group": group,
            "asked_bytes": 32000,
            "lts__t_sectors_srcunit_tex.sum": 1000 * share,
        }
        for group, share in ((1, 1.0), (2, 0.5), (4, 0.3), (8, 0.29), (16, 0.1))
    ]
    found = cache.merged_requests(record("l2_lookup_share", rows))
    assert (found.value, found.spread) == (4.0, None)
    assert found.note == "4 neighbours look up 0.30 of what they ask, 8 look up 0.29"


def test_pitches(record):
    # one SM: 100 more rows take 200 cycles more: 2 cycles at 2 GHz
    record("device_limits", [DEVICE])
    shape = {"part": "fill", "method": "tma", "level": "l2", "active_sms": 1, "share": 1, "background": "none"}
    rows = [{**shape, "stage_bytes": 128 * n, "cycles": 500 + 2 * n, "spread": 0.01} for n in (100, 200, 300)]
    records = record("stage_fill", rows)
    assert fill.aligned_row(records).value == pytest.approx(1e-9)
    # a k-step of 64x256 takes 1 us: less 64 ns of A, over 256 rows of B
    ragged = [
        {"bench": "ragged_pitch", "tile_m": 64, "tile_n": 256, "n": 512, "pitch_b": pitch, "k": k, "time_s": 5e-6 + k / 64e6,
         "spread": 0.02}
        for pitch in (528, 544) for k in (640, 1280)
    ]  # fmt: skip
    found = fill.odd_pitches(record("triton_ragged", ragged))
    assert found["fill.row_32_s"].value == pytest.approx((1e-6 - 64e-9) / 256)
    assert found["fill.row_32_s"].spread == 0.02


def test_rows_outside(record):
    # n = 320 sticks out by 192 of 256 rows; a k-step takes 128 ns inside and 192 ns outside on 50 SMs, so 1 ns a row
    record("device_limits", [DEVICE])
    shape = {"part": "fill", "method": "tma", "level": "l2", "active_sms": 1, "share": 1, "background": "none"}
    record("stage_fill", [{**shape, "stage_bytes": 128 * n, "cycles": 2 * n, "spread": 0.0} for n in (100, 200)])
    rows = [
        {"bench": "outside_b", "tile_m": 64, "tile_n": 256, "m": 64 * tiles, "n": 320, "k": k, "spread": 0.01,
         "time_s": k / 64 * (128e-9 + 192 * row)}
        for tiles, row in ((10, 9e-9), (50, 1e-9), (100, 4e-9)) for k in (640, 1280)
    ]  # fmt: skip
    found = fill.outside(record("triton_outside", rows))
    assert found["fill.row_outside_s"].value == pytest.approx(4e-9)
    assert found["fill.rows_outside_per_s"].value == pytest.approx(50 / 1e-9)


def test_specialized_loop(record):
    # 128x256: 1024 cycles of instructions a k-step; 1030 measured. The store takes 200 cycles and 64 bytes a cycle
    record("power_clock", [{"row": "summary", "sms": 1, "data": "normal", "duty": 1, "clock_hz": 1.8e9}])
    rows = [
        {"part": "slope", "cluster": 1, "mode": "full", "ctas": 1, "epilogue": 1, "tile_m": tile_m, "tile_n": tile_n,
         "k_steps": steps, "last_mma_cycles": step * steps, "spread": 0.01,
         "store_done_cycles": step * steps + 200 + tile_m * tile_n * 2 / 64}
        for tile_m, tile_n, step in ((128, 256, 1030), (64, 64, 600)) for steps in (1, 13, 29)
    ]  # fmt: skip
    found = loops.specialized_loop(record("ws_gemm", rows))
    assert found["loop.step_specialized_cycles"].value == pytest.approx(6)
    assert found["epilogue.specialized_fixed_s"].value == pytest.approx(200 / 1.8e9)
    assert found["epilogue.specialized_bytes_per_s"].value == pytest.approx(64 * 1.8e9)


def test_register_loop(record, hw):
    # the profile's tensor cores do 4096 flop a cycle
    rows = [
        {"order": "free", "sms": 100, "tile_m": 64, "tile_n": 64, "ctas_per_sm": ctas, "mma_flop_per_cycle": flop,
         "cycles_per_k16": cycles, "spread": 0.02}
        for ctas, flop, cycles in ((1, 1000, 120), (1, 1100, 110), (2, 2048, 90))
    ]  # fmt: skip
    found = loops.register_loop(record("mma_sync_loop", rows, hw))
    assert found["loop.mma_sync_rate_share"].value == pytest.approx(0.5)
    assert found["loop.chain_registers_k16_cycles"].value == 110


def test_launches(record):
    product = {"extra_kernels": 0, "m": 64, "n": 64, "k": 64, "spread": 0.01}
    record("device_limits", [DEVICE])
    record("vendor_gemm", [{**product, "warm_s": 5e-6, "main_s": 4e-6, "cold_s": 9e-6}])
    record("launch_overhead", [{"part": "nodes", "kernel": "empty", "nodes": 200, "seconds": 1.5e-6, "spread": 0.02}])
    record("dirty_lines", [{"kernel": "empty", "state": "clean", "seconds": 3e-6, "spread": 0.03}])
    shape = {"part": "fill", "method": "tma", "active_sms": 25, "share": 1, "stage_bytes": 8192, "background": "none"}
    rows = [
        {**shape, "level": level, "cycles": cycles, "spread": 0.01} for level, cycles in (("l2", 600), ("dram", 1600))
    ]
    records = record("stage_fill", rows)
    assert launch.graph_gap(records).value == pytest.approx(1e-6)
    # between events 3 us; a node costs 1.5 us, of which 1 us is the gap: the events are 2.5 us
    assert launch.event(records).value == pytest.approx(2.5e-6)
    # 4 us colder; less 1.5 us that events add to a node, less 1000 cycles at 2 GHz
    found = launch.cold_extra(records)
    # spread: 50 ns of 5 us warm, 90 between events, 30 of a node, 11 of 2200 cycles; 181 ns of 2 us
    assert (found.value, found.spread) == (pytest.approx(2e-6), pytest.approx(0.0905))
    assert launch.graph_gap(records).spread == pytest.approx(0.05)  # 50 ns of 1 us
    assert launch.event(records).spread == pytest.approx((90 + 30 + 50) / 2500)
    bare = record("vendor_gemm", [{"extra_kernels": 0, "warm_s": 5e-6, "main_s": 4e-6}])
    assert launch.graph_gap(bare).spread is None


def test_reduction(record):
    # 1 us and 1 ns a kB: 1e12; sums beyond 0.64 of 64 MiB don't count
    record("device_limits", [DEVICE])
    rows = [
        {"partial_bytes": size * 0.75, "out_bytes": size * 0.25, "seconds_second": seconds, "spread": 0.01}
        for size, seconds in ((1e6, 2e-6), (2e6, 3e-6), (4e6, 5e-6), (43e6, 1.0))
    ]
    assert launch.reduction(record("launch_reduction", rows)).value == pytest.approx(1e12)


def test_tensor_rates(record):
    shape = {"row": "launch", "data": "normal", "cluster": 2, "tile_m": 128, "tile_n": 256, "m": 1, "n": 2, "k": 3}
    rows = [
        {**shape, "duration_s": duration, "time_s": time, "rate_flop_per_s": rate}
        for duration, time, rate in ((0.03, 0.01, 8e14), (0.03, 0.015, 9e14), (1, 0.6, 6e14), (0.6, 0.55, 1e14))
    ]
    found = power.tensor_rates(record("power_gemm", rows))
    assert {name.split("_")[1]: each.value for name, each in found.items()} == {"burst": 8.5e14, "sustained": 6e14}
    assert all(each.spread is None for each in found.values())


def test_idle_power(record):
    rows = [{"row": "summary", "idle_power_w": watts} for watts in (100, 101, 102, 103, 104, 900)]
    found = power.idle_power(record("power_clock", rows))
    # p10 = 100.4, p90 = 103.6, median 102
    assert (found.value, found.spread) == (102, pytest.approx(3.2 / 102))


def test_every_number_is_one_of_the_schema():
    known = set(field_names())
    for name in [*FITTED, *(name for derivation in DERIVATIONS for name in derivation.numbers)]:
        assert name in known or name.startswith(("gpc.max_active_clusters.", "tensor.", "alu.", "dsmem.")), name


def test_what_cannot_be_derived_says_which_record_it_needs(tmp_path, hw):
    derived = derive_numbers(Records(tmp_path, hw))
    assert derived.found == {}
    assert derived.missing["dram.bandwidth_read_bytes_per_s"] == "needs record dram_read"
    assert derived.missing["fill.row_16_s"] == (
        "needs record triton_unaligned (validation/triton_loops.py, with PyTorch, Triton and pynvml)"
    )
    assert derived.missing["l2.associativity"].startswith("needs record warm_residency (validation/warm_residency.py")


def test_a_record_that_lacks_a_row_or_a_cell(record):
    records = record("dram_copy", [{"reads_per_write": 2, "bytes": 1, "seconds": 1}])
    assert derive_numbers(records).missing["dram.bandwidth_sustained_bytes_per_s"] == (
        "dram_copy.csv: no row with reads_per_write=1"
    )
    records = record("dram_write", stream([(1e9, 1e-3, ""), (2e9, 1e-3, "")]))
    assert "division by zero" in derive_numbers(records).missing["dram.bandwidth_write_bytes_per_s"]
    records = record("power_clock", [{"row": "summary", "idle_power_w": ""}] * 5)
    assert "nan is no number" in derive_numbers(records).missing["power.idle_w"]
    shape = {"part": "fill", "method": "tma", "level": "l2", "active_sms": 1, "share": 1, "background": "none"}
    records = record("stage_fill", [{**shape, "stage_bytes": 128, "cycles": "", "spread": 0.1}] * 3)
    assert derive_numbers(records).missing["fill.row_128_s"]
    records = record("triton_drift_tiles", [{"part": "rank"}])
    assert "no column" in derive_numbers(records).missing["drift.tensor_spread"]


def test_the_first_derivation_that_can_does(tmp_path):
    def fail(_):
        raise TableError("no")

    def give(value):
        return lambda _: Found(value, None, ())

    derivations = [
        one("a", (), fail),
        one("a", (), give(1)),
        one("a", (), give(2)),
        Derivation(("b",), (), lambda _: {}),
    ]
    derived = derive_numbers(Records(tmp_path), derivations)
    assert {name: found.value for name, found in derived.found.items()} == {"a": 1}
    assert derived.missing == {"b": "its records hold no such point"}


def test_a_number_is_finite_and_has_four_digits():
    with pytest.raises(TableError, match="nan is no number; a cell it is read from is empty"):
        Found(float("nan"), None, ("a",))
    with pytest.raises(TableError, match="inf is no number"):
        Found(1.0, float("inf"), ("a",))
    assert Found(1.23456e9, None, ()).rounded.value == 1.235e9
    assert Found(123456, None, ()).rounded.value == 123456
    assert [Found(1.0, spread, ()).kept for spread in (None, 0.05, 0.0501)] == [True, True, False]
