"""Shared by all tests: a GPU of round made-up numbers, the shipped profile, and what needs a real GPU skipped without."""

import math
import shutil
import subprocess
from collections.abc import Mapping

import pytest
from hypothesis import settings

from tilesight.hardware.load import load_profile

settings.register_profile("repeatable", deadline=None, derandomize=True)
settings.load_profile("repeatable")

PROPERTY_PROFILES = ("hw", "h200")
"""Fixtures that property tests run on; ("hw", "h200") once the shipped profile is complete."""

ROUND_NUMBERS = {
    "sm_count": 100,
    "clock.boost_hz": 2.5e9,
    "clock.tensor_hz": 2e9,  # one cycle is 0.5 ns
    "sm.threads_max": 2048,
    "sm.ctas_max": 32,
    "sm.warp_size": 32,
    "sm.registers": 65536,
    "sm.registers_per_thread_max": 255,
    "sm.register_allocation_unit": 256,
    "sm.smem_bytes": 233472,  # 228 KiB
    "sm.smem_per_cta_max_bytes": 232448,  # 227 KiB
    "sm.smem_reserved_per_cta_bytes": 1024,
    "sm.smem_bandwidth_bytes_per_cycle": 128.0,
    "gpc.count": 10,
    "gpc.max_active_clusters.2": 48,  # 100 / 2 would be 50
    "gpc.max_active_clusters.4": 20,
    "gpc.max_active_clusters.8": 10,
    "gpc.max_active_clusters.16": 4,
    "dram.capacity_bytes": 1e11,
    "dram.bandwidth_peak_bytes_per_s": 5e12,
    "dram.bandwidth_sustained_bytes_per_s": 4e12,
    "dram.bandwidth_read_bytes_per_s": 4e12,
    "dram.bandwidth_write_bytes_per_s": 3.2e12,
    "l2.capacity_bytes": 2**26,  # 2**19 lines
    "l2.line_bytes": 128,
    "l2.sector_bytes": 32,
    "l2.partitions": 2,
    "l2.associativity": 16,
    "l2.lookup_bytes_per_s": 1e13,
    "l2.store_bytes_per_s": 5e12,  # 5e10 for each of 100 SMs
    "l2.copies_one_reader": 1.5,
    "l2.dirty_evicted_share": 0.5,
    "fill.latency_l2_s": 150e-9,
    "fill.latency_dram_extra_s": 350e-9,
    "fill.cp_async_bytes_per_s": 1e11,  # 10 ns a kB
    "fill.tma_bytes_per_s": 1.28e11,
    "fill.row_128_s": 0.5e-9,  # 128 B in half a ns: 2.56e11, twice the rate of an SM
    "fill.row_64_s": 1.25e-9,
    "fill.row_32_s": 2e-9,
    "fill.row_16_s": 4e-9,
    "fill.row_outside_s": 6e-9,
    "fill.rows_outside_per_s": 5e9,  # 0.2 ns for each tile that has some
    "fill.cp_async_unaligned_share": 0.5,
    "fill.scalar_elements_per_cycle": 4.0,
    "fill.spilled_elements_per_cycle": 2.0,
    "merging.requests_async": 4.0,
    "merging.near_share": 0.8,
    "merging.far_share": 0.25,
    "merging.alone_loss": 1.0,
    "merging.spread_elements": 1024.0,
    "merging.far_first_share": 0.5,
    "drift.tensor_spread": 2**-8,
    "drift.waiting_spread": 2**-6,
    "drift.bound_spread": 2**-3,
    "drift.bound_gain": 0.25,
    "drift.bound_onset": 1.0,
    "drift.crowded_spread": 2**-8,
    "drift.start_jitter_s": 1e-7,
    "drift.kept_steady_share": 0.75,
    "drift.kept_apart_share": 0.25,
    "tensor.bf16.flop_per_cycle_per_sm": 4096.0,
    "tensor.bf16.rate_peak_flop_per_s": 8.192e14,  # 100 SMs * 4096 * 2 GHz
    "loop.step_in_order_cycles": 10.0,
    "loop.step_specialized_cycles": 60.0,
    "loop.chain_cp_async_cycles": 200.0,
    "loop.chain_tma_persistent_cycles": 300.0,
    "loop.chain_warp_specialized_cycles": 100.0,
    "loop.chain_full_box_cycles": 160.0,
    "loop.chain_registers_k16_cycles": 50.0,
    "loop.mma_sync_rate_share": 0.5,
    "power.static_w": 100.0,
    "power.energy_j_per_flop": 0.5e-12,  # 409.6 W at the peak
    "power.energy_j_per_l2_byte": 10e-12,
    "power.energy_j_per_dram_byte": 50e-12,
    "power.burst_w": 500.0,
    "power.burst_exponent": 0.5,
    "power.sustained_w": 400.0,
    "power.sustained_exponent": 0.5,
    "power.burst_s": 1e-3,
    "power.settle_s": 1.0,
    "launch.graph_gap_s": 1e-6,
    "launch.kernel_start_s": 1e-6,
    "launch.start_in_order_s": 1e-6,
    "launch.start_specialized_s": 0.5e-6,
    "launch.descriptor_s": 2e-6,
    "launch.dependent_kernel_s": 3e-6,
    "launch.reduction_bytes_per_s": 4e12,
    "epilogue.in_order_fixed_s": 0.1e-6,
    "epilogue.in_order_bytes_per_s": 8e10,
    "epilogue.specialized_fixed_s": 0.75e-6,
    "epilogue.specialized_bytes_per_s": 8e10,
    "rounds.cp_async_fixed_s": 0.4e-6,
    "rounds.cp_async_bytes_per_s": 5e10,
    "rounds.tma_persistent_fixed_s": 0.5e-6,
    "rounds.tma_persistent_bytes_per_s": 5e10,
    "rounds.warp_specialized_fixed_s": 0.25e-6,
    "rounds.warp_specialized_bytes_per_s": 1e11,
}


@pytest.fixture(scope="session")
def hw():
    """A complete sm_90 profile of fixed, round, made-up numbers: nothing worked by hand moves with a shipped profile."""
    shipped = load_profile("h200_sxm")
    numbers = dict.fromkeys(shipped.numbers) | ROUND_NUMBERS  # all others are removed
    why = {"kind": "assumed", "note": "a round number for tests"}
    return shipped.with_numbers(numbers, dict.fromkeys(ROUND_NUMBERS, why), where="tests/conftest.py")


@pytest.fixture(scope="session")
def h200():
    """The shipped profile."""
    return load_profile("h200_sxm")


@pytest.fixture(scope="session", params=PROPERTY_PROFILES)
def gpu(request):
    """Each profile that properties must hold on."""
    return request.getfixturevalue(request.param)


@pytest.fixture(scope="session")
def altered():
    """Function that gives a copy of a profile with some numbers set (None removes one), by dotted name."""

    def change(profile, numbers):
        why = {"kind": "assumed", "note": "changed by a test"}
        return profile.with_numbers(numbers, {name: why for name, value in numbers.items() if value is not None})

    return change


@pytest.fixture(scope="session")
def differences():
    """Function that lists where two estimates differ: numbers by more than ``rel``, anything else at all."""

    def flat(prefix, value):
        if isinstance(value, Mapping):
            for key, item in value.items():
                yield from flat(f"{prefix}{key}.", item)
        else:
            yield prefix, value

    def apart(first, second, rel):
        numbers = [isinstance(value, int | float) and not isinstance(value, bool) for value in (first, second)]
        return not math.isclose(first, second, rel_tol=rel) if all(numbers) else first != second

    def compare(one, other, rel=1e-9):
        left, right = (dict(flat("", estimate.to_dict())) for estimate in (one, other))
        missing = object()
        names = left | right
        values = ((name, left.get(name, missing), right.get(name, missing)) for name in names)
        return [found for found in values if apart(*found[1:], rel)]

    return compare


def has_gpu() -> bool:
    if shutil.which("nvidia-smi") is None:
        return False
    return subprocess.run(["nvidia-smi", "-L"], capture_output=True, check=False).returncode == 0


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    marked = [item for item in items if item.get_closest_marker("gpu")]
    if marked and not has_gpu():
        for item in marked:
            item.add_marker(pytest.mark.skip(reason="no NVIDIA GPU here"))
