"""Checkpoint files as links: their parents, and what is known without decoding them.

Heads of arrays: found without decoding, and all of a run at once.

What is known of a checkpoint without decoding it.
"""

from __future__ import annotations

import errno
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

import lccodec
from lccodec import Chain, ChainError, FormatError, Lossless, StorageError, load_file
from lccodec.chain.read.checkpoint import OpenCheckpoint, open_path
from lccodec.chain.read.links import (
    Link,
    array_heads,
    check_parent,
    check_step,
    fold,
    fold_last,
    missing_parent,
    value_or_raise,
)
from lccodec.chain.read.survey import survey
from lccodec.chain.store.directory import open_store
from lccodec.constants import MAX_STEP
from lccodec.container.checkpoint import CheckpointWriter, open_bytes, open_checkpoint
from lccodec.container.manifest import Manifest, Parent
from lccodec.frame.header import FrameHeader, parse_header

from ...support.chains import HistoryChain
from ...support.checkpoints import FILE, KEYFRAME
from ...support.links import FakeLink, drift, links_of
from ...support.paths import checkpoints
from ...support.walks import assert_same, chain_of, save_all, walk

INVALID = Path(__file__).parents[3] / "spec" / "vectors" / "invalid"

# --- parents --------------------------------------------------------------------------------------


@pytest.mark.parametrize("step", [KEYFRAME.step, 8, MAX_STEP])
def test_a_parent_has_an_earlier_step(step: int) -> None:
    def child(of: int) -> Any:
        return SimpleNamespace(name="child", manifest=replace(KEYFRAME, parent=Parent(of, bytes(32))))

    check_step(child(6))
    with pytest.raises(FormatError, match=f"step 7 cannot have step {step}") as caught:
        check_step(child(step))
    assert caught.value.rule == "LCC-CHN-02"


def test_a_parent_is_the_file_that_was_named() -> None:
    reader, parent, name = open_bytes(FILE, "child"), Parent(6, bytes(range(32))), "6"
    check_parent(reader, parent, bytes(range(32)), 6, name)
    for root, step in ((bytes(32), 6), (bytes(range(32)), 5), (bytes(range(32)), None)):
        with pytest.raises(ChainError, match="child: 6 is not the parent"):
            check_parent(reader, parent, root, step, name)


def test_a_parent_that_cannot_be_opened_is_missing_only_if_it_is_not_there() -> None:
    reader, parent = open_bytes(FILE, "child"), Parent(6, bytes(32))
    for code in (errno.ENOENT, errno.ENOTDIR):
        found = missing_parent(reader, parent, "6", StorageError(code, "gone", "6"))
        assert type(found) is ChainError
        assert str(found) == "child: its parent, step 6, is missing (6)"
    for error in (StorageError(errno.EACCES, "refused", "6"), FormatError("LCC-TRL-01", "6", "no trailer")):
        assert missing_parent(reader, parent, "6", error) is error


def test_sixteen_interpolated_checkpoints_may_be_needed() -> None:
    state = load_file(INVALID / f"{3:012d}.lcc.h5")  # sound, beside the invalid vectors
    np.testing.assert_array_equal(state["weight"], [1, 2, 3])


def test_a_delta_alone_in_memory_has_no_parent() -> None:
    path = INVALID.parent / "valid" / f"{111:012d}.lcc.h5"
    with pytest.raises(ChainError, match="its parent, step 110, is not at hand"):
        OpenCheckpoint(open_bytes(path.read_bytes()), None)


def test_what_is_found_instead_of_a_value_is_raised() -> None:
    error = FormatError("LCC-FRM-01", "here", "damaged")
    assert value_or_raise(7) == 7
    with pytest.raises(FormatError) as caught:
        value_or_raise(error)
    assert caught.value is error


# --- links ----------------------------------------------------------------------------------------


@pytest.fixture(name="links")
def _links(tmp_path: Path) -> list[Link]:
    rng = np.random.default_rng(0)
    kept, shared = rng.standard_normal(3000), rng.standard_normal((40, 50))
    with Chain(tmp_path, policy="lossless") as chain:
        for step in range(2):
            shared[0] += step
            chain.save(step, {"kept": kept, "a": [shared, np.full(9, step)], "again": shared, "n": step})
    links: list[Link] = []
    for path in checkpoints(tmp_path).values():
        links.append(Link(open_checkpoint(path), links[-1] if links else None))
    return links


def test_a_link_knows_the_places_of_arrays(links: list[Link]) -> None:
    for link in links:
        assert link.index_names == ["kept", "a/0", "a/1"]
        assert link.names == {"kept": 0, "a/0": 1, "a/1": 2}
        assert link.paths == {"kept": 0, "a/0": 1, "a/1": 2, "again": 1}
    assert [link.place for link in links] == ["000000000000.lcc.h5", "000000000001.lcc.h5"]


def test_a_link_knows_the_frames_of_arrays(links: list[Link]) -> None:
    first, second = links
    assert None not in [first.frame_of(index) for index in range(3)]
    assert second.frame_of(0) is None  # unchanged
    for link in links:
        for index in range(3):
            number = link.frame_of(index)
            assert number is None or index in link.members[number]
        for number in range(len(link.manifest.frames)):
            header = link.header(number)
            assert header == parse_header(bytes(link.reader.frame(number)[:]), "whole")
            assert link.header(number) is header


def test_a_frame_of_more_arrays_than_in_the_manifest_is_refused(tmp_path: Path) -> None:
    ((two,), _) = links_of(drift(1, ((300,), (3,))), Lossless())
    path = tmp_path / "000000000000.lcc.h5"
    with CheckpointWriter(path) as writer:
        entry = writer.write_frame(two.frames[0])
        writer.commit(Manifest(0, None, "lossless", {}, {"w": 0}, [], (1,), (entry,)))
    with (
        open_checkpoint(path) as reader,
        pytest.raises(FormatError, match="2 arrays in a frame of 1") as caught,
    ):
        Link(reader, None).header(0)
    assert (caught.value.rule, caught.value.where) == ("LCC-CHN-03", "000000000000.lcc.h5: frame 0")
    with pytest.raises(FormatError, match="2 arrays in a frame of 1"):
        load_file(path)


# --- in a directory -------------------------------------------------------------------------------


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
        save_all(chain, walk(4, seed=1))
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
    (tmp_path / ".tmp-00aa00aa00aa00aa").write_bytes(b"half")
    (tmp_path / "subdirectory").mkdir()
    assert chain.steps == [0, 1, 2, 3]
    chain.save(4, states[0])
    assert_same(chain.restore(), states[0])
    assert {p.name for p in tmp_path.iterdir()} >= {"notes.txt", "model.lcc.h5", "subdirectory"}
    assert not (tmp_path / ".tmp-00aa00aa00aa00aa").exists()


class Named:
    """As much of a link as a fold needs; two are never equal."""

    def __init__(self, number: int, parents: tuple[Named, ...]) -> None:
        self.number, self.parents = number, parents


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=12))
def test_fold_gives_each_link_what_its_parents_made(places: list[tuple[int, int]]) -> None:
    """Against recursion; and a value may be used up exactly where no later link needs it."""
    links: list[Any] = []
    for number, both in enumerate(places):
        above = dict.fromkeys(links[-place] for place in both if 0 < place <= len(links))
        links.append(Named(number, tuple(above)))

    def value(link: Any) -> str:
        return f"({''.join(map(value, link.parents))})"

    def make(link: Any, before: list[str], alone: bool) -> str:
        later = [above for other in links[link.number + 1 :] for above in other.parents]
        assert alone == (not any(above in later for above in link.parents))
        return f"({''.join(before)})"

    assert [made for _, made in fold(links, make)] == [value(link) for link in links]
    if links:
        assert fold_last(links, make) == value(links[-1])


def test_an_array_that_the_later_parent_lacks_has_the_head_of_the_earlier() -> None:
    (low,), _ = links_of(drift(1, ((300,), (20,))), Lossless())
    (high,), _ = links_of(drift(1), Lossless())
    middle = FakeLink({"w0": None, "w1": None}, [], "middle", low, high)
    links: list[Any] = [low, high, middle]
    heads = array_heads(links)
    assert [heads[name].interpolated for name in ("w0", "w1")] == [True, False]
    assert heads["w1"].shape == (20,)


def test_the_heads_of_a_run_are_found_together() -> None:
    calls = []

    class Counted(FakeLink):
        @property
        def members(self) -> list[list[int]]:
            calls.append(1)
            return super().members

    links, _ = links_of(drift(3, ((5,),) * 50), lccodec.Lossless())
    counted = [Counted(link.numbers, link.frames, link.place) for link in links]
    heads = array_heads(counted)
    assert [head.shape for head in heads.values()] == [(5,)] * 50
    assert len(calls) <= 3


def test_the_bytes_of_a_run_are_added_up_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def counted(header: FrameHeader) -> int:
        calls.append(header)
        return header.components * header.kind.size

    small = {f"a{i}": np.full(500, i, np.float32) for i in range(30)}
    halves = {f"h{i}": np.full(300, i, np.float16) for i in range(30)}
    path = tmp_path / "model.lcc.h5"
    lccodec.save_file({"big": np.arange(40_000.0), **small, **halves}, path)
    monkeypatch.setattr(FrameHeader, "nbytes", property(counted))
    with open_path(path) as file:
        assert len(file.info().arrays) == 61
    assert len(calls) == 3


def test_lossy_is_what_the_newest_frame_of_an_array_is(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    first, second, third = (rng.standard_normal(3000).astype(np.float32) for _ in range(3))
    still = rng.standard_normal(20_000).astype(np.float32)
    with HistoryChain(tmp_path, "lc-3", roles={"w": "weight", "n": "weight"}) as chain:
        chain.save(1, {"w": first, "n": still, "count": np.arange(3)})
        chain.save(2, {"w": second, "n": still, "count": np.arange(3) + 1})
        restored = chain.restore()
        chain.save(3, {"w": restored["w"], "n": still, "count": np.arange(3) + 2})
    with HistoryChain(tmp_path, "lossless") as chain, pytest.warns(lccodec.LccodecWarning):
        chain.save(4, {"w": third, "n": still, "count": np.arange(3) + 2})
    lossy = {step: {a.name: (a.lossy, a.method) for a in chain.info(step).arrays} for step in (1, 2, 3, 4)}
    assert not any(found for found, _ in lossy[1].values())
    assert lossy[2]["w"] == (True, "codebook")
    assert lossy[3]["w"] == (True, "unchanged")
    assert not lossy[4]["w"][0]
    assert not any(lossy[step][name][0] for step in (2, 3, 4) for name in ("n", "count"))
    assert [chain.info(step).lossy for step in (1, 2, 3, 4)] == [False, True, True, False]


def test_a_summary_is_the_info_without_the_arrays(tmp_path: Path) -> None:
    """Of keyframes, deltas, interpolated checkpoints and what is written anew, lossy and exact."""
    states = [{"w": np.cumsum(np.ones(3000, np.float32)) + step, "n": np.arange(3)} for step in range(9)]
    kinds = set()
    for policy, hindsight in (("balanced", 3), ("lossless", 0)):
        with lccodec.Chain(tmp_path / policy, policy, roles={"w": "weight"}, hindsight=hindsight) as chain:
            save_all(chain, states, metadata={"run": "first"})
            chain.prune(lccodec.Keep(latest=4))
        with open_store(tmp_path / policy) as store:
            for visit in survey(store, store.steps()):
                info, summary = visit.info(), visit.summary()
                expected = {**vars(info), "lossy": info.lossy}
                del expected["arrays"]
                assert vars(summary) == expected
                assert (summary.kind, summary.parents) == (info.kind, info.parents)
                kinds.add((info.kind, info.lossy, bool(info.replaces)))
    assert {kind for kind, *_ in kinds} == {"keyframe", "delta", "interpolated"}
    assert {(lossy, anew) for _, lossy, anew in kinds} == {(False, False), (True, False), (True, True)}


def test_metadata_and_info(tmp_path: Path) -> None:
    with lccodec.Chain(tmp_path, policy="lc-3") as chain:
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
