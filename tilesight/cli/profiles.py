"""profiles: list, show, check and compare hardware profiles."""

from typing import Annotated, Any

import typer

from tilesight.cli.options import Json, Set

profiles_app = typer.Typer(help="Hardware profiles: list, show, check, diff.", invoke_without_command=True)
_NAME = typer.Argument(metavar="NAME|FILE", help="A shipped profile or a TOML file.")


@profiles_app.callback()
def profiles(context: typer.Context, as_json: Json = False) -> None:
    """Hardware profiles; lists them where no command is given."""
    if context.invoked_subcommand is None:
        list_them(as_json)


@profiles_app.command("list")
def list_them(as_json: Json = False) -> None:
    """The profiles that ship with tilesight."""
    from tilesight.api import list_profiles, load_profile
    from tilesight.cli.output import print_json, print_report
    from tilesight.report.profile import ProfileList

    found = tuple(load_profile(name) for name in list_profiles())
    if as_json:
        print_json({"schema": "tilesight.profiles/1", "profiles": [_listed(profile) for profile in found]})
    else:
        print_report(ProfileList(found))


@profiles_app.command()
def show(name: Annotated[str, _NAME], changes: Set = None, as_json: Json = False) -> None:
    """Every number of a profile with its source."""
    from tilesight.api import load_profile
    from tilesight.cli.asked import changed_hardware
    from tilesight.cli.output import print_json, print_report

    profile = load_profile(changed_hardware(name, changes))
    if as_json:
        print_json({"schema": "tilesight.profile/1", "hash": profile.hash, **profile.to_dict()})
    else:
        print_report(profile)


@profiles_app.command()
def check(path: Annotated[str, _NAME], as_json: Json = False) -> None:
    """Whether a profile is valid; how its numbers are known, and which ones it lacks, for matrix products above all."""
    from tilesight.check import check_profile
    from tilesight.cli.output import print_result

    print_result(check_profile(_file_or_name(path)), as_json)


@profiles_app.command()
def diff(first: Annotated[str, _NAME], second: Annotated[str, _NAME], as_json: Json = False) -> None:
    """Numbers that differ between two profiles, their ratio and how each is known."""
    from tilesight.api import load_profile
    from tilesight.cli.asked import hardware_of
    from tilesight.cli.output import print_json, print_report
    from tilesight.report.profile import ProfileDiff

    pair = ProfileDiff(load_profile(hardware_of(first)), load_profile(hardware_of(second)))
    if not as_json:
        print_report(pair)
        return
    rows = [
        {
            "name": each.name,
            "first": each.first,
            "second": each.second,
            "ratio": each.ratio,
            "first_kind": each.first_kind,
            "second_kind": each.second_kind,
        }
        for each in pair.differences
    ]
    about = {"first": _summary(pair.first), "second": _summary(pair.second)}
    print_json({"schema": "tilesight.profile_diff/1", **about, "differences": rows})


def _file_or_name(text: str) -> Any:
    """A shipped name, or else a path, whatever it looks like."""
    from pathlib import Path

    from tilesight.api import list_profiles
    from tilesight.cli.asked import hardware_of

    name = hardware_of(text)
    return name if name in list_profiles() else Path(text)


def _listed(profile: Any) -> dict[str, Any]:
    from tilesight.report.profile import merely_listed
    from tilesight.search import modelled_formats

    return _summary(profile) | {
        "clock_boost_hz": profile.clock.boost_hz,
        "dram_capacity_bytes": profile.dram.capacity_bytes,
        "dram_bandwidth_peak_bytes_per_s": profile.dram.bandwidth_peak_bytes_per_s,
        "predicts": list(modelled_formats(profile)),
        "rates_alone": list(merely_listed(profile)),
    }


def _summary(profile: Any) -> dict[str, Any]:
    names = ("name", "vendor", "architecture", "sm_count", "hash")
    return {name: getattr(profile, name) for name in names} | {"numbers": len(profile.numbers)}
