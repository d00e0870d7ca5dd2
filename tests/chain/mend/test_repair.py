"""Damage up to the redundancy is mended bit for bit; beyond it, nothing is worse than before."""

from __future__ import annotations

import itertools
import random
from pathlib import Path

import pytest

from lccodec import Chain, validate
from lccodec.chain.mend.repair import repair
from lccodec.chain.store.directory import DirectoryStore

from ...support.damage import Files, Truth, damaged, files_in, protected_run, put
from ...support.profiles import LONG

CASES = 10_000 if LONG else 240


def truths(files: Files) -> list[Truth]:
    """The groups of a directory."""
    return [Truth(files, name) for name in files if name.endswith("-00.lcc.par")]


def assert_honest(place: Path, files: Files, broken: Files) -> bool:
    """Repair damaged files; return whether all were mended, which must be so if that is possible."""
    put(place, broken)
    told = repair(DirectoryStore(place), dry_run=True)
    assert files_in(place) == broken
    found = repair(DirectoryStore(place))
    now = files_in(place)
    assert (found.mended, found.lost) == (told.mended, told.lost)
    for truth in truths(files):
        original = {name: files[name] for name in truth.names}
        mended = {name: now.get(name) for name in truth.names} == original
        assert mended or not truth.is_mendable(broken)
    for name, data in files.items():
        if name in now and now[name] != data and not name.startswith(".parity"):
            assert now[name] == broken.get(name)
            assert name in found.lost
    if not found.lost and all(name in now for name in files):
        assert {name: data for name, data in now.items() if not name.startswith(".parity")} == {
            name: data for name, data in files.items() if not name.startswith(".parity")
        }
        return True
    return False


@pytest.mark.parametrize(("redundancy", "places"), [(2, 3), ("20%", 3), (1, 2), ("100%", 6)])
def test_random_damage(tmp_path: Path, redundancy: object, places: int) -> None:
    protected_run(tmp_path / "run", redundancy, newest="exact")
    files = files_in(tmp_path / "run")
    generator, whole = random.Random(f"{redundancy}"), 0
    cases = CASES // 4
    for _ in range(cases):
        broken = damaged(files, generator, generator.randint(1, places))
        whole += assert_honest(tmp_path / "case", files, broken)
    assert cases // 8 < whole < cases  # some are beyond the limit, and some are not
