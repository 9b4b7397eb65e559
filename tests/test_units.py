import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilesight import units
from tilesight.errors import UnitError


def test_by_hand():
    assert units.format_seconds(42e-6) == "42.00 us"
    assert units.format_seconds(999.96e-9) == "1.000 us"  # 4 digits round it up to the next prefix
    assert units.format_seconds(-2e-3) == "-2.000 ms"
    assert units.format_seconds(90.0) == "90.00 s"
    assert units.format_bytes(1e9) == "1.000 GB"
    assert units.format_bytes_binary(2**30) == "1.000 GiB"
    assert units.format_bytes_binary(1e9) == "953.7 MiB"  # 1e9 / 2**20
    assert units.format_flop_per_s(989.4e12, digits=3) == "989 TFLOP/s"
    assert units.format_bytes_per_s(4.25e12) == "4.250 TB/s"
    assert units.format_percent(0.1235) == "12.3 %"


def test_gb_is_not_gib():
    assert units.GB == 1e9
    assert units.GIB == 1024**3
    assert units.parse_bytes("60 MiB") == 62914560
    assert units.parse_bytes("60 MB") == 60e6


FORMATS = [
    (units.format_seconds, units.parse_seconds),
    (units.format_bytes, units.parse_bytes),
    (units.format_bytes_binary, units.parse_bytes),
    (units.format_hz, units.parse_hz),
    (units.format_flop_per_s, units.parse_flop_per_s),
    (units.format_bytes_per_s, units.parse_bytes_per_s),
]


@pytest.mark.parametrize(("write", "read"), FORMATS)
@given(value=st.floats(min_value=1e-9, max_value=1e16))
def test_what_is_printed_reads_back(write, read, value):
    # 9 digits survive; relative because the prefix changes
    assert read(write(value, digits=9)) == pytest.approx(value, rel=1e-8)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_no_nan_is_printed(bad):
    with pytest.raises(UnitError, match="not a finite number"):
        units.format_seconds(bad)
    with pytest.raises(UnitError, match="not a finite number"):
        units.format_percent(bad)


@pytest.mark.parametrize("text", ["", "fast", "3 parsecs", "nan s", "inf", "1e999 s", "1 s 2", "0x10", "1,000 B"])
def test_bad_text(text):
    with pytest.raises(UnitError, match="cannot read .* give a number and a unit such as '2 ms'"):
        units.parse_seconds(text)


def test_units_of_another_quantity_are_refused():
    with pytest.raises(UnitError, match="units: ns, us, ms, s"):
        units.parse_seconds("3 GB")
    assert units.parse_seconds("3 µs") == pytest.approx(3e-6)
    assert units.parse_flop_per_s("1 PFLOPS") == 1e15
