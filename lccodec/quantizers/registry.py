"""Quantizers by name: as JSON, as text, and as users give them to :func:`lccodec.encode`.

:func:`register` gives a name to a quantizer of your own. A checkpoint can then record a policy that
uses it. A program that reads this policy must register the same quantizer.
"""

from __future__ import annotations

from dataclasses import MISSING, fields, is_dataclass
from types import MappingProxyType
from typing import Any, Final, TypeVar

from ..errors import ArgumentError
from .base import Lossless, Quantizer, check_quantizer
from .clusters import Clusters
from .exponent import ExponentBuckets
from .logarithmic import LogSteps
from .smooth import Smooth
from .triggered import Triggered
from .uniform import KeyframeSteps, UniformDeadzone

_Class = TypeVar("_Class", bound=type[Quantizer])

_registered: dict[str, type[Quantizer]] = {}

#: The quantizers that a policy's JSON may name.
QUANTIZERS: Final = MappingProxyType(_registered)

#: The quantizers that :func:`lccodec.encode` takes by name: the preset of the same name uses each
#: for weights.
NAMED: Final = MappingProxyType(
    {"lossless": Lossless(), "lc-2": ExponentBuckets(bits=2), "lc-3": ExponentBuckets(bits=3)}
)


def register(quantizer: _Class) -> _Class:
    """Register a class of quantizers, so that policies in JSON may name it; usable as a decorator.

    Parameters
    ----------
    quantizer
        A dataclass that inherits `Quantizer`. Its parameters are numbers, strings, bools, None or
        quantizers.

    Raises
    ------
    ArgumentError
        If it is not such a class, or another class has the same name.
    """
    if not (isinstance(quantizer, type) and issubclass(quantizer, Quantizer) and is_dataclass(quantizer)):
        raise ArgumentError(f"register needs a dataclass that inherits from Quantizer; got {quantizer!r}")
    if _registered.setdefault(quantizer.__name__, quantizer) is not quantizer:
        raise ArgumentError(f"register needs a new name; {quantizer.__name__} is registered already")
    return quantizer


for _quantizer in (
    Clusters,
    ExponentBuckets,
    KeyframeSteps,
    LogSteps,
    Lossless,
    Smooth,
    Triggered,
    UniformDeadzone,
):
    register(_quantizer)


def resolve_quantizer(quantizer: Quantizer | str) -> Quantizer:
    """Return the quantizer itself, or that of a name in `NAMED`; refuse anything else."""
    if not isinstance(quantizer, str):
        return check_quantizer(quantizer)
    if quantizer not in NAMED:
        raise ArgumentError(
            f"unknown quantizer {quantizer!r}; there are {', '.join(QUANTIZERS)}, and the names"
            f" {', '.join(NAMED)}; other policies choose the steps of all arrays of a state together"
        )
    return NAMED[quantizer]


def _settings(quantizer: Quantizer) -> dict[str, Any]:
    """Return the parameters of a quantizer that are not their defaults, without functions."""
    values = {f: getattr(quantizer, f.name) for f in fields(quantizer) if f.compare}  # type: ignore[arg-type]
    return {f.name: value for f, value in values.items() if f.default is MISSING or value != f.default}


def check_registered(quantizer: object, where: str = "") -> None:
    """Raise ``ArgumentError`` for an unregistered quantizer; `where` begins the message."""
    if _is_registered(quantizer):
        return
    if isinstance(quantizer, Quantizer):
        raise ArgumentError(
            f"{where}{quantizer!r} has no name in JSON: register its class (lccodec.quantizers.register)"
        )
    raise ArgumentError(f"{where}{quantizer!r} is not a quantizer; there are {', '.join(QUANTIZERS)}")


def _is_registered(value: object) -> bool:
    return _registered.get(type(value).__name__) is type(value)


def quantizer_text(quantizer: Quantizer) -> str:
    """Return a quantizer as text: the call that makes it, without arrays and other inner fields."""
    shown = {each.name for each in fields(quantizer) if each.repr}  # type: ignore[arg-type]
    settings = ", ".join(
        f"{name}={quantizer_text(value) if _is_registered(value) else repr(value)}"
        for name, value in _settings(quantizer).items()
        if name in shown
    )
    return f"{type(quantizer).__name__}({settings})"


def quantizer_json(quantizer: Quantizer) -> Any:
    """Return a registered quantizer as a JSON object: its name, and what is not a default."""
    check_registered(quantizer)
    settings = {
        name: quantizer_json(value) if _is_registered(value) else value
        for name, value in _settings(quantizer).items()
    }
    return {"quantizer": type(quantizer).__name__, **settings}


def parse_quantizer(value: Any) -> Quantizer:
    """Return the quantizer of a JSON object that :func:`quantizer_json` made; refuse others."""
    if not isinstance(value, dict) or value.get("quantizer") not in list(QUANTIZERS):
        raise ArgumentError(f"unknown quantizer {value!r:.100}; there are {', '.join(QUANTIZERS)}")
    settings: dict[str, Any] = {
        name: parse_quantizer(setting) if isinstance(setting, dict) else setting
        for name, setting in value.items()
        if name != "quantizer"
    }
    try:
        return QUANTIZERS[value["quantizer"]](**settings)
    except TypeError as error:
        raise ArgumentError(f"quantizer {value!r:.100}: {error}") from error
