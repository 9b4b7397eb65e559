"""Pages of Nsight Compute, made up and recorded."""

import csv
import io
from pathlib import Path

import pytest

RECORDED = Path(__file__).parent
TIME, READ, WRITE = "gpu__time_duration.sum", "dram__bytes_read.sum", "dram__bytes_write.sum"
TEX, FABRIC, HITS = (
    "lts__t_sectors_srcunit_tex.sum",
    "lts__t_sectors_srcunit_ltcfabric.sum",
    "lts__t_sector_hit_rate.pct",
)
BEFORE = (
    "==PROF== Connected to process 1\nthe program's own words, with a comma\n==PROF== Disconnected from process 1\n"
)


def page_of(launches: list[dict], units: dict[str, str], before: str = BEFORE) -> str:
    """A raw page: a dict a launch, ``kernel`` and counters verbatim."""
    names = list(dict.fromkeys(name for launch in launches for name in launch if name != "kernel"))
    text = io.StringIO()
    writer = csv.writer(text, quoting=csv.QUOTE_ALL, lineterminator="\n")
    writer.writerow(["ID", "Process ID", "Kernel Name", *names])
    writer.writerow(["", "", "", *(units.get(name, "") for name in names)])
    for number, launch in enumerate(launches):
        writer.writerow([number, 1, launch.get("kernel", "gemm"), *(launch.get(name, "n/a") for name in names)])
    return before + text.getvalue()


@pytest.fixture
def write(tmp_path):
    """Function that writes a file and gives its path."""

    def to(name: str, text: str) -> Path:
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        return path

    return to


@pytest.fixture
def page():
    """Function that makes the text of a raw page."""
    return page_of


@pytest.fixture(params=["base", "auto"])
def recorded(request):
    """Two products of a vendor's library on an H200, three and two launches, as version 2025.3 prints them."""
    return RECORDED / f"h200_{request.param}.csv"
