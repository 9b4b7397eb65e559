import pickle
import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilesight.hardware.numbers import FrozenMap, freeze_lists, plain_number


def test_plain_number_by_hand():
    assert plain_number(4.8e12) == "4.8e12"
    assert plain_number(1e10) == "1e10"
    assert plain_number(1.05e-6) == "1.05e-6"
    assert plain_number(0.45) == "0.45"
    assert plain_number(62914560) == "62914560"
    assert plain_number(62914560.0) == "6.291456e7"
    assert plain_number(0.0) == "0.0"
    assert plain_number(-2.5e-9) == "-2.5e-9"


@given(st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(2**63), 2**63 - 1))
def test_plain_number_is_toml_and_python(value):
    text = plain_number(value)
    read = tomllib.loads(f"x = {text}")["x"]
    assert read == value
    assert type(read) is type(value)


def test_frozen_map():
    items = {"b": 1, "a": 2}
    frozen = FrozenMap(items)
    items["c"] = 3
    assert dict(frozen) == {"b": 1, "a": 2}
    assert list(frozen) == ["b", "a"]
    assert frozen == {"a": 2, "b": 1}
    assert hash(frozen) == hash(FrozenMap({"a": 2, "b": 1}))
    assert pickle.loads(pickle.dumps(frozen)) == frozen
    assert repr(frozen) == "FrozenMap({'b': 1, 'a': 2})"
    with pytest.raises(TypeError):
        frozen["a"] = 3


def test_freeze_lists():
    assert freeze_lists([{"a": [1, [2]]}]) == ({"a": (1, (2,))},)
