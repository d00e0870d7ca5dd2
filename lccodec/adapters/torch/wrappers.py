"""Tensors that are made of other tensors: subclasses with ``__tensor_flatten__``.

Low-bit weights and optimizer states are such wrappers: codes, scales, and a few values that say how
they belong together. A wrapper is stored as a dict of its inner tensors, under their names, and of
what it says about itself, under `ABOUT`. Nothing is pickled.

A wrapper is made again only if the program allows its class: no module is imported and nothing is
called because a file names it. Allowed is what ``torch.serialization.get_safe_globals()`` lists.
torchao adds its classes to the list when it is imported; ``torch.serialization.add_safe_globals``
adds others. A wrapper in the target of `load_into` allows its own class. What is not allowed comes
back as the dict (`Apart`), with a warning.

Source: torch.utils._python_dispatch of torch 2.13; torchao 0.18.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence
from typing import Any, Final

import torch
from torch.serialization import get_safe_globals

from ...errors import ArgumentError, warn

#: The types of tensors that have values of their own.
TENSOR_TYPES: Final = (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer)
#: The kinds in the note of `lccodec.adapters.tree`: a wrapper, and an instance of a dataclass
#: or a named tuple in what a wrapper says about itself.
WRAPPER: Final = "tensor subclass"
INSTANCE: Final = "instance"
#: The entry of a dict of inner tensors that says what they form. It is no name of an attribute.
ABOUT: Final = ".wrapper"

#: Wrappers of PyTorch itself that mean more than their inner tensors: a place among processes,
#: lengths that other tensors share.
_UNFIT_MODULES: Final = ("torch.distributed.", "torch.nested.", "torch._subclasses.")


class Apart(dict[str, Any]):
    """A wrapper whose class is not allowed: what it is made of. It is saved as what it was."""

    def __init__(self, stored: dict[str, Any], kind: str = WRAPPER) -> None:
        super().__init__(stored)
        self.kind = kind


class Instance:
    """An instance of a dataclass or a named tuple, to be stored by its fields."""

    def __init__(self, value: Any) -> None:
        self._value = value

    def stored(self) -> dict[str, Any]:
        """Return the class and the fields."""
        kind = type(self._value)
        names = getattr(kind, "_fields", None) or [f.name for f in dataclasses.fields(kind) if f.init]
        fields = {name: _marked(getattr(self._value, name)) for name in names}
        return {"class": class_name(kind), "fields": fields}


def class_name(kind: type) -> str:
    """Return the full name of a class."""
    return f"{kind.__module__}.{kind.__qualname__}"


def is_wrapper(value: Any) -> bool:
    """Return whether a value is a tensor that is stored as its inner tensors."""
    return _is_wrapper_class(type(value))


def _is_wrapper_class(kind: type) -> bool:
    return (
        kind not in TENSOR_TYPES
        and issubclass(kind, torch.Tensor)
        and hasattr(kind, "__tensor_flatten__")
        and hasattr(kind, "__tensor_unflatten__")
        and not f"{kind.__module__}.".startswith(_UNFIT_MODULES)
    )


def _is_instance(value: Any) -> bool:
    """Return whether a value is one of a dataclass or a named tuple."""
    if isinstance(value, type):
        return False
    return dataclasses.is_dataclass(value) or (isinstance(value, tuple) and hasattr(value, "_fields"))


def inner_tensors(wrapper: Any) -> dict[str, torch.Tensor]:
    """Return the tensors that a wrapper is made of, by name."""
    return {name: getattr(wrapper, name) for name in wrapper.__tensor_flatten__()[0]}


def take_apart(wrapper: Any) -> dict[str, Any]:
    """Return a wrapper's inner tensors, and what they form."""
    inner = inner_tensors(wrapper)
    about: dict[str, Any] = {
        "class": class_name(type(wrapper)),
        "context": _marked(wrapper.__tensor_flatten__()[1]),
        "size": tuple(wrapper.shape),
    }
    if wrapper.stride() != _usual_strides(wrapper.shape):
        about["stride"] = tuple(wrapper.stride())
    orders = {name: _order(tensor) for name, tensor in inner.items()}
    if any(orders.values()):
        about["order"] = {name: order for name, order in orders.items() if order}
    return {**inner, ABOUT: about}


def _usual_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Return the strides of a tensor without gaps in C order."""
    return tuple(math.prod(max(size, 1) for size in shape[axis + 1 :]) for axis in range(len(shape)))


def _marked(value: Any) -> Any:
    """Return a value with its dataclasses and named tuples as `Instance`."""
    if _is_instance(value):
        return Instance(value)
    if type(value) in (list, tuple):
        return type(value)(map(_marked, value))
    return {key: _marked(child) for key, child in value.items()} if type(value) is dict else value


def _order(tensor: torch.Tensor) -> list[int] | None:
    """Return the dimensions as they follow in memory; None in C order, or if there are gaps.

    Kernels of low-bit weights depend on it: some read the second operand by columns.
    """
    if type(tensor) not in TENSOR_TYPES or tensor.is_contiguous():
        return None
    order = sorted(range(tensor.dim()), key=tensor.stride, reverse=True)
    return order if tensor.permute(order).is_contiguous() else None


def _in_order(tensor: torch.Tensor, order: Any) -> torch.Tensor:
    """Return a tensor with the same values and with its dimensions in this order in memory."""
    if type(order) is not list or sorted(order) != list(range(tensor.dim())):
        raise ValueError("not an order of dimensions")
    return tensor.permute(order).contiguous().permute([order.index(d) for d in range(tensor.dim())])


def put_together(stored: Any) -> Any:
    """Return the wrapper that inner tensors form, or an `Apart` if its class is not allowed."""
    about = _about(stored)
    kind = _allowed(about["class"])
    fit = kind is not None and _is_wrapper_class(kind)
    lacking = next(_classes_apart(about["context"]), None) if fit else about["class"]
    if lacking is None:
        return _assemble(kind, stored, about["context"])
    warn(
        f"{lacking} is no class that this program allows, so tensors of it are dicts of their inner tensors: "
        "import its module before you load, torch.serialization.add_safe_globals([...]), or load_into a "
        "target that has them"
    )
    return Apart(stored)


def make_instance(stored: Any) -> Any:
    """Return the instance of a dataclass or named tuple; an `Apart` if it is not allowed."""
    kind, lacking = _allowed(stored["class"]), any(_classes_apart(stored["fields"]))
    if lacking or kind is None or not (dataclasses.is_dataclass(kind) or hasattr(kind, "_fields")):
        return Apart(stored, INSTANCE)
    try:
        return kind(**stored["fields"])
    except Exception as error:  # as in `_assemble`
        raise ValueError(str(error)) from error


def put_together_like(like: Any, apart: Apart, where: str) -> Any:
    """Return the wrapper that inner tensors form, of the class and with the values of another.

    They must have been saved from its class, and say the same about themselves.
    """
    about = _about(apart)
    if about["class"] != class_name(type(like)):
        raise ArgumentError(f"{where}: a {about['class']}, where the target has a {class_name(type(like))}")
    context = like.__tensor_flatten__()[1]
    if (saved := _plain(about["context"])) != (wanted := _plain(context)):
        raise ArgumentError(f"{where}: made with {saved}, where the target has {wanted}")
    try:
        return _assemble(type(like), apart, context)
    except ValueError as error:
        raise ArgumentError(f"{where}: {error}") from error


def _plain(value: Any) -> Any:
    """Return what a wrapper says about itself in a form in which it can be compared."""
    if isinstance(value, Instance) or _is_instance(value):
        value = (value if isinstance(value, Instance) else Instance(value)).stored()
    if isinstance(value, list | tuple):
        return [_plain(child) for child in value]
    return {key: _plain(child) for key, child in value.items()} if isinstance(value, dict) else value


def _about(stored: Any) -> dict[str, Any]:
    about = stored[ABOUT]
    if type(about["class"]) is not str or type(about["size"]) is not tuple:
        raise ValueError("not what a wrapper says about itself")
    return dict(about)


def _assemble(kind: Any, stored: dict[str, Any], context: Any) -> Any:
    about = _about(stored)
    inner = {name: tensor for name, tensor in stored.items() if name != ABOUT}
    inner |= {name: _in_order(inner[name], order) for name, order in about.get("order", {}).items()}
    size = torch.Size(about["size"])
    stride = about.get("stride", _usual_strides(size))
    try:
        made = kind.__tensor_unflatten__(inner, context, size, stride)
    except Exception as error:  # whatever another package raises about values that it did not write
        raise ValueError(f"not a {about['class']}: {error}") from error
    if type(made) is not kind or made.shape != size or made.stride() != stride:
        raise ValueError(f"not a {about['class']} of shape {tuple(size)}")
    return made


def _allowed(name: Any) -> type | None:
    """Return the class of this name that the program allows, or None.

    Packages move their classes: one alone of the package with the same last name is taken, too.
    """
    if type(name) is not str:
        raise TypeError("not the name of a class")
    listed = (entry[0] if isinstance(entry, tuple) else entry for entry in get_safe_globals())
    kinds = {class_name(kind): kind for kind in listed if isinstance(kind, type)}
    if name not in kinds:
        alike = [other for other in kinds if _ends(other) == _ends(name)]
        name = alike[0] if len(alike) == 1 else ""
    return kinds.get(name)


def _ends(name: str) -> tuple[str, str]:
    """Return the package of a class, and its last name."""
    return name.partition(".")[0], name.rpartition(".")[2]


def _classes_apart(value: Any) -> Iterator[str]:
    """Yield the classes of the instances in a value that were not made, inner ones first."""
    if isinstance(value, Apart):
        yield from _classes_apart(value["fields"])
        yield value["class"]
    elif isinstance(value, dict | list | tuple):
        for child in value.values() if isinstance(value, dict) else value:
            yield from _classes_apart(child)


def copy_into(target: Any, source: Any) -> None:
    """Write the values of a tensor into another: of wrappers, those of their inner tensors.

    A class may round when it copies; inner tensors are copied as they are.
    """
    with torch.no_grad():
        if not (is_wrapper(target) and type(source) is type(target)):
            target.copy_(source)
            return
        values = inner_tensors(source)
        for name, tensor in inner_tensors(target).items():
            copy_into(tensor, values[name])
