"""Where arrays lie in the file of values."""

from __future__ import annotations

from lccodec.chain.save.hashes.places import Places


def test_no_two_arrays_share_a_byte() -> None:
    taken = [(50, 60), (10, 20), (15, 18), (20, 20), (25, 30)]
    places = Places(taken)
    found = [(at, at + size) for size in (5, 0, 20, 8, 5, 2, 100, 1) for at in [places.take(size)]]
    used = [byte for start, stop in [(10, 20), (25, 30), (50, 60), *found] for byte in range(start, stop)]
    assert len(used) == len(set(used))
    assert max(used) < 60 + 8 + 100


def test_it_begins_at_the_beginning() -> None:
    places = Places()
    assert [places.take(4), places.take(0), places.take(4)] == [0, 4, 4]
