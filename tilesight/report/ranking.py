"""Configurations of one problem, fastest first; the best ones of several."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tilesight.errors import counted
from tilesight.report.blocks import Block, Facts, Grid, Lines, Page, describe
from tilesight.report.estimate import in_state, plain_config, what_if
from tilesight.search import TIE, Ranking, Rankings
from tilesight.units import format_flop_per_s, format_percent, format_seconds

MOST = 20
"""Configurations that are printed where nobody said how many to keep; the data hold them all."""


@describe.register
def describe_ranking(ranking: Ranking) -> Page:
    """Page of a ranking; names the ties, which only a measurement tells apart."""
    best = ranking[0]
    title = f"{ranking.problem} on {best.hardware}: best {format_seconds(best.seconds)}"
    facts = [
        ("best", plain_config(best.config)),
        ("tried", counted(ranking.tried, "candidate")),
        ("ties", _ties(ranking)),
        ("state", in_state(best.state)),
        *what_if(best),
    ]
    if ranking.pruned:
        facts.append(("pruned", f"{len(ranking.pruned)} that can't run, the first: {ranking.pruned[0][1]}"))
    printed = len(ranking) if ranking.top is not None else min(len(ranking), MOST)
    more = [f"{len(ranking) - printed} more are not shown"] if len(ranking) > printed else []
    return Page(title, [Facts(facts), _configs(ranking, printed), Lines(more)])


@dataclass(frozen=True)
class RankedShapes:
    """Rankings of the products of a file. Of each product asked for, ranked or not: words, line and label (or None)."""

    rankings: Rankings
    problems: Sequence[str]
    file: str
    lines: Sequence[int]
    labels: Sequence[str | None]

    def to_dict(self) -> dict[str, Any]:
        """Plain data of the rankings, and where in the file each product stands."""
        plain = self.rankings.to_dict()
        for entry in (*plain["rankings"], *plain["refused"]):
            index = entry["index"]
            entry |= {"line": self.lines[index], "label": self.labels[index]}
        for entry in plain["refused"]:
            entry["problem"] = self.problems[entry["index"]]
        return plain | {"file": self.file}


@describe.register
def describe_rankings(rankings: Rankings) -> Page:
    """Page of several rankings: the best configuration of each problem, a line each, then those refused."""
    refused = [f"problem {index}: {reason}" for index, reason in rankings.refusals]
    return _several(rankings, {}, refused)


@describe.register
def describe_shapes(shapes: RankedShapes) -> Page:
    """Page of the rankings of a file's products, with their labels; those refused by their line."""
    refused = [
        f"{shapes.file}:{shapes.lines[index]}: {label} ({problem}): {reason}"
        if (label := shapes.labels[index])
        else f"{shapes.file}:{shapes.lines[index]}: {problem}: {reason}"
        for index, reason in shapes.rankings.refusals
        for problem in [shapes.problems[index]]
    ]
    labels = {index: label for index, label in enumerate(shapes.labels) if label}
    return _several(shapes.rankings, labels, refused)


def _several(rankings: Rankings, labels: dict[int, str], refused: list[str]) -> Page:
    """Labels by the place of a problem among those asked for."""
    rows = []
    for index, ranking in zip(rankings.positions, rankings, strict=True):
        best = ranking[0]
        rate = format_flop_per_s(best.flop_per_s)
        row = (best.problem, plain_config(best.config), format_seconds(best.seconds), rate)
        label = (labels.get(index, ""),) if labels else ()
        rows.append((*label, *row, f"{ranking.tried}", f"{ranking.ties}", best.binding))
    columns = ("<problem", "<best", "time", "rate", "tried", "ties", "<bound by")
    blocks: list[Block] = [
        Facts(list(_facts(rankings))),
        Grid(("<label", *columns) if labels else columns, rows),
        Lines(refused, "refused"),
    ]
    where = f" on {rankings[0][0].hardware}" if rankings else ", none of which can be ranked"
    return Page(f"{counted(len(rankings) + len(rankings.refusals), 'problem')}{where}", blocks)


def _facts(rankings: Rankings) -> Iterator[tuple[str, str]]:
    if rankings:
        first = rankings[0][0]
        yield "state", in_state(first.state)
        yield from what_if(first)
    if rankings.refusals:
        yield "refused", f"{len(rankings.refusals)}, listed below"


def _ties(ranking: Ranking) -> str:
    percent = format_percent(TIE, 0)
    if ranking.ties == 1:
        return f"no ties: no other is within {percent} of the best"
    return f"the first {ranking.ties} are within {percent} of the best; measure them to tell them apart"


def _configs(ranking: Ranking, printed: int) -> Grid:
    rows = []
    best_s = ranking[0].seconds
    for place, estimate in enumerate(ranking[:printed], start=1):
        rows.append(
            (
                f"{place}{' =' if place <= ranking.ties > 1 else '  '}",
                plain_config(estimate.config),
                format_seconds(estimate.seconds),
                f"{estimate.seconds / best_s:.3f}",
                format_flop_per_s(estimate.flop_per_s),
                estimate.binding,
            )
        )
    return Grid(("", "<config", "time", "of best", "rate", "<bound by"), rows)
