"""A page as text (with rich) or as HTML that stands by itself."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from io import StringIO
from shutil import get_terminal_size
from typing import TYPE_CHECKING

from tilesight.report.blocks import Bar, Block, Cell, Facts, Grid, Lines, Page

if TYPE_CHECKING:
    from rich.console import RenderableType

WIDTH_MIN, WIDTH_FALLBACK = 20, 100
BAR_CHARACTERS = 20
GAP = 3
"""Blanks between two columns of a table."""
BARS_NEED = 72
"""Columns of a terminal below which bars are left out."""


def page_text(page: Page, *, width: int | None = None, color: bool = False) -> str:
    """The page as text, without a newline at its end.

    Parameters
    ----------
    width
        Columns to fill; None takes those of the terminal, or 100 where there is none.
    color
        Write the escape codes of a terminal.
    """
    from rich.console import Console
    from rich.text import Text

    if width is None:
        width = get_terminal_size((WIDTH_FALLBACK, 24)).columns
    out = StringIO()
    console = Console(
        file=out,
        width=max(width, WIDTH_MIN),
        force_terminal=color,
        force_jupyter=False,
        no_color=not color,
        color_system="standard" if color else None,
        highlight=False,
        legacy_windows=False,
    )
    console.print(Text(page.title, style="bold"))
    for block in page.blocks:
        if not _is_empty(block):
            console.print()
            if block.title:
                console.print(Text(block.title, style="cyan"))
            console.print(_renderable(block, console.width))
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines())


def _is_empty(block: Block) -> bool:
    return not (block.items if isinstance(block, Lines) else block.rows)


def _renderable(block: Block, width: int) -> RenderableType:
    from rich.table import Table
    from rich.text import Text

    if isinstance(block, Grid):
        return _grid(block, width)
    table = Table.grid(padding=(0, 2))
    if isinstance(block, Facts):
        table.add_column(no_wrap=False, overflow="fold", min_width=min(9, width // 3))
        table.add_column(overflow="fold")
        for label, value in block.rows:
            table.add_row(Text(label, style="dim"), Text(value))
    else:
        table.add_column()
        table.add_column(overflow="fold")
        for item in block.items:
            table.add_row("-", Text(item))
    return table


def _grid(block: Grid, width: int) -> RenderableType:
    """The table, or its rows as lists of their cells where a word or a number would have to be broken."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    rows = [*block.rows, *([] if block.total is None else [block.total])]
    shown = [i for i in range(len(block.columns)) if width >= BARS_NEED or not isinstance(rows[0][i], Bar)]
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 1), header_style="dim")
    least, most = [], []
    for i in shown:
        name = block.columns[i].removeprefix("<")
        left = name != block.columns[i]
        whole = not left or (i == 0 and width >= BARS_NEED)  # numbers and names stay on one line
        words = [name, *(cell for row in rows if not isinstance(cell := row[i], Bar))]
        bars = BAR_CHARACTERS if any(isinstance(row[i], Bar) for row in rows) else 0
        most.append(max(bars, *map(len, words)))
        least.append(most[-1] if whole else max(bars, *map(_longest_word, words)))
        table.add_column(Text(name), justify="left" if left else "right", overflow="fold")
    spare = width - GAP * (len(shown) - 1) - sum(least)
    if spare < 0:
        return _stacked(block)
    for column, columns in zip(table.columns, _shared(spare, least, most), strict=True):
        column.width = columns
    for number, row in enumerate(rows):
        last = block.total is not None and number == len(rows) - 1
        if last:
            table.add_section()
        table.add_row(*(_cell_text(row[i]) for i in shown), style="bold" if last else None)
    return table


def _shared(spare: int, least: list[int], most: list[int]) -> list[int]:
    """Widths of columns: ``least``, and what is to spare given where most is missing, up to ``most``."""
    widths = list(least)
    for _ in range(spare):
        needy = max(range(len(widths)), key=lambda i: most[i] - widths[i])
        if widths[needy] < most[needy]:
            widths[needy] += 1
    return widths


def _longest_word(text: str) -> int:
    return max(map(len, text.split()), default=0)


def _stacked(block: Grid) -> RenderableType:
    """A wide table where there is no room for it: the cells of each row below each other."""
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 2))
    table.add_column(overflow="fold")
    table.add_column(overflow="fold")
    for row in [*block.rows, *([] if block.total is None else [block.total])]:
        for name, cell in zip(block.columns, row, strict=True):
            if not isinstance(cell, Bar):
                table.add_row(Text(name.removeprefix("<"), style="dim"), Text(cell))
        table.add_row()
    return table


def _cell_text(cell: Cell) -> RenderableType:
    from rich.text import Text

    if isinstance(cell, Bar):
        return Text("█" * round(BAR_CHARACTERS * min(max(cell.share, 0.0), 1.0)), style="blue")
    return Text(cell)


_STYLE = """
.tilesight { font: 13px/1.45 sans-serif; max-width: 60em; }
.tilesight h4 { margin: 0 0 .4em; font-size: 15px; }
.tilesight h5 { margin: .9em 0 .2em; font-size: 13px; opacity: .75; }
.tilesight table { border-collapse: collapse; margin: 0; }
.tilesight th, .tilesight td { padding: .1em .8em .1em 0; text-align: left; vertical-align: top; border: 0; }
.tilesight th { font-weight: normal; opacity: .75; }
.tilesight .number { text-align: right; font-variant-numeric: tabular-nums; }
.tilesight thead th, .tilesight tr.total td { border-bottom: 1px solid #8888; }
.tilesight tr.total td { border-top: 1px solid #8888; border-bottom: 0; font-weight: bold; }
.tilesight .bar { display: inline-block; height: .7em; background: #0072b2; }
.tilesight ul { margin: 0; padding-left: 1.2em; }
"""


def page_html(page: Page) -> str:
    """The page as one ``div`` with its own style; all text is escaped and nothing is loaded from elsewhere."""
    parts = [f'<div class="tilesight"><style>{_STYLE}</style><h4>{escape(page.title)}</h4>']
    for block in page.blocks:
        if not _is_empty(block):
            parts.append(f"<h5>{escape(block.title)}</h5>" if block.title else "")
            parts.append(_block_html(block))
    return "".join([*parts, "</div>"])


def _block_html(block: Block) -> str:
    if isinstance(block, Lines):
        return "<ul>" + "".join(f"<li>{escape(item)}</li>" for item in block.items) + "</ul>"
    if isinstance(block, Facts):
        rows = (f"<tr><th>{escape(label)}</th><td>{escape(value)}</td></tr>" for label, value in block.rows)
        return f"<table><tbody>{''.join(rows)}</tbody></table>"
    kinds = ["" if name.startswith("<") else ' class="number"' for name in block.columns]
    head = "".join(
        f"<th{kind}>{escape(name.removeprefix('<'))}</th>" for name, kind in zip(block.columns, kinds, strict=True)
    )

    def row_html(row: Sequence[Cell], mark: str) -> str:
        cells = zip(row, kinds, strict=True)
        return f"<tr{mark}>" + "".join(_cell_html(cell, kind) for cell, kind in cells) + "</tr>"

    body = "".join(row_html(row, "") for row in block.rows)
    total = "" if block.total is None else row_html(block.total, ' class="total"')
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}{total}</tbody></table>"


def _cell_html(cell: Cell, kind: str) -> str:
    if isinstance(cell, Bar):
        width = 10 * min(max(cell.share, 0.0), 1.0)
        return f'<td><span class="bar" style="width: {width:.2f}em"></span></td>'
    return f"<td{kind}>{escape(cell)}</td>"
