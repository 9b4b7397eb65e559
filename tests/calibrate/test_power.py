"""Rates and energies of formats: from a few rows worked by hand, and from the records of the H200."""

from pathlib import Path

import pytest

from tilesight.calibrate import power
from tilesight.calibrate.derive import derive_numbers
from tilesight.calibrate.found import Found
from tilesight.calibrate.records import Records

RECORDS = Path(__file__).parent.parent.parent / "validation" / "records" / "h200_sxm"


@pytest.fixture
def law(monkeypatch):
    """A power law of round numbers in place of the fitted one: limit 700 W, exponent 1/2, static 100 W."""
    numbers = {"sustained_w": 700.0, "sustained_exponent": 0.5, "static_w": 100.0, "energy_j_per_flop": 1e-12}
    found = {f"power.{name}": Found(value, None, ("power_clock",)) for name, value in numbers.items()}
    monkeypatch.setattr(power, "power_law", lambda records: found)


def row(part, dtype, flop_per_s, flop_per_cycle, clock_hz, spread=0.01):
    return {
        "part": part, "dtype": dtype, "instruction": f"wgmma {dtype}", "flop_per_s": flop_per_s,
        "flop_per_cycle_per_sm": flop_per_cycle, "clock_hz": clock_hz, "spread": spread,
    }  # fmt: skip


CLOCK = {"row": "summary", "sms": 1, "data": "normal", "duty": 1, "clock_hz": 2e9}
ROWS = [
    row("burst", "bf16", 9e14, 4096, 1.9e9),
    row("sustained", "bf16", 8e14, 4096, 1.6e9, 0.02),
    row("burst", "fp8", 1.8e15, 8192, 1.9e9, 0.005),
    row("sustained", "fp8", 1.7e15, 8192, 2e9, 0.04),
]


def test_formats_by_hand(record, law):
    record("power_clock", [CLOCK])
    found = power.formats(record("tensor_sustained", ROWS))
    assert found["tensor.fp8.rate_burst_flop_per_s"].value == 1.8e15
    assert found["tensor.fp8.rate_sustained_flop_per_s"].value == 1.7e15
    assert found["tensor.fp8.rate_sustained_flop_per_s"].note == "wgmma fp8 from shared memory, random data"
    # demand = 700 W * (2 GHz / clock) ** 2: fp8 at full clock 700 W, bf16 at 1.6 GHz 1093.75 W; less 100 W static
    # 600 and 993.75; half the flop a cycle of fp8: (600 / 993.75) * (4096 / 8192) = 0.3019 of bf16's 1 pJ
    energy = found["tensor.fp8.energy_j_per_flop"]
    assert energy.value == pytest.approx(600 / 993.75 / 2 * 1e-12)
    assert energy.spread == 0.04  # the larger of both
    assert energy.note == "0.3 of bf16's"
    assert {name.split(".")[1] for name in found} == {"fp8"}  # formats that the GPU lacks are left out


def test_what_formats_lack(record, law):
    record("power_clock", [CLOCK])
    missing = derive_numbers(record("tensor_sustained", ROWS)).missing
    assert missing["tensor.tf32.energy_j_per_flop"] == "its records hold no such point"
    missing = derive_numbers(record("tensor_sustained", ROWS[2:])).missing
    assert missing["tensor.fp8.energy_j_per_flop"] == "tensor_sustained.csv: no row with dtype=bf16"
    missing = derive_numbers(record("tensor_sustained", [*ROWS[:2], ROWS[3]])).missing
    assert missing["tensor.fp8.rate_burst_flop_per_s"] == "tensor_sustained.csv: no row with dtype=fp8"
    empty = [{**each, "clock_hz": ""} for each in ROWS]
    assert (
        "nan is no number" in derive_numbers(record("tensor_sustained", empty)).missing["tensor.fp8.energy_j_per_flop"]
    )


def test_formats_of_the_h200(h200):
    found = power.formats(Records(RECORDS, h200))
    assert {name.split(".")[1] for name in found} == set(power.FORMATS)
    for name, each in found.items():
        assert each.kept, name
        assert each.rounded.value == h200.numbers[name], name
    for dtype in power.FORMATS:
        peak = h200.tensor[dtype].rate_peak_flop_per_s
        burst, lasting = (found[f"tensor.{dtype}.rate_{kind}_flop_per_s"].value for kind in ("burst", "sustained"))
        assert 0.8 * peak < lasting < burst < peak
    # a flop takes less the narrower the format, and random bf16 takes less than random fp16 (fewer bits of mantissa)
    energy = {dtype: found[f"tensor.{dtype}.energy_j_per_flop"].value for dtype in power.FORMATS}
    assert energy["int8"] < energy["fp8"] < h200.require("power.energy_j_per_flop") < energy["fp16"] < energy["tf32"]
