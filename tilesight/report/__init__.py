"""Results as text and as HTML: thin printing of data that live below."""

from typing import Any

# each module registers the pages of its types
from tilesight.report import calibration, comparison, dsmem, estimate, explanation, profile, ranking, raster
from tilesight.report.blocks import describe
from tilesight.report.render import page_html, page_text


def text(result: Any, *, width: int | None = None, color: bool = False) -> str:
    """A result as text.

    Parameters
    ----------
    result
        An Estimate, Estimates, Explanation, Ranking, RasterAdvice, Verdict, comparison, calibration, Profile or list of
        profiles.
    width
        Columns to fill; None takes those of the terminal, or 100 where there is none.
    color
        Write the escape codes of a terminal.

    Raises
    ------
    TilesightError
        If there is no report of that type.

    Examples
    --------
    >>> from tilesight.hardware.load import load_profile
    >>> print(text(load_profile("h200_sxm")).splitlines()[0])
    h200_sxm
    """
    return page_text(describe(result), width=width, color=color)


def html(result: Any) -> str:
    """A result as one self-contained ``div`` for a notebook; all text is escaped.

    Raises
    ------
    TilesightError
        If there is no report of that type.

    Examples
    --------
    >>> from tilesight.hardware.load import load_profile
    >>> html(load_profile("h200_sxm")).startswith('<div class="tilesight">')
    True
    """
    return page_html(describe(result))


__all__ = [
    "calibration",
    "comparison",
    "describe",
    "dsmem",
    "estimate",
    "explanation",
    "html",
    "profile",
    "ranking",
    "raster",
    "text",
]
