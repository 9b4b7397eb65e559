"""The closed form of a GEMM's period against the search over orders, and bodies in which actions compete."""

import random
import time
from statistics import median

import numpy as np
import pytest

from tilesight import Gemm, GemmConfig
from tilesight.cost.gemm_body import gemm_body
from tilesight.cost.occupancy import cluster_sms
from tilesight.cost.orders import find_schedule
from tilesight.cost.price import Situation, price
from tilesight.errors import PlanError
from tilesight.kernels.gemm import gemm_plan
from tilesight.kernels.gemm_config import GemmColumns
from tilesight.search import refusal_reasons

KERNELS = ("cp_async", "tma_persistent", "warp_specialized")


def batches(gpu, count, seed):
    """Random legal launches priced together, one batch for each kernel family."""
    rng = random.Random(seed)
    for kernel in KERNELS:
        problems, configs = [], []
        for _ in range(count):
            sizes = (rng.choice([64, 256, 1024, 4096, 8192, 5008]) for _ in range(3))
            problems.append(Gemm(*sizes))
            tile = (rng.choice([64, 128, 256]), rng.choice([16, 64, 128, 256]), rng.choice([32, 64, 128]))
            cluster = rng.choice([1, 2]) if kernel == "warp_specialized" else 1
            configs.append(
                GemmConfig(
                    *tile,
                    stages=rng.randint(1, 7),
                    warps=rng.choice([4, 8]),
                    kernel=kernel,
                    group_m=rng.choice([1, 4, 8]),
                    cluster_m=cluster,
                )
            )
        columns = GemmColumns.of(problems, configs)
        refused = refusal_reasons(columns, gpu, gpu.sm_count)
        legal = columns[np.array([row for row in range(count) if row not in refused])]
        slots = cluster_sms(legal.cluster_m * legal.cluster_n, float(gpu.sm_count), gpu)
        situation = Situation(rng.choice(["warm", "cold"]), np.asarray(rng.choice([1e-4, 1.0])))
        yield price(gemm_plan(legal, slots), gpu, situation)


def one(gpu, config, problem=None):
    columns = GemmColumns.of([problem or Gemm(4096, 4096, 4096)], [config])
    slots = cluster_sms(columns.cluster_m * columns.cluster_n, float(gpu.sm_count), gpu)
    return price(gemm_plan(columns, slots), gpu, Situation("warm", np.asarray(1.0)))


@pytest.mark.parametrize("tail", [False, True], ids=["full rounds", "tail"])
def test_the_closed_form_is_what_the_search_finds(gpu, tail):
    found, bound_by = 0, set()
    for priced in batches(gpu, 100, seed=1):
        period = priced.tail if tail else priced.full
        for row in range(len(priced.plan)):
            schedule = find_schedule(gemm_body(priced, row, gpu, tail=tail))
            assert schedule.optimal
            assert schedule.period_s == pytest.approx(period.seconds[row], rel=1e-9)
            found += 1
            bound_by |= {step.reason for step in schedule.critical}
    assert found > 150
    assert {"ring", "tensor", "l2"} <= bound_by


@pytest.mark.parametrize("rotated", [False, True], ids=["program order", "rotated"])
def test_residents_by_themselves_take_the_same_time(gpu, rotated):
    several = 0
    for priced in batches(gpu, 40, seed=2):
        for row in range(len(priced.plan)):
            schedule = find_schedule(gemm_body(priced, row, gpu, each_cta=True), rotated=rotated)
            assert schedule.period_s == pytest.approx(priced.full.seconds[row], rel=1e-9)
            several += priced.waves.per_sm[row] > 1
    assert several > 10


def test_convert_with_one_slot_by_hand(hw):
    # one CTA, one slot: fill, convert and product in series. A stage of 128 x 64 and 64 x 256 in 2 bytes is 48 KiB;
    # reading and writing the A tile of 16 KiB at 128 B a cycle takes 256 cycles
    priced = one(hw, GemmConfig(128, 256, 64, stages=1, kernel="tma_persistent"))
    plain, converting = (
        find_schedule(gemm_body(priced, 0, hw, convert_bytes=bytes_)) for bytes_ in (0.0, 128 * 64 * 2.0)
    )
    fill = priced.costs.fill_latency_s[0] + priced.costs.fill_bytes_s[0]
    product = priced.costs.tensor_cycles[0] / priced.full.clock_hz[0]
    assert plain.period_s == pytest.approx(fill + product)
    assert converting.period_s == pytest.approx(fill + product + 256 / priced.full.clock_hz[0])
    assert converting.optimal
    assert "convert" in {step.source for step in converting.critical}


def test_the_port_of_shared_memory_by_hand(hw):
    # deep rings: the port writes 48 KiB, reads and writes all of it again, and feeds 8 instructions of 64 + 256 rows,
    # 32 B each: 384 + 768 + 640 cycles
    priced = one(hw, GemmConfig(128, 256, 64, stages=4))
    body = gemm_body(priced, 0, hw, convert_bytes=48 * 1024.0)
    assert find_schedule(body).bounds.resource_s["smem"] * priced.full.clock_hz[0] == pytest.approx(384 + 768 + 640)


def test_a_store_takes_its_share_of_engine_and_l2_by_hand(hw):
    # a tile of 128 x 256 in 2 bytes over 64 k-steps: 1 KiB a step, 8 rows of 128 B at 0.5 ns on the engine; 100 SMs
    # store 100 KiB at 5 TB/s
    priced = one(hw, GemmConfig(128, 256, 64, stages=3, kernel="tma_persistent"))
    plain, storing = (gemm_body(priced, 0, hw, store=store) for store in (False, True))
    before, after = (find_schedule(body).bounds.resource_s for body in (plain, storing))
    assert after["tma"] - before["tma"] == pytest.approx(4e-9)
    assert after["l2"] - before["l2"] == pytest.approx(100 * 1024 / 5e12)
    assert after["tensor"] == before["tensor"]


def test_competing_actions_reach_the_bound_or_say_why_not(gpu):
    at_bound, above = 0, 0
    for priced in batches(gpu, 40, seed=3):
        stage = priced.plan.demands["load"].global_bytes
        store = bool(np.all(priced.plan.launch.persistent))
        for row in range(len(priced.plan)):
            body = gemm_body(priced, row, gpu, convert_bytes=float(stage[row]), store=store)
            schedule = find_schedule(body)
            assert schedule.optimal
            assert priced.full.seconds[row] <= schedule.period_s * (1 + 1e-9)
            if schedule.period_s <= schedule.bounds.largest_s * (1 + 1e-9):
                at_bound += 1
            else:
                above += 1
                assert len({step.reason for step in schedule.critical}) > 1
    assert at_bound > 2 * above > 0


def test_a_body_takes_less_than_5_ms(hw):
    priced = one(hw, GemmConfig(128, 256, 64, stages=4))
    times = []
    for _ in range(20):
        begin = time.process_time()
        find_schedule(gemm_body(priced, 0, hw, convert_bytes=1024.0, store=True))
        times.append(time.process_time() - begin)
    assert median(times) < 5e-3


def test_what_a_kernel_does_not_do_is_refused(hw):
    pointer = one(hw, GemmConfig(128, 128, 64, stages=3, kernel="cp_async"))
    with pytest.raises(PlanError, match=r"gemm.cp_async is not persistent: it stores when its loop has ended"):
        gemm_body(pointer, 0, hw, store=True)
    with pytest.raises(PlanError, match="convert_bytes = 1000000.0; a stage has 32768 B"):
        gemm_body(pointer, 0, hw, convert_bytes=1e6)
