"""Hardware counters beside the points of a microbenchmark: the program runs under Nsight Compute (ncu), if there is one.

Such a program prints with each point how many of the counted launches belong to it (``launches``); all of a point are alike
or only the last one counts, so the last one is taken. Clocks and caches are left as they are.
"""

import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tilesight.calibrate.toolchain import HOME
from tilesight.errors import TableError
from tilesight.ncu.page import NO_RIGHT, last_words, launches_of, plain_number

Row = dict[str, str | int | float | bool | None]

LAUNCHES = "launches"
WITHOUT_RIGHT = (
    "the driver lets only administrators read counters (ERR_NVGPUCTRPERM); developer.nvidia.com/ERR_NVGPUCTRPERM says how "
    "to allow it"
)


class BadCountersError(Exception):
    """What Nsight Compute wrote does not fit the points; stays in this package."""


class CountersNotAllowedError(Exception):
    """This user may not read counters; stays in this package."""


@dataclass(frozen=True)
class Counting:
    """Which kernels of a program are counted (a regular expression on their names), and which counters."""

    kernel: str
    counters: tuple[str, ...]

    def command(self, ncu: Path | str, log: Path | str) -> list[str]:
        """Words before the program's own.

        Examples
        --------
        >>> Counting("copy_", ("dram__bytes_read.sum",)).command("ncu", "counters.csv")[5:7]
        ['-k', 'regex:copy_']
        """
        still = ["--clock-control", "none", "--cache-control", "none", "-k", f"regex:{self.kernel}"]
        page = ["--csv", "--page", "raw", "--print-units", "base", "--metrics", ",".join(self.counters)]
        return [str(ncu), *still, *page, "--log-file", str(log)]

    def beside(self, rows: Sequence[Row], log: Path) -> list[Row]:
        """The points with their counters.

        Raises
        ------
        CountersNotAllowedError
            If this user may not read counters.
        BadCountersError
            If launches and points don't fit, or a counter is absent or no number.
        """
        if is_forbidden(log):
            raise CountersNotAllowedError(WITHOUT_RIGHT)
        launches = self._launches(_text(log))
        counted: list[Row] = []
        at = 0
        for row in rows:
            own = row.get(LAUNCHES, 0 if row.get("part") == "skipped" else None)
            if isinstance(own, bool) or not isinstance(own, int) or own < 0:
                raise BadCountersError(f"a point with {LAUNCHES} = {own!r}; a counted program prints how many it made")
            at += own
            counted.append(row if not own or at > len(launches) else row | launches[at - 1])
        if at != len(launches):
            raise BadCountersError(f"{len(launches)} launches of {self.kernel!r} were counted; the points say {at}")
        return counted

    def _launches(self, text: str) -> list[Row]:
        """Counters of each launch, as the raw page has them."""
        lines = text.splitlines()
        try:
            launches = launches_of(lines, "counters")
        except TableError as error:
            raise BadCountersError(f"Nsight Compute wrote {error}") from None
        if not launches:
            raise BadCountersError(f"Nsight Compute counted no launch of {self.kernel!r}: {last_words(lines)}")
        found = []
        for launch in launches:
            values: Row = {}
            for counter in self.counters:
                shown = launch.text_of(counter)
                value = None if shown is None else plain_number(shown)
                if value is None:
                    raise BadCountersError(f"Nsight Compute gives {counter} = {shown!r}, no number")
                values[counter] = int(value) if value == int(value) else value
            found.append(values)
        return found


def is_forbidden(log: Path) -> bool:
    """Whether Nsight Compute says that this user may not read counters."""
    return NO_RIGHT in _text(log)


def _text(log: Path) -> str:
    return log.read_text(encoding="utf-8", errors="replace") if log.is_file() else ""


def find_ncu() -> Path | None:
    """Nsight Compute's command line tool: on the path, else below ``CUDA_HOME`` or the usual place; None without one.

    Examples
    --------
    >>> ncu = find_ncu()
    >>> ncu is None or ncu.name == "ncu"
    True
    """
    beside = Path(os.environ.get("CUDA_HOME", HOME)) / "bin" / "ncu"
    found = shutil.which("ncu") or (str(beside) if beside.is_file() else None)
    return None if found is None else Path(found)
