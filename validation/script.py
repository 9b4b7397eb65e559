"""What scripts do before they import PyTorch: read their arguments, and say in one line what this machine lacks.

So `--help` works everywhere, and a missing package or tool ends in exit status 2 and not in a traceback.
"""

from __future__ import annotations

import argparse
import importlib.util
import shutil
import sys
from collections.abc import Sequence

PACKAGES = {"torch": "torch", "triton": "triton", "pynvml": "nvidia-ml-py"}
"""Modules that the GPU experiments import, and what pip calls them."""
RECORDS_HELP = "folder for NAME.csv and NAME.toml, such as calibration/validation/records/h200_sxm"


def parser_of(doc: str, *, folder: bool = True) -> argparse.ArgumentParser:
    """Parser whose help is the docstring of a script; takes the folder of records unless told otherwise."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    if folder:
        parser.add_argument("folder", metavar="OUT_DIR", help=RECORDS_HELP)
    return parser


def parsed(
    parser: argparse.ArgumentParser, words: Sequence[str] | None = None, *, tools: Sequence[str] = ()
) -> argparse.Namespace:
    """Arguments of a script that needs PyTorch, Triton, pynvml and these tools; ends with status 2 where one is missing."""
    given = parser.parse_args(words)
    absent = [name for name in PACKAGES if importlib.util.find_spec(name) is None]
    if absent:
        named = " ".join(PACKAGES[name] for name in absent)
        refuse(f"needs {', '.join(absent)}; pip install {named}, on the machine with the GPU")
    for tool in tools:
        if shutil.which(tool) is None:
            refuse(f"needs {tool} on the path; it comes with the CUDA toolkit (Nsight Compute)")
    return given


def refuse(message: str) -> None:
    """End with one line and status 2."""
    print(f"{sys.argv[0]}: {' '.join(message.split())}", file=sys.stderr)
    raise SystemExit(2)
