"""What rollbacks have set aside in a bucket: commits in ``.rolled-back``, which name the same data.

What was set aside has a marker, an empty object that is put last and removed first. Without it, the
commits are left by a rollback that was cut short, and go with the next one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress

from ....constants import ROLLED_BACK_NAME
from ..names import pin_name
from ..shelf import in_order, next_name
from ..store import WritableStore
from .backend import ExistsError
from .keys import SHELF_MARKER, Entry, Listing, commit_bytes, commit_key, is_of_shelf
from .patience import PatientBackend


class BucketShelf:
    """What rollbacks have set aside of a chain in a bucket.

    Parameters
    ----------
    backend
        The objects of the chain.
    store
        The chain.
    chain
        Returns the chain that was set aside under a name.
    listing
        Returns what there is in the chain, or in one of its folders.
    """

    def __init__(
        self,
        backend: PatientBackend,
        store: WritableStore,
        chain: Callable[[str], WritableStore],
        listing: Callable[[str], Listing],
    ) -> None:
        self._backend, self._store, self._chain, self._listing = backend, store, chain, listing

    def _objects(self) -> dict[str, list[str]]:
        """Return the keys of what rollbacks have put here, by name; other objects stay."""
        found: dict[str, list[str]] = {}
        for each in self._backend.objects(ROLLED_BACK_NAME):
            if is_of_shelf(each.key):
                found.setdefault(each.key.split("/")[1], []).append(each.key)
        return found

    def names(self) -> list[tuple[str, int]]:
        """Return the names of what is complete."""
        found = self._objects()
        return in_order(name for name, keys in found.items() if _key(name, SHELF_MARKER) in keys)

    def chain(self, name: str) -> WritableStore:
        """Return the chain that was set aside under a name."""
        return self._chain(name)

    def add(self, step: int, files: Sequence[str], pins: Iterable[int]) -> str:
        """Put commits of files, pins, and then the marker."""
        there = self._objects()
        self._clear({name: keys for name, keys in there.items() if _key(name, SHELF_MARKER) not in keys})
        entries, made = self._listing("").entries, next_name(there, step)
        for file in files:
            entry = entries[file]
            key = _key(made, commit_key(file, entry.data.generation))
            self._backend.put_if_absent(key, commit_bytes(entry.object.key))
        self.pin(made, pins)
        self._put(_key(made, SHELF_MARKER), b"")
        return made

    def pin(self, name: str, pins: Iterable[int]) -> None:
        """Pin steps that were set aside."""
        for pin in pins:
            self._put(_key(name, pin_name(pin)), b"")

    def is_same(self, name: str, file: str) -> bool:
        """Return whether a file of the chain has the state of the one that was set aside."""
        aside = self.chain(name)
        if not aside.has(file):
            return False
        with aside.open(file) as left, self._store.open(file) as right:
            return bool(left.roots & right.roots)

    def put_back(self, name: str, file: str, *, overwrite: bool = False) -> None:  # noqa: ARG002 - as below
        """Put a commit with a number that no other commit has, and no data."""
        entry: Entry = self._listing(_key(name, "")).entries[file]
        numbers = [self._listing("").next_generation(file)]
        for each in self._backend.objects(file):
            number = each.key.rpartition("/")[2].partition(".")[0]
            numbers += [int(number) + 1] if number.isdecimal() else []
        commit = commit_bytes(entry.object.key)
        self._put(commit_key(file, 0), commit)  # it keeps the place
        self._backend.put_if_absent(commit_key(file, max(numbers)), commit)

    def remove(self, names: Iterable[str]) -> None:
        """Remove markers, and then all that lies behind them."""
        gone, there = set(names), self._objects()
        self._backend.delete(_key(name, SHELF_MARKER) for name in there if name in gone)
        self._clear({name: keys for name, keys in there.items() if name in gone})

    def _clear(self, found: dict[str, list[str]]) -> None:
        self._backend.delete(key for keys in found.values() for key in keys)

    def _put(self, key: str, data: bytes) -> None:
        with suppress(ExistsError):
            self._backend.put_if_absent(key, data)


def _key(name: str, leaf: str) -> str:
    return f"{ROLLED_BACK_NAME}/{name}/{leaf}"
