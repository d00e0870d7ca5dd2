"""What a caller gives beside a state: a framework's adapter, who is told how far a call is, bounds.

It imports no adapter of `lccodec.adapters`. Progress is told to a function, or shown as a bar on a
terminal. Bounds are what files of strangers may ask for: bytes and checkpoints (SPEC 13).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias, TypeVar

from ..container.tree import Flat, flatten, metadata_strings
from ..errors import ArgumentError, LimitError, integer, warn
from ..policy.roles import Assignment, Role, check_known

if TYPE_CHECKING:
    import numpy as np

    from ..element_types import Array


#: The key of the note of adapters in the metadata of a checkpoint: a JSON object from a type that
#: NumPy does not have to the names of the entries of that type.
TYPES: Final = "lccodec.types"


class Room(Protocol):
    """Memory for arrays, such as an `Arena`."""

    def empty(self, count: int, dtype: np.dtype[Any], more: int = 0) -> Array:
        """Return a 1-D array with undefined values; `more` bytes are needed in all from here on."""


#: Says of the name of an array whether its values are needed.
Wanted: TypeAlias = Callable[[str], bool]


class Adapter(Protocol):
    """A framework's states as NumPy arrays, as `lccodec.adapters.torch` and `.jax` provide them."""

    def to_numpy(
        self,
        state: Any,
        metadata: Mapping[str, str] | None = None,
        room: Room | None = None,
        wanted: Wanted | None = None,
        /,
    ) -> tuple[Any, dict[str, str]]:
        """Return a state of NumPy arrays, and the metadata to keep: those given and its own.

        `room` is given for a save in the background, which copies all arrays that do not lie there.
        What must be copied anyway, as from another device, is best copied there. `wanted` is given
        for a save of some arrays: in the place of others, any array will do, such as `left_out`.
        """

    def from_numpy(self, state: Any, metadata: Mapping[str, str], name: str = "", /) -> Any:
        """Return a state, or the part of it that has this name, as the framework has it.

        bfloat16 arrays come in as bits.
        """

    def roles(self, state: Any, /) -> Mapping[str, Assignment]:
        """Return the roles that the framework's structures say, by the names of the arrays."""


def left_out() -> Array:
    """Return an array without values, a new one, for the place of one that is not wanted."""
    import numpy as np  # here, as commands import this module and may do without it

    return np.empty(0, np.uint8)


def check_adapter(adapter: Adapter | None) -> Adapter | None:
    """Return an adapter unchanged; raise ``ArgumentError`` if it lacks one of the functions."""
    functions = ("to_numpy", "from_numpy", "roles")
    if adapter is not None and not all(hasattr(adapter, name) for name in functions):
        raise ArgumentError(
            f"adapter must have to_numpy, from_numpy and roles, like lccodec.adapters.torch; got {adapter!r}"
        )
    return adapter


def from_framework(
    adapter: Adapter | None,
    state: Any,
    metadata: Mapping[str, Any] | None,
    roles: Mapping[str, Assignment | Role] | None,
    room: Room | None = None,
    wanted: Wanted | None = None,
) -> tuple[Flat, dict[str, str], Mapping[str, Assignment]]:
    """Return a framework's state with NumPy arrays, its metadata, and all known roles.

    `room` and `wanted` are as for `Adapter.to_numpy`.
    """
    strings, arrays = metadata_strings(metadata), state
    if adapter is not None:
        more = (room,) if wanted is None else (room, wanted)  # what an adapter may do without
        arrays, strings = adapter.to_numpy(state, strings, *(() if more == (None,) else more))
    found = {} if adapter is None else adapter.roles(state)
    flat = flatten(arrays)
    return flat, strings, {**found, **check_known({} if roles is None else roles, flat.names)}


def as_framework(adapter: Adapter | None, state: Any, metadata: Mapping[str, str], keys: object) -> Any:
    """Return a state, or leaves by name if `keys` are given, as the framework has them."""
    if adapter is None:
        return state
    if keys is None:
        return adapter.from_numpy(state, metadata)
    return {name: adapter.from_numpy(value, metadata, name) for name, value in state.items()}


Item = TypeVar("Item")

#: Is called with how many arrays, checkpoints or files are done, and of how many.
OnProgress: TypeAlias = Callable[[int, int], object]

#: ``True`` for a bar, or a function that is told.
Progress: TypeAlias = bool | OnProgress


def check_progress(progress: Progress) -> Progress:
    """Return progress unchanged; raise ``ArgumentError`` for what is neither bool nor function.

    Where a bar is asked for and cannot be drawn, an `LccodecWarning` says what to install.
    """
    if not (isinstance(progress, bool) or callable(progress)):
        raise ArgumentError(f"progress must be True, False or a function of two numbers; got {progress!r}")
    if progress is True and _tqdm() is None:
        warn("progress=True shows no bar, because tqdm is not installed: pip install 'lccodec[progress]'")
    return progress


def no_progress(done: int, total: int) -> None:
    """Tell nobody."""


@contextmanager
def telling(progress: Progress, doing: str, unit: str = "arrays") -> Iterator[OnProgress]:
    """Yield what is to be told how many of a unit are done, and of how many.

    A bar needs the package `tqdm`, and a terminal as standard error. Without them nothing is shown.
    """
    tqdm = _tqdm() if progress is True else None
    if tqdm is None or not sys.stderr.isatty():
        yield progress if callable(progress) else no_progress
        return
    bar = tqdm(desc=doing, total=0, unit=f" {unit}", delay=1)  # what is done soon shows nothing

    def show(done: int, total: int) -> None:
        bar.total = total
        bar.update(done - bar.n)

    try:
        yield show
    finally:
        bar.close()


@contextmanager
def telling_of_save(progress: Progress, warned: Callable[[str], object]) -> Iterator[OnProgress]:
    """Yield as `telling`. An error of who is told is a warning, once: it stops no save."""
    if progress is False:
        yield no_progress
        return
    failed = False
    with telling(progress, "save") as tell:

        def told(done: int, total: int) -> None:
            nonlocal failed
            if failed:
                return
            try:
                tell(done, total)
            except Exception as error:
                failed = True
                warned(f"the save goes on, but not its progress: {type(error).__name__}: {error}")

        yield told


def watched(items: Iterator[Item], total: int, progress: Progress) -> Generator[Item, None, None]:
    """Yield items, and tell after each how many there were."""
    try:
        with telling(progress if total else False, "restore") as tell:  # no bar for nothing
            for done, item in enumerate(items, 1):
                tell(done, total)
                yield item
    finally:
        if isinstance(items, Generator):  # it may hold workers
            items.close()


def counted(items: Collection[Item], tell: OnProgress, total: int | None = None) -> Iterator[Item]:
    """Yield items, and tell after each is done how many were; `total` may count more than them."""
    total = len(items) if total is None else total
    for done, item in enumerate(items, 1):
        yield item
        tell(done, total)


def _tqdm() -> Any:
    try:
        from tqdm import tqdm
    except ImportError:
        return None
    return tqdm


_BYTES_RULE: Final = "max_bytes"
_DELTAS_RULE: Final = "max_deltas"


@dataclass(frozen=True)
class Bounds:
    """The most that a checkpoint may ask for; ``None`` for no bound.

    Raises ``ArgumentError`` if one is not an integer, or below 0.
    """

    # Bytes that all of its arrays have together, once they are decoded, and those of its parents
    # that share frames with them. An array of which a part is asked for counts whole.
    max_bytes: int | None = None
    max_deltas: int | None = None  # checkpoints that it needs beside itself

    def __post_init__(self) -> None:
        for name in (_BYTES_RULE, _DELTAS_RULE):
            if getattr(self, name) is not None:
                integer(name, getattr(self, name))

    def check_deltas(self, needed: int, where: str) -> None:
        """Raise ``LimitError`` if a checkpoint needs too many others."""
        if self.max_deltas is not None and needed > self.max_deltas:
            message = f"it needs {needed:,} other checkpoints, and max_deltas is {self.max_deltas:,}"
            raise LimitError(_DELTAS_RULE, where, message)

    def check_bytes(self, nbytes: int, where: str) -> None:
        """Raise ``LimitError`` if arrays decode to too many bytes."""
        if self.max_bytes is not None and nbytes > self.max_bytes:
            message = f"its arrays have {nbytes:,} bytes, and max_bytes is {self.max_bytes:,}"
            raise LimitError(_BYTES_RULE, where, message)


#: No bounds.
UNBOUNDED: Final = Bounds()


def is_bound(error: LimitError) -> bool:
    """Return whether an error is one of a caller's bounds, and not of a limit of the format."""
    return error.rule in (_BYTES_RULE, _DELTAS_RULE)
