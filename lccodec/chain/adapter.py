"""What an adapter of a framework is, and a framework's state as a chain saves and returns it.

It imports no adapter of `lccodec.adapters`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

from ..container.tree import Flat, flatten, metadata_strings
from ..errors import ArgumentError
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
