"""Numbers of a profile that no predicted time of a matrix product goes by, so that changing them moves none.

A table, and a test that keeps it true: it changes each number named here and sees that no time moves.
"""

from tilesight.dtypes import DType
from tilesight.hardware.profile import Profile

NEVER = (
    "clock.base_hz",
    "sm.smem_latency_cycles",
    "sm.l1_latency_cycles",
    "gpc.sms_per_gpc",
    "gpc.cluster_ctas_per_sm_max",
    "dram.capacity_bytes",
    "dram.bandwidth_peak_bytes_per_s",
    "dram.bandwidth_in_order_bytes_per_s",
    "dram.latency_s",
    "l2.sector_bytes",
    "l2.latency_s",
    "l2.latency_near_s",
    "l2.latency_far_s",
    "l2.far_bytes_per_s",
    "merging.requests_plain",
    "merging.window_l2_s",
    "merging.window_dram_s",
    "power.limit_w",
    "power.idle_w",
    "launch.cta_start_cycles",
    "launch.stream_dependent_s",
    "launch.graph_dependent_s",
    "launch.graph_programmatic_s",
)
"""What profiles hold and matrix products do not use, in every profile."""
NEVER_TABLES = ("alu", "sync", "dsmem", "link")
"""Whole tables of the like."""
OF_PROTOCOLS = (
    "launch.graph_gap_s",
    "launch.short_graph_gap_s",
    "launch.graph_replay_s",
    "launch.event_s",
    "launch.cold_extra_s",
)
"""What ``compare`` adds to a prediction, by the table's protocol."""

NO_TIME = "which no time of a matrix product goes by"


def unread(name: str, hardware: Profile, dtype: DType | None = None) -> str:
    """Why no predicted time goes by a number of a profile; empty where one may.

    Parameters
    ----------
    name
        Dotted name of the number.
    dtype
        The operands' format; None says only what holds for every format, and counts what ``compare`` adds as read.

    Examples
    --------
    >>> from tilesight.dtypes import dtype
    >>> from tilesight.hardware.load import load_profile
    >>> h200 = load_profile("h200_sxm")
    >>> unread("power.limit_w", h200), unread("tensor.bf16.rate_peak_flop_per_s", h200, dtype("bf16"))
    ('which no time of a matrix product goes by', 'which moves the share of peak and the roofline alone')
    >>> unread("power.sustained_w", h200)
    ''
    """
    table, *rest = name.split(".")
    if name in NEVER or table in NEVER_TABLES:
        return NO_TIME
    if table == "clock" and rest == ["boost_hz"] and hardware.clock.tensor_hz is not None:
        return f"{NO_TIME}: tensor cores run at clock.tensor_hz"
    if table == "power" and name != "power.static_w" and hardware.power.static_w is None:
        return f"{NO_TIME} without power.static_w"
    if table in ("uncertainty", "cache_uncertainty"):
        return "which moves the likely interval alone"
    if name in OF_PROTOCOLS:
        return "" if dtype is None else "which is no part of a prediction; compare adds it"
    return _of_rates(name, hardware, dtype) if table == "tensor" else ""


def _of_rates(name: str, hardware: Profile, dtype: DType | None) -> str:
    """The same of a number of ``tensor.*``."""
    _, kind, number = name.split(".")
    law = hardware.power.static_w is not None
    if number == "rate_peak_flop_per_s":
        moves_nothing = "which moves the share of peak and the roofline alone"
    elif number in ("rate_burst_flop_per_s", "rate_sustained_flop_per_s") and law:
        moves_nothing = "which moves the roofline alone: power and tensor clock give the rate"
    elif number == "energy_j_per_flop" and not law:
        moves_nothing = f"{NO_TIME} without power.static_w"
    else:
        moves_nothing = ""
    if dtype is None or kind == dtype.rate_name:
        return moves_nothing
    stands_in = kind == "bf16" and number == "flop_per_cycle_per_sm" and law  # for energies that nobody measured
    return "" if stands_in else f"which no product of {dtype} goes by"
