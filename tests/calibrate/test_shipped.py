"""The records of the repository give the numbers of the shipped profile."""

from pathlib import Path

import numpy as np
import pytest

from tilesight import predict_many
from tilesight.calibrate.fits import FITTED, IN_ORDER, Runs, fit_runs, in_order_runs
from tilesight.calibrate.records import Records
from tilesight.calibrate.session import calibrate_records
from tilesight.errors import TableError

RECORDS = Path(__file__).parent.parent.parent / "validation" / "records" / "h200_sxm"
NOISY = {"l2.dirty_evicted_share", "launch.event_s", "launch.cold_extra_s"}
"""Numbers whose repeats spread by more than 5 %: the shipped profile keeps them by name and says so."""
ABSENT = {"link.copy_start_s"}
"""... and leaves these out."""


@pytest.fixture(scope="module")
def again():
    """The calibration from the records, fits through the model included."""
    return calibrate_records(RECORDS)


def test_numbers_that_records_give_by_themselves(again, h200):
    # the same arithmetic on the same rows: equal but for rounding in other releases of numpy and scipy
    for name, found in again.found.items():
        if name not in FITTED and name not in ABSENT:
            assert found.rounded.value == pytest.approx(h200.numbers[name], rel=2e-3), name


def test_every_measured_number_is_derived(again, h200):
    for name, source in h200.source.items():
        if source.kind in ("measured", "fitted") and name not in FITTED:
            found = again.found[name]
            assert found.kind == source.kind, name
            assert tuple(f"validation/records/h200_sxm/{record}.csv" for record in found.records) == source.ref, name


def test_fits_through_the_model(again, h200):
    # these follow the model: a change to it that moves them by a fifth wants the profile fitted again
    for name in set(FITTED) & set(again.found):
        assert again.found[name].value == pytest.approx(h200.numbers[name], rel=0.2), name
    assert set(IN_ORDER) <= set(again.found)


def test_what_spreads_is_left_out_of_a_new_profile(again, h200):
    assert set(again.left_out) == NOISY | ABSENT
    assert not (NOISY | ABSENT) & set(again.profile.numbers)
    assert not ABSENT & set(h200.numbers)
    for name in NOISY:
        assert "kept by name at a spread of" in (h200.source[name].note or "")


def test_without_fits_the_profile_is_the_shipped_one(h200):
    again = calibrate_records(RECORDS, keep=NOISY, fit=False)
    assert set(again.profile.numbers) == set(h200.numbers)
    assert again.missing == {}
    for name, value in again.profile.numbers.items():
        assert value == pytest.approx(h200.numbers[name], rel=2e-3), name
        assert again.profile.source[name].kind == h200.source[name].kind, name


def test_a_fit_finds_what_the_model_was_given(h200):
    # measured times replaced by the model's own at constants that are known
    names = ("launch.start_in_order_s", "loop.chain_cp_async_cycles")
    runs = in_order_runs(Records(RECORDS, h200))
    few = slice(None, None, 40)
    problems, configs = runs.problems[few], runs.configs[few]
    gap = h200.require("launch.graph_gap_s")
    estimates = predict_many(problems, configs, hardware=h200, clock="burst", skip_refused=True)
    kept = estimates.positions.tolist()
    exact = Runs([problems[i] for i in kept], [configs[i] for i in kept], np.asarray(estimates.seconds) + gap)
    guess = {name: h200.require(name) * 1.3 for name in names}
    fit = fit_runs(h200, guess | {"launch.dependent_kernel_s": 1e-6}, exact)
    assert set(fit.values) == set(names)  # no run of these is split: a guess that nothing moves is no fit
    for name in names:
        assert fit.values[name] == pytest.approx(h200.require(name), rel=1e-3)
    assert fit.rms < 1e-4
    assert len(fit.binding) == len(fit.error)


def test_no_run_no_fit(h200):
    with pytest.raises(TableError, match="no run that a fit can use"):
        fit_runs(h200, {"launch.start_in_order_s": 1e-6}, Runs([], [], np.empty(0)))
