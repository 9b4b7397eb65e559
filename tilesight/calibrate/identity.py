"""Which profile records make: of which GPU, on which base, under which name, and where the records lie."""

import re
from dataclasses import dataclass
from os import PathLike
from pathlib import Path

from tilesight.calibrate.assemble import RECORDS
from tilesight.calibrate.records import Records
from tilesight.calibrate.toolchain import architecture_of
from tilesight.errors import MissingFileError, ProfileError
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
        If no shipped profile fits and no base is given, the base is of another architecture, or the name is none.
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
    if architecture is not None and stated.architecture != architecture:
        raise ProfileError(
            f"profile {stated.name!r} is of {stated.architecture} and {gpu} of {architecture}; give a --base of that one"
        )
    return Identity(name, stated, stated.name in (fitting, slug(gpu), name))


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
    """Architecture that the programs of the records were compiled for; None if no record says."""
    for name in records.names:
        about = records.about(name)
        target = about.get("target") or re.search(r"code=(sm_\w+)", str(about.get("flags", "")))
        if target:
            return architecture_of(target if isinstance(target, str) else target[1])
    return None
