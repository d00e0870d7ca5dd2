"""A state as named arrays, and files that are written whole."""

import errno
import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lccodec
from lccodec.adapters.files.formats import (
    named_arrays,
    named_leaves,
    plain_names,
    regular_file,
    replacing,
    steps_in_names,
    storage,
)
from lccodec.container.tree import leaf_name
from lccodec.errors import ArgumentError, StorageError

# --- names ----------------------------------------------------------------------------------------


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
def test_a_scalar_that_no_array_can_hold_is_refused(value, kind):
    with pytest.raises(ArgumentError, match=f"state entry 'a/0' is a {kind}: an .x file holds"):
        named_arrays({"a": [value]}, "an .x")


def test_an_array_that_cannot_be_stored_is_named():
    with pytest.raises(ArgumentError, match="array 'a': dtype"):
        named_leaves({"a": np.ones(2, np.dtype([("x", "f4")]))})


@pytest.mark.parametrize(
    ("names", "steps"),
    [
        (["v2_step10.npz", "v2_step9.npz"], {9: "v2_step9.npz", 10: "v2_step10.npz"}),
        (["epoch=3-step=0070.ckpt"], {70: "epoch=3-step=0070.ckpt"}),
        (["1.npz", "final.npz"], None),
        (["final.h5"], None),
        ([], {}),
    ],
)
def test_steps_in_names(names, steps):
    found = steps_in_names(map(Path, names))
    assert found == (None if steps is None else {step: Path(name) for step, name in steps.items()})
    assert found is None or list(found) == sorted(found)


def test_two_files_of_one_step_are_refused():
    with pytest.raises(ArgumentError, match=r"a/7\.npz and b/07\.npz are both of step 7"):
        steps_in_names([Path("a/7.npz"), Path("b/07.npz")])


# --- files ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["directory", "fifo", "missing"])
def test_what_is_no_regular_file_is_refused_at_once(tmp_path, kind):
    path = tmp_path / "x"
    if kind == "directory":
        path.mkdir()
    elif kind == "fifo":
        os.mkfifo(path)
    with pytest.raises(StorageError, match="cannot read") as caught, regular_file(path):
        pass
    assert caught.value.filename == str(path)


def test_a_file_takes_the_place_of_another_once_it_is_written(tmp_path):
    path = tmp_path / "a"
    path.write_bytes(b"old")
    with replacing(path) as temporary:
        temporary.write_bytes(b"new")
        assert path.read_bytes() == b"old"
    assert path.read_bytes() == b"new"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("error", [KeyboardInterrupt(), OSError(errno.ENOSPC, "full"), ValueError("x")])
def test_what_fails_leaves_what_was_there_and_no_temporary(tmp_path, error):
    path = tmp_path / "a"
    path.write_bytes(b"old")
    kind = StorageError if isinstance(error, OSError) else type(error)
    with pytest.raises(kind), replacing(path) as temporary:
        temporary.write_bytes(b"new")
        raise error
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_new_file_has_ordinary_permissions(tmp_path):
    (tmp_path / "usual").touch()
    with replacing(tmp_path / "a") as temporary:
        temporary.write_bytes(b"new")
        temporary.chmod(0o600)  # as a library does that writes a file of its own
    assert (tmp_path / "a").stat().st_mode == (tmp_path / "usual").stat().st_mode


def test_an_error_of_the_system_says_what_was_done_and_where():
    with pytest.raises(StorageError, match="cannot write: full: 'x'"), storage("cannot write", "x"):
        raise OSError(errno.ENOSPC, "full")
    inner = StorageError(errno.EIO, "inner", "y")
    with pytest.raises(StorageError) as caught, storage("cannot write", "x"):
        raise inner
    assert caught.value is inner
    with pytest.raises(lccodec.ArgumentError), storage("cannot write", "x"):
        raise lccodec.ArgumentError("mine")


def test_what_is_written_is_never_open_to_more_readers_than_the_file(tmp_path):
    path = tmp_path / "secret"
    path.write_bytes(b"")
    path.chmod(0o600)
    with replacing(path) as temporary:
        assert temporary.stat().st_mode & 0o777 == 0o600
    (tmp_path / "link").symlink_to(path)
    with replacing(tmp_path / "link") as temporary:
        assert temporary.stat().st_mode & 0o777 == 0o600
        temporary.write_bytes(b"new")
    assert not (tmp_path / "link").is_symlink()  # the link is replaced, not what it points to
    assert path.read_bytes() == b""
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    with replacing(tmp_path / "dangling") as temporary:
        temporary.write_bytes(b"new")
    assert (tmp_path / "dangling").read_bytes() == b"new"
