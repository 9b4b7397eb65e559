"""tilesight: a tile-centric analytical performance model of GPU kernels.

How long does a kernel take on a GPU and why, how much does it move through each memory level, which tile configuration
is best: answered without running anything. The names below are the public interface; each is imported from its module
when it is first used, so that ``import tilesight`` itself costs next to nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from tilesight.advice import RasterAdvice, raster_widths
    from tilesight.api import (
        compare_records,
        explain,
        list_profiles,
        load_profile,
        predict,
        predict_many,
        rank,
        rank_many,
    )
    from tilesight.calibrate.footprint import FootprintFit, fit_footprint
    from tilesight.calibrate.session import calibrate_records, check_records
    from tilesight.cost.estimate import Estimate, Estimates
    from tilesight.dsmem.verdict import Verdict, verdict
    from tilesight.dsmem.workload import Workload
    from tilesight.errors import (
        ConfigError,
        MissingFileError,
        MissingToolError,
        PlanError,
        ProblemError,
        ProfileError,
        TableError,
        TilesightError,
        UnknownProfileError,
        UnsupportedError,
    )
    from tilesight.hardware.derive import derive
    from tilesight.hardware.profile import Profile
    from tilesight.kernels.gemm_config import Gemm, GemmConfig
    from tilesight.search import Ranking, Rankings

_HOME = {
    "tilesight.advice": ("RasterAdvice", "raster_widths"),
    "tilesight.api": (
        "compare_records",
        "explain",
        "list_profiles",
        "load_profile",
        "predict",
        "predict_many",
        "rank",
        "rank_many",
    ),
    "tilesight.calibrate.footprint": ("FootprintFit", "fit_footprint"),
    "tilesight.calibrate.session": ("calibrate_records", "check_records"),
    "tilesight.dsmem.verdict": ("Verdict", "verdict"),
    "tilesight.dsmem.workload": ("Workload",),
    "tilesight.errors": (
        "ConfigError",
        "MissingFileError",
        "MissingToolError",
        "PlanError",
        "ProblemError",
        "ProfileError",
        "TableError",
        "TilesightError",
        "UnknownProfileError",
        "UnsupportedError",
    ),
    "tilesight.hardware.derive": ("derive",),
    "tilesight.hardware.profile": ("Profile",),
    "tilesight.kernels.gemm_config": ("Gemm", "GemmConfig"),
    "tilesight.search": ("Estimate", "Estimates", "Ranking", "Rankings"),  # estimates with the checks of their fields
}
_MODULE_OF = {name: module for module, names in _HOME.items() for name in names}

__all__ = [
    "ConfigError",
    "Estimate",
    "Estimates",
    "FootprintFit",
    "Gemm",
    "GemmConfig",
    "MissingFileError",
    "MissingToolError",
    "PlanError",
    "ProblemError",
    "Profile",
    "ProfileError",
    "Ranking",
    "Rankings",
    "RasterAdvice",
    "TableError",
    "TilesightError",
    "UnknownProfileError",
    "UnsupportedError",
    "Verdict",
    "Workload",
    "__version__",
    "calibrate_records",
    "check_records",
    "compare_records",
    "derive",
    "explain",
    "fit_footprint",
    "list_profiles",
    "load_profile",
    "predict",
    "predict_many",
    "rank",
    "rank_many",
    "raster_widths",
    "verdict",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'tilesight' has no attribute {name!r}")
    value = getattr(import_module(_MODULE_OF[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
