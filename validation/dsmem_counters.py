"""DRAM bytes and distributed shared memory bytes of one launch, by Nsight Compute.

Clocks and caches are left alone. The launch follows equal ones, or the poisoning of its outputs, so that dirty lines it
finds stand for those it leaves. DRAM is counted in a session of its own, in one pass: a second pass would restore the
outputs first. Names that this profiler does not know stay unknown.
"""

from __future__ import annotations

import argparse
import csv
import io
import re
import subprocess
from collections.abc import Iterable, Sequence

import dsmem_cuda
from dsmem_candidates import recorded
from dsmem_measure import Clock
from dsmem_record import COUNTED, KEY, SOURCES, Point, Record, cell, points

LAUNCHED = ("workload", "dtype", "rows", "cols", "alternative", "kinds", "configuration")
"""What `launch` is told of a row."""
MARKED_CALLS = 3

DRAM = ("dram__bytes_read.sum", "dram__bytes_write.sum")
DSHARED = (
    "l1tex__m_l1tex2xbar_write_bytes_mem_dshared.sum",
    "l1tex__m_l1tex2xbar_write_bytes_mem_dshared_op_st.sum",
    "l1tex__m_xbar2l1tex_read_bytes_mem_dshared.sum",
    "l1tex__t_bytes_pipe_lsu_mem_dshared.sum",
    "l1tex__t_bytes_pipe_lsu_mem_dshared_op_st.sum",
    "smsp__sass_inst_executed_op_dshared.sum",
)
"""Aliases and neighbours; the first that is known gives the column dshared_bytes_per_element."""
PASSES = "profiler__replayer_passes"
COLUMNS = (*KEY, "kernel", "launched", PASSES, *DRAM, *DSHARED, *COUNTED, "error")
OURS = ("-k", "regex:^row_")  # kernels of the CUDA programs


def known_metrics(chip: str = "gh100") -> set[str]:
    """Base names that ncu knows for a chip."""
    done = subprocess.run(["ncu", "--query-metrics", "--chip", chip], capture_output=True, text=True)
    return {line.split()[0] for line in done.stdout.splitlines() if re.match(r"[a-z0-9]+__\w+\s", line)}


def profiled(command: Sequence[str], metrics: Sequence[str], *, marked: bool) -> tuple[list[dict], str]:
    """Rows of the launches of a command, and what ncu said last; ``marked``: the command says when profiling starts."""
    options = "--clock-control none --cache-control none --csv --page raw --print-units base --launch-count 60"
    start = ("--profile-from-start", "off") if marked else OURS
    words = ["ncu", *options.split(), *start, "--metrics", ",".join(metrics), *command]
    done = subprocess.run(words, capture_output=True, text=True)
    return rows_of(done.stdout), (done.stdout[-200:] + done.stderr[-200:])


def rows_of(text: str) -> list[dict]:
    """Launches in ncu's raw CSV: the line of units and what is not CSV left out.

    >>> rows_of('==PROF== x\\n"ID","Kernel Name","a.sum"\\n"","","byte"\\n"0","k","1,024"\\n')
    [{'ID': '0', 'Kernel Name': 'k', 'a.sum': '1,024'}]
    """
    lines = [line for line in text.splitlines() if line.startswith('"')]
    return [row for row in csv.DictReader(io.StringIO("\n".join(lines))) if row["ID"].isdigit()]


def last_call(launches: Sequence[dict], calls: int | None) -> list[dict]:
    """Launches of the last of ``calls`` equal calls; where None, the last launch."""
    if calls is None:
        return list(launches[-1:])
    each = len(launches) // calls
    return list(launches[-each:]) if each and len(launches) % calls == 0 else []


def total(launches: Sequence[dict], metric: str) -> float | None:
    """Sum of a metric over launches; None where it is unknown."""
    texts = [row.get(metric) for row in launches]
    if not texts or any(not text or not re.fullmatch(r"[\d,.]+(e[+-]?\d+)?", text) for text in texts):
        return None
    return sum(float(text.replace(",", "")) for text in texts)


def counted(row: dict, command: Sequence[str], calls: int | None, known: set[str]) -> dict:
    """The row of counts of one measured row, launched by a command (``calls`` times between marks, or by itself)."""
    elements = int(row["rows"]) * int(row["cols"])
    found = {name: row[name] for name in KEY}
    wanted = [DRAM, tuple(name for name in DSHARED if name.rsplit(".", 1)[0] in known)]
    for metrics in wanted if row["alternative"] == "cluster" else wanted[:1]:
        launches, said = profiled(command, metrics, marked=calls is not None) if metrics else ([], "")
        last = last_call(launches, calls)
        if not last:
            return found | dict(error=cell(f"{len(launches)} launches counted: {said}"))
        found |= {name: total(last, name) for name in metrics}
        found |= dict(kernel=last[0]["Kernel Name"], launched=len(last))
        if metrics is DRAM:
            found[PASSES] = total(last[:1], PASSES)
    dshared = next((found[name] for name in DSHARED if found.get(name) is not None), None)
    bytes_of = (found.get(DRAM[0]), found.get(DRAM[1]), dshared)
    per_element = {
        name: None if count is None else count / elements for name, count in zip(COUNTED, bytes_of, strict=True)
    }
    return found | per_element


def count(options: argparse.Namespace, record: Record, clock: Clock, script: Sequence[str]) -> None:
    """Count the fastest rows at each point and fill their columns in the record; ``script`` starts `dsmem.py`."""
    kept = Record(options.out / "dsmem_counters.csv", COLUMNS)
    known = known_metrics()
    for point in points(options.workloads, options.widths, options.rows, options.dtype):
        for row in fastest(record, point, options.alternatives):
            done = any(all(each[name] == row[name] for name in KEY) for each in kept.rows)
            if done or clock.left_s <= 0:
                continue
            if row["alternative"] in SOURCES["cuda"]:
                command, calls = dsmem_cuda.once(options.programs.resolve() / point.workload, row), None
            else:
                command, calls = [*script, "launch", *(row[name] for name in LAUNCHED)], MARKED_CALLS
            kept.append(counted(row, command, calls, known))
            row |= {name: kept.rows[-1][name] for name in COUNTED}
            record.write()
            clock.tell(" ".join(text for text in kept.rows[-1].values() if text))


def fastest(record: Record, point: Point, alternatives: Iterable[str]) -> list[dict]:
    """Rows to count at a point; an alternative without a time is told and left out."""
    found = []
    for name in alternatives:
        row = record.fastest(point, SOURCES["cuda"] if name == "ours" else (name,))
        if row is None:
            print(f"nothing timed for {name} at {point}", flush=True)
        elif row not in found:
            found.append(row)
    return found


def launch(row: dict) -> None:
    """Some calls, between marks, of what a row of torch_compile or triton says."""
    import torch
    from dsmem_workloads import Problem

    point = Point(row["workload"], row["dtype"], int(row["rows"]), int(row["cols"]))
    problem = Problem.of(point)
    with torch.no_grad():
        run = _runner(problem, point, row)
        run()
        torch.cuda.synchronize()
        torch.cuda.profiler.start()
        for _ in range(MARKED_CALLS):
            run()
        torch.cuda.synchronize()
        torch.cuda.profiler.stop()


def _runner(problem, point: Point, row: dict):
    """A call of what a row says."""
    if row["alternative"] == "triton":
        import dsmem_triton

        return dsmem_triton.launcher(problem, point, recorded(row), problem.poisoned())[0]
    import dsmem_torch

    function, _ = dsmem_torch.compiled(problem)
    return lambda: function(*problem.given)
