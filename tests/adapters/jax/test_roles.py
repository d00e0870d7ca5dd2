"""What the structure of a tree tells about its arrays: which are trained, moments or statistics.

Every optimizer and transformation of optax goes on from any lossy state with sound updates.
"""

import inspect
import itertools
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import linen, nnx
from flax.training.train_state import TrainState
from optax import contrib, transforms

import lccodec
from lccodec.adapters import jax as adapter
from lccodec.adapters.jax import leaves
from lccodec.policy.roles import assign_roles

from ...support.jax_trees import assert_same_tree
from ...support.profiles import LONG
from ...support.resumed import Arrays, check_updates, gradients, parameters
from ...support.walks import save_all


def roles_of(tree: Any) -> dict[str, str]:
    return {name: assignment.role for name, assignment in adapter.roles(tree).items()}


def test_roles_come_from_the_structure_whatever_the_names_are():
    params = {"table": jnp.ones((200, 150))}

    def roles(optimizer: Any) -> dict[str, str]:
        found = roles_of({"net": params, "x": optimizer.init(params), "y": {"table": jnp.ones(3)}})
        assert found["net/table"] == ("weight" if parameters else "other")
        return {name: role for name, role in found.items() if name.startswith("x/")}

    parameters = True
    assert roles(optax.adamw(1e-3)) == {"x/0/mu/table": "first_moment", "x/0/nu/table": "second_moment"}
    assert roles(optax.rmsprop(1e-3)) == {"x/0/nu/table": "second_moment"}
    # Errors in what these keep would do harm: two moments of one quantity, and differences of them.
    for optimizer in (
        optax.rmsprop(1e-3, centered=True),
        optax.rmsprop(1e-3, centered=True, bias_correction=True),
        optax.adabelief(1e-3),
        optax.adan(1e-3),
        optax.sm3(1e-3),
        optax.adafactor(1e-3),
    ):
        assert set(roles(optimizer).values()) == {"other"}
    nested = roles(optax.inject_hyperparams(optax.adam)(learning_rate=0.1))
    assert nested["x/inner_state/0/nu/table"] == "second_moment"
    assert nested["x/hyperparams/learning_rate"] == "other"
    parts = optax.multi_transform({"a": optax.adam(1e-3)}, {"table": "a"})
    assert roles(parts)["x/inner_states/a/inner_state/0/mu/table"] == "first_moment"
    assert roles(optax.chain(optax.ema(0.9), optax.scale(-1)))["x/0/ema/table"] == "first_moment"
    free = roles(contrib.schedule_free_adamw(1e-3))
    assert (free["x/z/table"], free["x/base_optimizer_state/0/nu/table"]) == ("weight", "second_moment")
    every = roles(optax.MultiSteps(optax.lion(1e-3), every_k_schedule=2))
    assert every["x/acc_grads/table"] == "other"
    parameters = False
    assert set(roles(optax.contrib.prodigy()).values()) == {"other"}  # it is not known, so all is exact


def test_copies_of_the_parameters_that_are_averages_are_no_weights():
    params = {"table": jnp.ones((200, 150)), "more": [jnp.ones(3)]}
    tree = {
        "net": params,
        "net_ema": params,
        "half": {"table": params["table"]},
        "x": optax.adam(1).init(params),
    }
    found = roles_of(tree)
    assert [found.get(f"{name}/table") for name in ("net", "net_ema", "half")] == ["weight", None, "other"]
    assert found["net/more/0"] == "weight"


def test_an_average_of_all_parameters_is_one_of_weights(tmp_path: Path) -> None:
    params = {"fc": {"kernel": jnp.ones((200, 150)), "bias": jnp.ones(300)}}
    average = jax.tree.map(lambda array: array + 1, params)
    tree = {"params": params, "ema_params": average, "x": optax.adam(1).init(params)}
    part = {"kernel": params["fc"]["kernel"] + 2}
    with lccodec.Chain(tmp_path, adapter=adapter) as chain:
        chain.save(0, {**tree, "swa": {"fc": part}})
        found = {array.name: array.role for array in chain.info(0).arrays}
    assert found["ema_params/fc/kernel"] == found["ema_params/fc/bias"] == "weight"
    assert found["params/fc/kernel"] == "weight"
    assert found["swa/fc/kernel"] == "other"  # without its bias, it is not the model's


@pytest.mark.parametrize("place", ["ema", "mean", "x"])
def test_a_mean_that_is_in_no_chain_is_no_moment(place: str) -> None:
    """``optax.ema`` is used for parameters, too."""
    params = {"table": jnp.ones((20, 15))}
    tree = {"params": params, "opt": optax.adam(1).init(params), place: optax.ema(0.9).init(params)}
    found = roles_of(tree)
    assert found["params/table"] == "weight"
    assert found.get(f"{place}/ema/table") != "first_moment"
    assert found["opt/0/mu/table"] == "first_moment"


@pytest.mark.slow
def test_a_mean_of_weights_beside_an_optimizer_is_exact(tmp_path: Path) -> None:
    """In a plain tuple, it looks as the mean of updates in a chain does: only values tell."""
    rng = np.random.default_rng(0)
    params = {"table": jnp.asarray(rng.normal(size=(60, 50)))}
    optimizer, mean = optax.chain(optax.adam(1e-3), optax.ema(0.9)), optax.ema(0.9)
    adam, average = optimizer.init(params), mean.init(params)
    found = {}
    with lccodec.Chain(tmp_path, adapter=adapter, newest="history") as chain:
        for step in range(3):
            grads = {"table": jnp.asarray(rng.normal(size=(60, 50)))}
            updates, adam = optimizer.update(grads, adam, params)
            params = optax.apply_updates(params, updates)
            _, average = mean.update(params, average)
            tree = {"params": params, "state": (adam, average)}
            found = {array.name: array.lossy for array in chain.plan(tree)}
            chain.save(step, tree)
            error = chain.restore()["state"][1]["ema"]["table"] - average.ema["table"]
            assert float(jnp.abs(error).max()) < 0.01
    assert found["state/0/1/ema/table"]  # of updates
    assert found["state/0/0/0/mu/table"]


def test_as_many_trees_as_optimizers_are_parameters() -> None:
    params = {"table": jnp.ones((20, 15))}
    adam = optax.adam(1).init(params)
    two = roles_of({"g": params, "d": params, "opt_g": adam, "opt_d": adam})
    assert {two["g/table"], two["d/table"]} == {"weight"}
    for copy in ("best", "initial", "old_model"):
        one = roles_of({"params": params, copy: params, "opt": adam})
        assert (one["params/table"], one[f"{copy}/table"]) == ("weight", "other")
        assert one["opt/0/mu/table"] == "first_moment"
    neither = roles_of({"one": params, "two": params, "opt": adam})
    assert {neither["one/table"], neither["two/table"]} == {"other"}
    assert roles_of(adam)["0/mu/table"] == "first_moment"  # alone: its type says enough
    wrong = roles_of({"params": {"table": jnp.ones((2, 15))}, "opt": adam})
    assert set(wrong.values()) == {"other"}


class Quantized(nnx.Variable):
    """A collection of somebody's own."""


class Typed(nnx.Module):
    """Variables of every kind, with names that tell nothing."""

    def __init__(self, rngs: nnx.Rngs) -> None:
        self.a = nnx.Param(jnp.ones(3))
        self.b = nnx.BatchStat(jnp.ones(3))
        self.weight = Quantized(jnp.ones(3))
        self.ema = nnx.Param(jnp.ones(3))
        self.lora = nnx.LoRA(3, 2, 3, rngs=rngs)


@pytest.mark.parametrize("of", [nnx.state, lambda model: model], ids=["state", "module"])
def test_types_of_nnx_tell_what_is_trained(of):
    model = Typed(nnx.Rngs(0))
    tree = {"net": of(model), "moments": optax.adam(1e-3).init(nnx.state(model, nnx.Param))}
    found = roles_of(tree)
    assert found.pop("net/lora/lora_a") == found.pop("net/lora/lora_b") == "weight"
    assert {name: role for name, role in found.items() if name.startswith("net")} == {
        "net/a": "weight", "net/b": "other", "net/weight": "other",
    }  # fmt: skip
    assert (found["moments/0/mu/a"], found["moments/0/nu/a"]) == ("first_moment", "second_moment")
    shapes = {name: leaf.shape for name, leaf in leaves(tree)}
    assert assign_roles(shapes, None, adapter.roles(tree))["net/ema"].role == "other"
    assert adapter.roles(tree)["net/b"].why == "nnx.BatchStat"


def test_a_model_of_nnx_that_no_optimizer_trains_is_exact():
    model, frozen = (nnx.Linear(3, 4, rngs=nnx.Rngs(seed)) for seed in (0, 1))
    optimizer = nnx.Optimizer(model, optax.adam(1e-3), wrt=nnx.Param)
    tree = {"model": nnx.state(model), "reference": nnx.state(frozen), "optimizer": nnx.state(optimizer)}
    found = roles_of(tree)
    assert (found["model/kernel"], found["reference/kernel"]) == ("weight", "other")
    shapes = {name: leaf.shape for name, leaf in leaves(tree)}
    every = assign_roles(shapes, None, adapter.roles(tree))
    assert every["optimizer/opt_state/0/nu/kernel"].role == "second_moment"


class Linen(linen.Module):
    @linen.compact
    def __call__(self, x: jax.Array, train: bool = False) -> jax.Array:
        table = self.param("table", jax.nn.initializers.normal(), (4, 300))
        x = linen.BatchNorm(use_running_average=not train)(x @ table)
        return linen.Dense(1)(jax.nn.relu(x))


def test_of_linens_collections_only_params_are_weights():
    variables = Linen().init(jax.random.key(0), jnp.ones((2, 4)), train=True)
    weights = {f"params/{n}" for n in ("BatchNorm_0/bias", "BatchNorm_0/scale", "Dense_0/bias",
                                       "Dense_0/kernel", "table")}  # fmt: skip
    found = roles_of(variables)
    assert {name for name, role in found.items() if role == "weight"} == weights
    assert found["batch_stats/BatchNorm_0/var"] == "other"
    assert set(roles_of({"params": variables["params"]})) == weights
    state = TrainState.create(apply_fn=None, params=variables["params"], tx=optax.sgd(0.1))
    assert set(roles_of(state)) == weights
    both = roles_of({**variables, "opt": optax.sgd(0.1).init(variables["params"])})
    assert both == {}  # not Linen's collections alone: names decide
    assert roles_of({"params": {"bn": {"mean": jnp.ones(3), "x": jnp.ones(3)}}}) == {}  # perhaps NNX's


def outputs_after_a_chain(directory: Path, tree: Any, states: list[Any]) -> Any:
    with lccodec.Chain(directory, "balanced", adapter=adapter) as chain:
        save_all(chain, states)
        assert chain.info().parent is not None
        return adapter.load_into(tree, chain.restore(exact=False))


class Norm(nnx.Module):
    """A network whose batch statistics are far from 1, as those of real data are."""

    def __init__(self, rngs: nnx.Rngs) -> None:
        self.a = nnx.Linear(4, 300, rngs=rngs)
        self.bn = nnx.BatchNorm(300, momentum=0.5, rngs=rngs)
        self.b = nnx.Linear(300, 2, rngs=rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        return self.b(jax.nn.relu(self.bn(self.a(x))))


@nnx.jit
def learn(model: Norm, optimizer: nnx.Optimizer, x: jax.Array) -> None:
    optimizer.update(model, nnx.grad(lambda m: ((m(x) - 1) ** 2).mean())(model))


@pytest.mark.parametrize("pure", [False, True])
def test_batch_statistics_of_nnx_are_exact_and_outputs_stay(tmp_path, pure):
    """A variance of 1e-5 that is restored as 0.1 makes an output of its own."""
    model = Norm(nnx.Rngs(0))
    optimizer = nnx.Optimizer(model, optax.adam(1e-4), wrt=nnx.Param)
    states = []
    model.train()
    for step in range(60):
        learn(model, optimizer, 0.01 * jax.random.normal(jax.random.key(step), (64, 4)))
        if step < 57:
            continue
        tree = {"model": nnx.state(model), "optimizer": nnx.state(optimizer)}
        pure_tree = {name: nnx.to_pure_dict(part) for name, part in tree.items()}
        states.append(jax.tree.map(jnp.array, pure_tree if pure else tree))
    found = outputs_after_a_chain(tmp_path, states[-1], states)
    for name in ("mean", "var"):
        before, after = (np.asarray(s["model"]["bn"][name][...]) for s in (states[-1], found))
        np.testing.assert_array_equal(after, before)
    x = 0.01 * jax.random.normal(jax.random.key(99), (64, 4))
    model.eval()
    nnx.update(model, states[-1]["model"])
    before = model(x)
    nnx.update(model, found["model"])
    assert np.linalg.norm(model(x) - before) < 0.05 * np.linalg.norm(before)
    moments = (
        found["optimizer"]["opt_state"][0]["mu"]["a"]["kernel"],
        states[-1]["optimizer"]["opt_state"][0]["mu"]["a"]["kernel"],
    )
    assert not np.array_equal(*(m[...] for m in moments))


def test_batch_statistics_of_linen_are_exact_and_outputs_stay(tmp_path):
    module, optimizer = Linen(), optax.adam(1e-4)
    variables = module.init(jax.random.key(0), jnp.ones((2, 4)))
    params, stats = variables["params"], variables["batch_stats"]
    moments, states = optimizer.init(params), []

    @jax.jit
    def step(params: Any, stats: Any, moments: Any, x: Any) -> Any:
        def loss(params: Any) -> Any:
            variables = {"params": params, "batch_stats": stats}
            y, changed = module.apply(variables, x, train=True, mutable=["batch_stats"])
            return ((y - 1) ** 2).mean(), changed["batch_stats"]

        gradients, changed = jax.grad(loss, has_aux=True)(params)
        updates, moments = optimizer.update(gradients, moments)
        return optax.apply_updates(params, updates), changed, moments

    for number in range(60):
        x = 0.01 * jax.random.normal(jax.random.key(number), (64, 4))
        params, stats, moments = step(params, stats, moments, x)
        if number >= 57:
            states.append({"params": params, "batch_stats": stats, "opt": moments})
    params, stats = states[-1]["params"], states[-1]["batch_stats"]
    found = outputs_after_a_chain(tmp_path, states[-1], states)
    assert_same_tree(found["batch_stats"], stats)
    assert not np.array_equal(found["params"]["table"], params["table"])

    def output(state: Any) -> Any:
        x = 0.01 * jax.random.normal(jax.random.key(99), (64, 4))
        return module.apply({"params": state["params"], "batch_stats": state["batch_stats"]}, x)

    before = output(states[-1])
    assert np.linalg.norm(output(found) - before) < 0.05 * np.linalg.norm(before)


#: What arguments without a default get.
_GIVEN = {
    "learning_rate": 0.01,
    "base_optimizer": optax.adam(0.01),
    "base_optimizer_fn": optax.sgd,
    "inner": optax.adam(0.01),
    "opt": optax.adam(0.01),
    "optimizer": optax.adam(0.01),
    "every_k_schedule": 2,
    "decay": 0.9,
    "b1": 0.9,
    "weight_lr_power": 2.0,
    "max_lr": 0.01,
}


def quadratic(params: Any) -> Any:
    return sum(jnp.sum(p**2) for p in jax.tree.leaves(params))


class Run:
    """Parameters that an optimizer trains with the gradients of the task."""

    def __init__(self, transformation: Any, name: str) -> None:
        self.transformation = optax.with_extra_args_support(transformation)
        self.more = {"value_fn": quadratic} if "lbfgs" in name else {"obj_fn": quadratic}
        self.params: Any = jax.tree.map(jnp.asarray, parameters())
        self.moments = self.transformation.init(self.params)
        self._update = jax.jit(self._next)

    def _next(self, grads: Any, moments: Any, params: Any) -> Any:
        more = {"value": quadratic(params), "grad": grads, **self.more}
        updates, moments = self.transformation.update(grads, moments, params, **more)
        return optax.apply_updates(params, updates), moments

    def arrays(self) -> Arrays:
        return {name: np.asarray(value) for name, value in self.params.items()}

    def advance(self, step: int) -> Arrays:
        before = self.arrays()
        self.params, self.moments = self._update(gradients(before, step), self.moments, self.params)
        return before

    def state(self) -> Any:
        return {"params": self.params, "opt_state": self.moments}

    def load(self, state: Any) -> None:
        state = adapter.load_into(self.state(), state)
        self.params, self.moments = state["params"], state["opt_state"]


def made(function: Any, settings: dict[str, Any]) -> Any:
    """Return the transformation that a function makes; ``None`` if it makes none."""
    signature = inspect.signature(function).parameters
    needed = [
        name
        for name, p in signature.items()
        if p.default is p.empty and p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)
    ]
    if "learning_rate" in signature:  # with others than this, some diverge by themselves
        needed = sorted({*needed, "learning_rate"})
    if not all(name in _GIVEN for name in needed):
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what optax says of its own next versions
            found = function(**{name: _GIVEN[name] for name in needed}, **settings)
    except (TypeError, ValueError):  # flags that exclude each other
        return None
    return found if isinstance(found, optax.GradientTransformation) else None


def is_worth_a_run(functions: dict[Any, str], function: Any, settings: dict[str, Any]) -> bool:
    """Whether a function makes a transformation that none of the others stands for.

    Those without arrays in their state restore parameters alone, as SGD does; most optimizers are
    the transformation `scale_by_` of the same name, and a scale. The nightly profile tries all.
    """
    transformation = made(function, settings)
    if transformation is None or LONG or function is optax.sgd:
        return transformation is not None
    names = {name.rpartition(".")[2] for name in functions.values()}
    if function.__name__.startswith("scale_by_") and function.__name__.removeprefix("scale_by_") in names:
        return False
    return bool(jax.tree.leaves(jax.eval_shape(transformation.init, parameters())))  # compiles nothing


def cases() -> Iterator[Any]:
    """Yield all functions that make transformations: with their defaults, and with flags."""
    functions = {}
    for module in (optax, transforms, contrib):
        for name, function in sorted(vars(module).items()):
            if inspect.isfunction(function) and not name.startswith("_"):
                functions.setdefault(function, f"{module.__name__.removeprefix('optax.')}.{name}")
    for function, name in functions.items():
        if made(function, {}) is None or name == "contrib.scale_by_muon":  # only `muon` gives it all it needs
            continue
        flags = [flag for flag, p in inspect.signature(function).parameters.items() if p.default is False]
        settings = [
            dict.fromkeys(names, True) for n in (0, 1, 2) for names in itertools.combinations(flags, n)
        ]
        known = inspect.signature(function).parameters
        if "momentum" in known and known["momentum"].default is None:
            settings += [{**flag, "momentum": 0.9} for flag in settings if LONG or len(flag) < 2]
        for setting in settings:
            if is_worth_a_run(functions, function, setting):
                yield pytest.param(function, setting, id="-".join([name, *setting]))


CASES = list(cases())


def test_all_optimizers_are_tried() -> None:
    names = {case.id for case in CASES}
    assert {"optax.adam", "optax.rmsprop-centered-bias_correction", "contrib.prodigy"} <= names
    assert {"optax.sgd", "optax.scale_by_rms", "optax.scale_by_stddev", "contrib.cocob"} <= names


@pytest.mark.slow
@pytest.mark.parametrize(("function", "settings"), CASES)
def test_updates_after_a_restore(tmp_path: Path, function: Any, settings: dict[str, Any]) -> None:
    transformation = made(function, settings)
    if not function.__module__.startswith("optax._src.alias") and "learning_rate" not in settings:
        transformation = optax.chain(transformation, optax.scale(-0.001))
    check_updates(Run(transformation, function.__name__), tmp_path, adapter)
