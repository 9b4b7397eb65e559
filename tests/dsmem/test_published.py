"""The published equations against values worked by hand, with the published constants of an H100."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilesight.dsmem.catalogue import SIX, workload
from tilesight.dsmem.published import (
    CLUSTERS,
    Constants,
    benefit,
    cluster_waves,
    constants_of,
    deposit_s,
    exchanged_bytes,
    is_legal,
    published_constants,
    remote_store_s,
    replay_s,
    row_traffic_bytes,
    staged_bytes,
)
from tilesight.dsmem.workload import StaticInputs
from tilesight.errors import ConfigError, ProblemError, UnsupportedError

H100 = published_constants("h100_sxm")
LIMIT = 232448  # 227 KiB


def test_table_two():
    assert (H100.clock_hz, H100.sms, H100.barrier_cycles) == (1.98e9, 132, 851)
    assert (H100.local_read_bytes_per_cycle, H100.remote_store_bytes_per_cycle) == (20.89, 21.37)
    assert (H100.local_store_bytes_per_cycle, H100.remote_read_bytes_per_cycle) == (27.67, 4.77)
    assert published_constants("rtx_5090").remote_store_bytes_per_cycle == 2.14


@pytest.mark.parametrize(
    ("cols", "cluster", "kept", "needs", "legal"),
    [
        (65536, 4, 12, 65536 / 4 * 12 + 1024, True),  # 196608 + 1024 = 197632
        (65536, 2, 12, 65536 / 2 * 12 + 1024, False),  # 393216 + 1024
        (65536, 1, 4, 65536 * 4 + 1024, False),  # 263168: the int8 row that one CTA cannot hold in shared memory
        (57856, 1, 4, 57856 * 4 + 1024, True),  # 231424 + 1024 = 232448: exactly full
        (57857, 1, 4, 57857 * 4 + 1024, False),
        (1001, 8, 8, 126 * 8 + 1024, True),  # ceil(1001 / 8) = 126
    ],
)
def test_equation_3(cols, cluster, kept, needs, legal):
    assert staged_bytes(cols, cluster, kept, 1024) == needs
    assert is_legal(cols, cluster, kept, LIMIT, 1024) is legal


def test_equation_4():
    # weighted standardisation, published: 40 B modelled, 24 of them reread; a row of 65536
    base, cluster = row_traffic_bytes(65536, workload("weighted_standardisation_backward").published)
    assert (base, cluster) == (65536 * 40, 65536 * 16)
    assert base / cluster == 2.5  # the ceiling of the speed-up


@pytest.mark.parametrize(
    ("name", "cluster", "written", "barriers"),
    [
        ("layernorm_backward", 4, 4 * 4 * 3 * 4, 4),  # s P (P - 1) sum q = 4 * 4 * 3 * (2 + 2)
        ("weighted_standardisation_backward", 8, 4 * 8 * 7 * 5, 6),  # q = 2, 1, 2: three stages
        ("pearson_backward", 2, 4 * 2 * 1 * 5, 4),
        ("softmax_backward", 8, 4 * 8 * 7 * 3, 6),
        ("lars_momentum", 4, 4 * 4 * 3 * 2, 2),
        ("quantise_int8", 16, 4 * 16 * 15 * 1, 2),
    ],
)
def test_equations_5_and_6(name, cluster, written, barriers):
    assert exchanged_bytes(cluster, workload(name).published.statistics) == (written, 0, barriers)


def test_equation_8_by_hand():
    # LayerNorm, 2048 x 16384, P = 4: floor(132 / 4) = 33 clusters at once, ceil(2048 / 33) = 63 waves
    assert cluster_waves(2048, 4, 132) == 63
    # replay: 63 * 4096 * 4 B = 1,032,192 B at 1.98e9 * 20.89 = 4.13622e10 B/s
    assert replay_s(2048, 16384, 4, 4, H100) == pytest.approx(24.955e-6, rel=1e-4)
    # stores: 4 B * 63 * 3 peers * 4 statistics = 3024 B at 1.98e9 * 21.37 = 4.23126e10 B/s
    assert remote_store_s(2048, 4, (2, 2), H100) == pytest.approx(71.468e-9, rel=1e-4)


def test_equation_8_of_softmax_by_hand():
    # 4096 x 65536, P = 8: floor(132 / 8) = 16, W = 256; replay 256 * 8192 * 8 B = 16,777,216 B / 4.13622e10
    assert replay_s(4096, 65536, 8, 8, H100) == pytest.approx(405.617e-6, rel=1e-5)
    # stores 4 * 256 * 7 * 3 = 21504 B / 4.23126e10
    assert remote_store_s(4096, 8, (1, 1, 1), H100) == pytest.approx(508.217e-9, rel=1e-5)


def test_deposit_is_what_the_load_does_not_hide():
    # 63 * 4096 * 4 B at 1.98e9 * 27.67 = 5.47866e10 B/s: 18.84 us
    assert deposit_s(2048, 16384, 4, 4, 0.0, H100) == pytest.approx(18.840e-6, rel=1e-4)
    assert deposit_s(2048, 16384, 4, 4, 10e-6, H100) == pytest.approx(8.840e-6, rel=1e-3)
    assert deposit_s(2048, 16384, 4, 4, 20e-6, H100) == 0.0


def test_equation_9_by_hand():
    found = benefit("layernorm_backward", 2048, 16384, 4, baseline_s=200e-6, control_s=30e-6, constants=H100)
    # b_reread / b_B = 12 / 32 of 200 us; the deposit hides behind 200 us * 4 / 32 = 25 us of load
    assert (found.save_s, found.deposit_s) == (pytest.approx(75e-6), 0.0)
    assert found.gain_s == pytest.approx(75e-6 - 30e-6 - 24.955e-6 - 71.468e-9, rel=1e-4)
    assert found.pays
    assert not benefit("layernorm_backward", 2048, 16384, 4, baseline_s=200e-6, control_s=60e-6, constants=H100).pays


def test_illegal_staging_never_pays():
    found = benefit("softmax_backward", 4096, 65536, 2, baseline_s=1.0, control_s=0.0, constants=H100)
    assert found.gain_s > 0
    assert not found.legal
    assert not found.pays


def test_static_inputs_by_name():
    options = {"baseline_s": 1e-3, "control_s": 0.0, "constants": H100}
    published = benefit("layernorm_backward", 2048, 32768, 4, static="published", **options)
    counted = benefit("layernorm_backward", 2048, 32768, 4, static="counted", **options)
    own = benefit("layernorm_backward", 2048, 32768, 4, static=StaticInputs(24, 12, 8, (2, 2)), **options)
    assert (published.save_s, counted.save_s) == (pytest.approx(0.375e-3), pytest.approx(0.5e-3))
    assert own == counted


@given(st.sampled_from(SIX), st.integers(1, 200_000), st.sampled_from(CLUSTERS), st.integers(1, 10_000))
def test_legality_is_monotone_in_the_cluster(name, cols, cluster, scratch):
    kept = workload(name).published.kept_bytes
    if is_legal(cols, cluster, kept, LIMIT, scratch):
        assert is_legal(cols, 2 * cluster, kept, LIMIT, scratch)


@given(st.sampled_from(SIX), st.integers(1, 10**6), st.floats(1e-6, 1.0), st.floats(0.0, 1e-3))
def test_gain_grows_with_the_baseline_and_falls_with_the_control(name, cols, baseline, control):
    def gain(baseline_s, control_s):
        options = {"baseline_s": baseline_s, "control_s": control_s, "constants": H100}
        return benefit(name, 4096, cols, 8, **options).gain_s

    assert gain(2 * baseline, control) >= gain(baseline, control)
    assert gain(baseline, control + 1e-6) < gain(baseline, control)


def test_constants_of_a_profile(h200):
    found = constants_of(h200, 4)
    assert (found.clock_hz, found.sms) == (h200.clock.boost_hz, 132)
    assert found.remote_store_bytes_per_cycle == h200.require("dsmem.4.store_bytes_per_cycle")
    with pytest.raises(UnsupportedError, match=r"no dsmem\.4\.store_bytes_per_cycle") as caught:
        constants_of(h200.with_numbers({"dsmem.4.store_bytes_per_cycle": None}, {}), 4)
    assert caught.value.field == "dsmem.4.store_bytes_per_cycle"


def test_bad_input_is_refused():
    options = {"baseline_s": 1e-3, "control_s": 0.0, "constants": H100}
    with pytest.raises(ProblemError, match="no workload 'softmax'; known: .* Did you mean 'softmax_backward'"):
        benefit("softmax", 1, 1, 2, **options)
    with pytest.raises(ProblemError, match="rows = 0; give a whole number from 1"):
        benefit("softmax_backward", 0, 1, 2, **options)
    with pytest.raises(ConfigError, match="cluster = 3; clusters have 1, 2, 4, 8, 16"):
        benefit("softmax_backward", 1, 1, 3, **options)
    with pytest.raises(ConfigError, match="baseline_s = 0; give seconds, more than 0"):
        benefit("softmax_backward", 1, 1, 2, **options | {"baseline_s": 0})
    with pytest.raises(ConfigError, match="control_s = nan; give seconds, 0 or more"):
        benefit("softmax_backward", 1, 1, 2, **options | {"control_s": float("nan")})
    with pytest.raises(ConfigError, match="static = 'mine'; give 'published', 'counted'"):
        benefit("softmax_backward", 1, 1, 2, static="mine", **options)
    with pytest.raises(UnsupportedError, match="no static inputs were published for rmsnorm_forward in fp32"):
        benefit("rmsnorm_forward", 1, 1, 2, **options)
    with pytest.raises(UnsupportedError, match="no constants were published for 'a100_sxm'"):
        published_constants("a100_sxm")
    tiny = Constants("tiny", 1e9, 4, 1, 1, 1)
    with pytest.raises(ConfigError, match="a cluster of 8 CTAs, one an SM, on 4 SMs"):
        benefit("softmax_backward", 1, 1, 8, **options | {"constants": tiny})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"constants": "h100_sxm"}, "constants is a str; give published_constants"),
        ({"limit_bytes": float("nan")}, "limit_bytes = nan; give bytes"),
        ({"scratch_bytes": -1}, "scratch_bytes = -1; give bytes"),
        ({"cluster": True}, "cluster = True; clusters have"),
        ({"baseline_s": 10**400}, "baseline_s = .*; give seconds"),
        ({"static": ["published"]}, "static = "),
    ],
)
def test_arguments_of_the_wrong_kind_are_refused(options, message):
    good = {"cluster": 8, "baseline_s": 1e-3, "control_s": 0.0, "constants": H100}
    with pytest.raises(ConfigError, match=message):
        benefit("softmax_backward", 4096, 65536, **good | options)


def test_sizes_and_constants_of_the_wrong_kind_are_refused():
    with pytest.raises(ProblemError, match="cluster = 0; give a whole number from 1"):
        cluster_waves(2048, 0, 132)
    with pytest.raises(ProblemError, match="rows = 1.5"):
        cluster_waves(1.5, 4, 132)
    with pytest.raises(ConfigError, match="constants of 3; give the name of a GPU"):
        published_constants(3)
    with pytest.raises(ConfigError, match="clock_hz = 0; give a number above 0"):
        Constants("mine", 0, 132, 1, 1, 1)
    with pytest.raises(ConfigError, match="barrier_cycles = nan"):
        Constants("mine", 1e9, 132, 1, 1, 1, barrier_cycles=float("nan"))
