"""What a vendor library draws from, by GPU: tiles, stages, clusters, splits of k.

A library ships some hundreds of kernels a GPU and picks by shape. The space below holds the sizes such kernels come in:

- rows of the instruction along m or, with ``swap_ab``, along n, whatever wastes less of a small side;
- 64 to 384 along its rows and any multiple of 8 up to 256 along its columns (the names of the library's kernels in
  ``validation/records/h200_sxm/vendor_gemm.csv`` have 8, 16, 24, ... 208, 224, 288), the product at most 128 x 320 on Hopper
  (accumulators of two warpgroups), 256 x 256 on tensor memory, 128 x 256 through registers;
- tile_k of one 128-byte row, as many stages as shared memory holds, up to 8;
- clusters of two along either side where the GPU has clusters, one CTA otherwise; two CTAs to an instruction too where
  there are such instructions;
- splits of k that fill the SMs at most twice and leave 4 k-steps a part.

Products whose A is quantised row by row first are CUTLASS kernels of serving libraries: no split, since the epilogue scales
whole sums, and a tile by m alone, 64 x 64 or 64 x 128 up to m = 64, 64 x 128 up to 128, 128 x 128 beyond (256 x 128 too if
an instruction has 128 rows); always 128 x 128 on sm_120 (the dispatch described in sgl-project/sglang#33216, #25532 and
pytorch/pytorch#155991); on sm_89 any tile.

Where bulk copies can't read a row (a pitch that is no multiple of 16 bytes), and on GPUs whose instructions take operands
from registers, pointer kernels take their place, in the sizes that the names of such library kernels show
(``…s16816gemm…128x64…``, ``cutlass_80_wmma…32x32_128x2``): sides of 64, 128 and 256, and 16 x 16 and 32 x 32 tiles with a
deep k; two to five stages.
"""

from collections.abc import Iterator
from functools import cache

from tilesight.dtypes import dtype
from tilesight.hardware.profile import Profile
from tilesight.kernels.gemm_config import MAX_SIZE, Gemm, GemmColumns, GemmConfig
from tilesight.kernels.gemm_legal import TENSOR_MEMORY_COLUMNS, TMA_PITCH_BYTES, pitch_bytes
from tilesight.kernels.instructions import MatrixFamily, matrix_family

STEP_SIDES = tuple(range(8, 257, 8))
"""The side of a tile that the instruction has columns along."""
ROW_SIDES = (64, 128, 192, 256, 320, 384)
"""The side that it has rows along."""
SPLITS = (1, 2, 3, 4, 6, 8, 12, 16, 24)
KSTEPS_PER_SPLIT = 4
STAGES_MAX = 8
ROW_BYTES = 128
RESERVED_SMEM_BYTES = 8192
"""Barriers, descriptors and what an epilogue keeps beside the ring."""
AREA_MAX = {"wgmma": 128 * 320, "tcgen05": 256 * 256, "mma_sync": 128 * 256, "mfma": 128 * 256}
TILE_ROWS = 64
_BY_ROWS = {64: ((64, 64), (64, 128)), 128: ((64, 128),), 256: ((128, 128),)}
ROW_SCALED_TILES: dict[str, dict[int, tuple[tuple[int, int], ...]]] = {
    "sm_90": _BY_ROWS | {MAX_SIZE: ((128, 128),)},
    "sm_100": _BY_ROWS | {MAX_SIZE: ((128, 128), (256, 128))},
    "sm_103": _BY_ROWS | {MAX_SIZE: ((128, 128), (256, 128))},
    "sm_120": {MAX_SIZE: ((128, 128),)},
}
"""Tiles of products of rows quantised first, by the largest m that takes them; elsewhere all."""
POINTER_SIDES = (64, 128, 256)
POINTER_SMALL = (16, 32)
POINTER_SMALL_K_BYTES = 256


@cache
def _config(
    tile_m: int,
    tile_n: int,
    tile_k: int,
    stages: int,
    warps: int,
    kernel: str,
    cluster: tuple[int, int],
    swap: bool,
    split: int,
    pair: bool = False,
) -> GemmConfig:
    """One configuration; the same sizes give the same object."""
    return GemmConfig(
        tile_m,
        tile_n,
        tile_k,
        stages,
        warps=warps,
        kernel=kernel,  # type: ignore[arg-type]
        cluster_m=cluster[0],
        cluster_n=cluster[1],
        swap_ab=swap,
        split_k=split,
        cta_pair=pair,
    )


def _splits(problem: Gemm, tiles: int, tile_k: int, sms: int) -> Iterator[int]:
    """Splits worth trying for so many tiles."""
    ksteps = -(-problem.k // tile_k)
    for split in (1,) if problem.quantise_a else SPLITS:
        if split == 1 or (tiles * problem.batch * split <= 2 * sms and ksteps >= KSTEPS_PER_SPLIT * split):
            yield split


def _bulk_tiles(family: MatrixFamily) -> Iterator[tuple[int, int, bool]]:
    """Tiles of specialised kernels: (tile_m, tile_n, swap_ab)."""
    least = min(family.rows, TILE_ROWS)
    sides = {(m, n) for m in STEP_SIDES for n in ROW_SIDES} | {(m, n) for m in ROW_SIDES for n in STEP_SIDES}
    for tile_m, tile_n in sorted(sides):
        if tile_m * tile_n > AREA_MAX[family.name]:
            continue
        if (
            family.in_tensor_memory
            and min(tile_m, tile_n) > family.rows
            and max(tile_m, tile_n) > TENSOR_MEMORY_COLUMNS / 2
        ):
            continue
        if tile_m % least == 0 and tile_n % family.column_step == 0:
            yield tile_m, tile_n, False
        elif tile_n % least == 0 and tile_m % family.column_step == 0:
            yield tile_m, tile_n, True


def _row_scaled_tiles(problem: Gemm, hardware: Profile) -> tuple[tuple[int, int], ...] | None:
    """Tiles of products whose rows are quantised first; None where any may be taken."""
    if not problem.quantise_a or hardware.architecture not in ROW_SCALED_TILES:
        return None
    return next(sizes for most, sizes in ROW_SCALED_TILES[hardware.architecture].items() if problem.m <= most)


def _fits(problem: Gemm, tile_m: int, tile_n: int) -> bool:
    """Whether a tile is not twice as large as the problem along a side."""
    return tile_m < 2 * max(problem.m, 16) and tile_n < 2 * max(problem.n, 64)


def gemm_candidates(problem: Gemm, hardware: Profile) -> list[GemmConfig]:
    """Configurations of a problem that a vendor library has on a GPU, by the module's rules.

    Raises
    ------
    UnsupportedError
        If the GPU has no instructions for the problem's type.

    Examples
    --------
    >>> from tilesight import load_profile
    >>> found = gemm_candidates(Gemm(4096, 4096, 4096), load_profile("h200_sxm"))
    >>> GemmConfig(128, 256, 64, stages=4, cluster_m=2) in found
    True
    """
    kind = dtype(problem.dtype)
    family = matrix_family(hardware.architecture, kind.name)
    tile = GemmConfig(TILE_ROWS, TILE_ROWS, ROW_BYTES, stages=2)
    pitches = pitch_bytes(GemmColumns.of([problem], [tile], family))
    bulk = family.from_smem and all(pitch[0] % TMA_PITCH_BYTES == 0 for pitch in pitches)
    return list(_bulk(problem, hardware, family) if bulk else _pointer(problem, hardware))


def _bulk(problem: Gemm, hardware: Profile, family: MatrixFamily) -> Iterator[GemmConfig]:
    kind = dtype(problem.dtype)
    tile_k = ROW_BYTES * 8 // kind.bits
    available = hardware.sm.smem_per_cta_max_bytes - RESERVED_SMEM_BYTES
    row_scaled = _row_scaled_tiles(problem, hardware)
    tiles = _bulk_tiles(family) if row_scaled is None else ((tile_m, tile_n, False) for tile_m, tile_n in row_scaled)
    for tile_m, tile_n, swap in tiles:
        stages = min(STAGES_MAX, int(available / ((tile_m + tile_n) * tile_k * kind.bytes_per_element)))
        if stages < 2 or (row_scaled is None and not _fits(problem, tile_m, tile_n)):
            continue
        tiles_m, tiles_n = -(-problem.m // tile_m), -(-problem.n // tile_n)
        rows = tile_n if swap else tile_m
        warps = 8 if rows >= 2 * TILE_ROWS else 4
        clusters = [(1, 1)]
        clusters += [(2, 1)] if tiles_m > 1 else []
        clusters += [(1, 2)] if tiles_n > 1 else []
        for split in _splits(problem, tiles_m * tiles_n, tile_k, hardware.sm_count):
            for cluster in clusters:
                yield _config(tile_m, tile_n, tile_k, stages, warps, "warp_specialized", cluster, swap, split)
                if family.in_tensor_memory and rows % family.rows == 0 and cluster[swap] == 2:
                    staged = tile_m + tile_n - (tile_m if swap else tile_n) / 2
                    deeper = min(STAGES_MAX, int(available / (staged * tile_k * kind.bytes_per_element)))
                    yield _config(tile_m, tile_n, tile_k, deeper, warps, "warp_specialized", cluster, swap, split, True)


def _pointer_tiles(bits: int) -> Iterator[tuple[int, int, int]]:
    """Tiles of pointer kernels: (tile_m, tile_n, tile_k)."""
    for tile_m in POINTER_SIDES:
        for tile_n in POINTER_SIDES:
            if tile_m * tile_n <= AREA_MAX["mma_sync"]:
                yield tile_m, tile_n, ROW_BYTES * 4 // bits
                yield tile_m, tile_n, ROW_BYTES * 8 // bits
    for side in POINTER_SMALL:
        yield side, side, POINTER_SMALL_K_BYTES * 8 // bits


def _pointer(problem: Gemm, hardware: Profile) -> Iterator[GemmConfig]:
    kind = dtype(problem.dtype)
    available = hardware.sm.smem_per_cta_max_bytes
    row_scaled, deep = _row_scaled_tiles(problem, hardware), ROW_BYTES * 8 // kind.bits
    sizes = (
        _pointer_tiles(kind.bits) if row_scaled is None else ((tile_m, tile_n, deep) for tile_m, tile_n in row_scaled)
    )
    for tile_m, tile_n, tile_k in sizes:
        stages = min(5, int(available / ((tile_m + tile_n) * tile_k * kind.bytes_per_element)))
        if stages < 2:
            continue
        warps = 8 if tile_m * tile_n >= 128 * 128 else 4 if tile_m >= TILE_ROWS else 1
        tiles = -(-problem.m // tile_m) * -(-problem.n // tile_n)
        for split in _splits(problem, tiles, tile_k, hardware.sm_count):
            yield _config(tile_m, tile_n, tile_k, stages, warps, "cp_async", (1, 1), False, split)
