"""The items of DCP's plans: names, roles, plain values."""

import collections
import io

import numpy as np
import pytest
import torch
from torch.distributed.checkpoint import DefaultSavePlanner
from torch.distributed.checkpoint.metadata import MetadataIndex

from lccodec.adapters.dcp.items import item_name, item_roles, stored_value, torch_bytes
from lccodec.errors import ArgumentError


def test_the_role_of_a_shard_is_that_of_its_tensor():
    names = [
        "optimizer.state.fc.table.exp_avg",
        "optimizer.state.fc.table.exp_avg_sq",
        "model.fc.table",
        "model.fc.cluster_size",
        "model.fc.weight",
    ]
    for offset in ([8], [8, 0]):
        indices = [MetadataIndex(name, offset) for name in names]
        state = {item_name(index): torch.ones(8) for index in indices}
        assert [assignment.role for assignment in item_roles(indices, state).values()] == [
            "first_moment", "second_moment", "weight", "other", "other",
        ]  # fmt: skip


def test_a_shard_has_its_offset_in_its_name():
    assert item_name(MetadataIndex("w")) == item_name(MetadataIndex("w", [0, 0])) == "w"
    assert item_name(MetadataIndex("w", [0, 8])) == "w/0,8"


class OtherPlanner(DefaultSavePlanner):
    """A planner that makes the bytes itself, so that its objects are not looked at."""

    def transform_object(self, write_item, object):
        return super().transform_object(write_item, object)


class BytesPlanner(DefaultSavePlanner):
    def resolve_data(self, _):
        return io.BytesIO(b"made by a planner")


def stored(planner, value):
    planner.set_up_planner({"x": value}, is_coordinator=True)
    (item,) = planner.create_local_plan().items
    return stored_value(planner, item).value


@pytest.mark.parametrize("planner", [DefaultSavePlanner, OtherPlanner])
def test_plain_values_need_no_pickle(planner):
    assert stored(planner(), (0.9, None, b"x")) == (0.9, None, b"x")


def test_values_of_numpy_need_no_pickle_of_the_planner():
    name, keys, *rest = stored(DefaultSavePlanner(), np.random.RandomState(3).get_state())
    assert (name, keys.dtype, rest[1:]) == ("MT19937", np.uint32, [0, 0.0])


@pytest.mark.parametrize(("planner", "value"), [(OtherPlanner, object()), (BytesPlanner, 3)])
def test_bytes_that_are_not_read_are_refused(planner, value):
    with pytest.raises(ArgumentError):
        stored(planner(), value)


def test_a_class_without_a_name_is_handed_on():
    value = collections.namedtuple("nowhere", "x")(3)
    data = torch_bytes(value)
    assert torch.load(data, weights_only=False) is value
