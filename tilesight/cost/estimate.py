"""The answer: :class:`Estimate` of one launch, and :class:`Estimates`, the same in columns for a batch.

Data only, frozen; printing is in ``report``. Unknown is None, and nothing is NaN.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from tilesight.cost.occupancy import LIMITERS
from tilesight.cost.price import BOUNDS, TERMS, Priced, binding_names
from tilesight.display import Displayable
from tilesight.errors import ConfigError
from tilesight.hardware.numbers import freeze_map
from tilesight.hardware.profile import Profile
from tilesight.plan.tile import Counts

SCHEMA = "tilesight.estimate/1"
MODEL_VERSION = "1"
EDGE = (0.1, 0.9)
"""Hit probabilities of re-read blocks between these lie at the edge of capacity."""


@dataclass(frozen=True)
class Estimate(Displayable):
    """Predicted time of one launch, with its reasons. Times in seconds, traffic in bytes, rates per second.

    Attributes
    ----------
    seconds
        From the first CTA's launch to the last store.
    seconds_low, seconds_high
        Likely interval: measured values of comparable launches fall into it four times out of five; None if unknown.
    terms
        Named parts that sum to ``seconds``.
    busy_s
        Time for which each resource is busy.
    period_s
        The bounds on one k-step of all resident CTAs in the longest part; the largest is the period.
    binding
        What binds: a bound of the period, ``"launch"`` (starts and ends outlast the loop) or ``"dram"``.
    margin
        Largest bound over the next: 1.0 means that two bind at once; None if only one exists.
    regime
        ``"launch-bound"``, ``"capacity edge"`` or ``"lockstep"``.
    resident_after
        Share of each tensor left in L2; ``dirty_after_bytes`` of the output wait to be written back.
    """

    problem: str
    config: str
    kernel: str
    hardware: str
    hardware_hash: str
    cache: str
    clock: str
    seconds: float
    seconds_low: float | None
    seconds_high: float | None
    roofline_s: float
    flop: float
    flop_per_s: float
    share_of_peak: float
    terms: Mapping[str, float]
    busy_s: Mapping[str, float]
    period_s: Mapping[str, float]
    binding: str
    margin: float | None
    regime: str
    clock_hz: float
    ctas: int
    waves: float
    rounds: int
    tail_share: float
    ctas_per_sm: int
    occupancy_limiter: str
    registers: int
    smem_bytes: int
    split_k: int
    compulsory_bytes: float
    requested_bytes: float
    lookup_bytes: float
    dram_read_bytes: float
    dram_write_bytes: float
    l2_hit_rate: float
    resident_after: Mapping[str, float]
    dirty_after_bytes: float
    assumptions: tuple[str, ...] = ()
    model_version: str = MODEL_VERSION
    schema: str = field(default=SCHEMA)

    def __post_init__(self) -> None:
        for name in ("terms", "busy_s", "period_s", "resident_after"):
            object.__setattr__(self, name, freeze_map(getattr(self, name)))
        object.__setattr__(self, "assumptions", tuple(self.assumptions))

    @property
    def busy_share(self) -> Mapping[str, float]:
        """Busy time of each resource over ``seconds``."""
        return freeze_map({name: value / self.seconds for name, value in self.busy_s.items()})

    def to_dict(self) -> dict[str, Any]:
        """Plain data, in the versioned schema; JSON-serialisable, read back by :meth:`from_dict`."""
        plain = {entry.name: getattr(self, entry.name) for entry in fields(self)}
        return {
            name: dict(value) if isinstance(value, Mapping) else list(value) if isinstance(value, tuple) else value
            for name, value in plain.items()
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "Estimate":
        """Estimate from :meth:`to_dict`'s data.

        Raises
        ------
        ConfigError
            If the schema is another, a field is missing, unknown, or not of its kind.
        """
        if not isinstance(data, Mapping) or data.get("schema") != SCHEMA:
            found = data.get("schema") if isinstance(data, Mapping) else type(data).__name__
            raise ConfigError(f"not an estimate of schema {SCHEMA!r}: found {found!r}")
        known = {entry.name for entry in fields(cls)}
        wrong = sorted(set(data) ^ known)
        if wrong:
            raise ConfigError(f"estimate has missing or unknown fields: {', '.join(wrong)}")
        for name, value in data.items():
            if not _makes_sense(name, value):
                shown = repr(value)
                shown = shown if len(shown) <= 60 else f"{shown[:59]}…"
                raise ConfigError(f"estimate field {name} = {shown} makes no sense")
        return cls(**data)


_WORDS = frozenset(
    ("problem", "config", "kernel", "hardware", "hardware_hash", "cache", "clock", "binding")
) | frozenset(("regime", "occupancy_limiter", "model_version", "schema"))
_TABLES = frozenset(("terms", "busy_s", "period_s", "resident_after"))
_MAY_BE_UNKNOWN = frozenset(("seconds_low", "seconds_high", "margin"))
_POSITIVE = frozenset(("seconds", "roofline_s", "flop", "compulsory_bytes"))


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _makes_sense(name: str, value: Any) -> bool:
    """Whether a value is of the kind that its field of an Estimate has."""
    if name == "assumptions":
        return isinstance(value, list | tuple) and all(isinstance(word, str) for word in value)
    if name in _WORDS:
        return isinstance(value, str)
    if name in _TABLES:
        return isinstance(value, Mapping) and all(map(_is_number, value.values()))
    if value is None:
        return name in _MAY_BE_UNKNOWN
    return _is_number(value) and not (name in _POSITIVE and value <= 0)


_SCALARS = (
    "seconds", "roofline_s", "flop", "flop_per_s", "share_of_peak", "clock_hz", "ctas", "waves", "rounds", "tail_share",
    "ctas_per_sm", "registers", "smem_bytes", "split_k", "compulsory_bytes", "requested_bytes", "lookup_bytes",
    "dram_read_bytes", "dram_write_bytes", "l2_hit_rate", "dirty_after_bytes",
)  # fmt: skip
_WHOLE = {"ctas", "rounds", "ctas_per_sm", "registers", "smem_bytes", "split_k"}
_BUSY = ("tensor", "l2", "dram")
NUMBER_COLUMNS = (
    *_SCALARS,
    "resident_after",
    *(f"term:{name}" for name in TERMS),
    *(f"busy:{name}" for name in _BUSY),
    *(f"period:{name}" for name in BOUNDS),
)
WORD_COLUMNS = ("binding", "regime", "kernel", "occupancy_limiter")
"""All columns of :class:`Estimates`, those of an empty batch too."""


@dataclass(frozen=True)
class Estimates(Sequence[Estimate]):
    """A batch of estimates in columns, in the order asked for.

    ``columns`` holds arrays of shape (L,): every scalar of :class:`Estimate`, ``term:NAME``, ``busy:NAME``,
    ``period:NAME``. ``positions`` are the rows of the request that were priced, ``refusals`` the others with their
    reasons. Indexing gives one :class:`Estimate`.
    """

    columns: Mapping[str, Counts]
    names: Mapping[str, NDArray[Any]]
    problems: Sequence[Any]
    configs: Sequence[Any]
    hardware: Profile
    cache: str
    clock: str
    positions: NDArray[np.intp]
    refusals: tuple[tuple[int, str], ...] = ()
    assumptions: Sequence[tuple[str, ...]] = ()

    def __len__(self) -> int:
        return len(self.positions)

    def __iter__(self) -> Iterator[Estimate]:
        return (self[row] for row in range(len(self)))

    @property
    def seconds(self) -> Counts:
        """Predicted times, in seconds, shape (L,)."""
        return self.columns["seconds"]

    @property
    def roofline_s(self) -> Counts:
        """Roofline times, in seconds, shape (L,)."""
        return self.columns["roofline_s"]

    @property
    def binding(self) -> NDArray[Any]:
        """What binds each, shape (L,)."""
        return self.names["binding"]

    def column(self, name: str) -> NDArray[Any]:
        """A column by the name of an Estimate's field, or ``"term:NAME"``, ``"busy:NAME"``, ``"period:NAME"``.

        Raises
        ------
        ConfigError
            If there is no such column.
        """
        for table in (self.columns, self.names):
            if name in table:
                return table[name]
        raise ConfigError(f"no column {name!r}; known: {', '.join([*self.columns, *self.names])}")

    @cached_property
    def _half_width(self) -> NDArray[np.float64]:
        known = [self.hardware.get(f"uncertainty.{name}") for name in self.binding]
        return np.array([np.nan if width is None else width for width in known], dtype=float)

    @overload
    def __getitem__(self, row: int) -> Estimate: ...

    @overload
    def __getitem__(self, row: slice) -> list[Estimate]: ...

    def __getitem__(self, row: int | slice) -> Estimate | list[Estimate]:
        if isinstance(row, slice):
            return [self[i] for i in range(*row.indices(len(self)))]
        row = range(len(self))[row]
        value = {
            name: int(self.columns[name][row]) if name in _WHOLE else float(self.columns[name][row])
            for name in _SCALARS
        }
        width = float(self._half_width[row])
        seconds = value["seconds"]
        periods = {name: float(self.columns[f"period:{name}"][row]) for name in BOUNDS}
        periods = {name: cycles for name, cycles in periods.items() if cycles > 0}
        ranked = sorted(periods.values(), reverse=True)
        resident = float(self.columns["resident_after"][row])
        return Estimate(
            problem=str(self.problems[row]),
            config=str(self.configs[row]),
            kernel=str(self.names["kernel"][row]),
            hardware=self.hardware.name,
            hardware_hash=self.hardware.hash,
            cache=self.cache,
            clock=self.clock,
            seconds_low=None if math.isnan(width) else seconds / (1 + width),
            seconds_high=None if math.isnan(width) else seconds * (1 + width),
            terms={name: float(self.columns[f"term:{name}"][row]) for name in TERMS},
            busy_s={name: float(self.columns[f"busy:{name}"][row]) for name in _BUSY},
            period_s=periods,
            binding=str(self.binding[row]),
            margin=ranked[0] / ranked[1] if len(ranked) > 1 else None,
            regime=str(self.names["regime"][row]),
            occupancy_limiter=str(self.names["occupancy_limiter"][row]),
            resident_after={"a": resident, "b": resident, "c": resident},
            assumptions=self.assumptions[row] if self.assumptions else (),
            **value,  # type: ignore[arg-type]
        )


def columns_of(priced: Priced, hardware: Profile) -> tuple[dict[str, Counts], dict[str, NDArray[Any]]]:
    """Numeric and text columns of a priced batch, for :class:`Estimates`."""
    plan, rounds, moved = priced.plan, priced.waves, priced.traffic
    flop_per_s = plan.flop / priced.seconds
    full_longer = priced.terms["full rounds"] >= priced.terms["tail round"]
    numbers = {
        "seconds": priced.seconds,
        "roofline_s": priced.roofline_s,
        "flop": plan.flop,
        "flop_per_s": flop_per_s,
        "share_of_peak": flop_per_s / hardware.tensor[plan.dtype].rate_peak_flop_per_s,
        "clock_hz": np.where(full_longer, priced.full.clock_hz, priced.tail.clock_hz),
        "ctas": plan.launch.tiles,
        "waves": rounds.waves,
        "rounds": rounds.rounds,
        "tail_share": rounds.tail / rounds.slots,
        "ctas_per_sm": rounds.per_sm,
        "registers": plan.launch.registers,
        "smem_bytes": plan.launch.smem_bytes,
        "split_k": plan.access.split,
        "compulsory_bytes": plan.compulsory_bytes,
        "requested_bytes": moved.requested_bytes,
        "lookup_bytes": moved.lookup_bytes,
        "dram_read_bytes": moved.dram_read_bytes,
        "dram_write_bytes": moved.dram_write_bytes,
        "l2_hit_rate": moved.hit_rate,
        "resident_after": moved.resident_after,
        "dirty_after_bytes": moved.dirty_after_bytes,
    }
    numbers |= {f"term:{name}": value for name, value in priced.terms.items()}
    numbers |= {f"busy:{name}": priced.busy_s[name] for name in _BUSY}
    for name in BOUNDS:
        pair = (priced.full.bounds[name], priced.tail.bounds[name])
        numbers[f"period:{name}"] = np.where(full_longer, *pair)
    binding = np.array(binding_names(priced))
    reread = moved.reread_hit_share
    edge = (reread > EDGE[0]) & (reread < EDGE[1])
    regime = np.select([binding == "launch", edge], ["launch-bound", "capacity edge"], "lockstep")
    words = {
        "binding": binding,
        "regime": regime,
        "kernel": np.full(len(plan), plan.kernel),
        "occupancy_limiter": np.array(LIMITERS)[priced.occupancy.limiter],
    }
    length = len(plan)
    return {name: np.broadcast_to(np.asarray(v, float), length) for name, v in numbers.items()}, words
