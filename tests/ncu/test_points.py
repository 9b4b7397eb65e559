"""Which launch belongs to which point, by hand, and every way in which they don't fit."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilesight import Gemm, GemmConfig
from tilesight.errors import ConfigError, MissingFileError, TableError
from tilesight.ncu import Launch, Point, point_of_texts, read_counted, read_points
from tilesight.ncu.points import select, shared_out
from tilesight.ncu.repeats import spread_percent

GPU = "device__attribute_display_name"
TIME, READ = "gpu__time_duration.sum", "dram__bytes_read.sum"
BIG, SMALL = Gemm(4096, 4096, 8192), Gemm(64, 4096, 4096)


def launches(*names):
    return [Launch(number, number + 2, name, {}) for number, name in enumerate(names, start=1)]


def shares(names, *points):
    own, others = shared_out(launches(*names), points, "page.csv")
    return [[launch.number for launch in mine] for mine in own], [launch.number for launch in others]


def test_shared_out_by_hand():
    # all launches, where there is one point
    assert shares(["a", "a", "a"], Point(BIG)) == ([[1, 2, 3]], [])
    # in order
    assert shares(["a", "a", "b"], Point(BIG, launches=2), Point(SMALL)) == ([[1, 2], [3]], [])
    # by name; others belong to no point
    assert shares(["x", "b1", "a", "b2"], Point(BIG, match="^b"), Point(SMALL, match="a")) == ([[2, 4], [3]], [1])
    # both: in order among those that match any
    points = [Point(BIG, match="g", launches=2), Point(SMALL, match="g", launches=1)]
    assert shares(["g", "x", "g", "g"], *points) == ([[1, 3], [4]], [2])


@given(st.lists(st.integers(1, 4), min_size=1, max_size=6), st.randoms())
def test_every_launch_goes_to_one_point_in_order(numbers, random):
    names = [random.choice("xyz") for _ in range(sum(numbers))]
    own, others = shares(names, *(Point(BIG, launches=number) for number in numbers))
    assert [number for mine in own for number in mine] == list(range(1, sum(numbers) + 1))
    assert [len(mine) for mine in own] == numbers
    assert others == []


@pytest.mark.parametrize(
    ("names", "points", "why"),
    [
        ("aaa", [Point(BIG), Point(SMALL)], "page.csv: found 3 launches (3 x a); allowed: 2, as the points say"),
        ("a", [Point(BIG, launches=2)], "page.csv: found 1 launch (1 x a); allowed: 2"),
        (
            "ab",
            [Point(BIG, match="c")],
            "points:match: no kernel matches 'c' (gemm 4096 x 4096 x 8192 bf16); launched in ",
        ),
        ("b", [Point(BIG, match="a", launches=1)], "found 0 launches (no kernel matches); allowed: 1"),
        (
            "ab",
            [Point(BIG, match="b", launches=1), Point(SMALL, match="a", launches=1, file="p.csv", line=3)],
            "page.csv:3: found kernel 'a'; allowed: 'b' (points: gemm 4096 x 4096 x 8192 bf16)",
        ),
        (
            "ab",
            [Point(BIG, match="a|b"), Point(SMALL, match="b")],
            "page.csv:4: kernel 'b' matches 'a|b' (points: gemm",
        ),
    ],
)
def test_launches_that_fit_no_points(names, points, why):
    with pytest.raises(TableError) as caught:
        shared_out(launches(*names), points, "page.csv")
    assert why in str(caught.value)


def test_selection():
    assert [launch.kernel for launch in select(launches("nvjet_1", "add", "nvjet_2"), "jet_", "f")] == [
        "nvjet_1",
        "nvjet_2",
    ]
    with pytest.raises(TableError, match=re.escape("f:kernel: no kernel matches 'gemm'; launched: 2 x add, 1 x mul")):
        select(launches("add", "mul", "add"), "gemm", "f")
    with pytest.raises(ConfigError, match="kernel = '\\(' is no regular expression"):
        select(launches("add"), "(", "f")


def test_points_of_a_file(write):
    header = "match,launches,m,n,k,dtype,tile,stages,kernel,warps"
    rows = ["^nvjet,3,4096,4096,8192,fp16,128x256x64,4,,", ",,64,64,64,,64x64x64,3,tma,4"]
    text = "\n".join([header, *rows, ""])
    first, second = read_points(str(write("points.csv", text)))
    assert (first.problem, first.match, first.launches) == (Gemm(4096, 4096, 8192, dtype="fp16"), "^nvjet", 3)
    assert (first.config, first.stated, first.line) == (GemmConfig(128, 256, 64, stages=4), frozenset(), 2)
    assert (second.match, second.launches, second.stated) == (None, None, {"warps"})
    path = write("points.json", '[{"m": 64, "n": 64, "k": 64, "launches": 2}]')
    assert read_points(str(path))[0] == Point(Gemm(64, 64, 64), launches=2, stated=frozenset(), file=str(path), line=1)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("m,n,k,tile_q\n1,1,1,2\n", "points.csv:1:tile_q: unknown column"),
        ("m,n\n1,1\n", "points.csv:2: k missing"),
        ("m,n,k\n0,1,1\n", "points.csv:2: m = 0 is outside"),
        ("m,n,k,launches\n1,1,1,0\n", "points.csv:2:launches: found '0'; allowed: a whole number from 1"),
        ("m,n,k,match\n1,1,1,(\n", "points.csv:2: match = '(' is no regular expression"),
        ("m,n,k,tile\n1,1,1,64x64x64\n", "points.csv:2: stages missing"),
        ("m,n,k\n", "points.csv: no points in it"),
    ],
)
def test_bad_points(write, text, why):
    with pytest.raises(TableError) as caught:
        read_points(str(write("points.csv", text)))
    assert why in str(caught.value)


def test_points_as_texts():
    assert point_of_texts("4096,4096,8192", None).problem == BIG
    assert point_of_texts("64x4096x4096", None).problem == SMALL
    assert point_of_texts("m=64, n=4096, k=4096", None).problem == SMALL
    point = point_of_texts("64,4096,4096,dtype=fp16,layout_b=column", "tile=64x128x64,stages=4,kernel=tma,warps=4")
    assert point.problem == Gemm(64, 4096, 4096, dtype="fp16", layout_b="column")
    assert (point.config, point.stated) == (GemmConfig(64, 128, 64, stages=4, kernel="tma", warps=4), {"warps"})
    assert point_of_texts("64,64,64", "64x64x64,stages=2").config == GemmConfig(64, 64, 64, stages=2)


@pytest.mark.parametrize(
    ("problem", "config", "why"),
    [
        ("64,64", None, "begins with 2 values; give m, n, k"),
        ("64,64,64,dtype=fp16,7", None, "'7' is not NAME=VALUE"),
        ("64,64,64,size=3", None, "'size': known: m, n, k"),
        ("64,64,64,m=3", None, "'m': given twice"),
        ("64,64,64,dtype=", None, "'dtype': no value"),
        ("64,64,64,dtype=fp33", None, "--problem: "),
        ("64,64,64", "stages=3", "--problem and --config: tile_m, tile_n, tile_k missing"),
    ],
)
def test_bad_texts(problem, config, why):
    with pytest.raises((ConfigError, TableError)) as caught:
        point_of_texts(problem, config)
    assert why in str(caught.value)


# --- repeats


def test_medians_and_spreads_by_hand(page, write):
    # times 10, 11, 13 us: median 11, p10 10.2, p90 12.6: spread 100 * 2.4 / 11 = 21.818 %
    # reads 3 and 1 kB, one not counted: median 2 kB, p10 1.2, p90 2.8: 80 %
    counted = [{TIME: "10", READ: "3"}, {TIME: "11"}, {TIME: "13", READ: "1"}]
    path = write("page.csv", page(counted, {TIME: "us", READ: "Kbyte"}))
    read = read_counted(path, Point(BIG))
    table = read.table
    assert (len(table), table["launches"][0], table["kernel"][0], read.left_out) == (1, 3, "gemm", {})
    assert table["time_us"][0] == pytest.approx(11)
    assert table["time_us_spread"][0] == pytest.approx(100 * 2.4 / 11)
    assert table["dram_read_bytes"][0] == 2000
    assert table["dram_read_bytes_spread"][0] == pytest.approx(80)
    assert "dram_write_bytes" not in table
    assert table.unknown_columns == ()


@given(st.lists(st.floats(1, 1e9), min_size=2, max_size=9), st.floats(0.5, 2))
def test_spread_ignores_scale_and_order(values, scale):
    assert spread_percent(values) >= 0
    assert spread_percent(values[::-1]) == pytest.approx(spread_percent(values))
    assert spread_percent([scale * value for value in values]) == pytest.approx(spread_percent(values), abs=1e-6)


SIZES = {"launch__grid_size": "132", "launch__block_size": "256", "launch__registers_per_thread": "200"}
SMEM = {"launch__shared_mem_per_block_dynamic": "98,304", "launch__shared_mem_per_block_static": "16"}
UNITS = {TIME: "us", **dict.fromkeys(SMEM, "byte/block"), "launch__registers_per_thread": "register/thread"}


def config_of(path, **fields):
    given = {"stages": 3, "kernel": "tma_persistent"} | fields
    stated = frozenset(given).intersection(("warps", "registers", "smem_bytes"))
    point = Point(BIG, GemmConfig(128, 128, 64, **given), stated=stated)
    return read_counted(path, point).table["config"][0]


def test_what_the_launch_tells_of_a_configuration(page, write):
    path = write("page.csv", page([SIZES | SMEM | {TIME: "5"}], UNITS))
    config = config_of(path)
    assert (config.warps, config.registers, config.smem_bytes) == (8, 200, 98_320)
    config = config_of(path, registers=168, smem_bytes=100_000)  # stated stays
    assert (config.warps, config.registers, config.smem_bytes) == (8, 168, 100_000)
    config = config_of(path, kernel="warp_specialized")  # 8 warps, 4 of which load; registers change hands
    assert (config.warps, config.registers, config.smem_bytes) == (4, None, None)
    with pytest.raises(
        TableError, match="page.csv:6:block_size: found 256 threads a CTA; allowed: 128, as 4 warps make"
    ):
        config_of(path, warps=4)
    # 32 x 32 tiles, one CTA each: 132 are too few
    with pytest.raises(
        TableError, match="page.csv:6:grid_size: found 132 CTAs; allowed: 1024 or more, one for each tile"
    ):
        config_of(path, kernel="tma")


@pytest.mark.parametrize(
    ("other", "why"),
    [
        ({"kernel": "add"}, "page.csv:7: found kernel 'add'; allowed: 'gemm', as in line 6: launches of one point are"),
        ({"launch__grid_size": "64"}, "page.csv:7: found 64 CTAs; allowed: 132, as in line 6"),
        (
            {GPU: "NVIDIA H100"},
            f"page.csv:7:{GPU}: found NVIDIA H100; allowed: NVIDIA H200, as in line 6: launches of one point",
        ),
        ({GPU: "n/a"}, "found an unknown GPU; allowed: NVIDIA H200"),
        ({"launch__block_size": "n/a"}, "page.csv:7: found unknown threads a CTA; allowed: 256"),
    ],
)
def test_launches_that_are_no_repeats(page, write, other, why):
    one = SIZES | {GPU: "NVIDIA H200"}
    path = write("page.csv", page([one, one | other], UNITS))
    with pytest.raises(TableError) as caught:
        read_counted(path, Point(BIG))
    assert why in str(caught.value)


def test_impossible_sizes_are_refused_though_nobody_asks(page, write):
    path = write("page.csv", page([{TIME: "5", "launch__grid_size": "0"}], UNITS))
    with pytest.raises(TableError, match="page.csv:6:launch__grid_size: found '0'; allowed: a whole number, 1 to"):
        read_counted(path, Point(BIG))


def test_points_that_are_not_given(page, write):
    path = write("page.csv", page([{TIME: "5"}, {TIME: "5", "kernel": "add"}], UNITS))
    with pytest.raises(TableError, match="page.csv: Nsight Compute does not say .*; launched: 1 x gemm, 1 x add"):
        read_counted(path)
    with pytest.raises(ConfigError, match="no points to compare"):
        read_counted(path, [])
    with pytest.raises(ConfigError, match="a Gemm stands among the points; give tilesight.ncu.Point"):
        read_counted(path, [BIG])
    with pytest.raises(ConfigError, match="states no configuration and others do"):
        read_counted(path, [Point(BIG, GemmConfig(64, 64, 64, stages=2)), Point(SMALL)])
    with pytest.raises(MissingFileError, match="no file 'absent.csv'"):
        read_counted(path, "absent.csv")


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"problem": 5}, "problem is a int; give a tilesight.Gemm"),
        ({"config": 5}, "config is a int; give a tilesight.GemmConfig, or None"),
        ({"match": 5}, "match = 5 is no regular expression: give a text"),
        ({"launches": 0}, "launches = 0; give a whole number from 1, or None"),
        ({"launches": True}, "launches = True; give"),
    ],
)
def test_points_of_another_kind(given, why):
    with pytest.raises(ConfigError) as caught:
        Point(**{"problem": BIG} | given)
    assert why in str(caught.value)
