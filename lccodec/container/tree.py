"""Nested states to a tree, a list of arrays and a list of scalars, and back (SPEC 5), as JSON.

The tree (LCC-STA-01): a dict is an object in its own order, a list is ``["l", ...]``, a tuple is
``["t", ...]``, an array is its index, a scalar is ``null``. Arrays are numbered in document order,
and an array that the state holds twice has one index (LCC-STA-02). Scalars are in a list of their
own, in document order (LCC-STA-03).

The name of a leaf (LCC-STA-07) is its path: keys and decimal positions joined by ``/``. Inside a
key, ``~`` is written ``~0`` and ``/`` is written ``~1``. The name of a state that is one array is
the empty string. Names of containers, and patterns, stand for leaves too.

Each value is written in only one way: scalars (LCC-STA-04 to LCC-STA-06), JSON (LCC-MAN-01), and
bytes as base64 (LCC-MAN-08). Metadata are strings; their numbers become texts.

An *adapter* makes NumPy arrays of a framework's states, and back. No adapter is known here.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
import reprlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Final, NoReturn, Protocol, TypeAlias

from ..constants import MAX_ARRAYS, MAX_INTEGER_DIGITS, MAX_NAME_CHARACTERS, MAX_NESTING
from ..errors import ArgumentError, DataError, FormatError, LimitError
from ..policy.roles import Assignment, Role, check_known

if TYPE_CHECKING:
    import numpy as np

    from ..element_types import Array


#: The adapter that stores values, by the beginning of the name of one of their classes.
_FRAMEWORKS: Final = {
    **dict.fromkeys(["torch.Tensor", "torch.Size", "torch.dtype", "torch.device"], "torch"),
    **dict.fromkeys(["jax._src.prng.", "jax._src.random.", "jax._src.array.", "jax._src.core."], "jax"),
    **dict.fromkeys(["jaxlib._jax.ArrayImpl", "jaxlib.xla_extension.ArrayImpl"], "jax"),
    **dict.fromkeys(["flax.", "equinox._module."], "jax"),
}
_NO_FUNCTIONS: Final = (
    "leave functions out, and take them from the target when you load"
    " (with Equinox: save equinox.filter(tree, equinox.is_array))"
)
#: What to write in the place of values that no adapter stores, in the same way.
_INSTEAD: Final = {
    "torch._C.Generator": "save its get_state(), and give that to set_state()",
    "numpy.random._generator.Generator": "save its bit_generator.state",
    "numpy.random.bit_generator.BitGenerator": "save its state",
    "numpy.random.mtrand.RandomState": "save its get_state(), and give that to set_state()",
    "random.Random": "save its getstate(), and give that to setstate()",
    "torch.utils.data.": "save what the loop needs to find its place again, such as the number of batches",
    "flax.linen.": "save the variables that its init returns",
    "jaxlib._jax.PjitFunction": _NO_FUNCTIONS,
    "jax._src.custom_derivatives.": _NO_FUNCTIONS,
}

Json: TypeAlias = Any  # recursive, and often from a file: checked when it is read, not by the type checker

_MAX_NUMBERS: Final = 256  # of a checkpoint: a state may have a counter for each of its arrays

_INTEGER_BOUND: Final = 10**MAX_INTEGER_DIGITS  # LCC-LIM-07
_MAX_FLOAT_LENGTH: Final = len("-2.2250738585072014e-308")


def parse_scalars(scalars: Json, where: str) -> list[Json]:
    """Check an untrusted list of scalars (LCC-STA-04 to LCC-STA-06, LCC-LIM-07), and return it."""
    if type(scalars) is not list:
        raise FormatError("LCC-STA-04", where, f"not a list: {reprlib.repr(scalars)}")
    for position, entry in enumerate(scalars):
        parse_scalar(entry, f"{where}[{position}]")
    return scalars


def parse_scalar(entry: Json, where: str) -> None:
    """Check one entry of such a list."""
    if entry is None or type(entry) is bool:
        return
    if type(entry) is int:
        if abs(entry) >= _INTEGER_BOUND:
            raise LimitError("LCC-LIM-07", where, f"an integer of more than {MAX_INTEGER_DIGITS} digits")
    elif type(entry) is str:
        if not is_unicode(entry):
            raise FormatError("LCC-STA-06", where, "a string with a lone surrogate")
    elif type(entry) is dict and list(entry) in (["f"], ["b"]) and type(next(iter(entry.values()))) is str:
        if not _is_canonical(entry):
            raise FormatError(
                "LCC-STA-05", where, f"not the only way to write a value: {reprlib.repr(entry)}"
            )
    else:
        raise FormatError("LCC-STA-04", where, f"not a scalar: {reprlib.repr(entry)}")


def _is_canonical(entry: dict[str, str]) -> bool:
    try:  # a float that is longer than any that is written is not parsed: that could take long
        return len(entry.get("f", "")) <= _MAX_FLOAT_LENGTH and scalar_json(scalar_value(entry)) == entry
    except ValueError:
        return False


def scalar_json(value: float | bytes) -> Json:
    """Return the entry of a float or a byte string (LCC-STA-05)."""
    if isinstance(value, float):
        # All NaN are written alike: the sign and payload of a NaN scalar are lost.
        return {"f": repr(value)}
    return {"b": str(base64.b64encode(value), "ascii")}


def scalar_value(entry: Json) -> Any:
    """Return the value of an entry that has been checked."""
    if not isinstance(entry, dict):
        return entry
    return float(entry["f"]) if "f" in entry else base64.b64decode(entry["b"], validate=True)


def is_unicode(text: str) -> bool:
    """Return whether a string has no lone surrogate (LCC-STA-06)."""
    return text.isascii() or str(text.encode(errors="ignore"), "utf-8") == text  # encoding drops such


def advice(value: Any) -> str:
    """Return what to write instead of a value that cannot be stored, where that is known."""
    names = [f"{kind.__module__}.{kind.__qualname__}" for kind in type(value).__mro__]
    for name in names:
        if (
            words := next((text for start, text in _INSTEAD.items() if name.startswith(start)), None)
        ) is not None:
            return f"; {words}"
    if callable(getattr(value, "state_dict", None)):
        return "; save its state_dict()"
    for name in names:
        if adapter := next((f for start, f in _FRAMEWORKS.items() if name.startswith(start)), None):
            adapter = f"lccodec.adapters.{adapter}"
            return (
                f"; give its adapter: Chain(..., adapter={adapter}), or for one file {adapter}.save_file"
                " (beside values of another framework: numpy.asarray of it)"
            )
    return f"; {_NO_FUNCTIONS}" if callable(value) and not isinstance(value, type) else ""


def metadata_strings(metadata: Mapping[str, Any] | None) -> dict[str, str]:
    """Return metadata in their stored form: strings (LCC-MAN-06).

    A number or a bool, of Python or NumPy, becomes its JSON text: ``"true"``, ``"Infinity"``.
    Raises ``ArgumentError`` if they are not a mapping from strings to strings and numbers, or have
    a lone surrogate.

    Examples
    --------
    >>> metadata_strings({"run": "first", "loss": 0.25, "epoch": 3, "best": True})
    {'run': 'first', 'loss': '0.25', 'epoch': '3', 'best': 'true'}
    """
    if metadata is None:
        return {}
    if not isinstance(metadata, Mapping):
        raise ArgumentError(
            f"metadata must be a mapping from strings to strings; got {type(metadata).__name__}"
        )
    import numpy as np  # here, as readers do without it

    strings = {}
    for key, value in metadata.items():
        plain = value.item() if isinstance(value, np.bool_ | np.integer | np.floating) else value
        text = json.dumps(plain) if isinstance(plain, bool | int | float) else plain
        if not isinstance(key, str):
            raise ArgumentError(f"a key of metadata must be a string; got {key!r:.100}")
        if not isinstance(text, str):
            advice = "; give a number, as of its item()" if callable(getattr(value, "item", None)) else ""
            raise ArgumentError(f"metadata {key!r} must be a string or a number; got {value!r:.100}{advice}")
        if not is_unicode(key) or not is_unicode(text):
            raise ArgumentError(f"metadata {key!r}: the string has a lone surrogate")
        strings[str(key)] = str(text)
    return strings


def with_metrics(metadata: Mapping[str, Any] | None, metrics: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return metadata with metrics added: numbers, or what has one as its ``item()``.

    Raises ``ArgumentError`` for a metric that is no number, or is named in the metadata too.

    Examples
    --------
    >>> import numpy as np
    >>> with_metrics({"run": "first"}, {"loss": np.float32(0.25)})
    {'run': 'first', 'loss': 0.25}
    """
    if not isinstance(metrics, Mapping):
        raise ArgumentError(f"metrics must be a mapping from names to numbers; got {type(metrics).__name__}")
    plain = {}
    for name, value in metrics.items():
        number = value
        if callable(getattr(value, "item", None)):
            with suppress(TypeError, ValueError, RuntimeError):  # of NumPy, of PyTorch: several elements
                number = value.item()
        if not isinstance(number, int | float):
            raise ArgumentError(f"metrics must be numbers; got {value!r:.100} for {name!r}")
        if metadata is not None and name in metadata:
            raise ArgumentError(f"{name!r} must be in metadata or in metrics, not in both")
        plain[name] = number
    return {**(metadata or {}), **plain}


def numbers_of(metadata: Mapping[str, str], scalars: Iterable[tuple[str, Any]]) -> dict[str, float]:
    """Return the numbers of a checkpoint by name: of its metadata, then of its state.

    Examples
    --------
    >>> numbers_of({"loss": "0.25", "run": "first"}, [("epoch", 3), ("nesterov", True)])
    {'loss': 0.25, 'epoch': 3.0}
    """
    numbers: dict[str, float] = {}
    for name, value in [*metadata.items(), *scalars]:
        if name in numbers or type(value) not in (str, int, float):
            continue
        try:
            numbers[name] = float(value)
        except (ValueError, OverflowError):
            continue
        if len(numbers) == _MAX_NUMBERS:
            break
    return numbers


# A string that is not closed reaches to the end: looking for others inside it takes quadratic time.
_JSON_STRING: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+"?', re.DOTALL)
_CURLY_TO_SQUARE: Final = bytes.maketrans(b"{}", b"[]")
_NOT_BRACKETS: Final = bytes(set(range(256)) - set(b"[]{}"))

# The two alphabets of base64. The package of that name takes twice as long for a few bytes.
_URL_SAFE: Final = bytes.maketrans(b"+/", b"-_")
_LETTERS: Final = bytes((*b"ABCDEFGHIJKLMNOPQRSTUVWXYZ", *b"abcdefghijklmnopqrstuvwxyz", *b"0123456789-_"))
_OTHERS: Final = bytes(set(range(256)) - set(_LETTERS))
_STANDARD: Final = bytes.maketrans(b"-_" + _OTHERS, b"+/" + bytes(len(_OTHERS)))  # NUL is skipped
# The letters that a text may end in: the bits behind the last byte are 0.
_LAST_LETTERS: Final = {left: _LETTERS[:: 4 ** (-left % 4)].decode() for left in (0, 2, 3)}

_DIGITS_TO_NINES: Final = bytes.maketrans(b"012345678", b"999999999")
_LONG_INTEGER: Final = b"9" * (MAX_INTEGER_DIGITS + 1)
_ENCODER: Final = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def parse_json(data: bytes, where: str) -> Json:
    """Parse JSON that is written in the only way `dump_json` writes it (LCC-MAN-01)."""
    # The standard library's parser is recursive. In most manifests all brackets are too few to nest
    # too deep, with those in strings.
    brackets, deepest = data.translate(_CURLY_TO_SQUARE, delete=_NOT_BRACKETS), MAX_NESTING + 1
    if len(brackets) >= deepest:
        brackets = _JSON_STRING.sub(b"", data).translate(_CURLY_TO_SQUARE, delete=_NOT_BRACKETS)
        for _ in range(deepest):  # each round removes the innermost pairs
            if b"[]" not in brackets:
                break
            brackets = brackets.replace(b"[]", b"")
        if b"[]" in brackets or len(brackets) > deepest:  # or too many are left open
            raise LimitError("LCC-LIM-05", where, f"nested deeper than {deepest}")

    def integer(digits: str) -> int:
        if len(digits.lstrip("-")) > MAX_INTEGER_DIGITS:
            raise LimitError("LCC-LIM-07", where, f"an integer of {len(digits)} digits")
        return int(digits)

    try:
        # A function for integers is slow, and there are many of them.
        is_long = _LONG_INTEGER in data.translate(_DIGITS_TO_NINES)
        document = json.loads(data.decode(), parse_int=integer if is_long else None)
        canonical = dump_json(document)  # refuses NaN, infinities and lone surrogates, which `loads` accepts
    except DataError:
        raise
    except ValueError as error:
        raise FormatError("LCC-MAN-01", where, f"not JSON: {error}") from error
    # This finds duplicate keys too: the parser has kept only one of them.
    if canonical != data:
        place = first_difference(canonical, data)
        raise FormatError("LCC-MAN-01", f"{where}: byte {place}", "not in canonical form")
    return document


def dump_json(document: Json) -> bytes:
    """Return a document as canonical JSON (LCC-MAN-01)."""
    return _ENCODER.encode(document).encode()


def first_difference(left: bytes, right: bytes) -> int:
    """Return the position of the first byte in which two byte strings differ."""
    low, high = 0, min(len(left), len(right))
    while low < high:
        middle = (low + high + 1) // 2
        if left[low:middle] == right[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def parse_base64(text: Json, size: int) -> bytes | None:
    """Return the bytes of a text (LCC-MAN-08); None if it is not the one text of `size` bytes."""
    if type(text) is not str or len(text) != (4 * size + 2) // 3 or not text.isascii():
        return None
    try:
        data = binascii.a2b_base64(text.encode("ascii").translate(_STANDARD) + b"==="[: -len(text) % 4])
    except ValueError:
        return None
    return data if len(data) == size and text[-1:] in _LAST_LETTERS[len(text) % 4] else None


def write_base64(data: bytes) -> str:
    """Return bytes as text (LCC-MAN-08)."""
    return binascii.b2a_base64(data, newline=False).translate(_URL_SAFE).rstrip(b"=").decode("ascii")


Keys: TypeAlias = tuple[str, ...]  # the path from the root to a node

_MANY: Final = 64  # children that are worth a look whether all of them are arrays
_ACCEPTED_TYPES: Final = "a dict, list, tuple, NumPy array, int, float, bool, str, bytes or None"


@dataclass(frozen=True)
class Flat:
    """A state taken apart, as `flatten` returns it.

    `tree` is the structure, and `scalars` are the scalars in document order; both are JSON
    (LCC-STA-01, LCC-STA-04). `arrays` are the arrays in document order, one for each distinct
    object. `names` are their names, each the path of the first appearance.
    """

    tree: Json
    arrays: list[np.ndarray[Any, Any]]
    scalars: list[Json]
    names: list[str]


def flatten(state: Any) -> Flat:
    """Take a state apart.

    A dict subclass becomes a dict, and a NumPy scalar becomes an array without dimensions. Arrays
    are not copied. An ``ArgumentError`` names the place of what a checkpoint cannot hold: another
    type, a key that is not a string, a lone surrogate, an integer of too many digits,
    nesting that is too deep or endless.

    Examples
    --------
    >>> import numpy as np
    >>> weight = np.zeros(3)
    >>> flat = flatten({"w": weight, "tied": weight, "sizes": (1, 2.5)})
    >>> flat.tree
    {'w': 0, 'tied': 0, 'sizes': ['t', None, None]}
    >>> flat.names, flat.scalars
    (['w'], [1, {'f': '2.5'}])
    """
    flattener = _Flattener()
    tree = flattener.node(state)
    return Flat(tree, flattener.arrays, flattener.scalars, flattener.names)


def unflatten(tree: Json, arrays: Sequence[Any], scalars: Iterable[Json]) -> Any:
    """Put a state together; the inverse of `flatten`.

    `arrays` has the array of each index. An index that the tree holds twice becomes one object in
    two places.

    Examples
    --------
    >>> unflatten({"w": 0, "sizes": ["t", None, None]}, ["an array"], [1, {"f": "2.5"}])
    {'w': 'an array', 'sizes': (1, 2.5)}
    """
    left = iter(scalars)  # of an iterator it is that itself: each scalar is taken once
    if tree is None:
        return scalar_value(next(left))
    if isinstance(tree, int):
        return arrays[tree]
    if isinstance(tree, dict):
        children = {}
        for key, child in tree.items():
            children[key] = unflatten(child, arrays, left)
        return children
    items = []
    for child in tree[1:]:
        items.append(unflatten(child, arrays, left))
    return tuple(items) if tree[0] == "t" else items


def leaf_name(keys: Keys) -> str:
    """Return the name of the node that is reached from the root by these keys (LCC-STA-07).

    Examples
    --------
    >>> leaf_name(("model", "a/b", "0"))
    'model/a~1b/0'
    """
    return "/".join(map(_escaped, keys))


def _escaped(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1") if "~" in key or "/" in key else key


def unescaped(name: str) -> str:
    """Return a name with the ``/`` and ``~`` of its keys, which `leaf_name` escapes.

    Examples
    --------
    >>> unescaped("model~1layer~00/weight")
    'model/layer~0/weight'
    """
    return name.replace("~1", "/").replace("~0", "~")


def array_names(tree: Json) -> dict[str, int]:
    """Return the index of the array at each path, in document order; two places are two names.

    Examples
    --------
    >>> array_names({"a/b": 0, "c": ["l", 1, None, 0]})
    {'a~1b': 0, 'c/0': 1, 'c/2': 0}
    """
    names: dict[str, int] = {}
    left: list[tuple[str | None, Json]] = [(None, tree)]  # nodes to come, by their names; the root first
    while left:
        name, node = left.pop()
        if isinstance(node, int):
            names[name or ""] = node
        elif node is not None:
            prefix = "" if name is None else f"{name}/"
            children: list[tuple[str | None, Json]] = []
            for key, child in children_of(node):
                children.append((prefix + _escaped(key), child))
            left += reversed(children)
    return names


def parse_tree(tree: Json, arrays: int, scalars: int, where: str) -> Json:
    """Check an untrusted tree, with a place for each array and each scalar, and return it.

    Raises ``FormatError`` (LCC-STA-01 to LCC-STA-03, LCC-STA-06) or ``LimitError`` (LCC-LIM-05,
    LCC-LIM-08).
    """
    first_uses = nulls = characters = 0

    def visit(node: Json, keys: Keys, length: int) -> None:
        nonlocal first_uses, nulls, characters
        characters += length
        if characters > MAX_NAME_CHARACTERS:
            raise LimitError("LCC-LIM-08", where, f"names of more than {MAX_NAME_CHARACTERS} characters")
        if node is None:
            nulls += 1
        elif type(node) is int:
            if not 0 <= node <= first_uses or node >= arrays:
                raise FormatError(
                    "LCC-STA-02", place(keys), f"out of order: {first_uses} of {arrays} arrays come before"
                )
            first_uses += node == first_uses
        elif type(node) is dict or (type(node) is list and node and node[0] in ("l", "t")):
            if len(keys) >= MAX_NESTING:
                raise LimitError("LCC-LIM-05", where, f"nested deeper than {MAX_NESTING}")
            for key, child in children_of(node):
                if not is_unicode(key):
                    raise FormatError("LCC-STA-06", place(keys), "a key with a lone surrogate")
                visit(child, (*keys, key), length + len(key) + 1)
        else:
            raise FormatError("LCC-STA-01", place(keys), f"not a node of a tree: {reprlib.repr(node)}")

    def place(keys: Keys) -> str:
        return f"{where}[{leaf_name(keys)!r}]"

    visit(tree, (), 0)
    if first_uses != arrays:
        raise FormatError("LCC-STA-02", where, f"has a place for {first_uses} of {arrays} arrays")
    if nulls != scalars:
        raise FormatError("LCC-STA-03", where, f"has a place for {nulls} scalars, and there are {scalars}")
    return tree


class _Flattener:
    """What `flatten` collects from a state."""

    def __init__(self) -> None:
        import numpy as np  # here, as readers do without it

        from ..element_types import held_beside

        self._as_array, self._array_type, self._masked = np.asarray, np.ndarray, np.ma.MaskedArray
        self._held_beside = held_beside
        self._values = (np.ndarray, np.generic)
        self._not_numbers = (np.flexible, np.datetime64, np.timedelta64)
        self.arrays: list[np.ndarray[Any, Any]] = []
        self.scalars: list[Json] = []
        self.names: list[str] = []
        self._seen: dict[int, int] = {}  # the index of each array, by its id
        self._kept: list[object] = []  # of others than `arrays`: an id is used again if they are gone
        self._characters = 0

    def node(self, value: Any, name: str = "", depth: int = 0, length: int = 0) -> Json:
        """Collect a node; its name has `depth` keys, and a `length` as LCC-LIM-08 counts it."""
        self._characters += length
        if self._characters > MAX_NAME_CHARACTERS:
            _refuse("", 0, f"has names of more than {MAX_NAME_CHARACTERS} characters together")
        if isinstance(value, self._values):
            return self._array(value, name, depth)
        if isinstance(value, dict):
            if len(value) >= _MANY and (many := self._arrays_of(value, name, depth, length)) is not None:
                return many
            items: Iterable[tuple[Any, Any]] = value.items()
        # Only exact types: a subclass (namedtuple, torch.Size, IntEnum) would come back as another.
        elif type(value) in (list, tuple):
            items = zip(map(str, range(len(value))), value, strict=True)
        else:
            self.scalars.append(self._scalar(value, name, depth))
            return None
        prefix, children = f"{name}/" if depth else "", dict[str, Json]()
        for key, child in items:
            if type(key) is not str or not is_unicode(key):
                message = f"has the key {key!r}, which is not a str without lone surrogates"
                _refuse(name, depth, message)
            if depth >= MAX_NESTING:
                message = f"nests deeper than {MAX_NESTING} containers, or contains itself"
                _refuse("/".join(name.split("/")[:3]), depth, message)
            children[key] = self.node(child, prefix + _escaped(key), depth + 1, length + len(key) + 1)
        if isinstance(value, dict):
            return children
        return ["l" if type(value) is list else "t", *children.values()]

    def _arrays_of(self, value: dict[Any, Any], name: str, depth: int, length: int) -> Json:
        """Collect a dict of many plain arrays, all at once; ``None`` if something in it is special.

        Python takes a microsecond for each array otherwise, and a training loop waits for it.
        """
        if set(map(type, value)) != {str} or set(map(type, value.values())) != {self._array_type}:
            return None
        start, text = len(self.arrays), "".join(value)
        characters = self._characters + len(text) + (length + 1) * len(value)
        indices = dict(zip(map(id, value.values()), range(start, start + len(value)), strict=True))
        if (
            not is_unicode(text)
            or depth >= MAX_NESTING
            or characters > MAX_NAME_CHARACTERS
            or start + len(value) > MAX_ARRAYS
            or len(indices) < len(value)  # an array that is there twice
            or not self._seen.keys().isdisjoint(indices)
            or any(dtype.hasobject for dtype in {array.dtype for array in value.values()})
        ):
            return None
        self._characters = characters
        self._seen.update(indices)
        self.arrays += value.values()
        keys = map(_escaped, value) if "~" in text or "/" in text else value
        self.names += [f"{name}/{key}" for key in keys] if depth else keys
        return dict(zip(value, range(start, start + len(value)), strict=True))

    def _array(self, value: Any, name: str, depth: int) -> int:
        array, index = value, len(self.arrays)
        if type(value) is not self._array_type:
            if isinstance(value, self._masked):
                _refuse(name, depth, "is a masked array: save its data and its mask")
            if held := self._held_beside(value):
                _refuse(name, depth, f"is {held}")
            array = self._as_array(value)
        if array.dtype.hasobject or isinstance(value, self._not_numbers):
            _refuse(name, depth, f"has dtype {array.dtype}: only numbers and booleans can be stored")
        # A NumPy scalar cannot change, but comes back as an array: two places must not share it.
        if isinstance(value, self._array_type):
            known = self._seen.setdefault(id(value), index)
            if known != index:
                return known
        if index == MAX_ARRAYS:
            _refuse(name, depth, f"is one array more than {MAX_ARRAYS}")
        self.arrays.append(array)
        if array is not value:
            self._kept.append(value)
        self.names.append(name)
        return index

    def _scalar(self, value: Any, name: str, depth: int) -> Json:
        if value is not None and type(value) not in (bool, int, float, str, bytes):
            kind = f"{type(value).__module__}.{type(value).__qualname__}"
            _refuse(name, depth, f"is a {kind}, not {_ACCEPTED_TYPES}{advice(value)}")
        entry = scalar_json(value) if isinstance(value, float | bytes) else value
        try:
            parse_scalar(entry, "")
        except DataError as error:
            _refuse(name, depth, f"is {error.message}")
        return entry


def _refuse(name: str, depth: int, message: str) -> NoReturn:
    place = f"state entry {name!r}" if depth else "the state"
    raise ArgumentError(f"{place} {message}")


def children_of(node: Json) -> Iterator[tuple[str, Json]]:
    """Yield the keys and the children of a container."""
    if isinstance(node, dict):
        return iter(node.items())
    return ((str(i), child) for i, child in enumerate(node[1:]))


Leaf: TypeAlias = tuple[str, int | None, Json]  # name, index of an array, entry of a scalar


def select(
    tree: Json, scalars: Sequence[Json], names: Iterable[str]
) -> tuple[dict[str, int], dict[str, Any]]:
    """Return the arrays and scalars that names stand for.

    `names`: names of leaves, or of containers, which stand for every leaf below them; or patterns
    of names of leaves (:mod:`fnmatch`). The empty string is the whole state, unless the state has a
    key that is the empty string. Returns the index of each array, and the value of each scalar, by
    name and in document order. An ``ArgumentError`` lists the names that the state does not have,
    with the closest names that it has.

    Examples
    --------
    >>> select({"m": {"w": 0, "b": 1}, "lr": None}, [{"f": "0.1"}], ["m", "lr"])
    ({'m/w': 0, 'm/b': 1}, {'lr': 0.1})
    >>> select({"m": {"w": 0, "b": 1}, "lr": None}, [{"f": "0.1"}], ["m/*"])
    ({'m/w': 0, 'm/b': 1}, {})
    """
    leaves, places = _chosen(tree, scalars, names)
    chosen = [leaves[i] for i in sorted(set(places))]
    return (
        {name: index for name, index, _ in chosen if index is not None},
        {name: scalar_value(entry) for name, index, entry in chosen if index is None},
    )


def leaves_of(tree: Json, scalars: Sequence[Json], names: Iterable[str] | None = None) -> list[Leaf]:
    """Return leaves: the name of each, and the index of an array or the entry of a scalar.

    They are in the order of the state; with `names`, those that these stand for, in their order and
    each once. Errors are those of `select`.

    Examples
    --------
    >>> leaves_of({"m": {"w": 0, "b": 1}, "lr": None}, [{"f": "0.1"}], ["lr", "m"])
    [('lr', None, {'f': '0.1'}), ('m/w', 0, None), ('m/b', 1, None)]
    """
    leaves, places = _chosen(tree, scalars, names)
    return [leaves[i] for i in dict.fromkeys(places)]


def scalar_at(tree: Json, scalars: Sequence[Json], keys: Keys) -> Any:
    """Return the scalar at a path of dicts; None if there is none."""
    node = tree
    for key in keys:
        if not isinstance(node, dict) or key not in node:
            return None
        node = node[key]
    if node is not None:
        return None
    ((_, _, entry),) = leaves_of(tree, scalars, [leaf_name(keys)])
    return scalar_value(entry)


def _chosen(
    tree: Json, scalars: Sequence[Json], names: Iterable[str] | None
) -> tuple[list[Leaf], Sequence[int]]:
    """Return all leaves, and the places of those that names stand for, in their order."""
    nodes, spans = _index(tree)
    left = iter(scalars)
    leaves = [(name, index, next(left) if index is None else None) for name, index in nodes]
    if names is None:
        return leaves, range(len(leaves))
    places = {name: spans[name] if name in spans else _fitting(leaves, name) for name in names}
    if unknown := [name for name in places if name not in spans and not places[name]]:
        raise ArgumentError(f"the state has no {', '.join(_suggest(name, spans) for name in unknown)}")
    return leaves, [i for indices in places.values() for i in indices]


def _fitting(leaves: Sequence[Leaf], pattern: str) -> list[int]:
    return [i for i, (name, _, _) in enumerate(leaves) if fnmatchcase(name, pattern)]


def _index(tree: Json) -> tuple[list[tuple[str, int | None]], dict[str, range]]:
    """Return the leaves with their names, in document order, and the leaves below each name."""
    leaves: list[tuple[str, int | None]] = []
    spans: dict[str, range] = {}

    def visit(node: Json, keys: Keys) -> None:
        start = len(leaves)
        if node is None or isinstance(node, int):
            leaves.append((leaf_name(keys), node))
        else:
            for key, child in children_of(node):
                visit(child, (*keys, key))
        # Only "" can be there already: it names an empty key below the root, otherwise the root.
        spans.setdefault(leaf_name(keys), range(start, len(leaves)))

    visit(tree, ())
    return leaves, spans


def _suggest(name: str, names: Mapping[str, object]) -> str:
    import difflib  # here, as few names are wrong

    close = difflib.get_close_matches(name, names, n=1)
    return f"{name!r} (is it {close[0]!r}?)" if close else repr(name)


# --- states of frameworks ------------------------------------------------------------------------

#: The key of the note of adapters in the metadata of a checkpoint: a JSON object from a type that
#: NumPy does not have to the names of the entries of that type.
TYPES: Final = "lccodec.types"


class Room(Protocol):
    """Memory for arrays, such as an `Arena`."""

    def empty(self, count: int, dtype: np.dtype[Any], more: int = 0) -> Array:
        """Return a 1-D array with undefined values; `more` bytes are needed in all from here on."""


#: Says of the name of an array whether its values are needed.
Wanted: TypeAlias = Callable[[str], bool]


class Adapter(Protocol):
    """A framework's states as NumPy arrays, as `lccodec.adapters.torch` and `.jax` provide them."""

    def to_numpy(
        self,
        state: Any,
        metadata: Mapping[str, str] | None = None,
        room: Room | None = None,
        wanted: Wanted | None = None,
        /,
    ) -> tuple[Any, dict[str, str]]:
        """Return a state of NumPy arrays, and the metadata to keep: those given and its own.

        `room` is given for a save in the background, which copies all arrays that do not lie there.
        What must be copied anyway, as from another device, is best copied there. `wanted` is given
        for a save of some arrays: in the place of others, any array will do, such as `left_out`.
        """

    def from_numpy(self, state: Any, metadata: Mapping[str, str], name: str = "", /) -> Any:
        """Return a state, or the part of it that has this name, as the framework has it.

        bfloat16 arrays come in as bits.
        """

    def roles(self, state: Any, /) -> Mapping[str, Assignment]:
        """Return the roles that the framework's structures say, by the names of the arrays."""


def left_out() -> Array:
    """Return an array without values, a new one, for the place of one that is not wanted."""
    import numpy as np  # here, as commands import this module and may do without it

    return np.empty(0, np.uint8)


def check_adapter(adapter: Adapter | None) -> Adapter | None:
    """Return an adapter unchanged; raise ``ArgumentError`` if it lacks one of the functions."""
    functions = ("to_numpy", "from_numpy", "roles")
    if adapter is not None and not all(hasattr(adapter, name) for name in functions):
        raise ArgumentError(
            f"adapter must have to_numpy, from_numpy and roles, like lccodec.adapters.torch; got {adapter!r}"
        )
    return adapter


def from_framework(
    adapter: Adapter | None,
    state: Any,
    metadata: Mapping[str, Any] | None,
    roles: Mapping[str, Assignment | Role] | None,
    room: Room | None = None,
    wanted: Wanted | None = None,
) -> tuple[Flat, dict[str, str], Mapping[str, Assignment]]:
    """Return a framework's state with NumPy arrays, its metadata, and all known roles.

    `room` and `wanted` are as for `Adapter.to_numpy`.
    """
    strings, arrays = metadata_strings(metadata), state
    if adapter is not None:
        more = (room,) if wanted is None else (room, wanted)  # what an adapter may do without
        arrays, strings = adapter.to_numpy(state, strings, *(() if more == (None,) else more))
    found = {} if adapter is None else adapter.roles(state)
    flat = flatten(arrays)
    return flat, strings, {**found, **check_known({} if roles is None else roles, flat.names)}


def as_framework(adapter: Adapter | None, state: Any, metadata: Mapping[str, str], keys: object) -> Any:
    """Return a state, or leaves by name if `keys` are given, as the framework has them."""
    if adapter is None:
        return state
    if keys is None:
        return adapter.from_numpy(state, metadata)
    return {name: adapter.from_numpy(value, metadata, name) for name, value in state.items()}
