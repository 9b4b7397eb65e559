"""Verdicts: what they choose, say and refuse."""

import json
import pickle
from dataclasses import replace

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
from tilesight.dsmem.answer import WIDTHS, AlternativeTime, best_cluster, best_other
from tilesight.dsmem.catalogue import SIX, WORKLOADS
from tilesight.dsmem.verdict import _BOUND_BY, _under_way
from tilesight.dsmem.workload import Pass, Tensor, Workload
from tilesight.report import html, text
from tilesight.report.dsmem import _crossover

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
    assert "no cluster holds the row: with P = 16, a slice takes" in found.reason


def sized(cluster, seconds, latency_share=0.1, name="cluster"):
    none = dict(settings="", binding="dram", dram_bytes_per_element=1.0, hit_share=None)
    none |= dict(ctas_per_sm=1, slots=1, threads=64, rounds=1)
    return AlternativeTime(
        name, cluster, seconds=seconds, seconds_low=seconds, seconds_high=seconds, latency_share=latency_share, **none
    )


def test_which_cluster_is_taken():
    def taken(*times):
        return best_cluster(times).cluster

    assert taken(sized(2, 1.02), sized(4, 1.0), sized(8, 1.0)) == 4
    assert taken(sized(8, 1.04), sized(16, 1.0)) == 8  # above 8 for 5 % alone
    assert taken(sized(8, 1.06), sized(16, 1.0)) == 16
    # exchanges nearly bind the fastest: a smaller one that ties is taken, else the fastest
    assert taken(sized(4, 1.015), sized(8, 1.0, latency_share=0.85)) == 4
    assert taken(sized(4, 1.03), sized(8, 1.0, latency_share=0.85)) == 8
    assert best_cluster([]) is None


def test_ties_without_clusters_go_to_the_good_worst_case():
    risky = replace(sized(1, 1.0, name="reread"), seconds_high=1.5)
    assert best_other([sized(1, 1.03, name="staged"), risky]).name == "staged"
    assert best_other([sized(1, 1.04, name="staged"), risky]).name == "reread"


def test_reasons():
    assert "moves 12.0 B an element, not" in ask().reason
    assert "loads while it works on a row" in ask("quantise_int8", cols=45056).reason
    assert "reads the row once and not again from L2" in ask("layernorm_backward", rows=2048, cols=11264).reason
    assert "tie within 2 %" in ask("weighted_standardisation_backward", cols=16384).reason
    assert "exchanges of a cluster of 2 bind it" in ask(rows=8, cols=256).reason


@pytest.mark.parametrize("name", SIX)
@pytest.mark.parametrize("rows", [4, 40, 4096])
def test_reasons_agree_with_times(name, rows):
    for cols in (512, 4096, 16384, 20480, 32768, 49152, 131072):
        found = ask(name, rows=rows, cols=cols)
        if found.margin is None:
            continue
        assert ("tie within" in found.reason) == (1 / 1.02 <= found.margin <= 1.02)
        if "rows are so short" in found.reason:
            assert (found.best_cluster.binding, cols <= 16384) == ("latency", True)
        if "do not pay" in found.reason or "faster than a cluster" in found.reason:
            assert found.margin < 1 / 1.02
            assert _BOUND_BY[found.best_cluster.binding] in found.reason


def test_what_binds_is_of_each_cluster_size():
    for each in ask(rows=8, cols=256).times:
        assert (each.binding == "latency") == (each.latency_share >= 1 - 1e-9)


def alone(**changes):
    return replace(sized(1, 1.0, name="staged"), **changes)


def test_what_a_cluster_gains_where_one_cta_keeps_the_row():
    # two CTAs an SM, half a row each: one row, as alone; loads of one go on beside the work of the other
    assert _under_way(replace(sized(2, 1.0), ctas_per_sm=2, rounds=2), alone()) == "loads while it works on a row"
    assert _under_way(replace(sized(2, 1.0), slots=2, rounds=2), alone()) == "loads while it works on a row"
    assert _under_way(sized(8, 1.0), alone()) == "spreads each row over 8 CTAs, of which none has another"
    more = _under_way(replace(sized(2, 1.0), ctas_per_sm=4, rounds=2), alone())
    assert more == "has more rows under way, 2 an SM in place of 1"


def test_the_limit_that_no_cluster_keeps_is_named():
    many = Workload("many", "many", (Tensor("x"),), (Tensor("y"),), (Pass(("x",), 3000), Pass(("x",))))
    assert "3000 statistics take" in ask(many).reason
    few = ask(hardware=H200.with_numbers({"sm.registers": 4096}, {}))
    assert "128 threads need more registers than there are: a thread may have 255, an SM has 4096" in few.reason


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
    assert ask().cluster
    assert not ask(hardware=far).cluster  # the second pass finds all rows in L2
    assert "L2" in ask(hardware=far).reason


def test_half_the_bytes_move_the_crossover():
    assert ask(dtype="bf16").crossover_cols > ask().crossover_cols


def test_timings_replace_predictions():
    found = ask(timing_s={"triton": 0.8e-3, "reread": 1.1e-3})
    assert found.seconds("triton") == 0.8e-3
    assert [each.name for each in found.times if each.timed] == ["reread", "triton"]
    assert found.seconds("torch_compile") == ask().seconds("torch_compile")
    # a faster memory than the profile says makes the cluster faster too
    assert found.seconds("cluster", 8) < ask().seconds("cluster", 8)


@pytest.mark.parametrize("name", SIX)
@pytest.mark.parametrize("cols", [4096, 18432, 65536])
def test_a_timing_as_predicted_changes_nothing(name, cols):
    before = ask(name, cols=cols)
    for other in ("staged", "reread", "triton", "torch_compile"):
        if before.seconds(other) is None:
            continue
        after = ask(name, cols=cols, timing_s={other: before.seconds(other)})
        assert [each.seconds for each in after.times] == [each.seconds for each in before.times]
        assert (after.cluster, after.cluster_size, after.margin) == (before.cluster, before.cluster_size, before.margin)
        assert after.best.name == before.best.name
        untimed = [(each.seconds_low, each.seconds_high) for each in after.times if not each.timed]
        assert untimed == [(each.seconds_low, each.seconds_high) for each in before.times if each.name != other]
    unnamed = ask(name, cols=cols, timing_s=before.best_other.seconds)
    assert (unnamed.cluster, unnamed.cluster_size, unnamed.margin) == (
        before.cluster,
        before.cluster_size,
        before.margin,
    )


def test_timings_scale_the_dram_part_by_hand():
    before = ask()
    base, cluster = before.best_other, before.best_cluster
    found = ask(timing_s={base.name: 1.25 * base.seconds})
    expected = cluster.seconds + 0.25 * cluster.dram_seconds
    assert found.seconds("cluster", cluster.cluster) == pytest.approx(expected)
    # ends keep their distance, relative to the likely time
    after = found.best_cluster
    assert after.seconds_high / after.seconds == pytest.approx(cluster.seconds_high / cluster.seconds)
    assert after.seconds_low / after.seconds == pytest.approx(cluster.seconds_low / cluster.seconds)


def test_timings_with_a_control_by_hand():
    before = ask()
    found = ask(timing_s=1e-3, control_s={8: 30e-6})  # of the kernel to take without a cluster
    moved = next(each for each in before.times if (each.name, each.cluster) == ("cluster", 8)).dram_seconds
    expected = 1e-3 / before.best_other.seconds * moved + 30e-6
    assert found.seconds("cluster", 8) == pytest.approx(expected)
    assert found.seconds("cluster", 4) == ask(timing_s=1e-3).seconds("cluster", 4)


def test_nothing_is_faster_than_the_fastest_that_was_timed():
    found = ask(cols=18432, timing_s=300e-6)
    assert min(each.seconds for each in found.times if each.name != "cluster") == 300e-6
    assert found.best_other.seconds == 300e-6


@settings(max_examples=60)
@given(st.sampled_from(SIX), st.integers(1, 200_000), st.floats(1e-9, 1e3), st.none() | st.floats(0, 1.0))
def test_margins_lie_in_their_intervals(name, cols, timing, control):
    options = {"timing_s": timing} | ({} if control is None else {"control_s": {4: control}})
    for found in (ask(name, cols=cols), ask(name, cols=cols, **options)):
        if found.margin is not None:
            assert found.margin_low <= found.margin <= found.margin_high
        for each in found.times:
            assert each.seconds is None or 0 < each.seconds_low <= each.seconds <= each.seconds_high
        json.dumps(found.to_dict(), allow_nan=False)


def test_a_crossover_is_where_the_flag_begins_to_hold():
    for name in SIX:
        first = ask(name).crossover_cols
        for cols in WIDTHS[(first - 4096 <= WIDTHS) & (first + 8192 >= WIDTHS)]:
            found = ask(name, cols=int(cols))
            assert found.cluster or cols != first
            assert cols < first or found.margin >= 1 / 1.02


def test_crossovers_in_words():
    assert _crossover(replace(ask(), crossover_cols=None)) == "pays here, but not at every wider row"
    later = "pays here, but not at every wider row; at all that were tried from 131072 columns on"
    assert _crossover(replace(ask(), crossover_cols=131072)) == later
    assert _crossover(replace(ask(cols=4096), crossover_cols=None)) == "none up to 262144 columns"
    assert _crossover(replace(ask(), crossover_cols=8192)) == "8192 columns"


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
        ({"timing_s": 10**400}, ConfigError, "timing_s = .*; give seconds, more than 0, at most 1e9"),
        ({"timing_s": 1e300}, ConfigError, "timing_s = 1e.300; give seconds"),
        ({"timing_s": 1.0, "control_s": {4.0: 1.0}}, ConfigError, "control_s has 4.0; cluster sizes are"),
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
    with pytest.raises(ConfigError, match="cluster = 3 of cluster; known: 2, 4, 8, 16"):
        ask().seconds("cluster", 3)
    with pytest.raises(ConfigError, match="cluster = 2 of triton; known: 1"):
        ask().seconds("triton", 2)


def test_missing_numbers_are_named():
    with pytest.raises(UnsupportedError, match=r"no dsmem\.2\.round_trip_cycles") as caught:
        ask(hardware=H200.with_numbers({"dsmem.2.round_trip_cycles": None}, {}))
    assert caught.value.field == "dsmem.2.round_trip_cycles"
