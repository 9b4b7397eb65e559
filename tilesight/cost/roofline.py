"""The yardstick beside every answer: max(flop / rate, compulsory bytes / DRAM rate) + launch.

It goes by rates that were reached, so that it is not always a bound: a launch that draws less power than the load that the
tensor rate is from keeps a higher clock, and reads alone are faster than the copy. Rates of formats are of different loads
(of a product, of the instruction alone), so that rooflines of two formats don't compare. Where the profile lacks a number,
it takes one that cannot make it longer, or leaves the term out:

- tensor rate of a lasting load: else the burst rate, else the peak;
- DRAM rate of a copy: else that of reads, else the peak;
- start of a kernel: else nothing is added;
- time after which a load lasts: else what the clock assumes.

So a profile of few numbers has a shorter one, at the end that of the datasheet, which nothing passes.
"""

import numpy as np

from tilesight.cost.clock import LASTING_S
from tilesight.hardware.profile import Profile
from tilesight.plan.plan import Plan
from tilesight.plan.tile import Counts


def tensor_rate_flop_per_s(dtype: str, busy_s: Counts, hardware: Profile) -> Counts:
    """Tensor rate at the clock of a load, in flop/s, shape of ``busy_s``.

    The burst rate before ``power.settle_s`` (0.1 s where it is unknown), then the sustained one. An unknown sustained
    rate is at most the burst rate, an unknown burst rate at most the peak, and those stand for them.

    Examples
    --------
    >>> from tilesight.hardware.load import load_profile
    >>> burst, sustained = tensor_rate_flop_per_s("bf16", np.array([0.0, 1.0]), load_profile("h200_sxm"))
    >>> bool(989.4e12 > burst > sustained > 600e12)
    True
    """
    rates = hardware.tensor[dtype]
    burst, sustained, settle = rates.rate_burst_flop_per_s, rates.rate_sustained_flop_per_s, hardware.power.settle_s
    burst = rates.rate_peak_flop_per_s if burst is None else burst
    sustained = burst if sustained is None else sustained
    return np.where(busy_s < (LASTING_S if settle is None else settle), burst, sustained)


def dram_bytes_per_s(hardware: Profile) -> float:
    """Rate of compulsory traffic: of a copy, else of reads, else the peak, in bytes/s."""
    dram = hardware.dram
    for rate in (dram.bandwidth_sustained_bytes_per_s, dram.bandwidth_read_bytes_per_s):
        if rate is not None:
            return rate
    return dram.bandwidth_peak_bytes_per_s


def roofline_seconds(plan: Plan, busy_s: Counts, hardware: Profile) -> Counts:
    """Roofline time in seconds, shape (L,), at the profile's rates for the clock.

    The start of the kernel is added where the profile knows ``launch.kernel_start_s``.
    """
    rate = tensor_rate_flop_per_s(plan.dtype, busy_s, hardware)
    seconds = np.maximum(plan.flop / rate, plan.compulsory_bytes / dram_bytes_per_s(hardware))
    start_s = hardware.launch.kernel_start_s
    return seconds if start_s is None else seconds + start_s
