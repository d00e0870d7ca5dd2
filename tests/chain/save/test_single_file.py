import tracemalloc
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lccodec
from lccodec import ArgumentError, ChainError, FormatError, LccodecError
from lccodec.container.checkpoint import open_bytes

from ...support.strategies import ALL_DTYPES, installed, random_array
from ...support.walks import assert_same, save_all, walk


@pytest.mark.slow
@given(st.lists(st.sampled_from(installed(ALL_DTYPES)), max_size=6), st.integers(0, 2**32))
def test_bytes_and_back(names: list[str], seed: int) -> None:
    state = {f"{i} {name}": random_array(name, (3, i), seed + i) for i, name in enumerate(names)}
    assert_same(lccodec.load(lccodec.save(state)), state)


def test_file_and_back(tmp_path: Path) -> None:
    state = {"m": [np.ones((2, 2)), (b"\x00", "text", None, True, -0.0, 10**30)], "bare": np.float32(2)}
    path = tmp_path / "m.lcc.h5"
    lccodec.save_file(state, path, metadata={"by": "me"})
    restored = lccodec.load_file(path)
    assert_same(restored, {**state, "bare": np.array(2, np.float32)})
    with lccodec.open(path) as file:
        assert file.metadata() == {"by": "me"}
        assert file.info().step is None
    assert path.read_bytes() == lccodec.save(state, metadata={"by": "me"})
    lccodec.save_file({"other": 1}, path)  # as safetensors does, a file is replaced
    assert lccodec.load_file(path) == {"other": 1}
    assert [p.name for p in tmp_path.iterdir()] == ["m.lcc.h5"]


def test_hdf5_tools_open_it(tmp_path: Path) -> None:
    path = tmp_path / "m.lcc.h5"
    lccodec.save_file({"w": np.arange(1000.0)}, path)
    with h5py.File(path, "r") as file:
        assert sorted(file) == ["manifest", "payload"]
        assert bytes(file["manifest"][()]).startswith(b'{"lccodec":[1,1],')
        assert bytes(file["payload"][:2]) == b"LC"


@pytest.mark.parametrize("value", [1.5, "text", None, np.ones(3), [], {}])
def test_a_state_of_any_form(value: object) -> None:
    assert_same(lccodec.load(lccodec.save(value)), value)


def test_a_delta_alone_says_what_it_lacks(tmp_path: Path) -> None:
    with lccodec.Chain(tmp_path) as chain:
        save_all(chain, walk(2))
    path = tmp_path / "000000000001.lcc.h5"
    assert lccodec.load_file(path)["epoch"] == 1  # its parent lies beside it
    with pytest.raises(ChainError, match="step 0, is not at hand"):
        lccodec.load(path.read_bytes())


def test_bad_input(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match=r"'w'.*cannot be stored"):
        lccodec.save({"w": np.zeros(2, "U4")})
    with pytest.raises(FormatError, match="not an lccodec checkpoint"):
        lccodec.load(b"PK\x03\x04" * 100)
    with pytest.raises(LccodecError, match="No such file"):
        lccodec.load_file(tmp_path / "none.lcc.h5")
    path = tmp_path / "kept.lcc.h5"
    lccodec.save_file({"a": 1}, path)
    with pytest.raises(ArgumentError):
        lccodec.save_file({"a": object()}, path)
    assert lccodec.load_file(path) == {"a": 1}


@pytest.mark.slow
def test_a_state_is_saved_and_read_in_parts_of_the_memory_it_takes(tmp_path: Path) -> None:
    source = tmp_path / "values"
    np.random.default_rng(0).standard_normal(1 << 24).tofile(source)
    mapped = np.memmap(source, np.float64, "r")
    path = tmp_path / "state.lcc.h5"
    tracemalloc.start()
    lccodec.save_file({"large": mapped, "small": mapped[:1000]}, path)
    saving = tracemalloc.get_traced_memory()[1]
    tracemalloc.reset_peak()
    with lccodec.open(path) as file:
        small = file.get("small")
    reading = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    np.testing.assert_array_equal(small, mapped[:1000])
    assert saving < mapped.nbytes * 0.9  # it works on blocks of 32 MiB
    assert reading < 1 << 20


@pytest.mark.parametrize("name", ["000000000000.lcc.h5", "000000000007.lcc.h5"])
def test_a_checkpoint_of_a_chain_is_not_replaced(tmp_path: Path, name: str) -> None:
    """Nor is a file put where it would be taken for one."""
    with lccodec.Chain(tmp_path) as chain:
        chain.save(0, {"epoch": 1})
    with pytest.raises(ArgumentError, match="is a checkpoint of a chain"):
        lccodec.save_file({"epoch": 2}, tmp_path / name)
    assert chain.restore() == {"epoch": 1}
    assert chain.steps == [0]
    lccodec.save_file({"epoch": 2}, tmp_path / "best.lcc.h5")
    (tmp_path / "other").mkdir()
    lccodec.save_file({"epoch": 2}, tmp_path / "other" / name)  # where there is no chain, it is a name


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("text", "text"),
        (0.3, "0.3"),
        (7, "7"),
        (True, "true"),
        (float("nan"), "NaN"),
        (-np.inf, "-Infinity"),
        (np.float32(0.5), "0.5"),
        (np.int64(-3), "-3"),
        (np.bool_(False), "false"),
    ],
)
def test_numbers_of_metadata_become_their_json_text(value: object, text: str) -> None:
    with lccodec.chain.read.checkpoint.open_data(lccodec.save({}, metadata={"key": value})) as file:
        assert file.metadata() == {"key": text}


@pytest.mark.parametrize(
    "metadata", [{"a": None}, {"a": [1]}, {1: "a"}, {"a": "\ud800"}, {"\ud800": "a"}, ["a"], "a"]
)
def test_other_metadata_are_refused_before_anything_is_written(tmp_path: Path, metadata: Any) -> None:
    with pytest.raises(ArgumentError, match="metadata"):
        lccodec.save_file({"w": np.ones(3)}, tmp_path / "m.lcc.h5", metadata)
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_a_manifest_past_its_limit_is_refused_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lccodec.chain.save.encode.encode_content", None)  # nothing is encoded either
    with pytest.raises(ArgumentError, match="LCC-LIM-04"):
        lccodec.save_file({"w": np.ones(3), "log": "x" * (1 << 26)}, tmp_path / "m.lcc.h5")
    monkeypatch.setattr("lccodec.container.tree.MAX_NAME_CHARACTERS", 100)
    with pytest.raises(ArgumentError, match="names of more than 100 characters"):
        lccodec.save_file({"x" * 60: {"w": np.ones(3)}}, tmp_path / "m.lcc.h5")
    assert not list(tmp_path.iterdir())


def _rounds(count: int) -> list[dict[str, Any]]:
    generator = np.random.default_rng(1)
    state = {"layer": {"weight": generator.standard_normal((64, 64), np.float32)}, "round": 0}
    found = [state]
    for number in range(1, count):
        moved = state["layer"]["weight"] + generator.standard_normal((64, 64), np.float32) / 100
        state = {"layer": {"weight": moved}, "round": number}
        found.append(state)
    return found


@pytest.mark.parametrize("policy", ["lossless", "balanced", "lc-3"])
def test_deltas_in_memory(policy: str) -> None:
    states = _rounds(4)
    held = states[0]
    for state in states[1:]:
        before = held["layer"]["weight"].copy()
        update = lccodec.save(state, {"by": "me"}, policy=policy, reference=held)
        assert held["layer"]["weight"].tobytes() == before.tobytes()
        moved = float(np.sqrt(np.mean((state["layer"]["weight"] - before) ** 2)))
        held = lccodec.load(update, reference=held)
        error = np.sqrt(np.mean((held["layer"]["weight"] - state["layer"]["weight"]) ** 2))
        assert held["round"] == state["round"]
        assert error <= (0 if policy == "lossless" else moved)
        assert len(update) < len(lccodec.save(state)) * (1 if policy == "lossless" else 0.2)


def test_a_delta_in_memory_needs_its_reference() -> None:
    first, second, third = _rounds(3)
    update = lccodec.save(second, policy="balanced", reference=first)
    with pytest.raises(ChainError, match="parent, step 0, is not at hand"):
        lccodec.load(update)
    with pytest.raises(ChainError, match="is not the parent it was taken against"):
        lccodec.load(update, reference=third)
    whole = lccodec.save(second, policy="balanced")
    assert_same(lccodec.load(whole, reference=first), lccodec.load(whole))
    with pytest.raises(ArgumentError, match="policy"):
        lccodec.save(first, policy="none")
    with pytest.raises(ArgumentError, match="role"):
        lccodec.save(first, policy="balanced", roles={"*": "none"})


def test_a_delta_in_memory_to_a_state_of_another_form(tmp_path: Path) -> None:
    before = {"a": np.ones(3), "b": np.zeros((2, 0)), "c": "text"}
    after = {"b": np.zeros((2, 0)), "d": [np.ones(3), None], "a": np.ones((3, 1))}
    assert_same(lccodec.load(lccodec.save(after, reference=before), reference=before), after)
    with lccodec.Chain(tmp_path) as chain:
        save_all(chain, walk(2))
    data = (tmp_path / "000000000001.lcc.h5").read_bytes()
    with pytest.raises(ChainError, match="is not the parent"):
        lccodec.load(data, reference=before)


def test_the_root_of_a_reference_never_changes() -> None:
    """Both sides may have different versions: this stands for a reference in all of them."""
    reference = {"w": np.arange(5, dtype=np.float32), "n": [np.int8(3), "x"], "e": np.zeros((0, 2))}
    with open_bytes(lccodec.save({}, reference=reference)) as reader:
        (parent,) = reader.manifest.parents
    assert (parent.step, parent.root.hex()) == (
        0,
        "08d724feb41e533ffad4f44de9d6e2384b7b477630ed6c68d00d4501191773fc",
    )
