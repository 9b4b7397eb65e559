"""Drift: CTAs that share a tile move apart along k, so that a late one finds its block evicted and fetches it again.

GPCs differ in pace by a nearly constant factor, so that positions spread in proportion to the work done (records
``triton_drift``, ``triton_drift_tiles``, ``triton_drift_stages``). With s the relative standard deviation of the pace and K
the elements of k of a tile, a wave adds s K to the spread sigma:

    tensor cores bind        s = tensor_spread, between GPCs: their clocks under load
    the loop waits           waiting_spread K in all, between groups: who is late finds its blocks in L2 and catches up
    CTAs share an SM         s + crowded_spread: the older is served first
    L2 binds, U > 1          s + bound_spread * min(1, (1 - 1 / U) / bound_gain): SMs of small CPCs are served first

and starts of tiles spread by ``start_jitter_s`` each. U is the time that L2 takes for a step's lookups, at
``bound_onset`` of its rate, over the time of the step without them. Where lookups of neighbours still merge U may be below
1, and above once drift has ended the merging (``cost/merging.py``): spread then feeds itself. It ends at 0.29 K, positions
spread evenly over a tile.

A block lives in L2 while the wave moves on by a window of elements, until it is fetched or asked for again:

    window = capacity / (copies of the bytes per element that the wave reads and fetches, and its output)
    fetches of a block = 1 + (N - 1) * max(0, 1 - window / range)^N,        range = sqrt(12) sigma

the mean number of gaps wider than the window between N points spread evenly over the range; N are the groups of sharers that
keep together. Fetches fill the cache and shorten the window, so both are solved for together.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tilesight.cost.raster import FOLLOWED
from tilesight.hardware.profile import Profile
from tilesight.plan.tile import Counts

EVEN_SHARE = 12.0**-0.5
"""Standard deviation over range of positions spread evenly."""
ROUNDS = 6
CROWD_TOGETHER = 4.0
"""Sharers that keep together where several CTAs compete for an SM."""


@dataclass(frozen=True)
class Pace:
    """What sets the pace of each launch, shape (L,).

    ``steady`` is the relative standard deviation of what GPCs keep for the whole launch, ``unfair`` that of what CTAs of
    one SM keep, ``held`` the spread, relative to a tile, beyond which late CTAs catch up; ``jitter_elements`` by how much
    starts of tiles spread;
    ``l2_share`` the time that L2 takes for a step's requests, none merged, over the time of the step without them;
    ``lead`` by how much a CTA that has an SM to one fewer is faster, as a share of its way; ``ctas_per_sm`` those that
    compete for an SM; ``loads_plainly`` whether threads load (cp.async), not bulk copies;
    ``restarts`` whether each tile is a CTA of its own, which goes to whichever SM is free.
    """

    steady: Counts
    unfair: Counts
    held: Counts
    jitter_elements: Counts
    l2_share: Counts
    lead: Counts
    ctas_per_sm: Counts
    loads_plainly: NDArray[np.bool_]
    restarts: NDArray[np.bool_]

    def __getitem__(self, rows: NDArray[np.intp]) -> "Pace":
        """Of the given row numbers."""
        return Pace(**{name: values[rows] for name, values in vars(self).items()})


def pace(
    tensor_s: Counts,
    own_s: Counts,
    l2_s: Counts,
    fewer_s: Counts,
    elements: Counts,
    ctas_per_sm: Counts,
    plainly: bool,
    restarts: bool,
    hardware: Profile,
) -> Pace:
    """Pace of launches from the times of one step of ``elements`` of k, shape (L,) each: of the tensor cores of an SM, of
    the loop's own instructions, of L2 if no requests merge, and of the step with a CTA fewer on the SM."""
    waiting = own_s >= tensor_s
    step_s = np.maximum(tensor_s, own_s)
    return Pace(
        steady=np.where(waiting, 0.0, hardware.require("drift.tensor_spread")),
        unfair=np.where(ctas_per_sm > 1, hardware.require("drift.crowded_spread"), 0.0),
        held=np.where(waiting, hardware.require("drift.waiting_spread"), 0.0),
        jitter_elements=hardware.require("drift.start_jitter_s") / step_s * elements,
        l2_share=l2_s / step_s,
        lead=np.where(ctas_per_sm > 1, np.clip(1.0 - fewer_s / step_s, 0.0, 1.0), 0.0),
        ctas_per_sm=ctas_per_sm,
        loads_plainly=np.full(len(ctas_per_sm), plainly),
        restarts=np.full(len(ctas_per_sm), restarts),
    )


@dataclass(frozen=True)
class Spread:
    """How far CTAs are apart in each wave that is followed, shape (waves, L).

    Standard deviations of positions in elements of k in the middle of the wave, over the chip (``whole``) and inside a GPC
    (``inside``), and the share of neighbours in the raster that are still neighbours on the chip (``kept``).
    """

    whole: NDArray[np.float64]
    inside: NDArray[np.float64]
    kept: NDArray[np.float64]


def spread_by_wave(
    how: Pace, k: Counts, waves: Counts, share: Callable[[Counts, Counts, int], Counts], hardware: Profile
) -> Spread:
    """Spread of launches of so many waves, wave by wave.

    ``share`` gives lookups / requests at a spread in elements among neighbours, of whom a share is kept, in a wave.
    """
    bound, gain = hardware.require("drift.bound_spread"), hardware.require("drift.bound_gain")
    steady_kept, apart_kept = hardware.require("drift.kept_steady_share"), hardware.require("drift.kept_apart_share")
    onset, most = hardware.require("drift.bound_onset"), EVEN_SHARE * k
    followed = int(np.clip(np.max(np.ceil(waves)), 1, FOLLOWED))
    whole, inside, kept = np.zeros((3, followed, len(k)))
    steady, parted = np.zeros((2, len(k)))
    own, held, jitter = (how.steady * k) ** 2, (how.held * k) ** 2, how.jitter_elements**2
    here = np.ones_like(k)
    for wave in range(followed):
        walk = jitter * wave
        near = np.sqrt(parted**2 + walk)
        pressed = np.maximum(how.l2_share * share(np.minimum(near, most), here, wave) / onset, 1.0)
        step = k * how.unfair + k * bound * np.minimum(1.0, (1.0 - 1.0 / pressed) / gain)
        inside[wave] = np.minimum(np.sqrt((parted + step / 2.0) ** 2 + walk), most)
        apart = (parted + step / 2.0 + steady + how.steady * k / 2.0) ** 2 + walk + held
        whole[wave] = np.minimum(np.sqrt(apart), most)
        kept[wave] = here
        steady, parted = steady + how.steady * k, parted + step
        # the next tile goes to who ends first: GPC by GPC where these differ, anybody where CTAs of a GPC do
        between = own / np.maximum(own + step**2 + held + jitter, 1e-12)
        here = np.where(how.restarts, steady_kept * between + apart_kept * (1.0 - between), 1.0)
    return Spread(whole, inside, kept)


@dataclass(frozen=True)
class Fetches:
    """Times that a block comes from beyond L2 in a wave that does not find it, shape (4, W), for all its readers
    (``whole``) and for those on one side of the chip (``side``); elements of k for which a block lives, shape (W,)."""

    whole: Counts
    side: Counts
    window_elements: Counts


def fetches(
    sharers: Counts,
    gpcs: Counts,
    held: Counts,
    output: Counts,
    k: Counts,
    spread: Counts,
    crowded: NDArray[np.bool_],
    capacity: float,
) -> Fetches:
    """How often waves fetch their blocks.

    Parameters
    ----------
    sharers, gpcs
        CTAs that share a block, and GPCs that they are in, shape (4, W).
    held
        Bytes of L2 that an element of k takes at one fetch, copies counted, shape (4, W).
    output
        Bytes that the wave writes, shape (W,).
    k
        Elements that a tile sums over, shape (W,).
    spread
        Standard deviation of positions in elements, shape (W,).
    crowded
        Whether several CTAs share an SM, shape (W,).
    capacity
        Bytes of L2.
    """
    together = np.where(crowded, np.maximum(gpcs, sharers / CROWD_TOGETHER), gpcs)
    reach = np.maximum(spread / EVEN_SHARE, 1e-9)
    written = output / k

    def times(groups: Counts, window: Counts) -> Counts:
        """1 + (N - 1) x^N; x^N as exp(N log x), since one logarithm serves all kinds."""
        gap = np.log(np.maximum(1.0 - window / reach, 1e-300))
        return 1.0 + (groups - 1.0) * np.exp(groups * gap)

    whole = np.ones_like(held)
    window = capacity / np.maximum(held.sum(axis=0) + written, 1e-9)
    if np.any(window < reach):  # else every block outlives the spread
        for _ in range(ROUNDS):
            whole = (whole + times(together, window)) / 2.0
            window = capacity / ((held * whole).sum(axis=0) + written)
    return Fetches(whole, times(np.maximum(together / 2.0, 1.0), window), window)


def lonely_tiles(ctas: Counts, slots: Counts, ctas_per_sm: Counts, k: Counts, lead: Counts, window: Counts) -> Counts:
    """CTAs of a wave of so many that share an SM with fewer than others do, and run ahead by more than blocks live.

    Of t CTAs on S SMs, q = ceil(t / S) on the busiest, S q - t SMs have q - 1. At the end these lead by ``lead`` K elements,
    and for the share 1 - window / lead K of their way what they read is evicted before others come. Gives CTAs times that
    share, shape (W,).
    """
    sms = slots / ctas_per_sm
    busiest = np.ceil(ctas / sms)
    fewer = np.minimum(np.maximum(sms * busiest - ctas, 0.0) * (busiest - 1.0), ctas)
    ahead = np.where(busiest == ctas_per_sm, lead, 0.0) * k
    return fewer * np.clip(1.0 - window / np.maximum(ahead, 1e-9), 0.0, 1.0)
