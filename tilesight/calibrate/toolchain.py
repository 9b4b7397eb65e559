"""What calibrating needs of the machine: the CUDA compiler, the driver's tool, and which GPU is there.

A GPU's compute capability decides for which target kernels are compiled; ``a`` targets have the instructions of that one
architecture (wgmma, tcgen05). Clocks, power limits and modes are read and never set.
"""

import csv
import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tilesight.errors import MissingToolError, UnsupportedError, suggestion

TARGETS = {
    "8.0": "sm_80",
    "8.9": "sm_89",
    "9.0": "sm_90a",
    "10.0": "sm_100a",
    "10.3": "sm_103a",
    "12.0": "sm_120a",
}
"""Compute capability to the target that is compiled for it."""

HOME = "/usr/local/cuda"
QUERY_LIMIT_S = 30


@dataclass(frozen=True)
class Gpu:
    """The GPU that programs see as device 0.

    ``id`` is what the driver's tool calls it, ``count`` how many GPUs programs see.
    """

    name: str
    capability: str
    count: int
    id: str = "0"

    @property
    def target(self) -> str:
        """The target that is compiled for it.

        Raises
        ------
        UnsupportedError
            If the kernels know no target of its compute capability.

        Examples
        --------
        >>> Gpu("NVIDIA H200", "9.0", 1).target
        'sm_90a'
        """
        if self.capability not in TARGETS:
            raise UnsupportedError(
                f"{self.name} has compute capability {self.capability}; the microbenchmarks are written for "
                f"{', '.join(TARGETS)}"
            )
        return TARGETS[self.capability]


def architecture_of(target: str) -> str:
    """Architecture of a profile whose GPU runs a target: the target without its ``a``.

    Examples
    --------
    >>> architecture_of("sm_90a"), architecture_of("sm_89")
    ('sm_90', 'sm_89')
    """
    return target.removesuffix("a")


def known_targets(names: Sequence[str]) -> tuple[str, ...]:
    """The targets of that name, each once.

    Raises
    ------
    UnsupportedError
        If there is no such target.
    """
    for name in names:
        if name not in TARGETS.values():
            raise UnsupportedError(f"no target {name!r}; {suggestion(name, TARGETS.values())}")
    return tuple(dict.fromkeys(names))


def find_nvcc() -> Path:
    """The CUDA compiler: on the path, else below ``CUDA_HOME`` or the usual place.

    Raises
    ------
    MissingToolError
        If there is none.
    """
    beside = Path(os.environ.get("CUDA_HOME", HOME)) / "bin" / "nvcc"
    found = shutil.which("nvcc") or (str(beside) if beside.is_file() else None)
    if found is None:
        raise MissingToolError(
            f"no nvcc on the path, below CUDA_HOME or in {HOME}; install the CUDA toolkit "
            "(developer.nvidia.com/cuda-downloads), or set CUDA_HOME to where it is"
        )
    return Path(found)


def compiler_version(nvcc: Path) -> str:
    """What the compiler calls its release, such as ``Cuda compilation tools, release 13.0, V13.0.88``.

    Raises
    ------
    MissingToolError
        If it can't be asked.
    """
    try:
        done = subprocess.run(
            [nvcc, "--version"], capture_output=True, text=True, check=False, timeout=QUERY_LIMIT_S, errors="replace"
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise MissingToolError(f"{nvcc} --version does not run: {error}") from None
    lines = done.stdout.strip().splitlines()
    return next((line for line in lines if "release" in line), lines[-1] if lines else "unknown")


def find_gpu() -> Gpu:
    """The GPU that programs see as device 0.

    Raises
    ------
    MissingToolError
        If there is no driver or no GPU, or ``CUDA_VISIBLE_DEVICES`` hides it.
    """
    if shutil.which("nvidia-smi") is None:
        raise MissingToolError(
            "no nvidia-smi on the path, so no NVIDIA driver; calibrate on a machine with an NVIDIA GPU and its driver, "
            "or give the records of such a run by --from DIR"
        )
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None and visible.strip() in ("", "-1", "NoDevFiles"):
        raise MissingToolError(f"CUDA_VISIBLE_DEVICES = {visible!r} hides every GPU; unset it or name one")
    names = query(("index", "name", "compute_cap"))
    if not names:
        raise MissingToolError(
            "nvidia-smi reports no GPU; see that nvidia-smi itself runs, or give the records of an earlier run by --from DIR"
        )
    chosen = [part.strip() for part in visible.split(",")] if visible else [row["index"] for row in names]
    first = query(("name", "compute_cap"), gpu=chosen[0])
    if not first:
        raise MissingToolError(f"nvidia-smi knows no GPU {chosen[0]!r} (CUDA_VISIBLE_DEVICES = {visible!r})")
    return Gpu(first[0]["name"], first[0]["compute_cap"], len(chosen), chosen[0])


def query(fields: Sequence[str], *, gpu: str | None = None) -> list[dict[str, str]]:
    """What the driver says, a row a GPU, as text; empty where it says nothing. Only reads."""
    command = ["nvidia-smi", f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits"]
    if gpu is not None:
        command.insert(1, f"--id={gpu}")
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=QUERY_LIMIT_S, errors="replace"
        )
    except (OSError, subprocess.TimeoutExpired):
        return []
    rows = (
        [[cell.strip() for cell in row] for row in csv.reader(done.stdout.splitlines())] if not done.returncode else []
    )
    return [dict(zip(fields, row, strict=True)) for row in rows if len(row) == len(fields)]


def program_environment() -> Mapping[str, str]:
    """Environment of a microbenchmark: devices in the order in which the driver's tool counts them."""
    return os.environ | {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
