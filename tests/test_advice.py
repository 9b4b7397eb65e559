"""Which group width of the raster is best, and what the others do."""

import pickle
from dataclasses import FrozenInstanceError, asdict, replace

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tilesight import (
    ConfigError,
    Gemm,
    GemmConfig,
    ProblemError,
    TilesightError,
    UnknownProfileError,
    UnsupportedError,
    list_profiles,
    load_profile,
    predict,
    predict_many,
    rank,
    raster_widths,
)
from tilesight.advice import RasterAdvice, RasterWidth
from tilesight.kernels.gemm_config import KERNELS
from tilesight.kernels.instructions import FAMILIES
from tilesight.report import text
from tilesight.search import modelled_formats

SQUARE = GemmConfig(128, 128, 64, stages=4)
FIELDS = ("seconds", "lookup_bytes", "l2_hit_rate", "dram_read_bytes", "dram_write_bytes", "drift_read_bytes", "regime")


def tried(advice):
    return [row.group_m for row in advice.widths]


# --- which widths ---


@pytest.mark.parametrize(
    ("rows", "group_m", "cluster_m", "expected"),
    [
        (1, 8, 1, [1]),
        (2, 8, 1, [1, 2]),
        (5, 8, 1, [1, 2, 3, 4, 5]),
        (5, 2, 1, [1, 2, 3, 4, 5]),
        (32, 8, 1, [1, 2, 3, 4, 6, 8, 12, 16, 24, 32]),
        (33, 5, 1, [1, 2, 3, 4, 5, 6, 8, 12, 16, 24, 32, 33]),
        (33, 10**6, 1, [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 33]),
        (9, 8, 2, [2, 4, 6, 8, 9]),  # a group of one row would part a cluster of two
        (9, 1, 2, [1, 2, 4, 6, 8, 9]),  # but what was asked for is always there
        (2, 8, 2, [2]),
    ],
)
def test_widths_by_hand(hw, rows, group_m, cluster_m, expected):
    config = replace(SQUARE, group_m=group_m, cluster_m=cluster_m)
    advice = raster_widths(Gemm(128 * rows - 5, 1024, 512), config, hardware=hw)
    assert tried(advice) == expected
    assert advice.asked.group_m == min(group_m, rows)


@pytest.mark.parametrize(
    ("m", "n", "cluster_m", "reason"),
    [
        (128, 4096, 1, "one row of tiles: every group width gives the same raster"),
        (4096, 128, 1, "one column of tiles: every group width gives the same raster"),
        (96, 96, 1, "one tile: every group width gives the same raster"),
        (256, 4096, 2, "one row of clusters: every group width gives the same raster"),
    ],
)
def test_where_there_is_one_raster(hw, m, n, cluster_m, reason):
    advice = raster_widths(Gemm(m, n, 1024), replace(SQUARE, cluster_m=cluster_m), hardware=hw)
    assert (advice.reason, advice.gain_s, advice.gain) == (reason, 0.0, 0.0)
    assert advice.widths == (advice.best,) == (advice.asked,)
    assert advice.ties == (advice.best_group_m,)


def test_one_row_of_tiles_takes_the_same_time_by_any_width(hw):
    row = Gemm(128, 12800, 1024)
    assert len(set(predict_many([row], [replace(SQUARE, group_m=w) for w in (1, 2, 8)], hardware=hw).seconds)) == 1


# --- what a width does ---


def test_width_by_hand(hw):
    # 4 x 100 tiles of 128 x 128 on 100 SMs, so four waves; k = 16384, so that A is 512 * 16384 * 2 B = 16.8 MB and B is
    # 12800 * 16384 * 2 B = 419 MB. L2 (64 MiB) keeps nothing of a wave until the next: each reads over 100 MB.
    # Groups of one row: a wave is a row of tiles, and reads a quarter of A and all of B.
    # Groups of four: a wave is 25 columns of four rows, and reads all of A and a quarter of B.
    a_bytes, b_bytes = 512 * 16384 * 2, 12800 * 16384 * 2
    config = GemmConfig(128, 128, 64, stages=4, group_m=1)
    advice = raster_widths(Gemm(512, 12800, 16384), config, hardware=hw, cache="cold")
    one, *_, four = advice.widths
    assert tried(advice) == [1, 2, 3, 4]
    assert one.dram_read_bytes - one.drift_read_bytes == pytest.approx(a_bytes + 4 * b_bytes, rel=1e-3)
    assert four.dram_read_bytes - four.drift_read_bytes == pytest.approx(4 * a_bytes + b_bytes, rel=1e-3)
    assert advice.asked == one
    assert advice.best == min(advice.widths, key=lambda row: row.seconds)
    assert advice.gain_s == one.seconds - advice.best.seconds > 0
    assert advice.gain == advice.gain_s / one.seconds
    assert advice.best_config == replace(config, group_m=advice.best_group_m)
    assert advice.reason.startswith(f"a group of {advice.best_group_m} rows takes ")
    assert " less time than 1 row: " in advice.reason
    assert " read from DRAM instead of 1.69" in advice.reason  # GB: A + 4 B


def test_reason_where_the_width_asked_for_is_best(hw):
    problem = Gemm(512, 12800, 16384)
    best = raster_widths(problem, replace(SQUARE, group_m=1), hardware=hw, cache="cold").best_config
    advice = raster_widths(problem, best, hardware=hw, cache="cold")
    assert (advice.best, advice.gain_s) == (advice.asked, 0.0)
    assert advice.reason.startswith(f"a group of {best.group_m} rows, as asked for, takes ")


def test_reason_where_the_width_does_not_matter(hw):
    advice = raster_widths(Gemm(256, 256, 16384), SQUARE, hardware=hw)
    assert advice.reason == "the group width does not matter: all take the same time to 0.05 %"
    assert advice.ties == (1, 2)


def row_of(group_m, seconds, read_bytes):
    return RasterWidth(group_m, seconds, 1e9, 0.5, read_bytes, 0.0, 0.0, "tensor", "lockstep")


@pytest.mark.parametrize(
    ("rows", "group_m", "best"),
    [
        ([(1, 2.0, 1e9), (2, 1.0, 5e9)], 1, 2),  # time comes first
        ([(1, 1.0, 2e9), (2, 1.0, 1e9), (4, 1.0, 1e9)], 1, 2),  # then DRAM bytes, then the narrower
        ([(1, 1.0, 1e9), (2, 1.0 - 1e-12, 1e9), (4, 1.0, 1e9 + 1e-3)], 4, 1),  # rounding is no difference, ...
        ([(1, 1.0, 1e9), (2, 1.0 - 1e-12, 2e9)], 2, 2),  # ... but never slower than what was asked for
        ([(1, 1.0, 1e9), (2, 1.0 - 1e-12, 2e9)], 1, 1),
    ],
)
def test_best_of_equal_times(hw, rows, group_m, best):
    estimate = predict(Gemm(512, 512, 512), replace(SQUARE, group_m=group_m), hardware=hw)
    assert RasterAdvice(estimate, tuple(row_of(*row) for row in rows), "").best_group_m == best


def test_no_configuration_takes_the_best_of_the_ranking(hw):
    problem = Gemm(4096, 4096, 4096)
    advice = raster_widths(problem, hardware=hw, cache="cold")
    assert advice.estimate == predict(problem, hardware=hw, cache="cold")
    assert replace(advice.best_config, group_m=8) == rank(problem, hardware=hw, cache="cold").best


def test_options_reach_the_model(hw):
    problem, options = Gemm(4096, 4096, 1024), {"clock": 0.01, "resident": {"a": 0.5}, "sms": 50, "dirty_bytes": 1e7}
    advice = raster_widths(problem, SQUARE, hardware=hw, **options)
    assert advice.estimate == predict(problem, SQUARE, hardware=hw, **options)
    narrow = predict(problem, replace(SQUARE, group_m=1), hardware=hw, **options)
    assert (
        advice.widths[0].seconds == narrow.seconds != predict(problem, replace(SQUARE, group_m=1), hardware=hw).seconds
    )


# --- laws ---

configs = st.builds(
    GemmConfig,
    tile_m=st.sampled_from([64, 128, 256]),
    tile_n=st.sampled_from([32, 64, 128, 256]),
    tile_k=st.sampled_from([32, 64]),
    stages=st.integers(2, 5),
    kernel=st.sampled_from(KERNELS),
    group_m=st.one_of(st.integers(1, 70), st.just(10**6)),
    cluster_m=st.sampled_from([1, 1, 1, 2]),
    split_k=st.sampled_from([1, 1, 2, None]),
)
problems = st.builds(
    Gemm,
    m=st.integers(1, 6000),
    n=st.integers(1, 1000).map(lambda n: 8 * n),
    k=st.integers(1, 1000).map(lambda k: 8 * k),
    batch=st.sampled_from([1, 1, 3]),
)
caches = st.sampled_from(["cold", "warm"])


def advised(problem, config, hardware, cache):
    """The advice; configurations that no GPU could run are not tried."""
    try:
        return raster_widths(problem, config, hardware=hardware, cache=cache)
    except TilesightError:
        assume(False)
        raise


@given(problems, configs, caches)
@settings(max_examples=100)
def test_widths_are_single_predictions_bit_for_bit(gpu, problem, config, cache):
    advice = advised(problem, config, gpu, cache)
    assert advice.estimate == predict(problem, config, hardware=gpu, cache=cache)
    for row in advice.widths:
        single = predict(problem, replace(config, group_m=row.group_m), hardware=gpu, cache=cache)
        assert all(getattr(row, name) == getattr(single, name) for name in (*FIELDS, "binding"))


@given(problems, configs, caches)
@settings(max_examples=100)
def test_best_is_never_slower_than_any(gpu, problem, config, cache):
    advice = advised(problem, config, gpu, cache)
    assert advice.best.seconds <= advice.asked.seconds
    assert all(advice.best.seconds <= row.seconds * (1 + 1e-9) for row in advice.widths)
    assert 0 <= advice.gain < 1
    assert {advice.best_group_m} <= set(advice.ties) <= set(tried(advice))
    assert raster_widths(problem, advice.best_config, hardware=gpu, cache=cache).gain_s == 0


@given(problems, configs, caches, st.integers(0, 10**6))
@settings(max_examples=100)
def test_a_width_beyond_the_rows_is_that_of_all_rows(gpu, problem, config, cache, more):
    rows = -(-problem.m // config.tile_m)
    every, beyond = (advised(problem, replace(config, group_m=group_m), gpu, cache) for group_m in (rows, rows + more))
    assert every.widths == beyond.widths
    assert every.asked == beyond.asked == every.widths[-1]
    assert (every.best, every.reason) == (beyond.best, beyond.reason)


# --- every GPU and kernel family ---


@pytest.mark.parametrize("name", list_profiles())
def test_every_gpu_and_family(name):
    gpu = load_profile(name)
    for dtype in modelled_formats(gpu):
        problem = Gemm(2048, 2048, 1024, dtype=dtype, layout_b="column")
        advice = raster_widths(problem, hardware=gpu)
        assert advice.best.seconds <= advice.asked.seconds
        assert str(advice).startswith(str(problem))
    families = 0
    for kernel in KERNELS:
        try:
            advice = raster_widths(Gemm(2048, 2048, 1024), replace(SQUARE, stages=2, kernel=kernel), hardware=gpu)
        except (ConfigError, UnsupportedError):
            continue
        assert tried(advice) == [1, 2, 3, 4, 6, 8, 12, 16]
        families += 1
    assert families == len(FAMILIES[gpu.architecture].kernels)


# --- as data and on paper ---


def test_advice_is_plain_frozen_data(hw):
    problem = Gemm(512, 12800, 16384)
    advice = raster_widths(problem, SQUARE, hardware=hw)
    assert advice == raster_widths(problem, SQUARE, hardware=hw) == pickle.loads(pickle.dumps(advice))
    assert advice != raster_widths(problem, SQUARE, hardware=hw, cache="cold")
    with pytest.raises(FrozenInstanceError):
        advice.reason = ""
    data = advice.to_dict()
    assert data["schema"] == "tilesight.raster/1"
    assert data["widths"] == [asdict(row) for row in advice.widths]
    assert (data["asked_group_m"], data["best_group_m"]) == (advice.asked.group_m, advice.best_group_m)
    assert (data["gain_s"], data["ties"], data["reason"]) == (advice.gain_s, list(advice.ties), advice.reason)
    assert Gemm(**data["problem_fields"]) == problem
    assert GemmConfig(**data["config_fields"]) == SQUARE


def test_page(hw):
    advice = raster_widths(Gemm(512, 12800, 16384), replace(SQUARE, group_m=1), hardware=hw, cache="cold")
    page = str(advice)
    assert page.startswith("gemm 512 x 12800 x 16384 bf16 on h200_sxm: raster in groups of ")
    lines = [line.split() for line in text(advice, width=100).splitlines()]
    assert [line[0] for line in lines if line[-1:] in (["best"], ["asked"])] == ["1", f"{advice.best_group_m}"]
    assert " ".join(advice.reason.split()) in " ".join(page.split())
    assert "<table>" in advice._repr_html_()


# --- what is refused ---


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        (
            lambda hw: raster_widths("4096", SQUARE, hardware=hw),
            ProblemError,
            "problem is a str; give a tilesight.Gemm",
        ),
        (lambda hw: raster_widths("4096", hardware=hw), ProblemError, "problem is a str; give a tilesight.Gemm"),
        (
            lambda hw: raster_widths(Gemm(1, 1, 1), 8, hardware=hw),
            ConfigError,
            "a int stands in the list of GemmConfig",
        ),
        (
            lambda hw: raster_widths(Gemm(64, 64, 64), SQUARE, hardware="h20"),
            UnknownProfileError,
            "no hardware profile",
        ),
        (lambda hw: raster_widths(Gemm(64, 64, 64), SQUARE, hardware=hw, sms=0), ConfigError, "sms = 0"),
        (lambda hw: raster_widths(Gemm(64, 64, 64), SQUARE, hardware=hw, cache="hot"), ConfigError, "cache = 'hot'"),
        (lambda hw: raster_widths(Gemm(64, 64, 64, "fp8"), SQUARE, hardware=hw), UnsupportedError, "has no tensor.fp8"),
        (
            lambda hw: raster_widths(Gemm(64, 64, 64), replace(SQUARE, stages=9), hardware=hw),
            ConfigError,
            "^9 stages of",
        ),
    ],
)
def test_refused_as_predict_does(hw, call, kind, message):
    with pytest.raises(kind, match=message):
        call(hw)
