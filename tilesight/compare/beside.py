"""One point of a report: every quantity predicted beside measured, with the spread of its repeats and its error."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilesight.compare.predictions import Predictions
from tilesight.records import Table

SHARE = "l2_hit_rate"
MEASURED_ALONE = ("l2_read_bytes", "l2_write_bytes")
"""Counters that nobody predicts."""


def known(value: Any) -> float | None:
    """The value, or None for what is not known.

    Examples
    --------
    >>> known(np.float64(2.5)), known(float("nan"))
    (2.5, None)
    """
    return float(value) if np.isfinite(value) else None


def plain(value: Any) -> Any:
    """The value of a cell as plain data."""
    return value.item() if isinstance(value, np.generic) else value


def error_of(name: str, predicted: float | None, measured: float | None) -> float | None:
    """100 (p - t) / t, in percent; of hit rates 100 (p - t), in points. None where one is unknown or t is 0.

    Examples
    --------
    >>> error_of("time_s", 11.0, 10.0), error_of("l2_hit_rate", 0.75, 0.5), error_of("time_s", 11.0, None)
    (10.0, 25.0, None)
    """
    if predicted is None or measured is None:
        return None
    if name == SHARE:
        return 100 * (predicted - measured)
    return 100 * (predicted - measured) / measured if measured else None


def likely_range(made: Predictions, i: int, name: str) -> list[float] | None:
    """Ends of the likely interval of the time or of a counter of prediction ``i``; None where it is not known."""
    none = np.full(len(made.row), np.nan)
    ends = (made.low_s, made.high_s) if name == "time_s" else made.counter_ranges.get(name, (none, none))
    low, high = (float(end[i]) for end in ends)
    return [low, high] if np.isfinite(low) and np.isfinite(high) else None


def quantities(made: Predictions, i: int, table: Table, row: int) -> dict[str, dict[str, Any]]:
    """``{predicted, likely, measured, spread, error}`` of time and of each counter of prediction ``i``, in SI units.

    ``likely`` is (low, high), None where unknown. Spreads are in percent: (p90 - p10) / median of the repeats. Errors as
    :func:`error_of` gives them.
    """
    priced = bool(made.priced[i])
    found = {"time_s": (made.predicted_s[i] if priced else np.nan, made.measured_s[i], "time_us")}
    for name, values in made.measured_counters.items():
        predicted = made.predicted_counters.get(name)
        found[name] = (predicted[i] if priced and predicted is not None else np.nan, values[i], name)
    for name in MEASURED_ALONE:
        if name in table:
            found[name] = (np.nan, table[name][row], name)
    answer = {}
    for name, (predicted_value, measured_value, column) in found.items():
        predicted_number, measured_number = known(predicted_value), known(measured_value)
        spread = table[f"{column}_spread"][row] if f"{column}_spread" in table else np.nan
        answer[name] = {
            "predicted": predicted_number,
            "likely": likely_range(made, i, name) if predicted_number is not None else None,
            "measured": measured_number,
            "spread": known(spread),
            "error": error_of(name, predicted_number, measured_number),
        }
    return answer
