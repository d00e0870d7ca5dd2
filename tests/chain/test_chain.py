from __future__ import annotations

import errno
import subprocess
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lccodec
from lccodec import (
    ArgumentError,
    Chain,
    ChainError,
    ChecksumError,
    DataError,
    ExponentBuckets,
    FormatError,
    Lossless,
    Policy,
    StorageError,
    UniformDeadzone,
    encode,
)
from lccodec.chain.jobs import RUN_ARRAY
from lccodec.container.system import System
from lccodec.policy.record import Record, read_record

from ..support.adam import adam_states
from ..support.oracle import lc_reconstruct
from ..support.strategies import ALL_DTYPES, bits_of, installed, random_array


def walk(steps: int, seed: int = 0, shape: tuple[int, ...] = (40, 30)) -> list[dict[str, Any]]:
    """States of a random walk, as training makes them."""
    rng = np.random.default_rng(seed)
    weight = rng.standard_normal(shape).astype(np.float32)
    bias = np.zeros(shape[0], np.float32)
    states = []
    for step in range(steps):
        weight = weight + (rng.standard_normal(shape) * 0.01).astype(np.float32)
        bias = bias + (rng.standard_normal(shape[0]) * 0.01).astype(np.float32)
        states.append({"layer": {"weight": weight, "bias": bias}, "fixed": np.arange(1000.0), "epoch": step})
    return states


def assert_same(left: Any, right: Any) -> None:
    if isinstance(left, np.ndarray):
        assert left.dtype == right.dtype
        assert left.shape == right.shape
        np.testing.assert_array_equal(bits_of(left), bits_of(right))
    elif isinstance(left, dict):
        assert list(left) == list(right)
        for key in left:
            assert_same(left[key], right[key])
    elif isinstance(left, list | tuple):
        assert type(left) is type(right)
        for a, b in zip(left, right, strict=True):
            assert_same(a, b)
    else:
        assert type(left) is type(right)
        assert left == right


def test_every_step_of_a_lossless_chain(tmp_path: Path) -> None:
    states = walk(12)
    with Chain(tmp_path, policy="lossless") as chain:
        for step, state in enumerate(states):
            chain.save(10 * step, state)
        assert chain.steps == [10 * step for step in range(12)]
        for step, state in enumerate(states):
            assert_same(chain.restore(10 * step), state)
        assert_same(chain.restore(), states[-1])


@given(st.data())
def test_states_of_every_dtype_and_form(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """Arrays appear, disappear, change shape and dtype, stay as they are: lossless restores them all."""
    with Chain(
        tmp_path_factory.mktemp("chain"), policy="lossless", keyframe_every=data.draw(st.integers(0, 4))
    ) as chain:
        states = []
        for step in range(data.draw(st.integers(1, 5))):
            names = data.draw(st.lists(st.sampled_from(["a", "b", "c/d", "e~", ""]), unique=True, max_size=4))
            state: dict[str, Any] = {}
            for name in names:
                dtype = data.draw(st.sampled_from(["float32", *installed(ALL_DTYPES)]))
                shape = data.draw(st.sampled_from([(), (5,), (2, 3), (0,)]))
                state[name] = random_array(dtype, shape, data.draw(st.integers(0, 3)))
            state["scalars"] = [
                data.draw(st.none() | st.booleans() | st.integers() | st.text(max_size=3)),
                (1.5,),
            ]
            chain.save(step, state)
            states.append(state)
        for step, state in enumerate(states):
            assert_same(chain.restore(step), state)


@pytest.mark.parametrize("bits", [2, 3])
def test_lc_chains_are_the_papers_closed_loop(tmp_path: Path, bits: int) -> None:
    states = walk(6)
    expected = states[0]["layer"]["weight"]
    with Chain(tmp_path, policy=f"lc-{bits}") as chain:
        for step, state in enumerate(states):
            chain.save(step, state)
            if chain.info(step).parent is None:
                expected = state["layer"]["weight"]
            else:
                expected = lc_reconstruct(state["layer"]["weight"], expected, bits, "float32")
            np.testing.assert_array_equal(bits_of(chain.restore(step)["layer"]["weight"]), bits_of(expected))


@given(st.integers(0, 2**32), st.floats(1e-4, 1e-1))
def test_the_error_does_not_grow_along_a_chain(
    tmp_path_factory: pytest.TempPathFactory, seed: int, bound: float
) -> None:
    states = walk(8, seed, (20, 10))
    policy = Policy("bounded", {"weight": UniformDeadzone(max_error=bound)})
    with Chain(tmp_path_factory.mktemp("chain"), policy=policy) as chain:
        for step, state in enumerate(states):
            chain.save(step, state)
        for step, state in enumerate(states):
            error = np.abs(
                chain.restore(step)["layer"]["weight"].astype(np.float64) - state["layer"]["weight"]
            )
            assert error.max() <= bound


def test_a_chain_goes_on_in_another_process(tmp_path: Path) -> None:
    """Same files, whether one process wrote them or several did (closed loop, determinism)."""
    program = """
import sys, numpy as np, lccodec
sys.path.insert(0, sys.argv[1])
from tests.chain.test_chain import walk
states = walk(9)
first, last = int(sys.argv[3]), int(sys.argv[4])
with lccodec.Chain(sys.argv[2], policy="lc-3", keyframe_every=4) as chain:
    for step in range(first, last):
        chain.save(step, states[step])
"""
    root = str(Path(__file__).parents[2])
    for name, spans in {"one": [(0, 9)], "three": [(0, 3), (3, 4), (4, 9)]}.items():
        for first, last in spans:
            subprocess.run(
                [sys.executable, "-c", program, root, str(tmp_path / name), str(first), str(last)],
                check=True,
                cwd=root,
            )
    files = {name: {p.name: p.read_bytes() for p in (tmp_path / name).iterdir()} for name in ("one", "three")}
    assert len(files["one"]) == 9
    assert files["one"] == files["three"]


def test_a_restore_never_replays_more_deltas_than_it_may(tmp_path: Path) -> None:
    states = walk(80, shape=(300, 200))
    with Chain(tmp_path, policy=Policy("rough", {"weight": ExponentBuckets(1)})) as chain:
        for step, state in enumerate(states):
            chain.save(step, state)
        deltas = [chain.info(step).deltas for step in chain.steps]
    assert max(deltas) == 32
    assert deltas.count(0) == 3


def test_deltas_that_outweigh_their_keyframe_end_it(tmp_path: Path) -> None:
    with Chain(tmp_path, policy="lossless") as chain:
        sizes = [chain.save(step, state) for step, state in enumerate(walk(20, shape=(100, 100)))]
        keyframe = [chain.info(step).parent is None for step in chain.steps]
    expected, key, deltas = [], 0, 0
    for size in sizes:
        if not expected or deltas > key:
            expected.append(True)
            key, deltas = size, 0
        else:
            expected.append(False)
            deltas += size
    assert keyframe == expected
    assert 2 < sum(keyframe) < 20


def test_what_did_not_change_costs_at_most_16_bytes(tmp_path: Path) -> None:
    still = {f"still {i}": np.random.default_rng(i).standard_normal(100) for i in range(500)}
    with Chain(tmp_path, policy="lc-2") as chain:
        chain.save(0, {"weight": np.zeros(10), **still})
        with_still = chain.save(1, {"weight": np.ones(10), **still})
        info = chain.info()
    assert {a.method for a in info.arrays if a.name != "weight"} == {"unchanged"}
    with Chain(tmp_path / "other", policy="lc-2") as chain:
        chain.save(0, {"weight": np.zeros(10)})
        without = chain.save(1, {"weight": np.ones(10)})
    assert with_still - without <= 16 * len(still)


@pytest.mark.parametrize("policy", ["lossless", "lc-3", "balanced"])
def test_the_tree_may_change_from_step_to_step(tmp_path: Path, policy: str) -> None:
    """Arrays come, go, and change their places: runs and roles are those of the step."""
    rng = np.random.default_rng(0)
    values = {name: rng.standard_normal(300, np.float32) for name in "abcdef"}
    trees = ["ab", "abc", "abc", "cab", "cab", "fab", "abcdef", "fedcba", "bd", "abd", "abd"]
    chain, saved = Chain(tmp_path, policy=policy, roles={"*": "weight"}), []
    for step, names in enumerate(trees):
        values = {name: value + 0.01 * rng.standard_normal(300, np.float32) for name, value in values.items()}
        chain.save(step, {name: values[name] for name in names})
        # What goes on in memory and what goes on from the files are the same.
        saved.append(Chain(tmp_path, policy=policy).restore())
        assert list(saved[-1]) == list(names)
        for name in names:
            np.testing.assert_allclose(saved[-1][name], values[name], atol=0.2)
            if policy == "lossless":
                assert_same(saved[-1][name], values[name])
        if policy != "lossless" and step == 1:
            assert not np.array_equal(saved[-1]["a"], values["a"])
    for step, state in enumerate(saved):
        assert_same(chain.restore(step), state)


def test_a_role_is_that_of_the_names_of_the_step(tmp_path: Path) -> None:
    """``m`` is a moment where there is ``v`` beside it."""
    policy = Policy("mine", {"first_moment": UniformDeadzone(step=10.0)})
    chain = Chain(tmp_path, policy=policy)
    still = np.random.default_rng(0).standard_normal(5000)  # that deltas stay smaller than the keyframe
    for step, names in enumerate(["m", "m", "mv", "m", "mv"]):
        moving = {name: np.full(300, step, np.float32) for name in names}
        chain.save(step, {"still": still, **moving})
        exact = step == 0 or "v" not in names
        assert bool((chain.restore()["m"] == step).all()) == exact
    with pytest.raises(ArgumentError, match="unknown role 'no role' of 'm'"):
        Chain(tmp_path, roles={"m": "no role"})  # type: ignore[dict-item]


def test_one_object_twice_is_stored_once(tmp_path: Path) -> None:
    shared = np.random.default_rng(0).standard_normal((50, 50))
    with Chain(tmp_path, policy="lossless") as chain:
        alone = chain.save(0, {"a": shared, "b": None})
        twice = chain.save(1, {"a": shared + 1, "b": None})
        tied = shared + 2
        chain.save(2, {"a": tied, "b": tied})
        state = chain.restore()
        chain.save(3, {"a": tied + 1, "b": [tied, tied]})
    assert state["a"] is state["b"]
    assert alone and twice
    with Chain(tmp_path) as chain:
        last = chain.restore()
    assert last["b"][0] is last["b"][1] is not last["a"]
    np.testing.assert_array_equal(last["a"], tied + 1)


def test_a_state_may_change_in_place_between_saves(tmp_path: Path) -> None:
    state = {"w": np.zeros(100, np.float32)}
    with Chain(tmp_path, policy="lossless") as chain:
        for step in range(5):
            state["w"] += step
            chain.save(step, state)
        restored = chain.restore(3)["w"]
        assert (restored == 6).all()
        restored += 1  # what is handed out is the caller's own
        chain.save(9, state)
        assert (chain.restore()["w"] == 10).all()


def test_only_what_is_asked_for(tmp_path: Path) -> None:
    states = walk(4)
    with Chain(tmp_path, policy="lossless") as chain:
        for step, state in enumerate(states):
            chain.save(step, state)
        part = chain.restore(2, keys=["layer/bias", "epoch"])
        assert list(part) == ["layer/bias", "epoch"]
        np.testing.assert_array_equal(part["layer/bias"], states[2]["layer"]["bias"])
        assert part["epoch"] == 2
        assert set(chain.restore(keys=["layer"])) == {"layer/weight", "layer/bias"}
        with pytest.raises(ArgumentError, match="layer/wieght"):
            chain.restore(keys=["layer/wieght"])


def test_metadata_and_info(tmp_path: Path) -> None:
    with Chain(tmp_path, policy="lc-3") as chain:
        states = walk(2)
        chain.save(5, states[0], metadata={"run": "first"})
        size = chain.save(7, states[1])
        first, second = chain.info(5), chain.info()
    assert (first.step, first.parent, first.metadata, first.policy) == (5, None, {"run": "first"}, "lc-3")
    assert (second.step, second.parent, second.deltas, second.file_bytes) == (7, 5, 1, size)
    assert second.nbytes == 40 * 30 * 4 + 40 * 4 + 8000
    weight = next(a for a in second.arrays if a.name == "layer/weight")
    assert (weight.dtype, weight.shape, weight.method, weight.relative) == (
        "float32",
        (40, 30),
        "codebook",
        True,
    )


def chain_of(tmp_path: Path, steps: int = 4) -> tuple[Chain, list[dict[str, Any]]]:
    states = walk(steps)
    chain = Chain(tmp_path, policy="lossless", keyframe_every=2)
    for step, state in enumerate(states):
        chain.save(step, state)
    return chain, states


@pytest.mark.parametrize(
    ("act", "error", "words"),
    [
        (lambda c: c.restore(99), ChainError, r"no step 99; the nearest is 3"),
        (lambda c: c.info("latest"), ArgumentError, "a step is an integer, not 'latest'"),
        (lambda c: c.save(3, {}), ArgumentError, "step 3 exists already"),
        (lambda c: c.save(1, {}), ArgumentError, "step 1 exists already"),
        (lambda c: c.save(-1, {}), ArgumentError, "from 0"),
        (lambda c: c.save(True, {}), ArgumentError, "a step is an integer"),
        (lambda c: c.save(2**53, {}), ArgumentError, "from 0"),
        (lambda c: c.save(9, {"a": {"b": np.array([None])}}), ArgumentError, "a/b"),
        (lambda c: c.save(9, {"a": {3: np.ones(2)}}), ArgumentError, "3"),
        (lambda c: c.save(9, {"a": {"when": np.zeros(2, "M8[s]")}}), ArgumentError, "a/when.*datetime64"),
        (lambda c: c.save(9, {"a": {1, 2}}), ArgumentError, "set"),
        (lambda c: c.save(9, {"a": 1}, metadata={"a": None}), ArgumentError, "metadata"),
    ],
)
def test_bad_calls_are_refused_and_nothing_is_lost(tmp_path: Path, act: Any, error: type, words: str) -> None:
    chain, states = chain_of(tmp_path)
    before = {p.name: p.read_bytes() for p in tmp_path.iterdir()}
    with pytest.raises(error, match=words):
        act(chain)
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == before
    for step, state in enumerate(states):
        assert_same(chain.restore(step), state)
    chain.save(10, states[0])  # and the chain goes on
    assert_same(chain.restore(), states[0])
    assert chain.info().parent == 3


def test_a_step_before_the_latest_is_out_of_order(tmp_path: Path) -> None:
    with Chain(tmp_path) as chain:
        chain.save(10, {"a": 1})
        with pytest.raises(ArgumentError, match="step 5 is before the latest"):
            chain.save(5, {"a": 1})


def test_an_empty_directory(tmp_path: Path) -> None:
    with pytest.raises(ChainError, match="holds no checkpoint"):
        Chain(tmp_path / "new").restore()
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="not a directory"):
        Chain(tmp_path / "file")


def test_a_missing_parent_is_named(tmp_path: Path) -> None:
    chain, states = chain_of(tmp_path)
    (tmp_path / "000000000001.lcc.h5").unlink()
    with pytest.raises(ChainError, match=r"000000000002\.lcc\.h5: its parent, step 1, is missing"):
        chain.restore(2)
    assert_same(chain.restore(0), states[0])
    assert_same(chain.restore(3), states[3])  # a keyframe


def test_a_swapped_parent_is_noticed(tmp_path: Path) -> None:
    chain_of(tmp_path / "one")
    with Chain(tmp_path / "two", policy="lossless", keyframe_every=2) as chain:
        for step, state in enumerate(walk(4, seed=1)):
            chain.save(step, state)
    name = "000000000001.lcc.h5"
    (tmp_path / "one" / name).write_bytes((tmp_path / "two" / name).read_bytes())
    with pytest.raises(ChainError, match="is not the parent it was taken against"):
        Chain(tmp_path / "one").restore(2)


def test_a_renamed_checkpoint_is_noticed(tmp_path: Path) -> None:
    chain, _ = chain_of(tmp_path)
    (tmp_path / "000000000003.lcc.h5").rename(tmp_path / "000000000008.lcc.h5")
    with pytest.raises(FormatError, match="LCC-CHN-01"):
        chain.restore(8)


def test_foreign_files_and_half_written_ones_are_left_out(tmp_path: Path) -> None:
    chain, states = chain_of(tmp_path)
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "model.lcc.h5").write_bytes(b"also mine")
    (tmp_path / "0000000000009.lcc.h5").write_bytes(b"13 digits, the first of them 0")
    (tmp_path / "00000000000\u0669.lcc.h5").write_bytes(b"a digit that is not ASCII")
    (tmp_path / ".tmp-00aa").write_bytes(b"half")
    (tmp_path / "subdirectory").mkdir()
    assert chain.steps == [0, 1, 2, 3]
    chain.save(4, states[0])
    assert_same(chain.restore(), states[0])
    assert {p.name for p in tmp_path.iterdir()} >= {"notes.txt", "model.lcc.h5", "subdirectory"}
    assert not (tmp_path / ".tmp-00aa").exists()


def test_another_writer_is_noticed(tmp_path: Path) -> None:
    states = walk(4)
    with Chain(tmp_path, policy="lossless") as one, Chain(tmp_path, policy="lossless") as two:
        one.save(0, states[0])
        two.save(1, states[1])
        one.save(2, states[2])  # against step 1, which it did not write
        assert one.info().parent == 1
        assert_same(two.restore(), states[2])


@pytest.mark.parametrize("place", [0.02, 0.3, 0.6, 0.95])
def test_a_damaged_checkpoint_is_an_error_that_names_it(tmp_path: Path, place: float) -> None:
    chain, states = chain_of(tmp_path)
    path = tmp_path / "000000000001.lcc.h5"
    data = bytearray(path.read_bytes())
    data[int(len(data) * place)] ^= 0x10
    path.write_bytes(bytes(data))
    with pytest.raises(DataError, match=r"000000000001\.lcc\.h5"):
        chain.restore(1)
    for step in (0, 3):
        assert_same(chain.restore(step), states[step])


@pytest.mark.parametrize("call", ["open", "write", "fsync", "link"])
def test_a_full_disk_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    chain, states = chain_of(tmp_path)

    def refuse(*_: object, **__: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(System, call, staticmethod(refuse))
        with pytest.raises(StorageError, match="No space left") as caught:
            chain.save(4, states[0])
    assert caught.value.errno == errno.ENOSPC
    assert sorted(p.name for p in tmp_path.iterdir()) == [f"{s:012d}.lcc.h5" for s in range(4)]
    for step, state in enumerate(states):
        assert_same(chain.restore(step), state)
    chain.save(4, states[1])  # the reference in memory is not one that was never stored
    assert_same(chain.restore(4), states[1])


def test_open_reads_one_array(tmp_path: Path) -> None:
    _, states = chain_of(tmp_path)
    with lccodec.open(tmp_path / "000000000002.lcc.h5") as file:
        assert file.keys() == ["layer/weight", "layer/bias", "fixed"]
        np.testing.assert_array_equal(file.get("layer/weight"), states[2]["layer"]["weight"])
        assert file.metadata() == {}
        with pytest.raises(ArgumentError, match="layer/weights"):
            file.get("layer/weights")
        with pytest.raises(ArgumentError, match="not an array"):
            file.get("epoch")


def test_bfloat16_without_its_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bits = np.array([0x3F80, 0x4000], np.uint16).view(lccodec.BFLOAT16_BITS)
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    with Chain(tmp_path) as chain:
        chain.save(0, {"w": bits})
        with pytest.raises(lccodec.DependencyError, match=r"lccodec\[bfloat16\]"):
            chain.restore()
        assert chain.restore(dtype="float32")["w"].tolist() == [1.0, 2.0]


def test_a_frame_of_a_wrong_form_for_its_parent_is_refused(tmp_path: Path) -> None:
    """A hostile delta with right hashes: its frame has another shape than the parent's array."""
    from lccodec.container.manifest import Manifest, Parent
    from lccodec.container.reader import open_checkpoint
    from lccodec.container.writer import CheckpointWriter

    with Chain(tmp_path, policy="lossless") as chain:
        chain.save(0, {"w": np.zeros(4, np.float32)})
    with open_checkpoint(tmp_path / "000000000000.lcc.h5") as reader:
        root = reader.root
    other = np.zeros(5, np.float32)
    with CheckpointWriter(tmp_path / "000000000001.lcc.h5") as writer:
        entry = writer.write_frame(lccodec.encode(other + 1, lccodec.Lossless(), other))
        writer.commit(Manifest(1, Parent(0, root), "lossless", {}, {"w": 0}, [], (1,), (entry,)))
    with pytest.raises(FormatError) as caught:
        chain.restore(1)
    assert caught.value.rule == "LCC-CHN-03"


def test_roles_and_the_policy_of_a_checkpoint(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    names = ["w", "opt/m", "opt/v", "count"]
    rough = Policy("rough", {"weight": ExponentBuckets(1), "second_moment": UniformDeadzone(step=1.0)})
    states = [{name: generator.normal(size=100) for name in names} for _ in range(3)]
    exact = []
    for step, (state, roles) in enumerate(zip(states, ({}, {}, {"w": "other"}), strict=True)):
        with Chain(tmp_path, policy=rough, roles=roles) as chain:
            chain.save(step, state)
            restored = chain.restore(step)
            exact.append([name for name in names if np.array_equal(state[name], restored[name])])
            assert read_record(chain.info().policy) == Record(rough, roles)
    assert exact == [names, ["opt/m", "count"], ["w", "opt/m", "count"]]


def test_a_large_frame_is_read_and_decoded_block_by_block(tmp_path: Path) -> None:
    values = np.random.default_rng(0).standard_normal(1 << 24).astype(np.float32)
    with lccodec.Chain(tmp_path) as chain:
        stored = chain.save(1, {"w": values})
        tracemalloc.start()
        restored = chain.restore(1)["w"]
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    np.testing.assert_array_equal(restored, values)
    assert stored > 50 << 20
    assert peak - values.nbytes < 40 << 20


def test_frames_read_in_parts_are_verified_like_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lccodec.container.reader._WHOLE", 0)
    rng = np.random.default_rng(0)
    state = {"w": rng.standard_normal(5000), "n": rng.integers(0, 9, 3000), "raw": rng.integers(0, 2**63, 9)}
    with lccodec.Chain(tmp_path, policy="lc-3") as chain:
        chain.save(1, state)
        chain.save(2, {**state, "w": state["w"] + 0.01 * rng.standard_normal(5000)})
        np.testing.assert_array_equal(chain.restore(1)["w"], state["w"])
        np.testing.assert_array_equal(chain.restore(2)["n"], state["n"])
        np.testing.assert_array_equal(chain.restore(2)["raw"], state["raw"])
        path = tmp_path / "000000000001.lcc.h5"
        data = bytearray(path.read_bytes())
        data[1072 + 3000] ^= 1
        path.write_bytes(data)
        with pytest.raises(ChecksumError) as caught:
            chain.restore(1)
    assert caught.value.rule == "LCC-MAN-08"


def test_lossless_takes_the_smaller_coding(tmp_path: Path) -> None:
    """A first moment alone, weights and second moments as differences, every bit of all."""
    states = adam_states(3)
    with Chain(tmp_path, "lossless") as chain:
        for step, state in enumerate(states):
            chain.save(step, state)
            restored = chain.restore()
            for part, arrays in state.items():
                for name, array in arrays.items():
                    np.testing.assert_array_equal(restored[part][name], array)
        stored = {array.name: array for array in chain.info().arrays}
    for name, array in stored.items():
        if array.shape[0] > RUN_ARRAY:
            assert array.relative == (not name.startswith("exp_avg/"))
    last, before = (state["exp_avg"]["large"] for state in states[:0:-1])
    assert stored["exp_avg/large"].stored_bytes < 0.98 * len(encode(last, Lossless(), before))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_what_starts_at_zero_takes_no_more_than_its_difference(tmp_path: Path, dtype: type) -> None:
    """As the moments of a run that is tuned finely from another's weights."""
    rng = np.random.default_rng(0)
    m = (1e-4 * rng.standard_normal(100_000)).astype(dtype)
    state = {"exp_avg": m, "exp_avg_sq": m**2}
    with Chain(tmp_path, "lossless") as chain:
        chain.save(0, {name: np.zeros_like(array) for name, array in state.items()})
        chain.save(1, state)
        for array in chain.info().arrays:
            frame = encode(state[array.name], Lossless(), np.zeros_like(m))
            assert array.stored_bytes <= 1.0001 * len(frame)


def test_absolute_quantizers_need_no_parent(tmp_path: Path) -> None:
    """Neither alone nor in a run; what is unchanged is still taken from the parent."""
    generator = np.random.default_rng(0)
    policy = Policy("m", {"first_moment": UniformDeadzone(relative_step=1.0, absolute=True)})
    names = ["exp_avg/large", "exp_avg/small", "exp_avg/smaller"]
    moments = {
        name: generator.normal(size=size).astype(np.float32)
        for name, size in zip(names, (40_000, 500, 5), strict=True)
    }
    with Chain(tmp_path, policy=policy) as chain:
        chain.save(0, {**moments, "w": np.ones(3)})
        moments = {name: -moment for name, moment in moments.items()}
        chain.save(1, {**moments, "w": np.ones(3)})
        restored = chain.restore()
        info = chain.info()
    assert info.parent == 0
    assert not any(array.relative for array in info.arrays)
    for name, moment in moments.items():
        assert (restored[name] * moment >= 0).all()
        assert 0.5 < np.linalg.norm(restored[name]) / np.linalg.norm(moment) < 1.1


def test_an_array_in_another_order_is_converted_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where a policy looks at all arrays before any is coded."""
    converted = 0
    contiguous = np.ascontiguousarray

    def counted(array: Any, *arguments: Any, **options: Any) -> Any:
        nonlocal converted
        converted += array.shape == (300, 200)
        return contiguous(array, *arguments, **options)

    states = [np.asfortranarray(state["layer"]["weight"]) for state in walk(3, shape=(300, 200))]
    with Chain(tmp_path, "balanced") as chain:
        chain.save(0, {"weight": states[0]})
        monkeypatch.setattr(np, "ascontiguousarray", counted)
        for step in (1, 2):
            chain.save(step, {"weight": states[step]})
    assert converted == 2
