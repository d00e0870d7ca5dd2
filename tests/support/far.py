"""A framework whose arrays lie on another device: each copy of one is counted."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from lccodec.container.tree import Room, Wanted, left_out
from lccodec.policy.roles import Assignment


class Far:
    """An array of the device."""

    def __init__(self, values: np.ndarray[Any, Any]) -> None:
        self.values, self.copies = values, 0

    def host(self) -> np.ndarray[Any, Any]:
        self.copies += 1
        return self.values.copy()


class FarAdapter:
    """The adapter of dicts of such arrays."""

    def to_numpy(
        self,
        state: Mapping[str, Far],
        metadata: Mapping[str, str] | None = None,
        room: Room | None = None,  # noqa: ARG002
        wanted: Wanted | None = None,
        /,
    ) -> tuple[Any, dict[str, str]]:
        plain = {
            name: array.host() if wanted is None or wanted(name) else left_out()
            for name, array in state.items()
        }
        return plain, dict(metadata or {})

    def from_numpy(self, state: Any, metadata: Mapping[str, str], name: str = "", /) -> Any:  # noqa: ARG002
        return state

    def roles(self, state: Any, /) -> Mapping[str, Assignment]:  # noqa: ARG002
        return {}
