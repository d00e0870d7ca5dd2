"""The exact file: what is in it, bit for bit; other files and states in its place are refused."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lccodec
from lccodec import Chain, FormatError, validate
from lccodec.chain.read.checkpoint import open_exact
from lccodec.chain.store.directory import DirectoryStore, link_problem
from lccodec.constants import FORMAT_MINOR
from lccodec.container.reader import open_checkpoint
from lccodec.container.writer import to_bytes

from ...support.background import repeated
from ...support.strategies import ALL_DTYPES, STATES, installed, random_array
from ...support.walks import assert_same, walk


def saved(directory: Path, *states: Any, **options: Any) -> Path:
    with Chain(directory, newest="exact", **options) as chain:
        for step, state in enumerate(states):
            chain.save(step, state)
    return directory / "exact.lcc.h5"


@given(STATES, STATES)
def test_any_state_comes_back_bit_for_bit(
    tmp_path_factory: pytest.TempPathFactory, first: Any, second: Any
) -> None:
    directory = tmp_path_factory.mktemp("any")
    path = saved(directory, first, second, policy="small")
    assert_equal_states(Chain(directory).restore(), second)
    assert_equal_states(lccodec.load_file(path), second)
    assert validate(directory, deep=True) == []
    shutil.rmtree(directory)


def assert_equal_states(found: Any, state: Any) -> None:
    assert lccodec.save(found) == lccodec.save(state)


@pytest.mark.parametrize("name", installed(ALL_DTYPES))
def test_every_type(tmp_path: Path, name: str) -> None:
    state = {
        "weight": [random_array(name, shape, 3, special=0.5) for shape in ((), (0, 4), (3,), (200, 130))],
        "fortran": np.asfortranarray(random_array(name, (30, 20), 1)),
        "strided": random_array(name, (40,), 2)[::3],
        "bias": random_array(name, (300,), 4, special=1.0),
    }
    moved = {
        "weight": [np.roll(array, 1) for array in state["weight"]],
        "fortran": state["fortran"][::-1],
        "strided": state["strided"][::-1],
        "bias": state["bias"].copy(),
    }
    saved(tmp_path, state, moved, policy="lc-2", roles={"weight/*": "weight"})
    assert_same(Chain(tmp_path).restore(), moved)
    found = Chain(tmp_path).restore(keys=["weight/3", "bias"])
    assert_same(found, {"weight/3": moved["weight"][3], "bias": moved["bias"]})
    with open_checkpoint(tmp_path / "exact.lcc.h5") as reader:
        methods = {reader.frame_head(number, 4)[3] for number in range(len(reader.manifest.frames))}
    assert methods == {0}


def test_big_endian_and_bits(tmp_path: Path) -> None:
    state = {"big": np.arange(5.0).astype(">f8"), "half": np.zeros(3, lccodec.BFLOAT16_BITS)}
    saved(tmp_path, state)
    restored = Chain(tmp_path).restore(dtype="bits")
    np.testing.assert_array_equal(restored["big"], np.arange(5.0))
    assert restored["half"].dtype == lccodec.BFLOAT16_BITS


def test_several_threads_and_frames(tmp_path: Path) -> None:
    """Large frames are written side by side and hashed beside that."""
    rng = np.random.default_rng(0)
    state = {f"w{i}": rng.standard_normal((size, 1000), np.float32) for i, size in enumerate((900, 5, 2000))}
    state |= {f"b{i}": rng.standard_normal(100) for i in range(50)}
    path = saved(tmp_path, state)
    assert_same(Chain(tmp_path).restore(), state)
    assert validate(path, deep=True) == []
    assert path.stat().st_size < 1.01 * sum(array.nbytes for array in state.values()) + 10_000


@pytest.mark.slow
def test_a_thread_that_trains(tmp_path: Path) -> None:
    weight = np.zeros((1500, 1000), np.float32)

    def move() -> None:
        weight[:] += 1

    with repeated(move), Chain(tmp_path, "lc-3", newest="exact") as chain:
        for step in range(3):
            chain.save(step, {"weight": weight, "bias": weight[0]})
            restored = chain.restore()["weight"]
            assert (restored == np.floor(restored)).all()
    assert validate(tmp_path, deep=True) == []


def test_its_manifest(tmp_path: Path) -> None:
    states = walk(2)
    with Chain(tmp_path, "lc-3", newest="exact") as chain:
        chain.save(5, states[0])
        chain.save(8, states[1], {"loss": 1.5})
        info = chain.info()
    with open_exact(DirectoryStore(tmp_path)) as file:
        manifest = file.links[-1].manifest
        assert (manifest.step, manifest.parent, manifest.minor) == (8, None, FORMAT_MINOR)
        assert (manifest.is_exact, manifest.exact, manifest.policy) == (True, None, "lc-3")
        assert b'"exact":true' in manifest.to_bytes()
        assert file.links[-1].reader.root.hex() == info.exact_root
        assert file.metadata() == {"loss": "1.5"}
        assert file.info().exact
        assert file.info().lossy is False
    for path in tmp_path.glob("0*.lcc.h5"):
        with open_checkpoint(path) as reader:
            assert not reader.manifest.is_exact
            assert reader.manifest.exact is not None


def test_another_file_of_that_name_is_refused(tmp_path: Path) -> None:
    lccodec.save_file({"x": 1}, tmp_path / "exact.lcc.h5")
    with pytest.raises(FormatError, match="and is another file") as caught:
        open_exact(DirectoryStore(tmp_path))
    assert caught.value.rule == "LCC-EXA-01"


def test_links(tmp_path: Path) -> None:
    saved(tmp_path, *walk(3), policy="lc-3")
    newest = tmp_path / "000000000002.lcc.h5"
    with open_checkpoint(tmp_path / "exact.lcc.h5") as exact:
        assert link_problem(exact, DirectoryStore(tmp_path)) == (True, None)
        saved(tmp_path / "other", *walk(3), policy="lc-2")
        sound = newest.read_bytes()
        newest.write_bytes((tmp_path / "other" / newest.name).read_bytes())
        assert link_problem(exact, DirectoryStore(tmp_path)) == (
            *(False, "the exact file belongs to another checkpoint of step 2"),
        )
        newest.write_bytes(sound[:-1])
        usable, message = link_problem(exact, DirectoryStore(tmp_path))
        assert usable
        assert message is not None
        assert "is damaged" in message
        newest.unlink()
        assert link_problem(exact, DirectoryStore(tmp_path)) == (True, None)


def changed(directory: Path, change: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """Replace the exact file by that of a changed state, and let the checkpoint name it."""
    other, newest = directory / "other", directory / "000000000002.lcc.h5"
    path = saved(other, *[change(state) for state in walk(3)])
    with open_checkpoint(path) as exact, open_checkpoint(newest) as reader:
        frames = [bytes(reader.frame(number)[:]) for number in range(len(reader.manifest.frames))]
        manifest = replace(reader.manifest, exact=exact.root)
    shutil.copy(path, directory)
    shutil.rmtree(other)
    newest.write_bytes(to_bytes(frames, manifest))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda state: state | {"epoch": 7}, "the scalars are not"),
        (lambda state: {"epoch": state["epoch"], **state}, "the tree are not"),
        (lambda state: state | {"fixed": np.arange(999.0)}, "not of the type and shape"),
        (lambda state: state | {"fixed": np.arange(1000)}, "not of the type and shape"),
    ],
)
def test_the_validator_compares_it_with_its_checkpoint(tmp_path: Path, change: Any, message: str) -> None:
    saved(tmp_path, *walk(3), policy="lc-3")
    changed(tmp_path, lambda state: state)
    assert validate(tmp_path, deep=True) == []
    changed(tmp_path, change)
    (problem,) = validate(tmp_path, deep=True)
    assert (problem.rule, message in problem.message) == ("LCC-EXA-03", True)


def test_the_validator_tells_what_is_wrong(tmp_path: Path) -> None:
    path = saved(tmp_path, *walk(3), policy="lc-3")
    sound = path.read_bytes()
    Chain(tmp_path, newest="history").save(3, walk(4)[3])
    assert not path.exists()  # it would be of an older step
    assert validate(tmp_path) == []
    path.write_bytes(sound)
    assert validate(tmp_path) == []  # of an older step, as with exact_every
    with Chain(tmp_path / "other", newest="exact") as chain:
        for step in range(3):
            chain.save(step, walk(3, 1)[step])
    path.write_bytes((tmp_path / "other" / path.name).read_bytes())
    (problem,) = validate(tmp_path)
    assert (problem.rule, problem.where) == ("chain", "exact.lcc.h5")
    assert "belongs to another checkpoint of step 2" in problem.message
    shutil.rmtree(tmp_path / "other")
    for data, rule in ((sound[:-1], "LCC-H5-01"), (sound[:2000] + b"!" + sound[2001:], "LCC-MAN-08")):
        path.write_bytes(data)
        assert {problem.rule for problem in validate(tmp_path)} == {rule}
    shutil.copy(tmp_path / "000000000003.lcc.h5", path)
    assert [problem.rule for problem in validate(tmp_path)] == ["LCC-EXA-01"]
    path.write_bytes(sound)
    for checkpoint in tmp_path.glob("0*.lcc.h5"):
        checkpoint.unlink()
    assert validate(tmp_path) == []  # a chain of one step
    path.unlink()
    assert [problem.message for problem in validate(tmp_path)] == ["holds no checkpoint"]


@given(st.integers(0, 1 << 20), st.integers(0, 7))
def test_every_damage_is_found(tmp_path_factory: pytest.TempPathFactory, place: int, bit: int) -> None:
    directory = tmp_path_factory.getbasetemp() / "damage"
    if not directory.exists():
        saved(directory, {"weight": np.arange(300.0)})
        shutil.copy(directory / "exact.lcc.h5", directory.parent / "sound")
    data = bytearray((directory.parent / "sound").read_bytes())
    data[place % len(data)] ^= 1 << bit
    (directory / "exact.lcc.h5").write_bytes(data)
    assert validate(directory)
