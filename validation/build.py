"""Compile every CUDA kernel of the repository; nothing is run and no GPU is needed.

    python validation/build.py [NAME ...] [--target sm_90a,sm_80] [--jobs 2]

A NAME picks the kernels whose path below kernels_cuda/ contains it; by default each file compiles for every target that
its header states. Programs for sm_90a, for other targets cubins (device code, not linked), through the cache of `tilesight
calibrate`, so that what has not changed is not compiled again. Prints one line a kernel with the registers and spills that
ptxas reports, and what is left out for which target, with the reason. Exit 0 when all compile without a warning, 1 when
one does not, 2 when there is no nvcc or no such kernel or target.
"""

import argparse
import sys
from pathlib import Path

from tilesight.calibrate.build import Builds, Built, build
from tilesight.calibrate.toolchain import TARGETS, find_nvcc, known_targets
from tilesight.errors import MissingToolError, UnsupportedError

KERNELS = Path(__file__).resolve().parent.parent / "kernels_cuda"
WHOLE = ("sm_90a",)


def find_kernels(names: list[str]) -> list[Path]:
    """CUDA files whose path contains one of the names, or all; what was built here is none."""
    sources = {path.relative_to(KERNELS).as_posix(): path for path in sorted(KERNELS.rglob("*.cu"))}
    kept = {name: path for name, path in sources.items() if not name.startswith("build/")}
    return [path for name, path in kept.items() if not names or any(part in name for part in names)]


def tell(each: Built) -> None:
    """Print what became of one file."""
    name = each.job.source.relative_to(KERNELS)
    what = "does not compile" if each.result is None else each.usage
    print(f"{name} for {each.job.target}: {what} ({each.seconds:.0f} s)", flush=True)
    if each.result is None or warned(each):
        print(each.complaint, file=sys.stderr, flush=True)


def warned(each: Built) -> bool:
    """Whether the compiler had something to say against a file that compiles."""
    return "warning" in each.complaint


def summarise(builds: Builds) -> None:
    """Print counts by target, and files left out by reason."""
    reasons: dict[str, list[str]] = {}
    for source, target, reason in builds.left_out:
        reasons.setdefault(f"{target}: {reason}", []).append(source)
    for reason, sources in sorted(reasons.items()):
        print(f"left out for {reason}: {', '.join(sources)}")
    for target in TARGETS.values():
        results = [each.result is not None for each in builds.built if each.job.target == target]
        if results:
            print(f"{sum(results)} of {len(results)} kernels compile for {target}")


def main() -> int:
    parser = argparse.ArgumentParser(description="Compile every CUDA kernel of the repository.")
    parser.add_argument("names", nargs="*", metavar="NAME", help="parts of paths below kernels_cuda/ (default: all)")
    parser.add_argument("--target", default=",".join(TARGETS.values()), help="targets (default: all)")
    parser.add_argument("--jobs", type=int, default=2, help="compilers at a time")
    options = parser.parse_args()
    try:
        targets, nvcc = known_targets(options.target.split(",")), find_nvcc()
        sources = find_kernels(options.names)
        if not sources:
            names = " or ".join(options.names) or "*.cu"
            raise UnsupportedError(f"no kernel below kernels_cuda/ has {names} in its path")
        builds = build(sources, nvcc, targets, WHOLE, workers=options.jobs, told=tell)
    except (MissingToolError, UnsupportedError) as error:
        print(error, file=sys.stderr)
        return 2
    summarise(builds)
    return 1 if builds.failed or any(map(warned, builds.built)) else 0


if __name__ == "__main__":
    sys.exit(main())
