"""The tables of a profile: each line below is a field of the TOML file, with its range in ``numbers.py``.

A field without a default is required. An optional one is None when nobody knows the number. Peak (datasheet), burst and
sustained (measured) are separate fields, and a number that holds for the whole GPU says so. To add a number, add a line.
"""

from collections.abc import Mapping
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from tilesight.hardware.numbers import (
    BlockBytes,
    BusySeconds,
    BytesPerCycle,
    BytesPerS,
    CacheBytes,
    ChipBytesPerCycle,
    Count,
    Cycles,
    DramBytes,
    Factor,
    FlopPerByte,
    FlopPerCycle,
    FlopPerS,
    Hz,
    JoulesPerUnit,
    Ratio,
    Registers,
    Seconds,
    SmBytes,
    Watts,
    freeze_map,
)

SourceKind = Literal["datasheet", "measured", "fitted", "published", "assumed"]
ClusterSize = Literal["2", "4", "8", "16"]
ClusterCounts = Annotated[Mapping[ClusterSize, Count], Field(min_length=1), AfterValidator(freeze_map)]
Text = Annotated[str, Field(min_length=1)]


class Table(BaseModel):
    """One table of the file: strict, frozen, no unknown keys."""

    model_config = ConfigDict(strict=True, frozen=True, extra="forbid")


class Clock(Table):
    """SM clock. ``boost_hz`` is the highest clock the GPU runs at and what ``burst`` means."""

    boost_hz: Hz
    base_hz: Hz | None = None


class Sm(Table):
    """Limits of one SM, the terms of occupancy."""

    threads_max: Count
    ctas_max: Count
    warp_size: Count
    registers: Registers
    registers_per_thread_max: Registers
    register_allocation_unit: Registers  # registers are given to a warp in multiples of this
    smem_bytes: SmBytes
    smem_per_cta_max_bytes: SmBytes
    smem_reserved_per_cta_bytes: SmBytes
    smem_bandwidth_bytes_per_cycle: BytesPerCycle | None = None


class Gpc(Table):
    """Groups of SMs that can form a cluster. ``max_active_clusters``: cluster size to clusters on the whole GPU."""

    count: Count | None = None
    max_active_clusters: ClusterCounts | None = None
    sms_per_gpc: tuple[Count, ...] | None = None


class Dram(Table):
    """Device memory. Sustained is what a copy reached, reads plus writes; read and write are one-sided streams."""

    capacity_bytes: DramBytes
    bandwidth_peak_bytes_per_s: BytesPerS
    bandwidth_sustained_bytes_per_s: BytesPerS | None = None
    bandwidth_read_bytes_per_s: BytesPerS | None = None
    bandwidth_write_bytes_per_s: BytesPerS | None = None


class L2(Table):
    """Second-level cache, whole GPU. Repeated cyclic reads of up to ``residency_full_bytes`` all hit, of
    ``residency_none_bytes`` and more never do."""

    capacity_bytes: CacheBytes
    line_bytes: BlockBytes
    sector_bytes: BlockBytes
    partitions: Count | None = None
    associativity: Count | None = None
    lookup_bytes_per_cycle: ChipBytesPerCycle | None = None
    store_bytes_per_cycle: ChipBytesPerCycle | None = None
    residency_full_bytes: CacheBytes | None = None
    residency_none_bytes: CacheBytes | None = None
    dirty_evicted_share: Factor | None = None  # dirty bytes written back per byte that takes their place


class Fill(Table):
    """Filling one stage of a software pipeline, from one SM."""

    latency_l2_cycles: Cycles | None = None
    latency_dram_extra_cycles: Cycles | None = None
    cp_async_bytes_per_cycle: BytesPerCycle | None = None
    tma_bytes_per_cycle: BytesPerCycle | None = None
    tma_unaligned_row_cycles: Cycles | None = None  # a 128-byte box row at a pitch of 16 but not 32 bytes
    scalar_elements_per_cycle: BytesPerCycle | None = None  # element-wise loads where strides forbid vectors


class Merging(Table):
    """Requests in flight for one line that share a lookup, and the spread of CTAs that limits it."""

    requests_async: Factor | None = None
    requests_plain: Factor | None = None
    window_l2_cycles: Cycles | None = None
    window_dram_cycles: Cycles | None = None
    drift_one_cta: Factor | None = None
    drift_many_ctas: Factor | None = None


class TensorRate(Table):
    """Tensor cores for one dtype: per cycle and SM, and rates of the whole GPU."""

    flop_per_cycle_per_sm: FlopPerCycle
    rate_peak_flop_per_s: FlopPerS
    rate_burst_flop_per_s: FlopPerS | None = None
    rate_sustained_flop_per_s: FlopPerS | None = None


class Wgmma(Table):
    """What tensor instructions cost beyond their flop, per CTA and k-step."""

    smem_a_bytes_per_cycle: BytesPerCycle | None = None
    gap_in_order_cycles: Cycles | None = None
    gap_specialized_cycles: Cycles | None = None
    step_in_order_cycles: Cycles | None = None
    step_specialized_cycles: Cycles | None = None
    mma_sync_rate_share: Ratio | None = None  # rate of mma.sync over that of wgmma


class Power(Table):
    """Power limit and the law by which the clock falls under load."""

    limit_w: Watts | None = None
    idle_w: Watts | None = None
    burst_flop_per_s: FlopPerS | None = None  # load that runs at full clock at first ...
    sustained_flop_per_s: FlopPerS | None = None  # ... and after settle_s of it
    burst_s: BusySeconds | None = None
    exponent: Factor | None = None
    dram_flop_per_byte: FlopPerByte | None = None
    energy_j_per_flop: JoulesPerUnit | None = None
    energy_j_per_dram_byte: JoulesPerUnit | None = None
    settle_s: BusySeconds | None = None


class Launch(Table):
    """Start and end costs of kernels, and what a timing protocol adds."""

    graph_gap_s: Seconds | None = None
    kernel_start_s: Seconds | None = None
    start_in_order_s: Seconds | None = None
    start_specialized_s: Seconds | None = None
    cta_start_cycles: Cycles | None = None
    event_s: Seconds | None = None
    cold_extra_s: Seconds | None = None
    descriptor_s: Seconds | None = None
    dependent_kernel_s: Seconds | None = None
    reduction_bytes_per_s: BytesPerS | None = None  # partial sums of a split, mostly from L2


class Rounds(Table):
    """What a further tile of the same slot pays of its ends, beside its k-steps."""

    cp_async_prologue_share: Ratio | None = None
    cp_async_epilogue_share: Ratio | None = None
    tma_persistent_prologue_share: Ratio | None = None
    tma_persistent_epilogue_share: Ratio | None = None
    warp_specialized_prologue_share: Ratio | None = None
    warp_specialized_epilogue_share: Ratio | None = None


class Epilogue(Table):
    """Writing an output tile, from one SM."""

    in_order_fixed_cycles: Cycles | None = None
    in_order_bytes_per_cycle: BytesPerCycle | None = None
    specialized_fixed_cycles: Cycles | None = None
    specialized_bytes_per_cycle: BytesPerCycle | None = None


class Uncertainty(Table):
    """Half-width of the likely interval, relative, by what binds: holds four of five records it was taken from."""

    tensor: Ratio | None = None
    l2: Ratio | None = None
    ring: Ratio | None = None
    dram: Ratio | None = None
    launch: Ratio | None = None
    issue: Ratio | None = None
    recurrence: Ratio | None = None


class Derived(Table):
    """A what-if copy: which profile it comes from and which numbers were changed."""

    parent: Text
    changed: tuple[Text, ...]


class Source(Table):
    """Where one number comes from.

    ``ref`` is a citation, or for ``measured`` and ``fitted`` one or more record files; ``note`` says more and is
    required for ``assumed``; ``origin`` names the GPU a number was copied from.
    """

    kind: SourceKind
    ref: Annotated[tuple[Text, ...], BeforeValidator(lambda ref: (ref,) if isinstance(ref, str) else ref)] = ()
    note: Text | None = None
    origin: Text | None = None

    @model_validator(mode="after")
    def _says_enough(self) -> Self:
        if self.kind == "assumed" and self.note is None:
            raise ValueError("an assumed number needs a note that says why")
        if self.kind != "assumed" and not self.ref:
            raise ValueError(f"a {self.kind} number needs a ref")
        return self
