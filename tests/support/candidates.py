"""Arrays as policies look at them."""

from typing import Any

import numpy as np

from lccodec.element_types import components
from lccodec.policy.policy import Candidate
from lccodec.policy.roles import UNNAMED, Role


def candidate(
    name: str, array: np.ndarray, role: Role = "other", why: str = UNNAMED, before: Any = None, **members: Any
) -> Candidate:
    """An array by its name, and what it was before if it has a reference."""
    kind, bits = components(array)
    reference = None if before is None else components(before)[1]
    return Candidate(name, role, why, kind, array.shape, bits, reference, **members)
