"""An extension of griffe: defaults are shown as values, as 32 and not as `KEYFRAME_EVERY`.

A default that names something is evaluated in the module that states it. Where that module cannot
be imported, because its framework is not installed, the name is looked up where it is defined.
"""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Iterator, Mapping
from typing import Any

from lccodec import DependencyError

try:
    from griffe import Extension
except ImportError:  # a test needs only what is below
    Extension = object  # type: ignore[assignment, misc]


class DefaultsAsValues(Extension):
    """Replaces the defaults of parameters, and the values of public constants, that are names."""

    def on_package(self, *, pkg: Any, **_: Any) -> None:
        """Go through a package, after dataclasses have got their parameters."""
        public = set(pkg.exports or ())
        for thing in _within(pkg):
            if thing.is_function:
                for parameter in thing.parameters:
                    parameter.default = shown(parameter.default, thing.module.path)
            elif thing.is_attribute and thing.parent.is_module and thing.name in public:
                thing.value = shown(thing.value, thing.module.path)


def shown(default: Any, module: str) -> Any:
    """Return an expression of a module as it is to be shown: its value, if it names one of ours."""
    if default is None or isinstance(default, str):
        return default
    names = [part.canonical_path for part in default.iterate(flat=True) if hasattr(part, "canonical_path")]
    if not any(name.startswith("lccodec.") for name in names):
        return default
    try:
        value = text(eval(str(default), vars(importlib.import_module(module))))  # noqa: S307 - our own text
        return default if value == str(default) else value  # which has a link
    except (ImportError, DependencyError):
        if not str(default).isidentifier():
            return default
    home, _, name = names[0].rpartition(".")
    try:
        return text(getattr(importlib.import_module(home), name))
    except (ImportError, DependencyError):  # the name is of a framework's own module
        return default


def text(value: object) -> str:
    """Return the text of a value; of dataclasses only what is not a default.

    Examples
    --------
    >>> import lccodec
    >>> text({"weight": lccodec.UniformDeadzone(share=0.3), "other": lccodec.Lossless()})
    "{'weight': UniformDeadzone(share=0.3), 'other': Lossless()}"
    """
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key!r}: {text(each)}" for key, each in value.items()) + "}"
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = [
            field for field in dataclasses.fields(value) if getattr(value, field.name) != _default(field)
        ]
        given = ", ".join(f"{field.name}={text(getattr(value, field.name))}" for field in fields)
        return f"{type(value).__name__}({given})"
    return repr(value)


def _default(field: dataclasses.Field[Any]) -> object:
    return field.default if field.default_factory is dataclasses.MISSING else field.default_factory()


def _within(thing: Any) -> Iterator[Any]:
    for member in thing.members.values():
        if not member.is_alias:
            yield member
            yield from _within(member)
