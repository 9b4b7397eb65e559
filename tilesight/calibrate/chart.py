"""A chart as data: what a picture shows, before anything is drawn, and the same as a CSV file.

Numbers are in SI units; the axis says which, and whoever draws puts the prefixes. Measured points have a spread, the
relative distance of the 10th and 90th percentile of repeats; predicted points are a line.
"""

import csv
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tilesight.errors import TableError

Scale = Literal["linear", "log2", "log10"]
DIGITS = 6
"""Significant digits of numbers in the CSV file."""


@dataclass(frozen=True)
class Axis:
    """An axis: name of its column in the CSV file, words, unit (empty for counts and ratios), scale.

    With ``categories`` a position is the place of one of them.
    """

    column: str
    words: str
    unit: str = ""
    scale: Scale = "linear"
    categories: tuple[str, ...] = ()


@dataclass(frozen=True)
class Series:
    """Points that belong together, from left to right.

    Attributes
    ----------
    words
        What they are; empty for a line that belongs to the points before it.
    resource
        Which resource they are of, as named in ``tilesight.resource``, or ``launch``; gives the colour.
    x, y
        Positions and values, of one length.
    spread
        Of each value, (p90 - p10) / median of its repeats; empty where there are none.
    measured
        Points with markers; False for what a law predicts, a line.
    """

    words: str
    resource: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    spread: tuple[float, ...] = ()
    measured: bool = True

    def __post_init__(self) -> None:
        if not self.x or len(self.x) != len(self.y) or len(self.spread) not in (0, len(self.x)):
            raise TableError(f"{self.words}: {len(self.x)} positions, {len(self.y)} values, {len(self.spread)} spreads")
        if not all(map(math.isfinite, (*self.x, *self.y, *self.spread))):
            raise TableError(f"{self.words}: a value is not finite")


@dataclass(frozen=True)
class Chart:
    """One picture: its title names kernel, format and GPU."""

    name: str
    title: str
    x: Axis
    y: Axis
    series: tuple[Series, ...]

    def rows(self) -> Iterable[tuple[str, ...]]:
        """The plotted numbers as text, a header first."""
        yield "series", "kind", self.x.column, self.y.column, "spread"
        words = ""
        for each in self.series:
            words = each.words or words
            kind = "measured" if each.measured else "predicted"
            spreads = [_short(value) for value in each.spread] or [""] * len(each.x)
            for x, y, spread in zip(each.x, each.y, spreads, strict=True):
                yield words, kind, self._place(x), _short(y), spread

    def _place(self, x: float) -> str:
        return self.x.categories[int(x)] if self.x.categories else _short(x)


def series(
    words: str,
    resource: str,
    x: Iterable[float],
    y: Iterable[float],
    spread: Sequence[float | None] = (),
    *,
    measured: bool = True,
) -> Series:
    """A series whose points are put in order from left to right; a spread that nobody knows is 0.

    Examples
    --------
    >>> series("copies", "dram", [2, 1], [5.0, 3.0]).y
    (3.0, 5.0)
    """
    xs, ys = [float(value) for value in x], [float(value) for value in y]
    spreads = [value if value is not None and math.isfinite(value) else 0.0 for value in spread] or [0.0] * len(xs)
    order = sorted(range(len(xs)), key=xs.__getitem__)
    kept = tuple(float(spreads[i]) for i in order) if len(spread) else ()
    return Series(words, resource, tuple(xs[i] for i in order), tuple(ys[i] for i in order), kept, measured)


def write_chart(path: Path, chart: Chart) -> None:
    """Write the plotted numbers as a CSV file."""
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n").writerows(chart.rows())


def _short(value: float) -> str:
    return f"{value:.{DIGITS}g}"
