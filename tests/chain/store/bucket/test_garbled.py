"""Answers that a store garbles on their way: they are asked for again, and are never kept.

The other way round, what is kept never answers for what is stored, where somebody checks that.
"""

import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lccodec
from lccodec.chain.store.bucket.backend import FsspecBackend
from lccodec.chain.store.bucket.keys import MAX_COMMIT_BYTES
from lccodec.chain.store.bucket.source import FOLDER
from lccodec.errors import LccodecError
from lccodec.parallel import PIECE

from ....support.profiles import examples
from ....support.tuning import tune
from ....support.walks import assert_same, save_all


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> str:
    """The address of a new chain in the memory of this process."""
    tune(monkeypatch, block_log2=PIECE.bit_length() - 1)  # several pieces
    return f"memory://{secrets.token_hex(6)}/run"


@pytest.fixture
def states(run: str) -> list[dict[str, Any]]:
    """The states of a chain of a keyframe and deltas: large, small and many arrays."""
    rng = np.random.default_rng(0)
    large = rng.standard_normal((300, 100)).astype(np.float32)
    states = []
    with lccodec.Chain(run, "lossless", keyframe_every=4) as chain:
        for step in range(5):
            small = {str(n): rng.integers(0, 9, 40 * n) for n in range(4)}
            states.append({"large": large + np.float32(step / 8), "small": small, "epoch": step})
            chain.save(step, states[-1])
    return states


@pytest.fixture
def spoil(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[int, int], list[int]]]:
    """Sets which answer is garbled, and the place of the bit. Returns the sizes of all answers."""
    read = FsspecBackend.read

    def spoil(number: int, bit: int, times: int = 1) -> list[int]:
        sizes: list[int] = []

        def garbled(self: FsspecBackend, key: str, start: int, size: int) -> bytes:
            data = bytearray(read(self, key, start, size))
            sizes.append(size)
            if data and number <= len(sizes) - 1 < number + times:
                place = bit % (8 * len(data))
                data[place // 8] ^= 1 << place % 8
            return bytes(data)

        monkeypatch.setattr(FsspecBackend, "read", garbled)
        return sizes

    yield spoil


def assert_cache_is_true(run: str, place: Path) -> None:
    """All that is kept on the disk is what the objects hold."""
    objects = fsspec.filesystem("memory")
    by_root = {
        key.rpartition("/")[2].split(".")[2]: objects.cat_file(key)
        for key in objects.find(run.removeprefix("memory:/"))
        if key.endswith(".lcc.h5")
    }
    for path in (place / FOLDER).iterdir() if (place / FOLDER).exists() else ():
        root, start, size = path.name.removesuffix(".range").split("-")
        assert path.read_bytes()[:-16] == by_root[root][int(start) : int(start) + int(size)]


def newest(run: str) -> Any:
    return lccodec.Chain(run).restore()


def some(run: str) -> Any:
    with lccodec.open(run, step=3) as file:
        return {"large": file.get("large"), "3": file.get("small/3")}


def rows(run: str) -> Any:
    with lccodec.open(run, step=3) as file:
        return {"large": file.get("large", rows=slice(150, 155))}


@pytest.mark.parametrize("read", [newest, some, rows])
def test_no_garbled_answer_is_kept(
    run: str,
    states: list[dict[str, Any]],
    spoil: Callable[..., list[int]],
    read: Callable[[str], Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whichever answer and bit it is: a read is right or raises, and the next one is right."""
    sizes = spoil(1 << 30, 0)
    expected = read(run)
    counts = len(sizes)
    assert counts >= 3

    @examples(0.5)
    @given(number=st.integers(0, counts - 1), bit=st.integers(0, 1 << 30), times=st.integers(1, 3))
    def check(number: int, bit: int, times: int) -> None:
        place = tmp_path / secrets.token_hex(6)
        monkeypatch.setenv("LCCODEC_CACHE", str(place))
        spoil(number, bit, times)
        try:
            assert_same(read(run), expected)
        except LccodecError:
            assert times > 1 or read in (some, rows)  # what was planned by a garbled head
        assert_cache_is_true(run, place)
        spoil(1 << 30, 0)
        assert_same(read(run), expected)
        assert_cache_is_true(run, place)

    check()
    assert_same(states[-1], newest(run))


def test_a_chain_that_stays_open_reads_again(
    run: str, states: list[dict[str, Any]], spoil: Callable[..., list[int]]
) -> None:
    """What its memory keeps is forgotten, too."""
    for number in range(2, 5):
        chain = lccodec.Chain(run)
        spoil(number, 8 * 20_000, times=3)
        try:
            assert_same(chain.restore(4), states[4])
        except LccodecError:
            spoil(1 << 30, 0)
            assert_same(chain.restore(4), states[4])


def test_heads_that_were_garbled_are_read_again(
    run: str, states: list[dict[str, Any]], spoil: Callable[..., list[int]]
) -> None:
    """Nothing proves a head alone. What was read of it in vain is not kept beside its frame."""
    for bit in range(0, 8 * 60, 61):
        chain = lccodec.Chain(run)
        chain.latest  # noqa: B018 - the listing
        with suppress(LccodecError):
            spoil(2, bit)
            chain.info(4)
        with suppress(LccodecError):
            chain.restore(4, keys=["large"])
        spoil(1 << 30, 0)
        assert_same(chain.restore(4), states[4])


@pytest.mark.usefixtures("states")
def test_what_is_copied_was_verified(
    run: str, spoil: Callable[..., list[int]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Into a bundle and into a directory: it is right or an error, and right the next time."""
    monkeypatch.setenv("LCCODEC_CACHE", "")
    for number in range(1, 5):
        for copy in (lccodec.bundle, lambda run, to: lccodec.Chain(run).fork(to, 4)):
            target = tmp_path / secrets.token_hex(4)
            spoil(number, 8 * 3000, times=2)
            try:
                copy(run, target)
            except LccodecError:
                target = tmp_path / secrets.token_hex(4)
                spoil(1 << 30, 0)
                copy(run, target)
            assert lccodec.validate(target, deep=True) == []


def rot(run: str) -> None:
    """Zero the frames of all objects of a chain."""
    objects = fsspec.filesystem("memory")
    for key in objects.find(run.removeprefix("memory:/")):
        if key.endswith(".lcc.h5"):
            data = bytearray(objects.cat_file(key))
            middle = slice(600, -int(key.split(".")[-3]))
            data[middle] = bytes(len(data[middle]))
            objects.pipe_file(key, bytes(data))


def test_checks_read_what_is_stored(run: str, states: list[dict[str, Any]]) -> None:
    """Also where a cache on the disk, and the memory of the chain, have all of it whole."""
    chain = lccodec.Chain(run)
    assert_same(chain.restore(), states[-1])
    assert any((Path(os.environ["LCCODEC_CACHE"]) / FOLDER).iterdir())
    single = f"{run}-single"  # the check of its one frame reads the range that the restore has read
    with lccodec.Chain(single, "lossless") as made:
        made.save(0, {"w": states[0]["large"][:20]})
    lccodec.Chain(single).restore()
    rot(single)
    assert lccodec.validate(single)
    rot(run)
    assert lccodec.validate(run)
    assert lccodec.validate(run, deep=True)
    assert len(chain.repair(dry_run=True).lost) == 5
    assert_same(chain.restore(), states[-1])  # from the cache: its bytes are those of the root


def test_a_mirror_is_compared_by_what_it_stores(
    run: str, states: list[dict[str, Any]], tmp_path: Path
) -> None:
    """Repair from a mirror whose objects have rotted brings nothing; the cache has them whole."""
    home = tmp_path / "home"
    with lccodec.Chain(home, "lossless", keyframe_every=4, mirror=(aside := f"{run}-mirror")) as chain:
        save_all(chain, states)
    assert lccodec.validate(aside, deep=True) == []
    assert_same(lccodec.Chain(aside).restore(), states[-1])
    rot(aside)
    (home / "000000000001.lcc.h5").unlink()
    for dry_run in (True, False):
        found = lccodec.Chain(home, mirror=aside).repair(dry_run=dry_run)
        assert not found.mirrored
        assert list(found.lost) == ["000000000001.lcc.h5"]


def test_checks_leave_the_cache_as_it_is(run: str, states: list[dict[str, Any]]) -> None:  # noqa: ARG001
    assert lccodec.validate(run, deep=True) == []
    assert not (Path(os.environ["LCCODEC_CACHE"]) / FOLDER).exists()


def test_data_under_the_name_of_other_data_is_refused(run: str, states: list[dict[str, Any]]) -> None:  # noqa: ARG001
    """A sound file: nothing else would tell, and it would be kept by the other's root."""
    objects = fsspec.filesystem("memory")
    keys = [key for key in objects.find(run.removeprefix("memory:/")) if key.endswith(".lcc.h5")]
    first, second = sorted(keys)[:2]
    objects.pipe_file(first, objects.cat_file(second))
    with pytest.raises(LccodecError):
        lccodec.Chain(run).restore(0)
    assert any(problem.rule == "LCC-BKT-01" for problem in lccodec.validate(run))
    assert_cache_is_true(run, Path(os.environ["LCCODEC_CACHE"]))


def test_a_garbled_commit_is_asked_for_again(
    run: str, states: list[dict[str, Any]], spoil: Callable[..., list[int]]
) -> None:
    """Commits are read where two writers have met. They have no hash."""
    name = "000000000003.lcc.h5"
    other = f"{name}/0.3.{'0' * 64}.none.500.lcc.h5"
    fsspec.filesystem("memory").pipe_file(f"{run.removeprefix('memory:/')}/{other}", bytes(1000))
    for bit in range(0, 8 * 120, 41):
        chain = lccodec.Chain(run)
        sizes = spoil(0, bit)
        assert chain.info(3).step == 3
        assert sizes[0] == MAX_COMMIT_BYTES
    spoil(0, 8, times=2)
    chain = lccodec.Chain(run)
    with pytest.raises(LccodecError):
        chain.restore(3)
    assert_same(chain.restore(3), states[3])
