"""A verdict on clusters: the answer, the time of every alternative, and the measurement beside it where there is one."""

from collections.abc import Callable

from tilesight.dsmem.answer import WIDEST, AlternativeTime
from tilesight.dsmem.measured import MeasuredVerdict
from tilesight.dsmem.verdict import Verdict
from tilesight.errors import counted
from tilesight.report.blocks import Block, Facts, Grid, Lines, Page, describe
from tilesight.units import format_percent, format_seconds

Measured = Callable[[AlternativeTime], float | None]


@describe.register
def describe_verdict(verdict: Verdict) -> Page:
    """Page of a verdict."""
    return Page(_title(verdict), _blocks(verdict, None, []))


@describe.register
def describe_measured(measured: MeasuredVerdict) -> Page:
    """Page of a verdict beside a measurement."""
    name, cluster = measured.best
    facts = [
        (
            "measured",
            f"{measured.file}: {_name(name, cluster)} is fastest, {format_seconds(measured.seconds[measured.best])}",
        )
    ]
    if measured.cluster_paid is not None:
        facts.append(("cluster paid", "yes" if measured.cluster_paid else "no"))
    if measured.regret is not None:
        facts.append(("chosen / best", f"{measured.regret:.3f}, measured"))
    return Page(_title(measured.verdict), _blocks(measured.verdict, measured.measured, facts))


def _title(verdict: Verdict) -> str:
    answer = f"a cluster of {verdict.cluster_size} pays" if verdict.cluster else "no cluster"
    at = f"{verdict.rows} x {verdict.cols} {verdict.dtype} on {verdict.hardware}"
    return f"{verdict.title}, {at}: {answer}"


def _name(name: str, cluster: int) -> str:
    return f"cluster, P = {cluster}" if name == "cluster" else name


def _blocks(verdict: Verdict, measured: Measured | None, more: list[tuple[str, str]]) -> list[Block]:
    facts = [("reason", verdict.reason)]
    if verdict.margin is not None and verdict.margin_low is not None and verdict.margin_high is not None:
        ends = f"{verdict.margin_low:.3f} to {verdict.margin_high:.3f}"
        facts.append(("margin", f"{verdict.margin:.3f} ({ends}): best other kernel / best cluster"))
    if verdict.times and verdict.rejected is None:
        facts.append(("crossover", _crossover(verdict)))
    if verdict.times:
        facts.append(("compulsory", f"{verdict.compulsory_bytes:.4g} B an element"))
        facts.append(("state", f"{verdict.cache} cache"))
    blocks: list[Block] = [Facts([*facts, *more])]
    if verdict.times:
        blocks.append(_times(verdict, measured))
        blocks.append(Lines(_notes(verdict), "notes"))
    return blocks


def _crossover(verdict: Verdict) -> str:
    first = verdict.crossover_cols
    if verdict.cluster and (first is None or first > verdict.cols):
        later = "" if first is None else f"; at all that were tried from {first} columns on"
        return f"pays here, but not at every wider row{later}"
    return f"none up to {WIDEST} columns" if first is None else f"{first} columns"


def _times(verdict: Verdict, measured: Measured | None) -> Grid:
    columns = ["<alternative", "time", "likely", "<bound by", "B/element", "found in L2", "<launch"]
    if measured is not None:
        columns[2:2] = ["measured", "predicted / measured"]
    rows = []
    for each in verdict.times:
        row = _row(each, verdict.common_half_width or 0.0)
        if measured is not None:
            real = measured(each)
            ratio = "" if real is None or each.seconds is None else f"{each.seconds / real:.3f}"
            row[2:2] = ["" if real is None else format_seconds(real), ratio]
        rows.append(row)
    return Grid(columns, rows, "alternatives")


def _row(each: AlternativeTime, common: float) -> list[str]:
    name = _name(each.name, each.cluster)
    if each.seconds is None:
        return [name, "", "", "", "", "", "not legal"]
    launch = f"{counted(each.ctas_per_sm, 'CTA')} of {each.threads} threads an SM"
    if each.name in ("cluster", "staged"):
        launch += f", {counted(each.slots, 'row')} in flight"
    elif each.settings:
        launch = f"{each.settings}, {counted(each.ctas_per_sm, 'CTA')} an SM"
    return [
        name,
        format_seconds(each.seconds),
        _likely(each, common),
        "timed" if each.timed else each.binding or "",
        "" if each.dram_bytes_per_element is None else f"{each.dram_bytes_per_element:.2f}",
        "" if each.hit_share is None else format_percent(each.hit_share, 0),
        launch,
    ]


def _likely(each: AlternativeTime, common: float) -> str:
    """Ends of what the model does not know, widened by the error that all times share."""
    if each.timed or each.seconds_low is None or each.seconds_high is None:
        return ""
    return f"{format_seconds(each.seconds_low * (1 - common))} to {format_seconds(each.seconds_high * (1 + common))}"


def _notes(verdict: Verdict) -> list[str]:
    illegal = [f"{_name(each.name, each.cluster)}: {each.why}" for each in verdict.times if each.why]
    shared = []
    if verdict.common_half_width is not None:
        error = format_percent(verdict.common_half_width, 0)
        shared = [f"all times share an error of the memory's rates, about {error}, which the likely ones include"]
    return [*illegal, *shared, *verdict.assumptions]
