"""What a mirror lacks, in which order it is copied, and which mirrors are none."""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import Any

import pytest

from lccodec import Chain, ChainError, Keep
from lccodec.chain.mirror.transfer import Inventory, check_kin, compare, set_aside_of
from lccodec.chain.store.directory import DirectoryStore
from lccodec.chain.store.names import checkpoint_name

from ...support.segments import STATES, run_of
from ...support.walks import save_all


def lacking(run: Path, mirror: Path, **options: Any) -> list[str]:
    here, there = (Inventory(DirectoryStore(place)).read() for place in (run, mirror))
    return list(compare(here, there, **options).names)


def names(*steps: int) -> list[str]:
    return list(map(checkpoint_name, steps))


def hindsight_run(directory: Path) -> None:
    with Chain(directory, "balanced", newest="exact", hindsight=4) as chain:
        save_all(chain, STATES)


def test_the_exact_file_comes_first_and_then_rising_steps(tmp_path: Path) -> None:
    run_of(tmp_path / "run", 5, newest="exact").close()
    assert lacking(tmp_path / "run", tmp_path / "m") == ["exact.lcc.h5", *names(0, 1, 2, 3, 4)]
    assert lacking(tmp_path / "run", tmp_path / "run") == []
    assert lacking(tmp_path / "none", tmp_path / "m") == []


def test_parents_come_first_whatever_the_mirror_has(tmp_path: Path) -> None:
    """Of interpolated checkpoints one parent is a later step."""
    hindsight_run(tmp_path / "run")
    store = DirectoryStore(tmp_path / "run")
    parents = {name: names(*store.parents_of(name)) for name in store.checkpoints().values()}
    assert any(above > name for name, found in parents.items() for above in found)
    generator = random.Random(0)
    for case in range(30):
        mirror = Path(shutil.copytree(tmp_path / "run", tmp_path / f"{case}"))
        kept = generator.sample(sorted(parents), generator.randint(0, 9))
        for name in parents.keys() - kept:
            (mirror / name).unlink()
        there = {*kept}
        for name in lacking(tmp_path / "run", mirror):
            assert there.issuperset(parents[name])
            there.add(name)
        assert there == {*parents}


def test_what_a_mirror_has_removed_stays_away_unless_it_is_needed(tmp_path: Path) -> None:
    run_of(tmp_path / "run", 9).close()
    shutil.copytree(tmp_path / "run", tmp_path / "m")
    for step in (1, 2, 3, 5, 8):
        (tmp_path / "m" / checkpoint_name(step)).unlink()
    assert lacking(tmp_path / "run", tmp_path / "m", sparse=True) == names(8)
    assert lacking(tmp_path / "run", tmp_path / "m") == names(1, 2, 3, 5, 8)
    (tmp_path / "m" / checkpoint_name(7)).unlink()
    (tmp_path / "m" / checkpoint_name(6)).unlink()
    assert lacking(tmp_path / "run", tmp_path / "m", sparse=True) == names(5, 6, 7, 8)


def test_a_settled_step_stays_as_it_was_where_a_delta_needs_it(tmp_path: Path) -> None:
    """It has other values now, and a step that was pruned here was taken against the old ones."""
    chain = Chain(tmp_path / "run", "balanced", newest="exact", hindsight=4)
    save_all(chain, STATES, range(4))
    shutil.copytree(tmp_path / "run", tmp_path / "m")
    save_all(chain, STATES, range(4, 10))
    chain.close()
    assert names(1) == [name for name in lacking(tmp_path / "run", tmp_path / "m") if name in names(1)]
    (tmp_path / "run" / checkpoint_name(2)).unlink()
    (tmp_path / "run" / checkpoint_name(3)).unlink()
    found = lacking(tmp_path / "run", tmp_path / "m")
    assert names(1)[0] not in found
    assert checkpoint_name(9) in found


def test_an_exact_file_that_came_alone_is_known_by_its_checkpoint(tmp_path: Path) -> None:
    run_of(tmp_path / "run", 1, newest="exact").close()
    (tmp_path / "m").mkdir()
    shutil.copy(tmp_path / "run/exact.lcc.h5", tmp_path / "m")
    with Chain(tmp_path / "run") as chain:
        chain.save(1, STATES[1])
    assert lacking(tmp_path / "run", tmp_path / "m") == ["exact.lcc.h5", *names(0, 1)]


def test_a_mirror_that_shares_nothing_is_taken_only_if_it_is_known(tmp_path: Path) -> None:
    with run_of(tmp_path / "run", 3) as chain:
        shutil.copytree(tmp_path / "run", tmp_path / "m")
        chain.save(3, STATES[3])
        chain.prune(Keep(latest=1))
    with pytest.raises(ChainError, match="it shares no file with"):
        lacking(tmp_path / "run", tmp_path / "m")
    assert lacking(tmp_path / "run", tmp_path / "m", known=True) == names(3)


def test_rollbacks_are_known_by_what_they_have_set_aside(tmp_path: Path) -> None:
    with run_of(tmp_path / "run", 6, newest="exact") as chain:
        shutil.copytree(tmp_path / "run", tmp_path / "m")
        chain.rollback(4)
        chain.rollback(2)
    store = DirectoryStore(tmp_path / "run")
    assert [step for step, _ in set_aside_of(store)] == [4, 2]
    here, there = (Inventory(DirectoryStore(tmp_path / each)).read() for each in ("run", "m"))
    found = compare(here, there, rolled_back=lambda: set_aside_of(store))
    assert (found.names, found.set_aside) == ((), 2)


def test_kin(tmp_path: Path) -> None:
    run_of(tmp_path / "run", 3).close()
    with Chain(tmp_path / "other", "lossless") as other:
        other.save(2, STATES[9])
    shutil.copytree(tmp_path / "run", tmp_path / "m")
    with Chain(tmp_path / "m") as chain:
        chain.save(3, STATES[3])
    own, newer, another, none = (
        Inventory(DirectoryStore(tmp_path / each)).read() for each in ("run", "m", "other", "none")
    )
    for there in (own, newer, none):
        check_kin(own, there)
    with pytest.raises(ChainError, match="a mirror of another chain"):
        check_kin(own, another)


def test_files_are_read_again_only_if_they_change(tmp_path: Path) -> None:
    run_of(tmp_path, 4).close()
    read = list[str]()

    class Counting(DirectoryStore):
        def root(self, name: str) -> tuple[bytes, int]:
            read.append(name)
            return super().root(name)

    inventory = Inventory(Counting(tmp_path))
    before = inventory.read()
    assert before.newest == 3
    with Chain(tmp_path) as chain:
        chain.save(4, STATES[4])
    (tmp_path / checkpoint_name(1)).write_bytes(b"")
    found = inventory.read()
    assert read == names(0, 1, 2, 3, 1, 4)
    assert list(found.unreadable) == names(1)
    assert found.newest == 4
