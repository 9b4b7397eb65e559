"""Workloads as data: bytes counted from their passes, and definitions that make no sense."""

import pytest

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


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"inputs": ()}, "has no inputs or no passes"),
        ({"passes": (Pass(("y",), 1),)}, "definition pass 0 reads 'y', which is no input; inputs: x"),
        ({"merged": (Pass(("x",), -1),)}, "merged pass 0: needs statistics >= 0"),
        ({"compiled": (Pass(("x",), 1, 1, 2),)}, "compiled pass 0: needs .* special <= instructions"),
        ({"structure": "tree"}, "structure = 'tree'; known: reduction_reuse, elementwise"),
        ({"keeps": ("q",)}, "keeps 'q', which is no input"),
        ({"group": 0}, "group = 0; give elements, at least 1"),
        ({"outputs": (Tensor("x"),)}, "two tensors have one name"),
    ],
)
def test_nonsense_is_refused(changes, message):
    good = {"inputs": (Tensor("x"),), "outputs": (Tensor("y"),), "passes": (Pass(("x",), 1), Pass(("x",)))}
    with pytest.raises(ProblemError, match=message):
        Workload("mine", "mine", **good | changes)


def test_nonsense_tensors_and_static_inputs_are_refused():
    with pytest.raises(ProblemError, match="x: element_bytes = 0; give bytes above 0"):
        Tensor("x", 0)
    with pytest.raises(ProblemError, match="a tensor is called ''"):
        Tensor("")
    with pytest.raises(ProblemError, match="needs 0 <= reread_bytes < modelled_bytes"):
        StaticInputs(8, 8, 4, (1,))
    with pytest.raises(ProblemError, match="no workload 3; give a name or a Workload"):
        workload(3)
