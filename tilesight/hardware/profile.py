"""One GPU's profile: numbers in SI units, a source for each, frozen all the way down.

An optional number that nobody knows is None, and whatever needs it refuses by name (:meth:`Profile.require`).
"""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from functools import cache, cached_property
from typing import Annotated, Any, Literal, Self, get_args, get_origin

from pydantic import AfterValidator, Field, ValidationError, model_validator

from tilesight.dtypes import DTYPES
from tilesight.errors import ProfileError, UnsupportedError, shown, suggestion
from tilesight.hardware.numbers import Count, Version, freeze_lists, freeze_map, plain_number
from tilesight.hardware.numbers import Number as Number
from tilesight.hardware.rules import broken_rules
from tilesight.hardware.tables import (
    L2,
    CacheUncertainty,
    Clock,
    ClusterSize,
    Derived,
    Dram,
    Drift,
    Dsmem,
    Epilogue,
    Fill,
    Gpc,
    InstructionRate,
    Launch,
    Link,
    Loop,
    Merging,
    Power,
    Rounds,
    Sm,
    Source,
    Sync,
    Table,
    TensorRate,
    Text,
    Uncertainty,
)

Architecture = Literal["sm_80", "sm_89", "sm_90", "sm_100", "sm_103", "sm_120", "cdna2"]
Name = Annotated[str, Field(pattern=r"^[a-z0-9]+(_[a-z0-9]+)*$")]

NO_NUMBERS = ("schema_version", "name", "vendor", "architecture", "derived", "source")


class Profile(Table):
    """One GPU. Read one with :func:`tilesight.load_profile`."""

    schema_version: Version
    name: Name
    vendor: Text
    architecture: Architecture
    sm_count: Count
    clock: Clock
    sm: Sm
    gpc: Gpc = Gpc()
    dram: Dram
    l2: L2
    fill: Fill = Fill()
    merging: Merging = Merging()
    drift: Drift = Drift()
    tensor: Annotated[Mapping[str, TensorRate], AfterValidator(freeze_map)]
    alu: Annotated[Mapping[Name, InstructionRate], AfterValidator(freeze_map)] = Field(
        default_factory=dict, validate_default=True
    )
    sync: Sync = Sync()
    dsmem: Annotated[Mapping[ClusterSize, Dsmem], AfterValidator(freeze_map)] = Field(
        default_factory=dict, validate_default=True
    )
    link: Link = Link()
    loop: Loop = Loop()
    power: Power = Power()
    launch: Launch = Launch()
    epilogue: Epilogue = Epilogue()
    rounds: Rounds = Rounds()
    uncertainty: Uncertainty = Uncertainty()
    cache_uncertainty: CacheUncertainty = CacheUncertainty()
    derived: Derived | None = None
    source: Annotated[Mapping[str, Source], AfterValidator(freeze_map)]

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], *, where: str = "profile") -> "Profile":
        """Profile from nested plain data, as a TOML file gives it.

        Parameters
        ----------
        data
            Tables of the file; lists stand for tuples.
        where
            Name of the file, for errors.

        Raises
        ------
        ProfileError
            If a key is unknown, a required one or a source is missing, or a value has the wrong type or range.
        """
        try:
            return cls.model_validate(freeze_lists(data))
        except ValidationError as error:
            raise ProfileError(f"{where}: {_first_problem(error)}") from None

    def to_dict(self) -> dict[str, Any]:
        """Nested plain data that :meth:`from_dict` reads back as an equal profile; absent fields are left out."""
        plain: dict[str, Any] = _plain(self)
        return plain

    def with_numbers(
        self,
        numbers: Mapping[str, Number | None],
        sources: Mapping[str, Mapping[str, Any]],
        *,
        about: Mapping[str, Any] | None = None,
        where: str = "profile",
    ) -> "Profile":
        """Copy with some numbers set, by dotted name; None removes a number and its source.

        Parameters
        ----------
        numbers
            Dotted name to value.
        sources
            Dotted name to ``{"kind": ..., "ref": ..., "note": ...}``; a number without an entry keeps its source.
        about
            Other keys to set: ``name``, ``derived``.
        where
            Name of the copy, for errors.

        Raises
        ------
        ProfileError
            If the copy breaks the schema; a new number needs a source.

        Examples
        --------
        >>> from tilesight.hardware.load import load_profile
        >>> why = {"kind": "assumed", "note": "what if L2 had fewer lines a set"}
        >>> load_profile("h200_sxm").with_numbers({"l2.associativity": 16}, {"l2.associativity": why}).l2.associativity
        16
        """
        data = self.to_dict()
        for name, value in numbers.items():
            _check_name(name)
            *tables, key = name.split(".")
            table = data
            for part in tables:
                table = table.setdefault(part, {})
            if value is not None:
                table[key] = value
            else:
                table.pop(key, None)
                data["source"].pop(name, None)
        data["source"] |= sources
        return Profile.from_dict(_without_empty(data | dict(about or {})), where=where)

    @cached_property
    def numbers(self) -> Mapping[str, Number]:
        """Every number by dotted name, in the order of the schema."""
        return freeze_map(dict(_numbers("", self)))

    @cached_property
    def copied(self) -> Mapping[str, str]:
        """Numbers assumed to be those of another GPU, as they are or scaled: dotted name to the origin's name."""
        changed = self.derived.changed if self.derived else ()
        return freeze_map(
            {
                name: source.origin
                for name, source in self.source.items()
                if source.kind == "assumed" and source.origin is not None and name not in changed
            }
        )

    @cached_property
    def hash(self) -> str:
        """First 12 hex digits of a SHA-256 over architecture and numbers: the same for the same physics."""
        values = [[name, repr(value)] for name, value in sorted(self.numbers.items())]
        text = json.dumps([self.schema_version, self.architecture, values], separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    def require(self, name: str) -> float:
        """The number of that dotted name.

        Raises
        ------
        UnsupportedError
            If the profile does not know it; the error names field and profile.
        ProfileError
            If the schema has no such number, or the name is no text.

        Examples
        --------
        >>> from tilesight.hardware.load import load_profile
        >>> load_profile("h200_sxm").require("dram.bandwidth_peak_bytes_per_s")
        4800000000000.0
        """
        value = self.get(name)
        if value is None:
            raise UnsupportedError(f"profile {self.name!r} has no {name}; measure it or state it", field=name)
        return value

    def get(self, name: str) -> float | None:
        """The number of that dotted name, None if the profile does not know it.

        Raises
        ------
        ProfileError
            If the schema has no such number, or the name is no text.
        """
        if not isinstance(name, str):
            raise ProfileError(f"{shown(name)} is no name of a number; give one such as 'dram.capacity_bytes'")
        value = self.numbers.get(name)
        if isinstance(value, tuple):
            raise ProfileError(f"{name} of profile {self.name!r} is a list, not one number")
        if value is None:
            _check_name(name)
        return None if value is None else float(value)

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        for problem in _problems(self):
            raise ValueError(problem)
        return self


@cache
def field_names() -> tuple[str, ...]:
    """Dotted names of all numbers the schema has; ``*`` stands for a dtype or a cluster size."""
    return tuple(_fields("", Profile))


def _check_name(name: str) -> None:
    if not _pattern().fullmatch(name):
        table = [known for known in field_names() if known.split(".")[0] == name.split(".")[0]]
        raise ProfileError(f"a profile has no number {name!r}; {suggestion(name, table or field_names())}")


@cache
def _pattern() -> re.Pattern[str]:
    return re.compile("|".join(re.escape(name).replace(r"\*", r"[^.]+") for name in field_names()))


def _fields(prefix: str, table: type[Table]) -> Iterator[str]:
    for name, field in table.model_fields.items():
        if name in NO_NUMBERS:
            continue
        kinds = list(_nested(field.annotation))
        path = f"{prefix}{name}" + (".*" if any(get_origin(kind) is Mapping for kind in kinds) else "")
        tables = [kind for kind in kinds if isinstance(kind, type) and issubclass(kind, Table)]
        yield from _fields(f"{path}.", tables[0]) if tables else (path,)


def _nested(annotation: Any) -> Iterator[Any]:
    """The annotation and all that stands in its brackets: ``Mapping[str, Clock] | None`` holds a Mapping and a Clock."""
    yield annotation
    for inner in get_args(annotation):
        yield from _nested(inner)


def _numbers(prefix: str, value: Any) -> Iterator[tuple[str, Number]]:
    if isinstance(value, Table):
        items: Any = ((name, getattr(value, name)) for name in type(value).model_fields)
    elif isinstance(value, Mapping):
        items = value.items()
    else:
        if value is not None:
            yield prefix, value
        return
    for name, item in items:
        if prefix or name not in NO_NUMBERS:
            yield from _numbers(f"{prefix}.{name}" if prefix else name, item)


def _plain(value: Any) -> Any:
    if isinstance(value, Table):
        items = {name: _plain(getattr(value, name)) for name in type(value).model_fields}
        return {name: item for name, item in items.items() if item not in (None, {}, ())}
    if isinstance(value, Mapping):
        return {name: _plain(item) for name, item in value.items()}
    return list(value) if isinstance(value, tuple) else value


def _without_empty(data: Mapping[str, Any]) -> dict[str, Any]:
    """The tables without those that hold nothing any more."""
    kept = {name: _without_empty(item) if isinstance(item, Mapping) else item for name, item in data.items()}
    return {name: item for name, item in kept.items() if item != {}}


def _problems(profile: Profile) -> Iterator[str]:
    """What is wrong with a profile whose fields are each well formed."""
    if not profile.tensor:
        yield "tensor has no dtype; give at least one table such as [tensor.bf16]"
    for name in profile.tensor:
        if name not in DTYPES:
            yield f"[tensor.{name}] is no data type; {suggestion(name, DTYPES, len(DTYPES))}"
    numbers = profile.numbers
    for name in numbers:
        if name not in profile.source:
            yield f'{name} has no source; add "{name}" = {{ kind = ..., ref = ... }} under [source]'
    for name in profile.source:
        if name not in numbers:
            yield f"source {name!r} names no number of this profile; {suggestion(name, numbers)}"
    yield from broken_rules(numbers, what_if=profile.derived is not None)


_WRONG_TYPE = {
    "float_type": "is not a number; write a plain one, without quotes",
    "int_type": "is not a whole number; write one without quotes, point or exponent",
    "string_type": "is not text",
    "missing": "is missing",
    "tuple_type": "is not a list",
    "string_too_short": "is empty",
    "string_pattern_mismatch": "must be lower-case letters, digits and underscores",
    "model_type": "is not a table",
    "dict_type": "is not a table",
    "too_short": "is empty; leave it out",
}


def _first_problem(error: ValidationError) -> str:
    """The first error of pydantic in our words: name, what was given, what is allowed."""
    problem = error.errors(include_url=False)[0]
    name = ".".join(str(part) for part in problem["loc"] if part != "[key]")
    kind, message, given = problem["type"], problem["msg"], problem["input"]
    if kind == "value_error":
        message = message.removeprefix("Value error, ")
        return f"source of {name.removeprefix('source.')}: {message}" if name else message
    if kind == "missing":
        return f"{name} is missing"
    if kind == "extra_forbidden":
        return f"unknown key {name!r}; {suggestion(name, _neighbours(name))}"
    found = _shown(given)
    if kind == "literal_error":
        return f"{name} = {found} is not allowed; {message[0].lower()}{message[1:]}"
    return f"{name} = {found} {_WRONG_TYPE.get(kind, message)}"


def _neighbours(name: str) -> list[str]:
    """Names of the schema in the same table; ``tensor.bf16.x`` has those of ``tensor.*``, written with ``bf16``."""
    *tables, _ = name.split(".")
    found = []
    for field in (*Profile.model_fields, *field_names()):
        *others, last = field.split(".")
        if len(others) == len(tables) and all(
            other in (table, "*") for other, table in zip(others, tables, strict=True)
        ):
            found.append(".".join([*tables, last]))
    return found


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    text = plain_number(value) if isinstance(value, int | float) else shown(value)
    return text if len(text) <= 60 else text[:59] + "…"
