"""How wide the groups of the raster should be: time, lookups, hit rate and DRAM reads of every width worth trying."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from math import ceil
from typing import Any

from tilesight.api import Cache, Clock, Hardware, predict, predict_many
from tilesight.cost.estimate import Estimate, Estimates
from tilesight.cost.explanation import SAME, explain_estimate
from tilesight.display import Displayable
from tilesight.errors import counted
from tilesight.kernels.gemm_config import Gemm, GemmConfig
from tilesight.search import TIE
from tilesight.units import format_bytes, format_percent, format_seconds

ROUNDING = 1e-9
"""Relative difference of times that is rounding: widths so close take the same time."""
TERMS_SAID, LEAST_TERM = 2, 0.1
"""How many terms of a difference the reason names, and from which share of it on."""


@dataclass(frozen=True)
class RasterWidth:
    """A launch whose raster has groups of ``group_m`` rows of tiles: its time in seconds, its traffic in bytes.

    ``drift_read_bytes`` are those of the DRAM reads that late CTAs cause; ``l2_hit_rate`` is in [0, 1].
    """

    group_m: int
    seconds: float
    lookup_bytes: float
    l2_hit_rate: float
    dram_read_bytes: float
    dram_write_bytes: float
    drift_read_bytes: float
    binding: str
    regime: str

    @property
    def dram_bytes(self) -> float:
        """Bytes read from and written to DRAM."""
        return self.dram_read_bytes + self.dram_write_bytes


@dataclass(frozen=True)
class RasterAdvice(Displayable):
    """What the group width of the raster does to a launch, and which width is best.

    Attributes
    ----------
    estimate
        The launch with the width that was asked for.
    widths
        Every raster that was tried, once, narrowest group first; the last may stand for all that are wider.
    reason
        Why the best one is, in one sentence.
    """

    estimate: Estimate
    widths: tuple[RasterWidth, ...]
    reason: str

    @property
    def asked(self) -> RasterWidth:
        """The width that was asked for; one beyond the rows of tiles is that of all rows."""
        return _asked(self.widths, self.estimate.config_fields["group_m"])

    @property
    def best(self) -> RasterWidth:
        """The width of least time; of several the one that moves fewer DRAM bytes, then the narrowest."""
        return _best(self.widths, self.asked)

    @property
    def best_group_m(self) -> int:
        """Rows of tiles in a group of the best raster."""
        return self.best.group_m

    @property
    def best_config(self) -> GemmConfig:
        """The configuration that was asked for, with the best width."""
        return replace(GemmConfig(**self.estimate.config_fields), group_m=self.best_group_m)

    @property
    def gain_s(self) -> float:
        """Seconds that the best width saves over the one asked for; 0 or more."""
        return self.asked.seconds - self.best.seconds

    @property
    def gain(self) -> float:
        """The same as a share of the time asked for, in [0, 1)."""
        return self.gain_s / self.asked.seconds

    @property
    def ties(self) -> tuple[int, ...]:
        """Widths within 2 % of the best, itself among them, which only a measurement tells apart."""
        return tuple(row.group_m for row in self.widths if row.seconds <= self.best.seconds * (1 + TIE))

    def to_dict(self) -> dict[str, Any]:
        """Plain data in a versioned schema: the launch, what was tried, the best width, the gain and the reason."""
        asked = self.estimate
        return {
            "schema": "tilesight.raster/1",
            "problem": asked.problem,
            "problem_fields": dict(asked.problem_fields),
            "config": asked.config,
            "config_fields": dict(asked.config_fields),
            "hardware": asked.hardware,
            "hardware_hash": asked.hardware_hash,
            "state": asked.state.to_dict(),
            "asked_group_m": self.asked.group_m,
            "best_group_m": self.best_group_m,
            "gain_s": self.gain_s,
            "ties": list(self.ties),
            "reason": self.reason,
            "widths": [asdict(row) for row in self.widths],
        }


def raster_widths(
    problem: Gemm,
    config: GemmConfig | None = None,
    *,
    hardware: Hardware,
    cache: Cache | None = None,
    clock: Clock | float = "sustained",
    resident: Mapping[str, float] | None = None,
    sms: int | None = None,
    dirty_bytes: float = 0.0,
) -> RasterAdvice:
    """What the group width of the raster does to a launch, and which width is best.

    Tried are 1, 2, 3, 4, 6, 8, 12, 16, ... rows of tiles (of clusters, where they have several rows), all of them, and the
    width of ``config``; each raster once: groups wider than the product are one group, and a single row or column of
    tiles has one order. The numbers are those that :func:`tilesight.predict` gives with ``group_m`` set.

    Parameters
    ----------
    problem
        What is computed.
    config
        How, and the width to compare with; None takes the configuration that :func:`tilesight.rank` puts first.

    Other parameters and errors are those of :func:`tilesight.predict`.

    Examples
    --------
    >>> config = GemmConfig(128, 128, 64, stages=4, kernel="tma_persistent", group_m=1)
    >>> advice = raster_widths(Gemm(16384, 16384, 2048), config, hardware="h200_sxm", cache="cold")
    >>> [row.group_m for row in advice.widths]
    [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128]
    >>> advice.best.dram_read_bytes < advice.asked.dram_read_bytes, advice.gain > 0.1
    (True, True)
    >>> again = predict(Gemm(16384, 16384, 2048), advice.best_config, hardware="h200_sxm", cache="cold")
    >>> again.seconds == advice.best.seconds
    True
    """
    state: dict[str, Any] = {
        "hardware": hardware,
        "cache": cache,
        "clock": clock,
        "resident": resident,
        "sms": sms,
        "dirty_bytes": dirty_bytes,
    }
    estimate = predict(problem, config, **state)
    asked = GemmConfig(**estimate.config_fields)
    tried = predict_many([problem], [replace(asked, group_m=width) for width in _widths(problem, asked)], **state)
    return RasterAdvice(estimate, _rows(tried), _reason(problem, asked, tried))


def _tiles(problem: Gemm, config: GemmConfig) -> tuple[int, int]:
    """Rows and columns of tiles."""
    return ceil(problem.m / config.tile_m), ceil(problem.n / config.tile_n)


def _widths(problem: Gemm, config: GemmConfig) -> list[int]:
    """Widths that give different rasters, in rows of tiles, narrowest first: groups hold whole clusters."""
    rows, columns = _tiles(problem, config)
    asked = min(config.group_m, rows)
    if columns == 1:  # tiles of one column come in the same order, however they are grouped
        return [asked]
    widths = {asked, rows}
    for width in (config.cluster_m, 3 * config.cluster_m):
        while width < rows:
            widths.add(width)
            width *= 2
    return sorted(widths)


_FIELDS = (
    "seconds", "lookup_bytes", "l2_hit_rate", "dram_read_bytes", "dram_write_bytes", "drift_read_bytes", "binding", "regime",
)  # fmt: skip


def _rows(tried: Estimates) -> tuple[RasterWidth, ...]:
    columns = [tried.column(name).tolist() for name in _FIELDS]
    values = zip(*columns, strict=True)
    return tuple(
        RasterWidth(config.group_m, **dict(zip(_FIELDS, row, strict=True)))
        for config, row in zip(tried.configs, values, strict=True)
    )


def _asked(rows: tuple[RasterWidth, ...], group_m: int) -> RasterWidth:
    return next((row for row in rows if row.group_m == group_m), rows[-1])


def _best(rows: tuple[RasterWidth, ...], asked: RasterWidth) -> RasterWidth:
    """See :attr:`RasterAdvice.best`; never slower than the one asked for, not even by rounding."""
    most_s = min(min(row.seconds for row in rows) * (1 + ROUNDING), asked.seconds)
    fastest = (row for row in rows if row.seconds <= most_s)
    return min(fastest, key=lambda row: (round(row.dram_bytes), row.group_m))


def _reason(problem: Gemm, config: GemmConfig, tried: Estimates) -> str:
    rows = _rows(tried)
    asked = _asked(rows, config.group_m)
    best = _best(rows, asked)
    slowest = max(rows, key=lambda row: row.seconds)
    if len(rows) == 1:
        return f"one {_only(problem, config)}: every group width gives the same raster"
    if slowest.seconds <= best.seconds * SAME:
        return f"the group width does not matter: all take the same time to {format_percent(SAME - 1, 2)}"

    def against(other: RasterWidth) -> str:
        saved = format_percent(1 - best.seconds / other.seconds, 2)
        cause = _cause(tried[rows.index(other)], tried[rows.index(best)])
        return f"takes {saved} less time than {counted(other.group_m, 'row')}: {cause}"

    groups = f"a group of {counted(best.group_m, 'row')}"
    if asked.seconds > best.seconds * SAME:
        return f"{groups} {against(asked)}"
    said = f"{groups}, as asked for," if asked == best else f"the width asked for is as fast; {groups}"
    return f"{said} {against(slowest)}"


def _only(problem: Gemm, config: GemmConfig) -> str:
    """Of which there is one, so that there is one raster."""
    rows, columns = _tiles(problem, config)
    if columns == 1:
        return "column of tiles" if rows > 1 else "tile"
    return "row of tiles" if rows == 1 else "row of clusters"


_MOVED: Mapping[str, tuple[str, Callable[[Estimate], float]]] = {
    "dram": ("read from DRAM", lambda estimate: estimate.dram_read_bytes),
    "l2": ("looked up in L2", lambda estimate: estimate.lookup_bytes),
}
"""What a raster moves, by the resource that is busy with it."""


def _cause(slow: Estimate, fast: Estimate) -> str:
    """What differs between two widths: the bytes that cost most, and the terms of the time."""
    saved = {name: slow.busy_s[name] - fast.busy_s[name] for name in _MOVED}
    resource = max(saved, key=lambda name: saved[name])
    parts = []
    if saved[resource] > 0:
        words, moved = _MOVED[resource]
        parts.append(f"{format_bytes(moved(fast))} {words} instead of {format_bytes(moved(slow))}")
        drift = [estimate.drift_read_bytes for estimate in (fast, slow)]
        if resource == "dram" and drift[1] - drift[0] > (moved(slow) - moved(fast)) / 2:
            parts[-1] += f", of which drift causes {format_bytes(drift[0])} instead of {format_bytes(drift[1])}"
    differences = [(term.name, -(term.difference_s or 0.0)) for term in explain_estimate(slow, fast).terms[:TERMS_SAID]]
    least_s = LEAST_TERM * (slow.seconds - fast.seconds)
    terms = [
        f"{name} {format_seconds(abs(added_s))} {'more' if added_s > 0 else 'less'}"
        for name, added_s in differences
        if abs(added_s) > least_s
    ]
    return "; ".join([*parts, ", ".join(terms)])
