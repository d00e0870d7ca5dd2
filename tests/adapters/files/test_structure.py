"""A state is arrays by name, and comes back from a .safetensors file with its scalars.

So it does through `lccodec convert`.
"""

import collections
import json

import numpy as np
import pytest
import safetensors.numpy
import safetensors.torch
import torch
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

import lccodec
from lccodec.adapters import npz
from lccodec.adapters import safetensors as adapter
from lccodec.adapters import torch as in_torch
from lccodec.adapters.files import states
from lccodec.adapters.files.structure import choose, named_leaves, plain_names
from lccodec.cli.program import program
from lccodec.container.tree import leaf_name
from lccodec.errors import ArgumentError, LccodecError

from ...support.torch_states import assert_same, trained

STATE = {
    "model": {"w": np.ones((2, 2), np.float32), "a/b~c": np.arange(3)},
    "none": None,
    "text": "ü",
    "bytes": b"\0\xff",
    "numbers": [1, -2.5, True, 2**63, 10**30, float("inf"), -0.0],
    "zero": np.zeros((), np.int64),
    "nested": ({}, [], (), {"": None}),
    "": "empty",
}


def command(*words, code=0):
    result = CliRunner().invoke(program, [str(word) for word in words])
    assert result.exit_code == code, result.output
    return result


@pytest.mark.parametrize(
    "state", [STATE, None, "text", 3, 2.5, [], {}, {"a": None}, [np.ones(2)], np.ones(2), {"": None}]
)
def test_a_state_to_safetensors_and_back(tmp_path, state):
    a, b, c = (tmp_path / name for name in ("a.lcc.h5", "b.safetensors", "c.lcc.h5"))
    lccodec.save_file(state, a, {"own": "text"})
    command("convert", a, b)
    command("convert", b, c)
    assert lccodec.save(lccodec.load_file(c)) == lccodec.save(state)
    assert a.read_bytes() == c.read_bytes()


def test_tensors_are_there_for_whoever_reads_it(tmp_path):
    adapter.save_file(STATE, tmp_path / "a.safetensors", {"own": "text"})
    found = safetensors.numpy.load_file(tmp_path / "a.safetensors")
    numbers = {f"numbers/{i}" for i in (0, 1, 2, 3, 5, 6)}
    assert set(found) == {"model/w", "model/a/b~c", "zero"} | numbers
    metadata = adapter.load_metadata(tmp_path / "a.safetensors")
    assert metadata["own"] == "text"
    note = json.loads(metadata["lccodec.state"])
    assert note["scalars"] == {
        "none": None, "text": "ü", "bytes": {"b": "AP8="}, "numbers/4": 10**30, "nested/3/": None,
        "": "empty",
    }  # fmt: skip


def test_a_flat_state_of_arrays_has_no_note(tmp_path):
    adapter.save_file({"a/b": np.ones(2), "c": np.ones(())}, tmp_path / "a.safetensors")
    assert adapter.load_metadata(tmp_path / "a.safetensors") == {}


def test_a_training_state_of_torch_comes_back_with_its_types(tmp_path):
    _, optimizer, state = trained()
    scheduler = torch.optim.lr_scheduler.MultiStepLR(optimizer, [3, 8])
    state |= {
        "scheduler": scheduler.state_dict(),
        "eighth": torch.ones(3).to(torch.float8_e4m3fn),
        "nested": {"half": torch.ones(3, dtype=torch.bfloat16), "tied": state["model"]["0.weight"]},
        "none": None,
    }
    in_torch.save_file(state, tmp_path / "a.lcc.h5")
    command("convert", tmp_path / "a.lcc.h5", tmp_path / "b.safetensors")
    command("convert", tmp_path / "b.safetensors", tmp_path / "c.lcc.h5")
    back = in_torch.load_file(tmp_path / "c.lcc.h5")
    assert_same(back, state)
    assert type(back["scheduler"]["milestones"]) is collections.Counter
    assert back["nested"]["tied"] is back["model"]["0.weight"]
    assert list(back["optimizer"]["state"]) == list(range(6))
    tensors = safetensors.torch.load_file(tmp_path / "b.safetensors")
    assert tensors["eighth"].dtype == torch.float8_e4m3fn
    assert (tmp_path / "a.lcc.h5").read_bytes() == (tmp_path / "c.lcc.h5").read_bytes()


def test_a_note_of_other_tensors_is_passed_over(tmp_path):
    path = tmp_path / "a.safetensors"
    adapter.save_file(STATE, path)
    tensors = safetensors.numpy.load_file(path)
    note = adapter.load_metadata(path)
    for change in (
        lambda t: t.pop("model/w"),
        lambda t: t.update(more=np.ones(1)),
        lambda t: t.update({"numbers/0": np.ones(2)}),
        lambda t: t.update({"numbers/0": np.ones((), np.float32)}),
    ):
        changed = dict(tensors)
        change(changed)
        safetensors.numpy.save_file(changed, path, note)
        state, metadata = states.load_file(path)
        assert set(state) == {*changed, "none", "text", "bytes", "numbers/4", "nested/3/", ""}
        assert state["text"] == "ü"
        assert metadata == {}


@pytest.mark.parametrize(
    "note",
    [
        "", "[]", "{}", "3", "[" * 100_000, '{"tree": 3, "scalars": {}, "types": {}}',
        '{"tree": {"w": 1}, "scalars": {}, "types": {}}', '{"tree": {"w": 0}, "scalars": [], "types": {}}',
        '{"tree": {"w": 0}, "scalars": {"x": {"b": "?"}}, "types": {}}',
        '{"tree": {"w": 0}, "scalars": {"x": {"f": "1.0"}}, "types": 3}',
        '{"tree": ["x", 0], "scalars": {}, "types": {}}', '{"tree": true, "scalars": {}, "types": {}}',
        '{"tree": {"w": 0, "w/x": {"y": 0}}, "scalars": {}, "types": {}}',
        '{"tree": ' + '{"a":' * 70 + "0" + "}" * 70 + ', "scalars": {}, "types": {}}',
    ],
)  # fmt: skip
def test_a_note_that_is_none_never_stops_the_reader(tmp_path, note):
    path = tmp_path / "a.safetensors"
    safetensors.numpy.save_file({"w": np.ones(2)}, path, {"lccodec.state": note})
    try:
        state, _ = states.load_file(path)
        assert "w" in state
    except LccodecError as error:
        assert "lccodec.state" in str(error)


def test_a_state_whose_names_collide_is_refused(tmp_path):
    for state in ({"a": {"b": None}, "a/b": np.ones(1)}, {"a": {"b": None}, "a/b": "x"}):
        with pytest.raises(ArgumentError, match="both be named 'a/b'"):
            adapter.save_file(state, tmp_path / "a.safetensors")


def test_npz_says_where_to_go(tmp_path):
    lccodec.save_file(STATE, tmp_path / "a.lcc.h5")
    result = command("convert", tmp_path / "a.lcc.h5", tmp_path / "a.npz", code=2)
    assert "write a .safetensors or .lcc.h5 file, or choose arrays by --key" in result.stderr


@pytest.fixture
def run(tmp_path):
    _, _, state = trained()
    state |= {"flat.a": torch.ones(2), "flat.b": torch.zeros(2), "f8": torch.ones(3).to(torch.float8_e5m2)}
    state["model"]["f8"] = torch.ones(3).to(torch.float8_e5m2)
    with lccodec.Chain(tmp_path / "run", policy="lossless", adapter=in_torch) as chain:
        chain.save(0, state, {"own": "text"})
    return tmp_path / "run", state


@pytest.mark.parametrize("suffix", [".safetensors", ".lcc.h5"])
def test_restore_strips_what_is_before_the_names(run, tmp_path, suffix):
    directory, state = run
    output = tmp_path / f"w{suffix}"
    command("restore", directory, "-o", output, "--key", "model", "--strip")
    command("convert", output, tmp_path / "w.lcc.h5") if suffix != ".lcc.h5" else None
    found = in_torch.load_file(tmp_path / "w.lcc.h5")  # a .safetensors file has an order of its own
    assert_same(dict(sorted(found.items())), dict(sorted(state["model"].items())))
    if suffix == ".safetensors":
        assert set(adapter.load_file(output)) == set(state["model"])


def test_restore_of_what_begins_with_a_prefix(run, tmp_path):
    directory, _ = run
    output = tmp_path / "w.safetensors"
    for key in ("flat", "flat."):
        command("restore", directory, "-o", output, "--key", key, "--strip")
        assert sorted(adapter.load_file(output)) == ["a", "b"]
    command("restore", directory, "-o", output, "--key", "flat")
    assert sorted(adapter.load_file(output)) == ["flat.a", "flat.b"]
    command("restore", directory, "-o", output, "--key", "model/0", "--strip")
    assert sorted(adapter.load_file(output)) == ["bias", "weight"]
    command("restore", directory, "-o", output, "--key", "model/0.weight", "--key", "flat", "--strip")
    assert sorted(adapter.load_file(output)) == ["0.weight", "a", "b"]


def test_restore_with_a_strip_that_cannot_be(run, tmp_path):
    directory, _ = run
    output = tmp_path / "w.safetensors"
    result = command("restore", directory, "-o", output, "--strip", code=2)
    assert "--strip needs --key" in result.stderr
    result = command("restore", directory, "-o", output, "--strip", "--key", "mode", code=2)
    assert "'mode'" in result.stderr
    words = ("--key", "model/0", "--key", "model/1")
    result = command("restore", directory, "-o", output, *words, "--strip", code=2)
    assert "both be named" in result.stderr
    assert not output.exists()


def test_of_a_pattern_the_part_before_the_wildcard_is_removed():
    leaves = {"m/a.w": np.ones(2), "m/a.b": np.ones(1)}
    assert list(choose(leaves, {}, ["m/*"])[0]) == ["a.w", "a.b"]
    assert list(choose(leaves, {}, ["m/a.[bw]"])[0]) == ["w", "b"]
    assert list(choose(leaves, {}, ["*/a.w"])[0]) == ["m/a.w", "m/a.b"]


@given(st.lists(st.text(st.sampled_from("ab/~01"), max_size=3), min_size=1, max_size=4))
def test_the_name_of_a_leaf_is_its_keys_as_they_are(keys):
    assert plain_names({leaf_name(tuple(keys)): 1}) == {"/".join(keys): 1}


def test_two_leaves_of_one_name_are_refused():
    with pytest.raises(ArgumentError, match="both be named 'a/b'"):
        plain_names({"a/b": 1, "a~1b": 2})


def test_numbers_become_arrays_and_what_none_can_hold_stays():
    state = {"m": [np.ones(2), 1, -2.5, True, 2**63], "x": (None, "text", b"raw", 2**64), "": {"": 3}}
    arrays, others = named_leaves(state)
    assert {name: array.dtype.name for name, array in arrays.items()} == {
        "m/0": "float64",
        "m/1": "int64",
        "m/2": "float64",
        "m/3": "bool",
        "m/4": "uint64",
        "/": "int64",
    }
    assert [int(arrays[name]) for name in ("m/1", "m/4", "/")] == [1, 2**63, 3]
    assert others == {"x/0": None, "x/1": "text", "x/2": b"raw", "x/3": 2**64}


def test_an_array_in_two_places_has_both_names():
    array = np.ones(2)
    arrays, _ = named_leaves({"a": array, "b": [array]})
    assert arrays["a"] is arrays["b/0"] is array


@pytest.mark.parametrize(
    ("value", "kind"),
    [(None, "NoneType"), ("x", "str"), (b"x", "bytes"), (-(2**63) - 1, "int of more than 64 bits")],
)
def test_a_scalar_that_no_array_can_hold_is_refused(tmp_path, value, kind):
    with pytest.raises(ArgumentError, match=f"state entry 'a/0' is a {kind}: an .npz file holds"):
        npz.save_file({"a": [value]}, tmp_path / "a.npz")


def test_an_array_that_cannot_be_stored_is_named():
    with pytest.raises(ArgumentError, match="array 'a': dtype"):
        named_leaves({"a": np.ones(2, np.dtype([("x", "f4")]))})
