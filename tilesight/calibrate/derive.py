"""From records to numbers: every derivation is tried, what it gives is kept apart from what it could not give and why."""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tilesight.calibrate import cache, chip, clusters, drift, fill, footprint, launch, limits, loops, memory, power
from tilesight.calibrate.found import Derivation, Found
from tilesight.calibrate.records import DamagedRecordError, Records
from tilesight.calibrate.suite import ELSEWHERE
from tilesight.errors import TilesightError

DERIVATIONS: tuple[Derivation, ...] = (
    *limits.DERIVATIONS,
    *memory.DERIVATIONS,
    *cache.DERIVATIONS,
    *footprint.DERIVATIONS,
    *power.DERIVATIONS,
    *fill.DERIVATIONS,
    *loops.DERIVATIONS,
    *launch.DERIVATIONS,
    *chip.DERIVATIONS,
    *clusters.DERIVATIONS,
    *drift.DERIVATIONS,
)


@dataclass(frozen=True)
class Derived:
    """Numbers by dotted name, and those that could not be derived, each with the reason."""

    found: Mapping[str, Found]
    missing: Mapping[str, str]


def derive_numbers(records: Records, derivations: Sequence[Derivation] = DERIVATIONS) -> Derived:
    """What the records give. Where several derivations give a number, the first that can does.

    A derivation that can't (a record is missing, lacks a row, holds an empty cell) leaves its numbers out with the reason.

    Raises
    ------
    DamagedRecordError
        If a record that is read is malformed.
    """
    found: dict[str, Found] = {}
    missing: dict[str, str] = {}
    for derivation in derivations:
        try:
            numbers = _quietly(derivation, records)
            reason = "its records hold no such point"
        except DamagedRecordError:
            raise
        except (
            TilesightError,
            ArithmeticError,
            ValueError,
            LookupError,
        ) as error:  # what a cell that is not there can raise
            numbers, reason = {}, _why(derivation, records, error)
        for name in derivation.numbers:
            if name in numbers:
                found.setdefault(name, numbers[name])
            elif name not in found:
                missing.setdefault(name, reason)
    return Derived(found, {name: reason for name, reason in missing.items() if name not in found})


def _quietly(derivation: Derivation, records: Records) -> Mapping[str, Found]:
    """What a derivation gives; numpy is silent on empty and absurd cells, since what is no number is refused anyway."""
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        return derivation.derive(records)


def _why(derivation: Derivation, records: Records, error: Exception) -> str:
    """The records it lacks, with what makes them; else what is wrong with those it has."""
    absent = [name for name in derivation.records if name not in records]
    if not absent:
        where = "" if isinstance(error, TilesightError) else f"{', '.join(derivation.records)}: "
        return f"{where}{error or type(error).__name__}"
    return "; ".join(f"needs record {name}{_made_by(name)}" for name in absent)


def _made_by(record: str) -> str:
    if record not in ELSEWHERE:
        return ""
    script, needs = ELSEWHERE[record]
    return f" ({script}, with {needs})"
