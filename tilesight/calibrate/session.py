"""Records to a profile, the profile to a file, or a profile held against records."""

import shutil
from collections.abc import Collection
from dataclasses import replace
from os import PathLike
from pathlib import Path

from tilesight.calibrate.assemble import RECORDS, assemble
from tilesight.calibrate.derive import DERIVATIONS, derive_numbers
from tilesight.calibrate.fits import FITTED, fit_loops
from tilesight.calibrate.found import Found
from tilesight.calibrate.identity import architecture_in, identify, records_folder
from tilesight.calibrate.moved import check_profile, found_another_way
from tilesight.calibrate.records import Records
from tilesight.calibrate.result import Calibration, Check
from tilesight.errors import UnsupportedError, suggestion
from tilesight.hardware.profile import Profile
from tilesight.hardware.write import to_toml


def calibrate_records(
    folder: str | PathLike[str],
    *,
    base: Profile | str | PathLike[str] | None = None,
    name: str | None = None,
    keep: Collection[str] = (),
    fit: bool = True,
) -> Calibration:
    """The profile that records give. Nothing is run and nothing written.

    Parameters
    ----------
    folder
        Records (NAME.csv, NAME.toml) of one GPU, or what ``tilesight calibrate --out`` was given.
    base
        States what no record gives; a profile, its name or its file. None takes the shipped one that fits the GPU.
    name
        Of the new profile; None takes that of the earlier run, of the shipped profile that fits, or one made of the GPU's.
    keep
        Numbers that are kept though their repeats spread by more than 5 %.
    fit
        Fit loops and ends through the model, where there are records for it. Without, a base of the same GPU whose records
        are all there keeps the values it has.

    Raises
    ------
    MissingFileError, TableError
        If there are no records, or they are malformed or of several GPUs.
    ProfileError
        If no base fits, or a required number is nowhere.
    UnsupportedError
        If a name in ``keep`` is no number that records give.

    Examples
    --------
    >>> from tilesight.files import data_root, has_all_records
    >>> if has_all_records():
    ...     found = calibrate_records(data_root() / "validation/records/h200_sxm", fit=False)
    ...     assert found.profile.dram.bandwidth_read_bytes_per_s == 4.59e12
    """
    check_names(keep)
    where = records_folder(Path(folder), name)
    plain = Records(where)
    if name is None and where.resolve().parent.as_posix().endswith(f"/{RECORDS}"):
        name = where.resolve().name  # made by an earlier run, which called the profile so
    which = identify(plain.gpu, base, name, architecture_in(plain))
    records = Records(where, which.base)
    derived = derive_numbers(records)
    found, missing = dict(derived.found), dict(derived.missing)
    made = assemble(which.base, found, name=which.name, same_gpu=which.same_gpu, keep=keep, missing=missing)
    if fit:
        fitted, not_fitted = fit_loops(records, made.profile)
        found |= fitted
        missing |= not_fitted
    elif which.same_gpu:
        found |= _as_before(records, which.base)
    made = assemble(which.base, found, name=which.name, same_gpu=which.same_gpu, keep=keep, missing=missing)
    gone = [
        number
        for number in which.base.numbers
        if number not in made.profile.numbers and number not in made.left_out and number not in missing
    ]
    missing |= dict.fromkeys(gone, f"measured or fitted for {which.base.name}, and no record gives it")
    missing = {number: why for number, why in missing.items() if number not in made.profile.numbers}
    return Calibration(made.profile, plain.gpu, which.base.name, found, made.left_out, missing, made.carried)


def check_names(keep: Collection[str]) -> None:
    """Refuse names that no record gives.

    Raises
    ------
    UnsupportedError
        If there is one.
    """
    known = [*FITTED, *(name for derivation in DERIVATIONS for name in derivation.numbers)]
    for name in keep:
        if name not in known:
            raise UnsupportedError(f"no record gives a number {name!r} that could be kept; {suggestion(name, known)}")


def _as_before(records: Records, base: Profile) -> dict[str, Found]:
    """Fitted numbers as the base has them, those whose records are all here."""
    found = {}
    for name in FITTED:
        value, source = base.get(name), base.source.get(name)
        if value is None or source is None or source.kind != "fitted":
            continue
        names = tuple(Path(ref).stem for ref in source.ref)
        if all(record in records for record in names):
            found[name] = Found(value, None, names, "fitted", source.note)
    return found


def write_calibration(calibration: Calibration, records: Path, out: Path) -> Calibration:
    """Write ``out/hardware_profiles/NAME.toml`` and bring its records to ``out/validation/records/NAME``."""
    name = calibration.profile.name
    home = out / RECORDS / name
    if home.resolve() != records.resolve():
        home.mkdir(parents=True, exist_ok=True)
        for record in Records(records).names:
            for path in (records / f"{record}.csv", records / f"{record}.toml"):
                if path.is_file():
                    shutil.copyfile(path, home / path.name)
    path = out / "hardware_profiles" / f"{name}.toml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(to_toml(calibration.profile), encoding="utf-8")
    return replace(calibration, path=path)


def check_records(
    folder: str | PathLike[str], *, hardware: Profile | str | PathLike[str] | None = None, fit: bool = True
) -> Check:
    """Which numbers of a profile differ from what records give, by more than repeats do.

    Parameters
    ----------
    hardware
        The profile; None takes the shipped one that fits the GPU of the records.
    fit
        Fit loops and ends through the model too, where there are records for it.

    Raises
    ------
    MissingFileError, TableError
        If there are no records, or they are malformed or of several GPUs.
    ProfileError
        If no shipped profile fits.
    """
    plain = Records(records_folder(Path(folder)))
    held = identify(plain.gpu, hardware, None, architecture_in(plain)).base
    records = Records(plain.folder, held)
    derived = derive_numbers(records)
    found, missing = dict(derived.found), dict(derived.missing)
    if fit:
        fitted, not_fitted = fit_loops(records, held)
        found |= fitted
        missing |= not_fitted
    others = found_another_way(held, found)
    missing |= others
    found = {name: number for name, number in found.items() if name not in others}
    checked = tuple(name for name in found if name in held.numbers)
    known = {name: why for name, why in missing.items() if name in held.numbers}
    return Check(held, plain.gpu, checked, tuple(check_profile(held, found)), known)
