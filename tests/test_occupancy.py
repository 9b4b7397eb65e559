from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilesight.cost.occupancy import CLUSTER_ARCHITECTURES, LIMITERS, cluster_sms, occupancy, registers_per_cta, waves
from tilesight.errors import ConfigError, UnsupportedError
from tilesight.hardware.load import load_profile
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
        dependent_read_bytes=0 * one,
        dependent_written_bytes=0 * one,
        earlier_kernels=0 * one,
        earlier_read_bytes=0 * one,
        earlier_written_bytes=0 * one,
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


@pytest.mark.parametrize(
    ("numbers", "launch", "why"),
    [
        # 32 warps * 128 registers * 32 lanes = 131072, twice what there is
        (
            {},
            {"threads": 1024, "registers": 128},
            "by registers: its 1024 threads of 128 registers take 131072, and sm.registers = 65536",
        ),
        (
            {"sm.threads_max": 256},
            {"threads": 384, "registers": 32},
            "by threads: it has 384, and sm.threads_max = 256",
        ),
        (
            {"sm.smem_bytes": 65536, "sm.smem_per_cta_max_bytes": 64512},
            {"smem_bytes": 65000, "registers": 32},
            "by shared memory: it takes 65000 bytes and 1024 reserved ones, and sm.smem_bytes = 65536",
        ),
    ],
)
def test_a_cta_that_does_not_fit(hw, altered, numbers, launch, why):
    with pytest.raises(ConfigError, match=f"^no CTA fits on an SM of h200_sxm {why}; take a smaller tile$"):
        occupancy(launch_of(**launch), altered(hw, numbers))


def test_the_first_that_does_not_fit_is_named(hw):
    many = launch_of(registers=np.array([32, 255, 255]), threads=np.array([256, 512, 1024]), smem_bytes=np.zeros(3))
    many = replace(many, persistent=np.zeros(3, dtype=bool))
    with pytest.raises(ConfigError, match="^configuration 1: no CTA fits .* by registers: its 512 threads of 255"):
        occupancy(many, hw)


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

    def fitting(launch):
        try:
            return resident(hw, **launch)[0]
        except ConfigError:
            return 0

    assert fitting(more) <= fitting(few)


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
        # the profile's 48 clusters of 2, 20 of 4, 10 of 8 and 4 of 16, not 50, 25, 12 and 6
        (2, 100, 96),
        (4, 100, 80),
        (8, 100, 80),
        (16, 100, 64),
        # half the SMs: half the clusters
        (2, 50, 48),
        (4, 50, 40),
        # no number for 3: clusters of 3 use the 80 SMs of clusters of 4, floor(80 / 3) = 26 of them
        (3, 100, 78),
        (3, 50, 39),  # floor(40 / 3) = 13
        (6, 100, 78),  # floor(80 / 6) = 13
        (9, 100, 63),  # floor(64 / 9) = 7
        # at least one cluster
        (4, 4, 4),
        (2, 3, 2),
    ],
)
def test_clusters_by_hand(hw, cluster, sms, slots):
    assert cluster_sms(np.array([float(cluster)]), float(sms), hw) == slots
    assert rounds_of(hw, 1000, cluster=cluster, sms=sms).slots == slots


def test_a_batch_mixes_cluster_sizes(hw):
    assert cluster_sms(np.array([4.0, 1.0, 2.0]), 100.0, hw).tolist() == [80, 100, 96]


@pytest.mark.parametrize(
    ("removed", "size", "field", "why"),
    [
        ((16,), 9, 16, "its largest cluster has 8 CTAs"),
        ((16,), 16, 16, "its largest cluster has 8 CTAs"),
        ((8, 16), 8, 8, "its largest cluster has 4 CTAs"),
        ((4, 8, 16), 3, 4, "its largest cluster has 2 CTAs"),
        ((2, 4, 8, 16), 2, 2, "it knows no clusters"),
        ((2, 4, 8, 16), 3, 4, "it knows no clusters"),
    ],
)
def test_larger_clusters_than_are_known_are_refused(hw, altered, removed, size, field, why):
    poor = altered(hw, {f"gpc.max_active_clusters.{each}": None for each in removed})
    match = f"^profile 'h200_sxm' has no gpc.max_active_clusters.{field} for clusters of {size} CTAs, {why}; measure it"
    with pytest.raises(UnsupportedError, match=match) as caught:
        cluster_sms(np.array([1.0, float(size)]), 100.0, poor)
    assert caught.value.field == f"gpc.max_active_clusters.{field}"
    assert cluster_sms(np.ones(1), 100.0, poor) == 100  # one CTA is no cluster


def test_no_cluster_has_more_than_16_ctas(hw):
    with pytest.raises(ConfigError, match="a cluster of 18 CTAs; the largest has 16"):
        cluster_sms(np.array([18.0]), 100.0, hw)


def test_a_size_between_takes_the_next_larger(hw, altered):
    # without 2: the 80 SMs of clusters of 4, 40 clusters; never more than the GPU holds of the size itself
    assert cluster_sms(np.array([2.0]), 100.0, altered(hw, {"gpc.max_active_clusters.2": None})) == 80
    # gb200 has 36 clusters of 4 = 144 of 152 SMs, which hold its clusters of 3 too, and 76 of 2
    assert cluster_sms(np.array([2.0, 3.0, 4.0]), 152.0, load_profile("gb200")).tolist() == [152, 144, 144]


def test_gpus_without_clusters_place_ctas_anywhere():
    a100 = load_profile("a100_sxm")
    assert a100.architecture not in CLUSTER_ARCHITECTURES
    assert cluster_sms(np.array([1.0, 2.0]), 108.0, a100).tolist() == [108, 108]


@given(st.integers(1, 16), st.integers(1, 132))
def test_clusters_hold_no_more_than_there_is(h200, size, sms):
    held = cluster_sms(np.array([float(size)]), float(sms), h200)[0]
    assert held % size == 0
    assert held <= max(sms, size)
    assert held <= cluster_sms(np.array([float(size)]), float(sms + 1), h200)[0]
