"""Which of several arrays of a shape an optimizer without names trains: what has moved."""

from __future__ import annotations

import numpy as np
import pytest

from lccodec.element_types import components
from lccodec.policy.policy import Candidate
from lccodec.policy.roles import PARAMETER, PERHAPS
from lccodec.policy.trained import mark_trained


def candidate(name: str, role: str, moves: bool | None = True, shape: tuple[int, ...] = (4,)) -> Candidate:
    """An array; it has no reference if it is not known whether it moves."""
    kind, bits = components(np.ones(shape, np.float32))
    before = None if moves is None else bits - np.uint32(moves)
    why = PERHAPS if role == "other" else PARAMETER
    return Candidate(name, role, why, kind, shape, bits, before)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("moves", "trained"),
    [
        ([True, False, True], "ac"),
        ([True, True, True], ""),  # one of them is an average
        ([True, False, False], ""),  # one that is trained had no gradient
        ([None, None, None], ""),  # the first save
        ([True, None, True], "ac"),
    ],
)
def test_as_many_as_the_optimizer_has(moves: list[bool | None], trained: str) -> None:
    moments = [candidate(f"m{n}", "first_moment") for n in range(3)]
    arrays = [*moments, candidate("d", "weight"), candidate("e", "other", shape=(5,))]
    arrays += [candidate(name, "other", each) for name, each in zip("abc", moves, strict=True)]
    mark_trained(arrays)
    assert "".join(a.name for a in arrays[5:] if (a.role, a.why) == ("weight", PARAMETER)) == trained
    assert arrays[4].role == "other"
