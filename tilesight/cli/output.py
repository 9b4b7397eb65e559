"""Where results go: text for a reader, JSON for a program."""

import json
import os
import sys
from typing import Any

_PLAIN = str.maketrans({"─": "-", "█": "#", "…": "~"})
"""What stands for the few characters that an ASCII terminal lacks."""


def print_json(data: Any) -> None:
    """Plain data as JSON; NaN, which JSON does not have, raises."""
    print(json.dumps(data, indent=2, allow_nan=False))


def print_report(result: Any) -> None:
    """A result as text: as wide as the terminal, in colour where it is one."""
    from tilesight.report import text

    color = sys.stdout.isatty() and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"
    page = text(result, color=color)
    try:
        page.encode(sys.stdout.encoding or "ascii")
    except UnicodeEncodeError:
        page = page.translate(_PLAIN)
    print(page)


def print_result(result: Any, as_json: bool) -> None:
    """A result with ``to_dict``, as text or as JSON."""
    if as_json:
        print_json(result.to_dict())
    else:
        print_report(result)
