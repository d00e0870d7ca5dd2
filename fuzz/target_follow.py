"""Invariant: a follower meets a LccodecError, nothing else, in bounded time and memory.

It holds an early step of a chain. Then the input takes the place of a later file: a delta, a
keyframe, a checkpoint between two others, or the exact file. The follower refuses it, or has the
state that a restore gives. Once the file is as it was, the follower has the newest state, whatever
it was given before.

An input begins with three bytes: the file that it replaces, whether the exact file is followed
(bit 0), and what the rest is, modulo 5: as for a chain (`target_chain.py`).
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from contextlib import suppress
from functools import cache

import numpy as np
import target_checkpoint
from outcomes import Outcomes
from scratch import new_directory
from target_chain import MAX_DECODED, ROLES, state_at, written

import lccodec
from lccodec.container.tree import array_names, flatten

outcomes = Outcomes()

TOKENS = target_checkpoint.TOKENS

_HELD, _NEWEST = 2, 6  # the step that is held, and the last one
_RULE = re.compile(r"\[([^\[\]]+)\]$")  # at the end of what is told of an error

Arrays = dict[str, np.ndarray]


class _Run:
    """A chain whose files come one after the other."""

    def __init__(self) -> None:
        self.path = new_directory() / "run"
        options = {"newest": "exact", "hindsight": 2, "keyframe_every": 3}
        with warnings.catch_warnings(), lccodec.Chain(self.path, "lc-3", **options) as chain:
            warnings.simplefilter("ignore", lccodec.LccodecWarning)
            for step in range(1, _NEWEST + 1):
                chain.save(step, state_at(step), roles=ROLES)
        found = sorted(path for path in self.path.iterdir() if path.suffix == ".h5")
        self.files = {path.name: path.read_bytes() for path in found}
        self.states = {exact: self._restored(_NEWEST, exact) for exact in (False, True)}

    @property
    def later(self) -> list[str]:
        """The files that the follower does not know."""
        return list(self.files)[_HELD:]

    def begin(self) -> None:
        """Leave only the files that come first."""
        for name in self.later:
            (self.path / name).unlink(missing_ok=True)
        self.put("", b"", list(self.files)[:_HELD])

    def put(self, name: str, data: bytes, names: list[str]) -> None:
        """Put files into their places, and an input into that of one of them."""
        for each in names:
            path, wanted = self.path / each, data if each == name else self.files[each]
            if not path.is_file() or path.read_bytes() != wanted:
                path.unlink(missing_ok=True)  # others may have it open
                path.write_bytes(wanted)

    def check(self, arrays: Arrays, follower: lccodec.Follower, exact: bool) -> None:
        """Raise if what was followed is not what a restore gives, as far as it gives something."""
        with suppress(lccodec.LccodecError):
            _compare(arrays, self._restored(follower.step, exact))

    def _restored(self, step: int | None, exact: bool) -> Arrays:
        return _by_name(lccodec.Chain(self.path).restore(step, dtype="bits", exact=exact))


def _by_name(state: object) -> Arrays:
    flat = flatten(state)
    return {name: flat.arrays[index] for name, index in array_names(flat.tree).items()}


@cache
def _run() -> _Run:
    """Return the chain, made once."""
    return _Run()


def check(data: bytes) -> None:
    """Let a follower meet an input; an exception from here breaks the invariant."""
    which, options, how = (*data[:3], 0, 0, 0)[:3]
    run, exact, arrays = _run(), bool(options & 1), Arrays()
    name, rest = run.later[which % len(run.later)], data[3:]
    file = written(run.files[name], rest) if how % 5 == 4 else target_checkpoint.made(how % 5, rest)
    run.begin()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", lccodec.LccodecWarning)
        with lccodec.follow(run.path, exact=exact, timeout=0, max_bytes=MAX_DECODED) as follower:
            _take(follower, arrays)
            run.put(name, file, run.later)
            refused = ""
            try:
                _take(follower, arrays)
                refused = next(iter(follower.refused.values()), "")
                if not refused:
                    run.check(arrays, follower, exact)
            except lccodec.LccodecError as error:
                refused = str(error)
            run.put("", b"", run.later)
            for _ in range(2):  # what was refused is tried again at the next look
                _take(follower, arrays)
            if follower.step != _NEWEST:
                raise AssertionError(f"it stays at step {follower.step}: {dict(follower.refused)}")
            _compare(arrays, run.states[exact])
    rule = _RULE.search(refused)
    outcomes["decoded" if not refused else rule[1] if rule else "refused"] += 1


def _take(follower: lccodec.Follower, arrays: Arrays) -> None:
    """Apply all updates that there are to arrays."""
    while (update := follower.prepare(0)) is not None:
        for patch in update.patches("bits"):
            there = arrays.get(patch.name)
            if there is None or (there.shape, there.dtype) != (patch.shape, patch.values.dtype):
                arrays[patch.name] = np.empty(patch.shape, patch.values.dtype)
        for name in update.removed:
            del arrays[name]
        update.apply_to(arrays)


def _compare(arrays: Arrays, restored: Arrays) -> None:
    if arrays.keys() != restored.keys():
        raise AssertionError(f"it has {sorted(arrays)}, and a restore {sorted(restored)}")
    for name, array in restored.items():
        if (arrays[name].dtype, arrays[name].tobytes()) != (array.dtype, array.tobytes()):
            raise AssertionError(f"{name} has other values than a restore gives")


def seeds() -> Iterator[bytes]:
    """Yield each file as it is and in its parts."""
    run = _run()
    for which, name in enumerate(run.later):
        for options in (0, 1):
            head, file = bytes([which, options]), run.files[name]
            yield head + b"\4"
            yield head + b"\1" + file
            payload, manifest = target_checkpoint.parts(file)
            yield head + b"\3" + len(manifest).to_bytes(4, "little") + manifest + payload
