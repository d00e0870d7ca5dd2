"""The names of objects in a bucket, and what a listing of them says. Nothing here uses a network.

A file of a chain, such as ``000000000010.lcc.h5``, is a folder of objects::

    000000000010.lcc.h5/0                                      the commit
    000000000010.lcc.h5/0.10.ROOT.8.1234.lcc.h5                the data: the bytes of the file

The data comes first, under a name that no other data has. Then the commit is put if there is none:
a small object that names the data. So of several writers one commits. A file that is replaced gets
a commit with the next number, its generation; the highest counts. Numbers are counted on from
commits alone, so that writers who begin at the same time meet at the same number.

The name of the data has the generation, the step, the root in hexadecimal, the steps of the parents
(``none``, ``8``, or ``8-16``) and the bytes of the manifest and the trailer. So a listing alone
says what a chain holds. Only where two writers have met are there several data with the number of
a commit, and the commit must be read. Data is put before its commit and sorts behind it, so a
listing that has a commit has its data. Data without a commit is left by a writer that lost or was
killed.

Pins are objects with the names of pins. A rollback keeps commits in
``.rolled-back/NAME/000000000020.lcc.h5/0``; they name the same data.

Source: SPEC 9 (LCC-BKT).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final, Self

from ....constants import CHECKPOINT_SUFFIX, PIN_SUFFIX, ROLLED_BACK_NAME, ROOT_SIZE
from ....errors import FormatError

#: What a rollback puts last, and removes first (LCC-BKT-01).
SHELF_MARKER: Final = "complete"

_GENERATION: Final = "0|[1-9][0-9]{0,15}"
_SHELVED: Final = "[0-9]{4,}-to-[0-9]{1,16}"  # what a rollback has set aside
_FOLDER: Final = re.compile(
    rf"[^/]+{re.escape(CHECKPOINT_SUFFIX)}"
    rf"|{re.escape(ROLLED_BACK_NAME)}(?:/{_SHELVED}(?:/[^/]+{re.escape(CHECKPOINT_SUFFIX)})?)?"
)
_SHELF: Final = re.compile(
    rf"{re.escape(ROLLED_BACK_NAME)}/{_SHELVED}/(?:{re.escape(SHELF_MARKER)}|[0-9]{{12,16}}{re.escape(PIN_SUFFIX)}"
    rf"|[^/]+{re.escape(CHECKPOINT_SUFFIX)}/(?:{_GENERATION}))"
)
_COMMIT: Final = re.compile(_GENERATION)
_DATA: Final = re.compile(
    rf"({_GENERATION})\.({_GENERATION})\.([0-9a-f]{{{2 * ROOT_SIZE}}})"
    rf"\.(none|(?:{_GENERATION})(?:-(?:{_GENERATION}))?)\.([1-9][0-9]{{0,15}}){re.escape(CHECKPOINT_SUFFIX)}"
)

#: Bytes of a commit at most: what is longer is not one, and is not read into memory.
MAX_COMMIT_BYTES: Final = 1 << 12


@dataclass(frozen=True)
class Object:
    """An object as a listing has it: its name in the chain, its bytes, and when it was put.

    The time is in seconds since 1970 by the clock of the store.
    """

    key: str
    size: int
    modified: float


@dataclass(frozen=True)
class Data:
    """What the name of a data object says: the commit that is to name it, and the file that it is.

    `parents` has the earlier one first; `tail` is the bytes of the manifest and the trailer, with
    which the file ends.
    """

    generation: int
    step: int
    root: bytes
    parents: tuple[int, ...]
    tail: int

    def name(self) -> str:
        """Return the name in the folder of the file."""
        above = "-".join(map(str, self.parents)) or "none"
        return f"{self.generation}.{self.step}.{self.root.hex()}.{above}.{self.tail}{CHECKPOINT_SUFFIX}"

    @classmethod
    def parse(cls, name: str) -> Self | None:
        """Return what a name says; ``None`` if it is not that of data."""
        match = _DATA.fullmatch(name)
        if match is None:
            return None
        parents = () if match[4] == "none" else tuple(map(int, match[4].split("-")))
        return cls(int(match[1]), int(match[2]), bytes.fromhex(match[3]), parents, int(match[5]))


@dataclass(frozen=True)
class Entry:
    """A file of a chain: its newest commit, and the data that this names.

    `generations` are the numbers of all commits that there are.
    """

    name: str
    generation: int
    data: Data
    object: Object
    generations: tuple[int, ...]


def is_folder_of_chain(folder: str) -> bool:
    """Return whether a folder has the name of one in which a chain keeps files."""
    return _FOLDER.fullmatch(folder) is not None


def commit_key(name: str, generation: int) -> str:
    """Return the key of a commit."""
    return f"{name}/{generation}"


def commit_bytes(key: str) -> bytes:
    """Return the bytes of the commit that names data by its key."""
    return json.dumps({"data": key}, separators=(",", ":")).encode()


def is_of_shelf(key: str) -> bool:
    """Return whether a rollback puts objects of that name (LCC-BKT-01)."""
    return _SHELF.fullmatch(key) is not None


def named_by(commit: bytes, where: str) -> str:
    """Return the key that a commit names; raise ``FormatError`` if it names none (LCC-BKT-02)."""
    try:
        found = json.loads(commit)["data"]
    except (ValueError, TypeError, KeyError, RecursionError):
        found = None
    if not isinstance(found, str):
        raise FormatError("LCC-BKT-02", where, "not a commit: it must name its data")
    return found


@dataclass
class Listing:
    """What the objects of a chain say together: its files by name.

    `missing` are files whose commits name data that is not there, each with its commits; `others`
    all other objects outside of folders, such as pins; `loose` data that no commit names; `chains`
    the files of other chains, by what their prefixes have beyond that of this one.
    """

    entries: dict[str, Entry] = field(default_factory=dict)
    missing: dict[str, tuple[int, ...]] = field(default_factory=dict)
    others: dict[str, Object] = field(default_factory=dict)
    loose: list[Object] = field(default_factory=list)
    chains: dict[str, set[str]] = field(default_factory=dict)

    @property
    def names(self) -> list[str]:
        """The names of all files."""
        return [*self.entries, *self.missing, *self.others]

    def next_generation(self, name: str) -> int:
        """Return the number of the commit that replaces a file."""
        entry = self.entries.get(name)
        return max(entry.generations if entry else self.missing.get(name, (-1,))) + 1


def read_listing(
    objects: Iterable[Object], read: Callable[[list[str]], Iterable[bytes]], below: str = ""
) -> Listing:
    """Return what all objects of a chain say.

    `read` returns the bytes of some objects by key. Only commits are read that writers met at; one
    that names no data raises ``FormatError``. `below` is the folder of what was rolled back, with a
    slash at the end. Its commits name data of the chain.
    """
    known: dict[str, Object] = {}
    commits: dict[str, dict[int, str]] = {}
    listing = Listing()
    referred: list[tuple[str, int]] = []  # of all commits, also of those that were rolled back
    for each in objects:
        known[each.key] = each
        above, _, leaf = each.key.rpartition("/")
        if _COMMIT.fullmatch(leaf) and above and above.rpartition("/")[2].endswith(CHECKPOINT_SUFFIX):
            referred.append((above, int(leaf)))
            place = above.removeprefix(below)
            if above.startswith(below) and "/" not in place:
                commits.setdefault(place, {})[int(leaf)] = each.key
            elif ROLLED_BACK_NAME not in above.split("/"):
                below_this, _, name = above.rpartition("/")
                listing.chains.setdefault(below_this, set()).add(name)
        elif above == below.removesuffix("/"):
            listing.others[leaf] = each
    data = _data_of(known)
    last = {generations[max(generations)] for generations in commits.values()}
    named = _named(referred, data, last, read)
    for name, generations in commits.items():
        newest = max(generations)
        key = named.get(generations[newest])
        numbers = tuple(sorted(generations))
        parsed = None if key is None or key not in known else Data.parse(key.rpartition("/")[2])
        if parsed is None or key is None:
            listing.missing[name] = numbers
        else:
            listing.entries[name] = Entry(name, newest, parsed, known[key], numbers)
    used = set(named.values())
    listing.loose = [known[key] for keys in data.values() for key in keys if key not in used]
    listing.entries = dict(sorted(listing.entries.items()))
    return listing


def _data_of(known: Iterable[str]) -> dict[tuple[str, int], list[str]]:
    """Return the keys of data by the file and the number of the commit that is to name it."""
    found: dict[tuple[str, int], list[str]] = {}
    for key in known:
        name, _, leaf = key.rpartition("/")
        if "/" not in name and is_folder_of_chain(name) and (data := Data.parse(leaf)) is not None:
            found.setdefault((name, data.generation), []).append(key)
    return found


def _named(
    commits: Iterable[tuple[str, int]],
    data: dict[tuple[str, int], list[str]],
    last: set[str],
    read: Callable[[list[str]], Iterable[bytes]],
) -> dict[str, str]:
    """Return the key that each commit names, by its own key; `last` are those that count."""
    named: dict[str, str] = {}
    unknown: list[str] = []
    for folder, generation in commits:
        key = commit_key(folder, generation)
        found = data.get((folder.rpartition("/")[2], generation), [])
        if len(found) == 1:
            named[key] = found[0]
        elif found or key in last:  # two writers have met here; or it was rolled back and put back
            unknown.append(key)
    for key, commit in zip(unknown, read(unknown) if unknown else (), strict=True):
        named[key] = named_by(commit, key)
    return named
