"""Measured tables: every cell is checked, columns mean what the README of the tables says, times contain stated terms."""

import gzip
import os
import tomllib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilesight.errors import MissingFileError, TableError, UnsupportedError
from tilesight.files import data_file, sample_files
from tilesight.hardware.load import load_profile
from tilesight.hardware.profile import Profile
from tilesight.kernels.gemm_config import Gemm, GemmConfig
from tilesight.records import (
    KINDS,
    PROTOCOLS,
    canonical_gpu,
    counters,
    filter_rows,
    parse_where,
    read,
    read_table,
    recognise,
    requests,
)
from tilesight.records.cells import COUNT, FLAG, NAME, POSITIVE, SHARE, SIZE, Value
from tilesight.records.protocol import COLD, CYCLED, WARM, Replays

TRITON_HEADER = "kernel,m,n,k,tile_m,tile_n,tile_k,group_m,stages,warps,registers,spills,smem_bytes,warm_us,cold_us"
TRITON_ROW = "ptr,512,256,1024,128,64,32,8,3,4,126,0,73728,4.5,7.5"
CUBLAS_HEADER = (
    "family,m,n,k,kernel,extra_kernels,tile_m,tile_n,tile_k,stages,cluster_a,cluster_b,raster,coop,split_k,"
    "warm_us,cold_us"
)
CUBLAS_ROW = "llama,1,4096,8192,nvjet,1,8,64,128,16,4,2,v,,1,10.492,17.728"
L2_HEADER = (
    "kernel,m,n,k,tile_m,tile_n,tile_k,group_m,stages,warps,time_us,dram_read_bytes,dram_write_bytes,l2_hit_rate,"
    "l2_tex_sectors,registers,smem_bytes"
)
L2_ROW = "tma,512,512,512,128,128,64,1,4,8,9.472,1075200,0,0.6439,118052,100,163872"
PUBLIC_HEADER = "gpu,dtype,m,n,k,latency_us,source,includes,copies,touched_mb,l2_state"
PUBLIC_ROW = "h200_sxm,bf16,64,4096,1024,5.5,trtllm/1.3.0rc20,gemm,5,40,edge"


@pytest.fixture
def write(tmp_path):
    def write(*lines: str, name: str = "table.csv", end: str = "\n"):
        path = tmp_path / name
        text = "".join(line + end for line in lines).encode()
        path.write_bytes(gzip.compress(text) if name.endswith(".gz") else text)
        return path

    return write


def with_cell(header: str, row: str, column: str, text: str) -> str:
    cells = row.split(",")
    cells[header.split(",").index(column)] = text
    return ",".join(cells)


def without_columns(header: str, row: str, *names: str) -> tuple[str, str]:
    kept = [i for i, name in enumerate(header.split(",")) if name not in names]
    return tuple(",".join(np.array(line.split(","))[kept]) for line in (header, row))


# --- cells


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (SIZE, "1", 1),
        (SIZE, "2147483647", 2**31 - 1),
        (COUNT, "0", 0),
        (FLAG, "1", 1),
        (POSITIVE, "1e-3", 0.001),
        (POSITIVE, ".5", 0.5),
        (SHARE, "0.5417000000000001", 0.5417000000000001),
        (NAME, "nvjet", "nvjet"),
    ],
)
def test_cell_that_is_allowed(kind, text, value):
    assert kind.parse(text) == value


NOT_NUMBERS = ("", " ", "abc", "nan", "NaN", "inf", "-inf", "Infinity", "1_000", " 7", "7 ", "0x10", "True", "1,5", "٣")


@pytest.mark.parametrize("kind", [SIZE, COUNT, FLAG, POSITIVE, SHARE])
@pytest.mark.parametrize("text", [*NOT_NUMBERS, "-1", "1e999"])
def test_cell_that_is_no_number(kind, text):
    assert kind.parse(text) is None


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (SIZE, "0"),
        (SIZE, "4096.5"),
        (SIZE, "4096.0"),
        (SIZE, "4e3"),
        (SIZE, "2147483648"),
        (SIZE, "9" * 400),
        (FLAG, "2"),
        (POSITIVE, "0"),
        (POSITIVE, "0.0"),
        (POSITIVE, "-0.5"),
        (SHARE, "1.01"),
        (NAME, "  "),
    ],
)
def test_cell_that_is_out_of_range(kind, text):
    assert kind.parse(text) is None


@given(st.text(max_size=12))
def test_a_number_cell_never_holds_more_than_it_says(text):
    value: Value | None = SIZE.parse(text)
    assert value is None or (isinstance(value, int) and 1 <= value <= 2**31 - 1)
    number = POSITIVE.parse(text)
    assert number is None or (np.isfinite(number) and number > 0)


# --- reading


def test_reads_what_is_written(write):
    table = read_table(write(TRITON_HEADER, TRITON_ROW, TRITON_ROW.replace("ptr", "tma")))
    assert table.kind.name == "gemm_triton"
    assert table["m"].tolist() == [512, 512]
    assert table["m"].dtype == np.int64
    assert table["warm_us"].tolist() == [4.5, 4.5]
    assert table["kernel"].tolist() == ["ptr", "tma"]
    assert table.row_numbers.tolist() == [1, 2]
    assert table.line_numbers.tolist() == [2, 3]


@pytest.mark.parametrize("name", ["table.csv.gz", "table.csv"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_compressed_and_line_ends_read_the_same(write, name, end):
    assert read_table(write(TRITON_HEADER, TRITON_ROW, name=name, end=end))["k"].tolist() == [1024]


def test_byte_order_mark_and_blank_lines_at_the_end_are_allowed(write):
    assert len(read_table(write("\ufeff" + TRITON_HEADER, TRITON_ROW, "", ""))) == 1


def test_columns_may_stand_in_any_order(write):
    flipped = [",".join(reversed(line.split(","))) for line in (TRITON_HEADER, TRITON_ROW)]
    assert read_table(write(*flipped))["smem_bytes"].tolist() == [73728]


def test_unknown_columns_are_kept_as_text_and_named(write):
    table = read_table(write(f"{TRITON_HEADER},note", f"{TRITON_ROW},nan"))
    assert table.unknown_columns == ("note",)
    assert table["note"].tolist() == ["nan"]


BAD_TRITON_CELLS = [
    *[("m", text) for text in ("", "abc", "nan", "inf", "512.5", "512.0", "-512", "0", " 512", "1e3")],
    *[("warm_us", text) for text in ("", "abc", "nan", "inf", "-4.5", "0", "4,5".replace(",", ";"))],
    *[("cold_us", text) for text in ("", "nan", "0")],
    ("kernel", "cutlass"),
    ("kernel", ""),
    ("spills", "-1"),
    ("registers", "0"),
    ("stages", "2.5"),
    ("smem_bytes", "x"),
]


@pytest.mark.parametrize(("column", "text"), BAD_TRITON_CELLS)
def test_malformed_cell_says_file_line_column_found_and_allowed(write, column, text):
    path = write(TRITON_HEADER, TRITON_ROW, with_cell(TRITON_HEADER, TRITON_ROW, column, text))
    with pytest.raises(TableError, match="allowed: ") as caught:
        read_table(path)
    assert (caught.value.file, caught.value.line, caught.value.column) == (str(path), 3, column)
    assert (repr(text) if text else "an empty cell") in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("column", "text"),
    [
        ("raster", "x"),
        ("raster", ""),
        ("coop", "coopC"),
        ("split_k", "2"),
        ("split_k", ""),
        ("kernel", ""),
        ("m", "1.5"),
    ],
)
def test_malformed_cublas_cell(write, column, text):
    with pytest.raises(TableError, match=f"table.csv:2:{column}: "):
        read_table(write(CUBLAS_HEADER, with_cell(CUBLAS_HEADER, CUBLAS_ROW, column, text)))


@pytest.mark.parametrize(
    ("column", "text"),
    [("l2_hit_rate", "64.39"), ("l2_hit_rate", "-0.1"), ("dram_write_bytes", "-1"), ("time_us", "0")],
)
def test_malformed_l2_cell(write, column, text):
    with pytest.raises(TableError, match=f"table.csv:2:{column}: "):
        read_table(write(L2_HEADER, with_cell(L2_HEADER, L2_ROW, column, text)))


@pytest.mark.parametrize(
    ("column", "text"),
    [("copies", "0"), ("l2_state", "hot"), ("includes", ""), ("latency_us", "NaN"), ("touched_mb", "-1"), ("gpu", "")],
)
def test_malformed_public_cell(write, column, text):
    with pytest.raises(TableError, match=f"table.csv:2:{column}: "):
        read_table(write(PUBLIC_HEADER, with_cell(PUBLIC_HEADER, PUBLIC_ROW, column, text)))


@pytest.mark.parametrize("column", TRITON_HEADER.split(","))
def test_missing_column_is_named(write, column):
    with pytest.raises(TableError, match=f"'gemm_triton' lacks column '{column}'; needed: kernel, m"):
        read_table(write(*without_columns(TRITON_HEADER, TRITON_ROW, column)))


@pytest.mark.parametrize("column", CUBLAS_HEADER.split(",")[1:])
def test_missing_cublas_column_is_named(write, column):
    with pytest.raises(TableError, match=f"'gemm_cublas' lacks column '{column}'"):
        read_table(write(*without_columns(CUBLAS_HEADER, CUBLAS_ROW, column)))


def test_several_missing_columns_are_all_named(write):
    with pytest.raises(TableError, match="lacks columns 'tile_k', 'warps'"):
        read_table(write(*without_columns(TRITON_HEADER, TRITON_ROW, "tile_k", "warps")))


def test_empty_file(write):
    with pytest.raises(TableError, match="the file is empty"):
        read_table(write())


def test_header_alone(write):
    with pytest.raises(TableError, match="a header and no rows"):
        read_table(write(TRITON_HEADER))


def test_duplicate_header(write):
    with pytest.raises(TableError, match="table.csv:1:m: the column appears 2 times"):
        read_table(write(f"{TRITON_HEADER},m", f"{TRITON_ROW},512"))


def test_column_without_a_name(write):
    with pytest.raises(TableError, match="a column without a name"):
        read_table(write(f"{TRITON_HEADER},", f"{TRITON_ROW},"))


@pytest.mark.parametrize("row", [f"{TRITON_ROW},1", TRITON_ROW.rpartition(",")[0], "ptr"])
def test_ragged_row(write, row):
    with pytest.raises(TableError, match=r"table.csv:3: \d+ cells where the header has 15 columns"):
        read_table(write(TRITON_HEADER, TRITON_ROW, row))


def test_blank_line_inside(write):
    with pytest.raises(TableError, match="table.csv:2: blank line inside"):
        read_table(write(TRITON_HEADER, "", TRITON_ROW))


def test_unknown_header(write):
    with pytest.raises(TableError, match="no known table; known: gemm_cublas, gemm_triton"):
        read_table(write("name,age", "a,1"))


def test_unknown_table_name_suggests(write):
    with pytest.raises(TableError, match=r"no kind of table 'gemm_tritn'.*Did you mean 'gemm_triton'"):
        read_table(write(TRITON_HEADER, TRITON_ROW), table="gemm_tritn")


def test_wrong_table_name_says_what_is_missing(write):
    with pytest.raises(TableError, match="'gemm_l2' lacks columns 'time_us', 'dram_read_bytes'"):
        read_table(write(TRITON_HEADER, TRITON_ROW), table="gemm_l2")


def test_a_pipe_is_no_regular_file(tmp_path):
    pipe = tmp_path / "pipe.csv"
    os.mkfifo(pipe)
    for path in (pipe, tmp_path, "/dev/stdin"):
        with pytest.raises(MissingFileError, match=r"no measured table .*, which is not a regular file; give the path"):
            read_table(path)
    for path in ("x" * 5000, "\0.csv"):
        with pytest.raises(MissingFileError, match=r"no measured table '[^,]*'; give the path"):
            read_table(path)


def test_endless_tables_are_refused(tmp_path, monkeypatch):
    path = tmp_path / "long.csv"
    path.write_text("m,n,k,warm_us,cold_us\n" + "16,16,16,5,6\n" * 3, encoding="utf-8")
    monkeypatch.setattr(read, "ROWS_MAX", 2)
    with pytest.raises(TableError, match=r"long.csv:4: more than 2 rows; split the table"):
        read_table(path)
    monkeypatch.setattr(read, "LINE_MAX", 20)
    with pytest.raises(TableError, match=r"long.csv:1: a line of more than 20 characters"):
        read_table(path)


def test_missing_file(tmp_path):
    with pytest.raises(MissingFileError, match="no measured table"):
        read_table(tmp_path / "none.csv")
    with pytest.raises(MissingFileError, match="no measured table"):
        read_table(tmp_path)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("table.csv.gz", b"not compressed"),
        ("table.csv.gz", gzip.compress(TRITON_HEADER.encode() * 100, mtime=0)[:40]),
        ("table.csv", b"m,n,k\n\xff\xfe,1,2\n"),
        ("table.csv", b'm,n,k,warm_us,cold_us\n"1,2,3,4,5\n'),
    ],
)
def test_unreadable_content(tmp_path, name, content):
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(TableError, match="not readable as UTF-8"):
        read_table(path)


# --- kinds


HEADERS_NOT_SCORED = {
    "attention": "backend,causal,batch,heads,kv_heads,seq,head_dim,warm_us,cold_us",
    "collectives": "op,n_gpus,bytes,us",
    "fused_collective_gemm": "kernel,n_gpus,m,n,k,us",
    "public_comm": "gpu,op,n_gpus,dtype,bytes,latency_us,source,launch",
}


@pytest.mark.parametrize(("name", "header"), HEADERS_NOT_SCORED.items())
def test_table_without_a_model_is_known_by_name(write, name, header):
    path = write(header, ",".join("1" for _ in header.split(",")))
    with pytest.raises(TableError, match=f"table '{name}' is known but not scored yet; scored tables: gemm_cublas"):
        read_table(path)
    with pytest.raises(TableError, match="known but not scored yet"):
        read_table(path, table=name)


@pytest.mark.parametrize("kind", KINDS.values(), ids=list(KINDS))
def test_every_kind_is_recognised_by_its_own_header(kind):
    assert recognise(list(kind.columns())) is kind
    assert recognise([*kind.required, *kind.tiles]) is kind


def test_no_measured_column_is_an_input():
    for kind in KINDS.values():
        measured = [protocol.column for protocol in PROTOCOLS.get(kind.name, ())]
        measured += ["dram_read_bytes", "dram_write_bytes", "l2_hit_rate", "l2_tex_sectors", "lookup_bytes"]
        assert not set(kind.inputs).intersection(measured)
        assert set(kind.inputs) <= set(kind.columns())


def test_every_scored_kind_has_a_protocol():
    assert set(PROTOCOLS) == {kind.name for kind in KINDS.values() if kind.scored}


# --- filters and names


@pytest.fixture
def mixed(write):
    rows = [with_cell(TRITON_HEADER, TRITON_ROW, "m", m) for m in ("512", "4096", "8192")]
    return read_table(write(TRITON_HEADER, *rows, TRITON_ROW.replace("ptr", "tma")))


@pytest.mark.parametrize(
    ("where", "rows"),
    [
        ([], [1, 2, 3, 4]),
        (["m=4096"], [2]),
        (["m=4096.0,8.192e3"], [2, 3]),
        (["m=512", "kernel=tma"], [4]),
        ("kernel=tma", [4]),
        ({"m": [512, 8192], "kernel": "ptr"}, [1, 3]),
        ({"m": 4096}, [2]),
        (["warm_us=4.50"], [1, 2, 3, 4]),
    ],
)
def test_where(mixed, where, rows):
    assert filter_rows(mixed, parse_where(where)).row_numbers.tolist() == rows


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ("m", "cannot read the condition 'm'"),
        ("=5", "cannot read the condition '=5'"),
        ("kernl=ptr", "table.csv:kernl: no column to filter by; .*Did you mean 'kernel'"),
        ("m=ptr", "'ptr' is no number"),
        ("m=", "'' is no number"),
        ("m=7,9", "no row has '7' or '9'; the table has 512, 4096, 8192"),
        ("kernel=PTR", "no row has 'PTR'; the table has ptr, tma"),
    ],
)
def test_where_that_means_nothing(mixed, where, message):
    with pytest.raises(TableError, match=message):
        filter_rows(mixed, parse_where([where]))


def test_empty_text_can_be_asked_for(write):
    table = read_table(write(CUBLAS_HEADER, CUBLAS_ROW, with_cell(CUBLAS_HEADER, CUBLAS_ROW, "coop", "coopA")))
    assert filter_rows(table, parse_where(["coop="])).row_numbers.tolist() == [1]


@pytest.mark.parametrize(
    ("name", "profile"),
    [
        ("h200_sxm", "h200_sxm"),
        ("H200", "h200_sxm"),
        ("NVIDIA H100 80GB HBM3", "h100_sxm"),
        ("NVIDIA A100-SXM4-80GB", "a100_sxm"),
        ("NVIDIA GeForce RTX 5090", "rtx_5090"),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "rtx_pro_6000_server"),
        ("AMD Instinct MI210", "mi210"),
        ("NVIDIA H100 PCIe", "NVIDIA H100 PCIe"),
    ],
)
def test_gpu_names(name, profile):
    assert canonical_gpu(name) == profile


def test_gpu_filter_knows_other_names(write):
    table = read_table(
        write(f"gpu,{TRITON_HEADER}", f"h200_sxm,{TRITON_ROW}", f"NVIDIA H200,{TRITON_ROW}", f"l40s,{TRITON_ROW}")
    )
    assert filter_rows(table, parse_where(["gpu=h200"])).row_numbers.tolist() == [1, 2]


# --- requests


def test_triton_columns_become_a_configuration(write):
    asked = requests(read_table(write(TRITON_HEADER, TRITON_ROW, TRITON_ROW.replace("ptr", "tma"))))
    expected = dict(
        tile_m=128, tile_n=64, tile_k=32, stages=3, warps=4, group_m=8, registers=126, smem_bytes=73728, spills=0
    )
    assert asked.problems == (Gemm(512, 256, 1024),) * 2
    assert asked.configs == (GemmConfig(**expected, kernel="cp_async"), GemmConfig(**expected, kernel="tma_persistent"))
    assert asked.refusals == {}


def test_cublas_columns_become_a_configuration(write):
    # column-major names: a = 4 CTAs lie along n, b = 2 along m; a split was used, the model says how many
    asked = requests(read_table(write(CUBLAS_HEADER, CUBLAS_ROW, with_cell(CUBLAS_HEADER, CUBLAS_ROW, "split_k", "0"))))
    expected = dict(tile_m=8, tile_n=64, tile_k=128, stages=16, cluster_m=2, cluster_n=4, swap_ab=True)
    assert asked.problems[0] == Gemm(1, 4096, 8192)
    assert asked.configs == (GemmConfig(**expected, split_k=None), GemmConfig(**expected, split_k=1))


@pytest.mark.parametrize(
    ("kernel", "tile_n", "along_n"),
    [
        ("nvjet_sm90_tst_128x64_64x8_1x2_h_bz_NNT", 128, True),
        ("nvjet_sm90_tst_128x256_64x4_1x2_h_bz_coopA_NNN", 128, False),
        ("nvjet_sm90_tst_96x64_64x8_2x1_v_bz_splitK_NNN", 96, False),
        ("another", 128, True),
        ("another", 96, False),
    ],
)
def test_side_of_the_instruction_by_name(write, kernel, tile_n, along_n):
    row = with_cell(CUBLAS_HEADER, with_cell(CUBLAS_HEADER, CUBLAS_ROW, "kernel", kernel), "tile_n", str(tile_n))
    assert requests(read_table(write(CUBLAS_HEADER, row))).configs[0].swap_ab is along_n


def test_table_without_tiles_leaves_the_configuration_to_the_model(write):
    names = ("tile_m", "tile_n", "tile_k")
    assert requests(read_table(write(*without_columns(CUBLAS_HEADER, CUBLAS_ROW, *names)))).configs is None
    assert requests(read_table(write("m,n,k,warm_us,cold_us", "1,2,3,4,5"))).configs is None


def test_configuration_can_be_left_to_the_model(write):
    assert requests(read_table(write(TRITON_HEADER, TRITON_ROW)), auto_config=True).configs is None


def test_public_products_have_a_column_major_weight(write):
    asked = requests(read_table(write(PUBLIC_HEADER, PUBLIC_ROW)))
    assert asked.problems == (Gemm(64, 4096, 1024, layout_b="column"),)
    assert asked.configs is None


def test_products_of_other_types(write):
    rows = [f"{kind},{batch},64,128,256,5,9" for kind, batch in (("fp16", 1), ("tf32", 1), ("fp8", 1), ("bf16_bmm", 8))]
    asked = requests(read_table(write("kind,batch,m,n,k,warm_us,cold_us", *rows)))
    assert asked.problems == (
        Gemm(64, 128, 256, dtype="fp16"),
        Gemm(64, 128, 256, dtype="tf32"),
        Gemm(64, 128, 256, dtype="fp8", layout_b="column", output="bf16"),
        Gemm(64, 128, 256, batch=8),
    )
    assert asked.configs is None
    with pytest.raises(TableError, match="kind: found 'int4'; allowed: one of 'fp16'"):
        read_table(write("kind,batch,m,n,k,warm_us,cold_us", "int4,1,64,128,256,5,9"))


def test_a_quantiser_before_the_product_is_part_of_the_problem(write):
    row = with_cell(PUBLIC_HEADER, with_cell(PUBLIC_HEADER, PUBLIC_ROW, "includes", "act_quant+gemm"), "dtype", "fp8")
    asked = requests(read_table(write(PUBLIC_HEADER, row)))
    assert asked.problems == (Gemm(64, 4096, 1024, dtype="fp8", layout_b="column", quantise_a=True),)


def test_rows_the_model_has_no_words_for_are_refused_with_a_reason(write):
    two_kernels = with_cell(PUBLIC_HEADER, PUBLIC_ROW, "includes", "act_quant+gemm")
    no_type = with_cell(PUBLIC_HEADER, PUBLIC_ROW, "dtype", "fp3")
    asked = requests(read_table(write(PUBLIC_HEADER, PUBLIC_ROW, two_kernels, no_type)))
    assert list(asked.refusals) == [1, 2]
    assert "quantise_a: A arrives in bf16, and bf16 is no smaller" in asked.refusals[1]
    assert "fp3" in asked.refusals[2]
    assert [problem is None for problem in asked.problems] == [False, True, True]


def test_impossible_configuration_is_refused(write):
    asked = requests(read_table(write(TRITON_HEADER, with_cell(TRITON_HEADER, TRITON_ROW, "tile_m", "100000"))))
    assert "tile_m" in asked.refusals[0]


def test_counters(write):
    found = counters(read_table(write(L2_HEADER, L2_ROW)))
    assert found["lookup_bytes"].tolist() == [118052 * 32]  # sectors of 32 B
    assert found["dram_read_bytes"].tolist() == [1075200]
    assert found["l2_hit_rate"].tolist() == [0.6439]
    assert counters(read_table(write(TRITON_HEADER, TRITON_ROW))) == {}


# --- protocols


class Answer:
    """What a model answers, as far as a protocol reads it: refused rows are left out."""

    def __init__(self, seconds, positions=None):
        self.seconds = np.array(seconds, dtype=float)
        self.positions = np.arange(len(self.seconds)) if positions is None else np.array(positions)

    def __len__(self):
        return len(self.seconds)


def hardware(**launch_s: float) -> Profile:
    data = load_profile("h200_sxm").to_dict()
    data["launch"] = launch_s
    # 80 ways of 64 MiB: half of what was touched as long ago as 64 MiB of held lines is left
    data["l2"] |= {"partitions": 2, "associativity": 80, "copies_one_reader": 1.5, "capacity_bytes": 2**26}
    data["source"] = {
        name: source for name, source in data["source"].items() if not name.startswith(("launch", "l2.c", "l2.as"))
    }
    for name in [
        *(f"launch.{name}" for name in launch_s),
        "l2.partitions",
        "l2.associativity",
        "l2.capacity_bytes",
        "l2.copies_one_reader",
    ]:
        data["source"][name] = {"kind": "assumed", "note": "round numbers for a test"}
    return Profile.from_dict(data)


def test_terms_are_added_from_the_profile():
    gpu = hardware(graph_gap_s=1e-6, event_s=2e-6, cold_extra_s=3e-6)
    assert WARM.added_seconds(Answer([5e-6, 6e-6]), {}, gpu) == pytest.approx([1e-6, 1e-6])
    assert COLD.added_seconds(Answer([5e-6]), {}, gpu) == pytest.approx([5e-6])  # 2 us event + 3 us cold start
    assert PROTOCOLS["gemm_l2"][0].added_seconds(Answer([5e-6]), {}, gpu) == pytest.approx([0])


def test_short_graphs_pay_for_their_replays():
    # 1 us between nodes, 0.5 us more in short graphs, 3 us a replay over 1, 2 and 5 products; row 1 was refused
    gpu = hardware(graph_gap_s=1e-6, short_graph_gap_s=0.5e-6, graph_replay_s=3e-6)
    table = {"copies": np.array([1, 3, 2, 5])}
    answer = Answer([5e-6, 5e-6, 5e-6], positions=[0, 2, 3])
    added = PROTOCOLS["public_gemm"][0].added_seconds(answer, table, gpu)
    assert added == pytest.approx([4.5e-6, 3e-6, 2.1e-6])


def test_absent_term_refuses_by_name():
    with pytest.raises(UnsupportedError, match=r"launch\.event_s") as caught:
        COLD.added_seconds(Answer([5e-6]), {}, hardware(graph_gap_s=1e-6))
    assert caught.value.field == "launch.event_s"


@pytest.mark.parametrize(
    ("time_s", "launches", "busy_s"),
    [
        (4e-6, 50, 2500e-6),  # 2 ms / 4 us = 500, at most 50; 12.5 replays * 50 * 4 us
        (100e-6, 20, 25e-3),  # 2 ms / 100 us = 20; 12.5 * 20 * 100 us
        (1.5e-3, 1, 18.75e-3),  # 2 ms / 1.5 ms = 1.33
        (6e-3, 1, 75e-3),  # never less than one launch
    ],
)
def test_load_of_a_replayed_graph(time_s, launches, busy_s):
    assert Replays().launches(np.array([time_s])) == pytest.approx([launches])
    assert Replays().busy_s(np.array([time_s])) == pytest.approx([busy_s])


def test_clock_follows_from_the_predicted_load_not_from_measured_times(write):
    table = read_table(write(TRITON_HEADER, TRITON_ROW, TRITON_ROW))
    calls = []

    def predict_many(problems, configs, **options):
        calls.append(options)
        return Answer([99e-6], positions=[1])

    gpu = hardware(graph_gap_s=1e-6)
    asked = requests(table)
    WARM.estimate(asked.problems, asked.configs, table, hardware=gpu, predict_many=predict_many)
    assert calls[0] == {"hardware": gpu, "cache": "warm", "clock": "burst", "skip_refused": True}
    # 99 us + 1 us gap: 20 launches a replay, 12.5 * 20 * 100 us = 25 ms; the first row is refused and has no load
    assert calls[1].pop("clock") == pytest.approx([0, 25e-3])
    assert calls[1] == {"hardware": gpu, "cache": "warm", "skip_refused": True}


def test_nothing_priced_is_not_priced_again(write):
    table = read_table(write(TRITON_HEADER, TRITON_ROW))
    calls = []

    def predict_many(problems, configs, **options):
        calls.append(options)
        return Answer([], positions=[])

    assert not len(WARM.estimate([None], [None], table, hardware=hardware(), predict_many=predict_many))
    assert len(calls) == 1


def test_cold_launch_finds_dirty_lines_and_the_load_of_launch_after_launch(write):
    table = read_table(write(TRITON_HEADER, TRITON_ROW))
    calls = []

    def predict_many(problems, configs, **options):
        calls.append(options)
        return Answer([5e-6])

    gpu = hardware(event_s=2e-6, cold_extra_s=3e-6)
    COLD.estimate([None], [None], table, hardware=gpu, predict_many=predict_many)
    dirty_bytes = gpu.l2.capacity_bytes / gpu.l2.partitions
    asked = {"hardware": gpu, "cache": "cold", "skip_refused": True, "dirty_bytes": dirty_bytes}
    assert calls[0] == asked | {"clock": "burst"}
    assert calls[1].pop("clock") == pytest.approx([125e-6])  # 12.5 launches of 5 + 2 + 3 us
    assert calls[1] == asked


def test_cycled_weights_leave_what_the_last_pass_left(write):
    # A pass touches 40 MiB, held 1.5 times: 60 MiB of 64. Phi((79.5 - 75) / sqrt(75)) = Phi(0.52) of B is left. One
    # product touches 2 B * (64 * 1024 + 1024 * 4096 + 64 * 4096) = 8.6 MiB: all of A is left, unless A is cycled too
    # (sglang).
    sglang = with_cell(PUBLIC_HEADER, PUBLIC_ROW, "source", "sglang/0.5.14")
    table = read_table(write(PUBLIC_HEADER, PUBLIC_ROW, sglang))
    resident = CYCLED.row_options(table, hardware())["resident"]
    assert resident["b"] == pytest.approx([0.698, 0.698], abs=1e-3)
    assert resident["a"] == pytest.approx([1.0, 0.698], abs=1e-3)


def test_state_of_the_cache_by_row_where_the_table_says_it(write):
    table = read_table(write(PUBLIC_HEADER, PUBLIC_ROW, PUBLIC_ROW.replace("edge", "cold")))
    assert CYCLED.cache_states(table).tolist() == ["edge", "cold"]
    assert COLD.cache_states(table).tolist() == ["cold", "cold"]


# --- the sample that ships


def test_sample_reads_and_asks():
    names = {}
    for name, path in sample_files().items():
        table = read_table(path)
        asked = requests(table)
        assert asked.refusals == {}
        assert asked.configs is not None
        names[name] = (table.kind.name, len(table))
    assert names == {"gemm_cublas.csv": ("gemm_cublas", 40), "gemm_triton.csv": ("gemm_triton", 60)}


def test_sample_spreads_over_the_regimes():
    cublas = read_table(data_file("validation/records/sample/gemm_cublas.csv"))
    triton = read_table(data_file("validation/records/sample/gemm_triton.csv"))
    for table in (cublas, triton):
        assert np.count_nonzero(table["warm_us"] < 20) >= 5
        assert np.count_nonzero((table["warm_us"] >= 20) & (table["warm_us"] <= 100)) >= 5
        assert np.count_nonzero(table["warm_us"] > 100) >= 5
        assert np.count_nonzero(table["k"] >= 16384) >= 5
    assert np.count_nonzero(cublas["m"] <= 64) >= 5


def test_sample_says_where_it_comes_from():
    source = tomllib.loads(data_file("validation/records/sample/sample.toml").read_text(encoding="utf-8"))
    assert source["device"]["name"] == "NVIDIA H200 SXM"
    assert set(source["tables"]) == set(sample_files())
    assert set(source["times"]) == {"warm_us", "cold_us"}
