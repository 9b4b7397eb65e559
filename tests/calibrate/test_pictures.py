"""What pictures show is in the records, and every one of them is drawn, without a screen."""

import csv
import importlib.util
import inspect
import io
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from tilesight import Gemm, GemmConfig, predict
from tilesight.calibrate.chart import Axis, Chart, Series, series, write_chart
from tilesight.calibrate.pictures import PICTURES
from tilesight.calibrate.records import Records
from tilesight.errors import TableError, UnsupportedError
from tilesight.resource import RESOURCES

ROOT = Path(__file__).parent.parent.parent
RECORDS = ROOT / "validation" / "records" / "h200_sxm"
FIGURES = ROOT / "docs" / "figures"
MOST_BYTES = 1_500_000
"""Of all files in docs/figures."""


@pytest.fixture(scope="module")
def records():
    from tilesight.hardware.load import load_profile

    return Records(RECORDS, load_profile("h200_sxm"))


@pytest.fixture(scope="module")
def plots():
    pytest.importorskip("matplotlib").use("Agg")
    from tilesight import plots

    return plots


CHART = Chart(
    "copy",
    "copy, fp32, a GPU",
    Axis("footprint_bytes", "footprint", "B", "log2"),
    Axis("bandwidth_bytes_per_s", "bandwidth", "B/s"),
    (
        series("measured", "dram", [2**20, 2**10], [4e12, 1.23456789e12], [0.01, None]),
        series("", "dram", [2**10, 2**20], [1e12, 4e12], measured=False),
    ),
)


def test_a_series_is_in_order_and_of_one_length():
    assert CHART.series[0] == Series("measured", "dram", (1024.0, 2.0**20), (1.23456789e12, 4e12), (0.0, 0.01))
    with pytest.raises(TableError, match="2 positions, 1 values, 0 spreads"):
        Series("x", "l2", (1.0, 2.0), (1.0,))
    with pytest.raises(TableError, match="x: a value is not finite"):
        series("x", "l2", [1.0], [float("nan")])
    with pytest.raises(TableError, match="0 positions"):
        series("x", "l2", [], [])


def test_plotted_numbers_as_a_file(tmp_path):
    write_chart(tmp_path / "copy.csv", CHART)
    assert (tmp_path / "copy.csv").read_text(encoding="utf-8").splitlines() == [
        "series,kind,footprint_bytes,bandwidth_bytes_per_s,spread",
        "measured,measured,1024,1.23457e+12,0",
        "measured,measured,1.04858e+06,4e+12,0.01",
        "measured,predicted,1024,1e+12,",
        "measured,predicted,1.04858e+06,4e+12,",
    ]


def test_categories_are_written_by_name(tmp_path):
    x = Axis("dtype", "format", categories=("bf16", "fp8"))
    chart = Chart("rates", "rates", x, CHART.y, (series("20 ms", "tensor", [1, 0], [2.0, 1.0]),))
    assert list(chart.rows())[1:] == [("20 ms", "measured", "bf16", "1", ""), ("20 ms", "measured", "fp8", "2", "")]


@pytest.mark.parametrize("name", PICTURES)
def test_pictures_name_the_gpu_and_have_measured_points(records, name):
    chart = PICTURES[name](records)
    assert chart.name == name
    assert "NVIDIA H200" in chart.title
    assert any(each.measured and len(each.x) >= 4 for each in chart.series)
    assert {each.resource for each in chart.series} <= {*RESOURCES, "launch"}


def test_lines_hold_the_points(records):
    # where a law is drawn beside its points, it is theirs: within 2 % for instructions, 4 % for the clock under load
    wgmma = PICTURES["wgmma_cycles"](records).series[0]
    for n, cycles in zip(wgmma.x, wgmma.y, strict=True):
        assert cycles == pytest.approx(max(n / 2, 16 + n / 4), rel=0.02)
    clock = PICTURES["clock_under_load"](records).series
    for points, line in pairwise(clock):
        if points.measured and not line.measured:
            assert line.y[0] == pytest.approx(points.y[len(points.y) // 2], rel=0.04)
            assert line.y[-1] == pytest.approx(points.y[-1], rel=0.04)
    dram = PICTURES["dram_mix"](records).series
    assert max(dram[0].y) < dram[1].y[0]  # no mix passes the datasheet


def test_starts_spread_by_the_law_of_what_binds(records):
    # tensor cores: s r tiles, within a quarter; who waits keeps together, 14 tiles on as after five
    drawn = {each.words: (each, law) for each, law in pairs(PICTURES["drift_starts"](records))}
    tensor, law = drawn["tensor cores bind"]
    assert law.y[-1] / law.y[0] == pytest.approx(law.x[-1] / law.x[0])
    assert tensor.x[-1] == law.x[-1]
    assert tensor.y[-1] == pytest.approx(law.y[-1], rel=0.25)
    waits, flat = drawn["the ring waits"]
    assert len(set(flat.y)) == 1
    assert max(waits.y) < 1.5 * flat.y[0]
    # where L2 is near the pace of tensor cores, more than the clocks of GPCs differs
    near, law = drawn["tensor cores, L2 near"]
    assert min(near.y[1:]) > 1.5 * law.y[0]
    # where CTAs share an SM drift feeds itself: from the first to the last tile it grows far faster than in proportion
    crowded, _ = drawn["CTAs share an SM"]
    assert crowded.y[-1] / crowded.y[0] > 4 * crowded.x[-1] / crowded.x[0]


def pairs(chart):
    return list(zip(chart.series[::2], chart.series[1::2], strict=True))


@pytest.mark.parametrize("name", ["drift_reads_narrow", "drift_reads_wide"])
def test_reads_of_deep_products_beside_the_model(records, name):
    chart = PICTURES[name](records)
    width = 8 if name == "drift_reads_wide" else 1
    assert f"5632 x 6656 x k, bf16, width {width}, cold" in chart.title
    assert [points.words for points, _ in pairs(chart)] == [
        "tensor cores bind", "tensor cores, L2 near", "the ring waits", "CTAs share an SM", "L2 binds"
    ]  # fmt: skip
    for points, line in pairs(chart):
        assert points.measured
        assert not line.measured
        assert points.x == line.x
        if points.words == "the ring waits":
            assert points.x == (6208, 30016)
        else:
            assert points.x == (2112, 6208, 14272, 30016, 60096)
            assert points.spread[:4] == (0, 0, 0, 0)  # one launch each, three of the deepest
            assert points.spread[4] > 0
        assert min(points.y + line.y) > 1  # no operand is read less than once
    tensor = chart.series[1]
    config = GemmConfig(128, 256, 64, 3, 8, kernel="tma_persistent", group_m=width, registers=166)
    problem = Gemm(5632, 6656, 14272)
    said = predict(problem, config, hardware=records.hardware, cache="cold", clock="burst").dram_read_bytes
    assert tensor.y[2] == pytest.approx(said / (2 * (5632 + 6656) * 14272))


@pytest.mark.parametrize("name", ["l2_read", "drift_starts", "drift_reads_wide"])
def test_what_needs_a_profile_says_so(name):
    with pytest.raises(UnsupportedError, match="a profile of the GPU is needed"):
        PICTURES[name](Records(RECORDS))


def test_a_record_that_is_not_there(tmp_path, h200):
    (tmp_path / "x.csv").write_text("a\n1\n", encoding="utf-8")
    from tilesight.errors import MissingFileError

    with pytest.raises(MissingFileError, match="no record 'l2_latency'"):
        PICTURES["l2_latency"](Records(tmp_path, h200))


@pytest.mark.parametrize("name", PICTURES)
def test_every_picture_is_drawn(records, plots, name):
    from matplotlib.figure import Figure

    function = getattr(plots, PICTURES[name].__name__)
    ax = function(records)
    assert ax.get_title() == PICTURES[name](records).title
    assert ax.get_xlabel()
    assert ax.get_ylabel()
    file = io.BytesIO()
    ax.figure.savefig(file)  # a missing glyph would warn
    assert file.tell() > 10_000
    given = Figure().add_subplot()
    assert function(records, given) is given


def test_nothing_is_shown(plots):
    source = inspect.getsource(plots)
    assert "pyplot" not in source
    assert ".show(" not in source


def test_every_resource_has_a_colour_of_its_own(plots):
    assert set(plots.COLOURS) == {*RESOURCES, "launch"}
    assert len(set(plots.COLOURS.values())) == len(plots.COLOURS)


def test_a_line_is_a_line_and_points_are_markers(plots):
    ax = plots.draw(CHART)
    markers, line = ax.lines[0], ax.lines[-1]
    assert (markers.get_linestyle(), markers.get_marker()) == ("None", "o")
    assert (line.get_linestyle(), line.get_marker()) == ("-", "None")
    assert markers.get_color() == line.get_color() == plots.COLOURS["dram"]
    assert ax.get_xscale() == "log"
    assert [text.get_text() for text in ax.texts] == ["○ measured"]  # the line is that of the points before it


def test_labels_do_not_lie_on_each_other(plots):
    # 1 and 5 stay; 5.5 would come to 7, above the top: it moves down to 6, and 5 makes room
    assert plots.apart([5.0, 1.0, 5.5], 2.0, 6.0) == [4.0, 1.0, 6.0]
    assert plots.apart([], 2.0, 6.0) == []


def test_the_command_writes_pictures_and_numbers(plots, tmp_path, monkeypatch, capsys):
    path = ROOT / "validation" / "plot_records.py"
    monkeypatch.syspath_prepend(path.parent)
    spec = importlib.util.spec_from_file_location("plot_records", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for folder in ("one", "two"):
        words = [str(path), str(RECORDS), str(tmp_path / folder), "--only", "dram_mix,launch_gaps"]
        monkeypatch.setattr(sys, "argv", words)
        module.main()
    written = sorted(file.name for file in (tmp_path / "one").iterdir())
    assert written == ["dram_mix.csv", "dram_mix.svg", "launch_gaps.csv", "launch_gaps.svg"]
    assert "dram_mix.svg" in capsys.readouterr().out
    for name in written:  # the same records give the same bytes
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()
    monkeypatch.setattr(sys, "argv", [*words[:-1], "dram_mixes"])
    with pytest.raises(SystemExit, match="2"):
        module.main()
    assert "no picture 'dram_mixes'; known: " in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    monkeypatch.setattr(sys, "argv", [str(path), str(RECORDS), str(tmp_path / "three")])
    with pytest.raises(SystemExit, match="2"):
        module.main()
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith("pip install 'tilesight[plots]' (in a checkout: pip install '.[plots]')")
    assert not (tmp_path / "three").exists()


def test_figures_of_the_docs_show_the_records(records):
    # after new records or another law: python validation/plot_records.py validation/records/h200_sxm docs/figures
    assert {path.stem for path in FIGURES.glob("*.svg")} == set(PICTURES)
    for name, picture in PICTURES.items():
        with (FIGURES / f"{name}.csv").open(newline="", encoding="utf-8") as file:
            shown = list(csv.reader(file))
        now = list(picture(records).rows())
        assert [row[:2] for row in shown] == [list(row[:2]) for row in now], name
        for old, new in zip(shown[1:], now[1:], strict=True):
            for before, after in zip(old[2:], new[2:], strict=True):
                if before != after:  # fits differ in their last digits from release to release of scipy
                    assert float(before) == pytest.approx(float(after), rel=1e-2), (name, old)
    assert sum(path.stat().st_size for path in FIGURES.iterdir()) < MOST_BYTES


def test_without_matplotlib_one_line_says_how_to_get_it(plots, monkeypatch):
    from tilesight.errors import MissingToolError

    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(MissingToolError, match=r"pip install 'tilesight\[plots\]'"):
        plots.draw(CHART)
