"""The command line: what it prints, and one clear line for every bad input."""

import csv
import gzip
import json
import math
import os
import re
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import pytest

import tilesight
from tilesight import Gemm, GemmConfig, compare_records, explain, predict, rank, rank_many, raster_widths
from tilesight.cli.options import ConfigOptions, ProblemOptions
from tilesight.cli.program import main
from tilesight.files import sample_files
from tilesight.hardware.load import load_profile
from tilesight.hardware.write import to_toml
from tilesight.records import given
from tilesight.report import text
from tilesight.report.explanation import ExplainedLaunch

SIZES = ["-m", "4096", "-n", "4096", "-k", "4096"]
TILE = ["--tile", "128x256x64", "--stages", "4"]
PROBLEM, CONFIG = Gemm(4096, 4096, 4096), GemmConfig(128, 256, 64, stages=4)


@pytest.fixture(scope="session")
def gpu(hw, tmp_path_factory):
    """Path of a file with the tests' profile."""
    path = tmp_path_factory.mktemp("profile") / "round.toml"
    path.write_text(to_toml(hw), encoding="utf-8")
    return str(path)


@pytest.fixture
def run(capsys, monkeypatch):
    """Function that runs the program and gives what it prints; it must end with 0 and an empty stderr."""
    monkeypatch.setenv("COLUMNS", "100")

    def call(*words):
        status = main([str(word) for word in words])
        out, err = capsys.readouterr()
        assert (status, err) == (0, "")
        return out

    return call


@pytest.fixture
def refused(capsys):
    """Function that runs the program on bad input and gives its one line on stderr; it must end with 2."""

    def call(*words):
        status = main([str(word) for word in words])
        out, err = capsys.readouterr()
        assert (status, out) == (2, "")
        assert err.startswith("tilesight: ")
        assert err.count("\n") == 1
        assert err.endswith("\n")
        assert "Traceback" not in err
        return err.removeprefix("tilesight: ").rstrip("\n")

    return call


def strict_json(printed):
    """The JSON value; NaN and Infinity are none."""

    def refuse(name):
        raise AssertionError(f"{name} in JSON")

    return json.loads(printed, parse_constant=refuse)


# What commands print


def test_predict_prints_the_report(run, gpu):
    estimate = predict(PROBLEM, CONFIG, hardware=gpu)
    assert run("predict", "gemm", *SIZES, *TILE, "--gpu", gpu) == text(estimate, width=100) + "\n"


def test_predict_json_is_the_estimate(run, gpu):
    printed = strict_json(run("predict", "gemm", *SIZES, *TILE, "--gpu", gpu, "--json"))
    assert printed == predict(PROBLEM, CONFIG, hardware=gpu).to_dict()


def test_every_option_reaches_the_model(run, gpu):
    words = ["predict", "gemm", "-m", "1024", "-n", "2048", "-k", "512", "--layout-b", "column", "--tile", "64x128x32"]
    words += ["--stages", "3", "--warps", "4", "--kernel", "warp_specialized", "--group", "4", "--cluster", "2x1"]
    words += ["--split-k", "2", "--swap-ab", "--registers", "120", "--smem", "50000", "--spills", "0", "--gpu", gpu]
    words += ["--clock", "2 ms", "--resident", "a=0.5,b=1", "--resident", "c=0", "--sms", "60", "--dirty", "30 MB"]
    config = GemmConfig(
        64, 128, 32, stages=3, warps=4, group_m=4, cluster_m=2, swap_ab=True, split_k=2, registers=120,
        smem_bytes=50000, spills=0,
    )  # fmt: skip
    expected = predict(
        Gemm(1024, 2048, 512, layout_b="column"),
        config,
        hardware=gpu,
        clock=0.002,
        resident={"a": 0.5, "b": 1, "c": 0},
        sms=60,
        dirty_bytes=30e6,
    )
    assert strict_json(run(*words, "--json")) == expected.to_dict()


def test_options_of_newer_problems_and_kernels(run, gpu):
    words = ["predict", "gemm", "-m", "1024", "-n", "2048", "-k", "512", "--batch", "3", "--output", "fp32"]
    words += ["--beta", "0.5", "--bias", "--tile", "128x128x64", "--stages", "3", "--pingpong", "--gpu", gpu, "--json"]
    problem = Gemm(1024, 2048, 512, batch=3, output="fp32", beta=0.5, bias=True)
    expected = predict(problem, GemmConfig(128, 128, 64, stages=3, pingpong=True), hardware=gpu)
    printed = strict_json(run(*words))
    assert printed == expected.to_dict()
    assert printed["problem_fields"] == asdict(problem)
    assert Gemm(**printed["problem_fields"]) == problem
    # the others take them too
    assert strict_json(run("explain", *words[1:]))["estimate"] == expected.to_dict()
    ranked = strict_json(run("rank", *words[1:15], "--gpu", gpu, "--top", 1, "--json"))
    assert ranked["problem_fields"] == asdict(problem)


def test_what_is_given_is_not_echoed_without_end(refused, gpu):
    long = "9" * 100_000
    for words in (
        ["--clock", long],
        ["--tile", long],
        ["--dtype", long],
        ["--dtype", "x " * 50_000],
        ["--resident", long],
        ["--set", long],
        [f"--{long}"],
        ["--gpu", long],
        ["--gpu", long + ".toml"],
    ):
        assert len(refused("predict", "gemm", *SIZES, *TILE, "--gpu", gpu, *words)) < 2500
    assert len(refused("explain", long)) < 300
    assert len(refused(long)) < 300
    assert len(refused("compare", long, "--gpu", gpu)) < 300


def test_state_is_told(run, gpu):
    words = ["predict", "gemm", *SIZES, *TILE, "--gpu", gpu]
    state = ["--resident", "a=0.5,b=0", "--clock", "50 ms", "--dirty", "30 MB", "--sms", "60"]
    assert strict_json(run(*words, *state, "--json"))["state"] == {
        "cache": None,
        "resident": {"a": 0.5, "b": 0.0},
        "clock": None,
        "busy_s": 0.05,
        "dirty_bytes": 30e6,
        "sms": 60,
    }
    said = "50 % of a, 0 % of b in L2, 30.00 MB of other data dirty in L2, 60 SMs at most, 50.00 ms under load"
    assert said in " ".join(run(*words, *state).split())
    assert "state      warm cache, sustained clock" in run(*words)
    other = "cache=cold,clock=burst,dirty=3 MB,sms=50"
    both = strict_json(run("explain", *words[1:], "--against", other, "--json"))
    assert (
        both["other"]
        == predict(PROBLEM, CONFIG, hardware=gpu, cache="cold", clock="burst", dirty_bytes=3e6, sms=50).to_dict()
    )
    page = " ".join(run("explain", *words[1:], "--against", "resident=a=0.5,b=1").split())
    assert "warm cache, sustained clock 50 % of a, 100 % of b in L2, sustained clock" in page


def test_second_product_takes_what_it_leaves_out_from_the_first(run, gpu):
    words = ["explain", "gemm", *SIZES, *TILE, "--gpu", gpu, "--cache", "cold", "--clock", "burst", "--json"]
    second = strict_json(run(*words, "gemm", "--stages", "3"))["other"]
    other = GemmConfig(128, 256, 64, stages=3)
    assert second == predict(PROBLEM, other, hardware=gpu, cache="cold", clock="burst").to_dict()
    second = strict_json(run(*words, "gemm", "--resident", "a=1"))["other"]
    assert second == predict(PROBLEM, CONFIG, hardware=gpu, resident={"a": 1}, clock="burst").to_dict()


def test_options_that_are_words(run, gpu):
    words = ["predict", "gemm", "-m", "64", "-n", "4096", "-k", "4096", *TILE, "--gpu", gpu, "--json"]
    config = GemmConfig(128, 256, 64, stages=4, split_k=None)
    expected = predict(Gemm(64, 4096, 4096), config, hardware=gpu, cache="cold", clock="burst")
    printed = strict_json(run(*words, "--cache", "cold", "--clock", "burst", "--split-k", "auto"))
    assert printed == expected.to_dict()
    assert expected.split_k > 1


def test_without_a_tile_the_best_is_chosen(run, gpu):
    printed = strict_json(run("predict", "gemm", *SIZES, "--gpu", gpu, "--json"))
    assert printed == rank(PROBLEM, hardware=gpu)[0].to_dict()


def test_rank(run, gpu):
    printed = strict_json(run("rank", "gemm", *SIZES, "--gpu", gpu, "--top", 3, "--json"))
    assert printed == strict_json(json.dumps(rank(PROBLEM, hardware=gpu, top=3).to_dict()))
    assert len(printed["ranked"]) == 3
    page = run("rank", "gemm", *SIZES, "--gpu", gpu)
    assert page == text(rank(PROBLEM, hardware=gpu, top=10), width=100) + "\n"


CANDIDATES = [
    GemmConfig(128, 256, 64, stages=4, cluster_m=2, split_k=None),
    GemmConfig(64, 128, 32, stages=3, kernel="cp_async", warps=4),
    GemmConfig(128, 128, 64, stages=4, swap_ab=True),
]


def test_rank_prints_as_many_as_asked_for(run, gpu):
    for top in (3, 30):
        page = run("rank", "gemm", *SIZES, "--gpu", gpu, "--top", top)
        assert re.findall(r"^ *([0-9]+)  ? ?=? ", page, re.MULTILINE)[-1] == str(top)
        assert "not shown" not in page


def test_rank_of_what_rank_wrote(run, gpu, tmp_path):
    path = tmp_path / "ranked.json"
    path.write_text(run("rank", "gemm", *SIZES, "--gpu", gpu, "--top", 5, "--json"), encoding="utf-8")
    again = strict_json(run("rank", "gemm", *SIZES, "--gpu", gpu, "--candidates", path, "--json"))
    assert again["ranked"] == strict_json(path.read_text(encoding="utf-8"))["ranked"]
    configs = [GemmConfig(**row["config_fields"]) for row in again["ranked"]]
    assert [str(config) for config in configs] == [row["config"] for row in again["ranked"]]


SHAPES = [Gemm(64, 4096, 4096), Gemm(512, 512, 512, batch=4, beta=0.5, bias=True, layout_b="column")]


@pytest.mark.parametrize("ending", ["csv", "json"])
def test_rank_of_shapes(run, gpu, tmp_path, ending):
    path = tmp_path / f"shapes.{ending}"
    rows = [asdict(problem) for problem in SHAPES]
    if ending == "json":
        path.write_text(json.dumps(rows), encoding="utf-8")
    else:
        cells = "64,4096,4096,,,,\n512,512,512,4,0.5,true,column\n"
        path.write_text("m,n,k,batch,beta,bias,layout_b\n" + cells, encoding="utf-8")
    words = ["rank", "shapes", path, "--gpu", gpu, "--cache", "cold"]
    expected = rank_many(SHAPES, hardware=gpu, cache="cold", top=1)
    printed = strict_json(run(*words, "--json"))
    assert printed.pop("file") == str(path)
    lines = [1, 2] if ending == "json" else [2, 3]
    assert [(entry.pop("line"), entry.pop("label")) for entry in printed["rankings"]] == [(n, None) for n in lines]
    assert printed == strict_json(json.dumps(expected.to_dict()))
    assert run(*words) == text(expected, width=100) + "\n"
    two = strict_json(run(*words, "--top", 2, "--json"))["rankings"]
    assert [len(ranking["ranked"]) for ranking in two] == [2, 2]
    assert two[1]["ranked"][0] == rank(SHAPES[1], hardware=gpu, cache="cold")[0].to_dict()


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("", "s.csv:1: the file is empty"),
        ("m,n,k\n", "no problems in it"),
        ("m,n\n1,2\n", "s.csv:2: k missing"),
        ("m,n,k\n1,2,0\n", "s.csv:2: k = 0 is outside"),
        ("m,n,k,tile\n1,2,3,4\n", "s.csv:1:tile: unknown column; known: batch"),
        ("m,n,k,name\n1,2,3,4\n", "s.csv:1:name: unknown column; known: batch, beta, bias, dtype, k, label, "),
        ("m,n,k,dtype\n1,2,3,bf61\n", "s.csv:2: no data type 'bf61'"),
        ("m,n,k,beta\n1,2,3,half\n", "s.csv:2: beta = 'half' is not a finite number"),
    ],
)
def test_bad_shapes(refused, gpu, tmp_path, content, why):
    path = tmp_path / "s.csv"
    path.write_text(content, encoding="utf-8")
    assert why in refused("rank", "shapes", path, "--gpu", gpu)


def test_shapes_have_labels_and_may_be_refused(run, refused, gpu, tmp_path):
    path, poor = tmp_path / "s.csv", tmp_path / "poor.csv"
    path.write_text("label,m,n,k,dtype\nQ K,64,4096,4096,\n,64,64,64,nvfp4\nlast one,64,64,60,fp6\n", encoding="utf-8")
    words = ["rank", "shapes", path, "--gpu", gpu]
    printed = strict_json(run(*words, "--json"))
    assert printed["rankings"][0]["ranked"][0] == rank(Gemm(64, 4096, 4096), hardware=gpu)[0].to_dict()
    assert [(entry["index"], entry["line"], entry["label"]) for entry in printed["rankings"]] == [(0, 2, "Q K")]
    places = [(entry["index"], entry["line"], entry["label"], entry["problem"]) for entry in printed["refused"]]
    assert places == [(1, 3, None, "gemm 64 x 64 x 64 nvfp4"), (2, 4, "last one", "gemm 64 x 64 x 60 fp6")]
    assert printed["refused"][0]["reason"].startswith("sm_90 has no nvfp4 matrix instructions")
    page = " ".join(run(*words).split())
    assert "refused 2, listed below" in page
    assert "s.csv:3: gemm 64 x 64 x 64 nvfp4: sm_90 has no" in page
    assert "s.csv:4: last one (gemm 64 x 64 x 60 fp6): sm_90 has no" in page
    assert "label problem best time rate tried ties" in page
    poor.write_text('[{"m": 1, "n": 2, "k": 4, "label": 7}]', encoding="utf-8")
    assert "label: 7 is no text" in refused("rank", "shapes", poor.rename(tmp_path / "poor.json"), "--gpu", gpu)
    # what is wrong for one is wrong for all
    assert "cache = 'luke'" in refused(*words, "--cache", "luke")


def test_shapes_of_which_none_can_be_ranked(capsys, gpu, tmp_path):
    path = tmp_path / "s.csv"
    path.write_text("m,n,k,dtype\n64,64,64,nvfp4\n", encoding="utf-8")
    assert main(["rank", "shapes", str(path), "--gpu", gpu]) == 2
    out, err = capsys.readouterr()
    assert out.startswith("1 problem, none of which can be ranked\n")
    assert err.count("\n") == 1
    assert "s.csv:2: none of its products can be ranked; sm_90 has no nvfp4" in err


def test_rank_of_what_rank_shapes_wrote(run, gpu, tmp_path):
    path, ranked = tmp_path / "s.csv", tmp_path / "ranked.json"
    path.write_text("m,n,k\n4096,4096,4096\n4096,4096,4096\n4096,4096,8192\n", encoding="utf-8")
    ranked.write_text(run("rank", "shapes", path, "--gpu", gpu, "--top", 2, "--json"), encoding="utf-8")
    wrote = strict_json(ranked.read_text(encoding="utf-8"))["rankings"]
    again = strict_json(run("rank", "gemm", *SIZES, "--gpu", gpu, "--candidates", ranked, "--json"))
    configs = {entry["config"] for ranking in wrote for entry in ranking["ranked"]}
    assert again["tried"] == len(configs) < 6  # each once
    assert {entry["config"] for entry in again["ranked"]} == configs


def test_rank_of_candidates_in_csv(run, gpu, tmp_path):
    path = tmp_path / "some.csv"
    path.write_text(
        "tile_m,tile_n,tile_k,stages,kernel,warps,cluster_m,split_k,swap_ab\n"
        "128,256,64,4,,,2,auto,\n64,128,32,3,cp_async,4,,,\n128,128,64,4,,,,,true\n\n",
        encoding="utf-8",
    )
    printed = strict_json(run("rank", "gemm", *SIZES, "--gpu", gpu, "--candidates", path, "--json"))
    expected = rank(PROBLEM, CANDIDATES, hardware=gpu)
    assert [row["config"] for row in printed["ranked"]] == [str(config) for config in expected.configs]


def test_rank_of_candidates_in_json(run, gpu, tmp_path):
    path = tmp_path / "some.json"
    rows = [
        {"tile": "128x256x64", "stages": 4, "cluster_m": 2, "split_k": "auto"},
        {"tile": "64x128x32", "stages": 3, "kernel": "cp_async", "warps": 4},
        {"tile_m": 128, "tile_n": 128, "tile_k": 64, "stages": 4, "swap_ab": True},
    ]
    path.write_text(json.dumps(rows), encoding="utf-8")
    printed = strict_json(run("rank", "gemm", *SIZES, "--gpu", gpu, "--candidates", path, "--json"))
    assert printed == strict_json(json.dumps(rank(PROBLEM, CANDIDATES, hardware=gpu).to_dict()))


def test_explain_one(run, gpu):
    raster, explained = raster_widths(PROBLEM, CONFIG, hardware=gpu), explain(predict(PROBLEM, CONFIG, hardware=gpu))
    page = run("explain", "gemm", *SIZES, *TILE, "--gpu", gpu)
    assert page == text(ExplainedLaunch(explained, raster), width=100) + "\n"
    assert page.startswith(text(explained, width=100))
    assert re.search(r"^ +8 .* asked$", page, re.MULTILINE)
    assert " ".join(raster.reason.split()) in " ".join(page.split())


def test_explain_one_json_has_the_raster(run, gpu):
    for config, words in ((CONFIG, TILE), (None, [])):
        printed = strict_json(run("explain", "gemm", *SIZES, *words, "--gpu", gpu, "--cache", "cold", "--json"))
        raster = strict_json(json.dumps(raster_widths(PROBLEM, config, hardware=gpu, cache="cold").to_dict()))
        explained = explain(predict(PROBLEM, config, hardware=gpu, cache="cold"))
        assert printed == strict_json(json.dumps(explained.to_dict())) | {"raster": raster}


def test_explain_two_in_all_ways(run, gpu, tmp_path):
    slow = ["--tile", "128x128x64", "--stages", "3"]
    words = ["gemm", *SIZES, *TILE, "--gpu", gpu]
    other = ["gemm", *SIZES, *slow, "--gpu", gpu]
    first, second = predict(PROBLEM, CONFIG, hardware=gpu), predict(PROBLEM, GemmConfig(128, 128, 64, 3), hardware=gpu)
    expected = strict_json(json.dumps(explain(first, second).to_dict()))
    for name, estimate in (("a.json", words), ("b.json", other)):
        (tmp_path / name).write_text(run("predict", *estimate, "--json"), encoding="utf-8")
    files = [tmp_path / "a.json", tmp_path / "b.json"]
    assert strict_json(run("explain", *words, *other, "--json")) == expected
    assert strict_json(run("explain", *words, "--json", *other)) == expected
    assert strict_json(run("explain", *words, "--against", "tile=128x128x64, stages=3", "--json")) == expected
    assert strict_json(run("explain", *files, "--json")) == expected
    assert strict_json(run("explain", "--json", *files)) == expected
    assert run("explain", *files) == text(explain(first, second), width=100) + "\n"
    assert run("explain", files[0]) == text(explain(first), width=100) + "\n"


def test_explain_against_another_gpu_and_problem(run, gpu, hw, altered, tmp_path):
    faster = altered(hw, {"dram.bandwidth_read_bytes_per_s": 5e12, "l2.lookup_bytes_per_s": 2e13})
    path = tmp_path / "faster.toml"
    path.write_text(to_toml(faster), encoding="utf-8")
    printed = strict_json(run("explain", "gemm", *SIZES, *TILE, "--gpu", gpu, "--against-gpu", path, "--json"))
    assert printed["other"] == predict(PROBLEM, CONFIG, hardware=path).to_dict()
    words = ["explain", "gemm", *SIZES, *TILE, "--gpu", gpu, "--against", "m=64,swap-ab=true,tile=16x128x64", "--json"]
    expected = predict(Gemm(64, 4096, 4096), GemmConfig(16, 128, 64, 4, swap_ab=True), hardware=gpu)
    assert strict_json(run(*words))["other"] == expected.to_dict()


def test_compare(run, gpu, tmp_path):
    table, rows = sample_files()["gemm_cublas.csv"], tmp_path / "rows.csv"
    printed = strict_json(run("compare", table, "--gpu", gpu, "--rows", rows, "--json"))
    assert printed == strict_json(json.dumps(compare_records(table, hardware=gpu).to_dict()))
    with rows.open(encoding="utf-8", newline="") as file:
        assert len(list(csv.DictReader(file))) == 80
    m = table.read_text(encoding="utf-8").splitlines()[1].split(",")[1]
    some = strict_json(run("compare", table, "--gpu", gpu, "--where", f"m={m}", "--table", "gemm_cublas", "--json"))
    assert 0 < some["n"] + some["n_refused"] < 80
    assert "mean absolute error" in run("compare", table, "--gpu", gpu)
    chosen = strict_json(run("compare", table, "--gpu", gpu, "--where", f"m={m}", "--auto-config", "--json"))
    expected = compare_records(table, hardware=gpu, where=[f"m={m}"], auto_config=True)
    assert chosen == strict_json(json.dumps(expected.to_dict()))


def test_compare_that_scores_nothing(run, capsys, gpu, tmp_path):
    path = tmp_path / "shapes.csv"
    path.write_text("kind,batch,m,n,k,warm_us,cold_us\nfp16,1,64,64,64,5,6\n", encoding="utf-8")
    words = ["compare", path, "--gpu", gpu]
    printed = strict_json(run(*words, "--json"))  # the data say so
    assert (printed["n"], printed["n_refused"], printed["mape"]) == (0, 2, None)
    assert main([str(word) for word in words]) == 2
    out, err = capsys.readouterr()
    assert "0 scored, 2 refused" in out
    assert err.count("\n") == 1
    assert (
        "shapes.csv:2: nothing was scored: 2 predictions refused, the first: profile 'h200_sxm' has no tensor.fp16"
        in err
    )


def test_compare_sample(run, gpu):
    printed = strict_json(run("compare", "--sample", "--gpu", gpu, "--json"))
    assert [result["table"] for result in printed["results"]] == ["gemm_cublas", "gemm_triton"]
    page = run("compare", "--sample", "--gpu", gpu)
    assert page.count("mean absolute error") == 2
    own = strict_json(run("compare", "--sample", "--json"))
    assert {result["gpu"] for result in own["results"]} == {"h200_sxm"}


def test_profiles(run, gpu):
    assert run("profiles") == run("profiles", "list")
    assert "h200_sxm" in run("profiles")
    listed = strict_json(run("profiles", "--json"))
    assert listed == strict_json(run("profiles", "list", "--json"))
    rows = {row["name"]: row for row in listed["profiles"]}
    b200 = load_profile("b200_sxm")
    assert rows["b200_sxm"]["clock_boost_hz"] == b200.clock.boost_hz
    assert rows["b200_sxm"]["dram_capacity_bytes"] == b200.dram.capacity_bytes
    assert rows["b200_sxm"]["dram_bandwidth_peak_bytes_per_s"] == b200.dram.bandwidth_peak_bytes_per_s
    assert rows["b200_sxm"]["predicts"][-4:] == ["fp4", "mxfp4", "nvfp4", "int8"]
    assert rows["b200_sxm"]["rates_alone"] == ["fp6", "fp64"]
    page = run("profiles", "list")
    assert re.search(
        r"^b200_sxm +tf32 bf16 fp16 fp8 fp8_e5m2 mxfp8 fp4 mxfp4 nvfp4 int8 +fp6 fp64$", page, re.MULTILINE
    )
    shown = strict_json(run("profiles", "show", "h200_sxm", "--json"))
    assert shown["hash"] == load_profile("h200_sxm").hash
    assert strict_json(run("profiles", "show", "H200", "--json")) == shown  # other names of a GPU count as its own
    assert run("profiles", "show", gpu) == text(load_profile(gpu), width=100) + "\n"
    checked = strict_json(run("profiles", "check", gpu, "--json"))
    assert checked["hash"] == load_profile(gpu).hash
    assert "a valid profile 'h200_sxm'" in run("profiles", "check", gpu)


def test_profiles_check_says_how_numbers_are_known(run, tmp_path):
    checked = strict_json(run("profiles", "check", "h200_sxm", "--json"))
    profile = load_profile("h200_sxm")
    assert sum(len(names) for names in checked["kinds"].values()) == checked["numbers"] == len(profile.numbers)
    assert "sm_count" in checked["kinds"]["measured"]
    assert "merging.window_dram_s" in checked["not_known"]
    assert checked["gemm"] == {"lacks": [], "refused": []}
    poor = tmp_path / "poor.toml"
    numbers = dict.fromkeys(("launch.descriptor_s", "fill.row_16_s", "merging.near_share", "l2.associativity"))
    poor.write_text(to_toml(profile.with_numbers(numbers, {})), encoding="utf-8")
    assert set(strict_json(run("profiles", "check", poor, "--json"))["gemm"]["lacks"]) == set(numbers)
    page = run("profiles", "check", poor)
    assert "matrix products lack" in page
    assert all(name in page for name in (*numbers, "measured", "sm_count"))


def test_profiles_diff(run):
    page = run("profiles", "diff", "H200", "h100_sxm")
    assert page.startswith("h200_sxm and h100_sxm\n")
    assert "dram.capacity_bytes" in page
    assert "sm_count" not in page
    printed = strict_json(run("profiles", "diff", "h200_sxm", "h100_sxm", "--json"))
    assert printed["schema"] == "tilesight.profile_diff/1"
    assert (printed["first"]["name"], printed["second"]["name"]) == ("h200_sxm", "h100_sxm")
    rows = {row["name"]: row for row in printed["differences"]}
    # 3.35 TB/s over 4.8 TB/s
    assert rows["dram.bandwidth_peak_bytes_per_s"]["ratio"] == pytest.approx(0.697917, rel=1e-5)
    assert rows["dram.bandwidth_peak_bytes_per_s"]["first_kind"] == "datasheet"
    assert strict_json(run("profiles", "diff", "h200_sxm", "h200_sxm", "--json"))["differences"] == []
    assert run("profiles", "diff", "h200_sxm", "h200_sxm")


SET = ["--set", "dram.bandwidth_read_bytes_per_s=0.5x", "--set", "sm_count=66"]
CHANGES = {"dram.bandwidth_read_bytes_per_s": "0.5x", "sm_count": 66}


def test_set_changes_the_gpu(run, gpu, hw):
    slow = tilesight.derive(hw, CHANGES)
    where = [*SIZES, *TILE, "--gpu", gpu]
    predicted = strict_json(run("predict", "gemm", *where, *SET, "--json"))
    assert predicted == json.loads(json.dumps(predict(PROBLEM, CONFIG, hardware=slow).to_dict()))
    assert predicted["hardware"] == "h200_sxm_what_if"
    ranked = strict_json(run("rank", "gemm", *SIZES, "--gpu", gpu, *SET, "--top", "1", "--json"))
    assert ranked == json.loads(json.dumps(rank(PROBLEM, hardware=slow, top=1).to_dict()))
    both = explain(predict(PROBLEM, CONFIG, hardware=hw), predict(PROBLEM, CONFIG, hardware=slow))
    explained = strict_json(run("explain", "gemm", *where, "gemm", *where, *SET, "--json"))
    assert explained == json.loads(json.dumps(both.to_dict()))
    shown = strict_json(run("profiles", "show", gpu, *SET, "--json"))
    assert shown["hash"] == slow.hash
    assert shown["derived"] == {"parent": "h200_sxm", "changed": list(CHANGES)}
    assert "from h200_sxm, changed: dram.bandwidth_read_bytes_per_s, sm_count" in run("profiles", "show", gpu, *SET)


def test_other_gpu_is_as_it_is(run, gpu, hw):
    what_if = [*SIZES, *TILE, "--gpu", gpu, *SET]
    mine, theirs = (predict(PROBLEM, CONFIG, hardware=hardware) for hardware in (tilesight.derive(hw, CHANGES), hw))
    against = strict_json(run("explain", "gemm", *what_if, "--against-gpu", gpu, "--json"))
    second = strict_json(run("explain", "gemm", *what_if, "gemm", "--gpu", gpu, "--json"))
    for printed in (against, second):
        assert (printed["estimate"], printed["other"]) == (mine.to_dict(), theirs.to_dict())
    # without another GPU, both have the changes
    same = strict_json(run("explain", "gemm", *what_if, "gemm", "--stages", 3, "--json"))
    assert same["other"]["hardware"] == "h200_sxm_what_if"


def test_what_was_changed_is_told(run, gpu):
    said = ["sm_count = 66 instead of 100", "dram.bandwidth_read_bytes_per_s = 2e12, 0.5x of 4e12"]
    where = [*SIZES, "--gpu", gpu, *SET]
    for words in (["predict", "gemm", *where, *TILE], ["rank", "gemm", *where], ["explain", "gemm", *where, *TILE]):
        page = " ".join(run(*words).split())
        assert all(f"what if {change}" in page for change in said)
    page = run("explain", "gemm", *where, *TILE, "--against-gpu", gpu)
    assert re.search(r"^what if +.* as it is$", page, re.MULTILINE)
    predicted = strict_json(run("predict", "gemm", *where, *TILE, "--json"))
    assert {f"what if: {change}" for change in said} <= set(predicted["assumptions"])
    ranked = strict_json(run("rank", "gemm", *where, "--top", "1", "--json"))["ranked"][0]
    assert {f"what if: {change}" for change in said} <= set(ranked["assumptions"])


def test_set_in_compare(run):
    own = strict_json(run("compare", "--sample", "--json"))["results"][0]
    slow = strict_json(run("compare", "--sample", *SET[:2], "--json"))["results"][0]
    assert list(slow["what_if"]) == ["h200_sxm_what_if"]
    assert slow["n"] == own["n"]
    assert slow["bias"] > own["bias"]  # half the bandwidth predicts longer times


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("sm_count", "--set 'sm_count' is not NAME=VALUE; give it as in "),
        ("sm_count=", "--set 'sm_count=' is not NAME=VALUE"),
        ("=2", "--set '=2' is not NAME=VALUE"),
        ("sm_counts=2", "a profile has no number 'sm_counts'; known: .*Did you mean 'sm_count'?"),
        ("sm_count=many", "sm_count = 'many' is not a new value; give a number"),
        ("sm_count=0", "h200_sxm_what_if: sm_count = 0 is outside 1..1000000"),
        ("vendor=AMD", "vendor is not a number of a profile"),
    ],
)
def test_bad_set(refused, text, why):
    for words in (["predict", "gemm", *SIZES, "--gpu"], ["profiles", "show"]):
        with pytest.raises(AssertionError, match=why):
            raise AssertionError(refused(*words, "h200_sxm", "--set", text))


def test_set_twice_or_without_a_gpu(refused, tmp_path):
    twice = ["--set", "sm_count=66", "--set", "sm_count=33"]
    assert "--set sm_count is given twice" in refused("profiles", "show", "h200_sxm", *twice)
    assert "say which one by --gpu" in refused("compare", tmp_path / "table.csv", "--set", "sm_count=66")


def test_bench(run, gpu):
    printed = strict_json(run("bench", "--gpu", gpu, "--json"))
    times = [
        printed[name] for name in ("import_s", "first_predict_s", "predict_gemm_ms", "rank_10000_s", "schedule_ms")
    ]
    assert all(0 < seconds < 60 for seconds in times)
    assert 0 <= printed["batch_difference"] <= 1e-9


def test_version_and_help(run):
    assert run("--version") == f"tilesight {tilesight.__version__}\n"
    assert run() == run("--help")
    for words in (["predict", "gemm"], ["rank", "gemm"], ["explain", "gemm"], ["compare"], ["profiles", "show"]):
        assert "--json" in run(*words, "--help")


def test_help_lists_the_formats(run):
    page = " ".join(run("predict", "gemm", "--help").replace("│", " ").split())
    assert "Operand type: tf32, bf16, fp16, fp8, fp8_e5m2, mxfp8, fp4, mxfp4, nvfp4, int8; which" in page
    assert "Type of C, if not the usual one: int32, int8, fp32, bf16, fp16, fp8, fp8_e5m2; integers for" in page


def test_every_command_has_json(run):
    for words in (["predict", "gemm"], ["rank", "gemm"], ["explain", "gemm"], ["compare"], ["bench"], ["profiles"]):
        assert "--json" in run(*words, "--help")


# Bad input


@pytest.mark.parametrize("name", ["m", "n", "k"])
@pytest.mark.parametrize(
    ("value", "why"),
    [
        ("0", "= 0 is outside 1..2147483647"),
        ("-4096", "= -4096 is outside"),
        (str(2**40), f"= {2**40} is outside"),
        (str(2**31), "is outside"),
        ("9" * 200, "is outside"),
        ("9" * 5000, "is not a whole number"),
        ("4096.5", "= '4096.5' is not a whole number; give an integer in"),
        ("4096.0", "is not a whole number"),
        ("1e3", "is not a whole number"),
        ("nan", "= 'nan' is not a whole number"),
        ("inf", "is not a whole number"),
        ("-inf", "is not a whole number"),
        ("1_000", "is not a whole number"),
        (" 7", "is not a whole number"),
        ("", "= '' is not a whole number"),
        ("４０９６", "is not a whole number"),  # digits of another script
        ("many", "is not a whole number"),
        ("0x10", "is not a whole number"),
        ("7\n8", "is not a whole number"),
    ],
)
def test_sizes_that_are_none(refused, gpu, name, value, why):
    words = {"m": "4096", "n": "4096", "k": "4096", name: value}
    said = refused("predict", "gemm", *(part for key in words for part in (f"-{key}", words[key])), *TILE, "--gpu", gpu)
    assert said.startswith(f"{name} = ")
    assert why in said


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["--dtype", "bf61"], "no data type 'bf61'; known: bf16, .* Did you mean 'bf16'?"),
        (["--dtype", "fp64"], "fp64 products on sm_90 are not modelled; modelled there are bf16, "),
        (["--tile", "128x256"], "tile = '128x256' is not 3 sizes; give them as in 128x256x64"),
        (["--tile", "128x0x64"], "tile_n = 0 is outside 1..4096"),
        (["--tile", "128xnanx64"], "tile_n = 'nan' is not a whole number"),
        (["--tile", ""], "tile = '' is not 3 sizes"),
        (["--tile", "256x256x64"], "need 262208 B of shared memory, 29760 B more than the 232448 B a CTA can have"),
        (
            ["--tile", "256x256x16", "--kernel", "cp_async", "--warps", "4"],
            r"needs about 576 registers per thread, 321 more than the 255 there are",
        ),
        (["--stages", "0"], "stages = 0 is outside"),
        (["--stages", "2.5"], "stages = '2.5' is not a whole number"),
        (["--warps", "-4"], "warps = -4 is outside"),
        (["--kernel", "mma"], "kernel = 'mma'; known: cp_async"),
        (["--cluster", "2"], "cluster = '2' is not 2 sizes"),
        (["--cluster", "2x17"], "cluster_n = 17 is outside"),
        (["--split-k", "some"], "split_k = 'some' is not a whole number"),
        (["--split-k", "65"], "split_k = 65 is more than the k-steps there are"),
        (["--registers", "256"], "1 more than the 255 there are"),
        (
            ["--registers", "32"],
            "registers = 32, and the accumulators of 128x256 on 8 warps take at least 86 per thread",
        ),
        (["--smem", "10000", "--registers", "32"], "smem_bytes = 10000, and 4 stages of .* take at least 196608 B"),
        (["--output", "int4"], "output = 'int4' of bf16 operands; give fp32, bf16, fp16, fp8, fp8_e5m2"),
        (["--dtype", "fp6"], "sm_90 has no fp6 matrix instructions; modelled there are bf16, "),
        (["--dtype", "bf61"], "known: bf16, fp16, fp32, fp4, fp6, fp64, fp8, .*, tf32. Did you mean"),
        (["--set", "sm_count=٦٦"], "sm_count = '٦٦' is not a new value"),
        (["--smem", "1e9"], "smem_bytes = '1e9' is not a whole number"),
        (["--cache", "luke"], "cache = 'luke'; known: warm, cold"),
        (["--clock", "slow"], "clock = 'slow'; give burst, sustained"),
        (["--clock", "-1"], "clock = '-1'"),
        (["--clock", "nan"], "clock = 'nan'"),
        (["--clock", "5 parsec"], "clock = '5 parsec'"),
        (["--resident", "a"], "resident 'a' is not TENSOR=SHARE"),
        (["--resident", "a=nan"], "resident 'a=nan' is not TENSOR=SHARE"),
        (["--resident", "a=2"], "is not a share in 0..1"),
        (["--resident", "a=1e-400"], "resident 'a=1e-400' is not TENSOR=SHARE"),
        (["--resident", "d=0.5"], "resident tensor 'd'; known: a, b, c"),
        (["--resident", "a=1", "--cache", "warm"], "cache = 'warm' and resident both say what is in L2; give one"),
        (["--clock", "٥ ms"], "clock = '٥ ms'"),  # digits of another script
        (["--clock", "50 ms\n"], "clock = '50 ms"),
        (["--clock", "1e-400 s"], "clock = '1e-400 s'"),
        (["--dirty", "３０"], "cannot read '３０'"),
        (["--dirty", "30 MB\n"], "cannot read '30 MB"),
        (["--batch", "0"], "batch = 0 is outside 1..2147483647"),
        (["--output", "bf61"], "no data type 'bf61'"),
        (["--beta", "half"], "beta = 'half' is not a finite number"),
        (["--quantise-a"], "A arrives in bf16, and bf16 is no smaller"),
        (["--resident", "a=1,a=0"], "resident 'a' is given twice"),
        (["--sms", "0"], "sms = 0; h200_sxm has 100: give 1..100"),
        (["--sms", "133"], "sms = 133"),
        (["--sms", "1.5"], "sms = '1.5'"),
        (["--dirty", "much"], "cannot read 'much'"),
        (["--dirty", "-1 MB"], "dirty_bytes = -1000000.0"),
        (["--layout-b", "diagonal"], "layout_b = 'diagonal'; known: column, row"),
        (["--speed", "11"], "No such option.*--speed.*see tilesight predict gemm --help"),
        (["more"], "unexpected extra argument"),
        (["--json=yes"], "--json"),
        (["--gpu"], "--gpu"),
    ],
)
def test_bad_options(refused, gpu, options, why):
    with pytest.raises(AssertionError, match=why):
        raise AssertionError(refused("predict", "gemm", *SIZES, *TILE, "--gpu", gpu, *options))


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["forecast"], "No such command 'forecast'"),
        (["predict"], "Missing command"),
        (["predict", "conv"], "No such command 'conv'"),
        (["predict", "gemm"], "Missing option '-m'"),
        (["predict", "gemm", "-m", "1", "-n", "1", "-k", "1"], "Missing option '--gpu'"),
        (["predict", "gemm", *SIZES, "--gpu", "h20"], "no hardware profile 'h20'; known: .*Did you mean 'h200_sxm'?"),
        (["predict", "gemm", *SIZES, "--gpu", ""], "no hardware profile ''"),
        (["predict", "gemm", *SIZES, "--gpu", "absent.toml"], "no profile file 'absent.toml'"),
        (["predict", "gemm", *SIZES, "--gpu", "/"], "no profile file '/'"),
        (["predict", "gemm", *SIZES, "--stages", "4", "--gpu", "h200_sxm"], "--stages belongs to a configuration"),
        (["predict", "gemm", *SIZES, "--tile", "64x64x64", "--gpu", "h200_sxm"], "--tile needs --stages"),
        (["rank", "gemm", *SIZES, "--gpu", "h200_sxm", "--top", "0"], "top = 0; give a whole number"),
        (["rank", "gemm", *SIZES, "--gpu", "h200_sxm", "--top", "few"], "top = 'few'"),
        (["rank", "gemm", *SIZES, "--gpu", "h200_sxm", "--candidates", "absent.csv"], "no file 'absent.csv'"),
        (["rank", "gemm", *SIZES, "--gpu", "h200_sxm", "--candidates", "."], "no file '.'"),
        (["explain"], "Missing command"),
        (["explain", "absent.json"], "no file 'absent.json'"),
        (["explain", "a.json", "b.json", "c.json"], "3 files; give one estimate, or two"),
        (["compare"], "give FILE or --sample"),
        (["compare", "--sample", "file.csv"], "give FILE or --sample"),
        (["compare", "--sample", "--rows", "out.csv"], "--rows takes one table"),
        (["compare", "absent.csv"], "no measured table 'absent.csv'"),
        (["compare", "."], "no measured table '.'"),
        (["profiles", "show", "h2000"], "no hardware profile 'h2000'"),
        (["profiles", "show"], "Missing argument 'NAME|FILE'"),
        (["profiles", "check", "."], "no profile file '.'"),
        (["profiles", "diff", "h200_sxm"], "Missing argument 'NAME|FILE'"),
        (["profiles", "diff", "h200_sxm", "h20"], "no hardware profile 'h20'"),
        (["bench", "--gpu", "h20"], "no hardware profile 'h20'"),
    ],
)
def test_bad_commands(refused, words, why):
    with pytest.raises(AssertionError, match=why.replace("|", r"\|")):
        raise AssertionError(refused(*words))


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["extra"], "unexpected argument 'extra'"),
        (["gemm", "-m", "many"], "m = 'many' is not a whole number"),
        (["gemm", "--cache"], "--cache"),
        (["--against", "tile"], "--against 'tile' is not NAME=VALUE"),
        (["--against", "tiles=64x64x64"], "has no option 'tiles'; known: .*cache, clock, .*sms.*Did you mean 'tile'?"),
        (["--against", "tile="], "--against 'tile=' is not NAME=VALUE"),
        (["--against", "stages=3,stages=4"], "--against gives stages twice"),
        (["--against", "group=3,group-m=4"], "--against gives group-m twice"),
        (["--against", "gpu=h200_sxm"], "has no option 'gpu'"),
        (["--against", "cache=cold,resident=a=1"], "cache = 'cold' and resident both say what is in L2"),
        (["--against", "cache=luke"], "cache = 'luke'; known: warm, cold"),
        (["--against", "swap-ab=1"], "give true or false"),
        (["--against", "stages=4.5"], "stages = '4.5' is not a whole number"),
        (["--against-gpu", "h20"], "no hardware profile 'h20'"),
    ],
)
def test_bad_second_product(refused, gpu, options, why):
    with pytest.raises(AssertionError, match=why):
        raise AssertionError(refused("explain", "gemm", *SIZES, *TILE, "--gpu", gpu, *options))


def test_three_products(refused, gpu):
    one = ["gemm", *SIZES, *TILE, "--gpu", gpu]
    assert "two products" in refused("explain", *one, *one, *one)
    assert "once" in refused("explain", *one, "--against", "m=1", *one)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"schema_version = \n", "not a TOML file"),
        (b"[clock\n", "not a TOML file"),
        (b"\xff\xfe\x00", "not a TOML file"),
        (b"", "schema_version is missing"),
        (b'schema_version = 1\nname = "x"\n', "is missing"),
    ],
)
def test_malformed_profile(refused, tmp_path, content, why):
    path = tmp_path / "bad.toml"
    path.write_bytes(content)
    for words in (["profiles", "check", path], ["predict", "gemm", *SIZES, "--gpu", path]):
        said = refused(*words)
        assert said.startswith("bad.toml: ")
        assert why in said


def test_profile_with_nan(refused, gpu, tmp_path):
    path = tmp_path / "bad.toml"
    lines = Path(gpu).read_text(encoding="utf-8").splitlines()
    path.write_text("\n".join("boost_hz = nan" if line.startswith("boost_hz") else line for line in lines))
    assert "clock.boost_hz = nan is not a finite number" in refused("profiles", "check", path)


HEADER = "m,n,k,warm_us,cold_us\n"


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("", "the file is empty"),
        (HEADER, "the table has a header and no rows"),
        ("m,n,warm_us,cold_us\n1,2,3,4\n", "k"),
        (HEADER + "16,16,nan,5,6\n", "bad.csv:2:k: "),
        (HEADER + "16,16,16,nan,6\n", "bad.csv:2:warm_us: "),
        (HEADER + "16,16,16,5,inf\n", "bad.csv:2:cold_us: "),
        (HEADER + "16,16,16,5,6\n16,16,16,fast,6\n", "bad.csv:3:warm_us: "),
        (HEADER + "16,16,16,-5,6\n", "bad.csv:2:warm_us: "),
        (HEADER + "16,16,16.5,5,6\n", "bad.csv:2:k: "),
        (HEADER + f"16,{2**40},16,5,6\n", "bad.csv:2:n: "),
        (HEADER + "16,16,16,5\n", "bad.csv:2"),
        ("name,age\nx,7\n", "bad.csv"),
        ("op,n_gpus,bytes,us\nall_reduce,2,1024,5\n", "collectives"),
        ("\x00\x01\x02", "bad.csv"),
    ],
)
def test_malformed_tables(refused, gpu, tmp_path, content, why):
    path = tmp_path / "bad.csv"
    path.write_text(content, encoding="utf-8")
    assert why in refused("compare", path, "--gpu", gpu)


def test_tables_that_can_not_be_compared(refused, gpu, tmp_path):
    table = sample_files()["gemm_cublas.csv"]
    assert "--gpu" in refused("compare", table)
    assert "no column to filter by" in refused("compare", table, "--gpu", gpu, "--where", "size=4")
    assert "no row has '7'" in refused("compare", table, "--gpu", gpu, "--where", "m=7")
    assert "column=value" in refused("compare", table, "--gpu", gpu, "--where", "m")
    assert "conv" in refused("compare", table, "--gpu", gpu, "--table", "conv")
    assert "No such file" in refused("compare", table, "--gpu", gpu, "--rows", tmp_path / "no" / "rows.csv")
    assert "Is a directory" in refused("compare", table, "--gpu", gpu, "--rows", tmp_path)
    for bad, said in (("rows\0.csv", r"rows\x00.csv"), ("rows\ud800.csv", r"rows\ud800.csv")):
        assert f"'{said}' is no name of a file" in refused(
            "compare", table, "--gpu", gpu, "--where", "m=16", "--rows", bad
        )
    broken = tmp_path / "broken.csv.gz"
    broken.write_bytes(gzip.compress(table.read_bytes())[:-20])
    assert "broken.csv.gz" in refused("compare", broken, "--gpu", gpu)


def test_compare_never_overwrites_its_table(refused, gpu, tmp_path, monkeypatch):
    path = tmp_path / "table.csv"
    path.write_text(HEADER + "16,16,16,5,6\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    assert "is the table itself and would be lost" in refused("compare", path, "--gpu", gpu, "--rows", "table.csv")
    assert path.read_text(encoding="utf-8") == HEADER + "16,16,16,5,6\n"


CONFIGS = "tile,stages\n128x256x64,4\n"


@pytest.mark.parametrize(
    ("name", "content", "why"),
    [
        ("c.csv", "", "c.csv:1: the file is empty"),
        ("c.csv", "tile,stages\n", "no candidates in it"),
        ("c.csv", "tile,stage\n128x256x64,4\n", "c.csv:1:stage: unknown column; known: .* Did you mean 'stages'?"),
        ("c.csv", "tile,tile\n1,2\n", "c.csv:1:tile: column given twice"),
        ("c.csv", "tile\n128x256x64\n", "c.csv:2: stages missing"),
        ("c.csv", CONFIGS + "128x256x64,nan\n", "c.csv:3: stages = 'nan' is not a whole number"),
        ("c.csv", CONFIGS + "128x256x64,4,5\n", "c.csv:3: 3 cells where the header has 2"),
        ("c.csv", CONFIGS + "128x256,4\n", "c.csv:3: tile = '128x256' is not 3 sizes"),
        ("c.csv", 'tile,stages\n"128x256x64,4\n', "not a CSV file"),
        ("c.csv", "tile,tile_m,stages\n128x256x64,128,4\n", "c.csv:2: tile and tile_m"),
        ("c.csv", "tile,stages,swap_ab\n128x256x64,4,maybe\n", "c.csv:2: swap_ab = 'maybe' is not True or False"),
        ("c.csv", "tile,stages\n512x512x64,8\n", "the only candidate is not legal"),
        ("c.json", "", "not a JSON file"),
        ("c.json", "{}", "expected a list of objects"),
        ("c.json", "[1]", "expected a list of objects"),
        ("c.json", "[]", "no candidates in it"),
        ("c.json", "[" * 100_000, "not a JSON file"),
        ("c.json", '[{"tile": "128x256x64", "stages": NaN}]', "not a JSON file: NaN is no JSON number"),
        ("c.json", '[{"tile": "128x256x64", "stages": 4.5}]', "c.json:1: stages = 4.5 is not a whole number"),
        ("c.json", '[{"tile": 7, "stages": 4}]', "c.json:1: tile = '7' is not 3 sizes"),
        ("c.json", '[{"tile": "128x256x64", "stages": null}]', "c.json:1: stages missing"),
        ("c.json", '[{"tile": "128x256x64", "kernel": ["cp_async"], "stages": 4}]', "c.json:1: kernel"),
        ("c.json", '[{"tiles": "128x256x64"}]', "c.json:1:tiles: unknown key"),
        ("c.json", '[{"tile": "128x256x64", "stages": 3, "stages": 4}]', "key 'stages' stands 2 times in one object"),
        ("c.json", '{"ranked": [7]}', "expected a list of objects"),
        ("c.json", '{"ranked": [{}]}', "expected a list of objects"),
        ("c.json", '{"rankings": 7}', "expected a list of objects"),
        ("c.json", '{"rankings": [{"ranked": [7]}]}', "expected a list of objects"),
        ("c.json", '{"rankings": []}', "no candidates in it"),
    ],
)
def test_bad_candidates(refused, gpu, tmp_path, name, content, why):
    path = tmp_path / name
    path.write_text(content, encoding="utf-8")
    with pytest.raises(AssertionError, match=why):
        raise AssertionError(refused("rank", "gemm", *SIZES, "--gpu", gpu, "--candidates", path))


def test_files_that_are_no_small_files(refused, gpu, tmp_path, monkeypatch):
    monkeypatch.setattr(given, "FILE_MOST_BYTES", 10)
    path = tmp_path / "c.json"
    path.write_text("[" + " " * 20 + "]", encoding="utf-8")
    assert "22 B is more than the 10 B that are read" in refused("explain", path)
    assert "22 B is more than" in refused("rank", "gemm", *SIZES, "--gpu", gpu, "--candidates", path)


def test_bad_candidates_in_bytes(refused, gpu, tmp_path):
    path = tmp_path / "c.csv"
    path.write_bytes(b"tile,stages\n\xff\xfe\n")
    assert "not a text file in UTF-8" in refused("rank", "gemm", *SIZES, "--gpu", gpu, "--candidates", path)


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("seconds", 0, "seconds"),
        ("seconds", "fast", "seconds = 'fast'"),
        ("seconds", math.nan, "NaN is no JSON number"),
        ("seconds", True, "seconds"),
        ("terms", {"start": "soon"}, "terms"),
        ("terms", [1], "terms"),
        ("busy_s", {"tensor": None}, "busy_s"),
        ("clock_hz", None, "clock_hz"),
        ("problem", 7, "problem"),
        ("assumptions", [7], "assumptions"),
        ("schema", "tilesight.estimate/0", "schema"),
        ("binding", "x", "binding = 'x'"),
        ("period_s", {"tensor": 0, "ring": 0}, "period_s"),
        ("period_s", {"a": 1, "b": 1}, "period_s"),
        ("seconds", 10**400, "seconds = 10000"),
        ("seconds", 1e308, "seconds = 1e+308"),
        ("seconds", 1e200, "seconds = 1e+200 is not the sum of terms"),
        ("seconds_low", -1, "seconds_low = -1"),
        ("seconds_low", 1e-6, "seconds_low = 1e-06 and seconds_high = None do not enclose"),
        ("ctas", 0, "ctas = 0 makes no sense"),
        ("rounds", 0, "rounds = 0 makes no sense"),
        ("split_k", 0, "split_k = 0 makes no sense"),
        ("ctas_per_sm", 0, "ctas_per_sm = 0 makes no sense"),
        ("terms", {}, "is not the sum of terms"),
        ("terms", {"soon": 1.0}, "terms"),
        ("margin", 7.0, "margin = 7.0"),
        ("flop", 7, "flop_per_s"),
        ("rounds", 1.5, "rounds = 1.5"),
        ("l2_hit_rate", 1.5, "l2_hit_rate = 1.5"),
        ("regime", "x", "regime = 'x'"),
        ("state", "warm", "state = 'warm'"),
        ("state", {"cache": "x"}, "state"),
        ("resident_after", {"d": 0.5}, "resident_after"),
        ("config_fields", [], "config_fields"),
        ("config_fields", {"tile_m": [7]}, "config_fields"),
        ("hardware", None, "hardware"),
        ("surprise", 7, "surprise"),
    ],
)
def test_bad_estimate_files(refused, gpu, tmp_path, name, value, why):
    data = predict(PROBLEM, CONFIG, hardware=gpu).to_dict()
    path = tmp_path / "bad.json"
    path.write_text(json.dumps(data | {name: value}), encoding="utf-8")
    said = refused("explain", path)
    assert "bad.json" in said
    assert why in said


def test_estimate_without_a_bound(refused, gpu, tmp_path):
    data = predict(PROBLEM, CONFIG, hardware=gpu).to_dict()
    for name, changes in (("good", {}), ("bad", {"period_s": {}, "margin": None})):
        (tmp_path / f"{name}.json").write_text(json.dumps(data | changes), encoding="utf-8")
    said = refused("explain", tmp_path / "bad.json", tmp_path / "good.json")
    assert "bad.json: estimate field period_s = {} makes no sense" in said


@pytest.mark.parametrize("content", ["", "[]", "7", '"text"', "{}", "null", "{"])
def test_files_that_hold_no_estimate(refused, tmp_path, content):
    path = tmp_path / "bad.json"
    path.write_text(content, encoding="utf-8")
    assert "bad.json" in refused("explain", path)


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may read everything")
def test_file_without_permission(refused, gpu, tmp_path):
    path = tmp_path / "secret.csv"
    path.write_text(HEADER + "16,16,16,5,6\n", encoding="utf-8")
    path.chmod(0)
    assert "Permission denied" in refused("compare", path, "--gpu", gpu)


# As a process


def command(*words, **options):
    """The program in its own process."""
    return subprocess.Popen([sys.executable, "-m", "tilesight", *map(str, words)], text=True, **options)


def test_reader_that_leaves_early():
    for words in (["--help"], ["profiles", "show", "h200_sxm", "--json"]):
        process = command(*words, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        process.stdout.close()
        assert process.stderr.read() == ""
        process.stderr.close()
        assert process.wait() == 0


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_disk_that_is_full():
    with open("/dev/full", "w", encoding="utf-8") as full:
        process = command("profiles", "show", "h200_sxm", stdout=full, stderr=subprocess.PIPE)
        assert process.stderr.read() == "tilesight: No space left on device\n"
        process.stderr.close()
        assert process.wait() == 2


def test_terminal_without_utf8():
    environment = os.environ | {"PYTHONIOENCODING": "ascii", "COLUMNS": "100"}
    process = command("profiles", stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment)
    out, err = process.communicate()
    assert (process.returncode, err) == (0, "")
    assert "----" in out
    assert "?" not in out


def test_help_loads_no_model():
    code = (
        "import sys\nfrom tilesight.cli import main\nmain()\n"
        "assert not {'numpy', 'scipy', 'pydantic', 'networkx'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code, "--help"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_option_groups_keep_their_fields():
    # the names under which typer gives the values back
    assert set(ProblemOptions.__dataclass_fields__) == set(Gemm.__dataclass_fields__)
    assert ConfigOptions() == ConfigOptions(tile=None, swap_ab=False)
