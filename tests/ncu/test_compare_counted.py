"""Launches counted by Nsight Compute beside predictions: by hand with a model that is known exactly, and as recorded."""

import csv
import json
from types import SimpleNamespace

import numpy as np
import pytest

from tilesight import Gemm, GemmConfig, compare_records
from tilesight.cli.program import main
from tilesight.errors import ConfigError, TableError
from tilesight.ncu import Point
from tilesight.report import text

TIME, READ, WRITE = "gpu__time_duration.sum", "dram__bytes_read.sum", "dram__bytes_write.sum"
TEX, FABRIC, HITS = (
    "lts__t_sectors_srcunit_tex.sum",
    "lts__t_sectors_srcunit_ltcfabric.sum",
    "lts__t_sector_hit_rate.pct",
)
UNITS = {TIME: "us", READ: "byte", WRITE: "byte", TEX: "sector", FABRIC: "sector", HITS: "%"}
BIG, SMALL = Gemm(4096, 4096, 4096), Gemm(2048, 8192, 1024)
NVJET = GemmConfig(256, 128, 64, stages=4, cluster_m=2)
POINTS = [Point(BIG, NVJET, launches=3), Point(SMALL, NVJET, launches=2)]


class Answer(SimpleNamespace):
    def __len__(self):
        return len(self.positions)

    def column(self, name):
        return self.columns[name]

    def likely(self, name):
        return self.column(name) / 1.1, self.column(name) * 1.1


def predict_many(problems, configs, *, cache, **options):
    """20 us, 1000 B read, 100 written, 3200 looked up, 320 across, half hit; twice as long on warm caches."""
    ones = np.ones(len(problems))
    seconds = (20e-6 if cache == "cold" else 40e-6) * ones
    numbers = {"dram_read_bytes": 1000, "dram_write_bytes": 100, "lookup_bytes": 3200, "crossing_bytes": 320}
    return Answer(
        positions=np.arange(len(problems)),
        refusals=(),
        seconds=seconds,
        roofline_s=seconds / 2,
        seconds_low=0.9 * seconds,
        seconds_high=1.1 * seconds,
        binding=np.array(["dram"] * len(problems), dtype=object),
        columns={name: value * ones for name, value in numbers.items()}
        | {"l2_hit_rate": 0.5 * ones, "cache_regime": np.array(["drift"] * len(problems), dtype=object)},
    )


@pytest.fixture
def counted(page, write):
    """Two points: the first with all counters and two repeats, the second without time and reads."""
    first = {TIME: "24", READ: "800", WRITE: "200", TEX: "50", FABRIC: "10", HITS: "40"}
    launches = [first, first | {TIME: "26"}, {"kernel": "add", TIME: "3"}, {"kernel": "gemm2", WRITE: "50", HITS: "75"}]
    return write("page.csv", page(launches, UNITS))


def compared(path, **options):
    points = [Point(BIG, NVJET, match="gemm$"), Point(SMALL, NVJET, match="gemm2")]
    given = {"points": points, "hardware": "h200_sxm", "predict_many": predict_many}
    return compare_records(path, **given | options)


def test_comparison_by_hand(counted):
    result = compared(counted)
    found = json.loads(json.dumps(result.to_dict(), allow_nan=False))
    assert (found["table"], found["gpu"], found["n"], found["left_out"]) == ("ncu", "h200_sxm", 2, {"add": 1})
    first, second = (point["quantities"] for point in found["points"])
    # times 24 and 26 us: median 25, p90 - p10 = 25.8 - 24.2 = 1.6: 6.4 %; 20 of 25: -20 %
    # likely: 18 to 22 us, and a tenth to either side of the counters that have an interval
    assert first["time_s"].pop("likely") == pytest.approx([18e-6, 22e-6])
    assert first["dram_read_bytes"].pop("likely") == pytest.approx([1000 / 1.1, 1100])
    assert first["lookup_bytes"].pop("likely") == pytest.approx([3200 / 1.1, 3520])
    assert first["l2_hit_rate"].pop("likely") == pytest.approx([0.5 / 1.1, 0.55])
    assert first["crossing_bytes"].pop("likely") is first["dram_write_bytes"].pop("likely") is None
    assert first["time_s"] == pytest.approx({"predicted": 20e-6, "measured": 25e-6, "spread": 6.4, "error": -20})
    assert first["dram_read_bytes"] == pytest.approx({"predicted": 1000, "measured": 800, "spread": 0, "error": 25})
    assert first["dram_write_bytes"]["error"] == pytest.approx(-50)
    assert first["lookup_bytes"] == pytest.approx({"predicted": 3200, "measured": 1600, "spread": 0, "error": 100})
    assert first["crossing_bytes"] == pytest.approx({"predicted": 320, "measured": 320, "spread": 0, "error": 0})
    assert first["l2_hit_rate"] == pytest.approx(
        {"predicted": 0.5, "measured": 0.4, "spread": 0, "error": 10}
    )  # points
    assert second["time_s"].pop("likely") == pytest.approx([18e-6, 22e-6])
    assert second["time_s"] == {"predicted": pytest.approx(20e-6), "measured": None, "spread": None, "error": None}
    assert second["dram_read_bytes"]["measured"] is second["lookup_bytes"]["error"] is None
    assert second["l2_hit_rate"]["error"] == pytest.approx(-25)
    assert "l2_read_bytes" not in first
    # what was not measured is no part of a score: one time, one DRAM read, both hit rates
    assert found["mape"] == pytest.approx(20)
    assert (found["by_regime"]["cold"]["n"], found["likely_interval"]["n"]) == (1, 1)
    assert found["dram_read_mape"] == pytest.approx(25)
    assert found["dram_bytes_mape"] == pytest.approx(10)  # 1100 of 1000
    # 1000 / 1.1 to 1100 does not hold 800; hit rates of 0.4 and 0.75 are outside 0.455 to 0.55
    counters = found["likely_counters"]
    assert {name: (each["n"], each["inside"]) for name, each in counters.items()} == {
        "dram_read_bytes": (1, 0),
        "lookup_bytes": (1, 0),
        "l2_hit_rate": (2, 0),
    }
    assert found["hit_rate_mae_pp"] == pytest.approx((10 + 25) / 2)


def test_zero_counted_has_no_relative_error(page, write):
    # warm caches: nothing is read from DRAM; 1100 of 200 B in all is +450 %
    path = write("page.csv", page([{TIME: "20", READ: "0", WRITE: "200", HITS: "0"}], UNITS))
    found = compared(path, points=Point(BIG, NVJET)).to_dict()
    assert found["points"][0]["quantities"]["dram_read_bytes"] == {
        "predicted": 1000,
        "likely": pytest.approx([1000 / 1.1, 1100]),
        "measured": 0,
        "spread": None,
        "error": None,
    }
    assert (found["dram_read_mape"], found["lookup_mape"]) == (None, None)
    assert found["dram_bytes_mape"] == pytest.approx(450)
    assert found["hit_rate_mae_pp"] == pytest.approx(50)


def test_refused_points_show_what_was_measured(page, write):
    path = write("page.csv", page([{TIME: "20", READ: "5"}], UNITS))
    huge = Point(BIG, GemmConfig(256, 256, 64, stages=8))
    result = compare_records(path, points=huge, hardware="h200_sxm")
    point = result.points()[0]
    assert (result.n, result.n_refused) == (0, 1)
    assert "shared memory" in point["refusal"]
    nothing = dict.fromkeys(("predicted", "likely", "spread", "error"))
    assert point["quantities"]["dram_read_bytes"] == nothing | {"measured": 5}
    assert "refused: " in text(result, width=200)
    json.dumps(result.to_dict(), allow_nan=False)


def test_many_points_are_printed_in_part(page, write):
    path = write("page.csv", page([{TIME: "20"}] * 15, UNITS))
    result = compared(path, points=[Point(BIG, NVJET, launches=1)] * 15)
    printed = text(result, width=200)
    assert "12. gemm" in printed
    assert "13. gemm" not in printed
    assert "3 more points: --json and --rows hold them all" in printed
    assert len(result.to_dict()["points"]) == 15


def test_configurations_of_a_problem_are_ranked(page, write):
    # the model calls both equal and picks the first, 30 us where 20 was possible
    path = write("page.csv", page([{TIME: "30"}, {TIME: "20"}, {READ: "5"}], UNITS))
    points = [Point(BIG, GemmConfig(128, tile_n, 64, stages=3), launches=1) for tile_n in (64, 128, 256)]
    assert compared(path, points=points).to_dict()["top1_regret_max"] == pytest.approx(1.5)


def test_what_is_printed(counted):
    page = text(compared(counted), width=200)
    assert "page.csv, counted by Nsight Compute" in page
    assert "1 launch of add" in page
    assert "2 launches of gemm" in page
    for words in (
        "time",
        "DRAM bytes read",
        "DRAM bytes written",
        "L2 lookups by SMs",
        "L2 partition crossings",
        "L2 hit rate",
    ):
        assert words in page
    assert "+10.0 points" in page
    # intervals stand beside the predictions, as far as known
    assert "likely" in page
    for words in ("18.00 us to 22.00 us", "909.1 B to 1.100 kB", "45.5 % to 55.0 %"):
        assert words in page
    assert "nan" not in page


def test_rows_hold_no_nan(counted, tmp_path):
    path = tmp_path / "rows.csv"
    compared(counted, rows=path)
    with path.open(encoding="utf-8", newline="") as file:
        first, second = csv.DictReader(file)
    assert (float(first["measured_s"]), float(first["time_us_spread"])) == (pytest.approx(25e-6), pytest.approx(6.4))
    assert (first["kernel"], first["launches"], first["tile_m"]) == ("gemm", "2", "256")
    assert (second["measured_s"], second["error_percent"], second["measured_dram_read_bytes"]) == ("", "", "")
    assert "nan" not in path.read_text(encoding="utf-8")


def test_rows_hold_regime_and_intervals(counted, tmp_path):
    path = tmp_path / "rows.csv"
    compared(counted, rows=path)
    with path.open(encoding="utf-8", newline="") as file:
        first, _ = csv.DictReader(file)
    assert first["cache_regime"] == "drift"
    assert first["predicted_drift_read_bytes"] == ""  # this model does not say
    ends = {
        name: float(first[name]) for name in first if name.startswith(("low_", "high_")) and not name.endswith("_s")
    }
    assert ends == pytest.approx(
        {
            "low_dram_read_bytes": 1000 / 1.1,
            "high_dram_read_bytes": 1100,
            "low_lookup_bytes": 3200 / 1.1,
            "high_lookup_bytes": 3520,
            "low_l2_hit_rate": 0.5 / 1.1,
            "high_l2_hit_rate": 0.55,
        }
    )


def test_rows_of_the_model_say_what_drift_reads(page, write, tmp_path):
    deep = Point(Gemm(8192, 8192, 65536), GemmConfig(128, 256, 64, 3, group_m=1))
    path, rows = write("page.csv", page([{TIME: "20000", READ: "5"}], UNITS)), tmp_path / "rows.csv"
    compare_records(path, points=deep, hardware="h200_sxm", rows=rows)
    with rows.open(encoding="utf-8", newline="") as file:
        [row] = csv.DictReader(file)
    assert 0 < float(row["predicted_drift_read_bytes"]) < float(row["predicted_dram_read_bytes"])


def test_nothing_to_score_ends_with_an_error(page, write, capsys):
    path = str(write("page.csv", page([{TIME: "n/a", READ: "n/a"}], UNITS)))
    words = ["compare", path, "--problem", "64,64,64", "--config", "64x64x64,stages=2", "--gpu", "h200_sxm"]
    assert main(words) == 2
    assert "nothing was scored: neither the time nor a counter" in " ".join(capsys.readouterr().err.split())
    assert main([*words, "--json"]) == 0
    capsys.readouterr()
    assert main(["compare", str(write("one.csv", page([{READ: "5"}], UNITS))), *words[2:]]) == 0


def test_files_that_are_no_pages_are_named(write, tmp_path, capsys):
    def said(path):
        assert main(["compare", str(path), "--problem", "64,64,64", "--config", "64x64x64,stages=2"]) == 2
        return " ".join(capsys.readouterr().err.split())

    assert "absent.csv'; give output of ncu --csv --page raw, or a report" in said(tmp_path / "absent.csv")
    assert "which is not a regular file" in said(tmp_path)
    assert "empty.csv: the file is empty" in said(write("empty.csv", "\n"))
    broken = tmp_path / "broken.csv"
    broken.write_bytes(b"\xff\xfe\x00")
    assert "broken.csv: not readable as text in UTF-8" in said(broken)
    without = write("without.csv", '"Kernel Name","gpu__time_duration.sum"\n"gemm","5"\n')
    assert "without.csv:1: no header with the columns 'ID' and 'Kernel Name' in it" in said(without)
    table = write("table.csv", "m,n,k,warm_us,cold_us\n64,64,64,5,6\n")
    assert "points belongs to reports of Nsight Compute" in said(table)


def test_files_that_are_read_are_never_overwritten(counted, write):
    points = write("points.csv", "m,n,k,match\n4096,4096,4096,gemm$\n")
    for file, why in ((counted, "is the table itself"), (points, "is the file of points and would be lost")):
        with pytest.raises(TableError, match=why):
            compared(counted, points=points, rows=file)


def test_caches(counted):
    assert compared(counted, cache="warm").to_dict()["bias"] == pytest.approx(60)  # 40 of 25 us
    assert compared(counted, cache="cold").to_dict() == compared(counted).to_dict()
    with pytest.raises(ConfigError, match="cache = 'hot'; give 'cold' or 'warm'"):
        compared(counted, cache="hot")


def test_selection_and_conditions(counted):
    one = compared(counted, kernel="gemm2", points=Point(SMALL, NVJET))
    assert (one.n, one.left_out) == (1, {})
    assert compared(counted, where={"n": 8192}).predictions.problem.tolist() == [str(SMALL)]
    chosen = compared(counted, points=[Point(BIG, match="gemm$"), Point(SMALL, match="gemm2")])
    assert chosen.to_dict()["auto_config"] is True
    assert chosen.states_configs is False


def test_which_gpu(page, write):
    name = "device__attribute_display_name"
    path = write("page.csv", page([{TIME: "25", name: "NVIDIA H200"}], UNITS))
    options = {"points": Point(BIG, NVJET), "hardware": None}
    assert compared(path, **options).gpu == "h200_sxm"
    with pytest.raises(TableError, match="page.csv:gpu: no row has 'a100_sxm'; the table has NVIDIA H200"):
        compared(path, **options | {"hardware": "a100_sxm"})
    other = write("other.csv", page([{TIME: "25", name: "NVIDIA H7777"}], UNITS))
    assert compared(other, **options | {"hardware": "h200_sxm"}).n == 1  # whoever names the profile knows best
    assert "H7777" in compared(other, **options).refused[0]["reason"]
    nameless = write("nameless.csv", page([{TIME: "25"}], UNITS))
    with pytest.raises(TableError, match="has no gpu column; say which GPU"):
        compared(nameless, **options)


def test_options_of_reports_for_tables(write):
    table = write("table.csv", "m,n,k,warm_us,cold_us\n64,64,64,5,6\n")
    for option, value in (("points", "points.csv"), ("kernel", "x"), ("cache", "warm")):
        with pytest.raises(ConfigError, match=f"{option} belongs to reports of Nsight Compute; .*table.csv is a table"):
            compare_records(table, hardware="h200_sxm", **{option: value})
    for option, why in (
        ("points", "a file of points"),
        ("kernel", "a regular expression"),
        ("cache", "one of 'cold'"),
    ):
        with pytest.raises(ConfigError, match=f"{option} = 5; give {why}"):
            compare_records(table, hardware="h200_sxm", **{option: 5})


# --- as recorded


def test_recorded(recorded):
    result = compare_records(recorded, points=POINTS)
    assert (result.n, result.n_refused, result.gpu) == (2, 0, "h200_sxm")
    found = result.points()
    assert [point["launches"] for point in found] == [3, 2]
    big, small = (point["quantities"] for point in found)
    assert big["time_s"]["measured"] == pytest.approx(176.736e-6)
    assert small["time_s"]["measured"] == pytest.approx((49.216e-6 + 49.408e-6) / 2)
    assert big["time_s"]["spread"] < 1
    # one run of one kernel under a profiler: the model is within 10 % for the time and the bytes read
    for quantities in (big, small):
        assert abs(quantities["time_s"]["error"]) < 10
        assert abs(quantities["dram_read_bytes"]["error"]) < 10
        assert abs(quantities["lookup_bytes"]["error"]) < 10
        assert abs(quantities["l2_hit_rate"]["error"]) < 5


def test_both_units_say_the_same(request):
    folder = request.path.parent
    one, other = (compare_records(folder / f"h200_{units}.csv", points=POINTS).points() for units in ("base", "auto"))
    for first, second in zip(one, other, strict=True):
        for name, quantity in first["quantities"].items():
            assert second["quantities"][name]["measured"] == pytest.approx(quantity["measured"], rel=1e-4)


def test_command(recorded, write, capsys):
    points = write(
        "points.csv",
        "launches,m,n,k,tile,stages,cluster_m\n3,4096,4096,4096,256x128x64,4,2\n2,2048,8192,1024,256x128x64,4,2\n",
    )
    assert main(["compare", str(recorded), "--points", str(points), "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed == json.loads(json.dumps(compare_records(recorded, points=POINTS).to_dict()))
    words = ["--problem", "4096,4096,4096", "--config", "256x128x64,stages=4,cluster_m=2", "--kernel", "nvjet"]
    assert main(["compare", str(recorded), *words, "--cache", "warm"]) == 0
    assert "5 launches of nvjet_sm90" in capsys.readouterr().out.replace("\n", " ")


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ([], "Nsight Compute does not say what these kernels compute"),
        (["--points", "p.csv", "--problem", "1,1,1"], "--points says what --problem and --config say"),
        (["--config", "64x64x64,stages=2"], "--config belongs to --problem"),
        (["--problem", "64,64,64", "--kernel", "add"], "no kernel matches 'add'"),
        (["--problem", "64,64,64", "--cache", "hot"], "cache = 'hot'; give 'cold' or 'warm'"),
        (["--points", "absent.csv"], "no file 'absent.csv'"),
    ],
)
def test_bad_commands(recorded, capsys, words, why):
    assert main(["compare", str(recorded), *words]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert why in err
