"""Records to a profile, the profile to a file, or a profile held against records."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from os import PathLike
from pathlib import Path

from tilesight.calibrate.assemble import RECORDS, Assembled, assemble, left_out, places
from tilesight.calibrate.derive import DERIVATIONS, derive_numbers
from tilesight.calibrate.fits import (
    FITTED,
    IN_ORDER,
    IN_ORDER_RECORDS,
    MERGING,
    MERGING_RECORDS,
    SPECIALIZED,
    VENDOR_RECORDS,
    fit_loops,
)
from tilesight.calibrate.found import Found, Numbers
from tilesight.calibrate.identity import architecture_in, check_same_gpu, identify, records_folder
from tilesight.calibrate.moved import check_profile, found_another_way
from tilesight.calibrate.records import Records
from tilesight.calibrate.result import Calibration, Check
from tilesight.calibrate.stored import write_whole
from tilesight.calibrate.suite import ELSEWHERE, read_suite
from tilesight.check import check_profile as check_numbers
from tilesight.errors import ProfileError, TilesightError, UnsupportedError, suggestion
from tilesight.hardware.profile import Profile
from tilesight.hardware.write import to_toml

OUT = Path("calibration")
"""Where the command line writes, if not told otherwise."""
FITTED_ON: Mapping[tuple[str, ...], tuple[str, ...]] = {
    tuple(MERGING): MERGING_RECORDS,
    tuple(IN_ORDER): IN_ORDER_RECORDS,
    tuple(SPECIALIZED): VENDOR_RECORDS,
}
"""Numbers that are fitted through the model, and the records of their runs."""


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
    plain.check()
    if name is None and where.resolve().parent.as_posix().endswith(f"/{RECORDS}"):
        name = where.resolve().name  # made by an earlier run, which called the profile so
    which = identify(plain.gpu, base, name, architecture_in(plain))
    records = plain.on(which.base)
    derived = derive_numbers(records)
    found, missing = dict(derived.found), dict(derived.missing)

    def assembled() -> Assembled:
        return assemble(
            which.base,
            found,
            name=which.name,
            same_gpu=which.same_gpu,
            keep=keep,
            missing=missing,
            place=lambda number: _place(records, number),
        )

    made = assembled()
    if fit:
        fitted, not_fitted = _fitted(records, made.profile)
        found |= fitted
        missing |= not_fitted
    elif which.same_gpu:
        found |= _as_before(records, which.base)
    made = assembled()
    gone = [
        number
        for number in which.base.numbers
        if number not in made.profile.numbers and number not in made.left_out and number not in missing
    ]
    missing |= dict.fromkeys(gone, f"measured or fitted for {which.base.name}, and no record gives it")
    missing = {number: why for number, why in missing.items() if number not in made.profile.numbers}
    checked = check_numbers(made.profile)
    lacks = (*checked.gemm_lacks, *checked.tables_lack)
    spreads = [number for number in made.left_out if not found[number].kept]
    remedies = tuple(_remedies(lacks, spreads, records))
    parts = (found, made.left_out, missing, made.carried, checked, remedies)
    return Calibration(made.profile, plain.gpu, which.base.name, *parts)


def _remedies(lacks: Collection[str], left_out: Collection[str], records: Records) -> Iterator[str]:
    """Commands that give the numbers that products or tables lack, with what each is for and needs."""
    absent: list[str] = []
    for number in (number for number in lacks if number not in left_out):
        ways = [each.records for each in DERIVATIONS if number in each.numbers]
        ways += [names for fitted, names in FITTED_ON.items() if number in fitted]
        lacked = [[name for name in names if name not in records] for names in ways]
        fewest = min(lacked, key=len, default=[])
        absent += fewest
    scripts: dict[tuple[str, str], list[str]] = {}
    known = read_suite()
    for name in dict.fromkeys(absent):
        if name in ELSEWHERE or name in known:
            scripts.setdefault(ELSEWHERE.get(name, ("", "")), []).append(name)
    home = records.folder.parent
    out = f" --out {home.parent.parent}" if home.as_posix().endswith(RECORDS) and home.parent.parent != OUT else ""
    if suite := scripts.pop(("", ""), []):
        yield f"tilesight calibrate --only {','.join(suite)}{out}: makes records of the suite that are not there"
    for (script, needs), names in sorted(scripts.items()):
        yield f"python {script} {records.folder}: makes {', '.join(names)}; needs a checkout, {needs}"
    kept = ",".join(number for number in lacks if number in left_out)
    if kept:
        yield f"tilesight calibrate --from {records.folder} --keep {kept}{out}: keeps what spreads by more than 5 %"
    elif scripts:
        yield f"tilesight calibrate --from {records.folder}{out}: makes the profile of them"


def _fitted(records: Records, hardware: Profile) -> tuple[Numbers, Mapping[str, str]]:
    """What fits through the model give; nothing where a fit leads to a number that no profile can hold."""
    try:
        return fit_loops(records, hardware)
    except ProfileError as error:
        return {}, dict.fromkeys(FITTED, str(error))


def _place(records: Records, found: Found) -> str:
    """Where a number is read from: the line that has it as it is, else the records."""
    for name in found.records:
        try:
            record = records[name]
        except TilesightError:
            continue
        for line, row in zip(record.lines, record.rows, strict=True):
            if any(_is(text, found.value) for text in row.values()):
                return f"{name}.csv:{line}"
    return places(found)


def _is(text: str, value: float) -> bool:
    try:
        return float(text) == value
    except ValueError:
        return False


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
    """Write ``out/hardware_profiles/NAME.toml`` and bring its records to ``out/validation/records/NAME``.

    Raises
    ------
    ConfigError
        If records of another GPU are there.
    """
    name = calibration.profile.name
    home = out / RECORDS / name
    if home.resolve() != records.resolve():
        names = Records(records).names
        check_same_gpu(home, calibration.gpu, names)
        home.mkdir(parents=True, exist_ok=True)
        for record in names:
            for path in (records / f"{record}.toml", records / f"{record}.csv"):
                if path.is_file():
                    write_whole(home / path.name, path.read_bytes())
                else:  # what an earlier record said is not of this one
                    (home / path.name).unlink(missing_ok=True)
    path = out / "hardware_profiles" / f"{name}.toml"
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, to_toml(calibration.profile).encode("utf-8"))
    return replace(calibration, path=path)


def check_records(
    folder: str | PathLike[str], *, hardware: Profile | str | PathLike[str] | None = None, fit: bool = True
) -> Check:
    """Which numbers of a profile differ from what records give, by more than repeats do.

    A number whose repeats spread by more than 5 % is not compared.

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
    plain.check()
    held = identify(plain.gpu, hardware, None, architecture_in(plain)).base
    records = plain.on(held)
    derived = derive_numbers(records)
    found, missing = dict(derived.found), dict(derived.missing)
    if fit:
        fitted, not_fitted = _fitted(records, held)
        found |= fitted
        missing |= not_fitted
    others = left_out(found) | found_another_way(held, found)
    missing |= others
    found = {name: number for name, number in found.items() if name not in others}
    checked = tuple(name for name in found if name in held.numbers)
    known = {name: why for name, why in missing.items() if name in held.numbers}
    return Check(held, plain.gpu, checked, tuple(check_profile(held, found)), known)
