"""The order of the rooms: a file imports only from lines above its own, or from files to its left on its line."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import tilesight

PACKAGE = Path(tilesight.__file__).parent

# Lowest first. ``hardware/ profile load`` is a folder and its files, on several lines where they are many; a folder alone
# takes all that is in it, in any order.
# A module may be listed before it exists.
ORDER = """
errors units dtypes files resource display
hardware/ numbers rules tables profile write system load derive unread
plan/ tile action graph loop launch access plan
cost/ occupancy clock merging throughput schedule cycles body modulo orders replay
cost/ envelope ends reuse raster geometry drift cache network roofline price gemm_body estimate explanation
simulate/ given stream tiles chip memory blocks advance result launch
kernels/ instructions gemm_config gemm_legal gemm attention reduction elementwise collective fused registry
dsmem/ workload catalogue published rates staging traffic alternatives times answer verdict
fusion/
serving/
candidates search compose
records/ gpus cells given schema read protocol requests
dsmem/ measured
ncu/ names page report points repeats
compare/ scores predictions beside result owners run
check
calibrate/ process toolchain counters suite stored build run records found limits memory cache power fill loops launch
calibrate/ footprint
calibrate/ chip clusters drift derive chart counted drift_charts pictures fits
calibrate/ assemble result moved identity machine session
api
advice
report/ blocks render estimate raster explanation ranking comparison profile calibration dsmem
plots trace
bench
adapters/
cli/ options asked files output gemm tables profiles calibrate dsmem program
__main__
"""


def places() -> dict[str, tuple[int, int]]:
    """Module name to line and position. A folder itself, which is its ``__init__``, stands behind all its files."""
    found = {}
    for row, line in enumerate(ORDER.split("\n")):
        words = line.split()
        folder = words.pop(0).removesuffix("/") if line.split("/")[0] != line else ""
        for column, word in enumerate(words):
            found[f"{folder}.{word}" if folder else word] = (row, column)
        if folder:
            found[folder] = (row, len(words))
    return found


PLACES = places()
OPEN_FOLDERS = {name for name in PLACES if not any(other.startswith(f"{name}.") for other in PLACES)}


def place(module: str) -> tuple[int, int] | None:
    """Line and position of a module, None if it is not listed."""
    folder = module.split(".")[0]
    return PLACES.get(module) or (PLACES[folder] if folder in OPEN_FOLDERS else None)


def name_of(path: Path) -> str:
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def modules() -> dict[str, Path]:
    """All modules of the package by name, without ``tilesight.``; the data that ship with it are no modules."""
    files = [path for path in PACKAGE.rglob("*.py") if path.relative_to(PACKAGE).parts[0] != "data"]
    return {name_of(path): path for path in sorted(files) if path != PACKAGE / "__init__.py"}


def imported(path: Path) -> set[str]:
    """Modules of tilesight that a file imports anywhere in it, also inside functions."""
    known, found = set(modules()), set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import; write the full name"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            names = [name for name in names if name != "tilesight.__version__"]  # known before anything is loaded
            names = [name if name.removeprefix("tilesight.") in known else str(node.module) for name in names]
        else:
            continue
        found |= {name for name in names if name.split(".")[0] == "tilesight"}
    return found


@pytest.mark.parametrize("name", modules())
def test_every_module_has_a_place(name):
    assert place(name), f"tilesight/{name} is in no room; add it to ORDER in {__file__}"


@pytest.mark.parametrize("name", modules())
def test_imports_go_one_way(name):
    uses = {module.removeprefix("tilesight").lstrip(".") for module in imported(modules()[name])}
    assert "" not in uses, f"{name} imports from tilesight itself; import from the module that defines the name"
    for module in uses:
        same_open_folder = place(module) == place(name) and name.split(".")[0] in OPEN_FOLDERS
        assert place(module) < place(name) or same_open_folder, f"{name} imports {module}, not above or left of it"


def outside_imports(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= {str(node.module)} | {f"{node.module}.{alias.name}" for alias in node.names}
    return found


@pytest.mark.parametrize(
    ("library", "home"), [("networkx", "plan.graph"), ("matplotlib", "plots"), ("scipy.stats", None)]
)
def test_library_stays_in_its_file(library, home):
    users = {
        name
        for name, path in modules().items()
        if any(f"{module}.".startswith(f"{library}.") for module in outside_imports(path))
    }
    assert users <= {home}


def test_no_torch():
    assert not [name for name, path in modules().items() if {"torch", "triton"} & outside_imports(path)]


def test_import_loads_nothing():
    code = "import sys, tilesight; print(sorted({m.split('.')[0] for m in sys.modules}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    for library in ("numpy", "scipy", "pydantic", "networkx", "matplotlib", "typer", "rich"):
        assert f"'{library}'" not in done.stdout


def test_public_names_resolve():
    for name in tilesight.__all__:
        assert getattr(tilesight, name) is not None
    assert set(tilesight._MODULE_OF) | {"__version__"} == set(tilesight.__all__)
    assert dir(tilesight) == sorted(tilesight.__all__)


def test_unknown_public_name():
    with pytest.raises(AttributeError, match="no attribute 'forecast'"):
        _ = tilesight.forecast


def test_a_wrong_import_would_be_seen(tmp_path):
    # the checks above are only worth something if they can fail
    file = tmp_path / "units.py"
    file.write_text("def f():\n    from tilesight.hardware import load\n", encoding="utf-8")
    assert imported(file) == {"tilesight.hardware.load"}
    assert place("errors") < place("units") < place("hardware.profile") < place("hardware.load") < place("hardware")
    assert place("hardware") < place("plan.tile")
    assert place("adapters.triton") == place("adapters")
    assert place("not_listed") is None
    assert place("hardware.not_listed") is None
