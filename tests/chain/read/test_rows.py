"""Some rows of an array: they are those of the whole array, and no more blocks are decoded."""

import re
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lccodec
from lccodec import ArgumentError, Chain, ChecksumError, FormatError, LccodecWarning, Policy, Smooth
from lccodec.chain.read.checkpoint import open_path
from lccodec.chain.read.rows import Span, decode_span
from lccodec.constants import PAYLOAD_OFFSET
from lccodec.entropy.split import References
from lccodec.frame import codebook, planes
from lccodec.parallel import PIECE

from ...support.damage import flip
from ...support.links import FakeLink, drift, linked, links_of
from ...support.strategies import bits_of
from ...support.tuning import tune, tuned

BLOCK_LOG2 = PIECE.bit_length() - 1  # the smallest blocks that the encoder can write
ROWS, COLUMNS = 1700, 160  # of the large arrays: three blocks
STEPS = 5
CHAINS = ["lossless", "lc-2", "lc-3", "balanced", "small", "smooth", "hindsight", "exact", "bundle"]
NAMES = ["weight", "half", "m", "v", "table", "phase", "mask", "fixed", "vector", "empty", "few"]


@pytest.fixture(autouse=True, scope="module")
def _small_blocks() -> Iterator[None]:
    with tuned(block_log2=BLOCK_LOG2):
        yield


@cache
def state(step: int) -> dict[str, Any]:
    """Large arrays of several types, of which one is another one rounded, and small ones."""
    rng = np.random.default_rng(7)

    def drifted(*shape: int) -> Any:
        start, way = rng.standard_normal((2, *shape), np.float32)
        return start + np.float32(step / 300) * way

    weight = drifted(ROWS, COLUMNS)
    table = rng.integers(0, 9, (ROWS, COLUMNS), np.int32)
    table[step::100] += step
    return {
        "weight": weight,
        "half": weight.astype(np.float16),
        "m": drifted(ROWS, COLUMNS) / 100,
        "v": drifted(ROWS, COLUMNS) ** 2,
        "table": table,
        "phase": (drifted(ROWS, 40, 2) + 1j * drifted(ROWS, 40, 2)).astype(np.complex64),
        "mask": rng.random((ROWS, COLUMNS)) < 0.1 * step,
        "fixed": np.arange(ROWS * COLUMNS, dtype=np.float64).reshape(ROWS, COLUMNS),
        "vector": drifted(ROWS * COLUMNS),
        "empty": np.zeros((5, 0)),
        "few": drifted(30, 3),
        "epoch": step,
        "layers": [drifted(3), np.float32(step)],
    }


class Places(dict[str, Path]):
    """Where runs of different settings are, each saved when it is asked for."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def __missing__(self, name: str) -> Path:
        if name == "bundle":
            self[name] = self._directory / "bundle.lccb"
            lccodec.bundle(self["lc-3"], self[name])
            return self[name]
        place = self[name] = self._directory / name
        policy: Any = name if name in lccodec.POLICIES else "lc-3"
        if name == "smooth":
            policy = Policy("fields", patterns={"*": Smooth(max_error=1e-3)})
        with Chain(
            place,
            policy,
            newest="exact" if name in ("hindsight", "exact") else "history",
            hindsight=4 if name == "hindsight" else 0,
            keyframe_every=3 if name == "lc-2" else 32,
        ) as chain:
            for step in range(STEPS):
                chain.save(step, state(step))
        return place


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Places:
    return Places(tmp_path_factory.mktemp("runs"))


def assert_equal(part: np.ndarray, whole: np.ndarray) -> None:
    assert (part.dtype, part.shape) == (whole.dtype, whole.shape)
    np.testing.assert_array_equal(bits_of(part), bits_of(whole))


ENDS = st.none() | st.integers(-ROWS - 5, ROWS + 5) | st.integers(-3, 3)


@pytest.fixture(scope="module")
def whole(places: Places) -> Callable[[str, int], dict[str, Any]]:
    return cache(lambda name, step: lccodec.open(places[name], step=step).state())


@pytest.mark.slow
@pytest.mark.parametrize("name", CHAINS)
@given(data=st.data())
def test_rows_are_those_of_the_whole_array(
    places: Places,
    whole: Callable[[str, int], dict[str, Any]],
    name: str,
    data: st.DataObject,
) -> None:
    step = data.draw(st.sampled_from([0, STEPS // 2, STEPS - 1]))
    array = data.draw(st.sampled_from(NAMES))
    rows = data.draw(st.builds(slice, ENDS, ENDS))
    with lccodec.open(places[name], step=step) as file:
        assert_equal(file.get(array, rows=rows), whole(name, step)[array][rows])


@pytest.mark.slow
def test_copies_and_interpolated_arrays_are_among_them(places: Places) -> None:
    """The property above is about all ways in which arrays are stored."""
    with open_path(places["hindsight"], step=2, exact=False) as file:
        assert file.links[-1].manifest.later is not None
    with open_path(places["lossless"], step=2) as file:
        assert "half" in file.links[-1].copies
        assert any(link.runs for link in file.links)
        assert len(file.links) == 3
    with lccodec.open(places["lc-2"], step=3) as file:
        assert {array.method for array in file.info().arrays} >= {"codebook", "planes"}
    with lccodec.open(places["smooth"], step=3) as file:
        assert "smooth" in {array.method for array in file.info().arrays}


@pytest.mark.slow
def test_restore_takes_rows_and_leaves_together(places: Places) -> None:
    chain = Chain(places["balanced"])
    whole = chain.restore(3)
    keys = {"weight": slice(100, 200), "half": slice(-2, None), "m": None, "epoch": None, "layers": None}
    found = chain.restore(3, keys=keys)
    assert list(found) == ["weight", "half", "m", "layers/0", "layers/1", "epoch"]
    assert_equal(found["weight"], whole["weight"][100:200])
    assert_equal(found["half"], whole["half"][-2:])
    assert_equal(found["m"], whole["m"])
    assert found["epoch"] == 3
    assert found["weight"].base is None or found["weight"].base.nbytes < 2 * found["weight"].nbytes


@pytest.mark.slow
def test_rows_come_one_by_one(places: Places) -> None:
    chain = Chain(places["lc-3"])
    whole = chain.restore(3)
    keys = {"table": slice(0, 10), "epoch": None, "weight": slice(5, 7), "few": slice(1, 2), "v": None}
    with chain.restore_iter(3, keys=keys) as leaves:
        outline = leaves.outline()
        found = dict(leaves)
    assert list(found) == list(keys) == list(outline)
    for name, rows in keys.items():
        if name != "epoch":
            assert_equal(found[name], whole[name][rows or slice(None)])
            assert (outline[name].shape, outline[name].dtype) == (found[name].shape, found[name].dtype)


def test_rows_of_split_streams(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The parts of a block are those of its own rows of the reference (LCC-STR-08)."""
    rng, states = np.random.default_rng(0), []
    way = rng.standard_normal((2, 1700, 160))
    for step in range(3):
        bits = (way[0] + 2.0**-15 * step * way[1]).astype(np.float32).view(np.uint32) >> 16
        states.append(bits.astype(np.uint16))
    with Chain(tmp_path, "lossless") as chain:
        for step, array in enumerate(states):
            chain.save(step, {"w": array})
    split = []
    real = References.parts
    monkeypatch.setattr(References, "parts", lambda own, bounds: split.append(own) or real(own, bounds))
    for step, array in enumerate(states):
        with lccodec.open(tmp_path, step=step) as file:
            for rows in (slice(0, 3), slice(810, 830), slice(1690, None)):
                assert_equal(file.get("w", rows=rows), array[rows])
    assert split


def test_an_array_in_two_places_has_rows_in_each(tmp_path: Path) -> None:
    array = np.arange(400_000, dtype=np.float32).reshape(-1, 100)
    lccodec.save_file({"a": array, "b": array}, tmp_path / "two.lcc.h5")
    with lccodec.open(tmp_path / "two.lcc.h5") as file:
        found = file.state({"b": slice(0, 2), "a": slice(7, 9)})
    assert_equal(found["a"], array[7:9])
    assert_equal(found["b"], array[:2])


def test_progress_counts_rows(places: Places) -> None:
    told: list[tuple[int, int]] = []
    keys = {"weight": slice(0, 1), "m": slice(0, 1)}
    Chain(places["lc-3"]).restore(2, keys=keys, progress=lambda *numbers: told.append(numbers))
    assert told == [(1, 2), (2, 2)]


def test_only_the_blocks_of_the_rows_are_decoded(places: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    decoded: list[int] = []
    for module in (codebook, planes):
        read = module.read_block

        def counted(*arguments: Any, read: Any = read) -> None:
            decoded.append([each.size for each in arguments if isinstance(each, np.ndarray)][-1])
            read(*arguments)

        monkeypatch.setattr(module, "read_block", counted)
    monkeypatch.setattr("lccodec.frame.decode.read_block", codebook.read_block)
    first = PIECE // COLUMNS + 2  # the first row that lies in the second block alone
    with lccodec.open(places["lc-3"], step=3) as file:
        file.get("weight", rows=slice(first, first + 10))
    assert decoded == [PIECE] * 4  # of the keyframe and three deltas


REFUSED = {
    "a number": (3, "one row is slice(3, 4)"),
    "numbers": ([1, 2], "must be a slice"),
    "a step": (slice(0, 10, 2), "without a step"),
    "backwards": (slice(None, None, -1), "without a step"),
    "a float": (slice(0.0, 2.0), "begin and end at integers"),
}


@pytest.mark.parametrize(("rows", "words"), REFUSED.values(), ids=REFUSED)
def test_what_is_no_slice_of_rows(places: Places, rows: Any, words: str) -> None:
    with lccodec.open(places["lc-3"]) as file, pytest.raises(ArgumentError, match=re.escape(words)):
        file.get("weight", rows=rows)
    with pytest.raises(ArgumentError, match="'weight': rows"):
        Chain(places["lc-3"]).restore(keys={"weight": rows})


@pytest.mark.parametrize("rows", [slice(0, 10, 1), slice(np.int64(1), np.int16(4))])
def test_slices_that_are_plain(places: Places, rows: slice) -> None:
    with lccodec.open(places["lc-3"]) as file:
        assert_equal(file.get("weight", rows=rows), file.get("weight")[rows])


@pytest.mark.parametrize("name", ["epoch", "layers", "layers/1", "wieght"])
def test_what_has_no_rows(places: Places, name: str) -> None:
    words = {"layers/1": "without dimensions", "wieght": "is it 'weight'"}.get(name, "is not an array")
    chain = Chain(places["lc-3"])
    for read in (chain.restore, lambda **kwargs: list(chain.restore_iter(**kwargs))):
        with pytest.raises(ArgumentError, match=words):
            read(keys={name: slice(0, 2)})


def test_who_takes_names_alone_refuses_rows(places: Places) -> None:
    with pytest.raises(ArgumentError, match="must be names here"):
        Chain(places["lc-3"]).average(last=2, keys={"weight": slice(0, 2)})
    assert list(Chain(places["lc-3"]).average(last=2, keys={"weight": None})) == ["weight"]


def test_damage_in_the_rows_is_found(places: Places, tmp_path: Path) -> None:
    data = bytearray((places["lc-3"] / "000000000000.lcc.h5").read_bytes())
    with lccodec.open(places["lc-3"] / "000000000000.lcc.h5") as file:
        first = file.keys()[0]
    data[PAYLOAD_OFFSET + 5000] ^= 1
    (tmp_path / "000000000000.lcc.h5").write_bytes(data)
    with (
        lccodec.open(tmp_path / "000000000000.lcc.h5") as file,
        pytest.raises(ChecksumError, match=f"'{first}'"),
    ):
        file.get(first, rows=slice(0, 1))


@pytest.mark.slow
def test_rows_of_a_damaged_exact_file_come_from_the_history(tmp_path: Path) -> None:
    with Chain(tmp_path, "lc-3") as chain:
        chain.save(0, state(0))
        history = chain.restore(exact=False)
        path = next(tmp_path.glob("exact*"))
        flip(path, PAYLOAD_OFFSET + 5000)
        keys = {"weight": slice(0, 3), "m": None, "table": slice(1, 2)}
        with pytest.warns(LccodecWarning, match="the exact file is damaged"):
            found = chain.restore(keys=keys)
        with pytest.warns(LccodecWarning, match="the exact file is damaged"):
            one_by_one = dict(chain.restore_iter(keys=keys))
    for name, rows in keys.items():
        assert_equal(found[name], history[name][rows or slice(None)])
        assert_equal(one_by_one[name], found[name])


# --- links ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("log2", [BLOCK_LOG2, BLOCK_LOG2 + 1])
def test_links_with_blocks_of_different_sizes(log2: int, monkeypatch: pytest.MonkeyPatch) -> None:
    states = drift(3, ((3 * PIECE + 99,),))
    links, decoded = links_of(states, lccodec.ExponentBuckets(2))
    tune(monkeypatch, block_log2=log2)
    others, _ = links_of(states, lccodec.ExponentBuckets(2))
    mixed = linked(others[0], links[1], others[2])
    for start, stop in ((0, 1), (PIECE - 1, PIECE + 1), (2 * PIECE, 3 * PIECE + 99)):
        found = decode_span(mixed, "w0", Span(start, stop))
        assert found is not None
        np.testing.assert_array_equal(found, bits_of(decoded[-1]["w0"]).view(found.dtype)[start:stop])


def test_a_frame_that_does_not_fit_its_parent() -> None:
    links, _ = links_of(drift(2, ((3 * PIECE,),)), lccodec.ExponentBuckets(2))
    others, _ = links_of(drift(1, ((2 * PIECE,),)), lccodec.ExponentBuckets(2))
    with pytest.raises(FormatError, match="not of the type and shape"):
        decode_span(linked(others[0], links[1]), "w0", Span(0, 5))


class NotScanned(dict[str, int]):
    def __iter__(self) -> Iterator[str]:
        raise AssertionError("a link may have thousands of arrays")


def test_no_array_is_looked_at_but_those_that_are_needed() -> None:
    links, decoded = links_of(drift(3, ((3 * PIECE,),)), lccodec.ExponentBuckets(2))
    for link in links:
        link.names = NotScanned(link.names)
    found = decode_span(links, "w0", Span(5, 9))
    assert found is not None
    np.testing.assert_array_equal(found, bits_of(decoded[-1]["w0"]).view(found.dtype)[5:9])


def test_a_link_that_lacks_the_array() -> None:
    links, _ = links_of(drift(2, ((3 * PIECE,),)), lccodec.ExponentBuckets(2))
    with pytest.raises(FormatError, match="no such array"):
        decode_span(linked(FakeLink({}, []), links[1]), "w0", Span(0, 5))
