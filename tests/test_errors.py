import pickle

import pytest

from tilesight import errors
from tilesight.errors import TableError, TilesightError, UnknownProfileError, UnsupportedError, suggestion

BUILT_IN = {
    "ProfileError": ValueError,
    "UnknownProfileError": KeyError,
    "UnknownDTypeError": KeyError,
    "UnitError": ValueError,
    "ProblemError": ValueError,
    "ConfigError": ValueError,
    "PlanError": ValueError,
    "TableError": ValueError,
    "MissingFileError": FileNotFoundError,
    "MissingToolError": Exception,
}


@pytest.mark.parametrize(("name", "built_in"), BUILT_IN.items())
def test_derives_from_ours_and_the_built_in(name, built_in):
    kind = getattr(errors, name)
    assert issubclass(kind, TilesightError)
    assert issubclass(kind, built_in)
    assert str(kind("what is wrong")) == "what is wrong"


def test_key_errors_print_without_quotes():
    assert str(KeyError("no profile")) == "'no profile'"
    assert str(UnknownProfileError("no profile")) == "no profile"
    assert str(UnknownProfileError()) == ""


def test_table_error_says_where():
    error = TableError("'abc' is no number", file="rows.csv", line=3, column="m")
    assert str(error) == "rows.csv:3:m: 'abc' is no number"
    assert (error.file, error.line, error.column) == ("rows.csv", 3, "m")


@pytest.mark.parametrize(
    "error",
    [
        TableError("bad", file="a.csv", line=2, column="k"),
        UnsupportedError("no rate", field="fill.latency_l2_s"),
    ],
)
def test_survives_a_process_boundary(error):
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is type(error)
    assert str(copy) == str(error)
    assert vars(copy) == vars(error)


def test_suggestion_lists_a_few_and_the_nearest():
    names = [f"gpu_{index:02d}" for index in range(20)]
    text = suggestion("GPU_19", names)
    assert text.startswith("known: gpu_00, gpu_01")
    assert "gpu_12" not in text.split(". Did")[0]
    assert text.endswith("…. Did you mean 'gpu_19'?")
    assert suggestion("a", []) == "known: none"
