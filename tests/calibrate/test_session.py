"""Which profile records make, and where they are found."""

import shutil
from pathlib import Path

import pytest

from tilesight.calibrate.identity import identify, records_folder, slug
from tilesight.calibrate.session import calibrate_records, check_names, check_records, write_calibration
from tilesight.check import check_profile
from tilesight.errors import ConfigError, MissingFileError, ProfileError, TableError, UnsupportedError
from tilesight.hardware.load import load_profile
from tilesight.hardware.unread import OF_PROTOCOLS

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


def test_a_name_makes_no_gpu_the_same():
    mine = load_profile("l40s").with_numbers({}, {}, about={"name": "mine"})
    assert not identify("NVIDIA GeForce RTX 4090", mine, "mine").same_gpu
    assert identify("NVIDIA L40S", "l40s", "mine").same_gpu
    with pytest.raises(
        ProfileError, match="name 'h200_sxm' is that of a shipped profile, of another GPU than 'NVIDIA H20'"
    ):
        identify("NVIDIA H20", "h200_sxm", "h200_sxm")


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


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (
            lambda text: text.replace(",4,0,0,", ",abc,0,0,", 1),
            "dram_read.csv:2:unroll: 'abc' where .* rows hold numbers",
        ),
        (lambda text: text.rstrip("\n").rsplit(",", 1)[0] + "\n", "dram_read.csv:.*: .* cells where the header has"),
    ],
)
def test_damaged_records_are_refused(few, change, problem):
    path = few / "dram_read.csv"
    text = path.read_text(encoding="utf-8")
    path.write_text(change(text), encoding="utf-8")
    assert path.read_text(encoding="utf-8") != text
    for asked in (calibrate_records, check_records):
        with pytest.raises(TableError, match=problem):
            asked(few)


def test_a_cell_of_its_own_kind_is_refused_as_well(few):
    # the only number of its column: nothing beside it says that it should be one, but the rule that reads it does
    path = few / "device_limits.csv"
    path.write_text(path.read_text(encoding="utf-8").replace("132", "abc", 1), encoding="utf-8")
    with pytest.raises(TableError, match="device_limits.csv:2:sms: 'abc' is no number"):
        calibrate_records(few)


def test_a_record_without_its_toml_is_refused(few):
    (few / "dram_copy.toml").unlink()
    with pytest.raises(TableError, match="dram_copy.csv: no dram_copy.toml beside it"):
        calibrate_records(few)
    (few / "dram_copy.csv").rename(few / "dram_copy.raw.csv")  # no record by its name
    assert "dram.bandwidth_sustained_bytes_per_s" in calibrate_records(few).missing


def test_what_a_profile_of_few_records_lacks(few):
    made = calibrate_records(few)
    checked = check_profile(made.profile)
    assert made.checked.gemm_lacks == checked.gemm_lacks != ()
    assert made.checked.tables_lack == OF_PROTOCOLS
    words = " ".join(made.remedies)
    assert "tilesight calibrate --only " in words
    assert "l2_lookup_rate" in words
    assert f"python validation/vendor_gemm.py {few}: makes vendor_gemm" in words
    assert made.remedies[-1] == f"tilesight calibrate --from {few}: makes the profile of them"


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


@pytest.mark.parametrize("target", ["90", "true", '"banana"', '["sm_90a"]', '"sm_90"'])
def test_a_target_that_is_none(few, target):
    path = few / "dram_read.toml"
    path.write_text(f"{path.read_text(encoding='utf-8')}target = {target}\n", encoding="utf-8")
    with pytest.raises(TableError, match=r"dram_read.toml: target = .* is no target; known: sm_100a, .*sm_80"):
        calibrate_records(few)


def test_records_of_several_targets(few):
    path = few / "dram_read.toml"
    path.write_text(f'{path.read_text(encoding="utf-8")}target = "sm_80"\n', encoding="utf-8")
    with pytest.raises(
        TableError, match=r"different targets: sm_90a \(device_limits\), sm_80 \(dram_read\)|sm_90a .dram_copy"
    ):
        calibrate_records(few)


def test_an_absurd_number_is_left_out_with_its_line(few):
    path = few / "device_limits.csv"
    lines = path.read_text(encoding="utf-8").splitlines()
    header = lines[0].split(",")
    at = next(
        i
        for i, line in enumerate(lines)
        if "clusters" in line.split(",") and line.split(",")[header.index("cluster_ctas")] == "2"
    )
    cells = lines[at].split(",")
    cells[header.index("clusters")] = "1000000"
    lines[at] = ",".join(cells)
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    made = calibrate_records(few, fit=False)
    (reason,) = (why for name, why in made.left_out.items() if name == "gpc.max_active_clusters.2")
    assert reason.startswith("gpc.max_active_clusters.2 = 1000000 ")
    assert reason.endswith(f"(device_limits.csv:{at + 1})")
    assert made.profile.dram.bandwidth_read_bytes_per_s == load_profile("h200_sxm").dram.bandwidth_read_bytes_per_s


def test_records_of_another_gpu_are_not_mixed(few, tmp_path):
    out = tmp_path / "out"
    made = calibrate_records(few, name="mine", fit=False)
    home = out / "validation" / "records" / "mine"
    written = write_calibration(made, few, out)
    assert written.path == out / "hardware_profiles" / "mine.toml"
    (few / "dram_read.toml").unlink()
    write_calibration(made, few, out)
    assert not (home / "dram_read.toml").exists()  # what the earlier record said is not of this one
    (home / "x.csv").write_text("a\n1\n", encoding="utf-8")
    (home / "x.toml").write_text('gpu = "NVIDIA L40S"\n', encoding="utf-8")
    before = written.path.read_bytes()
    with pytest.raises(ConfigError, match="holds records of 'NVIDIA L40S' and this is 'NVIDIA H200'"):
        write_calibration(made, few, out)
    assert written.path.read_bytes() == before


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
    path = few / "dram_read.csv"
    lines = path.read_text(encoding="utf-8").splitlines()
    at = lines[0].split(",").index("spread")
    wide = [",".join([*cells[:at], "0.07", *cells[at + 1 :]]) for cells in (line.split(",") for line in lines[1:])]
    path.write_text("\n".join([lines[0], *wide]) + "\n", encoding="utf-8")
    wider = check_records(few, hardware=faster)
    assert wider.moved == ()
    assert "dram.bandwidth_read_bytes_per_s" not in wider.checked
    assert wider.missing["dram.bandwidth_read_bytes_per_s"] == "spread 7.0 % is above 5 %"
    assert result.to_dict()["moved"][0]["change"] == pytest.approx(0.093, abs=1e-3)
