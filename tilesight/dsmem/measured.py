"""A verdict beside what was measured at its point, from a record of ``validation/dsmem.py``."""

import csv
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import isfinite
from os import PathLike
from pathlib import Path
from typing import Any

from tilesight.display import Displayable
from tilesight.dsmem.alternatives import ALTERNATIVES
from tilesight.dsmem.answer import AlternativeTime
from tilesight.dsmem.published import CLUSTERS
from tilesight.dsmem.verdict import Verdict
from tilesight.errors import MissingFileError, TableError, shown

NEEDED = ("workload", "dtype", "rows", "cols", "alternative", "cluster", "seconds")
Key = tuple[str, int]
"""Name of an alternative and its cluster size, 1 without."""


@dataclass(frozen=True)
class MeasuredVerdict(Displayable):
    """A verdict and the measured seconds of each alternative, the fastest protocol of each cluster size.

    Attributes
    ----------
    file
        Name of the record.
    seconds
        Measured, by name and cluster size; absent where nothing was measured.
    """

    verdict: Verdict
    file: str
    seconds: Mapping[Key, float]

    def measured(self, time: AlternativeTime | None) -> float | None:
        """Measured seconds of an alternative, None where it was not measured."""
        return None if time is None else self.seconds.get((time.name, time.cluster))

    @property
    def best(self) -> Key:
        """The fastest that was measured."""
        return min(self.seconds, key=lambda key: self.seconds[key])

    @property
    def regret(self) -> float | None:
        """Measured time of what the verdict chose over that of the best; None where the choice was not measured."""
        chosen = self.measured(self.verdict.best)
        return None if chosen is None else chosen / self.seconds[self.best]

    @property
    def cluster_paid(self) -> bool | None:
        """Whether the fastest cluster was faster than everything else; None where one side was not measured."""
        sides = [
            [value for (name, _), value in self.seconds.items() if (name == "cluster") == side]
            for side in (True, False)
        ]
        return min(sides[0]) < min(sides[1]) if all(sides) else None

    def to_dict(self) -> dict[str, Any]:
        """The verdict's data, and what was measured beside them."""
        rows = [{"name": name, "cluster": cluster, "seconds": value} for (name, cluster), value in self.seconds.items()]
        best = self.best
        about = {
            "file": self.file,
            "times": rows,
            "best": {"name": best[0], "cluster": best[1], "seconds": self.seconds[best]},
            "cluster_paid": self.cluster_paid,
            "regret": self.regret,
        }
        return {**self.verdict.to_dict(), "measured": about}


def beside(verdict: Verdict, path: str | PathLike[str]) -> MeasuredVerdict:
    """The verdict beside the rows of a record that measure its workload, dtype, rows and columns.

    Raises
    ------
    MissingFileError
        If there is no such file.
    TableError
        If it is no such record, a cell is malformed, or no row measures this point.
    """
    file = Path(path)
    best: dict[Key, float] = {}
    wanted = (verdict.workload, verdict.dtype, str(verdict.rows), str(verdict.cols))
    for line, row in _rows(file):
        if tuple(row[name] for name in NEEDED[:4]) != wanted or row["seconds"] == "":
            continue  # another point, or one that failed: its text says why
        key = _key(file.name, line, row)
        best[key] = min(_seconds(file.name, line, row["seconds"]), best.get(key, float("inf")))
    if not best:
        at = f"{verdict.workload}, {verdict.dtype}, {verdict.rows} x {verdict.cols}"
        raise TableError(f"no row measures {at}", file=file.name)
    return MeasuredVerdict(verdict, file.name, best)


def _rows(file: Path) -> Iterator[tuple[int, dict[str, str]]]:
    try:
        with file.open(encoding="utf-8", newline="") as stream:
            reader = csv.DictReader(stream, restval="", strict=True)
            missing = [name for name in NEEDED if name not in (reader.fieldnames or ())]
            if missing:
                raise TableError(
                    f"has no column {missing[0]!r}; a record of dsmem has {', '.join(NEEDED)}", file=file.name
                )
            for row in reader:
                yield reader.line_num, row
    except FileNotFoundError:
        raise MissingFileError(f"no record {str(file)!r}") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise TableError(f"is no table of text: {error}", file=file.name) from None


def _key(file: str, line: int, row: Mapping[str, str]) -> Key:
    name, cluster = row["alternative"], row["cluster"]
    if name not in ALTERNATIVES:
        allowed = ", ".join(ALTERNATIVES)
        raise TableError(
            f"{shown(name)} is no alternative; known: {allowed}", file=file, line=line, column="alternative"
        )
    sizes = [str(size) for size in CLUSTERS] if name == "cluster" else ["1", ""]
    if cluster not in sizes:
        allowed = ", ".join(filter(None, sizes))
        raise TableError(
            f"{shown(cluster)} is not allowed for {name}; {allowed} is", file=file, line=line, column="cluster"
        )
    return name, int(cluster or 1)


def _seconds(file: str, line: int, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not (isfinite(value) and value > 0):
        raise TableError(f"{shown(text)} is not a finite number above 0", file=file, line=line, column="seconds")
    return value
