"""Options that several commands share, each declared once, in groups that a command takes as one argument."""

import inspect
from collections.abc import Callable
from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import wraps
from typing import Annotated, Any, TypeVar, get_type_hints

import typer

from tilesight.dtypes import DTYPES, dtype
from tilesight.kernels.instructions import FAMILIES

Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
Gpu = Annotated[
    str, typer.Option("--gpu", metavar="NAME|FILE", help="Hardware profile: a shipped name or a TOML file.")
]
WHAT_IF = "What if: change a number of the GPU's profile (66, 1.5x, +20%); may be given again."
Set = Annotated[list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help=WHAT_IF)]


def _option(*names: str, metavar: str | None = None, words: str, panel: str) -> Any:
    return typer.Option(*names, metavar=metavar, help=words, rich_help_panel=panel)


_MULTIPLIED = frozenset().union(*(family.dtypes for family in FAMILIES.values()))
_DTYPES = f"Operand type: {', '.join(name for name in DTYPES if name in _MULTIPLIED)}; which of them, the GPU decides."
_OUTPUTS = f"Type of C, if not the usual one: {', '.join(dtype('int8').outputs)}; integers for int8 operands alone."
_PROBLEM, _CONFIG, _STATE = "Problem", "Configuration (without --tile the best one is chosen)", "GPU and its state"


@dataclass(frozen=True)
class ProblemOptions:
    """What is computed, as typed."""

    m: Annotated[str, _option("-m", metavar="SIZE", words="Rows of A and C.", panel=_PROBLEM)]
    n: Annotated[str, _option("-n", metavar="SIZE", words="Columns of B and C.", panel=_PROBLEM)]
    k: Annotated[str, _option("-k", metavar="SIZE", words="Columns of A, rows of B.", panel=_PROBLEM)]
    dtype: Annotated[str, _option("--dtype", metavar="NAME", words=_DTYPES, panel=_PROBLEM)] = "bf16"
    layout_a: Annotated[
        str, _option("--layout-a", metavar="row|column", words="Memory order of A.", panel=_PROBLEM)
    ] = "row"
    layout_b: Annotated[
        str, _option("--layout-b", metavar="row|column", words="Memory order of B.", panel=_PROBLEM)
    ] = "row"
    batch: Annotated[
        str | None, _option("--batch", metavar="COUNT", words="Products of this size in one launch.", panel=_PROBLEM)
    ] = None
    output: Annotated[str | None, _option("--output", metavar="NAME", words=_OUTPUTS, panel=_PROBLEM)] = None
    beta: Annotated[
        str | None, _option("--beta", metavar="NUMBER", words="Factor of the old C; 0 by default.", panel=_PROBLEM)
    ] = None
    bias: Annotated[bool, _option("--bias", words="A row of n values is added.", panel=_PROBLEM)] = False
    quantise_a: Annotated[
        bool, _option("--quantise-a", words="A arrives in bf16 and is brought into the type first.", panel=_PROBLEM)
    ] = False


@dataclass(frozen=True)
class ConfigOptions:
    """How it is computed, as typed; None where the option was not given."""

    tile: Annotated[
        str | None, _option("--tile", metavar="MxNxK", words="Tile sizes, such as 128x256x64.", panel=_CONFIG)
    ] = None
    stages: Annotated[
        str | None, _option("--stages", metavar="COUNT", words="Slots of the operand ring.", panel=_CONFIG)
    ] = None
    kernel: Annotated[
        str | None,
        _option(
            "--kernel",
            metavar="NAME",
            words="warp_specialized (default), cp_async, tma_persistent or tma.",
            panel=_CONFIG,
        ),
    ] = None
    warps: Annotated[str | None, _option("--warps", metavar="COUNT", words="Warps that compute.", panel=_CONFIG)] = None
    group_m: Annotated[
        str | None,
        _option(
            "--group", "--group-m", metavar="ROWS", words="Rows of tiles in one group of the raster.", panel=_CONFIG
        ),
    ] = None
    cluster: Annotated[
        str | None, _option("--cluster", metavar="MxN", words="CTAs of a cluster along m and n.", panel=_CONFIG)
    ] = None
    split_k: Annotated[
        str | None,
        _option("--split-k", metavar="COUNT|auto", words="Parts of k; auto: as libraries choose.", panel=_CONFIG),
    ] = None
    swap_ab: Annotated[
        bool, _option("--swap-ab", words="The instruction's 64-row side lies along n.", panel=_CONFIG)
    ] = False
    pingpong: Annotated[
        bool, _option("--pingpong", words="Each consumer warpgroup has a tile of its own.", panel=_CONFIG)
    ] = False
    cta_pair: Annotated[
        bool, _option("--cta-pair", words="Two CTAs of a cluster issue one tcgen05 instruction.", panel=_CONFIG)
    ] = False
    registers: Annotated[
        str | None, _option("--registers", metavar="COUNT", words="Registers per thread as compiled.", panel=_CONFIG)
    ] = None
    smem_bytes: Annotated[
        str | None,
        _option("--smem", "--smem-bytes", metavar="BYTES", words="Shared memory of a CTA as compiled.", panel=_CONFIG),
    ] = None
    spills: Annotated[
        str | None, _option("--spills", metavar="COUNT", words="Spilled registers as compiled.", panel=_CONFIG)
    ] = None


@dataclass(frozen=True)
class StateOptions:
    """On which GPU and in which state, as typed."""

    gpu: Annotated[str, _option("--gpu", metavar="NAME|FILE", words="A shipped profile or a TOML file.", panel=_STATE)]
    changes: Annotated[list[str] | None, _option("--set", metavar="NAME=VALUE", words=WHAT_IF, panel=_STATE)] = None
    cache: Annotated[
        str | None,
        _option("--cache", metavar="warm|cold", words="State of L2 before the launch; warm by default.", panel=_STATE),
    ] = None
    clock: Annotated[
        str,
        _option("--clock", metavar="NAME|TIME", words="burst, sustained, or time under load ('50 ms').", panel=_STATE),
    ] = "sustained"
    resident: Annotated[
        list[str] | None,
        _option("--resident", metavar="a=SHARE", words="Share of a tensor in L2, instead of --cache.", panel=_STATE),
    ] = None
    sms: Annotated[
        str | None, _option("--sms", metavar="COUNT", words="SMs that the kernel may use.", panel=_STATE)
    ] = None
    dirty: Annotated[
        str | None,
        _option("--dirty", metavar="SIZE", words="Other data in L2 to be written back ('30 MB').", panel=_STATE),
    ] = None


Command = TypeVar("Command", bound=Callable[..., Any])


def takes_groups(command: Command) -> Callable[..., Any]:
    """Command whose parameters that are option groups become one option a field, for typer to read.

    The command is called with the groups put together again.
    """
    hints = get_type_hints(command, include_extras=True)
    groups: dict[str, Any] = {}
    parameters: list[inspect.Parameter] = []
    for name, parameter in inspect.signature(command).parameters.items():
        if is_dataclass(hints[name]):
            groups[name] = hints[name]
            parameters += _options_of(hints[name])
        else:
            parameters.append(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=hints[name]))

    @wraps(command)
    def call(**values: Any) -> Any:
        for name, group in groups.items():
            values[name] = group(**{field.name: values.pop(field.name) for field in fields(group)})
        return command(**values)

    del call.__wrapped__  # typer would read the command's own signature through it
    call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    call.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return call


def _options_of(group: Any) -> list[inspect.Parameter]:
    hints = get_type_hints(group, include_extras=True)
    return [
        inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=inspect.Parameter.empty if field.default is MISSING else field.default,
            annotation=hints[field.name],
        )
        for field in fields(group)
    ]
