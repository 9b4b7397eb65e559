"""The answer: :class:`Estimate` of one launch, and :class:`Estimates`, the same in columns for a batch.

Data only, frozen; printing is in ``report``. Unknown is None, and nothing is NaN.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from functools import cached_property
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from tilesight.cost.occupancy import LIMITERS
from tilesight.cost.price import BOUNDS, TERMS, Priced, Situation, binding_names
from tilesight.display import Displayable
from tilesight.errors import ConfigError, check_place, shown
from tilesight.hardware.numbers import freeze_map
from tilesight.hardware.profile import Profile
from tilesight.plan.tile import Counts

SCHEMA = "tilesight.estimate/4"
MODEL_VERSION = "1"
EDGE = (0.001, 0.999)
"""Hit probabilities of re-read blocks between these lie at the edge of capacity."""
DRIFT_SHARE = 0.01
"""A launch drifts where late CTAs cause more than this share of its DRAM reads."""
FEW_READS = 0.001
"""DRAM reads below this share of the compulsory bytes have no likely interval."""


@dataclass(frozen=True)
class State:
    """In which state of the GPU a launch was priced.

    Attributes
    ----------
    cache
        ``"warm"`` or ``"cold"``; None where ``resident`` states shares instead.
    resident
        Share of each tensor that was in L2, or None.
    clock
        ``"burst"`` or ``"sustained"``; None where ``busy_s`` gives the time under load instead.
    busy_s
        Seconds under load, or None.
    dirty_bytes
        Bytes of other data that waited in L2 to be written back.
    sms
        SMs that the kernel may use; None for all.
    """

    cache: str | None = "warm"
    resident: Mapping[str, float] | None = None
    clock: str | None = "sustained"
    busy_s: float | None = None
    dirty_bytes: float = 0.0
    sms: int | None = None

    def __post_init__(self) -> None:
        if self.resident is not None:
            object.__setattr__(self, "resident", freeze_map(self.resident))

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return vars(self) | {"resident": None if self.resident is None else dict(self.resident)}

    @classmethod
    def of(cls, situation: Situation, row: int) -> "State":
        """State of one launch of a batch; 0 s under load is the burst clock, and for ever the sustained one."""

        def value(values: NDArray[np.float64]) -> float:
            return float(values[row] if values.ndim else values)

        busy_s = value(situation.busy_s)
        clock = {0.0: "burst", math.inf: "sustained"}.get(busy_s)
        resident = situation.resident
        return cls(
            cache=situation.cache if resident is None else None,
            resident=None if resident is None else {name: value(share) for name, share in resident.items()},
            clock=clock,
            busy_s=busy_s if clock is None else None,
            dirty_bytes=situation.dirty_bytes,
            sms=situation.sms,
        )


@dataclass(frozen=True)
class Estimate(Displayable):
    """Predicted time of one launch, with its reasons. Times in seconds, traffic in bytes, rates per second.

    Attributes
    ----------
    problem, config
        In words; ``problem_fields`` and ``config_fields`` hold what ``Gemm`` and ``GemmConfig`` take.
    state
        Cache, clock, dirty bytes and SMs that were asked for.
    seconds
        From the first CTA's launch to the last store.
    seconds_low, seconds_high
        Likely interval: measured values of comparable launches fall into it nine times out of ten; None if unknown.
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
        ``"launch-bound"``, or that of the cache.
    cache_regime
        ``"drift"`` (CTAs that share operands come too late for part of them), ``"capacity edge"`` (blocks that are read
        again are found in L2 sometimes) or ``"lockstep"`` (late CTAs cost no reads, and blocks that are read again are
        all found or all lost).
    likely
        Likely intervals of ``dram_read_bytes``, ``lookup_bytes`` and ``l2_hit_rate``, (low, high) each, as wide as the
        regime of the cache asks. One that the profile does not know is absent, and so is that of the DRAM reads where they
        are below a thousandth of the compulsory bytes: how far so few are off is not known.
    drift_read_bytes
        Those of the DRAM reads that late CTAs cause, whose blocks were evicted meanwhile.
    crossing_bytes
        Bytes that go between the partitions of L2.
    resident_after
        Share of each tensor left in L2; ``dirty_after_bytes`` of the output wait to be written back.
    """

    problem: str
    problem_fields: Mapping[str, Any]
    config: str
    config_fields: Mapping[str, Any]
    kernel: str
    hardware: str
    hardware_hash: str
    state: State
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
    cache_regime: str
    likely: Mapping[str, tuple[float, float]]
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
    drift_read_bytes: float
    crossing_bytes: float
    l2_hit_rate: float
    resident_after: Mapping[str, float]
    dirty_after_bytes: float
    assumptions: tuple[str, ...] = ()
    model_version: str = MODEL_VERSION
    schema: str = field(default=SCHEMA)

    def __post_init__(self) -> None:
        for name in ("problem_fields", "config_fields", "terms", "busy_s", "period_s", "resident_after"):
            object.__setattr__(self, name, freeze_map(getattr(self, name)))
        ranges = {name: tuple(ends) for name, ends in self.likely.items()}
        object.__setattr__(self, "likely", freeze_map(ranges))
        object.__setattr__(self, "assumptions", tuple(self.assumptions))

    @property
    def busy_share(self) -> Mapping[str, float]:
        """Busy time of each resource over ``seconds``."""
        return freeze_map({name: value / self.seconds for name, value in self.busy_s.items()})

    def to_dict(self) -> dict[str, Any]:
        """Plain data, in the versioned schema; JSON-serialisable, read back by :meth:`from_dict`."""
        plain = {entry.name: getattr(self, entry.name) for entry in fields(self)} | {"state": self.state.to_dict()}
        plain |= {"likely": {name: list(ends) for name, ends in self.likely.items()}}
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
            If the schema is another, a field is missing, unknown or not of its kind, or fields contradict each other.
        """
        if not isinstance(data, Mapping) or data.get("schema") != SCHEMA:
            found = data.get("schema") if isinstance(data, Mapping) else type(data).__name__
            raise ConfigError(f"not an estimate of schema {SCHEMA!r}: found {found!r}")
        known = {entry.name for entry in fields(cls)}
        wrong = sorted(name if isinstance(name, str) else shown(name) for name in set(data) ^ known)
        if wrong:
            raise ConfigError(f"estimate has missing or unknown fields: {', '.join(wrong)}")
        for name, value in data.items():
            if not _makes_sense(name, value):
                raise ConfigError(f"estimate field {name} = {shown(value)} makes no sense")
        contradiction = next((text for check in (_contradictions, *FIELD_CHECKS) for text in check(data)), None)
        if contradiction is not None:
            raise ConfigError(f"estimate field {contradiction}")
        return cls(**{**data, "state": State(**data["state"])})


CACHE_REGIMES = {"drift": "drift", "capacity edge": "edge", "lockstep": "lockstep"}
"""Regimes of the cache, and the tables of ``cache_uncertainty`` that hold their widths."""
LIKELY = {"dram_read_bytes": "dram_read", "lookup_bytes": "lookup", "l2_hit_rate": "hit_rate"}
"""What has a likely interval beside the time, and the number that holds its half-width."""
_WORDS = frozenset(("problem", "config", "kernel", "hardware", "hardware_hash", "model_version", "schema"))
_CHOICES: Mapping[str, Sequence[str]] = {
    "binding": (*BOUNDS, "launch"),
    "regime": ("launch-bound", *CACHE_REGIMES),
    "cache_regime": tuple(CACHE_REGIMES),
    "occupancy_limiter": LIMITERS,
}
_BUSY = ("tensor", "l2", "dram")
_TENSORS = ("a", "b", "c")
_TABLES: Mapping[str, Sequence[str]] = {
    "terms": TERMS,
    "busy_s": _BUSY,
    "period_s": BOUNDS,
    "resident_after": _TENSORS,
}
_MAY_BE_UNKNOWN = frozenset(("seconds_low", "seconds_high", "margin"))
_POSITIVE = frozenset(("seconds", "seconds_low", "seconds_high", "roofline_s", "flop", "compulsory_bytes", "clock_hz"))
_SHARES = frozenset(("l2_hit_rate", "tail_share"))
_WHOLE = frozenset(("ctas", "rounds", "ctas_per_sm", "registers", "smem_bytes", "split_k"))
_AT_LEAST_ONE = frozenset(("ctas", "rounds", "ctas_per_sm", "split_k"))
_AGREE = 1e-9
"""Relative difference up to which numbers that say the same agree."""


def _is_number(value: Any, least: float = 0.0, most: float = 1e300) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and least <= value <= most


def _is_range(ends: Any) -> bool:
    """Whether this is (low, high)."""
    return isinstance(ends, list | tuple) and len(ends) == 2 and all(map(_is_number, ends)) and ends[0] <= ends[1]


def _makes_sense(name: str, value: Any) -> bool:
    """Whether a value is of the kind that its field of an Estimate has."""
    if name == "assumptions":
        return isinstance(value, list | tuple) and all(isinstance(word, str) for word in value)
    if name == "state":
        return _is_state(value)
    if name == "likely":
        return isinstance(value, Mapping) and all(key in LIKELY and _is_range(ends) for key, ends in value.items())
    if name in ("problem_fields", "config_fields"):
        return isinstance(value, Mapping) and all(
            isinstance(key, str) and _is_plain(item) for key, item in value.items()
        )
    if name in _WORDS:
        return isinstance(value, str)
    if name in _CHOICES:
        return isinstance(value, str) and value in _CHOICES[name]
    if name in _TABLES:
        least = {"terms": -1e300, "period_s": 1e-300}.get(name, 0.0)  # a term of a difference may be negative
        known = isinstance(value, Mapping) and set(value) <= set(_TABLES[name])
        known = known and bool(value or name != "period_s")  # a k-step has a bound
        known = known and (name != "resident_after" or set(value) == set(_TENSORS))
        most = 1.0 if name == "resident_after" else 1e300
        return known and all(_is_number(number, least, most) for number in value.values())
    if value is None:
        return name in _MAY_BE_UNKNOWN
    if name in _WHOLE and not isinstance(value, int):
        return False
    least, most = (1e-300, 1e300) if name in _POSITIVE else (0.0, 1.0) if name in _SHARES else (0.0, 1e300)
    least = 1.0 if name in _AT_LEAST_ONE else least
    return _is_number(value, least, most)


def _is_plain(value: Any) -> bool:
    return value is None or isinstance(value, bool | str) or _is_number(value, -1e300)


def _is_state(value: Any) -> bool:
    if not isinstance(value, Mapping) or set(value) != {entry.name for entry in fields(State)}:
        return False
    cache, resident, clock, busy_s, sms = (value[key] for key in ("cache", "resident", "clock", "busy_s", "sms"))
    shares = isinstance(resident, Mapping) and all(
        name in _TENSORS and _is_number(share, 0.0, 1.0) for name, share in resident.items()
    )
    return (
        ((cache in ("warm", "cold") and resident is None) if isinstance(cache, str) else cache is None and shares)
        and ((clock in ("burst", "sustained") and busy_s is None) if isinstance(clock, str) else _is_number(busy_s))
        and _is_number(value["dirty_bytes"])
        and (sms is None or (isinstance(sms, int) and _is_number(sms, 1)))
    )


def _contradictions(data: Mapping[str, Any]) -> Iterator[str]:
    """What fields of an estimate, each sensible by itself, say against each other."""

    def agree(one: float, other: float) -> bool:
        return math.isclose(one, other, rel_tol=_AGREE)

    seconds, total = data["seconds"], math.fsum(data["terms"].values())
    if not agree(seconds, total):
        yield f"seconds = {seconds!r} is not the sum of terms, {total!r}"
    if not agree(data["flop_per_s"] * seconds, data["flop"]):
        yield f"flop_per_s = {data['flop_per_s']!r} is not flop / seconds"
    low, high = data["seconds_low"], data["seconds_high"]
    if (low is None) != (high is None) or (low is not None and not low <= seconds <= high):
        yield f"seconds_low = {low!r} and seconds_high = {high!r} do not enclose seconds = {seconds!r}"
    ranked = sorted(data["period_s"].values())
    if data["margin"] is not None and not (len(ranked) > 1 and agree(data["margin"] * ranked[-2], ranked[-1])):
        yield f"margin = {data['margin']!r} is not that of the two largest in period_s"
    if data["drift_read_bytes"] > data["dram_read_bytes"] * (1 + _AGREE):
        yield f"drift_read_bytes = {data['drift_read_bytes']!r} is above dram_read_bytes = {data['dram_read_bytes']!r}"
    if data["regime"] not in ("launch-bound", data["cache_regime"]):
        yield f"regime = {data['regime']!r} contradicts cache_regime = {data['cache_regime']!r}"
    for name, (low, high) in data["likely"].items():
        value = data[name]
        if not (low <= value * (1 + _AGREE) and high >= value * (1 - _AGREE)):
            yield f"likely = {name}: {low!r} to {high!r} does not enclose {value!r}"
        if name == "l2_hit_rate" and high > 1:
            yield f"likely = {name}: {low!r} to {high!r} is no range of shares"


FIELD_CHECKS: list[Callable[[Mapping[str, Any]], Iterator[str]]] = []
"""Further checks of an estimate's data, each giving what is wrong; families of kernels add that of their fields."""


_SCALARS = (
    "seconds", "roofline_s", "flop", "flop_per_s", "share_of_peak", "clock_hz", "ctas", "waves", "rounds", "tail_share",
    "ctas_per_sm", "registers", "smem_bytes", "split_k", "compulsory_bytes", "requested_bytes", "lookup_bytes",
    "dram_read_bytes", "dram_write_bytes", "drift_read_bytes", "crossing_bytes", "l2_hit_rate", "dirty_after_bytes",
)  # fmt: skip
NUMBER_COLUMNS = (
    *_SCALARS,
    "resident_after",
    *(f"term:{name}" for name in TERMS),
    *(f"busy:{name}" for name in _BUSY),
    *(f"period:{name}" for name in BOUNDS),
)
WORD_COLUMNS = ("binding", "regime", "cache_regime", "kernel", "occupancy_limiter")
"""All columns of :class:`Estimates`, those of an empty batch too."""


@dataclass(frozen=True, eq=False, repr=False)
class Estimates(Displayable, Sequence[Estimate]):
    """A batch of estimates in columns, in the order asked for; compared and hashed by identity.

    ``columns`` holds read-only arrays of shape (L,): every scalar of :class:`Estimate`, ``term:NAME``, ``busy:NAME``,
    ``period:NAME``. ``positions`` are the rows of the request that were priced, ``refusals`` the others with their
    reasons. Indexing gives one :class:`Estimate`.
    """

    columns: Mapping[str, Counts]
    names: Mapping[str, NDArray[Any]]
    problems: Sequence[Any]
    configs: Sequence[Any]
    hardware: Profile
    situation: Situation
    positions: NDArray[np.intp]
    refusals: tuple[tuple[int, str], ...] = ()
    assumptions: Sequence[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        for values in (*self.columns.values(), *self.names.values(), self.positions):
            values.flags.writeable = False

    def __repr__(self) -> str:
        return f"Estimates({len(self)} on {self.hardware.name})"

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
    def seconds_low(self) -> Counts:
        """Lower ends of the likely intervals, in seconds, shape (L,); nan stands for None."""
        return self.seconds / (1 + self._half_width)

    @property
    def seconds_high(self) -> Counts:
        """Upper ends of the likely intervals, in seconds, shape (L,); nan stands for None."""
        return self.seconds * (1 + self._half_width)

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
            if isinstance(name, str) and name in table:
                return table[name]
        raise ConfigError(f"no column {shown(name)}; known: {', '.join([*self.columns, *self.names])}")

    def likely(self, name: str) -> tuple[Counts, Counts]:
        """Ends of the likely intervals of ``dram_read_bytes``, ``lookup_bytes`` or ``l2_hit_rate``, shape (L,) each.

        nan stands for what is not known: widths that the profile lacks, and DRAM reads below a thousandth of the compulsory
        bytes.

        Raises
        ------
        ConfigError
            If that name has no interval.
        """
        if not isinstance(name, str) or name not in LIKELY:
            raise ConfigError(f"no likely interval of {shown(name)}; known: {', '.join(LIKELY)}")
        value, width = self.columns[name], self._cache_widths[name]
        if name == "dram_read_bytes":
            width = np.where(value < FEW_READS * self.columns["compulsory_bytes"], np.nan, width)
        if name == "l2_hit_rate":
            return np.maximum(value - width, 0.0), np.minimum(value + width, 1.0)
        return value / (1 + width), value * (1 + width)

    @cached_property
    def _cache_widths(self) -> Mapping[str, Counts]:
        """Half-widths by regime of the cache, shape (L,) each; nan where unknown."""
        regime = self.names["cache_regime"]
        widths = {name: np.full(len(regime), np.nan) for name in LIKELY}
        for word, table in CACHE_REGIMES.items():
            for name, number in LIKELY.items():
                width = self.hardware.get(f"cache_uncertainty.{table}.{number}")
                widths[name][regime == word] = np.nan if width is None else width
        return widths

    @cached_property
    def _half_width(self) -> NDArray[np.float64]:
        known = [self.hardware.get(f"uncertainty.{name}") for name in self.binding]
        return np.array([np.nan if width is None else width for width in known], dtype=float)

    def _ranges(self, row: int) -> dict[str, tuple[float, float]]:
        """Known likely intervals of one row, beside that of the time."""
        ends = {name: tuple(float(end[row]) for end in self.likely(name)) for name in LIKELY}
        return {name: (low, high) for name, (low, high) in ends.items() if not math.isnan(low)}

    @overload
    def __getitem__(self, row: int) -> Estimate: ...

    @overload
    def __getitem__(self, row: slice) -> list[Estimate]: ...

    def __getitem__(self, row: int | slice) -> Estimate | list[Estimate]:
        check_place(row)
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
            problem_fields=_fields_of(self.problems[row]),
            config=str(self.configs[row]),
            config_fields=_fields_of(self.configs[row]),
            kernel=str(self.names["kernel"][row]),
            hardware=self.hardware.name,
            hardware_hash=self.hardware.hash,
            state=State.of(self.situation, row),
            seconds_low=None if math.isnan(width) else seconds / (1 + width),
            seconds_high=None if math.isnan(width) else seconds * (1 + width),
            terms={name: float(self.columns[f"term:{name}"][row]) for name in TERMS},
            busy_s={name: float(self.columns[f"busy:{name}"][row]) for name in _BUSY},
            period_s=periods,
            binding=str(self.binding[row]),
            margin=ranked[0] / ranked[1] if len(ranked) > 1 else None,
            regime=str(self.names["regime"][row]),
            cache_regime=str(self.names["cache_regime"][row]),
            likely=self._ranges(row),
            occupancy_limiter=str(self.names["occupancy_limiter"][row]),
            resident_after=dict.fromkeys(_TENSORS, resident),
            assumptions=self.assumptions[row] if self.assumptions else (),
            **value,  # type: ignore[arg-type]
        )


def _fields_of(value: Any) -> dict[str, Any]:
    """Fields of a problem or a configuration by name."""
    return {entry.name: getattr(value, entry.name) for entry in fields(value)} if is_dataclass(value) else {}


def columns_of(priced: Priced, hardware: Profile) -> tuple[dict[str, Counts], dict[str, NDArray[Any]]]:
    """Numeric and text columns of a priced batch, for :class:`Estimates`."""
    plan, rounds, moved = priced.plan, priced.waves, priced.traffic
    flop_per_s = plan.flop / priced.seconds
    full_longer = priced.full_s >= priced.tail_s
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
        "drift_read_bytes": moved.drift_read_bytes,
        "crossing_bytes": moved.crossing_bytes,
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
    drifts = moved.drift_read_bytes > DRIFT_SHARE * moved.dram_read_bytes
    cache_regime = np.where(drifts, "drift", np.where(edge, "capacity edge", "lockstep"))
    words = {
        "binding": binding,
        "regime": np.where(binding == "launch", "launch-bound", cache_regime),
        "cache_regime": np.broadcast_to(cache_regime, len(plan)),
        "kernel": np.full(len(plan), plan.kernel),
        "occupancy_limiter": np.array(LIMITERS)[priced.occupancy.limiter],
    }
    length = len(plan)
    return {name: np.broadcast_to(np.asarray(v, float), length) for name, v in numbers.items()}, words
