"""Roles by names and shapes: of moments, parameters and averages; what nothing names is exact."""

import itertools
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lccodec import ROLES, ArgumentError, Balanced, Chain
from lccodec.element_types import components
from lccodec.policy.balanced import correlations, find_parts
from lccodec.policy.policy import Candidate, Past
from lccodec.policy.roles import (
    AVERAGE,
    UNNAMED,
    Assignment,
    Role,
    assign_roles,
    called_weight,
    check_matches,
    check_roles,
    is_exact,
)
from lccodec.policy.vocabulary import ENTRIES, EXACT, MODELS, OPTIMIZERS, WEIGHTS, meaning

from ..support.candidates import candidate

Shapes = dict[str, tuple[int, ...]]


def shapes_of(names: Iterable[str], shape: tuple[int, ...] = (30, 40)) -> Shapes:
    return dict.fromkeys(names, shape)


def roles_of(shapes: Shapes, *more: Any) -> dict[str, Role]:
    return {name: assignment.role for name, assignment in assign_roles(shapes, *more).items()}


@pytest.mark.parametrize(
    "name",
    [
        *("model/fc1.weight", "params/Dense_0/kernel", "params/LayerNorm_0/scale", "wte", "W", "w12"),
        *("actor_params/norm/offset", "model/layers.0.attention.in_proj_weight"),
        "model/rnn.weight_hh_l1_reverse",
        *("model/q_proj.lora_A", "model/cls_token", "dense/kernel:0", "weights/0"),
        *("model/layers.0.mlp.experts.gate_up_proj", "model.layers.0.self_attn.q_proj.weight"),
        *("params/encoder/mu/kernel", "params/attention/v/kernel", "blocks/0/attn/c_attn/weight"),
        *("base_model.model.layers.0.q_proj.lora_A.default.weight", "encoder/conv~1w", "0.weight"),
    ],
)
def test_what_is_called_a_weight_is_one_where_no_optimizer_says_more(name: str) -> None:
    assert roles_of(shapes_of([name])) == {name: "weight"}


#: Names that alone are neither of weights nor of moments, or not for sure.
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
    # Moments of nothing in the state.
    *("optimizer/state/0/exp_avg", "optimizer/state/0/exp_avg_sq", "optimizer/state/0/momentum_buffer"),
    *("state/3/sum", "state/3/ax", "opt_state/0/mu/fc/kernel", "opt_state/0/nu/fc/kernel", "exp_avg"),
    *("opt_state/0/trace/fc/kernel", "opt_state/0/count", "optimizer/v_row/fc", "momentum_buffer/fc.weight"),
    *("model/bn1.running_mean", "model/bn1.running_var", "batch_stats/BatchNorm_0/var", "moving_variance"),
    *("model~1bn~1moving_variance", "ema/exp_avg/fc.weight", "fisher/optimizer/mu/w"),
    # Weights and moments of what no optimizer trains.
    *("obs_norm/m", "obs_norm/v", "particles/momentum", "particles/velocity", "neurons/v", "neurons/m"),
    *("criterion.weight", "model.criterion.weight", "loss_fn/weight", "sampler/weights"),
    *("error_feedback/fc.weight", "teacher.fc.weight", "target_params/fc/kernel", "avg_params/fc/kernel"),
    *("momentum_encoder.fc.weight", "model.momentum_encoder.fc.weight", "AveragedModel/module.fc.weight"),
    *("averaged_model.module.weight", "student_teacher/teacher/kernel", "frozen/kernel"),
]


@pytest.mark.parametrize("name", STRANGE)
def test_what_is_not_known_for_sure_is_other(name: str) -> None:
    assert roles_of(shapes_of([name])) == {name: "other"}


@pytest.mark.parametrize("policy", ["balanced", "lc-3"])
def test_what_is_not_known_for_sure_is_exact(tmp_path: Path, policy: str) -> None:
    """Each in a state of NumPy arrays, side by side with weights, moments and all the others."""
    rng = np.random.default_rng(0)
    own = {f"{part}/fc/w": rng.random((25, 12)) for part in ("params", "v")}
    values = {
        name: rng.random(300).astype(np.float32) for name in STRANGE if name and "state/" not in name
    } | own
    with Chain(tmp_path, policy) as chain:
        for step in range(3):
            moved = {name: value * (1 + 0.01 * step) for name, value in values.items()}
            moved["m/fc/w"] = 0.1 * rng.normal(size=(25, 12))
            state = {name: value for name, value in moved.items() if name not in own}
            for part in ("params", "m", "v"):
                state[part] = {"fc": {"w": moved[f"{part}/fc/w"]}}
            chain.save(step, state)
        restored = chain.restore(exact=False)
    for part in ("params", "m", "v"):
        assert not np.array_equal(restored[part]["fc"]["w"], moved[f"{part}/fc/w"])
    for name, value in moved.items():
        if name not in own and name != "m/fc/w":
            np.testing.assert_array_equal(restored[name], value, err_msg=name)


LINEAR = {"fc.weight": (30, 40), "fc.bias": (30,)}


def below(place: str, shapes: Shapes = LINEAR) -> Shapes:
    return {place + name: shape for name, shape in shapes.items()}


def slashed(place: str) -> Shapes:
    return {place + name.replace(".", "/"): shape for name, shape in LINEAR.items()}


#: States with an optimizer: parameters, first and second moments.
OPTIMIZED: dict[str, tuple[Shapes, Shapes, Shapes]] = {
    "sibling trees": (slashed("params/"), slashed("m/"), slashed("v/")),
    "sibling trees of weights": (below("weights/"), below("m/"), below("v/")),
    "the state itself": (below(""), below("exp_avg/"), below("exp_avg_sq/")),
    "one array": ({"weights": (9, 9)}, {"m": (9, 9)}, {"v": (9, 9)}),
    "one array of a layer": ({"a/weight": (9, 9)}, {"a/exp_avg": (9, 9)}, {"a/exp_avg_sq": (9, 9)}),
    "entries in names": ({"w": (9, 9)}, {"w_m": (9, 9)}, {"w_v": (9, 9)}),
    "lists": ({"params/0": (9, 9)}, {"m/0": (9, 9)}, {"v/0": (9, 9)}),
    "names that say nothing": ({"model/a/b": (9, 9)}, {"m/a/b": (9, 9)}, {"v/a/b": (9, 9)}),
    "names that say nothing in optax": (
        {"net/table": (9, 9)},
        {"opt_state/0/mu/table": (9, 9)},
        {"opt_state/0/nu/table": (9, 9), "opt_state/0/count": ()},
    ),
    "optax": (
        slashed("params/"),
        slashed("opt_state/0/mu/params/"),
        slashed("opt_state/0/nu/params/") | {"opt_state/0/count": ()},
    ),
    "amsgrad of optax": (
        slashed("params/"),
        slashed("opt/0/mu/"),
        slashed("opt/0/nu/") | slashed("opt/0/nu_max/") | {"opt/0/count": ()},
    ),
    "rmsprop of optax": (slashed("params/"), {}, slashed("opt/0/nu/")),
    "trace of optax": (slashed("params/"), slashed("opt/0/trace/"), {}),
    "adadelta of optax": (slashed("params/"), {}, slashed("opt/0/e_g/") | slashed("opt/0/e_x/")),
    "names of PyTorch": (
        below("model.module."),
        {f"optimizer.state.{name}.exp_avg": shape for name, shape in LINEAR.items()},
        {f"optimizer.state.{name}.exp_avg_sq": shape for name, shape in LINEAR.items()},
    ),
    "numbers of PyTorch": (
        below("model/"),
        {f"optimizer/state/{i}/exp_avg": shape for i, shape in enumerate(LINEAR.values())},
        {f"optimizer/state/{i}/exp_avg_sq": shape for i, shape in enumerate(LINEAR.values())},
    ),
    "numbers of no optimizer": (below(""), {}, {"state/0/sum": (30,), "state/1/sum": (30, 40)}),
    "Keras": (
        {"trainable/dense/kernel": (9, 9)},
        {"optimizer/adam/dense_kernel_momentum": (9, 9)},
        {"optimizer/adam/dense_kernel_velocity": (9, 9)},
    ),
    "two networks": (
        slashed("g/") | slashed("d/"),
        slashed("opt_g/m/") | slashed("opt_d/m/"),
        slashed("opt_g/v/") | slashed("opt_d/v/"),
    ),
}
#: Beside them: weights by name that no optimizer trains, and moments of nothing.
BESIDE = {
    **below("best_model/"),
    **slashed("initial/"),
    **shapes_of(["criterion/weight", "norm.running_var"], (30,)),
    "head/kernel": (7, 8),
    **shapes_of(["rnd/m/x", "rnd/v/x"], (5, 6)),
    **shapes_of(["obs_norm/m", "obs_norm/v", "ema/fc/weight"]),
    **shapes_of(["particles/momentum", "particles/velocity"], (9, 9)),
}


@pytest.mark.parametrize("name", OPTIMIZED)
def test_the_parameters_of_an_optimizer_are_the_weights(name: str) -> None:
    weights, first, second = OPTIMIZED[name]
    assert first.keys() | second.keys()
    wanted: dict[str, Role] = dict.fromkeys(weights, "weight")
    wanted |= dict.fromkeys(first, "first_moment") | dict.fromkeys(second, "second_moment")
    wanted |= {name: "other" for name in second if name.endswith("count")}
    shapes = {**weights, **first, **second}
    assert roles_of(shapes) == wanted
    # What shares nothing with the parameters changes nothing.
    apart = {name: shape for name, shape in BESIDE.items() if shape not in shapes.values()}
    assert roles_of({**apart, **shapes}) == wanted | dict.fromkeys(apart, "other")


@pytest.mark.parametrize("name", ["sibling trees", "optax", "numbers of PyTorch", "trace of optax"])
def test_copies_of_parameters_are_exact(name: str) -> None:
    weights, first, second = OPTIMIZED[name]
    found = roles_of({**BESIDE, **weights, **first, **second})
    assert {found[beside] for beside in BESIDE} == {"other"}
    assert {found[each] for each in weights} == {"weight"}
    assert {found[each] for each in first} <= {"first_moment"}


def test_without_a_way_to_tell_copies_all_are_exact() -> None:
    moments = slashed("opt/0/trace/")
    found = roles_of({**slashed("one/"), **slashed("two/"), **moments})
    assert {found[name] for name in slashed("one/")} == {found[name] for name in slashed("two/")} == {"other"}
    assert {found[name] for name in moments} == {"first_moment"}


@pytest.mark.parametrize(
    "more",
    [
        {"opt/0/mu/fc/w": (9, 9), "opt/0/nu/fc/w": (9, 9)},  # optax's centered RMSprop has no count
        {"opt/0/mu/fc/w/0": (9,), "opt/0/mu/fc/w/1": (9,), "opt/0/nu/fc/w": (9, 9)},  # SM3
        {"opt/0/mu/fc/w": (9, 9), "opt/0/nu/fc/w": (), "opt/0/count": ()},  # Novograd
        {f"opt/0/{entry}/fc/w": (9, 9) for entry in "mvng"},  # Adan
        {"state/0/exp_avg": (9, 9), "state/0/exp_avg_sq": (9, 9), "state/0/s": (9, 9)},  # Prodigy
        {"state/0/exp_avg": (9, 9), "state/0/exp_avg_sq": (9, 9), "state/0/GG/0": (9, 9)},  # SOAP
        {"state/0/row_var": (9, 1), "state/0/col_var": (1, 9)},  # Adafactor
        {"state/0/exp_avg": (9, 9), "state/0/exp_avg_sq": (9, 1)},
        {"opt/m/fc/w/codes": (9, 9), "opt/v/fc/w/codes": (9, 9)},  # quantized moments
    ],
)
def test_what_is_no_family_is_exact(more: Shapes) -> None:
    found = roles_of({"params/fc/w": (9, 9), **more})
    assert {found[name] for name in more} == {"other"}


def test_the_parameters_of_an_optimizer_that_is_exact_are_weights() -> None:
    """By number: Adafactor shows no shapes of its parameters, but how many there are."""
    moments = {"opt/state/0/row_var": (30, 1), "opt/state/0/col_var": (1, 40), "opt/state/1/variance": (30,)}
    found = roles_of({**below("model/"), "model/norm.running_var": (30,), **moments})
    assert [name for name, role in found.items() if role == "weight"] == list(below("model/"))
    assert {found[name] for name in moments} == {"other"}


@pytest.mark.parametrize("names", [("m/mean", "v/variance"), ("obs_rms/m", "obs_rms/v"), ("a/m", "b/v")])
def test_what_is_side_by_side_but_no_pair_of_moments(names: tuple[str, ...]) -> None:
    assert {roles_of(shapes_of(["w", *names]))[name] for name in names} == {"other"}


@pytest.mark.parametrize(
    "names", [("ln/gamma", "ln/beta"), ("fc.weight_g", "fc.weight_v"), ("fc/w", "fc/b"), ("w_3", "b_3")]
)
def test_weights_side_by_side(names: tuple[str, str]) -> None:
    assert set(roles_of(shapes_of(names)).values()) == {"weight"}
    assert "other" in roles_of(shapes_of(names[1:])).values()


def test_spectral_norm_has_no_weight_v() -> None:
    names = ["fc.weight_orig", "fc.weight_u", "fc.weight_v"]
    assert list(roles_of(shapes_of(names)).values()) == ["weight", "other", "other"]


def test_where_the_state_has_a_model_weights_are_only_there() -> None:
    names = ["model/fc.weight", "model_G/fc.weight", "actor_params/w", "head/weight", "w"]
    assert list(roles_of(shapes_of(names)).values()) == ["weight"] * 3 + ["other"] * 2
    dotted = ["model.embed.weight", "lm_head.weight"]  # one state of one model
    assert set(roles_of(shapes_of(dotted)).values()) == {"weight"}


def test_every_role_says_why() -> None:
    shapes = shapes_of(["model/a.weight", "bn.running_var", "opt/nu/a.weight", "opt/x", "other/weight"])
    found = assign_roles({**shapes, "x": (7, 7), "sgd/velocity": (3,)}, {"*/velocity": "first_moment"})
    assert [assignment.why for assignment in found.values()] == [
        "a parameter of the optimizer",
        "'running_var' is exact",
        "'nu' of an optimizer",
        "no moment known to be safe",
        "no parameter of the optimizer",
        UNNAMED,
        "given as '*/velocity'",
    ]
    found = assign_roles(shapes_of(["model/a.weight", "b/weight"]))
    assert [assignment.why for assignment in found.values()] == ["named 'weight'", "not in the model"]


def test_given_roles_go_first() -> None:
    names = ["a/w", "a/[x]", "b/w"]
    given: dict[str, Role] = {"a/*": "other", "a/[x]": "first_moment", "*": "second_moment"}
    assert roles_of(shapes_of(names), given) == dict(
        zip(names, ["other", "first_moment", "second_moment"], strict=True)
    )


@pytest.mark.parametrize(
    "given", [{"a": "weights"}, {1: "weight"}, {"a": None}, [("a", "weight")], {"a": []}]
)
def test_unknown_roles_are_refused(given: object) -> None:
    with pytest.raises(ArgumentError, match=r"role"):
        check_roles(given)


def test_every_role_can_be_found() -> None:
    names = ["w", "opt/m/w", "opt/v/w", "opt/y/x"]
    assert tuple(roles_of(shapes_of(names)).values()) == ROLES
    for order in itertools.permutations(names):
        assert assign_roles(shapes_of(order)) == assign_roles(shapes_of(names))


def test_roles_given_once_are_not_kept() -> None:
    shapes = shapes_of(["params/fc", "m/fc", "v/fc"])
    weight, other = Assignment("weight", "a type"), Assignment("other", "a type")
    found = assign_roles(shapes, {"m/fc": "other"}, {"v/fc": weight})
    assert [assignment.role for assignment in found.values()] == ["weight", "other", "weight"]
    found["m/fc"] = weight
    assert list(roles_of(shapes).values()) == ["weight", "first_moment", "second_moment"]
    assert roles_of(shapes, {"m/*": "other"}, {"m/fc": weight, "gone": other})["m/fc"] == "other"


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


@pytest.mark.slow
@given(trees)
def test_what_is_in_no_list_is_other_and_exact(tmp_path_factory: pytest.TempPathFactory, tree: Any) -> None:
    """For any tree of names: what is not named stays exact; a lossy array has a listed name."""
    with Chain(tmp_path_factory.mktemp("chain"), "balanced") as chain:
        for step in range(3):
            state = arrays_of(tree, 1 + 0.01 * step)
            chain.save(step, state)
        restored = leaves_of(chain.restore())
    wanted = leaves_of(state)
    for name, assignment in assign_roles({name: array.shape for name, array in wanted.items()}).items():
        words = [meaning(part) for part in name.split("/")]
        if not any(w.entry or w.weight or w.weight_beside or w.weight_in_params for w in words):
            assert assignment.role == "other"
        if assignment.role == "other":
            np.testing.assert_array_equal(restored[name], wanted[name])


WORDS = sorted(
    {*ENTRIES, *MODELS, *EXACT, *OPTIMIZERS, "weight", "kernel", "w", "fc", "x", "0", "state", "count"}
)
listed_names = st.lists(st.sampled_from(WORDS), min_size=1, max_size=5).map("/".join)


@given(st.lists(listed_names, max_size=12, unique=True))
def test_where_nothing_mirrors_only_conventional_weights_are_lossy(names: list[str]) -> None:
    """For any names of words that say something: all shapes differ, so no array is a moment."""
    shapes = {name: (2, number + 2) for number, name in enumerate(names)}
    for name, role in roles_of(shapes).items():
        assert role in ("other", "weight")
        if role == "weight":
            assert called_weight(name)
            assert not is_exact(name)
            assert not any(meaning(part).optimizer for part in name.split("/")[:-1])


@given(st.lists(listed_names, max_size=12, unique=True))
def test_moments_have_the_shape_of_a_weight_beside_them(names: list[str]) -> None:
    shapes = {name: (2, number % 2 + 2) for number, name in enumerate(names)}
    found = roles_of(shapes)
    for name, role in found.items():
        if role.endswith("moment"):
            outside = [each for each in names if each != name and shapes[each] == shapes[name]]
            assert any(not is_exact(each) for each in outside)


def test_the_lists_do_not_contradict_each_other() -> None:
    for name in [*WEIGHTS, *MODELS]:
        word = meaning(name)
        assert not word.exact, name
        assert not word.optimizer, name
        assert not word.entry, name
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


LAYERS: Shapes = {"fc.weight": (30, 40), "fc.bias": (30,), "head.weight": (7, 30), "head.bias": (7,)}
NORM: Shapes = {"norm.weight": (30,), "norm.running_var": (30,), "norm.num_batches_tracked": ()}


def under(place: str, shapes: Shapes = LAYERS) -> Shapes:
    return {place + name: shape for name, shape in shapes.items()}


def averages(shapes: Shapes, *more: Any) -> set[str]:
    found = assign_roles(shapes, *more)
    return {name for name, assigned in found.items() if assigned == Assignment("weight", AVERAGE)}


ADAM = {
    f"optimizer/state/{i}/{entry}": shape
    for i, shape in enumerate(LAYERS.values())
    for entry in ("exp_avg", "exp_avg_sq")
}


@pytest.mark.parametrize("optimizer", [{}, ADAM])
@pytest.mark.parametrize(
    ("model", "place"),
    [
        *(("model/", f"{place}/") for place in ("ema", "ema_model", "ema/state_dict", "averaged")),
        *(("params/", "ema_params/"), ("params/", "params_ema/"), ("model/", "swa_model/module.")),
        *(("model/module.", "ema/"), ("model/_orig_mod.", "ema/module."), ("model/net.", "ema/net.")),
        *(("model.", "model_ema."), ("state_dict/model.", "state_dict/ema_model.module.")),
    ],
)
def test_an_average_with_the_structure_of_the_model_has_weights(
    model: str, place: str, optimizer: Shapes
) -> None:
    beside = {place.partition("/")[0] + "/decay": ()} if "/" in place else {}
    shapes = {**under(model), **optimizer, **under(place), **beside}
    assert averages(shapes) == set(under(place))


def test_an_averaged_model_is_known_whatever_it_is_called() -> None:
    tree = {"best/n_averaged": (), **under("best/module.")}
    assert averages({**under("model/"), **tree}) == set(under("best/module."))
    assert not averages({**under("model/"), **under("best/module.")})


def test_a_single_number_of_a_model_has_its_average() -> None:
    layers = {**LAYERS, "out.bias": (1,)}
    assert averages({**under("model/", layers), **under("ema/", layers)}) == set(under("ema/", layers))
    # An optimizer does not show that it trains a single number. It is exact, and so is its average.
    found = averages({**under("model/", layers), **ADAM, **under("ema/", layers)})
    assert found == set(under("ema/"))


def test_statistics_of_an_average_are_exact() -> None:
    layers = {**LAYERS, **NORM}
    found = assign_roles({**under("model/", layers), **under("ema/", layers)})
    exact = {name for name, assigned in found.items() if assigned.role == "other"}
    assert exact == {
        f"{place}/norm.{name}"
        for place in ("model", "ema")
        for name in ("running_var", "num_batches_tracked")
    }


WITHOUT_BIAS = {name: shape for name, shape in LAYERS.items() if name != "fc.bias"}


@pytest.mark.parametrize(
    "tree",
    [
        # The structure fits, but the name says something else, or nothing.
        *(
            under("teacher/"),
            under("target/"),
            under("copy/"),
            under("ema_teacher/"),
            under("grad_avg/"),
        ),
        *(
            under("grads/ema/"),
            under("ema_squared/"),
            under("ema_updates/"),
            under("fisher_ema/"),
        ),
        *(under("optimizer/ema/"), under("exp_avg_x/")),
        # The name fits, but not the structure.
        under("ema/", WITHOUT_BIAS),
        under("ema/", {**LAYERS, "fc.weight": (40, 30)}),
        under("ema/", {**LAYERS, "x": (3, 3)}),
        under("ema/", {name.replace("fc", "dense"): shape for name, shape in LAYERS.items()}),
        {"ema/fc.weight": (30, 40)},
        under("ema/", {f"{i}": shape for i, shape in enumerate(LAYERS.values())}),
        {**under("ema/"), **under("ema/module.")},
    ],
)
def test_all_else_is_exact(tree: Shapes) -> None:
    for shapes in ({**under("model/"), **tree}, {**under("model/"), **ADAM, **tree}):
        found = assign_roles(shapes)
        assert {found[name].role for name in tree} <= {"other"}


def test_an_average_inside_a_model_is_its_own() -> None:
    """The codebook of a VQ layer has an average, with the names and shapes of a layer beside it."""
    codebook = {"weight": (30, 40), "bias": (30,)}
    for place in ("model/vq.ema.", "model/ema/", "vq/ema/"):
        assert not averages(
            {
                **under("model/"),
                **under("model/vq.embed.", codebook),
                **under(place, codebook),
            }
        )
    assert not averages({"model/embed": (9, 9), "ema/embed": (9, 9)})


def test_averages_of_several_networks() -> None:
    other = {"a.weight": (7, 8), "a.bias": (7,)}
    networks = {**under("net_G/"), **under("net_D/", other)}
    assert averages({**networks, **under("ema_G/")}) == set(under("ema_G/"))
    assert averages({**networks, **under("ema_X/")}) == set()
    nested = {**under("nets/G/"), **under("nets/D/", other)}
    both = {**under("ema/G/"), **under("ema/D/", other)}
    assert averages({**nested, **both}) == set(both)
    two = {**under("ema/"), **under("swa/")}
    assert averages({**under("model/"), **two}) == set(two)


def test_what_the_user_or_a_framework_says_goes_first() -> None:
    shapes = {**under("model/"), **under("ema/")}
    assert averages(shapes, {"ema/*": "other"}) == set()
    assert averages(shapes, {"model/*": "other"}) == set()
    assert averages(shapes, {"ema/fc.bias": "other"}) == set(under("ema/")) - {"ema/fc.bias"}
    typed = {"ema/fc.bias": Assignment("other", "a buffer of a torch module")}
    assert averages(shapes, {}, typed) == set(under("ema/")) - {"ema/fc.bias"}
    # Of an optimizer that is not known, nothing is lossy.
    strange = {f"optimizer/state/{i}/{e}": (30, 40) for i in range(4) for e in ("exp_avg", "exp_avg_sq", "s")}
    assert averages({**shapes, **strange}) == set()


def test_an_average_takes_no_moments_from_the_weights() -> None:
    rng = np.random.default_rng(0)
    shape = (40, 30)

    def moved(name: str, role: Any, why: str, values: Any) -> Candidate:
        before = (values * 0.5).astype(np.float32)
        past = Past(1, components(before)[1])
        return candidate(name, values.astype(np.float32), role, why, before, past=past)

    values = rng.standard_normal(shape)
    own = [
        moved("params/fc/kernel", "weight", "", values),
        moved("opt/mu/fc/kernel", "first_moment", "", values),
        moved("opt/nu/fc/kernel", "second_moment", "", values**2),
    ]
    average = moved("ema/fc/kernel", "weight", AVERAGE, values)
    policy = Balanced()
    quantizers = {own[1].name: policy.roles["first_moment"]}
    assert correlations([*own, average], quantizers) == correlations(own, quantizers) != {}
    alone, beside = find_parts(policy, own, ()), find_parts(policy, [*own, average], ())
    assert [part.momentum for part in beside if part.role == "first_moment"] == [
        part.momentum for part in alone if part.role == "first_moment"
    ]


def test_errors_of_an_average_are_relative_to_its_own_movement(tmp_path: Path) -> None:
    """It moves a hundred times less than the weights, and its errors are as much smaller."""
    rng = np.random.default_rng(0)
    model = {"fc.weight": rng.standard_normal((50, 60)), "fc.bias": rng.standard_normal(300)}
    average = dict(model)
    with Chain(tmp_path, "balanced", newest="history", keyframe_every=100) as chain:
        for step in range(8):
            before = dict(average)
            model = {n: value + 0.01 * rng.standard_normal(value.shape) for n, value in model.items()}
            average = {n: 0.99 * value + 0.01 * model[n] for n, value in average.items()}
            chain.save(step, {"model": model, "ema": average})
        restored = chain.restore()["ema"]
    for name, value in average.items():
        error, movement = np.std(restored[name] - value), np.std(value - before[name])
        assert 0 < error < 3 * movement < 0.01
