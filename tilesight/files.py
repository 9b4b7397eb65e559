"""Where the shipped data are: hardware profiles, CUDA kernels and measured records.

A wheel carries them under ``tilesight/data/``; a checkout, an unpacked sdist and an editable install keep them beside
the package. Both have the same relative names, so nothing but this module knows the difference.
"""

from functools import cache
from pathlib import Path

from tilesight.errors import MissingFileError

_PACKAGE = Path(__file__).resolve().parent


@cache
def data_root() -> Path:
    """Folder that holds ``hardware_profiles/``, ``kernels_cuda/`` and ``validation/records/``.

    Raises
    ------
    MissingFileError
        If neither an installed package nor a checkout has them.
    """
    for folder in (_PACKAGE / "data", _PACKAGE.parent):
        if (folder / "hardware_profiles").is_dir():
            return folder
    raise MissingFileError(f"no hardware_profiles beside {_PACKAGE} or in it; reinstall tilesight")


def data_file(name: str) -> Path:
    """Path of one shipped file or folder, by its name in the repository.

    Raises
    ------
    MissingFileError
        If it is not shipped.

    Examples
    --------
    >>> data_file("hardware_profiles/h200_sxm.toml").name
    'h200_sxm.toml'
    """
    path = data_root() / name
    if not path.exists():
        raise MissingFileError(f"tilesight ships no {name!r} (looked in {data_root()})")
    return path


def profile_files() -> dict[str, Path]:
    """Shipped hardware profiles: name to path, in alphabetical order.

    Examples
    --------
    >>> "h200_sxm" in profile_files()
    True
    """
    return {path.stem: path for path in sorted(data_file("hardware_profiles").glob("*.toml"))}


def is_file(path: Path) -> bool:
    """Whether there is a file of that name; False too for what can be no name, such as one of 5,000 characters."""
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False


def exists(path: Path) -> bool:
    """Whether there is anything of that name: a file, a folder, a pipe."""
    try:
        return path.exists()
    except (OSError, ValueError):
        return False


def is_same_file(one: Path, other: Path) -> bool:
    """Whether two names lead to one file, through links too; False where one of them leads to none.

    Examples
    --------
    >>> is_same_file(data_file("hardware_profiles"), data_file("hardware_profiles/../hardware_profiles"))
    True
    """
    try:
        return one.samefile(other)
    except (OSError, ValueError):
        return False


def has_all_records() -> bool:
    """Whether every measured record is here (a checkout or sdist) and not only the sample that a wheel carries."""
    return data_root() != _PACKAGE / "data" and (data_root() / "validation" / "records").is_dir()


def sample_files() -> dict[str, Path]:
    """The small sample of measured tables that ships everywhere: name to path, in alphabetical order."""
    return {path.name: path for path in sorted(data_file("validation/records/sample").glob("*.csv"))}
