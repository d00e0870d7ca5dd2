"""A reader that keeps a state at the newest step of a chain, while others save to it.

It waits, hands out updates and can be closed by another thread; :mod:`.watch` says what comes next.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterable, Iterator
from typing import Any, Final, Literal, Self

import numpy as np

from ....arguments import as_number
from ....container.system import Address, checked_place
from ....element_types import Array, check_dtype
from ....errors import ArgumentError
from ....parallel import member_count
from ...caller import Bounds
from ...store.directory import DirectoryStore
from ...store.names import step_index
from ...store.opening import open_store
from ..checkpoint import checked_names
from .watch import Lag, Update, Watch, Watching, arrays_by_name

#: Seconds between two looks at the names in a store.
POLL_SECONDS: Final = 0.25


class Follower(Iterator[Update]):
    """A state that is kept at the newest step of a chain; :func:`lccodec.follow` returns it.

    Iterating over it yields updates, and ends when the follower is closed, or when no update came
    within `timeout`. It may then be iterated over again. Another thread may close it. It is a
    context manager.

    Each update goes on from the one before. So all of them are to be applied to the same arrays,
    in their order.
    """

    def __init__(self, watch: Watching, *, once: bool, poll: float, timeout: float | None) -> None:
        self._watch, self._once, self._poll, self._timeout = watch, once, poll, timeout
        self._closed = threading.Event()
        self._ready: Any = None  # the way to the next state
        self._begun: Any = None  # the same while it is gone; an interrupt may leave it half gone
        self._last: Update | None = None
        self._looking, self._committing = threading.Lock(), threading.Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the iteration, in whatever thread it runs, and release the memory of the state.

        An update that is being prepared is given up. Closing again does nothing.
        """
        self._closed.set()
        with self._looking, self._committing:
            self._expire()
            self._watch.close()

    @property
    def step(self) -> int | None:
        """The step of the held state: that of the last update; ``None`` before the first."""
        return self._watch.step

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the arrays of the held state, each of which `get` returns."""
        with self._committing:
            self._check_open()
            self._go_on()
            return tuple(self._watch.names())

    @property
    def refused(self) -> dict[int, str]:
        """Why newer steps than the held one cannot be read, by step; empty if all is well."""
        return dict(self._watch.refused())

    @property
    def lag(self) -> Lag:
        """How far the held state is behind the chain as it is now. It reads names and sizes."""
        self._check_open()
        return self._watch.lag()

    def __next__(self) -> Update:
        if self._closed.is_set() or (self._once and self._last is not None):
            raise StopIteration
        update = self.prepare(self._timeout)
        if update is None:
            raise StopIteration
        return update

    def prepare(self, timeout: float | None = None) -> Update | None:
        """Return the next update as soon as there is one.

        All of it is read, checked and decoded; it only has to be applied. Errors leave the follower
        as it was, and it may be asked again.

        Parameters
        ----------
        timeout
            Seconds to wait for a new step: 0 looks once. By default there is no limit.

        Returns
        -------
        Update or None
            ``None`` if there was none in that time, or the follower was closed meanwhile.

        Raises
        ------
        ArgumentError
            If the follower is closed, or the state has no arrays of its `keys`.
        StorageError
            If the names of the chain cannot be listed.
        DataError, ChainError, StorageError
            If the one step that is followed cannot be read. Other followers warn, and wait.
        """
        self._check_open()
        end = None if (limit := _seconds("timeout", timeout)) is None else time.monotonic() + limit
        while not self._closed.is_set():
            with self._looking:
                update = None if self._closed.is_set() else self._look()
            if update is not None:
                return update
            left = self._poll if end is None else min(self._poll, end - time.monotonic())
            if left <= 0:
                return None
            self._closed.wait(left)
        return None

    def state(self, dtype: Literal["float32", "bits"] | None = None) -> Any:
        """Return a copy of the held state, as :meth:`lccodec.Chain.restore` returns it.

        With `keys`, it is a dict of these leaves by name. The copy is of one step, also while
        another thread prepares an update.

        Raises
        ------
        ArgumentError
            If there is no state yet, or the follower is closed.
        """
        check_dtype(dtype)
        with self._committing:
            self._check_open()
            self._go_on()
            if self.step is None:
                raise ArgumentError(f"{self._watch.place}: no step was read yet by this process")
            return self._watch.state(dtype)

    def get(self, name: str, dtype: Literal["float32", "bits"] | None = None) -> Any:
        """Return a copy of one array of the held state, by its name in it.

        Raises
        ------
        ArgumentError
            If there is no such array, or no state yet, or the follower is closed.
        """
        check_dtype(dtype)
        with self._committing:
            self._check_open()
            self._go_on()
            found = self._watch.array(name)
            if found is None:
                raise ArgumentError(f"{self._watch.place}: no array {name!r} is held")
            return found.array(dtype).copy()

    def _check_open(self) -> None:
        if self._closed.is_set():
            raise ArgumentError(f"{self._watch.place}: this follower is closed")

    def _look(self) -> Update | None:
        """Return the next update if there is one now; the caller has the lock."""
        if self._ready is None:
            self._ready = self._watch.next(lambda: not self._closed.is_set())
        if (way := self._ready) is None:
            return None
        with self._committing:
            if way.update is not None:
                self._expire()
            self._begun = way
            self._go_on()  # after an interrupt, this is done again
            update: Update | None = way.update
            self._last, self._ready = update or self._last, None
        return update

    def _go_on(self) -> None:
        """Go the way that was begun, so that all is of one step. The caller has the lock."""
        if self._begun is not None:
            self._watch.commit(self._begun)
            self._begun = None

    def _expire(self) -> None:
        if self._last is not None:
            self._last.expire()


def follow(  # which state, and how to wait for it, by keyword
    path: str | os.PathLike[str],
    step: int | None = None,
    *,
    keys: Iterable[str] | str | None = None,
    exact: bool = True,
    poll: float = POLL_SECONDS,
    timeout: float | None = None,
    start: tuple[int, Any] | None = None,
    max_bytes: int | None = None,
    max_deltas: int | None = None,
    workers: int = 1,
) -> Follower:
    """Follow a chain: keep a state at its newest step, and say what is new in it.

    An update is prepared while the state before is in use: its files are read, checked and decoded.
    Applying it is one short step, which writes only the values that differ. Nothing is written to
    the chain.

    Parameters
    ----------
    path
        The directory of a chain, which need not exist yet, or a bundle.
    step
        Follow this step only: wait for it, yield it, and end.
    keys
        One or several names of arrays or containers, such as ``"model"``, or patterns of names of
        arrays (:mod:`fnmatch`). Only these are read.
    exact
        Whether to take the newest state from the exact file, if the chain has one. That file is
        read whole at every step. Without it, a lossy chain is followed as its history decodes.
        A lossless chain has no such file, and is followed by its deltas.
    poll
        Seconds between two looks for a new step.
    timeout
        Seconds that an iteration waits for a new step before it ends. By default it does not end.
    start
        A step, and its arrays by name or as a nested state, if they are at hand: then that step is
        not read, and the first update has what differs from it. The arrays are compared with the
        sums of the step, and copied.
    workers
        Processes that share the work of an update, with this one; 0 means one for each core but
        one. Others are started with the first state, and wait for updates until the follower is
        closed. Whole arrays, as those of the first state, are decoded by this process. In a fork,
        the follower of its parent begins anew: the next update has all arrays.

    max_bytes, max_deltas
        As for :func:`lccodec.open`. A step that asks for more is passed over with an
        `LccodecWarning`, as one that is damaged; the `step` that was asked for raises the error.

    Returns
    -------
    Follower
        An iterator over updates. The first has all arrays.

    Raises
    ------
    ArgumentError
        For a path, a step, keys or seconds that cannot be any, or if the arrays of `start` are not
        those of its step.
    StorageError, DataError, ChainError
        If `path` is a file that cannot be read, or is not a bundle, or has no step to start from.

    Examples
    --------
    >>> import tempfile, numpy as np, lccodec
    >>> run, served = tempfile.mkdtemp(), {"w": np.zeros(1000, np.float32)}
    >>> chain, follower = lccodec.Chain(run, "lossless"), lccodec.follow(run, timeout=0)
    >>> weight = np.ones(1000, np.float32)
    >>> for number in range(3):
    ...     weight[number] = 7
    ...     _ = chain.save(number, {"w": weight})
    ...     for update in follower:
    ...         update.apply_to(served)
    ...         print(update.step, update.names, update.nbytes, bool((served["w"] == weight).all()))
    0 ('w',) 4000 True
    1 ('w',) 4 True
    2 ('w',) 4 True
    >>> follower.close(); chain.close()
    """
    pinned = None if step is None else step_index(step)
    between, wait = checked_waits(poll, timeout)
    members, bounds = member_count(workers), Bounds(max_bytes, max_deltas)
    place = checked_place(path)
    if isinstance(place, Address) or os.path.lexists(place):
        store = open_store(place)
    else:
        store = DirectoryStore(place)
    watch = Watch(store, pinned, None if keys is None else checked_names(keys), exact, members, bounds)
    if start is not None:
        watch.start(*_checked_start(start))
    return Follower(watch, once=pinned is not None, poll=between, timeout=wait)


def checked_waits(poll: float, timeout: float | None) -> tuple[float, float | None]:
    """Return seconds between looks and seconds to wait; raise ``ArgumentError`` if they are not."""
    wait, between = _seconds("timeout", timeout), _seconds("poll", poll)
    if not between:
        raise ArgumentError(f"poll must be a number of seconds above 0; got {poll!r}")
    return between, wait


def _checked_start(start: object) -> tuple[int, dict[str, Array]]:
    """Return a step and copies of its arrays by name."""
    if not isinstance(start, tuple) or len(start) != 2:
        raise ArgumentError(f"start must be a pair of a step and its arrays; got {type(start).__name__}")
    step, arrays = step_index(start[0]), arrays_by_name(start[1])
    return step, {name: np.array(array, order="C") for name, array in arrays.items()}


def _seconds(name: str, value: object) -> float | None:
    if value is None:
        return None
    number = as_number(value)
    if number is None or not number >= 0:
        raise ArgumentError(f"{name} must be a number of seconds; got {value!r}")
    return float(number)
