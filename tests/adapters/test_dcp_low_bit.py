"""Low-bit optimizer states and weights through `torch.distributed.checkpoint`."""

import pytest
import torch
import torch.distributed.checkpoint as dcp
from torch.testing._internal.two_tensor import TwoTensor

from lccodec.adapters.dcp import LCStorageReader, LCStorageWriter
from lccodec.errors import ArgumentError

from ..support.low_bit import WEIGHTS


def inner(tensor):
    return {name: getattr(tensor, name) for name in tensor.__tensor_flatten__()[0]}


@pytest.mark.parametrize("name", ["int8", "float8 by rows"])
def test_a_weight_of_torchao_is_loaded_into_one_of_its_class(tmp_path, name):
    saved, target = WEIGHTS[name](), WEIGHTS[name]()
    for tensor in inner(target).values():
        tensor.zero_()
    state = {"w": target, "b": torch.zeros(3)}
    dcp.save({"w": saved, "b": torch.ones(3)}, storage_writer=LCStorageWriter(tmp_path))
    dcp.load(state, storage_reader=LCStorageReader(tmp_path))
    assert state["b"].tolist() == [1, 1, 1]
    assert type(state["w"]) is type(saved)
    for left, right in zip(inner(state["w"]).values(), inner(saved).values(), strict=True):
        assert torch.equal(left.view(torch.uint8), right.view(torch.uint8))


@pytest.mark.filterwarnings("ignore:.*is no class that this program allows")
def test_a_wrapper_of_a_class_that_is_not_listed_needs_a_target_of_it(tmp_path):
    saved = TwoTensor(torch.ones(2, 3), torch.full((2, 3), 2.0))
    dcp.save({"w": saved}, storage_writer=LCStorageWriter(tmp_path))
    state = {"w": TwoTensor(torch.zeros(2, 3), torch.zeros(2, 3))}
    dcp.load(state, storage_reader=LCStorageReader(tmp_path))
    assert torch.equal(state["w"].a, saved.a)
    assert torch.equal(state["w"].b, saved.b)
    with pytest.raises(dcp.api.CheckpointException) as caught:
        dcp.load({"w": torch.zeros(2, 3)}, storage_reader=LCStorageReader(tmp_path))
    assert isinstance(error := caught.value.failures[0][0], ArgumentError)
    assert "TwoTensor, where the target has a torch.Tensor" in str(error)
