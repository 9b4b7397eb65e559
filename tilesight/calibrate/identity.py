"""Which profile records make: of which GPU, on which base, under which name, and where the records lie."""

import re
from collections.abc import Collection
from dataclasses import dataclass
from os import PathLike
from pathlib import Path

from tilesight.calibrate.assemble import RECORDS
from tilesight.calibrate.records import Records
from tilesight.calibrate.toolchain import TARGETS, architecture_of
from tilesight.errors import ConfigError, MissingFileError, ProfileError, TableError, shown, suggestion
from tilesight.files import profile_files
from tilesight.hardware.load import load_profile
from tilesight.hardware.profile import Profile
from tilesight.records.gpus import canonical_gpu

_NAME = re.compile(r"[a-z0-9]+(_[a-z0-9]+)*")


def slug(gpu: str) -> str:
    """A profile name made of what the driver calls a GPU.

    Examples
    --------
    >>> slug("NVIDIA GeForce RTX 4090"), slug("NVIDIA H200")
    ('geforce_rtx_4090', 'h200')
    """
    words = re.sub(r"[^a-z0-9]+", "_", gpu.lower()).strip("_")
    return words.removeprefix("nvidia_") or "gpu"


@dataclass(frozen=True)
class Identity:
    """Which profile is made: its name, the base that states the rest, and whether the base is of the same GPU."""

    name: str
    base: Profile
    same_gpu: bool


def identify(
    gpu: str,
    base: Profile | str | PathLike[str] | None = None,
    name: str | None = None,
    architecture: str | None = None,
) -> Identity:
    """Name and base of the profile of a GPU.

    A base is of the same GPU if it has the name of the shipped profile that fits the GPU, or the one made of the GPU's; what
    the new profile is called says nothing.

    Parameters
    ----------
    gpu
        What the driver calls it.
    base
        None takes the shipped profile that fits the GPU.
    name
        None takes the name of that profile, or one made of the GPU's.
    architecture
        Of the GPU, where it is known.

    Raises
    ------
    ProfileError
        If no shipped profile fits and no base is given, the base is of another architecture, or the name is none or that
        of a shipped profile of another GPU.
    """
    fitting = canonical_gpu(gpu)
    shipped = fitting in profile_files()
    if base is None and not shipped:
        raise ProfileError(
            f"no shipped profile fits {gpu!r}; give --base PROFILE, a profile that states what no microbenchmark gives: "
            "tensor peaks, DRAM peak and capacity, sizes of lines and sectors"
        )
    stated = load_profile(fitting if base is None else base)
    name = name or (fitting if shipped else slug(gpu))
    if not _NAME.fullmatch(name):
        raise ProfileError(f"name {name!r} must be lower-case letters, digits and underscores")
    if name in profile_files() and name != fitting:
        raise ProfileError(
            f"name {name!r} is that of a shipped profile, of another GPU than {gpu!r}; give another --name"
        )
    if architecture is not None and stated.architecture != architecture:
        raise ProfileError(
            f"profile {stated.name!r} is of {stated.architecture} and {gpu} of {architecture}; give a --base of that one"
        )
    return Identity(name, stated, stated.name in (fitting, slug(gpu)))


def records_folder(folder: Path, name: str | None = None) -> Path:
    """The folder with the records: this one, or the one that a run wrote below it.

    Raises
    ------
    MissingFileError
        If there is none, or several.
    """
    if any(folder.glob("*.csv")):
        return folder
    found = [each for each in sorted((folder / RECORDS).glob("*")) if any(each.glob("*.csv"))]
    chosen_ones = [each for each in found if name is None or each.name == name] or found
    if len(chosen_ones) == 1:
        return chosen_ones[0]
    if not chosen_ones:
        raise MissingFileError(f"no records in {folder} (NAME.csv) or in {folder / RECORDS}")
    raise MissingFileError(
        f"records of several GPUs in {folder / RECORDS}: {', '.join(each.name for each in found)}; give one of the folders"
    )


def architecture_in(records: Records) -> str | None:
    """Architecture that the programs of the records were compiled for; None if no record says.

    Raises
    ------
    TableError
        If a target is none, or the records are of several.
    """
    found: dict[str, str] = {}
    for name in records.names:
        about = records.about(name)
        in_flags = re.search(r"code=(sm_\w+)", str(about.get("flags", "")))
        target = about.get("target", in_flags and in_flags[1])
        if target is None:
            continue
        if target not in TARGETS.values():
            known = suggestion(str(target), TARGETS.values())
            raise TableError(f"target = {shown(target)} is no target; {known}", file=f"{name}.toml")
        found.setdefault(target, name)
    if len(found) > 1:
        names = ", ".join(f"{target} ({record})" for target, record in found.items())
        raise TableError(f"the records are of programs for different targets: {names}", file=str(records.folder))
    return architecture_of(next(iter(found))) if found else None


def check_same_gpu(folder: Path, gpu: str, again: Collection[str] = ()) -> None:
    """Refuse a folder that holds records of another GPU.

    Parameters
    ----------
    again
        Records that are about to be written again; of these a TOML file that can't be read is no matter.

    Raises
    ------
    ConfigError
        If it holds some.
    TableError
        If the TOML file of another record can't be read.
    """
    there = Records(folder)
    for name in there.names:
        try:
            said = there.about(name).get("gpu")
        except TableError:
            if name in again:
                continue
            raise
        if said is not None and said != gpu:
            raise ConfigError(
                f"{folder} holds records of {shown(said)} and this is {gpu!r}; give another --out or --name"
            )
