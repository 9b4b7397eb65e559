"""What a matrix product computes (:class:`Gemm`) and how (:class:`GemmConfig`); columns of many of them."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from math import isfinite, nan
from numbers import Real
from operator import index
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from tilesight.dtypes import DType, dtype
from tilesight.errors import ConfigError, ProblemError, TilesightError, counted, shown, suggestion
from tilesight.kernels.instructions import WGMMA, MatrixFamily
from tilesight.plan.tile import Counts, tiles_to_cover

Layout = Literal["row", "column"]
Kernel = Literal["cp_async", "tma_persistent", "warp_specialized", "tma"]
KERNELS: tuple[str, ...] = get_args(Kernel)
LAYOUTS: tuple[str, ...] = get_args(Layout)
MAX_SIZE = 2**31 - 1
SIXTEEN_BITS = 16


def _whole(name: str, value: Any, error: type[TilesightError], largest: int = MAX_SIZE, least: int = 1) -> int:
    """``value`` as an int in [least, largest]; bools, fractions and text are refused."""
    try:
        number = index(value)
    except TypeError:
        number = None
    if number is None or isinstance(value, bool | np.bool_):
        raise error(f"{name} = {shown(value)} is not a whole number; give an integer in {least}..{largest}")
    if not least <= number <= largest:
        raise error(f"{name} = {shown(number)} is outside {least}..{largest}")
    return number


def _one_of(name: str, value: Any, allowed: tuple[str, ...], error: type[TilesightError]) -> str:
    """``value`` as one of the allowed names."""
    if not isinstance(value, str) or value not in allowed:
        raise error(f"{name} = {shown(value)}; {suggestion(value if isinstance(value, str) else '', allowed)}")
    return str(value)


def _truth(name: str, value: Any, error: type[TilesightError]) -> bool:
    """``value`` as a bool; numbers and text are refused."""
    if not isinstance(value, bool | np.bool_):
        raise error(f"{name} = {shown(value)} is not True or False")
    return bool(value)


def _finite(name: str, value: Any, error: type[TilesightError]) -> float:
    """``value`` as a finite float; bools and text are refused."""
    try:
        number = float(value) if isinstance(value, Real) else nan
    except OverflowError:
        number = nan
    if isinstance(value, bool) or not isfinite(number):
        raise error(f"{name} = {shown(value)} is not a finite number")
    return number


@dataclass(frozen=True, slots=True)
class Gemm:
    """C[m, n] = A[m, k] B[k, n] (+ beta C) (+ bias), C row-major, accumulated in fp32 (int32 for int8).

    Parameters
    ----------
    m, n, k
        Sizes in elements, 1 to 2**31 - 1.
    dtype
        Operand type, by name or alias.
    layout_a, layout_b
        ``"row"`` or ``"column"``: how A and B lie in memory, without padding.
    batch
        Products of this size in one launch, each with its own A, B and C.
    output
        Type of C: fp32, bf16, fp16, fp8 or fp8_e5m2, of integer operands also int32 and int8. None takes the usual one:
        fp32 for tf32, bf16 for fp8 and below, int32 for int8, else the operands'.
    beta
        Factor of the old C, which is read unless it is 0.
    bias
        Whether a row of n values is added.
    quantise_a
        Whether A arrives in bf16 and a kernel before this one brings it into ``dtype``, row by row.

    Raises
    ------
    ProblemError
        If a size is not a whole number in range, a layout is unknown, or the output is none that an epilogue writes.
    UnknownDTypeError
        If the type is unknown.

    Examples
    --------
    >>> Gemm(4096, 4096, 4096).flop
    137438953472
    """

    m: int
    n: int
    k: int
    dtype: str = "bf16"
    layout_a: Layout = "row"
    layout_b: Layout = "row"
    batch: int = 1
    output: str | None = None
    beta: float = 0.0
    bias: bool = False
    quantise_a: bool = False

    def __post_init__(self) -> None:
        for name in ("m", "n", "k", "batch"):
            object.__setattr__(self, name, _whole(name, getattr(self, name), ProblemError))
        for name in ("dtype", "output"):
            if isinstance(getattr(self, name), int | float):
                raise ProblemError(f"{name} = {shown(getattr(self, name))} is no data type; give its name")
        kind = dtype(self.dtype)
        object.__setattr__(self, "dtype", kind.name)
        output = dtype(self.output if self.output is not None else kind.stored).name
        if output not in kind.outputs:
            raise ProblemError(f"output = {output!r} of {kind.name} operands; give {', '.join(kind.outputs)}")
        object.__setattr__(self, "output", output)
        object.__setattr__(self, "beta", _finite("beta", self.beta, ProblemError))
        for name in ("bias", "quantise_a"):
            object.__setattr__(self, name, _truth(name, getattr(self, name), ProblemError))
        if self.quantise_a and kind.bits >= SIXTEEN_BITS:
            raise ProblemError(f"quantise_a: A arrives in bf16, and {kind.name} is no smaller; use fp8, int8 or below")
        for name in ("layout_a", "layout_b"):
            object.__setattr__(self, name, _one_of(name, getattr(self, name), LAYOUTS, ProblemError))

    @property
    def flop(self) -> int:
        """Floating-point operations, one FMA counted as 2."""
        return 2 * self.m * self.n * self.k * self.batch

    @property
    def output_bytes(self) -> float:
        """Bytes of one element of C."""
        return dtype(self.output or self.dtype).bytes_per_element

    @property
    def compulsory_bytes(self) -> float:
        """Least bytes moved: each operand read once (C too where beta is not 0), the result written once."""
        size = dtype(self.dtype).bytes_per_element
        operands = self.m * self.k * (2 if self.quantise_a else size) + self.k * self.n * size
        result = self.m * self.n * self.output_bytes
        return self.batch * (operands + result * (2 if self.beta else 1))

    def __str__(self) -> str:
        text = f"gemm {self.m} x {self.n} x {self.k} {self.dtype}"
        text = f"{self.batch} x {text}" if self.batch > 1 else text
        layouts = "".join(layout[0] for layout in (self.layout_a, self.layout_b))
        said = [
            f"to {self.output}" if self.output != dtype(self.dtype).stored else "",
            f"layouts {layouts}" if layouts != "rr" else "",
            "+ C" if self.beta else "",
            "+ bias" if self.bias else "",
        ]
        said += ["after quantising A" if self.quantise_a else ""]
        return ", ".join([text, *(word for word in said if word)])


@dataclass(frozen=True, slots=True)
class GemmConfig:
    """How a product is tiled and scheduled.

    Parameters
    ----------
    tile_m, tile_n, tile_k
        Tile sizes in elements.
    stages
        Slots of the operand ring.
    warps
        Warps that compute; None takes 4 per 64 rows up to 8. A warp-specialised kernel adds 4 that load.
    kernel
        ``"warp_specialized"``: persistent, a loading warp with multicast, consumer warpgroups (vendor libraries);
        ``"cp_async"``: one CTA a tile, pointer loads, one instruction stream (Triton pointer kernels);
        ``"tma_persistent"``: persistent, bulk loads, one instruction stream (Triton descriptor kernels);
        ``"tma"``: the same with one CTA a tile.
    group_m
        Raster: rows of tiles in one group, walked with the row fastest; 1 is row-major.
    cluster_m, cluster_n
        CTAs of a cluster along m (they share a B tile) and along n (they share an A tile).
    swap_ab
        The instruction's 64-row side lies along n (column-major libraries do this); lets tile_m be 8, 16, ...
    split_k
        CTAs that share one tile's sum; None lets the model choose a number >= 2 as libraries do.
    pingpong
        Each consumer warpgroup of a specialised kernel works on a tile of its own, so that one stores while the other
        multiplies; else they share a tile (cooperative).
    cta_pair
        Two CTAs of a cluster, neighbours along the instruction's row side, issue one instruction of twice the rows
        (``tcgen05`` with ``cta_group::2``); each stages half of the operand that both multiply by.
    registers, smem_bytes, spills
        As compiled, if known: registers per thread, dynamic shared memory per CTA, spilled registers.
        None lets the model predict them.

    Raises
    ------
    ConfigError
        If a number is not whole or out of range, or a name unknown.

    Examples
    --------
    >>> GemmConfig(128, 256, 64, stages=4)
    GemmConfig(128x256x64, 4 stages, 8 warps, warp_specialized)
    """

    tile_m: int
    tile_n: int
    tile_k: int
    stages: int
    warps: int | None = None
    kernel: Kernel = "warp_specialized"
    group_m: int = 8
    cluster_m: int = 1
    cluster_n: int = 1
    swap_ab: bool = False
    split_k: int | None = 1
    pingpong: bool = False
    cta_pair: bool = False
    registers: int | None = None
    smem_bytes: int | None = None
    spills: int | None = None

    def __post_init__(self) -> None:
        limits = {"tile_m": 4096, "tile_n": 4096, "tile_k": 4096, "stages": 64, "group_m": MAX_SIZE}
        limits |= {"cluster_m": 16, "cluster_n": 16}
        for name, largest in limits.items():
            object.__setattr__(self, name, _whole(name, getattr(self, name), ConfigError, largest))
        optional = {"warps": (32, 1), "split_k": (4096, 1), "registers": (1024, 1)}
        for name, (largest, least) in (optional | {"smem_bytes": (2**24, 0), "spills": (2**20, 0)}).items():
            if getattr(self, name) is not None:
                object.__setattr__(self, name, _whole(name, getattr(self, name), ConfigError, largest, least))
        object.__setattr__(self, "kernel", _one_of("kernel", self.kernel, KERNELS, ConfigError))
        for name in ("swap_ab", "pingpong", "cta_pair"):
            object.__setattr__(self, name, _truth(name, getattr(self, name), ConfigError))
        if self.warps is None:
            rows = self.tile_n if self.swap_ab else self.tile_m
            object.__setattr__(self, "warps", 8 if rows >= 128 else 4)

    def __repr__(self) -> str:
        assert self.warps is not None  # chosen where it was not given
        of_tile = [counted(self.stages, "stage"), counted(self.warps, "warp")]
        text = ", ".join([f"{self.tile_m}x{self.tile_n}x{self.tile_k}", *of_tile, self.kernel])
        if self.kernel == "warp_specialized":
            text += f", cluster {self.cluster_m}x{self.cluster_n}" if self.cluster_m * self.cluster_n > 1 else ""
        else:
            text += f", group {self.group_m}"
        text += ", swap_ab" if self.swap_ab else ""
        text += ", ping-pong" if self.pingpong else ""
        text += ", CTA pair" if self.cta_pair else ""
        text += f", split {self.split_k or 'auto'}" if self.split_k != 1 else ""
        return f"GemmConfig({text})"

    __str__ = __repr__


_NUMBERS = ("tile_m", "tile_n", "tile_k", "stages", "warps", "group_m", "cluster_m", "cluster_n")
_OPTIONAL = ("split_k", "registers", "smem_bytes", "spills")


@dataclass(frozen=True)
class GemmColumns:
    """A batch of L products and configurations, one array a column; nan stands for None in the optional ones.

    Build with :meth:`of`. ``kernel`` indexes ``KERNELS``.
    """

    m: Counts
    n: Counts
    k: Counts
    row_a: NDArray[np.bool_]
    row_b: NDArray[np.bool_]
    batch: Counts
    output_bytes: Counts
    reads_c: NDArray[np.bool_]
    bias: NDArray[np.bool_]
    quantise_a: NDArray[np.bool_]
    tile_m: Counts
    tile_n: Counts
    tile_k: Counts
    stages: Counts
    warps: Counts
    group_m: Counts
    cluster_m: Counts
    cluster_n: Counts
    swap_ab: NDArray[np.bool_]
    pingpong: NDArray[np.bool_]
    cta_pair: NDArray[np.bool_]
    split_k: Counts
    registers: Counts
    smem_bytes: Counts
    spills: Counts
    kernel: NDArray[np.int8]
    dtype: DType
    family: MatrixFamily

    @classmethod
    def of(cls, problems: Sequence[Gemm], configs: Sequence[GemmConfig], family: MatrixFamily = WGMMA) -> "GemmColumns":
        """Columns of equally long lists, one of which may have length one; all of one dtype.

        ``family`` are the matrix instructions that compute it.

        Raises
        ------
        ConfigError
            If the lengths don't fit or a list is empty.
        ProblemError
            If the problems have several dtypes.
        """
        length = max(len(problems), len(configs))
        if not problems or not configs or {len(problems), len(configs)} - {1, length}:
            raise ConfigError(
                f"{counted(len(problems), 'problem')} and {counted(len(configs), 'configuration')}: "
                "give lists of one length, or one of them of length one, neither empty"
            )
        names = {problem.dtype for problem in problems}
        if len(names) > 1:
            raise ProblemError(f"one batch has one dtype, got {', '.join(sorted(names))}; price each dtype by itself")

        def column(rows: Sequence[Any], name: str) -> NDArray[np.float64]:
            values = np.array([getattr(row, name) for row in rows], dtype=np.float64)  # None becomes nan
            return np.broadcast_to(values, length) if len(rows) == 1 else values

        def equals(rows: Sequence[Any], name: str, wanted: Any) -> NDArray[np.bool_]:
            return np.broadcast_to(np.array([getattr(row, name) == wanted for row in rows]), length)

        kernel = np.array([KERNELS.index(config.kernel) for config in configs], dtype=np.int8)
        return cls(
            **{name: column(problems, name) for name in ("m", "n", "k", "batch", "output_bytes")},
            reads_c=~equals(problems, "beta", 0.0),
            bias=equals(problems, "bias", True),
            quantise_a=equals(problems, "quantise_a", True),
            pingpong=equals(configs, "pingpong", True),
            cta_pair=equals(configs, "cta_pair", True),
            row_a=equals(problems, "layout_a", "row"),
            row_b=equals(problems, "layout_b", "row"),
            **{name: column(configs, name) for name in (*_NUMBERS, *_OPTIONAL)},
            swap_ab=equals(configs, "swap_ab", True),
            kernel=np.broadcast_to(kernel, length),
            dtype=dtype(problems[0].dtype),
            family=family,
        )

    def __len__(self) -> int:
        return len(self.m)

    def __getitem__(self, rows: NDArray[Any]) -> "GemmColumns":
        """The batch of the given row numbers or mask."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return GemmColumns(**{name: v if name in ("dtype", "family") else v[rows] for name, v in values.items()})

    @cached_property
    def tiles(self) -> Counts:
        """CTAs' worth of output tiles of one product, shape (L,): whole clusters cover the grid, splits not counted."""
        along_m = tiles_to_cover(tiles_to_cover(self.m, self.tile_m), self.cluster_m) * self.cluster_m
        along_n = tiles_to_cover(tiles_to_cover(self.n, self.tile_n), self.cluster_n) * self.cluster_n
        return along_m * along_n

    @cached_property
    def operand_bytes(self) -> float:
        """Bytes of one operand element."""
        return self.dtype.bytes_per_element
