"""Which profile records make, and where they are found."""

import shutil
from pathlib import Path

import pytest

from tilesight.calibrate.identity import identify, records_folder, slug
from tilesight.calibrate.session import calibrate_records, check_names, check_records
from tilesight.errors import MissingFileError, ProfileError, UnsupportedError
from tilesight.hardware.load import load_profile

RECORDS = Path(__file__).parent.parent.parent / "validation" / "records" / "h200_sxm"


def test_a_gpu_that_a_shipped_profile_fits():
    which = identify("NVIDIA H200")
    assert (which.name, which.base.name, which.same_gpu) == ("h200_sxm", "h200_sxm", True)
    mine = identify("NVIDIA H200", name="my_h200")
    assert (mine.name, mine.same_gpu) == ("my_h200", True)


def test_a_gpu_that_none_fits():
    with pytest.raises(ProfileError, match="no shipped profile fits 'NVIDIA GeForce RTX 4090'; give --base PROFILE"):
        identify("NVIDIA GeForce RTX 4090")
    which = identify("NVIDIA GeForce RTX 4090", "l40s", architecture="sm_89")
    assert (which.name, which.same_gpu) == ("geforce_rtx_4090", False)
    assert slug("NVIDIA H100 80GB HBM3") == "h100_80gb_hbm3"
    with pytest.raises(ProfileError, match="profile 'h200_sxm' is of sm_90 and NVIDIA GeForce RTX 4090 of sm_89"):
        identify("NVIDIA GeForce RTX 4090", "h200_sxm", architecture="sm_89")
    with pytest.raises(ProfileError, match="name 'My GPU' must be lower-case"):
        identify("NVIDIA H200", name="My GPU")


def test_where_records_are(tmp_path):
    with pytest.raises(MissingFileError, match="no records in"):
        records_folder(tmp_path)
    for name in ("a", "b"):
        folder = tmp_path / "validation" / "records" / name
        folder.mkdir(parents=True)
        (folder / "x.csv").touch()
    assert records_folder(folder) == folder
    assert records_folder(tmp_path, "a").name == "a"
    with pytest.raises(MissingFileError, match="records of several GPUs in .*: a, b; give one"):
        records_folder(tmp_path)
    shutil.rmtree(folder)
    assert records_folder(tmp_path).name == "a"


@pytest.fixture
def few(tmp_path):
    """Records of the chip and of DRAM alone."""
    for name in ("device_limits", "dram_read", "dram_write", "dram_copy"):
        for ending in (".csv", ".toml"):
            shutil.copy(RECORDS / f"{name}{ending}", tmp_path)
    return tmp_path


def test_a_profile_of_few_records(few):
    made = calibrate_records(few)
    assert made.profile.dram.bandwidth_read_bytes_per_s == load_profile("h200_sxm").dram.bandwidth_read_bytes_per_s
    assert made.profile.power.energy_j_per_flop is None  # measured once, and not here
    assert made.profile.power.limit_w == 700.0  # from the datasheet
    assert made.missing["l2.lookup_bytes_per_s"] == "needs record l2_lookup_rate"
    assert made.missing["launch.descriptor_s"].startswith("no record 'triton_steps'")
    assert set(made.kept) == set(made.found)
    assert made.to_dict()["schema"] == "tilesight.calibration/1"


def test_of_another_gpu_with_a_base(few):
    for path in few.glob("*.toml"):
        path.write_text(path.read_text(encoding="utf-8").replace("NVIDIA H200", "NVIDIA H20"), encoding="utf-8")
    with pytest.raises(ProfileError, match="no shipped profile fits 'NVIDIA H20'"):
        calibrate_records(few)
    made = calibrate_records(few, base="h200_sxm")
    assert made.profile.name == "h20"
    assert made.profile.source["dram.bandwidth_peak_bytes_per_s"].kind == "assumed"
    assert made.profile.source["dram.bandwidth_peak_bytes_per_s"].origin == "h200_sxm"
    assert made.profile.source["sm_count"].ref == ("validation/records/h20/device_limits.csv",)
    measured = {name for name, source in made.profile.source.items() if source.kind in ("measured", "fitted")}
    assert measured == set(made.kept)


def test_without_the_sizes_of_the_chip(few):
    (few / "device_limits.csv").unlink()
    with pytest.raises(ProfileError, match=r"a profile needs sm_count \(needs record device_limits\)"):
        calibrate_records(few)


def test_names_to_keep_are_checked_before_anything_runs():
    check_names(["launch.event_s", "fill.latency_l2_s"])
    with pytest.raises(
        UnsupportedError, match="no record gives a number 'launch.event'.*Did you mean 'launch.event_s'"
    ):
        check_names(["launch.event"])


def test_what_moved(few, altered, h200):
    assert check_records(few).moved == ()
    faster = altered(h200, {"dram.bandwidth_read_bytes_per_s": 4.2e12})
    result = check_records(few, hardware=faster)
    assert [(each.name, each.before, each.after) for each in result.moved] == [
        ("dram.bandwidth_read_bytes_per_s", 4.2e12, 4.59e12)
    ]
    assert "l2.lookup_bytes_per_s" in result.missing
    assert result.to_dict()["moved"][0]["change"] == pytest.approx(0.093, abs=1e-3)
