"""Effective capacity and associativity of L2 from a sweep of footprints, through the model's own cache law.

A kernel that walks a footprint again and again meets every line after all the others: the reuse distance D is the
footprint. With the stochastic distance-based model (``cost/reuse.py``) of a cache of ``capacity_bytes``,

    time per byte = P(hit at D) / rate_l2 + (1 - P(hit at D)) / rate_dram

The capacity is where hits end, the associativity how sharply, and both are effective: copies of a line in two partitions
halve the one, a hash of addresses raises the other. The four constants are fitted at once to the logarithm of the rates.
"""

from collections.abc import Callable
from dataclasses import dataclass
from os import PathLike
from typing import cast

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import least_squares, nnls

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
        Rates of a footprint that hits and of one that misses.
    misfit
        Root mean square of the relative error over the points of the fit.
    line_bytes
        Bytes of a block.
    """

    capacity_bytes: float
    associativity: int
    rate_l2_bytes_per_s: float
    rate_dram_bytes_per_s: float
    misfit: float
    line_bytes: int

    def hit_share(self, footprint_bytes: ArrayLike) -> Floats:
        """Share of lines that hit, shape as given."""
        return _hits(np.asarray(footprint_bytes, dtype=float), self.capacity_bytes, self.associativity, self.line_bytes)

    def predict(self, footprint_bytes: ArrayLike) -> Floats:
        """Bytes per second at footprints, shape as given."""
        hit = self.hit_share(footprint_bytes)
        return 1.0 / (hit / self.rate_l2_bytes_per_s + (1.0 - hit) / self.rate_dram_bytes_per_s)


def fit_footprint(
    footprint_bytes: ArrayLike, bytes_per_s: ArrayLike, *, hardware: Profile | str | PathLike[str]
) -> FootprintFit:
    """Capacity, associativity and the two rates that a sweep of footprints shows.

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

    def misfit(x: Floats) -> Floats:
        capacity, ways, l2, dram = np.exp(x)
        hit = _hits(sizes, capacity, ways, line)
        error: Floats = np.log((hit / l2 + (1.0 - hit) / dram) * rates)
        return error

    low = np.log([WAYS_MOST * line, 1.0, rates.min() / 10, rates.min() / 10])
    high = np.log([max(2 * sizes.max(), 2 * WAYS_MOST * line), WAYS_MOST, rates.max() * 10, rates.max() * 10])
    best = _least(misfit, np.log(_start(sizes, rates, line)), low, high)
    ways = round(float(np.exp(best[1])))
    rest = [0, 2, 3]

    def with_whole_ways(x: Floats) -> Floats:
        return misfit(np.array([x[0], np.log(ways), x[1], x[2]]))

    last = _least(with_whole_ways, best[rest], low[rest], high[rest])
    capacity, l2, dram = (float(value) for value in np.exp(last))
    return FootprintFit(capacity, ways, l2, dram, float(np.sqrt(np.mean(with_whole_ways(last) ** 2))), line)


def _hits(sizes: Floats, capacity_bytes: float, ways: float, line_bytes: int) -> Floats:
    """P(hit) at a reuse distance of each footprint; the Gaussian form takes fractions of ways."""
    return hit_probability_gaussian(sizes / line_bytes, cast("int", ways), capacity_bytes / line_bytes)


def _least(law: Callable[[Floats], Floats], start: Floats, low: Floats, high: Floats) -> Floats:
    inside = np.clip(start, low + 1e-6, high - 1e-6)
    found: Floats = least_squares(
        law, inside, bounds=(low, high), loss="soft_l1", f_scale=TOLERANCE, x_scale=0.1, diff_step=[1e-4] * len(inside)
    ).x
    return found


def _start(sizes: Floats, rates: Floats, line: int) -> Floats:
    """Best of a grid: with capacity and ways given, the times per byte of hits and misses follow by linear least squares."""
    order = np.unique(sizes)
    capacities = np.sqrt(order[1:] * order[:-1])
    best, least = np.empty(0), np.inf
    for capacity in capacities[capacities >= WAYS_MOST * line]:
        for ways in WAYS:
            hit = _hits(sizes, capacity, ways, line)
            (l2, dram), left = nnls(np.stack([hit * rates, (1.0 - hit) * rates], axis=1), np.ones(len(rates)))
            if left < least and l2 > 0 and dram > 0:
                best, least = np.array([capacity, ways, 1.0 / l2, 1.0 / dram]), left
    if not best.size:
        raise TableError("no footprint tells hits from misses; sweep from well below L2 to well above it")
    return best


def footprints(records: Records) -> Numbers:
    """Associativity where SMs read each other's lines in turn, copies of a line where each reads its own.

    Stands in for counted residencies (``cache.residency``) where nobody took them. An L2 that lines read by one SM fill up
    to a capacity C of the L2's own holds L2 / C copies of them.
    """
    if records.hardware is None:
        raise UnsupportedError("the bytes of a line are needed and no base profile states them; give --base")
    fits = {}
    for part in ("own", "rotating"):
        rows = records["l2_read"].pick(part=part)
        fits[part] = fit_footprint(rows.column("bytes"), rows.column("bytes_per_s"), hardware=records.hardware)
    own, rotating = fits["own"], fits["rotating"]
    copies = records.l2_bytes / own.capacity_bytes
    edges = [f"{fit.capacity_bytes / 1e6:.3g}" for fit in (own, rotating)]
    note = f"slices of one SM hit up to {edges[0]} MB, read in turn up to {edges[1]}"
    if copies < 1.0:
        note += f"; {copies:.3g} copies taken as 1"
    return {
        "l2.associativity": Found(rotating.associativity, None, ("l2_read",), "fitted", note, rotating.misfit),
        "l2.copies_one_reader": Found(max(copies, 1.0), None, ("l2_read",), "fitted", note, own.misfit),
    }


DERIVATIONS = (Derivation(("l2.associativity", "l2.copies_one_reader"), ("l2_read",), footprints),)
