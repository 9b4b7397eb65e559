"""The kinds of measured tables: their columns, each declared once.

A kind is recognised by its header. ``required`` columns must be there, ``optional`` ones are checked where present;
``tiles`` names the configuration columns that may all be absent, and then the model chooses the configuration.
Columns that a kind does not know are kept as text, to filter by, and named in the result.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tilesight.records.cells import (
    COUNT,
    FLAG,
    LABEL,
    NAME,
    NOT_NEGATIVE,
    POSITIVE,
    SHARE,
    SIZE,
    CellKind,
    choice,
)


@dataclass(frozen=True)
class TableKind:
    """One kind of measured table.

    Attributes
    ----------
    name
        As ``--table`` and the scores spell it.
    required, optional
        Column name -> what its cells may hold.
    tiles
        Configuration columns: all needed if any of ``tiles_named_by`` is in the header, none otherwise.
    inputs
        Columns that describe the problem and its configuration, in the order a report prints them. Measured columns
        are never among them.
    scored
        False for kinds that are known by name but have no model yet.
    """

    name: str
    required: Mapping[str, CellKind]
    optional: Mapping[str, CellKind] = field(default_factory=dict)
    tiles: Mapping[str, CellKind] = field(default_factory=dict)
    tiles_named_by: tuple[str, ...] = ()
    inputs: tuple[str, ...] = ()
    scored: bool = True

    def columns(self) -> dict[str, CellKind]:
        """Every column the kind knows, and what its cells may hold."""
        return {**self.required, **self.tiles, **self.optional}

    def needed(self, header: Sequence[str]) -> list[str]:
        """Columns that a table with this header must have to be of this kind, in the order declared."""
        named = set(header).intersection(self.tiles_named_by)
        return [*self.required, *self.tiles] if named else list(self.required)

    def missing(self, header: Sequence[str]) -> list[str]:
        """Those of ``needed(header)`` that the header lacks.

        Examples
        --------
        >>> KINDS["gemm_cublas"].missing(["m", "n", "k", "warm_us"])
        ['cold_us']
        """
        present = set(header)
        return [name for name in self.needed(header) if name not in present]


_PROBLEM = {"m": SIZE, "n": SIZE, "k": SIZE}
_TILE = {"tile_m": SIZE, "tile_n": SIZE, "tile_k": SIZE}
_TRITON = {"kernel": choice("ptr", "tma"), **_PROBLEM, **_TILE, "group_m": SIZE, "stages": SIZE, "warps": SIZE}
_COMPILED = {"registers": SIZE, "spills": COUNT, "smem_bytes": COUNT}
_WARM_COLD = {"warm_us": POSITIVE, "cold_us": POSITIVE}
_GPU = {"gpu": NAME, "dtype": NAME}

_SECTORS = (
    "l2_read_sectors",
    "l2_read_sectors_hit",
    "l2_write_sectors",
    "l2_write_sectors_hit",
    "l2_tex_sectors_hit",
    "l2_fabric_sectors",
    "l2_fabric_sectors_hit",
)
_DRIFT = ("k_spread_10pct", "k_spread_50pct", "k_spread_90pct", "k_spread_median", "tile_time_us", "tile_time_rel_sd")
_TRITON_INPUTS = (*_TRITON, *_COMPILED)

SCORED = (
    TableKind(
        name="gemm_cublas",
        required={**_PROBLEM, **_WARM_COLD},
        optional={"family": LABEL, **_GPU},
        tiles={
            "kernel": NAME,
            "extra_kernels": COUNT,
            **_TILE,
            "stages": SIZE,
            "cluster_a": SIZE,
            "cluster_b": SIZE,
            "raster": choice("h", "v"),
            "coop": choice("", "coopA", "coopB"),
            "split_k": FLAG,
        },
        tiles_named_by=tuple(_TILE),
        inputs=(
            *("family", "m", "n", "k", "dtype", "kernel", *_TILE, "stages"),
            *("cluster_a", "cluster_b", "raster", "coop", "split_k"),
        ),
    ),
    TableKind(
        name="gemm_triton",
        required={**_TRITON, **_COMPILED, **_WARM_COLD},
        optional=_GPU,
        inputs=(*_TRITON_INPUTS, "dtype"),
    ),
    TableKind(
        name="gemm_l2",
        required={
            **_TRITON,
            "time_us": POSITIVE,
            "dram_read_bytes": POSITIVE,
            "dram_write_bytes": NOT_NEGATIVE,
            "l2_hit_rate": SHARE,
            "l2_tex_sectors": POSITIVE,
        },
        optional={**dict.fromkeys(_SECTORS, NOT_NEGATIVE), **_COMPILED, **_GPU},
        inputs=(*_TRITON_INPUTS, "dtype"),
    ),
    TableKind(
        name="tile_drift",
        required={**_TRITON, "dram_read_bytes": POSITIVE, "lookup_bytes": POSITIVE, "time_us": POSITIVE},
        optional={**dict.fromkeys(_DRIFT, NOT_NEGATIVE), **_COMPILED, **_GPU},
        inputs=(*_TRITON_INPUTS, "dtype"),
    ),
    TableKind(
        name="gemm_other",
        required={"kind": choice("fp16", "tf32", "fp8", "bf16_bmm"), "batch": SIZE, **_PROBLEM, **_WARM_COLD},
        optional={"gpu": NAME},
        inputs=("kind", "batch", "m", "n", "k"),
    ),
    TableKind(
        name="public_gemm",
        required={
            "dtype": NAME,
            **_PROBLEM,
            "latency_us": POSITIVE,
            "source": NAME,
            "includes": choice("gemm", "act_quant+gemm"),
            "copies": SIZE,
            "touched_mb": NOT_NEGATIVE,
            "l2_state": choice("warm", "edge", "cold"),
        },
        optional={"gpu": NAME},
        inputs=("dtype", "m", "n", "k", "source", "includes", "copies", "touched_mb", "l2_state"),
    ),
)


COUNTED = ("time_us", "dram_read_bytes", "dram_write_bytes", "lookup_bytes", "crossing_bytes", "l2_hit_rate")
COUNTED_BESIDE = ("l2_read_bytes", "l2_write_bytes", "clock_hz")
"""Columns that hold medians over the launches of a profile, nan where nobody counted; ``NAME_spread`` in percent."""
_LAUNCHED = ("kernel", "launches", "m", "n", "k", "batch", "dtype", *_TILE, "stages", "warps", "group_m", "cluster_m")
_LAUNCHED = (*_LAUNCHED, "cluster_n", "swap_ab", "split_k", "pingpong", "cta_pair", "registers", "smem_bytes", "spills")

NCU = TableKind(
    name="ncu",
    required={},
    optional={
        **dict.fromkeys((*_LAUNCHED, "problem", "config", "gpu"), LABEL),
        **dict.fromkeys((*COUNTED, *COUNTED_BESIDE), NOT_NEGATIVE),
        **dict.fromkeys((f"{name}_spread" for name in (*COUNTED, *COUNTED_BESIDE)), NOT_NEGATIVE),
    },
    inputs=_LAUNCHED,
)
"""Launches counted by Nsight Compute, one row a point; no file has this header, ``tilesight.ncu`` makes the table."""


def _not_scored(name: str, header: str) -> TableKind:
    return TableKind(name=name, required=dict.fromkeys(header.split(","), LABEL), optional={"gpu": NAME}, scored=False)


NOT_SCORED = (
    _not_scored("attention", "backend,causal,batch,heads,kv_heads,seq,head_dim,warm_us,cold_us"),
    _not_scored(
        "attention_l2",
        "backend,causal,batch,heads,kv_heads,seq,head_dim,time_us,dram_read_bytes,dram_write_bytes,l2_hit_rate,"
        "l2_tex_sectors,kernel",
    ),
    _not_scored("collectives", "op,n_gpus,bytes,us"),
    _not_scored("fused_collective_gemm", "kernel,n_gpus,m,n,k,us"),
    _not_scored(
        "request_merging",
        "load,group,members,order,skew_cycles,passes,bytes_per_sm,lookup_share,l2_hit,fabric_share,dram_read_bytes,"
        "time_us",
    ),
    _not_scored("sustained", "op,m,n,k,data,first_us,early_us,late_us,late_clock_mhz,late_power_w,min_clock_mhz"),
    _not_scored(
        "public_attention",
        "gpu,phase,batch,seqlen,n_heads,n_kv_heads,head_dim,dtype,kv_dtype,latency_us,source,kernel,kv_mb,l2_state",
    ),
    _not_scored("public_comm", "gpu,op,n_gpus,dtype,bytes,latency_us,source,launch"),
    _not_scored("public_llm_serving", "gpu,backend,model,precision,tp,isl,osl,concurrency,ttft_ms,tpot_ms,runs"),
)

KINDS: dict[str, TableKind] = {kind.name: kind for kind in (*SCORED, *NOT_SCORED)}
"""Every kind of table by name."""

_OTHER_NAMES = {
    "gemm": "public_gemm",
    "comm": "public_comm",
    "llm_serving": "public_llm_serving",
    "public/gemm": "public_gemm",
    "public/attention": "public_attention",
    "public/comm": "public_comm",
    "public/llm_serving": "public_llm_serving",
}


def find_kind(name: str) -> TableKind | None:
    """The kind called ``name`` (or one of its other names), or None.

    Examples
    --------
    >>> find_kind("public/gemm").name, find_kind("conv")
    ('public_gemm', None)
    """
    return KINDS.get(_OTHER_NAMES.get(name, name))


def recognise(header: Sequence[str]) -> TableKind | None:
    """The kind that knows most columns of ``header`` and lacks fewest; None if it lacks half of its own or more.

    Examples
    --------
    >>> recognise(["m", "n", "k", "warm_us", "cold_us"]).name
    'gemm_cublas'
    >>> recognise(["name", "age"]) is None
    True
    """
    present = set(header)
    known = {kind.name: len(present.intersection(kind.columns())) for kind in KINDS.values()}
    best = max(KINDS.values(), key=lambda kind: (known[kind.name], -len(kind.missing(header))))
    return best if 2 * len(best.missing(header)) < len(best.needed(header)) else None
