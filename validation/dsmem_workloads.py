"""The six reduction-reuse workloads as a PyTorch user writes them: inputs, functions, float64 check.

Each function takes tensors (rows, cols), LayerNorm's w (cols,), and works along a row. Half types are computed in float32
and given back as they came; float64 stays float64, which is the reference.

layernorm_backward                 x, dy, w -> dx
weighted_standardisation_backward  x, w > 0, g -> dx
pearson_backward                   x, y -> d rho/dx, d rho/dy for upstream gradient 1; zeros where a variance is zero
softmax_backward                   z, dy -> dz
lars_momentum                      w, g, m -> w', m'
quantise_int8                      x -> q (int8), scale (rows, 1); an all-zero row gives zeros
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import torch

EPSILON = 1e-5
DEVICE = "cuda"
TORCH_DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
TOLERANCE = {"fp32": 2e-5, "bf16": 1e-2}  # of |reference| + its root mean square in the row; rounding to bf16 is 4e-3
TIE = 1e-3  # how far beyond one half a quantised value may be from x / scale
CHUNK_ELEMENTS = 1 << 25  # of a float64 reference at a time


def _up(*tensors):
    """float32 of half types, others as they are."""
    return [each.float() if each.dtype in (torch.bfloat16, torch.float16) else each for each in tensors]


def layernorm_backward(x, dy, w):
    kept = x.dtype
    x, dy, w = _up(x, dy, w)
    mean = x.mean(-1, keepdim=True)
    rstd = torch.rsqrt(x.var(-1, unbiased=False, keepdim=True) + EPSILON)
    x_hat = (x - mean) * rstd
    g = dy * w
    dx = rstd * (g - g.mean(-1, keepdim=True) - x_hat * (g * x_hat).mean(-1, keepdim=True))
    return dx.to(kept)


def weighted_standardisation_backward(x, w, g):
    kept = x.dtype
    x, w, g = _up(x, w, g)
    total = w.sum(-1, keepdim=True)
    mean = (w * x).sum(-1, keepdim=True) / total
    rstd = torch.rsqrt((w * (x - mean) ** 2).sum(-1, keepdim=True) / total + EPSILON)
    y = (x - mean) * rstd
    dx = rstd * (g - w / total * (g.sum(-1, keepdim=True) + y * (g * y).sum(-1, keepdim=True)))
    return dx.to(kept)


def pearson_backward(x, y):
    kept = x.dtype
    x, y = _up(x, y)
    x = x - x.mean(-1, keepdim=True)
    y = y - y.mean(-1, keepdim=True)
    xx, yy, xy = (x * x).sum(-1, keepdim=True), (y * y).sum(-1, keepdim=True), (x * y).sum(-1, keepdim=True)
    varies = (xx > 0) & (yy > 0)
    norm = torch.where(varies, torch.rsqrt(xx) * torch.rsqrt(yy), 0.0)
    rho = xy * norm
    dx = y * norm - x * torch.where(varies, rho / xx, 0.0)
    dy = x * norm - y * torch.where(varies, rho / yy, 0.0)
    return dx.to(kept), dy.to(kept)


def softmax_backward(z, dy):
    kept = z.dtype
    z, dy = _up(z, dy)
    p = torch.softmax(z, -1)
    return (p * (dy - (dy * p).sum(-1, keepdim=True))).to(kept)


def lars_momentum(w, g, m):
    kept = w.dtype
    w, g, m = _up(w, g, m)
    w_norm = torch.linalg.vector_norm(w, dim=-1, keepdim=True)
    g_norm = torch.linalg.vector_norm(g, dim=-1, keepdim=True)
    rate = 0.001 * w_norm / (g_norm + 1e-4 * w_norm + 1e-9)
    m = 0.9 * m + rate * (g + 1e-4 * w)
    return (w - m).to(kept), m.to(kept)


def quantise_int8(x):
    (x,) = _up(x)
    scale = x.abs().amax(-1, keepdim=True) / 127
    q = torch.where(scale > 0, torch.round(x / scale), 0.0).clamp(-127, 127)
    return q.to(torch.int8), scale


FUNCTIONS: dict[str, Callable] = {
    "layernorm_backward": layernorm_backward,
    "weighted_standardisation_backward": weighted_standardisation_backward,
    "pearson_backward": pearson_backward,
    "softmax_backward": softmax_backward,
    "lars_momentum": lars_momentum,
    "quantise_int8": quantise_int8,
}
INPUTS = {
    "layernorm_backward": ("x", "dy", "w"),
    "weighted_standardisation_backward": ("x", "w", "g"),
    "pearson_backward": ("x", "y"),
    "softmax_backward": ("z", "dy"),
    "lars_momentum": ("w", "g", "m"),
    "quantise_int8": ("x",),
}
OUTPUTS = {"pearson_backward": 2, "lars_momentum": 2, "quantise_int8": 2}


def inputs(workload: str, rows: int, cols: int, dtype: str, *, seed: int = 7) -> tuple:
    """Random normal rows; Pearson's y goes half with x; weights of rows in 0.5..1.5, of columns around 1."""
    generator = torch.Generator(device=DEVICE).manual_seed(seed)

    def normal(*shape):
        return torch.empty(shape or (rows, cols), device=DEVICE).normal_(generator=generator)

    made = [normal() for name in INPUTS[workload] if (workload, name) != ("layernorm_backward", "w")]
    if workload == "layernorm_backward":
        made.append(1 + 0.1 * normal(cols))
    elif workload == "weighted_standardisation_backward":
        made[1].uniform_(0.5, 1.5, generator=generator)
    elif workload == "pearson_backward":
        made[1].add_(made[0], alpha=0.5)
    return tuple(each.to(TORCH_DTYPES[dtype]) for each in made)


def poisoned(workload: str, rows: int, cols: int, dtype: str) -> tuple:
    """Output buffers that no right result equals: NaN, and -128 for int8."""
    like = dict(device=DEVICE, dtype=TORCH_DTYPES[dtype])
    if workload == "quantise_int8":
        scale = torch.full((rows, 1), float("nan"), device=DEVICE)
        return torch.full((rows, cols), -128, device=DEVICE, dtype=torch.int8), scale
    return tuple(torch.full((rows, cols), float("nan"), **like) for _ in range(OUTPUTS.get(workload, 1)))


def outputs_of(result) -> tuple:
    """What a function gave, as a tuple."""
    return result if isinstance(result, tuple) else (result,)


def max_error(workload: str, given: tuple, found: tuple, dtype: str, *, few: bool = False) -> float:
    """Largest error against float64 over the tolerance (1: just allowed); NaN and what was not written give infinity.

    ``few`` looks at the first and last 16 rows alone.
    """
    rows, cols = given[0].shape
    step = max(1, CHUNK_ELEMENTS // cols)
    spans = [(0, min(16, rows)), (max(0, rows - 16), rows)] if few else [(at, at + step) for at in range(0, rows, step)]
    return max(_error(workload, given, found, dtype, slice(*span)) for span in spans)


def _error(workload: str, given: tuple, found: tuple, dtype: str, span: slice) -> float:
    """Of some rows."""
    part = [(each[span] if each.dim() > 1 else each).double() for each in given]
    exact = outputs_of(FUNCTIONS[workload](*part))
    here = [each[span].double() for each in found]
    if workload == "quantise_int8":
        ratio = torch.where(exact[1] > 0, part[0] / exact[1], 0.0)
        beyond = (here[0] - ratio).abs().max() - 0.5
        errors = [beyond.clamp_min(0) / TIE, _scaled(here[1], exact[1], 1e-6)]
    else:
        errors = [_scaled(one, other, TOLERANCE[dtype]) for one, other in zip(here, exact, strict=True)]
    return float(torch.stack(errors).nan_to_num(nan=float("inf")).max())


def _scaled(here, there, tolerance: float):
    size = there.abs() + there.square().mean(-1, keepdim=True).sqrt() + 1e-30
    return ((here - there).abs() / size).max() / tolerance


@dataclasses.dataclass(frozen=True)
class Problem:
    """A workload at a size with its data on the device, shared by all that is timed on it."""

    workload: str
    dtype: str
    rows: int
    cols: int
    given: tuple

    @staticmethod
    def of(point) -> Problem:
        made = inputs(point.workload, point.rows, point.cols, point.dtype)
        return Problem(point.workload, point.dtype, point.rows, point.cols, made)

    @property
    def function(self) -> Callable:
        return FUNCTIONS[self.workload]

    def poisoned(self) -> tuple:
        return poisoned(self.workload, self.rows, self.cols, self.dtype)

    def error(self, found: tuple, *, few: bool = False) -> float:
        return max_error(self.workload, self.given, found, self.dtype, few=few)
