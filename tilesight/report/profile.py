"""Hardware profiles: the list of them, and one with every number and its source."""

from collections.abc import Iterator
from dataclasses import dataclass

from tilesight.hardware.numbers import plain_number
from tilesight.hardware.profile import Number, Profile, field_names
from tilesight.report.blocks import Block, Facts, Grid, Lines, Page, describe
from tilesight.units import format_bytes, format_bytes_per_s, format_flop_per_s, format_hz


@dataclass(frozen=True)
class ProfileList:
    """Profiles to list side by side."""

    profiles: tuple[Profile, ...]


@describe.register
def describe_profiles(listed: ProfileList) -> Page:
    """Page of several profiles, a line each."""
    rows = [
        (
            profile.name,
            profile.architecture,
            f"{profile.sm_count}",
            format_hz(profile.clock.boost_hz),
            format_bytes(profile.dram.capacity_bytes),
            format_bytes_per_s(profile.dram.bandwidth_peak_bytes_per_s),
            " ".join(profile.tensor),
            profile.hash,
        )
        for profile in listed.profiles
    ]
    columns = ("<name", "<arch", "SMs", "clock", "DRAM", "peak", "<tensor types", "<hash")
    return Page("hardware profiles", [Grid(columns, rows)])


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
    ]
    if profile.derived is not None:
        rows.append(("derived", f"from {profile.derived.parent}, changed: {', '.join(profile.derived.changed)}"))
    blocks: list[Block] = [
        Facts(rows),
        Grid(("<number", "value", "<kind", "<source"), list(_numbers(profile))),
        Lines(absent(profile), "not known"),
    ]
    return Page(profile.name, blocks)


def absent(profile: Profile) -> tuple[str, ...]:
    """Optional numbers that the profile does not know; what needs one refuses by its name."""
    return tuple(name for name in field_names() if "*" not in name and name not in profile.numbers)


def _dram(profile: Profile) -> str:
    peak = format_bytes_per_s(profile.dram.bandwidth_peak_bytes_per_s)
    return f"{format_bytes(profile.dram.capacity_bytes)} at {peak} peak"


def _numbers(profile: Profile) -> Iterator[tuple[str, str, str, str]]:
    for name, value in profile.numbers.items():
        source = profile.source.get(name)
        where = "; ".join([*source.ref, *([source.note] if source.note else [])]) if source else ""
        yield name, _value(value), source.kind if source else "", where


def _value(value: Number) -> str:
    return " ".join(map(str, value)) if isinstance(value, tuple) else plain_number(value)
