"""Averages of weights: they are weights where names and structure say so, and exact elsewhere."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lccodec import Balanced, Chain
from lccodec.element_types import components
from lccodec.policy.balanced import correlations, find_parts
from lccodec.policy.policy import Candidate, Past
from lccodec.policy.roles import AVERAGE, Assignment, assign_roles

from ..support.candidates import candidate

Shapes = dict[str, tuple[int, ...]]

LAYERS: Shapes = {"fc.weight": (30, 40), "fc.bias": (30,), "head.weight": (7, 30), "head.bias": (7,)}
NORM: Shapes = {"norm.weight": (30,), "norm.running_var": (30,), "norm.num_batches_tracked": ()}


def below(place: str, shapes: Shapes = LAYERS) -> Shapes:
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
    shapes = {**below(model), **optimizer, **below(place), **beside}
    assert averages(shapes) == set(below(place))


def test_an_averaged_model_is_known_whatever_it_is_called() -> None:
    tree = {"best/n_averaged": (), **below("best/module.")}
    assert averages({**below("model/"), **tree}) == set(below("best/module."))
    assert not averages({**below("model/"), **below("best/module.")})


def test_a_single_number_of_a_model_has_its_average() -> None:
    layers = {**LAYERS, "out.bias": (1,)}
    assert averages({**below("model/", layers), **below("ema/", layers)}) == set(below("ema/", layers))
    # An optimizer does not show that it trains a single number. It is exact, and so is its average.
    found = averages({**below("model/", layers), **ADAM, **below("ema/", layers)})
    assert found == set(below("ema/"))


def test_statistics_of_an_average_are_exact() -> None:
    layers = {**LAYERS, **NORM}
    found = assign_roles({**below("model/", layers), **below("ema/", layers)})
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
        *(below("teacher/"), below("target/"), below("copy/"), below("ema_teacher/"), below("grad_avg/")),
        *(below("grads/ema/"), below("ema_squared/"), below("ema_updates/"), below("fisher_ema/")),
        *(below("optimizer/ema/"), below("exp_avg_x/")),
        # The name fits, but not the structure.
        below("ema/", WITHOUT_BIAS),
        below("ema/", {**LAYERS, "fc.weight": (40, 30)}),
        below("ema/", {**LAYERS, "x": (3, 3)}),
        below("ema/", {name.replace("fc", "dense"): shape for name, shape in LAYERS.items()}),
        {"ema/fc.weight": (30, 40)},
        below("ema/", {f"{i}": shape for i, shape in enumerate(LAYERS.values())}),
        {**below("ema/"), **below("ema/module.")},
    ],
)
def test_all_else_is_exact(tree: Shapes) -> None:
    for shapes in ({**below("model/"), **tree}, {**below("model/"), **ADAM, **tree}):
        found = assign_roles(shapes)
        assert {found[name].role for name in tree} <= {"other"}


def test_an_average_inside_a_model_is_its_own() -> None:
    """The codebook of a VQ layer has an average, with the names and shapes of a layer beside it."""
    codebook = {"weight": (30, 40), "bias": (30,)}
    for place in ("model/vq.ema.", "model/ema/", "vq/ema/"):
        assert not averages(
            {**below("model/"), **below("model/vq.embed.", codebook), **below(place, codebook)}
        )
    assert not averages({"model/embed": (9, 9), "ema/embed": (9, 9)})


def test_averages_of_several_networks() -> None:
    other = {"a.weight": (7, 8), "a.bias": (7,)}
    networks = {**below("net_G/"), **below("net_D/", other)}
    assert averages({**networks, **below("ema_G/")}) == set(below("ema_G/"))
    assert averages({**networks, **below("ema_X/")}) == set()
    nested = {**below("nets/G/"), **below("nets/D/", other)}
    both = {**below("ema/G/"), **below("ema/D/", other)}
    assert averages({**nested, **both}) == set(both)
    two = {**below("ema/"), **below("swa/")}
    assert averages({**below("model/"), **two}) == set(two)


def test_what_the_user_or_a_framework_says_goes_first() -> None:
    shapes = {**below("model/"), **below("ema/")}
    assert averages(shapes, {"ema/*": "other"}) == set()
    assert averages(shapes, {"model/*": "other"}) == set()
    assert averages(shapes, {"ema/fc.bias": "other"}) == set(below("ema/")) - {"ema/fc.bias"}
    typed = {"ema/fc.bias": Assignment("other", "a buffer of a torch module")}
    assert averages(shapes, {}, typed) == set(below("ema/")) - {"ema/fc.bias"}
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
