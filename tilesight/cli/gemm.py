"""predict, rank and explain a matrix product."""

from typing import Annotated, Any

import typer

from tilesight.cli.options import ConfigOptions, Json, ProblemOptions, StateOptions, takes_groups
from tilesight.errors import ConfigError, TableError, shown

Candidates = Annotated[str | None, typer.Option(metavar="FILE", help="Configurations to choose from, .csv or .json.")]
predict_app = typer.Typer(help="Predicted time of a kernel, and why.")
rank_app = typer.Typer(help="Configurations of a problem by predicted time.")
explain_app = typer.Typer(
    help="Why an estimate is what it is, or why two differ: explain gemm ..., explain A.json B.json."
)


@predict_app.callback()
@rank_app.callback()
@explain_app.callback()
def _group() -> None:
    """Keeps the name of a sole command on the command line."""


def _estimate(problem: ProblemOptions, config: ConfigOptions, state: StateOptions) -> Any:
    from tilesight.api import predict
    from tilesight.cli.asked import config_of, problem_of, state_of

    return predict(problem_of(problem), config_of(config), **state_of(state))


@predict_app.command("gemm")
@takes_groups
def predict_gemm(problem: ProblemOptions, config: ConfigOptions, state: StateOptions, as_json: Json = False) -> None:
    """Matrix product, m x k times k x n: its time, what binds and the bytes it moves."""
    from tilesight.cli.output import print_result

    print_result(_estimate(problem, config, state), as_json)


@rank_app.command("gemm")
@takes_groups
def rank_gemm(
    problem: ProblemOptions,
    state: StateOptions,
    candidates: Candidates = None,
    top: Annotated[str, typer.Option(metavar="COUNT", help="Keep the first so many.")] = "10",
    as_json: Json = False,
) -> None:
    """Matrix product, m x k times k x n: its configurations, fastest first (those of vendor libraries, or --candidates)."""
    from tilesight.api import rank
    from tilesight.cli.asked import problem_of, state_of
    from tilesight.cli.files import read_candidates
    from tilesight.cli.output import print_result
    from tilesight.records.given import number_or_text

    chosen = None if candidates is None else read_candidates(candidates)
    most: Any = number_or_text(top)
    print_result(rank(problem_of(problem), chosen, top=most, **state_of(state)), as_json)


@rank_app.command("shapes")
@takes_groups
def rank_shapes(
    file: Annotated[str, typer.Argument(metavar="FILE", help="Products, .csv or .json: m, n, k, dtype, ..., label.")],
    state: StateOptions,
    candidates: Candidates = None,
    top: Annotated[
        str, typer.Option(metavar="COUNT", help="Keep the first so many of each; the page shows the best, --json all.")
    ] = "1",
    as_json: Json = False,
) -> None:
    """Matrix products of a file: the best configuration of each.

    Products that the GPU can't do are listed with the reason; exit status 2 if none is left.
    """
    from tilesight.api import rank_many
    from tilesight.cli.asked import state_of
    from tilesight.cli.files import read_candidates, read_problems
    from tilesight.cli.output import print_result
    from tilesight.records.given import number_or_text
    from tilesight.report.ranking import RankedShapes

    chosen = None if candidates is None else read_candidates(candidates)
    most: Any = number_or_text(top)
    shapes = read_problems(file)
    problems = [shape.problem for shape in shapes]
    rankings = rank_many(problems, chosen, top=most, skip_refused=True, **state_of(state))
    lines, labels = tuple(shape.line for shape in shapes), tuple(shape.label for shape in shapes)
    print_result(RankedShapes(rankings, tuple(map(str, problems)), file, lines, labels), as_json)
    if not rankings:
        raise TableError(f"none of its products can be ranked; {rankings.refusals[0][1]}", file=file, line=lines[0])


@explain_app.command("gemm", context_settings={"allow_extra_args": True, "allow_interspersed_args": False})
@takes_groups
def explain_gemm(
    context: typer.Context,
    problem: ProblemOptions,
    config: ConfigOptions,
    state: StateOptions,
    against: Annotated[
        str | None,
        typer.Option(metavar="NAME=VALUE,...", help="The other one: what changes, as tile=128x128x64,cache=cold."),
    ] = None,
    against_gpu: Annotated[
        str | None,
        typer.Option(
            "--against-gpu", metavar="NAME|FILE", help="The other one runs on this GPU, as it is: without --set."
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Matrix product, m x k times k x n: the terms of its time, and what other group widths of its raster would do.

    With another one, by --against, --against-gpu or a second `gemm`: the terms of the difference.

    What the second `gemm` leaves out is as in the first.
    """
    from dataclasses import replace

    from tilesight.advice import raster_widths
    from tilesight.api import explain
    from tilesight.cli.asked import changed, config_of, problem_of, state_of
    from tilesight.cli.output import print_result
    from tilesight.report.explanation import ExplainedLaunch

    if context.args:
        if against is not None or against_gpu is not None:
            raise ConfigError("give the other one once: by --against, --against-gpu or a second 'gemm'")
        other = _second(context)
        as_json = other.pop("as_json") or as_json
        second = _estimate(**other)
    elif against is not None or against_gpu is not None:
        other_state = state if against_gpu is None else replace(state, gpu=against_gpu, changes=None)
        parts = (problem, config, other_state)
        second = _estimate(*(parts if against is None else changed(parts, against)))
    else:
        raster = raster_widths(problem_of(problem), config_of(config), **state_of(state))
        print_result(ExplainedLaunch(explain(raster.estimate), raster), as_json)
        return
    print_result(explain(_estimate(problem, config, state), second), as_json)


def _second(context: typer.Context) -> dict[str, Any]:
    """Options of the product that follows the first one on the command line; what it leaves out is as in the first."""
    word, *rest = context.args
    if word != "gemm":
        raise ConfigError(f"unexpected argument {shown(word)}; a second product begins with 'gemm'")
    first = {name: value for name, value in context.params.items() if value is not None}
    alone = context.command.make_context("gemm", [*rest], parent=context.parent, resilient_parsing=True).params
    if alone["cache"] is not None or alone["resident"]:  # these take each other's place
        first = {name: value for name, value in first.items() if name not in ("cache", "resident")}
    if alone["gpu"] is not None:  # what --set changes belongs to the GPU that stands beside it
        first.pop("changes", None)
    parsed = context.command.make_context("gemm", rest, parent=context.parent, default_map=first)
    if parsed.args or parsed.params.get("against") or parsed.params.get("against_gpu"):
        raise ConfigError("two products can be explained, not more")
    values = parsed.params
    found: dict[str, Any] = {
        name: group(**{field: values[field] for field in group.__dataclass_fields__})
        for name, group in (("problem", ProblemOptions), ("config", ConfigOptions), ("state", StateOptions))
    }
    return found | {"as_json": values["as_json"]}


@explain_app.command("files", hidden=True)
def explain_files(
    paths: Annotated[list[str], typer.Argument(metavar="A.json [B.json]")], as_json: Json = False
) -> None:
    """Explain one estimate of `tilesight predict --json`, or the difference of two."""
    from tilesight.api import explain
    from tilesight.cli.files import read_estimate
    from tilesight.cli.output import print_result

    if len(paths) > 2:
        raise ConfigError(f"{len(paths)} files; give one estimate, or two to compare")
    print_result(explain(*map(read_estimate, paths)), as_json)
