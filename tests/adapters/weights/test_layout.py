"""Headers of .safetensors files are read without the library; damaged ones are refused.

Names and types of a model that are not those of the chain: ties, wrappers, renames, casts.

A float32 trainer and engines in bfloat16: the chain in between, and what errors say.
"""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import zstandard  # noqa: F401 - versions are compressed with it

from lccodec import BFLOAT16_BITS, ArgumentError, Chain, FormatError, follow
from lccodec.adapters import torch as adapter
from lccodec.adapters.weights import Rounding, publish, pull
from lccodec.adapters.weights.layout import read_layout, rounded

from ...support.commands import run as run_verb
from ...support.models import bytes_of, read_file, read_model, small_model, write_model
from ...support.weight_versions import pulled


def write(path: Path, header: Any, data: bytes = bytes(8)) -> Path:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)
    return path


@pytest.mark.parametrize("shards", [1, 3])
def test_every_tensor_is_found(tmp_path: Path, shards: int) -> None:
    model = small_model()
    write_model(tmp_path, model, shards)
    found = read_layout(tmp_path).arrays()
    assert found.keys() == model.keys()
    for name, array in model.items():
        assert (found[name].dtype, found[name].shape) == (array.dtype, array.shape)
        assert found[name].tobytes() == array.tobytes()


def test_a_type_that_is_not_known_has_no_array(tmp_path: Path) -> None:
    write(tmp_path / "model.safetensors", {"x": entry(dtype="F4", shape=[16])})
    layout = read_layout(tmp_path)
    assert layout.tensors["x"].kind is None
    assert layout.arrays() == {}


def entry(**change: Any) -> dict[str, Any]:
    return {"dtype": "F32", "shape": [2], "data_offsets": [0, 8], **change}


def test_an_index_that_does_not_fit(tmp_path: Path) -> None:
    write_model(tmp_path, {"a": np.ones(2, "f4"), "b": np.ones(2, "f4")}, 2)
    index = tmp_path / "model.safetensors.index.json"
    document = json.loads(index.read_text())
    document["weight_map"]["c"] = document["weight_map"]["a"]
    index.write_text(json.dumps(document))
    with pytest.raises(FormatError, match="only one of index and shard has c"):
        read_layout(tmp_path)
    for text in ("no JSON", "[]"):
        index.write_text(text)
        with pytest.raises(FormatError, match="not an index"):
            read_layout(tmp_path)


RNG = np.random.default_rng(0)
EMBED, BIAS = RNG.standard_normal((30, 8)).astype("f4"), RNG.standard_normal(8).astype("f4")
NEW = EMBED + np.float32(0.5)


def chain_of(directory: Path, *states: dict[str, Any], prefix: str = "") -> Path:
    with Chain(directory, "lossless") as chain:
        for step, state in enumerate(states):
            chain.save(step, {"model": {prefix + name: array for name, array in state.items()}})
    return directory


def tied(embed: Any) -> dict[str, Any]:
    return {"lm_head.weight": embed, "embed.weight": embed, "bias": BIAS}


@pytest.fixture
def model(tmp_path: Path) -> Path:
    write_model(tmp_path / "local", {"embed.weight": EMBED, "bias": BIAS})
    return tmp_path / "local"


@pytest.mark.parametrize("start", [0, None])
@pytest.mark.parametrize("prefix", ["", "module.", "_orig_mod.", "_orig_mod.module."])
def test_tied_weights_of_a_wrapped_model(tmp_path: Path, model: Path, start: int | None, prefix: str) -> None:
    run = chain_of(tmp_path / "run", tied(EMBED), tied(NEW), prefix=prefix)
    assert pull(run, model, prefix="model", start=start).names == ("embed.weight",)
    assert read_model(model) == bytes_of({"embed.weight": NEW, "bias": BIAS})
    assert pull(run, model, prefix="model", step=0).base == 1


@pytest.mark.parametrize("start", [0, None])
@pytest.mark.parametrize("both", [True, False])
def test_a_model_with_both_names_gets_both(tmp_path: Path, start: int | None, both: bool) -> None:
    """Also if the chain has only one: what was tied in the model would be old otherwise."""
    states = [tied(EMBED), tied(NEW)] if both else [{"embed.weight": e, "bias": BIAS} for e in (EMBED, NEW)]
    run = chain_of(tmp_path / "run", *states)
    write_model(tmp_path / "local", {**tied(EMBED), "zeros": np.zeros(8, "f4")}, 2)
    pull(run, tmp_path / "local", prefix="model", start=start)
    assert read_model(tmp_path / "local") == bytes_of({**tied(NEW), "zeros": np.zeros(8, "f4")})


def test_zeros_are_not_tied_to_zeros(tmp_path: Path) -> None:
    run = chain_of(tmp_path / "run", {"a": np.zeros(8, "f4")}, {"a": np.ones(8, "f4")})
    write_model(tmp_path / "local", {"a": np.zeros(8, "f4"), "b": np.zeros(8, "f4")})
    pull(run, tmp_path / "local", prefix="model", start=0)
    assert read_model(tmp_path / "local") == bytes_of({"a": np.ones(8, "f4"), "b": np.zeros(8, "f4")})


def test_ties_that_contradict_each_other(tmp_path: Path) -> None:
    run = chain_of(tmp_path / "run", tied(EMBED), tied(NEW))
    write_model(tmp_path / "local", {**tied(EMBED), "lm_head.weight": EMBED + 1})
    before = read_model(tmp_path / "local")
    with pytest.raises(ArgumentError, match=r"'lm_head.weight' and 'embed.weight' are one tensor"):
        pull(run, tmp_path / "local", prefix="model")
    assert read_model(tmp_path / "local") == before


def test_names_are_changed(tmp_path: Path, model: Path) -> None:
    run = chain_of(tmp_path / "run", *[{"net.emb": e, "net.bias": BIAS} for e in (EMBED, NEW)])
    with pytest.raises(ArgumentError, match=r"'net.emb' is not there(.|\n)*rename="):
        pull(run, model, prefix="model")
    rename = {"net.emb": "embed.weight", "net.*": "*"}
    assert pull(run, model, prefix="model", rename=rename, start=0).names == ("embed.weight",)
    assert read_model(model) == bytes_of({"embed.weight": NEW, "bias": BIAS})
    words = ("--model", "model", "--rename", "net.emb=embed.weight", "--rename", "net.*=*")
    run_verb("pull", run, model, "--step", 0, *words)
    assert read_model(model) == bytes_of({"embed.weight": EMBED, "bias": BIAS})
    _, stderr = run_verb("pull", run, model, "--rename", "net.*", code=2)
    assert "PATTERN=NAME" in stderr
    with pytest.raises(ArgumentError, match=r"no name of the state fits 'nte\.\*'"):
        pull(run, model, prefix="model", step=1, rename={**rename, "nte.*": "x"})


def test_a_name_that_fits_two(tmp_path: Path, model: Path) -> None:
    wrappers = ("_fsdp_wrapped_module", "_orig_mod")
    run = chain_of(
        tmp_path / "run",
        {f"{wrapper}.bias": BIAS + i for i, wrapper in enumerate(wrappers)} | {"embed.weight": EMBED},
    )
    with pytest.raises(ArgumentError, match="could be 'bias' of the target"):
        pull(run, model, prefix="model")
    with pytest.raises(ArgumentError, match="would both be 'bias'"):
        pull(run, model, prefix="model", rename={"*.bias": "bias"})


def test_ten_problems_are_listed(tmp_path: Path, model: Path) -> None:
    run = chain_of(tmp_path / "run", {f"x{number}": BIAS for number in range(20)})
    with pytest.raises(ArgumentError) as caught:
        pull(run, model, prefix="model")
    assert str(caught.value).count("is not there") == 10
    assert "and 10 more" in str(caught.value)


@pytest.mark.parametrize("source", ["f2", "f4", "f8"])
@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float16, torch.float32])
def test_values_are_cast_as_torch_casts_them(tmp_path: Path, source: str, kind: torch.dtype) -> None:
    values = np.r_[RNG.standard_normal(40), np.inf, 1e-41, 4e4, 1 + 2**-8].astype(source)
    run = chain_of(tmp_path / "run", {"w": values, "n": np.arange(3)}, {"w": -values, "n": np.arange(3)})
    plain, _ = adapter.to_numpy(torch.from_numpy(values).to(kind))
    write_model(tmp_path / "local", {"w": plain, "n": np.arange(3)})
    if plain.dtype != values.dtype:
        with pytest.raises(ArgumentError, match=r"--cast"):
            pull(run, tmp_path / "local", prefix="model", step=0)
    assert pull(run, tmp_path / "local", prefix="model", step=0, cast=True).names == ()  # nothing differs
    found = pull(run, tmp_path / "local", prefix="model", cast=True)
    assert found.names == ("w",)
    expected = adapter.to_numpy(torch.from_numpy(-values).to(kind))[0]
    assert read_model(tmp_path / "local")["w"] == expected.tobytes()
    assert pull(run, tmp_path / "local", prefix="model", cast=True).base == 1


def test_what_is_not_cast(tmp_path: Path) -> None:
    run = chain_of(tmp_path / "run", {"w": np.arange(4)})
    write_model(tmp_path / "local", {"w": np.zeros(4, "f4")})
    with pytest.raises(ArgumentError, match="'w' is float32"):
        pull(run, tmp_path / "local", prefix="model", cast=True)
    with pytest.raises(ArgumentError, match="leave start out"):
        pull(run, tmp_path / "local", prefix="model", cast=True, start=0)
    with pytest.raises(ArgumentError, match="without start"):
        pull(run, tmp_path / "local", prefix="model", start=0)


@pytest.mark.parametrize("both", [True, False])
def test_versions_have_the_names_of_the_engines(tmp_path: Path, both: bool) -> None:
    run, output, like = tmp_path / "run", tmp_path / "out", tmp_path / "like"
    base = {"embed.weight": EMBED, "bias": BIAS, **({"lm_head.weight": EMBED} if both else {})}
    write_model(like, base)
    chain_of(run, tied(EMBED), tied(NEW), prefix="_orig_mod.")
    expected = {name: BIAS if name == "bias" else NEW for name in base}
    with pytest.raises(ArgumentError, match=r"like=(.|\n)*lm_head.weight"):
        publish(run, output, prefix="model", start=0)
    assert publish(run, output, prefix="model", start=0, like=like) is not None
    assert pulled(output, bytes_of(base), 1) == bytes_of(expected)
    assert publish(run, output, prefix="model", full=True, like=like) is not None
    assert read_file(output / "weight_v000002/model.safetensors") == bytes_of(expected)


def test_engines_that_took_a_full_version_have_all_names(tmp_path: Path) -> None:
    run, output = chain_of(tmp_path / "run", tied(EMBED)), tmp_path / "out"
    publish(run, output, prefix="model", rename={"bias": "b"})
    with Chain(run, "lossless") as chain:
        chain.save(1, {"model": tied(NEW)})
    publish(run, output, prefix="model", rename={"bias": "b"})
    expected = {"lm_head.weight": NEW, "embed.weight": NEW, "b": BIAS}
    assert pulled(output, {}, 2) == bytes_of(expected)


def test_bits_of_bfloat16_are_no_numbers_to_be_cast(tmp_path: Path) -> None:
    bits = np.arange(0x3F80, 0x3F90, dtype=np.uint16).view(BFLOAT16_BITS)
    run = chain_of(tmp_path / "run", {"w": bits})
    write_model(tmp_path / "local", {"w": np.zeros(16, "f4")})
    pull(run, tmp_path / "local", prefix="model", cast=True)
    expected = (np.arange(0x3F80, 0x3F90, dtype=np.uint32) << 16).view("f4")
    assert read_model(tmp_path / "local")["w"] == expected.tobytes()


@pytest.mark.parametrize("source", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize(
    ("target", "dtype"),
    [(torch.bfloat16, BFLOAT16_BITS), (torch.float16, np.dtype("f2")), (torch.float32, np.dtype("f4"))],
)
def test_numbers_are_rounded_as_torch_rounds(source: torch.dtype, target: torch.dtype, dtype: object) -> None:
    numbers = torch.cat([torch.randn(70_000), torch.tensor([0.0, -0.0, 7e4, -1e39, 1e-45, torch.inf])])
    numbers = numbers.to(source)
    array, _ = adapter.to_numpy(numbers)
    found = rounded(array, np.dtype(dtype))  # type: ignore[call-overload]
    assert found.tobytes() == adapter.to_numpy(numbers.to(target))[0].tobytes()
    nan = rounded(adapter.to_numpy(torch.full((3,), torch.nan, dtype=source))[0], np.dtype(dtype))  # type: ignore[call-overload]
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
        Rounding(torch)  # type: ignore[arg-type]
