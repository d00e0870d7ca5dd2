"""Quantizers by name: those of presets, and those that are registered."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given

from lccodec import POLICIES, ArgumentError, ExponentBuckets, Lossless, decode, encode
from lccodec.quantizers import registry
from lccodec.quantizers.registry import (
    NAMED,
    QUANTIZERS,
    check_registered,
    parse_quantizer,
    quantizer_json,
    quantizer_text,
    register,
    resolve_quantizer,
)

from ..support.strategies import Pair, array_and_reference, bits_of


@dataclass(frozen=True)
class Named(Lossless):
    """Exact, under a name of its own."""

    digits: int = 3


@pytest.fixture(name="registered")
def _registered() -> Iterator[type[Named]]:
    yield register(Named)
    del registry._registered["Named"]


@pytest.mark.parametrize("name", NAMED)
def test_a_named_quantizer_is_that_of_the_weights_of_a_preset(name: str) -> None:
    assert resolve_quantizer(name) is NAMED[name]
    assert POLICIES[name].roles.get("weight", Lossless()) == NAMED[name]


@given(array_and_reference())
def test_by_name_as_by_the_quantizer(pair: Pair) -> None:
    array, reference = pair
    for name in ("lossless", "lc-2"):
        assert encode(array, name, reference) == encode(array, NAMED[name], reference)
    back = decode(encode(array, "lossless", reference), reference)
    np.testing.assert_array_equal(bits_of(back), bits_of(array))


def test_a_quantizer_stands_for_itself() -> None:
    quantizer = ExponentBuckets(4)
    assert resolve_quantizer(quantizer) is quantizer


@pytest.mark.parametrize("name", ["lc-4", "lc-9", "balanced", "small", ""])
def test_a_name_that_no_quantizer_has(name: str) -> None:
    for take in (resolve_quantizer, lambda name: encode(np.ones(3), name)):
        with pytest.raises(ArgumentError, match=f"'{name}'.*, and the names lossless, lc-2, lc-3") as caught:
            take(name)
        assert all(known in str(caught.value) for known in [*QUANTIZERS, *NAMED])


def test_what_is_registered_has_json_and_text(registered: type[Named]) -> None:
    assert QUANTIZERS["Named"] is registered
    for quantizer, settings in ((Named(), {}), (Named(7), {"digits": 7})):
        assert quantizer_json(quantizer) == {"quantizer": "Named", **settings}
        assert parse_quantizer(quantizer_json(quantizer)) == quantizer
        assert quantizer_text(quantizer) == f"Named({', '.join(f'{k}={v}' for k, v in settings.items())})"
    assert register(registered) is registered  # again


def test_what_is_not_registered_has_no_json() -> None:
    with pytest.raises(ArgumentError, match=r"here: Named\(digits=3\) .*register"):
        check_registered(Named(), "here: ")
    with pytest.raises(ArgumentError, match="unknown quantizer"):
        parse_quantizer({"quantizer": "Named"})


@pytest.mark.usefixtures("registered")
def test_a_name_is_given_once() -> None:
    other = dataclass(frozen=True)(type("Named", (Lossless,), {}))
    with pytest.raises(ArgumentError, match="Named is registered already"):
        register(other)


@pytest.mark.parametrize("thing", [Lossless(), int, "Lossless", type("Plain", (), {})])
def test_what_is_no_class_of_quantizers_is_not_registered(thing: Any) -> None:
    with pytest.raises(ArgumentError, match="a dataclass that inherits from Quantizer"):
        register(thing)


def test_nobody_can_change_the_names() -> None:
    for names in (QUANTIZERS, NAMED):
        with pytest.raises(TypeError, match="does not support item assignment"):
            names["x"] = Lossless()


@pytest.mark.parametrize("name", POLICIES)
def test_encode_takes_the_names_that_the_documentation_lists(name: str) -> None:
    """They are those of policies with one quantizer for weights."""
    page = (Path(__file__).parents[2] / "docs" / "choosing.md").read_text()
    array = np.random.default_rng(0).normal(size=2000).astype(np.float32)
    listed = page[page.index("also accepts the names") :].partition(", which")[0]
    if f'"{name}"' in listed:
        assert encode(array, name) == encode(array, POLICIES[name].roles.get("weight", Lossless()))
        assert f'``"{name}"``' in (encode.__doc__ or "")
    else:
        with pytest.raises(
            ArgumentError, match=rf"unknown quantizer '{name}'; .*the names lossless, lc-2, lc-3"
        ):
            encode(array, name)
