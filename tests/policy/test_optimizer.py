"""Which arrays are the parameters of an optimizer; `test_roles` tests whole states."""

import pytest

from lccodec.policy.optimizer import as_many, find_numbered, find_optimizers, name_parts, numbered, path_of
from lccodec.policy.roles import called_weight, is_exact


def test_parts_of_a_name() -> None:
    assert name_parts("model/Fc.weight~1x") == ["model", "Fc", "weight", "x"]
    assert path_of("model/Fc.weight") == ("model", "fc", "weight")


@pytest.mark.parametrize(
    ("count", "found"),
    [
        (4, ["model/a", "model/w", "old/w", "x/b"]),  # all of them
        (2, ["model/w", "old/w"]),  # those called weights
        (1, ["model/w"]),  # that below a model
        (3, []),
        (0, []),
    ],
)
def test_as_many_as_the_optimizer_has(count: int, found: list[str]) -> None:
    assert as_many(["model/a", "model/w", "old/w", "x/b"], count, called_weight) == found


def test_parameters_by_number() -> None:
    arrays = {"a": (2, 3), "b": (3,), "c": (3,), "d": (4,)}
    assert numbered([(3,), (2, 3), (3,)], arrays, [], called_weight) == ["b", "c", "a"]
    assert numbered([(3,), (2, 3)], arrays, [], called_weight) == ["a"]  # b or c?
    assert numbered([(2, 3), (3,), (3,), None], arrays, [], called_weight) == ["a", "b", "c", "d"]
    assert numbered([None, None], arrays, [], called_weight) == []
    assert numbered([(2, 3), (9,)], arrays, [], called_weight) == []  # one is missing
    assert numbered([(2, 3), (9,)], arrays, [(9,)], called_weight) == ["a"]  # it is called exact


def test_parameters_by_order() -> None:
    """Only if there is one way, and no two groups have the same."""
    arrays = {"a": (3,), "b": (3,), "c": (3,), "d": (4,)}
    for groups, names, perhaps in (
        ([[None, (3,), None, None]], ["b"], set()),
        ([[None, (3,), (3,), (4,)]], ["d", "b", "c"], set()),
        ([[None, (3,)]], [], {"a", "b", "c"}),
        ([[None, (3,), (3,), (9,)]], [], {"a", "b", "c"}),
        ([[None, (3,), None, None]] * 2, [], {"a", "b", "c"}),
        ([[None] * 9], [], set()),
    ):
        assert find_numbered(groups, 0, arrays, [], called_weight) == (names, perhaps)


def test_an_optimizer_that_keeps_something_else_is_not_known() -> None:
    shapes = {"params/w": (2, 3), "opt/mu/w": (2, 3), "opt/nu/w": (2, 3), "opt/count": ()}
    found = find_optimizers(shapes, called_weight, is_exact)
    assert (found.present, found.known, found.parameters) == (True, True, {"params/w"})
    assert found.moments["opt/mu/w"] == ("first_moment", "mu")
    found = find_optimizers({**shapes, "opt/x0/w": (2, 3)}, called_weight, is_exact)
    assert (found.present, found.known, found.parameters, found.moments) == (True, False, set(), {})
    assert not find_optimizers({"params/w": (2, 3)}, called_weight, is_exact).present
