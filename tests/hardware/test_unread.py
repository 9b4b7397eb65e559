"""Numbers that are said to move no predicted time: they move none."""

import numpy as np
import pytest

from tilesight import Gemm, GemmConfig, derive, load_profile, predict, predict_many
from tilesight.dtypes import dtype
from tilesight.hardware.numbers import plain_number
from tilesight.hardware.profile import field_names
from tilesight.hardware.unread import NEVER, NEVER_TABLES, OF_PROTOCOLS, unread

SIZES = [(4096, 4096, 4096), (4001, 4003, 4006), (64, 8192, 8192), (64, 64, 64), (8192, 4096, 32768)]
STATES = [{"cache": "warm"}, {"cache": "cold", "clock": "burst", "dirty_bytes": 1e7}, {"clock": 0.03}]


def changed(value):
    """Another number in the same range."""
    if isinstance(value, tuple):
        return tuple(each + 1 for each in value)
    return 2 * value if float(value).is_integer() else 1.25 * value


def times(kind, hardware):
    """Every term of some products in each kernel family, state after state."""
    deep = 64 * 16 // dtype(kind).bits
    configs = [
        GemmConfig(128, 128, deep, stages=3, kernel="cp_async"),
        GemmConfig(16, 128, deep, stages=3, kernel="cp_async", spills=8),
        GemmConfig(128, 128, deep, stages=3, kernel="tma_persistent"),
        GemmConfig(128, 128, deep, stages=4, split_k=None),
        GemmConfig(128, 256, deep, stages=3, cluster_m=2),
    ]
    problems = [Gemm(*size, dtype=kind, layout_b=layout) for size in SIZES for layout in ("row", "column")]
    pairs = [(problem, config) for problem in problems for config in configs]
    for state in STATES:
        found = predict_many(*zip(*pairs, strict=True), hardware=hardware, skip_refused=True, **state)
        assert len(found) >= len(SIZES)
        yield np.stack([values for name, values in found.columns.items() if name == "seconds" or ":" in name])


@pytest.mark.parametrize("gpu", ["h200_sxm", "b200_sxm", "a100_sxm"])
@pytest.mark.parametrize("kind", ["bf16", "tf32", "int8"])
def test_they_move_no_time(gpu, kind):
    profile = load_profile(gpu)
    names = [name for name in profile.numbers if unread(name, profile, dtype(kind))]
    copy = derive(profile, {name: changed(profile.numbers[name]) for name in names})
    assert all(copy.numbers[name] != profile.numbers[name] for name in names)
    for before, after in zip(times(kind, profile), times(kind, copy), strict=True):
        assert np.array_equal(before, after)


@pytest.mark.parametrize("name", ["sm_count", "dram.bandwidth_read_bytes_per_s", "tensor.bf16.flop_per_cycle_per_sm"])
def test_others_do(h200, name):
    assert not unread(name, h200, dtype("bf16"))
    copy = derive(h200, {name: "0.5x"})
    assert any(not np.array_equal(*pair) for pair in zip(times("bf16", h200), times("bf16", copy), strict=True))


def test_the_table_names_numbers_of_the_schema():
    assert set(NEVER) | set(OF_PROTOCOLS) <= set(field_names())
    assert set(NEVER_TABLES) <= {name.split(".")[0] for name in field_names()}


def test_a_law_of_power_takes_the_place_of_rates(h200):
    b200 = load_profile("b200_sxm")
    for number in ("rate_burst_flop_per_s", "rate_sustained_flop_per_s"):
        name = f"tensor.bf16.{number}"
        assert unread(name, h200, dtype("bf16")).startswith("which moves the roofline alone")
        assert unread(name, b200, dtype("bf16")) == ""
        assert unread(name, b200, dtype("fp8")) == "which no product of fp8 goes by"
    problem, config = Gemm(4096, 4096, 4096), GemmConfig(128, 256, 64, stages=4)
    mine = predict(problem, config, hardware=h200)
    peak = predict(problem, config, hardware=derive(h200, {"tensor.bf16.rate_peak_flop_per_s": "0.5x"}))
    assert (peak.seconds, peak.share_of_peak) == (mine.seconds, 2 * mine.share_of_peak)


def test_a_what_if_that_moves_nothing_says_so(h200):
    problem, config = Gemm(4096, 4096, 4096), GemmConfig(128, 256, 64, stages=4)
    event_s = h200.require("launch.event_s")
    copy = derive(h200, {"power.limit_w": 350, "sm_count": 66, "launch.event_s": "2x"})
    assert predict(problem, config, hardware=copy).assumptions[-3:] == (
        "what if: power.limit_w = 350.0 instead of 700.0, which no time of a matrix product goes by",
        "what if: sm_count = 66 instead of 132",
        f"what if: launch.event_s = {plain_number(2 * event_s)}, 2x of {plain_number(event_s)}, "
        "which is no part of a prediction; compare adds it",
    )
