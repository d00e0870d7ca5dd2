"""Checkpoints rewritten: the same state, other parents, and all that named the old file.

A finished run is rewritten: the same states in fewer bytes, or with fewer deltas.
"""

import errno
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lccodec import (
    ArgumentError,
    Chain,
    ChainError,
    DataError,
    LccodecWarning,
    StorageError,
    validate,
)
from lccodec.chain.life import compact as module
from lccodec.chain.life.compact import compact, rewrite
from lccodec.chain.store.directory import DirectoryStore
from lccodec.constants import EXACT_NAME, PAYLOAD_OFFSET
from lccodec.container.checkpoint import CheckpointWriter, open_checkpoint
from lccodec.frame.encode import encode_content

from ...support.chains import HistoryChain
from ...support.damage import flip
from ...support.directories import entries
from ...support.systems import Faulty
from ...support.walks import assert_restores, assert_same, walk

SETTLED_STATES = walk(6, shape=(20, 30))
NAME = "{:012d}.lcc.h5"


@pytest.fixture(name="chain")
def _chain(tmp_path: Path) -> Chain:
    chain = HistoryChain(tmp_path / "run", "lc-3", newest="exact")
    for step in range(5):
        chain.save(step, SETTLED_STATES[step], {"loss": step})
    return chain


def rewritten_history(chain: Chain) -> list[Any]:
    return [chain.restore(step, exact=False, dtype="bits") for step in chain.steps]


@pytest.mark.parametrize(
    ("step", "parent"), [(3, None), (3, 1), (2, 0), (4, None), (4, 0), (0, None), (1, 0)]
)
def test_the_state_and_all_that_names_it_stay(chain: Chain, step: int, parent: int | None) -> None:
    before, info = rewritten_history(chain), chain.info(step)
    others = {p.name: p.read_bytes() for p in entries(chain.directory) if p.name != NAME.format(step)}
    done = rewrite(DirectoryStore(chain.directory), step, parent)
    assert done is not None
    new = chain.info(step)
    assert (done.step, done.parent, done.before, done.after) == (
        step,
        parent,
        info.file_bytes,
        new.file_bytes,
    )
    assert (new.parent, new.replaces) == (parent, (info.root,))
    assert (new.metadata, new.policy) == (info.metadata, info.policy)
    assert [(a.name, a.role, a.quantizer) for a in new.arrays] == [
        (a.name, a.role, a.quantizer) for a in info.arrays
    ]
    assert_same(rewritten_history(chain), before)
    assert validate(chain.directory, deep=True) == []
    for name, data in others.items():
        assert (chain.directory / name).read_bytes() == data
    assert chain.info(4).exact
    assert_same(HistoryChain(chain.directory).restore(), SETTLED_STATES[4])
    HistoryChain(chain.directory).save(5, SETTLED_STATES[5])
    assert chain.info(5).parent == 4


def test_again_and_again(chain: Chain) -> None:
    before = rewritten_history(chain)
    roots = []
    for parent in (None, 0, 1, None):
        roots.append(chain.info(2).root)
        rewrite(DirectoryStore(chain.directory), 2, parent)
    assert chain.info(2).replaces == tuple(roots)
    assert_same(rewritten_history(chain), before)
    assert validate(chain.directory, deep=True) == []


def test_what_is_lossy_stays_known_as_lossy(chain: Chain) -> None:
    lossy = [array.name for array in chain.info(3).arrays if array.lossy]
    rewrite(DirectoryStore(chain.directory), 3, None)
    assert [array.name for array in chain.info(3).arrays if array.lossy] == lossy != []


def test_a_delta_of_another_process_meanwhile(chain: Chain) -> None:
    """A writer that had looked at its parent before goes on: the new file takes its place."""
    delta = HistoryChain(shutil.copytree(chain.directory, chain.directory.parent / "copy"))
    delta.save(5, SETTLED_STATES[5])
    rewrite(DirectoryStore(chain.directory), 4, None)
    shutil.copy(delta.directory / NAME.format(5), chain.directory)
    assert_same(chain.restore(5, exact=False), delta.restore(5, exact=False))


def test_an_open_chain_goes_on(chain: Chain) -> None:
    rewrite(DirectoryStore(chain.directory), 4, None)
    chain.save(5, SETTLED_STATES[5])
    assert chain.info(5).parent == 4
    assert validate(chain.directory, deep=True) == []


def test_another_file_in_its_place_is_still_noticed(chain: Chain) -> None:
    other = HistoryChain(chain.directory.parent / "other", "lc-3")
    for step in range(4):
        other.save(step, SETTLED_STATES[5 - step])
    rewrite(DirectoryStore(other.directory), 3, None)
    shutil.copy(other.directory / NAME.format(3), chain.directory)
    with pytest.raises(ChainError, match="is not the parent it was taken against"):
        chain.restore(4, exact=False)


def test_a_state_that_is_a_liar_is_found(chain: Chain) -> None:
    """A file that claims to replace another one, with other values."""
    path = chain.directory / NAME.format(0)
    with open_checkpoint(path) as reader:
        root = reader.root
    liar = HistoryChain(chain.directory.parent / "liar", "lc-3")
    layer = {**SETTLED_STATES[0]["layer"], "weight": np.zeros((20, 30), "f4")}
    liar.save(0, {**SETTLED_STATES[0], "layer": layer})
    with open_checkpoint(liar.directory / NAME.format(0)) as reader:
        frames = [reader.frame(number) for number in range(len(reader.manifest.frames))]
        manifest = reader.manifest
    with CheckpointWriter(path, overwrite=True) as writer:
        entries = tuple(map(writer.write_frame, frames))
        writer.commit(replace(manifest, frames=entries, replaces=(root,)))
    with pytest.raises(DataError, match="LCC-FRM-09"):
        chain.restore(1)
    assert validate(chain.directory, deep=True)


@pytest.mark.parametrize("parent", [None, 0])
def test_dry_runs_say_the_bytes(chain: Chain, parent: int | None) -> None:
    told = rewrite(DirectoryStore(chain.directory), 3, parent, dry_run=True)
    assert chain.info(3).replaces == ()
    assert rewrite(DirectoryStore(chain.directory), 3, parent) == told


def test_only_if_it_gets_smaller(chain: Chain) -> None:
    before = {p.name: p.read_bytes() for p in entries(chain.directory)}
    for dry_run in (True, False):
        assert rewrite(DirectoryStore(chain.directory), 3, None, smaller=True, dry_run=dry_run) is None
    assert {p.name: p.read_bytes() for p in entries(chain.directory)} == before
    rewrite(DirectoryStore(chain.directory), 3, None)
    found = rewrite(DirectoryStore(chain.directory), 3, 2, smaller=True)
    assert found is not None
    assert found.after < found.before


def test_errors_leave_the_old_file(chain: Chain, monkeypatch: pytest.MonkeyPatch) -> None:
    before = {p.name: p.read_bytes() for p in entries(chain.directory)}
    with pytest.raises(StorageError):
        rewrite(DirectoryStore(chain.directory), 9, None)
    with pytest.raises(DataError, match="LCC-CHN-02"):
        rewrite(DirectoryStore(chain.directory), 3, 4)
    with pytest.raises(StorageError, match="No space"):
        rewrite(
            DirectoryStore(chain.directory, Faulty(errno.ENOSPC, lambda name, _: name == "write")), 3, None
        )
    spoiled = lambda content, *rest, **options: encode_content(  # noqa: E731 - a bit of each frame is wrong
        replace(content, bits=content.bits ^ 1), *rest, **options
    )
    monkeypatch.setattr(module, "encode_content", spoiled)
    with pytest.raises(ChainError, match="has another state, so the old file stays"):
        rewrite(DirectoryStore(chain.directory), 3, None)
    assert {p.name: p.read_bytes() for p in entries(chain.directory)} == before


STATES = walk(9, shape=(40, 30))


def run_of(directory: Path, policy: str = "lc-3", every: int = 2, **options: Any) -> Chain:
    chain = HistoryChain(directory, policy, keyframe_every=every, **options)
    for step, state in enumerate(STATES):
        chain.save(step, state, {"loss": step})
    return chain


def history(chain: Chain) -> list[Any]:
    return [chain.restore(step, exact=False) for step in chain.steps]


def content(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in entries(directory)}


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["lossless", "lc-3", "balanced"])
@pytest.mark.parametrize(("before", "after"), [(2, 32), (2, 5), (2, 4), (8, 2), (8, 0), (0, 2)])
def test_the_same_states(tmp_path: Path, policy: str, before: int, after: int) -> None:
    chain = run_of(tmp_path, policy, before, newest="exact")
    expected, sizes = history(chain), {step: chain.info(step).file_bytes for step in chain.steps}
    told = chain.compact(keyframe_every=after, dry_run=True)
    assert sum(sizes.values()) == told.before == sum(chain.info(step).file_bytes for step in chain.steps)
    found = chain.compact(keyframe_every=after)
    assert found == told
    assert found.after == sum(chain.info(step).file_bytes for step in chain.steps)
    assert_same(history(chain), expected)
    assert_same(chain.restore(), STATES[-1])
    assert max(chain.info(step).deltas for step in chain.steps) <= after
    if after >= before:
        assert found.after <= found.before
        assert all(each.after < each.before for each in found.rewritten)
    assert validate(tmp_path, deep=True) == []
    assert chain.compact(keyframe_every=after).rewritten == ()
    chain.save(9, STATES[0])
    assert validate(tmp_path, deep=True) == []


def test_keyframes_become_deltas(tmp_path: Path) -> None:
    chain = run_of(tmp_path, "lossless")
    found = chain.compact(keyframe_every=5)
    assert [(each.step, each.parent) for each in found.rewritten] == [(3, 2)]
    assert [chain.info(step).deltas for step in chain.steps] == [0, 1, 2, 3, 4, 5, 0, 1, 2]


@pytest.mark.slow
def test_into_a_new_directory(tmp_path: Path) -> None:
    chain = run_of(tmp_path / "run", newest="exact")
    before, expected = content(chain.directory), history(chain)
    found = chain.compact(keyframe_every=1, directory=tmp_path / "new" / "run")
    assert content(chain.directory) == before
    other = HistoryChain(tmp_path / "new" / "run")
    assert_same(history(other), expected)
    assert (other.directory / EXACT_NAME).samefile(chain.directory / EXACT_NAME)
    assert other.info(8).exact
    assert (other.directory / "000000000000.lcc.h5").samefile(chain.directory / "000000000000.lcc.h5")
    assert found.after == sum(other.info(step).file_bytes for step in other.steps)
    assert chain.compact(keyframe_every=1, directory=tmp_path / "new" / "run").rewritten == ()  # again
    for place in (chain.directory.parent, chain.directory):
        with pytest.raises(ArgumentError, match="a fork needs a new directory"):
            HistoryChain(run_of(tmp_path / f"{place.name}-2").directory).compact(directory=place)


@pytest.mark.slow
def test_with_a_policy_it_says_what_is_lost(tmp_path: Path) -> None:
    chain = run_of(tmp_path / "run", "lossless")
    with pytest.raises(ArgumentError, match="needs directory= and does not support dry_run"):
        chain.compact("lc-2")
    with pytest.raises(ArgumentError, match="not empty"):
        chain.compact("lc-2", directory=chain.directory)
    found = chain.compact("balanced", directory=tmp_path / "new")
    other = HistoryChain(tmp_path / "new")
    assert (other.steps, other.policy.name) == (chain.steps, "balanced")
    assert found.after == sum(other.info(step).file_bytes for step in other.steps) < found.before
    lost = had = 0.0
    for step in other.steps:
        was, now = (c.restore(step)["layer"]["weight"].astype("f8") for c in (chain, other))
        lost, had = lost + np.square(now - was).sum(), had + np.square(was).sum()
        assert other.info(step).metadata == chain.info(step).metadata
        assert [(a.name, a.role) for a in other.info(step).arrays] == [
            (a.name, a.role) for a in chain.info(step).arrays
        ]
    assert found.errors["weight"] == pytest.approx(np.sqrt(lost / had), rel=0.5)  # with the biases
    assert 0 < found.errors["weight"] < 0.1
    assert found.errors["other"] == 0
    assert chain.compact("lossless", directory=tmp_path / "exact").errors == {"weight": 0, "other": 0}


def test_with_a_policy_the_new_chain_has_no_exact_file(tmp_path: Path) -> None:
    chain = run_of(tmp_path / "run", "balanced", newest="exact")
    chain.compact("lc-3", directory=tmp_path / "new")  # of the history, which has lost something
    other = Chain(tmp_path / "new")
    assert (other.newest, (tmp_path / "new" / EXACT_NAME).exists()) == ("history", False)
    assert not other.info().exact


def test_with_a_policy_a_step_that_only_the_exact_file_has_is_saved_too(tmp_path: Path) -> None:
    chain = run_of(tmp_path / "run", "balanced", newest="exact")
    (tmp_path / "run" / "000000000008.lcc.h5").unlink()  # as if the disk had been full
    found = chain.compact("lossless", directory=tmp_path / "new")
    assert found.steps == len(STATES)
    assert Chain(tmp_path / "new").steps == chain.steps
    assert_same(Chain(tmp_path / "new").restore(), STATES[-1])
    with pytest.raises(ChainError, match="holds no checkpoint"):
        Chain(tmp_path / "nothing").compact("lossless", directory=tmp_path / "other")


def test_what_is_refused(tmp_path: Path) -> None:
    with pytest.raises((ChainError, StorageError)):
        HistoryChain(tmp_path / "nothing").compact()
    with pytest.raises(ArgumentError, match="keyframe_every must be a non-negative integer"):
        run_of(tmp_path / "run").compact(keyframe_every=-1)


def test_what_is_broken_stays(tmp_path: Path) -> None:
    chain = run_of(tmp_path, "lossless")
    path = tmp_path / "000000000003.lcc.h5"
    flip(path, PAYLOAD_OFFSET + 65)
    with pytest.warns(LccodecWarning, match="step [36] stays as it is: .*000000000003") as caught:
        found = chain.compact(keyframe_every=8)
    assert len(caught) == 2  # and 6, which would be a delta to what needs 3
    assert 3 not in [each.step for each in found.rewritten]
    assert_restores(chain, STATES, (0, 1, 2, 6, 7, 8))


def test_a_full_disk(tmp_path: Path) -> None:
    chain = run_of(tmp_path)
    before = content(tmp_path)
    for call in ("write", "fsync", "replace"):
        system = Faulty(errno.ENOSPC, lambda name, _, call=call: name == call)
        with pytest.raises(StorageError, match="No space"):
            compact(DirectoryStore(tmp_path, system), 0)
        assert content(tmp_path) == before
    assert chain.compact(keyframe_every=0).rewritten
