"""What names of objects say, without a store."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lccodec.chain.store.bucket.keys import (
    Data,
    Listing,
    Object,
    commit_bytes,
    commit_key,
    named_by,
    read_listing,
)
from lccodec.errors import FormatError

NAME = "000000000010.lcc.h5"
NUMBERS = st.integers(0, 10**15)


def listed(keys: dict[str, bytes], below: str = "") -> Listing:
    """A listing of objects, given by key and content, in any order."""
    objects = [Object(key, len(data), 0.0) for key, data in keys.items()]
    random.Random(len(keys)).shuffle(objects)
    return read_listing(objects, lambda wanted: [keys[key] for key in wanted], below)


def data(generation: int = 0, step: int = 10, root: int = 1, parents: tuple[int, ...] = ()) -> str:
    return Data(generation, step, bytes([root]) * 32, parents, 99).name()


@given(
    st.builds(
        Data,
        generation=NUMBERS,
        step=NUMBERS,
        root=st.binary(min_size=32, max_size=32),
        parents=st.lists(NUMBERS, max_size=2).map(tuple),
        tail=st.integers(1, 10**15),
    )
)
def test_a_name_says_all_that_it_was_made_of(found: Data) -> None:
    assert Data.parse(found.name()) == found


@pytest.mark.parametrize(
    "name",
    [
        *("", "0", "0.10.lcc.h5", data()[:-1], data() + "x", "0" + data(), data().replace("none", "1-2-3")),
        *(data().replace("none", ""), data().replace(".99.", ".099."), data().upper()),
    ],
)
def test_other_names_say_nothing(name: str) -> None:
    assert Data.parse(name) is None


def test_a_commit_and_its_data_are_a_file() -> None:
    key = f"{NAME}/{data(parents=(8,))}"
    listing = listed({f"{NAME}/0": commit_bytes(key), key: b"bytes", "000000000008.pin": b""})
    entry = listing.entries[NAME]
    assert (entry.data.step, entry.data.parents, entry.object.key, entry.object.size) == (10, (8,), key, 5)
    assert listing.names == [NAME, "000000000008.pin"]
    assert listing.loose == []


def test_a_commit_is_read_only_where_writers_met() -> None:
    won, lost = (f"{NAME}/{data(root=root)}" for root in (1, 2))
    keys = {f"{NAME}/0": commit_bytes(won), won: b"", lost: b""}
    listing = listed(keys)
    assert listing.entries[NAME].data.root == bytes([1]) * 32
    assert [each.key for each in listing.loose] == [lost]
    del keys[lost]
    assert read_listing([Object(key, 0, 0.0) for key in keys], pytest.fail).entries[NAME].object.key == won


def test_data_alone_is_no_file() -> None:
    listing = listed({f"{NAME}/{data()}": b""})
    assert listing.names == []
    assert len(listing.loose) == 1


def test_the_highest_generation_counts() -> None:
    keys = {}
    for generation in (0, 2, 11):
        key = f"{NAME}/{data(generation, root=generation)}"
        keys |= {commit_key(NAME, generation): commit_bytes(key), key: b""}
    listing = listed(keys)
    assert listing.entries[NAME].generations == (0, 2, 11)
    assert listing.entries[NAME].data.generation == 11
    assert listing.next_generation(NAME) == 12
    assert listing.next_generation("exact.lcc.h5") == 0


def test_a_commit_whose_data_is_gone_is_told() -> None:
    key = f"{NAME}/{data()}"
    listing = listed({f"{NAME}/0": commit_bytes(key), f"{NAME}/3": commit_bytes(key)})
    assert listing.missing == {NAME: (0, 3)}
    assert listing.names == [NAME]
    assert listing.next_generation(NAME) == 4


def test_what_was_rolled_back_still_uses_its_data() -> None:
    old, new = (f"{NAME}/{data(root=root)}" for root in (1, 2))
    aside = ".rolled-back/0001-to-8/"
    keys = {old: b"", new: b"", f"{NAME}/0": commit_bytes(new), f"{aside}{NAME}/0": commit_bytes(old)}
    assert listed(keys).entries[NAME].object.key == new
    assert listed(keys).loose == []
    assert listed(keys, aside).entries[NAME].object.key == old
    assert listed(keys, aside).names == [NAME]


def test_other_objects_are_left_alone() -> None:
    keys = {"notes.txt": b"", "logs/0": b"", ".writer/17": b"", f"other/{NAME}/0": b"", "a/b/c": b""}
    listing = listed(keys)
    assert listing.names == ["notes.txt"]
    assert listing.loose == []


@pytest.mark.parametrize("commit", [b"", b"{}", b"[]", b'{"data":7}', b"\xff", b"[" * 5000])
def test_what_is_no_commit_is_refused(commit: bytes) -> None:
    with pytest.raises(FormatError) as caught:
        named_by(commit, "here")
    assert caught.value.rule == "LCC-BKT-02"
