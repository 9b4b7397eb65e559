"""A verdict beside what was measured at its point, from a record of ``validation/dsmem.py``."""

import csv
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

from tilesight.display import Displayable
from tilesight.dsmem.alternatives import ALTERNATIVES
from tilesight.dsmem.answer import AlternativeTime
from tilesight.dsmem.published import CLUSTERS
from tilesight.dsmem.verdict import Verdict
from tilesight.errors import MissingFileError, TableError, counted, shown
from tilesight.records.cells import POSITIVE
from tilesight.records.gpus import canonical_gpu, is_known

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

    The TOML file beside the record says on which GPU it was measured (``gpu``). Profiles of a name of one's own are taken
    to be of that GPU; of a what-if copy its parent is.

    Raises
    ------
    MissingFileError
        If there is no such file, or no TOML file beside it.
    TableError
        If it is no such record, of another GPU than the verdict's, a cell is malformed, two rows measure the same, or no
        row measures this point.
    """
    file = Path(path)
    best: dict[Key, float] = {}
    lines: dict[tuple[Key, str], int] = {}
    wanted = (verdict.workload, verdict.dtype, str(verdict.rows), str(verdict.cols))
    rows = list(_rows(file))
    _check_gpu(file, verdict)
    for line, row in rows:
        if tuple(row[name] for name in NEEDED[:4]) != wanted:
            continue
        key = _key(file.name, line, row)
        earlier = lines.setdefault((key, row.get("protocol", "")), line)
        if earlier != line:
            raise TableError(f"measures what line {earlier} does; keep one of them", file=file.name, line=line)
        if row["seconds"] != "":  # else it failed: its text says why
            best[key] = min(_seconds(file.name, line, row["seconds"]), best.get(key, float("inf")))
    if not best:
        at = f"{verdict.workload}, {verdict.dtype}, {verdict.rows} x {verdict.cols}"
        raise TableError(f"no row measures {at}", file=file.name)
    return MeasuredVerdict(verdict, file.name, best)


def _check_gpu(file: Path, verdict: Verdict) -> None:
    about = file.with_suffix(".toml")
    try:
        gpu = tomllib.loads(about.read_text(encoding="utf-8-sig")).get("gpu")
    except FileNotFoundError:
        raise MissingFileError(
            f"no {about.name} beside {str(file)!r}; it says on which GPU the record was measured"
        ) from None
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise TableError(f"is no TOML file: {error}", file=about.name) from None
    if not isinstance(gpu, str) or not gpu.strip():
        raise TableError(f"gpu = {shown(gpu)}; give the name of the GPU, such as 'NVIDIA H200'", file=about.name)
    own = verdict.hardware_parent or verdict.hardware
    if is_known(own) and canonical_gpu(gpu) != own:
        raise TableError(f"was measured on {shown(gpu)}, and the verdict is of {own}", file=about.name)


def _rows(file: Path) -> Iterator[tuple[int, dict[str, str]]]:
    try:
        with file.open(encoding="utf-8-sig", newline="") as stream:
            reader = csv.reader(stream, strict=True)
            header = next(reader, [])
            missing = [name for name in NEEDED if name not in header]
            if missing:
                raise TableError(
                    f"has no column {missing[0]!r}; a record of dsmem has {', '.join(NEEDED)}", file=file.name
                )
            twice = [name for name in header if header.count(name) > 1]
            if twice:
                raise TableError(f"has the column {shown(twice[0])} twice", file=file.name, line=1)
            for cells in reader:
                if len(cells) not in (0, len(header)):
                    said = f"has {counted(len(cells), 'cell')}, and the header {counted(len(header), 'name')}"
                    raise TableError(said, file=file.name, line=reader.line_num)
                if cells:
                    yield reader.line_num, dict(zip(header, cells, strict=True))
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
    value = POSITIVE.parse(text)
    if not isinstance(value, float):
        raise TableError(f"{shown(text)} is not {POSITIVE.allowed}", file=file, line=line, column="seconds")
    return value
