"""The closed form of DRAM reads against the step-by-step simulation of the same mechanism."""

import sys
from pathlib import Path

import numpy as np
import pytest

from tilesight import load_profile

VALIDATION = Path(__file__).parent.parent / "validation"


@pytest.fixture(scope="module")
def compare():
    sys.path.insert(0, str(VALIDATION))
    try:
        from closed_form import compare
    finally:
        sys.path.remove(str(VALIDATION))
    return compare


@pytest.mark.skipif(not VALIDATION.is_dir(), reason="validation/ is not part of an installed wheel")
def test_a_hundred_plans(compare):
    # at the edge of capacity the simulation, fully associative, keeps all or nothing, where ways keep some; elsewhere eight
    # GPCs drawn at random stand for a spread, so that few plans are a third apart
    found = [compare(seed, load_profile("h200_sxm")) for seed in range(100)]
    errors, edge = np.array([each.error for each in found]), np.array([each.edge for each in found])
    assert abs(errors).mean() <= 0.03
    assert 10 <= edge.sum() <= 40
    assert abs(errors[edge]).mean() <= 0.10
    assert abs(errors[~edge]).mean() <= 0.01
    assert np.quantile(abs(errors[~edge]), 0.95) <= 0.03
    assert abs(errors[~edge]).max() <= 0.35
