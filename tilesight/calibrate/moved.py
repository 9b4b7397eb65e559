"""Which numbers of a profile differ from what was found, by more than repeats do."""

from pathlib import PurePosixPath

from tilesight.calibrate.found import SPREAD_MOST, Found, Numbers
from tilesight.calibrate.result import Moved
from tilesight.hardware.profile import Profile

LEAST = 0.02
"""Relative difference below which a number never counts as moved: runs of one day and the next differ by as much."""


def allowed(found: Found) -> float:
    """Relative difference up to which a number counts as the same.

    Its spread and at least 2 %; for a fit its misfit; 5 % where nobody knows; nothing for a count.
    """
    if isinstance(found.value, int) and found.kind == "measured":
        return 0.0
    known = [value for value in (found.spread, found.misfit) if value is not None]
    return max(LEAST, *known) if known else SPREAD_MOST


def found_another_way(profile: Profile, found: Numbers) -> dict[str, str]:
    """Numbers that the profile has from other records than these; they say nothing of the GPU. With the reason.

    A number without a record in the profile (a datasheet's, an assumed one) is compared.
    """
    others = {}
    for name, number in found.items():
        source = profile.source.get(name)
        if source is None or source.kind not in ("measured", "fitted"):
            continue
        names = [PurePosixPath(ref).stem for ref in source.ref]
        if set(names) != set(number.records):
            value = f"{number.rounded.value:g}"
            others[name] = f"the profile has it from {', '.join(names)}; {', '.join(number.records)} gives {value}"
    return others


def check_profile(profile: Profile, found: Numbers) -> list[Moved]:
    """Numbers of the profile that moved, in the order in which they were found.

    Numbers that the profile does not know are not compared. Values are compared as a profile has them, to four digits.

    Examples
    --------
    >>> from tilesight.hardware.load import load_profile
    >>> found = {"dram.bandwidth_read_bytes_per_s": Found(4.2e12, 0.003, ("dram_read",))}
    >>> [(each.name, round(each.change, 3)) for each in check_profile(load_profile("h200_sxm"), found)]
    [('dram.bandwidth_read_bytes_per_s', -0.085)]
    """
    moved = []
    for name, number in found.items():
        before, after = profile.numbers.get(name), number.rounded.value
        if before is None:
            continue
        same = not isinstance(before, tuple) and abs(after - before) <= allowed(number) * abs(before)
        if not same:
            moved.append(Moved(name, before, after, allowed(number)))
    return moved
