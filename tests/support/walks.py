"""States of a random walk, chains of them, and when two states are the same."""

from collections.abc import Callable, Iterable
from functools import singledispatch
from pathlib import Path
from typing import Any

import numpy as np

from lccodec import Chain, LccodecError

from .strategies import bits_of

#: The files of a chain of the steps from 0 on.
NAMES = [f"{step:012d}.lcc.h5" for step in range(10)]


def walk(steps: int, seed: int = 0, shape: tuple[int, ...] = (40, 30)) -> list[dict[str, Any]]:
    """States of a random walk, as training makes them."""
    rng = np.random.default_rng(seed)
    weight = rng.standard_normal(shape).astype(np.float32)
    bias = np.zeros(shape[0], np.float32)
    states = []
    for step in range(steps):
        weight = weight + (rng.standard_normal(shape) * 0.01).astype(np.float32)
        bias = bias + (rng.standard_normal(shape[0]) * 0.01).astype(np.float32)
        states.append({"layer": {"weight": weight, "bias": bias}, "fixed": np.arange(1000.0), "epoch": step})
    return states


@singledispatch
def pattern(leaf: Any) -> Any:
    """What two leaves of one type have in common if they are the same; a framework adds its own."""
    return leaf if leaf == leaf else "NaN"  # noqa: PLR0124


@pattern.register(np.ndarray | np.generic)
def _(leaf: Any) -> Any:
    return leaf.dtype, leaf.shape, bits_of(np.asarray(leaf)).tobytes()


def assert_same(left: Any, right: Any) -> None:
    """The same structure, types and bits; classes made of dict and tuple count as these."""
    if isinstance(left, dict):
        assert [(type(key), key) for key in left] == [(type(key), key) for key in right]
        for key in left:
            assert_same(left[key], right[key])
    elif isinstance(left, list | tuple):
        assert isinstance(right, tuple if isinstance(left, tuple) else list)
        for a, b in zip(left, right, strict=True):
            assert_same(a, b)
    else:
        assert pattern.dispatch(type(left)) is pattern.dispatch(type(right))
        assert hasattr(left, "dtype") or type(left) is type(right)
        assert pattern(left) == pattern(right)


def save_all(chain: Chain, states: Any, steps: Iterable[int] | None = None, **options: Any) -> list[int]:
    """Save states, or those of some steps; return the bytes of each."""
    chosen = enumerate(states) if steps is None else ((step, states[step]) for step in steps)
    return [chain.save(step, state, **options) for step, state in chosen]


def assert_restores(chain: Chain, states: Any, steps: Iterable[int] | None = None, **options: Any) -> None:
    """The steps of a chain restore to the states that stand at their numbers."""
    for step in chain.steps if steps is None else steps:
        assert_same(chain.restore(step, **options), states[step])


def is_so(check: Callable[[], object]) -> bool:
    """Whether nothing is wrong and nothing is damaged where a check looks."""
    try:
        check()
    except (AssertionError, LccodecError):
        return False
    return True


def chain_of(tmp_path: Path, steps: int = 4) -> tuple[Chain, list[dict[str, Any]]]:
    states = walk(steps)
    chain = Chain(tmp_path, policy="lossless", keyframe_every=2)
    save_all(chain, states)
    return chain, states


def lossy_chain(directory: Path, steps: int = 5, **options: Any) -> Chain:
    """A chain of the steps 0, 10, 20 and so on, with a keyframe at every third."""
    chain = Chain(directory, "lc-3", keyframe_every=2, **options)
    for step, state in enumerate(walk(steps)):
        chain.save(10 * step, state, {"step": step})
    return chain
