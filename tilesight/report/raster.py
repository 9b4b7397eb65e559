"""Group widths of the raster: what each takes and moves, and which is best."""

from tilesight.advice import RasterAdvice
from tilesight.errors import counted
from tilesight.report.blocks import Block, Facts, Grid, Lines, Page, describe
from tilesight.report.estimate import bytes_said, in_state, plain_config, quiet_bytes, what_if
from tilesight.search import TIE
from tilesight.units import format_percent, format_seconds


@describe.register
def describe_raster(advice: RasterAdvice) -> Page:
    """Page of raster advice."""
    estimate, best = advice.estimate, advice.best
    title = f"{estimate.problem} on {estimate.hardware}: raster in groups of {counted(best.group_m, 'row')} of tiles"
    facts = [
        ("config", plain_config(estimate.config)),
        ("best", f"{counted(best.group_m, 'row')}: {format_seconds(best.seconds)}"),
        ("asked", f"{counted(advice.asked.group_m, 'row')}: {format_seconds(advice.asked.seconds)}"),
        ("state", in_state(estimate.state)),
        *what_if(estimate),
    ]
    return Page(title, [Facts(facts), *raster_blocks(advice)])


def raster_blocks(advice: RasterAdvice) -> list[Block]:
    """The table of widths, and what to make of it."""
    quiet = quiet_bytes(advice.estimate.compulsory_bytes)

    def said(value_bytes: float) -> str:
        return bytes_said(value_bytes if value_bytes > quiet else 0.0)

    named = (("best", advice.best), ("asked", advice.asked))
    rows = [
        (
            f"{row.group_m}",
            format_seconds(row.seconds),
            f"{row.seconds / advice.best.seconds:.3f}",
            bytes_said(row.lookup_bytes),
            format_percent(row.l2_hit_rate),
            said(row.dram_read_bytes),
            said(row.drift_read_bytes),
            row.regime,
            ", ".join(name for name, one in named if row == one),
        )
        for row in advice.widths
    ]
    columns = ("rows", "time", "of best", "L2 lookups", "hit rate", "DRAM reads", "by drift", "<regime", "<")
    ties = len(advice.ties)
    lines = [advice.reason]
    if ties > 1:
        lines.append(
            f"{ties} of {len(rows)} are within {format_percent(TIE, 0)} of the best; measure them to tell them apart"
        )
    return [Grid(columns, rows, "raster by rows of tiles in a group"), Lines(lines)]
