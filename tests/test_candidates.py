"""Candidate spaces: which kernels each GPU and each problem get."""

from dataclasses import replace

import numpy as np
import pytest

from tilesight import Gemm, GemmConfig, load_profile, predict, rank
from tilesight.candidates import gemm_candidates
from tilesight.errors import ConfigError, UnsupportedError
from tilesight.kernels.gemm import gemm_plan
from tilesight.kernels.gemm_config import GemmColumns
from tilesight.kernels.instructions import matrix_family

LARGE = Gemm(4096, 4096, 4096)


def tiles(found):
    return {(config.tile_m, config.tile_n) for config in found}


@pytest.mark.parametrize(
    ("gpu", "kernel"),
    [
        ("h200_sxm", "warp_specialized"),
        ("b200_sxm", "warp_specialized"),
        ("a100_sxm", "cp_async"),
        ("l40s", "cp_async"),
    ],
)
def test_kernels_by_gpu(gpu, kernel):
    assert {config.kernel for config in gemm_candidates(LARGE, load_profile(gpu))} == {kernel}


def test_a_stage_row_is_128_bytes(h200):
    assert {config.tile_k for config in gemm_candidates(LARGE, h200)} == {64}
    assert {config.tile_k for config in gemm_candidates(Gemm(4096, 4096, 4096, dtype="fp8"), h200)} == {128}


def test_rows_that_bulk_copies_can_not_read_get_pointer_kernels(h200):
    # 4100 elements of 2 B are no multiple of 16 B
    assert {config.kernel for config in gemm_candidates(Gemm(4096, 4096, 4100), h200)} == {"cp_async"}


@pytest.mark.parametrize(
    ("gpu", "m", "expected"),
    [
        ("h200_sxm", 64, {(64, 64), (64, 128)}),
        ("h200_sxm", 65, {(64, 128)}),
        ("h200_sxm", 129, {(128, 128)}),
        ("h200_sxm", 8192, {(128, 128)}),
        ("b200_sxm", 8192, {(128, 128), (256, 128)}),
        ("rtx_pro_6000_server", 1, {(128, 128)}),
    ],
)
def test_products_of_quantised_rows_have_a_tile_by_m_and_no_split(gpu, m, expected):
    found = gemm_candidates(Gemm(m, 4096, 4096, dtype="fp8", layout_b="column", quantise_a=True), load_profile(gpu))
    assert tiles(found) == expected
    assert {config.split_k for config in found} == {1}


def test_formats_a_gpu_lacks_are_refused():
    with pytest.raises(UnsupportedError, match="sm_80 has no fp8 matrix instructions"):
        gemm_candidates(Gemm(64, 64, 64, dtype="fp8"), load_profile("a100_sxm"))


def test_two_ctas_to_an_instruction():
    b200 = load_profile("b200_sxm")
    paired = [config for config in gemm_candidates(LARGE, b200) if config.cta_pair]
    assert GemmConfig(128, 256, 64, stages=6, cluster_m=2, cta_pair=True) in paired
    assert all((config.cluster_n if config.swap_ab else config.cluster_m) == 2 for config in paired)
    single = GemmConfig(128, 256, 64, stages=4, cluster_m=2)
    alone, pair = (
        gemm_plan(GemmColumns.of([LARGE], [config], matrix_family("sm_100", "bf16")), slots=np.array([148.0]))
        for config in (single, replace(single, cta_pair=True))
    )
    # 128 rows of A and 256 columns of B, 64 deep, 2 B: 16 KiB and 32 KiB; the pair stages 16 KiB of B each
    assert (alone.demands["load"].global_bytes, pair.demands["load"].global_bytes) == (49152, 32768)
    # an instruction reads 128 + 256 rows, or 128 + 128
    assert (alone.demands["mma"].matrix.read_rows, pair.demands["mma"].matrix.read_rows) == (384, 256)
    # both ask for the same and share B
    assert alone.access.multicast_b == pair.access.multicast_b == 2
    slow, fast = (
        predict(LARGE, config, hardware=b200, cache="cold") for config in (single, replace(single, cta_pair=True))
    )
    assert slow.lookup_bytes == fast.lookup_bytes
    assert fast.smem_bytes < slow.smem_bytes
    assert fast.seconds <= slow.seconds


@pytest.mark.parametrize(
    ("gpu", "config", "message"),
    [
        ("h200_sxm", GemmConfig(128, 128, 64, stages=3, cluster_m=2, cta_pair=True), "cta_pair is for tcgen05"),
        ("b200_sxm", GemmConfig(128, 128, 64, stages=3, cta_pair=True), "cluster of 1x1: two CTAs"),
        ("b200_sxm", GemmConfig(128, 128, 64, stages=3, cluster_n=2, cta_pair=True), "cluster of 1x2: two CTAs"),
        ("b200_sxm", GemmConfig(64, 128, 64, stages=3, cluster_m=2, cta_pair=True), "whole instructions of 128 rows"),
    ],
)
def test_pairs_that_do_not_exist(gpu, config, message):
    with pytest.raises(ConfigError, match=message):
        predict(LARGE, config, hardware=gpu)


def test_rows_are_judged_as_the_kernel_reads_them(h200):
    # A column by column is transposed first, and then has rows of 1009 bytes
    found = gemm_candidates(Gemm(256, 1024, 1009, dtype="fp8", layout_a="column"), h200)
    assert {config.kernel for config in found} == {"cp_async"}
    assert len(rank(Gemm(256, 1024, 1009, dtype="fp8", layout_a="column"), hardware=h200)) > 0


def test_one_sm_has_candidates_without_clusters(h200):
    best = rank(LARGE, hardware=h200, sms=1).best
    assert best.cluster_m * best.cluster_n == 1


def test_clusters_that_a_gpu_does_not_know_are_pruned_one_by_one():
    configs = [GemmConfig(64, 64, 64, 3), GemmConfig(64, 64, 64, 3, cluster_m=16)]
    ranking = rank(LARGE, configs, hardware="gb200")
    assert ranking.configs == (configs[0],)
    ((config, reason),) = ranking.pruned
    assert config == configs[1]
    assert "cluster" in reason


def test_an_old_output_is_read(h200):
    config = GemmConfig(128, 128, 64, stages=4)
    new, old = (predict(Gemm(8192, 8192, 128, beta=beta), config, hardware=h200, cache="cold") for beta in (0.0, 1.0))
    size = 8192 * 8192 * 2
    assert old.dram_read_bytes - new.dram_read_bytes == pytest.approx(size)
    assert old.lookup_bytes - new.lookup_bytes == pytest.approx(size)
    assert old.seconds > new.seconds


@pytest.mark.parametrize(
    ("gpu", "kind", "layouts", "kernels"),
    [
        ("h200_sxm", "fp8", ("row", "column"), 0),
        ("h200_sxm", "fp8", ("column", "row"), 2),
        ("h200_sxm", "bf16", ("column", "row"), 0),
        ("h200_sxm", "tf32", ("row", "row"), 0),
        ("h200_sxm", "tf32", ("column", "column"), 0),
        ("h200_sxm", "tf32", ("column", "row"), 1),
        ("l40s", "fp8", ("row", "row"), 1),
        ("b200_sxm", "fp8", ("row", "row"), 0),
        ("b200_sxm", "nvfp4", ("row", "row"), 1),
    ],
)
def test_layouts_that_instructions_do_not_take_are_transposed_first(gpu, kind, layouts, kernels):
    problem = Gemm(4096, 4096, 4096, dtype=kind, layout_a=layouts[0], layout_b=layouts[1])
    estimate = rank(problem, hardware=gpu, top=1)[0]
    assert (estimate.terms["preparation"] > 0) == (kernels > 0)
    assert any("transposed by a kernel" in text for text in estimate.assumptions) == (kernels > 0)
    hardware = load_profile(gpu)
    columns = GemmColumns.of([problem], [GemmConfig(128, 128, 128, 3)], matrix_family(hardware.architecture, kind))
    assert gemm_plan(columns, slots=np.array([100.0])).launch.earlier_kernels == kernels
