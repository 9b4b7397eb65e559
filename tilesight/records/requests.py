"""From rows of a table to what the model is asked: a problem and a configuration each, or the reason why not.

Column names are those of the tables; the mapping to the model's words is written here once. Only columns that describe
problem and configuration are read, never a measured one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tilesight.errors import ConfigError, ProblemError, UnknownDTypeError, UnsupportedError
from tilesight.kernels.gemm_config import Gemm, GemmConfig, Kernel, Layout
from tilesight.records.read import Table
from tilesight.records.schema import NCU

INSTRUCTION_ROWS = 64
"""Rows of one wgmma."""
QUANTISES_A = {"gemm": False, "act_quant+gemm": True}
"""By what a measured time includes, in the tables' words: whether a kernel quantises A before the product."""
_OTHER_PROBLEMS: dict[str, Callable[[int, int, int, int], Gemm]] = {
    "fp16": lambda m, n, k, batch: Gemm(m, n, k, dtype="fp16", batch=batch),
    "tf32": lambda m, n, k, batch: Gemm(m, n, k, dtype="tf32", batch=batch),
    # torch._scaled_mm wants B column by column, and wrote bf16
    "fp8": lambda m, n, k, batch: Gemm(m, n, k, dtype="fp8", batch=batch, layout_b="column", output="bf16"),
    "bf16_bmm": lambda m, n, k, batch: Gemm(m, n, k, batch=batch),
}
"""Products of ``gemm_other`` by their kind: torch.mm, torch._scaled_mm, torch.bmm."""
_TRITON_KERNELS: dict[str, Kernel] = {"ptr": "cp_async", "tma": "tma_persistent"}


@dataclass(frozen=True)
class Requests:
    """Problems and configurations of one table.

    Attributes
    ----------
    problems, configs
        One per row; None where the row is refused. ``configs`` is None where the model chooses the configuration.
    refusals
        Row index -> why the model has no such problem or configuration.
    """

    problems: tuple[Gemm | None, ...]
    configs: tuple[GemmConfig | None, ...] | None
    refusals: dict[int, str]


def requests(table: Table, *, auto_config: bool = False) -> Requests:
    """What to ask for each row of ``table``.

    Parameters
    ----------
    auto_config
        Leave the configuration to the model even where the table states one.
    """
    config_of = None if auto_config else _config_of(table)
    problems: list[Gemm | None] = []
    configs: list[GemmConfig | None] = []
    refusals: dict[int, str] = {}
    for row in range(len(table)):
        problem = config = None
        try:
            problem = _problem(table, row)
            config = config_of(table, row) if config_of else None
        except (ProblemError, ConfigError, UnsupportedError, UnknownDTypeError) as error:
            problem, refusals[row] = None, str(error)
        problems.append(problem)
        configs.append(config)
    return Requests(tuple(problems), tuple(configs) if config_of else None, refusals)


def _problem(table: Table, row: int) -> Gemm:
    if table.kind.name == NCU.name:
        problem: Gemm = table["problem"][row]
        return problem
    m, n, k = (int(table[name][row]) for name in ("m", "n", "k"))
    if table.kind.name == "gemm_other":
        return _OTHER_PROBLEMS[table["kind"][row]](m, n, k, int(table["batch"][row]))
    quantised = "includes" in table and QUANTISES_A[table["includes"][row]]
    dtype = table["dtype"][row] if "dtype" in table else "bf16"
    # public products are y = x @ w^T with w[n, k]
    layout_b: Layout = "column" if table.kind.name == "public_gemm" else "row"
    return Gemm(m, n, k, dtype=dtype, layout_b=layout_b, quantise_a=quantised)


def _config_of(table: Table) -> Callable[[Table, int], GemmConfig] | None:
    if table.kind.name == NCU.name:
        return _stated_config if "config" in table else None
    if "tile_m" not in table:
        return None
    return _cublas_config if "cluster_a" in table else _triton_config


def _stated_config(table: Table, row: int) -> GemmConfig:
    config: GemmConfig = table["config"][row]
    return config


def _cublas_config(table: Table, row: int) -> GemmConfig:
    """nvjet kernels are column-major: the names' first tile size lies along n, their second along m.

    The instruction's 64-row side lies along n in kernels named ``..._NNT`` and along m in those named ``..._NNN``:
    in all names seen, that tile size is a multiple of 64 and the other need not be. A name with neither ending has it
    along n if that tile size allows it.

    ``cluster_a`` lies along n and ``cluster_b`` along m; ``split_k`` says that a split was used, not how many; what
    ``raster`` h and v mean is not documented and the order of tiles is left to the model.
    """
    number = _numbers(table, row)
    return GemmConfig(
        number("tile_m"),
        number("tile_n"),
        number("tile_k"),
        stages=number("stages"),
        kernel="warp_specialized",
        cluster_m=number("cluster_b"),
        cluster_n=number("cluster_a"),
        swap_ab=_rows_along_n(table["kernel"][row], number("tile_n")),
        split_k=None if number("split_k") else 1,
    )


def _rows_along_n(kernel: str, tile_n: int) -> bool:
    if kernel.endswith("_NNN"):
        return False
    return kernel.endswith("_NNT") or tile_n % INSTRUCTION_ROWS == 0


def _triton_config(table: Table, row: int) -> GemmConfig:
    """``ptr`` loads through cp.async, one CTA a tile; ``tma`` is persistent. Both walk groups of ``group_m`` rows."""
    number = _numbers(table, row)
    return GemmConfig(
        number("tile_m"),
        number("tile_n"),
        number("tile_k"),
        stages=number("stages"),
        warps=number("warps"),
        kernel=_TRITON_KERNELS[table["kernel"][row]],
        group_m=number("group_m"),
        registers=number("registers") if "registers" in table else None,
        smem_bytes=number("smem_bytes") if "smem_bytes" in table else None,
        spills=number("spills") if "spills" in table else None,
    )


def _numbers(table: Table, row: int) -> Callable[[str], int]:
    return lambda name: int(table[name][row])
