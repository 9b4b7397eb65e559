"""Configurations of one problem, fastest first."""

from tilesight.report.blocks import Facts, Grid, Lines, Page, describe
from tilesight.report.estimate import in_state, plain_config
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
        ("ties", _ties(ranking)),
        ("state", in_state(best.state)),
    ]
    if ranking.pruned:
        facts.append(("pruned", f"{len(ranking.pruned)} that can't run, the first: {ranking.pruned[0][1]}"))
    printed = len(ranking) if ranking.top is not None else min(len(ranking), MOST)
    more = [f"{len(ranking) - printed} more are not shown"] if len(ranking) > printed else []
    return Page(title, [Facts(facts), _configs(ranking, printed), Lines(more)])


@describe.register
def describe_rankings(rankings: Rankings) -> Page:
    """Page of several rankings: the best configuration of each problem, a line each."""
    rows = []
    for ranking in rankings:
        best = ranking[0]
        rate = format_flop_per_s(best.flop_per_s)
        rows.append(
            (
                best.problem,
                plain_config(best.config),
                format_seconds(best.seconds),
                rate,
                f"{ranking.ties}",
                best.binding,
            )
        )
    first = rankings[0][0]
    facts = [("state", in_state(first.state))]
    columns = ("<problem", "<best", "time", "rate", "ties", "<bound by")
    return Page(f"{len(rankings)} problems on {first.hardware}", [Facts(facts), Grid(columns, rows)])


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
