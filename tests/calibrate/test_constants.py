"""docs/constants.md: its tables are those that the profile and the records give, and every difference has a reason."""

import csv
import re
import sys
from pathlib import Path

import pytest

from tilesight.calibrate.records import Records
from tilesight.calibrate.run import write_rows
from tilesight.errors import TilesightError

ROOT = Path(__file__).parent.parent.parent
VALIDATION = ROOT / "validation"
NUMBER = re.compile(r"[-+]?\d+(?:\.\d+)?(?:e[-+]?\d+)?")


@pytest.fixture(scope="module")
def constants():
    """The script that writes the page."""
    sys.path.insert(0, str(VALIDATION))
    try:
        import constants

        yield constants
    finally:
        sys.path.remove(str(VALIDATION))


def same(shown: str, now: str) -> bool:
    """Whether two lines have the same words, and numbers that differ by as little as fits of another scipy do."""
    if NUMBER.sub("#", shown) != NUMBER.sub("#", now):
        return False
    pairs = zip(NUMBER.findall(shown), NUMBER.findall(now), strict=True)
    return all(float(new) == pytest.approx(float(old), rel=1e-2, abs=0.11) for old, new in pairs)


def test_the_page_is_as_written_from_profile_and_records(constants):
    # after a new profile or new records: python validation/constants.py
    page = constants.PAGE.read_text(encoding="utf-8").splitlines()
    again = constants.rewritten(constants.PAGE.read_text(encoding="utf-8"), constants.blocks()).splitlines()
    assert len(page) == len(again), "run: python validation/constants.py"
    for shown, now in zip(page, again, strict=True):
        assert same(shown, now), f"{shown}\n{now}\nrun: python validation/constants.py"


def test_lines_are_compared_by_words_and_numbers():
    assert same("| a | 1.000 |", "| a | 1.001 |")
    assert not same("| a | 1.0 |", "| b | 1.0 |")
    assert not same("| a | 1.0e12 |", "| a | 1.1e12 |")


def test_every_number_of_the_profile_is_on_the_page(constants, h200):
    tables = constants.blocks()
    whole = "\n".join(line for family in constants.FAMILIES for line in tables[family])
    for number in h200.numbers:
        table, *rest = number.split(".")
        if table in constants.BY_KIND:
            assert f"| `{rest[0]}` |" in whole, number
            assert f"`{rest[1]}`" in whole, number
        else:
            assert f"| `{number}` |" in whole, number


def test_every_measured_number_has_a_rule(constants, h200):
    for number, source in h200.source.items():
        names = constants.records_of(h200, number)
        assert bool(names) == (source.kind in ("measured", "fitted"))
        if names:
            assert constants.rule_of(number, set(names)), number


def test_what_stands_beside_a_number(constants, h200):
    # spreads, fits through the model, numbers kept by name, runs of an interval: as records and notes have them
    lines = "\n".join(line for family in constants.FAMILIES for line in constants.blocks()[family]).splitlines()
    beside = {
        line.split("`")[1]: line.split("|")[3].strip() for line in lines if line.startswith("| `") and "." in line
    }
    for number in ("l2.dirty_evicted_share", "launch.event_s", "launch.cold_extra_s"):
        assert re.fullmatch(r"[0-9.]+ %, kept by name", beside[number]), number
    assert not any("kept" in said for number, said in beside.items() if not number.startswith(("l2.d", "launch.")))
    for number in constants.FITTED:
        said = beside[number]
        if number.startswith(("uncertainty.", "cache_uncertainty.")):
            assert re.match(r"(all )?[0-9]+ (runs|counted launches)", said), number
        else:
            assert re.fullmatch(r"fit [0-9.]+ %", said), number
    assert constants.rule_of("uncertainty.tma", set()).startswith("90th percentile of the relative error of the runs")


def test_a_rule_is_said_once_and_names_its_formats(constants):
    for family in constants.FAMILIES:
        rules = [line.split(": ", 1)[1] for line in constants.blocks()[family] if line.startswith("- ")]
        assert len(rules) == len(set(rules)), family
    tensor = "\n".join(constants.blocks()["tensor"])
    assert "`rate_burst_flop_per_s` of bf16, `rate_sustained_flop_per_s` of bf16 from `power_gemm`: " in tensor
    assert "`rate_burst_flop_per_s` of tf32, fp16, fp8, int8" in tensor


def test_differences_have_a_reason(constants, h200):
    from published import LIMITS, comparisons

    tables = comparisons(h200, Records(ROOT / "validation" / "records" / "h200_sxm", h200))
    assert set(tables) == set(LIMITS)
    assert len(tables["credit"]) == 8  # all of the published table
    for name, rows in tables.items():
        for each in rows:
            assert each.why or abs(each.difference) <= LIMITS[name], (each.what, each.difference)
            assert "{" not in each.why
            assert "`" in each.source  # names the record


def test_a_page_without_a_block_is_refused(constants):
    with pytest.raises(TilesightError, match="has no block <!-- chip: begin -->"):
        constants.rewritten("nothing here", {"chip": ["x"]})
    page = "above\n<!-- a: begin -->\nstale\n<!-- a: end -->\nbelow"
    assert constants.rewritten(page, {"a": ["x", "y"]}) == "above\n<!-- a: begin -->\nx\ny\n<!-- a: end -->\nbelow"


def test_folders_of_records_are_compared(constants, tmp_path):
    # 1e12 and 1.1e12 B/s: +10 %; the write record is the same measurement, and only the first folder has copies
    def streams(folder, name, rate, **more):
        folder.mkdir(exist_ok=True)
        rows = [{**more, "method": "x", "bytes": size, "seconds": size / rate, "spread": 0.01} for size in (1e9, 2e9)]
        write_rows(folder / f"{name}.csv", rows)

    first, second = tmp_path / "first", tmp_path / "second"
    streams(first, "dram_read", 1e12)
    streams(second, "dram_read", 1.1e12)
    for folder in (first, second):
        streams(folder, "dram_write", 3e12)
    streams(first, "dram_copy", 2e12, reads_per_write=1)
    rows = list(constants.compare_folders(first, second))
    assert rows[1:] == [("dram.bandwidth_read_bytes_per_s", "1e12", "1.1e12", "0.1000", "dram_read")]


@pytest.mark.parametrize("name", ["two_boards", "two_runs"])
def test_comparisons_are_counted_from_their_file(constants, name):
    with (constants.FIGURES / f"{name}.csv").open(newline="", encoding="utf-8") as file:
        changes = [abs(float(row["change"])) for row in csv.DictReader(file)]
    first, *table = constants.runs_table(name, 0.03)
    assert first.startswith(f"{len(changes)} numbers, {sum(change <= 0.01 for change in changes)} within 1 %")
    assert len(table) == 3 + sum(change > 0.03 for change in changes)


def test_two_runs_agree(constants):
    # most numbers within 3 %, the worst by a third: the remainder of a k-step
    with (constants.FIGURES / "two_runs.csv").open(newline="", encoding="utf-8") as file:
        rows = {row["number"]: abs(float(row["change"])) for row in csv.DictReader(file)}
    assert sum(change <= 0.03 for change in rows.values()) >= 0.9 * len(rows)
    assert max(rows, key=rows.__getitem__) == "loop.step_specialized_cycles"
