import copy
import pickle
import re

import pytest
from pydantic import ValidationError

from tilesight.errors import ProfileError, UnsupportedError
from tilesight.hardware.load import load_profile
from tilesight.hardware.profile import Profile, field_names


def refuse(data, match):
    with pytest.raises(ProfileError, match=match) as caught:
        Profile.from_dict(data, where="gpu.toml")
    message = str(caught.value)
    assert message.startswith("gpu.toml: ")
    assert "\n" not in message
    assert len(message) < 600


def test_datasheet_rates_by_hand():
    # the datasheet's tensor rates are SMs * flop per cycle and SM * 1.83 GHz, rounded to 0.1 TFLOP/s
    profile = load_profile("h200_sxm")
    for name in ("bf16", "fp16", "tf32", "fp8", "int8"):
        rate = profile.tensor[name]
        assert profile.sm_count * rate.flop_per_cycle_per_sm * 1.83e9 == pytest.approx(
            rate.rate_peak_flop_per_s, rel=1e-3
        )
    # those of fp64 are stated at the boost clock
    fp64 = profile.tensor["fp64"]
    assert pytest.approx(fp64.rate_peak_flop_per_s, rel=1e-3) == 132 * 256 * 1.98e9


RANGE_ERRORS = [
    ("dram.bandwidth_peak_bytes_per_s", 4800, "4800 is outside 1e10..1e14; give bytes per second (4.8 TB/s is 4.8e12)"),
    ("clock.boost_hz", 1980.0, "1980.0 is outside 1e8..1e10; give hertz (1.98 GHz is 1.98e9)"),
    ("tensor.bf16.rate_peak_flop_per_s", 989.4, "989.4 is outside 1e11..1e17; give flop per second"),
    ("sm.smem_bytes", 228 * 10**9, "228000000000 is outside 1024..1048576; give bytes (228 KiB is 233472)"),
    ("l2.capacity_bytes", 60, "60 is outside 65536..2147483648; give bytes (60 MiB is 62914560)"),
    ("sm_count", 0, "0 is outside 1..1000000; give a count"),
    ("sm_count", 10**400, "1000"),
    ("dram.capacity_bytes", 10**400, "1000"),
    ("launch.graph_gap_s", 1.05, "1.05 is outside 0.0..1.0; give seconds (1.05 us is 1.05e-6)"),
    ("launch.graph_gap_s", -1e-6, "-1e-6 is outside 0.0..1.0"),
    ("schema_version", 2, "2 is outside 1..1; this release reads version 1"),
]


@pytest.mark.parametrize(("name", "value", "match"), RANGE_ERRORS)
def test_out_of_range(broken, name, value, match):
    refuse(broken(name, value), re.escape(f"{name} = {match}"))


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_not_finite(broken, value):
    refuse(
        broken("dram.bandwidth_peak_bytes_per_s", value),
        "bandwidth_peak_bytes_per_s = .* is not a finite number; give bytes",
    )


@pytest.mark.parametrize("value", ["4.8e12", True, False, [4.8e12], {"value": 4.8e12}])
@pytest.mark.parametrize(
    "name", ["dram.bandwidth_peak_bytes_per_s", "sm_count", "schema_version", "fill.scalar_elements_per_cycle"]
)
def test_not_a_number(broken, name, value):
    refuse(broken(name, value), rf"{re.escape(name)} = .* is not a (whole )?number; write (a plain )?one")


def test_whole_numbers_are_whole(broken):
    refuse(broken("sm_count", 132.0), r"sm_count = 132\.0 is not a whole number")


@pytest.mark.parametrize(
    ("name", "value", "match"),
    [
        ("vendor", 3, "vendor = 3 is not text"),
        ("vendor", "", "vendor = '' is empty"),
        ("vendor", " ", "vendor = ' ' is blank"),
        ("name", "H200 SXM", "must be lower-case letters"),
        ("architecture", "sm_91", "architecture = 'sm_91' is not allowed; input should be 'sm_80'"),
        ("dram", 3, "dram = 3 is not a table"),
        ("tensor", 3, "tensor = 3 is not a table"),
        ("tensor", {}, "tensor has no dtype"),
        (
            "tensor.fp9",
            {"flop_per_cycle_per_sm": 1.0, "rate_peak_flop_per_s": 1e12},
            r"no data type; .* Did you mean 'fp8'",
        ),
        ("gpc.max_active_clusters", {}, "max_active_clusters = .* is empty; leave it out"),
        ("gpc.max_active_clusters", {"3": 44}, "max_active_clusters.3 = '3' is not allowed"),
        ("gpc.sms_per_gpc", [16, True], r"sms_per_gpc\.1 = true is not a whole number"),
        ("gpc.sms_per_gpc", 16, "sms_per_gpc = 16 is not a list"),
        ("derived", {"parent": "h100_sxm"}, "derived.changed is missing"),
    ],
)
def test_wrong_kind(broken, name, value, match):
    refuse(broken(name, value), match)


@pytest.mark.parametrize(
    "name",
    [
        "schema_version",
        "name",
        "vendor",
        "architecture",
        "sm_count",
        "clock",
        "clock.boost_hz",
        "sm.registers",
        "dram.bandwidth_peak_bytes_per_s",
        "dram.capacity_bytes",
        "l2.capacity_bytes",
        "tensor",
        "tensor.bf16.rate_peak_flop_per_s",
        "source",
    ],
)
def test_required(broken, name):
    refuse(broken(name, None), f"{re.escape(name)} is missing")


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("dram.bandwidth_bytes_per_s", "dram.bandwidth_read_bytes_per_s"),
        ("sm_counts", "sm_count"),
        ("tensor.bf16.rate_burst_flops", "tensor.bf16.rate_burst_flop_per_s"),
        ("lauch", "launch"),
    ],
)
def test_unknown_key(broken, name, near):
    refuse(broken(name, 1.0), rf"unknown key {name!r}; known: .*Did you mean '{re.escape(near)}'\?")


def test_every_number_needs_a_source(data):
    for name in list(data["source"]):
        without = copy.deepcopy(data)
        del without["source"][name]
        refuse(without, f"{re.escape(name)} has no source")


def test_every_source_needs_a_number(data):
    data["source"]["sm_coutn"] = data["source"]["sm_count"]
    refuse(data, r"source 'sm_coutn' names no number of this profile; .*Did you mean 'sm_count'")


def test_a_table_has_no_common_source(data):
    data["source"]["sm.*"] = data["source"].pop("sm.registers")
    refuse(data, "sm.registers has no source")


@pytest.mark.parametrize(
    ("source", "match"),
    [
        ({"kind": "guess", "ref": "x"}, "kind = 'guess' is not allowed; input should be 'datasheet', 'measured'"),
        ({"kind": "datasheet"}, "source of sm_count: a datasheet number needs a ref"),
        ({"kind": "measured", "ref": []}, "source of sm_count: a measured number needs a ref"),
        ({"kind": "datasheet", "ref": ""}, "is empty"),
        ({"kind": "assumed", "ref": "h100_sxm"}, "source of sm_count: an assumed number needs a note that says why"),
        ({"ref": "x"}, "source.sm_count.kind is missing"),
        ({"kind": "datasheet", "ref": "x", "page": "3"}, "unknown key 'source.sm_count.page'"),
        ("datasheet", "source.sm_count = 'datasheet' is not a table"),
        ({"kind": "datasheet", "ref": " "}, r"source.sm_count.ref.0 = ' ' is blank"),
        ({"kind": "datasheet", "ref": ["a book", "\t"]}, r"source.sm_count.ref.1 = .* is blank"),
        ({"kind": "assumed", "note": "\n"}, r"source.sm_count.note = '\\n' is blank"),
        ({"kind": "assumed", "note": "x", "origin": " "}, "source.sm_count.origin = ' ' is blank"),
        ({"kind": "measured", "ref": "../../../etc/passwd"}, "source of sm_count: '../../../etc/passwd' is no record"),
        ({"kind": "measured", "ref": "validation/records/../../x.csv"}, "is no record; give a relative path without"),
        ({"kind": "fitted", "ref": ["validation/records/a.csv", "/etc/passwd"]}, "'/etc/passwd' is no record"),
        ({"kind": "measured", "ref": "~/a.csv"}, "'~/a.csv' is no record"),
        ({"kind": "measured", "ref": "C:\\a.csv"}, "is no record"),
    ],
)
def test_source_rules(data, source, match):
    data["source"]["sm_count"] = source
    refuse(data, match)


def test_assumed_needs_only_a_note(data):
    data["source"]["sm_count"] = {"kind": "assumed", "note": "as on the H100", "origin": "h100_sxm"}
    assert Profile.from_dict(data).source["sm_count"].origin == "h100_sxm"


def test_sustained_is_not_above_peak(broken):
    data = broken("dram.bandwidth_sustained_bytes_per_s", 4.9e12)
    data["source"]["dram.bandwidth_sustained_bytes_per_s"] = {"kind": "published", "ref": "x"}
    refuse(data, "sustained_bytes_per_s = 4.9e12 is above dram.bandwidth_peak_bytes_per_s = 4.8e12")


def test_require(profile):
    assert profile.require("sm_count") == 132.0
    assert profile.require("tensor.bf16.flop_per_cycle_per_sm") == profile.tensor["bf16"].flop_per_cycle_per_sm
    assert profile.get("l2.associativity") is None
    with pytest.raises(UnsupportedError, match="profile 'example' has no l2.associativity") as caught:
        profile.require("l2.associativity")
    assert caught.value.field == "l2.associativity"
    with pytest.raises(UnsupportedError, match="has no tensor.fp4.rate_peak_flop_per_s"):
        profile.require("tensor.fp4.rate_peak_flop_per_s")
    with pytest.raises(
        ProfileError, match="a profile has no number 'l2.asociativity'; .*Did you mean 'l2.associativity'"
    ):
        profile.get("l2.asociativity")
    with pytest.raises(ProfileError, match="a profile has no number 'vendor'"):
        profile.require("vendor")


def test_require_of_a_list(profile):
    why = {"kind": "assumed", "note": "test"}
    profile = profile.with_numbers({"gpc.sms_per_gpc": (16, 17) * 4}, {"gpc.sms_per_gpc": why})
    with pytest.raises(ProfileError, match="gpc.sms_per_gpc of profile 'example' is a list"):
        profile.require("gpc.sms_per_gpc")


def test_every_field_name_can_be_asked_for(profile):
    assert len(field_names()) == len(set(field_names())) > 50
    for name in field_names():
        profile.get(name.replace("*", "bf16") if name.startswith("tensor") else name.replace("*", "4"))


def test_hash_follows_the_numbers(profile):
    why = {"kind": "assumed", "note": "test"}
    assert re.fullmatch("[0-9a-f]{12}", profile.hash)
    assert Profile.from_dict(profile.to_dict()).hash == profile.hash
    assert profile.with_numbers({}, {"sm_count": why}).hash == profile.hash
    assert profile.with_numbers({"sm_count": 131}, {"sm_count": why}).hash != profile.hash
    assert profile.with_numbers({"l2.associativity": 16}, {"l2.associativity": why}).hash != profile.hash


def test_hash_ignores_the_order_of_the_file(data):
    backwards = dict(reversed(data.items()))
    backwards["tensor"] = dict(reversed(data["tensor"].items()))
    assert Profile.from_dict(backwards).hash == Profile.from_dict(data).hash


def test_with_numbers(profile):
    why = {"kind": "assumed", "note": "test"}
    changed = profile.with_numbers(
        {"gpc.max_active_clusters.4": 30, "sm_count": 130}, {"gpc.max_active_clusters.4": why}
    )
    assert changed.gpc.max_active_clusters == {"4": 30}
    assert changed.sm_count == 130
    assert changed.source["sm_count"] == profile.source["sm_count"]
    assert profile.sm_count == 132
    assert "l2.partitions" not in profile.with_numbers({"l2.partitions": None, "l2.associativity": None}, {}).numbers
    with pytest.raises(ProfileError, match="copy: l2.associativity has no source"):
        profile.with_numbers({"l2.associativity": 16}, {}, where="copy")
    with pytest.raises(ProfileError, match="a profile has no number 'sm_count.x'"):
        profile.with_numbers({"sm_count.x": 1}, {})


def test_frozen_all_the_way_down(profile):
    with pytest.raises(ValidationError, match="frozen"):
        profile.sm_count = 1
    with pytest.raises(ValidationError, match="frozen"):
        profile.dram.capacity_bytes = 1.0
    with pytest.raises(ValidationError, match="frozen"):
        profile.source["sm_count"].kind = "measured"
    with pytest.raises(TypeError):
        profile.tensor["bf16"] = profile.tensor["fp8"]
    with pytest.raises(TypeError):
        profile.numbers["sm_count"] = 1


def test_copies_and_processes(profile):
    again = pickle.loads(pickle.dumps(profile))
    assert again == profile == copy.deepcopy(profile)
    assert hash(again) == hash(profile)
