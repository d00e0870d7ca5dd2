"""What is kept of what was read: bounded, and never wrong."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from lccodec.chain.store.bucket.cache import Disk, Memory

ROOT = bytes(range(32))


def test_parts_of_what_is_in_memory_are_found() -> None:
    memory = Memory(100)
    memory.put("a", 10, b"0123456789")
    assert memory.get("a", 12, 3) == b"234"
    assert memory.get("a", 10, 10) == b"0123456789"
    assert memory.get("a", 9, 2) is None
    assert memory.get("a", 19, 2) is None
    assert memory.get("b", 12, 3) is None


def test_memory_forgets_what_was_used_longest_ago() -> None:
    memory = Memory(10)
    memory.put("a", 0, bytes(4))
    memory.put("b", 0, bytes(4))
    assert memory.get("a", 0, 4) is not None
    memory.put("c", 0, bytes(4))
    assert memory.get("b", 0, 4) is None
    assert memory.get("a", 0, 4) is not None
    memory.put("a", 0, bytes(1))  # in its own place
    memory.put("d", 0, bytes(5))
    assert memory.get("c", 0, 4) is not None


def test_a_range_on_the_disk_is_found_again(tmp_path: Path) -> None:
    Disk(tmp_path / "cache").put(ROOT, 5, b"some bytes")
    assert Disk(tmp_path / "cache").get(ROOT, 5, 10) == b"some bytes"
    assert Disk(tmp_path / "cache").get(ROOT, 5, 9) is None


@pytest.mark.parametrize("damage", [b"", b"some", b"other bytes....................."])
def test_a_damaged_range_is_removed(tmp_path: Path, damage: bytes) -> None:
    disk = Disk(tmp_path)
    disk.put(ROOT, 5, b"some bytes")
    (path,) = tmp_path.iterdir()
    path.write_bytes(damage)
    assert disk.get(ROOT, 5, 10) is None
    assert list(tmp_path.iterdir()) == []


def test_the_disk_keeps_to_its_limit(tmp_path: Path) -> None:
    disk = Disk(tmp_path, limit=5000)
    for number in range(40):
        disk.put(ROOT, number, bytes(500))
        os.utime(tmp_path / f"{ROOT.hex()}-{number}-500", (number, number))
    kept = sorted(int(path.name.split("-")[1]) for path in tmp_path.iterdir())
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= 5500
    assert kept == list(range(40 - len(kept), 40))  # the newest
    disk.put(ROOT, 99, bytes(2000))  # too large to be worth it
    assert disk.get(ROOT, 99, 2000) is None


def test_a_disk_that_cannot_be_written_stops_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    disk = Disk(tmp_path / "file" / "cache")
    disk.put(ROOT, 0, b"bytes")
    assert disk.get(ROOT, 0, 5) is None


def test_the_environment_chooses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LCCODEC_CACHE", "")
    disk = Disk.of_user()
    disk.put(ROOT, 0, b"bytes")
    assert disk.get(ROOT, 0, 5) is None
    monkeypatch.delenv("LCCODEC_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    Disk.of_user().put(ROOT, 0, b"bytes")
    assert [path.name for path in (tmp_path / "lccodec").iterdir()] == [f"{ROOT.hex()}-0-5"]
    monkeypatch.setenv("LCCODEC_CACHE_BYTES", "0")
    monkeypatch.setenv("LCCODEC_CACHE", str(tmp_path / "other"))
    Disk.of_user().put(ROOT, 0, b"bytes")
    assert not (tmp_path / "other").exists()
