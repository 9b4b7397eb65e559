"""Points: what counted launches compute and how, which Nsight Compute does not know.

A report has names and counters. That a launch is a product of some m, n and k, in tiles of some size, is said by a
**point**; the launches of one point are repeats of one measurement. Points are given in the order of the launches, by a
regular expression on kernel names, or both:

    launches   match    a point takes
    given      absent   the next so many launches
    absent     given    all launches whose kernel's name matches
    given      given    the next so many of the launches that match any point; their names must match its own
    absent     absent   the next launch; all launches, where there is one point

Expressions are searched for anywhere in a name, as ``ncu -k regex:…`` does.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from operator import index
from os import PathLike
from typing import Any

import numpy as np

from tilesight.errors import ConfigError, ProblemError, TableError, UnknownDTypeError, counted, shown
from tilesight.kernels.gemm_config import Gemm, GemmConfig
from tilesight.ncu.page import Launch
from tilesight.records.cells import SIZE_MAX, whole
from tilesight.records.given import CONFIG_COLUMNS, PROBLEM_COLUMNS, config_of_row, gemm_of, read_rows

MATCH, LAUNCHES = "match", "launches"
POINT_COLUMNS = (MATCH, LAUNCHES, *PROBLEM_COLUMNS, *CONFIG_COLUMNS)
KERNELS_SHOWN = 8
COMPILED = ("warps", "registers", "smem_bytes")
"""Fields of a configuration that a launch tells where nobody states them."""


@dataclass(frozen=True)
class Point:
    """A problem and its configuration, and which launches of a report measured it.

    Attributes
    ----------
    problem
        What is computed.
    config
        How; None lets the model choose.
    match
        Regular expression that the names of its kernels match.
    launches
        How many launches measured it.
    stated
        Those of ``COMPILED`` that the configuration states; the launch tells the others.
    file, line
        Where it is written.

    Raises
    ------
    ConfigError
        If a value is of another kind, or ``match`` is no regular expression.

    Examples
    --------
    >>> Point(Gemm(4096, 4096, 8192), GemmConfig(128, 256, 64, stages=4), match="nvjet", launches=3).launches
    3
    """

    problem: Gemm
    config: GemmConfig | None = None
    match: str | None = None
    launches: int | None = None
    stated: frozenset[str] = field(default=frozenset(("registers", "smem_bytes")), repr=False)
    file: str = field(default="points", repr=False)
    line: int | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if not isinstance(self.problem, Gemm):
            raise ConfigError(f"problem is a {type(self.problem).__name__}; give a tilesight.Gemm")
        if self.config is not None and not isinstance(self.config, GemmConfig):
            raise ConfigError(f"config is a {type(self.config).__name__}; give a tilesight.GemmConfig, or None")
        if self.match is not None:
            pattern(self.match, MATCH)
        if self.launches is not None:
            object.__setattr__(self, LAUNCHES, _count(self.launches))

    @property
    def words(self) -> str:
        """Where it is written, and what it is."""
        place = ":".join(str(part) for part in (self.file, self.line) if part is not None)
        return f"{place}: {self.problem}"


def _count(value: Any) -> int:
    try:
        number = index(value)
    except TypeError:
        number = 0
    if number < 1 or isinstance(value, bool | np.bool_):
        raise ConfigError(f"{LAUNCHES} = {shown(value)}; give a whole number from 1, or None")
    return number


def pattern(text: object, name: str) -> re.Pattern[str]:
    """A regular expression.

    Raises
    ------
    ConfigError
        If it is none.
    """
    try:
        if isinstance(text, str):
            return re.compile(text)
        why = "give a text"
    except (re.error, RecursionError, OverflowError) as error:
        why = str(error)
    raise ConfigError(f"{name} = {shown(text)} is no regular expression: {why}")


def read_points(path: str) -> list[Point]:
    """Points from a CSV file (a header, a row each) or a JSON file (a list of objects).

    Columns are those of :class:`Gemm` and :class:`GemmConfig`, ``tile`` for its three sizes, ``match`` and ``launches``.

    Raises
    ------
    MissingFileError
        If there is no such file.
    TableError
        If the file is malformed or a point makes no sense: file, line (JSON: number of the object) and column.
    """
    return [point_of(row, path, line) for line, row in read_rows(path, POINT_COLUMNS, "points")]


def point_of(row: Mapping[str, Any], file: str, line: int | None) -> Point:
    """The point that a row states.

    Raises
    ------
    TableError
        If it makes no sense.
    """
    config = {name: value for name, value in row.items() if name in CONFIG_COLUMNS}
    launches = row.get(LAUNCHES)
    number = None if launches is None else whole(str(launches), low=1, high=SIZE_MAX)
    if launches is not None and (number is None or isinstance(launches, bool)):
        allowed = f"a whole number from 1 to {SIZE_MAX}"
        raise TableError(f"found {shown(launches)}; allowed: {allowed}", file=file, line=line, column=LAUNCHES)
    try:
        return Point(
            gemm_of({name: value for name, value in row.items() if name in PROBLEM_COLUMNS}),
            config_of_row(config) if config else None,
            row.get(MATCH),
            number,
            frozenset(config).intersection(COMPILED),
            file,
            line,
        )
    except (ProblemError, ConfigError, UnknownDTypeError) as error:
        raise TableError(str(error), file=file, line=line) from None


def point_of_texts(problem: str, config: str | None) -> Point:
    """One point from ``4096,4096,8192,dtype=fp16`` and ``tile=128x256x64,stages=4``.

    A problem begins with its sizes, m, n and k, or names them; a configuration begins with its tile, or names it.

    Raises
    ------
    ConfigError
        If a text is no list of ``NAME=VALUE``, or a name is unknown or given twice.
    TableError
        If the point makes no sense.

    Examples
    --------
    >>> point_of_texts("4096x4096x8192", "128x256x64,stages=4").config
    GemmConfig(128x256x64, 4 stages, 8 warps, warp_specialized)
    """
    row = _named("--problem", problem, PROBLEM_COLUMNS, ("m", "n", "k"))
    row |= {} if config is None else _named("--config", config, CONFIG_COLUMNS, ("tile",))
    return point_of(row, "--problem" if config is None else "--problem and --config", None)


def _named(option: str, text: str, known: Sequence[str], first: tuple[str, ...]) -> dict[str, Any]:
    parts = [part.strip() for part in text.split(",")]
    bare = [part for part in parts if "=" not in part]
    if parts[: len(bare)] != bare:
        raise ConfigError(f"{option} {shown(text)}: {shown(bare[-1])} is not NAME=VALUE; known: {', '.join(known)}")
    values = bare[0].lower().split("x") if len(bare) == 1 < len(first) else bare
    if values and len(values) != len(first):
        raise ConfigError(
            f"{option} {shown(text)} begins with {counted(len(values), 'value')}; give {', '.join(first)}"
        )
    row: dict[str, Any] = dict(zip(first, values, strict=False))
    for part in parts[len(bare) :]:
        name, _, value = (piece.strip() for piece in part.partition("="))
        if name not in known or name in row or not value:
            what = "given twice" if name in row else "no value" if name in known else f"known: {', '.join(known)}"
            raise ConfigError(f"{option} {shown(text)}: {shown(name)}: {what}")
        row[name] = value
    return row


def kernels_in(launches: Sequence[Launch]) -> str:
    """Names of the kernels and how often each was launched, for a message."""
    times = Counter(launch.kernel for launch in launches)
    shown_ones = [f"{number} x {name}" for name, number in times.most_common(KERNELS_SHOWN)]
    return ", ".join([*shown_ones, "…"] if len(times) > KERNELS_SHOWN else shown_ones)


def select(launches: Sequence[Launch], kernel: str | None, file: str) -> list[Launch]:
    """Launches of kernels whose name matches; all without an expression.

    Raises
    ------
    ConfigError
        If it is no regular expression.
    TableError
        If no name matches.
    """
    wanted = None if kernel is None else pattern(kernel, "kernel")
    kept = [launch for launch in launches if wanted is None or wanted.search(launch.kernel)]
    if not kept:
        raise TableError(f"no kernel matches {kernel!r}; launched: {kernels_in(launches)}", file=file, column="kernel")
    return kept


Given = str | PathLike[str] | Point | Sequence[Point]


def points_from(given: Given | None, launches: Sequence[Launch], file: str) -> list[Point]:
    """The points that were given: a file, one point or several.

    Raises
    ------
    MissingFileError, TableError
        If the file is missing or malformed, or none were given.
    ConfigError
        If they are of another kind, or some state a configuration and some do not.
    """
    if given is None:
        raise TableError(
            "Nsight Compute does not say what these kernels compute: give the points (points=, --points FILE) or one "
            f"problem (--problem m,n,k --config TILE,stages=…); launched: {kernels_in(launches)}",
            file=file,
        )
    if isinstance(given, str | PathLike):
        points = read_points(str(given))
    else:
        points = [given] if isinstance(given, Point) else list(given)
    for point in points:
        if not isinstance(point, Point):
            raise ConfigError(f"a {type(point).__name__} stands among the points; give tilesight.ncu.Point")
    if not points:
        raise ConfigError("no points to compare")
    stated = [point.config is not None for point in points]
    if any(stated) and not all(stated):
        without = points[stated.index(False)]
        raise ConfigError(f"{without.words} states no configuration and others do; give one in each point or in none")
    return points


def shared_out(
    launches: Sequence[Launch], points: Sequence[Point], file: str
) -> tuple[list[list[Launch]], list[Launch]]:
    """Launches of each point, and those of no point.

    Raises
    ------
    TableError
        If a launch fits several points, or a point no launch; if there are more or fewer launches than the points say;
        if a kernel's name is none that its point allows.
    """
    if all(point.match is not None and point.launches is None for point in points):
        return _by_name(launches, points, file)
    return _in_order(launches, points, file)


def _by_name(launches: Sequence[Launch], points: Sequence[Point], file: str) -> tuple[list[list[Launch]], list[Launch]]:
    own: list[list[Launch]] = [[] for _ in points]
    others: list[Launch] = []
    patterns = [re.compile(point.match or "") for point in points]
    for launch in launches:
        fitting = [place for place, wanted in enumerate(patterns) if wanted.search(launch.kernel)]
        if len(fitting) > 1:
            first, second = (points[place] for place in fitting[:2])
            raise TableError(
                f"kernel {launch.kernel!r} matches {first.match!r} ({first.words}) and {second.match!r} ({second.words}); "
                "allowed: one point, or points in the order of launches with a column launches",
                file=file,
                line=launch.line,
            )
        (own[fitting[0]] if fitting else others).append(launch)
    for point, mine in zip(points, own, strict=True):
        if not mine:
            said = f"no kernel matches {point.match!r} ({point.problem}); launched in {file}: {kernels_in(launches)}"
            raise TableError(said, file=point.file, line=point.line, column=MATCH)
    return own, others


def _in_order(
    launches: Sequence[Launch], points: Sequence[Point], file: str
) -> tuple[list[list[Launch]], list[Launch]]:
    some = all(point.match is not None for point in points)
    patterns = [re.compile(point.match or "") for point in points]
    kept = [launch for launch in launches if not some or any(each.search(launch.kernel) for each in patterns)]
    alone = len(points) == 1 and points[0].launches is None
    wanted = [len(kept)] if alone else [point.launches or 1 for point in points]
    if sum(wanted) != len(kept) or not kept:
        found = f"{counted(len(kept), 'launch', 'launches')} ({kernels_in(kept) or 'no kernel matches'})"
        raise TableError(
            f"found {found}; allowed: {sum(wanted)}, as the points say: give launches in each point, or select by kernel "
            "(kernel=, --kernel)",
            file=file,
        )
    own, at = [], 0
    for point, wanted_name, number in zip(points, patterns, wanted, strict=True):
        mine = kept[at : at + number]
        at += number
        for launch in mine:
            if not wanted_name.search(launch.kernel):
                said = f"found kernel {launch.kernel!r}; allowed: {point.match!r} ({point.words})"
                raise TableError(said, file=file, line=launch.line)
        own.append(mine)
    used = {launch.number for launch in kept}
    return own, [launch for launch in launches if launch.number not in used]
