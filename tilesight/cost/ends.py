"""What a launch pays beside its k-steps: start, descriptors, kernels before and after, stores, further rounds."""

import numpy as np

from tilesight.cost.occupancy import Waves
from tilesight.cost.throughput import StepCosts
from tilesight.hardware.profile import Profile
from tilesight.plan.plan import Plan
from tilesight.plan.tile import Counts


def start_s(plan: Plan, hardware: Profile) -> float:
    """From the launch to the first load, in seconds."""
    return hardware.require("launch.start_in_order_s" if plan.in_order else "launch.start_specialized_s")


def descriptor_s(plan: Plan, hardware: Profile) -> Counts:
    """Tensor maps that the kernel builds on the device before its first bulk copy, in seconds, shape (L,)."""
    built = plan.launch.device_descriptors
    if not np.any(built > 0):
        return np.zeros(len(plan))
    return np.where(built > 0, hardware.require("launch.descriptor_s"), 0.0)


def _added_s(plan: Plan, costs: StepCosts, hardware: Profile) -> Counts:
    """What an epilogue waits for that adds the old C or a bias: one fill of their bytes from one SM, shape (L,)."""
    added = plan.demands["add"].global_bytes
    if added is None or not np.any(added > 0):
        return np.zeros(len(plan))
    return np.where(added > 0, costs.fill_latency_s + added / hardware.require("fill.cp_async_bytes_per_s"), 0.0)


def epilogue_s(plan: Plan, active: Counts, per_sm: Counts, costs: StepCosts, hardware: Profile) -> Counts:
    """Store of the last tiles, ``per_sm`` on the busiest SM: fixed + bytes / min(rate of one SM, the chip's rate / active
    SMs), in seconds, shape (L,)."""
    kind = "in_order" if plan.in_order else "specialized"
    tile_bytes = plan.demands["store"].global_bytes
    assert tile_bytes is not None
    own = hardware.require(f"epilogue.{kind}_bytes_per_s")
    chip = hardware.require("l2.store_bytes_per_s")
    fixed = hardware.require(f"epilogue.{kind}_fixed_s")
    return fixed + _added_s(plan, costs, hardware) + per_sm * tile_bytes / np.minimum(own, chip / active)


ROUNDS_LIKE = {"tma": "cp_async"}
"""Kernel families whose CTAs end and start as those of another."""


def between_rounds_s(plan: Plan, rounds: Waves, costs: StepCosts, hardware: Profile) -> Counts:
    """What each further round costs an SM beside its k-steps: fixed + the round's output bytes / rate.

    Kernels of one CTA a tile end it and start another, so that nothing of it overlaps, and their first fill waits for
    DRAM where operands do; persistent ones store while the next tile loads.
    """
    further = np.maximum(rounds.rounds - 1, 0.0)
    kernel = plan.kernel.split(".")[1]
    kind = ROUNDS_LIKE.get(kernel, kernel)
    tile_bytes = plan.demands["store"].global_bytes
    assert tile_bytes is not None
    fixed = hardware.require(f"rounds.{kind}_fixed_s")
    each: Counts = fixed + rounds.per_sm * tile_bytes / hardware.require(f"rounds.{kind}_bytes_per_s")
    if kind == "cp_async":
        each = each + costs.fill_latency_s - hardware.require("fill.latency_l2_s")
    return further * (each + _added_s(plan, costs, hardware))


def _others_s(kernels: Counts, moved: Counts, missed: Counts, spilled: Counts, hardware: Profile) -> Counts:
    """Kernels beside the product, in seconds, shape (L,): a dependent launch each, then their bytes.

    At the rate of partial sums that L2 holds, or of DRAM for what comes from it and goes to it, whichever is longer;
    a byte written beside reads takes what it takes in a copy, 2 / copy rate - 1 / read rate.
    """
    if not np.any(kernels > 0):
        return np.zeros_like(moved)
    read = hardware.require("dram.bandwidth_read_bytes_per_s")
    dram = missed / read
    if np.any(spilled > 0):
        dram = dram + spilled * (2.0 / hardware.require("dram.bandwidth_sustained_bytes_per_s") - 1.0 / read)
    rate = hardware.require("launch.reduction_bytes_per_s")
    return kernels * hardware.require("launch.dependent_kernel_s") + np.maximum(moved / rate, dram)


def preparation_s(plan: Plan, missed: Counts, spilled: Counts, hardware: Profile) -> Counts:
    """Kernels that transpose or quantise operands first; they read ``missed`` bytes from DRAM and write ``spilled``."""
    launch = plan.launch
    moved = launch.earlier_read_bytes + launch.earlier_written_bytes
    return _others_s(launch.earlier_kernels, moved, missed, spilled, hardware)


def reduction_s(plan: Plan, missed: Counts, spilled: Counts, hardware: Profile) -> Counts:
    """Second kernel of a split; it reads ``missed`` bytes of partial sums and old C from DRAM and writes ``spilled``."""
    launch = plan.launch
    moved = launch.dependent_read_bytes + launch.dependent_written_bytes
    return _others_s(launch.dependent_kernels, moved, missed, spilled, hardware)
