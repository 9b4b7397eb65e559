"""What-if copies of a profile, and what differs between two profiles."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral, Real
from os import PathLike
from typing import Any

from tilesight.errors import ProfileError, shown
from tilesight.hardware.load import list_profiles, load_profile
from tilesight.hardware.numbers import Number, plain_number
from tilesight.hardware.profile import NO_NUMBERS, Profile

Change = int | float | str | Sequence[int]

_NUMBER = r"(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"
_FACTOR = re.compile(rf"({_NUMBER})x")
_PERCENT = re.compile(rf"([+-]{_NUMBER})%")
_PLAIN = re.compile(rf"[+-]?{_NUMBER}")
_WHOLE = re.compile(r"[+-]?[0-9]{1,300}")
_FORMS = "give a number (4.2e12), a factor ('1.5x') or a change ('+20%')"
_WHAT_IF = "what if: "


def derive(
    hardware: Profile | str | PathLike[str], changes: Mapping[str, Change], *, name: str | None = None
) -> Profile:
    """What-if copy of a profile: some numbers changed, the rest and their sources as they are.

    The copy is called ``<parent>_what_if`` unless it is given a name. It says in ``derived`` which profile it comes from
    and what was changed, and its changed numbers are ``assumed``. A copy of a copy names the first parent and all changes.
    What-if numbers may pass what the parent's datasheet states (``rules.py``).

    Parameters
    ----------
    hardware
        The parent: a profile, its name or the path of its TOML file.
    changes
        Dotted name of a number to its new value: a number (a list of them for ``gpc.sms_per_gpc``), a factor
        ``"1.5x"`` of the old one or a change ``"+20%"``. numpy's scalars are numbers.
    name
        Name of the copy, in lower-case letters, digits and underscores; not that of a shipped profile.

    Raises
    ------
    ProfileError
        If a name is no number of the schema (the message names the nearest), a factor or change meets a number that
        the parent does not know, the new value is no number, out of range or against the schema, or the copy's name is
        no name, taken, or given where nothing is changed.

    Examples
    --------
    >>> slow = derive("h200_sxm", {"dram.bandwidth_read_bytes_per_s": "0.5x", "sm_count": 66})
    >>> slow.sm_count, slow.derived.parent, slow.derived.changed
    (66, 'h200_sxm', ('dram.bandwidth_read_bytes_per_s', 'sm_count'))
    """
    profile = load_profile(hardware)
    if not isinstance(changes, Mapping):
        raise ProfileError(f"changes are a {type(changes).__name__}; give a mapping of names to new values")
    parent = profile.derived.parent if profile.derived else profile.name
    called = f"{parent}_what_if" if name is None else _name(name, changes)
    if not changes:
        return profile
    before = profile.derived.changed if profile.derived else ()
    plain = {number: _plain(number, change) for number, change in changes.items()}
    numbers = {number: _changed(profile, number, change) for number, change in plain.items()}
    why = {
        number: {"kind": "assumed", "note": f"{_WHAT_IF}{_said(profile, number, change)}", "origin": profile.name}
        for number, change in plain.items()
    }
    derived = {"parent": parent, "changed": tuple(dict.fromkeys([*before, *changes]))}
    return profile.with_numbers(numbers, why, about={"name": called, "derived": derived}, where=called)


def changes_of(profile: Profile) -> Mapping[str, str]:
    """What a what-if copy changed, in words, by the number's name; empty of a profile that is no copy.

    Examples
    --------
    >>> changes_of(derive("h200_sxm", {"sm_count": 66, "clock.boost_hz": "1.1x"}))
    {'sm_count': 'sm_count = 66 instead of 132', 'clock.boost_hz': 'clock.boost_hz = 2.178e9, 1.1x of 1.98e9'}
    """
    said = {}
    for name in profile.derived.changed if profile.derived else ():
        value = profile.numbers.get(name)
        text = f"{name} is not known any more" if value is None else f"{name} = {listed(value)}"
        note = (profile.source[name].note or "") if name in profile.source else ""
        how = note.removeprefix(_WHAT_IF) if note.startswith(_WHAT_IF) else ""
        if " instead of " in how:
            text += f" instead of {how.partition(' instead of ')[2]}"
        elif " of " in how:
            text += f", {how}"
        said[name] = text
    return said


def listed(value: Number) -> str:
    """A number of a profile as text; the numbers of a list one behind the other.

    Examples
    --------
    >>> listed(4.8e12), listed((16, 18))
    ('4.8e12', '16 18')
    """
    return " ".join(map(str, value)) if isinstance(value, tuple) else plain_number(value)


def _name(name: object, changes: Mapping[str, Change]) -> str:
    """The name that a copy was given."""
    if not isinstance(name, str):
        raise ProfileError(f"name = {shown(name)} is no name of a profile")
    if name in list_profiles():
        raise ProfileError(f"name = {name!r} is that of a shipped profile; call the copy something else")
    if not changes:
        raise ProfileError(f"name = {name!r} is for a copy, and nothing is changed")
    return name


def _plain(name: str, change: Any) -> int | float | str | tuple[int, ...]:
    """A change as plain numbers: numpy's scalars and lists are taken for what they hold; bools are no numbers."""
    if isinstance(change, str):
        return str(change)
    items = change.tolist() if hasattr(change, "tolist") else change
    try:
        if isinstance(items, list | tuple) and all(_is_whole(item) for item in items):
            return tuple(map(int, items))
        if _is_whole(change):
            return int(change)
        if _is_real(change):
            return float(change)
    except OverflowError:
        pass
    raise ProfileError(f"{name} = {shown(change)} is not a number; {_FORMS}")


def _is_whole(value: object) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool)


def _is_real(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def _changed(profile: Profile, name: str, change: int | float | str | tuple[int, ...]) -> Number:
    """The new value of a number; its range is for the schema to check."""
    if not isinstance(name, str) or name.split(".")[0] in NO_NUMBERS:
        raise ProfileError(f"{name} is not a number of a profile; a what-if copy changes numbers only")
    old = profile.numbers.get(name)
    if old is None:
        profile.get(name)  # raises for a name that the schema does not have
    if not isinstance(change, str):
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
        raise ProfileError(f"{name} = {shown(change)} is not a new value; {_FORMS}")
    if old is None:
        raise ProfileError(f"profile {profile.name!r} has no {name} that {text} could change; give a number")
    if isinstance(old, tuple):
        raise ProfileError(f"{name} of profile {profile.name!r} is a list; give all of it, not {text}")
    value = float(f"{old * times:.12g}")  # 132 * 1.1 is 145.2, not 145.20000000000002
    return int(value) if _whole_like(old, value) else value


def _whole_like(old: Number | None, value: float) -> bool:
    return isinstance(old, int) and value.is_integer()


def _said(profile: Profile, name: str, change: int | float | str | tuple[int, ...]) -> str:
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
