"""Exactly one rule maps each entry; otherwise the error lists every entry without one.

Adam's moments find their parameters and containers on both sides; errors name all others.
"""

import re

import numpy as np
import optax
import pytest
import torch
from flax import nnx

from lccodec.errors import ArgumentError
from lccodec.exchange import Rule, adam_to_flax, adam_to_torch, to_flax, to_torch

from ..support.networks import LEARNING_RATE, NETWORKS, bits, flax_state, torch_state

F4 = np.float32
LINEAR = Rule("**.weight", "**/kernel", "linear")


def problems(error):
    """The problems that an error lists."""
    head, _, rest = str(error.value).partition(": ")
    found = rest.split("; ")
    assert re.fullmatch(rf"from (torch to flax|flax to torch), {len(found)} problems?", head)
    return found


def test_everything_that_does_not_fit_is_listed_at_once_and_the_target_stays():
    state = {
        "fc1.weight": np.zeros((3, 4), F4),
        "fc1.bias": np.zeros(4, F4),
        "fc2.weight": np.zeros((2, 2), F4),
        "fc9.weight": np.zeros((2, 2), F4),
        "extra": np.zeros(3, F4),
        "norm.weight": np.ones(3),
        "norm.bias": torch.ones(3),
    }
    like = {
        "fc1": {"kernel": np.ones((4, 5), F4), "bias": np.ones(4, F4)},
        "fc2": {"kernel": np.ones((2, 2), F4), "bias": np.ones(2, F4)},
        "norm": {"scale": np.ones(3, F4), "bias": np.ones(3, F4)},
    }
    before = bits(like)
    with pytest.raises(ArgumentError) as error:
        to_flax(state, like=like)
    assert problems(error) == [
        "'fc9.weight' (float32 [2, 2]) would become 'fc9/kernel' (linear) or 'fc9/embedding' (same), "
        "which the target does not have",
        "'extra' (float32 [3]) matches no rule: give one",
        "'fc1.weight' (float32 [3, 4]) would become 'fc1/kernel' as float32 [4, 3], "
        "but the target has float32 [4, 5]",
        "'norm.weight' (float64 [3]) would become 'norm/scale' as float64 [3], "
        "but the target has float32 [3]",
        "'norm.bias' (float32 [3]) to 'norm/bias' (same): must be a NumPy array, not a torch.Tensor",
        "nothing would become 'fc2/bias', which the target has",
    ]
    assert bits(like) == before


@pytest.mark.parametrize("name", NETWORKS)
def test_a_network_does_not_fit_another(name):
    state = torch_state(NETWORKS[name].torch())
    for other, network in NETWORKS.items():
        like = nnx.to_pure_dict(nnx.state(nnx.eval_shape(network.flax, nnx.Rngs(0))))
        if other == name:
            assert bits(
                to_torch(to_flax(state, NETWORKS[name].rules, like), NETWORKS[name].rules, state)
            ) == bits(state)
            continue
        with pytest.raises(ArgumentError, match="which the target has"):
            to_flax(state, NETWORKS[name].rules, like)


def test_what_names_and_ranks_do_not_tell_is_an_error_and_a_rule_or_a_target_tells():
    state = {"x.weight": np.arange(6.0).reshape(2, 3)}
    with pytest.raises(ArgumentError) as error:
        to_flax(state)
    assert problems(error) == [
        "'x.weight' (float64 [2, 3]) could become 'x/kernel' (linear) or 'x/embedding' (same): "
        "give a rule or a target"
    ]
    kernel, embedding = {"x": {"kernel": np.zeros((3, 2))}}, {"x": {"embedding": np.zeros((2, 3))}}
    assert bits(to_flax(state, like=kernel)) == bits(to_flax(state, [LINEAR])) == bits(state["x.weight"].T)
    assert bits(to_flax(state, like=embedding)) == bits(state)
    # A Linear and an Embedding of the same name and shape.
    with pytest.raises(ArgumentError, match="could become 'x/kernel'"):
        to_flax({"x.weight": np.eye(2)}, like={"x": {"kernel": np.eye(2), "embedding": np.eye(2)}})


def test_the_first_rule_that_matches_counts_and_comes_before_the_common_ones():
    state = {"a.weight": np.arange(6.0).reshape(2, 3)}
    rules = [Rule("a.weight", "b/weight"), LINEAR]
    assert list(to_flax(state, rules)) == ["b"]
    assert list(to_flax(state, rules[::-1])["a"]) == ["kernel"]
    # Also where the target has only the place that a later one names.
    with pytest.raises(ArgumentError) as error:
        to_flax(state, rules, like={"a": {"kernel": np.zeros((3, 2))}})
    assert problems(error) == [
        "'a.weight' would become 'b/weight' (same), which the target does not have",
        "nothing would become 'a/kernel', which the target has",
    ]
    # A rule is for the ranks of its layout.
    convolution = {"a.weight": np.zeros((2, 3, 4))}
    assert to_flax(convolution, [LINEAR])["a"]["kernel"].shape == (4, 3, 2)
    assert list(to_flax(convolution, [Rule("**.weight", "**/w", rank=3)])["a"]) == ["w"]
    assert list(to_flax(convolution, [Rule("**.weight", "**/w", rank=2)])["a"]) == ["kernel"]


def test_modules_have_other_paths():
    rules = [
        Rule("features.*.block.**", "stages/*/layers/**", "module"),
        Rule("features.**", "stages/**", "module"),
        Rule("**", "model/**", "module"),
        LINEAR,
    ]
    names = {
        "features.3.block.0.weight": "stages/3/layers/0/kernel",
        "features.3.block.weight": "stages/3/layers/kernel",
        "features.norm.weight": "stages/norm/kernel",
        "head.weight": "model/head/kernel",
        "weight": "model/kernel",
    }
    state = {name: np.full((2, 3), number) for number, name in enumerate(names)}
    made = to_flax(state, rules)
    for name, place in names.items():
        node = made
        for key in place.split("/"):
            node = node[key]
        assert np.array_equal(node, state[name].T)
    assert bits(to_torch(made, rules)) == bits(state)


def test_two_names_that_become_one():
    state = {"a.weight": np.zeros((2, 3)), "b.weight": np.zeros((2, 3))}
    with pytest.raises(ArgumentError) as error:
        to_flax(state, [Rule("b.**", "a/**", "module"), LINEAR])
    assert problems(error) == ["2 arrays would become 'a/kernel'"]


def test_rules_that_take_one_of_several_apart():
    state = {"x": {name: {"kernel": np.zeros((3, 2, 2))} for name in ("query", "key", "value")}}
    rules = [
        Rule("x.key.weight", "x/key/kernel", "conv"),
        Rule("**.in_proj_weight", ("**/query/kernel", "**/key/kernel", "**/value/kernel"), "heads"),
    ]
    with pytest.raises(ArgumentError) as error:
        to_torch(state, rules)
    assert (
        "'x/query/kernel', 'x/key/kernel', 'x/value/kernel': one rule maps all of them, another only one"
        in problems(error)
    )


def test_several_arrays_of_which_one_is_missing_or_of_another_rank():
    rule = Rule("x.weight", ("x/a/kernel", "x/b/kernel"), "linear")
    for b in ({}, {"kernel": np.zeros(3)}, {"kernel": 1}):
        with pytest.raises(ArgumentError, match=r"'x/b/kernel'|'x\.a\.weight'|matches no rule: give one"):
            to_torch({"x": {"a": {"kernel": np.zeros((3, 2, 2, 2, 2, 2))}, "b": b}}, [rule])
    assert to_torch({"x": {name: {"kernel": np.zeros((3, 2))} for name in "ab"}}, [rule])[
        "x.weight"
    ].shape == (4, 3)


def test_what_is_left_out_is_not_there_or_is_kept():
    rules = [Rule("head.scale", None), Rule(None, "cache/**")]
    state = {"head.scale": np.ones(2), "norm.weight": np.ones(3), "norm.num_batches_tracked": np.array(7)}
    assert list(to_flax(state, rules)) == ["norm"]
    cache = object()  # whatever it is
    like = {
        "norm": {"scale": np.zeros(3)},
        "cache": {"key": [cache]},
        "drop": {"rngs": {"count": 1, "key": cache}},
    }
    made = to_flax(state, rules, like)
    assert made["cache"]["key"][0] is made["drop"]["rngs"]["key"] is cache
    assert made["norm"]["scale"] is state["norm.weight"]  # not copied
    back = to_torch(made, rules, state)
    assert bits(back) == bits(state)
    assert list(to_torch(made, rules)) == ["norm.weight"]


def test_batch_norm_loads_without_its_count():
    ours, theirs = torch.nn.BatchNorm1d(3), nnx.BatchNorm(3, rngs=nnx.Rngs(0))
    state = to_torch(flax_state(theirs))
    assert set(state) == {"weight", "bias", "running_mean", "running_var"}
    ours.load_state_dict({name: torch.tensor(leaf) for name, leaf in state.items()})


def test_tied_arrays():
    rules = [Rule(("a.weight", "b.weight"), "a/embedding", "tied")]
    weight = np.arange(6.0).reshape(2, 3)
    both = {"a.weight": weight, "b.weight": weight.copy()}
    for state in (both, {"a.weight": weight}, {"b.weight": weight}):
        assert bits(to_flax(state, rules)) == bits(weight)
        assert bits(to_torch({"a": {"embedding": weight}}, rules, state)) == bits(state)
    made = to_torch({"a": {"embedding": weight}}, rules)
    assert made["a.weight"] is made["b.weight"]
    with pytest.raises(ArgumentError, match="must be equal, because they are one array in Flax"):
        to_flax({**both, "b.weight": weight + 1}, rules)
    with pytest.raises(ArgumentError, match=r"'a/embedding' would become 'a\.weight', 'b\.weight'"):
        to_torch({"a": {"embedding": weight}}, rules, like={"c.weight": weight})


def test_the_byte_order_of_an_array_does_not_count():
    kernel = np.arange(6, dtype="f4").reshape(2, 3)
    other = kernel.astype(kernel.dtype.newbyteorder("S"))
    state = {"a": {"kernel": kernel}, "b": {"kernel": other}}
    made = to_torch(state, like={"a.weight": other.T, "b.weight": kernel.T})
    assert {array.dtype.str for array in made.values()} == {kernel.dtype.str}
    assert made["b.weight"].tolist() == kernel.T.tolist()
    tied = Rule(("x", "y"), "z", "tied")
    assert to_flax({"x": kernel, "y": other}, [tied])["z"].tolist() == kernel.tolist()


def test_structures():
    """Integer keys and lists as in the target; flat names as in files."""
    state = {"layers.0.bias": np.zeros(2), "layers.1.bias": np.ones(3)}
    for like in (
        {"layers": {0: {"bias": np.ones(2)}, 1: {"bias": np.ones(3)}}},
        {"layers": [{"bias": np.ones(2)}, {"bias": np.ones(3)}]},
    ):
        made = to_flax(state, like=like)
        assert type(made["layers"]) is type(like["layers"])
        assert bits(made["layers"][0]) == bits(state["layers.0.bias"])
        assert bits(to_torch(made)) == bits(state)
    assert list(to_flax(state)["layers"]) == ["0", "1"]
    flat = {"layers/0/bias": np.zeros(2), "layers/1/bias": np.ones(3)}
    assert bits(to_torch(flat)) == bits(state)
    assert list(to_flax(state, like=flat)) == list(flat)
    assert to_flax({}) == to_torch({}) == {}


def test_abstract_targets():
    """A shape and a dtype are enough."""
    graph = nnx.eval_shape(lambda: nnx.Linear(2, 3, rngs=nnx.Rngs(0)))
    state = {"weight": np.ones((3, 2), F4), "bias": np.zeros(3, F4)}
    assert bits(to_flax(state, like=nnx.to_pure_dict(nnx.state(graph)))) == bits(to_flax(state, [LINEAR]))
    with torch.device("meta"):
        like = torch.nn.Linear(2, 3, dtype=torch.bfloat16).state_dict()
    with pytest.raises(ArgumentError, match=r"as float32 \[3, 2\], but the target has bfloat16 \[3, 2\]"):
        to_torch(to_flax(state, [LINEAR]), like=like)


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ({"a": {"b": np.ones(1)}, "a.b": np.ones(1)}, "two entries of the state have the name 'a.b'"),
        (np.ones(3), "'' .* matches no rule: give one"),
        ({"norm.weight": [np.ones(3)]}, r"'norm\.weight\.0' .* matches no rule: give one"),
        ({"x.running_mean": {1, 2}}, "must be a NumPy array, not a builtins.set"),
    ],
)
def test_states_that_are_none(state, message):
    with pytest.raises(ArgumentError, match=message):
        to_flax(state)


def test_a_name_that_is_an_array_and_a_path():
    rules = [Rule("a", "x"), Rule("b", "x/y"), Rule("c", "x/y/z")]
    for names in ("ab", "ba", "ac"):
        with pytest.raises(ArgumentError, match="the name of an array, and also the path of others"):
            to_flax({name: np.ones(1) for name in names}, rules)


def test_a_state_without_end():
    state = {}
    state["a"] = state
    with pytest.raises(ArgumentError, match="nests deeper than"):
        to_torch(state)


#: A convolution of 16 channels, and Linear layers of so many outputs and inputs.
def image_network(*linear):
    state = {"conv.weight": np.ones((16, 3, 5, 5), np.float32), "conv.bias": np.ones(16, np.float32)}
    for number, shape in enumerate(linear):
        state[f"fc{number}.weight"] = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    return state


def linear_target(state):
    """The same network in Flax, as if no image were flattened."""
    target = {"conv": {"kernel": np.ones((5, 5, 3, 16), np.float32), "bias": np.ones(16, np.float32)}}
    fc = {name: array for name, array in state.items() if name.startswith("fc")}
    return target | {
        name.split(".")[0]: {"kernel": np.ones(array.T.shape, np.float32)} for name, array in fc.items()
    }


@pytest.mark.parametrize(
    ("linear", "unclear"),
    [
        ([(120, 400), (84, 120)], ["fc0"]),
        ([(400, 400)], ["fc0"]),
        ([(120, 16)], []),  # behind a mean over the image
        ([(120, 17)], []),
        ([(32, 16), (64, 32), (9, 64)], []),  # each behind the one before
        ([(9, 16), (7, 160)], ["fc1"]),  # nothing else makes 160 values
    ],
)
def test_a_linear_that_may_follow_an_image_needs_a_rule(linear, unclear):
    state = image_network(*linear)
    target = linear_target(state)
    named = [Rule(f"{name}.weight", f"{name}/kernel", "linear") for name in unclear]
    made = to_flax(state, named, target)
    for convert, source, like in ((to_flax, state, target), (to_torch, made, state)):
        if not unclear:
            convert(source, (), like)
            continue
        with pytest.raises(ArgumentError) as caught:
            convert(source, (), like)
        (problem,) = str(caught.value).split(": ", 1)[1].split("; ")
        name = unclear[0]
        rule = f'[[rule]] torch = "{name}.weight" flax = "{name}/kernel" layout = "flattened" size = 16'
        assert rule in problem
        sized = [Rule(f"{name}.weight", f"{name}/kernel", "flattened", size=16) for name in unclear]
        convert(source, sized, like)
        convert(source, named, like)


def test_layers_that_no_target_orders():
    """Flax sorts names; a classifier may then come before the features."""
    flax = {
        "classifier": {"kernel": np.ones((400, 10), np.float32)},
        "features": {"kernel": np.ones((5, 5, 3, 16), np.float32)},
    }
    with pytest.raises(ArgumentError, match="may follow a flattened image of 16 channels"):
        to_torch(flax)


RULES = [Rule("**.weight", "**/kernel", "linear")]
NAMES = ["fc.weight", "fc.bias"]


def entry(*shape, step=3.0):
    rng = np.random.default_rng(len(shape))
    return {"step": np.float32(step), "exp_avg": rng.normal(size=shape), "exp_avg_sq": rng.random(shape)}


def optimizer(**changes):
    state = {0: entry(2, 3), 1: entry(2)}
    group = {"lr": 0.1, "params": [0, 1], "param_names": NAMES}
    return {"state": state, "param_groups": [group], **changes}


def test_without_a_target_and_back():
    made = adam_to_flax(optimizer(), NAMES, RULES)
    assert (made["count"], made["count"].dtype) == (3, np.int32)
    assert np.array_equal(made["mu"]["fc"]["kernel"], entry(2, 3)["exp_avg"].T)
    assert np.array_equal(made["nu"]["fc"]["bias"], entry(2)["exp_avg_sq"])
    back = adam_to_torch(made, NAMES, RULES, optimizer())
    assert bits(back["state"]) == bits(optimizer()["state"])
    assert back["param_groups"] == optimizer()["param_groups"]
    assert "param_groups" not in adam_to_torch(made, NAMES, RULES)
    assert not np.shares_memory(back["state"][0]["step"], back["state"][1]["step"])


def test_the_names_come_from_the_optimizer_or_the_caller():
    by_text = {str(number): value for number, value in optimizer()["state"].items()}  # as in a file
    expected = bits(adam_to_flax(optimizer(), NAMES, RULES))
    assert bits(adam_to_flax(optimizer(), None, RULES)) == expected
    assert bits(adam_to_flax(optimizer(state=by_text), None, RULES)) == expected
    groups = [{"params": [1], "param_names": NAMES[1:]}, {"params": [0], "param_names": NAMES[:1]}]
    assert bits(adam_to_flax(optimizer(param_groups=groups), None, RULES)) == expected
    for groups in ([], [{"params": [0, 1]}], [5], [{"params": 5, "param_names": NAMES}]):
        with pytest.raises(ArgumentError, match="has no names of parameters"):
            adam_to_flax(optimizer(param_groups=groups), None, RULES)


@pytest.mark.parametrize(
    "transformation",
    [
        optax.adam(LEARNING_RATE),
        optax.adamw(LEARNING_RATE),
        optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(optax.linear_schedule(0.1, 0.0, 9))),
        optax.inject_hyperparams(optax.adam)(learning_rate=0.1),
    ],
)
def test_the_place_of_adam_in_a_real_optax_state(transformation):
    parameters = {"fc": {"kernel": np.zeros((3, 2)), "bias": np.zeros(2)}}
    like = transformation.init(parameters)
    state = {
        number: {key: np.float32(value) for key, value in each.items()}
        for number, each in optimizer()["state"].items()
    }
    made = adam_to_flax(optimizer(state=state), NAMES, RULES, like)
    gradient = {"fc": {"kernel": np.ones((3, 2), np.float32), "bias": np.ones(2, np.float32)}}
    _, after = transformation.update(gradient, made, parameters)  # optax takes it as its own
    assert type(after) is type(like)
    back = adam_to_torch(made, NAMES, RULES)
    assert bits(back["state"]) == bits(state)


def test_amsgrad_and_other_optimizers_are_refused_by_name():
    module = torch.nn.Linear(3, 2)
    for kind, options in ((torch.optim.Adam, {"amsgrad": True}), (torch.optim.SGD, {"momentum": 0.9})):
        torch_optimizer = kind(module.parameters(), lr=0.1, **options)
        module(torch.ones(1, 3)).sum().backward()
        torch_optimizer.step()
        with pytest.raises(
            ArgumentError, match=r"parameter 'fc\.weight' has .*(max_exp_avg_sq|momentum_buffer)"
        ):
            adam_to_flax(torch_state(torch_optimizer), NAMES, RULES)


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ({}, "parameter 'fc.weight' has no state; parameter 'fc.bias' has no state"),
        ({0: entry(2, 3)}, "parameter 'fc.bias' has no state"),
        ({0: entry(2, 3), 1: entry(2, step=4)}, r"because optax has one; got \[3, 4\]"),
        ({0: entry(2, 3), 1: entry(2), 2: entry(2)}, "there are 3 parameters but 2 names"),
        ({0: entry(2, 3), 1: 5}, "parameter 'fc.bias' has no state"),
        (
            {0: entry(2, 3), 1: {**entry(2), "step": "x"}},
            "the step of 'fc.bias' must be a number of steps; got 'x'",
        ),
        (
            {0: entry(2, 3), 1: {**entry(2), "step": np.float32("nan")}},
            "the step of 'fc.bias' must be a number",
        ),
        (
            {0: entry(2, 3), 1: {**entry(2), "step": np.float32(2.5)}},
            "the step of 'fc.bias' must be a number",
        ),
        (None, "must be a torch state_dict; it has no state"),
    ],
)
def test_states_that_are_not_adams(state, message):
    with pytest.raises(ArgumentError, match=message):
        adam_to_flax(optimizer(state=state), NAMES, RULES)


def test_more_shapes_and_names_that_do_not_fit():
    adam = adam_to_flax(optimizer(), NAMES, RULES)
    with pytest.raises(ArgumentError, match=r"the target has float64 \[5\]"):
        adam_to_torch(adam, NAMES, RULES, optimizer(state={0: entry(2, 3), 1: entry(5)}))
    with pytest.raises(ArgumentError, match="nothing would become 'other', which the target has"):
        adam_to_torch(adam, [*NAMES, "other"], RULES)
    with pytest.raises(ArgumentError, match=r"'fc/bias' .* would become 'fc\.bias'.*does not have"):
        adam_to_torch(adam, NAMES[:1], RULES)


@pytest.mark.parametrize("state", [{}, {"count": np.int32(1)}, 5, ({"count": 1, "mu": {}, "nu": {}},) * 2])
def test_optax_states_without_the_one_adam(state):
    with pytest.raises(ArgumentError, match=r"one Adam state \(count, mu and nu\); got"):
        adam_to_torch(state, NAMES)
    with pytest.raises(ArgumentError, match="one Adam state"):
        adam_to_flax(optimizer(), NAMES, RULES, like=state)


@pytest.mark.parametrize("count", ["x", 1.5, -1, 2**31, np.arange(2), None])
def test_counts_that_are_none(count):
    adam = {**adam_to_flax(optimizer(), NAMES, RULES), "count": count}
    with pytest.raises(ArgumentError, match="optax's count must be a number of steps"):
        adam_to_torch(adam, NAMES, RULES)


def test_moments_of_summed_biases_are_refused():
    names = [name for name, _ in torch.nn.LSTM(2, 2).named_parameters()]
    state = dict(enumerate([entry(8, 2), entry(8, 2), entry(8), entry(8)]))
    like = {
        "count": 0,
        "mu": nnx.to_pure_dict(nnx.state(nnx.RNN(nnx.OptimizedLSTMCell(2, 2, rngs=nnx.Rngs(0))), nnx.Param)),
    }
    like["nu"] = like["mu"]
    with pytest.raises(
        ArgumentError, match=r"'bias_ih_l0', 'bias_hh_l0'.*layout 'summed' cannot convert moments"
    ):
        adam_to_flax({"state": state}, names, like=like)


def test_names_and_groups_of_a_torch_target():
    adam = adam_to_flax(optimizer(), NAMES, RULES)
    assert bits(adam_to_torch(adam, None, RULES, optimizer(state={}))) == bits(optimizer())
    with pytest.raises(ArgumentError, match="it has no param_groups"):
        adam_to_torch(adam, NAMES, RULES, {"state": {}})
    for like in (None, 5, {"param_groups": []}):
        with pytest.raises(ArgumentError, match=r"names|it has no"):
            adam_to_torch(adam, None, RULES, like)
