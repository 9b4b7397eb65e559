"""Score the model on measured tables and write the scores down.

    python validation/tables.py [TABLES_FOLDER] [--gpu h200_sxm]

Runs ``compare`` on every table of ``RUNS`` that lies in TABLES_FOLDER or below, and always on the sample that ships.
Each run leaves ``validation/scores/NAME.json``; then the blocks between ``<!-- scores: begin -->`` and
``<!-- scores: end -->`` of README.md and validation/README.md are written anew from all the files there.
"""

import argparse
import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tilesight import compare_records

ROOT = Path(__file__).resolve().parent.parent
SCORES = ROOT / "validation" / "scores"
SAMPLE = ROOT / "validation" / "records" / "sample"
BEGIN, END = "<!-- scores: begin -->", "<!-- scores: end -->"
DIGITS = 6
REGIMES = ("warm", "cold", "lt20us", "20to100us", "gt100us", "m_le_64", "deep_k")


@dataclass(frozen=True)
class Run:
    """One comparison: the file's name, what is asked for, and how a reader knows it."""

    name: str
    file: str
    words: str
    where: tuple[str, ...] = ()
    auto_config: bool = False
    gpu: str | None = None  # a run of another GPU than the one asked for; left out of the readme


def public_runs() -> tuple[Run, ...]:
    """The public table by GPU and type, primary sources alone.

    Profiles of GPUs other than the calibrated one take their ceilings of bandwidth and tensor rates from that table's
    bf16 rows.
    """
    runs = []
    for gpu in ("a100_sxm", "h100_sxm", "h200_sxm", "b200_sxm", "gb200", "b300_sxm", "gb300", "l40s", RTX_PRO):
        informed = "" if gpu == "h200_sxm" else ", ceiling-informed"
        source = "source=trtllm/1.0.0" if gpu == "a100_sxm" else "source=trtllm/1.3.0rc20"
        where = (f"gpu={gpu}", "dtype=bf16", source)
        runs.append(Run(f"public_bf16_{gpu}", "gemm.csv.gz", f"{gpu}, bf16{informed}", where, gpu=gpu))
        if gpu != "a100_sxm":
            where = (f"gpu={gpu}", "dtype=fp8")
            words = f"{gpu}, quantiser and fp8{informed}"
            runs.append(Run(f"public_fp8_{gpu}", "gemm.csv.gz", words, where, gpu=gpu))
    return tuple(runs)


RTX_PRO = "rtx_pro_6000_server"
RUNS = (
    Run("gemm_cublas", "gemm_cublas.csv", "cuBLAS, tiles as it chose"),
    Run("gemm_cublas_auto", "gemm_cublas.csv", "cuBLAS, tiles chosen by the model", auto_config=True),
    Run("gemm_triton", "gemm_triton.csv", "Triton, stated tiles"),
    Run("gemm_l2", "gemm_l2.csv", "Triton under Nsight Compute"),
    Run("tile_drift", "tile_drift.csv", "Triton, deep k"),
    Run("gemm_other", "gemm_other.csv", "fp16, tf32, fp8 and batched bf16, tiles chosen by the model"),
    Run("public_gemm", "gemm.csv.gz", "public table, this GPU, bf16", where=("gpu={gpu}", "dtype=bf16")),
    *public_runs(),
)
SAMPLES = (
    Run("sample_gemm_cublas", "gemm_cublas.csv", "sample, cuBLAS"),
    Run("sample_gemm_triton", "gemm_triton.csv", "sample, Triton"),
)


def find(folder: Path, name: str) -> Path | None:
    """The file of that name in the folder or below; the first in alphabetical order."""
    return next(iter(sorted(folder.rglob(name))), None)


def score(run: Run, path: Path, gpu: str) -> dict[str, Any]:
    """What a run found, short enough to keep: refusals by reason, numbers with a few digits."""
    where = [condition.format(gpu=gpu) for condition in run.where]
    result = compare_records(path, hardware=run.gpu or gpu, where=where, auto_config=run.auto_config)
    found = result.to_dict()
    reasons = Counter(refusal["reason"] for refusal in found["refused"])
    found["refused"] = [{"reason": reason, "n": count} for reason, count in sorted(reasons.items())]
    return {"name": run.name, "words": run.words, **shortened(found)}


def shortened(value: Any) -> Any:
    """The value with its floats rounded, so that files differ only where scores do."""
    if isinstance(value, dict):
        return {key: shortened(item) for key, item in value.items()}
    if isinstance(value, list):
        return [shortened(item) for item in value]
    return float(f"{value:.{DIGITS}g}") if isinstance(value, float) else value


def shown(value: float | None, form: str = "{:.1f}") -> str:
    return "" if value is None else form.format(value)


def time_table(scores: list[dict[str, Any]]) -> list[str]:
    """Markdown of the errors of times, beside the roofline's."""
    lines = [
        "| table | predictions | error % | roofline % | bias % | warm | cold | < 20 us | 20-100 us | > 100 us | m <= 64 "
        "| deep k | picked / best |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in scores:
        regimes = row["by_regime"]
        counted = f"{row['n']}" + (f" (+{row['n_refused']} refused)" if row["n_refused"] else "")
        cells = [row["words"], counted, shown(row["mape"]), shown(row["roofline_mape"]), shown(row["bias"], "{:+.1f}")]
        cells += [shown(regimes[name]["mape"]) for name in REGIMES]
        lines.append("| " + " | ".join([*cells, shown(row["top1_regret_geomean"], "{:.3f}")]) + " |")
    return lines


def byte_table(scores: list[dict[str, Any]]) -> list[str]:
    """Markdown of the errors of bytes and hit rates; nothing where no table counts them."""
    counted = [row for row in scores if row["dram_read_mape"] is not None]
    if not counted:
        return []
    names = (
        "dram_read_mape",
        "dram_read_mape_reused",
        "dram_bytes_mape",
        "lookup_mape",
        "crossing_mape",
        "hit_rate_mae_pp",
    )
    lines = [
        "",
        "| table | DRAM reads % | where read again % | reads and writes % | L2 lookups % | crossings % | hit rate, points |",
        "|---|---|---|---|---|---|---|",
    ]
    lines += ["| " + " | ".join([row["words"], *(shown(row[name]) for name in names)]) + " |" for row in counted]
    heads = ("inside the likely interval, % of rows", "time", "DRAM reads", "L2 lookups", "hit rate")
    lines += ["", f"| {' | '.join(heads)} |", "|---|---|---|---|---|"]
    return lines + [interval_row(row) for row in scores if row["likely_interval"]["inside"] is not None]


def interval_row(row: dict[str, Any]) -> str:
    """Markdown of how many rows of a table lie in the likely intervals; of counters, by regime of the cache as well."""
    counters = row["likely_counters"]
    cells = [f"{100 * row['likely_interval']['inside']:.0f}"]
    for name in ("dram_read_bytes", "lookup_bytes", "l2_hit_rate"):
        of_all = counters.get(name)
        regimes = [f"{word} {100 * each['inside']:.0f}" for word, each in of_all["by_regime"].items()] if of_all else []
        cells.append(f"{100 * of_all['inside']:.0f} ({', '.join(regimes)})" if of_all else "")
    return "| " + " | ".join([row["words"], *cells]) + " |"


def kept() -> list[dict[str, Any]]:
    """Scores written down so far, in the order of the runs."""
    known = {run.name: place for place, run in enumerate((*RUNS, *SAMPLES))}
    found = [json.loads(path.read_text(encoding="utf-8")) for path in SCORES.glob("*.json")]
    return sorted(found, key=lambda row: (known.get(row["name"], len(known)), row["name"]))


def block(scores: list[dict[str, Any]], *, every: bool = True) -> list[str]:
    """Markdown of both tables, of other GPUs too or not."""
    of_others = {run.name for run in RUNS if run.gpu}
    shown_here = [row for row in scores if every or row["name"] not in of_others]
    return [*time_table(shown_here), *byte_table(shown_here)]


def write_block(page: Path, lines: list[str]) -> None:
    """Put the lines between the marks of a page."""
    text = page.read_text(encoding="utf-8")
    if text.count(BEGIN) != 1 or text.count(END) != 1:
        raise SystemExit(f"{page.name} has no block {BEGIN} ... {END}")
    before, rest = text.split(BEGIN)
    after = rest.split(END)[1]
    page.write_text("\n".join([before + BEGIN, *lines, END + after]), encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", nargs="?", type=Path, help="folder of measured tables")
    parser.add_argument("--gpu", default="h200_sxm")
    given = parser.parse_args()
    if given.tables is not None and not given.tables.is_dir():
        raise SystemExit(f"{given.tables} is no folder")
    SCORES.mkdir(exist_ok=True)
    for runs, folder in ((RUNS, given.tables), (SAMPLES, SAMPLE)):
        for run in runs if folder is not None else ():
            path = find(folder, run.file)
            if path is None:
                print(f"{run.name}: no {run.file} in {folder}")
                continue
            found = score(run, path, given.gpu)
            (SCORES / f"{run.name}.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
            print(f"{run.name}: {shown(found['mape'])} % (roofline {shown(found['roofline_mape'])} %), n {found['n']}")
    write_block(ROOT / "README.md", block(kept(), every=False))
    write_block(ROOT / "validation" / "README.md", block(kept()))


if __name__ == "__main__":
    main()
