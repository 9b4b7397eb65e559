"""Triton kernels of the six reduction-reuse workloads, without clusters: what a careful Triton user writes.

NAME_held    a row in registers, read once: block >= cols; programs walk over rows, `stages` > 1 loads the next row early
NAME_looped  one row a program, twice through it in blocks: statistics merged in one pass (sums shifted by the row's first
             element, running maximum for the exponentials), then the outputs, last block first, since it was read last

Shapes     rows (rows, cols), contiguous; LayerNorm's w (cols,)
Launch     programs, `warps` * 32 threads each; `even`: cols fills whole blocks, no masks
Traffic    held: every input once; looped: inputs of the statistics twice, less what L1 and L2 still have
Work       float32, whatever the type of the rows
Checked    against float64 (`dsmem_workloads.max_error`), outputs poisoned
Reference  Tillet, Kung, Cox, Triton, MAPL (2019); Milakov, Gimelshein, Online normalizer calculation for softmax (2018)
"""

from __future__ import annotations

import triton
import triton.language as tl

LOWEST = tl.constexpr(-1e30)  # finite, so that a difference of two is no NaN
ROUNDER = tl.constexpr(12582912.0)  # 1.5 * 2**23: adding it rounds a float32 to an integer, half to even
EPSILON = tl.constexpr(1e-5)


@triton.jit
def _load(ptr, at, cols, other: tl.constexpr, even: tl.constexpr, policy: tl.constexpr):
    """Elements of a row as float32, `other` beyond its end."""
    if even:
        value = tl.load(ptr + at, eviction_policy=policy)
    else:
        value = tl.load(ptr + at, mask=at < cols, other=other, eviction_policy=policy)
    return value.to(tl.float32)


@triton.jit
def _store(ptr, at, value, cols, even: tl.constexpr):
    if even:
        tl.store(ptr + at, value.to(ptr.dtype.element_ty), eviction_policy="evict_first")
    else:
        tl.store(ptr + at, value.to(ptr.dtype.element_ty), mask=at < cols, eviction_policy="evict_first")


@triton.jit
def _inside(value, at, cols, even: tl.constexpr):
    """Zero beyond the end of the row."""
    return value if even else tl.where(at < cols, value, 0.0)


@triton.jit
def _row(ptr, row, cols):
    return ptr + tl.cast(row, tl.int64) * cols


# ---- LayerNorm backward


@triton.jit
def layernorm_held(
    x_in, dy_in, w_in, dx_out, rows, cols, block: tl.constexpr, even: tl.constexpr, stages: tl.constexpr
):
    at = tl.arange(0, block)
    for row in tl.range(tl.program_id(0), rows, tl.num_programs(0), num_stages=stages):
        x = _load(_row(x_in, row, cols), at, cols, 0.0, even, "evict_first")
        dy = _load(_row(dy_in, row, cols), at, cols, 0.0, even, "evict_first")
        g = dy * _load(w_in, at, cols, 0.0, even, "evict_last")
        x = _inside(x - tl.sum(x) / cols, at, cols, even)
        rstd = tl.rsqrt(tl.sum(x * x) / cols + EPSILON)
        slope = tl.sum(g * x) / cols * rstd * rstd
        _store(_row(dx_out, row, cols), at, rstd * (g - tl.sum(g) / cols - x * slope), cols, even)


@triton.jit
def layernorm_looped(
    x_in, dy_in, w_in, dx_out, rows, cols, block: tl.constexpr, even: tl.constexpr, stages: tl.constexpr
):
    row = tl.program_id(0)
    x_row, dy_row, dx_row = _row(x_in, row, cols), _row(dy_in, row, cols), _row(dx_out, row, cols)
    shift = tl.load(x_row).to(tl.float32)
    sum_x = tl.zeros((block,), tl.float32)
    sum_xx = tl.zeros((block,), tl.float32)
    sum_g = tl.zeros((block,), tl.float32)
    sum_gx = tl.zeros((block,), tl.float32)
    for start in tl.range(0, cols, block, num_stages=stages):
        at = start + tl.arange(0, block)
        x = _inside(_load(x_row, at, cols, 0.0, even, "evict_last") - shift, at, cols, even)
        dy = _load(dy_row, at, cols, 0.0, even, "evict_last")
        g = dy * _load(w_in, at, cols, 0.0, even, "evict_last")
        sum_x += x
        sum_xx += x * x
        sum_g += g
        sum_gx += g * x
    mean = tl.sum(sum_x) / cols
    rstd = tl.rsqrt(tl.maximum(tl.sum(sum_xx) / cols - mean * mean, 0.0) + EPSILON)
    g_mean = tl.sum(sum_g) / cols
    slope = (tl.sum(sum_gx) / cols - mean * g_mean) * rstd * rstd
    blocks = tl.cdiv(cols, block)
    for back in tl.range(0, blocks, num_stages=stages):
        at = (blocks - 1 - back) * block + tl.arange(0, block)
        x = _load(x_row, at, cols, 0.0, even, "evict_first") - shift - mean
        dy = _load(dy_row, at, cols, 0.0, even, "evict_first")
        g = dy * _load(w_in, at, cols, 0.0, even, "evict_last")
        _store(dx_row, at, rstd * (g - g_mean - x * slope), cols, even)


# ---- weighted standardisation backward


@triton.jit
def weighted_held(x_in, w_in, g_in, dx_out, rows, cols, block: tl.constexpr, even: tl.constexpr, stages: tl.constexpr):
    at = tl.arange(0, block)
    for row in tl.range(tl.program_id(0), rows, tl.num_programs(0), num_stages=stages):
        x = _load(_row(x_in, row, cols), at, cols, 0.0, even, "evict_first")
        w = _load(_row(w_in, row, cols), at, cols, 0.0, even, "evict_first")
        g = _load(_row(g_in, row, cols), at, cols, 0.0, even, "evict_first")
        total = tl.sum(w)
        x = x - tl.sum(w * x) / total
        rstd = tl.rsqrt(tl.sum(w * x * x) / total + EPSILON)
        slope = tl.sum(g * x) * rstd * rstd
        _store(_row(dx_out, row, cols), at, rstd * (g - w / total * (tl.sum(g) + x * slope)), cols, even)


@triton.jit
def weighted_looped(
    x_in, w_in, g_in, dx_out, rows, cols, block: tl.constexpr, even: tl.constexpr, stages: tl.constexpr
):
    row = tl.program_id(0)
    x_row, w_row, g_row = _row(x_in, row, cols), _row(w_in, row, cols), _row(g_in, row, cols)
    dx_row = _row(dx_out, row, cols)
    shift = tl.load(x_row).to(tl.float32)
    sum_w = tl.zeros((block,), tl.float32)
    sum_wx = tl.zeros((block,), tl.float32)
    sum_wxx = tl.zeros((block,), tl.float32)
    sum_g = tl.zeros((block,), tl.float32)
    sum_gx = tl.zeros((block,), tl.float32)
    for start in tl.range(0, cols, block, num_stages=stages):
        at = start + tl.arange(0, block)
        x = _load(x_row, at, cols, 0.0, even, "evict_last") - shift
        w = _load(w_row, at, cols, 0.0, even, "evict_last")
        g = _load(g_row, at, cols, 0.0, even, "evict_last")
        sum_w += w
        sum_wx += w * x
        sum_wxx += w * x * x
        sum_g += g
        sum_gx += g * x
    total = tl.sum(sum_w)
    mean = tl.sum(sum_wx) / total
    rstd = tl.rsqrt(tl.maximum(tl.sum(sum_wxx) / total - mean * mean, 0.0) + EPSILON)
    g_sum = tl.sum(sum_g)
    slope = (tl.sum(sum_gx) - mean * g_sum) * rstd * rstd
    blocks = tl.cdiv(cols, block)
    for back in tl.range(0, blocks, num_stages=stages):
        at = (blocks - 1 - back) * block + tl.arange(0, block)
        x = _load(x_row, at, cols, 0.0, even, "evict_first") - shift - mean
        w = _load(w_row, at, cols, 0.0, even, "evict_first")
        g = _load(g_row, at, cols, 0.0, even, "evict_first")
        _store(dx_row, at, rstd * (g - w / total * (g_sum + x * slope)), cols, even)


# ---- Pearson backward


@triton.jit
def _pearson_factors(xx, yy, xy):
    """1 / sqrt(xx yy), rho / xx and rho / yy; zeros where a variance is zero."""
    varies = (xx > 0.0) & (yy > 0.0)
    xx, yy = tl.where(varies, xx, 1.0), tl.where(varies, yy, 1.0)
    norm = tl.where(varies, tl.rsqrt(xx) * tl.rsqrt(yy), 0.0)
    return norm, xy * norm / xx, xy * norm / yy


@triton.jit
def pearson_held(x_in, y_in, dx_out, dy_out, rows, cols, block: tl.constexpr, even: tl.constexpr, stages: tl.constexpr):
    at = tl.arange(0, block)
    for row in tl.range(tl.program_id(0), rows, tl.num_programs(0), num_stages=stages):
        x_row, y_row = _row(x_in, row, cols), _row(y_in, row, cols)
        x_shift, y_shift = tl.load(x_row).to(tl.float32), tl.load(y_row).to(tl.float32)
        x = _inside(_load(x_row, at, cols, 0.0, even, "evict_first") - x_shift, at, cols, even)
        y = _inside(_load(y_row, at, cols, 0.0, even, "evict_first") - y_shift, at, cols, even)
        x = _inside(x - tl.sum(x) / cols, at, cols, even)
        y = _inside(y - tl.sum(y) / cols, at, cols, even)
        norm, by_x, by_y = _pearson_factors(tl.sum(x * x), tl.sum(y * y), tl.sum(x * y))
        _store(_row(dx_out, row, cols), at, y * norm - x * by_x, cols, even)
        _store(_row(dy_out, row, cols), at, x * norm - y * by_y, cols, even)


@triton.jit
def pearson_looped(
    x_in, y_in, dx_out, dy_out, rows, cols, block: tl.constexpr, even: tl.constexpr, stages: tl.constexpr
):
    row = tl.program_id(0)
    x_row, y_row, dx_row, dy_row = (
        _row(x_in, row, cols),
        _row(y_in, row, cols),
        _row(dx_out, row, cols),
        _row(dy_out, row, cols),
    )
    x_shift, y_shift = tl.load(x_row).to(tl.float32), tl.load(y_row).to(tl.float32)
    sum_x = tl.zeros((block,), tl.float32)
    sum_y = tl.zeros((block,), tl.float32)
    sum_xx = tl.zeros((block,), tl.float32)
    sum_yy = tl.zeros((block,), tl.float32)
    sum_xy = tl.zeros((block,), tl.float32)
    for start in tl.range(0, cols, block, num_stages=stages):
        at = start + tl.arange(0, block)
        x = _inside(_load(x_row, at, cols, 0.0, even, "evict_last") - x_shift, at, cols, even)
        y = _inside(_load(y_row, at, cols, 0.0, even, "evict_last") - y_shift, at, cols, even)
        sum_x += x
        sum_y += y
        sum_xx += x * x
        sum_yy += y * y
        sum_xy += x * y
    x_mean, y_mean = tl.sum(sum_x) / cols, tl.sum(sum_y) / cols
    xx = tl.sum(sum_xx) - cols * x_mean * x_mean
    yy = tl.sum(sum_yy) - cols * y_mean * y_mean
    norm, by_x, by_y = _pearson_factors(xx, yy, tl.sum(sum_xy) - cols * x_mean * y_mean)
    blocks = tl.cdiv(cols, block)
    for back in tl.range(0, blocks, num_stages=stages):
        at = (blocks - 1 - back) * block + tl.arange(0, block)
        x = _load(x_row, at, cols, 0.0, even, "evict_first") - x_shift - x_mean
        y = _load(y_row, at, cols, 0.0, even, "evict_first") - y_shift - y_mean
        _store(dx_row, at, y * norm - x * by_x, cols, even)
        _store(dy_row, at, x * norm - y * by_y, cols, even)


# ---- softmax-logits backward


@triton.jit
def softmax_held(z_in, dy_in, dz_out, rows, cols, block: tl.constexpr, even: tl.constexpr, stages: tl.constexpr):
    at = tl.arange(0, block)
    for row in tl.range(tl.program_id(0), rows, tl.num_programs(0), num_stages=stages):
        z = _load(_row(z_in, row, cols), at, cols, LOWEST, even, "evict_first")
        dy = _load(_row(dy_in, row, cols), at, cols, 0.0, even, "evict_first")
        p = _inside(tl.exp(z - tl.max(z)), at, cols, even)
        total = tl.sum(p)
        _store(_row(dz_out, row, cols), at, p / total * (dy - tl.sum(p * dy) / total), cols, even)


@triton.jit
def softmax_looped(z_in, dy_in, dz_out, rows, cols, block: tl.constexpr, even: tl.constexpr, stages: tl.constexpr):
    row = tl.program_id(0)
    z_row, dy_row, dz_row = _row(z_in, row, cols), _row(dy_in, row, cols), _row(dz_out, row, cols)
    top = tl.full((block,), LOWEST, tl.float32)
    total = tl.zeros((block,), tl.float32)
    dot = tl.zeros((block,), tl.float32)
    for start in tl.range(0, cols, block, num_stages=stages):
        at = start + tl.arange(0, block)
        z = _load(z_row, at, cols, LOWEST, even, "evict_last")
        dy = _load(dy_row, at, cols, 0.0, even, "evict_last")
        higher = tl.maximum(top, z)
        kept, p = tl.exp(top - higher), tl.exp(z - higher)
        total = total * kept + p
        dot = dot * kept + p * dy
        top = higher
    highest = tl.max(top)
    kept = tl.exp(top - highest)
    whole = 1.0 / tl.sum(total * kept)
    mean = tl.sum(dot * kept) * whole
    blocks = tl.cdiv(cols, block)
    for back in tl.range(0, blocks, num_stages=stages):
        at = (blocks - 1 - back) * block + tl.arange(0, block)
        z = _load(z_row, at, cols, LOWEST, even, "evict_first")
        dy = _load(dy_row, at, cols, 0.0, even, "evict_first")
        _store(dz_row, at, tl.exp(z - highest) * whole * (dy - mean), cols, even)


# ---- LARS momentum


@triton.jit
def _lars_rate(ww, gg):
    w_norm = tl.sqrt(ww)
    return 0.001 * w_norm / (tl.sqrt(gg) + 1e-4 * w_norm + 1e-9)


@triton.jit
def lars_held(
    w_in, g_in, m_in, w_out, m_out, rows, cols, block: tl.constexpr, even: tl.constexpr, stages: tl.constexpr
):
    at = tl.arange(0, block)
    for row in tl.range(tl.program_id(0), rows, tl.num_programs(0), num_stages=stages):
        w = _load(_row(w_in, row, cols), at, cols, 0.0, even, "evict_first")
        g = _load(_row(g_in, row, cols), at, cols, 0.0, even, "evict_first")
        m = _load(_row(m_in, row, cols), at, cols, 0.0, even, "evict_first")
        m = 0.9 * m + _lars_rate(tl.sum(w * w), tl.sum(g * g)) * (g + 1e-4 * w)
        _store(_row(w_out, row, cols), at, w - m, cols, even)
        _store(_row(m_out, row, cols), at, m, cols, even)


@triton.jit
def lars_looped(
    w_in, g_in, m_in, w_out, m_out, rows, cols, block: tl.constexpr, even: tl.constexpr, stages: tl.constexpr
):
    row = tl.program_id(0)
    w_row, g_row, m_row = _row(w_in, row, cols), _row(g_in, row, cols), _row(m_in, row, cols)
    w_to, m_to = _row(w_out, row, cols), _row(m_out, row, cols)
    sum_ww = tl.zeros((block,), tl.float32)
    sum_gg = tl.zeros((block,), tl.float32)
    for start in tl.range(0, cols, block, num_stages=stages):
        at = start + tl.arange(0, block)
        w = _load(w_row, at, cols, 0.0, even, "evict_last")
        g = _load(g_row, at, cols, 0.0, even, "evict_last")
        sum_ww += w * w
        sum_gg += g * g
    rate = _lars_rate(tl.sum(sum_ww), tl.sum(sum_gg))
    blocks = tl.cdiv(cols, block)
    for back in tl.range(0, blocks, num_stages=stages):
        at = (blocks - 1 - back) * block + tl.arange(0, block)
        w = _load(w_row, at, cols, 0.0, even, "evict_first")
        g = _load(g_row, at, cols, 0.0, even, "evict_first")
        m = 0.9 * _load(m_row, at, cols, 0.0, even, "evict_first") + rate * (g + 1e-4 * w)
        _store(w_to, at, w - m, cols, even)
        _store(m_to, at, m, cols, even)


# ---- row-wise int8 quantisation


@triton.jit
def _quantised(x, factor):
    """x times factor, rounded half to even, in -127..127."""
    rounded = (x * factor + ROUNDER) - ROUNDER
    return tl.minimum(tl.maximum(rounded, -127.0), 127.0).to(tl.int8)


@triton.jit
def _factor(highest):
    return tl.where(highest > 0.0, 127.0 / tl.where(highest > 0.0, highest, 1.0), 0.0)


@triton.jit
def quantise_held(x_in, q_out, scale_out, rows, cols, block: tl.constexpr, even: tl.constexpr, stages: tl.constexpr):
    at = tl.arange(0, block)
    for row in tl.range(tl.program_id(0), rows, tl.num_programs(0), num_stages=stages):
        x = _load(_row(x_in, row, cols), at, cols, 0.0, even, "evict_first")
        highest = tl.max(tl.abs(x))
        tl.store(scale_out + row, highest / 127.0)
        _store(_row(q_out, row, cols), at, _quantised(x, _factor(highest)), cols, even)


@triton.jit
def quantise_looped(x_in, q_out, scale_out, rows, cols, block: tl.constexpr, even: tl.constexpr, stages: tl.constexpr):
    row = tl.program_id(0)
    x_row, q_row = _row(x_in, row, cols), _row(q_out, row, cols)
    highest = tl.zeros((block,), tl.float32)
    for start in tl.range(0, cols, block, num_stages=stages):
        at = start + tl.arange(0, block)
        highest = tl.maximum(highest, tl.abs(_load(x_row, at, cols, 0.0, even, "evict_last")))
    top = tl.max(highest)
    tl.store(scale_out + row, top / 127.0)
    factor = _factor(top)
    blocks = tl.cdiv(cols, block)
    for back in tl.range(0, blocks, num_stages=stages):
        at = (blocks - 1 - back) * block + tl.arange(0, block)
        _store(q_row, at, _quantised(_load(x_row, at, cols, 0.0, even, "evict_first"), factor), cols, even)


KERNELS = {  # held, looped
    "layernorm_backward": (layernorm_held, layernorm_looped),
    "weighted_standardisation_backward": (weighted_held, weighted_looped),
    "pearson_backward": (pearson_held, pearson_looped),
    "softmax_backward": (softmax_held, softmax_looped),
    "lars_momentum": (lars_held, lars_looped),
    "quantise_int8": (quantise_held, quantise_looped),
}
