import pytest

from tilesight import files
from tilesight.errors import MissingFileError


def test_profiles_kernels_and_sample_are_found():
    assert "h200_sxm" in files.profile_files()
    assert files.data_file("kernels_cuda/common/tilesight.cuh").is_file()
    assert files.data_file("validation/records/sample").is_dir()
    assert all(path.suffix == ".csv" for path in files.sample_files().values())


def test_missing_file_says_where_it_looked():
    with pytest.raises(FileNotFoundError, match="ships no 'hardware_profiles/h20.toml'"):
        files.data_file("hardware_profiles/h20.toml")


@pytest.fixture
def package(tmp_path, monkeypatch):
    """An empty package folder that stands for the installed one."""
    folder = tmp_path / "tilesight"
    folder.mkdir()
    monkeypatch.setattr(files, "_PACKAGE", folder)
    files.data_root.cache_clear()
    yield folder
    files.data_root.cache_clear()


def test_nothing_shipped(package):
    with pytest.raises(MissingFileError, match="no hardware_profiles beside"):
        files.data_root()


def test_installed_data_come_before_what_lies_beside(package):
    (package.parent / "hardware_profiles").mkdir()
    assert files.data_root() == package.parent
    assert not files.has_all_records()
    (package.parent / "validation" / "records").mkdir(parents=True)
    assert files.has_all_records()

    files.data_root.cache_clear()
    (package / "data" / "hardware_profiles").mkdir(parents=True)
    assert files.data_root() == package / "data"
    assert not files.has_all_records()
