"""Leaves of a chain, each as soon as it is decoded: their order, their values, and the files.

What is told before it is read, of files that are far.
"""

import gc
import weakref
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lccodec
from lccodec import ArgumentError, Chain, ChainError, ChecksumError, LccodecWarning
from lccodec.chain.read import replay
from lccodec.chain.read.checkpoint import Arrivals, open_path, open_step
from lccodec.chain.read.replay import frames_ahead, headers_of
from lccodec.chain.store.directory import DirectoryStore
from lccodec.container.source import FileSource, Source
from lccodec.frame.content import MAX_SHARED_COMPONENTS
from lccodec.parallel import PIECE

from ...support.chains import HistoryChain
from ...support.damage import flip
from ...support.descriptors import open_files
from ...support.directories import entries
from ...support.strategies import ALL_DTYPES, installed, random_array
from ...support.tuning import tune
from ...support.walks import assert_same, chain_of, save_all, walk

LARGE = MAX_SHARED_COMPONENTS + 1


def many(step: int) -> dict[str, Any]:
    """Large arrays with frames of their own, between small ones that share frames."""
    rng = np.random.default_rng(0)

    def drifted(size: int) -> Any:
        start, way = rng.standard_normal((2, size), np.float32)
        return start + np.float32(step / 100) * way

    layers = [{"weight": drifted(LARGE), "bias": drifted(4)} for _ in range(3)]
    return {"step": step, "layers": layers, "rate": 0.5, "fixed": np.arange(5), "empty": {}}


NAMES = [
    *("step", "layers/0/weight", "layers/0/bias", "layers/1/weight", "layers/1/bias"),
    *("layers/2/weight", "layers/2/bias", "rate", "fixed"),
]


@pytest.fixture(name="chain", params=["lossless", "lc-3", "balanced"])
def _chain(request: pytest.FixtureRequest, tmp_path: Path) -> Chain:
    chain = HistoryChain(tmp_path, request.param)
    for step in range(4):
        chain.save(step, many(step))
    return chain


def opened(chain: Chain) -> list[str]:
    """Its checkpoints that are open."""
    return [path for path in open_files(chain.directory) if ".lcc.h5" in path]


def test_the_leaves_of_the_state_in_its_order(chain: Chain) -> None:
    for step in range(4):
        found = list(chain.restore_iter(step))
        assert [name for name, _ in found] == NAMES
        assert_same(dict(found), {name: chain.restore(step, keys=name)[name] for name in NAMES})


@pytest.mark.parametrize(
    ("keys", "names"),
    [
        ("rate", ["rate"]),
        (["fixed", "layers/1"], ["fixed", "layers/1/weight", "layers/1/bias"]),
        (["layers/2/bias", "layers/2", "step"], ["layers/2/bias", "layers/2/weight", "step"]),
        (["layers/2/weight", "layers/0/weight"], ["layers/2/weight", "layers/0/weight"]),
        ([], []),
        ([""], NAMES),
    ],
)
def test_the_order_of_the_keys(chain: Chain, keys: Any, names: list[str]) -> None:
    leaves = chain.restore_iter(keys=keys)
    assert len(leaves) == len(names)
    found = list(leaves)
    assert [name for name, _ in found] == names
    wanted = chain.restore(keys=keys)
    assert_same(dict(found), {name: wanted[name] for name in names})


def test_an_array_comes_before_the_next_is_decoded(chain: Chain, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each frame is decoded once, through all links, and no earlier than it is needed."""
    frames: list[Any] = []
    decode = replay.decode_components

    def counted(*arguments: Any, **options: Any) -> Any:
        frames.append(None)
        return decode(*arguments, **options)

    monkeypatch.setattr(replay, "decode_components", counted)
    counts = [len(frames) for _ in chain.restore_iter()]
    with open_path(chain.directory / "000000000003.lcc.h5") as file:
        links = len(file.links)
    assert counts[:6] == [0, links, 2 * links, 3 * links, 3 * links, 4 * links]
    assert counts[6:8] == [4 * links] * 2
    assert counts[8] == 4 * links + 1  # it never changed


def test_every_type(tmp_path: Path) -> None:
    names = installed(ALL_DTYPES)
    state = {name: random_array(name, (7, 5), 2) for name in names} | {
        "none": np.zeros((3, 0)),
        "one": np.ones(()),
    }
    with HistoryChain(tmp_path, "lossless") as chain:
        chain.save(0, state)
        assert_same(dict(chain.restore_iter()), state)
        for dtype in ("bits", "float32", None):
            outline = chain.restore_iter(dtype=dtype).outline()
            whole = chain.restore(dtype=dtype)
            forms = [{name: (a.dtype, a.shape) for name, a in s.items()} for s in (outline, whole)]
            assert forms[0] == forms[1]


def test_the_outline_of_keys_and_of_large_arrays(chain: Chain) -> None:
    outline = chain.restore_iter().outline()
    assert (outline["step"], outline["rate"], outline["empty"]) == (3, 0.5, {})
    assert outline["layers"][2]["weight"].shape == (LARGE,)
    part = chain.restore_iter(keys=["rate", "layers/0"]).outline()
    assert list(part) == ["rate", "layers/0/weight", "layers/0/bias"]
    tall = np.zeros((1 << 12, 3))
    with HistoryChain(chain.directory / "tall", "lossless") as other:
        other.save(0, tall)
        outline = other.restore_iter().outline()
        assert outline.shape == tall.shape
        assert outline.strides[0] == 0  # a single row stands for all


def test_a_state_that_is_one_leaf(tmp_path: Path) -> None:
    with HistoryChain(tmp_path, "lossless") as chain:
        chain.save(0, np.arange(3))
        chain.save(1, 2.5)
        ((name, array),) = chain.restore_iter(0)
        assert (name, array.tolist()) == ("", [0, 1, 2])
        assert list(chain.restore_iter(1)) == [("", 2.5)]


def test_an_array_in_two_places_is_one_array(tmp_path: Path) -> None:
    tied = np.arange(6.0)
    with HistoryChain(tmp_path, "lossless") as chain:
        chain.save(0, {"a": tied, "b": np.ones(2), "c": [tied, {"d": tied}]})
        found = dict(chain.restore_iter())
        assert list(found) == ["a", "b", "c/0", "c/1/d"]
        assert found["a"] is found["c/0"]
        assert found["a"] is found["c/1/d"]
        outline = chain.restore_iter().outline()
        assert outline["a"] is outline["c"][1]["d"]
        assert next(chain.restore_iter(keys="c/1"))[1].tolist() == tied.tolist()


def test_a_framework_s_leaves(tmp_path: Path) -> None:
    class Adapter:
        def to_numpy(self, state: Any, metadata: Any = None, /) -> Any:
            return state, {**(metadata or {}), "kind": "adapter"}

        def from_numpy(self, state: Any, metadata: Any, name: str = "", /) -> Any:
            return name, state, metadata["kind"]

        def roles(self, _: Any, /) -> Any:
            return {}

    with HistoryChain(tmp_path, "lossless", adapter=Adapter()) as chain:
        chain.save(0, {"n": 1, "m": {"w": np.ones(2)}}, {"by": "me"})
        arrivals = chain.restore_iter()
        assert arrivals.metadata == {"by": "me", "kind": "adapter"}
        assert next(arrivals) == ("n", ("n", 1, "adapter"))
        name, (place, array, _) = next(arrivals)
        assert name == place == "m/w"
        assert array.tolist() == [1, 1]


def test_what_is_wrong_with_the_arguments_is_said_at_once(chain: Chain) -> None:
    for options in ({"keys": "layer"}, {"keys": 3}, {"dtype": "float16"}, {"step": "last"}):
        with pytest.raises(ArgumentError):
            chain.restore_iter(**options)
    with pytest.raises(ChainError, match="has no step 9"):
        chain.restore_iter(9)
    assert not opened(chain)


def _first(arrivals: Arrivals) -> Iterator[Any]:
    next(arrivals)
    next(arrivals)
    return arrivals


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="descriptors cannot be listed")
def test_the_files_are_closed(chain: Chain) -> None:
    """After the last leaf, after errors, when the iterator is closed or dropped, started or not."""
    gc.disable()
    try:
        for start in (iter, _first):
            arrivals = start(chain.restore_iter())
            assert opened(chain)
            arrivals.close()
            assert not opened(chain)
            assert list(arrivals) == []
            arrivals.close()
            arrivals = start(chain.restore_iter())
            assert opened(chain)
            del arrivals
            assert not opened(chain)
        with chain.restore_iter() as arrivals:
            for _ in arrivals:
                assert opened(chain)
            assert not opened(chain)
        for path in entries(chain.directory):
            flip(path, 0.5)
        arrivals = chain.restore_iter()
        with pytest.raises(ChecksumError):
            list(arrivals)
        assert not opened(chain)
    finally:
        gc.enable()


def test_an_iterator_holds_no_array_that_it_has_yielded(chain: Chain) -> None:
    arrivals = chain.restore_iter()
    next(arrivals)
    _, first = next(arrivals)
    gone = weakref.ref(first)
    del first
    assert gone() is None


# --- the exact file -------------------------------------------------------------------------------


def test_the_newest_state_is_exact(tmp_path: Path) -> None:
    states = walk(3)
    chain = HistoryChain(tmp_path, "lc-3", newest="exact")
    save_all(chain, states)
    assert_same(dict(chain.restore_iter()), chain.restore(keys=[""]) | {"epoch": 2})
    assert_same(dict(chain.restore_iter())["layer/weight"], states[2]["layer"]["weight"])
    history = dict(chain.restore_iter(exact=False))
    assert_same(history["layer/weight"], chain.restore(exact=False)["layer"]["weight"])


@pytest.mark.parametrize("damaged", [0, 1, 2])
def test_what_is_damaged_in_the_exact_file_and_behind_comes_from_the_history(
    tmp_path: Path, damaged: int
) -> None:
    chain = HistoryChain(tmp_path, "lc-3", newest="exact")
    for step in range(3):
        chain.save(step, {"layers": many(step)["layers"]})
    exact, history = dict(chain.restore_iter()), dict(chain.restore_iter(exact=False))
    path = tmp_path / "exact.lcc.h5"
    data = bytearray(path.read_bytes())
    values = exact[f"layers/{damaged}/weight"].tobytes()
    data[data.index(values)] ^= 1
    path.write_bytes(data)
    with pytest.warns(LccodecWarning, match="the exact file is damaged") as caught:
        found = dict(chain.restore_iter())
    assert len(caught) == 1
    assert caught[0].filename == __file__
    names = list(exact)
    first = names.index(f"layers/{damaged}/weight")
    assert_same(found, {name: (exact if i < first else history)[name] for i, name in enumerate(names)})
    with pytest.warns(LccodecWarning, match="the exact file is damaged"):
        whole = chain.restore(keys=[""])
    assert_same(whole, history)  # of one kind


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Source, int, int]]:
    """What sources are told, once files of the disk count as far."""
    found: list[tuple[Source, int, int]] = []

    def ahead(_: FileSource, wanted: Iterable[tuple[Source, int, int]]) -> None:
        found.extend(wanted)

    monkeypatch.setattr(FileSource, "far", True)
    monkeypatch.setattr(FileSource, "ahead", ahead)
    return found


def test_the_frames_of_an_array_in_all_links(tmp_path: Path, told: list[tuple[Source, int, int]]) -> None:
    chain, _ = chain_of(tmp_path, steps=3)
    chain.close()
    with open_step(DirectoryStore(tmp_path), 2) as file:
        links, index = file.links, file.links[-1].names["layer/weight"]
        found = list(frames_ahead(links, [index]))
        expected = [link.reader.span(link.frame_of(link.names["layer/weight"]) or 0) for link in links]
        assert found == expected
        assert len({id(source) for source, _, _ in found}) == 3
        told.clear()
        file.get("layer/weight")
        assert told == expected  # a read tells it


def test_an_array_that_did_not_change_has_one_frame(tmp_path: Path) -> None:
    chain, _ = chain_of(tmp_path, steps=3)
    chain.close()
    with open_step(DirectoryStore(tmp_path), 2) as file:
        (span,) = frames_ahead(file.links, [file.links[-1].names["fixed"]] * 2)
        assert span[0] is file.links[0].reader.source


def test_headers_are_the_starts_of_frames(tmp_path: Path, told: list[tuple[Source, int, int]]) -> None:
    with lccodec.Chain(tmp_path, "lossless") as chain:
        chain.save(0, {"a": [0.5] * 3, "b": 1})
        chain.save(1, chain_of(tmp_path / "other", steps=1)[1][0])
    with open_step(DirectoryStore(tmp_path), 1) as file:
        told.clear()
        file.info()
        expected = [span for link in file.links for span in headers_of(link.reader)]
        assert told == expected
        for link in file.links:
            spans = [link.reader.span(number) for number in range(len(link.manifest.frames))]
            for (_, start, size), (_, begin, whole) in zip(headers_of(link.reader), spans, strict=True):
                assert start == begin
                assert size <= whole


def test_files_of_the_disk_are_told_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FileSource, "ahead", pytest.fail)
    chain, states = chain_of(tmp_path)
    assert chain.restore(2)["epoch"] == states[2]["epoch"]
    assert lccodec.validate(tmp_path, deep=True) == []


def test_what_rows_need(
    tmp_path: Path, told: list[tuple[Source, int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Headers, tables and pieces are told before they are read, and nothing else is read."""
    tune(monkeypatch, block_log2=PIECE.bit_length() - 1)
    values = np.random.default_rng(0).standard_normal((4000, 100), np.float32)
    with lccodec.Chain(tmp_path, "lossless") as chain:
        for step in range(3):
            chain.save(step, {"w": values + np.float32(step / 100)})
    with open_step(DirectoryStore(tmp_path), 2) as file:
        read, found = FileSource.read, list[tuple[Source, int, int]]()

        def counted(source: FileSource, offset: int, size: int) -> bytes:
            found.append((source, offset, size))
            return read(source, offset, size)

        monkeypatch.setattr(FileSource, "read", counted)
        told.clear()
        np.testing.assert_array_equal(
            file.get("w", rows=slice(2000, 2010)), values[2000:2010] + np.float32(0.02)
        )
    for source, offset, size in found:
        assert any(s is source and o <= offset and offset + size <= o + n for s, o, n in told)
    assert sum(size for *_, size in found) < sum(file.stat().st_size for file in tmp_path.glob("*.h5")) / 2
