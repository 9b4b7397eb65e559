"""Workloads by name: the six published ones, more of their kind, and some that clusters can't help.

Instructions are counted from the definitions, a fused multiply-add as one. Kinds of a pass: (reads, statistics,
instructions, of them special). Merged passes carry sums that are shifted by the row's first element, or Chan's
merge; a maximum and sums of exponentials in one pass rescale as they go.

``published`` holds the static inputs that the authors of the publication list with their artefact. LayerNorm's 32, 12 and
4 B an element are of that list: the paper's figure 5 measures 24 B without and 12 B with a cluster on an RTX 5090.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from tilesight.dsmem.workload import Pass, StaticInputs, Structure, Tensor, Workload
from tilesight.errors import ProblemError, shown, suggestion

_SUM_OF_FIVE, _LAST = 5, 0


def _row(*names: str) -> tuple[Tensor, ...]:
    return tuple(Tensor(name) for name in names)


_LAYERNORM = Workload(
    name="layernorm_backward",
    title="LayerNorm backward",
    inputs=(Tensor("x"), Tensor("dy"), Tensor("w", shared=True)),
    outputs=_row("dx"),
    passes=(Pass(("x",), 2, 3), Pass(("x", "dy", "w"), 2, 5), Pass(("x", "dy", "w"), _LAST, 5)),
    merged=(Pass(("x", "dy", "w"), 4, 7), Pass(("x", "dy", "w"), _LAST, 5)),
    # Inductor loops once for the mean and once for the variance
    compiled=(
        Pass(("x",), 1, 1),
        Pass(("x",), 1, 2),
        Pass(("x", "dy", "w"), 2, 5),
        Pass(("x", "dy", "w"), _LAST, 5),
    ),
    published=StaticInputs(32, 12, 4, (2, 2)),
)
_WEIGHTED = Workload(
    name="weighted_standardisation_backward",
    title="weighted standardisation backward",
    inputs=_row("x", "w", "g"),
    outputs=_row("dx"),
    passes=(
        Pass(("x", "w"), 2, 2),
        Pass(("x", "w"), 1, 3),
        Pass(("x", "g"), 2, 4),
        Pass(("x", "w", "g"), _LAST, 6),
    ),
    merged=(Pass(("x", "w", "g"), _SUM_OF_FIVE, 8), Pass(("x", "w", "g"), _LAST, 6)),
    published=StaticInputs(40, 24, 12, (2, 1, 2)),
)
_PEARSON = Workload(
    name="pearson_backward",
    title="Pearson correlation backward",
    inputs=_row("x", "y"),
    outputs=_row("dx", "dy"),
    passes=(Pass(("x", "y"), 2, 2), Pass(("x", "y"), 3, 5), Pass(("x", "y"), _LAST, 6)),
    merged=(Pass(("x", "y"), _SUM_OF_FIVE, 7), Pass(("x", "y"), _LAST, 6)),
    # ... once for each mean and, as the sums of one fit no loop of the other, twice for them
    compiled=(
        Pass(("x",), 1, 1),
        Pass(("y",), 1, 1),
        Pass(("x",), 1, 2),
        Pass(("x", "y"), 2, 4),
        Pass(("x", "y"), _LAST, 6),
    ),
    published=StaticInputs(24, 8, 8, (2, 3)),
)
_SOFTMAX = Workload(
    name="softmax_backward",
    title="softmax backward from logits",
    inputs=_row("z", "dy"),
    outputs=_row("dz"),
    passes=(
        Pass(("z",), 1, 1),
        Pass(("z",), 1, 3, 1),
        Pass(("z", "dy"), 1, 4, 1),
        Pass(("z", "dy"), _LAST, 5, 1),
    ),
    merged=(Pass(("z", "dy"), 3, 12, 1.5), Pass(("z", "dy"), _LAST, 5, 1)),
    # Inductor makes one pass of maximum and sum (pytorch/pytorch#127011)
    compiled=(Pass(("z",), 2, 9, 2), Pass(("z", "dy"), 1, 4, 1), Pass(("z", "dy"), _LAST, 5, 1)),
    published=StaticInputs(28, 16, 8, (1, 1, 1)),
)
_LARS = Workload(
    name="lars_momentum",
    title="LARS momentum",
    inputs=_row("w", "g", "m"),
    outputs=_row("w_new", "m_new"),
    passes=(Pass(("w", "g"), 2, 2), Pass(("w", "g", "m"), _LAST, 4)),
    published=StaticInputs(32, 12, 12, (2,)),
)
_QUANTISE = Workload(
    name="quantise_int8",
    title="row-wise int8 quantisation",
    inputs=_row("x"),
    outputs=(Tensor("q", 1.0),),
    passes=(Pass(("x",), 1, 1), Pass(("x",), _LAST, 4)),
    published=StaticInputs(9, 4, 4, (1,)),
)
_MORE = (
    Workload(
        "rmsnorm_forward",
        "RMSNorm forward",
        inputs=(Tensor("x"), Tensor("w", shared=True)),
        outputs=_row("y"),
        passes=(Pass(("x",), 1, 1), Pass(("x", "w"), _LAST, 2)),
    ),
    Workload(
        "rmsnorm_backward",
        "RMSNorm backward",
        inputs=(Tensor("x"), Tensor("dy"), Tensor("w", shared=True)),
        outputs=_row("dx"),
        passes=(Pass(("x", "dy", "w"), 2, 3), Pass(("x", "dy", "w"), _LAST, 4)),
    ),
    Workload(
        "softmax_forward",
        "softmax forward",
        inputs=_row("z"),
        outputs=_row("p"),
        passes=(Pass(("z",), 1, 1), Pass(("z",), 1, 3, 1), Pass(("z",), _LAST, 3, 1)),
        merged=(Pass(("z",), 2, 9, 1.5), Pass(("z",), _LAST, 3, 1)),
        compiled=(Pass(("z",), 2, 9, 1.5), Pass(("z",), _LAST, 3, 1)),
    ),
    Workload(
        "cross_entropy_forward",
        "cross-entropy forward",
        inputs=_row("z"),
        outputs=(),
        passes=(Pass(("z",), 1, 1), Pass(("z",), 1, 3, 1)),
        merged=(Pass(("z",), 2, 9, 1.5),),
        compiled=(Pass(("z",), 2, 9, 1.5),),
    ),
    Workload(
        "cross_entropy_backward",
        "cross-entropy backward from logits",
        inputs=_row("z"),
        outputs=_row("dz"),
        passes=(Pass(("z",), 1, 1), Pass(("z",), 1, 3, 1), Pass(("z",), _LAST, 4, 1)),
        merged=(Pass(("z",), 2, 9, 1.5), Pass(("z",), _LAST, 4, 1)),
        compiled=(Pass(("z",), 2, 9, 1.5), Pass(("z",), _LAST, 4, 1)),
    ),
    Workload(
        "quantise_fp8_groups",
        "fp8 quantisation in groups of 128",
        inputs=_row("x"),
        outputs=(Tensor("q", 1.0),),
        passes=(Pass(("x",), 1, 1), Pass(("x",), _LAST, 2)),
        group=128,
    ),
)


def _other(name: str, title: str, structure: Structure, passes: tuple[Pass, ...], outputs: Any = ("y",)) -> Workload:
    return Workload(name, title, _row("x"), _row(*outputs), passes, structure=structure)


_REJECTED = (
    _other("row_sum", "sum of a row", "reduction_reuse", (Pass(("x",), 1, 1),), ()),
    _other("gelu", "GELU", "elementwise", (Pass(("x",), _LAST, 8, 1),)),
    _other("cumulative_sum", "cumulative sum", "scan", (Pass(("x",), 1, 1), Pass(("x",), _LAST, 1))),
    _other("top_k", "the k largest of a row", "selection", (Pass(("x",), 1, 4), Pass(("x",), _LAST, 2))),
    _other("stencil_3", "three-point stencil", "stencil", (Pass(("x",), _LAST, 3),)),
)

SIX = tuple(each.name for each in (_LAYERNORM, _WEIGHTED, _PEARSON, _SOFTMAX, _LARS, _QUANTISE))
"""Names of the published workloads, in the order of the publication."""

WORKLOADS: Mapping[str, Workload] = MappingProxyType(
    {each.name: each for each in (_LAYERNORM, _WEIGHTED, _PEARSON, _SOFTMAX, _LARS, _QUANTISE, *_MORE, *_REJECTED)}
)


def workload(which: str | Workload) -> Workload:
    """A workload by name; one of the caller's own is passed on.

    Raises
    ------
    ProblemError
        If no workload has that name.

    Examples
    --------
    >>> workload("lars_momentum").compulsory_bytes()
    20.0
    """
    if isinstance(which, Workload):
        return which
    if not isinstance(which, str) or which not in WORKLOADS:
        near = suggestion(which, WORKLOADS, len(WORKLOADS)) if isinstance(which, str) else "give a name or a Workload"
        raise ProblemError(f"no workload {shown(which)}; {near}")
    return WORKLOADS[which]
