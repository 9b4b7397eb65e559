"""Rows of the records `dsmem` and `dsmem_triton`: columns, names, appending row by row, what is there already.

A row is written as soon as it is measured, so that what stopped goes on where it was. Pure Python, no GPU.
"""

from __future__ import annotations

import csv
import dataclasses
import pathlib
from collections.abc import Iterable, Mapping, Sequence

from script import refuse

COMPULSORY_BYTES = {  # fp32, a row element: each input read once, each output written once
    "layernorm_backward": 12,
    "weighted_standardisation_backward": 16,
    "pearson_backward": 16,
    "softmax_backward": 12,
    "lars_momentum": 20,
    "quantise_int8": 5,
}
BF16_BYTES = {
    name: (count + 1) / 2 if name == "quantise_int8" else count / 2 for name, count in COMPULSORY_BYTES.items()
}
WORKLOADS = tuple(COMPULSORY_BYTES)
ROWS = {name: 2048 if name == "layernorm_backward" else 4096 for name in WORKLOADS}
WIDTHS = (4096, 8192, 16384, 32768, 65536, 5120, 6000, 12288, 20000, 24576, 40960, 49152, 57344)
DTYPES = ("fp32", "bf16")
SOURCES = {"cuda": ("cluster", "staged", "reread"), "torch": ("torch_compile",), "triton": ("triton",)}
"""Who measures which alternatives."""
ALTERNATIVES = tuple(name for names in SOURCES.values() for name in names)

KEY = ("workload", "dtype", "rows", "cols", "alternative", "cluster", "protocol")
COUNTED = ("dram_read_bytes_per_element", "dram_write_bytes_per_element", "dshared_bytes_per_element")
COLUMNS = (
    *KEY,
    "seconds",
    "spread",
    "repeats",
    "launches",
    "compulsory_bytes",
    "bytes_per_s",
    *COUNTED,
    "max_error",
    "configuration",
    "kernels",
    "kinds",
    "passes",
    "loads",
    "error",
)
CANDIDATE_COLUMNS = (
    *KEY[:4],
    "kernel",
    "block",
    "warps",
    "stages",
    "programs",
    "registers",
    "spills",
    "smem_bytes",
    "seconds",
    "spread",
    "max_error",
    "error",
)


@dataclasses.dataclass(frozen=True)
class Point:
    """One workload at one size."""

    workload: str
    dtype: str
    rows: int
    cols: int

    @property
    def compulsory_bytes(self) -> int:
        """Bytes that a kernel which reads and writes everything once moves; vectors shared by all rows not counted."""
        table = COMPULSORY_BYTES if self.dtype == "fp32" else BF16_BYTES
        return round(table[self.workload] * self.rows * self.cols)

    def columns(self) -> dict:
        return dataclasses.asdict(self)


def points(workloads: Sequence[str], widths: Sequence[int], rows: int | None, dtype: str) -> list[Point]:
    """Every workload at every width, width by width, so that what is cut short has all workloads."""
    return [Point(name, dtype, rows or ROWS[name], cols) for cols in widths for name in workloads]


class Record:
    """A CSV file that grows by whole rows; cells are text, empty where unknown."""

    def __init__(self, path: pathlib.Path, columns: Sequence[str] = COLUMNS):
        self.path, self.columns = path, tuple(columns)
        self.rows = self._read() if path.exists() and path.stat().st_size else []

    def _read(self) -> list[dict]:
        with open(self.path, newline="") as file:
            reader = csv.DictReader(file)
            if tuple(reader.fieldnames or ()) != self.columns:
                refuse(f"{self.path}: other columns than this script writes; give another folder")
            return [row for row in reader if None not in row.values()]  # a row cut short is measured again

    def append(self, row: Mapping) -> None:
        """Write one row and keep it; unknown columns are refused, missing ones stay empty."""
        if unknown := set(row) - set(self.columns):
            refuse(f"{self.path}: no column {', '.join(sorted(unknown))}; columns: {', '.join(self.columns)}")
        self.rows.append({name: cell(row.get(name)) for name in self.columns})
        if len(self.rows) == 1 or not self.path.exists():
            self.write()
            return
        with open(self.path, "a", newline="") as file:
            csv.DictWriter(file, self.columns).writerow(self.rows[-1])

    def write(self) -> None:
        """Write all rows anew."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with open(self.path, "w", newline="") as file:
            writer = csv.DictWriter(file, self.columns)
            writer.writeheader()
            writer.writerows(self.rows)

    def of(self, point: Point, alternatives: Iterable[str]) -> list[dict]:
        """Rows of these alternatives at a point."""
        wanted = {name: str(value) for name, value in point.columns().items()}
        among = set(alternatives)
        return [
            row
            for row in self.rows
            if row["alternative"] in among and all(row[name] == value for name, value in wanted.items())
        ]

    def has(self, point: Point, alternatives: Iterable[str]) -> bool:
        """Whether one of these alternatives has a row at a point, measured or failed."""
        return bool(self.of(point, alternatives))

    def forget_failed(self) -> None:
        """Drop rows of alternatives that failed, but keep those that are illegal, so that they are measured again."""
        self.rows = [row for row in self.rows if not row["error"] or row["error"].startswith("illegal: ")]
        if self.path.exists():
            self.write()

    def fastest(self, point: Point, alternatives: Iterable[str]) -> dict | None:
        """The fastest of these alternatives at a point that is right; None where there is none."""
        timed = [row for row in self.of(point, alternatives) if row["seconds"] and not row["error"]]
        return min(timed, key=lambda row: float(row["seconds"]), default=None)


def cell(value) -> str:
    """Text of a value: six digits of a number, empty for what is unknown, one line of a text.

    >>> cell(None), cell(1.23456789e-05), cell(3), cell(float("nan"))
    ('', '1.23457e-05', '3', '')
    """
    if value is None or (isinstance(value, float) and value != value):
        return ""
    return f"{value:.6g}" if isinstance(value, float) else " ".join(str(value).split())


def timed_row(point: Point, alternative: str, seconds: float, spread: float, **more) -> dict:
    """A row with a time and the rate that follows from it."""
    rate = dict(compulsory_bytes=point.compulsory_bytes, bytes_per_s=point.compulsory_bytes / seconds)
    return (
        point.columns() | dict(alternative=alternative, cluster=1) | dict(seconds=seconds, spread=spread) | rate | more
    )


def failed_row(point: Point, alternative: str, error: object, **more) -> dict:
    """A row that says why there is no time."""
    text = f"{type(error).__name__}: {error}" if isinstance(error, BaseException) else str(error)
    return point.columns() | dict(alternative=alternative, cluster=1, error=text[:400] or "no reason given") | more


def header_text(header: Mapping) -> str:
    """A record's TOML file: strings, numbers and lists of numbers.

    >>> print(header_text({"gpu": 'a "b"', "sm_clock_mhz": [1980, 1980], "power_limit_w": 700.0}), end="")
    gpu = 'a "b"'
    sm_clock_mhz = [1980, 1980]
    power_limit_w = 700.0
    """
    lines = []
    for key, value in header.items():
        quote = "'" if '"' in str(value) or "\\" in str(value) else '"'
        text = f"{quote}{cell(str(value)).replace(quote, ' ')}{quote}" if isinstance(value, str) else str(value)
        lines.append(f"{key} = {text}")
    return "\n".join(lines) + "\n"
