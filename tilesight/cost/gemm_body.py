"""The loop body of one priced GEMM as a problem of orders: what justifies the closed form of its period.

``price.py`` takes the largest of resource, ring and recurrence bounds. Each resource serves one action of that body, so no
order is to be chosen and the largest bound is the period. With q CTAs on an SM the same resources serve q such bodies;
these are tied by nothing else, so that they can follow each other at distances of P / q, and the period stays the same.

Two actions can be added that compete with others:

- convert: operands that are converted or transposed in shared memory between wait and product, in their slot. The port of
  shared memory then serves load (writes), convert (reads and writes) and product (reads).
- store: the output of a tile stored while a persistent kernel works on the next one. Each k-step stores its share of the
  tile, through the copy engine and L2 like the loads.

With them the largest bound is a lower bound that an order may fail to reach.
"""

from dataclasses import replace

import numpy as np

from tilesight.cost.body import LoopBody, TimedAction, Wait, body_of
from tilesight.cost.price import Period, Priced
from tilesight.cost.throughput import BOX_ROW_BYTES
from tilesight.errors import PlanError
from tilesight.hardware.profile import Profile
from tilesight.plan.tile import Counts


def gemm_body(
    priced: Priced,
    row: int,
    hardware: Profile,
    *,
    tail: bool = False,
    each_cta: bool = False,
    convert_bytes: float = 0.0,
    store: bool = False,
) -> LoopBody:
    """One k-step of everything resident on the busiest SM, chip-wide resources shared with the other SMs.

    Parameters
    ----------
    priced, row
        A priced batch, and which launch of it.
    hardware
        The profile it was priced with.
    tail
        The tail round instead of full ones.
    each_cta
        Actions of every resident CTA by themselves, instead of one that holds its resources for all of them.
    convert_bytes
        Bytes of a stage that are converted before the product; 0 leaves the action out.
    store
        Whether k-steps store their share of the tile before.

    Raises
    ------
    PlanError
        If a kernel that is not persistent is to store while it loads, or more bytes are converted than a stage has.
    """
    plan, period = priced.plan, priced.tail if tail else priced.full
    per_sm = max(_at(priced.waves.tail_per_sm if tail else priced.waves.per_sm, row), 1.0)
    costs, hz = priced.costs, _at(period.clock_hz, row)
    tensor_s = _at(costs.tensor_cycles, row) / hz
    delays = {
        "issue": _at(costs.chain_cycles, row) / hz,
        "load": _at(costs.fill_latency_s, row) + per_sm * _at(costs.fill_bytes_s, row),
        "wait": 0.0,
        "mma": tensor_s,
    }
    body = body_of(plan.graph, plan.loop, delays, _busy(period, row), row=row)
    if convert_bytes:
        body = _with_convert(body, priced, row, hardware, convert_bytes, per_sm / hz)
    if store:
        body = _with_store(body, priced, row, hardware, per_sm, tail)
    return _of_each(body, int(per_sm)) if each_cta else body


def _at(values: Counts, row: int) -> float:
    values = np.atleast_1d(values)
    return float(values[row if len(values) > 1 else 0])


def _busy(period: Period, row: int) -> dict[str, dict[str, float]]:
    """Busy times of all residents: those bounds of the period that are resources, by the action that holds them."""
    held = {"issue": "issue", "tensor": "mma", "tma": "load", "l2": "load", "dram": "load"}
    busy: dict[str, dict[str, float]] = {}
    for resource, action in held.items():
        busy.setdefault(action, {})[resource] = _at(period.bounds[resource], row)
    return busy


def _with_convert(
    body: LoopBody, priced: Priced, row: int, hardware: Profile, convert_bytes: float, residents_s: float
) -> LoopBody:
    """``convert`` between wait and product; ``residents_s`` is one cycle of an SM for each resident, in seconds."""
    stage, matrix = priced.plan.demands["load"].global_bytes, priced.plan.demands["mma"].matrix
    assert stage is not None  # every product loads its operands
    assert matrix is not None  # and multiplies them
    if not 0 < convert_bytes <= _at(stage, row):
        raise PlanError(f"convert_bytes = {convert_bytes}; a stage has {_at(stage, row):.0f} B")
    port_s = residents_s / hardware.require("sm.smem_bandwidth_bytes_per_cycle")
    reads = _at(matrix.count * (matrix.m + matrix.n) * matrix.k * matrix.operand_bytes, row)
    held = {"load": _at(stage, row), "convert": 2.0 * convert_bytes, "mma": reads}
    convert = TimedAction("convert", held["convert"] * port_s, {})
    actions = [
        replace(action, busy_s={**action.busy_s, "smem": held[action.name] * port_s}) if action.name in held else action
        for action in (*body.actions, convert)
    ]
    waits = [wait for wait in body.waits if (wait.source, wait.target) != ("wait", "mma")]
    return LoopBody(tuple(actions), (*waits, Wait("wait", "convert"), Wait("convert", "mma")))


def _with_store(body: LoopBody, priced: Priced, row: int, hardware: Profile, per_sm: float, tail: bool) -> LoopBody:
    """``store`` of the k-step's share of the tile before: N steps after its product."""
    plan = priced.plan
    if not bool(np.broadcast_to(plan.launch.persistent, len(plan))[row]):
        raise PlanError(f"{plan.kernel} is not persistent: it stores when its loop has ended")
    tile, steps = plan.demands["store"].global_bytes, _at(plan.loop.iterations, row)
    assert tile is not None  # every product stores its result
    share = _at(tile, row) / steps
    ctas = max(_at(priced.waves.tail if tail else priced.waves.slots, row), 1.0)
    busy = {
        "tma": per_sm * share / BOX_ROW_BYTES * hardware.require("fill.row_128_s"),
        "l2": ctas * share / hardware.require("l2.store_bytes_per_s"),
    }
    if any("smem" in action.busy_s for action in body.actions):
        port = hardware.require("sm.smem_bandwidth_bytes_per_cycle")
        busy["smem"] = per_sm * share / port / _at((priced.tail if tail else priced.full).clock_hz, row)
    store = TimedAction("store", max(busy.values()), busy)
    return LoopBody((*body.actions, store), (*body.waits, Wait("mma", "store", int(steps))))


def _of_each(body: LoopBody, ctas: int) -> LoopBody:
    """The body once for each CTA, which holds each resource for its part of the time."""
    return LoopBody(
        tuple(
            TimedAction(f"{action.name}.{cta}", action.delay_s, {name: s / ctas for name, s in action.busy_s.items()})
            for cta in range(ctas)
            for action in body.actions
        ),
        tuple(
            Wait(f"{wait.source}.{cta}", f"{wait.target}.{cta}", wait.distance, wait.ring)
            for cta in range(ctas)
            for wait in body.waits
        ),
    )
