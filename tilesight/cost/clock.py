"""Power and clock: the SM clock that a tensor load leaves.

Tensor cores at work run at ``clock.tensor_hz`` instead of the boost clock, whatever the load. Power lowers it further.
What a load would draw at that clock is its demand,

    demand = static + e_flop * flop/s + e_l2 * delivered bytes/s + e_dram * DRAM bytes/s        (watts)

with bytes delivered from L2 to shared memory, however few lookups they took. A load that starts is slowed at once, by

    slowdown = max(1, demand / burst_w) ** burst_exponent

and one that lasts by the like of ``sustained_w``: not in its first ``power.burst_s``, fully after ``power.settle_s``, and
along the logarithm of time between. Data are taken to be random normal; zeros draw a fifth. A format whose energy nobody
measured draws what bf16 draws in a cycle of the tensor cores.
"""

from dataclasses import dataclass

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
        worst = seconds.ravel()[int(np.argmin(np.where(seconds >= 0, np.inf, 0.0)))]
        raise ConfigError(f"clock = {worst:g} is not a time under load in seconds; give 0 or more")
    return seconds


@dataclass(frozen=True)
class StepLoad:
    """One k-step of all resident CTAs, run as fast as the SM clock lets it; arrays of shape (L,).

    ``cycles`` that it takes on the busiest SM; ``flop``, ``delivered_bytes`` from L2 to shared memory and
    ``dram_bytes`` of the whole chip.
    """

    cycles: Counts
    flop: Counts
    delivered_bytes: Counts
    dram_bytes: Counts


def energy_j_per_flop(dtype: str, hardware: Profile) -> float:
    """Energy of one flop of a format: its own, else that of bf16 by flop a cycle, in joules."""
    rates = hardware.tensor[dtype]
    if rates.energy_j_per_flop is not None:
        return rates.energy_j_per_flop
    of_bf16 = hardware.require("power.energy_j_per_flop")
    return of_bf16 * hardware.tensor["bf16"].flop_per_cycle_per_sm / rates.flop_per_cycle_per_sm


def demand_w(load: StepLoad, dtype: str, hardware: Profile) -> Counts:
    """Power that a load of a format would draw at ``clock.tensor_hz``, in watts, shape (L,)."""
    joule = energy_j_per_flop(dtype, hardware) * load.flop
    joule = joule + hardware.require("power.energy_j_per_l2_byte") * load.delivered_bytes
    joule = joule + hardware.require("power.energy_j_per_dram_byte") * load.dram_bytes
    return hardware.require("power.static_w") + joule / load.cycles * tensor_hz(hardware)


def slowdown(demand: Counts, limit_w: float, exponent: float) -> Counts:
    """Factor by which the clock falls under a demand, at least 1, shape (L,).

    Examples
    --------
    >>> import numpy as np
    >>> slowdown(np.array([500.0, 1600.0]), limit_w=400.0, exponent=0.5)
    array([1.11803399, 2.        ])
    """
    slowed: Counts = np.maximum(1.0, demand / limit_w) ** exponent
    return slowed


def tensor_hz(hardware: Profile) -> float:
    """SM clock while tensor cores work without a power limit: ``clock.tensor_hz``, the boost clock where it is unknown."""
    return hardware.clock.tensor_hz or hardware.clock.boost_hz


def loaded_clock_hz(load: StepLoad, dtype: str, busy_s: NDArray[np.float64], hardware: Profile) -> Counts:
    """SM clock while tensor cores bind, in Hz, shape (L,).

    A profile without a law of power says at most which tensor rates were reached: then the clock is what keeps the load
    within ``rate_burst_flop_per_s`` at once and ``rate_sustained_flop_per_s`` when it lasts, and the tensor clock where
    it says neither.

    Parameters
    ----------
    load
        A k-step.
    dtype
        Format whose rates apply, by name.
    busy_s
        How long the GPU has been under this load, in seconds, scalar or shape (L,).
    """
    full = tensor_hz(hardware)
    if hardware.power.static_w is None:
        rates = hardware.tensor[dtype]
        reached = load.flop / load.cycles * full
        burst, lasting = (
            slowdown(reached, rate or np.inf, 1.0)
            for rate in (rates.rate_burst_flop_per_s, rates.rate_sustained_flop_per_s)
        )
        return full / np.where(busy_s >= LASTING_S, np.maximum(burst, lasting), burst)
    demand = demand_w(load, dtype, hardware)
    burst = slowdown(demand, hardware.require("power.burst_w"), hardware.require("power.burst_exponent"))
    lasting = slowdown(demand, hardware.require("power.sustained_w"), hardware.require("power.sustained_exponent"))
    start, end = hardware.require("power.burst_s"), hardware.require("power.settle_s")
    with np.errstate(divide="ignore", over="ignore"):
        progress = np.clip(np.log(busy_s / start) / np.log(end / start), 0.0, 1.0)
    # the geometric mean of the two, weighted by progress
    slowed: Counts = burst ** (1.0 - progress) * np.maximum(lasting, burst) ** progress
    return full / slowed


LASTING_S = 0.1
"""Load that a power limit has seen, on GPUs whose law of power is not known."""
