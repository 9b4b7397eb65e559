"""The time of every alternative at one size, the best cluster size, the crossover, and a caller's own timings in them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf, isfinite
from typing import NamedTuple, Protocol, TypeVar

import numpy as np

from tilesight.dsmem.alternatives import ALTERNATIVES, Candidates, Kernels, candidates
from tilesight.dsmem.rates import Rates
from tilesight.dsmem.staging import SPARE_BYTES, Floats, mailbox_bytes
from tilesight.dsmem.times import BOUNDS, Priced, price
from tilesight.dsmem.workload import Workload
from tilesight.errors import UnsupportedError
from tilesight.units import format_bytes

TIE = 0.02
"""Times closer than this are told apart by a measurement alone; a tie goes to the kernel without a cluster."""
OTHER_TIE = 0.035
"""Among kernels without clusters this close, those whose worst case is best come first, then rows on chip."""
SIZE_TIE = 0.01
"""Among cluster sizes this close, those whose worst case is best come first, then the smallest."""
LATENCY_TIE, LATENCY_SHARE = 0.02, 0.8
"""Sizes whose rows take that share of the bound from end to end give way to smaller ones this close."""
PORTABLE_TIE = 0.05
"""Sizes above 8, which few launches may have, are taken where they are faster by more than this."""
PORTABLE_MOST = 8
"""CTAs of the largest cluster that every GPU with clusters takes."""
WIDEST = 262144
"""Columns up to which the crossover is looked for."""
_STEPS = ((1024, 32768, 1024), (32768, 65536, 2048), (65536, 131072, 4096), (131072, WIDEST + 1, 8192))
WIDTHS = np.array([width for steps in _STEPS for width in range(*steps)], float)
"""Widths at which the crossover is looked for."""
LEAST_S = 1e-9
"""No launch takes less, whatever timings say."""


@dataclass(frozen=True)
class AlternativeTime:
    """What one alternative takes; times are None where it is not legal, and ``why`` says why.

    Attributes
    ----------
    name, cluster, settings
        The alternative, CTAs a row, and how it was launched: the fastest of those tried.
    seconds, seconds_low, seconds_high
        Likely time, and its ends by what the model does not know (``UNKNOWN``): no share of measurements that lie between.
    binding
        ``dram``, ``l2``, ``sm`` (rates of the SMs) or ``latency`` (a row from end to end).
    dram_bytes_per_element, hit_share
        Bytes from and to DRAM, and the share of later reads that L2 still holds.
    latency_share
        Time that rows take from end to end, one after the other in one CTA, over the bound of the launch; 1 if it is that.
    dram_seconds
        What of ``seconds`` its bytes from and to DRAM take at the rates of the memory; the rest: exchange, latency, launch.
    timed
        Whether the time is the caller's own.
    worst_seconds
        Worst case by which ties are broken: ``seconds_high``, but for a timing, which keeps its predicted share above.
    """

    name: str
    cluster: int
    settings: str
    seconds: float | None
    seconds_low: float | None
    seconds_high: float | None
    binding: str | None
    dram_bytes_per_element: float | None
    hit_share: float | None
    latency_share: float
    ctas_per_sm: int
    slots: int
    threads: int
    rounds: int
    dram_seconds: float | None = None
    timed: bool = False
    worst_seconds: float | None = None
    why: str | None = None


@dataclass(frozen=True)
class Answer:
    """Times of all alternatives at the size that was asked for, and N*; None where no cluster pays at any width."""

    times: tuple[AlternativeTime, ...]
    crossover_cols: int | None


def answer(
    which: Workload, shape: tuple[int, int], dtype: str, *, cache: str, kernels: Kernels, rates: Rates
) -> Answer:
    """Times of all alternatives at one size, and the crossover for that many rows."""
    rows, cols = shape
    widths = np.concatenate([[float(cols)], WIDTHS])
    priced = [
        price(each, which, rows, widths, cache=cache, rates=rates)
        for each in candidates(which, rows, widths, dtype, rates, kernels)
    ]
    best: dict[tuple[str, int], tuple[float, Priced, int]] = {}
    for each in priced:
        for place, label in enumerate(each.candidates.labels):
            key, likely = (label.name, label.cluster), float(each.seconds[0, place, 0])
            if key not in best or likely < best[key][0]:
                best[key] = (likely, each, place)
    order = sorted(best, key=lambda key: (ALTERNATIVES.index(key[0]), key[1]))
    elements = float(rows) * cols
    times = tuple(_time(best[key][1], best[key][2], which, elements, rates) for key in order)
    return Answer(times, _crossover(priced))


def _time(priced: Priced, place: int, which: Workload, elements: float, rates: Rates) -> AlternativeTime:
    given, placed = priced.candidates, priced.candidates.placement
    label = given.labels[place]
    likely, *ends = (float(value) for value in priced.seconds[:, place, 0])
    legal = np.isfinite(likely)
    high = max(likely, *ends) if legal else None
    return AlternativeTime(
        name=label.name,
        cluster=label.cluster,
        settings=label.settings,
        seconds=likely if legal else None,
        seconds_low=min(likely, *ends) if legal else None,
        seconds_high=high,
        binding=BOUNDS[int(priced.binding[place, 0])] if legal else None,
        dram_bytes_per_element=float(priced.dram_bytes[place, 0]) / elements if legal else None,
        hit_share=float(priced.hit_share[place, 0]) if legal and given.on_chip is None else None,
        latency_share=float(priced.latency_share[place, 0]) if legal else 0.0,
        ctas_per_sm=int(placed.ctas_per_sm[place, 0]),
        slots=int(placed.slots[place, 0]),
        threads=int(placed.threads[place, 0]),
        rounds=int(priced.rounds[place, 0]),
        dram_seconds=float(priced.dram_seconds[place, 0]) if legal else None,
        worst_seconds=high,
        why=None if legal else _limit(given, place, which, rates),
    )


def _limit(given: Candidates, place: int, which: Workload, rates: Rates) -> str:
    """Why a candidate is not legal at the first width: what of its CTA there is no room for."""
    placed = given.placement
    threads, slots_bytes = float(placed.threads[place, 0]), float(placed.smem_bytes[place, 0])
    mailbox, cta = mailbox_bytes(which), format_bytes(rates.smem_cta_bytes)
    if threads > rates.threads:
        return f"a CTA has {threads:.0f} threads, and an SM {rates.threads}"
    if given.on_chip == "smem" and slots_bytes + mailbox + SPARE_BYTES > rates.smem_cta_bytes:
        if mailbox > rates.smem_cta_bytes / 2:
            most = max(each.statistics for each in which.form("merged"))
            return f"{most} statistics take {format_bytes(mailbox)} of shared memory to exchange, and a CTA has {cta}"
        return f"a slice takes {format_bytes(slots_bytes)} of shared memory, and a CTA has {cta}"
    has = f"a thread may have {rates.registers_most}, an SM has {rates.registers}"
    return f"{threads:.0f} threads need more registers than there are: {has}"


class Timed(Protocol):
    """What the choice among alternatives goes by."""

    @property
    def name(self) -> str: ...
    @property
    def cluster(self) -> int: ...
    @property
    def seconds(self) -> float | None: ...
    @property
    def seconds_high(self) -> float | None: ...
    @property
    def worst_seconds(self) -> float | None: ...
    @property
    def latency_share(self) -> float: ...


AnyTime = TypeVar("AnyTime", bound=Timed)


class _At(NamedTuple):
    """An alternative at one of ``WIDTHS``."""

    name: str
    cluster: int
    seconds: float
    seconds_high: float
    worst_seconds: float
    latency_share: float


def _crossover(priced: Sequence[Priced]) -> int | None:
    """Smallest of ``WIDTHS`` at which a cluster pays, and from which on it is slower by more than a tie at none of those at
    which one is legal: the rule of the verdict, at each width from the widest down."""
    found, at = None, _at_widths(priced)
    for place in range(len(WIDTHS) - 1, -1, -1):
        times = [_At(*key, *(float(value) for value in values[:, place])) for key, values in at.items()]
        times = [each for each in times if isfinite(each.seconds)]
        cluster, other = best_cluster(times), best_other(times)
        if cluster is None:
            continue
        if other is not None and is_slower(cluster.seconds, other.seconds):
            break
        if other is None or is_slower(other.seconds, cluster.seconds):
            found = int(WIDTHS[place])
    return found


def is_slower(seconds: float, other_s: float) -> bool:
    """Whether a time is above another by more than a tie."""
    return seconds / other_s > 1 + TIE


def _at_widths(priced: Sequence[Priced]) -> dict[tuple[str, int], Floats]:
    """Likely time, high end twice and share of latency by alternative, shape (4, W): of its fastest candidate."""
    by_key: dict[tuple[str, int], list[Floats]] = {}
    for each in priced:
        for place, label in enumerate(each.candidates.labels):
            high = each.seconds[:, place, 1:].max(axis=0)
            values = np.stack([each.seconds[0, place, 1:], high, high, each.latency_share[place, 1:]])
            by_key.setdefault((label.name, label.cluster), []).append(values)
    found = {}
    for key in sorted(by_key, key=lambda key: (ALTERNATIVES.index(key[0]), key[1])):
        ways = np.array(by_key[key])  # (ways, 4, W)
        found[key] = np.take_along_axis(ways, ways[:, :1].argmin(axis=0)[np.newaxis], axis=0)[0]
    return found


def best_cluster(times: Sequence[AnyTime]) -> AnyTime | None:
    """The cluster to take; None where none is legal: of sizes that tie, portable ones, then smaller ones that latency does
    not nearly bind, then those with a good worst case."""
    legal = [each for each in times if each.name == "cluster" and each.seconds is not None]
    portable = [each for each in legal if each.cluster <= PORTABLE_MOST]
    least = min((each.seconds or inf for each in legal), default=inf)
    if any((each.seconds or inf) <= least * (1 + PORTABLE_TIE) for each in portable):
        legal = portable
    near = _near(legal, LATENCY_TIE)
    calm = [each for each in near if each.latency_share < LATENCY_SHARE]
    return _safest(_near(calm, SIZE_TIE), SIZE_TIE) if calm else _safest(near[:1], SIZE_TIE)


def best_other(times: Sequence[AnyTime]) -> AnyTime | None:
    """The alternative to take without clusters; None where there is none. Of times within 3.5 %, a good worst case."""
    return _safest(_near([each for each in times if each.name != "cluster"], OTHER_TIE), TIE)


def _near(times: Sequence[AnyTime], tie: float) -> list[AnyTime]:
    """Those whose likely time is within ``tie`` of the least."""
    legal = [each for each in times if each.seconds is not None]
    least = min((each.seconds or inf for each in legal), default=inf)
    return [each for each in legal if (each.seconds or inf) <= least * (1 + tie)]


def _safest(times: Sequence[AnyTime], tie: float) -> AnyTime | None:
    """The first whose worst case is within ``tie`` of the best one: smaller clusters and rows on chip come first."""
    worst = min((_worst(each) for each in times), default=inf)
    return next((each for each in times if _worst(each) <= worst * (1 + tie)), None)


def _worst(time: Timed) -> float:
    return time.worst_seconds or time.seconds_high or inf


def sharpened(
    times: tuple[AlternativeTime, ...], timed: Mapping[str, float], control: Mapping[int, float]
) -> tuple[AlternativeTime, ...]:
    """Times with the caller's own in the place of those predicted, and clusters scaled by the fastest of them (eq. 7).

        T_cluster = (T_B measured / T_B predicted) * DRAM part + rest

    The DRAM part is what the cluster's bytes take at the rates of the memory (``dram_seconds``), the rest exchange, latency
    and launch: as predicted, or the control's time. A timing that is as predicted changes no time. Other alternatives stay
    as predicted; where the timing is of the fastest one, without a name, none of them is below it.

    Raises
    ------
    UnsupportedError
        If a timing is of a kernel that can't run at this size.
    """
    if not timed:
        return times
    taken = best_other(times)
    if taken is None and "" in timed:
        raise UnsupportedError("timing_s is of the fastest kernel without a cluster, and none can run at this width")
    own = {name or (taken.name if taken else ""): value for name, value in timed.items()}
    known = {each.name: each for each in times if each.name in own}
    for name in own:
        if name not in known or known[name].seconds is None:
            why = known[name].why if name in known else "it is not among those that are priced"
            raise UnsupportedError(f"timing_s[{name!r}] is of a kernel that can't run at this width: {why}")
    base = known[min(own, key=lambda name: own[name])]
    factor = own[base.name] / (base.seconds or inf)
    least = timed.get("", 0.0)
    return tuple(_sharpened(each, own, factor, least, control) for each in times)


def _sharpened(
    time: AlternativeTime, own: Mapping[str, float], factor: float, least: float, control: Mapping[int, float]
) -> AlternativeTime:
    if time.seconds is None:
        return time
    if time.name in own:
        seconds = own[time.name]
        risk = (time.worst_seconds or time.seconds) / time.seconds
        ends = (seconds, seconds, risk * seconds)
        return _with(time, seconds, *ends, timed=True)
    if time.name == "cluster":
        moved = time.dram_seconds or 0.0
        if time.cluster in control:
            return _scaled(time, max(factor * moved + control[time.cluster], LEAST_S))
        return _scaled(time, max(time.seconds + (factor - 1) * moved, LEAST_S))
    return _scaled(time, max(time.seconds, least))


def _scaled(time: AlternativeTime, seconds: float) -> AlternativeTime:
    """The alternative at another likely time; its ends keep their distance, relative to it."""
    share = seconds / (time.seconds or inf)
    if share == 1:
        return time
    low, high, worst = (
        (getattr(time, name) or 0.0) * share for name in ("seconds_low", "seconds_high", "worst_seconds")
    )
    return _with(time, seconds, min(low, seconds), max(high, seconds), max(worst, seconds), timed=False)


def _with(
    time: AlternativeTime, seconds: float, low: float, high: float, worst: float, *, timed: bool
) -> AlternativeTime:
    return replace(time, seconds=seconds, seconds_low=low, seconds_high=high, worst_seconds=worst, timed=timed)
