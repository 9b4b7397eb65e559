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
from tilesight.cost.estimate import MODEL_VERSION
from tilesight.display import Displayable
from tilesight.errors import TableError, shown
from tilesight.records import Condition, Protocol, Table

SCHEMA = "tilesight.compare/1"


@dataclass(frozen=True)
class Predictions:
    """One entry a prediction, shape (n,) each; a row of the table gives one per protocol.

    Attributes
    ----------
    row
        Index into the table.
    protocol
        Index into the protocols.
    gpu
        Profile name, or the name in the table where there is no profile.
    cache
        ``"warm"``, ``"cold"`` or another word for neither.
    measured_s, predicted_s, roofline_s
        Times; predicted and roofline hold the protocol's added terms. Meaningless where refused.
    low_s, high_s
        Likely interval of the predicted time, with the added terms; nan where unknown.
    config
        The configuration that was priced, in words.
    binding
        What limits the kernel.
    refusal
        Why there is no prediction; None where there is one.
    measured_counters, predicted_counters
        Bytes and hit rates by name; empty where the table has none.
    compulsory_bytes
        Operand bytes, each read once.
    """

    row: NDArray[Any]
    protocol: NDArray[Any]
    gpu: NDArray[Any]
    cache: NDArray[Any]
    measured_s: NDArray[Any]
    predicted_s: NDArray[Any]
    roofline_s: NDArray[Any]
    low_s: NDArray[Any]
    high_s: NDArray[Any]
    config: NDArray[Any]
    binding: NDArray[Any]
    refusal: NDArray[Any]
    measured_counters: Mapping[str, NDArray[Any]]
    predicted_counters: Mapping[str, NDArray[Any]]
    compulsory_bytes: NDArray[Any]

    @cached_property
    def priced(self) -> NDArray[Any]:
        """Mask of the predictions that were not refused."""
        return np.array([reason is None for reason in self.refusal], dtype=bool)


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
    """

    table: Table
    protocols: tuple[Protocol, ...]
    predictions: Predictions
    ranked: bool
    where: tuple[Condition, ...] = ()
    hardware: Mapping[str, str] = field(default_factory=dict)
    what_if: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

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
        made, priced = self.predictions, self.predictions.priced
        return time_scores(made.predicted_s[priced], made.measured_s[priced], made.roofline_s[priced])

    @cached_property
    def likely_interval(self) -> Scores:
        """``{n, inside}``: predictions whose likely interval is known, and the share of them that holds the time."""
        made, priced = self.predictions, self.predictions.priced
        return interval_scores(made.measured_s[priced], made.low_s[priced], made.high_s[priced])

    @cached_property
    def masks(self) -> dict[str, NDArray[Any]]:
        """Regime -> mask over all predictions."""
        made = self.predictions
        return regimes(made.measured_s, self._column("m"), self._column("k"), made.cache)

    @cached_property
    def by_regime(self) -> dict[str, Scores]:
        """``{n, mape, roofline_mape}`` of each regime."""
        made, priced = self.predictions, self.predictions.priced
        masks = {name: mask[priced] for name, mask in self.masks.items()}
        return regime_scores(made.predicted_s[priced], made.measured_s[priced], made.roofline_s[priced], masks)

    @cached_property
    def ranking(self) -> Scores:
        """How well the configurations of each problem are ordered; None where the table has one a problem."""
        if not self.ranked:
            return dict(NO_RANKING)
        made = self.predictions
        shape = [self._column(name) for name in ("m", "n", "k", "dtype") if name in self.table]
        groups = group_numbers(made.gpu, made.protocol, *shape)
        return ranking_scores(np.where(made.priced, made.predicted_s, np.inf), made.measured_s, groups)

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
        }

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
                "measured_s": made.measured_s[i],
                **self._predicted(i),
                "regimes": " ".join(name for name, mask in self.masks.items() if mask[i]),
                **{f"measured_{name}": values[i] for name, values in made.measured_counters.items()},
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
            "error_percent": 100 * (made.predicted_s[i] / made.measured_s[i] - 1),
            "low_s": made.low_s[i] if np.isfinite(made.low_s[i]) else None,
            "high_s": made.high_s[i] if np.isfinite(made.high_s[i]) else None,
            "roofline_s": made.roofline_s[i],
            "config": made.config[i],
            "binding": made.binding[i],
            **{f"predicted_{name}": counts[i] for name, counts in made.predicted_counters.items()},
        }
        return values if made.priced[i] else dict.fromkeys(values)

    def _column(self, name: str) -> NDArray[Any]:
        values: NDArray[Any] = self.table[name][self.predictions.row]
        return values
