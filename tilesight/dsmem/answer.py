"""The time of every alternative at one size, the best cluster size, the crossover, and a caller's own timings in them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf

import numpy as np

from tilesight.dsmem.alternatives import ALTERNATIVES, Kernels, candidates
from tilesight.dsmem.rates import Rates
from tilesight.dsmem.times import BOUNDS, Priced, price
from tilesight.dsmem.workload import Workload
from tilesight.errors import UnsupportedError
from tilesight.units import format_bytes

TIE = 0.02
"""Times closer than this are told apart by a measurement alone; a tie goes to the kernel without a cluster."""
SIZE_TIE = 0.01
"""Among cluster sizes this close, portable ones come first, then those whose worst case is best, then the smallest."""
PORTABLE_MOST = 8
"""CTAs of the largest cluster that every GPU with clusters takes."""
_STEPS = ((1024, 32768, 1024), (32768, 65536, 2048), (65536, 131072, 4096), (131072, 262144, 8192))
WIDTHS = np.array([width for steps in _STEPS for width in range(*steps)] + [2**power for power in range(18, 22)], float)
"""Widths at which the crossover is looked for."""


@dataclass(frozen=True)
class AlternativeTime:
    """What one alternative takes; times are None where it is not legal, and ``why`` says why.

    Attributes
    ----------
    name, cluster, settings
        The alternative, CTAs a row, and how it was launched: the fastest of those tried.
    seconds, seconds_low, seconds_high
        Likely time, and its ends by what the model does not know (``UNKNOWN``).
    binding
        ``dram``, ``l2``, ``sm`` (rates of the SMs) or ``latency`` (a row from end to end).
    dram_bytes_per_element, hit_share
        Bytes from and to DRAM, and the share of later reads that L2 still holds.
    timed
        Whether the time is the caller's own.
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
    ctas_per_sm: int
    slots: int
    threads: int
    rounds: int
    timed: bool = False
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
    times = tuple(_time(best[key][1], best[key][2], elements, rates) for key in order)
    return Answer(times, _crossover(priced))


def _time(priced: Priced, place: int, elements: float, rates: Rates) -> AlternativeTime:
    given, placed = priced.candidates, priced.candidates.placement
    label = given.labels[place]
    likely, *ends = (float(value) for value in priced.seconds[:, place, 0])
    legal = np.isfinite(likely)
    needs = f"a slice takes {format_bytes(float(placed.smem_bytes[place, 0]))} of shared memory"
    return AlternativeTime(
        name=label.name,
        cluster=label.cluster,
        settings=label.settings,
        seconds=likely if legal else None,
        seconds_low=min(likely, *ends) if legal else None,
        seconds_high=max(likely, *ends) if legal else None,
        binding=BOUNDS[int(priced.binding[place, 0])] if legal else None,
        dram_bytes_per_element=float(priced.dram_bytes[place, 0]) / elements if legal else None,
        hit_share=float(priced.hit_share[place, 0]) if legal and given.on_chip is None else None,
        ctas_per_sm=int(placed.ctas_per_sm[place, 0]),
        slots=int(placed.slots[place, 0]),
        threads=int(placed.threads[place, 0]),
        rounds=int(priced.rounds[place, 0]),
        why=None if legal else f"{needs}, and a CTA has {format_bytes(rates.smem_cta_bytes)}",
    )


def _crossover(priced: Sequence[Priced]) -> int | None:
    """Smallest of ``WIDTHS`` at which a cluster pays, and is no slower at any wider one at which it is legal."""

    def fastest(clusters: bool) -> np.ndarray:
        rows = [
            each.seconds[0, place, 1:]
            for each in priced
            for place, label in enumerate(each.candidates.labels)
            if (label.name == "cluster") == clusters
        ]
        return np.min(rows, axis=0) if rows else np.full(len(WIDTHS), np.inf)

    cluster, other = fastest(True), fastest(False)
    pays = cluster * (1 + TIE) < other
    no_slower = (cluster < other) | ~np.isfinite(cluster)
    from_on = pays & np.logical_and.accumulate(no_slower[::-1])[::-1]
    return int(WIDTHS[int(np.argmax(from_on))]) if from_on.any() else None


def best_cluster(times: Sequence[AlternativeTime]) -> AlternativeTime | None:
    """The cluster to take; None where none is legal. Of sizes within 1 %, a portable one with a good worst case."""
    near = _near([each for each in times if each.name == "cluster"], SIZE_TIE)
    near = [each for each in near if each.cluster <= PORTABLE_MOST] or near
    return _safest(near, SIZE_TIE)


def best_other(times: Sequence[AlternativeTime]) -> AlternativeTime | None:
    """The alternative to take without clusters; None where there is none. Of times within 2 %, a good worst case."""
    return _safest(_near([each for each in times if each.name != "cluster"], TIE), TIE)


def _near(times: Sequence[AlternativeTime], tie: float) -> list[AlternativeTime]:
    """Those whose likely time is within ``tie`` of the least."""
    legal = [each for each in times if each.seconds is not None]
    least = min((each.seconds or inf for each in legal), default=inf)
    return [each for each in legal if (each.seconds or inf) <= least * (1 + tie)]


def _safest(times: Sequence[AlternativeTime], tie: float) -> AlternativeTime | None:
    """The first whose worst case is within ``tie`` of the best one: smaller clusters and rows on chip come first."""
    worst = min((each.seconds_high or inf for each in times), default=inf)
    return next((each for each in times if (each.seconds_high or inf) <= worst * (1 + tie)), None)


def sharpened(
    times: tuple[AlternativeTime, ...], timed: Mapping[str, float], control: Mapping[int, float]
) -> tuple[AlternativeTime, ...]:
    """Times with the caller's own in the place of those predicted, and clusters priced from the fastest of them (eq. 7).

    A cluster takes T_B * (its DRAM bytes / those of the timed kernel) + what it costs besides: the control's time where
    that was measured, else what is predicted.

    Raises
    ------
    UnsupportedError
        If a timing is of a kernel that can't run at this size.
    """
    fastest = best_other(times)
    if not timed or fastest is None:
        return times
    own = {name or fastest.name: value for name, value in timed.items()}
    known = {each.name: each for each in times if each.name in own}
    base = known[min(own, key=lambda name: own[name])]
    for each in known.values():
        if each.seconds is None:
            raise UnsupportedError(f"timing_s[{each.name!r}] is of a kernel that can't run at this width: {each.why}")
    found = []
    for each in times:
        if each.name in own:
            found.append(_with_time(each, own[each.name], timed=True))
        elif each.name == "cluster" and each.seconds is not None:
            share = (each.dram_bytes_per_element or 0.0) / (base.dram_bytes_per_element or inf)
            besides = control.get(each.cluster, max(each.seconds - (base.seconds or 0.0) * share, 0.0))
            found.append(_with_time(each, own[base.name] * share + besides, timed=False))
        else:
            found.append(each)
    return tuple(found)


def _with_time(time: AlternativeTime, seconds: float, *, timed: bool) -> AlternativeTime:
    return replace(time, seconds=seconds, seconds_low=seconds, seconds_high=seconds, timed=timed, why=None)
