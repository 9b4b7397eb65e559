"""The suite: which records there are, which program and arguments make each, and for which targets a file compiles.

The list is data (``kernels_cuda/microbench/suite.toml``), one table a record. What a file compiles for stands in its own
header::

       Targets    sm_90a sm_100a sm_103a (sm_120a: slow multicast; others: no clusters)

with reasons for the other targets in parentheses. A file without that line is for sm_90a alone.
"""

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from tilesight.calibrate.counters import Counting
from tilesight.calibrate.toolchain import TARGETS, Gpu
from tilesight.errors import TableError, UnsupportedError, shown, suggestion
from tilesight.files import data_file

FOLDER = "kernels_cuda/microbench"
LIST = "suite.toml"
TIMEOUT_S = 60.0
NEEDS = {"two_gpus": 2}
"""What a benchmark may need beside its target: so many GPUs."""

KEYS = ("source", "runs", "timeout_s", "needs", "kernel", "counters")

UNSTATED = ("sm_90a",)
_TARGETS = re.compile(r"^[ \t*/]*Targets[ \t]+(sm_\w+(?:[ \t]+sm_\w+)*)[ \t]*(?:\(([^)\n]*)\))?", re.M)
_NAME = re.compile(r"[a-z0-9]+(_[a-z0-9]+)*")

TRITON, NCU = "PyTorch, Triton and pynvml", "Nsight Compute (ncu)"
ELSEWHERE: Mapping[str, tuple[str, str]] = {
    "fresh_cache": ("validation/fresh_cache.py", f"{NCU}, {TRITON}"),
    **dict.fromkeys(
        ("triton_drift", "triton_drift_tiles", "triton_drift_stages", "triton_drift_stages_tiles"),
        ("validation/triton_drift.py", f"gpc_clock.csv as its second argument, then with --stages, {NCU}, {TRITON}"),
    ),
    "triton_lookups": ("validation/triton_lookups.py", f"{NCU}, {TRITON}"),
    "triton_outside": ("validation/triton_loops.py", TRITON),
    "triton_ragged": ("validation/triton_loops.py", TRITON),
    "triton_rounds": ("validation/triton_loops.py", TRITON),
    "triton_steps": ("validation/triton_loops.py", TRITON),
    "triton_tails": ("validation/triton_loops.py", TRITON),
    "triton_unaligned": ("validation/triton_loops.py", TRITON),
    "vendor_gemm": ("validation/vendor_gemm.py", TRITON),
    "warm_residency": ("validation/warm_residency.py", f"{NCU}, {TRITON}"),
}
"""Records that scripts of the repository make, beside the suite: name to script and what it needs."""


@dataclass(frozen=True)
class Benchmark:
    """One record of the suite: its program, a list of arguments a run, and the limit of each run."""

    name: str
    source: Path
    runs: tuple[tuple[str, ...], ...] = ((),)
    timeout_s: float = TIMEOUT_S
    needs: str | None = None
    counting: Counting | None = None

    def why_not(self, target: str, gpus: int, *, ncu: bool) -> str | None:
        """Why this machine can't run it; None if it can."""
        known = targets_of(self.source)
        if target not in known.names:
            return f"{self.source.name} is not for {target}: {known.why_not(target)}"
        if self.needs is not None and gpus < NEEDS[self.needs]:
            return f"needs {NEEDS[self.needs]} GPUs; {gpus} is visible"
        if self.counting is not None and not ncu:
            return "needs Nsight Compute (ncu), which is not on the path; it comes with the CUDA toolkit"
        return None

    @property
    def prints_spread(self) -> bool:
        """Whether its source prints the spread of repeats; it then does so with every point."""
        return '"spread"' in self.source.read_text(encoding="utf-8", errors="replace")


@dataclass(frozen=True)
class Targets:
    """Targets that a file compiles for, and why not for others: by target, or all that are not named under ``others``."""

    names: tuple[str, ...]
    reasons: Mapping[str, str]

    def why_not(self, target: str) -> str:
        """Why a target is not among them."""
        return self.reasons.get(target) or self.reasons.get("others") or "its header does not name it"


def targets_of(source: Path) -> Targets:
    """Targets that the header of a CUDA file states.

    Raises
    ------
    UnsupportedError
        If it names one that is not known.
    """
    return _targets_of(source, source.stat().st_mtime_ns)


@lru_cache(maxsize=1024)
def _targets_of(source: Path, _changed: int) -> Targets:
    found = _TARGETS.search(source.read_text(encoding="utf-8"))
    if found is None:
        return Targets(UNSTATED, {"others": "its header states no targets"})
    names = tuple(found[1].split())
    for name in names:
        if name not in TARGETS.values():
            raise UnsupportedError(f"{source.name}: no target {name!r}; {suggestion(name, TARGETS.values())}")
    reasons: dict[str, str] = {}
    for clause in (found[2] or "").split(";"):
        words, _, reason = clause.partition(": ")
        reasons |= dict.fromkeys(words.split(), reason.strip())
    return Targets(names, reasons)


def read_suite(path: Path | None = None) -> dict[str, Benchmark]:
    """Benchmarks by name of their record, in the order in which they run.

    Parameters
    ----------
    path
        The list; sources lie beside it. None takes the shipped one.

    Raises
    ------
    TableError
        If the list breaks a rule: unknown key, wrong type, absent source.

    Examples
    --------
    >>> read_suite()["dram_read"].source.name
    'dram_read.cu'
    """
    path = data_file(f"{FOLDER}/{LIST}") if path is None else path
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise TableError(f"not a TOML file: {error}", file=path.name) from None
    return {name: _benchmark(path, name, entry) for name, entry in table.items()}


def _benchmark(path: Path, name: str, entry: Any) -> Benchmark:
    def refuse(problem: str) -> TableError:
        return TableError(f"[{name}]: {problem}", file=path.name)

    if not isinstance(entry, dict) or not _NAME.fullmatch(name):
        raise refuse("give one table a record, named in lower-case letters, digits and underscores")
    for key in entry:
        if key not in KEYS:
            raise refuse(f"unknown key {key!r}; {suggestion(key, KEYS)}")
    source = entry.get("source", f"{name}.cu")
    if not isinstance(source, str) or not (path.parent / source).is_file():
        raise refuse(f"source = {shown(source)} is no file beside {path.name}")
    runs = entry.get("runs", [[]])
    if not (isinstance(runs, list) and runs and all(isinstance(run, list) for run in runs)):
        raise refuse(f'runs = {shown(runs)}; give a list of lists, such as [["--part", "a"], ["--part", "b"]]')
    timeout_s = entry.get("timeout_s", TIMEOUT_S)
    if isinstance(timeout_s, bool) or not isinstance(timeout_s, int | float) or not 0 < timeout_s <= 86400:
        raise refuse(f"timeout_s = {shown(timeout_s)}; give seconds")
    needs = entry.get("needs")
    if needs is not None and needs not in NEEDS:
        raise refuse(f"needs = {shown(needs)}; {suggestion(str(needs), NEEDS)}")
    words = tuple(tuple(str(word) for word in run) for run in runs)
    kernel, counters = entry.get("kernel"), entry.get("counters")
    if (kernel is None) != (counters is None):
        raise refuse("kernel and counters belong together: what is counted, and in which kernels")
    counting = None
    if kernel is not None:
        if not (isinstance(kernel, str) and isinstance(counters, list) and counters):
            raise refuse(f"kernel = {shown(kernel)}, counters = {shown(counters)}; give a name and a list of names")
        counting = Counting(kernel, tuple(str(counter) for counter in counters))
    return Benchmark(name, path.parent / source, words, float(timeout_s), needs, counting)


@lru_cache(maxsize=1024)
def prints_spread(record: str) -> bool:
    """Whether a record is of the suite and its program prints the spread of its repeats with every point.

    Examples
    --------
    >>> prints_spread("dram_read"), prints_spread("device_limits"), prints_spread("vendor_gemm")
    (True, False, False)
    """
    bench = read_suite().get(record)
    return bench is not None and bench.prints_spread


def chosen(suite: Mapping[str, Benchmark], only: Sequence[str]) -> dict[str, Benchmark]:
    """The benchmarks of these names, or all of them; in the order of the suite.

    Raises
    ------
    UnsupportedError
        If a name is not in the suite; the message says which script makes that record, if one does.
    """
    for name in only:
        if name in ELSEWHERE and name not in suite:
            script, needs = ELSEWHERE[name]
            raise UnsupportedError(f"record {name!r} is not of the suite: {script} makes it, with {needs}")
        if name not in suite:
            raise UnsupportedError(f"no microbenchmark {name!r}; {suggestion(name, suite, len(suite))}")
    return {name: suite[name] for name in suite if not only or name in only}


def split_by_machine(
    suite: Mapping[str, Benchmark], gpu: Gpu, *, ncu: bool
) -> tuple[dict[str, Benchmark], dict[str, str]]:
    """Benchmarks that this GPU can run, with Nsight Compute or without, and the reason for each of the others."""
    reasons = {name: bench.why_not(gpu.target, gpu.count, ncu=ncu) for name, bench in suite.items()}
    able = {name: bench for name, bench in suite.items() if reasons[name] is None}
    return able, {name: reason for name, reason in reasons.items() if reason is not None}
