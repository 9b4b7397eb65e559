"""Find, read and check hardware profiles."""

import tomllib
from collections.abc import Iterator
from functools import lru_cache
from os import PathLike, fspath
from pathlib import Path

from tilesight.errors import MissingFileError, ProfileError, UnknownProfileError, shown, suggestion
from tilesight.files import data_root, has_all_records, is_file, profile_files
from tilesight.hardware.profile import Profile


def list_profiles() -> list[str]:
    """Names of the hardware profiles that ship with tilesight, in alphabetical order.

    Examples
    --------
    >>> "h200_sxm" in list_profiles()
    True
    """
    return list(profile_files())


def load_profile(name_or_path: str | PathLike[str] | Profile) -> Profile:
    """Profile of a GPU, by the name of a shipped one or from a TOML file of your own. A profile is given back as it is.

    Parameters
    ----------
    name_or_path
        ``"h200_sxm"``, or a path: anything with a slash or ending in ``.toml``.

    Raises
    ------
    UnknownProfileError
        If no shipped profile has that name; the message lists the known ones and the nearest.
    MissingFileError
        If the path leads to no file.
    ProfileError
        If the file breaks the schema, or what is given is neither a name nor a path.

    Examples
    --------
    >>> load_profile("h200_sxm").sm_count
    132
    """
    if isinstance(name_or_path, Profile):
        return name_or_path
    text = fspath(name_or_path) if isinstance(name_or_path, str | PathLike) else None
    if not isinstance(text, str):
        raise ProfileError(
            f"{shown(name_or_path)} is no profile; give a Profile, its name or the path of its TOML file"
        )
    if isinstance(name_or_path, str) and "/" not in text and not text.endswith(".toml"):
        shipped = profile_files()
        if text not in shipped:
            raise UnknownProfileError(f"no hardware profile {text!r}; {suggestion(text, shipped)}")
        path = shipped[text]
    else:
        path = Path(text)
    if not is_file(path):
        raise MissingFileError(f"no profile file {str(path)!r}")
    return _read(path.resolve(), path.stat().st_mtime_ns)


@lru_cache(maxsize=64)
def _read(path: Path, _changed: int) -> Profile:
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:  # also a number of more digits than Python reads
        raise ProfileError(f"{path.name}: not a TOML file: {error}") from None
    profile = Profile.from_dict(data, where=path.name)
    if path.parent == (data_root() / "hardware_profiles").resolve():
        if profile.name != path.stem:
            raise ProfileError(f"{path.name}: name = {profile.name!r} must be the name of the file")
        if has_all_records():
            for problem in missing_records(profile, data_root()):
                raise ProfileError(f"{path.name}: {problem}")
    return profile


def missing_records(profile: Profile, root: Path) -> Iterator[str]:
    """What is wrong with the records that measured and fitted numbers name, looked up below ``root``."""
    for name, source in profile.source.items():
        if source.kind not in ("measured", "fitted"):
            continue
        for ref in source.ref:
            if not ref.startswith("validation/records/"):
                yield f"source of {name}: {ref!r} is no record; name a file under validation/records/"
            elif not (root / ref).is_file():
                yield f"source of {name}: there is no record {ref!r}"
