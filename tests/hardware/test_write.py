import tomllib

import pytest

from tilesight.files import profile_files
from tilesight.hardware.load import list_profiles, load_profile
from tilesight.hardware.profile import Profile
from tilesight.hardware.write import to_toml


@pytest.mark.parametrize("name", list_profiles())
def test_round_trip(name):
    profile = load_profile(name)
    text = to_toml(profile)
    again = Profile.from_dict(tomllib.loads(text))
    assert again == profile
    assert again.hash == profile.hash
    assert to_toml(again) == text


@pytest.mark.parametrize("name", list_profiles())
def test_shipped_files_are_as_the_writer_leaves_them(name):
    # so that rewriting a profile with new numbers changes only the lines of those numbers
    assert profile_files()[name].read_text(encoding="utf-8") == to_toml(load_profile(name))


def test_every_kind_of_value(profile):
    why = {
        "kind": "fitted",
        "ref": ["validation/records/a.csv", "validation/records/b.csv"],
        "note": 'a "b" \\ \x7f\n µs',
    }
    numbers = {
        "gpc.max_active_clusters.2": 66,
        "gpc.sms_per_gpc": (16, 17) * 4,
        "launch.graph_gap_s": 1.05e-6,
        "merging.requests_async": 4.0,
    }
    profile = profile.with_numbers(numbers, dict.fromkeys(numbers, why))
    data = profile.to_dict() | {"derived": {"parent": "h200_sxm", "changed": ["launch.graph_gap_s"]}}
    profile = Profile.from_dict(data)
    text = to_toml(profile)
    assert Profile.from_dict(tomllib.loads(text)) == profile
    for line in (
        "[gpc.max_active_clusters]",
        "2 = 66",
        "sms_per_gpc = [16, 17, 16, 17, 16, 17, 16, 17]",
        "graph_gap_s = 1.05e-6",
        "requests_async = 4.0",
    ):
        assert line in text.splitlines()
    assert 'ref = ["validation/records/a.csv", "validation/records/b.csv"]' in text


def test_sources_follow_the_numbers(profile):
    text = to_toml(profile)
    lines = text[text.index("[source]") :].splitlines()[1:]
    assert [line.split('"')[1] for line in lines] == list(profile.numbers)
    assert text.endswith("}\n")
