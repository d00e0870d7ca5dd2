"""What a framework has to bring along to have its states in a chain."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Protocol

from ..errors import ArgumentError
from ..policy.roles import Assignment

__all__ = ["Adapter", "check_adapter"]


class Adapter(Protocol):
    """A framework's states as NumPy's: what `lccodec.adapters.torch` and `lccodec.adapters.jax` are."""

    def to_numpy(
        self, state: Any, metadata: Mapping[str, str] | None = None, /
    ) -> tuple[Any, dict[str, str]]:
        """Return a state of NumPy arrays, and the metadata to keep with it: those given and the adapter's."""

    def from_numpy(self, state: Any, metadata: Mapping[str, str], name: str = "", /) -> Any:
        """Return a state, or the part of it that has this name, as the framework has it; bfloat16 is bits."""

    def roles(self, state: Any, /) -> Mapping[str, Assignment]:
        """Return the roles of arrays, by name, that the framework's structures tell."""


_MEMBERS: Final = ("to_numpy", "from_numpy", "roles")


def check_adapter(adapter: Adapter | None) -> Adapter | None:
    """Return an adapter as it is.

    Raises
    ------
    ArgumentError
        If it is none.
    """
    if adapter is not None and not all(hasattr(adapter, name) for name in _MEMBERS):
        raise ArgumentError(f"adapter is to be one as lccodec.adapters.torch, not {adapter!r}")
    return adapter
