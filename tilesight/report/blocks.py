"""What a report is made of, before it becomes text or HTML: facts, grids of cells, lists of sentences.

A result is described once, as a :class:`Page`; ``render`` turns a page into text for a terminal or HTML for a notebook.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import singledispatch
from typing import Any

from tilesight.errors import TilesightError


@dataclass(frozen=True)
class Bar:
    """A cell that draws a share in [0, 1] as a bar; left out where there is no room."""

    share: float


Cell = str | Bar


@dataclass(frozen=True)
class Facts:
    """Labels and values, one pair a line."""

    rows: Sequence[tuple[str, str]]
    title: str = ""


@dataclass(frozen=True)
class Grid:
    """A table. Columns whose name begins with ``<`` are flush left, the others flush right; the mark is not printed."""

    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    title: str = ""
    total: Sequence[Cell] | None = None
    """A last row, set apart from the others."""


@dataclass(frozen=True)
class Lines:
    """Sentences, one a line."""

    items: Sequence[str]
    title: str = ""


Block = Facts | Grid | Lines


@dataclass(frozen=True)
class Page:
    """A whole report: a title and its blocks, in order. Empty blocks are not printed."""

    title: str
    blocks: Sequence[Block]


@singledispatch
def describe(result: Any) -> Page:
    """The page of a result, by its type.

    Raises
    ------
    TilesightError
        If there is no report of that type.
    """
    raise TilesightError(f"there is no report of a {type(result).__name__}")
