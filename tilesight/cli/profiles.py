"""profiles: list, show and check hardware profiles."""

from typing import Annotated, Any

import typer

from tilesight.cli.options import Json

profiles_app = typer.Typer(help="Hardware profiles: list, show, check.", invoke_without_command=True)


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
        print_json({"schema": "tilesight.profiles/1", "profiles": [_summary(profile) for profile in found]})
    else:
        print_report(ProfileList(found))


@profiles_app.command()
def show(
    name: Annotated[str, typer.Argument(metavar="NAME|FILE", help="A shipped profile or a TOML file.")],
    as_json: Json = False,
) -> None:
    """Every number of a profile with its source."""
    from tilesight.api import load_profile
    from tilesight.cli.asked import hardware_of
    from tilesight.cli.output import print_json, print_report

    profile = load_profile(hardware_of(name))
    if as_json:
        print_json({"schema": "tilesight.profile/1", "hash": profile.hash, **profile.to_dict()})
    else:
        print_report(profile)


@profiles_app.command()
def check(path: Annotated[str, typer.Argument(metavar="FILE", help="A TOML file.")], as_json: Json = False) -> None:
    """Whether a file is a valid profile; names the optional numbers that it lacks."""
    from pathlib import Path

    from tilesight.api import load_profile
    from tilesight.cli.output import print_json
    from tilesight.report.profile import absent

    profile = load_profile(Path(path))
    lacks = absent(profile)
    if as_json:
        print_json({"schema": "tilesight.profile_check/1", **_summary(profile), "not_known": list(lacks)})
        return
    print(f"{path}: a valid profile {profile.name!r}, {len(profile.numbers)} numbers, hash {profile.hash}")
    if lacks:
        print(f"not known: {', '.join(lacks)}")


def _summary(profile: Any) -> dict[str, Any]:
    names = ("name", "vendor", "architecture", "sm_count", "hash")
    return {name: getattr(profile, name) for name in names} | {"numbers": len(profile.numbers)}
