"""Candidate spaces: which kernels each GPU and each problem get."""

import pytest

from tilesight import Gemm, load_profile
from tilesight.candidates import gemm_candidates
from tilesight.errors import UnsupportedError

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
