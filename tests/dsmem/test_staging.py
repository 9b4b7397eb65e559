"""The launch rule of our kernels, by hand, and what fits."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilesight.dsmem.catalogue import SIX, workload
from tilesight.dsmem.rates import rates_of
from tilesight.dsmem.staging import (
    kernel_placement,
    mailbox_bytes,
    register_placement,
    reread_placement,
    resident,
    slice_elements,
    streaming_placement,
)
from tilesight.hardware.load import load_profile

RATES = rates_of(load_profile("h200_sxm"))


def one(name, cols, cluster, dtype="fp32", rates=RATES):
    return kernel_placement(workload(name), np.array([float(cols)]), np.array([float(cluster)]), dtype, rates)


@pytest.mark.parametrize(
    ("cols", "cluster", "element_bytes", "elements"),
    [(65536, 4, 4, 16384), (1001, 4, 4, 252), (1001, 4, 2, 256), (3, 8, 4, 4), (1, 1, 2, 8)],
)
def test_slices_end_at_16_bytes(cols, cluster, element_bytes, elements):
    assert slice_elements(np.array([cols]), np.array([cluster]), element_bytes) == elements


@pytest.mark.parametrize(
    ("name", "cols", "cluster", "threads", "slots", "early", "walking", "smem"),
    [
        # 65536 / 8 = 8192 elements, 32 KiB an input, 2048 vectors: 8 a thread of 256; (2 inputs + w) * 32 KiB
        ("layernorm_backward", 65536, 8, 256, 1, True, True, 3 * 32768),
        # 64 KiB an input: 4096 vectors are 8 a thread of 512, 64 registers
        ("layernorm_backward", 65536, 4, 512, 1, True, True, 3 * 65536),
        # two of 16 KiB: 1024 vectors are 8 a thread of 128, which keep them, for one row
        ("softmax_backward", 4096, 1, 128, 1, True, False, 2 * 16384),
        # two of 24 KiB would need 192 threads: 4 of 52224 B fit into 231088 B, with 1024 / 4 threads each
        ("softmax_backward", 6144, 1, 256, 1, False, False, 2 * 24576),
        ("softmax_backward", 8192, 2, 128, 1, True, True, 2 * 16384),  # clusters walk: 1024 vectors, 8 a thread
        # 192 KiB: a single CTA fills its SM: 6144 vectors are 12 a thread, not kept, and there is one slot
        ("softmax_backward", 24576, 1, 512, 1, False, False, 2 * 98304),
        ("softmax_backward", 16384, 1, 512, 1, True, True, 2 * 65536),  # kept: it loads ahead
        ("layernorm_backward", 4096, 1, 128, 1, True, True, 3 * 16384),  # w is brought once: walking pays
        # three inputs of 64 KiB: 8 vectors of each would be 96 registers: the row stays in its slot
        ("lars_momentum", 65536, 4, 512, 1, False, True, 3 * 65536),
        # three of 36 KiB: 2304 vectors would be 4.5 a thread, which 64 registers can't hold; two slots fit
        ("lars_momentum", 73728, 8, 512, 2, False, True, 2 * 3 * 36864),
        # one input: 1024 vectors, 16 a thread
        ("quantise_int8", 65536, 16, 64, 1, True, True, 16384),
        # 64 KiB of each of two inputs in registers, 32 KiB in the slot
        ("softmax_backward", 32768, 1, 512, 1, False, False, 2 * (131072 - 65536)),
        # 128 KiB in registers, the other half in the slot: one CTA holds a row of 65536
        ("quantise_int8", 65536, 1, 512, 1, False, False, 131072),
        # rows that do not start at multiples of 16 bytes: one slot, 512 threads
        ("quantise_int8", 4099, 1, 512, 1, False, True, 4100 * 4),
    ],
)
def test_rule_by_hand(name, cols, cluster, threads, slots, early, walking, smem):
    placed = one(name, cols, cluster)
    assert (placed.threads[0], placed.slots[0], placed.smem_bytes[0]) == (threads, slots, smem)
    assert (bool(placed.early[0]), bool(placed.walking[0])) == (early, walking)
    assert placed.legal[0]


def test_mailboxes_by_hand():
    # two sets of 32 partials of 16 or 32 B, and 80 B of mbarriers
    assert mailbox_bytes(workload("quantise_int8")) == 2 * 32 * 16 + 80
    assert mailbox_bytes(workload("layernorm_backward")) == 2 * 32 * 32 + 80


def test_ctas_an_sm_by_hand():
    # 128 threads of 40 + 64 registers: 65536 / 13312 = 4.9; by shared memory, 32768 + 1104 + 1024 B, 6
    assert one("softmax_backward", 4096, 1).ctas_per_sm == 4
    # 96 KiB and the mailbox: two
    assert one("layernorm_backward", 65536, 8).ctas_per_sm == 2
    # 288 threads of 40 + 64 + 12 registers, in eights 120: one, though shared memory would hold two
    assert one("layernorm_backward", 9216, 1).ctas_per_sm == 1
    # results of another width: 40 + 64 + 20 registers, 128 of 288 threads: one
    assert one("quantise_int8", 36864, 2).ctas_per_sm == 1


def test_an_sm_holds_eight_ctas_of_clusters():
    # 64 threads of 28 + 2 * 4 + 8 + 12 registers = 56: a quarter of 16384 holds 9 warps of 1792, an SM 36, so 18 CTAs
    assert one("layernorm_backward", 4096, 16).ctas_per_sm == 8
    assert one("layernorm_backward", 4096, 16, rates=replace(RATES, cluster_ctas=32.0)).ctas_per_sm == 18
    assert RATES.cluster_ctas == 8


def test_registers_come_from_quarters_of_an_sm():
    # 104 registers: a quarter of 16384 holds 4 warps of 3328, an SM 16; nine warps of a CTA fit once, though
    # 65536 / (9 * 3328) is 2.2; three warps five times, eight twice; 80 registers: 6 warps of 2560 a quarter
    threads, none = np.array([288.0, 96.0, 256.0]), np.zeros(3)
    assert resident(threads, none + 101, none, RATES).tolist() == [1, 5, 2]
    assert resident(threads, none + 80, none, RATES).tolist() == [2, 8, 3]


def test_the_largest_row_by_hand():
    # one slot of one input: 232448 - 1104 - 256 = 231088 B, and 16 vectors of 512 threads: 131072 B; 90540 elements
    assert one("quantise_int8", 90540, 1).legal
    assert not one("quantise_int8", 90544, 1).legal
    assert one("quantise_int8", 16 * 90540, 16).legal
    assert not one("quantise_int8", 90539, 1).legal  # rows off 16 bytes have the slot alone
    assert one("quantise_int8", 57771, 1).legal


@given(st.sampled_from(SIX), st.integers(1, 10**6), st.sampled_from(["fp32", "bf16"]))
def test_legality_is_monotone(name, cols, dtype):
    legal = [bool(one(name, cols, cluster, dtype).legal[0]) for cluster in (1, 2, 4, 8, 16)]
    assert legal == sorted(legal)
    if one(name, cols + 8, 1, dtype).legal[0]:
        assert legal[0]


def test_rows_in_registers():
    # 16384 elements of two inputs: 64 a thread of 512 and 40 besides = 104 registers, one CTA of 53248
    placed = register_placement(2, np.array([16384.0]), np.array([512.0]), RATES)
    assert (placed.ctas_per_sm[0], bool(placed.legal[0])) == (1, True)
    assert not register_placement(2, np.array([16385.0]), np.array([512.0]), RATES).legal  # a block of 32768


def test_other_launches():
    assert (
        reread_placement(workload("quantise_int8"), np.array([1024.0]), "fp32", RATES).threads == 32
    )  # 8 vectors each
    placed = reread_placement(workload("lars_momentum"), np.array([16384.0]), "fp32", RATES)
    assert (placed.threads[0, 0], placed.ctas_per_sm[0, 0]) == (512, 2)  # 64 registers
    placed = streaming_placement(np.array([1e6]), np.array([256.0]), np.array([56.0]), RATES)
    assert placed.ctas_per_sm == 4  # 65536 / (256 * 56) = 4.6
