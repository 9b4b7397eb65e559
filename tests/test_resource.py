import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilesight.errors import PlanError
from tilesight.resource import RESOURCES, BusyTime

times = st.lists(st.floats(0, 1e3), min_size=len(RESOURCES), max_size=len(RESOURCES))


def test_by_hand():
    # a k-step of 128x256x64 bf16: 2*128*256*64 flop at 4096 flop/cycle = 1024 cycles; 48 KiB at 64 B/cycle = 768 cycles
    step = BusyTime.of(tensor=1024.0, smem=768.0)
    assert step.binds() == "tensor"
    assert step.bound_s() == 1024
    assert step.total_s() == 1792
    assert step["dram"] == 0
    assert step.to_dict() == {"tensor": 1024.0, "smem": 768.0}
    assert (step + step.scale(2)).to_dict() == {"tensor": 3072.0, "smem": 2304.0}


def test_batch():
    batch = BusyTime.of(tensor=[1.0, 5.0, 0.0], l2=2.0, dram=[0.0, 0.0, 0.0])
    assert batch.batch_shape == (3,)
    assert batch.binds().tolist() == ["l2", "tensor", "l2"]
    assert batch.bound_s().tolist() == [2, 5, 2]
    assert (batch + BusyTime.of(dram=3.0)).binds().tolist() == ["dram", "tensor", "dram"]
    assert batch.scale([[1.0], [2.0]]).batch_shape == (2, 3)


def test_batch_of_one_number_axes_line_up():
    # a batch of 9 is as long as the list of resources: the axes must not be mixed up
    nine = BusyTime.of(tensor=np.arange(9.0))
    assert (BusyTime.of(dram=1.0) + nine)["tensor"].tolist() == list(range(9))
    assert (BusyTime.of(dram=1.0) + nine)["dram"].tolist() == [1.0] * 9


def test_nothing_busy():
    assert BusyTime.of().binds() == "none"
    assert BusyTime.of(tensor=[0.0, 1.0]).binds().tolist() == ["none", "tensor"]


def test_ties_go_to_the_first():
    assert BusyTime.of(dram=1.0, tensor=1.0).binds() == "tensor"


@given(times, times)
def test_bounds(first, second):
    a, b = BusyTime(np.array(first)), BusyTime(np.array(second))
    both = a + b
    assert both.bound_s() <= a.bound_s() + b.bound_s() + 1e-9
    assert both.bound_s() >= max(a.bound_s(), b.bound_s())
    assert a.bound_s() <= a.total_s() <= len(RESOURCES) * a.bound_s()
    assert a.binds() == "none" or a[a.binds()] == a.bound_s()


@given(times, times)
def test_batch_equals_one_by_one(first, second):
    batch = BusyTime(np.array([first, second]).T)
    for index, values in enumerate((first, second)):
        one = BusyTime(np.array(values))
        assert batch.binds()[index] == one.binds()
        assert batch.bound_s()[index] == one.bound_s()


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -1.0])
def test_bad_values(bad):
    with pytest.raises(PlanError, match="finite and not negative"):
        BusyTime.of(dram=bad)
    with pytest.raises(PlanError, match="finite and not negative"):
        BusyTime.of(dram=1.0).scale(bad)


def test_bad_name_and_shape():
    with pytest.raises(PlanError, match=r"no resource 'drum'; known: .* Did you mean 'dram'\?"):
        BusyTime.of(drum=1.0)
    with pytest.raises(PlanError, match="first axis must be the 9 resources"):
        BusyTime(np.zeros(3))


def test_frozen():
    source = np.ones(len(RESOURCES))
    vector = BusyTime(source)
    source[0] = 7
    assert vector["tensor"] == 1
    with pytest.raises(ValueError, match="read-only"):
        vector.seconds[0] = 2
    with pytest.raises(AttributeError):
        vector.seconds = source
