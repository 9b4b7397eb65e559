"""Compile every CUDA kernel of the repository; nothing is run and no GPU is needed.

    python3 validation/build.py [NAME ...] [--arch sm_90a] [--jobs 2] [--out FOLDER]

A NAME picks the kernels whose path contains it. Programs go to FOLDER (default: thrown away) under their path below
kernels_cuda/. Prints one line a kernel with the registers and spills that ptxas reports. Exit 0 when all compile, 1 when
one does not, 2 when there is no nvcc or no kernel of that name. Needs nvcc and Python 3.11 alone.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

KERNELS = Path(__file__).resolve().parent.parent / "kernels_cuda"
FLAGS = ("-O3", "-std=c++17", "-lineinfo", "-Xptxas", "-v")


def find_nvcc() -> str | None:
    """The CUDA compiler: on the path, else below CUDA_HOME or the usual place."""
    home = Path(os.environ.get("CUDA_HOME", "/usr/local/cuda")) / "bin" / "nvcc"
    return shutil.which("nvcc") or (str(home) if home.is_file() else None)


def find_kernels(names: list[str]) -> list[Path]:
    sources = sorted(KERNELS.rglob("*.cu"))
    return [
        source for source in sources if not names or any(name in str(source.relative_to(KERNELS)) for name in names)
    ]


def compile_kernel(nvcc: str, source: Path, arch: str, folder: Path) -> tuple[bool, str]:
    """Compile one file to a program in ``folder``; returns success and what the compiler said."""
    program = folder / source.relative_to(KERNELS).with_suffix("")
    program.parent.mkdir(parents=True, exist_ok=True)
    target = f"-gencode=arch={arch.replace('sm_', 'compute_')},code={arch}"
    command = [nvcc, *FLAGS, target, str(source), "-o", str(program)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.returncode == 0, done.stdout + done.stderr


def summary(report: str) -> str:
    """The most registers a kernel of the file uses, and how many bytes are spilled in all."""
    registers = [int(number) for number in re.findall(r"Used (\d+) registers", report)]
    spills = sum(int(number) for number in re.findall(r"(\d+) bytes spill stores", report))
    return f"{len(registers)} kernels, registers at most {max(registers, default=0)}, spilled {spills} B"


def complaints(report: str) -> str:
    """What the compiler said, without ptxas's report on each kernel."""
    lines = (
        line for line in report.splitlines() if not line.startswith("ptxas info") and "bytes stack frame" not in line
    )
    return "\n".join(lines)


def build(nvcc: str, sources: list[Path], arch: str, jobs: int, folder: Path) -> int:
    def one(source: Path) -> bool:
        started = time.monotonic()
        ok, report = compile_kernel(nvcc, source, arch, folder)
        seconds = time.monotonic() - started
        name = source.relative_to(KERNELS)
        print(f"{name}: {summary(report) if ok else 'does not compile'} ({seconds:.0f} s)", flush=True)
        if not ok or "warning" in report:
            print(complaints(report), file=sys.stderr, flush=True)
        return ok

    with ThreadPoolExecutor(jobs) as pool:
        results = list(pool.map(one, sources))
    print(f"{sum(results)} of {len(results)} kernels compile for {arch}")
    return 0 if all(results) else 1


def main() -> int:
    parser = argparse.ArgumentParser(description="Compile every CUDA kernel of the repository.")
    parser.add_argument("names", nargs="*", metavar="NAME", help="parts of paths below kernels_cuda/ (default: all)")
    parser.add_argument("--arch", default="sm_90a")
    parser.add_argument("--jobs", type=int, default=2, help="compilers at a time")
    parser.add_argument("--out", type=Path, help="folder for the programs")
    options = parser.parse_args()
    nvcc = find_nvcc()
    if nvcc is None:
        print("no nvcc on the path, below CUDA_HOME or in /usr/local/cuda; install the CUDA toolkit", file=sys.stderr)
        return 2
    sources = find_kernels(options.names)
    if not sources:
        print(f"no kernel below kernels_cuda/ has {' or '.join(options.names) or '*.cu'} in its path", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as scratch:
        return build(nvcc, sources, options.arch, options.jobs, options.out or Path(scratch))


if __name__ == "__main__":
    sys.exit(main())
