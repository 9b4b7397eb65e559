"""Every number of a profile, set to what makes no sense: refused by name, or priced to a finite time."""

import math

import pytest

from tilesight import Gemm, GemmConfig, load_profile, predict
from tilesight.errors import ProfileError, TilesightError, UnsupportedError

WHY = {"kind": "assumed", "note": "changed by a test"}
H200 = load_profile("h200_sxm")
NONSENSE = (0, -1, float("inf"), float("nan"), 1e30)
LAUNCHES = (
    (Gemm(8192, 4096, 4096), GemmConfig(128, 256, 64, stages=4, cluster_m=2), "cold", "sustained"),
    (Gemm(16, 8192, 8192), GemmConfig(16, 128, 64, stages=4, kernel="cp_async", split_k=2), "cold", 0.06),
    (Gemm(1000, 1000, 1000), GemmConfig(128, 128, 64, stages=3, kernel="tma_persistent"), "warm", "burst"),
)

STANDS_IN = {
    "clock.tensor_hz": "the boost clock",
    "dram.tiles_read_share": "the whole read bandwidth",
    "gpc.count": "one GPC",
    "gpc.max_active_clusters.2": "the SMs of clusters of 4",
    "l2.partitions": "one partition",
    "power.static_w": "no law of power: the tensor rates that were reached",
}
"""What stands for an unknown number in a prediction, as docs/hardware.md says; any other is asked for by name."""
IN_ROOFLINE = (
    "dram.bandwidth_sustained_bytes_per_s",
    "tensor.bf16.rate_burst_flop_per_s",
    "tensor.bf16.rate_sustained_flop_per_s",
    "launch.kernel_start_s",
)


def attempt(make, name, value):
    """The profile that is made, or None and why it is refused."""
    try:
        return make(name, value), ""
    except ProfileError as error:
        return None, str(error)


def with_number(name, value):
    old = H200.numbers[name]
    if isinstance(old, int) and math.isfinite(value):
        value = int(value)
    elif isinstance(old, float):
        value = float(value)
    return H200.with_numbers({name: value}, {name: WHY})


def check_prices(profile, what):
    for problem, config, cache, clock in LAUNCHES:
        try:
            estimate = predict(problem, config, hardware=profile, cache=cache, clock=clock)
        except TilesightError:
            continue
        assert math.isfinite(estimate.seconds), what
        assert estimate.seconds > 0, what
        assert math.isfinite(estimate.roofline_s), what
        assert all(math.isfinite(term) for term in estimate.terms.values()), what


@pytest.fixture(scope="module")
def priced():
    """The launches on the profile as it is, so that no test passes because nothing is priced."""
    return [
        predict(problem, config, hardware=H200, cache=cache, clock=clock) for problem, config, cache, clock in LAUNCHES
    ]


@pytest.mark.parametrize("name", H200.numbers)
def test_an_unknown_number_is_asked_for_or_has_a_documented_stand_in(name, priced):
    profile, refused = attempt(lambda name, _: H200.with_numbers({name: None}, {}), name, None)
    if profile is None:
        assert f"{name} is missing" in refused
        return
    for before, (problem, config, cache, clock) in zip(priced, LAUNCHES, strict=True):
        try:
            estimate = predict(problem, config, hardware=profile, cache=cache, clock=clock)
        except UnsupportedError as error:
            if error.field != name:
                raise
            continue
        if name not in STANDS_IN:
            assert (estimate.seconds, estimate.terms) == (before.seconds, before.terms)
        if name not in (*STANDS_IN, *IN_ROOFLINE):
            assert estimate.roofline_s == before.roofline_s


@pytest.mark.parametrize("name", H200.numbers)
def test_nonsense_is_refused_or_priced(name):
    for value in NONSENSE:
        profile, refused = attempt(with_number, name, value)
        if profile is None:
            assert name in refused
        else:
            assert value == 0, f"{name} = {value} is allowed"
            check_prices(profile, f"{name} = {value}")


@pytest.mark.parametrize("name", H200.numbers)
@pytest.mark.parametrize("factor", [0.5, 2.0, 1e3])
def test_a_what_if_is_refused_or_priced(name, factor):
    profile, refused = attempt(derive_by, name, factor)
    if profile is None:
        assert name in refused
    else:
        check_prices(profile, f"{factor:g} times {name}")


def derive_by(name, factor):
    value = H200.numbers[name] * factor
    changes = {name: int(value) if isinstance(H200.numbers[name], int) else value}
    about = {"name": "what_if", "derived": {"parent": "h200_sxm", "changed": [name]}}
    return H200.with_numbers(changes, {name: WHY}, about=about)


@pytest.mark.parametrize(
    ("name", "value", "allowed"),
    [
        ("power.burst_s", 0.0, "1e-6..10000.0; give seconds of load"),
        ("power.settle_s", 0.0, "1e-6..10000.0; give seconds of load"),
        ("power.burst_w", 0.0, "1.0..10000.0; give watts"),
        ("power.sustained_w", 0.0, "1.0..10000.0; give watts"),
        ("power.burst_exponent", 1000.0, "0.0..5.0; give the exponent"),
        ("power.sustained_exponent", 1000.0, "0.0..5.0; give the exponent"),
        ("fill.cp_async_unaligned_share", 0.0, "0.001..1.0; give a share"),
        ("loop.mma_sync_rate_share", 0.0, "0.001..1.0; give a share"),
        ("merging.requests_async", 0.0, "1.0..256.0; give the requests"),
        ("merging.spread_elements", 0.0, "1.0..1e9; give a number of elements"),
        ("merging.near_share", 1.75, "0.0..1.5; give the share of mergeable requests"),
        ("drift.bound_onset", 0.0, "0.001..1.0; give a share"),
        ("l2.copies_one_reader", 0.5, "1.0..64.0; give copies"),
        ("sm.smem_bytes", 0, "1024..1048576; give bytes"),
        ("sm.warp_size", 1024, "8..128; give the threads of one warp"),
    ],
)
def test_ranges_of_numbers_that_are_divided_by(name, value, allowed):
    with pytest.raises(ProfileError, match=f"{name} = .* is outside {allowed}"):
        H200.with_numbers({name: value}, {name: WHY})


def test_requests_are_whole():
    with pytest.raises(ProfileError, match=r"merging.requests_async = 4\.5 is not whole; give the number of requests"):
        H200.with_numbers({"merging.requests_async": 4.5}, {})
