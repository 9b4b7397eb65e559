"""Records as files: written whole, known when cut, with the spreads that their benchmarks print."""

import tomllib

import pytest

from tilesight.calibrate.records import Records
from tilesight.calibrate.stored import toml_text, write_record, write_whole
from tilesight.errors import TableError

ROWS = [{"n": n, "seconds": n / 10, "spread": 0.01} for n in (1, 2, 3)]


def stored(folder, name="copy", rows=ROWS):
    write_record(folder, name, rows, {"gpu": "NVIDIA H200"})
    return folder / f"{name}.csv", folder / f"{name}.toml"


def test_what_was_written_is_read(tmp_path):
    path, _ = stored(tmp_path)
    records = Records(tmp_path)
    assert len(records["copy"]) == 3
    assert records.about("copy")["rows"] == 3
    assert sorted(each.name for each in tmp_path.iterdir()) == ["copy.csv", "copy.toml"]
    path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))  # as another system checks it out
    assert len(Records(tmp_path)["copy"]) == 3


def test_a_record_that_was_cut_or_changed(tmp_path):
    path, toml = stored(tmp_path)
    text = path.read_text(encoding="utf-8")
    path.write_text(text[: text.index("3,")], encoding="utf-8")
    with pytest.raises(
        TableError, match=r"copy.csv: 2 rows where copy.toml says 3; it was cut or changed since; measure"
    ):
        Records(tmp_path)["copy"]
    path.write_text(text[:-2] + "\n", encoding="utf-8")  # in the middle of the last cell
    with pytest.raises(TableError, match=r"copy.csv: not the text whose SHA-256 stands in copy.toml"):
        Records(tmp_path)["copy"]
    toml.write_text('gpu = "NVIDIA H200"\n', encoding="utf-8")  # of an earlier release
    assert len(Records(tmp_path)["copy"]) == 3
    toml.write_text("rows = true\n", encoding="utf-8")
    with pytest.raises(TableError, match="copy.toml: rows = True is no number of rows"):
        Records(tmp_path)["copy"]


def test_a_file_that_can_not_be_written_leaves_the_earlier_one(tmp_path, monkeypatch):
    path, _ = stored(tmp_path)
    before = path.read_bytes()

    def full(_):
        raise OSError("no space left")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="no space"):
        write_whole(path, b"half")
    assert path.read_bytes() == before
    assert len(list(tmp_path.iterdir())) == 2


def test_text_of_every_kind_is_read_back():
    about = {
        "name": 'a\x00\x1b\x7f\n"\\ü\u2028',
        "half": "\ud800",
        "w": float("inf"),
        "none": None,
        "list": ["\x7f", 1.5],
    }
    assert tomllib.loads(toml_text(about)) == {
        "name": 'a\x00\x1b\x7f\n"\\ü\u2028', "half": "?", "w": "unknown", "list": ["\x7f", 1.5]
    }  # fmt: skip


@pytest.mark.parametrize(
    ("spread", "problem"),
    [("", "no spread"), (-0.1, "'-0.1' is no spread"), ("nan", "'nan' is no spread")],
)
def test_spreads_that_a_benchmark_prints(tmp_path, spread, problem):
    stored(tmp_path, "dram_read", [ROWS[0], {"n": 2, "seconds": 1.0, "spread": spread}])
    with pytest.raises(
        TableError, match=f"dram_read.csv:3:spread: {problem}; the benchmark prints one with every point"
    ):
        Records(tmp_path)["dram_read"]


def test_a_record_without_the_column_of_spreads(tmp_path):
    stored(tmp_path, "dram_read", [{"n": 1, "seconds": 1.0}])
    with pytest.raises(TableError, match="dram_read.csv:2:spread: no spread"):
        Records(tmp_path)["dram_read"]
    stored(tmp_path, "power_clock", [{"n": 1}])  # its program prints none
    assert len(Records(tmp_path)["power_clock"]) == 1
