"""Kinds of numbers a profile may hold: each has a range and says which unit it wants.

A value outside its range is nearly always a value in the wrong unit, so the error says how to write the right one.
"""

import math
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator
from pydantic_core import PydanticCustomError

V = TypeVar("V")


def plain_number(value: float) -> str:
    """Shortest text that reads back as the same number: ``4.8e12``, ``1.05e-6``, ``132``, ``0.45``.

    Integers stay integers and floats stay floats, in TOML as in Python.

    Examples
    --------
    >>> plain_number(4.8e12), plain_number(1.05e-6), plain_number(132), plain_number(21.0)
    ('4.8e12', '1.05e-6', '132', '21.0')
    """
    if isinstance(value, int) or not math.isfinite(value):
        return str(value)
    text = repr(value)
    if value == 0 or 1e-3 <= abs(value) < 1e6:
        return text
    digits = 0
    while float(f"{value:.{digits}e}") != value:
        digits += 1
    mantissa, exponent = f"{value:.{digits}e}".split("e")
    return f"{mantissa}e{int(exponent)}"


def within(low: float, high: float, hint: str) -> AfterValidator:
    """Validator of a number in ``low..high``; the hint says how to write one."""

    def check(value: float) -> float:
        if low <= value <= high:
            return value
        finite = isinstance(value, int) or math.isfinite(value)
        wrong = f"is outside {plain_number(low)}..{plain_number(high)}" if finite else "is not a finite number"
        raise PydanticCustomError("range", "{wrong}; {hint}", {"wrong": wrong, "hint": hint})

    return AfterValidator(check)


def whole(hint: str) -> AfterValidator:
    """Validator of a float that counts something: no fraction."""

    def check(value: float) -> float:
        if value.is_integer():
            return value
        raise PydanticCustomError("whole", "is not whole; {hint}", {"hint": hint})

    return AfterValidator(check)


Hz = Annotated[float, within(1e8, 1e10, "give hertz (1.98 GHz is 1.98e9)")]
BytesPerS = Annotated[float, within(1e10, 1e14, "give bytes per second (4.8 TB/s is 4.8e12)")]
SmBytesPerS = Annotated[float, within(1e8, 1e13, "give bytes per second of one SM (100 GB/s is 1e11)")]
RowsPerS = Annotated[float, within(1e8, 1e13, "give rows per second of the whole chip")]
FlopPerS = Annotated[float, within(1e11, 1e17, "give flop per second (989.4 TFLOP/s is 989.4e12)")]
Seconds = Annotated[float, within(0.0, 1.0, "give seconds (1.05 us is 1.05e-6)")]
BusySeconds = Annotated[float, within(1e-6, 1e4, "give seconds of load (50 ms is 0.05)")]
Cycles = Annotated[float, within(0.0, 1e6, "give SM clock cycles")]
BytesPerCycle = Annotated[float, within(1.0, 4096.0, "give bytes per clock cycle and SM")]
ElementsPerCycle = Annotated[float, within(1e-3, 1e3, "give elements per clock cycle and SM")]
OpsPerCycle = Annotated[
    float, within(1e-3, 4096.0, "give operations of a lane per clock cycle and SM (a packed pair is 2)")
]
LinkBytesPerS = Annotated[float, within(1e8, 1e13, "give bytes per second of one direction (450 GB/s is 4.5e11)")]
FlopPerCycle = Annotated[float, within(1.0, 1e6, "give flop per clock cycle and SM; one FMA is 2 flop")]
Watts = Annotated[float, within(1.0, 1e4, "give watts")]
JoulesPerUnit = Annotated[float, within(0.0, 1e-8, "give joules for one flop or one byte (1 pJ is 1e-12)")]
Exponent = Annotated[float, within(0.0, 5.0, "give the exponent of slowdown = (demand / limit) ** exponent, near 0.5")]
Share = Annotated[float, within(1e-3, 1.0, "give a share (5 % is 0.05)")]
HalfWidth = Annotated[float, within(0.0, 10.0, "give a half-width relative to the time (5 % is 0.05)")]
BytesHalfWidth = Annotated[float, within(0.0, 10.0, "give a half-width relative to the bytes (5 % is 0.05)")]
RateHalfWidth = Annotated[float, within(0.0, 1.0, "give a difference of hit rates (5 points are 0.05)")]
Kept = Annotated[
    float, within(0.0, 1.5, "give the share of mergeable requests that merge: 1 all, above 1 more than those near")
]
Falloff = Annotated[float, within(0.0, 100.0, "give the exponent with which merging falls")]
PaceSpread = Annotated[float, within(0.0, 1.0, "give a relative standard deviation of pace")]
Requests = Annotated[
    float,
    within(1.0, 256.0, "give the requests that share one lookup"),
    whole("give the number of requests that share one lookup"),
]
Copies = Annotated[float, within(1.0, 64.0, "give copies of a line, 1 and more")]
DirtyBytes = Annotated[float, within(0.0, 4.0, "give dirty bytes written back for each byte that takes their place")]
Elements = Annotated[float, within(1.0, 1e9, "give a number of elements")]
DramBytes = Annotated[float, within(1e9, 1e13, "give bytes (141 GB is 141e9)")]
CacheBytes = Annotated[int, within(2**16, 2**31, "give bytes (60 MiB is 62914560)")]
SmBytes = Annotated[int, within(2**10, 2**20, "give bytes (228 KiB is 233472)")]
ReservedBytes = Annotated[int, within(0, 2**16, "give bytes (1 KiB is 1024)")]
BlockBytes = Annotated[int, within(8, 4096, "give bytes")]
Registers = Annotated[int, within(16, 2**20, "give a number of 32-bit registers")]
Threads = Annotated[int, within(16, 2**14, "give a number of threads")]
WarpThreads = Annotated[int, within(8, 128, "give the threads of one warp (32)")]
Ctas = Annotated[int, within(1, 1024, "give a number of CTAs")]
Partitions = Annotated[int, within(1, 64, "give a number of partitions")]
Ways = Annotated[int, within(1, 2**16, "give the lines of one set")]
Count = Annotated[int, within(1, 10**6, "give a count")]
Version = Annotated[int, within(1, 1, "this release reads version 1")]

Number = int | float | tuple[int, ...]
"""A number of a profile."""


class FrozenMap(Mapping[str, V]):
    """A read-only mapping that can be hashed and pickled; keeps its order.

    Examples
    --------
    >>> FrozenMap({"bf16": 1})["bf16"]
    1
    """

    __slots__ = ("_items",)

    def __init__(self, items: Mapping[str, V]) -> None:
        self._items = dict(items)

    def __getitem__(self, key: str) -> V:
        return self._items[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def __hash__(self) -> int:
        return hash(frozenset(self._items.items()))

    def __repr__(self) -> str:
        return f"FrozenMap({self._items!r})"


def freeze_map(items: Mapping[str, V]) -> FrozenMap[V]:
    """Validator that turns a validated dict into a :class:`FrozenMap`."""
    return FrozenMap(items)


def freeze_lists(value: Any) -> Any:
    """The value with every list in it turned into a tuple: TOML has only lists, a strict schema wants tuples.

    Examples
    --------
    >>> freeze_lists({"sms_per_gpc": [16, 18]})
    {'sms_per_gpc': (16, 18)}
    """
    if isinstance(value, Mapping):
        return {key: freeze_lists(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return tuple(freeze_lists(item) for item in value)
    return value
