"""Errors of tilesight: each says where, what was given, what is allowed and what to do.

All derive from :class:`TilesightError` and, where it fits, from the built-in that a caller would expect.
"""

import re
from collections.abc import Iterable
from difflib import get_close_matches
from operator import index
from typing import Any

WORD_MOST, MESSAGE_MOST = 120, 2000
"""Characters of a word, and of a message, beyond which their middle is left out."""


def shortened(text: str) -> str:
    """A message in which no word and no text that was given runs on without end.

    Examples
    --------
    >>> shortened("no file " + "x" * 1000)
    'no file xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx…xxxxxxxxxxxxxxxxxxxx'
    """
    text = re.sub(rf"\S{{{WORD_MOST + 1},}}", lambda word: f"{word[0][:40]}…{word[0][-20:]}", text)
    return text if len(text) <= MESSAGE_MOST else f"{text[: MESSAGE_MOST // 2]} … {text[-MESSAGE_MOST // 4 :]}"


def shown(value: Any) -> str:
    """``repr`` for a message, on one line and cut at 60 characters; also of integers with more digits than Python prints.

    Examples
    --------
    >>> shown("fast"), shown(10**6000)
    ("'fast'", 'an integer of 19932 bits')
    """
    try:
        text = re.sub(r"\s*\n\s*", " ", repr(value))  # arrays are printed on several lines
    except ValueError:
        return f"an integer of {value.bit_length()} bits" if isinstance(value, int) else f"a {type(value).__name__}"
    return text if len(text) <= 60 else f"{text[:59]}…"


def counted(number: int, word: str, words: str | None = None) -> str:
    """A number of things, the word in the plural where it wants one; ``words`` is a plural of its own.

    Examples
    --------
    >>> counted(1, "stage"), counted(3, "stage"), counted(3, "launch", "launches")
    ('1 stage', '3 stages', '3 launches')
    """
    return f"{number} {word}" if number == 1 else f"{number} {words or f'{word}s'}"


class TilesightError(Exception):
    """Base of every error that tilesight raises on purpose. Its message is cut where what was given is very long."""

    def __init__(self, message: str = "") -> None:
        super().__init__(shortened(message))


class ProfileError(TilesightError, ValueError):
    """A hardware profile breaks the schema, or a field is asked for that the schema does not have."""


class _NotFoundError(TilesightError, KeyError):
    """A name that is not in a known list. Printed without the quotes that ``KeyError`` adds."""

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""


class UnknownProfileError(_NotFoundError):
    """No hardware profile has the name that was asked for."""


class UnknownDTypeError(_NotFoundError):
    """No data type has the name that was asked for."""


class UnitError(TilesightError, ValueError):
    """A text that is not a quantity, or a value that cannot be printed as one."""


class ProblemError(TilesightError, ValueError):
    """The problem (sizes, dtypes, layouts) makes no sense."""


class ConfigError(TilesightError, ValueError):
    """The configuration (tiles, stages, warps, clusters) is not possible for the problem or on the GPU."""


class PlanError(TilesightError, ValueError):
    """A tile execution plan is inconsistent."""


class UnsupportedError(TilesightError):
    """A valid request that the model cannot price.

    Attributes
    ----------
    field
        Dotted name of the absent profile field, or None when the reason is another.
    """

    def __init__(self, message: str, *, field: str | None = None) -> None:
        super().__init__(message)
        self.field = field

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild_unsupported, (type(self), str(self), self.field)


def _rebuild_unsupported(kind: type[UnsupportedError], message: str, field: str | None) -> UnsupportedError:
    return kind(message, field=field)


class TableError(TilesightError, ValueError):
    """A cell of a measured table is malformed.

    Attributes
    ----------
    file, line, column
        Where: file name, line number counted from 1 with the header as line 1, and column name. None when unknown.
    """

    def __init__(
        self, message: str, *, file: str | None = None, line: int | None = None, column: str | None = None
    ) -> None:
        place = ":".join(str(part) for part in (file, line, column) if part is not None)
        super().__init__(f"{place}: {message}" if place else message)
        self.message = message
        self.file = file
        self.line = line
        self.column = column

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild_table, (type(self), self.message, self.file, self.line, self.column)


def _rebuild_table(
    kind: type[TableError], message: str, file: str | None, line: int | None, column: str | None
) -> TableError:
    return kind(message, file=file, line=line, column=column)


class MissingFileError(TilesightError, FileNotFoundError):
    """A file that tilesight ships or was told to read is not there."""


class MissingToolError(TilesightError):
    """A program, a driver or a GPU that was asked for is not on this machine."""


def check_place(row: object) -> None:
    """Refuse what is no place in a list.

    Raises
    ------
    ConfigError
        If it is neither a whole number nor a slice.
    """
    if isinstance(row, slice):
        return
    try:
        index(row)  # type: ignore[arg-type]
    except TypeError:
        raise ConfigError(f"{shown(row)} is no place in a list; give a whole number or a slice") from None


def suggestion(name: str, known: Iterable[str], most: int = 12) -> str:
    """Text ``known: a, b. Did you mean 'a'?`` for an error about an unknown name; lists at most ``most`` names.

    Examples
    --------
    >>> suggestion("h20", ["a100_sxm", "h200_sxm"])
    "known: a100_sxm, h200_sxm. Did you mean 'h200_sxm'?"
    >>> suggestion("zzz", ["a100_sxm", "h200_sxm"], most=1)
    'known: a100_sxm, …'
    """
    names = sorted(set(known))
    text = "known: " + (", ".join(names[:most]) or "none") + (", …" if len(names) > most else "")
    wanted = name.lower()
    longer = [known for known in names if wanted and known.startswith(wanted)]
    near = longer or get_close_matches(wanted, names, n=1, cutoff=0.6)
    return f"{text}. Did you mean {near[0]!r}?" if near else text
