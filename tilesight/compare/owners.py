"""Which profile prices each row of a table."""

from __future__ import annotations

from os import PathLike

from tilesight.errors import TableError, UnknownProfileError
from tilesight.hardware.derive import changes_of
from tilesight.hardware.load import load_profile
from tilesight.hardware.profile import Profile
from tilesight.hardware.unread import unread
from tilesight.records import NCU, Table, canonical_gpu, filter_rows, is_known, parse_where

Hardware = str | PathLike[str] | Profile


def assign_hardware(table: Table, hardware: Hardware | None) -> tuple[Table, list[Profile | str]]:
    """The rows to compare, and for each its profile or the reason why it has none."""
    given = None
    if hardware is not None:
        is_name = isinstance(hardware, str) and "/" not in hardware and not hardware.endswith(".toml")
        given = load_profile(canonical_gpu(str(hardware)) if is_name else hardware)
    if table.kind.name == NCU.name and given is not None and not _both_known(table, given):
        table = table.without("gpu")  # whoever names the profile of such a GPU knows best
    if "gpu" not in table:
        if given is None:
            raise TableError(
                "the table has no gpu column; say which GPU it was measured on (hardware=, --gpu)", file=table.file
            )
        return table, [given] * len(table)
    if given is not None:
        # a what-if copy stands in for the GPU it was derived from
        names = given.name if given.derived is None else f"{given.name},{given.derived.parent}"
        table = filter_rows(table, parse_where([f"gpu={names}"]))
        return table, [given] * len(table)
    owners: dict[str, Profile | str] = {}
    for name in dict.fromkeys(table["gpu"].tolist()):
        try:
            owners[name] = load_profile(canonical_gpu(name))
        except UnknownProfileError as error:
            owners[name] = str(error)
    return table, [owners[name] for name in table["gpu"].tolist()]


def _both_known(table: Table, given: Profile) -> bool:
    """Whether the GPUs of a report and the profile are among those whose names are known."""
    parent = given.name if given.derived is None else given.derived.parent
    return "gpu" in table and all(is_known(canonical_gpu(name)) for name in (*table["gpu"], parent))


def what_if(owners: list[Profile | str]) -> dict[str, tuple[str, ...]]:
    """What was changed in each what-if copy that prices rows, by its name."""
    copies = {owner.name: owner for owner in owners if isinstance(owner, Profile) and owner.derived is not None}
    return {
        name: tuple(
            f"{text}, {why}" if (why := unread(number, copy)) else text for number, text in changes_of(copy).items()
        )
        for name, copy in copies.items()
    }
