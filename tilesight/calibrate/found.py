"""A number found in records, and a derivation: which numbers it gives, from which records, by which rule.

The spread of a number is that of the repeats it is read from: the largest (p90 - p10) / median of its rows, or the median of
these where the number is a median over rows. Of a difference of times it is the sum of how far each time spreads, in
seconds, over the difference: the most it can be, since nobody knows which repeats belong together. Counts and fits have no
repeats and no spread; a fit has a misfit, the rms of what it leaves over, which says how well the law holds and not how well
the number is known.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import wraps
from typing import Literal

from tilesight.calibrate.records import Records
from tilesight.errors import TableError

SPREAD_MOST = 0.05
"""Spread above which a number is not kept."""
DIGITS = 4
"""Significant digits of a number in a profile: no record is better than that."""

Kind = Literal["measured", "fitted"]


@dataclass(frozen=True)
class Found:
    """One number: its value, the spread of its repeats, and where it is from.

    ``spread`` is None where there are no repeats or the record does not say; ``misfit`` is that of a fit.

    Raises
    ------
    TableError
        If value, spread or misfit is not finite, or the spread negative.
    """

    value: int | float
    spread: float | None
    records: tuple[str, ...]
    kind: Kind = "measured"
    note: str | None = None
    misfit: float | None = None

    def __post_init__(self) -> None:
        for number in (self.value, self.spread, self.misfit):
            if number is not None and not math.isfinite(number):
                raise TableError(
                    f"{number} is no number; a cell it is read from is empty", file=", ".join(self.records)
                )

        if self.spread is not None and self.spread < 0:
            raise TableError(f"spread = {self.spread:g} is no spread; it is 0 or more", file=", ".join(self.records))

    @property
    def kept(self) -> bool:
        """Whether its spread lets it into a profile."""
        return self.spread is None or self.spread <= SPREAD_MOST

    @property
    def rounded(self) -> "Found":
        """The same with the digits that a profile has; whole numbers stay as they are."""
        return self if isinstance(self.value, int) else replace(self, value=float(f"{self.value:.{DIGITS}g}"))


Numbers = Mapping[str, Found]


def spread_of_difference(difference: float, *terms: tuple[float, float | None]) -> float | None:
    """Spread of a difference, from its terms: (value, spread) each.

    sum of abs(value) * spread over abs(difference); a term of unknown spread adds nothing. None where none is known.

    Examples
    --------
    >>> round(spread_of_difference(2e-6, (10e-6, 0.01), (8e-6, 0.02)), 4)  # 0.1 and 0.16 us of 2 us
    0.13
    """
    known = [abs(value) * spread for value, spread in terms if spread is not None]
    return sum(known) / abs(difference) if known else None


@dataclass(frozen=True)
class Derivation:
    """Numbers that one function reads from records. ``numbers`` are all that it may give, by dotted name."""

    numbers: tuple[str, ...]
    records: tuple[str, ...]
    derive: Callable[[Records], Numbers]

    @property
    def rule(self) -> str:
        """The rule in words: what the docstring of the function begins with."""
        return " ".join((self.derive.__doc__ or "").split("\n\n")[0].split())


def one(name: str, records: tuple[str, ...], derive: Callable[[Records], Found]) -> Derivation:
    """Derivation of a single number."""

    @wraps(derive)
    def numbers(given: Records) -> Numbers:
        return {name: derive(given)}

    return Derivation((name,), records, numbers)
