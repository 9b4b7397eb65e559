"""Why an estimate is what it is, or why two differ."""

from dataclasses import dataclass
from typing import Any

from tilesight.advice import RasterAdvice
from tilesight.cost.estimate import Estimate
from tilesight.cost.explanation import Cause, Explanation
from tilesight.report.blocks import Bar, Block, Facts, Grid, Lines, Page, describe
from tilesight.report.estimate import SMALLEST, binds, bytes_said, in_state, plain_config, quiet_bytes, what_if
from tilesight.report.raster import raster_blocks
from tilesight.units import format_flop_per_s, format_percent, format_seconds

ROUNDING = 1e-6
"""Differences below this share of the time, of terms that print alike, come from rounding and are printed as none."""


@describe.register
def describe_explanation(explanation: Explanation) -> Page:
    """Page of an explanation: sentences, then terms that sum to the time or to the difference."""
    mine, other = explanation.estimate, explanation.other
    if other is None:
        title = f"{mine.problem} on {mine.hardware}: {format_seconds(mine.seconds)}"
        facts = [("config", plain_config(mine.config)), ("bound by", binds(mine)), *what_if(mine)]
        return Page(title, [Facts(facts), Lines(explanation.sentences), _terms(explanation)])
    title = f"{format_seconds(mine.seconds)} against {format_seconds(other.seconds)}"
    blocks: list[Block] = [_both(mine, other), Lines(explanation.sentences), _differences(explanation, other)]
    blocks.append(_causes(explanation))
    return Page(title, blocks)


@dataclass(frozen=True)
class ExplainedLaunch:
    """Explanation of one launch, and what other group widths of its raster would do."""

    explanation: Explanation
    raster: RasterAdvice

    def to_dict(self) -> dict[str, Any]:
        """Plain data of the explanation, with those of the raster in ``raster``."""
        return self.explanation.to_dict() | {"raster": self.raster.to_dict()}


@describe.register
def describe_explained(launch: ExplainedLaunch) -> Page:
    """Page of an explanation with the table of group widths."""
    page = describe_explanation(launch.explanation)
    return Page(page.title, [*page.blocks, *raster_blocks(launch.raster)])


def _terms(explanation: Explanation) -> Grid:
    whole = explanation.estimate.seconds
    rows = [
        (term.name, format_seconds(term.seconds), format_percent(term.seconds / whole), Bar(term.seconds / whole))
        for term in explanation.terms
        if abs(term.seconds) >= SMALLEST * whole
    ]
    total = ("sum", format_seconds(sum(term.seconds for term in explanation.terms)), format_percent(1.0), "")
    return Grid(("<where the time goes", "time", "share", "<"), rows, total=total)


def _both(mine: Estimate, other: Estimate) -> Grid:
    rows = [
        ("problem", mine.problem, other.problem),
        ("config", plain_config(mine.config), plain_config(other.config)),
        ("GPU", mine.hardware, other.hardware),
        ("state", in_state(mine.state), in_state(other.state)),
        ("time", format_seconds(mine.seconds), format_seconds(other.seconds)),
        ("rate", format_flop_per_s(mine.flop_per_s), format_flop_per_s(other.flop_per_s)),
        ("bound by", binds(mine), binds(other)),
    ]
    here, there = (" and ".join(text for _, text in what_if(each)) for each in (mine, other))
    if here or there:
        rows.insert(3, ("what if", here or "as it is", there or "as it is"))
    return Grid(("<", "<this", "<other"), rows)


def _differences(explanation: Explanation, other: Estimate) -> Grid:
    mine = explanation.estimate
    least = SMALLEST * max(mine.seconds, other.seconds)

    def row(name: str, first_s: float, second_s: float) -> tuple[str, str, str, str]:
        difference_s = first_s - second_s
        first, second = format_seconds(first_s), format_seconds(second_s)
        rounding = first == second and abs(difference_s) < ROUNDING * max(mine.seconds, other.seconds)
        return name, first, second, _signed(0.0 if rounding else difference_s)

    rows = [
        row(term.name, term.seconds, term.other_seconds or 0.0)
        for term in explanation.terms
        if max(abs(term.seconds), abs(term.other_seconds or 0.0)) >= least
    ]
    return Grid(("<term", "this", "other", "difference"), rows, total=row("sum", mine.seconds, other.seconds))


_WORDS = {
    "dram_read_bytes": "DRAM reads",
    "dram_write_bytes": "DRAM writes",
    "lookup_bytes": "L2 lookups",
    "requested_bytes": "asked by CTAs",
    "clock_hz": "SM clock",
}


def _causes(explanation: Explanation) -> Grid:
    """What moved behind the terms."""

    def shown(name: str, value: float) -> str:
        if name.endswith("_bytes"):
            return bytes_said(value)
        if name.endswith("_hz"):
            return f"{value / 1e6:.0f} MHz"
        return format_seconds(value) if name.startswith("period_s.") else f"{value:.4g}"

    rows = []
    for cause in explanation.causes:
        name = _WORDS.get(cause.name, cause.name.replace("period_s.", "one k-step by "))
        value, other = _heard(explanation, cause)
        if value or other:
            ratio = f"{value / other:.3f}" if value and other else "-"
            rows.append((name, shown(cause.name, value), shown(cause.name, other), ratio))
    return Grid(("<what moved", "this", "other", "ratio"), rows)


def _heard(explanation: Explanation, cause: Cause) -> tuple[float, float]:
    """The two values of a cause; bytes that are rounding beside the other value or the compulsory bytes are none."""
    value, other = cause.value, cause.other_value
    estimates = [one for one in (explanation.estimate, explanation.other) if one is not None]
    quiet = 0.0
    if cause.name.endswith("_bytes"):
        quiet = max(quiet_bytes(one.compulsory_bytes) for one in estimates)
    quiet = max(quiet, ROUNDING * max(abs(value), abs(other)))
    return value if abs(value) > quiet else 0.0, other if abs(other) > quiet else 0.0


def _signed(seconds: float) -> str:
    text = format_seconds(seconds)
    return text if text.startswith("-") or seconds == 0 else f"+{text}"
