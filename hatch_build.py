"""Build hook: a wheel carries the shipped data under tilesight/data/, where tilesight/files.py looks first.

An editable install carries none: there the data are found beside the package.
"""

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

SHIPPED = (
    "hardware_profiles/**/*.toml",
    "kernels_cuda/**/*.cu",
    "kernels_cuda/**/*.cuh",
    "kernels_cuda/microbench/suite.toml",
    "validation/records/sample/*",
)


class DataHook(BuildHookInterface):
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version != "standard":
            return
        root = Path(self.root)
        for pattern in SHIPPED:
            for path in sorted(root.glob(pattern)):
                name = path.relative_to(root).as_posix()
                build_data["force_include"][str(path)] = f"tilesight/data/{name}"
