from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lccodec import ROLES, ArgumentError, Chain
from lccodec.policy.roles import UNNAMED, Assignment, Role, assign_roles, check_matches, is_exact
from lccodec.policy.vocabulary import MODELS, WEIGHTS, meaning


def roles_by_name(names: Any, *known: Any) -> dict[str, Role]:
    return {name: assignment.role for name, assignment in assign_roles(names, *known).items()}


@pytest.mark.parametrize(
    ("name", "role"),
    [
        ("model/fc1.weight", "weight"),
        ("params/Dense_0/kernel", "weight"),
        ("params/LayerNorm_0/scale", "weight"),
        ("actor_params/norm/offset", "weight"),
        ("model/layers.0.attention.in_proj_weight", "weight"),
        ("model/rnn.weight_hh_l1_reverse", "weight"),
        ("model/q_proj.lora_A", "weight"),
        ("model/cls_token", "weight"),
        ("dense/kernel:0", "weight"),
        ("model/layers.0.mlp.experts.gate_up_proj", "weight"),
        ("wte", "weight"),
        ("W", "weight"),
        ("w12", "weight"),
        ("weights/0", "weight"),
        ("params/encoder/mu/kernel", "weight"),  # the mean of a variational encoder
        ("params/attention/v/kernel", "weight"),
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
        ("opt_state/0/mu/params/Dense_0/kernel", "first_moment"),  # optax's Lion has no nu
        ("opt_state/0/nu/params/Dense_0/kernel", "second_moment"),
        ("opt_state/0/trace/params/Dense_0/kernel", "first_moment"),
        ("opt_state/0/count", "other"),
        ("optimizer/v_row/fc", "second_moment"),
        ("model/bn1.running_mean", "other"),
        ("model/bn1.running_var", "other"),
        ("batch_stats/BatchNorm_0/var", "other"),
        ("moving_variance", "other"),
        ("model~1bn~1moving_variance", "other"),
        ("ema/exp_avg/fc.weight", "first_moment"),
        ("fisher/optimizer/mu/w", "first_moment"),
    ],
)
def test_a_name_alone(name: str, role: str) -> None:
    assert roles_by_name([name]) == {name: role}


#: Names that were taken for weights or moments and are neither, or not for sure.
STRANGE = [
    *("", "0", "x", "model/sum", "layers/0", "quant.scale", "params/quant/scale", "scale", "gamma", "b"),
    *("optimizer_G/fc.weight", "optG/fc.weight", "g_optim/0/delta/w", "gopt/kernel", "AdamW/weight"),
    *("sophia/hessian/fc.weight", "muon/fc.weight", "RMSprop/fc/weight", "lr_sched/weight"),
    *("fisher/fc.weight", "obs_rms/mean", "obs_rms/var", "obs_rms/weight", "ewc/importance/fc.weight"),
    *("cluster_size", "vq/_codebook.embed", "embed_avg", "vq/codebook.weight", "ema_w", "ema.fc.weight"),
    *("row_var", "col_var", "variance", "bn/mean", "bn/var", "batch_stats/bn/scale", "grads/fc.weight"),
    *("fc.weight_v", "fc.weight_u", "fc.weight_mask", "weight_fake_quant.scale", "masks/fc.weight"),
    *("optimizer/velocity", "optimizer/v/w", "optimizer/fc_m", "optimizer/grad_sum", "optimizer/accumulator"),
    *("optimizer/log_exp_avg_sq", "optimizer/exp_avg/absmax", "exp_avg_sq/step", "scaler/scale"),
    *("replay/weights", "rng/weight", "swa_model/fc.weight", "running/weight", "hessian"),
]


@pytest.mark.parametrize("name", STRANGE)
def test_what_is_not_known_for_sure_is_other(name: str) -> None:
    assert roles_by_name([name]) == {name: "other"}


@pytest.mark.parametrize("policy", ["balanced", "lc-3"])
def test_what_is_not_known_for_sure_is_exact(tmp_path: Path, policy: str) -> None:
    """Each in a state of NumPy arrays, side by side with weights and all the others."""
    rng = np.random.default_rng(0)
    values = {name: rng.random(300).astype(np.float32) for name in STRANGE if name}
    with Chain(tmp_path, policy) as chain:
        for step in range(3):
            moved = {name: value * (1 + 0.01 * step) for name, value in values.items()}
            chain.save(step, {"fc": {"w": moved["x"] + 1}, **moved})
        restored = chain.restore(exact=False)
    assert not np.array_equal(restored["fc"]["w"], moved["x"] + 1)
    for name, value in moved.items():
        np.testing.assert_array_equal(restored[name], value, err_msg=name)


@pytest.mark.parametrize(
    "names",
    [
        ("m/fc/kernel", "v/fc/kernel"),
        ("0/mu/kernel", "0/nu/kernel"),
        ("fc_m", "fc_v"),
        ("vars/dense_kernel_momentum", "vars/dense_kernel_velocity"),
        ("adam.exp_avg.w", "adam.exp_avg_sq.w"),
        ("fc_exp_avg", "fc_exp_avg_sq"),
        ("optimizer/m/w", "optimizer/v/w"),
    ],
)
def test_moments_side_by_side(names: tuple[str, str]) -> None:
    found = roles_by_name([*names, "w/fc/kernel", "q/m"])
    assert list(found.values()) == ["first_moment", "second_moment", "weight", "other"]


@pytest.mark.parametrize(
    "names",
    [
        ("opt/mu/w/0", "opt/mu/w/1", "opt/nu/w"),  # optax's SM3, whose mu is a second moment
        ("m/mean", "v/variance"),
        ("obs_rms/m", "obs_rms/v"),
        ("exp_avg/codes", "exp_avg/scale"),  # of a moment that is quantized
    ],
)
def test_what_is_side_by_side_but_no_pair_of_moments(names: tuple[str, ...]) -> None:
    found = roles_by_name(names)
    assert found[names[-1]] == "other"
    assert "first_moment" not in {found[name] for name in names if name != "exp_avg/codes"}


@pytest.mark.parametrize(
    "names", [("ln/gamma", "ln/beta"), ("fc.weight_g", "fc.weight_v"), ("fc/w", "fc/b"), ("w_3", "b_3")]
)
def test_weights_side_by_side(names: tuple[str, str]) -> None:
    assert set(roles_by_name(names).values()) == {"weight"}
    assert "other" in roles_by_name(names[1:]).values()


def test_spectral_norm_has_no_weight_v() -> None:
    names = ["fc.weight_orig", "fc.weight_u", "fc.weight_v"]
    assert list(roles_by_name(names).values()) == ["weight", "other", "other"]


def test_what_has_moments_of_its_whole_name_is_a_weight() -> None:
    names = ["model/position", "exp_avg/position", "exp_avg_sq/position", "model/buffer", "else/position"]
    moments = ["first_moment", "second_moment"]
    assert list(roles_by_name(names).values()) == ["weight", *moments, "other", "other"]
    names = ["net.a.table", "optimizer.state.a.table.exp_avg", "net.table", "net.0", "state/0/exp_avg"]
    assert list(roles_by_name(names).values()) == ["weight", "first_moment", "other", "other", "first_moment"]
    assert list(roles_by_name(["params/0", "m/0", "v/0"]).values()) == ["weight", *moments]


def test_every_role_says_why() -> None:
    names = ["fc.weight", "bn.running_var", "opt/m/a", "opt/x", "x", "fisher/w", "model/c", "exp_avg/c"]
    found = assign_roles([*names, "sgd/velocity"], {"*/velocity": "first_moment"})
    assert [assignment.why for assignment in found.values()] == [
        "named 'weight'",
        "'running_var' is exact",
        "named 'm'",
        "inside an optimizer",
        UNNAMED,
        "'fisher' is exact",
        "has the moments of 'c'",
        "named 'exp_avg'",
        "given as '*/velocity'",
    ]
    assert [name for name, assignment in found.items() if assignment.why == UNNAMED] == ["x"]


def test_given_roles_go_first() -> None:
    names = ["a/w", "a/[x]", "b/w"]
    given: dict[str, Role] = {"a/*": "other", "a/[x]": "first_moment", "*": "second_moment"}
    assert roles_by_name(names, given) == dict(
        zip(names, ["other", "first_moment", "second_moment"], strict=True)
    )


@pytest.mark.parametrize(
    "given",
    [{"a": "weights"}, {1: "weight"}, {"a": None}, [("a", "weight")], {"a": []}],
)
def test_unknown_roles_are_refused(given: object) -> None:
    with pytest.raises(ArgumentError, match=r"role"):
        assign_roles(["a"], given)  # type: ignore[arg-type]


def test_every_role_can_be_found() -> None:
    names = ["w", "opt/m", "opt/v", "opt/x"]
    assert tuple(roles_by_name(names).values()) == ROLES
    for order in itertools.permutations(names):
        assert assign_roles(order) == assign_roles(names)


def test_roles_given_once_are_not_kept() -> None:
    names = ["m/fc", "v/fc"]
    weight, other = Assignment("weight", "a type"), Assignment("other", "a type")
    found = assign_roles(names, {"m/fc": "other"}, {"v/fc": weight})
    assert {name: assignment.role for name, assignment in found.items()} == {
        "m/fc": "other",
        "v/fc": "weight",
    }
    found["m/fc"] = weight
    assert roles_by_name(names) == {"m/fc": "first_moment", "v/fc": "second_moment"}
    assert roles_by_name(names, {"m/*": "other"}, {"m/fc": weight, "gone": other})["m/fc"] == "other"


letters = st.text("abcdmnuvwxyz", min_size=1, max_size=6)
parts = letters | st.sampled_from(["model", "state", "0", "1", "params", "scale", "var", "mean", "sum", "v"])
trees: st.SearchStrategy[Any] = st.recursive(
    st.integers(0, 2**32), lambda children: st.dictionaries(parts, children, max_size=4), max_leaves=12
)


def arrays_of(tree: Any, factor: float) -> Any:
    if isinstance(tree, dict):
        return {key: arrays_of(child, factor) for key, child in tree.items()}
    return (np.random.default_rng(tree).random(300) * factor).astype(np.float32)


def leaves_of(tree: Any, name: str = "") -> dict[str, Any]:
    if isinstance(tree, dict):
        return {
            n: leaf for key, child in tree.items() for n, leaf in leaves_of(child, f"{name}/{key}").items()
        }
    return {name[1:]: tree}


@given(trees)
def test_what_is_in_no_list_is_other_and_exact(tmp_path_factory: pytest.TempPathFactory, tree: Any) -> None:
    """For any tree of names: what is not named stays exact; a lossy array has a listed name."""
    with Chain(tmp_path_factory.mktemp("chain"), "balanced") as chain:
        for step in range(3):
            state = arrays_of(tree, 1 + 0.01 * step)
            chain.save(step, state)
        restored = leaves_of(chain.restore())
    wanted = leaves_of(state)
    for name, assignment in assign_roles(wanted).items():
        words = [meaning(part) for part in name.split("/")]
        listed = any(
            w.moment
            or w.moment_in_optimizer
            or w.partners
            or w.weight
            or w.weight_beside
            or w.weight_in_params
            for w in words
        )
        if not listed:
            assert assignment.role == "other"
        if assignment.role == "other":
            np.testing.assert_array_equal(restored[name], wanted[name])


def test_the_lists_do_not_contradict_each_other() -> None:
    for name in [*WEIGHTS, *MODELS]:
        word = meaning(name)
        assert not word.exact, name
        assert not word.optimizer, name
        assert not word.moment, name
    assert is_exact("model/bn.running_var") and not is_exact("model/rms_norm.weight")


NAMES = ["model/fc.weight", "model/fc.bias", "optimizer/velocity/fc.weight", "a[0]/x"]


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        ("model/fc.wieght", "'model/fc.wieght' (is it 'model/fc.weight'"),
        ("*/velocty", "'*/velocty' (is it"),
        ("*velocty*", "'*velocty*' (is it"),
        ("fc.weight", "'fc.weight' (is it 'model/fc.weight'"),
        ("wieght", "'wieght' (is it 'model/fc.weight' or 'optimizer/velocity/fc.weight'?)"),
        ("*.wie[hg]t", "'*.wie[hg]t' (is it"),
        ("", "''"),
        ("*zzzzzz*", "'*zzzzzz*'"),
        ("a[0]/y", "'a[0]/y'"),
    ],
)
def test_a_pattern_that_fits_nothing_is_told_with_what_is_near(pattern: str, words: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        check_matches("roles", ["*.weight", pattern], NAMES)
    first, line = str(caught.value).splitlines()
    assert first == "roles: no array is named"
    assert line.startswith(f"  {words}")


def test_patterns_that_fit() -> None:
    check_matches("patterns", ["a[0]/x", "*", "model/fc.[bw]*", *NAMES], NAMES)
    check_matches("patterns", [], [])
    with pytest.raises(ArgumentError, match=r"patterns: (.|\n)*'a'\n(.|\n)*'b'"):
        check_matches("patterns", ["a", "b"], [])
