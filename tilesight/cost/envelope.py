"""Prologue, steady state, epilogue: the same equation at every level (k-steps, tiles, waves, kernels).

    T = T_pro + max(N - d, 0) * T_steady + T_epi

The default takes d = 0: the prologue is the fill of one stage (loads of different stages overlap) and every
iteration costs the period; stages act through the ring bound. ``published_envelope`` keeps the published form.
"""

import numpy as np

from tilesight.errors import PlanError
from tilesight.plan.tile import Counts


def envelope(prologue: Counts, iterations: Counts, period: Counts, epilogue: Counts) -> Counts:
    """Time of ``iterations`` of a pipelined loop, in the unit of its arguments, shape (L,).

    T = T_pro + N * T_steady + T_epi

    Raises
    ------
    PlanError
        If ``iterations`` is negative.

    Examples
    --------
    >>> import numpy as np
    >>> one = np.ones(1)
    >>> envelope(800 * one, 64 * one, 1100 * one, 3000 * one)
    array([74200.])
    """
    if np.any(iterations < 0):
        raise PlanError(f"iterations must not be negative, got {iterations}")
    return prologue + iterations * period + epilogue


def published_envelope(
    load: Counts, compute: Counts, iterations: Counts, period: Counts, stages: Counts, residents: Counts
) -> Counts:
    """The published variant: d = stages * residents - 1 loads before the first computation and as many after.

    T = min(d, N) * t_load + max(N - d, 0) * T_steady + min(d, N) * t_compute    (TileSight, eq. 2-3)

    Examples
    --------
    >>> import numpy as np
    >>> one = np.ones(1)
    >>> published_envelope(100 * one, 50 * one, 10 * one, 100 * one, 4 * one, one)
    array([1150.])
    """
    if np.any(iterations < 0):
        raise PlanError(f"iterations must not be negative, got {iterations}")
    depth = stages * residents - 1
    ends = np.minimum(depth, iterations)
    return ends * load + np.maximum(iterations - depth, 0.0) * period + ends * compute
