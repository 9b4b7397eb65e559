"""The raw page of Nsight Compute as CSV: messages, a header, a row of units, one row a launch.

``ncu --csv --page raw`` prints it, and ``ncu --import REPORT --csv --page raw`` makes it from a report. Numbers have
thousands separators; lines that are no part of the table (``==PROF== …``, the program's own output) stand before it or
around it. What ``ncu --csv`` prints by itself, one metric a line, is read as well.
"""

import csv
import gzip
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

from tilesight.errors import MissingFileError, TableError, shown
from tilesight.files import exists, is_file
from tilesight.ncu.names import ABSENT, COUNT_MOST, COUNTERS, GPU_NAME, SECTOR, UNITS, Counter
from tilesight.records.cells import decimal
from tilesight.records.read import LINE_MAX

LINES_SNIFFED = 1000
LAUNCHES_MOST = 200_000
SAID_MOST = 400
ID, PROCESS, KERNEL = "ID", "Process ID", "Kernel Name"
NAME, UNIT, VALUE = "Metric Name", "Metric Unit", "Metric Value"
NO_RIGHT = "ERR_NVGPUCTRPERM"
_SEPARATED = re.compile(r"[+-]?[0-9]{1,3}(,[0-9]{3})+(\.[0-9]*)?")
_SIZE = re.compile(r"\(([0-9]+), *([0-9]+), *([0-9]+)\)")
_SHARE_MOST = 2.0
"""Hits and lookups may be counted in several passes that differ, so a rate may pass 100 %."""


@dataclass(frozen=True)
class Launch:
    """One launch of a kernel, as it was counted.

    Attributes
    ----------
    number
        Place among the launches of the file, from 1.
    line
        Line in the CSV file; in a report, which has no lines, the same as ``number``.
    kernel
        Name of the kernel as printed.
    values
        Column or counter as Nsight Compute names it -> what stands there, and its unit; ``n/a`` and the like stand for what
        was not counted.
    """

    number: int
    line: int
    kernel: str
    values: Mapping[str, tuple[str | float, str]] = field(repr=False)

    @property
    def gpu(self) -> str | None:
        """What the driver calls the GPU; None where nobody says."""
        return self.text_of(GPU_NAME) if self.has(GPU_NAME) else None

    def has(self, name: str) -> bool:
        """Whether a counter has a value."""
        return name in self.values and str(self.values[name][0]).strip().lower() not in ABSENT

    def text_of(self, name: str) -> str | None:
        """What stands for a counter, verbatim; None where nothing does."""
        value = self.values.get(name)
        return None if value is None else str(value[0])

    def get(self, ours: str, file: str) -> float | None:
        """A quantity by our name, in SI base units (s, B, Hz, ratio, count); None where it was not counted.

        Raises
        ------
        TableError
            If its value is no number, out of range, or in a unit that is not known.
        """
        counter = COUNTERS[ours]
        found = next(((name, self.values[name]) for name in counter.names if self.has(name)), None)
        if found is not None:
            return self._number(*found, counter, file)
        return self._size({"grid_size": "Grid Size", "block_size": "Block Size"}.get(ours), counter, file)

    def _number(self, name: str, value: tuple[str | float, str], counter: Counter, file: str) -> float:
        given, unit = value
        number = plain_number(given)
        factors = UNITS[counter.dimension]
        if number is None or number < 0 or (name.startswith("gpu__time") and number == 0):
            allowed = "a finite number above 0" if name.startswith("gpu__time") else "a finite number, 0 or more"
            raise TableError(f"found {shown(given)}; allowed: {allowed}", file=file, line=self.line, column=name)
        if unit not in factors:
            names = ", ".join(repr(each) for each in factors)
            raise TableError(f"found the unit {unit!r}; allowed: {names}", file=file, line=self.line, column=name)
        scaled = number * factors[unit]
        if counter.dimension == "share" and scaled > _SHARE_MOST:
            raise TableError(f"found {shown(given)} %; allowed: 0 to 200", file=file, line=self.line, column=name)
        if unit == SECTOR and not number.is_integer():
            said = f"found {shown(given)} sectors; allowed: a whole number"
            raise TableError(said, file=file, line=self.line, column=name)
        if number > COUNT_MOST or scaled > COUNT_MOST:
            said = f"found {shown(given)}; allowed: no more than {COUNT_MOST:.0e}"
            raise TableError(said, file=file, line=self.line, column=name)
        if not counter.least <= scaled <= counter.most or (counter.whole and not scaled.is_integer()):
            said = f"found {shown(given)}; allowed: {counter.allowed()}"
            raise TableError(said, file=file, line=self.line, column=name)
        return scaled

    def _size(self, column: str | None, counter: Counter, file: str) -> float | None:
        """Product of the three sizes of ``(2, 66, 1)``."""
        if column is None or not self.has(column):
            return None
        text = str(self.values[column][0])
        match = _SIZE.fullmatch(text)
        if match is None:
            raise TableError(f"found {shown(text)}; allowed: (x, y, z)", file=file, line=self.line, column=column)
        size = int(match[1]) * int(match[2]) * int(match[3])
        if not counter.least <= size <= counter.most:
            said = f"found {shown(text)}; allowed: (x, y, z) with a product of {counter.allowed()}"
            raise TableError(said, file=file, line=self.line, column=column)
        return float(size)


def plain_number(given: str | float) -> float | None:
    """A number as Nsight Compute prints it, or None if it is none.

    Examples
    --------
    >>> plain_number("148,334,848"), plain_number("3,090,309.33"), plain_number("1,23"), plain_number("nan")
    (148334848.0, 3090309.33, None, None)
    """
    text = repr(given) if isinstance(given, float) else str(given)
    return decimal(text.replace(",", "") if _SEPARATED.fullmatch(text) else text)


def is_page(path: Path) -> bool:
    """Whether a text file looks like output of Nsight Compute: a message of it, or the header of its table."""
    try:
        for number, line in enumerate(_lines(path), start=1):
            if number > LINES_SNIFFED:
                return False
            if line.startswith(("==PROF==", "==ERROR==", "==WARNING==")) or _is_header(line):
                return True
    except (OSError, EOFError, zlib.error, UnicodeDecodeError, TableError):
        pass  # whoever reads it as a table says what is wrong
    return False


def read_page(path: Path) -> list[Launch]:
    """The launches in a file, ``.csv``, ``.csv.gz`` or a log of any name.

    Raises
    ------
    MissingFileError
        If there is no such file.
    TableError
        If it is not readable, is malformed or has no launch.
    """
    if not is_file(path):
        raise MissingFileError(f"no file {str(path)!r}; give output of ncu --csv --page raw, or a report (.ncu-rep)")
    try:
        lines = list(_lines(path))
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise TableError(f"not readable as text in UTF-8: {error}", file=str(path)) from None
    launches = launches_of(lines, str(path))
    if not launches and any(map(_is_header, lines)):
        said = "a header and no launch below it: nothing was profiled, or the page was cut"
        raise TableError(said, file=str(path))
    if not launches:
        raise TableError(f"no launch in it; Nsight Compute said: {last_words(lines)}", file=str(path))
    return launches


def check_is_text(path: Path) -> None:
    """Say why a file that should be output of Nsight Compute can be none, where it is that.

    Raises
    ------
    MissingFileError
        If there is no such file.
    TableError
        If it is empty or no text in UTF-8.
    """
    if not is_file(path):
        why = ", which is not a regular file" if exists(path) else ""
        raise MissingFileError(
            f"no file {str(path)!r}{why}; give output of ncu --csv --page raw, or a report (.ncu-rep)"
        )
    try:
        blank = not any(line.strip() for line in _lines(path))
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise TableError(f"not readable as text in UTF-8: {error}", file=str(path)) from None
    if blank:
        raise TableError("the file is empty; give output of ncu --csv --page raw", file=str(path))


def launches_of(lines: Sequence[str], file: str) -> list[Launch]:
    """The launches in the lines of a page; none where there is no table.

    Raises
    ------
    TableError
        If a row has more or fewer cells than the header, two launches of a table have one ID, or there are too many.

    Examples
    --------
    >>> page = ['"ID","Kernel Name","dram__bytes_read.sum"', '"","","Mbyte"', '"0","gemm","1,024.5"']
    >>> launches_of(page, "page.csv")[0].get("dram_read_bytes", "page.csv")
    1024500000.0
    """
    launches: list[Launch] = []
    seen: dict[tuple[object, ...], int] = {}
    for table, line, cells in _rows(lines, file):
        if len(launches) == LAUNCHES_MOST:
            raise TableError(f"more than {LAUNCHES_MOST} launches; split the file", file=file, line=line)
        before = len(launches)
        if NAME in cells:
            _add_metric(launches, line, cells, file)
        else:
            launches.append(Launch(len(launches) + 1, line, cells[KERNEL][0], cells))
        if len(launches) > before:
            one = (table, cells[ID][0], cells.get(PROCESS))
            if one in seen:
                said = f"found {shown(cells[ID][0])} again; allowed: one launch an ID, and line {seen[one]} has it"
                raise TableError(said, file=file, line=line, column=ID)
            seen[one] = line
    return launches


def last_words(lines: Sequence[str]) -> str:
    """What Nsight Compute said at the end, on one line."""
    return " ".join(" ".join(lines).split())[-SAID_MOST:] or "it says nothing"


Cells = dict[str, tuple[str, str]]
"""Column -> cell and unit."""


def _rows(lines: Sequence[str], file: str) -> Iterator[tuple[int, int, Cells]]:
    """Rows of launches with the number of their table and their lines; a second header begins another table."""
    table = 0
    header: list[str] = []
    units: list[str] = []
    for number, line in enumerate(lines, start=1):
        if _is_header(line):
            header, units, table = _cells(line, file, number), [], table + 1
            continue
        if not header or not re.match(r'"[0-9]*",|[0-9]*,', line):
            continue  # a message
        cells = _cells(line, file, number)
        if len(cells) != len(header):
            said = f"{len(cells)} cells where the header has {len(header)}"
            raise TableError(said, file=file, line=number)
        if not cells[0]:
            units = cells
            continue
        yield table, number, dict(zip(header, zip(cells, units or [""] * len(cells), strict=True), strict=True))


def _add_metric(launches: list[Launch], line: int, cells: Cells, file: str) -> None:
    """A line of the long form: one metric of a launch, next to the others of it."""
    same = {column: cells[column] for column in cells if column in (ID, PROCESS, KERNEL)}
    if not launches or any(launches[-1].values.get(column) != cell for column, cell in same.items()):
        others = {column: cells[column] for column in cells if column not in (NAME, UNIT, VALUE)}
        launches.append(Launch(len(launches) + 1, line, cells[KERNEL][0], dict(others)))
    if cells[NAME][0]:  # a line without is a remark on the launch
        values, name, value = launches[-1].values, cells[NAME][0], (cells[VALUE][0], cells[UNIT][0])
        assert isinstance(values, dict)
        if values.setdefault(name, value) != value:  # sections repeat a metric with the same value
            said = f"found {shown(value[0])}; allowed: {shown(values[name][0])}, which this launch has already"
            raise TableError(said, file=file, line=line, column=name)


def _is_header(line: str) -> bool:
    return line.startswith(('"ID",', "ID,")) and KERNEL in line


def _cells(text: str, file: str, line: int) -> list[str]:
    try:
        return next(csv.reader([text]))
    except csv.Error as error:
        raise TableError(f"not readable as CSV: {error}", file=file, line=line) from None


def _lines(path: Path) -> Iterator[str]:
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "rt", encoding="utf-8-sig", newline=None) as text:
        for number in count(1):
            line = text.readline(LINE_MAX + 1)
            if len(line) > LINE_MAX:
                raise TableError(f"a line of more than {LINE_MAX} characters", file=str(path), line=number)
            if not line:
                return
            yield line.rstrip("\r\n")
