from __future__ import annotations

import itertools

import pytest

from lccodec import ROLES, ArgumentError
from lccodec.roles import find_roles


@pytest.mark.parametrize(
    ("name", "role"),
    [
        ("model/fc1.weight", "weight"),
        ("0", "weight"),
        ("", "weight"),
        ("optimizer/state/0/exp_avg", "first_moment"),
        ("optimizer/state/0/exp_avg_sq", "second_moment"),
        ("optimizer/state/0/max_exp_avg_sq", "second_moment"),
        ("optimizer/state/0/exp_avg_sq_row", "second_moment"),
        ("optimizer/state/0/momentum_buffer", "first_moment"),
        ("optimizer/state/0/square_avg", "second_moment"),
        ("optimizer/state/0/exp_inf", "second_moment"),
        ("optimizer/state/0/step", "other"),
        ("optimizer/state/0/prev", "other"),
        ("state/3/sum", "second_moment"),  # torch's Adagrad, its state saved alone
        ("state/3/ax", "other"),
        ("model/sum", "weight"),
        ("opt_state/0/mu/params/Dense_0/kernel", "first_moment"),  # optax's Lion has no nu
        ("opt_state/0/nu/params/Dense_0/kernel", "second_moment"),
        ("opt_state/0/trace/params/Dense_0/kernel", "first_moment"),
        ("opt_state/0/count", "other"),
        ("params/encoder/mu/kernel", "weight"),  # the mean of a variational encoder
        ("params/attention/v/kernel", "weight"),
        ("fc/weight_v", "weight"),  # weight normalization
        ("optimizer/v_row/fc", "second_moment"),
        ("optimizer/velocity", "first_moment"),
        ("model/bn1.running_mean", "other"),
        ("model/bn1.running_var", "other"),
        ("batch_stats/BatchNorm_0/var", "other"),
        ("moving_variance", "other"),
        ("model~1bn~1moving_variance", "other"),
    ],
)
def test_a_name_alone(name: str, role: str) -> None:
    assert find_roles([name]) == {name: role}


@pytest.mark.parametrize(
    "names",
    [
        ("m/fc/kernel", "v/fc/kernel"),
        ("0/mu/kernel", "0/nu/kernel"),
        ("fc_m", "fc_v"),
        ("vars/dense_kernel_momentum", "vars/dense_kernel_velocity"),
        ("adam.exp_avg.w", "adam.exp_avg_sq.w"),
    ],
)
def test_moments_side_by_side(names: tuple[str, str]) -> None:
    found = find_roles([*names, "w/fc/kernel", "q/m"])
    assert list(found.values()) == ["first_moment", "second_moment", "weight", "weight"]


def test_given_roles_go_first() -> None:
    names = ["a/w", "a/[x]", "b/w"]
    assert find_roles(names, {"a/*": "other", "a/[x]": "first_moment", "*": "second_moment"}) == dict(
        zip(names, ["other", "first_moment", "second_moment"], strict=True)
    )


@pytest.mark.parametrize(
    "given", [{"a": "weights"}, {1: "weight"}, {"a": None}, [("a", "weight")], {"a": []}]
)
def test_unknown_roles_are_refused(given: object) -> None:
    with pytest.raises(ArgumentError, match=r"role"):
        find_roles(["a"], given)  # type: ignore[arg-type]


def test_every_role_can_be_found() -> None:
    names = ["w", "opt/m", "opt/v", "opt/x"]
    assert tuple(find_roles(names).values()) == ROLES
    for order in itertools.permutations(names):
        assert find_roles(order) == find_roles(names)


def test_roles_given_once_are_not_kept() -> None:
    names = ["m/fc", "v/fc"]
    found = find_roles(names, {"m/fc": "other"}, {"v/fc": "weight"})
    assert found == {"m/fc": "other", "v/fc": "weight"}
    found["m/fc"] = "weight"
    assert find_roles(names) == {"m/fc": "first_moment", "v/fc": "second_moment"}
    assert find_roles(names, {"m/*": "other"}, {"m/fc": "weight", "gone": "other"})["m/fc"] == "other"
