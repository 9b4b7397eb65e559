"""Protocols: what the times of each table contain, and what must be added to an Estimate before comparing.

An Estimate runs from the first CTA's launch to the last store (design: gaps between graph nodes, event and host costs
are terms of a protocol). A protocol states the cache and clock of its measurement, names the profile fields that its
times contain besides, and never reads a measured column.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilesight import units
from tilesight.cost.cache import copies_of_line, repeated_residency
from tilesight.cost.estimate import Estimates
from tilesight.dtypes import dtype
from tilesight.hardware.profile import Profile
from tilesight.kernels.gemm_config import Gemm, GemmConfig
from tilesight.records.read import Table

Floats = NDArray[np.float64]

PredictMany = Callable[..., Estimates]
"""``predict_many(problems, configs, *, hardware, cache, clock, skip_refused, ...)``; ``clock`` may be an array of times
under load, and ``resident`` shares may be arrays with one value a row."""


@dataclass(frozen=True)
class Replays:
    """Launches of one kernel in a CUDA graph, replayed: the load under which the clock settles.

    A replay holds min(``launches_max``, ``replay_s`` / time) launches, at least one; the median of ``replays`` replays
    is reported. Before them came about twice as much load: warm-up, and the other measurements of the same row (an
    assumption, since the tables do not say; the board's limit acts on power averaged over some 35 ms and does not
    forget in between).
    """

    launches_max: int = 50
    replay_s: float = 2e-3
    replays: int = 5
    replays_before: int = 10

    def launches(self, seconds: Floats) -> Floats:
        """Launches in one replay of kernels that take ``seconds`` each.

        Examples
        --------
        >>> Replays().launches(np.array([4e-6, 100e-6, 1.5e-3, 6e-3]))
        array([50., 20.,  1.,  1.])
        """
        # 2 ms / 100 us is 20 launches, also where the quotient rounds to just below 20
        return np.clip(np.floor(self.replay_s / seconds + 1e-9), 1.0, float(self.launches_max))

    def busy_s(self, seconds: Floats) -> Floats:
        """How long the GPU has been under this load in the middle of the median replay, in seconds.

        busy = (replays_before + replays / 2) * launches * time

        Examples
        --------
        >>> Replays().busy_s(np.array([4e-6, 6e-3])).round(6)
        array([0.0025, 0.075 ])
        """
        return (self.replays_before + self.replays / 2) * self.launches(seconds) * seconds


@dataclass(frozen=True)
class Protocol:
    """How one time column was measured.

    Attributes
    ----------
    name
        As results name it.
    column
        The measured time, in microseconds.
    contains
        What the times contain, in words.
    cache
        State of L2 before a launch: ``"warm"`` or ``"cold"``.
    terms
        Dotted profile fields, in seconds, that the times contain and an Estimate does not.
    replays
        Load of a graph measurement: the clock follows from it. None: burst clock.
    row_options
        Further keyword arguments for ``predict_many`` that follow from the rows, one value or one array per row.
    regime_column
        Column that says row by row whether the cache was warm or cold; None: ``cache`` says it for all rows.
    row_seconds
        Further seconds that follow from the rows.
    """

    name: str
    column: str
    contains: str
    cache: str
    terms: tuple[str, ...] = ()
    replays: Replays | None = None
    row_options: Callable[[Table, Profile], dict[str, Any]] | None = None
    regime_column: str | None = None
    row_seconds: Callable[[Table, Profile], Floats] | None = None

    def added_seconds(self, estimates: Estimates, table: Table, hardware: Profile) -> Floats:
        """Seconds that the measured times contain besides ``estimates.seconds``, for each estimate.

        The sum of ``terms``, and what ``row_seconds`` says of the estimate's row.

        Raises
        ------
        UnsupportedError
            If the profile lacks a term.
        """
        seconds = np.full(len(estimates), sum(hardware.require(name) for name in self.terms), dtype=np.float64)
        return seconds if self.row_seconds is None else seconds + self.row_seconds(table, hardware)[estimates.positions]

    def cache_states(self, table: Table) -> NDArray[np.object_]:
        """``"warm"``, ``"cold"`` or another word for neither, per row: the regime a row counts in."""
        if self.regime_column is None:
            return np.full(len(table), self.cache, dtype=object)
        return table[self.regime_column]

    def estimate(
        self,
        problems: Sequence[Gemm],
        configs: Sequence[GemmConfig],
        table: Table,
        *,
        hardware: Profile,
        predict_many: PredictMany,
    ) -> Estimates:
        """Estimates of the rows of ``table`` under the conditions of this measurement; refused rows are left out.

        A replayed graph is priced twice: at burst clock for how long its replays take, then at the clock that this
        load leaves.
        """
        options = self.row_options(table, hardware) if self.row_options else {}
        common = {"hardware": hardware, "cache": self.cache, "skip_refused": True, **options}
        burst = predict_many(problems, configs, clock="burst", **common)
        if self.replays is None or not len(burst):
            return burst
        busy_s = np.zeros(len(problems))
        busy_s[burst.positions] = self.replays.busy_s(burst.seconds + self.added_seconds(burst, table, hardware))
        return predict_many(problems, configs, clock=busy_s, **common)


def dirty_l2(table: Table, hardware: Profile) -> dict[str, Any]:
    """What a write of 512 MB leaves in L2: as many dirty lines as it holds, each kept once in both partitions."""
    return {"dirty_bytes": hardware.l2.capacity_bytes / (hardware.l2.partitions or 1)}


ONE_ROW_OF_TILES = 256
"""Rows of C that the tallest tiles cover at once."""


def cycled_weights(table: Table, hardware: Profile) -> dict[str, Any]:
    """What L2 still holds when the weight is cycled over copies: shares of A and B, one per row.

    B was last read one pass ago and A one product ago; ``sglang`` cycles A along with the weight. ``touched_mb`` (MiB)
    is what one pass touches.
    """
    touched_bytes = table["touched_mb"] * units.MIB
    elements = table["m"] * table["k"] + table["k"] * table["n"] + table["m"] * table["n"]
    element_bytes = np.array([dtype(name).bytes_per_element for name in table["dtype"]])
    cycles_a = np.array([source.startswith("sglang") for source in table["source"]])
    since_a_bytes = np.where(cycles_a, touched_bytes, elements * element_bytes)
    # a weight that one row of tiles reads has fewer copies in L2 than one that many rows read
    one, every = copies_of_line(hardware)
    copies = np.where(table["m"] > ONE_ROW_OF_TILES, every, one)
    return {
        "resident": {
            "a": repeated_residency(since_a_bytes * copies, hardware),
            "b": repeated_residency(touched_bytes * copies, hardware),
        }
    }


def short_replays(table: Table, hardware: Profile) -> Floats:
    """What a product pays in a graph of ``copies`` nodes whose replays follow each other, in seconds, one per row.

    launch.short_graph_gap_s + launch.graph_replay_s / copies
    """
    return hardware.require("launch.short_graph_gap_s") + hardware.require("launch.graph_replay_s") / table["copies"]


WARM = Protocol(
    name="warm_us",
    column="warm_us",
    contains="the same launch repeated on the same buffers in one CUDA graph: kernel and the gap between graph nodes; "
    "clock under min(50, 2 ms / time) launches a replay, median of 5 replays",
    cache="warm",
    terms=("launch.graph_gap_s",),
    replays=Replays(),
)
COLD = Protocol(
    name="cold_us",
    column="cold_us",
    contains="one launch between two events after a 512 MB write: kernel on an L2 full of dirty lines, cold instruction "
    "caches, event and launch cost; clock under launch after launch",
    cache="cold",
    terms=("launch.event_s", "launch.cold_extra_s"),
    replays=Replays(launches_max=1),
    row_options=dirty_l2,
)
COUNTED_COLD = Protocol(
    name="time_us",
    column="time_us",
    contains="one launch under Nsight Compute with all caches flushed: kernel time on a cold, clean L2",
    cache="cold",
)
COUNTED_WARM = Protocol(
    name="time_us",
    column="time_us",
    contains="one launch under Nsight Compute with warm caches: kernel time",
    cache="warm",
)
CYCLED = Protocol(
    name="latency_us",
    column="latency_us",
    contains="a CUDA graph that cycles through copies of the weight, 6 replays between two events: kernel, the gap "
    "between graph nodes, the gap between replays; burst clock",
    cache="warm",
    terms=("launch.graph_gap_s",),
    row_options=cycled_weights,
    regime_column="l2_state",
    row_seconds=short_replays,
)

PROTOCOLS: dict[str, tuple[Protocol, ...]] = {
    "gemm_cublas": (WARM, COLD),
    "gemm_triton": (WARM, COLD),
    "gemm_other": (WARM, COLD),
    "gemm_l2": (COUNTED_COLD,),
    "tile_drift": (COUNTED_WARM,),
    "public_gemm": (CYCLED,),
}
"""Protocols of each scored table, in the order of their predictions."""

COUNTED_CACHES = {"cold": (COUNTED_COLD,), "warm": (COUNTED_WARM,)}
"""Protocols of launches under Nsight Compute, by what it did to the caches: ``--cache-control all`` or ``none``."""

_SECTOR_BYTES = 32


def counters(table: Table) -> dict[str, Floats]:
    """Measured bytes, hit rates and clocks of a table, by the names that Estimates use; empty where it has none.

    Lookups are sectors that L1 and TMA send to L2, stores included; crossings are sectors between its partitions. nan
    stands for a row in which nobody counted.
    """
    found = {
        name: table[name].astype(np.float64)
        for name in ("dram_read_bytes", "dram_write_bytes", "lookup_bytes", "crossing_bytes", "l2_hit_rate", "clock_hz")
        if name in table
    }
    for name, sectors in (("lookup_bytes", "l2_tex_sectors"), ("crossing_bytes", "l2_fabric_sectors")):
        if sectors in table:
            found[name] = table[sectors] * float(_SECTOR_BYTES)
    return found
