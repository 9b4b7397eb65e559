"""Whole estimates worked by hand, on the GPU of round numbers: 100 SMs, 0.5 ns a cycle, DRAM 4 B/ps, L2 10 B/ps."""

from dataclasses import replace

import pytest

from tilesight import Gemm, GemmConfig, UnsupportedError, predict
from tilesight.cost.price import BOUNDS, TERMS

NS = 1e-9


def in_ns(values):
    return {name: seconds / NS for name, seconds in values.items()}


def check(estimate, terms, **how):
    """The terms in ns, those not named 0, and their sum."""
    assert set(terms) <= set(TERMS)
    assert in_ns(estimate.terms) == pytest.approx(dict.fromkeys(TERMS, 0.0) | terms, **how)
    assert estimate.seconds / NS == pytest.approx(sum(terms.values()), **how)


def test_pointer_kernel_with_a_tail(hw):
    # 2560 x 1408 x 1024 in 128x128x64: 20 x 11 = 220 tiles of 16 k-steps. Registers (128 * 256 threads of 65536) and
    # shared memory (96 + 1 of 228 KiB) leave 2 CTAs an SM: 200 slots, one full round and 20 tiles, one an SM.
    estimate = predict(
        Gemm(2560, 1408, 1024),
        GemmConfig(128, 128, 64, stages=3, kernel="cp_async"),
        hardware=hw,
        cache="cold",
        clock="burst",
    )
    assert (estimate.ctas_per_sm, estimate.rounds, estimate.waves) == (2, 2, 1.1)
    # Lookups: 200 of 220 CTAs ask for a full round's share of the operands, over 16 steps; L2 looks up 10 B/ps. A quarter of
    # B at best, and A as asked, but for what the whole GPC merges.
    l2 = (estimate.lookup_bytes - 2560 * 1408 * 2) * 200 / 220 / 16 / 10_000
    assert 200 * 16384 * 1.25 / 10_000 < l2 < 200 * 16384 * 1.75 / 10_000
    # DRAM: every operand byte once, 2 * (2560 + 1408) * 1024 B, in the first round (the tail is the end of the last 4
    # rows of tiles, whose A and B were read), shared out over 16 steps.
    dram = 2 * (2560 + 1408) * 1024 / 16 / 4000
    # Ring: two CTAs fill 2 * 32 KiB at 100 B/ns after 150 + 350 ns; two loads are in flight.
    ring = (500 + 2 * 327.68) / 2
    # Tensor: 8 instructions of 64 cycles and 10 more for each CTA. In 522 ns they draw 0.5 pJ for each of 200 * 2**21
    # flop, 10 pJ a byte of 200 stages, 50 pJ a byte of DRAM, and 100 W; 500 are allowed.
    tensor = 2 * 522 / 2
    watts = 100 + (200 * 2**21 * 0.5e-12 + 200 * 32768 * 10e-12 + dram * 4000 * 50e-12) / (tensor * NS)
    slowed = tensor * (watts / 500) ** 0.5
    assert tensor < ring < slowed
    assert estimate.binding == "tensor"
    assert in_ns(estimate.period_s) == pytest.approx(
        {"tensor": slowed, "l2": l2, "dram": dram, "ring": ring, "recurrence": 100 * slowed / tensor}
    )
    check(
        estimate,
        {
            "start": 1000,
            "prologue": 500 + 327.68,
            # as if waves were fractions: 1.1 rounds of tensor work, and what the ring takes beyond it
            "k-steps": 1.1 * 16 * tensor,
            # 20 CTAs, one an SM: 261 ns of tensor work, (500 + 327.68) / 2 for the ring; a tenth of a round is counted
            "fill": 16 * (ring - tensor) + 16 * (413.84 - 261),
            "tail": 16 * 261 - 0.1 * 16 * tensor,
            "clock": 16 * (slowed - ring),
            # 400 ns, both tiles' 32 KiB at 50 B/ns, and the next fill waits 350 ns for DRAM
            "between rounds": 400 + 2 * 655.36 + 350,
            # 100 ns and 32 KiB at the 80 B/ns of an SM: 20 SMs could have 250 each
            "epilogue": 100 + 409.6,
        },
        rel=1e-6,
    )


def test_full_rounds_and_tail_wait_for_their_own_reads(hw, altered):
    # The same product row by row: the 20 tiles of the tail are the last 9 of row 18, whose A was read, and row 19, whose
    # 128 rows of A are new. The full round reads all else.
    config = GemmConfig(128, 128, 64, stages=3, kernel="cp_async", group_m=1)
    estimate = predict(Gemm(2560, 1408, 1024), config, hardware=hw, cache="cold", clock="burst")
    new_in_tail = 128 * 1024 * 2
    assert estimate.dram_read_bytes == pytest.approx(2 * (2560 + 1408) * 1024, rel=1e-6)
    assert estimate.period_s["dram"] / NS == pytest.approx(
        (estimate.dram_read_bytes - new_in_tail) / 16 / 4000, rel=1e-6
    )
    # at 10 B/ns DRAM binds both
    slow = altered(hw, {"dram.bandwidth_read_bytes_per_s": 1e10})
    late = predict(Gemm(2560, 1408, 1024), config, hardware=slow, cache="cold", clock="burst")
    full = (estimate.dram_read_bytes - new_in_tail) / 10
    assert late.period_s["dram"] / NS == pytest.approx(full / 16, rel=1e-6)
    loop = ("k-steps", "instruction chain", "fill", "L2", "merging", "DRAM", "tail", "clock")
    assert sum(late.terms[name] for name in loop) / NS == pytest.approx(estimate.dram_read_bytes / 10, rel=1e-6)


def test_rows_outside_hold_up_the_copy_engine(hw):
    # 1250 x 1280 x 512: the last row of 10 tiles sticks out by 30 rows of A, at 2 ns a row; with 256 rows of half a ns
    # that is what the copy engine needs
    config = GemmConfig(128, 128, 64, stages=3, kernel="tma_persistent")
    ragged = predict(Gemm(1250, 1280, 512), config, hardware=hw, cache="cold")
    assert ragged.period_s["tma"] / NS == pytest.approx(128 + 60)
    # two rounds: one of the two tiles of the busiest SM is such a one
    assert predict(Gemm(2530, 1280, 512), config, hardware=hw).period_s["tma"] / NS == pytest.approx(128 + 30)
    ahead = GemmConfig(128, 128, 64, stages=3)
    assert predict(Gemm(1250, 1280, 512), ahead, hardware=hw).period_s["tma"] / NS == pytest.approx(128 + 60)


def test_bulk_kernel_of_one_round(hw):
    # 1280 x 1280 x 512 in 128x128x64: 100 tiles of 8 k-steps, one on each SM.
    problem, config = Gemm(1280, 1280, 512), GemmConfig(128, 128, 64, stages=3, kernel="tma_persistent")
    estimate = predict(problem, config, hardware=hw, cache="cold")
    assert (estimate.ctas_per_sm, estimate.rounds, estimate.tail_share) == (1, 1, 0)
    # A stage of 32 KiB at 128 B/ns, after 500 ns, two in flight: 378 ns. Tensor cores need 522 cycles, 261 ns, at 690 W
    # of which 400 are sustained: 343 ns. L2: what neighbours do not merge. DRAM: 2 * 2560 * 512 B
    # over 8 steps. The copy engine: 256 rows of 128 B at half a ns. The loop's instructions: 300 cycles at that clock.
    flop, stage, dram = 100 * 2**21, 100 * 32768, 2 * 2560 * 512 / 8
    slow = ((100 + (flop * 0.5e-12 + stage * 10e-12 + dram * 50e-12) / 261e-9) / 400) ** 0.5
    assert in_ns(estimate.period_s) == pytest.approx(
        {
            "tensor": 261 * slow,
            "l2": (estimate.lookup_bytes - 1280 * 1280 * 2) / 8 / 10_000,
            "dram": dram / 4000,
            "tma": 128,
            "ring": 378,
            "recurrence": 150 * slow,
        }
    )
    assert estimate.binding == "launch"  # the loop's 3024 ns are less than all else
    assert estimate.clock_hz == pytest.approx(2e9 / slow)
    # Three descriptors take 2 us; the last store's 32 KiB go at the chip's 5 B/ps over 100 SMs.
    ends = {"start": 1000, "descriptors": 2000, "epilogue": 100 + 655.36}
    check(estimate, ends | {"prologue": 500 + 256, "k-steps": 8 * 261, "fill": 8 * (378 - 261)})
    # Operands in L2: no DRAM, 350 ns less to wait. Tensor cores bind, at the power of what is left.
    resident = predict(problem, config, hardware=hw, resident={"a": 1.0, "b": 1.0})
    slow = ((100 + (flop * 0.5e-12 + stage * 10e-12) / 261e-9) / 400) ** 0.5
    check(resident, ends | {"prologue": 150 + 256, "k-steps": 8 * 261, "clock": 8 * 261 * (slow - 1)})


def test_specialised_kernel_with_a_split(hw):
    # 256 x 512 x 4096 in 128x256x64, k in 4 parts, pairs of CTAs along m: 2 * 2 * 4 = 16 tiles of 16 k-steps, in one
    # round of the 48 pairs that fit.
    estimate = predict(
        Gemm(256, 512, 4096),
        GemmConfig(128, 256, 64, stages=4, cluster_m=2, split_k=4),
        hardware=hw,
        cache="cold",
        clock="burst",
    )
    assert (estimate.ctas, estimate.waves, estimate.split_k) == (16, 16 / 96, 4)
    assert estimate.binding == "tensor"
    assert in_ns(estimate.period_s) == pytest.approx(
        {
            # 8 instructions of 128 cycles and 60 more; 213 W slow nothing
            "tensor": 542,
            # half of B (a pair shares it); of A half, and a fifth of what neighbours could merge
            "l2": 16 * (16384 * 0.6 + 32768 * 0.5) / 10_000,
            # 2 * (256 + 512) * 4096 B over 16 steps
            "dram": 2 * 768 * 4096 / 16 / 4000,
            # 128 rows of A and half of B's 256 at half a ns
            "tma": 128,
            # 48 KiB at 128 B/ns after 500 ns, then the product, four slots
            "ring": (884 + 542) / 4,
            # 100 cycles: a pair halves B's boxes of 64 rows of k
            "recurrence": 50,
        }
    )
    check(
        estimate,
        {
            "start": 500,
            "prologue": 884,
            # a sixth of a round of 96 CTAs, which takes as long as a whole one
            "k-steps": 16 * 542 / 6,
            "tail": 16 * 542 * 5 / 6,
            # 750 ns, and 128 KiB of fp32 at 80 B/ns
            "epilogue": 750 + 1638.4,
            # a kernel of its own, and 4 parts of 4 B read and 2 B written for each of 256 * 512 at 4 B/ps
            "reduction": 3000 + 256 * 512 * 18 / 4000,
        },
    )


def test_specialised_kernel_of_several_rounds_and_a_tail(hw):
    # 1280 x 3328 x 256 in 128x256x64: 10 x 13 = 130 tiles of 4 k-steps: one full round and 30 tiles.
    estimate = predict(
        Gemm(1280, 3328, 256),
        GemmConfig(128, 256, 64, stages=4),
        hardware=hw,
        resident={"a": 1.0, "b": 1.0},
        clock="burst",
    )
    assert (estimate.rounds, estimate.waves) == (2, 1.3)
    # tensor 542 ns; 100 * (2**22 * 0.5 pJ + 48 KiB * 10 pJ) in them are 577.6 W with the 100 at rest: 1.0748 of 500 W
    slow = ((100 + 100 * (2**22 * 0.5e-12 + 49152 * 10e-12) / 542e-9) / 500) ** 0.5
    assert slow > 1
    check(
        estimate,
        {
            "start": 500,
            "prologue": 150 + 384,
            "k-steps": 1.3 * 4 * 542,
            "tail": 0.7 * 4 * 542,
            # the full chip alone draws too much
            "clock": 4 * 542 * (slow - 1),
            # 250 ns, and 64 KiB at 100 B/ns
            "between rounds": 250 + 655.36,
            # 64 KiB: 30 SMs have the 80 B/ns of each
            "epilogue": 750 + 819.2,
        },
    )


def test_stores_that_dram_can_not_keep_up_with(hw):
    # 12800 x 12800 x 64: one k-step for each of 5000 tiles, 50 rounds of 1.6 us at most; but 12800**2 * 2 B are to be
    # written at 3.2 B/ps but for the 32 MiB that stay in L2, after start and first fill, beside 2 * 25600 * 64 B of reads.
    problem, config = Gemm(12800, 12800, 64), GemmConfig(128, 256, 64, stages=4)
    estimate = predict(problem, config, hardware=hw, cache="cold", clock="burst")
    floor = 500 + 884 + 2 * 25600 * 64 / 4000 + (12800**2 * 2 - 2**25) / 3200
    assert estimate.dirty_after_bytes == 2**25
    assert estimate.binding == "dram"
    assert estimate.seconds / NS == pytest.approx(floor, rel=1e-3)
    assert estimate.terms["dram floor"] > 0
    # other data's dirty lines: half a byte is written back for each byte that takes their place, up to what there is
    moved = 2 * 25600 * 64 + 12800**2 * 2
    for dirty, written in ((2e7, 2e7), (1e12, moved / 2)):
        late = predict(problem, config, hardware=hw, cache="cold", clock="burst", dirty_bytes=dirty)
        assert (late.seconds - estimate.seconds) / NS == pytest.approx(written / 3200, rel=1e-3)


def test_element_wise_loads_bind(hw):
    # k = 1025: A's rows start anywhere, 128 * 64 elements at 4 a cycle for each of two CTAs: 4096 cycles a k-step
    estimate = predict(
        Gemm(2560, 1280, 1025),
        GemmConfig(128, 128, 64, stages=3, kernel="cp_async"),
        hardware=hw,
        cache="cold",
        clock="burst",
    )
    assert estimate.binding == "issue"
    assert estimate.period_s["issue"] / NS == pytest.approx(2048)
    # the clock is that of tensor work spread over as long: it does not fall
    assert estimate.clock_hz == 2e9


def test_bounds_that_do_not_exist_are_left_out(hw):
    estimate = predict(Gemm(1280, 1280, 512), GemmConfig(128, 128, 64, stages=3, kernel="cp_async"), hardware=hw)
    assert set(estimate.period_s) <= set(BOUNDS)
    assert "issue" not in estimate.period_s  # vectors everywhere
    assert "tma" not in estimate.period_s
    assert min(estimate.period_s.values()) > 0


@pytest.mark.parametrize(
    ("name", "config"),
    [
        ("dram.bandwidth_read_bytes_per_s", GemmConfig(128, 128, 64, stages=3)),
        ("dram.bandwidth_write_bytes_per_s", GemmConfig(128, 128, 64, stages=3)),
        ("l2.lookup_bytes_per_s", GemmConfig(128, 128, 64, stages=3)),
        ("l2.store_bytes_per_s", GemmConfig(128, 128, 64, stages=3)),
        ("launch.start_specialized_s", GemmConfig(128, 128, 64, stages=3)),
        ("launch.start_in_order_s", GemmConfig(128, 128, 64, stages=3, kernel="cp_async")),
        ("launch.descriptor_s", GemmConfig(128, 128, 64, stages=3, kernel="tma_persistent")),
        ("launch.reduction_bytes_per_s", GemmConfig(128, 128, 64, stages=3, split_k=2)),
        ("epilogue.specialized_bytes_per_s", GemmConfig(128, 128, 64, stages=3)),
        ("rounds.cp_async_bytes_per_s", GemmConfig(128, 128, 64, stages=3, kernel="cp_async")),
        ("power.burst_w", GemmConfig(128, 128, 64, stages=3)),
    ],
)
def test_a_missing_number_refuses_by_name(hw, altered, name, config):
    with pytest.raises(UnsupportedError, match=f"has no {name}") as caught:
        predict(Gemm(4096, 4096, 4096), config, hardware=altered(hw, {name: None}))
    assert caught.value.field == name


# --- kernels around the product


def test_an_old_c_is_read_once_where_it_is_added(h200):
    # by the tiles that store it, clipped at the edge; in a split by the reduction
    for problem, config in (
        (Gemm(1, 65536, 512), GemmConfig(64, 128, 64, stages=4, split_k=1)),
        (Gemm(8192, 8192, 4096), GemmConfig(128, 128, 64, stages=4, split_k=8)),
    ):
        new, old = (
            predict(replace(problem, beta=beta), config, hardware=h200, cache="cold", clock="burst")
            for beta in (0.0, 1.0)
        )
        assert old.dram_read_bytes - new.dram_read_bytes == pytest.approx(problem.m * problem.n * 2)
        assert old.seconds > new.seconds


def test_an_old_c_is_as_resident_as_stated(h200):
    def read(**resident):
        config = GemmConfig(128, 256, 64, stages=4)
        return predict(Gemm(8192, 8192, 256, beta=1.0), config, hardware=h200, resident=resident).dram_read_bytes

    operands, output = 2 * 8192 * 256 * 2, 8192 * 8192 * 2
    assert read() == pytest.approx(operands + output)
    assert read(c=1.0) == pytest.approx(operands)
    assert read(a=1.0, b=1.0) == pytest.approx(output)


def test_an_old_c_is_not_part_of_the_loop():
    # whole rounds alone, and a few tiles more: 84 x 71 tiles of 64 x 64 on 142 SMs of 6 CTAs each
    config = GemmConfig(64, 64, 64, stages=2, warps=8, kernel="cp_async")
    few, more = (
        predict(Gemm(m, 4544, 64, beta=1.0), config, hardware="l40s", cache="cold", clock="burst").seconds
        for m in (5376, 5440)
    )
    assert few < more < 1.05 * few


def test_partial_sums_beyond_l2_come_from_dram():
    # 8 parts of 8192 x 8192 in fp32 are 2.15 GB; an L40S holds 48 MiB of them and reads the rest at 0.841 TB/s
    config = GemmConfig(128, 128, 64, stages=2, warps=8, kernel="cp_async", split_k=8)
    estimate = predict(Gemm(8192, 8192, 4096), config, hardware="l40s", cache="cold", clock="burst")
    partial, held = 8 * 8192**2 * 4, 48 * 2**20
    assert estimate.terms["reduction"] > (partial - held) / 0.841e12
    assert estimate.dram_read_bytes > 2 * 8192 * 4096 * 2 + partial - held
    small = predict(Gemm(512, 512, 4096), replace(config, split_k=4), hardware="l40s", cache="cold", clock="burst")
    assert small.dram_read_bytes == pytest.approx(2 * 512 * 4096 * 2)


def test_operands_made_first_come_from_dram_and_stay_in_l2(h200):
    # 67 MB of B in fp8, row by row, is turned first: read once, written once, 31 MB of it stay for the product
    problem = Gemm(64, 8192, 8192, dtype="fp8")
    config = GemmConfig(64, 128, 128, stages=4)
    cold, warm = (predict(problem, config, hardware=h200, cache=cache, clock="burst") for cache in ("cold", "warm"))
    weight = 8192 * 8192
    assert cold.terms["preparation"] > weight / h200.dram.bandwidth_read_bytes_per_s
    assert cold.dram_read_bytes > 1.5 * weight
    assert cold.dram_write_bytes > weight / 2
    assert warm.seconds <= cold.seconds
    # a small one stays altogether: it is read from DRAM by the kernel that turns it alone
    small = predict(Gemm(64, 1024, 1024, dtype="fp8"), config, hardware=h200, cache="cold", clock="burst")
    assert small.dram_read_bytes == pytest.approx(1024 * 1024 + 64 * 1024, rel=1e-6)


def test_an_sm_stores_all_its_last_tiles(hw):
    # four CTAs an SM on 25 of 100 SMs take as long to store as one CTA an SM four times over
    config = GemmConfig(64, 64, 64, stages=2, kernel="cp_async", registers=64)
    one, four = (
        predict(Gemm(64 * tiles, 64, 64), config, hardware=hw, sms=25, clock="burst").terms["epilogue"]
        for tiles in (25, 100)
    )
    fixed = hw.epilogue.in_order_fixed_s
    assert four - fixed == pytest.approx(4 * (one - fixed), rel=1e-6)
