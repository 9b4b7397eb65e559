"""A machine with a GPU that is not there: shell scripts that stand for nvidia-smi, nvcc and the programs it makes.

The programs print the rows of the records of ``validation/records/h200_sxm`` again, so that a whole calibration can be
compared with the profile that those records gave.
"""

import csv
import json
import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from tilesight.calibrate.suite import read_suite

RECORDS = Path(__file__).parent.parent.parent / "validation" / "records" / "h200_sxm"

NVIDIA_SMI = """#!/bin/sh
fields=
for word in "$@"; do case "$word" in --query-gpu=*) fields=${word#--query-gpu=};; esac; done
line=
for field in $(echo "$fields" | tr , ' '); do
  case $field in
    index) value=0;;
    name) value='NAME';;
    compute_cap) value=CAPABILITY;;
    driver_version) value=580.0;;
    *) value=100.5;;
  esac
  line="$line${line:+, }$value"
done
echo "$line"
"""

NVCC = """#!/bin/sh
if [ "$1" = --version ]; then echo 'Cuda compilation tools, release 13.0, V13.0.88'; exit 0; fi
echo "$@" >> 'HOME/compiled'
while [ $# -gt 0 ]; do
  case "$1" in -o) out=$2; shift;; *.cu) stem=$(basename "$1" .cu);; esac
  shift
done
if [ -e "HOME/broken/$stem" ]; then echo 'x.cu(3): error: expected a ";"' >&2; exit 2; fi
printf '#!/bin/sh\\nexec sh HOME/program %s "$@"\\n' "$stem" > "$out"
chmod +x "$out"
echo 'ptxas info    : Used 40 registers, used 0 barriers'
"""

PROGRAM = """#!/bin/sh
stem=$1
if [ -e "HOME/wrong/$stem" ]; then echo 'check failed: sum is off' >&2; exit 1; fi
if [ -e "HOME/hangs/$stem" ]; then echo '{"bench": "'$stem'", "point": 1}'; sleep 60; fi
name=$(echo "$@" | tr ' ' _)
if [ -e "HOME/points/$name" ]; then cat "HOME/points/$name"; else cat "RECORDED/$name"; fi
"""

NCU = """#!/bin/sh
while [ "$1" != --log-file ]; do
  if [ "$1" = -k ]; then kernel=${2#regex:}; fi
  shift
done
if [ -e "HOME/points/$kernel" ]; then cat "HOME/points/$kernel" > "$2"; else cat "RECORDED/$kernel" > "$2"; fi
shift 2
exec "$@"
"""


class Machine:
    """Folders and scripts of the machine; its state is which files lie in them."""

    def __init__(self, home: Path, recorded: Path) -> None:
        self.home, self.tools, self.recorded = home, home / "bin", recorded
        for name in ("bin", "broken", "wrong", "hangs", "points"):
            (home / name).mkdir(parents=True)
        (home / "program").write_text(
            PROGRAM.replace("HOME", str(home)).replace("RECORDED", str(recorded)), encoding="utf-8"
        )
        self.gpu("NVIDIA H200", "9.0")
        self._tool("nvcc", NVCC.replace("HOME", str(home)))
        self._tool("ncu", NCU.replace("HOME", str(home)).replace("RECORDED", str(recorded)))

    def gpu(self, name: str, capability: str) -> None:
        """Put in a GPU."""
        self._tool("nvidia-smi", NVIDIA_SMI.replace("NAME", name).replace("CAPABILITY", capability))

    def _tool(self, name: str, text: str) -> None:
        path = self.tools / name
        path.write_text(text, encoding="utf-8")
        path.chmod(0o755)

    def points(self, stem: str, rows: list[dict], *words: str) -> None:
        """What a program prints, called with these words."""
        write_points(self.home / "points", stem, rows, words)

    def counts(self, kernel: str, launches: list[dict]) -> None:
        """What Nsight Compute writes of the kernels of that name."""
        write_counters(self.home / "points", kernel, launches)

    def mark(self, what: str, stem: str) -> None:
        """Make a program ``broken`` (does not compile), ``wrong`` (fails its check) or one that ``hangs``."""
        (self.home / what / stem).touch()

    @property
    def compiled(self) -> list[str]:
        """Command lines of nvcc so far."""
        path = self.home / "compiled"
        return path.read_text(encoding="utf-8").splitlines() if path.exists() else []


def write_points(folder: Path, stem: str, rows: list[dict], words: Sequence[str]) -> None:
    path = folder / "_".join([stem, *words])
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def write_counters(folder: Path, kernel: str, launches: list[dict]) -> None:
    """A raw page as CSV: a line of messages, a row of names, one of units, one a launch with separators in its numbers."""
    with (folder / kernel).open("w", newline="", encoding="utf-8") as file:
        file.write("==PROF== Connected to process 1\n")
        writer = csv.writer(file, quoting=csv.QUOTE_ALL)
        writer.writerow(["ID", "Kernel Name", *launches[0]])
        writer.writerow(["", "", *("" for _ in launches[0])])
        writer.writerows(
            [number, kernel, *(f"{each:,}" for each in row.values())] for number, row in enumerate(launches)
        )


def value(text: str) -> str | int | float:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            pass
    return text


def rows_of(name: str) -> list[dict]:
    """Rows of a recorded benchmark, without empty cells, as its program printed them."""
    with open(RECORDS / f"{name}.csv", newline="", encoding="utf-8") as file:
        return [{key: value(cell) for key, cell in row.items() if cell} for row in csv.DictReader(file)]


@pytest.fixture(scope="session")
def recorded(tmp_path_factory):
    """Folder with what each program of the suite prints, a file for each command line."""
    folder = tmp_path_factory.mktemp("recorded")
    for name, bench in read_suite().items():
        known = rows_of(name) if (RECORDS / f"{name}.csv").is_file() else [{"bench": name, "value": 1.0}]
        for words in bench.runs:
            part = words[words.index("--part") + 1] if "--part" in words else None
            rows = [row for row in known if part is None or row.get("part", part) == part]
            write_points(folder, bench.source.stem, rows, words)
        if bench.counting is not None:  # only the last launch of a point counts
            none = dict.fromkeys(bench.counting.counters, 0)
            launches = [{name: row[name] for name in none} for row in known if row["launches"]]
            own = [row["launches"] for row in known if row["launches"]]
            all_of_them = [row for last, n in zip(launches, own, strict=True) for row in [*[none] * (n - 1), last]]
            write_counters(folder, bench.counting.kernel, all_of_them)
    return folder


@pytest.fixture
def machine(tmp_path, monkeypatch, recorded):
    """A machine with an H200 on which every program of the suite prints what was recorded."""
    made = Machine(tmp_path / "machine", recorded)
    monkeypatch.setenv("PATH", f"{made.tools}{os.pathsep}/usr/bin{os.pathsep}/bin")
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "nowhere"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return made


@pytest.fixture
def bare(tmp_path, monkeypatch):
    """A machine without driver and compiler; gives the folder to put some in."""
    folder = tmp_path / "bare"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setenv("CUDA_HOME", str(folder))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return folder


@pytest.fixture
def record(tmp_path):
    """Function that writes a record of a few rows and gives the records of its folder."""
    from tilesight.calibrate.records import Records
    from tilesight.calibrate.stored import write_rows

    def write(name, rows, hardware=None):
        write_rows(tmp_path / f"{name}.csv", rows)
        return Records(tmp_path, hardware)

    return write
