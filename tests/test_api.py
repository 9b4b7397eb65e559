import copy
import json
import math
import os
import pickle
import subprocess
import sys
import time
from dataclasses import FrozenInstanceError, asdict, replace
from pathlib import Path

import numpy as np
import pytest

import tilesight
from tilesight import (
    ConfigError,
    Estimate,
    Gemm,
    GemmConfig,
    ProblemError,
    UnknownProfileError,
    UnsupportedError,
    explain,
    load_profile,
    predict,
    predict_many,
    rank,
    rank_many,
)
from tilesight.cost.estimate import State
from tilesight.errors import TilesightError
from tilesight.kernels.gemm_config import MAX_SIZE
from tilesight.report import text

LARGE = Gemm(4096, 4096, 4096)
GOOD = GemmConfig(128, 256, 64, stages=4)
FAMILIES = [
    GOOD,
    GemmConfig(128, 128, 64, stages=3, kernel="cp_async"),
    GemmConfig(128, 128, 64, stages=3, kernel="tma_persistent"),
    GemmConfig(16, 128, 64, stages=6, swap_ab=True, cluster_n=2),
    GemmConfig(128, 128, 64, stages=4, split_k=3, cluster_m=2),
    GemmConfig(32, 64, 64, stages=1, warps=4, kernel="cp_async"),
]
"""One of each kind of launch: three families, a swapped tile, a split, mma.sync with one stage."""
PROBLEMS = [LARGE, Gemm(64, 4096, 1024), Gemm(1000, 1024, 16384), Gemm(1, 128, 512), Gemm(8192, 1024, 256)]


def launches():
    return [(problem, config) for problem in PROBLEMS for config in FAMILIES]


def numbers_in(value):
    """Every number in plain data, by place."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from ((f"{key}.{place}", number) for place, number in numbers_in(item))
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from ((f"{index}.{place}", number) for place, number in numbers_in(item))
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield "", value


# --- options ---


def test_hardware_is_a_profile_a_name_or_a_file(hw, tmp_path):
    from tilesight.hardware.write import to_toml

    path = tmp_path / "made_up.toml"
    path.write_text(to_toml(hw), encoding="utf-8")
    by_profile, by_path, by_text = (predict(LARGE, GOOD, hardware=hardware) for hardware in (hw, path, str(path)))
    assert by_profile.seconds == by_path.seconds == by_text.seconds
    with pytest.raises(UnknownProfileError, match=r"no hardware profile 'h20'.*Did you mean 'h200_sxm'\?"):
        predict(LARGE, GOOD, hardware="h20")


@pytest.mark.parametrize("bad", [None, 5, b"h200_sxm", ["h200_sxm"], {}])
def test_hardware_of_another_kind(bad):
    for call in (
        lambda: predict(LARGE, GOOD, hardware=bad),
        lambda: predict_many([LARGE], [GOOD], hardware=bad),
        lambda: rank(LARGE, [GOOD], hardware=bad),
    ):
        with pytest.raises(ConfigError, match=f"hardware is a {type(bad).__name__}; give a Profile, its name or its"):
            call()


def test_cache(hw):
    small = Gemm(512, 512, 512)
    warm, cold = (predict(small, GOOD, hardware=hw, cache=cache) for cache in ("warm", "cold"))
    assert warm.seconds < cold.seconds
    assert warm.dram_read_bytes == 0 < cold.dram_read_bytes
    assert (warm.state, cold.state) == (State(cache="warm"), State(cache="cold"))
    assert predict(small, GOOD, hardware=hw) == warm
    for bad in ("hot", "", 1, ["warm"], np.array(["warm", "cold"])):
        with pytest.raises(ConfigError, match="cache = .*; known: warm, cold"):
            predict(small, GOOD, hardware=hw, cache=bad)


def test_clock(hw):
    burst, sustained = (predict(LARGE, GOOD, hardware=hw, clock=clock) for clock in ("burst", "sustained"))
    assert burst.seconds < sustained.seconds
    assert burst.clock_hz > sustained.clock_hz
    assert (burst.state, sustained.state) == (State(clock="burst"), State(clock="sustained"))
    given = [predict(LARGE, GOOD, hardware=hw, clock=seconds) for seconds in (0, 0.05, 1000.0)]
    # for ever, though it is more than the law's logarithm holds
    assert predict(LARGE, GOOD, hardware=hw, clock=1e308).seconds == sustained.seconds
    # 0 s under load is the burst clock
    assert [(estimate.state.clock, estimate.state.busy_s) for estimate in given] == [
        ("burst", None),
        (None, 0.05),
        (None, 1000.0),
    ]
    assert given[0].seconds == burst.seconds < given[1].seconds < given[2].seconds == sustained.seconds


@pytest.mark.parametrize(
    "bad", ["boost", "", None, True, -1.0, float("nan"), ["burst"], [[1.0], [1.0, 2.0]], {}, 1j, np.ma.masked]
)
def test_bad_clock(hw, bad):
    for call in (
        lambda: predict(LARGE, GOOD, hardware=hw, clock=bad),
        lambda: rank(LARGE, [GOOD], hardware=hw, clock=bad),
    ):
        with pytest.raises(ConfigError, match="clock = "):
            call()


def test_clock_launch_by_launch(hw):
    many = predict_many([LARGE], [GOOD] * 3, hardware=hw, clock=[0.0, 0.05, 1000.0])
    for row, seconds in enumerate((0.0, 0.05, 1000.0)):
        assert many.seconds[row] == predict(LARGE, GOOD, hardware=hw, clock=seconds).seconds
    for call in (
        lambda: predict_many([LARGE], [GOOD] * 3, hardware=hw, clock=[0.0, 1.0]),
        lambda: rank(LARGE, [GOOD] * 3, hardware=hw, clock=[0.0, 1.0]),
    ):
        with pytest.raises(
            ConfigError, match=r"clock has shape \(2,\); give one number, or one for each of 3 launches"
        ):
            call()


def test_resident(hw):
    cold = predict(LARGE, GOOD, hardware=hw, cache="cold")
    assert predict(LARGE, GOOD, hardware=hw, resident={}).seconds == cold.seconds
    assert predict(LARGE, GOOD, hardware=hw, resident={"a": 0.0, "b": 0}).seconds == cold.seconds
    half, one, both = (
        predict(LARGE, GOOD, hardware=hw, resident=shares).dram_read_bytes
        for shares in ({"a": 0.5}, {"a": 1}, {"a": 1.0, "b": 1.0})
    )
    # A is half of the operands
    first = 2 * 4096 * 4096 * 2
    assert cold.dram_read_bytes - half == pytest.approx(first / 4)
    assert cold.dram_read_bytes - one == pytest.approx(first / 2)
    assert cold.dram_read_bytes - both == pytest.approx(first)


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({"d": 0.5}, "resident tensor 'd'; known: a, b, c"),
        ({"a": 1.5}, r"resident\['a'\] = 1.5 is not a share in 0..1"),
        ({"a": -0.1}, r"resident\['a'\] = -0.1 is not a share"),
        ({"a": float("nan")}, r"resident\['a'\] = nan is not a share"),
        ({"a": True}, r"resident\['a'\] = True is not a share"),
        ({"a": "0.5"}, r"resident\['a'\] = '0.5' is not a share"),
        ({"a": None}, r"resident\['a'\] = None is not a share"),
        (["a"], "resident is a list; give shares by tensor"),
        (0.5, "resident is a float; give shares by tensor"),
        ("a", "resident is a str; give shares by tensor"),
    ],
)
def test_bad_resident(hw, bad, message):
    with pytest.raises(ConfigError, match=message):
        predict(LARGE, GOOD, hardware=hw, resident=bad)


def test_cache_and_resident_exclude_each_other(hw):
    for call in (predict, lambda problem, config, **options: rank(problem, [config], **options)):
        with pytest.raises(
            ConfigError, match="cache = 'warm' and resident both say what is in L2; give one of the two"
        ):
            call(LARGE, GOOD, hardware=hw, cache="warm", resident={"a": 1})


def test_numpy_scalars_are_numbers(hw):
    half = predict(LARGE, GOOD, hardware=hw, dirty_bytes=np.float16(1))  # which holds less than the limit of bytes
    assert half.state.dirty_bytes == 1.0
    given = {"sms": np.int64(60), "dirty_bytes": np.float32(1), "clock": np.float64(0.5)}
    plain = {"sms": 60, "dirty_bytes": 1.0, "clock": 0.5}
    assert predict(LARGE, GOOD, hardware=hw, **given) == predict(LARGE, GOOD, hardware=hw, **plain)
    estimate = predict(LARGE, GOOD, hardware=hw, dirty_bytes=np.int64(5), resident={"a": np.float32(0.5)})
    json.dumps(estimate.to_dict())
    assert (estimate.state.dirty_bytes, estimate.state.resident) == (5.0, {"a": 0.5})
    assert len(rank(LARGE, hardware=hw, top=np.int64(3))) == 3
    problem = Gemm(np.int64(64), 64, 64, beta=np.float32(0.5), bias=np.bool_(True), layout_a=np.str_("row"))
    config = GemmConfig(64, np.int32(64), 64, stages=2, swap_ab=np.bool_(False), kernel=np.str_("cp_async"))
    for value in (*asdict(problem).values(), *asdict(config).values()):
        assert type(value) in (int, float, bool, str, type(None))
    for bad in (np.bool_(True), np.float64(5), np.int64(101)):
        with pytest.raises(ConfigError, match="sms = "):
            predict(LARGE, GOOD, hardware=hw, sms=bad)
    for bad in (np.bool_(True), np.float32("nan"), np.int64(-1), np.str_("5")):
        with pytest.raises(ConfigError, match="dirty_bytes = "):
            predict(LARGE, GOOD, hardware=hw, dirty_bytes=bad)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: load_profile("x" * 5000 + ".toml"), "no profile file 'xxx"),
        (lambda: load_profile("\0.toml"), "no profile file"),
        (lambda: Gemm(10**5000, 1, 1), "m = an integer of 16610 bits is outside"),
        (lambda: Gemm(1, 1, 1, beta=10**400), "beta = 1000.* is not a finite number"),
        (lambda: Gemm(1, 1, 1, dtype=10**5000), "dtype = an integer of 16610 bits is no data type"),
        (lambda: Gemm(1, 1, 1, output=np.array([1, 2])), "no data type"),
        (lambda: Gemm(64, 64, 64, layout_a=np.array(["row", "column"])), "layout_a = array.*; known: column, row"),
        (lambda: GemmConfig(64, 64, 64, stages=10**5000), "stages = an integer of 16610 bits is outside"),
        (lambda: GemmConfig(64, 64, 64, stages=2, kernel=np.array(["tma"] * 2)), "kernel = array"),
        (lambda: predict(LARGE, GOOD, hardware="h200_sxm", cache=np.array(["warm", "cold"])), "cache = array"),
        (lambda: predict(LARGE, GOOD, hardware="h200_sxm", sms=10**5000), "sms = an integer of 16610 bits"),
        (lambda: predict(LARGE, GOOD, hardware="h200_sxm", dirty_bytes=10**5000), "dirty_bytes = an integer"),
        (lambda: predict(LARGE, GOOD, hardware="h200_sxm", clock=10**5000), "clock = an integer"),
        (lambda: predict(LARGE, GOOD, hardware="h200_sxm", resident={"a": 10**5000}), "resident.* an integer"),
        (lambda: predict_many([LARGE], [GOOD], hardware="h200_sxm", skip_refused="no"), "skip_refused = 'no'"),
        (lambda: predict_many([LARGE], [GOOD], hardware="h200_sxm").column(["seconds"]), r"no column \['seconds'\]"),
        (lambda: rank(LARGE, np.array(5), hardware="h200_sxm"), "candidates is a ndarray; give a list of GemmConfig"),
        (lambda: predict_many([LARGE], [GOOD], hardware="h200_sxm")[1.5], "1.5 is no place in a list; give a whole"),
        (lambda: rank(LARGE, [GOOD], hardware="h200_sxm")[1.5], "1.5 is no place in a list; give a whole number"),
        (lambda: rank_many([LARGE], [GOOD], hardware="h200_sxm")["a"], "'a' is no place in a list"),
        (lambda: rank_many([LARGE, 5], [GOOD], hardware="h200_sxm"), "a int stands in the list of Gemm"),
        (lambda: rank_many([LARGE], [GOOD], hardware="h200_sxm", skip_refused=1), "skip_refused = 1 is not True"),
        (lambda: rank_many([LARGE], [], hardware="h200_sxm", skip_refused=True), "no candidates to rank"),
        (lambda: rank_many([LARGE], hardware="h200_sxm", top=0, skip_refused=True), "top = 0; give a whole number"),
        (lambda: load_profile(None), "None is no profile; give a Profile, its name or the path of its TOML file"),
        (lambda: load_profile(5), "5 is no profile"),
        (lambda: load_profile(b"h200_sxm"), "b'h200_sxm' is no profile"),
        (lambda: load_profile("h200_sxm").get(5), "5 is no name of a number"),
        (lambda: load_profile("h200_sxm").require(["a"]), r"\['a'\] is no name of a number"),
    ],
)
def test_input_of_the_wrong_kind_is_refused_by_name(call, message):
    with pytest.raises(TilesightError, match=message):
        call()


def test_batches_are_frozen_and_compared_by_identity(hw):
    batch, ranking = predict_many([LARGE], [GOOD], hardware=hw), rank(LARGE, [GOOD], hardware=hw)
    for values in (batch.seconds, batch.binding, batch.positions, batch.column("resident_after")):
        with pytest.raises(ValueError, match="read-only"):
            values[0] = 5
    assert batch == batch
    assert ranking == ranking
    assert batch != predict_many([LARGE], [GOOD], hardware=hw)
    assert len({batch, ranking}) == 2
    assert repr(ranking) == "Ranking(1 configuration of gemm 4096 x 4096 x 4096 bf16 on h200_sxm)"


def test_resident_launch_by_launch(hw):
    many = predict_many([LARGE], [GOOD] * 2, hardware=hw, resident={"a": [0.0, 1.0]})
    assert many.seconds[1] == predict(LARGE, GOOD, hardware=hw, resident={"a": 1.0}).seconds
    with pytest.raises(ConfigError, match=r"resident\['a'\] has shape \(3,\); give one number, or one for each of 2"):
        predict_many([LARGE], [GOOD] * 2, hardware=hw, resident={"a": [0.0, 1.0, 0.5]})


def test_sms(hw):
    every, half, one = (predict(LARGE, GOOD, hardware=hw, sms=sms) for sms in (100, 50, 1))
    assert every.seconds == predict(LARGE, GOOD, hardware=hw).seconds
    assert every.seconds < half.seconds < one.seconds
    # 512 tiles: on 50 SMs 11 rounds, on one 512
    assert (half.rounds, one.rounds) == (11, 512)
    for bad in (0, -1, 101, 1.0, True, "50", float("nan")):
        with pytest.raises(ConfigError, match=r"sms = .* has 100: give 1..100"):
            predict(LARGE, GOOD, hardware=hw, sms=bad)
    with pytest.raises(ConfigError, match="cluster 2x1 wants as many SMs at once; 1 may be used"):
        predict(LARGE, replace(GOOD, cluster_m=2), hardware=hw, sms=1)


def test_dirty_bytes(hw):
    # a product that DRAM binds: one k-step for each tile written
    problem = Gemm(8192, 8192, 64)
    clean, dirty = (predict(problem, GOOD, hardware=hw, cache="cold", dirty_bytes=size) for size in (0, 3e7))
    assert clean.seconds < dirty.seconds
    for bad in (-1, float("nan"), float("inf"), True, "1", None):
        with pytest.raises(ConfigError, match="dirty_bytes = .*; give bytes, 0 or more"):
            predict(problem, GOOD, hardware=hw, dirty_bytes=bad)


def test_no_configuration_takes_the_best(hw):
    for problem in (LARGE, Gemm(16, 4096, 4096), Gemm(256, 256, 8192)):
        best = rank(problem, hardware=hw, cache="cold", clock="burst")
        assert predict(problem, hardware=hw, cache="cold", clock="burst") == best[0]


@pytest.mark.parametrize("bad", [None, (4096, 4096, 4096), "4096x4096x4096", GOOD])
def test_what_is_no_problem(hw, bad):
    for call in (lambda: predict(bad, GOOD, hardware=hw), lambda: rank(bad, hardware=hw)):
        with pytest.raises(ProblemError, match=f"problem is a {type(bad).__name__}; give a tilesight.Gemm"):
            call()


def test_what_is_no_configuration(hw):
    with pytest.raises(ConfigError, match="a str stands in the list of GemmConfig"):
        predict(LARGE, "128x256x64", hardware=hw)
    with pytest.raises(ConfigError, match="give a list of Gemm, not a Gemm"):
        predict_many(LARGE, [GOOD], hardware=hw)
    with pytest.raises(ConfigError, match="give a list of GemmConfig, not a GemmConfig"):
        predict_many([LARGE], GOOD, hardware=hw)
    with pytest.raises(
        ConfigError, match="configs = None: give a list of GemmConfig; rank_many chooses the best one of each"
    ):
        predict_many([LARGE], None, hardware=hw)
    with pytest.raises(ConfigError, match="a NoneType stands in the list of Gemm"):
        predict_many([None], [GOOD], hardware=hw)
    with pytest.raises(ConfigError, match="a Gemm stands among the candidates"):
        rank(LARGE, [LARGE], hardware=hw)
    with pytest.raises(ConfigError, match="candidates is a GemmConfig; give a list of GemmConfig"):
        rank(LARGE, GOOD, hardware=hw)


@pytest.mark.parametrize(("problems", "configs"), [(0, 1), (1, 0), (2, 3)])
def test_lists_that_do_not_fit(hw, problems, configs):
    with pytest.raises(ConfigError, match=f"{problems} problems? and {configs} configurations?:|no problems to price"):
        predict_many([LARGE] * problems, [GOOD] * configs, hardware=hw)


def test_rank_many_is_rank_of_each(hw):
    many = rank_many(PROBLEMS[:3], hardware=hw, top=2, clock="burst")
    assert len(many) == len(many[:3]) == 3
    for ranking, problem in zip(many, PROBLEMS, strict=False):
        assert list(ranking) == list(rank(problem, hardware=hw, top=2, clock="burst"))
    with pytest.raises(ConfigError, match="no problems"):
        rank_many([], hardware=hw)
    with pytest.raises(ConfigError, match="give a list of Gemm, not a Gemm"):
        rank_many(LARGE, hardware=hw)


def test_rank_many_takes_candidates_from_a_generator(hw):
    given = [GOOD, FAMILIES[1]]
    several = rank_many([LARGE, PROBLEMS[1]], (config for config in given), hardware=hw)
    assert [list(ranking) for ranking in several] == [list(rank(p, given, hardware=hw)) for p in (LARGE, PROBLEMS[1])]


def test_rank_many_names_the_problem_that_can_not_be_ranked(hw):
    odd, other = Gemm(64, 64, 60), Gemm(64, 64, 64, dtype="nvfp4")
    with pytest.raises(
        ConfigError, match="^problem 1: the only candidate is not legal for gemm 64 x 64 x 60 bf16; m = 64"
    ):
        rank_many([LARGE, odd], [GOOD], hardware=hw)
    with pytest.raises(UnsupportedError, match="^problem 1: sm_90 has no nvfp4") as caught:
        rank_many([LARGE, other, odd], hardware=hw)
    assert caught.value.field == "tensor.nvfp4"
    with pytest.raises(UnsupportedError, match="^sm_90 has no nvfp4"):
        rank_many([other], hardware=hw)
    found = rank_many([odd, LARGE, other], [GOOD], hardware=hw, skip_refused=True)
    assert [list(ranking) for ranking in found] == [list(rank(LARGE, [GOOD], hardware=hw))]
    assert found.positions == (1,)
    assert [(place, reason[:20]) for place, reason in found.refusals] == [
        (0, "the only candidate i"),
        (2, "sm_90 has no nvfp4 m"),
    ]
    data = found.to_dict()
    assert [entry["index"] for entry in data["rankings"]] == [1]
    assert data["refused"] == [{"index": place, "reason": reason} for place, reason in found.refusals]
    page = text(found, width=200)
    assert page.startswith("3 problems on h200_sxm\n")
    assert "problem 2: sm_90 has no nvfp4" in page
    nothing = rank_many([other], hardware=hw, skip_refused=True)
    assert len(nothing) == 0
    assert text(nothing).startswith("1 problem, none of which can be ranked\n")


def test_what_is_said_of_an_array_stays_on_one_line(hw):
    masked = np.ma.masked_array(np.ones((3, 3)), mask=np.eye(3))
    with pytest.raises(ConfigError) as caught:
        predict(LARGE, GOOD, hardware=hw, clock=masked)
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith("clock = masked_array(")


def test_skip_refused(hw):
    bad = GemmConfig(128, 256, 64, stages=9)
    found = predict_many([LARGE], [GOOD, bad, FAMILIES[1]], hardware=hw, skip_refused=True)
    assert len(found) == 2
    assert found.positions.tolist() == [0, 2]
    assert [estimate.config for estimate in found] == [str(GOOD), str(FAMILIES[1])]
    ((row, reason),) = found.refusals
    assert row == 1
    assert "B more than the 232448 B a CTA can have" in reason
    with pytest.raises(ConfigError, match="^configuration 1: 9 stages"):
        predict_many([LARGE], [GOOD, bad], hardware=hw)


def test_all_refused_is_an_empty_batch(hw):
    found = predict_many([LARGE], [GemmConfig(128, 256, 64, stages=9)] * 2, hardware=hw, skip_refused=True)
    assert len(found) == 0
    assert found.seconds.shape == found.roofline_s.shape == found.binding.shape == (0,)
    assert found.column("dram_read_bytes").tolist() == []
    assert list(found) == []
    assert [row for row, _ in found.refusals] == [0, 1]


# --- estimates ---


def test_columns_are_those_of_the_estimates(hw):
    problems, configs = zip(*launches(), strict=True)
    found = predict_many(problems, configs, hardware=hw, cache="cold")
    for row, estimate in enumerate(found):
        assert found.seconds[row] == estimate.seconds
        assert found.roofline_s[row] == estimate.roofline_s
        assert found.binding[row] == estimate.binding
        assert found.column("term:epilogue")[row] == estimate.terms["epilogue"]
        assert found.column("busy:dram")[row] == estimate.busy_s["dram"]
        assert estimate.problem == str(problems[row])
        assert estimate.config == str(configs[row])
    with pytest.raises(ConfigError, match="no column 'time'; known: seconds, "):
        found.column("time")
    with pytest.raises(IndexError):
        found[len(found)]
    assert found[-1] == found[len(found) - 1]
    assert found[:2] == [found[0], found[1]]


def test_batch_equals_one_by_one(hw, differences):
    # every kind of launch in one list, in an order that mixes them
    mixed = launches()
    np.random.default_rng(7).shuffle(mixed)
    problems, configs = zip(*mixed, strict=True)
    many = predict_many(problems, configs, hardware=hw, clock=0.01)
    for row, (problem, config) in enumerate(mixed):
        assert not differences(many[row], predict(problem, config, hardware=hw, clock=0.01))


def test_same_inputs_same_bits(hw):
    code = (
        "import sys, pickle, tilesight; problem, config, hardware = pickle.load(sys.stdin.buffer);"
        "print(tilesight.predict(problem, config, hardware=hardware).to_dict())"
    )
    said = set()
    for seed in ("0", "1"):
        asked = pickle.dumps((Gemm(1000, 1024, 16384), FAMILIES[1], hw))
        run = subprocess.run(
            [sys.executable, "-c", code],
            input=asked,
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": str(Path(tilesight.__file__).parents[1])},
            capture_output=True,
            check=True,
        )
        said.add(run.stdout.decode())
    said.add(f"{predict(Gemm(1000, 1024, 16384), FAMILIES[1], hardware=hw).to_dict()}{os.linesep}")
    assert len(said) == 1


@pytest.mark.parametrize("cache", ["warm", "cold"])
def test_an_estimate_holds_together(hw, cache):
    problems, configs = zip(*launches(), strict=True)
    for estimate in predict_many(problems, configs, hardware=hw, cache=cache):
        data = estimate.to_dict()
        assert all(math.isfinite(number) for _, number in numbers_in(data))
        assert sum(estimate.terms.values()) == pytest.approx(estimate.seconds, abs=1e-12, rel=0)
        assert min(estimate.terms.values()) >= 0
        assert estimate.seconds > 0
        assert estimate.roofline_s > 0
        assert 0 < estimate.share_of_peak <= 1
        assert estimate.flop_per_s == pytest.approx(estimate.flop / estimate.seconds)
        assert all(0 <= share <= 1 + 1e-12 for share in estimate.busy_share.values()), estimate.busy_share
        assert 0 <= estimate.l2_hit_rate <= 1
        assert estimate.margin is None or estimate.margin >= 1
        assert set(estimate.resident_after) == {"a", "b", "c"}
        assert estimate.hardware_hash == hw.hash
        assert (estimate.seconds_low, estimate.seconds_high) == (None, None)  # this profile knows no spread


def test_likely_interval(hw, altered):
    known = altered(hw, {"uncertainty.tensor": 0.1})
    estimate = predict(LARGE, GOOD, hardware=known)
    assert estimate.binding == "tensor"
    assert estimate.seconds_low == pytest.approx(estimate.seconds / 1.1)
    assert estimate.seconds_high == pytest.approx(estimate.seconds * 1.1)


def test_likely_counters_by_hand(hw, altered):
    widths = {"lockstep.dram_read": 0.25, "drift.dram_read": 1.0, "lockstep.hit_rate": 0.1, "lockstep.lookup": 0.5}
    known = altered(hw, {f"cache_uncertainty.{name}": width for name, width in widths.items()})
    estimate = predict(Gemm(1024, 1024, 1024), GOOD, hardware=known, cache="cold")
    assert estimate.cache_regime == "lockstep"
    read, looked_up, hit = estimate.dram_read_bytes, estimate.lookup_bytes, estimate.l2_hit_rate
    assert estimate.likely["dram_read_bytes"] == pytest.approx((read / 1.25, read * 1.25))
    assert estimate.likely["lookup_bytes"] == pytest.approx((looked_up / 1.5, looked_up * 1.5))
    assert estimate.likely["l2_hit_rate"] == pytest.approx((max(hit - 0.1, 0), min(hit + 0.1, 1)))
    # deep k in rounds of CTAs: the interval of drift, and none of lookups and hits, which nobody knows there
    late = predict(Gemm(8192, 8192, 65536), GemmConfig(128, 256, 64, 3, group_m=1), hardware=known, cache="cold")
    assert late.cache_regime == "drift"
    assert list(late.likely) == ["dram_read_bytes"]
    assert late.likely["dram_read_bytes"] == pytest.approx((late.dram_read_bytes / 2, late.dram_read_bytes * 2))
    # a batch has the same in columns, and nan for what is not known
    batch = predict_many([Gemm(1024, 1024, 1024), Gemm(8192, 8192, 65536)], [GOOD], hardware=known, cache="cold")
    low, high = batch.likely("dram_read_bytes")
    assert [low[0], high[0]] == pytest.approx(estimate.likely["dram_read_bytes"])
    assert np.isnan(batch.likely("l2_hit_rate")[0]).tolist() == [False, True]
    with pytest.raises(ConfigError, match="no likely interval of 'seconds'; known: dram_read_bytes, lookup_bytes"):
        batch.likely("seconds")


def test_few_reads_have_no_likely_interval(hw, altered):
    # a repeated product that fits reads next to nothing: by how much that is off, nobody knows
    known = altered(hw, {"cache_uncertainty.lockstep.dram_read": 0.25, "cache_uncertainty.edge.dram_read": 0.25})
    warm, cold = (predict(Gemm(256, 256, 256), GOOD, hardware=known, cache=cache) for cache in ("warm", "cold"))
    assert warm.dram_read_bytes < 0.001 * warm.compulsory_bytes < cold.dram_read_bytes
    assert "dram_read_bytes" not in warm.likely
    assert "dram_read_bytes" in cold.likely
    batch = predict_many([Gemm(256, 256, 256)], [GOOD], hardware=known)
    assert np.isnan(batch.likely("dram_read_bytes")).all()


def test_gpcs_that_nobody_counted_are_said(hw, altered):
    text = "gpc.count is not known: all SMs are taken for one group whose requests can merge"
    assert text not in predict(LARGE, GOOD, hardware=hw).assumptions
    assert text in predict(LARGE, GOOD, hardware=altered(hw, {"gpc.count": None})).assumptions
    assert text in predict(LARGE, hardware="mi210").assumptions


def test_late_ctas_look_up_what_they_fetch():
    deep = Gemm(4096, 1024, 2**20, layout_a="column", bias=True)
    config = GemmConfig(128, 32, 128, stages=2, group_m=2**20)
    for estimate in (
        predict(deep, config, hardware="b300_sxm"),
        predict(Gemm(1000, 256, 2**20, dtype="tf32"), GemmConfig(128, 64, 32, stages=3), hardware="h200_sxm"),
    ):
        assert estimate.drift_read_bytes > 0.3 * estimate.dram_read_bytes
        assert estimate.dram_read_bytes <= estimate.lookup_bytes <= estimate.requested_bytes


def test_nobody_reads_more_than_is_asked(h200):
    draw = np.random.default_rng(5)
    sizes = [100, 1024, 4096, 16384, 65536, 2**20]
    problems = [Gemm(*(int(size) for size in draw.choice(sizes, 3))) for _ in range(600)]
    configs = [replace(FAMILIES[i], group_m=int(draw.integers(1, 64))) for i in draw.integers(len(FAMILIES), size=600)]
    found = predict_many(problems, configs, hardware=h200, cache="cold", skip_refused=True)
    read, looked_up, asked = (found.column(f"{name}_bytes") for name in ("dram_read", "lookup", "requested"))
    assert np.all(read <= looked_up * (1 + 1e-9))
    wraps = found.column("kernel") == "gemm.cp_async"  # threads that load by pointer look up the rows outside too
    assert np.all((looked_up <= asked * (1 + 1e-9)) | wraps)


def test_no_term_is_rounding(hw):
    problems, configs = zip(*launches(), strict=True)
    for estimate in predict_many(problems, configs, hardware=hw):
        assert all(value == 0 or abs(value) >= 1e-12 * estimate.seconds for value in estimate.terms.values())


def test_likely_ranges_are_checked(hw):
    data = predict(LARGE, GOOD, hardware=hw).to_dict()
    for bad in ({"seconds": [1, 2]}, {"dram_read_bytes": [2, 1]}, {"dram_read_bytes": [1]}, {"l2_hit_rate": 3}, [1, 2]):
        with pytest.raises(ConfigError, match="estimate field likely = "):
            Estimate.from_dict({**data, "likely": bad})


def test_round_trip(hw):
    for problem, config in launches():
        estimate = predict(problem, config, hardware=hw)
        through_json = json.loads(json.dumps(estimate.to_dict(), allow_nan=False))
        assert Estimate.from_dict(through_json) == estimate
        assert Estimate.from_dict(estimate.to_dict()).to_dict() == estimate.to_dict()


def test_estimates_can_be_copied_and_sent(hw):
    estimate = predict(LARGE, GOOD, hardware=hw)
    assert pickle.loads(pickle.dumps(estimate)) == estimate
    assert copy.deepcopy(estimate) == estimate
    many = predict_many([LARGE], FAMILIES[:2], hardware=hw)
    assert list(pickle.loads(pickle.dumps(many))) == list(many)


def test_estimates_are_frozen(hw):
    estimate = predict(LARGE, GOOD, hardware=hw)
    with pytest.raises(FrozenInstanceError):
        estimate.seconds = 0
    with pytest.raises(TypeError):
        estimate.terms["start"] = 0
    with pytest.raises(TypeError):
        estimate.busy_share["dram"] = 0


def test_from_dict_refuses(hw):
    data = predict(LARGE, GOOD, hardware=hw).to_dict()
    with pytest.raises(ConfigError, match=r"not an estimate of schema 'tilesight.estimate/4': found 'x'"):
        Estimate.from_dict(data | {"schema": "x"})
    for bad in ([], None, "text"):
        with pytest.raises(ConfigError, match=f"found '{type(bad).__name__}'"):
            Estimate.from_dict(bad)
    with pytest.raises(ConfigError, match="missing or unknown fields: extra"):
        Estimate.from_dict(data | {"extra": 1})
    without = {name: value for name, value in data.items() if name != "flop"}
    with pytest.raises(ConfigError, match="missing or unknown fields: flop"):
        Estimate.from_dict(without)
    for bad in (float("nan"), float("inf"), "1", True, None):
        with pytest.raises(ConfigError, match="estimate field seconds = .* makes no sense"):
            Estimate.from_dict(data | {"seconds": bad})
    for changes in ({"ctas": 0}, {"rounds": 0}, {"ctas_per_sm": 0}, {"split_k": 0}, {"period_s": {}, "margin": None}):
        with pytest.raises(ConfigError, match=f"estimate field {next(iter(changes))} = .* makes no sense"):
            Estimate.from_dict(data | changes)
    with pytest.raises(ConfigError, match="estimate field terms = 1 makes no sense"):
        Estimate.from_dict(data | {"terms": 1})
    with pytest.raises(ConfigError, match="missing or unknown fields: 5, extra"):
        Estimate.from_dict(data | {5: 1, "extra": 2})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"likely": {"dram_read_bytes": [1e3, 2e3]}}, "likely = dram_read_bytes: 1000.0 to 2000.0 does not enclose"),
        ({"likely": {"l2_hit_rate": [0.0, 1.5]}}, "likely = l2_hit_rate: 0.0 to 1.5 is no range of shares"),
        ({"likely": {5: [0.0, 1.5]}}, "likely = .* makes no sense"),
        ({"drift_read_bytes": 1e15}, "drift_read_bytes = .* is above dram_read_bytes"),
        ({"regime": "drift", "cache_regime": "lockstep"}, "regime = 'drift' contradicts cache_regime = 'lockstep'"),
        ({"problem_fields": {"m": 0, "n": 1, "k": 1}}, "problem_fields: m = 0 is outside"),
        ({"problem_fields": {"m": 1}}, "problem_fields: .*missing"),
        ({"problem_fields": {"m": 1, "n": 1, "k": 1, "dtype": "bf17"}}, "problem_fields: .*bf17"),
        ({"problem_fields": {5: 1}}, "problem_fields = .* makes no sense"),
        ({"config_fields": {"tile_m": 64, "tile_n": 64, "tile_k": 64, "stages": 0}}, "config_fields: stages = 0"),
        ({"config_fields": {"rows": 64}}, "config_fields: .*rows"),
        ({"resident_after": {"a": 0.5, "b": 0.5}}, "resident_after = .* makes no sense"),
        ({"resident_after": {"a": 0.5, "b": 0.5, "c": 1.5}}, "resident_after = .* makes no sense"),
        ({"terms": {5: 1.0}}, "terms = .* makes no sense"),
    ],
)
def test_from_dict_refuses_contradictions(hw, changes, message):
    data = predict(LARGE, GOOD, hardware=hw, cache="cold").to_dict()
    with pytest.raises(ConfigError, match=f"estimate field {message}"):
        Estimate.from_dict(data | changes)
    launch = data | {"regime": "launch-bound"}
    assert Estimate.from_dict(launch).regime == "launch-bound"


# --- explain ---


def test_explain_one(hw):
    for problem, config in launches():
        estimate = predict(problem, config, hardware=hw)
        why = explain(estimate)
        assert sum(term.seconds for term in why.terms) == pytest.approx(estimate.seconds, abs=1e-12, rel=0)
        assert {term.name: term.seconds for term in why.terms} == dict(estimate.terms)
        sizes = [term.seconds for term in why.terms]
        assert sizes == sorted(sizes, reverse=True)
        assert why.difference_s is None
        assert why.sentences[0].startswith(f"bound by {estimate.binding}: ")
        json.dumps(why.to_dict(), allow_nan=False)


def test_explain_differences_of_300_pairs(hw, altered):
    # other problem, configuration, cache, clock and GPU: the terms always account for the whole difference
    faster = altered(hw, {"dram.bandwidth_read_bytes_per_s": 4.5e12, "sm_count": 96})
    draw = np.random.default_rng(3)
    pool = [
        predict(problem, config, hardware=hardware, cache=cache, clock=clock)
        for problem, config in launches()
        for hardware in (hw, faster)
        for cache, clock in (("warm", "sustained"), ("cold", "burst"))
    ]
    for _ in range(300):
        one, other = (pool[i] for i in draw.integers(len(pool), size=2))
        why = explain(one, other)
        assert why.difference_s == one.seconds - other.seconds
        assert sum(term.difference_s for term in why.terms) == pytest.approx(why.difference_s, abs=1e-12, rel=1e-9)
        for term in why.terms:
            assert term.difference_s == term.seconds - term.other_seconds
        sizes = [abs(term.difference_s) for term in why.terms]
        assert sizes == sorted(sizes, reverse=True)
        assert why.sentences


def test_explain_differences_of_1000_pairs_on_the_shipped_profile(h200):
    draw = np.random.default_rng(5)
    sizes = (1, 64, 100, 512, 1000, 1024, 4096, 8192, 16384)
    problems = [Gemm(*(int(size) for size in draw.choice(sizes, 3))) for _ in range(2000)]
    configs = [FAMILIES[i] for i in draw.integers(len(FAMILIES), size=2000)]
    found = list(predict_many(problems, configs, hardware=h200, skip_refused=True))
    assert len(found) > 1200
    for one, other in draw.integers(len(found), size=(1000, 2)):
        first, second = found[one], found[other]
        terms = explain(first, second).terms
        largest = max(first.seconds, second.seconds)
        assert abs(sum(term.difference_s for term in terms) - (first.seconds - second.seconds)) <= 1e-9 * largest
        assert len({term.name for term in terms}) == len(terms)


def test_explain_says_what_moved(hw):
    wide, tall = (predict(LARGE, replace(GOOD, tile_m=m, tile_n=n), hardware=hw) for m, n in ((128, 256), (256, 128)))
    causes = {cause.name: (cause.value, cause.other_value) for cause in explain(wide, tall).causes}
    assert causes["dram_read_bytes"] == (wide.dram_read_bytes, tall.dram_read_bytes)
    cold = predict(LARGE, GOOD, hardware=hw, cache="cold", sms=50)
    causes = {cause.name for cause in explain(wide, cold).causes}
    assert {"dram_read_bytes", "waves", "rounds"} <= causes
    assert explain(wide, wide).causes == explain(wide).causes == ()


def test_explain_does_not_tell_times_apart_that_print_the_same(hw):
    one = predict(LARGE, GOOD, hardware=hw)
    other = replace(
        one, seconds=one.seconds * 1.0001, terms={**one.terms, "start": one.terms["start"] + one.seconds * 1e-4}
    )
    assert explain(one, other).sentences[0] == explain(other, one).sentences[0] == "takes the same time to 0.05 %"


def test_explain_what_is_no_estimate(hw):
    estimate = predict(LARGE, GOOD, hardware=hw)
    for bad in (None, 1.0, estimate.to_dict()):
        with pytest.raises(ConfigError, match="explain takes Estimates, got a"):
            explain(bad)
    with pytest.raises(ConfigError, match="explain takes Estimates, got a float"):
        explain(estimate, 1.0)
    for batch in (predict_many([LARGE], [GOOD], hardware=hw), rank(LARGE, [GOOD], hardware=hw)):
        said = rf"explain takes one Estimate, not a batch \({type(batch).__name__}\); pick one"
        with pytest.raises(ConfigError, match=said):
            explain(batch)
        with pytest.raises(ConfigError, match=said):
            explain(estimate, batch)


# --- extremes ---

EXTREMES = [(m, n, k) for m in (1, 7, MAX_SIZE) for n in (1, 8, MAX_SIZE - 7) for k in (1, 64, MAX_SIZE)]


@pytest.mark.parametrize("size", EXTREMES, ids=lambda size: "x".join(map(str, size)))
def test_every_accepted_size_is_priced_or_refused(hw, size):
    start = time.perf_counter()
    for config in FAMILIES:
        for cache in ("warm", "cold"):
            try:
                estimate = predict(Gemm(*size), config, hardware=hw, cache=cache)
            except TilesightError:
                continue
            assert all(math.isfinite(number) for _, number in numbers_in(estimate.to_dict()))
            assert estimate.seconds >= estimate.flop / hw.tensor["bf16"].rate_peak_flop_per_s
    assert time.perf_counter() - start < 5


@pytest.mark.parametrize("size", [(1, 1, 1), (MAX_SIZE,) * 3, (MAX_SIZE, 1, 1), (1, MAX_SIZE, 64), (1, 1, MAX_SIZE)])
def test_every_accepted_size_is_ranked(hw, size):
    start = time.perf_counter()
    assert math.isfinite(rank(Gemm(*size), hardware=hw)[0].seconds)
    assert time.perf_counter() - start < 5


def test_what_the_shipped_profile_lacks_is_named(h200, altered):
    partial = altered(h200, {"dram.bandwidth_read_bytes_per_s": None})
    with pytest.raises(UnsupportedError, match="profile 'h200_sxm' has no ") as caught:
        predict(LARGE, GOOD, hardware=partial)
    assert caught.value.field


def test_load_profile_is_the_same_object_or_equal(h200):
    assert load_profile("h200_sxm") == h200


def test_explain_says_how_gpus_differ_and_what_stands_empty():
    mine, theirs = (predict(Gemm(64, 8192, 8192), hardware=gpu) for gpu in ("h200_sxm", "a100_sxm"))
    said = " | ".join(explain(mine, theirs).sentences)
    assert "h200_sxm against a100_sxm: SMs 132 against 108" in said
    assert "DRAM reads 4.59 against 1.775 TB/s" in said
    assert "both bound by dram: a k-step takes" in said
    few = predict(Gemm(512, 512, 16384), GemmConfig(128, 128, 64, stages=4), hardware="h200_sxm")
    assert "88 % of the slots have no tile" in " | ".join(explain(few).sentences)
