"""Where rows lie while they are worked on: the launch of each kernel, and whether its slices fit.

Our staged and clustered kernels (``kernels_cuda/dsmem/row_launch.cuh``) follow one rule, :func:`kernel_placement`:

    slice     ceil(N / P) elements, rounded up to 16 bytes
    smem      (slots * row inputs + shared inputs) * slice bytes, at most what a CTA may have less its mailbox
    split     a slice too long for a slot: registers of 512 threads hold its head, the slot its tail, until the row is done
    small     single CTAs of which an SM holds two and more, without shared inputs: one row each; where 128 threads can't
              keep it in registers it stays in its slot, and the CTAs of an SM have 1024 threads together
    keep      else: 16-byte vectors a thread and input that move on into registers, so that the slot is filled anew while the
              row is worked on: as many as 64 registers hold while the block has 64 threads, but enough for the slice in
              512; 0 where 512 threads can't hold it: the row stays in its slot
    block     threads that hold the slice at ``keep`` vectors each; 512 where keep is 0
    slots     1; 2 where keep is 0 and two fit; each holds every input of the row
    walking   CTAs go from row to row, but for single ones without shared inputs that can't load ahead, and small ones

An SM holds at most eight CTAs of clusters, whatever room they leave (``gpc.cluster_ctas_per_sm_max``).

Triton and torch.compile keep a row in registers: a power of two of elements, in what the addresses, masks and sums of a
thread leave.
"""

from dataclasses import dataclass, replace
from math import ceil

import numpy as np
from numpy.typing import NDArray

from tilesight.dsmem.rates import Rates
from tilesight.dsmem.workload import Workload

Floats = NDArray[np.float64]
Truths = NDArray[np.bool_]

SPARE_BYTES = 256.0
"""Shared memory that a launch leaves free."""
VECTOR_BYTES = 16
BLOCK_MOST, BLOCK_LEAST = 512, 64
KEEPS = (1, 2, 4, 8, 16)
KEPT_REGISTERS_MOST = 64
SMALL_CTA_BYTES, SMALL_THREADS, SMALL_BLOCK = 3072.0, 1024.0, 128.0
"""Shared memory beside the slot of a single CTA that is not alone on its SM, threads of all of them, and of one at least."""
REGISTERS_BESIDE, REGISTERS_PLAIN = 28.0, 40.0
"""Registers of a thread that hold no element of a row: addresses, masks, sums; two more for each load in flight. Those of a
kernel that keeps nothing in registers."""
SM_QUARTERS = 4.0
"""Parts of an SM with registers of their own."""
REGISTERS_SHARED, REGISTERS_PACKED = 12, 20
"""... more of them for each input that all rows share, and where results are packed into another width."""
REGISTERS_BOUND = 64.0
"""Registers of a thread of kernels of which an SM is to hold two blocks of 512."""


@dataclass(frozen=True)
class Placement:
    """How CTAs lie on an SM, arrays of one shape; ``ctas_per_sm`` is 0 where a slice does not fit.

    ``slots`` are rows that a CTA has in flight; ``early`` says whether a slot is filled anew while its row is worked on,
    ``split`` whether the row lies in registers and its slot, ``walking`` whether CTAs go from row to row instead of taking
    one each, ``aligned`` whether rows start at multiples of 16 bytes.
    """

    elements: Floats
    threads: Floats
    slots: Floats
    early: Truths
    split: Truths
    walking: Truths
    aligned: Truths
    smem_bytes: Floats
    ctas_per_sm: Floats

    @property
    def legal(self) -> Truths:
        """Whether the slice fits."""
        return self.ctas_per_sm >= 1


def slice_elements(cols: Floats, cluster: Floats, element_bytes: float) -> Floats:
    """Elements of one CTA's slice: ceil(N / P), rounded up to 16 bytes of the row's own inputs.

    Examples
    --------
    >>> slice_elements(np.array([65536.0, 1001.0]), np.array([4.0]), 4)
    array([16384.,   252.])
    """
    unit = VECTOR_BYTES / element_bytes
    return np.ceil(np.ceil(cols / cluster) / unit) * unit


def resident(threads: Floats, registers: Floats, smem_bytes: Floats, rates: Rates) -> Floats:
    """CTAs that an SM holds by threads, registers, shared memory and slots.

    Registers are given to warps, in multiples of 8 a thread, from the quarter of the SM on which a warp runs (CUDA occupancy
    calculator: a warp allocation granularity of 4): four times as many warps as a quarter holds.
    """
    each = np.ceil(registers / 8.0) * 8.0
    warps = SM_QUARTERS * np.floor(rates.registers / SM_QUARTERS / (32.0 * each))
    limits = [
        rates.threads / threads,
        warps / np.ceil(threads / 32.0),
        rates.smem_sm_bytes / np.maximum(smem_bytes + rates.smem_reserved_bytes, 1.0),
        np.full_like(threads, rates.ctas),
    ]
    return np.where(each <= rates.registers_most, np.floor(np.minimum.reduce(limits)), 0.0)


def row_inputs(workload: Workload, dtype: str) -> tuple[int, int, float]:
    """Inputs of a row, inputs that all rows share, and bytes of the widest element among them."""
    own = [tensor for tensor in workload.inputs if not tensor.shared]
    return len(own), len(workload.inputs) - len(own), max(tensor.bytes_of(dtype) for tensor in workload.inputs)


def mailbox_bytes(workload: Workload) -> float:
    """Shared memory of a CTA beside its slots: two sets of partials of 16 warps and of 16 peers, and mbarriers."""
    most = max(each.statistics for each in workload.form("merged"))
    pieces = ceil((most + 1) / 4)  # of 16 bytes; a merged sum carries what it is shifted by
    return 2.0 * (16 + 16) * 16 * pieces + 80


def loads_in_flight(workload: Workload, dtype: str) -> int:
    """16-byte loads of each input that a thread of our kernels has in flight."""
    inputs, _, element_bytes = row_inputs(workload, dtype)
    return 4 if element_bytes == 4 and inputs < 3 else 2


def reread_batch(workload: Workload, dtype: str) -> int:
    """16-byte loads of each input that a thread of the kernel that reads the row again has in flight."""
    inputs, _, element_bytes = row_inputs(workload, dtype)
    return (4 if element_bytes == 4 else 2) * (2 if inputs == 1 else 1)


def _registers(workload: Workload, keep: Floats, split: Truths, dtype: str) -> Floats:
    """Registers of a thread of our kernels, by what it keeps; as the compiler's, within a few."""
    inputs, shared, _ = row_inputs(workload, dtype)
    packed = any(tensor.element_bytes is not None for tensor in workload.outputs)
    beside = REGISTERS_BESIDE + 2.0 * loads_in_flight(workload, dtype)
    kept = beside + 4.0 * keep * inputs + REGISTERS_SHARED * shared + REGISTERS_PACKED * packed
    return np.where((keep == 0) & ~split, REGISTERS_BOUND, kept)


def kernel_placement(workload: Workload, cols: Floats, cluster: Floats, dtype: str, rates: Rates) -> Placement:
    """Launch of our staged (P = 1) and clustered kernels, by the rule above.

    Parameters
    ----------
    cols, cluster
        Widths and cluster sizes, of shapes that fit each other.
    """
    inputs, shared, element_bytes = row_inputs(workload, dtype)
    elements = slice_elements(cols, cluster, element_bytes)
    slice_bytes = elements * element_bytes
    vectors = np.maximum(slice_bytes / VECTOR_BYTES, 1.0)
    aligned = ((cols * element_bytes) % VECTOR_BYTES == 0) & (vectors > 0)
    keep = np.where(aligned, _kept_vectors(vectors, inputs), 0.0)
    in_threads = np.ceil(np.ceil(vectors / np.maximum(keep, 1.0)) / 32.0) * 32.0
    threads = np.where(keep > 0, np.maximum(in_threads, BLOCK_LEAST), float(BLOCK_MOST))
    mailbox = mailbox_bytes(workload)
    room = rates.smem_cta_bytes - mailbox - SPARE_BYTES
    one_slot = (inputs + shared) * slice_bytes
    split = aligned & (one_slot > room)
    most = max(each for each in KEEPS if 4 * each * inputs <= KEPT_REGISTERS_MOST)
    keep, threads = np.where(split, float(most), keep), np.where(split, float(BLOCK_MOST), threads)
    alone = (cluster == 1) & aligned & (shared == 0)
    fit = np.floor(room / (one_slot + SMALL_CTA_BYTES))
    small = alone & ~split & (fit >= 2)
    leaves = small & ((keep == 0) | (threads > SMALL_BLOCK))
    threads = np.where(leaves, _small_block(fit, vectors), threads)
    keep = np.where(leaves, 0.0, keep)
    two = aligned & ~small & (keep == 0) & (one_slot + inputs * slice_bytes <= room)
    slots = np.where(two, 2.0, 1.0)
    tail = inputs * np.maximum(slice_bytes - VECTOR_BYTES * most * BLOCK_MOST, 0.0)
    staged = np.where(split, tail, one_slot + (slots - 1.0) * inputs * slice_bytes)
    one_row = alone & (small | split | ((keep == 0) & (slots == 1)))
    ctas = resident(threads, _registers(workload, keep, split, dtype), staged + mailbox, rates)
    ctas = np.where(cluster > 1, np.minimum(ctas, rates.cluster_ctas), ctas)
    return Placement(
        elements=elements,
        threads=threads,
        slots=slots,
        early=(keep > 0) & ~split,
        split=split,
        walking=~one_row,
        aligned=aligned,
        smem_bytes=staged,
        ctas_per_sm=np.where(staged <= room, ctas, 0.0),
    )


def published_placement(workload: Workload, cols: Floats, cluster: Floats, dtype: str, rates: Rates) -> Placement:
    """Launch of the published kernels: what is read again lies in shared memory, one row a CTA or cluster at a time."""
    element_bytes = row_inputs(workload, dtype)[2]
    elements = np.ceil(cols / cluster)
    staged = elements * workload.counted(dtype).kept_bytes
    threads = np.full_like(staged, float(BLOCK_MOST))
    scratch = mailbox_bytes(workload)
    ctas = resident(threads, np.full_like(staged, REGISTERS_PLAIN), staged + scratch, rates)
    ctas = np.where(cluster > 1, np.minimum(ctas, rates.cluster_ctas), ctas)
    legal = staged + scratch <= rates.smem_cta_bytes
    placed = _plain(elements, threads, np.where(legal, ctas, 0.0))
    aligned = ((cols * element_bytes) % VECTOR_BYTES == 0) & (staged >= 0)
    return replace(placed, aligned=aligned, smem_bytes=staged)


def _plain(elements: Floats, threads: Floats, ctas_per_sm: Floats) -> Placement:
    """One row a CTA, nothing of it in slots."""
    none = np.zeros_like(elements)
    never = none > 0
    return Placement(elements, threads, none + 1.0, never, never, never, ~never, none, ctas_per_sm)


def _small_block(fit: Floats, vectors: Floats) -> Floats:
    """Threads of single CTAs of which ``fit`` share an SM."""
    share = np.floor(SMALL_THREADS / np.maximum(fit, 1.0) / 32.0) * 32.0
    block = np.minimum(np.maximum(share, SMALL_BLOCK), float(BLOCK_MOST))
    return np.minimum(block, np.ceil(vectors / 32.0) * 32.0)


def _kept_vectors(vectors: Floats, inputs: int) -> Floats:
    """Vectors that a thread keeps of each input; 0 where the slice is too long for registers."""
    keep = np.zeros_like(vectors)
    for each in KEEPS:
        if 4 * each * inputs <= KEPT_REGISTERS_MOST:
            takes = (each * BLOCK_MOST >= vectors) & ((keep == 0) | (vectors > BLOCK_LEAST * each / 2))
            keep = np.where(takes, float(each), keep)
    return keep


def reread_placement(workload: Workload, cols: Floats, dtype: str, rates: Rates) -> Placement:
    """Launch of our kernel that reads the row again: one row a CTA, a batch of vectors a thread or 512 threads."""
    element_bytes, batch = row_inputs(workload, dtype)[2], reread_batch(workload, dtype)
    vectors = np.maximum(np.ceil(cols * element_bytes / VECTOR_BYTES), 1.0)
    threads = np.minimum(np.ceil(np.ceil(vectors / batch) / 32.0) * 32.0, float(BLOCK_MOST))[np.newaxis]
    placed = streaming_placement(cols, threads, np.full_like(threads, REGISTERS_BOUND), rates)
    return replace(placed, aligned=((cols * element_bytes) % VECTOR_BYTES == 0)[np.newaxis])


def register_placement(values: int, cols: Floats, threads: Floats, rates: Rates) -> Placement:
    """Launch of a kernel that keeps ``values`` inputs of a power of two of elements in registers, as float32."""
    block = 2.0 ** np.ceil(np.log2(np.maximum(cols, 1.0)))
    return streaming_placement(cols, threads, REGISTERS_BESIDE + np.ceil(block * values / threads), rates)


def streaming_placement(cols: Floats, threads: Floats, registers: Floats, rates: Rates) -> Placement:
    """Launch of a kernel whose CTAs each work on one row, in so many registers a thread."""
    none = np.zeros_like(cols * threads)
    ctas = resident(threads + none, registers + none, none, rates)
    return _plain(cols + none, threads + none, ctas)
