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


def epilogue_s(plan: Plan, active: Counts, costs: StepCosts, hardware: Profile) -> Counts:
    """Store of the last tile: fixed + bytes / min(rate of one SM, the chip's rate / active SMs), in seconds, shape (L,)."""
    kind = "in_order" if plan.in_order else "specialized"
    tile_bytes = plan.demands["store"].global_bytes
    assert tile_bytes is not None
    own = hardware.require(f"epilogue.{kind}_bytes_per_s")
    chip = hardware.require("l2.store_bytes_per_s")
    fixed = hardware.require(f"epilogue.{kind}_fixed_s")
    return fixed + _added_s(plan, costs, hardware) + tile_bytes / np.minimum(own, chip / active)


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


def preparation_s(plan: Plan, hardware: Profile) -> Counts:
    """Kernels that transpose or quantise operands first: a launch each, and their bytes at the rate of a copy.

    What fits in half of L2 is read from it and left in it, at the rate of partial sums.
    """
    kernels = plan.launch.earlier_kernels
    if not np.any(kernels > 0):
        return np.zeros(len(plan))
    moved = plan.launch.earlier_bytes
    slow = hardware.dram.bandwidth_sustained_bytes_per_s or hardware.require("dram.bandwidth_read_bytes_per_s")
    fast = max(hardware.require("launch.reduction_bytes_per_s"), slow)
    rate = np.where(moved <= hardware.l2.capacity_bytes / 2, fast, slow)
    return kernels * hardware.require("launch.dependent_kernel_s") + moved / rate


def reduction_s(plan: Plan, hardware: Profile) -> Counts:
    """Second kernel of a split: a dependent launch, then its bytes at the rate of L2-resident partial sums."""
    kernels = plan.launch.dependent_kernels
    if not np.any(kernels > 0):
        return np.zeros(len(plan))
    rate = hardware.require("launch.reduction_bytes_per_s")
    return kernels * hardware.require("launch.dependent_kernel_s") + plan.launch.dependent_bytes / rate
