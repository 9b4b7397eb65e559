"""Reuse distance: the chance that a block is still in a cache.

Stochastic distance-based cache model (SDCM): of D distinct blocks touched since a block's last use,
X ~ Binomial(D, A / B) fall into its set, in a cache of B blocks and associativity A; LRU keeps the block if
X <= A - 1.

    exact      P(hit) = P(X <= A - 1)                                        (binomial distribution)
    Gaussian   P(hit) = Phi((A - 1/2 - D A/B) / sqrt(D (A/B) (1 - A/B)))
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tilesight.errors import PlanError


def _checked(distance_blocks: ArrayLike, associativity: float, cache_blocks: float) -> NDArray[np.float64]:
    distance = np.asarray(distance_blocks, dtype=float)
    if not (cache_blocks > 0 and 1 <= associativity <= cache_blocks):
        raise PlanError(
            f"SDCM needs 1 <= associativity <= blocks, got associativity {associativity}, blocks {cache_blocks}"
        )
    if not np.all(distance >= 0):
        raise PlanError(f"reuse distance must not be negative, got {distance.min()}")
    return distance


_MOST_TRIALS = 2**31 - 1
"""Largest D that ``bdtr`` takes; more blocks than any cache holds, so that nothing survives them."""


def hit_probability(distance_blocks: ArrayLike, associativity: int, cache_blocks: float) -> NDArray[np.float64]:
    """Exact SDCM hit probability for a reuse distance in blocks, shape as given.

    Raises
    ------
    PlanError
        If the distance is negative or the cache has no valid shape.

    Examples
    --------
    >>> round(float(hit_probability(16384, associativity=8, cache_blocks=16384)), 6)
    0.452927
    """
    from scipy.special import bdtr  # loaded when first asked for: a third of the import time

    distance = _checked(distance_blocks, associativity, cache_blocks)
    trials = np.minimum(distance, _MOST_TRIALS).astype(np.int64)
    result = bdtr(associativity - 1.0, trials, associativity / cache_blocks)
    return np.where(distance < associativity, 1.0, result)


def hit_probability_gaussian(
    distance_blocks: ArrayLike, associativity: int, cache_blocks: float
) -> NDArray[np.float64]:
    """Gaussian form of the SDCM hit probability; within 2.5 points of the exact one at associativity 8.

    Examples
    --------
    >>> round(float(hit_probability_gaussian(16384, associativity=8, cache_blocks=16384)), 6)
    0.429825
    """
    from scipy.special import ndtr

    distance = _checked(distance_blocks, associativity, cache_blocks)
    share = associativity / cache_blocks
    spread = np.sqrt(np.maximum(distance * share * (1.0 - share), 1e-300))
    result = ndtr((associativity - 0.5 - distance * share) / spread)
    return np.where(distance < associativity, 1.0, result)


CERTAIN = 9.0
"""Standard deviations beyond which a probability is taken for 0 or 1: it differs from it by 1e-19."""


def survival(associativity: int, cache_blocks: float) -> Callable[[NDArray[np.float64]], NDArray[np.float64]]:
    """Function that gives :func:`hit_probability_gaussian` of many distances, shape (n,), faster: it skips what is certain.

    Examples
    --------
    >>> survival(8, 16384)(np.array([1.0, 16384.0, 1e6])).round(6).tolist()
    [1.0, 0.429825, 0.0]
    """
    share, most = associativity / cache_blocks, associativity - 0.5
    half = CERTAIN * np.sqrt(1.0 - share) / 2.0
    low, high = ((sign * half + np.sqrt(half**2 + most)) ** 2 / share for sign in (-1.0, 1.0))

    def hit(distance_blocks: NDArray[np.float64]) -> NDArray[np.float64]:
        found: NDArray[np.float64] = (distance_blocks < low).astype(float)
        unsure = (distance_blocks >= low) & (distance_blocks <= high)
        if unsure.any():
            found[unsure] = hit_probability_gaussian(distance_blocks[unsure], associativity, cache_blocks)
        return found

    return hit
