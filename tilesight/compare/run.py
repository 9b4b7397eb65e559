"""Predict every row of a measured table, in batches of one GPU and one data type."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from os import PathLike, fspath
from pathlib import Path
from types import NoneType

import numpy as np
from numpy.typing import NDArray

from tilesight.candidates import gemm_candidates
from tilesight.compare.result import Predictions, Result
from tilesight.cost.clock import busy_seconds
from tilesight.cost.estimate import Estimates
from tilesight.cost.price import Situation
from tilesight.dtypes import dtype
from tilesight.errors import ConfigError, TableError, UnknownProfileError, UnsupportedError, shown
from tilesight.files import is_same_file
from tilesight.hardware.derive import changes_of
from tilesight.hardware.load import load_profile
from tilesight.hardware.profile import Profile
from tilesight.hardware.unread import unread
from tilesight.kernels.gemm_config import Gemm, GemmConfig
from tilesight.records import (
    PROTOCOLS,
    Protocol,
    Requests,
    Table,
    canonical_gpu,
    counters,
    filter_rows,
    parse_where,
    read_table,
    requests,
)
from tilesight.records.protocol import PredictMany
from tilesight.search import price_many, rank_configs

Hardware = str | PathLike[str] | Profile
ChooseConfig = Callable[[Gemm, Profile], GemmConfig]


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
    rows: str | Path | None = None,
    progress: Callable[[int, int], None] | None = None,
    predict_many: PredictMany = price_rows,
    choose_config: ChooseConfig = best_config,
) -> Result:
    """Predict every row of a measured table and score the predictions.

    Parameters
    ----------
    table
        A ``.csv`` or ``.csv.gz`` file, or a table that was read before.
    hardware
        Profile, its name or its file. Needed where the table has no ``gpu`` column; picks rows where it has one.
    where
        ``["m=1,16", ...]`` or ``{"m": [1, 16]}``: keep rows whose column is any of the values.
    kind
        Name of the kind of table; None recognises it by its header.
    auto_config
        Let the model choose configurations even where the table states them.
    rows
        Write one line a prediction to this CSV file.
    progress
        Called with (rows done, rows in all) after each batch.
    predict_many, choose_config
        Another model to score, with the signatures of :func:`price_rows` and :func:`best_config`.

    Raises
    ------
    MissingFileError, TableError
        If the table is missing or malformed, nothing is left to compare, or ``rows`` is the table itself.
    UnknownProfileError, ProfileError
        If ``hardware`` names no profile or a broken one.
    ConfigError
        If an argument is of another kind.
    """
    _check_kinds(table, hardware, where, kind, auto_config, rows, progress, predict_many, choose_config)
    file = table.file if isinstance(table, Table) else table
    if rows is not None and is_same_file(Path(rows), Path(file)):
        raise TableError(f"rows = {str(rows)!r} is the table itself and would be lost; write to another file")
    conditions = parse_where(where)
    if not isinstance(table, Table):
        table = read_table(table, table=kind)
    table = filter_rows(table, conditions)
    table, owners = _assign_hardware(table, hardware)
    asked = requests(table, auto_config=auto_config)
    protocols = PROTOCOLS[table.kind.name]
    columns = _Columns(table, protocols)
    columns.refuse(asked.refusals)
    columns.refuse({row: reason for row, reason in enumerate(owners) if isinstance(reason, str)})
    choose = cache(choose_config)
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
        what_if=_what_if(owners),
    )
    if rows is not None:
        result.write_rows(rows)
    return result


def _check_kinds(
    table: object,
    hardware: object,
    where: object,
    kind: object,
    auto_config: object,
    rows: object,
    progress: object,
    predict_many: object,
    choose_config: object,
) -> None:
    """Refuse arguments of the wrong kind, by name."""
    path = (str, PathLike)
    kinds: dict[str, tuple[object, tuple[type, ...], str]] = {
        "table": (table, (*path, Table), "a file or a Table"),
        "hardware": (hardware, (*path, Profile, NoneType), "a Profile, its name or its file"),
        "where": (where, (Mapping, Iterable), "texts such as 'm=16', or values by column"),
        "kind": (kind, (str, NoneType), "the name of a kind of table"),
        "auto_config": (auto_config, (bool, np.bool_), "True or False"),
        "rows": (rows, (*path, NoneType), "the file to write"),
        "progress": (progress, (Callable, NoneType), "a function"),  # type: ignore[dict-item]
        "predict_many": (predict_many, (Callable,), "a function"),  # type: ignore[dict-item]
        "choose_config": (choose_config, (Callable,), "a function"),  # type: ignore[dict-item]
    }
    for name, (given, allowed, words) in kinds.items():
        wrong = not isinstance(given, allowed)
        if wrong or (isinstance(given, PathLike) and not isinstance(fspath(given), str)):
            raise ConfigError(f"{name} = {shown(given)}; give {words}")


def _assign_hardware(table: Table, hardware: Hardware | None) -> tuple[Table, list[Profile | str]]:
    """The rows to compare, and for each its profile or the reason why it has none."""
    given = None
    if hardware is not None:
        is_name = isinstance(hardware, str) and "/" not in hardware and not hardware.endswith(".toml")
        given = load_profile(canonical_gpu(str(hardware)) if is_name else hardware)
    if "gpu" not in table:
        if given is None:
            raise TableError(
                "the table has no gpu column; say which GPU it was measured on (hardware=, --gpu)", file=table.file
            )
        return table, [given] * len(table)
    if given is not None:
        # a what-if copy stands in for the GPU it was derived from
        names = given.name if given.derived is None else f"{given.name},{given.derived.parent}"
        table = filter_rows(table, parse_where([f"gpu={names}"]))
        return table, [given] * len(table)
    owners: dict[str, Profile | str] = {}
    for name in dict.fromkeys(table["gpu"].tolist()):
        try:
            owners[name] = load_profile(canonical_gpu(name))
        except UnknownProfileError as error:
            owners[name] = str(error)
    return table, [owners[name] for name in table["gpu"].tolist()]


def _what_if(owners: list[Profile | str]) -> dict[str, tuple[str, ...]]:
    """What was changed in each what-if copy that prices rows, by its name."""
    copies = {owner.name: owner for owner in owners if isinstance(owner, Profile) and owner.derived is not None}
    return {
        name: tuple(
            f"{text}, {why}" if (why := unread(number, copy)) else text for number, text in changes_of(copy).items()
        )
        for name, copy in copies.items()
    }


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
        self.predicted_counters = {name: np.full(shape, np.nan) for name in self.measured_counters}

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
            config=np.repeat(self.config, protocols),
            binding=self.binding.ravel(),
            refusal=self.refusal.ravel(),
            measured_counters={name: values.ravel() for name, values in self.measured_counters.items()},
            predicted_counters={name: values.ravel() for name, values in self.predicted_counters.items()},
            compulsory_bytes=np.repeat([_compulsory_bytes(problem) for problem in asked.problems], protocols),
        )


def _compulsory_bytes(problem: Gemm | None) -> float:
    """Bytes of A and B, each read once: (m + n) k elements; 0 where there is no problem to ask for."""
    return 0.0 if problem is None else (problem.m + problem.n) * problem.k * dtype(problem.dtype).bytes_per_element
