"""A valid profile that changes with no calibration, to read and to break in every way."""

import copy
from pathlib import Path

import pytest

from tilesight.hardware.load import load_profile
from tilesight.hardware.profile import Profile

EXAMPLE = Path(__file__).with_name("example.toml")


@pytest.fixture
def example() -> Path:
    """Path of the example's file."""
    return EXAMPLE


@pytest.fixture
def profile() -> Profile:
    return load_profile(EXAMPLE)


@pytest.fixture
def data(profile):
    """Plain data of the example, a fresh copy for each test."""
    return copy.deepcopy(profile.to_dict())


@pytest.fixture
def broken(data):
    """Function that sets or removes (None) one dotted key of the profile's data and returns the data."""

    def change(name, value):
        *tables, key = name.split(".")
        table = data
        for part in tables:
            table = table.setdefault(part, {})
        if value is None:
            del table[key]
        else:
            table[key] = value
        return data

    return change
