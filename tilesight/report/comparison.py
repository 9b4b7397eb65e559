"""Predictions beside a measured table: scores, by regime and beside the roofline."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tilesight.compare import Result
from tilesight.compare.scores import REGIMES
from tilesight.cost.estimate import MODEL_VERSION
from tilesight.errors import counted
from tilesight.report.blocks import Block, Facts, Grid, Lines, Page, describe
from tilesight.units import format_bytes, format_hz, format_seconds

REASONS_MOST = 8
"""Distinct reasons for refusals that are printed; the data hold them all."""

POINTS_MOST = 12
"""Points of a report that are printed one by one."""
_QUANTITIES = {
    "time_s": "time",
    "dram_read_bytes": "DRAM bytes read",
    "dram_write_bytes": "DRAM bytes written",
    "lookup_bytes": "L2 lookups by SMs",
    "crossing_bytes": "L2 partition crossings",
    "l2_hit_rate": "L2 hit rate",
    "l2_read_bytes": "L2 reads, all",
    "l2_write_bytes": "L2 writes, all",
    "clock_hz": "SM clock",
}

SHARES = ("top2_within_2pct",)
"""Scores that are ratios in the data and percent on paper."""

_INTERVAL = "within the likely interval"
_TIME = {
    "mape": "mean absolute error",
    "median_ape": "median absolute error",
    "bias": "bias",
    "wmape": "weighted by time",
    "roofline_mape": "roofline alone",
}
_RANKING = {
    "top1_regret_geomean": ("picked / best, geometric mean", "{:.3f}"),
    "top1_regret_max": ("picked / best, worst", "{:.3f}"),
    "top2_within_2pct": ("problems with a good one in the first two", "{:.1f} %"),
    "kendall_tau": ("Kendall tau", "{:.3f}"),
}
_L2 = {
    "dram_read_mape": ("DRAM reads, mean absolute error", "{:.1f} %"),
    "dram_read_mape_reused": ("DRAM reads where operands are read again", "{:.1f} %"),
    "dram_read_median_ape": ("DRAM reads, median absolute error", "{:.1f} %"),
    "dram_read_mape_deep_k": ("DRAM reads at deep k", "{:.1f} %"),
    "dram_bytes_mape": ("DRAM reads and writes", "{:.1f} %"),
    "lookup_mape": ("L2 lookups, mean absolute error", "{:.1f} %"),
    "crossing_mape": ("L2 partition crossings, mean absolute error", "{:.1f} %"),
    "hit_rate_mae_pp": ("hit rate, mean error", "{:.2f} points"),
    "hit_rate_p90_pp": ("hit rate, 90th percentile of error", "{:.2f} points"),
}


@describe.register
def describe_result(result: Result) -> Page:
    """Page of a comparison."""
    blocks: list[Block] = [
        Facts(list(_facts(result))),
        *_points(result),
        Grid(("<time", "error"), list(_errors(result))),
        _by_regime(result),
        Facts(_worded(result.ranking, _RANKING), "order of configurations"),
        Facts(list(_bytes(result)), "bytes"),
        Facts([(f"{protocol.name}", protocol.contains) for protocol in result.protocols], "what the times contain"),
        Lines(list(_refusals(result)), "refused"),
    ]
    of_kind = "counted by Nsight Compute" if result.counted else f"a table of kind {result.table.kind.name}"
    return Page(f"{Path(result.table.file).name}, {of_kind}", blocks)


def _facts(result: Result) -> Iterator[tuple[str, str]]:
    yield "GPU", result.gpu or "several"
    yield "predictions", f"{result.n} scored, {result.n_refused} refused"
    if result.where:
        yield "rows where", " and ".join(f"{each.column} is {' or '.join(each.values)}" for each in result.where)
    yield "configurations", _configs(result)
    for name, digest in result.hardware.items():
        yield "profile", f"{name} {digest}, model {MODEL_VERSION}"
    for changes in result.what_if.values():
        yield from (("what if", text) for text in changes)
    for kernel, launches in result.left_out.items():
        yield "of no point", f"{counted(launches, 'launch', 'launches')} of {kernel}"
    if result.table.unknown_columns:
        yield "unknown columns", ", ".join(result.table.unknown_columns)


def _points(result: Result) -> Iterator[Block]:
    """Predicted beside measured of each point of a report."""
    points = result.points() if result.counted else []
    for point in points[:POINTS_MOST]:
        refused = f"; refused: {point['refusal']}" if point["refusal"] else f", {point['config']}"
        repeats = counted(point["launches"], "launch", "launches")
        title = f"{point['row']}. {point['problem']}{refused}; {repeats} of {point['kernel']}"
        rows = [
            (words, *_cells(name, point["quantities"][name]))
            for name, words in _QUANTITIES.items()
            if name in point["quantities"]
        ]
        yield Grid(("<quantity", "predicted", "likely", "measured", "spread", "error"), rows, title)
    if len(points) > POINTS_MOST:
        yield Lines([f"{len(points) - POINTS_MOST} more points: --json and --rows hold them all"])


def _cells(name: str, quantity: dict[str, Any]) -> tuple[str, str, str, str, str]:
    """Predicted, likely, measured, spread and error in words; what is not known is left empty."""
    form = format_seconds if name == "time_s" else format_hz if name == "clock_hz" else format_bytes
    share = name == "l2_hit_rate"

    def value(number: float | None) -> str:
        return "" if number is None else f"{100 * number:.1f} %" if share else form(number)

    def percent(number: float | None, form: str) -> str:
        return "" if number is None else form.format(number)

    error = percent(quantity["error"], "{:+.1f} points" if share else "{:+.1f} %")
    likely = " to ".join(map(value, quantity["likely"] or ()))
    spread = percent(quantity["spread"], "{:.1f} %")
    return value(quantity["predicted"]), likely, value(quantity["measured"]), spread, error


def _configs(result: Result) -> str:
    if result.ranked:
        return "as the points state" if result.counted else "as the table states"
    instead = ", in place of those that the table states" if result.states_configs else ""
    return f"chosen by the model{instead}"


def _errors(result: Result) -> Iterator[tuple[str, str]]:
    for name, words in _TIME.items():
        value = result.time[name]
        if value is not None:
            yield words, f"{value:+.2f} %" if name == "bias" else f"{value:.2f} %"
    inside = result.likely_interval["inside"]
    if inside is not None:
        yield f"{_INTERVAL}, meant to hold 90 %", f"{100 * inside:.1f} %"


def _bytes(result: Result) -> Iterator[tuple[str, str]]:
    yield from _worded(result.l2, _L2)
    for name, scores in result.likely_counters.items():
        regimes = [f"{word} {100 * each['inside']:.0f} % of {each['n']}" for word, each in scores["by_regime"].items()]
        yield f"{_QUANTITIES[name]} {_INTERVAL}", f"{100 * scores['inside']:.1f} % ({', '.join(regimes)})"


def _by_regime(result: Result) -> Grid:
    def percent(value: float | None) -> str:
        return "" if value is None else f"{value:.2f} %"

    rows = [
        (name, f"{scores['n']}", percent(scores["mape"]), percent(scores["roofline_mape"]), REGIMES[name])
        for name, scores in result.by_regime.items()
        if scores["n"]
    ]
    return Grid(("<regime", "n", "error", "roofline", "<which"), rows)


def _worded(scores: dict[str, float | int | None], words: dict[str, tuple[str, str]]) -> list[tuple[str, str]]:
    scores = scores | {name: 100 * value for name in SHARES if (value := scores.get(name)) is not None}
    values = ((label, form, scores.get(name)) for name, (label, form) in words.items())
    return [(label, form.format(value)) for label, form, value in values if value is not None]


def _refusals(result: Result) -> Iterator[str]:
    reasons = Counter(refusal["reason"] for refusal in result.refused)
    for reason, count in reasons.most_common(REASONS_MOST):
        first = next(refusal for refusal in result.refused if refusal["reason"] == reason)
        yield f"{count} x {reason} (first in line {first['line']}, {first['time']})"
    if len(reasons) > REASONS_MOST:
        yield f"{len(reasons) - REASONS_MOST} more reasons"
