"""compare: predictions beside measured tables."""

from typing import Annotated, Any

import typer

from tilesight.cli.options import Json, Set
from tilesight.errors import ConfigError, TableError, counted

COUNTED = "Launches counted by Nsight Compute"
FILES = (
    "A measured table, .csv or .csv.gz; or a report of Nsight Compute, .ncu-rep, or what ncu --csv --page raw prints."
)


def compare(
    file: Annotated[
        str | None,
        typer.Argument(
            metavar="FILE",
            help=FILES,
        ),
    ] = None,
    sample: Annotated[
        bool, typer.Option("--sample", help="Take the sample of tables that ships with tilesight.")
    ] = False,
    gpu: Annotated[
        str | None,
        typer.Option("--gpu", metavar="NAME|FILE", help="Which GPU; needed where the table has no gpu column."),
    ] = None,
    table: Annotated[
        str | None, typer.Option("--table", metavar="NAME", help="Kind of table, if its header does not say.")
    ] = None,
    where: Annotated[
        list[str] | None,
        typer.Option("--where", metavar="COL=V,V", help="Keep rows whose column is any of the values."),
    ] = None,
    rows: Annotated[str | None, typer.Option("--rows", metavar="OUT.csv", help="Write a line a prediction.")] = None,
    auto_config: Annotated[
        bool, typer.Option("--auto-config", help="Choose configurations even where the table states them.")
    ] = False,
    points: Annotated[
        str | None,
        typer.Option(
            "--points",
            metavar="FILE",
            help="What the launches compute, .csv or .json, in their order or by match: m, n, k, tile, stages, ..., match, "
            "launches.",
            rich_help_panel=COUNTED,
        ),
    ] = None,
    problem: Annotated[
        str | None,
        typer.Option(
            "--problem",
            metavar="M,N,K[,NAME=V]",
            help="What all the launches compute, such as 4096,4096,8192,dtype=fp16.",
            rich_help_panel=COUNTED,
        ),
    ] = None,
    config: Annotated[
        str | None,
        typer.Option(
            "--config",
            metavar="TILE,NAME=V",
            help="And how, such as 128x256x64,stages=4; without it the best one is chosen.",
            rich_help_panel=COUNTED,
        ),
    ] = None,
    kernel: Annotated[
        str | None,
        typer.Option(
            "--kernel",
            metavar="REGEX",
            help="Take kernels whose name matches, anywhere in it.",
            rich_help_panel=COUNTED,
        ),
    ] = None,
    cache: Annotated[
        str | None,
        typer.Option(
            "--cache",
            metavar="cold|warm",
            help="cold (ncu --cache-control all, the default) or warm (none).",
            rich_help_panel=COUNTED,
        ),
    ] = None,
    changes: Set = None,
    as_json: Json = False,
) -> None:
    """Predictions beside a measured table or launches that Nsight Compute counted: errors by regime, beside the roofline.

    Rows that can't be priced are listed with the reason. Where none can, the exit status is 2; with --json it is 0, as the
    data say so.
    """
    from tilesight.api import compare_records
    from tilesight.cli.output import print_json, print_report, print_result

    if (file is None) == (not sample):
        raise ConfigError("give FILE or --sample, one of the two")
    if changes and file is not None and gpu is None:
        raise ConfigError("--set changes one GPU; say which one by --gpu")
    options: dict[str, Any] = {"where": where or (), "kind": table, "auto_config": auto_config}
    options |= {"points": _points(points, problem, config), "kernel": kernel, "cache": cache}
    if file is not None:
        result = compare_records(file, hardware=_hardware(gpu, changes), rows=rows, **options)
        print_result(result, as_json)
        if not as_json:
            _check_scored([result])
        return
    if rows is not None:
        raise ConfigError("--rows takes one table; give its FILE")
    hardware = _hardware(gpu or _sample_gpu(), changes)
    results = [compare_records(path, hardware=hardware, **options) for path in _sample_files()]
    if as_json:
        print_json({"schema": "tilesight.compare_sample/1", "results": [result.to_dict() for result in results]})
        return
    for number, result in enumerate(results):
        print(end="\n" if number else "")
        print_report(result)
    _check_scored(results)


def _points(points: str | None, problem: str | None, config: str | None) -> Any:
    """A file of points, or the one point of the options; None without either."""
    if points is not None and (problem, config) != (None, None):
        raise ConfigError("--points says what --problem and --config say; give one of the two")
    if problem is None:
        if config is not None:
            raise ConfigError("--config belongs to --problem; give that too")
        return points
    from tilesight.ncu import point_of_texts

    return point_of_texts(problem, config)


def _check_scored(results: list[Any]) -> None:
    """End with an error where no prediction could be given at all, or nothing stands beside any."""
    if any(result.n for result in results) and not any(result.measures_anything for result in results):
        file = results[0].table.file
        raise TableError("nothing was scored: neither the time nor a counter that is predicted was counted", file=file)
    if not any(result.n for result in results):
        refused = counted(sum(result.n_refused for result in results), "prediction")
        first = results[0].refused[0]
        raise TableError(
            f"nothing was scored: {refused} refused, the first: {first['reason']}",
            file=results[0].table.file,
            line=first["line"],
        )


def _hardware(gpu: str | None, changes: list[str] | None) -> Any:
    from tilesight.cli.asked import changed_hardware

    return changed_hardware(gpu, changes) if gpu is not None and changes else gpu


def _sample_files() -> list[Any]:
    from tilesight.files import sample_files

    return list(sample_files().values())


def _sample_gpu() -> str:
    """The GPU that the sample was measured on."""
    import tomllib

    from tilesight.files import data_file
    from tilesight.records import canonical_gpu

    about = tomllib.loads(data_file("validation/records/sample/sample.toml").read_text(encoding="utf-8"))
    return canonical_gpu(about["device"]["name"])
