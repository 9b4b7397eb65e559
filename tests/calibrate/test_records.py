"""Reading records: rows by value, columns as numbers, spreads, and every way in which a record can be wrong."""

import math

import numpy as np
import pytest

from tilesight.calibrate.records import DamagedRecordError, Record, Records, largest, spread_of
from tilesight.errors import MissingFileError, TableError, UnsupportedError

ROWS = [
    {"method": "a", "n": 1, "seconds": 2.0, "spread": 0.01},
    {"method": "a", "n": 2, "seconds": 3.0, "spread": 0.03},
    {"method": "b", "n": 2, "seconds": "", "spread": ""},
]


def test_rows_and_columns(record):
    copy = record("copy", ROWS)["copy"]
    assert len(copy) == 3
    assert copy.pick(method="a", n=2).column("seconds").tolist() == [3.0]
    assert math.isnan(copy.pick(method="b").column("seconds")[0])
    assert copy.where(copy.column("n") == 2, "n of 2").rows[0]["method"] == "a"


def test_spreads(record):
    copy = record("copy", ROWS)["copy"]
    assert (copy.spread, copy.middle_spread) == (0.03, 0.02)
    assert copy.pick(method="b").spread is None
    assert record("bare", [{"n": 1}])["bare"].middle_spread is None
    # of 1, 1, 1, 2, 2: p10 = 1, p90 = 2, median 1
    assert spread_of(np.array([1.0, 1, 1, 2, 2])) == pytest.approx(1.0)
    assert spread_of(np.array([1.0, 2.0])) is None
    assert largest(None, 0.1, 0.05) == 0.1


def test_what_is_not_there(record, tmp_path):
    records = record("copy", ROWS)
    with pytest.raises(MissingFileError, match="no record 'read' in"):
        records["read"]
    with pytest.raises(TableError, match=r"copy.csv: no row with method=a, n=3"):
        records["copy"].pick(method="a", n=3)
    with pytest.raises(TableError, match=r"copy.csv: no column 'secs'; .*Did you mean 'seconds'"):
        records["copy"].column("secs")
    with pytest.raises(TableError, match=r"copy.csv: no column 'way'"):
        records["copy"].pick(way="a")
    with pytest.raises(TableError, match=r"copy.csv: no row with many nodes"):
        records["copy"].where(np.array([False] * 3), "many nodes")
    with pytest.raises(TableError, match=r"copy.csv:2:method: 'a' is no number; a finite number"):
        records["copy"].column("method")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a,b\n1\n", "a.csv:2: 1 cells where the header has 2"),
        ("a,b\n", "no rows"),
        ("", "no rows"),
        ('"a', "not a CSV"),
        ("a,a\n1,2\n", "a.csv:1: two columns 'a'"),
        ("a,b\n1,2\n3,\n5,abc\n7,8\n", "a.csv:4:b: 'abc' where 2 rows hold numbers; a finite number, or an empty cell"),
        ("a,b\n1,2\n3,inf\n", "a.csv:3:b: 'inf' where 1 rows hold numbers"),
    ],
)
def test_malformed(tmp_path, text, problem):
    (tmp_path / "a.csv").write_text(text, encoding="utf-8")
    with pytest.raises(DamagedRecordError, match=problem):
        Record.read(tmp_path / "a.csv")


def test_text_columns_stay_text(tmp_path):
    (tmp_path / "a.csv").write_text("way,n\nall,1\nsome,nan\n3,\n", encoding="utf-8")
    record = Record.read(tmp_path / "a.csv")
    assert [row["way"] for row in record.rows] == ["all", "some", "3"]
    assert np.isnan(record.column("n")).tolist() == [False, True, True]
    with pytest.raises(DamagedRecordError, match="a.csv:3:way: 'some' is no number"):  # the line in the file
        record.pick(way="some").column("way")


def test_names_and_gpu(record, tmp_path):
    records = record("copy", ROWS)
    (tmp_path / "read.incomplete.csv").write_text("a\n1\n", encoding="utf-8")
    assert records.names == ("copy",)
    assert "copy" in records
    with pytest.raises(MissingFileError, match="no record in .* says on which GPU"):
        _ = records.gpu
    (tmp_path / "copy.toml").write_text('gpu = "NVIDIA H200"\n', encoding="utf-8")
    assert records.gpu == "NVIDIA H200"
    record("read", ROWS)
    (tmp_path / "read.toml").write_text('gpu = "NVIDIA L40S"\n', encoding="utf-8")
    with pytest.raises(TableError, match=r"several GPUs: 'NVIDIA H200' \(copy\), 'NVIDIA L40S' \(read\)"):
        _ = records.gpu
    (tmp_path / "read.toml").write_text("gpu = \n", encoding="utf-8")
    with pytest.raises(TableError, match="read.toml: not a TOML file"):
        _ = records.gpu


def test_an_empty_folder(tmp_path):
    with pytest.raises(MissingFileError, match="no records in"):
        _ = Records(tmp_path).gpu


def test_sizes_of_the_chip(record, hw):
    row = {"what": "limits", "sms": 144, "clock_hz": 2e9, "l2_bytes": 2**26}
    records = record("device_limits", [row])
    assert (records.sm_count, records.boost_hz, records.l2_bytes) == (144, 2e9, 2**26)
    elsewhere = Records(records.folder / "none", hw)
    assert (elsewhere.sm_count, elsewhere.boost_hz) == (hw.sm_count, hw.clock.boost_hz)
    with pytest.raises(UnsupportedError, match="sm_count is needed and no base profile states it"):
        _ = Records(records.folder / "none").sm_count


def test_sizes_of_the_chip_that_are_none(record):
    row = {"what": "limits", "sms": 132, "clock_hz": 2e9, "l2_bytes": 2**26}
    assert record("device_limits", [row, row]).sm_count == 132
    with pytest.raises(TableError, match=r"device_limits.csv:2:sms: 132.7 is no count; a whole number is allowed"):
        _ = record("device_limits", [row | {"sms": 132.7}]).sm_count
    contradicting = record("device_limits", [row, row | {"sms": 144, "clock_hz": 1e9}])
    with pytest.raises(TableError, match=r"device_limits.csv:3:sms: 144 where line 2 has 132; one number is allowed"):
        _ = contradicting.sm_count
    with pytest.raises(TableError, match=r"device_limits.csv:3:clock_hz: 1e\+09 where line 2 has 2e\+09"):
        _ = contradicting.boost_hz
