"""Tensors of other devices go to shared memory in one copy; this process has no other device."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import lccodec
from lccodec.adapters import torch as adapter
from lccodec.adapters.torch import states
from lccodec.adapters.torch.states import copy_out, is_elsewhere
from lccodec.chain.save import background
from lccodec.workers.process import Arena, place_of

DTYPES = [
    torch.float32, torch.bfloat16, torch.float16, torch.float8_e4m3fn, torch.int64, torch.uint16,
    torch.complex64, torch.complex32, torch.bool,
]  # fmt: skip


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let all tensors be of another device, except those of one value."""
    monkeypatch.setattr(states, "is_elsewhere", lambda tensor: tensor.numel() > 1)


pytestmark = pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental")


def everything() -> dict[str, torch.Tensor]:
    """Tensors of all types, views among them."""
    base = torch.arange(48, dtype=torch.float32).reshape(6, 8)
    found = {str(dtype): (base % 2 if dtype == torch.bool else base).to(dtype) for dtype in DTYPES}
    turned = {"turned": base.t(), "some": base[::2, 1::3], "conj": found["torch.complex64"].conj()}
    return {**found, **turned, "tied": base, "again": base, "one": torch.tensor(3.0), "none": base[:0]}


def test_a_tensor_of_the_cpu_is_here() -> None:
    assert not is_elsewhere(torch.ones(2))
    assert is_elsewhere(torch.ones(2, device="meta"))


def test_copies_are_bytes_in_one_segment() -> None:
    arena, tensors = Arena(), [torch.randn(700_000), torch.arange(6).reshape(2, 3).t()]
    copies = copy_out(tensors, arena)
    assert [copy.dtype for copy in copies] == [np.uint8, np.uint8]
    for tensor, copy in zip(tensors, copies, strict=True):
        assert copy.tobytes() == tensor.contiguous().numpy().tobytes()
    places = [place_of(copy) for copy in copies]
    assert places[0] is not None and places[1] is not None
    assert places[0][0] is places[1][0]


@pytest.mark.usefixtures("elsewhere")
def test_states_of_other_devices_are_the_same_states() -> None:
    state = {"tensors": everything(), "n": 1, "x": {3: np.arange(3)}}
    plain, metadata = adapter.to_numpy(state)
    staged, noted = adapter.to_numpy(state, None, Arena())
    assert noted == metadata
    assert lccodec.save(staged, noted) == lccodec.save(plain, metadata)
    assert staged["tensors"]["tied"] is staged["tensors"]["again"]


@pytest.mark.usefixtures("elsewhere")
def test_what_is_in_shared_memory_is_not_copied_again(
    tmp_path: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    class Counted(Arena):
        def empty(self, count: int, dtype: np.dtype, more: int = 0) -> np.ndarray:
            asked.append(count * dtype.itemsize)
            return super().empty(count, dtype, more)

    monkeypatch.setattr(background, "Arena", Counted)
    state = {"a": torch.randn(500, 3), "b": torch.arange(7), "one": torch.tensor(2.0), "c": np.arange(5)}
    with lccodec.Chain(f"{tmp_path}/chain", "lossless", adapter=adapter) as chain:
        for step in range(3):
            state["a"] += 1
            chain.save_async(step, state)
            expected = state["a"].clone()
            state["a"] -= 1  # while the save runs
            chain.wait()
            assert torch.equal(chain.restore()["a"], expected)
            state["a"] += 1
    assert asked == 3 * [6000, 56, 4, 40]


@pytest.mark.usefixtures("elsewhere")
def test_the_bytes_are_those_of_a_save_in_this_process(tmp_path: object) -> None:
    files = []
    for name, workers in (("now", None), ("later", 1)):
        with lccodec.Chain(f"{tmp_path}/{name}", "lc-3", adapter=adapter, workers=workers) as chain:
            for step in range(2):
                state = everything()
                state["torch.float32"] = state["torch.float32"] + step
                chain.save(step, state)
            files.append([path.read_bytes() for path in sorted(chain.directory.iterdir())])
    assert files[0] == files[1]


@pytest.mark.usefixtures("elsewhere")
def test_restored_tensors_are_copied(tmp_path: object) -> None:
    """They lie in shared memory too, of their own."""
    with lccodec.Chain(f"{tmp_path}/chain", "lossless", adapter=adapter, workers=1) as chain:
        chain.save(0, {"w": torch.randn(300_000), "one": torch.tensor(1.0)})
        state = chain.restore()
        future = chain.save_async(1, state)
        expected = {name: tensor.clone() for name, tensor in state.items()}
        for tensor in state.values():
            tensor.add_(1)
        future.result()
        restored = chain.restore()
    assert all(torch.equal(restored[name], tensor) for name, tensor in expected.items())


@pytest.mark.parametrize("background", [False, True])
@pytest.mark.usefixtures("elsewhere")
def test_what_a_save_leaves_out_stays_where_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, background: bool
) -> None:
    """The base of a model on a GPU is not copied for the few arrays that change."""
    copied: list[int] = []
    host, out = states.host_array, states.copy_out
    monkeypatch.setattr(states, "host_array", lambda tensor: [copied.append(tensor.numel()), host(tensor)][1])
    monkeypatch.setattr(
        states, "copy_out", lambda ts, r: [copied.extend(t.numel() for t in ts), out(ts, r)][1]
    )
    tied = torch.zeros(3000, dtype=torch.float8_e4m3fn)
    state = {"base": tied, "tied": tied, "half": torch.zeros(40).bfloat16(), "lora": {3: torch.zeros(30)}}
    with lccodec.Chain(tmp_path, "lossless", adapter=adapter) as chain:
        chain.save(0, state)
        assert copied == [3000, 40, 30]
        state["lora"][3] += 1
        if background:
            chain.save_async(1, state, only=["lora/*"]).result()
        else:
            chain.save(1, state, only=["lora/*"])
        assert copied == [3000, 40, 30, 30]
        found = chain.restore()
    assert found["base"] is found["tied"]
    assert found["base"].dtype == torch.float8_e4m3fn
    assert torch.equal(found["half"], state["half"])
    assert torch.equal(found["lora"][3], state["lora"][3])
