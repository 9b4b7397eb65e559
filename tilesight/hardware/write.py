"""Write a profile back as TOML: the order of the schema, one source a line. Comments of an earlier file are not kept."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from tilesight.hardware.numbers import plain_number
from tilesight.hardware.profile import Profile


def to_toml(profile: Profile) -> str:
    """Text of the profile's TOML file; reading it gives an equal profile.

    Sources stand in the order of the numbers they belong to.

    Examples
    --------
    >>> from tilesight.hardware.load import load_profile
    >>> print(to_toml(load_profile("h200_sxm"))[:18])
    schema_version = 1
    """
    data = profile.to_dict()
    sources = data.pop("source")
    lines = [*_table("", data), "", "[source]"]
    lines += [f"{_text(name)} = {_inline(sources[name])}" for name in profile.numbers]
    return "\n".join(lines).lstrip("\n") + "\n"


def _table(name: str, table: Mapping[str, Any]) -> Iterator[str]:
    """Lines of one table: its header if it holds values, the values, then the tables in it."""
    values = {key: value for key, value in table.items() if not isinstance(value, Mapping)}
    if name and values:
        yield from ("", f"[{name}]")
    for key, value in values.items():
        yield f"{key} = {_value(value)}"
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from _table(f"{name}.{key}" if name else key, value)


def _inline(source: Mapping[str, Any]) -> str:
    """A source as an inline table; a single reference is written without the brackets of a list, none not at all."""
    given = {key: value for key, value in source.items() if value != []}
    single = {key: value[0] if isinstance(value, list) and len(value) == 1 else value for key, value in given.items()}
    return "{ " + ", ".join(f"{key} = {_value(value)}" for key, value in single.items()) + " }"


def _value(value: Any) -> str:
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, list):
        return "[" + ", ".join(_value(item) for item in value) + "]"
    return plain_number(value)


def _text(value: str) -> str:
    """A TOML basic string: JSON's escapes, and the one control character that JSON leaves alone."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007F")
