"""Which of several arrays of a shape an optimizer without names trains: what has moved."""

import numpy as np
import pytest

from lccodec.policy.followers import mark_trained
from lccodec.policy.policy import Candidate
from lccodec.policy.roles import PARAMETER, PERHAPS, Role

from ..support.candidates import candidate


def array_of(name: str, role: Role, moves: bool | None = True, shape: tuple[int, ...] = (4,)) -> Candidate:
    """An array; it has no reference if it is not known whether it moves."""
    before = None if moves is None else np.full(shape, 1 - moves, np.float32)
    why = PERHAPS if role == "other" else PARAMETER
    return candidate(name, np.ones(shape, np.float32), role, why, before)


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
    moments = [array_of(f"m{n}", "first_moment") for n in range(3)]
    arrays = [*moments, array_of("d", "weight"), array_of("e", "other", shape=(5,))]
    arrays += [array_of(name, "other", each) for name, each in zip("abc", moves, strict=True)]
    mark_trained(arrays)
    assert "".join(a.name for a in arrays[5:] if (a.role, a.why) == ("weight", PARAMETER)) == trained
    assert arrays[4].role == "other"
