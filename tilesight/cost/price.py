"""From a plan to seconds: every term of a batch of launches, and one estimate of it.

    seconds = start + descriptors + prologue + k-steps + rounds + epilogue + reduction (+ DRAM floor, clock)

- prologue: the fill of one stage;
- k-steps: full rounds at the period of a full chip, then the tail at the period of the CTAs it has;
- rounds: what each further tile of a slot pays beyond its k-steps (its epilogue and, unless loads run ahead, its
  prologue), hidden in part by co-resident CTAs;
- epilogue: the last tile's store; reduction: the second kernel of a split;
- clock: what the fall of the clock under load adds; DRAM floor: what is left of DRAM time after all that overlaps.

The period is the largest of tensor time, L2 lookups, DRAM per wave, ring and recurrence bounds.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from tilesight.cost.cache import Traffic, traffic
from tilesight.cost.clock import StepLoad, loaded_clock_hz
from tilesight.cost.envelope import envelope
from tilesight.cost.merging import LookupShares, lookup_shares
from tilesight.cost.occupancy import Occupancy, Waves, occupancy, waves
from tilesight.cost.roofline import roofline_seconds
from tilesight.cost.schedule import dependence_bounds
from tilesight.cost.throughput import StepCosts, outside_rows_s, step_costs
from tilesight.hardware.profile import Profile
from tilesight.plan.plan import Plan
from tilesight.plan.tile import Counts
from tilesight.resource import BusyTime

BOUNDS = ("tensor", "l2", "dram", "tma", "ring", "recurrence", "issue")
"""What a period can be bound by, in the order of ties."""

TERMS = (
    "start",
    "descriptors",
    "prologue",
    "full rounds",
    "tail round",
    "between rounds",
    "epilogue",
    "reduction",
    "clock",
    "dram floor",
)
"""Named parts of ``seconds``; they sum to it."""


@dataclass(frozen=True)
class Situation:
    """What surrounds a launch.

    ``cache`` is ``"warm"`` or ``"cold"``; ``resident`` states
    shares of tensors in L2 instead, scalar or shape (L,) each; ``dirty_bytes`` of
    other data wait in L2 to be written back; ``busy_s`` is the time under load, scalar or shape (L,); ``sms`` limits
    the SMs that may be used.
    """

    cache: str
    busy_s: NDArray[np.float64]
    resident: Mapping[str, NDArray[np.float64]] | None = None
    dirty_bytes: float = 0.0
    sms: int | None = None

    def rows(self, rows: NDArray[np.intp]) -> "Situation":
        """The situation of some launches of a batch: arrays are picked, single values stay."""

        def pick(value: NDArray[np.float64]) -> NDArray[np.float64]:
            return value[rows] if value.ndim else value

        resident = None if self.resident is None else {name: pick(share) for name, share in self.resident.items()}
        return replace(self, busy_s=pick(self.busy_s), resident=resident)


@dataclass(frozen=True)
class Period:
    """Steady period of one population (CTAs in flight) and its bounds, in seconds, shape (L,) each.

    ``bounds`` hold at ``clock_hz``, the clock under this load; ``unloaded_s`` is the period at ``clock.tensor_hz``.
    """

    bounds: Mapping[str, Counts]
    unloaded_s: Counts
    clock_hz: Counts

    @property
    def seconds(self) -> Counts:
        """The largest bound, shape (L,)."""
        longest: Counts = np.max(np.stack([self.bounds[name] for name in BOUNDS]), axis=0)
        return longest

    @property
    def binding(self) -> NDArray[np.intp]:
        """Index into ``BOUNDS`` of the largest bound, shape (L,)."""
        largest: NDArray[np.intp] = np.argmax(np.stack([self.bounds[name] for name in BOUNDS]), axis=0)
        return largest


@dataclass(frozen=True)
class Priced:
    """Everything computed for a batch; arrays of shape (L,), times in seconds unless named otherwise."""

    plan: Plan
    situation: Situation
    seconds: Counts
    terms: Mapping[str, Counts]
    busy_s: BusyTime
    occupancy: Occupancy
    waves: Waves
    shares: LookupShares
    traffic: Traffic
    costs: StepCosts
    full: Period
    tail: Period
    roofline_s: Counts


def price(plan: Plan, hardware: Profile, situation: Situation) -> Priced:
    """Price a batch of launches of one kernel family.

    Parameters
    ----------
    plan
        The batch; every configuration must fit on an SM.
    hardware
        Gives every rate; a rate it lacks raises.
    situation
        Cache state, clock, SMs.

    Raises
    ------
    UnsupportedError
        If the profile lacks a number that the plan needs; the error names it.
    """
    resident = occupancy(plan.launch, hardware)
    rounds = waves(plan.launch, resident, hardware, situation.sms)
    crowd = np.where(rounds.full > 0, rounds.per_sm, rounds.tail_per_sm)
    bulk = plan.demands["load"].engine == "tma"
    shares = lookup_shares(plan.access, plan.in_order, bulk, crowd, np.maximum(rounds.waves, 1.0), hardware)
    moved = traffic(plan.access, rounds.slots, shares, hardware, situation.cache, situation.resident)
    costs = step_costs(plan, shares, moved.resident_share, hardware)

    steps = plan.loop.iterations
    has_tail = rounds.tail > 0
    full_reads = np.where(has_tail, moved.full_read_bytes, moved.dram_read_bytes)
    full_reads = full_reads / np.maximum(rounds.full * rounds.slots, 1.0) / steps
    tail_reads = np.where(has_tail, moved.tail_read_bytes / np.maximum(rounds.tail, 1.0) / steps, 0.0)
    full = _period(plan, costs, rounds.per_sm, rounds.slots, full_reads, hardware, situation)
    tail_ctas = np.maximum(rounds.tail, 1.0)
    tail = _period(plan, costs, np.maximum(rounds.tail_per_sm, 1.0), tail_ctas, tail_reads, hardware, situation)

    full_steps, tail_steps = steps * rounds.full, np.where(has_tail, steps, 0.0)
    slowed = full_steps * (full.seconds - full.unloaded_s) + tail_steps * (tail.seconds - tail.unloaded_s)
    terms = {
        "start": _start_s(plan, hardware) + np.zeros(len(plan)),
        "descriptors": _descriptor_s(plan, hardware),
        "prologue": costs.fill_s,
        "full rounds": full_steps * full.unloaded_s,
        "tail round": tail_steps * tail.unloaded_s,
        "between rounds": _between_rounds_s(plan, rounds, costs, hardware),
        "epilogue": _epilogue_s(plan, np.where(has_tail, rounds.tail, rounds.slots), hardware),
        "reduction": _reduction_s(plan, hardware),
        "clock": slowed,
    }
    before = terms["start"] + terms["descriptors"] + terms["prologue"]
    after = terms["between rounds"] + terms["epilogue"] + terms["reduction"]
    total = envelope(before, full_steps, full.seconds, tail_steps * tail.seconds + after)
    floor = _dram_floor_s(plan, terms, moved, hardware, situation)
    terms["dram floor"] = np.maximum(floor - total, 0.0)
    tensor_s = full_steps * full.bounds["tensor"] + tail_steps * tail.bounds["tensor"]
    return Priced(
        plan=plan,
        situation=situation,
        seconds=total + terms["dram floor"],
        terms={name: terms[name] for name in TERMS},
        busy_s=BusyTime.of(
            tensor=tensor_s,
            l2=moved.lookup_bytes / hardware.require("l2.lookup_bytes_per_s"),
            dram=moved.dram_read_bytes / hardware.require("dram.bandwidth_read_bytes_per_s")
            + moved.dram_write_bytes / hardware.require("dram.bandwidth_write_bytes_per_s"),
        ),
        occupancy=resident,
        waves=rounds,
        shares=shares,
        traffic=moved,
        costs=costs,
        full=full,
        tail=tail,
        roofline_s=roofline_seconds(plan, np.broadcast_to(situation.busy_s, len(plan)), hardware),
    )


def _period(
    plan: Plan,
    costs: StepCosts,
    per_sm: Counts,
    total: Counts,
    read_bytes: Counts,
    hardware: Profile,
    situation: Situation,
) -> Period:
    """Period of ``total`` CTAs, ``per_sm`` on the busiest SM, that each read ``read_bytes`` of DRAM a step.

    The clock is the one at which the step's work, done as fast as what goes by the clock allows (tensor cores, the
    loop's own instructions), meets the limits. Where something else binds, less power is drawn and the clock is higher;
    what binds then does not go by it.
    """
    tensor_hz = hardware.require("clock.tensor_hz")
    cycles = per_sm * costs.tensor_cycles
    flop = plan.demands["mma"].flop
    assert flop is not None  # every product multiplies
    stage_bytes = plan.demands["load"].global_bytes
    assert stage_bytes is not None  # and loads its operands
    clocked = np.maximum(np.maximum(cycles, costs.chain_cycles), per_sm * costs.issue_cycles)
    load = StepLoad(clocked, total * flop, total * stage_bytes, total * read_bytes)
    clock = loaded_clock_hz(load, situation.busy_s, hardware)
    fill = costs.fill_latency_s + per_sm * costs.fill_bytes_s
    # a ragged tile holds up an in-order launch of one round; among many tiles, or loaded ahead, others make up for it
    alone = (total >= plan.launch.tiles) & plan.in_order
    outside = np.where(alone, outside_rows_s(plan, hardware), 0.0)
    shared = {
        "l2": total * costs.lookup_bytes / hardware.require("l2.lookup_bytes_per_s"),
        "dram": load.dram_bytes / hardware.require("dram.bandwidth_read_bytes_per_s"),
    }

    def bounds_at(hz: Counts) -> dict[str, Counts]:
        chain = costs.chain_cycles / hz
        delays = {"issue": chain, "load": fill, "wait": np.zeros(1), "mma": costs.tensor_cycles / hz}
        dependence = dependence_bounds(plan.graph, delays, plan.loop)
        return {
            "tensor": cycles / hz,
            "issue": per_sm * costs.issue_cycles / hz,
            "tma": per_sm * (costs.copy_s + outside),
            "ring": dependence.ring,
            "recurrence": dependence.recurrence,
            **shared,
        }

    unloaded = Period(bounds_at(np.full_like(cycles, tensor_hz)), cycles, clock).seconds
    return Period(bounds_at(clock), unloaded, clock)


def _start_s(plan: Plan, hardware: Profile) -> float:
    return hardware.require("launch.start_in_order_s" if plan.in_order else "launch.start_specialized_s")


def _descriptor_s(plan: Plan, hardware: Profile) -> Counts:
    built = plan.launch.device_descriptors
    if not np.any(built > 0):
        return np.zeros(len(plan))
    return np.where(built > 0, hardware.require("launch.descriptor_s"), 0.0)


def _epilogue_s(plan: Plan, active: Counts, hardware: Profile) -> Counts:
    """Store of the last tile: fixed + bytes / min(rate of one SM, the chip's rate / active SMs), in seconds."""
    kind = "in_order" if plan.in_order else "specialized"
    tile_bytes = plan.demands["store"].global_bytes
    assert tile_bytes is not None
    sms = np.minimum(active, float(hardware.sm_count))
    own = hardware.require(f"epilogue.{kind}_bytes_per_s")
    chip = hardware.require("l2.store_bytes_per_s")
    return hardware.require(f"epilogue.{kind}_fixed_s") + tile_bytes / np.minimum(own, chip / sms)


def _between_rounds_s(plan: Plan, rounds: Waves, costs: StepCosts, hardware: Profile) -> Counts:
    """What each further round costs an SM beside its k-steps: fixed + the round's output bytes / rate.

    Pointer kernels end a CTA and start another, so that nothing of it overlaps, and their first fill waits for DRAM
    where operands do; persistent ones store while the next tile loads.
    """
    further = np.maximum(rounds.rounds - 1, 0.0)
    kernel = plan.kernel.split(".")[1]
    tile_bytes = plan.demands["store"].global_bytes
    assert tile_bytes is not None
    fixed = hardware.require(f"rounds.{kernel}_fixed_s")
    each: Counts = fixed + rounds.per_sm * tile_bytes / hardware.require(f"rounds.{kernel}_bytes_per_s")
    if kernel == "cp_async":
        each = each + costs.fill_latency_s - hardware.require("fill.latency_l2_s")
    return further * each


def _reduction_s(plan: Plan, hardware: Profile) -> Counts:
    """Second kernel of a split: a dependent launch, then its bytes at the rate of L2-resident partial sums."""
    kernels = plan.launch.dependent_kernels
    if not np.any(kernels > 0):
        return np.zeros(len(plan))
    rate = hardware.require("launch.reduction_bytes_per_s")
    return kernels * hardware.require("launch.dependent_kernel_s") + plan.launch.dependent_bytes / rate


def _dram_floor_s(
    plan: Plan, terms: Mapping[str, Counts], moved: Traffic, hardware: Profile, situation: Situation
) -> Counts:
    """No launch ends before its DRAM traffic has: start + prologue + reads, writes and evictions at their rates.

    Lines of other data that are dirty in L2 are written back as reads and writes take their place, at
    ``l2.dirty_evicted_share`` bytes a byte.
    """
    reads, writes = moved.dram_read_bytes, moved.dram_write_bytes
    seconds = reads / hardware.require("dram.bandwidth_read_bytes_per_s")
    seconds = seconds + writes / hardware.require("dram.bandwidth_write_bytes_per_s")
    if situation.dirty_bytes > 0:
        evicted = hardware.require("l2.dirty_evicted_share") * (reads + plan.access.c_bytes)
        evicted = np.minimum(evicted, situation.dirty_bytes)
        seconds = seconds + evicted / hardware.require("dram.bandwidth_write_bytes_per_s")
    return terms["start"] + terms["prologue"] + terms["reduction"] + seconds


def binding_names(priced: Priced) -> list[str]:
    """What binds each launch: the bound of its longest part, or ``"start"`` / ``"dram"`` where the ends or the floor do."""
    full_longer = priced.terms["full rounds"] >= priced.terms["tail round"]
    loop = np.where(full_longer, priced.full.binding, priced.tail.binding)
    loop_s = priced.terms["full rounds"] + priced.terms["tail round"] + priced.terms["clock"]
    ends = priced.seconds - loop_s - priced.terms["dram floor"]
    names = [BOUNDS[i] for i in loop]
    return [
        "dram" if floor > 0 else "launch" if end > body else name
        for floor, end, body, name in zip(priced.terms["dram floor"], ends, loop_s, names, strict=True)
    ]
