"""What callers give, checked and brought to one kind: whole numbers, real numbers, arrays with a value a CTA.

Limits keep every product of two of them finite and every block's number in 64 bits.
"""

from math import isnan
from numbers import Real
from operator import index
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilesight.errors import PlanError, TilesightError, shown

Error = type[TilesightError]
TILES_MOST = 10_000_000
"""Tile ids of a tensor, and CTAs of a launch, are below this; ids are dense, from 0 on."""
STEPS_MOST = 10**9
"""Steps of a CTA."""
BYTES_MOST = 1e15
"""Bytes of a step, and of the output, of one CTA."""
SECONDS_MOST = 1e6
"""Latencies, steps and delays, in seconds."""


def whole(name: str, value: Any, error: Error, least: int = 1, most: int | None = None) -> int:
    """The value as an int of at least ``least``; bools, fractions and text are refused.

    Examples
    --------
    >>> whole("steps", np.int8(5), PlanError)
    5
    """
    try:
        number = index(value)
    except TypeError:
        number = None
    fits = number is not None and number >= least and (most is None or number <= most)
    if number is None or not fits or isinstance(value, bool | np.bool_):
        wanted = f"{least} or more" if most is None else f"{least} to {most}"
        raise error(f"{name} = {shown(value)}; give a whole number, {wanted}")
    return number


def real(name: str, value: Any, error: Error, unit: str, least: float = 0.0, most: float = float("inf")) -> float:
    """The value as a float in ``least`` to ``most``; bools, text and NaN are refused.

    Examples
    --------
    >>> real("step_s", np.float32(0.5), PlanError, "seconds")
    0.5
    """
    try:
        number = float("nan") if isinstance(value, bool | np.bool_) or not isinstance(value, Real) else float(value)
    except OverflowError:
        number = float("nan")
    if isnan(number) or not least <= number <= most:
        upper = "or more" if most == float("inf") else f"to {most:g}"
        raise error(f"{name} = {shown(value)}; give {unit}, {least:g} {upper}")
    return number


def truth(name: str, value: Any, error: Error) -> bool:
    """The value as a bool; numbers and text are refused."""
    if not isinstance(value, bool | np.bool_):
        raise error(f"{name} = {shown(value)} is not True or False")
    return bool(value)


def word(name: str, value: Any, error: Error) -> str:
    """The value as a text that is not empty."""
    if not isinstance(value, str) or not value:
        raise error(f"{name} = {shown(value)}; give a name, as text")
    return str(value)


def integers(name: str, values: Any, least: int, most: int) -> NDArray[np.int64]:
    """Whole numbers, one a CTA, as int64, shape (ctas,).

    Raises
    ------
    PlanError
        If they are no such numbers, or outside ``least`` to ``most``.

    Examples
    --------
    >>> integers("tile", np.array([3, 200], dtype=np.uint8), 0, 1000).dtype
    dtype('int64')
    """
    array = _array(name, values, "iu", "whole numbers")
    if array.min() < least or array.max() > most:
        raise PlanError(f"{name} holds {shown(values)}, {array.min()} to {array.max()}; give {least} to {most}")
    return array.astype(np.int64)


def reals(name: str, values: Any, most: float) -> NDArray[np.float64]:
    """Numbers of 0 to ``most``, one a CTA, as float64, shape (ctas,).

    Raises
    ------
    PlanError
        If they are no such numbers, not finite or out of range.
    """
    array = _array(name, values, "iuf", "numbers")
    if not np.all((array >= 0) & (array <= most)):
        raise PlanError(f"{name} holds {shown(values)}; give finite values, 0 to {most:g}")
    return array.astype(np.float64)


def _array(name: str, values: Any, kinds: str, words: str) -> NDArray[Any]:
    """An array of one value for each CTA, of one of these kinds of dtype."""
    try:
        array = np.asarray(values)
    except (TypeError, ValueError, OverflowError):
        array = np.empty(0, dtype=object)
    if isinstance(values, np.ma.MaskedArray) or (array.dtype.kind not in kinds and array.size):
        raise PlanError(f"{name} has dtype {array.dtype}; give {words}")
    if array.ndim != 1 or not array.size:
        raise PlanError(f"{name} has shape {array.shape}; give one value for each CTA, at least one")
    if array.size > TILES_MOST:
        raise PlanError(f"{name} has {array.size} values; give one for each CTA, {TILES_MOST} at most")
    return array
