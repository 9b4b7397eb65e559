"""Units: the one place where SI values meet prefixes.

Inside tilesight every quantity is in its SI base unit (s, B, Hz, flop, flop/s, B/s, W). This module turns them into text
and text into them. GB is 1e9 bytes and GiB is 2**30 bytes; one fused multiply-add is 2 flop.
"""

import math
import re

from tilesight.errors import UnitError, shown

KB, MB, GB, TB = 1e3, 1e6, 1e9, 1e12
KIB, MIB, GIB, TIB = 2**10, 2**20, 2**30, 2**40
NS, US, MS = 1e-9, 1e-6, 1e-3
MHZ, GHZ = 1e6, 1e9
TFLOP_PER_S = 1e12

_DECIMAL = (("", 1.0), ("k", 1e3), ("M", 1e6), ("G", 1e9), ("T", 1e12), ("P", 1e15))
_BINARY = (("", 1.0), ("Ki", KIB), ("Mi", MIB), ("Gi", GIB), ("Ti", TIB))
_SMALL = (("n", 1e-9), ("u", 1e-6), ("m", 1e-3), ("", 1.0))

_QUANTITY = re.compile(r" *([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?) *([^\s0-9][^\s]*)? *")


def _with_prefix(value: float, unit: str, prefixes: tuple[tuple[str, float], ...], digits: int) -> str:
    if not math.isfinite(value):
        raise UnitError(f"cannot print {value!r} {unit}: not a finite number")
    if value == 0:
        return f"0 {unit}"
    name, scale = prefixes[0]
    for next_name, next_scale in prefixes[1:]:
        # 999.96 at 4 digits rounds up to 1000: it is printed with the next prefix
        if float(f"{abs(value) / next_scale:.{digits}g}") < 1:
            break
        name, scale = next_name, next_scale
    return f"{_plain(value / scale, digits)} {name}{unit}"


def _plain(value: float, digits: int) -> str:
    """``digits`` significant digits, never in exponent form unless the number is far outside the prefixes."""
    if not 1e-3 <= abs(value) < 1e6:
        return f"{value:.{digits}g}"
    rounded = float(f"{value:.{digits}g}")
    decimals = max(0, digits - 1 - math.floor(math.log10(abs(rounded))))
    return f"{rounded:.{decimals}f}"


def format_seconds(value_s: float, digits: int = 4) -> str:
    """Time with a prefix.

    Examples
    --------
    >>> format_seconds(1.05e-6), format_seconds(0.0123), format_seconds(0)
    ('1.050 us', '12.30 ms', '0 s')
    """
    return _with_prefix(value_s, "s", _SMALL, digits)


def format_bytes(value_bytes: float, digits: int = 4) -> str:
    """Bytes with a decimal prefix: GB is 1e9.

    Examples
    --------
    >>> format_bytes(141e9), format_bytes(512)
    ('141.0 GB', '512.0 B')
    """
    return _with_prefix(value_bytes, "B", _DECIMAL, digits)


def format_bytes_binary(value_bytes: float, digits: int = 4) -> str:
    """Bytes with a binary prefix: GiB is 2**30.

    Examples
    --------
    >>> format_bytes_binary(60 * 2**20), format_bytes_binary(227 * 1024)
    ('60.00 MiB', '227.0 KiB')
    """
    return _with_prefix(value_bytes, "B", _BINARY, digits)


def format_hz(value_hz: float, digits: int = 4) -> str:
    """Frequency with a prefix.

    Examples
    --------
    >>> format_hz(1.98e9)
    '1.980 GHz'
    """
    return _with_prefix(value_hz, "Hz", _DECIMAL, digits)


def format_flop(value_flop: float, digits: int = 4) -> str:
    """Amount of work with a prefix.

    Examples
    --------
    >>> format_flop(2 * 4096**3)
    '137.4 Gflop'
    """
    return _with_prefix(value_flop, "flop", _DECIMAL, digits)


def format_flop_per_s(value_flop_per_s: float, digits: int = 4) -> str:
    """Arithmetic rate with a prefix.

    Examples
    --------
    >>> format_flop_per_s(989.4e12)
    '989.4 TFLOP/s'
    """
    return _with_prefix(value_flop_per_s, "FLOP/s", _DECIMAL, digits)


def format_bytes_per_s(value_bytes_per_s: float, digits: int = 4) -> str:
    """Bandwidth with a decimal prefix.

    Examples
    --------
    >>> format_bytes_per_s(4.8e12)
    '4.800 TB/s'
    """
    return _with_prefix(value_bytes_per_s, "B/s", _DECIMAL, digits)


def format_watts(value_w: float, digits: int = 4) -> str:
    """Power with a prefix.

    Examples
    --------
    >>> format_watts(690)
    '690.0 W'
    """
    return _with_prefix(value_w, "W", _DECIMAL, digits)


def format_percent(ratio: float, decimals: int = 1) -> str:
    """A ratio in percent.

    Examples
    --------
    >>> format_percent(0.4273)
    '42.7 %'
    """
    if not math.isfinite(ratio):
        raise UnitError(f"cannot print {ratio!r} as percent: not a finite number")
    return f"{100 * ratio:.{decimals}f} %"


def _scales(unit: str, *families: tuple[tuple[str, float], ...]) -> dict[str, float]:
    return {prefix + unit: scale for family in families for prefix, scale in family}


_TIME = {**_scales("s", _SMALL), "µs": US, "μs": US}
_SIZE = {**_scales("B", _DECIMAL, _BINARY), "KB": KB}
_FREQUENCY = _scales("Hz", _DECIMAL)
_BANDWIDTH = {name + "/s": scale for name, scale in _SIZE.items()}
_RATE = {**_scales("FLOP/s", _DECIMAL), **_scales("flop/s", _DECIMAL), **_scales("FLOPS", _DECIMAL)}


def _parse(text: str, scales: dict[str, float], base: str, example: str) -> float:
    match = _QUANTITY.fullmatch(text)
    number, unit = match.groups() if match else (None, None)
    value = float(number) * scales.get(unit or base, math.nan) if number is not None else math.nan
    if not math.isfinite(value) or (value == 0 and not reads_as_zero(number or "")):
        raise UnitError(
            f"cannot read {shown(text)}; give a number and a unit such as {example}; units: {', '.join(scales)}"
        )
    return value


def reads_as_zero(number: str) -> bool:
    """Whether the text of a decimal number is 0, and not a number that is too small for a float.

    Examples
    --------
    >>> reads_as_zero("0.00e5"), reads_as_zero("1e-400")
    (True, False)
    """
    return not re.search(r"[1-9]", re.split(r"[eE]", number)[0])


def parse_seconds(text: str) -> float:
    """Seconds from text; a bare number is in seconds.

    Raises
    ------
    UnitError
        If the text is not a finite number with a unit of time.

    Examples
    --------
    >>> parse_seconds("2 ms"), parse_seconds("0.5")
    (0.002, 0.5)
    """
    return _parse(text, _TIME, "s", "'2 ms'")


def parse_bytes(text: str) -> float:
    """Bytes from text; a bare number is in bytes. GB is 1e9, GiB is 2**30.

    Raises
    ------
    UnitError
        If the text is not a finite number with a unit of size.

    Examples
    --------
    >>> parse_bytes("1 GB"), parse_bytes("1GiB"), parse_bytes("128")
    (1000000000.0, 1073741824.0, 128.0)
    """
    return _parse(text, _SIZE, "B", "'48 MiB'")


def parse_hz(text: str) -> float:
    """Hertz from text; a bare number is in hertz.

    Raises
    ------
    UnitError
        If the text is not a finite number with a unit of frequency.

    Examples
    --------
    >>> parse_hz("1.5 GHz")
    1500000000.0
    """
    return _parse(text, _FREQUENCY, "Hz", "'1980 MHz'")


def parse_bytes_per_s(text: str) -> float:
    """Bytes per second from text; a bare number is in B/s.

    Raises
    ------
    UnitError
        If the text is not a finite number with a unit of bandwidth.

    Examples
    --------
    >>> parse_bytes_per_s("4 TB/s")
    4000000000000.0
    """
    return _parse(text, _BANDWIDTH, "B/s", "'4.8 TB/s'")


def parse_flop_per_s(text: str) -> float:
    """Flop per second from text; a bare number is in flop/s.

    Raises
    ------
    UnitError
        If the text is not a finite number with a unit of arithmetic rate.

    Examples
    --------
    >>> parse_flop_per_s("312 TFLOP/s")
    312000000000000.0
    """
    return _parse(text, _RATE, "flop/s", "'989.4 TFLOP/s'")
