"""Reports of Nsight Compute (``.ncu-rep``), read with NVIDIA's Python package ``ncu_report``."""

import importlib
from pathlib import Path
from typing import Any

from tilesight.errors import MissingFileError, MissingToolError, TableError
from tilesight.files import is_file
from tilesight.ncu.names import wanted
from tilesight.ncu.page import LAUNCHES_MOST, Launch, is_page, read_page

REPORT = ".ncu-rep"


def is_report(path: Path) -> bool:
    """Whether a file is output of Nsight Compute: a report by its name, a page by its text."""
    return path.suffix == REPORT or (is_file(path) and is_page(path))


def read_launches(path: Path) -> list[Launch]:
    """The launches in a report or in the text of a raw page.

    Raises
    ------
    MissingFileError
        If there is no such file.
    MissingToolError
        If it is a report and ``ncu_report`` can't be imported.
    TableError
        If it is malformed or holds no launch.
    """
    return _read_report(path) if path.suffix == REPORT else read_page(path)


def _read_report(path: Path) -> list[Launch]:
    if not is_file(path):
        raise MissingFileError(f"no report {str(path)!r}; ncu writes it with --export")
    module = _module(path)
    try:
        context = module.load_report(str(path))
        actions = [
            context.range_by_idx(i).action_by_idx(j)
            for i in range(context.num_ranges())
            for j in range(context.range_by_idx(i).num_actions())
        ]
    except (OSError, RuntimeError, ValueError, TypeError, AttributeError) as error:
        raise TableError(f"not readable as a report: {error}", file=str(path)) from None
    if not actions:
        raise TableError("no launch in it: no report, or nothing was profiled", file=str(path))
    if len(actions) > LAUNCHES_MOST:
        raise TableError(f"more than {LAUNCHES_MOST} launches; split the report", file=str(path))
    return [Launch(number, number, _name(action), _values(action)) for number, action in enumerate(actions, start=1)]


def _name(action: Any) -> str:
    """The kernel's name with its parameters, as pages print it."""
    return str(action.name(action.NameBase_DEMANGLED))


def _values(action: Any) -> dict[str, tuple[str | float, str]]:
    found: dict[str, tuple[str | float, str]] = {}
    for name in wanted():
        metric = action.metric_by_name(name)
        value = None if metric is None else metric.value()
        if isinstance(value, str):
            found[name] = (value, metric.unit())
        elif value is not None and value == value:  # nan stands for what was not counted
            found[name] = (float(value), metric.unit())
    return found


def _module(path: Path) -> Any:
    try:
        return importlib.import_module("ncu_report")
    except ImportError:
        raise MissingToolError(
            f"{path}: reading a report needs the Python package ncu_report: pip install ncu-report, or put the folder "
            f"extras/python of Nsight Compute on PYTHONPATH; or export the report: ncu --import {path.name} --csv --page "
            f"raw --print-units base > {path.stem}.csv"
        ) from None
