"""Power and clock: how far the SM clock falls under a load, in bursts and when sustained.

The GPU lowers its clock when the power that a load would draw at full clock exceeds what is allowed:

    demand   = flop/s + dram_flop_per_byte * DRAM bytes/s              (flop equivalents)
    slowdown = max(1, demand / allowed) ** (1 / exponent)

``allowed`` falls from the burst threshold to the sustained one with the logarithm of the time under load.
"""

import numpy as np
from numpy.typing import NDArray

from tilesight.errors import ConfigError
from tilesight.hardware.profile import Profile
from tilesight.plan.tile import Counts

CLOCKS = ("burst", "sustained")


def busy_seconds(clock: str | float | NDArray[np.float64]) -> NDArray[np.float64]:
    """Time under load that a clock name stands for, in seconds: 0 for ``"burst"``, inf for ``"sustained"``.

    A number or array of seconds is passed through.

    Raises
    ------
    ConfigError
        If the name is unknown or the time negative or NaN.
    """
    if isinstance(clock, str):
        if clock not in CLOCKS:
            raise ConfigError(f"clock = {clock!r}; known: {', '.join(CLOCKS)}, or seconds under load")
        return np.asarray(0.0 if clock == "burst" else np.inf)
    seconds = np.asarray(clock, dtype=float)
    if not np.all(seconds >= 0):
        raise ConfigError(f"clock = {clock!r} is not a time under load in seconds; give 0 or more")
    return seconds


def allowed_flop_per_s(busy_s: NDArray[np.float64], hardware: Profile) -> NDArray[np.float64]:
    """Load that runs at full clock after ``busy_s`` seconds under it, in flop equivalents per second."""
    burst = hardware.require("power.burst_flop_per_s")
    sustained = hardware.require("power.sustained_flop_per_s")
    start, end = hardware.require("power.burst_s"), hardware.require("power.settle_s")
    with np.errstate(divide="ignore"):
        progress = np.clip(np.log(busy_s / start) / np.log(end / start), 0.0, 1.0)
    allowed: NDArray[np.float64] = burst + (sustained - burst) * progress
    return allowed


def slowdown(flop_per_s: Counts, dram_bytes_per_s: Counts, busy_s: NDArray[np.float64], hardware: Profile) -> Counts:
    """Factor by which a load stretches, from its rates at full clock, shape (L,); at least 1."""
    demand = flop_per_s + hardware.require("power.dram_flop_per_byte") * dram_bytes_per_s
    excess = demand / allowed_flop_per_s(busy_s, hardware)
    return np.maximum(1.0, excess) ** (1.0 / hardware.require("power.exponent"))
