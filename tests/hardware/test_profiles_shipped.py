"""What must hold for every profile that ships: peaks that follow from clocks, reasons for what is assumed."""

import subprocess
import sys

import pytest

from tilesight.files import data_root, has_all_records
from tilesight.hardware.load import list_profiles, load_profile

PROFILES = list_profiles()

QUOTED_HZ = {"h100_sxm": 1.83e9, "h200_sxm": 1.83e9, "b200_sxm": 1.856e9, "b300_sxm": 1.856e9}
"""Where the datasheet's tensor peaks hold at a lower clock than the highest one."""

FULL_RATE_FP8 = ("h100_sxm", "h200_sxm", "b200_sxm", "b300_sxm", "gb200", "gb300", "l40s", "rtx_pro_6000_server")


def test_which_gpus_ship():
    assert {
        "a100_sxm",
        "b200_sxm",
        "b300_sxm",
        "gb200",
        "gb300",
        "h100_sxm",
        "h200_sxm",
        "l40s",
        "mi210",
        "rtx_5090",
        "rtx_pro_6000_server",
    } <= set(PROFILES)


@pytest.mark.parametrize("name", PROFILES)
def test_bf16_peak_follows_from_the_clock(name):
    # H200: 132 SMs * 4096 flop * 1.83 GHz = 989.4 TFLOP/s
    profile = load_profile(name)
    rate = profile.tensor["bf16"]
    clock_hz = QUOTED_HZ.get(name, profile.clock.boost_hz)
    assert clock_hz <= profile.clock.boost_hz
    expected = profile.sm_count * rate.flop_per_cycle_per_sm * clock_hz
    assert rate.rate_peak_flop_per_s == pytest.approx(expected, rel=0.02)


@pytest.mark.parametrize("name", PROFILES)
def test_every_peak_is_near_the_clock(name):
    # published peaks are rounded, and some hold at a lower clock: none is 5 % above or 10 % below
    profile = load_profile(name)
    for dtype, rate in profile.tensor.items():
        at_boost = profile.sm_count * rate.flop_per_cycle_per_sm * profile.clock.boost_hz
        assert 0.90 < rate.rate_peak_flop_per_s / at_boost < 1.05, dtype


@pytest.mark.parametrize("name", PROFILES)
def test_rates_stay_below_peaks(name):
    profile = load_profile(name)
    rate = profile.tensor["bf16"]
    if rate.rate_burst_flop_per_s is not None:
        assert rate.rate_sustained_flop_per_s <= rate.rate_burst_flop_per_s <= rate.rate_peak_flop_per_s
    lookups = profile.l2.lookup_bytes_per_s
    assert lookups <= profile.sm_count * 64 * profile.clock.boost_hz  # an SM takes 64 B a clock from L2
    assert lookups > profile.dram.bandwidth_peak_bytes_per_s
    assert profile.clock.tensor_hz <= profile.clock.boost_hz


@pytest.mark.parametrize("name", PROFILES)
def test_half_the_bits_twice_the_rate(name):
    rates = {dtype: rate.flop_per_cycle_per_sm for dtype, rate in load_profile(name).tensor.items()}
    assert rates["fp16"] == rates["bf16"]
    if "tf32" in rates:
        assert rates["tf32"] == rates["bf16"] / 2
    if name in FULL_RATE_FP8 or name == "rtx_5090":
        assert rates["fp8"] == rates["fp8_e5m2"] == 2 * rates["bf16"]


@pytest.mark.parametrize("name", PROFILES)
def test_assumed_numbers_say_why(name):
    profile = load_profile(name)
    for number, source in profile.source.items():
        if source.kind == "assumed":
            assert source.note, number
            assert source.origin is None or source.origin in PROFILES, number
            assert source.origin != name, number
        else:
            assert source.ref, number


def test_only_a_measured_gpu_has_measured_numbers():
    for name in PROFILES:
        profile = load_profile(name)
        kinds = {source.kind for source in profile.source.values()}
        assert ("measured" in kinds) == (name == "h200_sxm"), name


def test_rate_of_consumer_cards_is_that_of_fp32_accumulation():
    # 512 flop a cycle and SM on GeForce, 1024 on the professional card of the same chip
    assert load_profile("rtx_5090").tensor["bf16"].flop_per_cycle_per_sm == 512
    assert load_profile("rtx_pro_6000_server").tensor["bf16"].flop_per_cycle_per_sm == 1024


def test_power_law_only_where_it_was_measured():
    for name in PROFILES:
        assert (load_profile(name).get("power.burst_w") is not None) == (name in ("h100_sxm", "h200_sxm"))


def smallest_product_s(profile, kind="specialized", chain="warp_specialized"):
    parts = (f"launch.start_{kind}_s", "launch.graph_gap_s", "fill.latency_l2_s", f"epilogue.{kind}_fixed_s")
    return sum(map(profile.require, parts)) + profile.require(f"loop.chain_{chain}_cycles") / profile.clock.boost_hz


@pytest.mark.parametrize(
    ("name", "published_s", "kind"),
    [
        ("b200_sxm", 1.7e-6, ()),
        ("rtx_pro_6000_server", 1.8e-6, ()),
        ("a100_sxm", 2.5e-6, ("in_order", "cp_async")),
        ("l40s", 1.7e-6, ("in_order", "cp_async")),
    ],
)
def test_smallest_products_differ_as_published_ones_do(name, published_s, kind):
    differ_s = smallest_product_s(load_profile(name), *kind) - smallest_product_s(load_profile("h200_sxm"))
    assert differ_s == pytest.approx(published_s - 2.4e-6, abs=1e-9)


@pytest.mark.skipif(not has_all_records(), reason="the scripts that write profiles are in the repository only")
def test_files_follow_their_sources():
    # after a change: python validation/profiles_from_sources.py
    script = data_root() / "validation/profiles_from_sources.py"
    done = subprocess.run([sys.executable, script, "--check"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
