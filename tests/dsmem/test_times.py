"""Times of alternatives: exact on a GPU of round numbers, and properties on the shipped one."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given as over
from hypothesis import settings
from hypothesis import strategies as st

from tilesight.dsmem.alternatives import ALTERNATIVES, candidates
from tilesight.dsmem.catalogue import SIX, workload
from tilesight.dsmem.rates import rates_of
from tilesight.dsmem.times import SHARPNESS, _both, _exchange_s, price
from tilesight.dsmem.traffic import again_hit_share, hit_share, walks
from tilesight.hardware.load import load_profile

H200 = load_profile("h200_sxm")
RATES = rates_of(H200)


def best(name, rows, cols, rates=RATES, cache="warm", dtype="fp32", kernels="ours"):
    """Fastest candidate of each alternative and cluster size: likely, low and high seconds."""
    which, widths = workload(name), np.array([float(cols)])
    found = {}
    for each in candidates(which, rows, widths, dtype, rates, kernels):
        priced = price(each, which, rows, widths, cache=cache, rates=rates)
        for place, label in enumerate(each.labels):
            seconds = priced.seconds[:, place, 0]
            key = (label.name, label.cluster)
            if key not in found or seconds[0] < found[key][0]:
                found[key] = seconds
    return found


def test_dram_bound_cluster_by_hand():
    # softmax backward, 4096 x 65536, P = 16: 8 B read and 4 B written an element
    read, copy = (H200.require(f"dram.bandwidth_{kind}_bytes_per_s") for kind in ("read", "sustained"))
    elements = 4096 * 65536
    moved = elements * (8 / read + 4 * (2 / copy - 1 / read))
    seconds = best("softmax_backward", 4096, 65536, cache="cold")["cluster", 16][0]
    assert (
        moved < seconds < 1.01 * moved + 5e-6
    )  # besides: the start, the first load, what follows the last one, queues


def test_rows_in_order_are_written_faster_by_hand():
    # Pearson backward, 8192 columns, one CTA a row, 3 on an SM: as much read as written, at the rate of a copy in order
    moved = 4096 * 8192 * 8 * 2 / H200.require("dram.bandwidth_in_order_bytes_per_s")
    seconds = best("pearson_backward", 4096, 8192, cache="cold")["staged", 1][0]
    assert moved < seconds < 1.01 * moved + 5e-6
    # a GPU where nobody measured it: as in any copy
    field = "dram.bandwidth_in_order_bytes_per_s"
    plain = best("pearson_backward", 4096, 8192, rates_of(H200.with_numbers({field: None}, {})), cache="cold")
    assert plain["staged", 1][0] > 4096 * 8192 * 8 * 2 / H200.require("dram.bandwidth_sustained_bytes_per_s") > moved


def given(name, cols, label, rates=RATES, kernels="ours"):
    """The candidates that hold an alternative, and its place among them."""
    for each in candidates(workload(name), 4096, np.array([float(cols)]), "fp32", rates, kernels):
        for place, known in enumerate(each.labels):
            if (known.name, known.cluster) == label:
                return each, place
    raise AssertionError(label)


def test_an_exchange_by_hand():
    # P = 8, 4096 columns: 2 warps a CTA, 8 CTAs an SM: 902.4 cycles and 161.5 for 7 * 2 / 8 CTAs of eight warps
    each, place = given("quantise_int8", 4096, ("cluster", 8))
    assert (each.placement.threads[place, 0], each.placement.ctas_per_sm[place, 0]) == (64, 8)
    cycles = _exchange_s(each, 1, 4, RATES)[place, 0] * RATES.clock_hz
    assert cycles == pytest.approx(902.4 + 161.5 * 7 * 2 / 8)
    # five sums: 4 B beyond the 16 that were measured, to 7 others at 16.24 B a cycle
    assert _exchange_s(each, 5, 4, RATES)[place, 0] * RATES.clock_hz == pytest.approx(cycles + 4 * 7 / 16.24)
    assert _exchange_s(each, 1, 4, RATES)[0, 0] == 0.0  # P = 1


def test_exchanges_that_nobody_measured():
    fields = {f"dsmem.{size}.exchange{part}_cycles": None for size in (2, 4, 8, 16) for part in ("", "_service")}
    rates = rates_of(H200.with_numbers(fields, {}))
    each, place = given("quantise_int8", 4096, ("cluster", 8), rates)
    one_way, merge = 750.0 / 2 + 7 * 4 / 16.24, 3 * 2 * 24.04
    assert _exchange_s(each, 1, 4, rates)[place, 0] * rates.clock_hz == pytest.approx(one_way + merge)


def test_narrow_rows_in_large_clusters_wait_for_exchanges():
    # 58 clusters of 16 at most: 71 rounds, each an exchange of half a microsecond and more
    seconds = best("quantise_int8", 4096, 4096)["cluster", 16][0]
    assert seconds > 2 * best("quantise_int8", 4096, 4096)["cluster", 2][0]
    assert seconds > 71 * 1024 / RATES.clock_hz


def test_two_bounds_by_hand():
    together = _both(np.array([1.0, 1.0]), np.array([1.0, 0.5]))
    assert together == pytest.approx([2 ** (1 / SHARPNESS), (1 + 0.5**SHARPNESS) ** (1 / SHARPNESS)])
    assert _both(np.array([2.0]), np.array([0.0])) == 2.0


def test_split_rows_bring_shared_inputs_anew():
    # LayerNorm, 40960 columns in one CTA: w twice a row, 327680 B at the rate of an SM, 16 rows one after the other
    seconds = best("layernorm_backward", 2048, 40960, cache="cold")["staged", 1][0]
    moved = 2048 * 40960 * (8 * RATES.chip_read_s_per_byte + 4 * RATES.chip_write_s_per_byte)
    assert seconds > moved + 16 * 2 * 4 * 40960 / RATES.load_bytes_per_s


def test_rows_in_l1_need_no_l2():
    # LayerNorm, 4096 columns: 4 rows of 32 KiB and w of 16 KiB lie in L1; in an SM of half the memory they don't
    less = replace(RATES, smem_sm_bytes=RATES.smem_sm_bytes / 2)
    assert (
        best("layernorm_backward", 2048, 4096)["reread", 1][0]
        < best("layernorm_backward", 2048, 4096, less)["reread", 1][0]
    )


def test_few_rows_take_a_row_from_end_to_end():
    # one row in one CTA: start, latency, 16 KiB of two inputs at the rate of an SM, statistics, reduction, output
    seconds = best("softmax_backward", 1, 2048, cache="cold")["staged", 1][0]
    load = RATES.latency_dram_s + 16384 / RATES.bulk_bytes_per_s
    start = RATES.gap_s + RATES.start_s
    assert start + load < seconds < start + load + 2e-6


def test_hits_between_passes():
    moved = walks(workload("softmax_backward"), "merged", "fp32")
    one_row, all_rows = np.array([1.0]), np.array([1056.0])
    assert again_hit_share(moved, np.array([65536.0]), one_row, False, RATES) == pytest.approx(1.0)
    assert again_hit_share(moved, np.array([65536.0]), all_rows, False, RATES) == pytest.approx(0.0)
    # backwards, four times what fits: the last quarter of each row is still there
    four = 4 * RATES.l2_bytes / (65536 * (8 * RATES.copies + 4))
    found = again_hit_share(moved, np.array([65536.0]), np.array([four]), True, RATES)
    assert found == pytest.approx(1 / 4, abs=0.07)
    assert hit_share(np.array([0.0]), RATES) == 1.0


def test_every_alternative_is_there():
    names = {name for name, _ in best("lars_momentum", 4096, 8192)}
    assert names == set(ALTERNATIVES)


@settings(max_examples=60)
@over(
    st.sampled_from(SIX),
    st.integers(1, 20_000),
    st.integers(1, 300_000),
    st.sampled_from(["warm", "cold"]),
    st.sampled_from(["fp32", "bf16"]),
)
def test_times_are_positive_and_no_faster_than_the_bytes(name, rows, cols, cache, dtype):
    least = 0.0
    if cache == "cold":
        least = rows * cols * workload(name).compulsory_bytes(dtype) / H200.dram.bandwidth_peak_bytes_per_s
    for seconds in best(name, rows, cols, cache=cache, dtype=dtype).values():
        assert not np.any(np.isnan(seconds))
        assert np.all(seconds > max(least, RATES.start_s))
        if np.isfinite(seconds[0]):
            assert seconds[1] <= seconds[0] * (1 + 1e-9)
            assert seconds[0] <= seconds[2] * (1 + 1e-9)


@settings(max_examples=30)
@over(st.sampled_from(SIX), st.integers(1, 10_000), st.integers(1, 100_000), st.floats(1.01, 2.0))
def test_more_bandwidth_is_never_slower(name, rows, cols, factor):
    fields = [f"dram.bandwidth_{kind}_bytes_per_s" for kind in ("read", "write", "sustained", "peak")]
    why = {"kind": "assumed", "note": "changed by a test"}
    faster = H200.with_numbers({field: H200.require(field) * factor for field in fields}, dict.fromkeys(fields, why))
    slow, fast = best(name, rows, cols), best(name, rows, cols, rates_of(faster))
    assert slow.keys() == fast.keys()
    assert all(fast[key][0] <= slow[key][0] * (1 + 1e-9) for key in slow)


@settings(max_examples=30)
@over(st.sampled_from(SIX), st.integers(1, 10_000), st.integers(1, 60_000))
def test_more_rows_are_never_faster(name, rows, cols):
    few, many = (best(name, number, cols, cache="cold") for number in (rows, rows + 500))
    for key in few:
        if key[0] in ("cluster", "staged"):
            assert many[key][0] >= few[key][0] * (1 - 1e-9)


def test_many_rows_approach_the_rate_of_memory():
    one, two = (best("pearson_backward", rows, 16384, cache="cold")["cluster", 4][0] for rows in (10**5, 2 * 10**5))
    read, copy = (H200.require(f"dram.bandwidth_{kind}_bytes_per_s") for kind in ("read", "sustained"))
    assert two - one == pytest.approx(10**5 * 16384 * 8 * 2 / copy, rel=0.01)  # as much read as written: a copy
    assert read > copy


def test_unaligned_rows_take_the_slow_path():
    aligned, not_aligned = (best("softmax_backward", 128, cols)["staged", 1][0] for cols in (16384, 16383))
    assert not_aligned > aligned  # nothing loads ahead


def test_published_kernels_pay_more_for_their_exchanges():
    ours, theirs = (best("softmax_backward", 4096, 32768, kernels=kernels) for kernels in ("ours", "published"))
    for cluster in (4, 8, 16):
        assert theirs["cluster", cluster][0] > ours["cluster", cluster][0]
    assert theirs["reread", 1][0] > ours["reread", 1][0]  # the passes of the definition


def test_many_at_once_are_those_one_by_one():
    which, widths = workload("layernorm_backward"), np.array([1000.0, 4096.0, 30000.0, 65536.0, 1e6])
    together = [
        price(each, which, 2048, widths, cache="warm", rates=RATES)
        for each in candidates(which, 2048, widths, "fp32", RATES)
    ]
    for place, cols in enumerate(widths):
        alone = best("layernorm_backward", 2048, cols)
        found = {}
        for each in together:
            for row, label in enumerate(each.candidates.labels):
                key, seconds = (label.name, label.cluster), each.seconds[0, row, place]
                found[key] = min(seconds, found.get(key, np.inf))
        assert found == {key: pytest.approx(seconds[0], rel=1e-12) for key, seconds in alone.items()}
