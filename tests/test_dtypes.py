import pytest

from tilesight.dtypes import DTYPES, dtype
from tilesight.errors import UnknownDTypeError


def test_by_hand():
    # 4096 x 4096 bf16 is 2 * 2**24 B; fp4 packs two in a byte; nvfp4 adds an 8-bit scale to 16 of them
    assert 4096 * 4096 * dtype("bf16").bytes_per_element == 2**25
    assert dtype("fp4").bytes_per_element == 0.5
    assert dtype("nvfp4").bytes_per_element == 0.5 + 1 / 16
    assert dtype("tf32").bits == 32
    assert dtype("int8").accumulator == "int32"
    assert dtype("fp16").accumulators == ("fp32", "fp16")


def test_names_and_aliases_lead_to_one_format():
    for name, entry in DTYPES.items():
        assert entry.name == name
        assert dtype(name) is entry
        assert dtype(entry) is entry
        for alias in entry.aliases:
            assert dtype(alias) is entry
            assert dtype(alias.upper()) is entry
            assert alias not in DTYPES
        assert set(entry.accumulators) <= set(DTYPES)
    assert dtype("torch.bfloat16") is DTYPES["bf16"]


def test_no_alias_means_two_formats():
    names = [name for entry in DTYPES.values() for name in (entry.name, *entry.aliases)]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("name", ["bf61", "", "float17"])
def test_unknown(name):
    with pytest.raises(UnknownDTypeError, match=f"no data type '{name}'; known: bf16"):
        dtype(name)


def test_suggestion():
    with pytest.raises(KeyError, match="Did you mean 'bf16'"):
        dtype("bf161")


def test_table_cannot_be_changed():
    with pytest.raises(TypeError):
        DTYPES["fp3"] = DTYPES["fp4"]
