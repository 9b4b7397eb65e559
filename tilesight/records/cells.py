"""Cells of measured tables: what a cell may hold, and how its text becomes a number.

Nothing is guessed: a cell that is not exactly what its column allows ends the reading. ``float`` and ``int`` accept
more than a table may hold (``nan``, ``inf``, ``1_000``, surrounding blanks), so the spelling is checked first.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass

from tilesight.units import reads_as_zero

SIZE_MAX = 2**31 - 1
"""Largest size a column may hold: beyond it products of two sizes leave 64-bit integers."""
COUNT_MAX = 10**18 - 1

_WHOLE = re.compile(r"[0-9]{1,18}")
_DECIMAL = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")

Value = int | float | str


@dataclass(frozen=True)
class CellKind:
    """What one cell of a column may hold.

    Attributes
    ----------
    allowed
        The rule in words, as it ends an error message.
    parse
        Text of a cell -> its value, or None if the text breaks the rule.
    numeric
        Whether values are numbers (then ``--where`` compares them as numbers).
    """

    allowed: str
    parse: Callable[[str], Value | None]
    numeric: bool = True


def whole(text: str, *, low: int, high: int) -> int | None:
    """A whole number in ``low..high`` written in decimal digits alone, or None.

    Examples
    --------
    >>> whole("4096", low=1, high=SIZE_MAX), whole("4096.5", low=1, high=SIZE_MAX), whole("-1", low=0, high=9)
    (4096, None, None)
    """
    if not _WHOLE.fullmatch(text):
        return None
    value = int(text)
    return value if low <= value <= high else None


def decimal(text: str) -> float | None:
    """A finite decimal number, or None; also None where a number other than 0 is too small for a float.

    Examples
    --------
    >>> decimal("4.238"), decimal("1e3"), decimal("nan"), decimal("1e999"), decimal(" 7")
    (4.238, 1000.0, None, None, None)
    """
    if not _DECIMAL.fullmatch(text):
        return None
    value = float(text)
    return value if math.isfinite(value) and (value != 0 or reads_as_zero(text)) else None


def _positive(text: str) -> float | None:
    value = decimal(text)
    return value if value is not None and value > 0 else None


def _not_negative(text: str) -> float | None:
    value = decimal(text)
    return value if value is not None and value >= 0 else None


def _share(text: str) -> float | None:
    value = decimal(text)
    return value if value is not None and 0 <= value <= 1 else None


SIZE = CellKind(f"a whole number from 1 to {SIZE_MAX}", lambda text: whole(text, low=1, high=SIZE_MAX))
COUNT = CellKind("a whole number, 0 or more", lambda text: whole(text, low=0, high=COUNT_MAX))
FLAG = CellKind("0 or 1", lambda text: whole(text, low=0, high=1))
POSITIVE = CellKind("a finite number above 0", _positive)
NOT_NEGATIVE = CellKind("a finite number, 0 or more", _not_negative)
SHARE = CellKind("a number from 0 to 1", _share)
NAME = CellKind("a name (not empty)", lambda text: text if text.strip() else None, numeric=False)
LABEL = CellKind("any text", lambda text: text, numeric=False)


def choice(*names: str) -> CellKind:
    """A cell that holds one of ``names``.

    Examples
    --------
    >>> choice("h", "v").allowed
    "one of 'h', 'v'"
    """
    allowed = "one of " + ", ".join(repr(name) for name in names)
    return CellKind(allowed, lambda text: text if text in names else None, numeric=False)
