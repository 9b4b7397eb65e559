"""Files that commands read: candidates and problems to rank, estimates to explain."""

import csv
import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from tilesight.cli.asked import number_or_text, sizes
from tilesight.cost.estimate import Estimate
from tilesight.errors import (
    ConfigError,
    MissingFileError,
    ProblemError,
    TableError,
    UnknownDTypeError,
    shown,
    suggestion,
)
from tilesight.files import is_file
from tilesight.kernels.gemm_config import Gemm, GemmConfig
from tilesight.records.cells import decimal

CONFIG_COLUMNS = ("tile", *(field.name for field in fields(GemmConfig)))
"""Columns of a CSV file of candidates, keys of a JSON one; ``tile`` stands for the three sizes, as in 128x256x64."""
LABEL = "label"
PROBLEM_COLUMNS = (*(field.name for field in fields(Gemm)), LABEL)
"""Those of a file of problems; a label is any text, shown beside the answer."""
_Row = tuple[int, dict[str, Any]]
FILE_MOST_BYTES = 2**26
"""Size of a file that is read whole."""
_TRUTH = {"true": True, "false": False, "1": True, "0": False}


@dataclass(frozen=True)
class Shape:
    """One product of a file: its line (JSON: number of the object), and the label that stands beside it."""

    problem: Gemm
    line: int
    label: str | None


def read_candidates(path: str) -> list[GemmConfig]:
    """Configurations from a CSV file (a header, a row each) or a JSON file: a list of objects, or what ``rank`` wrote.

    Of the rankings of several problems each configuration is taken once.

    Raises
    ------
    MissingFileError
        If there is no such file.
    TableError
        If the file is malformed or a configuration is impossible: file, line (JSON: number of the object) and column.
    """
    rows = _rows(path, CONFIG_COLUMNS, "candidates", _ranked_configs)
    return [_config(path, place, row) for place, row in rows]


def read_problems(path: str) -> list[Shape]:
    """Products from a CSV file (a header, a row each) or a JSON file (a list of objects), in the words of ``Gemm``.

    An unknown column is refused, as it may be a column misspelt; a column ``label`` may hold any text.

    Raises
    ------
    MissingFileError
        If there is no such file.
    TableError
        If the file is malformed or a product makes no sense: file, line (JSON: number of the object) and column.
    """
    return [_shape(path, place, row) for place, row in _rows(path, PROBLEM_COLUMNS, "problems")]


def _ranked_configs(data: Any) -> Any:
    """The configurations in what ``rank gemm --json`` or ``rank shapes --json`` wrote; other data as they are."""
    if not isinstance(data, dict):
        return data
    rankings = data.get("rankings", [data])
    found: list[Any] = []
    for ranking in rankings if isinstance(rankings, list) else [None]:
        ranked = ranking.get("ranked") if isinstance(ranking, dict) else None
        if not isinstance(ranked, list):
            return data
        found += [row.get("config_fields") if isinstance(row, dict) else row for row in ranked]
    return [row for place, row in enumerate(found) if row not in found[:place]] if "rankings" in data else found


def _rows(path: str, columns: Sequence[str], what: str, inside: Callable[[Any], Any] = lambda data: data) -> list[_Row]:
    """Rows of a file; ``inside`` finds them in JSON that is no list."""
    text = _text(path)
    if path.endswith(".json"):
        rows = _json_rows(path, inside(parse_json(path, text)), columns)
    else:
        rows = _csv_rows(path, text, columns)
    if not rows:
        raise TableError(f"no {what} in it", file=path)
    return rows


def _text(path: str) -> str:
    file = Path(path)
    if not is_file(file):
        raise MissingFileError(f"no file {path!r}")
    size = file.stat().st_size
    if size > FILE_MOST_BYTES:
        raise TableError(f"{size} B is more than the {FILE_MOST_BYTES} B that are read", file=path)
    try:
        return file.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise TableError("not a text file in UTF-8", file=path) from None


def _csv_rows(path: str, text: str, columns: Sequence[str]) -> list[_Row]:
    try:
        reader = csv.reader(text.splitlines(keepends=True), strict=True)
        lines = [(reader.line_num, cells) for cells in reader if cells]
    except csv.Error as error:
        raise TableError(f"not a CSV file: {error}", file=path) from None
    if not lines:
        raise TableError("the file is empty; expected a header line with column names", file=path, line=1)
    header = lines[0][1]
    for name in header:
        if name not in columns or header.count(name) > 1:
            what = "column given twice" if name in columns else f"unknown column; {suggestion(name, columns, 20)}"
            raise TableError(what, file=path, line=1, column=name)
    for line, cells in lines[1:]:
        if len(cells) != len(header):
            raise TableError(f"{len(cells)} cells where the header has {len(header)}", file=path, line=line)
    return [
        (line, {name: cell for name, cell in zip(header, cells, strict=True) if cell != ""})
        for line, cells in lines[1:]
    ]


def _json_rows(path: str, rows: Any, columns: Sequence[str]) -> list[_Row]:
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        or_ranked = ", or what rank --json wrote" if columns is CONFIG_COLUMNS else ""
        raise TableError(f"expected a list of objects, one a row{or_ranked}", file=path)
    for place, row in enumerate(rows, start=1):
        for name in row:
            if name not in columns:
                raise TableError(f"unknown key; {suggestion(name, columns, 20)}", file=path, line=place, column=name)
    return list(enumerate(rows, start=1))


def _given(row: dict[str, Any], flags: Sequence[str]) -> dict[str, Any]:
    """Cells as numbers and truths, where they read as such."""
    given = {name: number_or_text(value) if isinstance(value, str) else value for name, value in row.items()}
    for name in flags:
        if name in given and not isinstance(given[name], bool):
            given[name] = _TRUTH.get(str(given[name]).lower(), given[name])
    return given


def _shape(path: str, place: int, row: dict[str, Any]) -> Shape:
    label = row.get(LABEL)
    if label is not None and not isinstance(label, str):
        raise TableError(f"{shown(label)} is no text", file=path, line=place, column=LABEL)
    return Shape(_problem(path, place, {name: value for name, value in row.items() if name != LABEL}), place, label)


def _problem(path: str, place: int, row: dict[str, Any]) -> Gemm:
    given = _given(row, ("bias", "quantise_a"))
    if isinstance(given.get("beta"), str):
        given["beta"] = number if (number := decimal(given["beta"])) is not None else given["beta"]
    missing = [name for name in ("m", "n", "k") if given.get(name) is None]
    try:
        if missing:
            raise ProblemError(f"{', '.join(missing)} missing")
        return Gemm(**given)
    except (ProblemError, UnknownDTypeError) as error:
        raise TableError(str(error), file=path, line=place) from None


def _config(path: str, place: int, row: dict[str, Any]) -> GemmConfig:
    given = _given(row, ("swap_ab", "pingpong", "cta_pair"))
    try:
        if "tile" in given:
            if given.keys() & {"tile_m", "tile_n", "tile_k"}:
                raise ConfigError("tile and tile_m, tile_n, tile_k are given; give one of the two")
            tile = sizes("tile", str(given.pop("tile")), 3, "128x256x64")
            given |= dict(zip(("tile_m", "tile_n", "tile_k"), tile, strict=True))
        missing = [name for name in ("tile_m", "tile_n", "tile_k", "stages") if given.get(name) is None]
        if missing:
            raise ConfigError(f"{', '.join(missing)} missing")
        if given.get("split_k") == "auto":
            given["split_k"] = None
        return GemmConfig(**given)
    except ConfigError as error:
        raise TableError(str(error), file=path, line=place) from None


def parse_json(path: str, text: str) -> Any:
    """The JSON value of a text; NaN and Infinity are no JSON.

    Raises
    ------
    TableError
        If it is no JSON, or an object has a key twice.
    """

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        for key, times in Counter(key for key, _ in pairs).items():
            if times > 1:
                raise ValueError(f"key {shown(key)} stands {times} times in one object")
        return dict(pairs)

    def refuse(name: str) -> None:
        raise ValueError(f"{name} is no JSON number")

    try:
        return json.loads(text, parse_constant=refuse, object_pairs_hook=once)
    except (ValueError, RecursionError) as error:
        raise TableError(f"not a JSON file: {error}", file=path) from None


def read_estimate(path: str) -> Estimate:
    """An estimate as ``tilesight predict --json`` writes it.

    Raises
    ------
    MissingFileError
        If there is no such file.
    TableError
        If the file holds no estimate of this release's schema.
    """
    data = parse_json(path, _text(path))
    try:
        estimate = Estimate.from_dict(data)
    except ConfigError as error:
        raise TableError(str(error), file=path) from None
    for name in _AT_LEAST_ONE:
        if not getattr(estimate, name):
            raise TableError(f"estimate field {name} = 0 makes no sense", file=path)
    if not estimate.period_s:
        raise TableError("estimate field period_s = {} makes no sense: a k-step has a bound", file=path)
    return estimate


_AT_LEAST_ONE = ("ctas", "rounds", "ctas_per_sm", "split_k")
"""Counts of every launch."""
