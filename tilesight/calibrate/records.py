"""Records of one GPU in a folder: rows of a CSV file picked by value, columns as numbers, how far repeats are apart.

A damaged record is refused as a whole, whatever is read of it: a row of another length, text among numbers, no TOML file
beside it. What a whole record does not hold (a row, a column, an empty cell) is for who reads it to say.
"""

import csv
import math
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilesight.calibrate.stored import check_spreads, check_whole
from tilesight.errors import MissingFileError, TableError, UnsupportedError, shown, suggestion
from tilesight.hardware.profile import Profile

Column = NDArray[np.float64]
A_NUMBER = "a finite number, or an empty cell where nothing was measured, is allowed"


class DamagedRecordError(TableError):
    """A record that no run wrote like this; never counted among what records merely lack."""


class Record:
    """Rows of one record, or those of them that were picked; ``lines`` are where they stand in the file."""

    def __init__(
        self, name: str, columns: tuple[str, ...], rows: list[dict[str, str]], lines: Sequence[int] | None = None
    ) -> None:
        self.name, self.columns, self.rows = name, columns, rows
        self.lines = range(2, len(rows) + 2) if lines is None else lines

    @classmethod
    def read(cls, path: Path) -> "Record":
        """Record of a CSV file, named after it.

        Raises
        ------
        MissingFileError
            If there is no such file.
        DamagedRecordError
            If it has no rows, one of another length than its header, two columns of one name, or text in a column of
            numbers: one in which at least half of the cells that are not empty are numbers.
        """
        if not path.is_file():
            raise MissingFileError(f"no record {path.stem!r} in {path.parent}")
        try:
            lines = list(csv.reader(path.read_text(encoding="utf-8").splitlines(), strict=True))
        except (csv.Error, UnicodeDecodeError) as error:
            raise DamagedRecordError(f"not a CSV file: {error}", file=path.name) from None
        if len(lines) < 2:
            raise DamagedRecordError("no rows in it", file=path.name)
        header = tuple(lines[0])
        if twice := [name for name in header if header.count(name) > 1]:
            raise DamagedRecordError(f"two columns {twice[0]!r}; each name once is allowed", file=path.name, line=1)
        for number, cells in enumerate(lines[1:], start=2):
            if len(cells) != len(header):
                raise DamagedRecordError(
                    f"{len(cells)} cells where the header has {len(header)}", file=path.name, line=number
                )
        record = cls(path.stem, header, [dict(zip(header, cells, strict=True)) for cells in lines[1:]])
        for name in header:
            record._check_numbers(name)
        return record

    def _check_numbers(self, name: str) -> None:
        """Refuse text in a column of numbers."""
        given = [(line, row[name]) for line, row in zip(self.lines, self.rows, strict=True) if row[name]]
        wrong = [(line, cell) for line, cell in given if not _is_number(cell)]
        if wrong and 2 * len(wrong) <= len(given):
            line, cell = wrong[0]
            raise DamagedRecordError(
                f"{shown(cell)} where {len(given) - len(wrong)} rows hold numbers; {A_NUMBER}",
                file=f"{self.name}.csv",
                line=line,
                column=name,
            )

    def __len__(self) -> int:
        return len(self.rows)

    def pick(self, **wanted: object) -> "Record":
        """Rows whose columns have the given values, compared as text.

        Raises
        ------
        TableError
            If there is no such column or no such row.
        """
        for name in wanted:
            self._check(name)
        found = [all(row[name] == str(value) for name, value in wanted.items()) for row in self.rows]
        if not any(found):
            words = ", ".join(f"{name}={value}" for name, value in wanted.items())
            raise TableError(f"no row with {words}", file=f"{self.name}.csv")
        return self._those(found)

    def where(self, mask: NDArray[np.bool_], what: str) -> "Record":
        """Rows at which a mask, shape (rows,), holds; ``what`` says in words which those are.

        Raises
        ------
        TableError
            If it holds at none.
        """
        if not np.any(mask):
            raise TableError(f"no row with {what}", file=f"{self.name}.csv")
        return self._those(mask)

    def _those(self, mask: Sequence[bool] | NDArray[np.bool_]) -> "Record":
        kept = [(row, line) for row, line, keep in zip(self.rows, self.lines, mask, strict=True) if keep]
        return Record(self.name, self.columns, [row for row, _ in kept], [line for _, line in kept])

    def column(self, name: str) -> Column:
        """A column as floats, shape (rows,); empty cells are NaN.

        Raises
        ------
        TableError
            If there is no such column.
        DamagedRecordError
            If a cell is no number.
        """
        self._check(name)
        for line, row in zip(self.lines, self.rows, strict=True):
            if row[name] and not _is_number(row[name]):
                where: dict[str, Any] = {"file": f"{self.name}.csv", "line": line, "column": name}
                raise DamagedRecordError(f"{shown(row[name])} is no number; {A_NUMBER}", **where)
        return np.array([float(row[name] or "nan") for row in self.rows])

    def only(self, name: str) -> float:
        """The one value that a column has in all rows.

        Raises
        ------
        DamagedRecordError
            If rows contradict each other, or a cell is no number.
        TableError
            If a cell is empty.
        """
        values = self.column(name).tolist()
        first = values[0]
        for line, value in zip(self.lines, values, strict=True):
            if math.isnan(value):
                raise TableError("empty; one number is allowed", file=f"{self.name}.csv", line=line, column=name)
            if value != first:
                raise DamagedRecordError(
                    f"{value:g} where line {self.lines[0]} has {first:g}; one number is allowed",
                    file=f"{self.name}.csv",
                    line=line,
                    column=name,
                )
        return float(first)

    def count(self, name: str) -> int:
        """The one value that a column has in all rows, where it counts something.

        Raises
        ------
        DamagedRecordError
            If rows contradict each other, or it is no whole number.
        """
        value = self.only(name)
        if not value.is_integer():
            where: dict[str, Any] = {"file": f"{self.name}.csv", "line": self.lines[0], "column": name}
            raise DamagedRecordError(f"{value:g} is no count; a whole number is allowed", **where)
        return int(value)

    def _check(self, name: str) -> None:
        if name not in self.columns:
            raise TableError(f"no column {name!r}; {suggestion(name, self.columns, 20)}", file=f"{self.name}.csv")

    @property
    def spread(self) -> float | None:
        """Largest spread of repeats among the rows, (p90 - p10) / median; None where the record says none."""
        known = self._spreads()
        return float(known.max()) if known.size else None

    @property
    def middle_spread(self) -> float | None:
        """Median spread of repeats over the rows."""
        known = self._spreads()
        return float(np.median(known)) if known.size else None

    def _spreads(self) -> Column:
        spreads = self.column("spread") if "spread" in self.columns else np.empty(0)
        return spreads[~np.isnan(spreads)]


def _is_number(cell: str) -> bool:
    """Whether a cell is a finite number, or the ``nan`` that some scripts write where nothing was measured."""
    try:
        return not math.isinf(float(cell))
    except ValueError:
        return False


def spread_of(values: Column) -> float | None:
    """(p90 - p10) / median of repeated values; None for fewer than three.

    Examples
    --------
    >>> spread_of(np.array([0.9, 1.0, 1.1, 1.0, 1.0]))
    0.12...
    """
    if len(values) < 3:
        return None
    low, middle, high = np.quantile(values, [0.1, 0.5, 0.9])
    return float((high - low) / abs(middle)) if middle else None


def largest(*spreads: float | None) -> float | None:
    """The largest of the known spreads; None if none is known.

    Examples
    --------
    >>> largest(0.01, None, 0.02), largest(None)
    (0.02, None)
    """
    known = [spread for spread in spreads if spread is not None]
    return max(known) if known else None


def straight_line(x: Column, y: Column, record: str) -> tuple[float, float]:
    """Slope and value at 0 of the line of least squares through points of a record.

    Raises
    ------
    TableError
        If a value is not finite or all ``x`` are the same.

    Examples
    --------
    >>> slope, fixed = straight_line(np.array([1.0, 2.0]), np.array([5.0, 7.0]), "copy")
    >>> round(slope, 6), round(fixed, 6)
    (2.0, 3.0)
    """
    if not (np.all(np.isfinite(x)) and np.all(np.isfinite(y))):
        raise TableError("a cell that a line is drawn through is empty", file=f"{record}.csv")
    if len(set(x.tolist())) < 2:
        raise TableError("one size only; a line needs two", file=f"{record}.csv")
    slope, fixed = np.polyfit(x, y, 1)
    return float(slope), float(fixed)


class Records:
    """The records in one folder, all of one GPU, and what a profile states of it where no record does.

    ``hardware`` is asked for what no microbenchmark measures (datasheet peaks), and for the size of the chip where there is
    no record ``device_limits``.
    """

    def __init__(self, folder: Path, hardware: Profile | None = None) -> None:
        self.folder, self.hardware = folder, hardware
        self._read: dict[str, Record] = {}

    def __getitem__(self, name: str) -> Record:
        """The record of that name.

        Raises
        ------
        MissingFileError
            If it is not there.
        DamagedRecordError
            If it is malformed, or not what its TOML file says.
        """
        if name not in self._read:
            path, about = self.folder / f"{name}.csv", self.about(name)
            record = Record.read(path)
            try:
                check_whole(path, len(record), about)
                if about:
                    check_spreads(name, record.rows)
            except TableError as error:
                where: dict[str, Any] = {"file": error.file, "line": error.line, "column": error.column}
                raise DamagedRecordError(error.message, **where) from None
            self._read[name] = record
        return self._read[name]

    def on(self, hardware: Profile) -> "Records":
        """The same records beside a base profile; what was read is not read again."""
        same = Records(self.folder, hardware)
        same._read = self._read
        return same

    def check(self) -> None:
        """Refuse a damaged record, whether its numbers are read or not.

        Raises
        ------
        DamagedRecordError
            If one is malformed, or a CSV file has no TOML file beside it that says how it was measured.
        """
        for name in self.names:
            if not (self.folder / f"{name}.toml").is_file():
                raise DamagedRecordError(
                    f"no {name}.toml beside it, which says on which GPU and how it was measured; bring both files of a "
                    f"record, or, if this is none, call it {name}.SOMETHING.csv",
                    file=f"{name}.csv",
                )
            self.about(name)
            self[name]

    def __contains__(self, name: str) -> bool:
        return (self.folder / f"{name}.csv").is_file()

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the records, in alphabetical order; runs that failed left none."""
        return tuple(path.stem for path in sorted(self.folder.glob("*.csv")) if "." not in path.stem)

    def about(self, name: str) -> Mapping[str, Any]:
        """What the TOML file beside a record says; empty where there is none.

        Raises
        ------
        DamagedRecordError
            If it is malformed.
        """
        path = self.folder / f"{name}.toml"
        if not path.is_file():
            return {}
        try:
            return tomllib.loads(path.read_text(encoding="utf-8"))
        except ValueError as error:
            raise DamagedRecordError(f"not a TOML file: {error}", file=path.name) from None

    @property
    def gpu(self) -> str:
        """Name of the GPU that the records were taken on.

        Raises
        ------
        MissingFileError
            If there are no records, or none says.
        TableError
            If they are of several GPUs.
        """
        if not self.names:
            raise MissingFileError(f"no records in {self.folder}; give a folder with NAME.csv and NAME.toml files")
        found = {str(gpu): name for name in self.names if (gpu := self.about(name).get("gpu")) is not None}
        if not found:
            raise MissingFileError(
                f"no record in {self.folder} says on which GPU it was taken (gpu = ... in its TOML file)"
            )
        if len(found) > 1:
            names = ", ".join(f"{gpu!r} ({record})" for gpu, record in found.items())
            raise TableError(f"the records are of several GPUs: {names}", file=str(self.folder))
        return next(iter(found))

    def stated(self, name: str) -> float:
        """A number of the base profile.

        Raises
        ------
        UnsupportedError
            If there is no such profile or it does not know the number.
        """
        if self.hardware is None:
            raise UnsupportedError(f"{name} is needed and no base profile states it; give --base", field=name)
        return self.hardware.require(name)

    def _limit(self, column: str, name: str) -> float:
        if "device_limits" in self:
            return self["device_limits"].pick(what="limits").only(column)
        return self.stated(name)

    @property
    def sm_count(self) -> int:
        """SMs of the GPU, from the record ``device_limits`` or else the base profile."""
        if "device_limits" in self:
            return self["device_limits"].pick(what="limits").count("sms")
        return int(self.stated("sm_count"))

    @property
    def boost_hz(self) -> float:
        """Highest SM clock, likewise."""
        return self._limit("clock_hz", "clock.boost_hz")

    @property
    def l2_bytes(self) -> float:
        """L2 capacity, likewise."""
        return self._limit("l2_bytes", "l2.capacity_bytes")
