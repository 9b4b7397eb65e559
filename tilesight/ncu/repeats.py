"""From counted launches to a table to compare with: one row a point, medians over its launches.

The spread of a counter is (p90 - p10) / median of its repeats, in percent. What was not counted is nan in the columns of
the table and None in every result.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilesight.errors import ConfigError, TableError
from tilesight.kernels.gemm_config import GemmConfig
from tilesight.ncu.names import COLUMN_OF, COUNTERS, GPU_NAME
from tilesight.ncu.page import Launch
from tilesight.ncu.points import Given, Point, points_from, select, shared_out
from tilesight.ncu.report import read_launches
from tilesight.records.read import Table
from tilesight.records.schema import COUNTED, COUNTED_BESIDE, NCU

WARP_THREADS = 32
LOADING_WARPS = 4
"""Warps of a specialised kernel that compute nothing."""
ONE_CTA_A_TILE = ("cp_async", "tma")
_SAME = {"grid_size": "CTAs", "block_size": "threads a CTA", "registers": "registers a thread"}
_CONFIG = tuple(field.name for field in fields(GemmConfig))


@dataclass(frozen=True)
class Counted:
    """The table, and how many launches of which other kernels belong to no point."""

    table: Table
    left_out: dict[str, int]


def read_counted(path: Path, points: Given | None = None, kernel: str | None = None) -> Counted:
    """The table that output of Nsight Compute and its points make.

    Parameters
    ----------
    path
        A report (``.ncu-rep``), or the text of a raw page.
    points
        A file of points, one point or several.
    kernel
        Regular expression: only kernels whose name matches are taken.

    Raises
    ------
    MissingFileError
        If there is no such file.
    MissingToolError
        If it is a report and ``ncu_report`` can't be imported.
    TableError
        If a file is malformed, or launches and points don't fit.
    ConfigError
        If points or kernel are of another kind.
    """
    file = str(path)
    launches = select(read_launches(path), kernel, file)
    wanted = points_from(points, launches, file)
    own, others = shared_out(launches, wanted, file)
    for point, mine in zip(wanted, own, strict=True):
        _check_repeats(point, mine, file)
    filled = [
        replace(point, config=_as_launched(point, mine[0], file)) for point, mine in zip(wanted, own, strict=True)
    ]
    return Counted(_table(file, filled, own), dict(Counter(launch.kernel for launch in others).most_common()))


def _check_repeats(point: Point, launches: Sequence[Launch], file: str) -> None:
    """Refuse launches of one point that are no repeats of each other."""
    first = launches[0]
    for launch in launches:
        for name in COUNTERS:
            launch.get(name, file)  # whatever stands there must be possible, compared or not
    for launch in launches[1:]:
        if launch.kernel != first.kernel:
            raise TableError(
                f"found kernel {launch.kernel!r}; allowed: {first.kernel!r}, as in line {first.line}: launches of one "
                f"point are repeats ({point.words}); select by kernel (kernel=, --kernel) or by match in the points",
                file=file,
                line=launch.line,
            )
        if launch.gpu != first.gpu:
            raise TableError(
                f"found {launch.gpu or 'an unknown GPU'}; allowed: {first.gpu or 'an unknown one'}, as in line "
                f"{first.line}: launches of one point are repeats on one GPU ({point.words})",
                file=file,
                line=launch.line,
                column=GPU_NAME,
            )
        for name, words in _SAME.items():
            one, other = first.get(name, file), launch.get(name, file)
            if one != other:
                raise TableError(
                    f"found {_whole(other)} {words}; allowed: {_whole(one)}, as in line {first.line}: launches of one point "
                    f"are repeats ({point.words})",
                    file=file,
                    line=launch.line,
                )


def _whole(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.0f}"


def _as_launched(point: Point, launch: Launch, file: str) -> GemmConfig | None:
    """The configuration with what the launch tells of it: warps, and registers and shared memory of kernels in order.

    Specialised kernels hand registers from the warps that load to those that compute, so the launch does not tell what
    these have.
    """
    config = point.config
    if config is None:
        return None
    grid, block = launch.get("grid_size", file), launch.get("block_size", file)
    specialized = config.kernel == "warp_specialized"
    told: dict[str, Any] = {}
    if block is not None and block % WARP_THREADS == 0:
        warps = int(block) // WARP_THREADS - (LOADING_WARPS if specialized else 0)
        if "warps" in point.stated and warps != config.warps:
            threads = WARP_THREADS * ((config.warps or 0) + (LOADING_WARPS if specialized else 0))
            said = f"found {block:.0f} threads a CTA; allowed: {threads}, as {config.warps} warps make ({point.words})"
            raise TableError(said, file=file, line=launch.line, column="block_size")
        if warps > 0 and (not specialized or warps % LOADING_WARPS == 0):
            told["warps"] = warps
    if not specialized:
        dynamic, static = (launch.get(f"smem_{kind}_bytes", file) for kind in ("dynamic", "static"))
        registers = launch.get("registers", file)
        told |= {} if registers is None else {"registers": round(registers)}
        told |= {} if dynamic is None else {"smem_bytes": round(dynamic + (static or 0.0))}
    _check_grid(point, config, grid, launch, file)
    try:
        return replace(config, **{name: value for name, value in told.items() if name not in point.stated})
    except ConfigError as error:
        raise TableError(f"{error} ({point.words})", file=file, line=launch.line) from None


def _check_grid(point: Point, config: GemmConfig, grid: float | None, launch: Launch, file: str) -> None:
    """Refuse fewer CTAs than the tiles of a kernel that has one for each."""
    if grid is None or config.kernel not in ONE_CTA_A_TILE:
        return
    problem = point.problem
    tiles = -(-problem.m // config.tile_m) * -(-problem.n // config.tile_n) * problem.batch * (config.split_k or 1)
    if grid < tiles:
        said = f"found {grid:.0f} CTAs; allowed: {tiles} or more, one for each tile ({point.words})"
        raise TableError(said, file=file, line=launch.line, column="grid_size")


def _table(file: str, points: Sequence[Point], own: Sequence[Sequence[Launch]]) -> Table:
    columns: dict[str, NDArray[Any]] = {
        "kernel": _objects(mine[0].kernel for mine in own),
        "launches": np.array([len(mine) for mine in own]),
        "problem": _objects(point.problem for point in points),
        **{name: np.array([getattr(point.problem, name) for point in points]) for name in ("m", "n", "k", "batch")},
        "dtype": _objects(point.problem.dtype for point in points),
    }
    if points[0].config is not None:
        columns["config"] = _objects(point.config for point in points)
        columns |= {
            name: _objects(getattr(point.config, name) for point in points) for name in _CONFIG if name != "kernel"
        }
    gpus = [mine[0].gpu for mine in own]
    if None not in gpus:
        columns["gpu"] = _objects(gpus)
    for column in (*COUNTED, *COUNTED_BESIDE):
        name = COLUMN_OF.get(column, column)
        repeats = [[value for launch in mine if (value := launch.get(name, file)) is not None] for mine in own]
        if column in COLUMN_OF or any(repeats):
            scale = 1e6 if column in COLUMN_OF else 1.0
            columns[column] = np.array([scale * np.median(each) if each else np.nan for each in repeats])
            columns[f"{column}_spread"] = np.array([spread_percent(each) for each in repeats])
    lines = np.array([mine[0].line for mine in own])
    return Table(file, NCU, columns, np.arange(1, len(points) + 1), lines)


def _objects(values: Any) -> NDArray[Any]:
    found = list(values)
    array = np.empty(len(found), dtype=object)
    array[:] = found
    return array


def spread_percent(repeats: Sequence[float]) -> float:
    """100 (p90 - p10) / median; nan with one repeat or none, or where the median is 0 and not all are.

    Examples
    --------
    >>> spread_percent([10.0, 10.0, 10.0]), round(spread_percent([9.0, 10.0, 11.0]), 9), spread_percent([7.0])
    (0.0, 16.0, nan)
    """
    if len(repeats) < 2:
        return float("nan")
    low, middle, high = np.percentile(repeats, (10, 50, 90))
    if high == low:
        return 0.0
    return float(100 * (high - low) / middle) if middle else float("nan")
