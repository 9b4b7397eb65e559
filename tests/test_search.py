import re
from dataclasses import replace

import numpy as np
import pytest

from tilesight.api import load_profile, rank
from tilesight.candidates import gemm_candidates
from tilesight.cost.price import Situation
from tilesight.errors import ConfigError, UnsupportedError
from tilesight.kernels.gemm_config import Gemm, GemmColumns, GemmConfig
from tilesight.report import text
from tilesight.search import TIE, modelled_formats, price_many, refusal_reasons

LARGE = Gemm(4096, 4096, 4096)
GOOD = GemmConfig(128, 256, 64, stages=4)


def reason(config, hardware, problem=LARGE, sms=100):
    return refusal_reasons(GemmColumns.of([problem], [config]), hardware, sms).get(0)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        # 5 * 49152 + 80 = 245840 B; 232448 are allowed
        (
            GemmConfig(128, 256, 64, stages=5),
            "need 245840 B of shared memory, 13392 B more than the 232448 B a CTA can",
        ),
        (GemmConfig(128, 128, 64, stages=3, smem_bytes=232449), "need 232449 B of shared memory, 1 B more"),
        # 256 * 128 / 128 threads = 256 accumulators + 64 = 320 registers
        (
            GemmConfig(256, 128, 32, stages=3, warps=4, kernel="cp_async"),
            "tile 256x128 on 4 warps needs about 320 registers per thread, 65 more than the 255",
        ),
        (
            GemmConfig(128, 128, 64, stages=3, registers=256),
            "needs about 256 registers per thread, 1 more than the 255",
        ),
        # 256 * 256 / 256 threads = 256 accumulators; 216 fit
        (GemmConfig(256, 256, 32, stages=3), "tile 256x256 on 8 warps needs 256 accumulators per thread, 40 more than"),
        (GemmConfig(512, 64, 32, stages=2, warps=32), "32 warps: a CTA has at most 1024 threads"),
        (GemmConfig(64, 64, 64, stages=3, warps=5), "warps = 5: specialised kernels compute in warpgroups of 4"),
        (GemmConfig(64, 64, 64, stages=3, warps=8), "64x64 on 8 warps: each warpgroup wants 64 rows of its own"),
        # 12 warps of 200 registers: 12 * 6400 = 76800 of 65536
        (GemmConfig(128, 128, 64, stages=3, registers=200), "a CTA needs 76800 registers, 11264 more than the SM has"),
        (GemmConfig(128, 128, 60, stages=3), "tile_k = 60 is not a multiple of 16"),
        (GemmConfig(128, 128, 64, stages=3, split_k=100), "split_k = 100 is more than the k-steps there are"),
    ],
)
def test_refusals_say_by_how_much(hw, config, message):
    assert message in reason(config, hw)


def test_legal_configurations_have_no_reason(hw):
    assert reason(GOOD, hw) is None
    assert reason(GemmConfig(128, 128, 64, stages=3, smem_bytes=232448), hw) is None


def test_a_cluster_wants_its_sms_at_once(hw):
    pair = GemmConfig(128, 128, 64, stages=3, cluster_n=2)
    assert reason(pair, hw, sms=2) is None
    assert reason(pair, hw, sms=1) == "cluster 1x2 wants as many SMs at once; 1 may be used"


def test_only_what_can_be_priced(hw, altered):
    for name in ("fp8", "fp8_e5m2", "int8"):  # instructions there are, but no rate is known
        with pytest.raises(UnsupportedError, match=f"has no tensor.{name}; measure it or state it") as caught:
            rank(Gemm(64, 64, 64, dtype=name), [GOOD], hardware=hw)
        assert caught.value.field == f"tensor.{name}"
    with pytest.raises(UnsupportedError, match="sm_90 has no nvfp4 matrix instructions; modelled there are bf16, fp16"):
        rank(Gemm(64, 64, 64, dtype="nvfp4"), [GOOD], hardware=hw)
    ampere = type(hw).from_dict(hw.to_dict() | {"architecture": "sm_80"})
    with pytest.raises(
        ConfigError, match="kernel warp_specialized needs bulk copies, which h200_sxm lacks; it has cp_async"
    ):
        rank(LARGE, [GOOD], hardware=ampere)


def test_pruned_are_named_with_reasons_and_the_rest_is_ranked(hw):
    too_deep, odd = GemmConfig(128, 256, 64, stages=9), GemmConfig(100, 100, 64, stages=3)
    small = GemmConfig(64, 64, 64, stages=4)
    ranking = rank(LARGE, [small, too_deep, GOOD, odd], hardware=hw)
    assert ranking.configs == (GOOD, small)
    assert [config for config, _ in ranking.pruned] == [too_deep, odd]
    assert "more than the 232448 B" in ranking.pruned[0][1]
    assert "multiple of 64" in ranking.pruned[1][1]
    assert ranking.best == GOOD
    assert len(ranking) == 2
    assert [estimate.config for estimate in ranking] == [str(GOOD), str(small)]
    assert ranking[0].seconds < ranking[1].seconds
    assert ranking[-1] == ranking[1] == ranking[:2][1]


def test_fastest_first_and_equal_to_one_by_one(hw, differences):
    ranking = rank(LARGE, hardware=hw)
    seconds = ranking.estimates.seconds
    assert np.all(np.diff(seconds) >= 0)
    for place in (0, 1, 17, len(ranking) - 1):
        alone = rank(LARGE, [ranking.configs[place]], hardware=hw)[0]
        assert not differences(ranking[place], alone)


def test_equal_times_keep_the_order_given(hw):
    # a raster's groups of more rows than there are all mean the same
    twins = [replace(GOOD, group_m=rows) for rows in range(100, 160)]
    for order in (twins, twins[::-1], twins[1::2] + twins[::2]):
        ranking = rank(LARGE, [GemmConfig(64, 64, 64, stages=4), *order], hardware=hw)
        assert len(set(ranking.estimates.seconds[:60])) == 1
        assert ranking.configs[:60] == tuple(order)


def test_the_order_of_candidates_does_not_move_the_ranking(hw):
    candidates = gemm_candidates(LARGE, hw)
    one, other = rank(LARGE, candidates, hardware=hw), rank(LARGE, candidates[::-1], hardware=hw)
    assert one.estimates.seconds.tolist() == other.estimates.seconds.tolist()


def test_ties_are_those_within_two_percent(hw):
    ranking = rank(LARGE, hardware=hw)
    seconds = ranking.estimates.seconds
    assert ranking.ties == np.sum(seconds <= seconds[0] * (1 + TIE))
    assert seconds[ranking.ties - 1] <= seconds[0] * 1.02 < seconds[ranking.ties]
    assert rank(LARGE, [GOOD] * 3, hardware=hw).ties == 3
    assert rank(LARGE, [GOOD, GemmConfig(64, 64, 64, stages=4)], hardware=hw).ties == 1


def test_top(hw):
    every = rank(LARGE, hardware=hw)
    few = rank(LARGE, hardware=hw, top=3)
    assert few.configs == every.configs[:3]
    assert few.ties == every.ties  # of all candidates, shown or not
    assert len(rank(LARGE, [GOOD], hardware=hw, top=10)) == 1
    for bad in (0, -1, 1.0, True, "3"):
        with pytest.raises(ConfigError, match=f"top = {bad!r}; give a whole number of at least 1"):
            rank(LARGE, [GOOD], hardware=hw, top=bad)


def test_nothing_to_rank(hw):
    with pytest.raises(ConfigError, match="no candidates to rank"):
        rank(LARGE, [], hardware=hw)
    bad = [GemmConfig(128, 256, 64, stages=9), GemmConfig(100, 100, 64, stages=3)]
    with pytest.raises(
        ConfigError, match="none of 2 candidates is legal for gemm 4096 x 4096 x 4096 bf16; the first: 9"
    ):
        rank(LARGE, bad, hardware=hw)


def test_a_ranking_is_plain_data(hw):
    data = rank(LARGE, [GOOD, GemmConfig(128, 256, 64, stages=9)], hardware=hw).to_dict()
    assert data["schema"] == "tilesight.ranking/1"
    assert data["hardware"] == hw.name
    assert [entry["config"] for entry in data["ranked"]] == [str(GOOD)]
    assert [entry["config"] for entry in data["pruned"]] == [str(GemmConfig(128, 256, 64, stages=9))]


@pytest.mark.parametrize(
    "size", [(1, 1, 1), (1, 4096, 4096), (16, 128, 64), (4096, 1, 64), (300, 500, 1000), (8192,) * 3]
)
def test_candidates_of_every_size_are_many_and_mostly_legal(hw, size):
    problem = Gemm(*size)
    candidates = gemm_candidates(problem, hw)
    assert len(set(candidates)) == len(candidates) >= 4
    illegal = refusal_reasons(GemmColumns.of([problem], candidates), hw, 100)
    assert len(illegal) <= 0.25 * len(candidates), list(illegal.values())[:3]


def test_candidates_for_few_tiles_split_k(hw):
    assert any(config.split_k > 1 for config in gemm_candidates(Gemm(256, 256, 8192), hw))
    assert all(config.split_k == 1 for config in gemm_candidates(Gemm(256, 256, 64), hw))
    assert any(config.swap_ab for config in gemm_candidates(Gemm(16, 8192, 8192), hw))


def test_batches_of_several_kernel_families_keep_their_order(hw):
    configs = [
        GOOD,
        GemmConfig(128, 128, 64, stages=3, kernel="cp_async"),
        GemmConfig(128, 128, 64, stages=3, kernel="tma_persistent"),
        GemmConfig(64, 64, 64, stages=4),
    ] * 2
    found = price_many([LARGE], configs, hw, Situation("cold", np.zeros(())))
    assert [estimate.config for estimate in found] == [str(config) for config in configs]
    assert found.column("kernel").tolist() == [f"gemm.{config.kernel}" for config in configs]
    assert found.seconds[:4].tolist() == found.seconds[4:].tolist()


def test_chunks_change_nothing(hw, monkeypatch):
    candidates = gemm_candidates(LARGE, hw)
    whole = rank(LARGE, candidates, hardware=hw).estimates.seconds
    monkeypatch.setattr("tilesight.search.CHUNK", 7)
    assert rank(LARGE, candidates, hardware=hw).estimates.seconds == pytest.approx(whole, rel=1e-12)


def test_the_first_illegal_one_is_named(hw):
    with pytest.raises(ConfigError, match="^configuration 2: 9 stages of 128x256x64 need"):
        price_many([LARGE], [GOOD, GOOD, GemmConfig(128, 256, 64, stages=9)], hw, Situation("cold", np.zeros(())))
    with pytest.raises(ConfigError, match="^9 stages of 128x256x64 need"):
        price_many([LARGE], [GemmConfig(128, 256, 64, stages=9)], hw, Situation("cold", np.zeros(())))


RING = GemmConfig(128, 128, 64, stages=3, kernel="cp_async")
"""Its stages are 32768 B each, its 8 warps hold 64 accumulators a thread."""


@pytest.mark.parametrize(
    ("config", "message"),
    [
        # two of three stages: an in-order loop may do with one less
        (replace(RING, smem_bytes=65535), "smem_bytes = 65535, and 3 stages of 128x128x64 take at least 65536 B"),
        (replace(RING, smem_bytes=0, registers=1), "smem_bytes = 0, and 3 stages"),
        (replace(RING, smem_bytes=10000, registers=32), "smem_bytes = 10000, and 3 stages"),
        # one operand in shared memory: 128 * 64 * 2 B
        (replace(RING, stages=1, smem_bytes=16383), "and 1 stage of 128x128x64 takes at least 16384 B"),
        # a specialised kernel has its whole ring
        (GemmConfig(128, 128, 64, stages=3, smem_bytes=98303), "3 stages of 128x128x64 take at least 98304 B"),
        (replace(RING, registers=63), "registers = 63, and the accumulators of 128x128 on 8 warps take at least 64"),
        (replace(RING, registers=63, spills=0), "registers = 63, and the accumulators"),
        # 64 of them spilled
        (replace(RING, tile_n=256, registers=63, spills=64), "registers = 63, and the accumulators of 128x256"),
        # 128 accumulators on 8 warps of 12, an even share of 85.3
        (GemmConfig(128, 256, 64, stages=3, registers=85), "registers = 85, .* take at least 86 per thread"),
    ],
)
def test_what_is_stated_as_compiled_is_no_less_than_the_tile_needs(hw, config, message):
    with pytest.raises(ConfigError, match=message):
        rank(LARGE, [config], hardware=hw)


@pytest.mark.parametrize(
    "config",
    [
        replace(RING, smem_bytes=65536, registers=64),
        replace(RING, stages=1, smem_bytes=16384),
        replace(RING, tile_n=256, registers=64, spills=64),
        replace(RING, tile_n=256, warps=4, registers=255),  # 256 accumulators: one is spilled, though nobody says so
        replace(RING, tile_m=16, warps=4, stages=1, smem_bytes=0),  # operands through registers
        GemmConfig(128, 128, 64, stages=3, smem_bytes=98304, registers=43),
    ],
)
def test_what_compilers_reach_is_taken(hw, config):
    assert len(rank(LARGE, [config], hardware=hw)) == 1


def test_where_nothing_is_loaded_asynchronously_no_ring_is_asked_for(hw):
    # rows of 4001 elements: element-wise loads, one operand in shared memory
    odd, small = Gemm(4096, 4001, 4001), replace(RING, smem_bytes=16384)
    assert len(rank(odd, [small], hardware=hw)) == 1
    with pytest.raises(ConfigError, match="take at least 65536 B"):
        rank(LARGE, [small], hardware=hw)


def test_rows_of_less_than_a_byte_an_element_are_whole_bytes():
    b200 = load_profile("b200_sxm")
    tile = GemmConfig(128, 128, 128, stages=3, kernel="cp_async")
    for layout_b, size in (("row", (1024, 1004, 1005)), ("row", (1024, 1005, 1004)), ("column", (1024, 1024, 1005))):
        with pytest.raises(ConfigError, match="rows of ., 4 bits an element, are no whole bytes; pad them"):
            rank(Gemm(*size, dtype="fp4", layout_b=layout_b), [tile], hardware=b200)
    assert len(rank(Gemm(1024, 1005, 1004, dtype="fp4", layout_b="column"), [tile], hardware=b200)) == 1


def test_formats_that_are_not_modelled_are_told_from_those_a_gpu_lacks(hw):
    for gpu, kind in (("b200_sxm", "fp6"), ("h200_sxm", "fp64"), ("mi210", "fp32"), ("a100_sxm", "int4")):
        with pytest.raises(
            UnsupportedError, match=rf"^{kind} products on \w+ are not modelled; modelled there are bf16"
        ):
            rank(Gemm(64, 64, 64, dtype=kind), hardware=gpu)
    assert modelled_formats(hw) == ("bf16",)
    assert modelled_formats(load_profile("b200_sxm")) == (
        "tf32", "bf16", "fp16", "fp8", "fp8_e5m2", "mxfp8", "fp4", "mxfp4", "nvfp4", "int8",
    )  # fmt: skip


def test_more_than_dram_holds_is_said(hw):
    # 2^40 results of 2 B and operands of 3.4e10 B each; DRAM holds 1e11
    large = rank(Gemm(2**20, 2**20, 2**14), [GOOD], hardware=hw)[0]
    assert "operands and result fit in DRAM, though they take 2.268 TB of 100.0 GB" in large.assumptions
    assert not any("DRAM" in text for text in rank(LARGE, [GOOD], hardware=hw)[0].assumptions)


def test_copied_numbers_are_counted_where_most_are():
    for gpu in ("h100_sxm", "b200_sxm"):
        profile = load_profile(gpu)
        said = rank(LARGE, [GOOD], hardware=profile)[0].assumptions[-1]
        assumed = [name for name, source in profile.source.items() if source.kind == "assumed"]
        copied = [name for name in assumed if profile.source[name].origin == "h200_sxm"]
        assert said.startswith(f"{len(assumed)} of {len(profile.numbers)} numbers of {gpu} are assumed: copies, ")
        assert f"{len(copied)} from h200_sxm" in said
    assert not any("numbers of" in text for text in rank(LARGE, [GOOD], hardware="h200_sxm")[0].assumptions)


def test_a_ranking_says_how_many_were_tried(hw):
    ranking = rank(
        LARGE, [GOOD, GemmConfig(128, 256, 64, stages=9), GemmConfig(64, 64, 64, stages=4)], hardware=hw, top=1
    )
    assert (ranking.tried, len(ranking), ranking.to_dict()["tried"]) == (3, 1, 3)
    assert re.search(r"^tried +3 candidates$", text(ranking), re.MULTILINE)
    assert rank(LARGE, hardware=hw, top=1).tried == len(gemm_candidates(LARGE, hw))


def test_an_energy_that_nobody_measured_is_an_assumption(h200, altered):
    # bf16 takes 0.8218 pJ a flop at 4096 flop a cycle, fp8_e5m2 has 8192: half of it
    def said(name, hardware):
        config = GemmConfig(128, 128, 128, stages=3)
        made = price_many([Gemm(512, 512, 512, dtype=name)], [config], hardware, Situation("warm", np.asarray(np.inf)))
        return [text for text in made.assumptions[0] if "energy" in text]

    (line,) = said("fp8_e5m2", h200)
    assert line.startswith("a flop of fp8_e5m2 takes 0.4109 pJ: its energy is not known, and that of bf16 by cycle")
    assert said("fp8", h200) == []
    lawless = altered(h200, {name: None for name in h200.numbers if name.startswith("power.")})
    assert said("fp8_e5m2", lawless) == []  # no clock goes by an energy there
