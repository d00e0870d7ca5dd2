"""Invariant: reading returns or raises a LccodecError, nothing else, in bounded time and memory.

The input takes the place of a file of a chain: a keyframe, a delta, a checkpoint between them, an
exact file, and their parity. Verbs that read change no file. A repair changes only files of the
chain, and files that were sound stay as they are.

An input begins with three bytes: the file that it replaces, what is done with the chain, and what
the rest is, modulo 5:

0. to 3. as for a checkpoint (`target_checkpoint.py`), or for a parity file (`target_parity.py`);
4. places in the file (u16) and bytes to write there.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import target_checkpoint
import target_parity
from outcomes import Outcomes, TooLargeError
from scratch import new_directory

import lccodec
from lccodec.chain.mend.repair import repair
from lccodec.chain.store.directory import DirectoryStore
from lccodec.policy.roles import Assignment

outcomes = Outcomes()

TOKENS = target_checkpoint.TOKENS

#: Most decoded bytes of a checkpoint that is decoded.
MAX_DECODED = 1 << 22
ROLES = {f"layer/{k}": Assignment("weight", "") for k in range(2)}
_EDIT_BYTES = 3


class _Group:
    """The chain that inputs are put into, and the files that belong there."""

    def __init__(self) -> None:
        self.path = new_directory() / "run"
        with (
            warnings.catch_warnings(action="ignore", category=lccodec.LccodecWarning),
            lccodec.Chain(self.path, "lc-3", newest="exact", hindsight=2, parity=1) as chain,
        ):
            for step in range(1, 5):
                chain.save(step, state_at(step), roles=ROLES)
        self.files = {str(path.relative_to(self.path)): path.read_bytes() for path in self._found()}
        self.names = [name for name in self.files if name.endswith((".h5", ".par"))]

    def _found(self) -> list[Path]:
        return sorted(path for path in self.path.rglob("*") if path.is_file())

    def put(self, name: str, data: bytes) -> None:
        """Put all files into their places, and an input into that of one of them."""
        for each, own in self.files.items():
            path, wanted = self.path / each, data if each == name else own
            if not path.is_file() or path.read_bytes() != wanted:
                path.parent.mkdir(exist_ok=True)
                path.write_bytes(wanted)

    def check(self, name: str, data: bytes, *, may_change: bool) -> None:
        """Raise if files have changed that may not, and remove those that are new."""
        there = {str(path.relative_to(self.path)): path for path in self._found()}
        for each, path in there.items():
            if each not in self.files:
                path.unlink()
        for each, own in self.files.items():
            changed = each not in there or there[each].read_bytes() != (data if each == name else own)
            if changed and not (may_change and (each == name or each.endswith(".par"))):
                raise AssertionError(f"{each} has changed")
        outside = {path.name for path in self.path.parent.iterdir()} - {self.path.name}
        if outside:
            raise AssertionError(f"files beside the chain: {outside}")


@cache
def _group() -> _Group:
    """Return the chain, made once."""
    return _Group()


def state_at(step: int) -> dict[str, Any]:
    """Return the state of a step."""
    weights = [np.arange(60, dtype=np.float32).reshape(6, 10) + np.float32(step * step / 4)] * 2
    return {"layer": weights, "moment": np.full(7, step, np.float16), "step": step, "flag": True}


# --- verbs ----------------------------------------------------------------------------------------


def _list(path: Path) -> None:
    chain = lccodec.Chain(path)
    repr(chain)
    for step in chain.steps:
        with suppress(lccodec.LccodecError):
            chain.info(step)


def _restore(path: Path) -> None:
    chain = lccodec.Chain(path)
    for step in (None, *chain.steps):
        with suppress(lccodec.DataError, lccodec.ChainError):
            chain.restore(step)


def _open(path: Path) -> None:
    with lccodec.open(path) as file:
        file.metadata()
        for name in file.keys()[:3]:
            file.get(name)


def _follow(path: Path) -> None:
    with lccodec.follow(path, timeout=0) as follower:
        for update in follower:
            for _ in update.patches():
                pass


def _repair(path: Path) -> None:
    repair(DirectoryStore(path))


_VERBS: tuple[Callable[[Path], object], ...] = (
    *(_list, lccodec.validate, partial(lccodec.validate, deep=True), _restore, _open),
    *(lambda path: lccodec.Chain(path).average(last=3), _follow, _repair),
)


# --- inputs ---------------------------------------------------------------------------------------


def check(data: bytes) -> None:
    """Put an input into the chain, and do something with it; an exception breaks the invariant."""
    which, what, how = (*data[:3], 0, 0, 0)[:3]
    group = _group()
    name, verb = group.names[which % len(group.names)], _VERBS[what % len(_VERBS)]
    rest, own = data[3:], group.files[name]
    file = written(own, rest) if how % 5 == 4 else _made(name, how % 5, rest)
    group.put(name, file)
    with outcomes.counted(), warnings.catch_warnings(action="ignore", category=lccodec.LccodecWarning):
        _check_size(group.path / name)
        verb(group.path)
    group.check(name, file, may_change=verb is _repair)


def _check_size(path: Path) -> None:
    """Raise ``TooLargeError`` for a file that decodes to more than is decoded here."""
    if path.suffix != ".h5":
        return
    with suppress(lccodec.LccodecError), lccodec.open(path) as file:
        if sum(array.nbytes for array in file.info().arrays) > MAX_DECODED:
            raise TooLargeError


def _made(name: str, mode: int, rest: bytes) -> bytes:
    target: Any = target_parity if name.endswith(".par") else target_checkpoint
    made: bytes = target.made(mode, rest)
    return made


def written(file: bytes, edits: bytes) -> bytes:
    """Return a file after edits: a place of two bytes and the byte to write there, for each."""
    changed = bytearray(file)
    for start in range(0, len(edits) - _EDIT_BYTES + 1, _EDIT_BYTES):
        changed[int.from_bytes(edits[start : start + 2], "little") % len(file)] = edits[start + 2]
    return bytes(changed)


def seeds() -> Iterator[bytes]:
    """Yield each file as it is and in its parts, with every verb."""
    group = _group()
    for which, name in enumerate(group.names):
        for what in range(len(_VERBS)):
            head, file = bytes([which, what]), group.files[name]
            yield head + b"\4"
            yield head + b"\0" + file
            if what % 2 and not name.endswith(".par"):
                payload, manifest = target_checkpoint.parts(file)
                yield head + b"\3" + len(manifest).to_bytes(4, "little") + manifest + payload
