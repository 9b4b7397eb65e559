import math
import time
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tilesight.errors import ConfigError, PlanError, ProfileError, UnknownProfileError, UnsupportedError
from tilesight.plan.access import Access
from tilesight.simulate import (
    Operand,
    Pace,
    Service,
    Stream,
    chip_of,
    own_regions,
    read_write_read,
    service_of,
    shared_region,
    simulate,
    tiled_product,
)

KIB = 1024
BLOCK = 16.0 * KIB
US = 1e-6
AT_ONCE = Service(near_s=0.0, far_s=0.0, dram_s=0.0, lookup_bytes_per_s=math.inf, dram_bytes_per_s=math.inf)


def access_of(m, n, k, tile_m=128, tile_n=128, group=8, **other):
    one = np.ones(1)
    sizes = {"m": m, "n": n, "k": k, "tile_m": tile_m, "tile_n": tile_n, "group": group, "tile_k": 64, "split": 1}
    sizes |= {"batch": 1, "element_bytes": 2, "output_bytes": 2, "multicast_a": 1, "multicast_b": 1}
    return Access(**{name: one * value for name, value in (sizes | other).items()})


@pytest.fixture(scope="session")
def chip(hw, altered):
    """Function that gives a GPU of so many SMs, GPCs, partitions and blocks of 16 KiB in L2."""

    @cache
    def make(sms=1, gpcs=1, partitions=1, blocks=4):
        numbers = {f"gpc.max_active_clusters.{size}": None for size in (2, 4, 8, 16)}
        numbers |= {"sm_count": sms, "gpc.count": gpcs, "tensor.bf16.rate_peak_flop_per_s": sms * 8.192e12}
        return altered(hw, numbers | {"l2.partitions": partitions, "l2.capacity_bytes": int(blocks * BLOCK)})

    return make


def run(stream, hardware, **options):
    usual = {"slots": hardware.sm_count, "stages": 1, "step_s": US, "window_s": 0.0, "service": AT_ONCE}
    return simulate(stream, hardware, **(usual | options))


def sequence(*tiles, writes=()):
    """One CTA that touches one tile a step, in this order; steps in ``writes`` store theirs."""
    sizes = np.full(1, BLOCK)
    operands = tuple(
        Operand("x", np.array([tile]), sizes, first=step, count=1, writes=step in writes)
        for step, tile in enumerate(tiles)
    )
    return Stream(operands, np.array([len(tiles)]), np.zeros(1))


def test_capacity_by_hand(chip):
    # a region of 4 blocks read twice, in a cache of 4: 4 misses of 8 lookups
    found = run(own_regions(1, 4, BLOCK, passes=2), chip(blocks=4))
    assert (found.dram_read_bytes, found.lookup_bytes, found.hit_rate) == (4 * BLOCK, 8 * BLOCK, 0.5)
    # of 5 blocks in a cycle the least recently used is always the next
    found = run(own_regions(1, 5, BLOCK, passes=2), chip(blocks=4))
    assert (found.dram_read_bytes, found.hit_rate) == (10 * BLOCK, 0)
    assert (found.crossing_bytes, found.dram_write_bytes) == (0, 0)


def test_least_recently_used_goes_first(chip):
    # 0 1 2 3 fill the cache, 0 is used again, 4 takes the place of 1, and 0 hits
    assert run(sequence(0, 1, 2, 3, 0, 4, 0), chip(blocks=4)).dram_read_bytes == 5 * BLOCK
    # then 1 misses, in place of 2
    assert run(sequence(0, 1, 2, 3, 0, 4, 0, 1, 3), chip(blocks=4)).dram_read_bytes == 6 * BLOCK
    # copies are used as the homes beside them are: 5 blocks cross once
    found = run(sequence(0, 1, 2, 3, 0, 4, 0), chip(partitions=2, blocks=8))
    assert (found.dram_read_bytes, found.crossing_bytes) == (5 * BLOCK, 2.5 * BLOCK)
    # A home is used by whoever crosses to it. Of 0 to 7 all far homes stay, and near only 4 to 7: 16 halves. 0 crosses
    # (1), 8 is new (2) and ends 1 in the far partition; near, 6 7 0 8 are left. 5, 6 and 7 cross and end 0 near (3);
    # 0 crosses again and is still there (1): 23 halves
    found = run(sequence(0, 1, 2, 3, 4, 5, 6, 7, 0, 8, 5, 6, 7, 0), chip(partitions=2, blocks=8))
    assert found.dram_read_bytes == 11.5 * BLOCK


def test_one_reader_holds_a_block_one_and_a_half_times(chip):
    # two partitions of 64 KiB; one SM: of each block 8 KiB in its own partition, 8 in the other, 8 copied to its own.
    # 4 blocks fill its own: the second pass hits. 64 KiB of misses and 32 of crossings, of 128 + 32 asked
    found = run(own_regions(1, 4, BLOCK, passes=2), chip(partitions=2, blocks=8))
    assert (found.dram_read_bytes, found.crossing_bytes) == (4 * BLOCK, 2 * BLOCK)
    assert found.hit_rate == pytest.approx(1 - (64 + 32) / (128 + 32))
    # of 5 its own partition loses homes and copies each time; the other one, with 40 of 64 KiB, keeps its homes
    found = run(own_regions(1, 5, BLOCK, passes=2), chip(partitions=2, blocks=8))
    assert (found.dram_read_bytes, found.crossing_bytes) == ((5 + 2.5) * BLOCK, 5 * BLOCK)


def test_two_sides_hold_a_block_twice(chip):
    two_sides = chip(sms=2, gpcs=2, partitions=2, blocks=8)
    # both SMs read 4 blocks: each side misses or crosses for its far half, 8 KiB; the second side finds all homes
    found = run(shared_region(2, 4, BLOCK), two_sides)
    assert (found.dram_read_bytes, found.crossing_bytes, found.lookup_bytes) == (4 * BLOCK, 4 * BLOCK, 8 * BLOCK)
    assert found.hit_rate == pytest.approx(1 - (64 + 64) / (128 + 64))
    # 4 blocks of 2 copies fill 128 KiB exactly; the 5th is one too many
    assert run(shared_region(2, 4, BLOCK, passes=3), two_sides).dram_read_bytes == 4 * BLOCK
    assert run(shared_region(2, 5, BLOCK, passes=3), two_sides).dram_read_bytes > 5 * BLOCK
    # an L2 of four partitions: a quarter of a block is at home, three quarters cross
    found = run(shared_region(1, 4, BLOCK), chip(partitions=4, blocks=64))
    assert (found.dram_read_bytes, found.crossing_bytes) == (4 * BLOCK, 3 * BLOCK)


def test_requests_of_a_gpc_share_a_lookup(chip):
    def lookups(sms, gpcs, requests):
        found = run(shared_region(sms, 2, BLOCK), chip(sms=sms, gpcs=gpcs, blocks=64), requests=requests)
        assert found.requested_bytes == sms * 2 * BLOCK
        return found.lookup_bytes / (2 * BLOCK)

    assert lookups(sms=2, gpcs=1, requests=4) == 1
    assert lookups(sms=2, gpcs=2, requests=4) == 2
    assert lookups(sms=2, gpcs=1, requests=1) == 2
    assert lookups(sms=5, gpcs=1, requests=4) == 2
    assert lookups(sms=8, gpcs=2, requests=2) == 4


def test_sides_decide_what_crosses(chip):
    # SMs in GPCs 0 and 1 of four: on one side by halves, where half of each block crosses, on both by parity
    four = chip(sms=4, gpcs=4, partitions=2, blocks=64)
    stream = shared_region(2, 4, BLOCK)
    assert run(stream, four, slots=2).crossing_bytes == 2 * BLOCK
    assert run(stream, four, slots=2, sides="parity").crossing_bytes == 4 * BLOCK


@pytest.mark.parametrize(
    ("window_s", "dram_s", "lookups"), [(0.5 * US, 0.0, 2), (2 * US, 0.0, 1), (0.0, 0.5 * US, 2), (0.0, 3 * US, 1)]
)
def test_a_request_is_open_for_a_window_or_until_it_arrives(chip, window_s, dram_s, lookups):
    # one SM reads the block in its first step, the other in its second, 1 us later
    operands = (
        Operand("x", np.zeros(2, dtype=int), np.array([BLOCK, 0.0]), first=0, count=1),
        Operand("x", np.zeros(2, dtype=int), np.array([0.0, BLOCK]), first=1, count=1),
    )
    stream = Stream(operands, np.array([2, 2]), np.zeros(2))
    service = replace(AT_ONCE, dram_s=dram_s)
    found = run(stream, chip(sms=2, blocks=8), window_s=window_s, service=service)
    assert found.lookup_bytes == lookups * BLOCK
    assert found.dram_read_bytes == BLOCK


def test_write_back_by_hand(chip):
    # 5 blocks written into room for 4: the first goes to DRAM, the rest stay dirty; nothing is read, all hits
    stream = Stream((), np.ones(5, dtype=int), np.full(5, BLOCK))
    found = run(stream, chip(blocks=4))
    assert (found.dram_write_bytes, found.dirty_after_bytes, found.dram_read_bytes) == (BLOCK, 4 * BLOCK, 0)
    assert (found.lookup_bytes, found.written_bytes, found.hit_rate) == (5 * BLOCK, 5 * BLOCK, 1)
    # half of what is written crosses to its home
    assert run(stream, chip(partitions=2, blocks=8)).crossing_bytes == 2.5 * BLOCK
    # 4 blocks read and 1 written, of 4 + 1 lookups and 2 + 1/2 crossings: 4 + 2 miss
    found = run(own_regions(1, 4, BLOCK, output_bytes=BLOCK), chip(partitions=2, blocks=64))
    assert found.hit_rate == pytest.approx(1 - 6 / 7.5)
    # read clean blocks are dropped without a write
    assert run(own_regions(1, 9, BLOCK), chip(blocks=4)).dram_write_bytes == 0


def test_written_blocks_are_read_from_l2(chip):
    # x is read, y written and read: DRAM gives x alone
    found = run(read_write_read(2, 4, BLOCK), chip(sms=2, blocks=64))
    assert (found.dram_read_bytes, found.lookup_bytes, found.dram_write_bytes) == (8 * BLOCK, 24 * BLOCK, 0)
    # ... but where 4 blocks fit, x2 y2 x3 y3 are left. Reading y0 y1 y2 evicts x2 y2 x3, and y3 hits: 3 misses beside
    # the 4 of x; y0, y1 and y2 have been written to DRAM, y3 is still dirty
    found = run(read_write_read(1, 4, BLOCK), chip(blocks=4))
    assert (found.dram_read_bytes, found.dram_write_bytes, found.dirty_after_bytes) == (7 * BLOCK, 3 * BLOCK, BLOCK)
    # read, written, read: the copy beside the reader has ended, and the far half crosses again; half the write too
    found = run(sequence(0, 0, 0, writes=(1,)), chip(partitions=2, blocks=8))
    assert (found.read_crossing_bytes, found.crossing_bytes, found.dram_read_bytes) == (BLOCK, 1.5 * BLOCK, BLOCK)


def test_time_by_hand(chip):
    one, stream = chip(blocks=8), own_regions(1, 4, BLOCK)
    slow = replace(AT_ONCE, dram_s=US)
    # ring of one: 1 us of load and 1 of step, in series
    assert run(stream, one, service=slow).seconds == pytest.approx(8 * US)
    # ring of two: only the first load shows
    assert run(stream, one, service=slow, stages=2).seconds == pytest.approx(5 * US)
    # DRAM that gives a block in 1 us: the last arrives at 4 us, its step takes a quarter
    narrow = replace(AT_ONCE, dram_bytes_per_s=BLOCK / US)
    assert run(stream, one, service=narrow, stages=4, step_s=US / 4).seconds == pytest.approx(4.25 * US)
    # all four steps as one block: as its last bytes arrive, its last step is still to come
    coarse = run(stream, one, service=narrow, stages=4, step_s=US / 4, steps_per_block=4)
    assert coarse.seconds == pytest.approx(4.25 * US)
    narrow = replace(AT_ONCE, lookup_bytes_per_s=BLOCK / US)
    assert run(stream, one, service=narrow, stages=4, step_s=US / 4).seconds == pytest.approx(4.25 * US)
    # a block of four and one of one step take five
    assert run(own_regions(1, 5, BLOCK), one, steps_per_block=4).seconds == pytest.approx(5 * US)
    # half of a block from afar
    far = replace(AT_ONCE, near_s=US / 4, far_s=US / 2)
    two = chip(partitions=2, blocks=64)
    assert run(own_regions(1, 1, BLOCK, passes=2), two, service=far).seconds == pytest.approx(2.75 * US)


def test_who_waits_for_whom_by_hand(chip):
    # a write passes the lookups before the read behind it: 2 us, then its step
    narrow = replace(AT_ONCE, lookup_bytes_per_s=BLOCK / US)
    options = dict(stages=9, step_s=US / 10)
    found = run(sequence(0, 1, writes=(0,)), chip(blocks=8), service=narrow, **options)
    assert found.seconds == pytest.approx(2.1 * US)
    # 8 blocks written into room for 4: 4 us of DRAM before the read, which takes 1
    narrow = replace(AT_ONCE, dram_bytes_per_s=BLOCK / US)
    found = run(sequence(*range(9), writes=range(8)), chip(blocks=4), service=narrow, **options)
    assert found.seconds == pytest.approx(5.1 * US)
    # a block on its way from DRAM for another GPC is a hit, but no sooner there: 1 us, then 2 steps
    operand = Operand("x", np.zeros(2, dtype=int), np.full(2, BLOCK), count=1)
    both = Stream((operand,), np.array([1, 2]), np.zeros(2))
    found = run(both, chip(sms=2, gpcs=2, blocks=8), service=replace(AT_ONCE, dram_s=US))
    assert (found.lookup_bytes, found.dram_read_bytes) == (2 * BLOCK, BLOCK)
    assert found.seconds == pytest.approx(3 * US)
    # 64 tiles of a step, each late by sqrt(3) us on average
    found = run(own_regions(64, 1, BLOCK), chip(blocks=8), pace=Pace(start_spread_s=US))
    assert found.seconds == pytest.approx(64 * (1 + math.sqrt(3)) * US, rel=0.1)


def test_tiles_go_to_whoever_is_free_or_to_their_slot(chip):
    # tiles of 4, 1, 1, 1 steps on two slots: one by one they end after 4 us; dealt out, slot 0 has 4 + 1
    two = chip(sms=2, blocks=64)
    tiles = Operand("x", np.arange(4), np.full(4, BLOCK))
    stream = Stream((tiles,), np.array([4, 1, 1, 1]), np.zeros(4))
    assert run(stream, two).seconds == pytest.approx(4 * US)
    assert run(stream, two, persistent=True).seconds == pytest.approx(5 * US)
    assert run(stream, two, persistent=True, tile_s=US).seconds == pytest.approx(6 * US)
    assert run(stream, two, slots=1).seconds == pytest.approx(7 * US)
    # two CTAs on one SM
    assert run(stream, chip(blocks=64), slots=2, ctas_per_sm=2).seconds == pytest.approx(4 * US)


def test_resident_shares_by_hand(chip):
    two = chip(sms=2, blocks=64)
    stream = own_regions(2, 4, BLOCK, output_bytes=BLOCK)
    assert run(stream, two, resident={"x": 1.0}).dram_read_bytes == 0
    assert run(stream, two, resident={"x": 0.5, "output": 1.0}).dram_read_bytes == 4 * BLOCK
    assert run(stream, two, resident={"x": 0.25}).dram_read_bytes == 6 * BLOCK
    # in its homes alone: the far half crosses once
    found = run(stream, chip(sms=2, partitions=2, blocks=64), resident={"x": 1.0})
    assert (found.dram_read_bytes, found.read_crossing_bytes) == (0, 4 * BLOCK)
    # a block of four steps and one of one fill a cache of five
    found = run(own_regions(1, 5, BLOCK), chip(blocks=5), resident={"x": 1.0}, steps_per_block=4)
    assert found.dram_read_bytes == 0
    # more than fits: the first to come are the first to go
    assert run(own_regions(1, 8, BLOCK), chip(blocks=4), resident={"x": 1.0}).dram_read_bytes == 8 * BLOCK


@pytest.mark.parametrize(("m", "n", "group"), [(512, 512, 2), (700, 900, 3), (1100, 300, 1), (384, 640, 10**6)])
def test_tiled_product_follows_the_raster(m, n, group):
    access = access_of(m, n, 200, group=group)
    stream = tiled_product(access)
    rows, columns = int(access.tiles_m[0]), int(access.tiles_n[0])
    walked = [
        (row, column)
        for first in range(0, rows, group)
        for column in range(columns)
        for row in range(first, min(first + group, rows))
    ]
    assert list(zip(*(operand.tile.tolist() for operand in stream.operands), strict=True)) == walked
    assert set(stream.steps.tolist()) == {4}  # 200 / 64
    assert stream.requested_bytes == pytest.approx(float(access.requested_bytes[0] + access.c_bytes[0]))
    assert stream.distinct_read_bytes == pytest.approx(float(access.a_bytes[0] + access.b_bytes[0]))


def test_parts_have_tiles_of_their_own():
    access = access_of(256, 384, 128, split=2, batch=3, output_bytes=4)
    stream = tiled_product(access)
    assert len(stream) == 6 * 6
    assert stream.operands[0].tile.tolist()[::6] == [0, 2, 4, 6, 8, 10]
    assert stream.distinct_read_bytes == float(access.a_bytes[0] + access.b_bytes[0])
    assert stream.written_bytes == float(access.c_bytes[0]) * 2


def test_multicast_loads_a_copy_once(chip):
    # 4 x 4 tiles in clusters of 2 x 2: an A tile of 32 KiB goes to both CTAs along n, a B tile to both along m
    access = access_of(512, 512, 128, multicast_a=2, multicast_b=2)
    stream = tiled_product(access)
    a, b = stream.operands
    assert (a.tile // 2).tolist()[:8] == [0, 1, 0, 1, 2, 3, 2, 3]
    assert (b.tile // 2).tolist()[:8] == [0, 0, 1, 1, 0, 0, 1, 1]
    assert stream.requested_bytes == float(access.requested_bytes[0] + access.c_bytes[0])
    found = run(stream, chip(sms=16, blocks=1000), requests=1)
    assert found.lookup_bytes == float(access.requested_bytes[0]) / 2 + float(access.c_bytes[0])
    assert found.dram_read_bytes == float(access.a_bytes[0] + access.b_bytes[0])
    # three columns of tiles: the CTA that fills up the cluster loads its half of A and stores nothing
    ragged = access_of(512, 300, 128, multicast_a=2)
    stream = tiled_product(ragged)
    assert (len(stream), stream.distinct_read_bytes) == (16, float(ragged.a_bytes[0] + ragged.b_bytes[0]))
    assert stream.written_bytes == float(ragged.c_bytes[0])


def test_lockstep_is_the_count_by_waves(chip):
    # 12 x 16 tiles, 32 at a time, k = 4096 in 64 steps. All fits: each operand byte once
    access = access_of(1536, 2048, 4096, group=4)
    stream = tiled_product(access)
    large = run(stream, chip(sms=32, gpcs=2, blocks=10_000), stages=3)
    assert large.dram_read_bytes == float(access.a_bytes[0] + access.b_bytes[0])
    # room for what is in flight and not for a wave's rows and columns: every wave reads its own anew, 1 MiB a tile
    waves = [[set(operand.tile[start : start + 32]) for operand in stream.operands] for start in range(0, 192, 32)]
    tiles = sum(len(rows) + len(columns) for rows, columns in waves)
    assert tiles == 6 * (4 + 8)
    small = run(stream, chip(sms=32, gpcs=2, blocks=100), stages=3)
    assert small.dram_read_bytes == tiles * KIB**2
    assert small.spread_steps == large.spread_steps == (0, 0, 0)
    # in lockstep, 4 neighbours that share a B tile look it up once; an A tile is shared by neighbours 4 apart
    assert large.lookup_bytes < stream.requested_bytes / 2


def test_drift_ends_merging_and_reads_again(chip):
    access = access_of(1536, 2048, 16384, group=4)
    stream, small = tiled_product(access), chip(sms=32, gpcs=4, blocks=100)
    still = run(stream, small, stages=3)
    found = [run(stream, small, stages=3, pace=Pace(gpc_spread=spread), seed=3) for spread in (0.01, 0.05)]
    assert still.dram_read_bytes < found[0].dram_read_bytes < found[1].dram_read_bytes
    # the spread grows in proportion to time, and to the difference in speed
    for each in found:
        low, middle, high = each.spread_steps
        assert 0 < low < middle < high
    assert found[1].spread_steps[0] == pytest.approx(5 * found[0].spread_steps[0], rel=0.1)
    # jitter of tiles ends merging inside a GPC
    jitter = run(stream, small, stages=3, pace=Pace(tile_jitter=0.02))
    assert jitter.lookup_bytes > 1.2 * still.lookup_bytes
    late = run(stream, small, stages=3, pace=Pace(start_spread_s=2 * US))
    assert late.lookup_bytes > 1.2 * still.lookup_bytes


def test_crowded_spread_needs_company(chip):
    stream, two = own_regions(8, 64, BLOCK), chip(sms=4, blocks=10_000)
    pace = Pace(crowded_spread=0.1)
    assert run(stream, two, pace=pace).spread_steps == (0, 0, 0)
    assert min(run(stream, two, slots=8, ctas_per_sm=2, pace=pace).spread_steps) > 0


def test_the_seed_decides(h200):
    stream = tiled_product(access_of(2048, 2048, 1024))
    options = dict(slots=132, stages=3, step_s=0.7 * US, pace=Pace(gpc_spread=0.02, tile_jitter=0.01))
    first, again, other = (simulate(stream, h200, seed=seed, **options) for seed in (1, 1, 2))
    assert first == again
    assert first.seconds != other.seconds


def test_closed_requests_may_be_forgotten(h200, monkeypatch):
    stream = tiled_product(access_of(4096, 4096, 512))
    options = dict(slots=132, stages=3, step_s=0.7 * US, pace=Pace(gpc_spread=0.02))
    kept = simulate(stream, h200, **options)
    monkeypatch.setattr("tilesight.simulate.advance.OPEN_MOST", 16)
    assert simulate(stream, h200, **options) == kept


@pytest.mark.parametrize("steps_per_block", [2, 4, 8])
def test_coarse_blocks_move_the_same_bytes(h200, altered, steps_per_block):
    # k = 8192 at a drift that reads again what a small L2 has lost: 3 % of bytes, 1 % of time
    small = altered(h200, {"l2.capacity_bytes": 10 * KIB**2})
    stream = tiled_product(access_of(2816, 3072, 8192))
    options = dict(slots=132, stages=4, step_s=0.7 * US, pace=Pace(gpc_spread=0.03, tile_jitter=0.002))
    fine = simulate(stream, small, **options)
    coarse = simulate(stream, small, steps_per_block=steps_per_block, **options)
    assert fine.dram_read_bytes > 1.2 * stream.distinct_read_bytes
    for name in ("requested_bytes", "written_bytes"):
        assert getattr(coarse, name) == getattr(fine, name)
    assert coarse.dram_read_bytes == pytest.approx(fine.dram_read_bytes, rel=0.03)
    assert coarse.lookup_bytes == pytest.approx(fine.lookup_bytes, rel=0.03)
    assert coarse.seconds == pytest.approx(fine.seconds, rel=0.01)


@pytest.mark.parametrize("steps_per_block", [1, 4, 16])
def test_a_saturated_server_sets_the_pace(chip, steps_per_block):
    # 8 SMs ask for 64 steps of 16 KiB each at twice what DRAM gives: 8 us a step
    narrow = replace(AT_ONCE, dram_bytes_per_s=BLOCK / US)
    stream = own_regions(8, 64, BLOCK)
    options = dict(service=narrow, stages=4, step_s=4 * US, steps_per_block=steps_per_block)
    found = run(stream, chip(sms=8, blocks=64), **options)
    assert found.seconds == pytest.approx(64 * 8 * US, rel=0.05)


@pytest.mark.parametrize("server", ["lookup_bytes_per_s", "dram_bytes_per_s"])
@pytest.mark.parametrize("steps_per_block", [1, 4, 16])
def test_a_server_with_room_delays_nobody(chip, server, steps_per_block):
    # 8 SMs ask for 64 steps of 16 KiB, a step every 8 us, of a server that could give twice as much. Filling all rings
    # at once takes it 16 us, 3 % of the run
    service = replace(AT_ONCE, **{server: 2 * BLOCK / US})
    options = dict(service=service, stages=4, step_s=8 * US, steps_per_block=steps_per_block)
    found = run(own_regions(8, 64, BLOCK), chip(sms=8, blocks=64), **options)
    assert found.seconds == pytest.approx(64 * 8 * US, rel=0.04)


def test_a_wave_of_a_product_is_fast(h200):
    # 132 CTAs, 4 waves, 64 steps: about 0.3 s
    stream = tiled_product(access_of(22 * 128, 24 * 128, 4096))
    taken = []
    for _ in range(3):
        start = time.perf_counter()
        simulate(stream, h200, slots=132, stages=3, step_s=0.7 * US, pace=Pace(gpc_spread=0.0045))
        taken.append(time.perf_counter() - start)
    assert min(taken) < 1.5


@st.composite
def streams(draw, writes=True):
    ctas, tiles = draw(st.integers(1, 6)), draw(st.integers(1, 4))
    operands = []
    for name in ("x", "y")[: draw(st.integers(1, 2))]:
        tile = np.array(draw(st.lists(st.integers(0, tiles - 1), min_size=ctas, max_size=ctas)))
        period = draw(st.sampled_from([None, 1, 2, 3]))
        stores = writes and draw(st.booleans())
        operands.append(Operand(name, tile, np.full(ctas, draw(st.sampled_from([BLOCK, BLOCK / 4]))), period=period))
        if stores:
            operands.append(replace(operands[-1], first=draw(st.integers(0, 4)), count=2, writes=True))
    steps = np.array(draw(st.lists(st.integers(1, 6), min_size=ctas, max_size=ctas)))
    return Stream(tuple(operands), steps, np.full(ctas, draw(st.sampled_from([0.0, BLOCK]))))


paces = st.builds(
    Pace,
    gpc_spread=st.sampled_from([0.0, 0.01, 0.3]),
    tile_jitter=st.sampled_from([0.0, 0.2]),
    start_spread_s=st.sampled_from([0.0, US]),
)
sizes = st.sampled_from([4, 5, 8, 64])
partitions = st.sampled_from([1, 2, 4])


@given(streams(), paces, sizes, partitions, st.integers(1, 4), st.sampled_from([1, 4]), st.booleans())
def test_bytes_are_conserved(chip, stream, pace, blocks, parts, stages, requests, persistent):
    hardware = chip(sms=4, gpcs=2, partitions=parts, blocks=blocks)
    service = Service(near_s=0.1 * US, far_s=0.2 * US, dram_s=US, lookup_bytes_per_s=1e12, dram_bytes_per_s=1e11)
    found = run(stream, hardware, pace=pace, stages=stages, requests=requests, persistent=persistent, service=service)
    slack = 1 + 1e-9
    reads = found.lookup_bytes - found.written_bytes
    assert found.requested_bytes * slack >= found.lookup_bytes
    assert reads * slack >= stream.distinct_read_bytes
    assert found.written_bytes == pytest.approx(stream.written_bytes)
    if requests == 1:
        assert found.lookup_bytes == pytest.approx(found.requested_bytes)
    if not any(operand.writes for operand in stream.operands):
        assert found.dram_read_bytes * slack >= stream.distinct_read_bytes
        assert found.dram_write_bytes + found.dirty_after_bytes == pytest.approx(found.written_bytes)
    assert found.dram_read_bytes <= reads * slack
    assert found.dram_write_bytes + found.dirty_after_bytes <= found.written_bytes * slack
    assert found.read_crossing_bytes <= reads * (1 - 1 / parts) * slack
    assert -1e-9 <= found.hit_rate <= 1
    assert found.seconds >= stream.steps.max() * US * (1 - 1e-9) or pace != Pace()
    assert all(spread >= 0 for spread in found.spread_steps)


@given(streams(), sizes, st.integers(1, 64), partitions)
def test_one_sm_never_reads_more_from_a_larger_cache(chip, stream, blocks, more, parts):
    small, large = (chip(partitions=parts, blocks=size) for size in (blocks, blocks + more))
    found = [run(stream, hardware, requests=1).dram_read_bytes for hardware in (small, large)]
    assert found[1] <= found[0] * (1 + 1e-9)


@given(streams(writes=False), st.sampled_from(["x", "y"]), st.sampled_from([0.25, 0.5, 1.0]))
def test_what_is_resident_is_not_read(chip, stream, name, share):
    assume(any(operand.tensor == name for operand in stream.operands))
    large = chip(sms=4, gpcs=2, partitions=2, blocks=4096)
    cold, warm = run(stream, large), run(stream, large, resident={name: share})
    assert cold.dram_read_bytes == pytest.approx(stream.distinct_read_bytes)
    assert warm.dram_read_bytes <= cold.dram_read_bytes
    everything = {operand.tensor: 1.0 for operand in stream.operands}
    assert run(stream, large, resident=everything).dram_read_bytes == 0


def test_sms_gpcs_and_sides(h200, altered):
    even = altered(h200, {"gpc.sms_per_gpc": None})
    chip = chip_of(even)
    assert (len(chip.gpc), chip.partitions) == (132, 2)
    # 16.5 SMs to a GPC: 0-16, 17-32, 33-49, …
    assert [chip.gpc.count(gpc) for gpc in range(8)] == [17, 16] * 4
    assert chip.side == (0, 0, 0, 0, 1, 1, 1, 1)
    assert chip_of(even, "parity").side == (0, 1) * 4
    known = altered(h200, {"gpc.sms_per_gpc": [16, 18, 16, 16, 16, 16, 16, 18]})
    assert chip_of("h200_sxm") == chip_of(h200)
    assert chip_of(known).gpc[15:35] == (0,) + (1,) * 18 + (2,)
    with pytest.raises(ConfigError, match="give 'halves' or 'parity'"):
        chip_of(h200, "left")
    with pytest.raises(UnsupportedError, match="sms_per_gpc"):
        chip_of(altered(h200, {"gpc.sms_per_gpc": [16, 16], "gpc.count": 2}))
    with pytest.raises(ProfileError, match="gpc.sms_per_gpc has 2 entries and gpc.count = 8; give an entry a GPC"):
        altered(h200, {"gpc.sms_per_gpc": [16, 16]})


def test_needs_its_numbers(h200, altered):
    stream = own_regions(1, 1, BLOCK)
    with pytest.raises(UnsupportedError, match="has no gpc.count"):
        simulate(stream, altered(h200, {"gpc.count": None, "gpc.sms_per_gpc": None}), slots=1, stages=1, step_s=US)
    for name in ("dram.latency_s", "l2.latency_near_s", "merging.window_l2_s", "merging.requests_async"):
        with pytest.raises(UnsupportedError, match=f"has no {name}"):
            simulate(stream, altered(h200, {name: None}), slots=1, stages=1, step_s=US)
    assert service_of(h200).dram_s == h200.require("dram.latency_s")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"slots": 0}, "slots = 0; give a whole number"),
        ({"slots": 3}, "slots = 3 on 2 SMs of 1"),
        ({"stages": 1.5}, "stages = 1.5; give a whole number"),
        ({"ctas_per_sm": True}, "ctas_per_sm = True"),
        ({"step_s": 0.0}, "step_s = 0.0; give seconds, 1e-15 to 1e"),
        ({"step_s": "fast"}, "step_s = 'fast'; give seconds"),
        ({"step_s": 1e300}, "step_s = 1e"),
        ({"step_s": math.nan}, "step_s = nan"),
        ({"tile_s": -1.0}, "tile_s = -1.0; give seconds, 0 to 1e"),
        ({"requests": 0}, "requests = 0"),
        ({"requests": 2.5}, "requests = 2.5; give a whole number, 1 or more"),
        ({"window_s": math.nan}, "window_s = nan"),
        ({"window_s": None, "requests": True}, "requests = True; give a whole number"),
        ({"persistent": 1}, "persistent = 1 is not True or False"),
        ({"seed": -1}, "seed = -1; give a whole number, 0 or more"),
        ({"seed": 1.5}, "seed = 1.5"),
        ({"seed": None}, "seed = None"),
        ({"pace": 0.01}, "pace = 0.01; give a Pace, or None"),
        ({"service": {"near_s": 0}}, "service = {'near_s': 0}; give a Service, or None"),
        ({"sides": ["halves"]}, "sides = \\['halves'\\]; give 'halves' or 'parity'"),
        ({"resident": 0.5}, "resident = 0.5; give shares by tensor"),
        ({"resident": {"x": "all"}}, "resident share of 'x' = 'all'; give a share, 0 to 1"),
        ({"resident": {5: 1.0}}, "resident = 5, but the stream has output, x"),
        ({"resident": {"x": 1.5}}, "resident share of 'x' = 1.5; give a share, 0 to 1"),
        ({"resident": {"z": 1.0}}, "resident = 'z', but the stream has output, x"),
        ({"steps_per_block": 3}, "period = 4 of operand 'x' is no multiple of steps_per_block = 3"),
    ],
)
def test_bad_arguments_are_refused(chip, options, message):
    with pytest.raises((ConfigError, PlanError), match=message):
        run(own_regions(2, 4, BLOCK, passes=2), chip(sms=2), **options)


def test_bad_streams_are_refused(chip):
    one, size = np.zeros(1, dtype=int), np.ones(1)
    with pytest.raises(PlanError, match="give a Stream"):
        run(access_of(1, 1, 1), chip())
    with pytest.raises(PlanError, match="moves no byte"):
        Stream((), np.ones(1, dtype=int), np.zeros(1))
    with pytest.raises(PlanError, match="has 2 CTAs, the stream 1"):
        Stream((Operand("x", np.zeros(2, dtype=int), np.ones(2)),), np.ones(1, dtype=int), np.zeros(1))
    with pytest.raises(PlanError, match="name of the output"):
        Stream((Operand("output", one, size),), np.ones(1, dtype=int), np.zeros(1))
    with pytest.raises(PlanError, match=r"tile 0 of 'x' has 1.0 and 2.0 bytes a step"):
        Stream((Operand("x", one, size), Operand("x", one, 2 * size)), np.ones(1, dtype=int), np.zeros(1))
    with pytest.raises(PlanError, match="steps holds"):
        Stream((Operand("x", one, size),), np.zeros(1, dtype=int), np.zeros(1))
    with pytest.raises(PlanError, match="step_bytes of operand 'x' holds"):
        Operand("x", one, np.array([math.nan]))
    with pytest.raises(PlanError, match="give whole numbers"):
        Operand("x", size, size)
    with pytest.raises(PlanError, match="period of operand 'x' = 0; give a whole number, 1 to"):
        Operand("x", one, size, period=0)
    with pytest.raises(PlanError, match="operand 'x' has 1 values of tile and 2 of step_bytes"):
        Operand("x", one, np.ones(2))
    with pytest.raises(PlanError, match="ctas = 0; give a whole number"):
        own_regions(0, 1, 1.0)
    with pytest.raises(PlanError, match="row = 1; give a whole number, -1 to 0"):
        tiled_product(access_of(1, 1, 1), row=1)
    for bad in (True, 0.5, "0"):
        with pytest.raises(PlanError, match="row = .* give a whole number"):
            tiled_product(access_of(1, 1, 1), row=bad)
    with pytest.raises(PlanError, match="access = 5; give an Access"):
        tiled_product(5)
    with pytest.raises(PlanError, match="k of row 0 = .*nan.*; give a finite number, 1 or more"):
        tiled_product(access_of(1, 1, math.nan))
    with pytest.raises(PlanError, match="100000000 CTAs; a stream has 10000000 at most"):
        tiled_product(access_of(1280000, 1280000, 64))
    for bad in ({"gpc_spread": -0.1}, {"tile_jitter": math.inf}):
        with pytest.raises(ConfigError, match="give a standard deviation"):
            Pace(**bad)
    for bad in ({"dram_s": -1.0}, {"lookup_bytes_per_s": 0.0}, {"dram_bytes_per_s": math.nan}):
        with pytest.raises(ConfigError, match="give"):
            replace(AT_ONCE, **bad)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"tensor": 5}, "tensor of an operand = 5; give a name"),
        ({"tensor": ""}, "give a name"),
        ({"tile": [-1]}, "tile of operand 'x' holds .* give 0 to 9999999"),
        ({"tile": [10_000_000]}, "tile of operand 'x' holds .* give 0 to 9999999"),
        ({"tile": [2**63]}, "give 0 to 9999999"),
        ({"tile": [True]}, "tile of operand 'x' has dtype bool; give whole numbers"),
        ({"tile": [0.0]}, "has dtype float64; give whole numbers"),
        ({"tile": [[0]]}, "has shape"),
        ({"tile": 0}, "has shape"),
        ({"tile": [[0], [0, 1]]}, "give one value for each CTA"),
        ({"tile": np.ma.masked_array([0], [True])}, "give whole numbers"),
        ({"step_bytes": ["1"]}, "step_bytes of operand 'x' has dtype <U1; give numbers"),
        ({"step_bytes": [1e300]}, "give finite values, 0 to 1e"),
        ({"step_bytes": [math.inf]}, "give finite values"),
        ({"first": 0.5}, "first of operand 'x' = 0.5"),
        ({"first": 2**70}, "first of operand 'x' = "),
        ({"count": True}, "count of operand 'x' = True"),
        ({"period": True}, "period of operand 'x' = True"),
        ({"copies": 1.5}, "copies of operand 'x' = 1.5; give a whole number"),
        ({"writes": 1}, "writes of operand 'x' = 1 is not True or False"),
    ],
)
def test_bad_operands_are_refused(given, message):
    with pytest.raises(PlanError, match=message):
        Operand(**{"tensor": "x", "tile": [0], "step_bytes": [1.0]} | given)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Stream(5, [1], [1.0]), "operands = 5; give a tuple of Operand"),
        (lambda: Stream(("x",), [1], [1.0]), "operands = .* give a tuple of Operand"),
        (lambda: Stream((), 5, [1.0]), "steps has shape"),
        (lambda: Stream((), [2**40], [1.0]), "steps holds .* give 1 to 1000000000"),
        (lambda: Stream((), [1], [1.0, 2.0]), "output_bytes has 2 values; give one for each of 1 CTAs"),
        (lambda: Stream((), [1], [1.0], output=None), "output = None; give a name"),
        (lambda: own_regions(10**30, 1, 1.0), "ctas = 1000"),
        (lambda: own_regions(1, 10**6, 1.0, passes=10**6), "passes = 1000000; give a whole number, 1 to 1000"),
        (lambda: shared_region(1, 1, "1"), "step_bytes = '1'; give bytes"),
        (lambda: shared_region(1, 1, 1.0, output_bytes=-1.0), "output_bytes = -1.0; give bytes"),
        (lambda: read_write_read(1, True, 1.0), "steps = True; give a whole number"),
    ],
)
def test_streams_of_another_kind_are_refused(make, message):
    with pytest.raises(PlanError, match=message):
        make()


def test_narrow_integers_do_not_wrap(chip):
    # tile 200 of 100 steps is block 20,000 and more: as uint8 it would be that of another tile
    wide, narrow = (
        Stream(
            [Operand("x", np.array([1, 200, 57], dtype), np.full(3, 64, size), count=np.int16(100))],
            np.full(3, 100, dtype),
            np.zeros(3, size),
        )
        for dtype, size in ((np.int64, float), (np.uint8, np.int8))
    )
    assert narrow.distinct_read_bytes == wide.distinct_read_bytes == 3 * 100 * 64
    assert (narrow.operands[0].tile.dtype, narrow.steps.dtype, narrow.output_bytes.dtype) == ("i8", "i8", "f8")
    assert run(narrow, chip()) == run(wide, chip())
    assert Stream((Operand("x", [0], [BLOCK]),), [4], [0.0]).requested_bytes == 4 * BLOCK


def test_profiles_by_name(h200):
    options = dict(slots=8, stages=2, step_s=US)
    stream = own_regions(8, 4, BLOCK)
    assert simulate(stream, "h200_sxm", **options) == simulate(stream, h200, **options)
    assert service_of("h200_sxm") == service_of(h200)
    with pytest.raises(UnknownProfileError, match="h200_sxm"):
        simulate(stream, "h200", **options)
    with pytest.raises(ProfileError, match="5 is no profile"):
        simulate(stream, 5, **options)


def test_one_partition_has_no_far_side(h200, altered):
    near = {"l2.latency_near_s": None, "l2.latency_far_s": None, "l2.latency_s": 2e-7}
    for partitions in (1, None):
        service = service_of(altered(h200, near | {"l2.partitions": partitions}))
        assert (service.near_s, service.far_s) == (2e-7, 2e-7)
    kept = service_of(altered(h200, {"l2.partitions": 1}))
    assert kept.near_s == h200.l2.latency_near_s
    with pytest.raises(UnsupportedError, match="has no l2.latency_near_s"):
        service_of(altered(h200, near))


@pytest.mark.parametrize("bad", ["fast", None, True, math.nan, 1e300, np.array([1.0])])
def test_paces_and_services_of_another_kind_are_refused(bad):
    with pytest.raises(ConfigError, match="gpc_spread = .* give a standard deviation, 0 to 10"):
        Pace(gpc_spread=bad)
    with pytest.raises(ConfigError, match="dram_s = .* give seconds, 0 to 1e"):
        replace(AT_ONCE, dram_s=bad)
    if bad != 1e300:
        with pytest.raises(ConfigError, match="lookup_bytes_per_s = .* give bytes per second"):
            replace(AT_ONCE, lookup_bytes_per_s=bad)
