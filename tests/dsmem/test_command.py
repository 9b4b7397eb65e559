"""The command `tilesight dsmem`, and verdicts beside measured records."""

import json
from dataclasses import replace

import pytest

from tilesight import MissingFileError, TableError, derive, load_profile, verdict
from tilesight.cli.program import main
from tilesight.dsmem.measured import beside
from tilesight.report import text

WORDS = ["dsmem", "softmax_backward", "--rows", "4096", "--cols", "65536", "--gpu", "h200_sxm"]
HEAD = "workload,dtype,rows,cols,alternative,cluster,protocol,seconds,spread,error"
ROWS = [
    "softmax_backward,fp32,4096,65536,cluster,8,fast,0.0008,0.01,",
    "softmax_backward,fp32,4096,65536,cluster,8,published,0.0009,0.01,",
    "softmax_backward,fp32,4096,65536,cluster,4,fast,0.00078,0.01,",
    "softmax_backward,fp32,4096,65536,triton,1,none,0.0011,0.01,",
    "softmax_backward,fp32,4096,65536,torch_compile,,none,0.0015,0.01,",
    "softmax_backward,fp32,4096,65536,staged,1,none,,,does not fit",
    "softmax_backward,fp32,4096,4096,triton,1,none,0.00005,0.01,",
]


@pytest.fixture
def record(tmp_path):
    """Function that writes a record of some rows."""

    def write(rows=ROWS, head=HEAD, about='gpu = "NVIDIA H200"\n', encoding="utf-8"):
        path = tmp_path / "dsmem.csv"
        path.write_text("\n".join([head, *rows]) + "\n", encoding=encoding)
        if about is not None:
            path.with_suffix(".toml").write_text(about, encoding="utf-8")
        return str(path)

    return write


@pytest.fixture
def run(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "140")

    def call(*words, status=0):
        assert main([str(word) for word in words]) == status
        out, err = capsys.readouterr()
        assert (err if status == 0 else out) == ""
        return out or err

    return call


def asked():
    return verdict("softmax_backward", 4096, 65536, hardware="h200_sxm")


def test_it_prints_the_verdict(run):
    assert run(*WORDS) == text(asked(), width=140) + "\n"
    assert json.loads(run(*WORDS, "--json")) == asked().to_dict()


def test_options(run):
    printed = json.loads(run(*WORDS, "--json", "--dtype", "bf16", "--cache", "cold", "--set", "sm_count=128"))
    assert (printed["dtype"], printed["cache"], printed["hardware"]) == ("bf16", "cold", "h200_sxm_what_if")
    timed = json.loads(run(*WORDS, "--json", "--timing", "triton=1 ms", "--control", "8=30 us"))
    expected = verdict(
        "softmax_backward", 4096, 65536, hardware="h200_sxm", timing_s={"triton": 1e-3}, control_s={8: 30e-6}
    )
    assert timed == expected.to_dict()
    assert json.loads(run(*WORDS, "--json", "--timing", "1 ms"))["times"] != asked().to_dict()["times"]


def test_beside_a_record(run, record):
    measured = beside(asked(), record())
    assert measured.seconds["cluster", 8] == 0.0008  # the faster protocol
    assert measured.best == ("cluster", 4)
    assert measured.cluster_paid is True
    assert measured.regret == pytest.approx(0.0008 / 0.00078)
    printed = run(*WORDS, "--record", record())
    assert printed == text(measured, width=140) + "\n"
    assert "predicted / measured" in " ".join(printed.split())
    told = json.loads(run(*WORDS, "--record", record(), "--json"))
    assert told["measured"]["best"] == {"name": "cluster", "cluster": 4, "seconds": 0.00078}


def test_one_side_measured(record):
    measured = beside(asked(), record(ROWS[3:4]))
    assert (measured.cluster_paid, measured.regret) == (None, None)
    assert "chosen / best" not in text(measured)


@pytest.mark.parametrize(
    ("rows", "head", "message"),
    [
        (ROWS[6:], HEAD, "dsmem.csv: no row measures softmax_backward, fp32, 4096 x 65536"),
        ([ROWS[0].replace("0.0008", "fast")], HEAD, "dsmem.csv:2:seconds: 'fast' is not a finite number above 0"),
        ([ROWS[0].replace(",8,", ",3,")], HEAD, "dsmem.csv:2:cluster: '3' is not allowed for cluster; 2, 4, 8, 16 is"),
        ([ROWS[0].replace("cluster,", "clusters,")], HEAD, "dsmem.csv:2:alternative: 'clusters' is no alternative"),
        ([ROWS[0].replace("0.0008", "1_0")], HEAD, "dsmem.csv:2:seconds: '1_0' is not a finite number above 0"),
        ([ROWS[3], ROWS[0] + ",more"], HEAD, "dsmem.csv:3: has 11 cells, and the header 10 names"),
        ([ROWS[0], ROWS[3][:-1]], HEAD, "dsmem.csv:3: has 9 cells, and the header 10 names"),
        ([*ROWS[:3], ROWS[0]], HEAD, "dsmem.csv:5: measures what line 2 does; keep one of them"),
        (ROWS, HEAD.replace("dtype", "type"), "dsmem.csv: has no column 'dtype'"),
        (ROWS, HEAD.replace("error", "rows"), "dsmem.csv:1: has the column 'rows' twice"),
    ],
)
def test_bad_records_are_refused(record, rows, head, message):
    with pytest.raises(TableError) as caught:
        beside(asked(), record(rows, head))
    assert str(caught.value).startswith(message)


def test_a_byte_order_mark_is_read_over(record):
    assert beside(asked(), record(encoding="utf-8-sig")).seconds["cluster", 8] == 0.0008


def test_records_of_other_gpus_are_refused(record, run):
    other = record(about='gpu = "NVIDIA H100 80GB HBM3"\n')
    with pytest.raises(
        TableError, match=r"dsmem.toml: was measured on 'NVIDIA H100 .*', and the verdict is of h200_sxm"
    ):
        beside(asked(), other)
    assert "was measured on" in run(*WORDS, "--record", other, status=2)
    for about in ("gpu = 3\n", "driver = '1'\n", "gpu = ''\n"):
        with pytest.raises(TableError, match=r"dsmem.toml: gpu = "):
            beside(asked(), record(about=about))
    with pytest.raises(TableError, match=r"dsmem.toml: is no TOML file"):
        beside(asked(), record(about="gpu"))


def test_records_without_a_toml_file_are_refused(record):
    with pytest.raises(MissingFileError, match=r"no dsmem.toml beside .*; it says on which GPU"):
        beside(asked(), record(about=None))


def test_copies_of_a_profile_and_profiles_of_ones_own(record):
    copy = derive(load_profile("h200_sxm"), {"sm_count": 128})
    options = {"rows": 4096, "cols": 65536}
    assert beside(verdict("softmax_backward", **options, hardware=copy), record()).best == ("cluster", 4)
    own = replace(asked(), hardware="mine")
    assert beside(own, record()).best == ("cluster", 4)


def test_no_record(tmp_path):
    with pytest.raises(MissingFileError, match="no record"):
        beside(asked(), tmp_path / "none.csv")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["dsmem", "softmax", *WORDS[2:]], "no workload 'softmax'"),
        ([*WORDS[:3], "many", *WORDS[4:]], "rows = 'many'; give a whole number"),
        ([*WORDS, "--dtype", "int4"], "dtype = 'int4'"),
        ([*WORDS, "--timing", "triton"], "cannot read 'triton'"),
        ([*WORDS, "--timing", "triton=1 ms", "--timing", "2 ms"], "--timing '2 ms' is not NAME=TIME"),
        ([*WORDS, "--timing", "triton=1 ms", "--timing", "triton=2 ms"], "--timing triton is given twice"),
        ([*WORDS, "--control", "8=1 us"], "control_s belongs to timing_s"),
        ([*WORDS, "--record", "none.csv"], "no record 'none.csv'"),
        (WORDS[:-2], "Missing option '--gpu'"),
    ],
)
def test_bad_words_are_refused_in_one_line(run, words, message):
    printed = run(*words, status=2)
    assert message in printed
    assert printed.count("\n") == 1
