"""What-if copies: which changes are understood, what the copy says of itself, and what is refused."""

import tomllib
from fractions import Fraction

import numpy as np
import pytest

from tilesight import Gemm, load_profile, predict
from tilesight.errors import ProfileError, UnknownProfileError
from tilesight.hardware.derive import changes_of, derive, differences
from tilesight.hardware.numbers import plain_number
from tilesight.hardware.profile import Profile
from tilesight.hardware.write import to_toml

READ = "dram.bandwidth_read_bytes_per_s"
SUSTAINED = "dram.bandwidth_sustained_bytes_per_s"


@pytest.fixture(scope="module")
def h200():
    return load_profile("h200_sxm")


@pytest.mark.parametrize(
    ("change", "value"),
    [
        (66, 66),
        (66.0, 66),
        (np.int64(66), 66),
        (np.float32(66), 66),
        (np.str_("66"), 66),
        ("66", 66),
        ("66.0", 66),
        (" 0.5x ", 66),  # 132 * 0.5
        ("+50%", 198),  # 132 * 1.5
        ("-25%", 99),  # 132 * 0.75
        ("1e2", 100),
    ],
)
def test_forms_of_a_whole_number(h200, change, value):
    changed = derive(h200, {"sm_count": change}).sm_count
    assert changed == value
    assert isinstance(changed, int)


@pytest.mark.parametrize(
    ("change", "value"),
    [
        (2e9, 2e9),
        (np.float64(2e9), 2e9),
        (np.int32(2000000000), 2e9),
        (2000000000, 2e9),
        ("2e9", 2e9),
        ("1.5x", 1.98e9 * 1.5),
        ("+10%", 2.178e9),
        ("-5%", 1.881e9),
    ],
)
def test_forms_of_a_number(h200, change, value):
    changed = derive(h200, {"clock.boost_hz": change}).clock.boost_hz
    assert changed == pytest.approx(value, rel=1e-11)
    assert isinstance(changed, float)


def test_no_digits_of_binary_fractions(h200):
    # 1.1 * 10 is 11.000000000000002 in binary
    assert derive(derive(h200, {"sm_count": 10}), {"sm_count": "1.1x"}).sm_count == 11


def test_copy_says_what_it_is(h200):
    copy = derive(h200, {SUSTAINED: "1.5x", "sm_count": 66})
    assert copy.name == "h200_sxm_what_if"
    assert copy.derived.parent == "h200_sxm"
    assert copy.derived.changed == (SUSTAINED, "sm_count")
    assert copy.dram.bandwidth_sustained_bytes_per_s == 1.5 * h200.dram.bandwidth_sustained_bytes_per_s
    for name, note in ((SUSTAINED, "what if: 1.5x of 3.88e12"), ("sm_count", "what if: 66 instead of 132")):
        assert copy.source[name].kind == "assumed"
        assert copy.source[name].note == note
        assert copy.source[name].origin == "h200_sxm"
    untouched = set(h200.numbers) - {SUSTAINED, "sm_count"}
    assert all(copy.numbers[name] == h200.numbers[name] for name in untouched)
    assert all(copy.source[name] == h200.source[name] for name in untouched)
    assert h200.derived is None


def test_lists_and_arrays_are_lists(h200):
    for change in ([16, 17] * 4, (16, 17) * 4, np.array([16, 17] * 4)):
        assert derive(h200, {"gpc.sms_per_gpc": change}).gpc.sms_per_gpc == (16, 17) * 4
    for bad in ([16, "18"], [16, True], [16.5], np.array([0.5]), np.array(16), np.bool_(True), None, {}):
        with pytest.raises(ProfileError, match="gpc.sms_per_gpc = .* is not a number; give a number"):
            derive(h200, {"gpc.sms_per_gpc": bad})


def test_a_copy_may_have_a_name(h200):
    copy = derive(h200, {"sm_count": 66}, name="half_h200")
    assert (copy.name, copy.derived.parent, copy.derived.changed) == ("half_h200", "h200_sxm", ("sm_count",))
    assert copy.hash == derive(h200, {"sm_count": 66}).hash
    assert derive(copy, {"sm_count": 33}).name == "h200_sxm_what_if"
    for name, why in (
        ("h100_sxm", "name = 'h100_sxm' is that of a shipped profile"),
        (5, "name = 5 is no name"),
        ("Half H200", "name = 'Half H200' must be lower-case letters, digits and underscores"),
    ):
        with pytest.raises(ProfileError, match=why):
            derive(h200, {"sm_count": 66}, name=name)
    with pytest.raises(ProfileError, match="name = 'same' is for a copy, and nothing is changed"):
        derive(h200, {}, name="same")


def test_changes_in_words(h200):
    copy = derive(
        h200, {"sm_count": np.int64(66), SUSTAINED: "1.5x", "gpc.sms_per_gpc": [16, 17] * 4, "power.limit_w": "-50%"}
    )
    sustained = h200.numbers[SUSTAINED]
    assert list(changes_of(copy).values()) == [
        "sm_count = 66 instead of 132",
        f"{SUSTAINED} = {plain_number(1.5 * sustained)}, 1.5x of {plain_number(sustained)}",
        "gpc.sms_per_gpc = 16 17 16 17 16 17 16 17",
        "power.limit_w = 350.0, -50% of 700.0",
    ]
    assert changes_of(h200) == {}


def test_hash_follows_numbers(h200):
    half = derive(h200, {"sm_count": "0.5x"})
    assert half.hash != h200.hash
    assert derive(h200, {"sm_count": 66}).hash == half.hash  # the same physics, said in another way
    assert derive(half, {"sm_count": 132}).hash == h200.hash
    assert derive(h200, {"sm_count": "1x"}).hash == h200.hash


def test_copy_of_a_copy_names_the_first_parent(h200):
    copy = derive(derive(h200, {"sm_count": 66, READ: "2x"}), {"clock.boost_hz": "1.1x", "sm_count": 33})
    assert copy.name == "h200_sxm_what_if"
    assert copy.derived.parent == "h200_sxm"
    assert copy.derived.changed == ("sm_count", READ, "clock.boost_hz")


def test_nothing_changed_is_the_profile_itself(h200):
    assert derive(h200, {}) is h200


def test_by_name_and_by_file(tmp_path, h200):
    path = tmp_path / "mine.toml"
    path.write_text(to_toml(h200), encoding="utf-8")
    for hardware in (h200, "h200_sxm", path, str(path)):
        assert derive(hardware, {"sm_count": 66}).sm_count == 66
    with pytest.raises(UnknownProfileError, match="no hardware profile 'h20'"):
        derive("h20", {"sm_count": 66})


def test_round_trip(tmp_path, h200):
    copy = derive(h200, {"sm_count": "0.5x", SUSTAINED: "1.5x", "gpc.sms_per_gpc": (16, 17) * 4})
    again = Profile.from_dict(tomllib.loads(to_toml(copy)))
    assert again == copy
    assert again.hash == copy.hash
    path = tmp_path / "what_if.toml"
    path.write_text(to_toml(copy), encoding="utf-8")
    assert load_profile(path) == copy


def test_a_number_that_the_parent_does_not_know(h200):
    name = "merging.window_dram_s"
    assert name not in h200.numbers
    assert derive(h200, {name: 2e-7}).merging.window_dram_s == 2e-7
    with pytest.raises(ProfileError, match=f"profile 'h200_sxm' has no {name} that 2x could change; give a number"):
        derive(h200, {name: "2x"})


def test_bandwidth_beyond_the_peak_is_for_copies_alone(h200):
    beyond = {READ: 2 * h200.dram.bandwidth_peak_bytes_per_s}
    assert derive(h200, beyond).numbers[READ] == beyond[READ]
    with pytest.raises(ProfileError, match="is above dram.bandwidth_peak_bytes_per_s"):
        h200.with_numbers(beyond, {READ: {"kind": "assumed", "note": "no copy"}})
    with pytest.raises(ProfileError, match="is above sm.smem_bytes"):
        derive(h200, {"sm.smem_per_cta_max_bytes": "2x"})


@pytest.mark.parametrize(
    ("name", "change", "why"),
    [
        ("dram.bandwith_read_bytes_per_s", "2x", f"has no number .*Did you mean '{READ}'"),
        ("sms", 66, "a profile has no number 'sms'; known: .*Did you mean 'sm_count'|known: "),
        ("dram", 1, "a profile has no number 'dram'"),
        ("tensor.bf17.rate_peak_flop_per_s", 1e15, "tensor.bf17"),
        ("sm_count", 0, "sm_count = 0 is outside 1..1000000; give a count"),
        ("sm_count", "99.5", "sm_count = 99.5 is not a whole number"),
        ("sm_count", "+20%", "sm_count = 158.4 is not a whole number"),
        ("clock.boost_hz", 1980, "clock.boost_hz = 1980 is outside .*give hertz"),
        ("clock.boost_hz", "1000x", "is outside .*give hertz"),
        ("clock.boost_hz", "-100%", "is outside .*give hertz"),
        ("clock.boost_hz", float("nan"), "clock.boost_hz = nan is not a finite number"),
        ("clock.boost_hz", "1e999x", "clock.boost_hz = inf is not a finite number"),
        ("clock.boost_hz", "nan", "'nan' is not a new value; give a number"),
        ("clock.boost_hz", "2 x", "'2 x' is not a new value"),
        ("clock.boost_hz", "20%", "'20%' is not a new value; .*or a change \\('\\+20%'\\)"),
        ("clock.boost_hz", "1.98 GHz", "is not a new value"),
        ("clock.boost_hz", "", "'' is not a new value"),
        ("sm_count", "٦٦", "sm_count = '٦٦' is not a new value"),  # digits of another script
        ("sm_count", "٢x", "sm_count = '٢x' is not a new value"),
        ("clock.boost_hz", Fraction(10**400), "clock.boost_hz = Fraction.* is not a number"),
        ("clock.boost_hz", True, "clock.boost_hz = True is not a number"),
        ("clock.boost_hz", None, "clock.boost_hz = None is not a number"),
        ("clock.boost_hz", (1, 2), "clock.boost_hz = \\(1, 2\\) is not a number"),
        ("vendor", "AMD", "vendor is not a number of a profile; a what-if copy changes numbers only"),
        ("architecture", "sm_100", "architecture is not a number"),
        ("name", "mine", "name is not a number"),
        ("schema_version", 1, "schema_version is not a number"),
        ("source.sm_count.kind", "measured", "is not a number"),
        ("derived.parent", "b200_sxm", "is not a number"),
        (3, 1, "3 is not a number of a profile"),
    ],
)
def test_refused(h200, name, change, why):
    with pytest.raises(ProfileError, match=why):
        derive(h200, {name: change})


def test_a_list_is_given_whole(h200):
    copy = derive(h200, {"gpc.sms_per_gpc": (16, 17) * 4})
    with pytest.raises(ProfileError, match="gpc.sms_per_gpc .* is a list; give all of it, not 2x"):
        derive(copy, {"gpc.sms_per_gpc": "2x"})


@pytest.mark.parametrize("bad", [None, 5, b"h200_sxm", ["h200_sxm"]])
def test_parents_of_another_kind(bad):
    with pytest.raises(ProfileError, match="is no profile; give a Profile, its name or the path of its TOML file"):
        derive(bad, {"sm_count": 66})


def test_changes_are_a_mapping(h200):
    with pytest.raises(ProfileError, match="changes are a list; give a mapping"):
        derive(h200, ["sm_count=66"])


def test_differences(h200):
    copy = derive(h200, {"sm_count": 66, "merging.window_dram_s": 2e-7})
    first, second = differences(h200, copy)
    assert (first.name, first.first, first.second, first.ratio) == ("sm_count", 132, 66, 0.5)
    assert (first.first_kind, first.second_kind) == ("measured", "assumed")
    assert (second.name, second.first, second.second, second.ratio) == ("merging.window_dram_s", None, 2e-7, None)
    assert (second.first_kind, second.second_kind) == (None, "assumed")
    assert [each.ratio for each in differences(copy, h200)] == [2.0, None]
    assert differences(h200, h200) == ()


def test_more_bandwidth_is_never_slower(h200):
    stream = Gemm(16, 8192, 8192)  # bound by reading the weight
    times = [
        predict(stream, hardware=derive(h200, {READ: factor}), cache="cold").seconds for factor in ("0.5x", "1x", "2x")
    ]
    assert times[0] > times[1] > times[2]


def test_widths_of_counters_say_what_they_are_relative_to():
    with pytest.raises(ProfileError, match="dram_read = 1.*give a half-width relative to the bytes"):
        derive("h200_sxm", {"cache_uncertainty.drift.dram_read": 1e9})
    with pytest.raises(ProfileError, match=r"hit_rate = 1.5 is outside 0.0..1.0; give a difference of hit rates"):
        derive("h200_sxm", {"cache_uncertainty.edge.hit_rate": 1.5})


def test_gpcs_agree_with_their_sms():
    with pytest.raises(ProfileError, match="gpc.sms_per_gpc has 2 entries and gpc.count = 8; give an entry a GPC"):
        derive("h200_sxm", {"gpc.sms_per_gpc": [66, 66]})
    assert derive("h200_sxm", {"gpc.sms_per_gpc": [66, 66], "gpc.count": 2}).gpc.sms_per_gpc == (66, 66)
