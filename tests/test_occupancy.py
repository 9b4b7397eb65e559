import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilesight.cost.occupancy import LIMITERS, cluster_sms, occupancy, registers_per_cta, waves
from tilesight.plan.launch import Launch


def launch_of(threads=256, registers=128, smem_bytes=0, tiles=1, cluster=1, persistent=False):
    one = np.ones(1)
    return Launch(
        tiles=tiles * one,
        threads=threads * one,
        registers=registers * one,
        smem_bytes=smem_bytes * one,
        cluster=cluster * one,
        persistent=np.array([persistent]),
        device_descriptors=0 * one,
        dependent_kernels=0 * one,
        dependent_bytes=0 * one,
    )


def resident(hardware, **launch):
    found = occupancy(launch_of(**launch), hardware)
    return int(found.ctas_per_sm[0]), LIMITERS[found.limiter[0]]


def test_registers_are_given_to_warps_in_units_of_256(hw):
    # 33 registers * 32 lanes = 1056, 5 units of 256 = 1280 a warp; 8 warps; 40 registers fill the five units exactly
    registers = np.array([32.0, 33.0, 40.0, 41.0])
    assert registers_per_cta(registers, np.full(4, 256.0), hw).tolist() == [8192, 10240, 10240, 12288]
    # 100 threads are 4 warps
    assert registers_per_cta(np.array([32.0]), np.array([100.0]), hw) == 4096


@pytest.mark.parametrize(
    ("launch", "ctas", "limiter"),
    [
        # 65536 / 8192 = 8 CTAs of 256 threads and 32 registers, and 2048 / 256 = 8: registers are named first
        ({"registers": 32}, 8, "registers"),
        # 65536 / (41 -> 48 registers: 12288) = 5.3
        ({"registers": 41}, 5, "registers"),
        ({"registers": 255}, 1, "registers"),
        # 16 registers leave 16 CTAs; 2048 / 256 = 8
        ({"registers": 16}, 8, "threads"),
        ({"threads": 1024, "registers": 16}, 2, "threads"),
        # 32 threads: 64 by threads, 32 slots
        ({"threads": 32, "registers": 16}, 32, "CTA slots"),
        # 228 KiB / (56 KiB + 1 KiB reserved) = 4 exactly; one byte more and 3 fit
        ({"smem_bytes": 56 * 1024, "registers": 16}, 4, "shared memory"),
        ({"smem_bytes": 56 * 1024 + 1, "registers": 16}, 3, "shared memory"),
        # 227 KiB, the most a CTA can have, leave one
        ({"smem_bytes": 227 * 1024, "registers": 16}, 1, "shared memory"),
        ({"registers": 16, "persistent": True}, 1, "persistent grid"),
    ],
)
def test_by_hand(hw, launch, ctas, limiter):
    assert resident(hw, **launch) == (ctas, limiter)


def test_a_cta_that_does_not_fit(hw):
    assert resident(hw, threads=1024, registers=128) == (0, "registers")


@given(
    st.integers(1, 32),
    st.integers(16, 255),
    st.integers(0, 227 * 1024),
    st.sampled_from(["threads", "registers", "smem"]),
)
def test_asking_for_more_never_fits_more(hw, warps, registers, smem, which):
    few = {"threads": 32 * warps, "registers": registers, "smem_bytes": smem}
    more = dict(few)
    more["smem_bytes" if which == "smem" else which] += {"threads": 32, "registers": 1, "smem": 512}[which]
    assert resident(hw, **more)[0] <= resident(hw, **few)[0]


def rounds_of(hardware, tiles, ctas_per_sm=1, cluster=1, sms=None):
    launch = launch_of(tiles=tiles, cluster=cluster)
    found = occupancy(launch, hardware)
    fixed = type(found)(np.array([float(ctas_per_sm)]), found.limiter)
    return waves(launch, fixed, hardware, sms)


@pytest.mark.parametrize(
    ("tiles", "ctas_per_sm", "full", "tail", "tail_per_sm", "rounds"),
    [
        (1, 1, 0, 1, 1, 1),
        (100, 1, 1, 0, 0, 1),
        (101, 1, 1, 1, 1, 2),
        (250, 1, 2, 50, 1, 3),
        # 200 slots: 130 tiles put two on some SMs, 90 one on each
        (130, 2, 0, 130, 2, 1),
        (290, 2, 1, 90, 1, 2),
        (400, 2, 2, 0, 0, 2),
    ],
)
def test_waves_by_hand(hw, tiles, ctas_per_sm, full, tail, tail_per_sm, rounds):
    found = rounds_of(hw, tiles, ctas_per_sm)
    assert (found.full, found.tail, found.tail_per_sm, found.rounds) == (full, tail, tail_per_sm, rounds)
    assert found.slots == 100 * ctas_per_sm
    assert found.waves == pytest.approx(tiles / (100 * ctas_per_sm))


@given(st.integers(1, 10**6), st.integers(1, 32), st.integers(1, 100))
def test_waves_hold_every_tile_once(hw, tiles, ctas_per_sm, sms):
    found = rounds_of(hw, tiles, ctas_per_sm, sms=sms)
    assert found.full * found.slots + found.tail == tiles
    assert 0 <= found.tail < found.slots
    assert found.tail_per_sm <= ctas_per_sm
    assert np.ceil(found.waves) == found.rounds


@pytest.mark.parametrize(
    ("cluster", "sms", "slots"),
    [
        (1, 100, 100),
        # the profile's 48 clusters of 2 and 20 of 4, not 50 and 25
        (2, 100, 96),
        (4, 100, 80),
        # no number for 8: floor(100 / 8) = 12 clusters
        (8, 100, 96),
        # half the SMs: half the clusters
        (2, 50, 48),
        (4, 50, 40),
        (3, 100, 99),
    ],
)
def test_clusters_by_hand(hw, cluster, sms, slots):
    assert cluster_sms(np.array([float(cluster)]), float(sms), hw) == slots
    assert rounds_of(hw, 1000, cluster=cluster, sms=sms).slots == slots


def test_a_batch_mixes_cluster_sizes(hw):
    assert cluster_sms(np.array([4.0, 1.0, 2.0]), 100.0, hw).tolist() == [80, 100, 96]
