"""Verdicts: what they choose, say and refuse."""

import json
import pickle
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilesight import (
    ConfigError,
    ProblemError,
    UnknownProfileError,
    UnsupportedError,
    Verdict,
    derive,
    list_profiles,
    load_profile,
    verdict,
)
from tilesight.dsmem.catalogue import SIX, WORKLOADS
from tilesight.report import html, text

H200 = load_profile("h200_sxm")


def ask(name="softmax_backward", rows=4096, cols=65536, hardware=H200, **options):
    return verdict(name, rows, cols, hardware=hardware, **options)


@pytest.mark.parametrize("name", SIX)
def test_wide_rows_want_a_cluster_and_narrow_ones_do_not(name):
    wide, narrow = ask(name), ask(name, cols=4096)
    assert wide.cluster
    assert wide.best == wide.best_cluster
    assert wide.margin == pytest.approx(wide.best_other.seconds / wide.best.seconds, rel=0.031)
    assert not narrow.cluster
    assert narrow.best == narrow.best_other
    assert 8192 < wide.crossover_cols <= 65536
    assert wide.crossover_cols == narrow.crossover_cols


@pytest.mark.parametrize("name", SIX)
def test_a_cluster_pays_at_the_crossover_and_not_below(name):
    at = ask(name).crossover_cols
    assert ask(name, cols=at).cluster
    assert not ask(name, cols=at - 1024 if at <= 32768 else at - 2048).cluster


@settings(max_examples=60)
@given(
    st.sampled_from(list(WORKLOADS)),
    st.integers(1, 10**5),
    st.integers(1, 10**6),
    st.sampled_from(["h200_sxm", "h100_sxm", "rtx_5090", "a100_sxm"]),
)
def test_no_verdict_names_an_illegal_cluster(name, rows, cols, gpu):
    found = verdict(name, rows, cols, hardware=gpu)
    if found.cluster:
        assert found.best_cluster.seconds is not None
        assert found.rejected is None
    if found.cluster_size is not None:
        assert found.seconds("cluster") == found.best_cluster.seconds > 0
    for each in found.times:
        assert (each.seconds is None) == (each.why is not None)
        assert each.seconds is None or 0 < each.seconds_low <= each.seconds <= each.seconds_high
    json.dumps(found.to_dict(), allow_nan=False)
    assert found.reason


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("row_sum", "one pass over the row does it all"),
        ("cross_entropy_forward", "one pass over the row does it all"),
        ("gelu", "elements depend on nothing else"),
        ("cumulative_sum", "each element needs those before it"),
        ("top_k", "grows with the row"),
        ("stencil_3", "neighbours need each other's elements"),
    ],
)
def test_structural_rejections(name, reason):
    found = ask(name)
    assert isinstance(found, Verdict)
    assert reason in found.reason == found.rejected
    assert (found.cluster, found.cluster_size, found.margin, found.crossover_cols, found.times) == (
        False,
        None,
        None,
        None,
        (),
    )


def test_gpus_without_clusters():
    found = ask(hardware="a100_sxm")
    assert found.rejected == "a100_sxm forms no clusters"
    assert found.best.name in ("reread", "triton", "torch_compile")


def test_rows_that_no_cluster_holds():
    found = ask(cols=2_000_000)
    assert (found.cluster, found.cluster_size) == (False, None)
    assert "no cluster holds the row: with P = 16 a slice takes" in found.reason


def test_groups_need_no_cluster():
    found = ask("quantise_fp8_groups")
    assert (found.cluster, found.crossover_cols) == (False, None)


def test_published_constants_stand_in():
    found = ask(hardware="rtx_5090")
    assert any("404 cycles" in each and "published, table II" in each for each in found.assumptions)
    assert found.best_cluster.cluster in (2, 4, 8)  # 16 is not in its profile


def test_published_kernels():
    ours, theirs = ask(hardware="h100_sxm"), ask(hardware="h100_sxm", kernels="published")
    assert theirs.cluster
    assert theirs.seconds("cluster") > ours.seconds("cluster")
    assert theirs.to_dict()["kernels"] == "published"


def test_what_ifs():
    far = derive(H200, {"l2.capacity_bytes": "8x"})
    assert ask(cols=32768).cluster
    assert not ask(cols=32768, hardware=far).cluster  # the second pass finds all rows in L2
    assert "L2" in ask(cols=32768, hardware=far).reason


def test_half_the_bytes_move_the_crossover():
    assert ask(dtype="bf16").crossover_cols > ask().crossover_cols


def test_timings_replace_predictions():
    found = ask(timing_s={"triton": 0.8e-3, "reread": 1.1e-3})
    assert found.seconds("triton") == 0.8e-3
    assert [each.name for each in found.times if each.timed] == ["reread", "triton"]
    assert found.seconds("torch_compile") == ask().seconds("torch_compile")
    # a faster memory than the profile says makes the cluster faster too
    assert found.seconds("cluster", 8) < ask().seconds("cluster", 8)


def test_timings_with_a_control_by_hand():
    plain = ask()
    triton = next(each for each in plain.times if each.name == "triton")
    found = ask(timing_s=1e-3, control_s={8: 30e-6})  # triton is the fastest without a cluster
    moved = 12.0 / triton.dram_bytes_per_element  # of 1 ms: what the cluster moves, at the rate that was reached
    assert found.seconds("cluster", 8) == pytest.approx(moved * 1e-3 + 30e-6, rel=1e-3)


def test_a_verdict_is_quick():
    ask()
    begin = time.perf_counter()
    for _ in range(20):
        ask()
    assert (time.perf_counter() - begin) / 20 < 0.025  # 5 ms on an idle core


def test_same_input_same_bits_and_data():
    assert ask().to_dict() == ask(hardware=H200.with_numbers({}, {})).to_dict()
    assert pickle.loads(pickle.dumps(ask())) == ask()
    assert ask().to_dict()["schema"] == "tilesight.dsmem/1"


def test_it_prints():
    page = text(ask())
    assert "a cluster of" in page.splitlines()[0]
    assert "torch_compile" in page
    assert "not legal" in page
    assert html(ask()).startswith('<div class="tilesight">')
    assert text(ask("top_k")).splitlines()[0].endswith("no cluster")


UNKNOWN = {"b200_sxm", "b300_sxm", "gb200", "gb300", "rtx_pro_6000_server"}
"""GPUs whose clusters nobody has measured or published enough of."""


@pytest.mark.parametrize("gpu", sorted(set(list_profiles()) - UNKNOWN))
def test_profiles_that_answer(gpu):
    assert ask(hardware=gpu).hardware == gpu


@pytest.mark.parametrize("gpu", sorted(UNKNOWN))
def test_profiles_that_refuse_by_name(gpu):
    with pytest.raises(UnsupportedError, match=r"profile '\w+' has no (dsmem|gpc)\.") as caught:
        ask(hardware=gpu)
    assert caught.value.field in str(caught.value)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"name": "softmax"}, ProblemError, "no workload 'softmax'"),
        ({"rows": 0}, ProblemError, "rows = 0; give a whole number"),
        ({"cols": 1.5}, ProblemError, "cols = 1.5; give a whole number"),
        ({"rows": True}, ProblemError, "rows = True"),
        ({"dtype": "int8"}, ConfigError, "dtype = 'int8'; rows have fp32, bf16, fp16"),
        ({"cache": "hot"}, ConfigError, "cache = 'hot'; known: warm, cold"),
        ({"kernels": "mine"}, ConfigError, "kernels = 'mine'; known: ours, published"),
        ({"hardware": 3}, ConfigError, "hardware is a int"),
        ({"hardware": "h300"}, UnknownProfileError, "no hardware profile 'h300'"),
        ({"timing_s": {"cluster": 1.0}}, ConfigError, "timing_s has 'cluster'; known: reread, staged"),
        ({"timing_s": -1}, ConfigError, "timing_s = -1; give seconds, more than 0"),
        ({"timing_s": {"triton": float("nan")}}, ConfigError, "timing_s\\['triton'\\] = nan"),
        ({"timing_s": {"staged": 1.0}}, UnsupportedError, "a kernel that can't run at this width: a slice takes"),
        ({"control_s": {8: 1e-6}}, ConfigError, "control_s belongs to timing_s"),
        ({"timing_s": 1.0, "control_s": {3: 1.0}}, ConfigError, "control_s has 3; cluster sizes are 2, 4, 8, 16"),
        ({"timing_s": 1.0, "control_s": 3}, ConfigError, "control_s is a int; give seconds by cluster size"),
    ],
)
def test_bad_input_is_refused(options, error, message):
    with pytest.raises(error, match=message):
        ask(**options)


def test_unknown_alternative():
    with pytest.raises(ConfigError, match="no alternative 'cutlass'; known: cluster, reread"):
        ask().seconds("cutlass")


def test_missing_numbers_are_named():
    with pytest.raises(UnsupportedError, match=r"no dsmem\.2\.round_trip_cycles") as caught:
        ask(hardware=H200.with_numbers({"dsmem.2.round_trip_cycles": None}, {}))
    assert caught.value.field == "dsmem.2.round_trip_cycles"
