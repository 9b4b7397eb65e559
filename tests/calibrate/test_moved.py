"""When a number counts as moved."""

import pytest

from tilesight.calibrate.found import Found
from tilesight.calibrate.moved import check_profile, found_another_way
from tilesight.errors import TableError

READ = "dram.bandwidth_read_bytes_per_s"  # 4e12 in the tests' profile


@pytest.mark.parametrize(
    ("value", "spread", "moved"),
    [
        (4.07e12, 0.001, False),  # 1.75 %: runs differ by 2
        (4.09e12, 0.001, True),  # 2.25 %
        (4.09e12, 0.03, False),
        (3.9e12, 0.001, True),
        (4.19e12, None, False),  # 4.75 %: nobody knows the spread
        (4.21e12, None, True),
    ],
)
def test_by_more_than_the_spread(hw, value, spread, moved):
    assert bool(check_profile(hw, {READ: Found(value, spread, ("dram_read",))})) == moved


def test_counts_are_exact_and_fits_have_their_misfit(hw):
    (count,) = check_profile(hw, {"sm_count": Found(101, None, ("device_limits",))})
    assert (count.before, count.after, count.change, count.allowed) == (100, 101, pytest.approx(0.01), 0.0)
    assert not check_profile(hw, {"sm_count": Found(100, None, ("device_limits",))})
    fit = Found(17, None, ("warm_residency",), "fitted", misfit=0.08)
    assert not check_profile(hw, {"l2.associativity": fit})  # 17 for 16: 6 %
    assert check_profile(hw, {"l2.associativity": Found(18, None, (), "fitted", misfit=0.08)})


def test_what_the_profile_does_not_know_is_not_compared(hw):
    assert "launch.event_s" not in hw.numbers
    assert check_profile(hw, {"launch.event_s": Found(1e-6, 0.01, ())}) == []


def test_compared_as_a_profile_has_it(hw, altered):
    profile = altered(hw, {"sm_count": 100, READ: 4.444e12})
    assert not check_profile(profile, {READ: Found(4.4444444e12, 0.0, ())})


def test_what_other_records_give_is_not_compared(h200):
    # the profile counts residencies (warm_residency); a sweep that stands in for them says nothing of the GPU
    found = {
        "l2.associativity": Found(74, None, ("l2_read",), "fitted", misfit=0.02),
        "l2.copies_one_reader": Found(1.2, None, ("warm_residency",), "fitted", misfit=0.02),
        "sm_count": Found(132, None, ("device_limits",)),
        "power.limit_w": Found(650.0, None, ("some",)),  # the datasheet's is compared
        "merging.window_dram_s": Found(2e-7, None, ("some",)),  # nor is one that the profile does not know held back
    }
    assert found_another_way(h200, found) == {
        "l2.associativity": "the profile has it from warm_residency; l2_read gives 74"
    }


def test_a_spread_is_never_negative():
    with pytest.raises(TableError, match="vendor_gemm: spread = -0.1 is no spread; it is 0 or more"):
        Found(1e-6, -0.1, ("vendor_gemm",))
