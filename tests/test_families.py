"""The laws of an estimate, on every shipped GPU, with every format that its matrix instructions take."""

from dataclasses import replace
from math import isfinite

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tilesight import Gemm, GemmConfig, list_profiles, load_profile, predict, predict_many
from tilesight.candidates import gemm_candidates
from tilesight.dtypes import DTYPES, dtype
from tilesight.errors import ConfigError, UnsupportedError
from tilesight.kernels.instructions import matrix_family

SLACK = 1 + 1e-9
PROFILES = {name: load_profile(name) for name in list_profiles()}
PAIRS = [
    (name, kind)
    for name, profile in PROFILES.items()
    for kind, format_ in DTYPES.items()
    if kind in matrix_family(profile.architecture, "bf16").dtypes and format_.rate_name in profile.tensor
]
LACKING = [(name, kind) for name in PROFILES for kind in DTYPES if (name, kind) not in PAIRS]

sizes = st.one_of(st.integers(1, 60).map(lambda n: 64 * n), st.integers(1, 3000))
pick = st.integers(0, 10**6)
situations = st.fixed_dictionaries(
    {"cache": st.sampled_from(["cold", "warm"]), "clock": st.sampled_from(["burst", "sustained", 0.03])}
)


def problems_of(kind):
    quantised = st.booleans() if dtype(kind).bits < 16 else st.just(False)
    return st.builds(
        Gemm,
        m=sizes,
        n=sizes,
        k=sizes.map(lambda k: 32 * -(-k // 32)),
        dtype=st.just(kind),
        layout_a=st.sampled_from(["row", "row", "column"]),
        layout_b=st.sampled_from(["row", "column"]),
        batch=st.sampled_from([1, 1, 3]),
        beta=st.sampled_from([0.0, 0.0, 1.0]),
        bias=st.booleans(),
        quantise_a=quantised,
    )


def config_of(problem, hardware, number):
    """One of the candidates; in a third of the draws the pointer kernel of a like tile."""
    candidates = gemm_candidates(problem, hardware)
    config = candidates[number % len(candidates)]
    if number % 3 == 0:
        deep = 64 * 16 // dtype(problem.dtype).bits
        return GemmConfig(64, 64, deep, stages=3, warps=4, kernel="cp_async")
    return config


@pytest.mark.parametrize(("gpu", "kind"), PAIRS, ids=lambda value: str(value))
def test_laws(gpu, kind, altered, differences):
    hardware = load_profile(gpu)
    rate = hardware.tensor[dtype(kind).rate_name].rate_peak_flop_per_s
    faster = ("dram.bandwidth_peak_bytes_per_s", "dram.bandwidth_read_bytes_per_s", "dram.bandwidth_write_bytes_per_s")
    better = altered(hardware, {name: hardware.require(name) * 1.2 for name in faster})

    @given(problems_of(kind), pick, situations)
    @settings(max_examples=20)
    def check(problem, number, situation):
        config = config_of(problem, hardware, number)
        try:
            estimate = predict(problem, config, hardware=hardware, **situation)
        except ConfigError:  # a candidate that does not fit
            assume(False)
            raise
        assert isfinite(estimate.seconds)
        # terms sum; each is finite
        assert sum(estimate.terms.values()) == pytest.approx(estimate.seconds, rel=1e-12)
        assert all(
            isfinite(seconds) and (seconds >= -1e-15 or name == "merging") for name, seconds in estimate.terms.items()
        )
        # peaks, and bytes between levels
        assert estimate.seconds * SLACK >= estimate.flop / rate
        moved = estimate.dram_read_bytes + estimate.dram_write_bytes
        assert estimate.seconds * SLACK >= moved / hardware.dram.bandwidth_peak_bytes_per_s
        assert all(share <= SLACK for share in estimate.busy_share.values())
        assert estimate.requested_bytes * SLACK >= estimate.lookup_bytes >= estimate.dram_read_bytes / SLACK
        if situation["cache"] == "cold":
            operands = problem.batch * (problem.m + problem.n) * problem.k * dtype(kind).bytes_per_element
            assert estimate.dram_read_bytes * SLACK >= operands
        # a faster memory is never slower
        assert predict(problem, config, hardware=better, **situation).seconds <= estimate.seconds * SLACK
        # nor are more stages at the same occupancy
        try:
            deeper = predict(problem, replace(config, stages=config.stages + 1), hardware=hardware, **situation)
        except ConfigError:
            deeper = estimate
        if deeper.ctas_per_sm == estimate.ctas_per_sm:
            assert deeper.seconds <= estimate.seconds * SLACK
        # twice the depth is never faster, where rows of k elements stay as aligned
        if config.split_k == 1 and problem.k * dtype(kind).bits % 1024 == 0:
            double = predict(replace(problem, k=2 * problem.k), config, hardware=hardware, cache="cold", clock="burst")
            assert (
                predict(problem, config, hardware=hardware, cache="cold", clock="burst").seconds
                <= double.seconds * 1.01
            )
        # alone or in a batch
        found = predict_many([problem], [config, config], hardware=hardware, **situation)
        assert not differences(found[1], estimate)

    check()


@pytest.mark.parametrize(("gpu", "kind"), LACKING, ids=lambda value: str(value))
def test_formats_that_a_gpu_lacks_are_refused_by_name(gpu, kind):
    with pytest.raises(
        UnsupportedError,
        match=rf"has no (tensor\.)?{dtype(kind).rate_name}\b|has no {kind}\b|^{kind} products on \w+ are not modelled",
    ):
        predict(Gemm(256, 256, 256, dtype=kind), GemmConfig(64, 64, 64, stages=3, kernel="cp_async"), hardware=gpu)


def test_pairs_are_many():
    assert len(PAIRS) > 60
    assert {name for name, _ in PAIRS} == set(PROFILES)
    assert np.unique([kind for _, kind in PAIRS]).size >= 9
