"""What gets into a profile: records first, then what the base states; never what was measured on another GPU."""

import pytest

from tilesight.calibrate.assemble import assemble, required_numbers
from tilesight.calibrate.found import Found
from tilesight.errors import ProfileError

READ, WRITE, EVENT = "dram.bandwidth_read_bytes_per_s", "dram.bandwidth_write_bytes_per_s", "launch.event_s"


@pytest.fixture
def base(hw):
    """A profile with a number of each kind: measured, published, from a datasheet, assumed."""
    sources = {
        READ: {"kind": "measured", "ref": "validation/records/round/dram_read.csv"},
        "l2.line_bytes": {"kind": "published", "ref": "a guide", "note": "of 32-byte sectors"},
        "dram.capacity_bytes": {"kind": "datasheet", "ref": "a datasheet"},
        "fill.row_16_s": {"kind": "assumed", "note": "copied", "origin": "h200_sxm"},
    }
    return hw.with_numbers({name: hw.numbers[name] for name in sources}, sources, about={"name": "round"})


def test_records_replace_what_was_measured(base):
    found = {READ: Found(4.4444e12, 0.01, ("dram_read",), note="how")}
    made = assemble(base, found, name="round", same_gpu=True)
    assert made.profile.numbers[READ] == 4.444e12
    source = made.profile.source[READ]
    assert (source.kind, source.ref, source.note) == ("measured", ("validation/records/round/dram_read.csv",), "how")
    assert made.left_out == {}
    assert READ not in made.carried


def test_what_was_measured_and_is_not_again_is_gone(base):
    made = assemble(base, {}, name="round", same_gpu=True)
    assert READ not in made.profile.numbers
    assert "l2.line_bytes" in made.carried


def test_of_the_same_gpu_what_is_stated_holds(base):
    made = assemble(base, {}, name="other_name", same_gpu=True)
    assert made.profile.name == "other_name"
    for name in ("l2.line_bytes", "dram.capacity_bytes", "fill.row_16_s"):
        assert made.profile.source[name] == base.source[name]


def test_of_another_gpu_it_is_assumed_and_names_its_origin(base):
    made = assemble(base, {}, name="other", same_gpu=False)
    line = made.profile.source["l2.line_bytes"]
    assert (line.kind, line.origin, line.note) == ("assumed", "round", "as round (published: of 32-byte sectors)")
    assert made.profile.source["fill.row_16_s"].origin == "h200_sxm"
    assert {source.kind for source in made.profile.source.values()} == {"assumed"}


def test_what_spreads_is_left_out_even_where_the_base_has_it(base):
    found = {WRITE: Found(4e12, 0.051, ("dram_write",)), EVENT: Found(1e-6, 0.05, ("dirty_lines",))}
    made = assemble(base, found, name="round", same_gpu=True)
    assert made.left_out == {WRITE: "spread 5.1 % is above 5 %"}
    assert WRITE not in made.profile.numbers
    assert made.profile.numbers[EVENT] == 1e-6


def test_kept_by_name_it_says_so(base):
    found = {WRITE: Found(4e12, 0.051, ("dram_write",), note="best of all")}
    made = assemble(base, found, name="round", same_gpu=True, keep=[WRITE])
    assert made.left_out == {}
    assert made.profile.source[WRITE].note == "best of all; kept by name at a spread of 5.1 %"


def test_a_fit_says_how_well_it_holds(base):
    fit = Found(12, None, ("triton_steps", "triton_rounds"), "fitted", "a law", 0.08)
    source = assemble(base, {"l2.associativity": fit}, name="round", same_gpu=True).profile.source["l2.associativity"]
    assert (source.kind, source.note) == ("fitted", "a law; rms 8.0 %")
    assert source.ref[1] == "validation/records/round/triton_rounds.csv"


def test_a_required_number_that_is_nowhere(base):
    measured = {"kind": "measured", "ref": "validation/records/round/device_limits.csv"}
    base = base.with_numbers({"sm_count": 100, "sm.ctas_max": 32}, {"sm_count": measured, "sm.ctas_max": measured})
    with pytest.raises(
        ProfileError, match=r"round: a profile needs sm_count \(needs record x\), sm.ctas_max \(no record gives it\)"
    ):
        assemble(base, {}, name="round", same_gpu=True, missing={"sm_count": "needs record x"})


def test_a_number_that_contradicts_what_is_stated_is_left_out(base):
    made = assemble(base, {READ: Found(6e12, 0.0, ("dram_read",))}, name="round", same_gpu=True)
    assert made.left_out == {
        READ: "dram.bandwidth_read_bytes_per_s = 6e12 is above dram.bandwidth_peak_bytes_per_s = 5e12 (dram_read.csv)"
    }
    assert READ not in made.profile.numbers


def test_absurd_numbers_leave_the_others(base):
    found = {
        READ: Found(1e30, 0.0, ("dram_read",)),
        WRITE: Found(3e12, 0.0, ("dram_write",)),
        EVENT: Found(-1e-6, None, ("dirty_lines",)),
        "launch.kernel_start_s": Found(1e-6, None, ("launch_overhead",)),
    }
    made = assemble(base, found, name="round", same_gpu=True, place=lambda number: f"{number.records[0]}.csv:7")
    assert set(made.left_out) == {READ, EVENT}
    assert made.left_out[READ].startswith("dram.bandwidth_read_bytes_per_s = 1e30 is outside 1e10..1e14; give bytes")
    assert made.left_out[EVENT].endswith("(dirty_lines.csv:7)")
    assert (made.profile.numbers[WRITE], made.profile.numbers["launch.kernel_start_s"]) == (3e12, 1e-6)


def test_of_two_that_contradict_the_one_that_spoils_most_is_left_out(base):
    # one pair of neighbours is absurd; of fours, eights and sixteens there are as many as there can be
    names = [f"gpc.max_active_clusters.{size}" for size in (2, 4, 8, 16)]
    found = {name: Found(count, None, ("device_limits",)) for name, count in zip(names, (1, 24, 12, 6), strict=True)}
    made = assemble(base, found, name="round", same_gpu=True)
    assert set(made.left_out) == {names[0]}


def test_an_absurd_number_that_is_required(base):
    found = {"sm_count": Found(10**9, None, ("device_limits",))}
    with pytest.raises(ProfileError, match=r"needs sm_count \(sm_count = 1000000000 .*device_limits.csv"):
        assemble(base, found, name="round", same_gpu=True)


def test_required_numbers():
    names = required_numbers()
    assert {"sm_count", "clock.boost_hz", "sm.smem_bytes", "dram.capacity_bytes", "l2.sector_bytes"} <= names
    assert not names & {"clock.tensor_hz", READ, "l2.associativity"}
