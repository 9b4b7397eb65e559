"""Scores of the verdicts on clusters against a record of `dsmem.py`, and tables of docs/dsmem.md and validation/README.md.

    python validation/dsmem_score.py [FOLDER] [--write]      FOLDER: validation/records/h200_sxm

Every point of the record that has all alternatives is scored, fp32 and bf16 apart; tables are printed, and with --write put
between the markers of both pages. No GPU is needed.
"""

from __future__ import annotations

import argparse
import csv
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tilesight import load_profile, verdict
from tilesight.dsmem.catalogue import SIX
from tilesight.dsmem.measured import MeasuredVerdict, beside

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "validation" / "records" / "h200_sxm"
PAGES = {"kernels": ROOT / "validation" / "README.md", "verdicts": ROOT / "docs" / "dsmem.md"}
COPY_BYTES_PER_S = 4.25e12
"""What a copy between buffers of the device moves, read and written (record `dram_copy`, largest sizes)."""
WIDE = 65536
KNOWN = (4096, 5000, 6144, 8192, 10000, 12288, 16384, 20480, 24576, 32768, 40960, 49152, 65536)
"""Widths at which kernels were timed before the model was frozen; the others of the record are a test of it."""
LAST = (5632, 7680, 10240, 13312, 19456, 26624, 34816, 47104)
"""Those first timed after its last change, warps by quarters of an SM, for which the other widths had given the reason."""
NEAR = 0.05
"""A cluster size is right if its time is within this of the best one's."""


@dataclass(frozen=True)
class Scored:
    """A point of the record beside its verdict."""

    beside: MeasuredVerdict
    compulsory_bytes: float

    @property
    def workload(self) -> str:
        return self.beside.verdict.workload

    @property
    def cols(self) -> int:
        return self.beside.verdict.cols

    def best_s(self, *names: str) -> float:
        """Fastest of these alternatives, infinite where none was measured."""
        return min((seconds for (name, _), seconds in self.beside.seconds.items() if name in names), default=np.inf)

    @property
    def ours_s(self) -> float:
        """Fastest of our kernels."""
        return self.best_s("cluster", "staged", "reread")

    @property
    def size_regret(self) -> float | None:
        """Time of the cluster size that the verdict names (or would) over that of the best; None without either."""
        sizes = {size: seconds for (name, size), seconds in self.beside.seconds.items() if name == "cluster"}
        chosen = self.beside.verdict.cluster_size
        return sizes[chosen] / min(sizes.values()) if chosen in sizes else None


def scored(folder: Path, gpu: str = "h200_sxm", dtype: str = "fp32") -> list[Scored]:
    """All points of the record in one format, workload by workload."""
    path, hardware = folder / "dsmem.csv", load_profile(gpu)
    with path.open(newline="", encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["dtype"] == dtype and row["seconds"]]
    keys = {(row["workload"], int(row["rows"]), int(row["cols"])): float(row["compulsory_bytes"]) for row in rows}
    order = sorted(keys, key=lambda key: (SIX.index(key[0]), key[2]))
    return [Scored(beside(verdict(*key, hardware=hardware, dtype=dtype), path), keys[key]) for key in order]


def complete(points: Sequence[Scored]) -> list[Scored]:
    """Points at which a cluster, a kernel of one CTA and both compilers were measured."""
    wanted = {"cluster", "reread", "triton", "torch_compile"}
    return [each for each in points if wanted <= {name for name, _ in each.beside.seconds}]


def geometric_mean(values: Sequence[float]) -> float:
    return float(np.exp(np.mean(np.log(values))))


def verdict_scores(points: Sequence[Scored]) -> Iterator[str]:
    """Lines on how good the verdicts are."""
    regrets = [each.beside.regret for each in points if each.beside.regret is not None]
    paid = np.array([bool(each.beside.cluster_paid) for each in points])
    said = np.array([each.beside.verdict.cluster for each in points])
    halves = [float((said == paid)[paid == side].mean()) for side in (True, False) if (paid == side).any()]
    sizes = [each.size_regret for each, pays in zip(points, paid, strict=True) if pays and each.size_regret]
    near = [size <= 1 + NEAR for size in sizes]
    yield f"{len(points)} points, clusters pay at {paid.sum()}, the verdict says so at {said.sum()}"
    yield f"chosen / best: geometric mean {geometric_mean(regrets):.3f}, worst {max(regrets):.3f} ({len(regrets)} points)"
    yield f"clusters pay: balanced accuracy {np.mean(halves):.3f} ({' and '.join(f'{half:.3f}' for half in halves)})"
    if sizes:
        yield f"cluster size within {100 * NEAR:.0f} % of the best at {np.mean(near):.3f} of {len(sizes)} where clusters pay"


def kernel_scores(points: Sequence[Scored]) -> Iterator[str]:
    """Lines on how fast the kernels are."""
    wide = [each for each in points if each.cols == WIDE]
    if wide:
        speed = geometric_mean([each.best_s("torch_compile") / each.ours_s for each in wide])
        either = geometric_mean([each.best_s("torch_compile", "triton") / each.ours_s for each in wide])
        own = geometric_mean([each.best_s("staged", "reread") / each.best_s("cluster") for each in wide])
        yield (
            f"at {WIDE} columns, geometric mean of {len(wide)}: {speed:.2f} times as fast as torch.compile, {either:.2f} as "
            f"the faster of it and Triton; clusters {own:.2f} as our kernels of one CTA"
        )
    narrow = [each for each in points if each.cols <= 16384]
    if narrow:
        slowest = max(narrow, key=lambda each: each.ours_s / each.best_s("torch_compile"))
        ratio = slowest.ours_s / slowest.best_s("torch_compile")
        yield f"up to 16384 columns: at worst {ratio:.3f} of torch.compile's time ({slowest.workload}, {slowest.cols})"


def kernel_table(points: Sequence[Scored]) -> Iterator[str]:
    """Markdown of the wide rows and the scores."""
    yield f"| {WIDE} columns | best of ours | of copy | cluster | staged | reread | Triton | torch.compile |"
    yield "|---|---|---|---|---|---|---|---|"
    for each in points:
        if each.cols == WIDE:
            names = (("cluster",), ("staged",), ("reread",), ("triton",), ("torch_compile",))
            cells = [_microseconds(each.best_s(*name)) for name in names]
            share = each.compulsory_bytes / each.ours_s / COPY_BYTES_PER_S
            yield f"| {each.workload} | {_microseconds(each.ours_s)} | {100 * share:.0f} % | {' | '.join(cells)} |"
    yield ""
    yield from (f"- {line}" for line in kernel_scores(points))


def verdict_table(points: Sequence[Scored]) -> Iterator[str]:
    """Markdown of all points: what the verdict chose, what was best, and the scores."""
    yield "| workload | columns | verdict | predicted us | measured us | best measured | us | chosen / best |"
    yield "|---|---|---|---|---|---|---|---|"
    for each in points:
        chosen, found = each.beside.verdict.best, each.beside
        name, size = found.best
        regret = "" if found.regret is None else f"{found.regret:.3f}"
        cells = (
            each.workload,
            f"{each.cols}",
            _named(chosen.name, chosen.cluster) if chosen else "",
            _microseconds(chosen.seconds) if chosen and chosen.seconds else "",
            _microseconds(found.measured(chosen) or np.inf),
            _named(name, size),
            _microseconds(found.seconds[found.best]),
            regret,
        )
        yield f"| {' | '.join(cells)} |"
    parts = {
        "Widths first timed after the last change of the model": [each for each in points if each.cols in LAST],
        "Widths that nobody had timed before it was frozen": [each for each in points if each.cols not in KNOWN],
        "All widths": points,
    }
    for which, those in parts.items():
        if those:
            yield from ("", f"{which}:", "", *(f"- {line}" for line in verdict_scores(those)))


def half_scores(folder: Path) -> Iterator[str]:
    """Scores in bf16."""
    yield from ("", "bf16, at 4096, 16384 and 65536 columns:", "")
    yield from (f"- {line}" for line in verdict_scores(complete(scored(folder, dtype="bf16"))))


def crossover_table(points: Sequence[Scored]) -> Iterator[str]:
    """Markdown of the width from which clusters pay: measured, between two widths, and predicted."""
    yield "| workload | measured: pay from | predicted: from |"
    yield "|---|---|---|"
    for name in SIX:
        own = [each for each in points if each.workload == name]
        if own:
            not_yet = [each.cols for each in own if not each.beside.cluster_paid]
            later = [each.cols for each in own if each.cols > max(not_yet, default=0)]
            first = "never" if not later else f"{max(not_yet, default=0)} to {min(later)}"
            yield f"| {name} | {first} | {own[0].beside.verdict.crossover_cols or 'never'} |"
    yield ""


def _named(name: str, size: int) -> str:
    return f"{name} {size}" if name == "cluster" else name


def _microseconds(seconds: float) -> str:
    return f"{1e6 * seconds:.1f}" if np.isfinite(seconds) else ""


def write(page: Path, name: str, lines: Sequence[str]) -> None:
    """Put lines between the markers of a page."""
    text = page.read_text(encoding="utf-8")
    pattern = re.compile(rf"(<!-- dsmem {name}: begin -->\n).*?(<!-- dsmem {name}: end -->)", re.DOTALL)
    if not pattern.search(text):
        sys.exit(f"{page}: no markers <!-- dsmem {name}: begin --> and end")
    page.write_text(pattern.sub(lambda found: found[1] + "\n".join(lines) + "\n" + found[2], text), encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", nargs="?", type=Path, default=FOLDER)
    parser.add_argument("--write", action="store_true", help="write the tables of the pages")
    options = parser.parse_args()
    points = complete(scored(options.folder))
    tables = {
        "kernels": [
            *kernel_table(points),
            "",
            "bf16:",
            "",
            *kernel_table(complete(scored(options.folder, dtype="bf16"))),
        ],
        "verdicts": [*crossover_table(points), *verdict_table(points), *half_scores(options.folder)],
    }
    for name, lines in tables.items():
        print("\n".join(lines))
        if options.write:
            write(PAGES[name], name, lines)


if __name__ == "__main__":
    main()
