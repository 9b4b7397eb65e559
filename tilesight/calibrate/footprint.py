"""Effective capacity and associativity of L2 from a sweep of footprints, through the model's own cache law.

A kernel that walks a footprint W again and again meets every line after all the others: the reuse distance is W. With
the stochastic distance-based model (``cost/reuse.py``) of a cache of ``capacity_bytes``, and h = P(hit at W),

    time per byte = h / (rate_l2 (1 + g / (1 + W / w))) + (1 - h) / rate_dram

The capacity is where hits end, the associativity how sharply, and both are effective: copies of a line in two partitions
halve the one, a hash of addresses raises the other. Small footprints have another rate, 1 + g of that of large ones, from
which the half is gone at w: few lines lie unevenly over the slices of L2 (g < 0), and SMs that walk the same lines meet
on some and share the lookup (g > 0), the more often the fewer lines there are.

The six constants are fitted at once to the logarithm of the rates, from several starts: the time is linear in 1 / rate_l2,
1 / rate_dram and the part of small footprints, so that a grid over the other three gives each start.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from os import PathLike
from typing import Any, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import least_squares

from tilesight.calibrate.found import Derivation, Found, Numbers
from tilesight.calibrate.records import Records
from tilesight.cost.reuse import hit_probability_gaussian
from tilesight.errors import TableError, UnsupportedError
from tilesight.hardware.load import load_profile
from tilesight.hardware.profile import Profile

Floats = NDArray[np.float64]

POINTS_LEAST = 8
WAYS_MOST = 4096.0
WAYS = (4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0)
"""Associativities from which the fit starts, each with every capacity between two footprints."""
SMALL = (1 / 1024, 1 / 256, 1 / 64)
"""Shares of the largest footprint from which ``small_bytes`` starts, one fit each."""
SMALL_MOST = 1 / 16
"""Share of the largest footprint that ``small_bytes`` never passes: beyond it, it would be one with the rate of L2."""
GAIN = (-0.95, 10.0)
"""Least and most of ``small_gain``."""
TOLERANCE = 0.02
"""Relative error beyond which a point counts less (soft L1)."""


@dataclass(frozen=True)
class FootprintFit:
    """An L2 as a sweep of footprints sees it.

    Attributes
    ----------
    capacity_bytes, associativity
        Of the stochastic distance-based model; effective, not what the datasheet says.
    rate_l2_bytes_per_s, rate_dram_bytes_per_s
        Rates of a large footprint that hits and of one that misses.
    misfit
        Root mean square of the relative error over the points of the fit.
    line_bytes
        Bytes of a block.
    small_gain, small_bytes
        Rate of the smallest footprints over ``rate_l2_bytes_per_s``, less 1, and the footprint at which half of it is
        left. Not known, and of no weight, where the gain is 0.
    """

    capacity_bytes: float
    associativity: int
    rate_l2_bytes_per_s: float
    rate_dram_bytes_per_s: float
    misfit: float
    line_bytes: int
    small_gain: float = 0.0
    small_bytes: float = 1.0

    def hit_share(self, footprint_bytes: ArrayLike) -> Floats:
        """Share of lines that hit, shape as given."""
        return _hits(np.asarray(footprint_bytes, dtype=float), self.capacity_bytes, self.associativity, self.line_bytes)

    def predict(self, footprint_bytes: ArrayLike) -> Floats:
        """Bytes per second at footprints, shape as given."""
        sizes, hit = np.asarray(footprint_bytes, dtype=float), self.hit_share(footprint_bytes)
        held = self.rate_l2_bytes_per_s * (1.0 + self.small_gain / (1.0 + sizes / self.small_bytes))
        return 1.0 / (hit / held + (1.0 - hit) / self.rate_dram_bytes_per_s)


def fit_footprint(
    footprint_bytes: ArrayLike, bytes_per_s: ArrayLike, *, hardware: Profile | str | PathLike[str]
) -> FootprintFit:
    """Capacity, associativity, the two rates and what small footprints have of their own, from a sweep of footprints.

    Parameters
    ----------
    footprint_bytes
        Bytes that are walked again and again, shape (n,); from well below L2 to well above it.
    bytes_per_s
        Measured rates, shape (n,).
    hardware
        A profile, its name or its file; gives the bytes of a line.

    Raises
    ------
    TableError
        If there are fewer than 8 points, a value is not above 0 and finite, or the lengths differ.

    Examples
    --------
    >>> truth = FootprintFit(40e6, 32, 8e12, 4e12, 0.0, 128)
    >>> sizes = 5e6 * 2 ** np.linspace(0, 5, 40)
    >>> found = fit_footprint(sizes, truth.predict(sizes), hardware="h200_sxm")
    >>> found.associativity, round(found.capacity_bytes / 1e6, 2)
    (32, 40.0)
    """
    sizes, rates = np.asarray(footprint_bytes, dtype=float), np.asarray(bytes_per_s, dtype=float)
    if sizes.ndim != 1 or sizes.shape != rates.shape or len(sizes) < POINTS_LEAST:
        raise TableError(
            f"footprints and rates have shapes {sizes.shape} and {rates.shape}; give {POINTS_LEAST} points or more of each"
        )
    if not (np.all(np.isfinite(sizes) & (sizes > 0)) and np.all(np.isfinite(rates) & (rates > 0))):
        raise TableError("a footprint or rate is not a finite number above 0")
    line = load_profile(hardware).l2.line_bytes

    def fit_of(x: Floats, ways: float) -> FootprintFit:
        capacity, l2, dram, gain, small = (float(value) for value in (*np.exp(x[:3]), x[3], np.exp(x[4])))
        return FootprintFit(capacity, cast("int", ways), l2, dram, 0.0, line, gain, small)

    def misfit(x: Floats) -> Floats:
        error: Floats = np.log(rates / fit_of(x[:5], float(np.exp(x[5]))).predict(sizes))
        return error

    rate, most = rates.min() / 10, sizes.max()
    low = np.array([*np.log([WAYS_MOST * line, rate, rate]), GAIN[0], np.log(sizes.min() / 10), 0.0])
    high = np.array(
        [
            *np.log([max(2 * most, 2 * WAYS_MOST * line), rates.max() * 10, rates.max() * 10]),
            GAIN[1],
            np.log(max(SMALL_MOST * most, sizes.min())),
            np.log(WAYS_MOST),
        ]
    )
    starts = _starts(sizes, rates, line)
    best, _ = min((_least(misfit, start, low, high) for start in starts), key=lambda found: found[1])
    ways = round(float(np.exp(best[5])))

    def with_whole_ways(x: Floats) -> Floats:
        return misfit(np.append(x, np.log(ways)))

    last, _ = _least(with_whole_ways, best[:5], low[:5], high[:5])
    rms = float(np.sqrt(np.mean(with_whole_ways(last) ** 2)))
    return replace(fit_of(last, ways), associativity=ways, misfit=rms)


def _hits(sizes: Floats, capacity_bytes: float, ways: float, line_bytes: int) -> Floats:
    """P(hit) at a reuse distance of each footprint; the Gaussian form takes fractions of ways."""
    return hit_probability_gaussian(sizes / line_bytes, cast("int", ways), capacity_bytes / line_bytes)


def _least(law: Callable[[Floats], Floats], start: Floats, low: Floats, high: Floats) -> tuple[Floats, float]:
    """Constants at the end of a fit, and what is left over."""
    inside = np.clip(start, low + 1e-6, high - 1e-6)
    found = least_squares(
        law, inside, bounds=(low, high), loss="soft_l1", f_scale=TOLERANCE, x_scale=0.1, diff_step=[1e-4] * len(inside)
    )
    return found.x, float(found.cost)


def _starts(sizes: Floats, rates: Floats, line: int) -> list[Floats]:
    """Where fits begin: for each ``small_bytes`` the best of a grid of capacities and ways.

    With these given the time per byte is linear: h (a - b / (1 + W / v)) + (1 - h) d, with a = 1 / rate_l2,
    b = a g / (1 + g), v = w (1 + g), d = 1 / rate_dram; least squares of the relative error gives a, b and d.
    """
    order = np.unique(sizes)
    capacities = np.sqrt(order[1:] * order[:-1])
    starts = []
    for share in SMALL:
        best, least, v = np.empty(0), np.inf, share * sizes.max()
        for capacity in capacities[capacities >= WAYS_MOST * line]:
            for ways in WAYS:
                hit = _hits(sizes, capacity, ways, line)
                terms = np.stack([hit, -hit / (1.0 + sizes / v), 1.0 - hit], axis=1) * rates[:, None]
                (a, b, d), *_ = np.linalg.lstsq(terms, np.ones(len(rates)))
                left = float(np.sum((terms @ np.array([a, b, d]) - 1.0) ** 2))
                if left < least and min(a, a - b, d) > 1e-3 / rates.max():
                    gain = b / (a - b)
                    scale = np.log([capacity, 1.0 / a, 1.0 / d])
                    best, least = np.array([*scale, gain, np.log(v / (1.0 + gain)), np.log(ways)]), left
        if best.size:
            starts.append(best)
    if not starts:
        raise TableError("no footprint tells hits from misses; sweep from well below L2 to well above it")
    return starts


def footprints(records: Records) -> Numbers:
    """Associativity and copies of a line, from slices that one SM each reads again and again (part ``own``).

    Stands in for counted residencies (``cache.residency``) where nobody took them. An L2 that is full at a capacity C of
    the L2's own holds L2 / C copies of such lines. Where SMs read each other's slices in turn (part ``rotating``) they
    drift apart and the edge is smeared: its ways are those of the drift, not of the cache.
    """
    if records.hardware is None:
        raise UnsupportedError("the bytes of a line are needed and no base profile states them; give --base")
    rows = records["l2_read"].pick(part="own")
    own = fit_footprint(rows.column("footprint_bytes"), rows.column("bytes_per_s"), hardware=records.hardware)
    copies = records.l2_bytes / own.capacity_bytes
    note = f"slices of one SM hit up to {own.capacity_bytes / 1e6:.3g} MB"
    if copies < 1.0:
        note += f"; {copies:.3g} copies taken as 1"
    source: dict[str, Any] = {"records": ("l2_read",), "kind": "fitted", "note": note, "misfit": own.misfit}
    return {
        "l2.associativity": Found(own.associativity, None, **source),
        "l2.copies_one_reader": Found(max(copies, 1.0), None, **source),
    }


DERIVATIONS = (Derivation(("l2.associativity", "l2.copies_one_reader"), ("l2_read",), footprints),)
