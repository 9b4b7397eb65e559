"""The published model (CREDIT, eq. 3-9) as it stands, with its constants (table II) as published data.

    S_CTA = ceil(N / P) b_keep + S_scratch <= S_max                                                            (3)
    D_base = D_fixed + N b_reread,        D_cluster = D_fixed                                                  (4)
    D_write = s P (P - 1) sum q,    D_read = 0,    K = 2 L barriers a row                                      (6)
    b_eff = M N b_B / T_B,          T_save = M N b_reread / b_eff = (b_reread / b_B) T_B                       (7)
    W = ceil(M / floor(S / P)),     T_replay = W ceil(N / P) b_keep / (f B_read),
    T_DSM = s W (P - 1) sum q / (f B_write)                                                                    (8)
    gain = T_save - T_ctrl - T_replay - T_deposit - T_DSM,        T_deposit = [T_smem_write - T_input]+        (9)

(5) says what is pushed where: CTA c writes its partial of each statistic into the slot that every peer keeps for it.
It needs one timing of the kernel without clusters (T_B) and one of a control kernel that does no work (T_ctrl).
"""

from dataclasses import dataclass
from math import ceil
from typing import Literal

from tilesight.dsmem.catalogue import workload as known_workload
from tilesight.dsmem.workload import StaticInputs, Workload, checked_dtype, checked_seconds, checked_size, is_count
from tilesight.errors import ConfigError, UnsupportedError, shown
from tilesight.hardware.profile import Profile

CLUSTERS = (2, 4, 8, 16)
"""Sizes of clusters that are tried."""
StaticName = Literal["published", "counted"]
SOURCE = "CREDIT: Cost-guided Reduction-reuse with Efficient DSMEM Inter-CTA Tiling (arXiv 2609.01864), table II"


_MAY_BE_UNKNOWN = ("local_latency_cycles", "remote_latency_cycles", "remote_read_bytes_per_cycle", "barrier_cycles")


@dataclass(frozen=True)
class Constants:
    """What the published equations take of a GPU: cycles, and bytes a cycle of one CTA."""

    name: str
    clock_hz: float
    sms: int
    local_read_bytes_per_cycle: float
    local_store_bytes_per_cycle: float
    remote_store_bytes_per_cycle: float
    local_latency_cycles: float | None = None
    remote_latency_cycles: float | None = None
    remote_read_bytes_per_cycle: float | None = None
    barrier_cycles: float | None = None

    def __post_init__(self) -> None:
        checked_size("sms", self.sms)
        for name in ("clock_hz", *(each for each in vars(self) if each.endswith(("_cycle", "_cycles")))):
            value = getattr(self, name)
            if value is None and name in _MAY_BE_UNKNOWN:
                continue
            if not is_count(value) or value == 0:
                raise ConfigError(f"constants of {shown(self.name)}: {name} = {shown(value)}; give a number above 0")


PUBLISHED = {
    "h100_sxm": Constants("h100_sxm", 1.98e9, 132, 20.89, 27.67, 21.37, 30, 191, 4.77, 851),
    "rtx_5090": Constants("rtx_5090", 2.407e9, 170, 20.89, 33.01, 2.14, 34, 216, 3.84, 404),
}
"""Table II, but for the clocks, of which it has none: the boost clocks of the H100 SXM and of the RTX 5090."""


def constants_of(hardware: Profile, cluster: int) -> Constants:
    """The same constants from what a profile measured, for clusters of that size.

    Raises
    ------
    UnsupportedError
        If the profile lacks one; the error names the field.
    """
    local = hardware.require("sm.smem_bandwidth_bytes_per_cycle")
    table = f"dsmem.{cluster}"
    store = hardware.require(f"{table}.store_bytes_per_cycle")
    return Constants(hardware.name, hardware.clock.boost_hz, hardware.sm_count, local, local, store)


def published_constants(name: str) -> Constants:
    """Table II of that GPU.

    Raises
    ------
    ConfigError
        If that is no name.
    UnsupportedError
        If none was published for it.

    Examples
    --------
    >>> published_constants("h100_sxm").barrier_cycles
    851
    """
    if not isinstance(name, str):
        raise ConfigError(f"constants of {shown(name)}; give the name of a GPU: {', '.join(PUBLISHED)}")
    if name not in PUBLISHED:
        raise UnsupportedError(f"no constants were published for {shown(name)}; there are {', '.join(PUBLISHED)}")
    return PUBLISHED[name]


def staged_bytes(cols: int, cluster: int, kept_bytes: float, scratch_bytes: float = 0.0) -> float:
    """Shared memory of one CTA, in bytes (eq. 3, left).

    Examples
    --------
    >>> staged_bytes(65536, 4, kept_bytes=8)
    131072.0
    """
    return float(ceil(cols / cluster) * kept_bytes + scratch_bytes)


def is_legal(cols: int, cluster: int, kept_bytes: float, limit_bytes: float, scratch_bytes: float = 0.0) -> bool:
    """Whether a slice fits (eq. 3)."""
    return staged_bytes(cols, cluster, kept_bytes, scratch_bytes) <= limit_bytes


def row_traffic_bytes(cols: int, inputs: StaticInputs) -> tuple[float, float]:
    """DRAM bytes of a row without and with a cluster (eq. 4).

    Examples
    --------
    >>> row_traffic_bytes(1000, StaticInputs(28, 16, 8, (1, 1, 1)))
    (28000, 12000)
    """
    return cols * inputs.modelled_bytes, cols * (inputs.modelled_bytes - inputs.reread_bytes)


def exchanged_bytes(cluster: int, statistics: tuple[int, ...], scalar_bytes: int = 4) -> tuple[int, int, int]:
    """Remote bytes written and read for a row, and its barriers (eq. 6).

    Examples
    --------
    >>> exchanged_bytes(4, (2, 2))
    (192, 0, 4)
    """
    return scalar_bytes * cluster * (cluster - 1) * sum(statistics), 0, 2 * len(statistics)


def cluster_waves(rows: int, cluster: int, sms: int) -> int:
    """Sequential waves of clusters, one CTA an SM (before eq. 8).

    Raises
    ------
    ProblemError
        If rows, CTAs or SMs are no sizes.
    ConfigError
        If a cluster has more CTAs than there are SMs.

    Examples
    --------
    >>> cluster_waves(2048, 4, 132)
    63
    """
    rows, cluster, sms = checked_size("rows", rows), checked_size("cluster", cluster), checked_size("sms", sms)
    if cluster > sms:
        raise ConfigError(f"a cluster of {cluster} CTAs, one an SM, on {sms} SMs; the largest has {sms}")
    return ceil(rows / (sms // cluster))


def replay_s(rows: int, cols: int, cluster: int, kept_bytes: float, gpu: Constants) -> float:
    """Reading the kept slices again from shared memory, in seconds (eq. 8)."""
    moved = cluster_waves(rows, cluster, gpu.sms) * ceil(cols / cluster) * kept_bytes
    return moved / (gpu.clock_hz * gpu.local_read_bytes_per_cycle)


def remote_store_s(
    rows: int, cluster: int, statistics: tuple[int, ...], gpu: Constants, scalar_bytes: int = 4
) -> float:
    """Issuing the remote stores of one CTA, in seconds (eq. 8); those of its peers go on at the same time."""
    moved = scalar_bytes * cluster_waves(rows, cluster, gpu.sms) * (cluster - 1) * sum(statistics)
    return moved / (gpu.clock_hz * gpu.remote_store_bytes_per_cycle)


def deposit_s(rows: int, cols: int, cluster: int, kept_bytes: float, input_s: float, gpu: Constants) -> float:
    """What of the deposit into shared memory the load does not hide, in seconds (before eq. 9)."""
    moved = cluster_waves(rows, cluster, gpu.sms) * ceil(cols / cluster) * kept_bytes
    return max(moved / (gpu.clock_hz * gpu.local_store_bytes_per_cycle) - input_s, 0.0)


@dataclass(frozen=True)
class Benefit:
    """The terms of eq. 9 for one cluster size, in seconds; ``gain_s`` above 0 means that the cluster pays."""

    cluster: int
    legal: bool
    save_s: float
    control_s: float
    replay_s: float
    deposit_s: float
    store_s: float

    @property
    def gain_s(self) -> float:
        """T_save - T_ctrl - T_replay - T_deposit - T_DSM."""
        return self.save_s - self.control_s - self.replay_s - self.deposit_s - self.store_s

    @property
    def pays(self) -> bool:
        """Whether staging is legal and the gain is above 0."""
        return self.legal and self.gain_s > 0


def benefit(
    workload: str | Workload,
    rows: int,
    cols: int,
    cluster: int,
    *,
    baseline_s: float,
    control_s: float,
    constants: Constants,
    static: StaticName | StaticInputs = "published",
    dtype: str = "fp32",
    limit_bytes: float = 232448,
    scratch_bytes: float = 1024,
    input_s: float | None = None,
) -> Benefit:
    """The published verdict, exactly: eq. 3 and 7-9.

    Parameters
    ----------
    baseline_s
        T_B, one timing of the kernel without clusters at this shape.
    control_s
        T_ctrl, by how much the control kernel of that cluster size takes longer than that of one CTA.
    constants
        Table II of a GPU (:func:`published_constants`), or :func:`constants_of` a profile.
    static
        ``"published"`` or ``"counted"``, or static inputs of one's own.
    input_s
        Time of the compulsory load; None: of the kept bytes, at the rate that the baseline reached.

    Raises
    ------
    ConfigError
        If a time, a size in bytes or the constants are none, or the cluster has more CTAs than the GPU has SMs.
    UnsupportedError
        If no static inputs were published for the workload.

    Examples
    --------
    >>> gpu = published_constants("h100_sxm")
    >>> found = benefit("softmax_backward", 4096, 65536, 8, baseline_s=3.4e-3, control_s=0.3e-3, constants=gpu)
    >>> found.pays, round(found.save_s * 1e3, 3)
    (True, 1.943)
    """
    which = known_workload(workload)
    rows, cols = which.shape(checked_size("rows", rows), checked_size("cols", cols))
    inputs = static_inputs(which, static, dtype)
    baseline = checked_seconds("baseline_s", baseline_s)
    control = checked_seconds("control_s", control_s, zero=True)
    if isinstance(cluster, bool) or cluster not in (1, *CLUSTERS):
        raise ConfigError(f"cluster = {shown(cluster)}; clusters have 1, {', '.join(map(str, CLUSTERS))} CTAs")
    if not isinstance(constants, Constants):
        raise ConfigError(f"constants is a {type(constants).__name__}; give published_constants(…) or constants_of(…)")
    for name, value in (("limit_bytes", limit_bytes), ("scratch_bytes", scratch_bytes)):
        if not is_count(value):
            raise ConfigError(f"{name} = {shown(value)}; give bytes from 0 to 1e12")
    kept = inputs.kept_bytes
    stream_s = (
        baseline * kept / inputs.modelled_bytes if input_s is None else checked_seconds("input_s", input_s, zero=True)
    )
    return Benefit(
        cluster=cluster,
        legal=is_legal(cols, cluster, kept, limit_bytes, scratch_bytes),
        save_s=inputs.reread_bytes / inputs.modelled_bytes * baseline,
        control_s=control,
        replay_s=replay_s(rows, cols, cluster, kept, constants),
        deposit_s=deposit_s(rows, cols, cluster, kept, stream_s, constants),
        store_s=remote_store_s(rows, cluster, inputs.statistics, constants, which.scalar_bytes),
    )


def static_inputs(workload: Workload, static: StaticName | StaticInputs, dtype: str = "fp32") -> StaticInputs:
    """Static inputs by name.

    Raises
    ------
    ConfigError
        If the name is none.
    UnsupportedError
        If none were published for the workload, or for that dtype.
    """
    if isinstance(static, StaticInputs):
        return static
    if static == "counted":
        return workload.counted(checked_dtype(dtype))
    if not isinstance(static, str) or static != "published":
        raise ConfigError(f"static = {shown(static)}; give 'published', 'counted' or StaticInputs")
    if workload.published is None or dtype != "fp32":
        raise UnsupportedError(f"no static inputs were published for {workload.name} in {dtype}; take 'counted'")
    return workload.published
