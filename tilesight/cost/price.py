"""From a plan to seconds: every term of a batch of launches.

    seconds = start + descriptors + preparation + prologue
            + k-steps + instruction chain + fill + L2 + merging + copy engine + DRAM + tail + clock
            + between rounds + epilogue + reduction (+ DRAM floor)

- preparation: kernels before this one, that transpose or quantise an operand; prologue: the fill of one stage;
- k-steps: tensor time of all k-steps, as if waves were fractions; then what each further bound adds to the period, in
  this order: the loop's own instructions, the ring, L2 lookups if neighbours merged all they could, what merging loses,
  the copy engine, DRAM; then the tensor time of the whole last round beyond its fraction (tail), and what the fall of the
  clock under load adds;
- between rounds: what each further tile of a slot pays beyond its k-steps; epilogue: the last tile's store; reduction:
  the second kernel of a split; DRAM floor: what is left of DRAM time after all that overlaps.

The period is the largest of tensor time, L2 lookups, DRAM per wave, copy engine, ring and recurrence bounds.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from tilesight.cost.cache import Traffic, flow, repeated_residency, resident_share, resident_shares, traffic, with_more
from tilesight.cost.clock import StepLoad, loaded_clock_hz, tensor_hz
from tilesight.cost.drift import Pace, pace
from tilesight.cost.ends import (
    between_rounds_s,
    descriptor_s,
    epilogue_s,
    preparation_s,
    reduction_s,
    start_s,
)
from tilesight.cost.envelope import envelope
from tilesight.cost.merging import LookupShares, at_least_once, lookup_shares
from tilesight.cost.occupancy import Occupancy, Waves, occupancy, waves
from tilesight.cost.roofline import roofline_seconds
from tilesight.cost.schedule import dependence_bounds
from tilesight.cost.throughput import StepCosts, outside_rows_s, stage_lookups, step_costs
from tilesight.hardware.profile import Profile
from tilesight.plan.plan import Plan
from tilesight.plan.tile import Counts
from tilesight.resource import BusyTime

BOUNDS = ("tensor", "l2", "dram", "tma", "ring", "recurrence", "issue")
"""What a period can be bound by, in the order of ties."""

CTA_A_TILE = ("cp_async", "tma")
"""Kernel families whose tiles are CTAs of their own, where others stay on their SM."""
LOOP_TERMS = {
    "instruction chain": ("recurrence", "issue"),
    "fill": ("ring",),
    "L2": ("merged l2",),
    "merging": ("l2",),
    "copy engine": ("tma",),
    "DRAM": ("dram",),
}
"""Bounds of the period by the term that says what they add to the ones before."""
ROUNDING = 1e-12
"""Differences of times below this share of the time are 0."""
TERMS = (
    "start",
    "descriptors",
    "preparation",
    "prologue",
    "k-steps",
    *LOOP_TERMS,
    "tail",
    "clock",
    "between rounds",
    "epilogue",
    "reduction",
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

    ``bounds`` hold at ``clock_hz``, the clock under this load, ``unloaded`` at the clock of tensor cores without one.
    """

    bounds: Mapping[str, Counts]
    unloaded: Mapping[str, Counts]
    clock_hz: Counts

    @property
    def seconds(self) -> Counts:
        """The largest bound, shape (L,)."""
        longest: Counts = np.max(np.stack([self.bounds[name] for name in BOUNDS]), axis=0)
        return longest

    @property
    def unloaded_s(self) -> Counts:
        """The largest bound without load, shape (L,)."""
        longest: Counts = np.max(np.stack([self.unloaded[name] for name in BOUNDS]), axis=0)
        return longest

    def parts_s(self) -> dict[str, Counts]:
        """What each loop term adds to the unloaded period, in the order of ``LOOP_TERMS``, shape (L,) each.

        Tensor time comes first; a term is the growth of the largest bound so far when its own are added. True lookups
        take the place of those that full merging would leave, so that ``merging`` alone may be negative.
        """
        found: dict[str, Counts] = {}
        counted, reached = self.unloaded["tensor"], self.unloaded["tensor"]
        for term, names in LOOP_TERMS.items():
            grown = np.max(np.stack([counted, *(self.unloaded[name] for name in names)]), axis=0)
            found[term] = grown - reached
            reached = grown
            if term != "L2":
                counted = grown
        return found

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
    full_s: Counts
    tail_s: Counts
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
    crowd_last = np.maximum(np.where(rounds.tail > 0, rounds.tail_per_sm, rounds.per_sm), 1.0)
    around = _around(plan, hardware, situation)
    costs = step_costs(plan, around.resident_share, hardware)
    flowed = flow(
        plan.access,
        rounds.slots,
        _pace(plan, costs, rounds, crowd, hardware, situation),
        hardware,
        around.resident_share,
    )
    if plan.in_order:
        each = LookupShares(flowed.share_a, flowed.share_b, flowed.merged_a, flowed.merged_b)
        shares = at_least_once(plan.access, each)
    else:
        shares = lookup_shares(plan.access, flowed.near, hardware)
    repeated = situation.cache == "warm" and situation.resident is None
    moved = traffic(plan.access, flowed, shares, hardware, around.resident_share, repeated=repeated)

    steps = plan.loop.iterations
    has_tail = rounds.tail > 0
    full_reads = np.where(has_tail, moved.full_read_bytes, moved.dram_read_bytes)
    full_reads = full_reads / np.maximum(rounds.full * rounds.slots, 1.0) / steps
    tail_reads = np.where(has_tail, moved.tail_read_bytes / np.maximum(rounds.tail, 1.0) / steps, 0.0)
    outside = outside_rows_s(plan, rounds.slots, np.maximum(rounds.rounds, 1.0), hardware)
    full = _period(plan, costs, shares, rounds.per_sm, rounds.slots, full_reads, hardware, situation, outside)
    tail_ctas = np.maximum(rounds.tail, 1.0)
    tail = _period(
        plan, costs, shares, np.maximum(rounds.tail_per_sm, 1.0), tail_ctas, tail_reads, hardware, situation, outside
    )

    full_steps, tail_steps = steps * rounds.full, np.where(has_tail, steps, 0.0)
    full_s, tail_s = full_steps * full.seconds, tail_steps * tail.seconds
    last, fraction = tail.parts_s(), steps * rounds.waves - full_steps
    unloaded_s = full_steps * full.unloaded_s + tail_steps * tail.unloaded_s
    between = between_rounds_s(plan, rounds, costs, hardware)
    between = np.where(plan.pingpong, np.maximum(between - full_s - tail_s, 0.0), between)
    partial = np.where(plan.access.split > 1, plan.access.c_bytes * plan.access.split, 0.0)
    old_missed = (plan.launch.dependent_read_bytes - partial) * (1.0 - around.share_c)
    partial_missed = np.maximum(partial - moved.dirty_after_bytes, 0.0) + old_missed
    terms = {
        "start": start_s(plan, hardware) + np.zeros(len(plan)),
        "descriptors": descriptor_s(plan, hardware),
        "preparation": preparation_s(plan, around.earlier_missed, around.earlier_spilled, hardware),
        "prologue": costs.fill_s,
        "k-steps": steps * rounds.waves * full.unloaded["tensor"],
        **{term: full_steps * value + tail_steps * last[term] for term, value in full.parts_s().items()},
        "tail": tail_steps * tail.unloaded["tensor"] - fraction * full.unloaded["tensor"],
        "clock": full_s + tail_s - unloaded_s,
        "between rounds": between,
        "epilogue": epilogue_s(plan, _storing(rounds, has_tail, hardware, situation), crowd_last, costs, hardware),
        "reduction": reduction_s(plan, partial_missed, around.dependent_spilled, hardware),
    }
    before = terms["start"] + terms["descriptors"] + terms["preparation"] + terms["prologue"]
    after = terms["between rounds"] + terms["epilogue"] + terms["reduction"]
    total = envelope(before, full_steps, full.seconds, tail_s + after)
    none = np.zeros(len(plan))
    moved = with_more(moved, plan.old_output_bytes, plan.old_output_bytes * (1.0 - around.share_c), none, none)
    floor = _dram_floor_s(plan, terms, moved, hardware, situation)
    launch = plan.launch
    moved = with_more(
        moved, launch.earlier_read_bytes, around.earlier_missed, launch.earlier_written_bytes, around.earlier_spilled
    )
    moved = with_more(
        moved, launch.dependent_read_bytes, partial_missed, launch.dependent_written_bytes, around.dependent_spilled
    )
    # differences of sums that are equal but for rounding
    terms["tail"] = np.where(np.abs(terms["tail"]) < ROUNDING * total, 0.0, terms["tail"])
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
            dram=moved.dram_read_bytes / tiles_bytes_per_s(hardware)
            + moved.dram_write_bytes / hardware.require("dram.bandwidth_write_bytes_per_s"),
        ),
        occupancy=resident,
        waves=rounds,
        shares=shares,
        traffic=moved,
        costs=costs,
        full=full,
        tail=tail,
        full_s=full_s,
        tail_s=tail_s,
        roofline_s=roofline_seconds(plan, np.broadcast_to(situation.busy_s, len(plan)), hardware),
    )


def _pace(plan: Plan, costs: StepCosts, rounds: Waves, crowd: Counts, hardware: Profile, situation: Situation) -> Pace:
    """What sets the pace of a full wave, or of the only one."""
    ctas = np.where(rounds.full > 0, rounds.slots, np.maximum(rounds.tail, 1.0))
    unmerged = stage_lookups(plan, 1.0 / plan.access.multicast_a, 1.0 / plan.access.multicast_b)
    clock = loaded_clock_hz(_load(plan, costs, crowd, ctas, 0.0), plan.dtype, situation.busy_s, hardware)
    bounds = _own_bounds(plan, costs, crowd, clock)
    others = np.maximum(np.maximum(bounds["issue"], bounds["ring"]), bounds["recurrence"])
    fewer = _own_bounds(plan, costs, np.maximum(crowd - 1.0, 1.0), clock)
    fewer_s = np.max(np.stack(list(fewer.values())), axis=0)
    l2_s = ctas * unmerged / hardware.require("l2.lookup_bytes_per_s")
    return pace(
        bounds["tensor"],
        others,
        l2_s,
        fewer_s,
        plan.access.tile_k,
        crowd,
        plan.demands["load"].engine != "tma",
        plan.kernel.split(".")[1] in CTA_A_TILE,
        hardware,
    )


def _load(plan: Plan, costs: StepCosts, per_sm: Counts, total: Counts, read_bytes: Counts | float) -> StepLoad:
    """A step of ``total`` CTAs, ``per_sm`` on the busiest SM, as fast as what goes by the clock lets it."""
    flop, stage_bytes = plan.demands["mma"].flop, plan.demands["load"].global_bytes
    assert flop is not None  # every product multiplies
    assert stage_bytes is not None  # and loads its operands
    cycles = np.maximum(np.maximum(per_sm * costs.tensor_cycles, costs.chain_cycles), per_sm * costs.issue_cycles)
    return StepLoad(cycles, total * flop, total * stage_bytes, total * read_bytes)


def _own_bounds(plan: Plan, costs: StepCosts, per_sm: Counts, hz: Counts) -> dict[str, Counts]:
    """Bounds on a step that an SM sets itself, at a clock, in seconds."""
    chain = costs.chain_cycles / hz
    fill = costs.fill_latency_s + per_sm * costs.fill_bytes_s
    delays = {"issue": chain, "load": fill, "wait": np.zeros(1), "mma": costs.tensor_cycles / hz}
    dependence = dependence_bounds(plan.graph, delays, plan.loop)
    return {
        "tensor": per_sm * costs.tensor_cycles / hz,
        "issue": per_sm * costs.issue_cycles / hz,
        "ring": dependence.ring,
        "recurrence": dependence.recurrence,
    }


@dataclass(frozen=True)
class _Around:
    """What is in L2 before the product's loads, and what kernels around it bring from DRAM and send there; shape (L,)."""

    resident_share: Counts
    share_c: Counts
    earlier_missed: Counts
    earlier_spilled: Counts
    dependent_spilled: Counts


def _around(plan: Plan, hardware: Profile, situation: Situation) -> _Around:
    """Kernels before the product read operands as resident as they are, and leave in L2 what of their work it holds."""
    share_a, share_b, share_c = resident_shares(plan.access, situation.cache, situation.resident, hardware)
    launch, half = plan.launch, hardware.l2.capacity_bytes / 2
    made_a, made_b = plan.flags["made_a"], plan.flags["made_b"]
    read = np.where(made_a, plan.access.a_bytes, 0.0) + np.where(made_b, plan.access.b_bytes, 0.0)
    found = np.where(made_a, share_a * plan.access.a_bytes, 0.0) + np.where(made_b, share_b * plan.access.b_bytes, 0.0)
    missed = launch.earlier_read_bytes * (1.0 - found / np.maximum(read, 1.0))
    if np.any(launch.earlier_kernels > 0):
        left = repeated_residency(launch.earlier_read_bytes + launch.earlier_written_bytes, hardware)
        share_a, share_b = (
            np.where(made, np.maximum(share, left), share) for made, share in ((made_a, share_a), (made_b, share_b))
        )
    return _Around(
        resident_share=resident_share(plan.access, share_a, share_b),
        share_c=share_c,
        earlier_missed=missed,
        earlier_spilled=np.maximum(launch.earlier_written_bytes - half, 0.0),
        dependent_spilled=np.maximum(launch.dependent_written_bytes - half, 0.0),
    )


def _storing(rounds: Waves, has_tail: NDArray[np.bool_], hardware: Profile, situation: Situation) -> Counts:
    """SMs that store the last tiles, shape (L,)."""
    sms = float(hardware.sm_count if situation.sms is None else situation.sms)
    return np.minimum(np.where(has_tail, rounds.tail, rounds.slots), sms)


def _period(
    plan: Plan,
    costs: StepCosts,
    shares: LookupShares,
    per_sm: Counts,
    total: Counts,
    read_bytes: Counts,
    hardware: Profile,
    situation: Situation,
    outside: Counts,
) -> Period:
    """Period of ``total`` CTAs, ``per_sm`` on the busiest SM, that each read ``read_bytes`` of DRAM a step.

    ``outside`` is the copy engine's time for rows outside the matrix, a step.

    The clock is the one at which the step's work, done as fast as what goes by the clock allows (tensor cores, the
    loop's own instructions), meets the limits. Where something else binds, less power is drawn and the clock is higher;
    what binds then does not go by it.
    """
    load = _load(plan, costs, per_sm, total, read_bytes)
    clock = loaded_clock_hz(load, plan.dtype, situation.busy_s, hardware)
    l2_per_s = hardware.require("l2.lookup_bytes_per_s")
    shared = {
        "tma": per_sm * (costs.copy_s + outside),
        "l2": total * stage_lookups(plan, shares.a, shares.b) / l2_per_s,
        "merged l2": total * stage_lookups(plan, shares.merged_a, shares.merged_b) / l2_per_s,
        "dram": load.dram_bytes / tiles_bytes_per_s(hardware),
    }
    unloaded = np.full_like(load.cycles, tensor_hz(hardware))
    loaded, still = (_own_bounds(plan, costs, per_sm, hz) | shared for hz in (clock, unloaded))
    return Period(loaded, still, clock)


def tiles_bytes_per_s(hardware: Profile) -> float:
    """Rate at which tiles come from DRAM: a share of that of plain streams, all of it where the share is unknown."""
    share = 1.0 if hardware.dram.tiles_read_share is None else hardware.dram.tiles_read_share
    return hardware.require("dram.bandwidth_read_bytes_per_s") * share


def _dram_floor_s(
    plan: Plan, terms: Mapping[str, Counts], moved: Traffic, hardware: Profile, situation: Situation
) -> Counts:
    """No launch ends before its DRAM traffic has: start + prologue + reads, writes and evictions at their rates.

    Lines of other data that are dirty in L2 are written back as reads and writes take their place, at
    ``l2.dirty_evicted_share`` bytes a byte.
    """
    reads, writes = moved.dram_read_bytes, moved.dram_write_bytes
    seconds = reads / tiles_bytes_per_s(hardware)
    seconds = seconds + writes / hardware.require("dram.bandwidth_write_bytes_per_s")
    if situation.dirty_bytes > 0:
        evicted = hardware.require("l2.dirty_evicted_share") * (reads + plan.access.c_bytes)
        evicted = np.minimum(evicted, situation.dirty_bytes)
        seconds = seconds + evicted / hardware.require("dram.bandwidth_write_bytes_per_s")
    return terms["start"] + terms["preparation"] + terms["prologue"] + terms["reduction"] + seconds


def binding_names(priced: Priced) -> list[str]:
    """What binds each launch: the bound of its longest part, or ``"start"`` / ``"dram"`` where the ends or the floor do."""
    loop = np.where(priced.full_s >= priced.tail_s, priced.full.binding, priced.tail.binding)
    loop_s = priced.full_s + priced.tail_s
    ends = priced.seconds - loop_s - priced.terms["dram floor"]
    names = [BOUNDS[i] for i in loop]
    return [
        "dram" if floor > 0 else "launch" if end > body else name
        for floor, end, body, name in zip(priced.terms["dram floor"], ends, loop_s, names, strict=True)
    ]
