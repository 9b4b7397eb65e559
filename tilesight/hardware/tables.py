"""The tables of a profile: each line below is a field of the TOML file, with its range in ``numbers.py``.

A field without a default is required. An optional one is None when nobody knows the number. Peak (datasheet), burst and
sustained (measured) are separate fields, and a number that holds for the whole GPU says so. To add a number, add a line.
"""

from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from tilesight.hardware.numbers import (
    BlockBytes,
    BusySeconds,
    BytesHalfWidth,
    BytesPerCycle,
    BytesPerS,
    CacheBytes,
    Copies,
    Count,
    Ctas,
    Cycles,
    DirtyBytes,
    DramBytes,
    Elements,
    ElementsPerCycle,
    Exponent,
    Falloff,
    FlopPerCycle,
    FlopPerS,
    HalfWidth,
    Hz,
    JoulesPerUnit,
    Kept,
    LinkBytesPerS,
    OpsPerCycle,
    PaceSpread,
    Partitions,
    RateHalfWidth,
    Registers,
    Requests,
    ReservedBytes,
    RowsPerS,
    Seconds,
    Share,
    SmBytes,
    SmBytesPerS,
    Threads,
    WarpThreads,
    Watts,
    Ways,
    freeze_map,
)

SourceKind = Literal["datasheet", "measured", "fitted", "published", "assumed"]
ClusterSize = Literal["2", "4", "8", "16"]
ClusterCounts = Annotated[Mapping[ClusterSize, Count], Field(min_length=1), AfterValidator(freeze_map)]


def _not_blank(text: str) -> str:
    if text and not text.strip():
        raise PydanticCustomError("blank", "is blank")
    return text


Text = Annotated[str, Field(min_length=1), AfterValidator(_not_blank)]


class Table(BaseModel):
    """One table of the file: strict, frozen, no unknown keys."""

    model_config = ConfigDict(strict=True, frozen=True, extra="forbid")


class Clock(Table):
    """SM clock. ``boost_hz`` is the highest clock the GPU runs at and what ``burst`` means."""

    boost_hz: Hz
    tensor_hz: Hz | None = None  # what is left of it while tensor cores work at all
    base_hz: Hz | None = None


class Sm(Table):
    """Limits of one SM, the terms of occupancy."""

    threads_max: Threads
    ctas_max: Ctas
    warp_size: WarpThreads
    registers: Registers
    registers_per_thread_max: Registers
    register_allocation_unit: Registers  # registers are given to a warp in multiples of this
    smem_bytes: SmBytes
    smem_per_cta_max_bytes: SmBytes
    smem_reserved_per_cta_bytes: ReservedBytes
    smem_bandwidth_bytes_per_cycle: BytesPerCycle | None = None
    smem_latency_cycles: Cycles | None = None  # a load whose address is the result of the one before
    l1_latency_cycles: Cycles | None = None


class Gpc(Table):
    """Groups of SMs that can form a cluster. ``max_active_clusters``: cluster size to clusters on the whole GPU."""

    count: Count | None = None
    max_active_clusters: ClusterCounts | None = None
    cluster_ctas_per_sm_max: Count | None = None  # CTAs of clusters on one SM, whatever room there is
    sms_per_gpc: tuple[Count, ...] | None = None


class Dram(Table):
    """Device memory. Sustained is what a copy reached, reads plus writes; read and write are one-sided streams."""

    capacity_bytes: DramBytes
    bandwidth_peak_bytes_per_s: BytesPerS
    bandwidth_sustained_bytes_per_s: BytesPerS | None = None
    bandwidth_read_bytes_per_s: BytesPerS | None = None
    bandwidth_write_bytes_per_s: BytesPerS | None = None
    bandwidth_in_order_bytes_per_s: BytesPerS | None = (
        None  # a copy, a CTA a row, loads evicted first, streaming stores
    )
    tiles_read_share: Share | None = None  # of the read bandwidth, what one CTA an SM with a ring of tiles reaches
    latency_s: Seconds | None = None  # a load whose address is the result of the one before, past L2


class L2(Table):
    """Second-level cache, whole GPU. ``associativity`` is the one that the stochastic distance-based model takes to have
    the edge of capacity that repeated launches show; ``copies_one_reader`` are the copies of a line that one SM reads."""

    capacity_bytes: CacheBytes
    line_bytes: BlockBytes
    sector_bytes: BlockBytes
    partitions: Partitions | None = None
    associativity: Ways | None = None
    lookup_bytes_per_s: BytesPerS | None = None
    store_bytes_per_s: BytesPerS | None = None  # output tiles of all SMs
    copies_one_reader: Copies | None = None
    dirty_evicted_share: DirtyBytes | None = None  # dirty bytes written back per byte that takes their place
    latency_s: Seconds | None = None  # a load whose address is the result of the one before
    latency_near_s: Seconds | None = None  # ... of a line just written, in the SM's own partition
    latency_far_s: Seconds | None = None  # ... in the other one
    far_bytes_per_s: BytesPerS | None = None  # lines just written, all in the partition of the other SMs


class Fill(Table):
    """Filling one stage of a software pipeline: latency + bytes / rate of one SM, while all SMs fill."""

    latency_l2_s: Seconds | None = None
    latency_dram_extra_s: Seconds | None = None  # on top, for lines that come from DRAM
    cp_async_bytes_per_s: SmBytesPerS | None = None
    tma_bytes_per_s: SmBytesPerS | None = None
    row_128_s: Seconds | None = None  # a 128-byte row of a bulk-copy box, rows at a pitch of 128 bytes
    row_16_s: Seconds | None = None  # ... at a pitch of 16 but not 32 bytes
    row_32_s: Seconds | None = None  # ... of 32 but not 64
    row_64_s: Seconds | None = None  # ... of 64 but not 128
    row_outside_s: Seconds | None = None  # ... wholly outside the matrix, while all SMs have such rows
    rows_outside_per_s: RowsPerS | None = None  # ... of which all SMs together do so many
    cp_async_unaligned_share: Share | None = None  # of the cp.async rate left at a pitch of 32 but not 128 bytes
    scalar_elements_per_cycle: ElementsPerCycle | None = None  # element-wise loads where strides forbid vectors
    spilled_elements_per_cycle: ElementsPerCycle | None = None  # ... in kernels that spill registers


class Merging(Table):
    """Requests in flight for one line that share a lookup, and how the spread of CTAs ends it (``cost/merging.py``)."""

    requests_async: Requests | None = None
    requests_plain: Requests | None = None
    window_l2_s: Seconds | None = None
    window_dram_s: Seconds | None = None
    near_share: Kept | None = None
    far_share: Kept | None = None
    far_first_share: Kept | None = None
    alone_loss: Falloff | None = None
    spread_elements: Elements | None = None


class Drift(Table):
    """How far the paces of groups of CTAs lie apart that keep step among themselves (``cost/drift.py``)."""

    tensor_spread: PaceSpread | None = None
    waiting_spread: PaceSpread | None = None
    bound_spread: PaceSpread | None = None
    bound_gain: Share | None = None
    bound_onset: Share | None = None
    crowded_spread: PaceSpread | None = None
    kept_steady_share: Share | None = None
    kept_apart_share: Share | None = None
    start_jitter_s: Seconds | None = None


class TensorRate(Table):
    """Tensor cores for one dtype: per cycle and SM, and rates of the whole GPU."""

    flop_per_cycle_per_sm: FlopPerCycle
    rate_peak_flop_per_s: FlopPerS
    rate_burst_flop_per_s: FlopPerS | None = None
    rate_sustained_flop_per_s: FlopPerS | None = None
    energy_j_per_flop: JoulesPerUnit | None = None  # at clock.tensor_hz, random data


class InstructionRate(Table):
    """Instructions beside the tensor cores: operations of lanes per cycle of an SM, cycles from one to the next that
    needs its result."""

    ops_per_cycle_per_sm: OpsPerCycle
    latency_cycles: Cycles | None = None


class Sync(Table):
    """Barriers and fences inside an SM, of eight warps."""

    barrier_cycles: Cycles | None = None  # __syncthreads
    named_barrier_cycles: Cycles | None = None  # of half of them
    mbarrier_cycles: Cycles | None = None  # all arrive and wait
    mbarrier_signal_cycles: Cycles | None = None  # from one thread's arrival until the last waiting warp goes on
    fence_gpu_cycles: Cycles | None = None  # __threadfence behind a store


class Dsmem(Table):
    """Clusters of one size that fill the GPU: barrier, and what one CTA does in the shared memory of others."""

    barrier_cycles: Cycles | None = None  # release and acquire
    barrier_relaxed_cycles: Cycles | None = None
    load_latency_cycles: Cycles | None = None
    load_bytes_per_cycle: BytesPerCycle | None = None
    store_bytes_per_cycle: BytesPerCycle | None = None
    async_store_bytes_per_cycle: BytesPerCycle | None = None  # st.async, counted by an mbarrier
    round_trip_cycles: Cycles | None = None  # a store made visible by an mbarrier, and answered
    exchange_cycles: Cycles | None = (
        None  # partials of 16 bytes to all CTAs of the cluster, counted and merged by 8 warps
    )
    exchange_service_cycles: Cycles | None = None  # what each further CTA on the SM adds


class Link(Table):
    """From one GPU to another of the same host, one direction."""

    copy_bytes_per_s: LinkBytesPerS | None = None  # copy engine
    copy_start_s: Seconds | None = None  # a copy of few bytes behind others
    load_bytes_per_s: LinkBytesPerS | None = None  # in a kernel, by all SMs
    store_bytes_per_s: LinkBytesPerS | None = None
    load_latency_s: Seconds | None = None
    flag_round_trip_s: Seconds | None = None


class Loop(Table):
    """What a k-step costs a CTA beyond the flop of its matrix instructions, by kind of loop."""

    step_in_order_cycles: Cycles | None = None  # added to the instructions of each k-step
    step_specialized_cycles: Cycles | None = None
    chain_cp_async_cycles: Cycles | None = None  # least time of a k-step: waits, barriers and issue one after the other
    chain_tma_persistent_cycles: Cycles | None = None
    chain_warp_specialized_cycles: Cycles | None = None
    chain_full_box_cycles: Cycles | None = None  # ... of a specialised loop that brings 64 rows of k and more in a box
    chain_registers_k16_cycles: Cycles | None = None  # least time of 32 bytes of k that pass through registers
    mma_sync_rate_share: Share | None = None  # rate of mma.sync over that of wgmma


class Power(Table):
    """Power and the law by which the clock falls under load (``cost/clock.py``); energies at ``clock.tensor_hz``."""

    limit_w: Watts | None = None  # of the board
    idle_w: Watts | None = None
    static_w: Watts | None = None  # what a load draws beside its work
    energy_j_per_flop: JoulesPerUnit | None = None  # of bf16
    energy_j_per_l2_byte: JoulesPerUnit | None = None  # delivered to shared memory
    energy_j_per_dram_byte: JoulesPerUnit | None = None
    burst_w: Watts | None = None  # demand that slows a load at once
    burst_exponent: Exponent | None = None
    sustained_w: Watts | None = None  # demand that slows a lasting load
    sustained_exponent: Exponent | None = None
    burst_s: BusySeconds | None = None  # load that only burst_w slows
    settle_s: BusySeconds | None = None  # load that sustained_w slows


class Launch(Table):
    """Start and end costs of kernels, and what a timing protocol adds."""

    graph_gap_s: Seconds | None = None  # between nodes of a long graph
    short_graph_gap_s: Seconds | None = None  # on top between nodes of a graph of five and fewer
    graph_replay_s: Seconds | None = None  # what replays that follow each other pay beside their nodes
    kernel_start_s: Seconds | None = None
    start_in_order_s: Seconds | None = None
    start_specialized_s: Seconds | None = None
    cta_start_cycles: Cycles | None = None  # of an SM that starts and ends empty CTAs one after the other
    stream_dependent_s: Seconds | None = None  # from the end of a kernel to the next in its stream
    graph_dependent_s: Seconds | None = None  # ... along an edge of a graph
    graph_programmatic_s: Seconds | None = None  # ... along a programmatic edge, triggered at once
    event_s: Seconds | None = None
    cold_extra_s: Seconds | None = None  # a first launch: cold instructions, parameters, descriptors
    descriptor_s: Seconds | None = None
    dependent_kernel_s: Seconds | None = None
    reduction_bytes_per_s: BytesPerS | None = None  # partial sums of a split, mostly from L2


class Rounds(Table):
    """What a further tile of the same slot costs beside its k-steps: fixed + output bytes of an SM / rate."""

    cp_async_fixed_s: Seconds | None = None
    cp_async_bytes_per_s: SmBytesPerS | None = None
    tma_persistent_fixed_s: Seconds | None = None
    tma_persistent_bytes_per_s: SmBytesPerS | None = None
    warp_specialized_fixed_s: Seconds | None = None
    warp_specialized_bytes_per_s: SmBytesPerS | None = None


class Epilogue(Table):
    """Writing the last output tile, from one SM: fixed + bytes / rate."""

    in_order_fixed_s: Seconds | None = None
    in_order_bytes_per_s: SmBytesPerS | None = None
    specialized_fixed_s: Seconds | None = None
    specialized_bytes_per_s: SmBytesPerS | None = None


class Uncertainty(Table):
    """Half-width of the likely interval, relative, by what binds: holds nine of ten records it was taken from."""

    tensor: HalfWidth | None = None
    l2: HalfWidth | None = None
    dram: HalfWidth | None = None
    tma: HalfWidth | None = None
    ring: HalfWidth | None = None
    recurrence: HalfWidth | None = None
    issue: HalfWidth | None = None
    launch: HalfWidth | None = None


class CountedUncertainty(Table):
    """Half-widths of what L2 and DRAM count in one regime: relative those of bytes, a difference that of the hit rate.

    Each holds nine of ten records it was taken from.
    """

    dram_read: BytesHalfWidth | None = None
    lookup: BytesHalfWidth | None = None
    hit_rate: RateHalfWidth | None = None


class CacheUncertainty(Table):
    """How far counters are from the model, by regime of the cache."""

    lockstep: CountedUncertainty = CountedUncertainty()
    drift: CountedUncertainty = CountedUncertainty()
    edge: CountedUncertainty = CountedUncertainty()


class Derived(Table):
    """A what-if copy: which profile it comes from and which numbers were changed."""

    parent: Text
    changed: tuple[Text, ...]


class Source(Table):
    """Where one number comes from.

    ``ref`` is a citation, or for ``measured`` and ``fitted`` one or more record files; ``note`` says more and is
    required for ``assumed``; ``origin`` names the GPU a number was copied from. Record files are named by relative paths
    that lead nowhere above where they start.
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
        if self.kind in ("measured", "fitted"):
            for ref in self.ref:
                _check_record(ref)
        return self


def _check_record(ref: str) -> None:
    path = PurePosixPath(ref)
    if path.is_absolute() or ".." in path.parts or "\\" in ref or ref != ref.strip() or ref.startswith("~"):
        raise ValueError(f"{ref!r} is no record; give a relative path without '..', such as validation/records/…")
