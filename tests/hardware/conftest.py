"""A small valid profile to break in every way."""

import copy

import pytest

from tilesight.hardware.load import load_profile


@pytest.fixture
def data():
    """Plain data of the H200 profile, a fresh copy for each test."""
    return copy.deepcopy(load_profile("h200_sxm").to_dict())


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
