"""A profile from numbers that were found and a base that states the rest.

- A number that was measured or fitted on the base's GPU is never carried over: records replace it, or it is absent.
- What the base states otherwise (datasheets, publications, assumptions) holds for a profile of the same GPU. In that of
  another GPU it is ``assumed``, and its origin named.
- A number whose repeats spread by more than 5 % is left out, unless it is asked for by name; its note then says so.
- A number that no profile can hold (outside its range, above what bounds it) is left out; the others stay.
"""

import re
from collections.abc import Callable, Collection, Mapping
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
    place: Callable[[Found], str] | None = None,
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
    place
        Where a number is read from, for the reason why it is left out; None names its records.

    Raises
    ------
    ProfileError
        If a required number is nowhere (each is named, with the record it needs, or why it was left out).
    """
    place = place or places
    out = left_out(found, keep)
    while True:
        kept = {number: value for number, value in found.items() if number not in out}
        _require(name, _dropped(base, kept, out), out, missing or {})
        try:
            return _assembled(base, kept, out, name=name, same_gpu=same_gpu)
        except ProfileError as error:
            problem = str(error).removeprefix(f"{name}: ")
            culprit = _culprit(base, kept, problem)
            if culprit is None:
                raise
            out[culprit] = f"{problem} ({place(found[culprit])})"


def places(found: Found) -> str:
    """The files of the records that a number is read from."""
    return ", ".join(f"{record}.csv" for record in found.records)


def _dropped(base: Profile, kept: Numbers, out: Collection[str]) -> list[str]:
    """Numbers of the base that are not carried over, and not found either."""
    return [
        number
        for number in base.numbers
        if number not in kept and (number in out or base.source[number].kind in ("measured", "fitted"))
    ]


def _culprit(base: Profile, kept: Numbers, problem: str) -> str | None:
    """Of the numbers that a problem names, the one without which there is another problem or none; else the first."""
    found = {name: re.search(rf"(?<![\w.]){re.escape(name)}(?!\.?\w)", problem) for name in kept}
    named = sorted((match.start(), name) for name, match in found.items() if match)
    for _, name in named:
        others = {number: value for number, value in kept.items() if number != name}
        try:
            _assembled(base, others, {name: problem}, name=base.name, same_gpu=True)
        except ProfileError:
            continue
        return name
    return named[0][1] if named else None


def _assembled(base: Profile, kept: Numbers, out: Mapping[str, str], *, name: str, same_gpu: bool) -> Assembled:
    dropped = _dropped(base, kept, out)
    carried = tuple(number for number in base.numbers if number not in kept and number not in dropped)
    values = dict.fromkeys(dropped) | {number: value.rounded.value for number, value in kept.items()}
    sources = {number: _source(name, value) for number, value in kept.items()}
    if not same_gpu:
        sources |= {number: _borrowed(base, number) for number in carried}
    profile = base.with_numbers(values, sources, about={"name": name, "derived": None}, where=name)
    return Assembled(profile, dict(out), carried)


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
