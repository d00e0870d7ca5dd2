"""An open checkpoint: what it hands out, what it refuses, and what it tells of its arrays.

The exact file: what is in it, bit for bit; other files and states in its place are refused.
"""

import inspect
import os
import shutil
import sys
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lccodec
from lccodec import ArgumentError, Chain, ChainError, ChecksumError, FormatError, LccodecError, validate
from lccodec.chain.read.checkpoint import open_exact, open_path
from lccodec.chain.store.directory import DirectoryStore, link_problem
from lccodec.constants import FORMAT_MINOR, PAYLOAD_OFFSET
from lccodec.container.checkpoint import open_checkpoint, to_bytes

from ...support.background import repeated
from ...support.chains import HistoryChain
from ...support.damage import flip
from ...support.strategies import ALL_DTYPES, STATES, installed, random_array
from ...support.tuning import tune
from ...support.walks import assert_same, chain_of, save_all, walk


@pytest.fixture(name="directory", scope="module")
def _directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A chain whose small arrays share frames."""
    directory = tmp_path_factory.mktemp("chain")
    with HistoryChain(directory, "lossless") as chain:
        for step in (10, 20):
            small = {f"a{i}": np.full(500, step + i, np.float32) for i in range(30)}
            halves = {f"h{i}": np.full(300, step + i, ml_dtypes.bfloat16) for i in range(30)}
            chain.save(step, {"big": np.arange(40_000.0), "m": {**small, **halves}, "lr": 0.5})
    return directory


# --- memory ---------------------------------------------------------------------------------------


def held(array: np.ndarray) -> int:
    """Bytes that an array keeps in memory."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array.nbytes


def test_a_small_array_does_not_keep_its_run(directory: Path) -> None:
    path = directory / "000000000020.lcc.h5"
    with lccodec.open(path) as file:
        for name, nbytes in (("m/a3", 2000), ("m/h3", 600)):
            assert held(file.get(name)) == nbytes
            assert held(file.state([name])[name]) == nbytes
            assert held(file.get(name, "bits")) == nbytes
        assert held(file.get("m/h3", "float32")) == 1200
    for state in (
        HistoryChain(directory).restore(),
        lccodec.load_file(path),
        HistoryChain(directory).restore(10),
    ):
        assert {held(array) for array in state["m"].values()} == {2000, 600}
        state["m"]["a3"] += 1  # it is the caller's own
    data = lccodec.save({f"a{i}": np.full(500, i) for i in range(30)})
    assert {held(array) for array in lccodec.load(data).values()} == {4000}


def test_nothing_is_copied_that_has_its_own_memory(directory: Path) -> None:
    with lccodec.open(directory / "000000000020.lcc.h5") as file:
        assert file.get("m/a3").base is None  # a copy
        assert file.get("m/h3", "float32").base is not None  # made anew already
        assert file.get("big").base is not None
        assert held(file.get("big")) < 320_000 + 64


# --- what is refused ------------------------------------------------------------------------------


def test_a_string_is_one_key(directory: Path) -> None:
    chain = HistoryChain(directory)
    assert list(chain.restore(keys="m/a3")) == ["m/a3"]
    assert len(chain.restore(keys="m")) == 60
    assert chain.restore(keys="lr") == {"lr": 0.5}


@pytest.mark.parametrize("step", [np.int64(20), np.array(20), np.uint8(20)])
def test_whatever_counts_is_a_step(directory: Path, step: Any) -> None:
    assert HistoryChain(directory).info(step).step == 20
    assert HistoryChain(directory).restore(step, keys="lr") == {"lr": 0.5}


REFUSED: dict[str, tuple[Callable[[Chain], object], type[LccodecError], str]] = {
    "a float for a step": (lambda c: c.restore(30.0), ArgumentError, "a step must be an integer.*30.0"),
    "text for a step": (lambda c: c.restore("20"), ArgumentError, "a step must be an integer.*'20'"),
    "a bool for a step": (lambda c: c.info(True), ArgumentError, "a step must be an integer"),
    "an unknown step": (lambda c: c.restore(np.int64(21)), ChainError, "no step 21; the nearest is 20"),
    "a negative step": (lambda c: c.restore(-1), ChainError, "no step -1; the nearest is 10"),
    "None for a key": (lambda c: c.restore(keys=[None]), ArgumentError, "must be a string; got None"),
    "bytes for keys": (lambda c: c.restore(keys=b"m"), ArgumentError, "a name must be a string"),
    "a number for keys": (lambda c: c.restore(keys=3), ArgumentError, "keys must be names.*got 3"),
    "an unknown key": (lambda c: c.restore(keys="m/a31"), ArgumentError, "m/a31"),
    "another dtype": (lambda c: c.restore(dtype="float64"), ArgumentError, "'float32' or 'bits'.*'float64'"),
    "a NumPy dtype": (lambda c: c.restore(dtype=np.float32), ArgumentError, "'float32' or 'bits'"),
    "a dtype object": (lambda c: c.restore(dtype=np.dtype("float32")), ArgumentError, "'float32' or"),
}


@pytest.mark.parametrize("case", REFUSED.values(), ids=REFUSED)
def test_what_a_chain_refuses(
    directory: Path, case: tuple[Callable[[Chain], object], type[LccodecError], str]
) -> None:
    call, error, words = case
    with pytest.raises(error, match=words):
        call(HistoryChain(directory))


def test_a_typo_makes_no_directory(tmp_path: Path) -> None:
    chain = HistoryChain(tmp_path / "typo")
    assert chain.steps == []
    with pytest.raises(ChainError, match="holds no checkpoint: there is no such directory"):
        chain.restore()
    assert not (tmp_path / "typo").exists()


def test_a_closed_file_says_so(directory: Path) -> None:
    path = directory / "000000000020.lcc.h5"
    file = lccodec.open(path)
    file.get("m/a3")
    file.info()
    file.close()
    for use in (file.info, file.state, file.verify, lambda: file.get("m/a3"), lambda: file.state(["lr"])):
        with pytest.raises(ArgumentError, match=f"{path.name}: closed"):
            use()


def test_an_array_by_its_index(directory: Path) -> None:
    with open_path(directory / "000000000010.lcc.h5") as file:
        for index in (-1, 61, "0", None, 1.0):
            with pytest.raises(ArgumentError, match="must be the index of an array"):
                file.decode(index)


# --- odd arguments --------------------------------------------------------------------------------


ODD = [
    None, "", "a\0b", "x" * 300, "\ud800", 3, -1, 3.5, float("nan"), True, b"x", b"", [], [None], (), {},
    {"a": 1}, object(), int, np.array(3), np.array([1, 2]), np.array("a"), np.float32(1), np.dtype("f4"),
    Path("none"), Path("x" * 300), lambda: None, 10**30, iter([1]), {1, 2}, 1j, range(3), Ellipsis,
]  # fmt: skip


def using(path: Path, method: str) -> Callable[..., Any]:
    """Return a method of an open checkpoint as a function that closes it."""

    def call(*arguments: Any, **options: Any) -> Any:
        with lccodec.open(path) as file:
            return getattr(file, method)(*arguments, **options)

    call.__signature__ = inspect.signature(getattr(lccodec.CheckpointFile, method))
    return call


def surface(directory: Path) -> dict[str, tuple[Callable[..., Any], tuple[Any, ...]]]:
    """All public functions that read, with arguments for those that they need."""
    path = directory / "000000000010.lcc.h5"
    chain = HistoryChain(directory)
    functions: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
        "open": (lambda *a, **o: lccodec.open(*a, **o).close(), (path,)),
        "load": (lccodec.load, (path.read_bytes(),)),
        "load_file": (lccodec.load_file, (path,)),
        "validate": (lccodec.validate, (path,)),
        "Chain": (lambda *a, **o: Chain(*a, **o).steps, (directory,)),
        "Chain.restore": (chain.restore, ()),
        "Chain.restore_iter": (lambda **options: dict(chain.restore_iter(**options)), ()),
        "Chain.info": (chain.info, ()),
    }
    for method in ("get", "state"):
        functions[f"CheckpointFile.{method}"] = (
            using(path, method),
            ("big",) if method == "get" else (),
        )
    return functions


PARAMETERS = {
    "open": ["path", "step", "max_bytes", "max_deltas"],
    "load": ["data", "dtype", "reference", "max_bytes"],
    "load_file": ["path", "dtype", "max_bytes", "max_deltas"],
    "validate": ["path", "max_bytes", "max_deltas"],
    "Chain": ["directory", "workers", "newest", "reference"],
    "Chain.restore": ["step", "keys", "dtype", "max_bytes", "max_deltas"],
    "Chain.restore_iter": ["step", "keys", "dtype", "max_bytes", "max_deltas"],
    "Chain.info": ["step"],
    "CheckpointFile.get": ["name", "dtype", "rows"],
    "CheckpointFile.state": ["keys", "dtype"],
}


@pytest.mark.parametrize("odd", ODD, ids=lambda odd: repr(odd)[:20].replace("\0", "0"))
@pytest.mark.parametrize(("name", "parameter"), [(n, p) for n, ps in PARAMETERS.items() for p in ps])
def test_odd_arguments_are_refused_as_ours(
    directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, parameter: str, odd: Any
) -> None:
    """Whatever is passed, a call succeeds or raises one of lccodec's errors, and makes no file."""
    function, needed = surface(directory)[name]
    monkeypatch.chdir(tmp_path)
    options = {} if not needed or PARAMETERS[name][0] == parameter else {PARAMETERS[name][0]: needed[0]}
    try:
        function(**{**options, parameter: odd})
    except LccodecError as error:
        assert str(error)
    assert os.listdir(tmp_path) == []  # noqa: PTH208


def test_all_of_the_reading_surface_is_tried() -> None:
    left_out = {"self", "policy", "roles", "keyframe_every", "exact_every", "adapter", "keep"}  # of a writer
    left_out |= {"hindsight", "parity", "mirror", "mirror_keep", "mirror_timeout"}
    left_out |= {"max_concurrent_saves", "worker_timeout"}  # of workers
    left_out |= {"deep", "exact", "fallback"}  # any truth
    left_out |= {"progress"}  # what a function raises is not ours (test_progress.py)
    for name, parameters in PARAMETERS.items():
        function: Any = lccodec
        for part in name.split("."):
            function = getattr(function, part)
        assert set(inspect.signature(function).parameters) - left_out == set(parameters), name


# --- one file -------------------------------------------------------------------------------------


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
    with HistoryChain(tmp_path) as chain:
        chain.save(0, {"w": bits})
        with pytest.raises(lccodec.DependencyError, match=r"lccodec\[bfloat16\]"):
            chain.restore()
        assert chain.restore(dtype="float32")["w"].tolist() == [1.0, 2.0]


@pytest.mark.slow
def test_a_large_frame_is_read_and_decoded_block_by_block(tmp_path: Path) -> None:
    values = np.random.default_rng(0).standard_normal(1 << 24).astype(np.float32)
    with lccodec.Chain(tmp_path, "lossless") as chain:
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
    tune(monkeypatch, max_whole_bytes=0)
    rng = np.random.default_rng(0)
    state = {"w": rng.standard_normal(5000), "n": rng.integers(0, 9, 3000), "raw": rng.integers(0, 2**63, 9)}
    with lccodec.Chain(tmp_path, policy="lc-3") as chain:
        chain.save(1, state)
        chain.save(2, {**state, "w": state["w"] + 0.01 * rng.standard_normal(5000)})
        np.testing.assert_array_equal(chain.restore(1)["w"], state["w"])
        np.testing.assert_array_equal(chain.restore(2)["n"], state["n"])
        np.testing.assert_array_equal(chain.restore(2)["raw"], state["raw"])
        path = tmp_path / "000000000001.lcc.h5"
        flip(path, PAYLOAD_OFFSET + 3000)
        with pytest.raises(ChecksumError) as caught:
            chain.restore(1)
    assert caught.value.rule == "LCC-MAN-08"


def saved(directory: Path, *states: Any, **options: Any) -> Path:
    with Chain(directory, newest="exact", **options) as chain:
        save_all(chain, states)
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


def test_the_link_of_step_0(tmp_path: Path) -> None:
    saved(tmp_path, *walk(1), policy="lc-3")
    (tmp_path / "000000000000.lcc.h5").write_bytes(b"damaged")
    with open_checkpoint(tmp_path / "exact.lcc.h5") as exact:
        usable, message = link_problem(exact, DirectoryStore(tmp_path))
    assert usable
    assert message is not None


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
