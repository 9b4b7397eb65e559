"""Problems and configurations as people write them: rows of CSV and JSON files into Gemm and GemmConfig.

Text that is a whole number becomes one; other text is passed on as it is, so that the model's own checks name it.
"""

import csv
import json
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from tilesight.errors import ConfigError, MissingFileError, ProblemError, TableError, shown, suggestion
from tilesight.files import is_file
from tilesight.kernels.gemm_config import Gemm, GemmConfig
from tilesight.records.cells import decimal

PROBLEM_COLUMNS = tuple(field.name for field in fields(Gemm))
CONFIG_COLUMNS = ("tile", *(field.name for field in fields(GemmConfig)))
"""Columns of a CSV file, keys of a JSON one; ``tile`` stands for the three sizes, as in 128x256x64."""
PROBLEM_FLAGS = ("bias", "quantise_a")
CONFIG_FLAGS = ("swap_ab", "pingpong", "cta_pair")
FILE_MOST_BYTES = 2**26
"""Size of a file that is read whole."""
_TRUTH = {"true": True, "false": False, "1": True, "0": False}
_WHOLE = re.compile(r"[+-]?[0-9]{1,300}")

Row = tuple[int, dict[str, Any]]
"""Line (JSON: number of the object), and values by column; empty cells are left out."""


def number_or_text(text: str) -> int | str:
    """A whole number, or the text where it is none.

    Examples
    --------
    >>> number_or_text("4096"), number_or_text("-1"), number_or_text("4096.5"), number_or_text("1e3")
    (4096, -1, '4096.5', '1e3')
    """
    return int(text) if _WHOLE.fullmatch(text) else text


def sizes(name: str, text: str, count: int, example: str) -> list[int | str]:
    """The ``count`` numbers of ``AxBxC``.

    Raises
    ------
    ConfigError
        If there are more or fewer.

    Examples
    --------
    >>> sizes("tile", "128x256x64", 3, "128x256x64")
    [128, 256, 64]
    """
    parts = text.lower().split("x")
    if len(parts) != count:
        raise ConfigError(f"{name} = {shown(text)} is not {count} sizes; give them as in {example}")
    return [number_or_text(part) for part in parts]


def read_rows(
    path: str, columns: Sequence[str], what: str, inside: Callable[[Any], Any] = lambda data: data
) -> list[Row]:
    """Rows of a CSV file (a header, a row each) or a JSON file (a list of objects).

    Parameters
    ----------
    columns
        Names that may be given; any other is refused, as it may be one misspelt.
    what
        What the rows are, in a word.
    inside
        Finds the rows in JSON that is no list.

    Raises
    ------
    MissingFileError
        If there is no such file.
    TableError
        If the file is malformed or has no row.
    """
    text = read_text(path)
    if path.endswith(".json"):
        rows = _json_rows(path, inside(parse_json(path, text)), columns)
    else:
        rows = _csv_rows(path, text, columns)
    if not rows:
        raise TableError(f"no {what} in it", file=path)
    return rows


def read_text(path: str) -> str:
    """The text of a file.

    Raises
    ------
    MissingFileError
        If there is no such file.
    TableError
        If it is larger than ``FILE_MOST_BYTES`` or no text in UTF-8.
    """
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


def _csv_rows(path: str, text: str, columns: Sequence[str]) -> list[Row]:
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


def _json_rows(path: str, rows: Any, columns: Sequence[str]) -> list[Row]:
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        or_ranked = ", or what rank --json wrote" if tuple(columns) == CONFIG_COLUMNS else ""
        raise TableError(f"expected a list of objects, one a row{or_ranked}", file=path)
    for place, row in enumerate(rows, start=1):
        for name in row:
            if name not in columns:
                raise TableError(f"unknown key; {suggestion(name, columns, 20)}", file=path, line=place, column=name)
    return list(enumerate(rows, start=1))


def _given(row: Mapping[str, Any], flags: Sequence[str]) -> dict[str, Any]:
    """Cells as numbers and truths, where they read as such."""
    given = {name: number_or_text(value) if isinstance(value, str) else value for name, value in row.items()}
    for name in flags:
        if name in given and not isinstance(given[name], bool):
            given[name] = _TRUTH.get(str(given[name]).lower(), given[name])
    return given


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


def gemm_of(row: Mapping[str, Any]) -> Gemm:
    """The product that a row states, in the words of :class:`Gemm`; values may be text.

    Raises
    ------
    ProblemError
        If a size is missing or the product makes no sense.
    UnknownDTypeError
        If the type is unknown.

    Examples
    --------
    >>> gemm_of({"m": "64", "n": "4096", "k": "4096", "dtype": "fp16"})
    Gemm(m=64, n=4096, k=4096, dtype='fp16', layout_a='row', layout_b='row', batch=1, output='fp16', beta=0.0, ...)
    """
    given = _given(row, PROBLEM_FLAGS)
    if isinstance(given.get("beta"), str):
        given["beta"] = number if (number := decimal(given["beta"])) is not None else given["beta"]
    missing = [name for name in ("m", "n", "k") if given.get(name) is None]
    if missing:
        raise ProblemError(f"{', '.join(missing)} missing")
    return Gemm(**given)


def config_of_row(row: Mapping[str, Any]) -> GemmConfig:
    """The configuration that a row states, in the words of :class:`GemmConfig`; values may be text.

    Raises
    ------
    ConfigError
        If tile or stages are missing, the tile is given twice, or the configuration is impossible.

    Examples
    --------
    >>> config_of_row({"tile": "128x256x64", "stages": "4"})
    GemmConfig(128x256x64, 4 stages, 8 warps, warp_specialized)
    """
    given = _given(row, CONFIG_FLAGS)
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
