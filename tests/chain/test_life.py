"""The life of a chain, at random: what was saved can be restored, whatever fails around the saves.

States of random trees are saved into one directory by several chains, while adapters raise, memory
runs out, keys are pressed, disks fill up, files are damaged, removed and put in place of others.
After each of it every checkpoint that is there and depends on nothing damaged restores to what was
saved, within its bound; and the next save is kept.
"""

import errno
import gc
import shutil
import tempfile
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from lccodec import (
    ArgumentError,
    Chain,
    Keep,
    LccodecWarning,
    LogSteps,
    Policy,
    StorageError,
    UniformDeadzone,
)
from lccodec.chain.save import encode
from lccodec.chain.store.directory import DirectoryStore
from lccodec.container.system import System
from lccodec.container.tree import flatten

from ..support.paths import checkpoint_path
from ..support.profiles import examples

BOUND = 0.05
STEPS = LogSteps(1.0)
POLICY = Policy("bounded", {"weight": UniformDeadzone(max_error=BOUND), "second_moment": STEPS})

#: Names of arrays, and what a restore owes to each.
NAMES = {
    "model/weight": "bound",
    "model/bias": "bound",
    "model/large/weight": "bound",
    "opt/exp_avg_sq": "ratio",
    "model/running_var": "exact",
    "count": "exact",
}


class BrokenError(Exception):
    """What an adapter raises."""


class Adapter:
    """NumPy's states as they are; it raises what it is told to."""

    def __init__(self) -> None:
        self.error: BaseException | None = None

    def to_numpy(
        self, state: Any, metadata: Mapping[str, str] | None = None, /
    ) -> tuple[Any, dict[str, str]]:
        error, self.error = self.error, None
        if error is not None:
            raise error
        return state, dict(metadata or {})

    def from_numpy(self, state: Any, metadata: Mapping[str, str], name: str = "", /) -> Any:  # noqa: ARG002
        return state

    def roles(self, state: Any, /) -> Mapping[str, Any]:  # noqa: ARG002
        return {}


def make_array(name: str, seed: int, scale: float) -> np.ndarray:
    rng = np.random.default_rng(seed)
    if name == "count":
        return rng.integers(0, 1 << 40, 3)
    size = 40_000 if "large" in name else 300
    values = (scale * rng.standard_normal(size)).astype(np.float32)
    return np.square(values) if NAMES[name] == "ratio" else values


@st.composite
def states(draw: st.DrawFn) -> dict[str, Any]:
    names = draw(st.lists(st.sampled_from(list(NAMES)), unique=True, max_size=len(NAMES)))
    seed, scale = draw(st.integers(0, 3)), draw(st.sampled_from([0.1, 1.0, 50.0]))
    tree: dict[str, Any] = {}
    for name in names:
        *path, last = name.split("/")
        inner = tree
        for key in path:
            inner = inner.setdefault(key, {})
        inner[last] = make_array(name, seed, scale)
    return {**tree, "epoch": draw(st.integers(0, 9)), "shape": [draw(st.none() | st.booleans())]}


def check(restored: Any, saved: Any) -> None:
    """Hold a restored state against what was saved."""
    left, right = flatten(restored), flatten(saved)
    assert (left.tree, left.scalars, left.names) == (right.tree, right.scalars, right.names)
    for name, found, array in zip(left.names, left.arrays, right.arrays, strict=True):
        assert (found.dtype, found.shape) == (array.dtype, array.shape)
        if NAMES[name] == "bound":
            assert np.abs(found.astype(np.float64) - array).max(initial=0) <= BOUND
        elif NAMES[name] == "ratio":
            positive = array > 0
            assert ((found > 0) == positive).all()
            ratio = found[positive].astype(np.float64) / array[positive]
            assert max(ratio.max(initial=1), (1 / ratio).max(initial=1)) <= STEPS.max_ratio
        else:
            np.testing.assert_array_equal(found, array)


@contextmanager
def failing_system(call: str, after: int, error: BaseException) -> Iterator[None]:
    """Let a call to the system fail, and all of that name behind it."""
    real, count = getattr(System, call), 0
    gc.collect()  # what is dropped inside must not fail: nobody would hear of it

    def fail(*arguments: Any) -> Any:
        nonlocal count
        count += 1
        if count > after:
            raise error
        return real(*arguments)

    with mock.patch.object(System, call, staticmethod(fail)):
        yield


@contextmanager
def failing_encoder(after: int, error: BaseException) -> Iterator[None]:
    """Let the encoder raise after some chunks."""
    real, count = encode.encode_content, 0

    def chunks(*arguments: Any, **options: Any) -> Iterator[bytes]:
        nonlocal count
        for chunk in real(*arguments, **options):
            count += 1
            if count > after:
                raise error
            yield chunk

    with mock.patch.object(encode, "encode_content", chunks):
        yield


ERRORS = st.sampled_from([KeyboardInterrupt, MemoryError, BrokenError])
DISK = st.sampled_from([errno.ENOSPC, errno.EIO, errno.EDQUOT])
CALLS = st.sampled_from(
    ["open", "write", "write_at", "fsync", "link", "replace", "unlink", "close", "exists", "listdir"],
)


class Life(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp())
        self.saved: dict[int, Any] = {}  # what each sound checkpoint owes
        self.needs: dict[int, set[int]] = {}  # the checkpoints that it is restored from
        self.next = 0
        self.runs = 0

    @initialize(every=st.sampled_from([0, 2, 5, 32]))
    def begin(self, every: int) -> None:
        # Steps that only an exact file has are the matter of test_newest.py.
        self.options: dict[str, Any] = {"keyframe_every": every, "newest": "history"}
        self.adapter = Adapter()
        self.chain = self.open()

    def open(self) -> Chain:
        return Chain(self.directory / "run", POLICY, adapter=self.adapter, **self.options)

    def teardown(self) -> None:
        shutil.rmtree(self.directory)

    def save_with(self, chain: Chain, state: Any) -> None:
        """Save; whatever is there afterwards has to be right."""
        step, self.next = self.next, self.next + 1
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", LccodecWarning)
                chain.save(step, state)
        finally:
            if checkpoint_path(chain.directory, step).exists():
                parent = chain.info(step).parent
                self.saved[step] = state
                self.needs[step] = {step} | (self.needs[parent] if parent is not None else set())

    @rule(state=states())
    def save(self, state: Any) -> None:
        self.save_with(self.chain, state)
        assert self.next - 1 in self.saved

    @rule(state=states())
    def another_writer(self, state: Any) -> None:
        self.save_with(self.open(), state)

    @rule()
    def reopen(self) -> None:
        self.chain = self.open()

    @rule(state=states(), error=ERRORS)
    def adapter_raises(self, state: Any, error: type[BaseException]) -> None:
        self.adapter.error = error()
        self.fails(state, error)

    @rule(state=states(), error=ERRORS, after=st.integers(0, 12))
    def encoder_raises(self, state: Any, error: type[BaseException], after: int) -> None:
        with failing_encoder(after, error()):
            self.fails(state, error)

    @rule(state=states(), call=CALLS, after=st.integers(0, 5), code=DISK)
    def disk_fails(self, state: Any, call: str, after: int, code: int) -> None:
        with failing_system(call, after, OSError(code, "injected")):
            self.fails(state, StorageError)

    @rule(state=states(), call=CALLS, after=st.integers(0, 5))
    def interrupted_in_a_system_call(self, state: Any, call: str, after: int) -> None:
        with failing_system(call, after, KeyboardInterrupt()):
            self.fails(state, KeyboardInterrupt)

    def fails(self, state: Any, error: type[BaseException]) -> None:
        """Save where this error may come up; nothing else may."""
        with suppress(error):
            self.save_with(self.chain, state)

    @precondition(lambda self: self.saved)
    @rule(data=st.data(), delete=st.booleans(), back=st.booleans())
    def roll_back(self, data: st.DataObject, delete: bool, back: bool) -> None:
        """To a step that is sound; and there and back again."""
        step = data.draw(st.sampled_from(sorted(self.saved)))
        steps = self.chain.steps
        if delete and any(pinned > step for pinned in self.chain.pins):
            with pytest.raises(ArgumentError, match="is pinned"):
                self.chain.rollback(step, delete=True)
            assert self.chain.steps == steps
            return
        gone = self.chain.rollback(step, delete=delete)
        assert list(gone.steps) == [later for later in steps if later > step]
        assert self.chain.steps == [other for other in steps if other <= step]
        if gone.name and back:
            self.chain.undo_rollback()
            assert self.chain.steps == steps
        else:
            self.forget(gone.steps)

    @rule(pinned=st.booleans())
    def delete_rolled_back(self, pinned: bool) -> None:
        """What was set aside goes for good; pinned steps only if told."""
        there = self.chain.rolled_back
        asides = [self.chain.directory / ".rolled-back" / each.name for each in there]
        if not pinned and any(DirectoryStore(aside).pins() for aside in asides):
            with pytest.raises(ArgumentError, match="is pinned"):
                self.chain.delete_rolled_back()
            assert self.chain.rolled_back == there
            return
        self.chain.delete_rolled_back(pinned=pinned)
        assert self.chain.rolled_back == []

    @precondition(lambda self: self.chain.steps)
    @rule(data=st.data(), latest=st.integers(1, 3), rewrite=st.booleans(), pin=st.booleans())
    def prune(self, data: st.DataObject, latest: int, rewrite: bool, pin: bool) -> None:
        pinned = data.draw(st.sampled_from(sorted(self.saved))) if pin and self.saved else None
        if pinned is not None:
            self.chain.pin(pinned)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", LccodecWarning)  # what is damaged stays as it is
            found = self.chain.prune(Keep(latest=latest), rewrite=rewrite)
        assert pinned is None or pinned in found.kept
        assert set(self.chain.steps) == {*found.kept, *found.needed}
        self.forget(found.removed)
        self.note_needs()

    @precondition(lambda self: self.chain.steps)
    @rule(every=st.integers(0, 4))
    def compact(self, every: int) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", LccodecWarning)
            self.chain.compact(keyframe_every=every)
        self.note_needs()

    def forget(self, steps: Iterable[int]) -> None:
        for step in steps:
            self.saved.pop(step, None)
            self.needs.pop(step, None)

    def note_needs(self) -> None:
        """What is rewritten needs other checkpoints."""
        for step in sorted(self.saved):
            parent = self.chain.info(step).parent
            self.needs[step] = {step} | (self.needs[parent] if parent is not None else set())

    @precondition(lambda self: self.chain.steps)
    @rule(data=st.data(), harm=st.sampled_from(["flip", "truncate", "remove", "empty", "swap"]))
    def damage(self, data: st.DataObject, harm: str) -> None:
        steps = self.chain.steps
        step = data.draw(st.sampled_from([steps[-1], *steps]))
        path = checkpoint_path(self.directory / "run", step)
        content = bytearray(path.read_bytes())
        if harm == "flip" and content:
            content[data.draw(st.integers(0, len(content) - 1))] ^= 1 << data.draw(st.integers(0, 7))
        elif harm == "truncate":
            content = content[: data.draw(st.integers(0, len(content)))]
        elif harm == "swap":
            content = bytearray(self.foreign(step))
        if harm == "remove":
            path.unlink()
        else:
            path.write_bytes(b"" if harm == "empty" else content)
        # The content of a payload is not looked at before a delta: an open chain goes on from
        # memory.
        if harm in ("flip", "truncate"):
            self.chain = self.open()
        self.saved = {s: state for s, state in self.saved.items() if step not in self.needs[s]}

    def foreign(self, step: int) -> bytes:
        """Return the file of that step of another run."""
        self.runs += 1
        other = Chain(self.directory / f"other-{self.runs}", POLICY)
        other.save(step, {"model": {"weight": np.ones(7, np.float32)}})
        return checkpoint_path(other.directory, step).read_bytes()

    @invariant()
    def all_that_is_sound_restores(self) -> None:
        if not self.saved:
            return
        reader = Chain(self.directory / "run", POLICY)
        for step in sorted(self.saved)[-4:]:
            check(reader.restore(step, exact=False), self.saved[step])
        newest = reader.steps[-1]
        if newest in self.saved:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", LccodecWarning)  # the exact file is of an older step
                check(reader.restore(), self.saved[newest])


# A run has 20 steps, and so takes as long as 20 examples of another test.
Life.TestCase.settings = settings(examples(1 / 3), stateful_step_count=20)
TestLife = Life.TestCase
