"""Sweeps of footprints whose L2 is known give it back, with noise, and predict the points that were held out."""

import numpy as np
import pytest

from tilesight.calibrate.footprint import FootprintFit, fit_footprint, footprints
from tilesight.errors import TableError, UnsupportedError

SIZES = 2.0**18 * 2 ** (np.arange(81) / 8)  # 256 KiB to 256 MiB, 8 an octave
OWN = FootprintFit(48e6, 64, 8.5e12, 4.4e12, 0.0, 128)
ROTATING = FootprintFit(30e6, 24, 7e12, 4e12, 0.0, 128)


def noisy(truth, noise, seed=0):
    return truth.predict(SIZES) * np.exp(noise * np.random.default_rng(seed).standard_normal(len(SIZES)))


def test_the_two_ends_by_hand():
    # far below the capacity all hits, far above none; half of each in the middle: 2 / (1/8.5 + 1/4.4)
    assert OWN.predict([1e6, 1e9]) == pytest.approx([8.5e12, 4.4e12])
    middle = OWN.capacity_bytes * (1 - 0.5 / OWN.associativity)  # where A - 1/2 lines of a set are expected
    assert OWN.hit_share(middle) == pytest.approx(0.5, abs=1e-6)
    assert OWN.predict(middle) == pytest.approx(2 / (1 / 8.5e12 + 1 / 4.4e12))


@pytest.mark.parametrize("truth", [OWN, ROTATING, FootprintFit(60e6, 8, 9e12, 3e12, 0.0, 128)])
def test_without_noise_it_is_exact(hw, truth):
    found = fit_footprint(SIZES, truth.predict(SIZES), hardware=hw)
    assert found.associativity == truth.associativity
    assert found.capacity_bytes == pytest.approx(truth.capacity_bytes, rel=1e-4)
    assert found.misfit < 1e-4


@pytest.mark.parametrize("truth", [OWN, ROTATING])
@pytest.mark.parametrize("seed", range(3))
def test_with_noise_every_second_point_predicts_the_others(hw, truth, seed):
    rates = noisy(truth, 0.005, seed)
    found = fit_footprint(SIZES[::2], rates[::2], hardware=hw)
    for name in ("capacity_bytes", "rate_l2_bytes_per_s", "rate_dram_bytes_per_s"):
        assert getattr(found, name) == pytest.approx(getattr(truth, name), rel=0.02)
    assert found.associativity == pytest.approx(
        truth.associativity, rel=0.25
    )  # half as sharp an edge, a quarter the ways
    held_out = np.abs(found.predict(SIZES[1::2]) / rates[1::2] - 1)
    assert np.sqrt(np.mean(held_out**2)) < 0.01
    assert held_out.max() < 0.03


def test_a_few_wild_points_do_not_move_it(hw):
    rates = noisy(OWN, 0.003)
    rates[[5, 40, 70]] *= 0.6
    found = fit_footprint(SIZES, rates, hardware=hw)
    assert found.capacity_bytes == pytest.approx(OWN.capacity_bytes, rel=0.02)
    assert found.rate_l2_bytes_per_s == pytest.approx(OWN.rate_l2_bytes_per_s, rel=0.01)


@pytest.mark.parametrize(
    ("sizes", "rates", "problem"),
    [
        (SIZES[:7], SIZES[:7], "give 8 points or more"),
        (SIZES, SIZES[1:], "shapes"),
        (SIZES, np.full(81, np.nan), "not a finite number above 0"),
        (-SIZES, SIZES, "not a finite number above 0"),
        (SIZES / 1e6, SIZES, "no footprint tells hits from misses"),
    ],
)
def test_what_is_no_sweep(hw, sizes, rates, problem):
    with pytest.raises(TableError, match=problem):
        fit_footprint(sizes, rates, hardware=hw)


def test_numbers_of_a_profile(record, hw):
    rows = [
        {"part": part, "bytes": size, "bytes_per_s": rate, "spread": 0.01}
        for part, truth in (("own", OWN), ("rotating", ROTATING))
        for size, rate in zip(SIZES, truth.predict(SIZES), strict=True)
    ]
    found = footprints(record("l2_read", rows, hw))
    assert found["l2.associativity"].value == 24
    # an L2 of 64 MiB that is full at 48 MB holds 1.4 copies
    assert found["l2.copies_one_reader"].value == pytest.approx(2**26 / 48e6, rel=1e-3)
    assert found["l2.copies_one_reader"].note == "slices of one SM hit up to 48 MB, read in turn up to 30"
    with pytest.raises(UnsupportedError, match="give --base"):
        footprints(record("l2_read", rows))
