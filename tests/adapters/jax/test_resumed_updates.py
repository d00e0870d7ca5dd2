"""Every optimizer and transformation of optax goes on from any lossy state with sound updates."""

from __future__ import annotations

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
from optax import contrib, transforms

from lccodec.adapters import jax as adapter

from ...support.profiles import LONG
from ...support.resumed import (
    PRESETS,
    SAVED,
    Arrays,
    further_updates,
    gradients,
    parameters,
    problems,
    restored,
    saved_chain,
)

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
    run, states, wanted = Run(transformation, function.__name__), {}, {}
    for step in range(max(SAVED) + 1):
        if step in SAVED:
            states[step] = run.state()
        run.advance(step)
    for step, state in states.items():
        run.load(state)
        wanted[step] = further_updates(run.advance, step)
    for preset in PRESETS:
        with saved_chain(tmp_path / preset, preset, states, adapter) as chain:
            for step, state in restored(chain):
                run.load(adapter.load_into(states[step], state))
                found = further_updates(run.advance, step)
                bad = problems(found, wanted[step])
                assert bad == [], f"{preset}, {step}: {bad}"
