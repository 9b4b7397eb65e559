"""What a comparison found: predictions beside measurements, their scores, and the files they are written to."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilesight.compare.beside import known, plain, quantities
from tilesight.compare.predictions import Predictions
from tilesight.compare.scores import (
    L2_SCORES,
    NO_RANKING,
    Scores,
    group_numbers,
    interval_scores,
    l2_scores,
    ranking_scores,
    regime_scores,
    regimes,
    time_scores,
)
from tilesight.cost.estimate import CACHE_REGIMES, MODEL_VERSION
from tilesight.display import Displayable
from tilesight.errors import TableError, shown
from tilesight.records import NCU, Condition, Protocol, Table

SCHEMA = "tilesight.compare/1"


@dataclass(frozen=True)
class Result(Displayable):
    """A comparison of one table with predictions.

    Attributes
    ----------
    table
        The rows that were compared.
    protocols
        What the measured times contain.
    predictions
        Every prediction, refused ones included.
    ranked
        Whether configurations were taken from the table, so that their order can be scored; else the model chose them.
    where
        The conditions by which rows were kept.
    hardware
        Hash of each profile that priced rows, by its name.
    what_if
        What was changed in those of them that are what-if copies, by name.
    left_out
        Launches of a report that belong to no point, by kernel.
    """

    table: Table
    protocols: tuple[Protocol, ...]
    predictions: Predictions
    ranked: bool
    where: tuple[Condition, ...] = ()
    hardware: Mapping[str, str] = field(default_factory=dict)
    what_if: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    left_out: Mapping[str, int] = field(default_factory=dict)

    @property
    def states_configs(self) -> bool:
        """Whether the table states configurations, taken or not."""
        return "tile_m" in self.table

    @property
    def gpu(self) -> str | None:
        """The GPU, or None if the rows are of several."""
        names = set(self.predictions.gpu.tolist())
        return names.pop() if len(names) == 1 else None

    @property
    def n(self) -> int:
        """Predictions that were scored."""
        return int(np.count_nonzero(self.predictions.priced))

    @property
    def measures_anything(self) -> bool:
        """Whether the time or a predicted counter of any prediction was measured."""
        made = self.predictions
        counted = (made.measured_counters[name][made.priced] for name in made.predicted_counters)
        return bool(made.timed.any() or any(np.isfinite(values).any() for values in counted))

    @property
    def n_refused(self) -> int:
        """Predictions that the model could not give."""
        return len(self.predictions.row) - self.n

    @property
    def refused(self) -> list[dict[str, Any]]:
        """Each refused prediction: row (from 1, header not counted), line in the file, time column, reason."""
        made = self.predictions
        return [
            {
                "row": int(self.table.row_numbers[made.row[i]]),
                "line": int(self.table.line_numbers[made.row[i]]),
                "time": self.protocols[made.protocol[i]].name,
                "reason": made.refusal[i],
            }
            for i in np.flatnonzero(~made.priced)
        ]

    @cached_property
    def time(self) -> Scores:
        """MAPE, median APE, bias, wMAPE and the roofline's MAPE, in percent."""
        made, timed = self.predictions, self.predictions.timed
        return time_scores(made.predicted_s[timed], made.measured_s[timed], made.roofline_s[timed])

    @cached_property
    def likely_interval(self) -> Scores:
        """``{n, inside}``: predictions whose likely interval is known, and the share of them that holds the time."""
        made, timed = self.predictions, self.predictions.timed
        return interval_scores(made.measured_s[timed], made.low_s[timed], made.high_s[timed])

    @cached_property
    def likely_counters(self) -> dict[str, Any]:
        """Of each counted quantity ``{n, inside, by_regime}``: how often its likely interval holds what was counted.

        ``by_regime`` has the same of each regime of the cache. Empty where nothing was counted or no interval is known.
        """
        made, scores = self.predictions, {}
        for name, (low, high) in made.counter_ranges.items():
            measured = made.measured_counters[name]
            known = made.priced & ~np.isnan(measured) & np.isfinite(low)
            if not known.any():
                continue
            by_regime = {
                word: interval_scores(measured[mask], low[mask], high[mask])
                for word in CACHE_REGIMES
                if (mask := known & (made.cache_regime == word)).any()
            }
            scores[name] = interval_scores(measured[known], low[known], high[known]) | {"by_regime": by_regime}
        return scores

    @cached_property
    def masks(self) -> dict[str, NDArray[Any]]:
        """Regime -> mask over all predictions."""
        made = self.predictions
        return regimes(made.measured_s, self._column("m"), self._column("k"), made.cache)

    @cached_property
    def by_regime(self) -> dict[str, Scores]:
        """``{n, mape, roofline_mape}`` of each regime."""
        made, timed = self.predictions, self.predictions.timed
        masks = {name: mask[timed] for name, mask in self.masks.items()}
        return regime_scores(made.predicted_s[timed], made.measured_s[timed], made.roofline_s[timed], masks)

    @cached_property
    def ranking(self) -> Scores:
        """How well the configurations of each problem are ordered; None where the table has one a problem."""
        if not self.ranked:
            return dict(NO_RANKING)
        made = self.predictions
        shape = [self._column(name) for name in ("m", "n", "k", "dtype") if name in self.table]
        groups = group_numbers(made.gpu, made.protocol, *shape)
        measured = ~np.isnan(made.measured_s)
        predicted_s = np.where(made.priced, made.predicted_s, np.inf)
        return ranking_scores(predicted_s[measured], made.measured_s[measured], groups[measured])

    @cached_property
    def l2(self) -> Scores:
        """Errors of bytes (percent) and hit rates (points); None where the table counts none."""
        made, priced = self.predictions, self.predictions.priced
        if not made.measured_counters:
            return dict.fromkeys(L2_SCORES)
        predicted = {name: values[priced] for name, values in made.predicted_counters.items()}
        measured = {name: values[priced] for name, values in made.measured_counters.items()}
        return l2_scores(predicted, measured, made.compulsory_bytes[priced], self._column("k")[priced])

    def to_dict(self) -> dict[str, Any]:
        """Plain data, as ``--json`` prints it: errors in percent, regrets and shares as ratios, None for unknown."""
        return {
            "schema": SCHEMA,
            "table": self.table.kind.name,
            "gpu": self.gpu,
            "hardware": dict(self.hardware),
            "what_if": {name: list(changes) for name, changes in self.what_if.items()},
            "model_version": MODEL_VERSION,
            "where": [f"{condition.column}={','.join(condition.values)}" for condition in self.where],
            "auto_config": not self.ranked,
            "n": self.n,
            "n_refused": self.n_refused,
            "refused": self.refused,
            **self.time,
            "likely_interval": self.likely_interval,
            "likely_counters": self.likely_counters,
            "by_regime": self.by_regime,
            "ranking": self.ranking,
            "l2": self.l2,
            **self.ranking,
            **self.l2,
            "protocols": {
                protocol.name: {"contains": protocol.contains, "terms": list(protocol.terms)}
                for protocol in self.protocols
            },
            "unknown_columns": list(self.table.unknown_columns),
            **({"points": self.points(), "left_out": dict(self.left_out)} if self.counted else {}),
        }

    @property
    def counted(self) -> bool:
        """Whether the rows are points of a report of Nsight Compute."""
        return self.table.kind.name == NCU.name

    def points(self) -> list[dict[str, Any]]:
        """One dict a prediction with every quantity predicted beside measured, its spread and its error.

        Errors and spreads in percent, of hit rates in points; None where nobody predicts or measured.
        """
        made, table = self.predictions, self.table
        return [
            {
                "row": int(table.row_numbers[row]),
                "line": int(table.line_numbers[row]),
                "gpu": made.gpu[i],
                **{name: plain(table[name][row]) for name in table.kind.inputs if name in table},
                "problem": made.problem[i],
                "config": made.config[i],
                "binding": made.binding[i],
                "refusal": made.refusal[i],
                "quantities": quantities(made, i, table, row),
            }
            for i, row in enumerate(made.row)
        ]

    def rows(self) -> list[dict[str, Any]]:
        """One dict a prediction: where it comes from, its inputs, measured and predicted, error, regimes, binding."""
        made, table = self.predictions, self.table
        inputs = [name for name in table.kind.inputs if name in table]
        return [
            {
                "row": int(table.row_numbers[row]),
                "line": int(table.line_numbers[row]),
                "gpu": made.gpu[i],
                "time": self.protocols[made.protocol[i]].name,
                **{name: table[name][row] for name in inputs},
                "measured_s": known(made.measured_s[i]),
                **self._predicted(i),
                "regimes": " ".join(name for name, mask in self.masks.items() if mask[i]),
                **{f"measured_{name}": known(values[i]) for name, values in made.measured_counters.items()},
                **{
                    name: known(table[name][row]) for name in table.columns if self.counted and name.endswith("_spread")
                },
                "refusal": made.refusal[i],
            }
            for i, row in enumerate(made.row)
        ]

    def write_rows(self, path: str | Path) -> None:
        """Write :meth:`rows` as CSV; an unknown value is an empty cell.

        Raises
        ------
        TableError
            If the file can't be written.
        """
        rows = self.rows()
        try:
            with Path(path).open("w", encoding="utf-8", newline="") as file:
                writer = csv.DictWriter(file, fieldnames=list(rows[0]), lineterminator="\n")
                writer.writeheader()
                writer.writerows(rows)
        except OSError as error:
            raise TableError(f"cannot write the rows: {error.strerror}", file=str(path)) from error
        except ValueError:  # a name with a NUL or a lone surrogate
            raise TableError(f"cannot write the rows: {shown(str(path))} is no name of a file") from None

    def _predicted(self, i: int) -> dict[str, Any]:
        made = self.predictions
        values = {
            "predicted_s": made.predicted_s[i],
            "error_percent": known(100 * (made.predicted_s[i] / made.measured_s[i] - 1)),
            "low_s": known(made.low_s[i]),
            "high_s": known(made.high_s[i]),
            "roofline_s": made.roofline_s[i],
            "config": made.config[i],
            "binding": made.binding[i],
            "cache_regime": made.cache_regime[i],
            **{f"predicted_{name}": counts[i] for name, counts in made.predicted_counters.items()},
            "predicted_drift_read_bytes": known(made.drift_read_bytes[i]),
            **{
                f"{word}_{name}": known(ends[i])
                for name, both in made.counter_ranges.items()
                for word, ends in zip(("low", "high"), both, strict=True)
            },
        }
        return values if made.priced[i] else dict.fromkeys(values)

    def _column(self, name: str) -> NDArray[Any]:
        values: NDArray[Any] = self.table[name][self.predictions.row]
        return values
