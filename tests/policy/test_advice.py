"""What is said of roles: lines to try where most is exact, and roles that are known to do harm."""

import logging
from ast import literal_eval
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lccodec


def state(**entries: np.ndarray) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    layers = {f"fc{n}": {"weight": rng.normal(size=(50, 100)).astype(np.float32)} for n in range(2)}
    memory = {"0": dict(entries), "1": dict(entries)}
    return {"model": layers, "optimizer": {"state": memory}}


def signed() -> np.ndarray:
    return np.random.default_rng(1).normal(size=(50, 100)).astype(np.float32)


def test_an_optimizer_that_nobody_knows(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    unknown = state(h=np.abs(signed()), slow_m=signed())
    roles = {
        "optimizer/state/*/h": "second_moment",
        "optimizer/state/*/slow_m": "first_moment",
        "model/*": "weight",
    }
    chain = lccodec.Chain(tmp_path / "a", newest="history")
    why, *lines = chain.plan(unknown).advice
    assert "most bytes are exact" in why
    assert literal_eval("{" + "\n".join(lines) + "}") == roles
    assert all(line in str(chain.plan(unknown)) for line in lines)
    with caplog.at_level(logging.WARNING, "lccodec"):
        chain.save(0, unknown)
    assert "\n  ".join(lines) in caplog.text
    chain = lccodec.Chain(tmp_path / "b", newest="history", roles=roles)
    assert all(array.lossy for array in chain.plan(unknown))
    assert not chain.plan(unknown).advice


def test_nothing_is_advised_where_most_is_lossy_or_nothing_may_be(tmp_path: Path) -> None:
    known = state(exp_avg=signed(), exp_avg_sq=np.abs(signed()))
    assert not lccodec.Chain(tmp_path / "a").plan(known).advice
    unknown = state(h=signed())
    assert not lccodec.Chain(tmp_path / "b", "lossless").plan(unknown).advice


def test_moments_in_another_basis(tmp_path: Path) -> None:
    soap = state(exp_avg=signed(), exp_avg_sq=np.abs(signed()), GG=signed()[:, :50], Q=signed()[:, :50])
    chain = lccodec.Chain(tmp_path / "a")
    assert "exp_avg" not in "".join(chain.plan(soap).advice)
    roles = {"*exp_avg": "first_moment", "model/*": "weight"}
    line = lccodec.Chain(tmp_path / "b", roles=roles).plan(soap).advice[-1]
    assert "known to do harm" in line
    assert "optimizer/state/0/exp_avg" in line


def advised(path: Path, state: Any) -> dict[str, str]:
    """What is advised, read as it is pasted. What a name says to be exact does not change."""
    chain = lccodec.Chain(path / "a", newest="history")
    roles = literal_eval("{" + "\n".join(chain.plan(state).advice[1:]) + "}")
    after = lccodec.Chain(path / "b", newest="history", roles=roles).plan(state)
    changed = [a for a, b in zip(chain.plan(state), after, strict=True) if a.role != b.role]
    assert not any(a.why.endswith("is exact") for a in changed)
    return roles


def test_a_pattern_reaches_nothing_else(tmp_path: Path) -> None:
    unknown = state(**{"h": np.abs(signed()), "m[0]": signed()})
    blocks = {}
    for n in range(2):
        own, codebook = signed()[::-1] + n, signed()[n : n + 2]
        blocks[str(n)] = {"weight": own, "codebook": {"weight": codebook}}
    unknown["model"] = {"blocks": blocks}
    assert advised(tmp_path, unknown) == {
        "model/blocks/0/weight": "weight",
        "model/blocks/1/weight": "weight",
        "optimizer/state/*/h": "second_moment",
        "optimizer/state/0/m[0]": "first_moment",  # one array, at both places
    }


def test_all_layers_say_what_a_moment_is(tmp_path: Path) -> None:
    unknown = state(h=signed(), zero=np.zeros((50, 100), np.float32))
    unknown["optimizer"]["state"]["0"]["h"] = np.zeros((50, 100), np.float32)
    moments = {name: role for name, role in advised(tmp_path, unknown).items() if "optimizer" in name}
    assert moments == {"optimizer/state/*/h": "first_moment"}


@pytest.mark.parametrize(
    "entries",
    [
        {"prev": signed(), "step_size": np.abs(signed())},  # Rprop's, which is known to suffer
        {"momentum_buffer": signed(), "inv_precond_0": signed()},  # Shampoo
        {"momentum_buffer": signed(), "cov": signed() @ signed().T, "h": signed()[:, :50]},
    ],
)
def test_what_suffers_from_errors_is_not_advised(tmp_path: Path, entries: dict[str, np.ndarray]) -> None:
    entries = {name: np.tile(array, (2, 2)) for name, array in entries.items()}
    assert not any("optimizer" in name for name in advised(tmp_path, state(**entries)))


def test_a_copy_of_the_first_weights_is_no_moment(tmp_path: Path) -> None:
    unknown = state(s=signed())
    for place, layer in zip(("0", "1"), unknown["model"].values(), strict=True):
        unknown["optimizer"]["state"][place]["p0"] = layer["weight"] + signed() / 4
    assert "optimizer/state/*/s" in advised(tmp_path, unknown)
    assert "optimizer/state/*/p0" not in advised(tmp_path, unknown)


def test_a_tree_of_layers_is_one_line(tmp_path: Path) -> None:
    """As of an optimizer of optax that nobody knows: layers have names there."""
    names = [f"block{letter}" for letter in "abcdefghijkl"]
    params = {name: {"kernel": signed() + n, "bias": signed()[0]} for n, name in enumerate(names)}
    kept = {name: {"kernel": signed()[::-1], "bias": signed()[0]} for name in names}
    squares = {name: {key: np.square(array) for key, array in own.items()} for name, own in kept.items()}
    unknown = {"params": params, "opt": {"0": {"h": kept, "hh": squares, "count": np.array(3)}}}
    expected = {"params/*": "weight", "opt/*/h/*": "first_moment", "opt/*/hh/*": "second_moment"}
    assert advised(tmp_path / "a", unknown) == expected
    kept["blockc"]["bias"] = squares["blockd"]["kernel"]  # of another shape, and without a sign
    assert "'opt/*/h/*'" not in str(lccodec.Chain(tmp_path / "b").plan(unknown).advice)


def test_what_is_left_out_is_counted(tmp_path: Path) -> None:
    layers = {f"{letter}.weight": signed() for letter in "abcdefghijkl"} | {"odd": signed()}
    unknown = {"model": layers, "opt": {"0": {"h": {"a.weight": signed()}}}}
    *lines, last = lccodec.Chain(tmp_path).plan(unknown).advice
    assert (len(lines), last[:10]) == (9, "# and 4 mo")
