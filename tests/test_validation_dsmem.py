"""validation/dsmem.py without a GPU: records that go on where they stopped, programs that fail, what the kernels compute."""

import csv
import doctest
import importlib
import importlib.util
import json
import os
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import pytest

VALIDATION = Path(__file__).parent.parent / "validation"
SCRIPT = VALIDATION / "dsmem.py"
pytestmark = pytest.mark.skipif(not SCRIPT.is_file(), reason="validation/ is not part of an installed wheel")
QUANTISE = "quantise_int8"


@pytest.fixture(autouse=True)
def on_path(monkeypatch):
    monkeypatch.syspath_prepend(str(VALIDATION))


def room(name):
    return importlib.import_module(name)


def read(path):
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def point(cols=4096, workload=QUANTISE, rows=4096, dtype="fp32"):
    return room("dsmem_record").Point(workload, dtype, rows, cols)


def program(folder, lines, tail=""):
    """An executable that notes its arguments and prints lines, each for the widths it is asked for."""
    path = folder / QUANTISE
    path.write_text(
        f"#!{sys.executable}\nimport json, sys, time, os\n"
        f"open({str(folder / 'asked')!r}, 'a').write(' '.join(sys.argv[1:]) + '\\n')\n"
        "asked = [int(each) for each in sys.argv[sys.argv.index('--cols') + 1].split(',')]\n"
        f"for line in json.loads({json.dumps(json.dumps(lines))}):\n"
        "    if line['cols'] in asked:\n"
        "        if 'dies' in line: sys.stderr.write('line 7: wrong'); sys.exit(3)\n"
        "        if 'sleeps' in line: time.sleep(60)\n"
        "        print(json.dumps(line), flush=True)\n" + tail
    )
    path.chmod(0o755)
    return path


def line(cols, seconds=1e-3, **more):
    base = dict(
        bench=QUANTISE, variant="staged", cluster=1, cols=cols, seconds=seconds, spread=0.01, max_error=0.5, block=512
    )
    return base | dict(bitwise_repeats=2) | more


def run(*words, path=None):
    environment = os.environ | ({"PATH": f"{path}:{os.environ['PATH']}"} if path else {})
    command = [sys.executable, str(SCRIPT), *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, env=environment)


# ---- arithmetic and text


@pytest.mark.parametrize("name", ["record", "cuda", "candidates", "counters", "measure"])
def test_examples(name):
    tried = doctest.testmod(room(f"dsmem_{name}"))
    assert tried.attempted
    assert not tried.failed


def test_compulsory_bytes_by_hand():
    # int8: 4 B read and 1 B written; LARS: w, g, m read, w and m written, 20 B; in bf16 2 + 1 and 10 B
    assert point(65536).compulsory_bytes == 5 * 4096 * 65536
    assert point(16, "lars_momentum", 2).compulsory_bytes == 20 * 32
    assert point(16, QUANTISE, 2, "bf16").compulsory_bytes == 3 * 32
    assert point(16, "lars_momentum", 2, "bf16").compulsory_bytes == 10 * 32


def test_points_go_width_by_width():
    record = room("dsmem_record")
    made = record.points(("layernorm_backward", QUANTISE), (8, 16), None, "fp32")
    assert [(each.workload, each.rows, each.cols) for each in made[:3]] == [
        ("layernorm_backward", 2048, 8),
        (QUANTISE, 4096, 8),
        ("layernorm_backward", 2048, 16),
    ]


def test_header_is_toml():
    text = room("dsmem_record").header_text(
        dict(gpu='a "b"', runs=["python3 x.py --only triton"], clock=[1, 2], limit=7.5)
    )
    assert tomllib.loads(text) == dict(gpu='a "b"', runs=["python3 x.py --only triton"], clock=[1, 2], limit=7.5)


# ---- records


def test_record_is_read_back(tmp_path):
    record = room("dsmem_record")
    path = tmp_path / "deep" / "dsmem.csv"
    kept = record.Record(path)
    kept.append(record.timed_row(point(), "triton", 2e-5, 0.01, configuration="block=4096"))
    kept.append(record.failed_row(point(), "torch_compile", ValueError("two\nlines")))
    rows = read(path)
    assert rows[0]["seconds"] == "2e-05"
    assert float(rows[0]["bytes_per_s"]) == pytest.approx(5 * 4096 * 4096 / 2e-5, rel=1e-5)
    assert rows[0]["protocol"] == rows[0]["error"] == ""
    assert (rows[1]["seconds"], rows[1]["error"]) == ("", "ValueError: two lines")
    again = record.Record(path)
    assert again.rows == kept.rows
    assert again.has(point(), ("triton",))
    assert not again.has(point(8192), ("triton",))
    assert not again.has(point(dtype="bf16"), ("triton",))


def test_row_cut_short_is_measured_again(tmp_path):
    record = room("dsmem_record")
    path = tmp_path / "dsmem.csv"
    kept = record.Record(path)
    for cols in (4096, 8192):
        kept.append(record.timed_row(point(cols), "triton", 2e-5, 0.01))
    path.write_text(path.read_text()[:-20])
    again = record.Record(path)
    assert [row["cols"] for row in again.rows] == ["4096"]
    again.append(record.timed_row(point(8192), "triton", 2e-5, 0.01))
    assert [row["cols"] for row in record.Record(path).rows] == ["4096", "8192"]


def test_unknown_columns_are_refused(tmp_path, capsys):
    record = room("dsmem_record")
    with pytest.raises(SystemExit):
        record.Record(tmp_path / "a.csv").append(dict(speed=1))
    assert "no column speed" in capsys.readouterr().err
    (tmp_path / "b.csv").write_text("m,n\n1,2\n")
    with pytest.raises(SystemExit):
        record.Record(tmp_path / "b.csv")
    assert "other columns" in capsys.readouterr().err


def test_again_forgets_what_failed_but_not_what_is_illegal(tmp_path):
    record = room("dsmem_record")
    kept = record.Record(tmp_path / "dsmem.csv")
    kept.append(record.timed_row(point(), "staged", 1e-4, 0.0))
    kept.append(record.failed_row(point(), "reread", "wrong result"))
    kept.append(record.failed_row(point(), "cluster", "illegal: too wide", cluster=2))
    kept.forget_failed()
    assert [row["alternative"] for row in record.Record(kept.path).rows] == ["staged", "cluster"]
    assert kept.fastest(point(), ("staged", "reread", "cluster"))["alternative"] == "staged"
    assert kept.fastest(point(8192), ("staged",)) is None


# ---- CUDA programs


def test_lines_become_rows(tmp_path):
    lines = [
        line(4096),
        line(4096, 2e-3, variant="cluster", cluster=4, protocol="fast"),
        dict(variant="cluster", cluster=16, protocol="fast", cols=4096, part="skipped", reason="slices of 256"),
        line(8192, max_error=1.5),
        line(8192, variant="reread", bitwise_repeats=1),
        line(8192, variant="control"),
    ]
    widths = [point(4096), point(8192)]
    found = dict(room("dsmem_cuda").measure(program(tmp_path, lines), widths, 5, 30.0))
    staged, cluster, illegal = found[widths[0]]
    assert (staged["seconds"], staged["protocol"], staged["configuration"]) == (1e-3, None, "block=512")
    assert (cluster["cluster"], cluster["protocol"]) == (4, "fast")
    assert (illegal["error"], illegal.get("seconds")) == ("illegal: slices of 256", None)
    wrong, unstable = found[widths[1]]
    assert "1.5" in wrong["error"]
    assert "differ" in unstable["error"]
    assert "seconds" not in wrong
    assert (tmp_path / "asked").read_text() == "--variant all --dtype f32 --rows 4096 --cols 4096,8192 --repeats 5\n"


def test_program_that_dies_goes_on_at_the_next_width(tmp_path):
    lines = [line(4096), line(8192), dict(cols=8192, dies=True), line(16384)]
    widths = [point(4096), point(8192), point(16384)]
    found = dict(room("dsmem_cuda").measure(program(tmp_path, lines), widths, 5, 30.0))
    assert [len(found[each]) for each in widths] == [1, 2, 1]
    assert found[widths[1]][1]["error"] == "ended with status 3: line 7: wrong"
    assert (tmp_path / "asked").read_text().count("\n") == 2


def test_what_was_begun_when_time_ran_out_is_dropped(tmp_path):
    lines = [line(4096), line(8192), dict(cols=8192, sleeps=True), line(16384)]
    begun = time.monotonic()
    found = list(room("dsmem_cuda").measure(program(tmp_path, lines), [point(4096), point(8192), point(16384)], 5, 2.0))
    assert [each.cols for each, _ in found] == [4096]
    assert time.monotonic() - begun < 20


def test_program_that_is_none_or_silent(tmp_path):
    (tmp_path / QUANTISE).write_text("no program")
    (tmp_path / QUANTISE).chmod(0o755)
    ((_, (row,)),) = room("dsmem_cuda").measure(tmp_path / QUANTISE, [point()], 5, 30.0)
    assert "does not start" in row["error"]
    ((_, (row,)),) = room("dsmem_cuda").measure(program(tmp_path, [dict(cols=4096)]), [point()], 5, 30.0)
    assert row["error"] == "the program printed no variant"


def test_measure_goes_on_where_it_stopped(tmp_path):
    tools, out = tmp_path / "tools", tmp_path / "out"
    tools.mkdir()
    (tools / "nvidia-smi").write_text("#!/bin/sh\necho 'Some GPU, 580.1, 700.00, 345, 3201'\n")
    (tools / "nvidia-smi").chmod(0o755)
    program(tmp_path, [line(64), line(128)])
    words = ("measure", "--out", out, "--programs", tmp_path, "--workloads", QUANTISE, "--only", "cuda")
    first = run(*words, "--widths", 64, path=tools)
    assert (first.returncode, first.stderr) == (0, "")
    assert "0 of 1 left" in first.stdout
    run(*words, "--widths", 64, 128, path=tools)
    run(*words, "--widths", 64, 128, path=tools)
    assert [row["cols"] for row in read(out / "dsmem.csv")] == ["64", "128"]
    assert [text.split()[7] for text in (tmp_path / "asked").read_text().splitlines()] == ["64", "128"]
    header = tomllib.loads((out / "dsmem.toml").read_text())
    assert (header["gpu"], header["driver"], len(header["runs"])) == ("Some GPU", "580.1", 3)
    assert header["sm_clock_mhz"] == [345] * 6


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("measure",), "--out"),
        (("measure", "--out", "x", "--widths", "0"), "'0' is no positive integer"),
        (("measure", "--out", "x", "--workloads", "gemm"), "invalid choice: 'gemm'"),
        (("measure", "--out", "x", "--only", "cuda"), "--programs DIR is wanted"),
        (
            ("measure", "--out", "x", "--only", "cuda", "--programs", "nowhere"),
            "nowhere has no executable layernorm_backward",
        ),
    ],
)
def test_arguments_that_are_refused(words, said):
    done = run(*words)
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr


# ---- candidates, batches, counters


@pytest.mark.parametrize("workload", ["layernorm_backward", "weighted_standardisation_backward", QUANTISE])
@pytest.mark.parametrize("cols", [1, 4096, 6000, 16384, 65536])
def test_candidates(workload, cols):
    tried = room("dsmem_candidates").candidates(workload, cols)
    assert 1 <= len(tried) <= 12
    assert len(set(tried)) == len(tried)
    assert any(each.kernel == "looped" for each in tried)
    assert all(each.block >= cols for each in tried if each.kernel == "held")


def test_rows_are_held_while_they_fit():
    # 65536 registers an SM: one tensor of 65536 elements is still tried, two of 65536 or three of 32768 are not
    candidates = room("dsmem_candidates").candidates
    assert any(each.kernel == "held" for each in candidates(QUANTISE, 65536))
    assert not any(each.kernel == "held" for each in candidates("softmax_backward", 65536))
    assert not any(each.kernel == "held" for each in candidates("lars_momentum", 20000))


def test_batches_leave_out_what_has_a_row(tmp_path):
    record, measure = room("dsmem_record"), room("dsmem_measure")
    kept = record.Record(tmp_path / "dsmem.csv")
    kept.append(record.timed_row(point(64), "triton", 1e-5, 0.0))
    kept.append(record.failed_row(point(128), "triton", "no"))
    kept.append(record.timed_row(point(128), "torch_compile", 1e-5, 0.0))
    options = (
        room("dsmem")
        .parser()
        .parse_args(
            ["measure", "--out", str(tmp_path), "--workloads", QUANTISE, "--widths", "64", "128", "256", "--batch", "2"]
        )
    )
    assert list(measure.batches(options, kept)) == [[(point(64), ["torch"])], [(point(256), ["torch", "triton"])]]
    jobs = measure.jobs([(point(8192), ["torch", "triton"]), (point(12288), ["triton"])])
    assert [job[0] for job in jobs].count("torch") == 1
    assert len({job[1:] for job in jobs if job[0] == "triton"}) == len(jobs) - 1  # no kernel twice


def test_counts_by_hand():
    counters = room("dsmem_counters")
    launches = [{"dram__bytes_read.sum": "1,024", "x": ""}, {"dram__bytes_read.sum": "2.5e3"}]
    assert counters.total(launches, "dram__bytes_read.sum") == 3524
    assert counters.total(launches, "x") is None
    assert counters.total([], "dram__bytes_read.sum") is None
    three = [{"ID": str(index)} for index in range(6)]
    assert [row["ID"] for row in counters.last_call(three, 3)] == ["4", "5"]
    assert [row["ID"] for row in counters.last_call(three, None)] == ["5"]
    assert counters.last_call(three[:5], 3) == []


def test_counted_row(tmp_path, monkeypatch):
    counters, record = room("dsmem_counters"), room("dsmem_record")
    kept = record.Record(tmp_path / "dsmem.csv")
    kept.append(record.timed_row(point(16, rows=4), "cluster", 1e-5, 0.0, protocol="fast") | dict(cluster=8))

    def profiled(command, metrics, *, marked):
        assert not marked
        values = {"dram__bytes_read.sum": "256", "dram__bytes_write.sum": "64", "profiler__replayer_passes": "1"}
        return [{"Kernel Name": "row_staged", counters.DSHARED[1]: "128"} | values], ""

    monkeypatch.setattr(counters, "profiled", profiled)
    command = room("dsmem_cuda").once(Path("program"), kept.rows[0])
    assert command[-4:] == ["--cluster", "8", "--protocol", "fast"]
    known = {name.rsplit(".", 1)[0] for name in counters.DSHARED[1:2]}
    row = counters.counted(kept.rows[0], command, None, known)
    # 64 elements: 256 B read, 64 B written, 128 B to peers
    assert [row[name] for name in record.COUNTED] == [4.0, 1.0, 2.0]
    assert row.get(counters.DSHARED[0]) is None


# ---- what is computed, where PyTorch and Triton are there

HARD = ("normal", "large mean", "equal")


@pytest.fixture
def torch_rooms(monkeypatch):
    if importlib.util.find_spec("torch") is None or importlib.util.find_spec("triton") is None:
        pytest.skip("needs PyTorch and Triton")
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    workloads = room("dsmem_workloads")
    monkeypatch.setattr(workloads, "DEVICE", "cpu")
    return workloads, room("dsmem_triton_kernels").KERNELS


def given(workloads, name, rows, cols, dtype, kind):
    made = workloads.inputs(name, rows, cols, dtype)
    if kind == "large mean":
        made[0].add_(1000)
    elif kind == "equal":
        made[0].fill_(0.0 if name == QUANTISE else 3.0)
    return made


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["layernorm_backward", "pearson_backward", "softmax_backward"])
def test_functions_are_gradients(torch_rooms, name):
    import torch

    workloads, _ = torch_rooms
    first, second, *rest = (each.double().requires_grad_() for each in workloads.inputs(name, 3, 257, "fp32"))
    if name == "layernorm_backward":
        forward = torch.nn.functional.layer_norm(first, (257,), rest[0], None, 1e-5)
        want = torch.autograd.grad(forward, (first,), second)
    elif name == "softmax_backward":
        want = torch.autograd.grad(torch.softmax(first, -1), (first,), second)
    else:
        x, y = (each - each.mean(-1, keepdim=True) for each in (first, second))
        rho = (x * y).sum(-1) / ((x * x).sum(-1) * (y * y).sum(-1)).sqrt()
        want = torch.autograd.grad(rho.sum(), (first, second))
    with torch.no_grad():
        found = workloads.outputs_of(workloads.FUNCTIONS[name](first, second, *rest))
    for one, other in zip(found, want, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", HARD)
@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
@pytest.mark.parametrize(("rows", "cols"), [(3, 512), (5, 1000), (2, 257)])
def test_triton_kernels_agree_with_float64(torch_rooms, rows, cols, dtype, kind):
    workloads, kernels = torch_rooms
    for name, (held, looped) in kernels.items():
        data = given(workloads, name, rows, cols, dtype, kind)
        for kernel, block, programs in ((held, 1 << (cols - 1).bit_length(), 2), (looped, 128, rows)):
            out = workloads.poisoned(name, rows, cols, dtype)
            kernel[(programs,)](*data, *out, rows, cols, block=block, even=cols % block == 0, stages=1)
            error = workloads.max_error(name, data, out, dtype)
            # a mean of 1000 sd in float32 is known to 3e-5 sd, one and a half tolerances; it enters mean and variance
            assert error <= (3 if kind == "large mean" else 1), (name, kernel.__name__, kind, error)


@pytest.mark.filterwarnings("ignore")
def test_what_is_not_written_is_an_error(torch_rooms):
    workloads, kernels = torch_rooms
    for name in kernels:
        data = workloads.inputs(name, 4, 64, "fp32")
        right = workloads.outputs_of(workloads.FUNCTIONS[name](*data))
        assert workloads.max_error(name, data, right, "fp32") <= 1
        for index, poison in enumerate(workloads.poisoned(name, 4, 64, "fp32")):
            spoilt = [each.clone() for each in right]
            spoilt[index][3, -1] = poison[3, -1]
            assert workloads.max_error(name, data, tuple(spoilt), "fp32") > 1
