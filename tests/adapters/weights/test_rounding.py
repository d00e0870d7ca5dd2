"""A float32 trainer and engines in bfloat16: the chain in between, and what errors say."""

from pathlib import Path

import numpy as np
import pytest
import torch
import zstandard  # noqa: F401 - versions are compressed with it

from lccodec import BFLOAT16_BITS, ArgumentError, Chain, follow
from lccodec.adapters import torch as adapter
from lccodec.adapters.weights import Rounding, publish, pull
from lccodec.adapters.weights.layout import rounded

from ...support.models import bytes_of, read_model, write_model


@pytest.mark.parametrize("source", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize(
    ("target", "dtype"),
    [(torch.bfloat16, BFLOAT16_BITS), (torch.float16, np.dtype("f2")), (torch.float32, np.dtype("f4"))],
)
def test_numbers_are_rounded_as_torch_rounds(source: torch.dtype, target: torch.dtype, dtype: object) -> None:
    numbers = torch.cat([torch.randn(70_000), torch.tensor([0.0, -0.0, 7e4, -1e39, 1e-45, torch.inf])])
    numbers = numbers.to(source)
    array, _ = adapter.to_numpy(numbers)
    found = rounded(array, np.dtype(dtype))
    assert found.tobytes() == adapter.to_numpy(numbers.to(target))[0].tobytes()
    nan = rounded(adapter.to_numpy(torch.full((3,), torch.nan, dtype=source))[0], np.dtype(dtype))
    assert torch.as_tensor(adapter.from_numpy(nan, {})).isnan().all()


def test_a_trainer_in_float32(tmp_path: Path) -> None:
    """The model has a bias in float32; all else is rounded, tied weights stay tied."""
    model = torch.nn.ModuleDict({"up": torch.nn.Linear(4, 3), "down": torch.nn.Linear(3, 4)})
    model["tied"] = model["up"]
    torch.nn.init.constant_(model["up"].weight, 0.5)
    state = model.state_dict()
    base = {n: adapter.to_numpy(t if "bias" in n else t.bfloat16())[0] for n, t in state.items()}
    write_model(tmp_path / "like", {name: base[name] for name in base if "tied" not in name})
    rounding = Rounding(adapter, like=tmp_path / "like", prefix="model")
    with Chain(tmp_path / "run", "lossless", adapter=rounding) as chain:
        chain.save(0, {"model": state, "step": 0})
        with torch.no_grad():
            model["up"].weight += 1e-5  # less than bfloat16 has
            model["down"].weight[0, 0] += 1
        chain.save_async(1, {"model": model.state_dict(), "step": 1}).result()
        restored = chain.restore()
        assert restored["model"]["tied.weight"] is restored["model"]["up.weight"]
    for name, tensor in model.state_dict().items():
        expected = tensor if "bias" in name else tensor.bfloat16()
        assert torch.equal(restored["model"][name], expected)
        assert restored["model"][name].dtype == expected.dtype
    with follow(tmp_path / "run", start=(0, {"model": base, "step": 0}), timeout=0) as follower:
        assert next(iter(follower)).names == ("model/down.weight",)
    pull(tmp_path / "run", tmp_path / "like", prefix="model", start=0)
    after = read_model(tmp_path / "like")
    assert after["down.weight"] == bytes_of({"": adapter.to_numpy(restored["model"]["down.weight"])[0]})[""]


def test_no_adapter(tmp_path: Path) -> None:
    state = {"w": np.ones(3), "half": np.ones(3, "f2"), "n": np.arange(3), "mask": np.ones(2, bool)}
    with Chain(tmp_path, "lossless", adapter=Rounding()) as chain:
        chain.save(0, {"a": [state["w"], state], "text": "x"})
        found = chain.restore()
    kinds = {name: array.dtype for name, array in found["a"][1].items()}
    assert kinds == {"w": BFLOAT16_BITS, "half": np.dtype("f2"), "n": np.dtype("i8"), "mask": np.dtype(bool)}
    assert found["text"] == "x"
    assert found["a"][0] is found["a"][1]["w"]


def test_the_first_error_says_what_to_do(tmp_path: Path) -> None:
    weights = {"w": np.linspace(0, 1, 50, dtype="f4")}
    with Chain(tmp_path / "run", "lossless") as chain:
        chain.save(0, {"model": weights})
        chain.save(1, {"model": {"w": weights["w"] + 1}})
    write_model(tmp_path / "model", {"w": rounded(weights["w"], BFLOAT16_BITS)})
    told = r"'w' is bfloat16 \(50,\), and float32 \(50,\) in the chain\n.*adapter=Rounding.*cast=True"
    with pytest.raises(ArgumentError, match=told):
        pull(tmp_path / "run", tmp_path / "model", prefix="model")
    with pytest.raises(ArgumentError, match=told):
        publish(tmp_path / "run", tmp_path / "out", prefix="model", start=0, like=tmp_path / "model")
    assert list((tmp_path / "out").glob("weight*")) == []


def test_what_is_refused() -> None:
    with pytest.raises(ArgumentError, match="dtype must be"):
        Rounding(dtype="int8")
    with pytest.raises(ArgumentError, match="adapter must have"):
        Rounding(torch)
