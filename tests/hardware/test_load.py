import shutil

import pytest

from tilesight.errors import MissingFileError, ProfileError, UnknownProfileError
from tilesight.files import data_root, has_all_records, profile_files
from tilesight.hardware import load
from tilesight.hardware.load import list_profiles, load_profile, missing_records
from tilesight.hardware.write import to_toml


@pytest.mark.parametrize("name", list_profiles())
def test_every_shipped_profile_loads(name):
    profile = load_profile(name)
    assert profile.name == name
    assert profile.dram.bandwidth_peak_bytes_per_s > 0
    if has_all_records():
        assert list(missing_records(profile, data_root())) == []


def test_by_name_by_path_and_as_it_is(tmp_path):
    profile = load_profile("h200_sxm")
    assert profile.architecture == "sm_90"
    assert load_profile("h200_sxm") is profile
    assert load_profile(profile) is profile
    path = tmp_path / "mine.toml"
    shutil.copy(profile_files()["h200_sxm"], path)
    assert load_profile(path) == load_profile(str(path)) == profile


def test_a_changed_file_is_read_again(tmp_path, example):
    path = tmp_path / "mine.toml"
    text = example.read_text(encoding="utf-8")
    path.write_text(text, encoding="utf-8")
    assert load_profile(path).sm_count == 132
    path.write_text(text.replace("sm_count = 132", "sm_count = 131"), encoding="utf-8")
    assert load_profile(path).sm_count == 131


def test_unknown_name():
    with pytest.raises(
        UnknownProfileError, match=r"no hardware profile 'h20'; known: .*h200_sxm.*Did you mean 'h200_sxm'\?"
    ):
        load_profile("h20")
    with pytest.raises(KeyError, match="no hardware profile ''"):
        load_profile("")


def test_missing_file(tmp_path):
    for path in (tmp_path / "h200_sxm.toml", tmp_path, "nowhere/h200_sxm", "h200_sxm.toml"):
        with pytest.raises(MissingFileError, match="no profile file"):
            load_profile(path)


@pytest.mark.parametrize(
    "text",
    [
        "name = ",
        "name = 'a'\nname = 'b'",
        "[dram]\nx = 1\n[dram]",
        "x = " + "9" * 5000,
        "x = " + "[" * 100_000,
        b"name = '\xff'",
    ],
)
def test_malformed(tmp_path, text):
    path = tmp_path / "bad.toml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(ProfileError, match="bad.toml: not a TOML file: ") as caught:
        load_profile(path)
    assert "\n" not in str(caught.value)


def test_errors_name_the_file(tmp_path, example):
    path = tmp_path / "mine.toml"
    text = example.read_text(encoding="utf-8")
    path.write_text(text.replace("= 4.8e12", "= nan"), encoding="utf-8")
    with pytest.raises(ProfileError, match="mine.toml: dram.bandwidth_peak_bytes_per_s = nan is not a finite number"):
        load_profile(path)


def with_record(profile, ref, kind):
    return profile.with_numbers({}, {"sm_count": {"kind": kind, "ref": ref}})


@pytest.mark.parametrize("kind", ["measured", "fitted"])
def test_records_that_numbers_name_must_exist(tmp_path, profile, kind):
    record = tmp_path / "validation" / "records" / "copy.csv"
    record.parent.mkdir(parents=True)
    record.touch()
    there, absent = "validation/records/copy.csv", "validation/records/read.csv"
    assert list(missing_records(with_record(profile, there, kind), tmp_path)) == []
    assert list(missing_records(with_record(profile, [there, absent], kind), tmp_path)) == [
        "source of sm_count: there is no record 'validation/records/read.csv'"
    ]
    assert "'a table of mine' is no record" in next(
        missing_records(with_record(profile, "a table of mine", kind), tmp_path)
    )


def test_shipped_profiles_are_held_to_their_records_and_name(tmp_path, monkeypatch, profile):
    folder = tmp_path / "hardware_profiles"
    folder.mkdir()
    monkeypatch.setattr(load, "data_root", lambda: tmp_path)
    monkeypatch.setattr(load, "has_all_records", lambda: True)
    (folder / "other.toml").write_text(to_toml(profile), encoding="utf-8")
    with pytest.raises(ProfileError, match="other.toml: name = 'example' must be the name of the file"):
        load_profile(folder / "other.toml")
    measured = with_record(profile, "validation/records/none.csv", "measured")
    (folder / "example.toml").write_text(to_toml(measured), encoding="utf-8")
    with pytest.raises(ProfileError, match="there is no record 'validation/records/none.csv'"):
        load_profile(folder / "example.toml")
    monkeypatch.setattr(load, "has_all_records", lambda: False)  # a wheel carries no records but a sample
    load._read.cache_clear()
    assert load_profile(folder / "example.toml") == measured
