"""Rows of counted products, and the record that no constant may come from."""

import csv
import subprocess
import sys
from pathlib import Path

import pytest

import tilesight
from tilesight import Gemm, GemmConfig
from tilesight.calibrate.counted import measured, operand_bytes, predicted
from tilesight.calibrate.derive import DERIVATIONS
from tilesight.calibrate.fits import IN_ORDER_RECORDS, MERGING_RECORDS, VENDOR_RECORDS
from tilesight.calibrate.records import Record, Records
from tilesight.errors import ConfigError

ROOT = Path(__file__).parent.parent.parent
RECORDS = ROOT / "validation" / "records" / "h200_sxm"
FRESH = "fresh_cache"
ROW = {
    "m": "2048", "n": "3072", "k": "4096", "kernel": "tma", "tile_m": "128", "tile_n": "256", "stages": "3", "warps": "8",
    "group_m": "4", "launch__registers_per_thread": "166", "gpu__time_duration.sum": "90000",
    "lts__t_sectors_srcunit_tex.sum": "1e7", "lts__t_sectors_srcunit_ltcfabric.sum": "2e6",
    "dram__bytes_read.sum": "5e7", "lts__t_sector_hit_rate.pct": "72.5",
}  # fmt: skip


def rows(**changed):
    row = ROW | changed
    return Record("counted", tuple(row), [row])


def test_counters_by_hand():
    # sectors are 32 B, times in ns, shares in percent; operands 2 B each of (2048 + 3072) * 4096
    found = measured(rows())
    assert {name: float(values[0]) for name, values in found.items()} == pytest.approx({
        "dram_read_bytes": 5e7, "l2_hit_rate": 0.725, "lookup_bytes": 3.2e8, "crossing_bytes": 6.4e7, "seconds": 90e-6,
    })  # fmt: skip
    assert operand_bytes(rows()).tolist() == [2 * (2048 + 3072) * 4096]


@pytest.mark.parametrize(("kernel", "word"), [("tma", "tma_persistent"), ("ptr", "cp_async")])
def test_a_row_is_what_predict_is_asked(h200, kernel, word):
    config = GemmConfig(128, 256, 32, 3, 8, kernel=word, group_m=4, registers=200)
    given = {"kernel": kernel, "tile_k": "32", "launch__registers_per_thread": "200.0"}
    (found,) = predicted(rows(**given), h200)
    asked = tilesight.predict(Gemm(2048, 3072, 4096), config, hardware=h200, cache="cold", clock="burst")
    assert found == asked


def test_rows_without_tile_k_have_64(h200):
    (found,) = predicted(rows(), h200)
    assert found.config_fields["tile_k"] == 64


def test_a_row_that_cannot_run(h200):
    with pytest.raises(ConfigError, match="shared memory"):
        predicted(rows(stages="9"), h200)


def shapes(path):
    with path.open(newline="", encoding="utf-8") as file:
        return {
            tuple(int(float(row[name])) for name in "mnk")
            for row in csv.DictReader(file)
            if all(row.get(name) for name in "mnk")
        }


def test_the_fresh_record_is_of_shapes_that_no_other_has():
    fresh = shapes(RECORDS / f"{FRESH}.csv")
    assert len(fresh) == 8
    others = [path for path in (ROOT / "validation" / "records").rglob("*.csv") if path.stem != FRESH]
    assert len(others) > 60
    for path in others:
        assert not fresh & shapes(path), path
    assert sum(k > 16384 for _, _, k in fresh) == 3


def test_no_constant_comes_from_the_fresh_record():
    read = {record for derivation in DERIVATIONS for record in derivation.records}
    assert FRESH not in read | {*IN_ORDER_RECORDS, *MERGING_RECORDS, *VENDOR_RECORDS}
    for profile in (ROOT / "hardware_profiles").glob("*.toml"):
        assert FRESH not in profile.read_text(encoding="utf-8"), profile
    assert "no constant of a profile may be taken" in Records(RECORDS).about(FRESH)["notes"]


def test_the_fresh_record_is_whole():
    record = Records(RECORDS)[FRESH]
    assert len(record) == 40
    assert sorted(set(record.column("attempt").tolist())) == [0, 1, 2, 3, 4]
    assert min(record.column("tiles")) < 132  # one grid smaller than the chip
    assert (measured(record)["dram_read_bytes"] >= operand_bytes(record)).all()  # caches were flushed


def test_the_score_needs_no_gpu():
    command = [sys.executable, "validation/fresh_cache.py", "--score", str(RECORDS)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert sum(line.startswith("| ") for line in lines) == 1 + 8 * 5
    assert lines[-1].startswith("mean absolute errors of 8 products: DRAM reads ")
    assert "4480 x 5760 x 29760 | ptr 128 x 128, 8 | DRAM reads |" in done.stdout
