"""dsmem: whether a row-wise workload gains from a cluster, beside a measurement where there is one."""

from typing import Annotated, Any

import typer

from tilesight.cli.options import Json, Set
from tilesight.errors import ConfigError, shown


def dsmem(
    workload: Annotated[str, typer.Argument(metavar="WORKLOAD", help="Its name, such as softmax_backward.")],
    rows: Annotated[str, typer.Option("--rows", metavar="R", help="Rows.")],
    cols: Annotated[str, typer.Option("--cols", metavar="N", help="Columns: elements of a row.")],
    gpu: Annotated[str, typer.Option("--gpu", metavar="NAME|FILE", help="A shipped profile or a TOML file.")],
    dtype: Annotated[str, typer.Option("--dtype", help="Of the rows: fp32, bf16 or fp16.")] = "fp32",
    cache: Annotated[str, typer.Option("--cache", metavar="warm|cold", help="What is in L2 at the start.")] = "warm",
    timing: Annotated[
        list[str] | None,
        typer.Option(
            "--timing",
            metavar="[NAME=]TIME",
            help="A timing of your own, such as 'torch_compile=1.2 ms'; without a name, of the fastest without a cluster.",
        ),
    ] = None,
    control: Annotated[
        list[str] | None,
        typer.Option(
            "--control", metavar="P=TIME", help="What a control kernel costs in clusters of P, such as '4=20 us'."
        ),
    ] = None,
    kernels: Annotated[
        str, typer.Option("--kernels", metavar="ours|published", help="Whose CUDA kernels are priced.")
    ] = "ours",
    record: Annotated[
        str | None,
        typer.Option("--record", metavar="FILE.csv", help="Measured times to print beside the predicted ones."),
    ] = None,
    changes: Set = None,
    as_json: Json = False,
) -> None:
    """Does a cluster with distributed shared memory pay for this row-wise workload, of which size, and why?"""
    from tilesight.cli.asked import changed_hardware
    from tilesight.cli.output import print_result
    from tilesight.dsmem.measured import beside
    from tilesight.dsmem.verdict import verdict
    from tilesight.records.given import number_or_text

    found = verdict(
        workload,
        number_or_text(rows),  # type: ignore[arg-type]
        number_or_text(cols),  # type: ignore[arg-type]
        hardware=changed_hardware(gpu, changes),
        dtype=dtype,
        cache=cache,  # type: ignore[arg-type]
        timing_s=_timings(timing),
        control_s=_controls(control),
        kernels=kernels,  # type: ignore[arg-type]
    )
    print_result(found if record is None else beside(found, record), as_json)


def _timings(texts: list[str] | None) -> Any:
    from tilesight.units import parse_seconds

    if not texts:
        return None
    if len(texts) == 1 and "=" not in texts[0]:
        return parse_seconds(texts[0])
    return _named("--timing", texts)


def _controls(texts: list[str] | None) -> Any:
    from tilesight.records.given import number_or_text

    return {number_or_text(name): value for name, value in _named("--control", texts).items()} if texts else None


def _named(option: str, texts: list[str]) -> dict[str, float]:
    """Times by name, from texts such as ``triton=1.2 ms``."""
    from tilesight.units import parse_seconds

    found: dict[str, float] = {}
    for text in texts:
        name, equals, value = (part.strip() for part in text.partition("="))
        if not (name and equals and value):
            raise ConfigError(f"{option} {shown(text)} is not NAME=TIME; several timings each need a name")
        if name in found:
            raise ConfigError(f"{option} {name} is given twice")
        found[name] = parse_seconds(value)
    return found
