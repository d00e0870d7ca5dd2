"""Names and types of a model that are not those of the chain: ties, wrappers, renames, casts."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import zstandard  # noqa: F401 - versions are compressed with it

from lccodec import BFLOAT16_BITS, ArgumentError, Chain
from lccodec.adapters import torch as adapter
from lccodec.adapters.weights import publish, pull

from ...support.commands import run as run_verb
from ...support.models import bytes_of, read_file, read_model, write_model
from ...support.weight_versions import pulled

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
