"""The bound beside every answer: max(flop / rate, compulsory bytes / DRAM rate) + launch."""

import numpy as np

from tilesight.hardware.profile import Profile
from tilesight.plan.plan import Plan
from tilesight.plan.tile import Counts


def tensor_rate_flop_per_s(dtype: str, busy_s: Counts, hardware: Profile) -> Counts:
    """Tensor rate at the clock of a load: the burst rate up to ``power.burst_s``, then sustained, shape of busy_s."""
    rates = hardware.tensor[dtype]
    burst = rates.rate_burst_flop_per_s or rates.rate_peak_flop_per_s
    sustained = rates.rate_sustained_flop_per_s or burst
    settle = hardware.get("power.settle_s")
    return np.where(busy_s <= (settle or 0.0), burst, sustained)


def roofline_seconds(plan: Plan, busy_s: Counts, hardware: Profile) -> Counts:
    """Roofline time in seconds, shape (L,), at the profile's rates for the clock."""
    rate = tensor_rate_flop_per_s(plan.dtype, busy_s, hardware)
    dram = hardware.dram
    bandwidth = (
        dram.bandwidth_sustained_bytes_per_s or dram.bandwidth_read_bytes_per_s or dram.bandwidth_peak_bytes_per_s
    )
    launch = hardware.get("launch.kernel_start_s") or 0.0
    return np.maximum(plan.flop / rate, plan.compulsory_bytes / bandwidth) + launch
