"""What-if copies of a profile, and what differs between two profiles."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from os import PathLike

from tilesight.errors import ProfileError
from tilesight.hardware.load import load_profile
from tilesight.hardware.numbers import Number, plain_number
from tilesight.hardware.profile import NO_NUMBERS, Profile

Change = int | float | str | tuple[int, ...]

_NUMBER = r"(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?"
_FACTOR = re.compile(rf"({_NUMBER})x")
_PERCENT = re.compile(rf"([+-]{_NUMBER})%")
_PLAIN = re.compile(rf"[+-]?{_NUMBER}")
_WHOLE = re.compile(r"[+-]?\d{1,300}")
_FORMS = "give a number (4.2e12), a factor ('1.5x') or a change ('+20%')"


def derive(hardware: Profile | str | PathLike[str], changes: Mapping[str, Change]) -> Profile:
    """What-if copy of a profile: some numbers changed, the rest and their sources as they are.

    The copy is called ``<parent>_what_if``, says in ``derived`` which profile it comes from and what was changed, and
    its changed numbers are ``assumed``. A copy of a copy names the first parent and all changes. What-if numbers may
    pass what the parent's datasheet states (``rules.py``).

    Parameters
    ----------
    hardware
        The parent: a profile, its name or the path of its TOML file.
    changes
        Dotted name of a number to its new value: a number, a factor ``"1.5x"`` of the old one or a change ``"+20%"``.

    Raises
    ------
    ProfileError
        If a name is no number of the schema (the message names the nearest), a factor or change meets a number that
        the parent does not know, or the new value is no number, out of range or against the schema.

    Examples
    --------
    >>> slow = derive("h200_sxm", {"dram.bandwidth_read_bytes_per_s": "0.5x", "sm_count": 66})
    >>> slow.sm_count, slow.derived.parent, slow.derived.changed
    (66, 'h200_sxm', ('dram.bandwidth_read_bytes_per_s', 'sm_count'))
    """
    profile = load_profile(hardware)
    if not isinstance(changes, Mapping):
        raise ProfileError(f"changes are a {type(changes).__name__}; give a mapping of names to new values")
    if not changes:
        return profile
    parent = profile.derived.parent if profile.derived else profile.name
    before = profile.derived.changed if profile.derived else ()
    numbers = {number: _changed(profile, number, change) for number, change in changes.items()}
    why = {
        number: {"kind": "assumed", "note": f"what if: {_said(profile, number, change)}", "origin": profile.name}
        for number, change in changes.items()
    }
    name = f"{parent}_what_if"
    derived = {"parent": parent, "changed": tuple(dict.fromkeys([*before, *changes]))}
    return profile.with_numbers(numbers, why, about={"name": name, "derived": derived}, where=name)


def _changed(profile: Profile, name: str, change: Change) -> Number:
    """The new value of a number; its range is for the schema to check."""
    if not isinstance(name, str) or name.split(".")[0] in NO_NUMBERS:
        raise ProfileError(f"{name} is not a number of a profile; a what-if copy changes numbers only")
    old = profile.numbers.get(name)
    if old is None:
        profile.get(name)  # raises for a name that the schema does not have
    if not isinstance(change, str):
        if isinstance(change, bool) or not isinstance(change, int | float | tuple):
            raise ProfileError(f"{name} = {change!r} is not a number; {_FORMS}")
        return int(change) if isinstance(old, int) and isinstance(change, float) and change.is_integer() else change
    text = change.strip()
    if _PLAIN.fullmatch(text):
        value = float(text)
        return int(text) if _WHOLE.fullmatch(text) else int(value) if _whole_like(old, value) else value
    if factor := _FACTOR.fullmatch(text):
        times = float(factor[1])
    elif percent := _PERCENT.fullmatch(text):
        times = 1.0 + float(percent[1]) / 100.0
    else:
        raise ProfileError(f"{name} = {change!r} is not a new value; {_FORMS}")
    if old is None:
        raise ProfileError(f"profile {profile.name!r} has no {name} that {text} could change; give a number")
    if isinstance(old, tuple):
        raise ProfileError(f"{name} of profile {profile.name!r} is a list; give all of it, not {text}")
    value = float(f"{old * times:.12g}")  # 132 * 1.1 is 145.2, not 145.20000000000002
    return int(value) if _whole_like(old, value) else value


def _whole_like(old: Number | None, value: float) -> bool:
    return isinstance(old, int) and value.is_integer()


def _said(profile: Profile, name: str, change: Change) -> str:
    old = profile.numbers.get(name)
    text = change.strip() if isinstance(change, str) else str(change)
    if old is None or isinstance(old, tuple):
        return text
    return f"{text} {'of' if text.endswith(('x', '%')) else 'instead of'} {plain_number(old)}"


@dataclass(frozen=True)
class Difference:
    """One number that two profiles do not share; None where a profile does not know it."""

    name: str
    first: Number | None
    second: Number | None
    first_kind: str | None
    second_kind: str | None

    @property
    def ratio(self) -> float | None:
        """second / first; None where one is absent, a list or 0."""
        if isinstance(self.first, int | float) and isinstance(self.second, int | float) and self.first:
            return self.second / self.first
        return None


def differences(first: Profile, second: Profile) -> tuple[Difference, ...]:
    """Numbers that differ, in the order of the schema; numbers of the second alone come last.

    Examples
    --------
    >>> parent = load_profile("h200_sxm")
    >>> [(each.name, each.ratio) for each in differences(parent, derive(parent, {"sm_count": 66}))]
    [('sm_count', 0.5)]
    """
    return tuple(_differences(first, second))


def _differences(first: Profile, second: Profile) -> Iterator[Difference]:
    for name in dict.fromkeys([*first.numbers, *second.numbers]):
        values = first.numbers.get(name), second.numbers.get(name)
        if values[0] != values[1]:
            kinds = [profile.source[name].kind if name in profile.source else None for profile in (first, second)]
            yield Difference(name, *values, *kinds)
