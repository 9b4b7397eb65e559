"""A profile from numbers that were found and a base that states the rest.

- A number that was measured or fitted on the base's GPU is never carried over: records replace it, or it is absent.
- What the base states otherwise (datasheets, publications, assumptions) holds for a profile of the same GPU. In that of
  another GPU it is ``assumed``, and its origin named.
- A number whose repeats spread by more than 5 % is left out, unless it is asked for by name; its note then says so.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from tilesight.calibrate.found import SPREAD_MOST, Found, Numbers
from tilesight.errors import ProfileError
from tilesight.hardware.profile import Profile
from tilesight.hardware.tables import L2, Clock, Dram, Sm, Table

RECORDS = "validation/records"
"""Where records lie, seen from the folder that holds ``hardware_profiles/``; a profile names them from there."""


@dataclass(frozen=True)
class Assembled:
    """The profile, the numbers left out of it with the reason, and those that the base states."""

    profile: Profile
    left_out: Mapping[str, str]
    carried: tuple[str, ...]


def reference(name: str, record: str) -> str:
    """How the profile of that name refers to a record.

    Examples
    --------
    >>> reference("h200_sxm", "dram_read")
    'validation/records/h200_sxm/dram_read.csv'
    """
    return f"{RECORDS}/{name}/{record}.csv"


def left_out(found: Numbers, keep: Collection[str] = ()) -> dict[str, str]:
    """Numbers that spread too far to be kept, with the reason; those in ``keep`` never do."""
    return {
        name: f"spread {100 * number.spread:.1f} % is above {100 * SPREAD_MOST:g} %"
        for name, number in found.items()
        if not number.kept and number.spread is not None and name not in keep
    }


def assemble(
    base: Profile,
    found: Numbers,
    *,
    name: str,
    same_gpu: bool,
    keep: Collection[str] = (),
    missing: Mapping[str, str] | None = None,
) -> Assembled:
    """The profile called ``name``.

    Parameters
    ----------
    same_gpu
        Whether the base is of the same GPU.
    keep
        Numbers that are kept however far their repeats spread.
    missing
        Why numbers were not found, for the error.

    Raises
    ------
    ProfileError
        If a required number is nowhere (each is named, with the record it needs), or the numbers break the schema.
    """
    out = left_out(found, keep)
    kept = {number: value for number, value in found.items() if number not in out}
    dropped = [
        number
        for number in base.numbers
        if number not in kept and (number in out or base.source[number].kind in ("measured", "fitted"))
    ]
    carried = tuple(number for number in base.numbers if number not in kept and number not in dropped)
    _require(name, dropped, out, missing or {})
    values = dict.fromkeys(dropped) | {number: value.rounded.value for number, value in kept.items()}
    sources = {number: _source(name, value) for number, value in kept.items()}
    if not same_gpu:
        sources |= {number: _borrowed(base, number) for number in carried}
    profile = base.with_numbers(values, sources, about={"name": name, "derived": None}, where=name)
    return Assembled(profile, out, carried)


def _require(name: str, dropped: Collection[str], out: Mapping[str, str], missing: Mapping[str, str]) -> None:
    """Refuse where a number that every profile has would be gone."""
    absent = [number for number in dropped if number in required_numbers()]
    if absent:
        reasons = (f"{number} ({out.get(number) or missing.get(number, 'no record gives it')})" for number in absent)
        raise ProfileError(
            f"{name}: a profile needs {', '.join(reasons)}; measure them, or give a --base that states them"
        )


def required_numbers() -> frozenset[str]:
    """Dotted names of the numbers that every profile has, those of tensor rates aside."""
    tables: dict[str, type[Table]] = {"clock": Clock, "sm": Sm, "dram": Dram, "l2": L2}
    names = (
        f"{table}.{name}"
        for table, kind in tables.items()
        for name, field in kind.model_fields.items()
        if field.is_required()
    )
    return frozenset(("sm_count", *names))


def _source(name: str, found: Found) -> dict[str, Any]:
    note = found.note
    if not found.kept:
        said = f"kept by name at a spread of {100 * (found.spread or 0.0):.1f} %"
        note = f"{note}; {said}" if note else said
    if found.misfit is not None:
        said = f"rms {100 * found.misfit:.1f} %"
        note = f"{note}; {said}" if note else said
    refs = tuple(reference(name, record) for record in found.records)
    return {"kind": found.kind, "ref": refs} | ({"note": note} if note else {})


def _borrowed(base: Profile, number: str) -> dict[str, Any]:
    """Source of a number that is taken over from another GPU."""
    source = base.source[number]
    return {
        "kind": "assumed",
        "ref": source.ref,
        "note": f"as {base.name} ({source.kind}{f': {source.note}' if source.note else ''})",
        "origin": source.origin or base.name,
    }
