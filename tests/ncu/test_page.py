"""Raw pages by hand, in every unit, and as recorded; reports through NVIDIA's package."""

import gzip
import sys
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilesight.errors import MissingFileError, MissingToolError, TableError
from tilesight.ncu import COUNTERS, Launch, is_report, metrics_option, read_launches
from tilesight.ncu.names import UNITS
from tilesight.ncu.page import plain_number

TIME, READ, HITS = "gpu__time_duration.sum", "dram__bytes_read.sum", "lts__t_sector_hit_rate.pct"
TEX, FABRIC = "lts__t_sectors_srcunit_tex.sum", "lts__t_sectors_srcunit_ltcfabric.sum"


def test_page_by_hand(page, write):
    units = {TIME: "us", READ: "Mbyte", TEX: "sector", FABRIC: "Ksector", HITS: "%", "launch__grid_size": ""}
    launch = {TIME: "1,234.5", READ: "1.5", TEX: "1,000", FABRIC: "2.5", HITS: "62.5", "launch__grid_size": "1,056"}
    path = write("page.csv", page([launch | {"kernel": 'void f<int, 3>("a")'}, {TIME: "7"}], units))
    assert is_report(path)
    first, second = read_launches(path)
    assert (first.number, first.line, second.line) == (1, 6, 7)  # three messages, header, units
    assert first.kernel == 'void f<int, 3>("a")'
    assert first.get("time_s", "page.csv") == pytest.approx(1234.5e-6)
    assert first.get("dram_read_bytes", "page.csv") == 1.5e6
    assert first.get("lookup_bytes", "page.csv") == 32_000  # a sector is 32 B
    assert first.get("crossing_bytes", "page.csv") == 80_000
    assert first.get("l2_hit_rate", "page.csv") == 0.625
    assert first.get("grid_size", "page.csv") == 1056
    # absent is absent: not in the page, or n/a
    assert first.get("dram_write_bytes", "page.csv") is None
    assert {name: second.get(name, "page.csv") for name in COUNTERS if name != "time_s"} == dict.fromkeys(
        name for name in COUNTERS if name != "time_s"
    )
    assert first.gpu is None


def test_names_of_other_chips_and_versions(page, write):
    other = {"dram__bytes_op_read.sum": "2", "dram__bytes_read.sum": "n/a", "gpu__time_duration.avg": "3"}
    units = {"dram__bytes_op_read.sum": "Gbyte", "gpu__time_duration.avg": "nsecond"}
    (launch,) = read_launches(write("page.csv", page([other], units)))
    assert launch.get("dram_read_bytes", "f") == 2e9
    assert launch.get("time_s", "f") == pytest.approx(3e-9)
    assert "dram__bytes_op_read.sum" in metrics_option().split(",")


def test_zero_is_a_count(page, write):
    (launch,) = read_launches(write("page.csv", page([{READ: "0", FABRIC: "0"}], {READ: "byte", FABRIC: "sector"})))
    assert (launch.get("dram_read_bytes", "f"), launch.get("crossing_bytes", "f")) == (0.0, 0.0)


def test_sizes_from_the_columns_that_every_page_has(page, write):
    (launch,) = read_launches(write("page.csv", page([{"Block Size": "(128, 2, 1)", "Grid Size": "(2, 66, 3)"}], {})))
    assert (launch.get("block_size", "f"), launch.get("grid_size", "f")) == (256, 396)


def test_long_form(write):
    text = (
        '"ID","Process ID","Kernel Name","CC","Section Name","Metric Name","Metric Unit","Metric Value"\n'
        f'"0","1","gemm","9.0","Command line profiler metrics","{TIME}","us","12.5"\n'
        f'"0","1","gemm","9.0","Command line profiler metrics","{READ}","Kbyte","n/a"\n'
        '"0","1","gemm","9.0","SpeedOfLight","","",""\n'
        f'"1","1","gemm","9.0","Command line profiler metrics","{TIME}","ms","1,000"\n'
    )
    first, second = read_launches(write("details.csv", text))
    assert (first.get("time_s", "f"), second.get("time_s", "f")) == (pytest.approx(12.5e-6), 1.0)
    assert first.get("dram_read_bytes", "f") is None
    assert (first.line, second.line) == (2, 5)


def test_pages_one_after_the_other_have_their_own_units(page, write):
    text = page([{TIME: "1"}], {TIME: "us"}) + page([{TIME: "1"}], {TIME: "ms"})
    assert [launch.get("time_s", "f") for launch in read_launches(write("two.csv", text))] == [1e-6, 1e-3]


def test_compressed(page, tmp_path):
    path = tmp_path / "page.csv.gz"
    path.write_bytes(gzip.compress(page([{TIME: "5"}], {TIME: "ns"}).encode()))
    assert is_report(path)
    assert read_launches(path)[0].get("time_s", "f") == 5e-9


@given(st.integers(0, 10**15), st.sampled_from([0, 2, 6]))
def test_separators_change_no_number(number, digits):
    value = number / 10**digits
    assert plain_number(f"{value:,.{digits}f}") == plain_number(f"{value:.{digits}f}") == pytest.approx(value)


@given(st.sampled_from(sorted(UNITS["B"])), st.floats(1e-3, 1e4))
def test_units_differ_by_their_factor(unit, value):
    value = float(round(value)) if unit == "sector" else value
    launch = Launch(1, 1, "k", {READ: (value, unit)})
    plain = Launch(1, 1, "k", {READ: (value, "byte")})
    assert launch.get("dram_read_bytes", "f") == pytest.approx(UNITS["B"][unit] * plain.get("dram_read_bytes", "f"))


@pytest.mark.parametrize(
    ("name", "value", "unit", "why"),
    [
        (TIME, "1.2.3", "us", "bad.csv:6:gpu__time_duration.sum: found '1.2.3'; allowed: a finite number above 0"),
        (TIME, "0", "us", "found '0'; allowed: a finite number above 0"),
        (READ, "-5", "byte", "found '-5'; allowed: a finite number, 0 or more"),
        (READ, "1,23", "byte", "found '1,23'; allowed"),
        (READ, "inf", "byte", "found 'inf'; allowed"),
        (READ, "5", "", "dram__bytes_read.sum: found the unit ''; allowed: 'byte', 'Kbyte'"),
        (READ, "5", "us", "found the unit 'us'; allowed: 'byte'"),
        (HITS, "250", "%", "found '250' %; allowed: 0 to 200"),
        ("Grid Size", "132", "", "Grid Size: found '132'; allowed: (x, y, z)"),
        (
            "Grid Size",
            "(0, 1, 1)",
            "",
            "found '(0, 1, 1)'; allowed: (x, y, z) with a product of a whole number, 1 to 2147483647",
        ),
        ("Grid Size", "(-1, 1, 1)", "", "allowed: (x, y, z)"),
        ("Grid Size", "(65536, 65536, 1)", "", "1 to 2147483647"),
        ("Block Size", "(32, 33, 1)", "", "a whole number, 1 to 1024"),
        (
            "launch__grid_size",
            "0",
            "",
            "bad.csv:6:launch__grid_size: found '0'; allowed: a whole number, 1 to 2147483647",
        ),
        ("launch__grid_size", "2,147,483,648", "", "1 to 2147483647"),
        ("launch__block_size", "2048", "", "launch__block_size: found '2048'; allowed: a whole number, 1 to 1024"),
        ("launch__block_size", "1.5", "", "a whole number, 1 to 1024"),
        (TEX, "1.5", "sector", "lts__t_sectors_srcunit_tex.sum: found '1.5' sectors; allowed: a whole number"),
        (READ, "1e19", "byte", "found '1e19'; allowed: no more than 1e+18"),
        (READ, "9e9", "Gbyte", "found '9e9'; allowed: no more than 1e+18"),
    ],
)
def test_bad_cells(page, write, name, value, unit, why):
    path = write("bad.csv", page([{name: value}], {name: unit}))
    sizes = {"Grid Size": "grid_size", "Block Size": "block_size"}
    ours = sizes.get(name) or next(key for key, each in COUNTERS.items() if name in each.names)
    with pytest.raises(TableError) as caught:
        read_launches(path)[0].get(ours, path.name)
    assert why in str(caught.value)


def test_bad_pages(page, write):
    cut = page([{TIME: "1", READ: "2"}], {TIME: "us"}).rsplit(",", 1)[0] + "\n"
    with pytest.raises(TableError, match="cut.csv:6: 4 cells where the header has 5"):
        read_launches(write("cut.csv", cut))
    empty = write("empty.csv", "==PROF== Connected\n==WARNING== No kernels were profiled.\n")
    assert is_report(empty)
    with pytest.raises(TableError, match="no launch in it; Nsight Compute said: .*No kernels were profiled"):
        read_launches(empty)
    with pytest.raises(MissingFileError, match="no file 'absent.csv'"):
        read_launches(empty.parent.__class__("absent.csv"))
    cut = page([{TIME: "1"}], {TIME: "us"}).rsplit('"0"', 1)[0]
    with pytest.raises(TableError, match="header.csv: a header and no launch below it: nothing was profiled"):
        read_launches(write("header.csv", cut))
    twice = page([{TIME: "1"}, {TIME: "2"}], {TIME: "us"}).replace('"1","1","gemm"', '"0","1","gemm"')
    with pytest.raises(
        TableError, match="twice.csv:7:ID: found '0' again; allowed: one launch an ID, and line 6 has it"
    ):
        read_launches(write("twice.csv", twice))
    long = '"ID","Kernel Name","Metric Name","Metric Unit","Metric Value"\n'
    rows = [
        f'"{number}","gemm","{TIME}","us","{value}"\n' for number, value in ((0, 5), (0, 5), (1, 5), (0, 5), (0, 6))
    ]
    assert len(read_launches(write("same.csv", long + "".join(rows[:3])))) == 2
    with pytest.raises(TableError, match="back.csv:5:ID: found '0' again"):
        read_launches(write("back.csv", long + "".join(rows[:4])))
    with pytest.raises(
        TableError, match="other.csv:3:gpu__time_duration.sum: found '6'; allowed: '5', which this launch"
    ):
        read_launches(write("other.csv", long + rows[0] + rows[4]))
    endless = write("endless.csv", '"ID","Kernel Name"\n' + "x" * 2**20 + "x\n")
    with pytest.raises(TableError, match="endless.csv:2: a line of more than 1048576 characters"):
        read_launches(endless)
    assert not is_report(write("other.csv", "x" * (2**20 + 1)))
    name = write("name.csv", '"ID","Kernel Name"\n"0","' + "x" * 140_000 + '"\n')
    with pytest.raises(TableError, match="name.csv:2: not readable as CSV: field larger"):
        read_launches(name)
    broken = empty.with_name("broken.csv")
    broken.write_bytes(b"==PROF==\n\xff\xfe")
    with pytest.raises(TableError, match="not readable as text in UTF-8"):
        read_launches(broken)


@pytest.mark.parametrize("text", ["m,n,k,warm_us,cold_us\n1,1,1,2,3\n", "", "ID,name\n1,x\n"])
def test_tables_are_no_reports(write, text):
    assert not is_report(write("table.csv", text))


def test_recorded(recorded):
    launches = read_launches(recorded)
    assert len(launches) == 5
    assert {launch.gpu for launch in launches} == {"NVIDIA H200"}
    assert launches[0].get("clock_hz", "f") is None
    first = {name: launches[0].get(name, "f") for name in COUNTERS if name != "clock_hz"}
    assert first == pytest.approx(
        {
            "time_s": 177.696e-6,
            "dram_read_bytes": 148_334_848,
            "dram_write_bytes": 28_275_968,
            "lookup_bytes": 32 * 27_880_938,
            "crossing_bytes": 32 * 4_853_212,
            "l2_hit_rate": 0.6936,
            "l2_read_bytes": 32 * 31_110_569,
            "l2_write_bytes": 32 * 1_573_730,
            "registers": 168,
            "smem_dynamic_bytes": 213_188,
            "smem_static_bytes": 0,
            "grid_size": 132,
            "block_size": 384,
        },
        rel=1e-4,
    )


# --- reports


class Metric(SimpleNamespace):
    def value(self):
        return self.number

    def unit(self):
        return self.words


class Action(SimpleNamespace):
    NameBase_DEMANGLED = 1

    def name(self, base=0):
        return f"{self.kernel}(int)" if base else self.kernel

    def metric_by_name(self, name):
        return self.metrics.get(name)


def package(actions):
    """Stands for ``ncu_report``: one range with these actions."""
    found = SimpleNamespace(num_actions=lambda: len(actions), action_by_idx=lambda i: actions[i])
    context = SimpleNamespace(num_ranges=lambda: 1, range_by_idx=lambda i: found)
    return SimpleNamespace(load_report=lambda path: context)


@pytest.fixture
def report(tmp_path):
    path = tmp_path / "mine.ncu-rep"
    path.write_bytes(b"NVR")
    return path


def test_report(report, monkeypatch):
    metrics = {
        TIME: Metric(number=177696.0, words="ns"),
        READ: Metric(number=float("nan"), words="byte"),
        TEX: Metric(number=None, words="sector"),
        "launch__grid_size": Metric(number=132, words=""),
        "device__attribute_display_name": Metric(number="NVIDIA H200", words=""),
    }
    monkeypatch.setitem(sys.modules, "ncu_report", package([Action(kernel="gemm", metrics=metrics)] * 2))
    assert is_report(report)
    launches = read_launches(report)
    assert [(launch.number, launch.line, launch.kernel) for launch in launches] == [
        (1, 1, "gemm(int)"),
        (2, 2, "gemm(int)"),
    ]
    assert launches[0].get("time_s", "f") == pytest.approx(177.696e-6)
    assert launches[0].get("grid_size", "f") == 132
    assert launches[0].gpu == "NVIDIA H200"
    assert launches[0].get("dram_read_bytes", "f") is None
    assert launches[0].get("lookup_bytes", "f") is None


def test_reports_that_can_not_be_read(report, monkeypatch):
    monkeypatch.setitem(sys.modules, "ncu_report", None)  # as if it were not installed
    with pytest.raises(MissingToolError, match=r"pip install ncu-report.*ncu --import mine.ncu-rep --csv --page raw"):
        read_launches(report)
    monkeypatch.setitem(sys.modules, "ncu_report", package([]))
    with pytest.raises(TableError, match="no launch in it"):
        read_launches(report)

    def broken(path):
        raise RuntimeError("bad magic")

    monkeypatch.setitem(sys.modules, "ncu_report", SimpleNamespace(load_report=broken))
    with pytest.raises(TableError, match="mine.ncu-rep: not readable as a report: bad magic"):
        read_launches(report)
    with pytest.raises(MissingFileError, match="no report"):
        read_launches(report.with_name("absent.ncu-rep"))
