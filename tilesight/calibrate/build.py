"""Compile CUDA files for targets, several at a time, into a cache.

A result is kept under a name that says what it was made from: the source, every header it includes with quotes, the flags
and the compiler. The same again is found there; a failure is not kept. A cubin holds device code alone, compiled and
assembled but not linked: enough to know that a file compiles for a GPU that is not here, in about half the time.
"""

import hashlib
import os
import re
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tilesight.calibrate.process import run_limited
from tilesight.calibrate.suite import targets_of
from tilesight.calibrate.toolchain import compiler_version
from tilesight.display import Displayable
from tilesight.errors import MissingToolError

NO_HOST = "host compiler properties"
"""What nvcc says where it finds no C++ compiler for the part that runs on the CPU."""
LIMIT_S = 1800.0
"""Seconds after which a compiler is ended; the slowest file takes a minute or two."""
_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*"([^"\n]+)"', re.M)


def flags_for(target: str) -> tuple[str, ...]:
    """Flags of nvcc for a target.

    Examples
    --------
    >>> " ".join(flags_for("sm_90a"))
    '-O3 -lineinfo -std=c++17 -gencode=arch=compute_90a,code=sm_90a -Xptxas -v'
    """
    arch = f"-gencode=arch={target.replace('sm_', 'compute_')},code={target}"
    return ("-O3", "-lineinfo", "-std=c++17", arch, "-Xptxas", "-v")


@dataclass(frozen=True)
class Job:
    """One file to compile for one target: to a program, or to a cubin."""

    source: Path
    target: str
    cubin: bool = False


@dataclass(frozen=True)
class Built:
    """What became of a job: where the result is (None where it failed), what the compiler said, how long it took.

    ``seconds`` is 0 for what was found in the cache.
    """

    job: Job
    result: Path | None
    report: str
    seconds: float

    @property
    def usage(self) -> str:
        """Kernels of the file, the most registers one uses, and how many bytes are spilled in all."""
        registers = [int(number) for number in re.findall(r"Used (\d+) registers", self.report)]
        spills = sum(int(number) for number in re.findall(r"(\d+) bytes spill stores", self.report))
        return f"{len(registers)} kernels, registers at most {max(registers, default=0)}, spilled {spills} B"

    @property
    def complaint(self) -> str:
        """What the compiler said, without ptxas's report on each kernel."""
        lines = self.report.splitlines()
        return "\n".join(line for line in lines if not re.match(r"ptxas info|.*bytes stack frame", line)).strip()


@dataclass(frozen=True)
class Builds(Displayable):
    """What became of many jobs, and which files were left out for which target, with the reason."""

    built: tuple[Built, ...]
    left_out: tuple[tuple[str, str, str], ...]

    @property
    def failed(self) -> tuple[Built, ...]:
        """Those that do not compile."""
        return tuple(each for each in self.built if each.result is None)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        rows = [
            {
                **{name: str(value) if isinstance(value, Path) else value for name, value in asdict(each.job).items()},
                "result": None if each.result is None else str(each.result),
                "seconds": round(each.seconds, 3),
                "usage": each.usage,
                "complaint": each.complaint,
            }
            for each in self.built
        ]
        names = ("source", "target", "reason")
        left_out = [dict(zip(names, row, strict=True)) for row in self.left_out]
        return {"schema": "tilesight.builds/1", "built": rows, "left_out": left_out}


def cache_folder() -> Path:
    """Where results are kept: ``tilesight/kernels`` in the user's cache (``XDG_CACHE_HOME``, or ``~/.cache``)."""
    home = os.environ.get("XDG_CACHE_HOME")
    return (Path(home) if home else Path.home() / ".cache") / "tilesight" / "kernels"


def jobs_for(
    sources: Iterable[Path], targets: Sequence[str], *, programs: Sequence[str]
) -> tuple[list[Job], list[tuple[str, str, str]]]:
    """Jobs of the files that state each target, and what is left out: file, target, reason.

    ``programs`` are the targets that get whole programs; the others get cubins.
    """
    jobs, left_out = [], []
    for source in dict.fromkeys(sources):
        known = targets_of(source)
        for target in targets:
            if target in known.names:
                jobs.append(Job(source, target, cubin=target not in programs))
            else:
                left_out.append((source.name, target, known.why_not(target)))
    return jobs, left_out


def compile_all(jobs: Sequence[Job], nvcc: Path, *, folder: Path | None = None, workers: int = 1) -> Iterator[Built]:
    """Results of the jobs, each as it is known, in the order of the jobs; ``workers`` compilers at a time.

    Parameters
    ----------
    folder
        The cache; None takes :func:`cache_folder`.
    """
    folder = cache_folder() if folder is None else folder
    folder.mkdir(parents=True, exist_ok=True)
    version = compiler_version(nvcc)
    stop = threading.Event()
    with ThreadPoolExecutor(max(workers, 1)) as pool:
        try:
            yield from pool.map(lambda job: compile_one(job, nvcc, version, folder, stop), jobs)
        finally:
            stop.set()
            pool.shutdown(wait=True, cancel_futures=True)


def compile_one(job: Job, nvcc: Path, version: str, folder: Path, stop: threading.Event | None = None) -> Built:
    """Compile one file, or find it compiled; where ``stop`` is set meanwhile the compiler is ended.

    Raises
    ------
    MissingToolError
        If the compiler can't be started, or finds no host compiler.
    """
    flags = flags_for(job.target)
    name = f"{job.source.stem}-{job.target}-{_key(job, flags, version)}{'.cubin' if job.cubin else ''}"
    result, log = folder / name, folder / f"{name}.log"
    if _is_whole(result, job) and log.is_file():
        return Built(job, result, log.read_text(encoding="utf-8", errors="replace"), 0.0)
    started = time.monotonic()
    with tempfile.TemporaryDirectory(dir=folder, prefix=".") as scratch:
        made = Path(scratch) / name
        command = [str(nvcc), *flags, *(["-cubin"] if job.cubin else []), str(job.source), "-o", str(made)]
        try:
            done = run_limited(command, LIMIT_S, stop=stop)
        except OSError as error:
            raise MissingToolError(f"{nvcc} does not run: {error}") from None
        report = done.out + done.err
        seconds = time.monotonic() - started
        if done.status and NO_HOST in report:
            raise MissingToolError(
                f"{nvcc} finds no host C++ compiler ({report.strip().splitlines()[0]}); install one that it supports "
                "(g++: apt install g++, dnf install gcc-c++), or name it in NVCC_CCBIN"
            )
        if done.status is None:
            return Built(job, None, f"nvcc took longer than {LIMIT_S:g} s\n{report}", seconds)
        if done.status or not _is_whole(made, job):
            return Built(job, None, report or f"nvcc ended with {done.status}", seconds)
        log.write_text(report, encoding="utf-8")
        made.replace(result)
    return Built(job, result, report, seconds)


def _is_whole(result: Path, job: Job) -> bool:
    """Whether a file can be what a job makes: not empty, as after a loss of power, and a program one that can be run."""
    return result.is_file() and result.stat().st_size > 0 and (job.cubin or os.access(result, os.X_OK))


def _key(job: Job, flags: Sequence[str], version: str) -> str:
    """16 hex digits of a SHA-256 over all that the result depends on."""
    digest = hashlib.sha256("\n".join([version, *flags, str(job.cubin)]).encode())
    for path in (job.source, *_headers(job.source)):
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def _headers(source: Path) -> list[Path]:
    """Files that a source includes with quotes, and those that they include, each once; in the order of their paths."""
    found: dict[Path, None] = {}
    waiting = [source]
    while waiting:
        path = waiting.pop()
        for name in _INCLUDE.findall(path.read_text(encoding="utf-8", errors="replace")):
            header = (path.parent / name).resolve()
            if header.is_file() and header not in found:
                found[header] = None
                waiting.append(header)
    return sorted(found)


Told = Callable[[Built], None]
"""What is told of each job as it ends."""


def build(
    sources: Iterable[Path], nvcc: Path, targets: Sequence[str], programs: Sequence[str], *, workers: int, told: Told
) -> Builds:
    """Compile files for targets and gather what became of them; ``told`` hears of each as it ends."""
    jobs, left_out = jobs_for(sources, targets, programs=programs)
    built = []
    for each in compile_all(jobs, nvcc, workers=workers):
        built.append(each)
        told(each)
    return Builds(tuple(built), tuple(left_out))
