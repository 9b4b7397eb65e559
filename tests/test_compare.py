"""Scores worked by hand, their properties, and a whole comparison with a model that is known exactly."""

import csv
import json
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from tilesight.compare import compare_records
from tilesight.compare.scores import (
    L2_SCORES,
    NO_RANKING,
    REGIMES,
    group_numbers,
    group_regret,
    interval_scores,
    kendall_tau,
    l2_scores,
    mape,
    ranking_scores,
    regime_scores,
    regimes,
    time_scores,
)
from tilesight.errors import ConfigError, TableError, TilesightError, UnknownProfileError, UnsupportedError
from tilesight.files import sample_files
from tilesight.hardware.derive import derive
from tilesight.hardware.load import load_profile
from tilesight.hardware.numbers import plain_number
from tilesight.hardware.profile import Profile
from tilesight.kernels.gemm_config import GemmConfig
from tilesight.records import read_table
from tilesight.report import text

TRITON_HEADER = "kernel,m,n,k,tile_m,tile_n,tile_k,group_m,stages,warps,registers,spills,smem_bytes,warm_us,cold_us"


def array(*values):
    return np.array(values, dtype=float)


# --- scores of times


def test_time_scores_by_hand():
    # errors of (12, 45, 100) against (10, 50, 100): +20 %, -10 %, 0 %
    # MAPE (20 + 10 + 0) / 3 = 10, median 10, bias (20 - 10 + 0) / 3 = 3.333
    # wMAPE (2 + 5 + 0) / 160 = 4.375 %; roofline (5, 25, 100): -50, -50, 0 %: 33.33 %
    scores = time_scores(array(12, 45, 100), array(10, 50, 100), array(5, 25, 100))
    assert scores == pytest.approx(
        {"mape": 10, "median_ape": 10, "bias": 10 / 3, "wmape": 4.375, "roofline_mape": 100 / 3}
    )


def test_no_rows_is_unknown_not_zero():
    empty = array()
    assert set(time_scores(empty, empty, empty).values()) == {None}
    assert mape(empty, empty) is None
    assert ranking_scores(empty, empty, np.array([], dtype=int)) == NO_RANKING
    assert set(l2_scores({}, {}, empty, empty).values()) == {None}


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_values_that_are_not_finite_are_refused(bad):
    with pytest.raises(TilesightError, match="predicted value 1 is"):
        mape(array(1, bad), array(1, 2))
    with pytest.raises(TilesightError, match="measured value 0 is"):
        mape(array(1, 2), array(bad, 2))
    with pytest.raises(TilesightError, match="hit rate is not finite"):
        l2_scores({"l2_hit_rate": array(bad)}, {"l2_hit_rate": array(0.5)}, array(1), array(1))


def test_measured_zero_is_refused():
    with pytest.raises(TilesightError, match="not above 0"):
        mape(array(1), array(0))


times = st.lists(st.floats(1e-6, 1e-2), min_size=1, max_size=30).map(np.array)


@given(times, st.floats(0.1, 10))
def test_scaled_prediction_has_that_error_everywhere(measured, factor):
    scores = time_scores(factor * measured, measured, measured)
    error = 100 * (factor - 1)
    assert scores["bias"] == pytest.approx(error, abs=1e-9)
    for name in ("mape", "median_ape", "wmape"):
        assert scores[name] == pytest.approx(abs(error), abs=1e-9)


@given(times)
def test_perfect_prediction_scores_zero(measured):
    assert set(time_scores(measured, measured, measured).values()) == {0.0}
    ranking = ranking_scores(measured, measured, np.zeros(len(measured), dtype=int))
    if len(measured) > 1:
        assert ranking["top1_regret_geomean"] == ranking["top1_regret_max"] == 1.0
        assert ranking["top2_within_2pct"] == 1.0
        assert ranking["kendall_tau"] in (None, pytest.approx(1.0))


@given(times, st.randoms())
def test_bias_never_exceeds_mape(measured, random):
    predicted = measured * np.array([random.uniform(0.5, 2) for _ in measured])
    scores = time_scores(predicted, measured, measured)
    assert abs(scores["bias"]) <= scores["mape"] + 1e-9
    assert time_scores(predicted[::-1], measured[::-1], measured)["wmape"] == pytest.approx(scores["wmape"])


def test_regimes_by_hand():
    measured = array(19.999e-6, 20e-6, 100e-6, 100.001e-6)
    masks = regimes(
        measured, np.array([64, 65, 1, 64]), np.array([16383, 16384, 65536, 1]), np.array(["warm", "cold"] * 2)
    )
    assert {name: np.flatnonzero(mask).tolist() for name, mask in masks.items()} == {
        "lt20us": [0],
        "20to100us": [1, 2],  # both ends belong here
        "gt100us": [3],
        "m_le_64": [0, 2, 3],
        "deep_k": [1, 2],
        "warm": [0, 2],
        "cold": [1, 3],
    }


def test_each_time_is_in_one_regime_of_time():
    measured = np.array([19.999, 20, 20.001, 99.999, 100, 100.001]) / 1e6  # as tables are read
    masks = regimes(measured, np.ones(6), np.ones(6), np.full(6, "warm"))
    together = masks["lt20us"].astype(int) + masks["20to100us"] + masks["gt100us"]
    assert together.tolist() == [1] * 6
    assert masks["20to100us"].tolist() == [False, True, True, True, True, False]


def test_regime_scores_by_hand():
    scores = regime_scores(
        array(11, 30), array(10, 20), array(5, 20), {"a": np.array([True, False]), "b": np.zeros(2, bool)}
    )
    assert scores["a"] == pytest.approx({"n": 1, "mape": 10, "roofline_mape": 50})
    assert scores["b"] == {"n": 0, "mape": None, "roofline_mape": None}


# --- ranking


def test_kendall_tau_by_hand():
    # (1,2,3,4) against (1,3,2,4): 5 of 6 pairs agree, 1 does not: (5 - 1) / 6
    assert kendall_tau(array(1, 2, 3, 4), array(1, 3, 2, 4)) == pytest.approx(4 / 6)
    assert kendall_tau(array(1, 2, 3), array(3, 2, 1)) == -1
    # a tie in the first: pairs (1,2) and (1,3) agree, (2,3) is tied: 2 / sqrt(2 * 3)
    assert kendall_tau(array(1, 2, 2), array(1, 2, 3)) == pytest.approx(2 / np.sqrt(6))
    assert kendall_tau(array(1, 1), array(1, 2)) is None


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), min_size=2, max_size=25))
def test_kendall_tau_is_that_of_scipy(pairs):
    first, second = (np.array(values, dtype=float) for values in zip(*pairs, strict=True))
    ours = kendall_tau(first, second)
    theirs = stats.kendalltau(first, second).statistic
    assert ours == pytest.approx(theirs) if ours is not None else np.isnan(theirs)


def test_group_regret_by_hand():
    # predicted best is the second (12), the best is the third (10): 1.2. The two predicted best measure 12 and 15.
    assert group_regret(array(3, 1, 4, 2), array(20, 12, 10, 15)) == (1.2, False)
    # the second pick, 10.2, is within 2 % of 10
    assert group_regret(array(3, 1, 4, 2), array(20, 12, 10, 10.2)) == (1.2, True)
    assert group_regret(array(3, 1, 4, 2), array(20, 12, 10, 10.21)) == (1.2, False)


def test_refused_configuration_is_never_picked_but_may_be_the_best():
    assert group_regret(array(np.inf, 1, 2), array(10, 20, 30)) == (2.0, False)
    # one priced configuration: there is no second pick, least of all a refused one
    assert group_regret(array(np.inf, 1), array(10, 20)) == (2.0, False)


def test_ranking_by_hand():
    # group 7: regret 1.2, tau of (1,2,3) and (12,10,15): 2 agree, 1 not: 1/3; its two best hold the best
    # group 3: regret 30/10 = 3, order reversed: tau -1; its two best, 30 and 20, are not near 10
    # group 9 has one configuration and says nothing, group 5 is refused whole
    predicted = array(1, 1, 2, 2, 3, 3, 8, np.inf, np.inf)
    measured = array(12, 30, 10, 20, 15, 10, 8, 1, 2)
    scores = ranking_scores(predicted, measured, np.array([7, 3, 7, 3, 7, 3, 9, 5, 5]))
    assert scores == pytest.approx(
        {
            "top1_regret_geomean": np.sqrt(1.2 * 3),
            "top1_regret_max": 3,
            "top2_within_2pct": 0.5,
            "kendall_tau": (1 / 3 - 1) / 2,
        }
    )


def test_one_configuration_a_problem_has_no_ranking():
    assert ranking_scores(array(1, 2), array(1, 2), np.array([0, 1])) == NO_RANKING


@given(times, st.randoms())
def test_regret_is_at_least_one_and_ignores_scale(measured, random):
    predicted = np.array([random.uniform(1, 2) for _ in measured])
    groups = np.zeros(len(measured), dtype=int)
    scores = ranking_scores(predicted, measured, groups)
    if len(measured) > 1:
        assert 1 <= scores["top1_regret_geomean"] <= scores["top1_regret_max"] * (1 + 1e-12)
        assert ranking_scores(8 * predicted, measured, groups) == scores


def test_group_numbers_join_all_keys():
    assert group_numbers(np.array([1, 1, 2, 1]), np.array(["a", "b", "a", "a"])).tolist() == [0, 1, 2, 0]


# --- cache


def test_l2_scores_by_hand():
    # reads: 110 of 100 (+10 %), 150 of 200 (-25 %), 300 of 300 (0 %). Compulsory 100 each: rows 2 and 3 were read again.
    # k: row 3 is deep. Read + write: 120/110 - 1 = 9.0909 %, 170/250 - 1 = -32 %, 400/400 = 0 %.
    # lookups +100 %, 0, 0; crossings +25 %, -10 %, 0. Hit rates 10, 20 and 0 points off: mean 10, 90th percentile
    # 20 - 0.2 * 10 = 18.
    predicted = {
        "dram_read_bytes": array(110, 150, 300),
        "dram_write_bytes": array(10, 20, 100),
        "lookup_bytes": array(200, 100, 100),
        "crossing_bytes": array(50, 90, 80),
        "l2_hit_rate": array(0.6, 0.3, 0.9),
    }
    measured = {
        "dram_read_bytes": array(100, 200, 300),
        "dram_write_bytes": array(10, 50, 100),
        "lookup_bytes": array(100, 100, 100),
        "crossing_bytes": array(40, 100, 80),
        "l2_hit_rate": array(0.5, 0.5, 0.9),
    }
    assert l2_scores(predicted, measured, array(100, 100, 100), array(64, 64, 16384)) == pytest.approx(
        {
            "dram_read_mape": 35 / 3,
            "dram_read_mape_reused": 12.5,
            "dram_read_median_ape": 10,
            "dram_read_mape_deep_k": 0,
            "dram_bytes_mape": (100 / 11 + 32) / 3,
            "lookup_mape": 100 / 3,
            "crossing_mape": 35 / 3,
            "hit_rate_mae_pp": 10,
            "hit_rate_p90_pp": 18,
        }
    )


def test_what_is_not_measured_has_no_l2_score():
    scores = l2_scores({"dram_read_bytes": array(1)}, {"dram_read_bytes": array(2)}, array(2), array(64))
    assert scores["dram_read_mape"] == 50
    assert [name for name in L2_SCORES if scores[name] is not None] == ["dram_read_mape", "dram_read_median_ape"]


# --- whole comparisons


class Answer(SimpleNamespace):
    """A model's answer, as comparisons read it: refused rows are left out."""

    def __len__(self):
        return len(self.positions)

    def column(self, name):
        return getattr(self, name)

    def likely(self, name):
        value = self.column(name)
        return value / 1.25, value * 1.25


def model(seconds_of, refuse=lambda problem: None):
    """A ``predict_many`` that answers ``seconds_of(problem, config)`` and half of it as roofline."""

    def predict_many(problems, configs, *, hardware=None, cache="warm", clock="burst", skip_refused=True, **others):
        refusals = [(i, refuse(problem)) for i, problem in enumerate(problems) if refuse(problem) is not None]
        positions = np.array([i for i in range(len(problems)) if i not in dict(refusals)], dtype=int)
        seconds = array(*(seconds_of(problems[i], configs[i]) for i in positions))
        operands = array(*(2 * (problems[i].m + problems[i].n) * problems[i].k for i in positions))
        return Answer(
            positions=positions,
            seconds=seconds,
            roofline_s=seconds / 2,
            seconds_low=0.9 * seconds,
            seconds_high=1.1 * seconds,
            dram_read_bytes=operands,
            dram_write_bytes=0 * operands,
            lookup_bytes=2 * operands,
            l2_hit_rate=0 * operands + 0.5,
            binding=np.array(["dram"] * len(positions), dtype=object),
            cache_regime=np.array(["lockstep"] * len(positions), dtype=object),
            refusals=tuple(refusals),
        )

    return predict_many


def hardware(**launch_s: float) -> Profile:
    """The H200 with round launch terms: 1 us graph gap, 2 us event, 3 us cold start."""
    launch_s = launch_s or {"graph_gap_s": 1e-6, "event_s": 2e-6, "cold_extra_s": 3e-6}
    data = load_profile("h200_sxm").to_dict()
    data["source"] = {name: source for name, source in data["source"].items() if not name.startswith("launch.")}
    data["source"] |= {f"launch.{name}": {"kind": "assumed", "note": "a round number for a test"} for name in launch_s}
    return Profile.from_dict(data | {"launch": launch_s})


def triton_row(m, tile_m, warm_us, cold_us, kernel="ptr"):
    return f"{kernel},{m},256,1024,{tile_m},64,32,8,3,4,126,0,73728,{warm_us},{cold_us}"


@pytest.fixture
def two_problems(tmp_path):
    rows = [
        triton_row(128, 64, 11, 20),
        triton_row(128, 128, 10, 16, kernel="tma"),
        triton_row(64, 64, 21, 30),
        triton_row(64, 128, 31, 40),
    ]
    path = tmp_path / "two.csv"
    path.write_text("\n".join([TRITON_HEADER, *rows, ""]), encoding="utf-8")
    return path


def seconds_by_tile(problem, config):
    return {(128, 64): 10e-6, (128, 128): 11e-6, (64, 64): 20e-6, (64, 128): 30e-6}[problem.m, config.tile_m]


def test_comparison_by_hand(two_problems):
    # warm adds 1 us: predicted 11, 12, 21, 31 against 11, 10, 21, 31: 0, 20, 0, 0 %
    # cold adds 5 us: predicted 15, 16, 25, 35 against 20, 16, 30, 40: -25, 0, -16.667, -12.5 %
    result = compare_records(two_problems, predict_many=model(seconds_by_tile), hardware=hardware())
    found = result.to_dict()
    assert (found["schema"], found["table"], found["gpu"]) == ("tilesight.compare/1", "gemm_triton", "h200_sxm")
    assert (found["n"], found["n_refused"], found["refused"]) == (8, 0, [])
    assert found["mape"] == pytest.approx((20 + 25 + 100 / 6 + 12.5) / 8)
    assert found["bias"] == pytest.approx((20 - 25 - 100 / 6 - 12.5) / 8)
    assert found["median_ape"] == pytest.approx(12.5 / 2)  # between the 4th, 0, and the 5th, 12.5
    assert found["wmape"] == pytest.approx(100 * (2 + 5 + 5 + 5) / (73 + 106))
    assert found["by_regime"]["warm"]["n"] == found["by_regime"]["cold"]["n"] == 4
    assert found["by_regime"]["warm"]["mape"] == pytest.approx(5)
    # rooflines, half of the kernel and the whole of the added terms: warm 6, 6.5, 11, 16 of 11, 10, 21, 31
    assert found["by_regime"]["warm"]["roofline_mape"] == pytest.approx(25 * (5 / 11 + 3.5 / 10 + 10 / 21 + 15 / 31))
    assert found["by_regime"]["lt20us"]["n"] == 3  # 11, 10 and 16; 20 us belongs to the next
    assert found["by_regime"]["m_le_64"]["n"] == 4
    assert found["by_regime"]["deep_k"] == {"n": 0, "mape": None, "roofline_mape": None}
    # m = 128 warm picks 11 where 10 was possible: 1.1; cold picks 20 where 16 was: 1.25; m = 64 picks the best
    assert found["top1_regret_geomean"] == pytest.approx((1.1 * 1.25) ** 0.25)
    assert found["ranking"]["top1_regret_max"] == pytest.approx(1.25)
    assert found["top2_within_2pct"] == 1
    assert found["kendall_tau"] == pytest.approx(0)  # -1, -1, 1, 1
    assert found["l2"] == dict.fromkeys(L2_SCORES)
    assert found["lookup_mape"] is None
    # 10 % of 10, 11, 20, 30 us about 11, 12, 21, 31 and about 15, 16, 25, 35 us: the warm ones but one, and one cold one
    assert found["likely_interval"] == {"n": 8, "inside": 4 / 8}
    assert found["likely_counters"] == {}
    assert (found["where"], found["auto_config"]) == ([], False)
    assert found["hardware"] == {"h200_sxm": hardware().hash}
    assert found["model_version"]


def test_result_is_json_without_nan(two_problems):
    result = compare_records(two_problems, predict_many=model(seconds_by_tile), hardware=hardware())
    assert json.loads(json.dumps(result.to_dict(), allow_nan=False)) == result.to_dict()


def test_same_inputs_same_bits(two_problems):
    both = [compare_records(two_problems, predict_many=model(seconds_by_tile), hardware=hardware()) for _ in range(2)]
    assert both[0].to_dict() == both[1].to_dict()


def test_refused_rows_are_listed_counted_and_not_scored(two_problems):
    refusing = model(seconds_by_tile, refuse=lambda problem: "too small" if problem.m == 64 else None)
    result = compare_records(two_problems, predict_many=refusing, hardware=hardware())
    assert (result.n, result.n_refused) == (4, 4)
    assert result.refused[0] == {"row": 3, "line": 4, "time": "warm_us", "reason": "too small"}
    assert [(entry["row"], entry["time"]) for entry in result.refused] == [
        (3, "warm_us"),
        (3, "cold_us"),
        (4, "warm_us"),
        (4, "cold_us"),
    ]
    assert result.time["mape"] == pytest.approx((0 + 20 + 25 + 0) / 4)
    assert result.by_regime["m_le_64"] == {"n": 0, "mape": None, "roofline_mape": None}


def test_all_refused_scores_nothing(two_problems):
    result = compare_records(
        two_problems, predict_many=model(seconds_by_tile, refuse=lambda _: "no"), hardware=hardware()
    )
    assert (result.n, result.n_refused) == (0, 8)
    assert result.time["mape"] is None
    assert result.ranking == NO_RANKING


def test_absent_term_refuses_only_what_needs_it(two_problems):
    result = compare_records(two_problems, predict_many=model(seconds_by_tile), hardware=hardware(graph_gap_s=1e-6))
    assert (result.n, result.n_refused) == (4, 4)
    assert {entry["time"] for entry in result.refused} == {"cold_us"}
    assert "launch.event_s" in result.refused[0]["reason"]


def test_unsupported_batch_is_refused_with_its_reason(two_problems):
    def predict_many(problems, configs, **options):
        raise UnsupportedError("no l2.lookup_bytes_per_cycle", field="l2.lookup_bytes_per_cycle")

    result = compare_records(two_problems, predict_many=predict_many, hardware=hardware())
    assert result.n_refused == 8
    assert result.refused[0]["reason"] == "no l2.lookup_bytes_per_cycle"


def test_prediction_that_is_not_a_number_is_an_error(two_problems):
    result = compare_records(two_problems, predict_many=model(lambda problem, config: np.nan), hardware=hardware())
    with pytest.raises(TilesightError, match="finite"):
        result.to_dict()


def test_where_and_progress(two_problems):
    seen = []
    result = compare_records(
        two_problems,
        predict_many=model(seconds_by_tile),
        hardware=hardware(),
        where=["m=64", "tile_m=64,128"],
        progress=lambda done, total: seen.append((done, total)),
    )
    assert result.n == 4
    assert seen == [(2, 2)]
    assert result.to_dict()["where"] == ["m=64", "tile_m=64,128"]
    page = text(result, width=200)
    assert "m is 64 and tile_m is 64 or 128" in page
    assert "as the table states" in page
    assert "k >= 16384" not in page  # a regime without rows
    assert "m <= 64" in page


def test_auto_config_has_no_ranking(two_problems):
    chosen = []

    def choose_config(problem, hardware):
        chosen.append(problem.m)
        return GemmConfig(problem.m, 64, 64, stages=4)

    result = compare_records(
        two_problems,
        predict_many=model(lambda problem, config: config.tile_m * 1e-6),
        choose_config=choose_config,
        hardware=hardware(),
        auto_config=True,
    )
    assert chosen == [128, 64]  # once a problem, not once a row
    assert result.predictions.predicted_s[[0, 4]] == pytest.approx([129e-6, 65e-6])
    assert result.ranking == NO_RANKING
    assert result.to_dict()["auto_config"] is True
    assert "chosen by the model, in place of those that the table states" in text(result, width=200)
    assert [row["config"] for row in result.rows()][::4] == [
        "GemmConfig(128x64x64, 4 stages, 8 warps, warp_specialized)",
        "GemmConfig(64x64x64, 4 stages, 4 warps, warp_specialized)",
    ]


def test_problem_without_a_configuration_is_refused(two_problems):
    def choose_config(problem, hardware):
        raise ConfigError("none of 12 candidates is legal")

    result = compare_records(
        two_problems,
        predict_many=model(seconds_by_tile),
        choose_config=choose_config,
        hardware=hardware(),
        auto_config=True,
    )
    assert (result.n, result.n_refused) == (0, 8)
    assert result.refused[0]["reason"] == "none of 12 candidates is legal"


def test_rows_file_holds_inputs_prediction_and_error(two_problems, tmp_path):
    refusing = model(seconds_by_tile, refuse=lambda problem: "too small" if problem.m == 64 else None)
    out = tmp_path / "rows.csv"
    compare_records(two_problems, predict_many=refusing, hardware=hardware(), rows=out)
    with out.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 8
    second = rows[2]  # row 2, warm
    assert [second[name] for name in ("row", "line", "gpu", "time", "kernel", "m", "tile_m")] == [
        *("2", "3", "h200_sxm", "warm_us", "tma", "128", "128")
    ]
    assert float(second["measured_s"]) == pytest.approx(10e-6)
    assert float(second["predicted_s"]) == pytest.approx(12e-6)
    assert float(second["error_percent"]) == pytest.approx(20)
    assert float(second["roofline_s"]) == pytest.approx(6.5e-6)
    assert float(second["low_s"]) == pytest.approx(10.9e-6)  # 0.9 * 11 + 1
    assert float(second["high_s"]) == pytest.approx(13.1e-6)
    assert second["config"] == "GemmConfig(128x64x32, 3 stages, 4 warps, tma_persistent, group 8)"
    assert (second["regimes"], second["binding"], second["refusal"]) == ("lt20us warm", "dram", "")
    assert (rows[4]["predicted_s"], rows[4]["error_percent"], rows[4]["refusal"]) == ("", "", "too small")
    assert "warm_us" not in rows[0]


def test_rows_never_overwrite_the_table(two_problems, tmp_path, monkeypatch):
    before = two_problems.read_bytes()
    link, hard = tmp_path / "link.csv", tmp_path / "hard.csv"
    link.symlink_to(two_problems)
    hard.hardlink_to(two_problems)
    monkeypatch.chdir(tmp_path)
    for rows in (two_problems, str(two_problems), link, hard, "two.csv", f"../{tmp_path.name}/two.csv"):
        for table in (two_problems, read_table(two_problems)):
            with pytest.raises(TableError, match="is the table itself and would be lost; write to another file"):
                compare_records(table, predict_many=model(seconds_by_tile), hardware=hardware(), rows=rows)
    assert two_problems.read_bytes() == before


def test_intervals_by_hand():
    # 1 of 2 known intervals holds the time; without any nobody knows
    nan = float("nan")
    assert interval_scores(array(1, 2, 3), array(0.5, 2.5, nan), array(1.5, 3.5, nan)) == {"n": 2, "inside": 0.5}
    assert interval_scores(array(1), array(nan), array(nan)) == {"n": 0, "inside": None}
    assert interval_scores(array(1, 1), array(1, 0.5), array(2, 1))["inside"] == 1  # the ends belong to it


def test_every_regime_is_explained(two_problems):
    result = compare_records(two_problems, predict_many=model(seconds_by_tile), hardware=hardware())
    assert set(result.by_regime) == set(REGIMES)


def test_rows_file_that_cannot_be_written(two_problems, tmp_path):
    with pytest.raises(TableError, match="cannot write the rows: No such file"):
        compare_records(
            two_problems, predict_many=model(seconds_by_tile), hardware=hardware(), rows=tmp_path / "none" / "rows.csv"
        )


def test_table_of_counters(tmp_path):
    # compulsory operands 2 B * (512 + 512) * 512 = 1048576, as the model predicts: 1048576 / 1310720 - 1 = -20 %
    # lookups 2097152 of 32768 sectors * 32 B = 1048576: +100 %; hit rate 0.5 of 0.6: 10 points
    path = tmp_path / "l2.csv"
    path.write_text(
        "kernel,m,n,k,tile_m,tile_n,tile_k,group_m,stages,warps,time_us,dram_read_bytes,dram_write_bytes,l2_hit_rate,"
        "l2_tex_sectors\ntma,512,512,512,128,128,64,1,4,8,10,1310720,0,0.6,32768\n",
        encoding="utf-8",
    )
    found = compare_records(path, predict_many=model(lambda *_: 8e-6), hardware=hardware()).to_dict()
    assert (found["table"], found["n"]) == ("gemm_l2", 1)
    assert found["mape"] == pytest.approx(20)  # kernel time alone: nothing is added
    assert found["l2"]["dram_read_mape"] == found["dram_read_mape_reused"] == pytest.approx(20)
    assert found["dram_bytes_mape"] == pytest.approx(20)
    assert found["lookup_mape"] == pytest.approx(100)
    assert found["hit_rate_mae_pp"] == pytest.approx(10)
    assert found["by_regime"]["cold"]["n"] == 1
    # the model's intervals reach from 1 / 1.25 to 1.25 times what it says: reads and hits inside, lookups not
    inside = {name: scores["inside"] for name, scores in found["likely_counters"].items()}
    assert inside == {"dram_read_bytes": 1, "lookup_bytes": 0, "l2_hit_rate": 1}
    assert found["likely_counters"]["lookup_bytes"]["by_regime"] == {"lockstep": {"n": 1, "inside": 0}}


def test_table_of_drift_is_scored_without_hit_rates(tmp_path):
    path = tmp_path / "drift.csv"
    path.write_text(
        "kernel,m,n,k,tile_m,tile_n,tile_k,warps,group_m,stages,dram_read_bytes,lookup_bytes,time_us\n"
        "tma,512,512,512,128,128,64,4,1,4,1310720,1048576,10\n",
        encoding="utf-8",
    )
    found = compare_records(path, predict_many=model(lambda *_: 8e-6), hardware=hardware()).to_dict()
    assert (found["table"], found["by_regime"]["warm"]["n"]) == ("tile_drift", 1)
    assert found["dram_read_mape"] == pytest.approx(20)
    assert found["lookup_mape"] == pytest.approx(100)
    assert found["hit_rate_mae_pp"] is found["dram_bytes_mape"] is None


# --- which GPU


@pytest.fixture
def mixed(tmp_path):
    path = tmp_path / "mixed.csv"
    rows = [f"{gpu},{triton_row(128, 64, 11, 20)}" for gpu in ("h200_sxm", "b60", "NVIDIA H200")]
    path.write_text("\n".join([f"gpu,{TRITON_HEADER}", *rows, ""]), encoding="utf-8")
    return path


def test_table_without_a_gpu_needs_one(two_problems):
    with pytest.raises(TableError, match=r"no gpu column; say which GPU .*--gpu"):
        compare_records(two_problems, predict_many=model(seconds_by_tile))


def test_unknown_gpu_that_was_asked_for(two_problems):
    with pytest.raises(UnknownProfileError, match="Did you mean 'h200_sxm'"):
        compare_records(two_problems, predict_many=model(seconds_by_tile), hardware="h20_sxm")


def test_gpu_by_another_name(two_problems):
    names = []

    def predict_many(problems, configs, *, hardware, **options):
        names.append(hardware.name)
        raise UnsupportedError("enough")

    compare_records(two_problems, predict_many=predict_many, hardware="NVIDIA H200")
    assert set(names) == {"h200_sxm"}


def test_gpu_column_selects_profiles_row_by_row(mixed):
    asked = []

    def predict_many(problems, configs, *, hardware, **options):
        asked.append((hardware.name, len(problems)))
        raise UnsupportedError("enough")

    result = compare_records(mixed, predict_many=predict_many)
    assert set(asked) == {("h200_sxm", 2)}  # two names of one GPU make one batch
    assert result.gpu is None
    assert result.predictions.gpu.tolist() == ["h200_sxm"] * 2 + ["b60"] * 2 + ["h200_sxm"] * 2
    assert "no hardware profile 'b60'" in result.refused[2]["reason"]


def test_hardware_picks_rows_of_a_mixed_table(mixed):
    result = compare_records(mixed, predict_many=model(seconds_by_tile), hardware=hardware())
    assert (result.gpu, result.n, result.n_refused) == ("h200_sxm", 4, 0)
    assert result.table.row_numbers.tolist() == [1, 3]


def test_hardware_that_no_row_has(tmp_path):
    path = tmp_path / "other.csv"
    path.write_text(f"gpu,{TRITON_HEADER}\nb60,{triton_row(128, 64, 11, 20)}\n", encoding="utf-8")
    with pytest.raises(TableError, match="no row has 'h200_sxm'; the table has b60"):
        compare_records(path, predict_many=model(seconds_by_tile), hardware=hardware())


def test_one_batch_has_one_dtype(tmp_path):
    path = tmp_path / "types.csv"
    header = "gpu,dtype,m,n,k,latency_us,source,includes,copies,touched_mb,l2_state"
    rows = [f"h200_sxm,{dtype},64,64,64,5,x,gemm,5,0.1,{state}" for dtype, state in (("bf16", "warm"), ("fp8", "edge"))]
    path.write_text("\n".join([header, *rows, ""]), encoding="utf-8")
    batches = []

    def predict_many(problems, configs, **options):
        batches.append({problem.dtype for problem in problems})
        return model(lambda *_: 4e-6)(problems, configs, **options)

    gpu = hardware(graph_gap_s=1e-6, short_graph_gap_s=0.0, graph_replay_s=0.0)
    data = gpu.to_dict()
    data["l2"] |= {"associativity": 80, "copies_one_reader": 1.5}
    note = {"kind": "assumed", "note": "a round number for a test"}
    data["source"] |= {"l2.associativity": note, "l2.copies_one_reader": note}
    result = compare_records(
        path,
        predict_many=predict_many,
        choose_config=lambda problem, hardware: GemmConfig(64, 64, 64, stages=4),
        hardware=Profile.from_dict(data),
    )
    assert batches == [{"bf16"}, {"fp8"}]
    assert result.time["mape"] == pytest.approx(0, abs=1e-9)  # 4 us + 1 us graph gap
    assert (result.by_regime["warm"]["n"], result.by_regime["cold"]["n"]) == (1, 0)


# --- the sample that ships


def test_sample_predicted_perfectly():
    """A model that knows the measured times scores 0, whatever protocol adds."""
    for name, path in sample_files().items():
        table = read_table(path)
        answers = {"warm": table["warm_us"] / 1e6 - 1e-6, "cold": table["cold_us"] / 1e6 - 5e-6}

        def predict_many(problems, configs, *, cache, answers=answers, **options):
            estimates = model(lambda *_: 1e-6)(problems, configs)
            estimates.seconds = estimates.seconds_low = estimates.seconds_high = answers[cache].copy()
            return estimates

        found = compare_records(path, predict_many=predict_many, hardware=hardware()).to_dict()
        assert found["n"] == 2 * len(table)
        assert found["mape"] == pytest.approx(0, abs=1e-9)
        if name == "gemm_triton.csv":
            assert found["top1_regret_max"] == 1
            assert found["kendall_tau"] == pytest.approx(1)
        else:
            assert found["ranking"] == NO_RANKING


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"table": 5}, "table = 5; give a file or a Table"),
        ({"table": None}, "table = None; give a file or a Table"),
        ({"table": b"table.csv"}, "table = b'table.csv'; give a file"),
        ({"hardware": 5}, "hardware = 5; give a Profile, its name or its file"),
        ({"hardware": b"h200_sxm"}, "hardware = b'h200_sxm'; give a Profile"),
        ({"where": 5}, "where = 5; give texts such as 'm=16', or values by column"),
        ({"where": [5]}, "cannot read the condition 5; give column=value"),
        ({"where": {5: 1}}, "cannot read the condition 5"),
        ({"kind": 5}, "kind = 5; give the name of a kind of table"),
        ({"auto_config": "False"}, "auto_config = 'False'; give True or False"),
        ({"auto_config": 0}, "auto_config = 0; give True or False"),
        ({"progress": 5}, "progress = 5; give a function"),
        ({"predict_many": 5}, "predict_many = 5; give a function"),
        ({"choose_config": "best"}, "choose_config = 'best'; give a function"),
        ({"rows": 5}, "rows = 5; give the file to write"),
        ({"rows": "rows\0.csv"}, r"cannot write the rows: 'rows\\x00.csv' is no name of a file"),
        ({"rows": "rows\ud800.csv"}, r"cannot write the rows: 'rows\\ud800.csv' is no name of a file"),
    ],
)
def test_arguments_of_another_kind(given, why):
    table = sample_files()["gemm_cublas.csv"]
    with pytest.raises(TilesightError, match=why):
        compare_records(**{"table": table, "hardware": "h200_sxm", "where": {"m": 16}} | given)


def test_what_was_changed_is_told():
    copy = derive("h200_sxm", {"sm_count": 66, "power.limit_w": "0.5x", "launch.event_s": "2x"}, name="less")
    result = compare_records(sample_files()["gemm_cublas.csv"], hardware=copy, where={"m": 16})
    event_s = load_profile("h200_sxm").require("launch.event_s")
    changes = [
        "sm_count = 66 instead of 132",
        "power.limit_w = 350.0, 0.5x of 700.0, which no time of a matrix product goes by",
        f"launch.event_s = {plain_number(2 * event_s)}, 2x of {plain_number(event_s)}",  # the protocol's times hold it
    ]
    assert result.to_dict()["what_if"] == {"less": changes}
    assert text(result, width=200).count("what if ") == 3
    assert compare_records(result.table, hardware="h200_sxm").to_dict()["what_if"] == {}


def test_recorded_kernels_are_legal_as_compiled():
    # registers and shared memory of real kernels, among them rings of three slots for four stages
    result = compare_records(sample_files()["gemm_triton.csv"], hardware="h200_sxm")
    assert (result.n, result.n_refused) == (120, 0)
