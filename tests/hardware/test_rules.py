"""Rules between numbers: each broken once, with names, values and what is allowed in the message."""

import re

import pytest

from tilesight.errors import ProfileError
from tilesight.hardware.derive import derive
from tilesight.hardware.load import list_profiles, load_profile
from tilesight.hardware.rules import broken_rules

WHY = {"kind": "assumed", "note": "changed by a test"}
BF16 = "tensor.bf16."

BY_MEANING = [
    ({"clock.tensor_hz": 2e9}, "clock.tensor_hz = 2e9 is above clock.boost_hz = 1.98e9"),
    ({"clock.base_hz": 2e9}, "clock.base_hz = 2e9 is above clock.boost_hz = 1.98e9"),
    ({"sm.threads_max": 16}, "sm.warp_size = 32 is above sm.threads_max = 16"),
    ({"sm.registers": 128}, "sm.registers_per_thread_max = 255 is above sm.registers = 128"),
    ({"sm.register_allocation_unit": 65537}, "sm.register_allocation_unit = 65537 is above sm.registers = 65536"),
    ({"sm.smem_per_cta_max_bytes": 233473}, "sm.smem_per_cta_max_bytes = 233473 is above sm.smem_bytes = 233472"),
    (
        {"sm.smem_per_cta_max_bytes": 232449},
        "sm.smem_per_cta_max_bytes = 232449 and sm.smem_reserved_per_cta_bytes = 1024 are together above "
        "sm.smem_bytes = 233472",
    ),
    ({"l2.sector_bytes": 256}, "l2.sector_bytes = 256 is above l2.line_bytes = 128"),
    ({"l2.sector_bytes": 48}, "l2.sector_bytes = 48 does not divide l2.line_bytes = 128"),
    # 2**16 / 128 = 512 lines
    (
        {"l2.capacity_bytes": 2**16, "l2.associativity": 513},
        "l2.associativity = 513 is above the 512 lines of l2.capacity_bytes = 65536",
    ),
    ({"l2.copies_one_reader": 2.5}, "l2.copies_one_reader = 2.5 is above l2.partitions = 2"),
    ({"power.burst_s": 0.1}, "power.burst_s = 0.1 is not below power.settle_s = 0.08236"),
    ({"power.burst_s": 0.08236}, "power.burst_s = 0.08236 is not below power.settle_s = 0.08236"),
]

STATED = [
    (
        {"dram.bandwidth_sustained_bytes_per_s": 4.9e12},
        "dram.bandwidth_sustained_bytes_per_s = 4.9e12 is above dram.bandwidth_peak_bytes_per_s = 4.8e12",
    ),
    (
        {"dram.bandwidth_read_bytes_per_s": 4.9e12},
        "dram.bandwidth_read_bytes_per_s = 4.9e12 is above dram.bandwidth_peak_bytes_per_s = 4.8e12",
    ),
    (
        {"dram.bandwidth_write_bytes_per_s": 4.9e12},
        "dram.bandwidth_write_bytes_per_s = 4.9e12 is above dram.bandwidth_peak_bytes_per_s = 4.8e12",
    ),
    ({"power.idle_w": 701.0}, "power.idle_w = 701.0 is above power.limit_w = 700.0"),
    # 132 * 4096 * 1.98 GHz = 1.0705e15
    (
        {BF16 + "rate_peak_flop_per_s": 1.979e15},
        f"{BF16}rate_peak_flop_per_s = 1.979e15 is more than 1.05 times sm_count * {BF16}flop_per_cycle_per_sm * "
        "clock.boost_hz = 1.071e15; give the dense rate",
    ),
    (
        {BF16 + "rate_peak_flop_per_s": 1e14, BF16 + "rate_burst_flop_per_s": None},
        f"{BF16}rate_peak_flop_per_s = 1e14 is less than 0.1 times sm_count * {BF16}flop_per_cycle_per_sm * "
        "clock.boost_hz = 1.071e15",
    ),
    (
        {BF16 + "rate_burst_flop_per_s": 9.9e14},
        f"{BF16}rate_burst_flop_per_s = 9.9e14 is above {BF16}rate_peak_flop_per_s = 9.894e14",
    ),
    (
        {BF16 + "rate_sustained_flop_per_s": 9e14},
        f"{BF16}rate_sustained_flop_per_s = 9e14 is above {BF16}rate_burst_flop_per_s = 8.054e14",
    ),
    (
        {BF16 + "rate_sustained_flop_per_s": 9.9e14, BF16 + "rate_burst_flop_per_s": None},
        f"{BF16}rate_sustained_flop_per_s = 9.9e14 is above {BF16}rate_peak_flop_per_s = 9.894e14",
    ),
    (
        {"gpc.max_active_clusters.2": 67},
        "gpc.max_active_clusters.2 = 67 takes 134 SMs, above sm_count = 132",
    ),
    (
        {"gpc.max_active_clusters.8": 16},
        "gpc.max_active_clusters.8 = 16 takes 128 SMs, above the 120 of gpc.max_active_clusters.4 = 30",
    ),
    ({"gpc.sms_per_gpc": (66, 67), "gpc.count": 2}, "gpc.sms_per_gpc adds up to 133, above sm_count = 132"),
    ({"gpc.count": 133}, "gpc.count = 133 is above sm_count = 132"),
]


@pytest.fixture(scope="module")
def h200():
    known = {BF16 + "rate_burst_flop_per_s": 8.054e14, "power.settle_s": 0.08236}
    return load_profile("h200_sxm").with_numbers(known, {})


def changed(profile, numbers):
    return profile.with_numbers(numbers, {name: WHY for name, value in numbers.items() if value is not None})


@pytest.mark.parametrize(("numbers", "why"), BY_MEANING + STATED)
def test_broken(h200, numbers, why):
    with pytest.raises(ProfileError, match=f": {re.escape(why)}$"):
        changed(h200, numbers)


@pytest.mark.parametrize(("numbers", "why"), BY_MEANING)
def test_what_numbers_mean_holds_for_what_if_copies(h200, numbers, why):
    with pytest.raises(ProfileError, match=re.escape(why)):
        derive(h200, numbers)


@pytest.mark.parametrize(("numbers", "_why"), STATED)
def test_what_if_copies_may_pass_what_the_datasheet_states(h200, numbers, _why):
    known = {name: value for name, value in numbers.items() if value is not None}
    assert derive(h200, known).numbers.items() >= known.items()


def test_half_the_sms_are_a_what_if(h200):
    assert derive(h200, {"sm_count": 66}).sm_count == 66
    with pytest.raises(ProfileError, match="takes 132 SMs, above sm_count = 66|more than 1.05 times"):
        changed(h200, {"sm_count": 66})


@pytest.mark.parametrize("name", list_profiles())
def test_shipped_profiles_keep_them_all(name):
    assert list(broken_rules(load_profile(name).numbers, what_if=False)) == []


def test_one_partition_has_no_copies(h200):
    # copies are those of the second partition: with one, the number is not asked for
    assert changed(h200, {"l2.partitions": 1}).l2.partitions == 1
