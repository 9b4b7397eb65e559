"""Predict every row of a measured table, in batches of one GPU and one data type."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache as memoised
from os import PathLike, fspath
from pathlib import Path
from types import NoneType

import numpy as np
from numpy.typing import NDArray

from tilesight.candidates import gemm_candidates
from tilesight.compare.owners import Hardware, assign_hardware, what_if
from tilesight.compare.predictions import Predictions
from tilesight.compare.result import Result
from tilesight.cost.clock import busy_seconds
from tilesight.cost.estimate import LIKELY, Estimates
from tilesight.cost.price import Situation
from tilesight.dtypes import dtype
from tilesight.errors import ConfigError, TableError, UnsupportedError, shown
from tilesight.files import is_same_file
from tilesight.hardware.profile import Profile
from tilesight.kernels.gemm_config import Gemm, GemmConfig
from tilesight.ncu.page import ID, KERNEL, check_is_text
from tilesight.ncu.points import Given, Point
from tilesight.ncu.repeats import read_counted
from tilesight.ncu.report import is_report
from tilesight.records import (
    COUNTED_CACHES,
    NCU,
    PROTOCOLS,
    Protocol,
    Requests,
    Table,
    canonical_gpu,
    counters,
    filter_rows,
    parse_where,
    read_header,
    read_table,
    requests,
)
from tilesight.records.protocol import PredictMany
from tilesight.search import price_many, rank_configs

ChooseConfig = Callable[[Gemm, Profile], GemmConfig]
MAYBE_PREDICTED = ("crossing_bytes", "clock_hz")
"""Counters that are predicted where the model has such a column."""
DRIFT_READS = "drift_read_bytes"


def price_rows(
    problems: Sequence[Gemm],
    configs: Sequence[GemmConfig],
    *,
    hardware: Profile,
    cache: str = "warm",
    clock: str | NDArray[np.float64] = "burst",
    resident: Mapping[str, NDArray[np.float64]] | None = None,
    dirty_bytes: float = 0.0,
    skip_refused: bool = True,
) -> Estimates:
    """``tilesight.predict_many`` for protocols: ``resident`` may hold one share a row."""
    situation = Situation(cache, busy_seconds(clock), resident=resident, dirty_bytes=dirty_bytes)
    return price_many(problems, configs, hardware, situation, skip_refused=skip_refused)


def best_config(problem: Gemm, hardware: Profile) -> GemmConfig:
    """The configuration predicted fastest, for a repeated launch at burst clock: libraries choose by shape alone."""
    situation = Situation("warm", busy_seconds("burst"))
    return rank_configs(problem, gemm_candidates(problem, hardware), hardware, situation, 1).best


def compare_records(
    table: str | Path | Table,
    *,
    hardware: Hardware | None = None,
    where: Mapping[str, object] | Iterable[str] = (),
    kind: str | None = None,
    auto_config: bool = False,
    points: Given | None = None,
    kernel: str | None = None,
    cache: str | None = None,
    rows: str | Path | None = None,
    progress: Callable[[int, int], None] | None = None,
    predict_many: PredictMany = price_rows,
    choose_config: ChooseConfig = best_config,
) -> Result:
    """Predict every row of a measured table, or every point of a report of Nsight Compute, and score the predictions.

    Parameters
    ----------
    table
        A ``.csv`` or ``.csv.gz`` file, or a table that was read before; a report (``.ncu-rep``) or the output of
        ``ncu --csv --page raw``.
    hardware
        Profile, its name or its file. Needed where the table has no ``gpu`` column or the report no name of the GPU; picks
        rows where it has one.
    where
        ``["m=1,16", ...]`` or ``{"m": [1, 16]}``: keep rows whose column is any of the values.
    kind
        Name of the kind of table; None recognises it by its header.
    auto_config
        Let the model choose configurations even where the table states them.
    points
        Of a report: what its launches compute and how, as a file of points (see :func:`tilesight.ncu.read_points`), one
        :class:`tilesight.ncu.Point` or several.
    kernel
        Of a report: regular expression; only kernels whose name matches are taken.
    cache
        Of a report: ``"cold"`` (``ncu --cache-control all``, its default and ours) or ``"warm"`` (``none``, after launches
        on the same buffers).
    rows
        Write one line a prediction to this CSV file.
    progress
        Called with (rows done, rows in all) after each batch.
    predict_many, choose_config
        Another model to score, with the signatures of :func:`price_rows` and :func:`best_config`.

    Raises
    ------
    MissingFileError, TableError
        If the table is missing or malformed, nothing is left to compare, ``rows`` is the table itself, or launches and
        points don't fit.
    MissingToolError
        If it is a report and NVIDIA's package ``ncu_report`` can't be imported.
    UnknownProfileError, ProfileError
        If ``hardware`` names no profile or a broken one.
    ConfigError
        If an argument is of another kind, or belongs to reports alone.
    """
    _check_kinds(
        {
            "table": table,
            "hardware": hardware,
            "where": where,
            "kind": kind,
            "auto_config": auto_config,
            "points": points,
            "kernel": kernel,
            "cache": cache,
            "rows": rows,
            "progress": progress,
            "predict_many": predict_many,
            "choose_config": choose_config,
        }
    )
    file = table.file if isinstance(table, Table) else table
    if rows is not None and is_same_file(Path(rows), Path(file)):
        raise TableError(f"rows = {str(rows)!r} is the table itself and would be lost; write to another file")
    if rows is not None and isinstance(points, str | PathLike) and is_same_file(Path(rows), Path(points)):
        raise TableError(f"rows = {str(rows)!r} is the file of points and would be lost; write to another file")
    conditions = parse_where(where)
    left_out: Mapping[str, int] = {}
    if not isinstance(table, Table) and (kind == NCU.name or (kind is None and is_report(Path(table)))):
        counted = read_counted(Path(table), points, kernel)
        table, left_out = counted.table, counted.left_out
    else:
        options = {"points": points, "kernel": kernel, "cache": cache}
        if not isinstance(table, Table) and any(value is not None for value in options.values()):
            _check_may_be_table(Path(table), kind)
        _check_no_report(file, {"points": points, "kernel": kernel})
        table = table if isinstance(table, Table) else read_table(table, table=kind)
    protocols = _protocols(table, cache)
    table = filter_rows(table, conditions)
    table, owners = assign_hardware(table, hardware)
    asked = requests(table, auto_config=auto_config)
    columns = _Columns(table, protocols)
    columns.refuse(asked.refusals)
    columns.refuse({row: reason for row, reason in enumerate(owners) if isinstance(reason, str)})
    choose = memoised(choose_config)
    done = 0
    for profile, batch in _batches(asked, owners):
        problems, configs, priced = _with_configs(asked, profile, batch, choose, columns)
        for number, protocol in enumerate(protocols):
            if len(priced):
                _predict(columns, problems, configs, profile, priced, number, protocol, predict_many)
        done += len(batch)
        if progress is not None:
            progress(done, len(table))
    names = [owner if isinstance(owner, str) else owner.name for owner in owners]
    gpus = [canonical_gpu(name) for name in table["gpu"]] if "gpu" in table else names
    result = Result(
        table,
        protocols,
        columns.predictions(gpus, asked),
        ranked=asked.configs is not None,
        where=conditions,
        hardware={owner.name: owner.hash for owner in owners if isinstance(owner, Profile)},
        what_if=what_if(owners),
        left_out=left_out,
    )
    if rows is not None:
        result.write_rows(rows)
    return result


def _check_kinds(arguments: Mapping[str, object]) -> None:
    """Refuse arguments of the wrong kind, by name."""
    path = (str, PathLike)
    kinds: dict[str, tuple[tuple[type, ...], str]] = {
        "table": ((*path, Table), "a file or a Table"),
        "hardware": ((*path, Profile, NoneType), "a Profile, its name or its file"),
        "where": ((Mapping, Iterable), "texts such as 'm=16', or values by column"),
        "kind": ((str, NoneType), "the name of a kind of table"),
        "auto_config": ((bool, np.bool_), "True or False"),
        "points": ((*path, Point, Sequence, NoneType), "a file of points, a tilesight.ncu.Point, or several"),
        "kernel": ((str, NoneType), "a regular expression"),
        "cache": ((str, NoneType), f"one of {', '.join(map(repr, COUNTED_CACHES))}"),
        "rows": ((*path, NoneType), "the file to write"),
        "progress": ((Callable, NoneType), "a function"),  # type: ignore[dict-item]
        "predict_many": ((Callable,), "a function"),  # type: ignore[dict-item]
        "choose_config": ((Callable,), "a function"),  # type: ignore[dict-item]
    }
    for name, (allowed, words) in kinds.items():
        given = arguments[name]
        wrong = not isinstance(given, allowed)
        if wrong or (isinstance(given, PathLike) and not isinstance(fspath(given), str)):
            raise ConfigError(f"{name} = {shown(given)}; give {words}")


def _check_may_be_table(path: Path, kind: str | None) -> None:
    """Say what is wrong with a file that is given as output of Nsight Compute and is neither that nor a measured table."""
    check_is_text(path)
    try:
        read_header(path, table=kind)
    except TableError as error:
        raise TableError(
            f"no header with the columns {ID!r} and {KERNEL!r} in it, so that it is no output of ncu --csv --page raw; and "
            f"as a measured table: {error.message}",
            file=str(path),
            line=error.line,
        ) from None


def _check_no_report(file: object, options: Mapping[str, object]) -> None:
    """Refuse options of reports for a table, whose rows say what they are."""
    for name, value in options.items():
        if value is not None:
            raise ConfigError(f"{name} belongs to reports of Nsight Compute; {file} is a table")


def _protocols(table: Table, cache: str | None) -> tuple[Protocol, ...]:
    if table.kind.name != NCU.name:
        _check_no_report(table.file, {"cache": cache})
        return PROTOCOLS[table.kind.name]
    cache = "cold" if cache is None else cache
    if cache not in COUNTED_CACHES:
        raise ConfigError(f"cache = {shown(cache)}; give {' or '.join(map(repr, COUNTED_CACHES))}")
    return COUNTED_CACHES[cache]


def _batches(asked: Requests, owners: list[Profile | str]) -> Iterator[tuple[Profile, list[int]]]:
    """Rows that can be predicted together: of one profile and one dtype, in order of first appearance."""
    together: dict[tuple[int, str], tuple[Profile, list[int]]] = {}
    for row, (problem, owner) in enumerate(zip(asked.problems, owners, strict=True)):
        if problem is not None and not isinstance(owner, str):
            together.setdefault((id(owner), problem.dtype), (owner, []))[1].append(row)
    yield from together.values()


def _with_configs(
    asked: Requests, profile: Profile, batch: list[int], choose: ChooseConfig, columns: _Columns
) -> tuple[list[Gemm], list[GemmConfig], NDArray[np.intp]]:
    """Problems and configurations of a batch, and their rows; rows for which none can be chosen are refused."""
    problems, configs, rows = [], [], []
    for row in batch:
        problem, config = asked.problems[row], asked.configs[row] if asked.configs else None
        if problem is None:
            continue
        try:
            configs.append(choose(problem, profile) if config is None else config)
        except (ConfigError, UnsupportedError) as error:
            columns.refuse({row: str(error)})
            continue
        columns.config[row] = str(configs[-1])
        problems.append(problem)
        rows.append(row)
    return problems, configs, np.array(rows, dtype=np.intp)


def _predict(
    columns: _Columns,
    problems: list[Gemm],
    configs: list[GemmConfig],
    profile: Profile,
    rows: NDArray[np.intp],
    number: int,
    protocol: Protocol,
    predict_many: PredictMany,
) -> None:
    table = columns.table.take(rows)
    try:
        estimates = protocol.estimate(problems, configs, table, hardware=profile, predict_many=predict_many)
        added_s = protocol.added_seconds(estimates, table, profile)
    except UnsupportedError as error:
        columns.refuse(dict.fromkeys(rows.tolist(), str(error)), number)
        return
    columns.fill(rows[estimates.positions], number, estimates, added_s)
    columns.refuse({int(rows[i]): reason for i, reason in estimates.refusals}, number)


class _Columns:
    """Arrays of shape (rows, protocols) that batches fill."""

    def __init__(self, table: Table, protocols: tuple[Protocol, ...]) -> None:
        shape = (len(table), len(protocols))
        self.table = table
        self.cache = np.stack([protocol.cache_states(table) for protocol in protocols], axis=1)
        self.measured_s = np.stack([table[protocol.column] / 1e6 for protocol in protocols], axis=1)
        self.predicted_s, self.roofline_s = np.full(shape, np.nan), np.full(shape, np.nan)
        self.low_s, self.high_s = np.full(shape, np.nan), np.full(shape, np.nan)
        self.config = np.full(len(table), None, dtype=object)
        self.binding, self.refusal = np.full(shape, None, dtype=object), np.full(shape, None, dtype=object)
        self.measured_counters = {
            name: np.repeat(values[:, None], len(protocols), axis=1) for name, values in counters(table).items()
        }
        self.predicted_counters = {
            name: np.full(shape, np.nan) for name in self.measured_counters if name not in MAYBE_PREDICTED
        }
        self.counter_ranges = {
            name: (np.full(shape, np.nan), np.full(shape, np.nan)) for name in LIKELY if name in self.predicted_counters
        }
        self.cache_regime = np.full(shape, None, dtype=object)
        self.drift_read_bytes = np.full(shape, np.nan)
        self.maybe_predicted = {
            name: np.full(shape, np.nan) for name in MAYBE_PREDICTED if name in self.measured_counters
        }

    def refuse(self, reasons: Mapping[int, str], number: int | slice = slice(None)) -> None:
        """Rows -> reason, for one protocol or for all."""
        for row, reason in reasons.items():
            self.refusal[row, number] = reason

    def fill(self, rows: NDArray[np.intp], number: int, estimates: Estimates, added_s: NDArray[np.float64]) -> None:
        """Times of one protocol, with what it adds, and counters."""
        self.predicted_s[rows, number] = estimates.seconds + added_s
        self.roofline_s[rows, number] = estimates.roofline_s + added_s
        self.low_s[rows, number] = estimates.seconds_low + added_s
        self.high_s[rows, number] = estimates.seconds_high + added_s
        self.binding[rows, number] = estimates.binding
        for name, values in self.predicted_counters.items():
            values[rows, number] = estimates.column(name)
        for name, ends in self.counter_ranges.items():
            for values, end in zip(ends, estimates.likely(name), strict=True):
                values[rows, number] = end
        self.cache_regime[rows, number] = estimates.column("cache_regime")
        if DRIFT_READS in getattr(estimates, "columns", ()):
            self.drift_read_bytes[rows, number] = estimates.column(DRIFT_READS)
        for name in [name for name in self.maybe_predicted if name in getattr(estimates, "columns", ())]:
            self.maybe_predicted[name][rows, number] = estimates.column(name)

    def predictions(self, gpus: list[str], asked: Requests) -> Predictions:
        """The arrays in order of rows, protocols of one row together."""
        rows, protocols = self.measured_s.shape
        return Predictions(
            row=np.repeat(np.arange(rows), protocols),
            protocol=np.tile(np.arange(protocols), rows),
            gpu=np.repeat(np.array(gpus, dtype=object), protocols),
            cache=self.cache.ravel(),
            measured_s=self.measured_s.ravel(),
            predicted_s=self.predicted_s.ravel(),
            roofline_s=self.roofline_s.ravel(),
            low_s=self.low_s.ravel(),
            high_s=self.high_s.ravel(),
            problem=np.repeat(_words(asked.problems), protocols),
            config=np.repeat(self.config, protocols),
            binding=self.binding.ravel(),
            refusal=self.refusal.ravel(),
            measured_counters={name: values.ravel() for name, values in self.measured_counters.items()},
            predicted_counters={
                name: values.ravel()
                for name, values in (self.predicted_counters | self.maybe_predicted).items()
                if name not in self.maybe_predicted or not np.isnan(values).all()
            },
            counter_ranges={name: (low.ravel(), high.ravel()) for name, (low, high) in self.counter_ranges.items()},
            cache_regime=self.cache_regime.ravel(),
            drift_read_bytes=self.drift_read_bytes.ravel(),
            compulsory_bytes=np.repeat([_compulsory_bytes(problem) for problem in asked.problems], protocols),
        )


def _words(problems: Sequence[Gemm | None]) -> NDArray[np.object_]:
    return np.array([None if problem is None else str(problem) for problem in problems], dtype=object)


def _compulsory_bytes(problem: Gemm | None) -> float:
    """Bytes of A and B, each read once: (m + n) k elements; 0 where there is no problem to ask for."""
    return 0.0 if problem is None else (problem.m + problem.n) * problem.k * dtype(problem.dtype).bytes_per_element
