"""The names of tensors in a state: the keys of one of its entries, such as ``"model"``."""

from __future__ import annotations

from ...container.tree import leaf_name
from ...errors import ArgumentError

__all__ = ["Prefix"]


class Prefix:
    """The entry of a state whose keys are the names of tensors.

    Examples
    --------
    >>> model = Prefix("run/model")
    >>> model.path("layers.0.weight"), model.name("run/model/a~1b")
    ('run/model/layers.0.weight', 'a/b')
    """

    def __init__(self, prefix: str) -> None:
        if not isinstance(prefix, str):
            raise ArgumentError(f"prefix must be a string such as 'model'; got {prefix!r}")
        self._start = f"{prefix}/" if prefix else ""
        self.keys = [prefix] if prefix else None  # what is followed

    def path(self, name: str) -> str:
        """Return where a tensor is in the state."""
        return self._start + leaf_name((name,))

    def holds(self, path: str) -> bool:
        """Return whether a place in the state is below the entry."""
        return path.startswith(self._start)

    def name(self, path: str) -> str:
        """Return the name of the tensor at a place."""
        return path.removeprefix(self._start).replace("~1", "/").replace("~0", "~")
