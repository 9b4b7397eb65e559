"""Predictions beside measurements, in columns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray


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
        Times; predicted and roofline hold the protocol's added terms. Meaningless where refused; measured is nan where
        only counters were.
    low_s, high_s
        Likely interval of the predicted time, with the added terms; nan where unknown.
    problem
        The product, in words; None where there is none to ask for.
    config
        The configuration that was priced, in words.
    binding
        What limits the kernel.
    refusal
        Why there is no prediction; None where there is one.
    measured_counters, predicted_counters
        Bytes, hit rates and clocks by name; empty where the table has none. A measured nan: nobody counted in that row.
        What the model does not give is not among the predicted.
    counter_ranges
        Likely intervals of predicted counters by name, (low, high), as far as known.
    cache_regime
        Regime of the cache: ``"lockstep"``, ``"drift"``, ``"capacity edge"``; None where there is no prediction.
    drift_read_bytes
        DRAM reads that late CTAs cause; nan where there is no prediction, or where the model does not say.
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
    problem: NDArray[Any]
    config: NDArray[Any]
    binding: NDArray[Any]
    refusal: NDArray[Any]
    measured_counters: Mapping[str, NDArray[Any]]
    predicted_counters: Mapping[str, NDArray[Any]]
    counter_ranges: Mapping[str, tuple[NDArray[Any], NDArray[Any]]]
    cache_regime: NDArray[Any]
    drift_read_bytes: NDArray[Any]
    compulsory_bytes: NDArray[Any]

    @cached_property
    def priced(self) -> NDArray[Any]:
        """Mask of the predictions that were not refused."""
        return np.array([reason is None for reason in self.refusal], dtype=bool)

    @cached_property
    def timed(self) -> NDArray[Any]:
        """Mask of those with a measured time."""
        mask: NDArray[Any] = self.priced & ~np.isnan(self.measured_s)
        return mask
