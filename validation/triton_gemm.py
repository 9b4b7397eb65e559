"""Two Triton bf16 matrix products, the pair every Triton row of our records was made with.

    C[m, n] = A[m, k] @ B[k, n]        bf16 in and out, fp32 accumulation, everything row-major

``ptr``  one CTA a tile, pointer loads (cp.async), offsets wrapped by modulo at the m and n edges, k masked
         only where k % tile_k != 0; C stored under a mask.
``tma``  persistent: CTA p of P computes tiles p, p + P, p + 2P, ...; A, B and C move through tensor descriptors, made on
         the device at kernel start (``host_descriptors=False``) or by the host; C is staged in shared memory.

Both walk the tiles in the same grouped raster: rows of tiles are cut in groups of ``group_m`` and a group is walked
column by column.

Shapes     A (m, k), B (k, n), C (m, n), contiguous rows; the pitch of B may exceed n
Launch     ptr: grid ceil(m / tile_m) * ceil(n / tile_n); tma: min(that, 132); 32 * warps threads
Traffic    2 B per element of A, B read at least once, of C written once
Work       2 * m * n * k flop                                    Bound  tensor, L2, ring or DRAM, by tile and shape
Checked    against a float64 product of the bf16 operands (``check_all``), C poisoned with NaN before each run
Reference  Tillet, Kung, Cox, Triton, MAPL (2019); the grouped raster is that of Triton's tutorial 3
Run        python3 validation/triton_gemm.py              prints one line per checked configuration and size
"""

from __future__ import annotations

from script import parsed, parser_of

if __name__ == "__main__":  # before PyTorch is imported, so that --help needs none
    parsed(parser_of(__doc__, folder=False))

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor
from triton_plans import CHECK_CONFIGS, CHECK_SIZES, SM_COUNT, Config

STAMP_FIELDS = 5  # begin cycle, begin ns, end cycle, end ns, SM id


@triton.jit
def _read_clocks():
    """SM cycle counter and global nanosecond timer, read here and now."""
    cycle = tl.inline_asm_elementwise("mov.u64 $0, %clock64;", "=l", [], dtype=tl.int64, is_pure=False, pack=1)
    time_ns = tl.inline_asm_elementwise("mov.u64 $0, %globaltimer;", "=l", [], dtype=tl.int64, is_pure=False, pack=1)
    return cycle, time_ns


@triton.jit
def _store_stamp(stamp_ptr, slot, cycle_begin, time_begin, cycle_end, time_end):
    sm = tl.inline_asm_elementwise("mov.u32 $0, %smid;", "=r", [], dtype=tl.int32, is_pure=False, pack=1)
    tl.store(stamp_ptr + slot * 5 + 0, cycle_begin)
    tl.store(stamp_ptr + slot * 5 + 1, time_begin)
    tl.store(stamp_ptr + slot * 5 + 2, cycle_end)
    tl.store(stamp_ptr + slot * 5 + 3, time_end)
    tl.store(stamp_ptr + slot * 5 + 4, sm.to(tl.int64))


@triton.jit
def _tile_row_col(tile, tiles_m, tiles_n, group_m: tl.constexpr):
    """Tile number -> (row, column) of the grouped raster."""
    tiles_in_group = group_m * tiles_n
    group = tile // tiles_in_group
    first_row = group * group_m
    rows = min(tiles_m - first_row, group_m)
    row = first_row + (tile % tiles_in_group) % rows
    col = (tile % tiles_in_group) // rows
    return row, col


@triton.jit
def gemm_ptr(
    a_ptr,
    b_ptr,
    c_ptr,
    stamp_ptr,
    m,
    n,
    k,
    pitch_a,
    pitch_b,
    pitch_c,
    tile_m: tl.constexpr,
    tile_n: tl.constexpr,
    tile_k: tl.constexpr,
    group_m: tl.constexpr,
    even_k: tl.constexpr,
    stamp: tl.constexpr,
):
    tile = tl.program_id(axis=0)
    if stamp:
        cycle_begin, time_begin = _read_clocks()
    row, col = _tile_row_col(tile, tl.cdiv(m, tile_m), tl.cdiv(n, tile_n), group_m)
    rows = (row * tile_m + tl.arange(0, tile_m)) % m
    cols = (col * tile_n + tl.arange(0, tile_n)) % n
    depth = tl.arange(0, tile_k)
    a_ptrs = a_ptr + rows[:, None] * pitch_a + depth[None, :]
    b_ptrs = b_ptr + depth[:, None] * pitch_b + cols[None, :]
    total = tl.zeros((tile_m, tile_n), dtype=tl.float32)
    for step in range(tl.cdiv(k, tile_k)):
        if even_k:
            a = tl.load(a_ptrs)
            b = tl.load(b_ptrs)
        else:
            a = tl.load(a_ptrs, mask=depth[None, :] < k - step * tile_k, other=0.0)
            b = tl.load(b_ptrs, mask=depth[:, None] < k - step * tile_k, other=0.0)
        total = tl.dot(a, b, total)
        a_ptrs += tile_k
        b_ptrs += tile_k * pitch_b
    c_rows = row * tile_m + tl.arange(0, tile_m)
    c_cols = col * tile_n + tl.arange(0, tile_n)
    c_ptrs = c_ptr + c_rows[:, None] * pitch_c + c_cols[None, :]
    tl.store(c_ptrs, total.to(tl.bfloat16), mask=(c_rows[:, None] < m) & (c_cols[None, :] < n))
    if stamp:
        cycle_end, time_end = _read_clocks()
        _store_stamp(stamp_ptr, tile, cycle_begin, time_begin, cycle_end, time_end)


@triton.jit
def _descriptor(desc_or_ptr, shape, strides, block_shape):
    """The descriptor itself when the host made it, else one built here."""
    if isinstance(desc_or_ptr, tl.tensor_descriptor):
        return desc_or_ptr
    else:
        return tl.make_tensor_descriptor(desc_or_ptr, shape, strides, block_shape)


@triton.jit
def gemm_tma(
    a_in,
    b_in,
    c_in,
    stamp_ptr,
    m,
    n,
    k,
    pitch_a,
    pitch_b,
    pitch_c,
    tile_m: tl.constexpr,
    tile_n: tl.constexpr,
    tile_k: tl.constexpr,
    group_m: tl.constexpr,
    flatten: tl.constexpr,
    stamp: tl.constexpr,
):
    start = tl.program_id(axis=0)
    programs = tl.num_programs(axis=0)
    if stamp:
        cycle_begin, time_begin = _read_clocks()
    a_desc = _descriptor(a_in, [m, k], [pitch_a, 1], [tile_m, tile_k])
    b_desc = _descriptor(b_in, [k, n], [pitch_b, 1], [tile_k, tile_n])
    c_desc = _descriptor(c_in, [m, n], [pitch_c, 1], [tile_m, tile_n])
    tiles_m = tl.cdiv(m, tile_m)
    tiles_n = tl.cdiv(n, tile_n)
    for tile in tl.range(start, tiles_m * tiles_n, programs, flatten=flatten):
        row, col = _tile_row_col(tile, tiles_m, tiles_n, group_m)
        total = tl.zeros((tile_m, tile_n), dtype=tl.float32)
        for step in range(tl.cdiv(k, tile_k)):
            a = a_desc.load([row * tile_m, step * tile_k])
            b = b_desc.load([step * tile_k, col * tile_n])
            total = tl.dot(a, b, total)
        c_desc.store([row * tile_m, col * tile_n], total.to(tl.bfloat16))
    if stamp:
        cycle_end, time_end = _read_clocks()
        _store_stamp(stamp_ptr, start, cycle_begin, time_begin, cycle_end, time_end)


_scratch = None


def _allocate_scratch(size_bytes: int, alignment: int, stream: int | None) -> torch.Tensor:
    """Device memory for descriptors made on the device; one buffer serves all launches, which run in stream order."""
    global _scratch
    if _scratch is None or _scratch.numel() < size_bytes:
        _scratch = torch.empty(max(size_bytes, 1 << 20), dtype=torch.int8, device="cuda")
    return _scratch


def launch(config: Config, a, b, c, stamps, *, stamped: bool = False, host_descriptors: bool = False):
    """Start one product on the current stream; returns Triton's compiled kernel (registers, spills, shared memory).

    ``a`` (m, k), ``b`` (k, n), ``c`` (m, n) bf16 with unit column stride; ``stamps`` int64, STAMP_FIELDS a CTA, written
    only when ``stamped``.
    """
    (m, k), n = a.shape, b.shape[1]
    tiles = -(-m // config.tile_m) * -(-n // config.tile_n)
    sizes = (m, n, k, a.stride(0), b.stride(0), c.stride(0))
    tile = dict(
        tile_m=config.tile_m,
        tile_n=config.tile_n,
        tile_k=config.tile_k,
        group_m=config.group_m,
        stamp=stamped,
        num_warps=config.warps,
        num_stages=config.stages,
    )
    if config.kernel == "ptr":
        return gemm_ptr[(tiles,)](a, b, c, stamps, *sizes, even_k=config.even_k, **tile)
    operands = (a, b, c)
    if host_descriptors:
        blocks = ([config.tile_m, config.tile_k], [config.tile_k, config.tile_n], [config.tile_m, config.tile_n])
        operands = tuple(TensorDescriptor.from_tensor(x, block) for x, block in zip(operands, blocks, strict=True))
    return gemm_tma[(min(tiles, SM_COUNT),)](*operands, stamps, *sizes, flatten=True, **tile)


def compile_only(config: Config, *, stamped: bool, sizes: tuple[int, ...] = (256, 256, 256, 256, 256, 256)) -> None:
    """Fill Triton's cache for one configuration (sizes: m, n, k and pitches; only divisibility by 16 matters)."""
    tile = dict(
        tile_m=config.tile_m,
        tile_n=config.tile_n,
        tile_k=config.tile_k,
        group_m=config.group_m,
        stamp=stamped,
        num_warps=config.warps,
        num_stages=config.stages,
    )
    pointers = (torch.bfloat16, torch.bfloat16, torch.bfloat16, torch.int64)
    if config.kernel == "ptr":
        gemm_ptr.warmup(*pointers, *sizes, even_k=config.even_k, grid=(1,), **tile)
    else:
        gemm_tma.warmup(*pointers, *sizes, flatten=True, grid=(1,), **tile)


def relative_error(config: Config, m: int, n: int, k: int, *, seed: int, host_descriptors: bool = False) -> float:
    """|C - AB| / |AB| in the Frobenius norm, AB in float64; NaN (an element not written) gives NaN."""
    generator = torch.Generator(device="cuda").manual_seed(seed)
    a = torch.randn(m, k, device="cuda", generator=generator).to(torch.bfloat16)
    b = torch.randn(k, n, device="cuda", generator=generator).to(torch.bfloat16)
    c = torch.full((m, n), float("nan"), device="cuda", dtype=torch.bfloat16)
    stamps = torch.zeros(1 << 16, device="cuda", dtype=torch.int64)
    launch(config, a, b, c, stamps, host_descriptors=host_descriptors)
    exact = a.double() @ b.double()
    return float((c.double() - exact).norm() / exact.norm())


def check_all() -> list[str]:
    """Check every CHECK_CONFIGS at every CHECK_SIZES; returns one line for each failure (bf16 rounding is 1.7e-3)."""
    failures = []
    for index, config in enumerate(CHECK_CONFIGS):
        for m, n, k in CHECK_SIZES:
            if config.even_k and k % config.tile_k:
                continue
            aligned = n % 8 == 0 and k % 8 == 0
            for host in (False, True) if config.kernel == "tma" and aligned else (False,):
                error = relative_error(config, m, n, k, seed=index, host_descriptors=host)
                if not error < 5e-3:
                    failures.append(f"{config} {m}x{n}x{k} host_descriptors={host}: relative error {error}")
    return failures


triton.set_allocator(_allocate_scratch)

if __name__ == "__main__":
    problems = check_all()
    print("\n".join(problems) or f"{len(CHECK_CONFIGS)} configurations x {len(CHECK_SIZES)} sizes agree with float64")
    raise SystemExit(bool(problems))
