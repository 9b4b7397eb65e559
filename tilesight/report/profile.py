"""Hardware profiles: the list of them, and one with every number and its source."""

from collections.abc import Iterator
from dataclasses import dataclass

from tilesight.check import ProfileCheck, absent
from tilesight.dtypes import dtype
from tilesight.errors import counted
from tilesight.hardware.derive import Difference, changes_of, differences, listed
from tilesight.hardware.profile import Profile
from tilesight.report.blocks import Block, Facts, Grid, Lines, Page, describe
from tilesight.search import modelled_formats
from tilesight.units import format_bytes, format_bytes_per_s, format_flop_per_s, format_hz


@dataclass(frozen=True)
class ProfileList:
    """Profiles to list side by side."""

    profiles: tuple[Profile, ...]


@describe.register
def describe_profiles(several: ProfileList) -> Page:
    """Page of several profiles, a line each: also the formats whose products can be predicted, and the rates beside."""
    rows = [
        (
            profile.name,
            profile.architecture,
            f"{profile.sm_count}",
            format_hz(profile.clock.boost_hz),
            format_bytes(profile.dram.capacity_bytes),
            format_bytes_per_s(profile.dram.bandwidth_peak_bytes_per_s),
            profile.hash,
        )
        for profile in several.profiles
    ]
    formats = [
        (profile.name, " ".join(modelled_formats(profile)), " ".join(merely_listed(profile)))
        for profile in several.profiles
    ]
    blocks = [
        Grid(("<name", "<arch", "SMs", "clock", "DRAM", "peak", "<hash"), rows),
        Grid(("<name", "<products that can be predicted", "<rates alone"), formats),
    ]
    return Page("hardware profiles", blocks)


def merely_listed(profile: Profile) -> tuple[str, ...]:
    """Formats of which a profile lists a tensor rate and no product is modelled."""
    rates = {dtype(name).rate_name for name in modelled_formats(profile)}
    return tuple(name for name in profile.tensor if name not in rates)


@describe.register
def describe_profile(profile: Profile) -> Page:
    """Page of one profile: every number with its source, and the optional numbers that nobody knows yet."""
    rows = [
        ("vendor", profile.vendor),
        ("architecture", profile.architecture),
        ("hash", profile.hash),
        ("SMs", f"{profile.sm_count} at {format_hz(profile.clock.boost_hz)}"),
        ("DRAM", _dram(profile)),
        *((name, f"{format_flop_per_s(rate.rate_peak_flop_per_s)} peak") for name, rate in profile.tensor.items()),
        ("predicts", ", ".join(modelled_formats(profile)) or "no products"),
    ]
    if rates := merely_listed(profile):
        rows.append(("not modelled", f"{', '.join(rates)}: rates alone"))
    if profile.derived is not None:
        rows.append(("derived", f"from {profile.derived.parent}, changed: {', '.join(profile.derived.changed)}"))
        rows += [("what if", text) for text in changes_of(profile).values()]
    blocks: list[Block] = [
        Facts(rows),
        Grid(("<number", "value", "<kind", "<source"), list(_numbers(profile))),
        Lines(absent(profile), "not known"),
    ]
    return Page(profile.name, blocks)


@dataclass(frozen=True)
class ProfileDiff:
    """Two profiles to compare number by number."""

    first: Profile
    second: Profile

    @property
    def differences(self) -> tuple[Difference, ...]:
        """Numbers that differ."""
        return differences(self.first, self.second)


@describe.register
def describe_diff(pair: ProfileDiff) -> Page:
    """Page of the numbers that differ between two profiles, with their ratio and kinds of source."""
    rows = [
        (
            each.name,
            "" if each.first is None else listed(each.first),
            "" if each.second is None else listed(each.second),
            "" if each.ratio is None else f"{each.ratio:.3g}",
            each.first_kind or "",
            each.second_kind or "",
        )
        for each in pair.differences
    ]
    same = len(pair.first.numbers.keys() & pair.second.numbers.keys()) - sum(
        each.first is not None and each.second is not None for each in pair.differences
    )
    first, second = pair.first.name, pair.second.name
    columns = ("<number", first, second, "ratio", "<kind", "<kind")
    facts = Facts([("differ", counted(len(rows), "number")), ("the same", counted(same, "number"))])
    return Page(f"{first} and {second}", [facts, Grid(columns, rows)])


@describe.register
def describe_check(check: ProfileCheck) -> Page:
    """Page of a valid profile: how its numbers are known, which are absent, what matrix products lack."""
    profile = check.profile
    counts = ", ".join(f"{len(names)} {kind}" for kind, names in check.kinds.items() if names)
    lacks = ", ".join(check.gemm_lacks) or ("" if check.gemm_refused else "nothing")
    facts = [("hash", profile.hash), ("numbers", f"{len(profile.numbers)}: {counts}")]
    if lacks:
        facts.append(("matrix products lack", lacks))
    if check.tables_lack:
        facts.append(("tables lack", ", ".join(check.tables_lack)))
    blocks: list[Block] = [Facts(facts), Lines(check.gemm_refused, "matrix products are refused")]
    blocks += [Grid((f"<{kind}",), [(name,) for name in names]) for kind, names in check.kinds.items() if names]
    return Page(f"a valid profile {profile.name!r}", [*blocks, Lines(check.not_known, "not known")])


def _dram(profile: Profile) -> str:
    peak = format_bytes_per_s(profile.dram.bandwidth_peak_bytes_per_s)
    return f"{format_bytes(profile.dram.capacity_bytes)} at {peak} peak"


def _numbers(profile: Profile) -> Iterator[tuple[str, str, str, str]]:
    for name, value in profile.numbers.items():
        source = profile.source.get(name)
        if source is None:
            yield name, listed(value), "", ""
            continue
        where = "; ".join([*source.ref, *([source.note] if source.note else [])])
        yield name, listed(value), source.kind, f"from {source.origin}: {where}" if name in profile.copied else where
