"""Workloads as data: bytes counted from their passes, and definitions that make no sense."""

import pytest

from tilesight import verdict
from tilesight.dsmem.catalogue import SIX, WORKLOADS, workload
from tilesight.dsmem.traffic import walks
from tilesight.dsmem.workload import Pass, StaticInputs, Tensor, Workload
from tilesight.errors import ProblemError

COUNTED = {  # reread kernel, compulsory, kept, statistics a stage: from the definitions, fp32
    "layernorm_backward": (4 + 8 + 8 + 4, 12, 8, (2, 2)),
    "weighted_standardisation_backward": (8 + 8 + 8 + 12 + 4, 16, 12, (2, 1, 2)),
    "pearson_backward": (8 + 8 + 8 + 8, 16, 8, (2, 3)),
    "softmax_backward": (4 + 4 + 8 + 8 + 4, 12, 8, (1, 1, 1)),
    "lars_momentum": (8 + 12 + 8, 20, 8, (2,)),
    "quantise_int8": (4 + 4 + 1, 5, 4, (1,)),
}
PUBLISHED = {
    "layernorm_backward": StaticInputs(32, 12, 4, (2, 2)),
    "weighted_standardisation_backward": StaticInputs(40, 24, 12, (2, 1, 2)),
    "pearson_backward": StaticInputs(24, 8, 8, (2, 3)),
    "softmax_backward": StaticInputs(28, 16, 8, (1, 1, 1)),
    "lars_momentum": StaticInputs(32, 12, 12, (2,)),
    "quantise_int8": StaticInputs(9, 4, 4, (1,)),
}


@pytest.mark.parametrize("name", SIX)
def test_bytes_by_hand(name):
    moved, compulsory, kept, statistics = COUNTED[name]
    which = workload(name)
    assert which.compulsory_bytes() == compulsory
    assert which.counted() == StaticInputs(moved, moved - compulsory, kept, statistics)
    assert which.published == PUBLISHED[name]


def test_pearson_in_two_passes():
    assert workload("pearson_backward").counted(form="merged").modelled_bytes == 24


@pytest.mark.parametrize("name", WORKLOADS)
@pytest.mark.parametrize("form", ["definition", "compiled", "merged"])
@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_bytes_are_conserved(name, form, dtype):
    which = workload(name)
    moved = walks(which, form, dtype)
    once = sum(each.first_bytes for each in moved.passes)
    assert once == moved.input_bytes
    assert once + moved.output_bytes == which.compulsory_bytes(dtype)
    assert moved.again_bytes == which.counted(dtype, form).reread_bytes


def test_half_types_halve_what_has_no_type_of_its_own():
    assert workload("layernorm_backward").compulsory_bytes("bf16") == 6
    assert workload("quantise_int8").compulsory_bytes("bf16") == 3  # int8 stays one byte


def test_groups_count_as_rows():
    which = workload("quantise_fp8_groups")
    assert which.shape(4096, 1000) == (4096 * 8, 128)
    assert which.shape(4096, 100) == (4096, 100)


def test_a_workload_is_a_few_lines():
    own = Workload(
        "scaled_softmax",
        "softmax of scaled logits",
        inputs=(Tensor("z"),),
        outputs=(Tensor("p"),),
        passes=(Pass(("z",), 2, 5, 1), Pass(("z",), 0, 3, 1)),
    )
    assert workload(own) is own
    assert own.counted() == StaticInputs(12, 4, 4, (2,))
    assert own.published is None


X, SHARED, BOTH = Tensor("x"), Tensor("s", shared=True), (Pass(("x", "z"), 1), Pass(("x",)))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"inputs": ()}, "has no inputs or no passes"),
        ({"passes": (Pass(("y",), 1),)}, "definition pass 0 reads 'y', which is no input; inputs: x"),
        ({"structure": "tree"}, "structure = 'tree'; known: reduction_reuse, elementwise"),
        ({"keeps": ("q",)}, "keeps 'q', which is no input of the row itself; those: x"),
        ({"inputs": (X, SHARED), "keeps": ("s",)}, "keeps 's', which is no input of the row itself; those: x"),
        ({"keeps": "x"}, "keeps = 'x'; give a tuple of names"),
        ({"group": 0}, "group = 0; give elements, from 1"),
        ({"group": True}, "group = True"),
        ({"outputs": (Tensor("x"),)}, "two tensors have one name"),
        ({"inputs": (SHARED,), "passes": (Pass(("s",), 1),)}, "give at least one input of the row itself"),
        ({"outputs": (Tensor("y", shared=True),)}, "no shared output"),
        ({"inputs": tuple(Tensor(f"x{i}") for i in range(17))}, "has 17 inputs; at most 16"),
        ({"inputs": [X]}, "inputs = .*; give a tuple of Tensor$"),
        ({"outputs": ("y",)}, "outputs = .*; give a tuple of Tensor$"),
        ({"passes": (3,)}, "passes = .*; give a tuple of Pass$"),
        ({"merged": Pass(("x",))}, "merged = .*; give a tuple of Pass or None"),
        ({"merged": ()}, "merged is empty; give passes, or None"),
        (
            {"inputs": (X, Tensor("z")), "merged": (Pass(("x", "z"), 1),)},
            "merged pass 0 reads 'z', which no pass of the def",
        ),
        ({"inputs": (X, Tensor("z")), "passes": BOTH, "merged": (Pass(("x",)),)}, "no merged pass reads 'z'"),
        ({"name": 3}, "a workload's name is 3; give text"),
        ({"title": " "}, "a workload's title is ' '; give text"),
        ({"published": (32, 12, 4)}, "published = .*; give StaticInputs or None"),
        ({"scalar_bytes": 0}, "scalar_bytes = 0; give whole bytes from 1 to 16"),
        ({"scalar_bytes": 4.0}, "scalar_bytes = 4.0"),
    ],
)
def test_nonsense_is_refused(changes, message):
    good = {"inputs": (Tensor("x"),), "outputs": (Tensor("y"),), "passes": (Pass(("x",), 1), Pass(("x",)))}
    with pytest.raises(ProblemError, match=message):
        Workload(**{"name": "mine", "title": "mine"} | good | changes)


def test_nonsense_tensors_and_static_inputs_are_refused():
    with pytest.raises(ProblemError, match="x: element_bytes = 0; give bytes above 0"):
        Tensor("x", 0)
    with pytest.raises(ProblemError, match="a tensor is called ''"):
        Tensor("")
    with pytest.raises(ProblemError, match="needs 0 <= reread_bytes < modelled_bytes"):
        StaticInputs(8, 8, 4, (1,))
    with pytest.raises(ProblemError, match="no workload 3; give a name or a Workload"):
        workload(3)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"reads": "x"}, "a pass reads 'x'; give a tuple of names"),
        ({"reads": (3,)}, "a pass reads .3,.; give a tuple of names"),
        ({"statistics": -1}, "statistics = -1; give a whole number from 0"),
        ({"statistics": 1.5}, "statistics = 1.5"),
        ({"instructions": float("nan")}, "instructions = nan; give a number from 0"),
        ({"instructions": "3"}, "instructions = '3'"),
        ({"special": float("inf")}, "special = inf"),
        ({"instructions": 1, "special": 2}, "special = 2 of instructions = 1"),
    ],
)
def test_nonsense_passes_are_refused(fields, message):
    with pytest.raises(ProblemError, match=message):
        Pass(**{"reads": ("x",)} | fields)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ((float("nan"), 1, 1, (1,)), "modelled_bytes = nan; give bytes from 0"),
        ((8, "4", 1, (1,)), "reread_bytes = '4'"),
        ((8, 4, float("inf"), (1,)), "kept_bytes = inf"),
        ((8, 4, 4, ()), "statistics = .*; give a tuple of whole numbers"),
        ((8, 4, 4, 2), "statistics = 2; give a tuple of whole numbers"),
        ((8, 4, 4, (1.5,)), "statistics = .1.5,."),
    ],
)
def test_nonsense_static_inputs_are_refused(fields, message):
    with pytest.raises(ProblemError, match=message):
        StaticInputs(*fields)


def test_sixteen_inputs_are_modelled():
    names = tuple(f"x{number}" for number in range(16))
    wide = Workload("wide", "wide", tuple(map(Tensor, names)), (Tensor("y"),), (Pass(names, 1), Pass(names)))
    assert verdict(wide, 4096, 65536, hardware="h200_sxm").cluster_size == 16
