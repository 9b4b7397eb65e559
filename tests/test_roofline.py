"""The bound: its two sides by hand, and what stands in for numbers that a profile lacks."""

import numpy as np
import pytest

from tilesight import Gemm, GemmConfig, predict
from tilesight.cost.roofline import dram_bytes_per_s, tensor_rate_flop_per_s

SQUARE, STREAM = Gemm(8192, 8192, 8192), Gemm(16, 8192, 8192)
CONFIGS = {SQUARE: GemmConfig(128, 256, 64, stages=4), STREAM: GemmConfig(16, 128, 64, stages=8, swap_ab=True)}


def roofline_s(problem, hardware, clock="sustained"):
    return predict(problem, CONFIGS[problem], hardware=hardware, cache="cold", clock=clock).roofline_s


def test_by_hand(hw):
    # 2 * 8192^3 flop / 8.192e14 and 1 us of start
    assert roofline_s(SQUARE, hw) == pytest.approx(2 * 8192**3 / 8.192e14 + 1e-6, rel=1e-12)
    # 2 bytes of 16 x 8192 + 8192 x 8192 + 16 x 8192 at 4 TB/s
    assert roofline_s(STREAM, hw) == pytest.approx(2 * (8192**2 + 2 * 16 * 8192) / 4e12 + 1e-6, rel=1e-12)


def test_an_unknown_start_is_left_out(hw, altered):
    without = altered(hw, {"launch.kernel_start_s": None})
    assert roofline_s(STREAM, without) == pytest.approx(roofline_s(STREAM, hw) - 1e-6, rel=1e-9)


def test_dram_rate_is_that_of_a_copy_of_reads_or_the_peak(h200, altered):
    sustained, read = "dram.bandwidth_sustained_bytes_per_s", "dram.bandwidth_read_bytes_per_s"
    assert dram_bytes_per_s(h200) == h200.numbers[sustained]
    assert dram_bytes_per_s(altered(h200, {sustained: None})) == h200.numbers[read]
    poor = altered(h200, {sustained: None, read: None})
    assert dram_bytes_per_s(poor) == h200.numbers["dram.bandwidth_peak_bytes_per_s"]


def test_tensor_rate_by_the_clock(h200, altered):
    burst, sustained, peak = 8.054e14, 6.908e14, 9.894e14
    known = {"tensor.bf16.rate_burst_flop_per_s": burst, "tensor.bf16.rate_sustained_flop_per_s": sustained}
    profile = altered(h200, {**known, "power.settle_s": 0.5})
    busy_s = np.array([0.0, 0.4, 0.5, np.inf])
    assert tensor_rate_flop_per_s("bf16", busy_s, profile).tolist() == [burst, burst, sustained, sustained]
    unsettled = altered(profile, {"power.settle_s": None})  # a load lasts after 0.1 s, as for the clock
    assert tensor_rate_flop_per_s("bf16", np.array([0.0, 0.09, 0.1]), unsettled).tolist() == [burst, burst, sustained]
    no_sustained = altered(profile, {"tensor.bf16.rate_sustained_flop_per_s": None})
    assert tensor_rate_flop_per_s("bf16", busy_s, no_sustained).tolist() == [burst] * 4
    neither = altered(profile, dict.fromkeys(known))
    assert tensor_rate_flop_per_s("bf16", busy_s, neither).tolist() == [peak] * 4


@pytest.mark.parametrize("problem", [SQUARE, STREAM])
@pytest.mark.parametrize("clock", ["burst", "sustained"])
def test_a_profile_that_knows_less_has_no_longer_bound(h200, altered, problem, clock):
    bound_s = roofline_s(problem, h200, clock)
    for name in (
        "launch.kernel_start_s",
        "dram.bandwidth_sustained_bytes_per_s",
        "tensor.bf16.rate_burst_flop_per_s",
        "tensor.bf16.rate_sustained_flop_per_s",
    ):
        assert roofline_s(problem, altered(h200, {name: None}), clock) <= bound_s
