"""The items of DCP's plans: names, roles, plain values."""

import io

import torch
from torch.distributed.checkpoint.metadata import MetadataIndex

from lccodec.adapters.dcp.items import item_name, item_roles, plain_value, torch_bytes


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


def test_plain_values_need_no_pickle():
    found = plain_value(torch_bytes({"betas": (0.9, 0.999), "epoch": 3}))
    assert found is not None
    assert found.value == {"betas": (0.9, 0.999), "epoch": 3}
    assert plain_value(torch_bytes({"w": torch.ones(2)})) is None
    assert plain_value(io.BytesIO(b"made by a planner")) is None
