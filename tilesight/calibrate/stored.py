"""A record as files: written whole or not at all, and told from one that was cut or changed afterwards.

NAME.toml says how many rows NAME.csv has and the SHA-256 of its text, line ends aside. Records of an earlier release, and
those that scripts write, say neither and are taken as they are.
"""

import csv
import hashlib
import io
import json
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tilesight.calibrate.suite import prints_spread
from tilesight.errors import TableError, counted, shown

ROWS, SHA256, SPREAD = "rows", "csv_sha256", "spread"
UNKNOWN = "unknown"
"""Stands in a TOML file for a number that is not finite."""


def csv_text(rows: Sequence[Mapping[str, Any]]) -> str:
    """A CSV file: columns in the order in which rows name them, empty cells where a row has no such value."""
    file = io.StringIO(newline="")
    writer = csv.DictWriter(
        file, list(dict.fromkeys(key for row in rows for key in row)), restval="", lineterminator="\n"
    )
    writer.writeheader()
    writer.writerows(rows)
    return file.getvalue()


def write_rows(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write a CSV file, whole or not at all."""
    write_whole(path, csv_text(rows).encode("utf-8"))


def write_record(folder: Path, name: str, rows: Sequence[Mapping[str, Any]], about: Mapping[str, Any]) -> None:
    """Write NAME.csv and NAME.toml. Between the two an earlier CSV file does not fit the new TOML file, and is refused."""
    text = csv_text(rows).encode("utf-8")
    told = dict(about) | {ROWS: len(rows), SHA256: _sha256(text)}
    write_whole(folder / f"{name}.toml", toml_text(told).encode("utf-8"))
    write_whole(folder / f"{name}.csv", text)


def write_whole(path: Path, data: bytes) -> None:
    """Write a file under another name and give it its own when all of it is on the disk."""
    beside = path.with_name(f".{path.name}.tmp")
    try:
        with beside.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)


def toml_text(about: Mapping[str, Any]) -> str:
    """A TOML file of text, numbers, and lists of them, that can be read back whatever the text holds; None is left out.

    Examples
    --------
    >>> print(toml_text({"gpu": "NVIDIA H200", "power_w": float("nan"), "lot": None, "commands": ["./copy"]}), end="")
    gpu = "NVIDIA H200"
    power_w = "unknown"
    commands = ["./copy"]
    """
    return "".join(f"{key} = {_value(value)}\n" for key, value in about.items() if value is not None)


def _value(value: Any) -> str:
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_value, value))}]"
    if isinstance(value, float) and not math.isfinite(value):
        value = UNKNOWN
    if isinstance(value, str):  # JSON leaves two things alone that TOML does not: half a surrogate pair, and DEL
        value = value.encode("utf-8", "replace").decode("utf-8")
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007F")


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data.replace(b"\r\n", b"\n")).hexdigest()


def check_whole(path: Path, rows: int, about: Mapping[str, Any]) -> None:
    """Refuse a CSV file of another number of rows, or of another content, than its TOML file says.

    Raises
    ------
    TableError
        If it is.
    """
    beside = f"{path.stem}.toml"
    said, digest = about.get(ROWS), about.get(SHA256)
    if said is not None and (isinstance(said, bool) or not isinstance(said, int)):
        raise TableError(f"{ROWS} = {shown(said)} is no number of rows", file=beside)
    again = "it was cut or changed since; measure it again"
    if said is not None and said != rows:
        raise TableError(f"{counted(rows, 'row')} where {beside} says {said}; {again}", file=path.name)
    if digest is not None and digest != _sha256(path.read_bytes()):
        raise TableError(f"not the text whose SHA-256 stands in {beside}; {again}", file=path.name)


def check_spreads(name: str, rows: Sequence[Mapping[str, str]]) -> None:
    """Refuse a record without spreads, or with negative ones, of a benchmark that prints one with every point.

    Raises
    ------
    TableError
        If a spread is absent, no number or negative; it names the line.
    """
    if not prints_spread(name):
        return
    for line, row in enumerate(rows, start=2):
        text = row.get(SPREAD, "")
        try:
            good = 0 <= float(text) < math.inf
        except ValueError:
            good = False
        if not good:
            found = f"{shown(text)} is no spread" if text else "no spread"
            raise TableError(
                f"{found}; the benchmark prints one with every point, 0 or more",
                file=f"{name}.csv",
                line=line,
                column=SPREAD,
            )
