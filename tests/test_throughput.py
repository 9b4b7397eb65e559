from dataclasses import replace

import numpy as np
import pytest

from tilesight.cost.throughput import (
    instruction_cycles,
    outside_rows_s,
    register_step_cycles,
    stage_lookups,
    step_costs,
)
from tilesight.errors import UnsupportedError
from tilesight.kernels.gemm import gemm_plan
from tilesight.kernels.gemm_config import Gemm, GemmColumns, GemmConfig
from tilesight.plan.action import MatrixInstructions


def plan_of(problem, config):
    return gemm_plan(GemmColumns.of([problem], [config]), slots=np.array([100.0]))


def costs_of(problem, config, hardware, resident=0.0):
    return step_costs(plan_of(problem, config), np.array([resident]), hardware)


LARGE = Gemm(4096, 4096, 4096)


@pytest.mark.parametrize(
    ("n", "rate", "operand", "cycles"),
    [
        # m64 n256 k16 bf16: 2 * 64 * 256 * 16 flop at 4096 a cycle = 128; reads (64 + 256) * 32 B at 128 = 80
        (256, 4096, 2, 128),
        # n = 64: 32 flop cycles, and 128 rows of 32 B at 128 B a cycle = 32: both bind
        (64, 4096, 2, 32),
        # n = 8: 4 flop cycles, 72 * 32 / 128 = 18
        (8, 4096, 2, 18),
        # fp8: k32 at twice the rate: the same 128
        (256, 8192, 1, 128),
    ],
)
def test_an_instruction_by_hand(n, rate, operand, cycles):
    rows, columns, depth, one = np.array(64.0), np.array([float(n)]), np.array(32.0 / operand), np.array(1.0)
    matrix = MatrixInstructions("wgmma", one, rows, columns, depth, operand * one, rows + columns)
    assert instruction_cycles(matrix, float(rate), 128.0) == cycles


def test_tensor_time_of_a_step_by_hand(hw):
    def cycles(*tile, **config):
        return float(costs_of(LARGE, GemmConfig(*tile, stages=3, **config), hw).tensor_cycles[0])

    # 128x256x64: 2 blocks of 64 rows * 4 of k16 = 8 instructions of 128 cycles; a specialised step adds 60
    assert cycles(128, 256, 64) == 8 * 128 + 60
    # in order 10; 128x128: 64 cycles each
    assert cycles(128, 128, 64, kernel="cp_async") == 8 * 64 + 10
    # n side 320 is cut in two strips of 160: 2 * 64 * 160 * 16 / 4096 = 80 cycles, 1 * 2 * 4 = 8 instructions
    assert cycles(64, 320, 64) == 8 * 80 + 60
    # swapped: tile_n 128 are two blocks of 64 rows, n = 16: 8 flop cycles, (64 + 16) * 32 / 128 = 20 for the operands
    assert cycles(16, 128, 64, swap_ab=True) == 8 * 20 + 60


def test_chain_of_a_step(hw):
    def cycles(problem=LARGE, **config):
        return float(costs_of(problem, GemmConfig(128, 128, 64, stages=3, **config), hw).chain_cycles[0])

    assert (cycles(kernel="cp_async"), cycles(kernel="tma_persistent")) == (200, 300)
    # specialised: B row by row comes in boxes of 64 rows of k, which two CTAs along m halve; A's rows have k along them
    assert cycles() == cycles(cluster_n=4) == 160
    assert cycles(cluster_m=2) == cycles(cluster_m=2, cluster_n=2) == 100
    turned = replace(LARGE, layout_b="column")
    assert cycles(turned) == 100
    assert cycles(replace(turned, layout_a="column")) == 160
    assert cycles(replace(turned, layout_a="column"), cluster_n=2) == 100


def test_mma_sync_by_hand(hw):
    # 32x64x64 on 4 warps (2 x 2): each k-step reads (32 * 2 + 64 * 2) * 128 B and writes (32 + 64) * 128 B of shared
    # memory, 36864 B at 128 = 288 cycles, and 10 more as any in-order step; its 2 * 32 * 64 * 64 flop at half of 4096 a
    # cycle would take 128
    config = GemmConfig(32, 64, 64, stages=3, warps=4, kernel="cp_async")
    assert costs_of(LARGE, config, hw).tensor_cycles == 298
    # one warp: it reads each operand once: (32 + 64) * 128 * 2 B at 128 = 192
    one = GemmConfig(32, 64, 64, stages=3, warps=1, kernel="cp_async")
    assert register_step_cycles(plan_of(LARGE, one), hw) == 192


def test_lookups_by_hand():
    # A 128 * 64 * 2 = 16 KiB, B 32 KiB; shares 1 and a quarter
    assert stage_lookups(plan_of(LARGE, GemmConfig(128, 256, 64, stages=4)), np.ones(1), np.array([0.25])) == 24576


BULK, POINTER = GemmConfig(128, 256, 64, stages=4), GemmConfig(128, 128, 64, stages=3, kernel="cp_async")


def test_fill_by_hand(hw):
    # bulk loads: 150 ns, 350 more from DRAM, and 48 KiB at 128 B a ns = 384 ns
    def fill(config, **how):
        return float(costs_of(LARGE, config, hw, **how).fill_s[0])

    assert fill(BULK) == pytest.approx((150 + 350 + 384) * 1e-9)
    assert fill(BULK, resident=1.0) == pytest.approx((150 + 384) * 1e-9)
    assert fill(BULK, resident=0.25) == pytest.approx((150 + 0.75 * 350 + 384) * 1e-9)
    # cp.async: 32 KiB at 100 B a ns
    assert fill(POINTER) == pytest.approx((150 + 350 + 327.68) * 1e-9)


@pytest.mark.parametrize(
    ("k", "row_ns"),
    # pitch of A: a multiple of 128, 64, 32, 16 bytes
    [(4096, 0.5), (4096 + 32, 1.25), (4096 + 16, 2.0), (4096 + 8, 4.0)],
)
def test_bulk_copies_of_unaligned_rows_by_hand(hw, k, row_ns):
    # A's 128 rows of 128 B hold the engine for their time each, B's 256 rows of 128 B for half a ns
    costs = costs_of(Gemm(4096, 4096, k), BULK, hw)
    assert costs.copy_s == pytest.approx((128 * row_ns + 256 * 0.5) * 1e-9)
    # a row comes at 1 ns at best; slower ones delay the fill by as much as they are slower
    assert costs.fill_bytes_s == pytest.approx((384 + 128 * max(row_ns - 1, 0)) * 1e-9)


def test_bulk_copies_of_an_unaligned_b_and_of_clusters(hw):
    # n = 4104: rows of B at a pitch of 8208 B
    assert costs_of(Gemm(4096, 4104, 4096), BULK, hw).copy_s == pytest.approx((64 + 256 * 4) * 1e-9)
    # B column by column has rows of k elements
    columns = Gemm(4096, 4104, 4096, layout_b="column")
    assert costs_of(columns, BULK, hw).copy_s == pytest.approx((64 + 128) * 1e-9)
    # two CTAs along m share B: each copies half of it; two along n share A
    assert costs_of(LARGE, replace(BULK, cluster_m=2), hw).copy_s == pytest.approx((64 + 64) * 1e-9)
    assert costs_of(LARGE, replace(BULK, cluster_n=2), hw).copy_s == pytest.approx((32 + 128) * 1e-9)


def test_pointer_loads_of_unaligned_rows_by_hand(hw):
    # rows at a pitch of 32 B: half of the rate for A's 16 KiB
    costs = costs_of(Gemm(4096, 4096, 4096 + 16), POINTER, hw)
    assert costs.fill_bytes_s == pytest.approx((2 * 163.84 + 163.84) * 1e-9)
    assert costs.copy_s == 0


def test_rows_outside_the_matrix_by_hand(hw):
    def outside(problem, config=BULK, rounds=1.0):
        return float(outside_rows_s(plan_of(problem, config), np.array([100.0]), np.array([rounds]), hw)[0])

    # 1250 x 1280: 10 x 5 tiles of 128x256 at once. The 5 of the last row stick out by 30 rows, one box of 64 elements
    # deep, and share 5 rows a ns: 1 ns a row
    assert outside(Gemm(1250, 1280, 4096)) == pytest.approx(30 * 1e-9)
    # of 1184 columns the last of 5 x 256 has 96 more, one whole box of 64, tile_k = 64 rows of it in 10 tiles: 2 ns each
    assert outside(Gemm(1280, 1184, 4096)) == pytest.approx(64 * 2e-9)
    # both: 5 tiles have 30 rows and 10 have 64, 790 in all at 5 a ns; the corner's 94 alone would take 47 ns to 564 ns
    assert outside(Gemm(1250, 1184, 4096)) == pytest.approx(158e-9)
    # 31 of 32 columns of tiles stick out by 27 rows: 31 * 27 + 64 rows, and the corner's 91 half a ns each at least
    assert outside(Gemm(101, 8128, 4096)) == pytest.approx((32 * 27 + 64) / 5 * 1e-9)
    # 6 ns at most: 40 x 1 tiles share 8 ns
    assert outside(Gemm(5120, 160, 4096)) == pytest.approx(64 * 6e-9)
    # half a ns, as of rows inside, at least: one tile alone
    assert outside(Gemm(100, 256, 4096)) == pytest.approx(28 * 0.5e-9)
    # 16 x 16 tiles on 100 slots: 16 stick out, 3.2 ns a row; of its 3 tiles the busiest slot has one
    assert outside(Gemm(2020, 4096, 4096), rounds=3.0) == pytest.approx(28 * 3.2e-9 / 3)
    assert outside(Gemm(4096, 4064, 4096)) == outside(LARGE) == 0
    # k contiguous in B: 32 columns of C too many are 32 rows, in 32 tiles: 6.4 ns, at most 6 each
    assert outside(Gemm(4096, 4064, 4096, layout_b="column")) == pytest.approx(32 * 6e-9)
    # three rows of tiles in clusters of two along m: a fourth, wholly outside, has 128 rows in 5 tiles, at 5 a ns
    assert outside(Gemm(384, 1280, 4096), replace(BULK, cluster_m=2)) == pytest.approx(128e-9)
    # two along n share them
    assert outside(Gemm(1250, 1024, 4096), replace(BULK, cluster_n=2)) == pytest.approx(30 * 0.5e-9)
    assert outside(Gemm(4000, 4000, 4096), POINTER) == 0


def test_scalar_loads_by_hand(hw):
    def cycles(problem, **config):
        return float(costs_of(problem, replace(POINTER, **config), hw).issue_cycles[0])

    # a stride that 16 elements do not divide: 128 * 64 elements of A, of B or of both at 4 a cycle
    assert cycles(LARGE) == 0
    assert cycles(Gemm(4096, 4096, 4104)) == 2048
    assert cycles(Gemm(4096, 4104, 4096)) == 2048
    assert cycles(Gemm(4096, 4104, 4104)) == 4096
    # with registers spilled at 2 a cycle
    assert cycles(Gemm(4096, 4104, 4104), spills=100) == 8192
    assert cycles(Gemm(4096, 4104, 4104), spills=0) == 4096
    # m strides only the columns of a column-major A
    assert cycles(Gemm(4100, 4096, 4096)) == 0
    assert cycles(Gemm(4100, 4096, 4096, layout_a="column")) == 2048
    # bulk loads issue no elements
    assert costs_of(Gemm(4096, 4104, 4104), BULK, hw).issue_cycles == 0


ODD = Gemm(4096, 4104, 4104)
TINY = GemmConfig(16, 64, 64, stages=3, kernel="cp_async")


@pytest.mark.parametrize(
    ("name", "config", "problem"),
    [
        ("loop.step_specialized_cycles", BULK, LARGE),
        ("loop.step_in_order_cycles", POINTER, LARGE),
        ("loop.chain_cp_async_cycles", POINTER, LARGE),
        ("loop.mma_sync_rate_share", TINY, LARGE),
        ("sm.smem_bandwidth_bytes_per_cycle", BULK, LARGE),
        ("fill.latency_l2_s", BULK, LARGE),
        ("fill.latency_dram_extra_s", BULK, LARGE),
        ("fill.cp_async_bytes_per_s", POINTER, LARGE),
        ("fill.tma_bytes_per_s", BULK, LARGE),
        ("fill.row_128_s", BULK, LARGE),
        ("fill.row_16_s", BULK, ODD),
        ("fill.cp_async_unaligned_share", POINTER, ODD),
        ("fill.scalar_elements_per_cycle", POINTER, ODD),
    ],
)
def test_a_missing_rate_refuses_by_name(hw, altered, name, config, problem):
    with pytest.raises(UnsupportedError, match=f"has no {name}") as caught:
        costs_of(problem, config, altered(hw, {name: None}))
    assert caught.value.field == name


def test_numbers_that_are_not_needed_may_be_missing(hw, altered):
    names = ["loop.mma_sync_rate_share", "loop.step_in_order_cycles", "loop.chain_cp_async_cycles"]
    names += ["fill.row_64_s", "fill.row_32_s", "fill.row_16_s", "fill.row_outside_s", "fill.cp_async_bytes_per_s"]
    names += ["fill.cp_async_unaligned_share", "fill.scalar_elements_per_cycle", "fill.spilled_elements_per_cycle"]
    without = altered(hw, dict.fromkeys(names))
    assert costs_of(LARGE, BULK, without).tensor_cycles > 0
