"""Results print themselves: the one place where data ask for their printer.

Results are data and live below ``report``, which knows how to print them. A result's class derives from
:class:`Displayable`; only when it is printed is ``tilesight.report`` loaded, and asked by the result's type.
"""

from importlib import import_module
from typing import Any


class Displayable:
    """Prints as text in a terminal and as HTML in a notebook, through ``tilesight.report``."""

    __slots__ = ()

    def __str__(self) -> str:
        return str(_report().text(self))

    def _repr_html_(self) -> str:
        return str(_report().html(self))


def _report() -> Any:
    return import_module("tilesight.report")
