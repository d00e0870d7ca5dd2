"""Files that are damaged or missing come back from a mirror, bit for bit."""

import errno
import random
import shutil
from pathlib import Path

import pytest

import lccodec
from lccodec import Chain, ChainError, Keep, StorageError, validate
from lccodec.chain.mend.repair import repair
from lccodec.chain.store.directory import DirectoryStore
from lccodec.chain.store.store import checkpoint_name
from lccodec.constants import PAYLOAD_OFFSET
from lccodec.container.source import Source

from ...support.damage import damaged, flip, protected_run, put
from ...support.mirrors import chain_files, mirror_of
from ...support.segments import STATES, run_of
from ...support.walks import assert_same


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A chain with a mirror beside it, in `m`."""
    run_of(tmp_path / "run", 6, newest="exact").close()
    mirror_of(tmp_path / "run", tmp_path / "m").bring()
    return tmp_path / "run"


def test_damaged_and_missing_files_come_back(run: Path, tmp_path: Path) -> None:
    files = chain_files(run)
    (run / checkpoint_name(3)).unlink()
    (run / "exact.lcc.h5").unlink()
    (run / checkpoint_name(1)).write_bytes(b"")
    broken = chain_files(run)
    with Chain(run, mirror=tmp_path / "m") as chain:
        told = chain.repair(dry_run=True)
        assert chain_files(run) == broken
        found = chain.repair()
    assert found == told
    assert set(found.mended) == {"exact.lcc.h5", checkpoint_name(1), checkpoint_name(3)}
    assert set(found.mirrored.values()) == {str(tmp_path / "m")}
    assert found.lost == {}
    assert chain_files(run) == files


def test_what_a_file_needs_comes_before_it(run: Path, tmp_path: Path) -> None:
    files = chain_files(run)
    for step in (3, 4):  # 5 needs both
        (run / checkpoint_name(step)).unlink()
    found = repair(DirectoryStore(run), mirrors=[DirectoryStore(tmp_path / "m")])
    assert found.mended == (checkpoint_name(3), checkpoint_name(4))
    assert chain_files(run) == files


def test_steps_that_follow_come_too_but_not_what_was_rolled_back_or_pruned(run: Path, tmp_path: Path) -> None:
    files = chain_files(run)
    for name in (checkpoint_name(5), "exact.lcc.h5"):
        (run / name).unlink()
    assert repair(DirectoryStore(run), mirrors=[DirectoryStore(tmp_path / "m")]).lost == {}
    assert chain_files(run) == files
    with Chain(run) as chain:
        chain.prune(Keep(latest=1))
        kept = chain_files(run)
        assert repair(DirectoryStore(run), mirrors=[DirectoryStore(tmp_path / "m")]).mended == ()
        assert chain_files(run) == kept
        chain.rollback(4)
    found = repair(DirectoryStore(run), mirrors=[DirectoryStore(tmp_path / "m")])
    assert (dict(found.mirrored), found.mended) == ({}, ("exact.lcc.h5",))  # that of step 4, which names it
    assert Chain(run).steps == [3, 4]
    assert Chain(run).info(4).exact


def refuse(monkeypatch: pytest.MonkeyPatch, place: Path, name: str) -> None:
    """Let the disk refuse to read a file of a directory."""
    source = DirectoryStore.source

    def opened(store: DirectoryStore, wanted: str) -> Source:
        if (store.path, wanted) == (place, name):
            raise StorageError(errno.EIO, "cannot read", name)
        return source(store, wanted)

    monkeypatch.setattr(DirectoryStore, "source", opened)


def test_what_the_disk_refuses_for_a_moment_stays_and_the_rest_is_mended(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A read error does not say that bytes are lost; those of the mirror may be older."""
    files, damaged_one, refused = chain_files(run), checkpoint_name(1), checkpoint_name(4)
    flip(run / damaged_one, 300)
    before = (run / refused).stat()
    refuse(monkeypatch, run, refused)
    found = repair(DirectoryStore(run), mirrors=[DirectoryStore(tmp_path / "m")])
    assert found.mended == (damaged_one,)
    assert "cannot read" in found.lost[refused]
    assert (run / refused).stat().st_ino == before.st_ino
    monkeypatch.undo()
    assert chain_files(run) == files


def test_an_empty_directory_gets_everything(run: Path, tmp_path: Path) -> None:
    found = repair(DirectoryStore(tmp_path / "new"), mirrors=[DirectoryStore(tmp_path / "m")])
    assert len(found.mended) == 7
    assert chain_files(tmp_path / "new") == chain_files(run)


def test_parity_comes_first(tmp_path: Path) -> None:
    protected_run(tmp_path / "run", 1, 5)
    files = chain_files(tmp_path / "run")
    mirror_of(tmp_path / "run", tmp_path / "m").bring()
    (tmp_path / "run" / checkpoint_name(2)).unlink()
    found = repair(DirectoryStore(tmp_path / "run"), mirrors=[DirectoryStore(tmp_path / "m")], dry_run=True)
    assert (found.mended, found.mirrored) == ((checkpoint_name(2),), {})
    (tmp_path / "run" / checkpoint_name(3)).unlink()  # two are too many
    found = repair(DirectoryStore(tmp_path / "run"), mirrors=[DirectoryStore(tmp_path / "m")])
    assert set(found.mirrored) == {checkpoint_name(2), checkpoint_name(3)}
    assert chain_files(tmp_path / "run") == files


def test_a_damaged_mirror_brings_nothing(run: Path, tmp_path: Path) -> None:
    for place in (run, tmp_path / "m"):
        path = place / checkpoint_name(2)
        flip(path, PAYLOAD_OFFSET + (place == run))
    before = chain_files(run)
    found = repair(DirectoryStore(run), mirrors=[DirectoryStore(tmp_path / "m")])
    assert found.mended == ()
    assert str(tmp_path / "m") in found.lost[checkpoint_name(2)]
    assert chain_files(run) == before


def test_a_mirror_of_another_chain_is_refused(run: Path, tmp_path: Path) -> None:
    with Chain(tmp_path / "other", "lossless") as other:
        other.save(2, STATES[9])
    (run / checkpoint_name(1)).write_bytes(b"")
    with pytest.raises(ChainError, match="a mirror of another chain"):
        repair(DirectoryStore(run), mirrors=[DirectoryStore(tmp_path / "other")])


@pytest.mark.slow
def test_random_damage_of_both(run: Path, tmp_path: Path) -> None:
    """Every file that is whole in one of the two is whole here afterwards."""
    files, generator = chain_files(run), random.Random(0)
    for _ in range(40):
        here, there = (damaged(files, generator, generator.randint(1, 3)) for _ in range(2))
        put(tmp_path / "a", here)
        put(tmp_path / "b", there)
        found = repair(DirectoryStore(tmp_path / "a"), mirrors=[DirectoryStore(tmp_path / "b")])
        now = chain_files(tmp_path / "a")
        for name, data in files.items():
            if name in found.remade:  # nobody had it whole, or not what it needs
                with lccodec.open(tmp_path / "a" / name) as file:
                    assert_same(file.state(), STATES[file.info().step or 0])
            elif name in here and data in (here[name], there.get(name)):
                assert now[name] == data
            elif name in here:
                assert now[name] == here[name]
                assert name in found.lost
            else:
                assert now.get(name) in (None, data)
        shutil.rmtree(tmp_path / "a")
    assert validate(run, deep=True) == []
