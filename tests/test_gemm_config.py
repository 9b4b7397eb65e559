from fractions import Fraction

import numpy as np
import pytest

from tilesight.dtypes import DTYPES
from tilesight.errors import ConfigError, ProblemError, UnknownDTypeError
from tilesight.kernels.gemm import gemm_plan, library_split
from tilesight.kernels.gemm_config import MAX_SIZE, Gemm, GemmColumns, GemmConfig
from tilesight.kernels.gemm_legal import illegal, registers, smem_bytes, threads

NOT_WHOLE = [True, False, np.True_, 1.0, 64.0, 0.5, float("nan"), Fraction(64), "64", "", b"64", None, [64], (64,), 64j]


@pytest.mark.parametrize("name", ["m", "n", "k"])
@pytest.mark.parametrize("bad", NOT_WHOLE, ids=repr)
def test_sizes_are_whole_numbers(name, bad):
    with pytest.raises(ProblemError, match=rf"{name} = .* is not a whole number; give an integer in 1..2147483647"):
        Gemm(**{"m": 64, "n": 64, "k": 64, name: bad})


@pytest.mark.parametrize("name", ["m", "n", "k"])
@pytest.mark.parametrize("bad", [0, -1, 2**31, 2**40, 10**30, -(2**40), np.int64(-5)])
def test_sizes_are_in_range(name, bad):
    with pytest.raises(ProblemError, match=rf"{name} = {bad} is outside 1..2147483647"):
        Gemm(**{"m": 64, "n": 64, "k": 64, name: bad})


def test_sizes_become_plain_integers():
    problem = Gemm(np.int32(64), np.uint8(128), np.int64(MAX_SIZE))
    assert [type(size) for size in (problem.m, problem.n, problem.k)] == [int] * 3
    assert problem == Gemm(64, 128, MAX_SIZE)


def test_work_and_bytes_by_hand():
    # 2 * 3 * 5 * 7 flop; (3 * 7 + 7 * 5 + 3 * 5) elements of 2 B
    assert Gemm(3, 5, 7).flop == 210
    assert Gemm(3, 5, 7).compulsory_bytes == 142
    # half a byte an element of A and B, stored as bf16; the old C is read too
    assert Gemm(3, 5, 7, dtype="fp4").compulsory_bytes == 28 + 30
    assert Gemm(3, 5, 7, dtype="fp4", beta=1.0, batch=2).compulsory_bytes == 2 * (28 + 60)
    assert Gemm(MAX_SIZE, MAX_SIZE, MAX_SIZE).flop == 2 * MAX_SIZE**3  # exact: Python integers


def test_dtypes():
    assert Gemm(1, 1, 1, dtype="bfloat16").dtype == "bf16"
    assert Gemm(1, 1, 1, dtype="torch.float16").dtype == "fp16"
    with pytest.raises(UnknownDTypeError, match=r"no data type 'bf17'; known: .*Did you mean 'bf16'\?"):
        Gemm(1, 1, 1, dtype="bf17")
    for bad in (None, 16, True, ["bf16"]):
        with pytest.raises((ProblemError, UnknownDTypeError), match="no data type"):
            Gemm(1, 1, 1, dtype=bad)


FLOATS = ("fp32", "bf16", "fp16", "fp8", "fp8_e5m2")


@pytest.mark.parametrize(
    ("kind", "usual", "allowed"),
    [
        ("bf16", "bf16", FLOATS),
        ("fp16", "fp16", FLOATS),
        ("tf32", "fp32", FLOATS),
        ("fp8", "bf16", FLOATS),
        ("nvfp4", "bf16", FLOATS),
        ("int8", "int32", ("int32", "int8", *FLOATS)),
        ("fp64", "fp64", ("fp64", *FLOATS)),
    ],
)
def test_outputs_are_what_an_epilogue_writes(kind, usual, allowed):
    assert Gemm(8, 8, 8, dtype=kind).output == usual
    for output in DTYPES:
        if output in allowed:
            assert Gemm(8, 8, 8, dtype=kind, output=output).output == output
        else:
            with pytest.raises(ProblemError, match=f"output = '{output}' of {kind} operands; give .*fp32, bf16, fp16"):
                Gemm(8, 8, 8, dtype=kind, output=output)


@pytest.mark.parametrize("name", ["layout_a", "layout_b"])
def test_layouts(name):
    assert getattr(Gemm(1, 1, 1, **{name: "column"}), name) == "column"
    with pytest.raises(ProblemError, match=rf"{name} = 'col'; known: column, row. Did you mean 'column'\?"):
        Gemm(1, 1, 1, **{name: "col"})
    for bad in (None, 0, ["row"]):
        with pytest.raises(ProblemError, match=f"{name} = .*known: column, row"):
            Gemm(1, 1, 1, **{name: bad})


def test_problems_are_frozen_and_say_what_they_are():
    problem = Gemm(4096, 128, 64)
    assert str(problem) == "gemm 4096 x 128 x 64 bf16"
    with pytest.raises(AttributeError):
        problem.m = 1
    assert len({problem, Gemm(4096, 128, 64)}) == 1


CONFIG = {"tile_m": 128, "tile_n": 128, "tile_k": 64, "stages": 3}
REQUIRED = ["tile_m", "tile_n", "tile_k", "stages", "group_m", "cluster_m", "cluster_n"]
OPTIONAL = ["warps", "split_k", "registers", "smem_bytes", "spills"]


@pytest.mark.parametrize("name", REQUIRED + OPTIONAL)
@pytest.mark.parametrize("bad", NOT_WHOLE, ids=repr)
def test_numbers_of_a_configuration_are_whole(name, bad):
    if bad is None and name in OPTIONAL:
        GemmConfig(**CONFIG | {name: None})
        return
    with pytest.raises(ConfigError, match=f"{name} = .* is not a whole number; give an integer in"):
        GemmConfig(**CONFIG | {name: bad})


@pytest.mark.parametrize("name", REQUIRED + OPTIONAL)
@pytest.mark.parametrize("bad", [-1, 2**40, -(2**40)])
def test_numbers_of_a_configuration_are_in_range(name, bad):
    with pytest.raises(ConfigError, match=rf"{name} = {bad} is outside [01]..\d+"):
        GemmConfig(**CONFIG | {name: bad})


@pytest.mark.parametrize("name", [*REQUIRED, "warps", "split_k", "registers"])
def test_zero_is_no_size(name):
    with pytest.raises(ConfigError, match=f"{name} = 0 is outside 1.."):
        GemmConfig(**CONFIG | {name: 0})


def test_zero_shared_memory_and_spills_are_possible():
    config = GemmConfig(**CONFIG, smem_bytes=0, spills=0)
    assert (config.smem_bytes, config.spills) == (0, 0)


def test_kernels():
    with pytest.raises(ConfigError, match=r"kernel = 'cp_asinc'; known: .*Did you mean 'cp_async'\?"):
        GemmConfig(**CONFIG, kernel="cp_asinc")
    for bad in (None, 1, ["cp_async"]):
        with pytest.raises(ConfigError, match="kernel = .*known: cp_async, tma, tma_persistent, warp_specialized"):
            GemmConfig(**CONFIG, kernel=bad)


@pytest.mark.parametrize("bad", [0, 1, "yes", None])
def test_swap_ab_is_a_bool(bad):
    with pytest.raises(ConfigError, match=f"swap_ab = {bad!r} is not True or False"):
        GemmConfig(**CONFIG, swap_ab=bad)


def test_warps_follow_the_rows_of_the_instruction():
    assert GemmConfig(64, 256, 64, stages=4).warps == 4
    assert GemmConfig(128, 256, 64, stages=4).warps == 8
    assert GemmConfig(16, 128, 64, stages=4, swap_ab=True).warps == 8
    assert GemmConfig(16, 64, 64, stages=4, swap_ab=True, warps=16).warps == 16


def test_configurations_say_what_they_are():
    assert repr(GemmConfig(**CONFIG)) == "GemmConfig(128x128x64, 3 stages, 8 warps, warp_specialized)"
    text = str(GemmConfig(**CONFIG, cluster_m=2, split_k=None, swap_ab=True))
    assert text == "GemmConfig(128x128x64, 3 stages, 8 warps, warp_specialized, cluster 2x1, swap_ab, split auto)"
    assert str(GemmConfig(**CONFIG, kernel="cp_async", split_k=4)).endswith("cp_async, group 8, split 4)")
    assert str(GemmConfig(16, 16, 16, stages=1, warps=1)) == "GemmConfig(16x16x16, 1 stage, 1 warp, warp_specialized)"


# --- columns ---


def test_columns_of_one_and_many():
    problems = [Gemm(64, 128, 256, layout_b="column"), Gemm(1, 2, 3)]
    config = GemmConfig(**CONFIG, registers=96)
    columns = GemmColumns.of(problems, [config])
    assert len(columns) == 2
    assert columns.m.tolist() == [64, 1]
    assert columns.row_b.tolist() == [False, True]
    assert columns.tile_m.tolist() == [128, 128]
    assert columns.registers.tolist() == [96, 96]
    assert np.all(np.isnan(columns.smem_bytes))
    assert columns[np.array([1])].k.tolist() == [3]
    # 64 x 128 in tiles of 128 x 128: one; 1 x 2: one
    assert columns.tiles.tolist() == [1, 1]


@pytest.mark.parametrize(("problems", "configs"), [(0, 1), (1, 0), (2, 3), (0, 0), (3, 2)])
def test_lengths_that_do_not_fit(problems, configs):
    with pytest.raises(
        ConfigError, match=f"{problems} problems? and {configs} configurations?: give lists of one length"
    ):
        GemmColumns.of([Gemm(1, 1, 1)] * problems, [GemmConfig(**CONFIG)] * configs)


def test_one_dtype_a_batch():
    with pytest.raises(ProblemError, match="one batch has one dtype, got bf16, fp16"):
        GemmColumns.of([Gemm(1, 1, 1), Gemm(1, 1, 1, dtype="fp16")], [GemmConfig(**CONFIG)])


# --- what is legal, and what a CTA takes ---


def first_problem(config, problem=None):
    columns = GemmColumns.of([problem or Gemm(4096, 4096, 4096)], [config])
    return next((message for mask, message in illegal(columns) if mask[0]), None)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (GemmConfig(128, 128, 40, stages=3), "is not a multiple of 16"),
        (GemmConfig(96, 128, 64, stages=3), "wgmma works on 64 rows"),
        (GemmConfig(128, 96, 64, stages=3, swap_ab=True), "wgmma works on 64 rows"),
        (GemmConfig(128, 132, 64, stages=3), "n side, tile_n (tile_m with swap_ab), must be a multiple of 8"),
        (GemmConfig(64, 520, 64, stages=3), "must be at most 512, two instructions of 256"),
        (GemmConfig(96, 128, 64, stages=3, kernel="cp_async"), "powers of two"),
        (GemmConfig(8, 128, 64, stages=3, kernel="cp_async"), "at least 16"),
        (GemmConfig(128, 128, 48, stages=3, kernel="cp_async"), "powers of two"),
        (GemmConfig(128, 128, 64, stages=3, kernel="cp_async", warps=6), "want a power of two"),
        (GemmConfig(128, 128, 64, stages=3, kernel="tma_persistent", swap_ab=True), "swap_ab is for"),
        (GemmConfig(128, 128, 64, stages=3, kernel="cp_async", cluster_m=2), "only warp_specialized kernels form"),
        (GemmConfig(128, 128, 64, stages=3, cluster_m=16, cluster_n=2), "more than 16 CTAs"),
        (GemmConfig(128, 128, 64, stages=3, split_k=65), "more than the k-steps"),
    ],
)
def test_what_no_compiler_emits(config, message):
    assert message in first_problem(config)


@pytest.mark.parametrize(
    "config",
    [
        GemmConfig(128, 256, 64, stages=4, cluster_m=2),
        GemmConfig(192, 320, 64, stages=2),
        GemmConfig(8, 128, 64, stages=4, swap_ab=True),
        GemmConfig(16, 16, 16, stages=1, warps=1, kernel="cp_async"),
        GemmConfig(128, 128, 64, stages=3, split_k=64),
        GemmConfig(128, 128, 64, stages=3, kernel="tma_persistent"),
    ],
)
def test_what_compilers_emit(config):
    assert first_problem(config) is None


def test_bulk_loads_want_rows_of_sixteen_bytes():
    config = GemmConfig(128, 128, 64, stages=3, kernel="tma_persistent")
    assert first_problem(config, Gemm(64, 64, 72)) is None
    for problem in (Gemm(64, 64, 68), Gemm(64, 68, 64)):
        assert "rows of a multiple of 16 bytes; use kernel cp_async" in first_problem(config, problem)
    # a column-major B has rows of k elements
    assert first_problem(config, Gemm(64, 68, 64, layout_b="column")) is None


def taken(config):
    columns = GemmColumns.of([Gemm(4096, 4096, 4096)], [config])
    return float(smem_bytes(columns)[0]), float(registers(columns)[0]), float(threads(columns)[0])


def test_what_a_cta_takes_by_hand():
    # a stage of 128x256x64 bf16 is (128 + 256) * 64 * 2 = 49152 B; 2 barriers of 8 B a stage; 8 + 4 warps = 384 threads;
    # an even share of 65536 registers is 170.7, 168 in steps of 8
    assert taken(GemmConfig(128, 256, 64, stages=4)) == (4 * 49152 + 64, 168, 384)
    # pointer loads: the ring alone; 128 * 128 / 256 threads = 64 accumulators and 64 for the rest
    assert taken(GemmConfig(128, 128, 64, stages=3, kernel="cp_async")) == (3 * 32768, 128, 256)
    # bulk loads: ring, output tile of 32768 B, a barrier a stage; 64 + 40 registers
    assert taken(GemmConfig(128, 128, 64, stages=3, kernel="tma_persistent")) == (3 * 32768 + 32768 + 24, 104, 256)
    # as compiled, where stated
    assert taken(GemmConfig(128, 128, 64, stages=3, registers=99, smem_bytes=1000)) == (1000, 99, 384)


def test_library_split_by_hand():
    def split(problem, **config):
        columns = GemmColumns.of([problem], [GemmConfig(128, 128, 64, stages=3, split_k=None, **config)])
        return float(library_split(columns, slots=np.array([100.0]))[0])

    # 4 tiles on 100 SMs: 25, but 24 at most; 64 k-steps leave 16 parts of 4
    assert split(Gemm(256, 256, 64 * 64)) == 16
    assert split(Gemm(256, 256, 64 * 200)) == 24
    # 40 tiles: 2 (80 of 100 SMs); 60 tiles: 1.7, at least 2
    assert split(Gemm(1280, 512, 64 * 64)) == 2
    assert split(Gemm(1280, 768, 64 * 64)) == 2
    # no more parts than k-steps
    assert split(Gemm(256, 256, 64)) == 1


def test_plan_by_hand():
    # 300 x 500 x 1000 in 128 x 256 x 64: 3 x 2 tiles, 4 x 2 for clusters of two rows; 2 parts of 500 along k, 7.8 k-steps
    columns = GemmColumns.of([Gemm(300, 500, 1000)], [GemmConfig(128, 256, 64, stages=4, split_k=2, cluster_m=2)])
    plan = gemm_plan(columns, slots=np.full(len(columns), 100.0))
    assert plan.kernel == "gemm.warp_specialized"
    assert plan.launch.tiles == 16
    assert plan.loop.iterations == 8
    assert plan.flop == 2 * 300 * 500 * 1000
    assert plan.access.k == 500
    assert (plan.access.multicast_a, plan.access.multicast_b) == (1, 2)
    # per step 2 * 128 * 256 * 64 flop and 48 KiB; the partial sums are fp32: 128 * 256 * 4 B a tile
    assert plan.demands["mma"].flop == 2 * 128 * 256 * 64
    assert plan.demands["load"].global_bytes == 49152
    assert plan.demands["store"].global_bytes == 131072
    # 2 row blocks * 1 strip * 4 k16 instructions of n = 256
    matrix = plan.demands["mma"].matrix
    assert (matrix.count, matrix.m, matrix.n, matrix.k) == (8, 64, 256, 16)
    # the reduction reads two fp32 parts and writes bf16
    assert plan.launch.dependent_kernels == 1
    assert plan.launch.dependent_read_bytes == 300 * 500 * 2 * 4
    assert plan.launch.dependent_written_bytes == 300 * 500 * 2
    # asked, edges clipped: each of 2 columns of tiles asks for A's 300 rows, each of 3 rows for B's 500 columns
    assert plan.access.requested_bytes == (2 * 300 + 3 * 500) * 500 * 2 * 2


def test_assumptions_are_those_of_each_configuration():
    configs = [
        GemmConfig(**CONFIG),
        GemmConfig(**CONFIG, registers=99),
        GemmConfig(**CONFIG, registers=99, split_k=None),
    ]
    plan = gemm_plan(GemmColumns.of([Gemm(256, 256, 4096)], configs), slots=np.full(3, 100.0))
    said = [[text.split()[0] for text, holds in plan.assumptions.items() if holds[row]] for row in range(3)]
    assert said == [["CTAs", "registers"], ["CTAs"], ["CTAs", "split"]]
