"""The event-driven simulation: every CTA's steps in order of time, its loads through merging, L2 and DRAM.

    load of block j is sent     as the step ends that frees its place in the ring (``stages`` steps ahead)
    step j begins               as step j - 1 has ended and its block has arrived
    step j takes                step_s * factor(GPC) * factor(SM) * factor(tile)

Requests of one GPC for the same block share a lookup while the first of them is in flight: within a window after it for
hits, until it arrives for misses, up to a number of requests.
"""

from collections.abc import Mapping

from tilesight.errors import ConfigError, PlanError, shown
from tilesight.hardware.load import load_profile
from tilesight.simulate.advance import Run
from tilesight.simulate.blocks import Blocks
from tilesight.simulate.chip import Hardware, Pace, Service, Sides, chip_of, service_of
from tilesight.simulate.given import SECONDS_MOST, real, truth, whole
from tilesight.simulate.memory import L2
from tilesight.simulate.result import Simulated, counted_hit_rate, spread_at
from tilesight.simulate.stream import Stream

STEP_LEAST_S = 1e-15
"""A step takes some time."""


def simulate(
    stream: Stream,
    hardware: Hardware,
    *,
    slots: int,
    stages: int,
    step_s: float,
    ctas_per_sm: int = 1,
    persistent: bool = False,
    tile_s: float = 0.0,
    pace: Pace | None = None,
    seed: int = 0,
    resident: Mapping[str, float] | None = None,
    steps_per_block: int = 1,
    requests: int | None = None,
    window_s: float | None = None,
    service: Service | None = None,
    sides: Sides = "halves",
) -> Simulated:
    """Run a launch through L2, step by step.

    Assumes that partitions are fully associative and replace the least recently used block, that a block is homed in all
    partitions evenly, and that every SM waits for data and for nothing else.

    Parameters
    ----------
    stream
        CTAs in launch order.
    hardware
        A profile, its name or the path of its TOML file. Gives SMs, GPCs, the size of L2, its partitions, how requests
        merge, latencies and rates.
    slots
        CTAs at work at once; slot i is on SM i mod (slots / ctas_per_sm), SMs counted in launch order.
    stages
        Blocks of one step that a CTA's ring holds.
    step_s
        Mean time of a step that waits for nothing, in seconds.
    ctas_per_sm
        CTAs that share an SM.
    persistent
        Whether CTA i of the launch works through tiles i, i + slots, …; else a tile goes to the slot that is free first.
    tile_s
        Time between the last step of a tile and the first load of the next in its slot, in seconds.
    pace
        How far SMs differ; None: not at all.
    seed
        Of the random numbers; the same seed gives the same result.
    resident
        Share of each tensor that L2 holds before the launch, clean and in its homes alone: of its blocks in turn.
    steps_per_block
        Steps that are requested, kept and evicted as one; larger is faster and coarser.
    requests, window_s
        Requests that share a lookup and for how long after the first hit, in seconds; None: the profile's
        ``merging.requests_async`` and ``merging.window_l2_s``.
    service
        Latencies and rates; None: the profile's.
    sides
        Which GPCs lie on which side; see :func:`tilesight.simulate.chip_of`.

    Raises
    ------
    ConfigError
        If an argument is of the wrong kind or out of range, or slots do not fit on the SMs.
    UnknownProfileError, ProfileError, MissingFileError
        If ``hardware`` names no profile, or a broken one.
    PlanError
        If ``stream`` is none, ``resident`` names a tensor that it lacks, or steps of an operand do not begin at a block.
    UnsupportedError
        If the profile lacks a number; the error names it.

    Examples
    --------
    >>> from tilesight.simulate import shared_region, simulate
    >>> stream = shared_region(ctas=132, steps=64, step_bytes=16384.0)
    >>> found = simulate(stream, "h200_sxm", slots=132, stages=4, step_s=1e-6)
    >>> found.dram_read_bytes == 64 * 16384
    True
    """
    if not isinstance(stream, Stream):
        raise PlanError(f"stream = {shown(stream)}; give a Stream, such as tiled_product(access)")
    hardware = load_profile(hardware)
    chip = chip_of(hardware, sides)
    slots, stages, ctas_per_sm, steps_per_block = (
        whole(name, value, ConfigError)
        for name, value in {
            "slots": slots,
            "stages": stages,
            "ctas_per_sm": ctas_per_sm,
            "steps_per_block": steps_per_block,
        }.items()
    )
    if slots > len(chip.gpc) * ctas_per_sm:
        raise ConfigError(f"slots = {shown(slots)} on {len(chip.gpc)} SMs of {shown(ctas_per_sm)}; give no more")
    step_s = real("step_s", step_s, ConfigError, "seconds", STEP_LEAST_S, SECONDS_MOST)
    tile_s = real("tile_s", tile_s, ConfigError, "seconds", 0.0, SECONDS_MOST)
    persistent, seed = truth("persistent", persistent, ConfigError), whole("seed", seed, ConfigError, 0)
    for name, given, kind in (("pace", pace, Pace), ("service", service, Service)):
        if given is not None and not isinstance(given, kind):
            raise ConfigError(f"{name} = {shown(given)}; give a {kind.__name__}, or None")
    merged = int(hardware.require("merging.requests_async")) if requests is None else requests
    merged = whole("requests", merged, ConfigError)
    window = hardware.require("merging.window_l2_s") if window_s is None else window_s
    window = real("window_s", window, ConfigError, "seconds")
    memory = L2(hardware.l2.capacity_bytes, chip.partitions, service_of(hardware) if service is None else service)
    blocks = Blocks(stream, steps_per_block)
    blocks.place({} if resident is None else resident, memory)
    run = Run(stream, blocks, memory, chip, stages)
    run.set_merging(merged, window)
    run.set_pace(pace or Pace(), step_s, slots, ctas_per_sm, seed)
    seconds = run.go(persistent, tile_s)

    lookups = memory.read_lookup_bytes + memory.written_bytes
    far = 1 - 1 / chip.partitions
    return Simulated(
        requested_bytes=stream.requested_bytes,
        lookup_bytes=lookups,
        crossing_bytes=memory.crossing_bytes + memory.written_bytes * far,
        dram_read_bytes=memory.dram_read_bytes,
        dram_write_bytes=memory.dram_write_bytes,
        dirty_after_bytes=memory.dirty_bytes,
        read_crossing_bytes=memory.crossing_bytes,
        written_bytes=memory.written_bytes,
        hit_rate=counted_hit_rate(
            lookups, memory.written_bytes, memory.dram_read_bytes, memory.crossing_bytes, chip.partitions
        ),
        seconds=seconds,
        spread_steps=spread_at([slot.ends_s for slot in run.slots], [slot.done for slot in run.slots], seconds),
    )
