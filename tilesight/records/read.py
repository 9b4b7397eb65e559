"""Reading a measured table: ``.csv`` or ``.csv.gz``, every cell checked, then rows chosen by value.

A table that breaks a rule is not repaired and no row is dropped: reading ends with file, line, column, what was found
and what is allowed.
"""

from __future__ import annotations

import csv
import gzip
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, TextIO

import numpy as np
from numpy.typing import NDArray

from tilesight.errors import MissingFileError, TableError, shown, suggestion
from tilesight.files import exists, is_file
from tilesight.records.cells import LABEL, CellKind, Value, decimal
from tilesight.records.gpus import canonical_gpu
from tilesight.records.schema import KINDS, SCORED, TableKind, find_kind, recognise

ROWS_MAX = 200_000
"""Rows of a table: all are held in memory."""
LINE_MAX = 2**20
"""Characters of one of its lines."""
_SHOWN = 60
"""Longest piece of a bad cell that a message repeats."""


@dataclass(frozen=True)
class Table:
    """A measured table, or the rows of it that were asked for.

    Attributes
    ----------
    file
        Name of the file, as given.
    kind
        What the columns mean.
    columns
        Column name -> values, one per row: int64 for whole numbers, float64 for other numbers, str objects for text.
    row_numbers
        Number of each row in the file, counted from 1 without the header.
    line_numbers
        Line of each row in the file, counted from 1 with the header as line 1.
    """

    file: str
    kind: TableKind
    columns: Mapping[str, NDArray[Any]]
    row_numbers: NDArray[Any]
    line_numbers: NDArray[Any]

    def __len__(self) -> int:
        return len(self.row_numbers)

    def __contains__(self, column: str) -> bool:
        return column in self.columns

    def __getitem__(self, column: str) -> NDArray[Any]:
        return self.columns[column]

    @property
    def unknown_columns(self) -> tuple[str, ...]:
        """Columns that the kind does not know: kept as text, never an input."""
        known = self.kind.columns()
        return tuple(name for name in self.columns if name not in known)

    def without(self, column: str) -> Table:
        """The table without a column."""
        columns = {name: values for name, values in self.columns.items() if name != column}
        return Table(self.file, self.kind, columns, self.row_numbers, self.line_numbers)

    def take(self, rows: NDArray[Any]) -> Table:
        """The rows picked by a mask or by indices, in their order."""
        columns = {name: values[rows] for name, values in self.columns.items()}
        return Table(self.file, self.kind, columns, self.row_numbers[rows], self.line_numbers[rows])


def read_table(path: str | Path, *, table: str | None = None) -> Table:
    """Read one measured table and check every cell.

    Parameters
    ----------
    path
        A ``.csv`` or ``.csv.gz`` file, UTF-8, with a header line.
    table
        Name of the kind of table; None recognises it by its header.

    Raises
    ------
    MissingFileError
        If there is no such file.
    TableError
        If the file is no table, the kind is unknown or not scored yet, a column is missing, a cell is malformed, or
        there are more than ``ROWS_MAX`` rows.
    """
    file = str(path)
    lines = _lines(Path(path))
    header, kind = _header_of(lines, file, table)
    kinds = kind.columns()
    parsers = [kinds.get(name, LABEL) for name in header]
    rows: list[list[Value]] = []
    line_numbers: list[int] = []
    for line, cells in lines:
        if len(rows) == ROWS_MAX:
            raise TableError(f"more than {ROWS_MAX} rows; split the table", file=file, line=line)
        rows.append(_parse_row(cells, header, parsers, file, line))
        line_numbers.append(line)
    if not rows:
        raise TableError("the table has a header and no rows", file=file, line=1)
    by_column = zip(header, parsers, zip(*rows, strict=True), strict=True)
    columns = {name: _array(values, parser) for name, parser, values in by_column}
    return Table(file, kind, columns, np.arange(1, len(rows) + 1), np.array(line_numbers))


def read_header(path: str | Path, *, table: str | None = None) -> TableKind:
    """The kind of a measured table by its header alone; parameters and errors are those of :func:`read_table`."""
    return _header_of(_lines(Path(path)), str(path), table)[1]


def _header_of(lines: Iterator[tuple[int, list[str]]], file: str, table: str | None) -> tuple[list[str], TableKind]:
    """The first line, and the kind of table that it begins."""
    _, header = next(lines, (1, None))
    if header is None:
        raise TableError("the file is empty; expected a header line with column names", file=file, line=1)
    _check_header(header, file)
    return header, _kind(header, file, table)


def _lines(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Line number and cells of each line; blank lines are allowed at the end only."""
    file = str(path)
    if not is_file(path):
        why = "" if not exists(path) else ", which is not a regular file"
        raise MissingFileError(f"no measured table {file!r}{why}; give the path of a .csv or .csv.gz file")
    opener = gzip.open if path.suffix == ".gz" else open
    blank_line = None
    line = 0
    try:
        with opener(path, "rt", encoding="utf-8-sig", newline="") as text:
            reader = csv.reader(_short_lines(text, file), strict=True)
            for cells in reader:
                line = reader.line_num
                if not cells:
                    blank_line = blank_line or line
                    continue
                if blank_line is not None:
                    raise TableError("blank line inside the table; remove it", file=file, line=blank_line)
                yield line, cells
    except (csv.Error, UnicodeDecodeError, EOFError, zlib.error, OSError) as error:
        what = "gzip-compressed CSV" if path.suffix == ".gz" else "CSV"
        raise TableError(f"not readable as UTF-8 {what}: {error}", file=file, line=line + 1) from error


def _short_lines(text: TextIO, file: str) -> Iterator[str]:
    """Lines of a file; one without end, which would fill the memory, is refused."""
    for number in count(1):
        line = text.readline(LINE_MAX + 1)
        if len(line) > LINE_MAX:
            raise TableError(f"a line of more than {LINE_MAX} characters", file=file, line=number)
        if not line:
            return
        yield line


def _check_header(header: Sequence[str], file: str) -> None:
    for name, times in Counter(header).items():
        if not name.strip():
            raise TableError("the header has a column without a name", file=file, line=1)
        if times > 1:
            raise TableError(f"the column appears {times} times; keep one", file=file, line=1, column=name)


def _kind(header: Sequence[str], file: str, table: str | None) -> TableKind:
    scored = [kind.name for kind in SCORED]
    if table is not None:
        kind = find_kind(table)
        if kind is None:
            raise TableError(f"no kind of table {table!r}; {suggestion(table, KINDS)}", file=file)
    else:
        kind = recognise(header)
        if kind is None:
            raise TableError(
                f"the header {', '.join(header)[:_SHOWN]!r} is that of no known table; known: {', '.join(KINDS)}",
                file=file,
                line=1,
            )
    if not kind.scored:
        raise TableError(
            f"table {kind.name!r} is known but not scored yet; scored tables: {', '.join(scored)}", file=file
        )
    missing = kind.missing(header)
    if missing:
        names = ", ".join(repr(name) for name in missing)
        noun = "column" if len(missing) == 1 else "columns"
        raise TableError(
            f"table {kind.name!r} lacks {noun} {names}; needed: {', '.join(kind.needed(header))}",
            file=file,
            line=1,
            column=missing[0],
        )
    return kind


def _parse_row(
    cells: Sequence[str], header: Sequence[str], parsers: Sequence[CellKind], file: str, line: int
) -> list[Value]:
    if len(cells) != len(header):
        raise TableError(f"{len(cells)} cells where the header has {len(header)} columns", file=file, line=line)
    values = []
    for name, parser, text in zip(header, parsers, cells, strict=True):
        value = parser.parse(text)
        if value is None:
            found = "an empty cell" if not text else repr(text[:_SHOWN])
            raise TableError(f"found {found}; allowed: {parser.allowed}", file=file, line=line, column=name)
        values.append(value)
    return values


def _array(values: Sequence[Value], kind: CellKind) -> NDArray[Any]:
    if not kind.numeric:
        return np.array(values, dtype=object)
    whole = all(isinstance(value, int) for value in values)
    return np.array(values, dtype=np.int64 if whole else np.float64)


@dataclass(frozen=True)
class Condition:
    """Keep rows whose ``column`` equals any of ``values``."""

    column: str
    values: tuple[str, ...]


def parse_where(where: Mapping[str, object] | Iterable[str]) -> tuple[Condition, ...]:
    """Conditions from ``col=a,b`` texts, or from a mapping column -> value or list of values.

    Raises
    ------
    TableError
        If a text has no column name or no ``=``, or a condition is of another kind.

    Examples
    --------
    >>> parse_where(["m=1,16", "raster=h"])
    (Condition(column='m', values=('1', '16')), Condition(column='raster', values=('h',)))
    >>> parse_where({"m": [1, 16]})
    (Condition(column='m', values=('1', '16')),)
    """
    if isinstance(where, Mapping):
        _check_texts(where)
        lists = {name: given if isinstance(given, list | tuple) else [given] for name, given in where.items()}
        return tuple(Condition(name, tuple(str(value) for value in given)) for name, given in lists.items())
    conditions = []
    texts = [where] if isinstance(where, str) else list(where)
    _check_texts(texts)
    for text in texts:
        column, equals, values = text.partition("=")
        if not column or not equals:
            raise TableError(f"cannot read the condition {text!r}; give column=value or column=value,value")
        conditions.append(Condition(column, tuple(values.split(","))))
    return tuple(conditions)


def _check_texts(texts: Iterable[object]) -> None:
    for text in texts:
        if not isinstance(text, str):
            raise TableError(f"cannot read the condition {shown(text)}; give column=value or column=value,value")


def filter_rows(table: Table, conditions: Iterable[Condition]) -> Table:
    """Rows that meet every condition. Numbers compare as numbers: ``4096``, ``4096.0`` and ``4.096e3`` are equal.

    Raises
    ------
    TableError
        If a column is not in the table, a value is no number where the column holds numbers, or no row is left.
    """
    for condition in conditions:
        if condition.column not in table:
            raise TableError(
                f"no column to filter by; {suggestion(condition.column, table.columns)}",
                file=table.file,
                column=condition.column,
            )
        kept = np.isin(*_comparable(table, condition))
        if not kept.any():
            raise TableError(
                f"no row has {' or '.join(map(repr, condition.values))}; {_examples(table[condition.column])}",
                file=table.file,
                column=condition.column,
            )
        table = table.take(kept)
    return table


def _comparable(table: Table, condition: Condition) -> tuple[NDArray[Any], list[float] | list[str]]:
    """Values of the column and the values asked for, in a form in which equal means equal."""
    found = table[condition.column]
    if condition.column == "gpu":
        return np.array([canonical_gpu(name) for name in found]), [canonical_gpu(name) for name in condition.values]
    if found.dtype == object:
        return found.astype(str), list(condition.values)
    numbers = [decimal(text) for text in condition.values]
    if None in numbers:
        bad = condition.values[numbers.index(None)]
        raise TableError(f"{bad!r} is no number and the column holds numbers", file=table.file, column=condition.column)
    return found, [number for number in numbers if number is not None]


def _examples(values: NDArray[Any]) -> str:
    distinct = [str(value) for value in dict.fromkeys(values.tolist())]
    more = ", …" if len(distinct) > 8 else ""
    return f"the table has {', '.join(distinct[:8])}{more}"
