"""The chip as a launch sees it: SMs in launch order, the GPC and the L2 partition of each, their pace, and service times.

CTAs are launched GPC by GPC and TPC by TPC, so that SMs next to each other in launch order lie in one GPC.
"""

from dataclasses import dataclass, fields
from math import inf
from os import PathLike
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from tilesight.errors import ConfigError, UnsupportedError, shown
from tilesight.hardware.load import load_profile
from tilesight.hardware.profile import Profile
from tilesight.simulate.given import SECONDS_MOST, real

Hardware = Profile | str | PathLike[str]
Sides = Literal["halves", "parity"]


@dataclass(frozen=True)
class Chip:
    """``gpc`` of each SM in launch order, and ``side`` of each GPC: the L2 partition that its SMs look up."""

    gpc: tuple[int, ...]
    side: tuple[int, ...]
    partitions: int


def chip_of(hardware: Hardware, sides: Sides = "halves") -> Chip:
    """SMs, GPCs and sides of a GPU.

    GPCs hold ``gpc.sms_per_gpc`` SMs each where the profile knows them. Otherwise ``gpc.count`` of them share the SMs
    evenly: SM i of n lies in GPC floor(i * count / n). Which GPC lies on which side of the chip is an assumption.

    Parameters
    ----------
    hardware
        A profile, its name or the path of its TOML file.
    sides
        ``"halves"``: the first GPCs in launch order on one side; ``"parity"``: GPCs in turn.

    Raises
    ------
    UnsupportedError
        If the profile knows neither GPCs nor their SMs.
    ConfigError
        If ``sides`` is another word.

    Examples
    --------
    >>> from tilesight.hardware.load import load_profile
    >>> chip = chip_of(load_profile("h200_sxm"))
    >>> len(chip.gpc), len(chip.side), chip.partitions
    (132, 8, 2)
    """
    hardware = load_profile(hardware)
    if not isinstance(sides, str) or sides not in ("halves", "parity"):
        raise ConfigError(f"sides = {shown(sides)}; give 'halves' or 'parity'")
    partitions = hardware.l2.partitions or 1
    known = hardware.gpc.sms_per_gpc
    if known is not None:
        gpc = np.repeat(np.arange(len(known)), known)
        if len(gpc) != hardware.sm_count:
            raise UnsupportedError(
                f"gpc.sms_per_gpc of profile {hardware.name!r} are {len(gpc)} SMs, sm_count {hardware.sm_count}",
                field="gpc.sms_per_gpc",
            )
        count = len(known)
    else:
        count = int(hardware.require("gpc.count"))
        gpc = np.arange(hardware.sm_count) * count // hardware.sm_count
    numbers = range(count)
    side = [each * partitions // count if sides == "halves" else each % partitions for each in numbers]
    return Chip(tuple(gpc.tolist()), tuple(side), partitions)


SPREAD_MOST = 10.0
"""Relative standard deviation of a speed."""


@dataclass(frozen=True)
class Pace:
    """How far SMs differ in speed: relative standard deviations, 0 to 10, and how late tiles start.

    Attributes
    ----------
    gpc_spread
        Of GPCs; all SMs of one share its speed.
    tile_jitter
        Of the tiles of one SM.
    crowded_spread
        Of SMs inside a GPC, where an SM holds several CTAs.
    start_spread_s
        Standard deviation, in seconds, of the delay with which a CTA starts a tile; delays are uniform from 0 on.

    Examples
    --------
    >>> Pace(gpc_spread=0.0045).tile_jitter
    0.0
    """

    gpc_spread: float = 0.0
    tile_jitter: float = 0.0
    crowded_spread: float = 0.0
    start_spread_s: float = 0.0

    def __post_init__(self) -> None:
        for entry in fields(self):
            most = SECONDS_MOST if entry.name == "start_spread_s" else SPREAD_MOST
            value = real(entry.name, getattr(self, entry.name), ConfigError, "a standard deviation", 0.0, most)
            object.__setattr__(self, entry.name, value)

    def sm_factors(self, chip: Chip, crowded: bool, rng: np.random.Generator) -> NDArray[np.float64]:
        """Time of a step over its mean, for each SM, shape (sms,): exp of normal deviates, so that none is negative."""
        gpcs = rng.standard_normal(len(chip.side)) * self.gpc_spread
        sms = rng.standard_normal(len(chip.gpc)) * (self.crowded_spread if crowded else 0.0)
        return np.exp(gpcs[list(chip.gpc)] + sms)

    def tile_factors(self, ctas: int, rng: np.random.Generator) -> NDArray[np.float64]:
        """The same for each CTA, shape (ctas,)."""
        return np.exp(rng.standard_normal(ctas) * self.tile_jitter)

    def start_delays_s(self, ctas: int, rng: np.random.Generator) -> NDArray[np.float64]:
        """Delay of each CTA's first load, in seconds, shape (ctas,)."""
        delays: NDArray[np.float64] = rng.random(ctas) * (np.sqrt(12.0) * self.start_spread_s)
        return delays


@dataclass(frozen=True)
class Service:
    """How soon data arrive: latencies in seconds of L2 hits on the near and far side and of DRAM, rates in bytes/s.

    Each rate is one server of the whole chip that works through requests in the order in which they come. Lookups pass
    the first, DRAM reads and lines written back the second.
    """

    near_s: float
    far_s: float
    dram_s: float
    lookup_bytes_per_s: float
    dram_bytes_per_s: float

    def __post_init__(self) -> None:
        for name in ("near_s", "far_s", "dram_s"):
            value = real(name, getattr(self, name), ConfigError, "seconds", 0.0, SECONDS_MOST)
            object.__setattr__(self, name, value)
        for name in ("lookup_bytes_per_s", "dram_bytes_per_s"):
            value = real(name, getattr(self, name), ConfigError, "bytes per second (inf for no limit)", 1.0, inf)
            object.__setattr__(self, name, value)


def service_of(hardware: Hardware) -> Service:
    """Latencies of dependent loads, and the rates of L2 lookups and of DRAM (a copy's, since it also takes writes).

    An L2 of one partition has no far side: where the profile does not tell near from far, ``l2.latency_s`` is taken.

    Raises
    ------
    UnsupportedError
        If the profile lacks one of them; the error names it.
    """
    hardware = load_profile(hardware)
    one_side = (hardware.l2.partitions or 1) == 1
    near = "l2.latency_s" if one_side and hardware.l2.latency_near_s is None else "l2.latency_near_s"
    far = near if one_side and hardware.l2.latency_far_s is None else "l2.latency_far_s"
    return Service(
        near_s=hardware.require(near),
        far_s=hardware.require(far),
        dram_s=hardware.require("dram.latency_s"),
        lookup_bytes_per_s=hardware.require("l2.lookup_bytes_per_s"),
        dram_bytes_per_s=hardware.require("dram.bandwidth_sustained_bytes_per_s"),
    )
