"""Files that commands read: candidates and problems to rank, estimates to explain."""

from dataclasses import dataclass
from typing import Any

from tilesight.cost.estimate import Estimate
from tilesight.errors import ConfigError, ProblemError, TableError, UnknownDTypeError, shown
from tilesight.kernels.gemm_config import Gemm, GemmConfig
from tilesight.records.given import (
    CONFIG_COLUMNS,
    PROBLEM_COLUMNS,
    config_of_row,
    gemm_of,
    parse_json,
    read_rows,
    read_text,
)
from tilesight.search import estimate_of

LABEL = "label"
"""A column of a file of problems: any text, shown beside the answer."""


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
    found = []
    for place, row in read_rows(path, CONFIG_COLUMNS, "candidates", _ranked_configs):
        try:
            found.append(config_of_row(row))
        except ConfigError as error:
            raise TableError(str(error), file=path, line=place) from None
    return found


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
    return [_shape(path, place, row) for place, row in read_rows(path, (*PROBLEM_COLUMNS, LABEL), "problems")]


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


def _shape(path: str, place: int, row: dict[str, Any]) -> Shape:
    label = row.get(LABEL)
    if label is not None and not isinstance(label, str):
        raise TableError(f"{shown(label)} is no text", file=path, line=place, column=LABEL)
    try:
        problem = gemm_of({name: value for name, value in row.items() if name != LABEL})
    except (ProblemError, UnknownDTypeError) as error:
        raise TableError(str(error), file=path, line=place) from None
    return Shape(problem, place, label)


def read_estimate(path: str) -> Estimate:
    """An estimate as ``tilesight predict --json`` writes it.

    Raises
    ------
    MissingFileError
        If there is no such file.
    TableError
        If the file holds no estimate of this release's schema.
    """
    data = parse_json(path, read_text(path))
    try:
        estimate = estimate_of(data)
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
