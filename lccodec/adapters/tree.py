"""A framework's state as a plain state of NumPy arrays, and a note of what that would lose.

A checkpoint holds dicts with string keys, lists, tuples, scalars and arrays of the element types of
SPEC 5.2. Frameworks have a little more: dicts with integer keys (the parameters of an optimizer),
types such as float8, and values of Python and NumPy, such as a `collections.Counter`. These are
stored in the nearest plain form under the same names, and a note in the metadata says what they
are: SPEC 5.3 lists its types; :mod:`lccodec.adapters.torch.wrappers` has two more. So the arrays
can be read without any framework, and one framework understands what another one wrote.

The values are the containers of `collections` (deque, Counter, OrderedDict, defaultdict with a
factory of Python), dicts with keys of any kind, sets, ranges, slices, named tuples, both kinds of
namespaces; complex, Decimal, Fraction, UUID, bytearray; paths, dates, times; enums; and NumPy's
dtypes, strings, dates and times. Each is stored as scalars, lists and dicts. The list is fixed. No
module is imported because a file names it: an enum is looked up among the enums that the program
has defined, and a named tuple comes back as a new class with the same name and fields.

`nested`, `listed` and `make_up` put shards and leaves together that other processes stored. Imports
no framework.
"""

from __future__ import annotations

import argparse
import collections
import datetime
import decimal
import enum
import fractions
import functools
import json
import math
import pathlib
import re
import types
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

import numpy as np

from ..chain.read.checkpoint import Arrivals
from ..constants import MAX_NESTING
from ..container.tree import TYPES, leaf_name, metadata_strings, unescaped
from ..element_types import Array, element_type, in_host_order
from ..errors import ArgumentError, FormatError, warn

_RULE: Final = "lccodec.types"  # the note that says what is stored

#: The end of the kind of a dict whose keys are integers.
OF_INT: Final = " of int"

_DEFAULT_FACTORIES: Final[dict[str, Any]] = {
    "None": None,
    **{kind.__name__: kind for kind in (bool, int, float, complex, str, bytes, list, tuple, dict, set)},
    "Counter": collections.Counter,
    "OrderedDict": collections.OrderedDict,
}
_DEFAULTDICT: Final = re.compile(r"defaultdict<(\w+)>")
_NAMEDTUPLE: Final = re.compile(r"namedtuple<(\w+)>")

Encode = Callable[[Any], Any]
Decode = Callable[[Any], Any]


def _text_decoder(make: Callable[[Any], Any], kind: type = str) -> Decode:
    """Return a decoder of strings only: `bytearray` would also take a size as large as memory."""

    def decode(stored: Any) -> Any:
        if type(stored) is not kind:
            raise TypeError(f"not a {kind.__name__}")
        return make(stored)

    return decode


def _list_decoder(make: Callable[..., Any]) -> Decode:
    """Return a decoder that takes lists of integers only."""

    def decode(stored: Any) -> Any:
        if type(stored) is not list or not all(type(item) is int for item in stored):
            raise TypeError("not such a list")
        return make(*stored)

    return decode


def _iso_text(value: Any) -> str:
    """Return a date or time as text; refuse one that text cannot express."""
    text: str = value.isoformat()
    if repr(type(value).fromisoformat(text)) != repr(value):
        raise ArgumentError(
            f"is {value!r}: of time zones only offsets are stored; save value.astimezone(timezone.utc)"
        )
    return text


def _sorted_items(value: Any) -> list[Any]:
    """Return the elements of a set in an order that is the same in every process."""
    return sorted(value, key=lambda item: (type(item).__qualname__, repr(item)))


def _dtype_text(dtype: np.dtype[Any]) -> str:
    for text in (dtype.str, dtype.name):
        try:
            if np.dtype(text) == dtype:
                return text
        except TypeError:
            pass
    raise ArgumentError(f"is the dtype {dtype}, which has fields or is not one of NumPy's")


def _decode_time64(stored: Any) -> Any:
    text, count = stored
    if type(text) is not str or not re.fullmatch(r"[<>=|]?[mM]8(\[[0-9a-zA-Z]+\])?", text):
        raise TypeError("not a dtype of times")
    return np.array(count, np.int64).view(np.dtype(text).newbyteorder("="))[()]


def _decode_deque(stored: Any) -> Any:
    length, items = stored
    return collections.deque(items, maxlen=length)


#: Exact types, each with its kind, its encoder and its decoder.
_CODECS: Final[dict[type, tuple[str, Encode, Decode]]] = {
    set: ("set", _sorted_items, set),
    frozenset: ("frozenset", _sorted_items, frozenset),
    collections.deque: ("deque", lambda v: (v.maxlen, list(v)), _decode_deque),
    range: ("range", lambda v: [v.start, v.stop, v.step], _list_decoder(range)),
    slice: ("slice", lambda v: [v.start, v.stop, v.step], lambda stored: slice(*stored)),
    complex: ("complex", repr, _text_decoder(complex)),
    bytearray: ("bytearray", bytes, _text_decoder(bytearray, bytes)),
    decimal.Decimal: ("Decimal", str, _text_decoder(decimal.Decimal)),
    fractions.Fraction: (
        "Fraction", lambda v: [v.numerator, v.denominator], _list_decoder(fractions.Fraction),
    ),
    uuid.UUID: ("UUID", str, _text_decoder(uuid.UUID)),
    datetime.datetime: ("datetime", _iso_text, _text_decoder(datetime.datetime.fromisoformat)),
    datetime.date: ("date", _iso_text, _text_decoder(datetime.date.fromisoformat)),
    datetime.time: ("time", _iso_text, _text_decoder(datetime.time.fromisoformat)),
    datetime.timedelta: (
        "timedelta", lambda v: [v.days, v.seconds, v.microseconds], _list_decoder(datetime.timedelta),
    ),
    type(pathlib.Path()): ("Path", str, _text_decoder(pathlib.Path)),
    pathlib.PurePosixPath: ("PurePosixPath", str, _text_decoder(pathlib.PurePosixPath)),
    pathlib.PureWindowsPath: ("PureWindowsPath", str, _text_decoder(pathlib.PureWindowsPath)),
    types.SimpleNamespace: ("SimpleNamespace", lambda v: dict(vars(v)), lambda d: types.SimpleNamespace(**d)),
    argparse.Namespace: ("Namespace", lambda v: dict(vars(v)), lambda d: argparse.Namespace(**d)),
    np.str_: ("numpy.str", str, _text_decoder(np.str_)),
    np.bytes_: ("numpy.bytes", bytes, _text_decoder(np.bytes_, bytes)),
    **{
        kind: (f"numpy.{kind.__name__}", lambda v: [v.dtype.str, int(v.view(np.int64))], _decode_time64)
        for kind in (np.datetime64, np.timedelta64)
    },
}  # fmt: skip
_DECODERS: Final[dict[str, Decode]] = {kind: decode for kind, _, decode in _CODECS.values()}


def to_stored(value: Any) -> tuple[str, Any] | None:
    """Return kind and stored form of a value; None if it is not on the list, or plain."""
    kind = type(value)
    if kind in _CODECS:
        name, encode, _ = _CODECS[kind]
        return name, encode(value)
    if kind is dict:
        return None if _is_plain(value) else ("dict", list(value.items()))
    if kind is collections.OrderedDict or kind is collections.Counter:
        return _encode_mapping(kind.__name__, value)
    if kind is collections.defaultdict:
        for name, factory in _DEFAULT_FACTORIES.items():
            if value.default_factory is factory:
                return _encode_mapping(f"defaultdict<{name}>", value)
        raise ArgumentError(f"is a defaultdict whose factory, {value.default_factory!r}, cannot be stored")
    if isinstance(value, enum.Enum):
        return "enum", _encode_enum(value)
    if isinstance(value, np.dtype):
        return "numpy.dtype", _dtype_text(value)
    if issubclass(kind, tuple) and kind is not tuple and _is_namedtuple(value):
        return f"namedtuple<{kind.__name__}>", value._asdict()
    return None


def _is_plain(value: dict[Any, Any]) -> bool:
    return all(type(key) is str for key in value) or all(type(key) is int for key in value)


def _encode_mapping(kind: str, value: dict[Any, Any]) -> tuple[str, Any]:
    if not _is_plain(value):
        return kind, list(value.items())
    return kind + (OF_INT if value and type(next(iter(value))) is int else ""), dict(value)


def _is_namedtuple(value: Any) -> bool:
    fields = getattr(value, "_fields", None)
    try:
        return fields is not None and _namedtuple_class(type(value).__name__, tuple(fields)) is not None
    except (ValueError, TypeError):
        return False


@functools.lru_cache(maxsize=64)
def _namedtuple_class(name: str, fields: tuple[str, ...]) -> Any:
    return collections.namedtuple(name, fields)


def _encode_enum(member: enum.Enum) -> list[Any]:
    kind, value = type(member), member.value
    name = member.name if member.name in kind.__members__ else None  # a combination of flags has no name
    plain = isinstance(value, bool | int | float | str | bytes | None)
    return [f"{kind.__module__}.{kind.__qualname__}", name, value if plain else None]


def _decoded(kind: str, stored: Any) -> Any:
    if kind in _DECODERS:
        return _DECODERS[kind](stored)
    if kind == "enum":
        return _decode_enum(*stored)
    if kind == "numpy.dtype":
        return _text_decoder(np.dtype)(stored)
    if kind == "dict":
        return dict(stored)
    kind = kind.removesuffix(OF_INT)
    if kind == "OrderedDict":
        return collections.OrderedDict(stored)
    if kind == "Counter":
        return collections.Counter(dict(stored))
    if matched := _DEFAULTDICT.fullmatch(kind):
        return collections.defaultdict(_DEFAULT_FACTORIES[matched[1]], stored)
    if matched := _NAMEDTUPLE.fullmatch(kind):
        return _namedtuple_class(matched[1], tuple(stored))(**stored)
    return stored


def _decode_enum(name: str, member: str | None, value: Any) -> Any:
    for kind in enums(enum.Enum):
        if f"{kind.__module__}.{kind.__qualname__}" == name:
            if member is not None and member in kind.__members__:
                return kind.__members__[member]
            if issubclass(kind, enum.Flag) and type(value) is int:
                return kind(value)
    warn(
        f"{name} is no enum of this program, so its member {member} is loaded as {value!r}: "
        "import its module before you load"
    )
    return member if value is None else value


def enums(base: type[enum.Enum]) -> Iterator[type[enum.Enum]]:
    """Yield the enums that this program has defined; of the same name, the newest first."""
    for kind in reversed(base.__subclasses__()):
        yield from enums(kind)
        yield kind


#: One-byte types that NumPy does not have, under the names that all frameworks use.
BYTE_TYPES: Final = frozenset(
    [
        *("float8_e3m4", "float8_e4m3", "float8_e4m3b11fnuz", "float8_e4m3fn", "float8_e4m3fnuz"),
        *("float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu", "float4_e2m1fn", "float4_e2m1fn_x2"),
        *("float6_e2m3fn", "float6_e3m2fn", "int1", "int2", "int4", "uint1", "uint2", "uint4"),
    ]
)

_INT_KEYS: Final = "int"
_MAX_KEY_DIGITS: Final = 20  # of an integer key: a sign and 64 bits; converting longer texts is slow

#: What to do about an array of a type that a framework lacks.
WITHOUT_ADAPTER: Final = "choose others by keys=, or load it without the adapter, as a NumPy array"

Keys: TypeAlias = tuple[str, ...]
Leaf: TypeAlias = Callable[[Any, Keys], tuple[Any, str | None]]
ArrayLeaf: TypeAlias = Callable[[Array, str | None, str], Any]
Constructors: TypeAlias = Mapping[str, Callable[[Any], Any]]


def to_plain(
    state: Any, metadata: Mapping[str, str] | None, inside: Callable[[Any], Any], leaf: Leaf
) -> tuple[Any, dict[str, str]]:
    """Return a framework's state as a plain state, and `metadata` with the note.

    `inside` returns a container of the framework as a dict, list or tuple. `leaf` gets a leaf and
    its path, and returns an array, scalar or tuple of these, with its type for the note. An
    ``ArgumentError`` of theirs gets the place.
    """
    kept = metadata_strings(metadata)
    walk = _ToPlain(inside, leaf)
    plain = walk.node(state, ())
    return plain, with_types(kept, walk.types)


# The walks are classes: a nested function that calls itself would stay in memory, with all its
# data, until the next garbage collection.
class _ToPlain:
    def __init__(self, inside: Callable[[Any], Any], leaf: Leaf) -> None:
        self.types: dict[str, list[str]] = {}
        self._inside, self._leaf = inside, leaf

    def node(self, value: Any, keys: Keys) -> Any:
        kind = None
        try:
            value = self._inside(value)
            if stored := to_stored(value):
                kind, value = stored
            elif not isinstance(value, dict) and type(value) not in (list, tuple):
                value, kind = self._leaf(value, keys)
        except ArgumentError as error:
            raise _refused(keys, error) from None
        if isinstance(value, dict):
            if not keys and "" in value and kind is not None:
                # The root and the entry below its empty key have the same name, and the note has
                # one type for it.
                value = list(value.items())
            elif kind is None and value and all(type(key) is int for key in value):
                kind = _INT_KEYS
        if isinstance(value, dict):
            if len(plain := {str(key): child for key, child in value.items()}) != len(value):
                raise _refused(keys, "has keys that are the same as strings")
            value = {key: self.node(child, below(keys, key)) for key, child in plain.items()}
        elif type(value) in (list, tuple):
            value = type(value)(self.node(child, below(keys, str(i))) for i, child in enumerate(value))
        if kind is not None:
            self.types.setdefault(kind, []).append(leaf_name(keys))
        return value


def _refused(keys: Keys, message: object) -> ArgumentError:
    return ArgumentError(f"state entry {leaf_name(keys)!r} {message}" if keys else f"the state {message}")


def below(keys: Keys, key: str) -> Keys:
    """Return the path of a child: one key longer, unless a checkpoint allows no deeper nesting."""
    if len(keys) >= MAX_NESTING:
        raise _refused(keys[:3], f"nests deeper than {MAX_NESTING} containers, or contains itself")
    return (*keys, key)


def from_plain(
    state: Any,
    metadata: Mapping[str, str],
    name: str,
    leaf: ArrayLeaf,
    constructors: Constructors | None = None,
) -> Any:
    """Return a plain state, with bfloat16 as bits, as one of a framework: inverse of `to_plain`.

    `name` is that of the state in the saved one. `leaf` converts an array, given its type in the
    note and its name, once for all of its places. `constructors` make other types.
    """
    if type(name) is not str:
        raise ArgumentError(f"the name of an entry must be a string; got {name!r}")
    return _FromPlain(read_types(metadata), leaf, constructors or {}).node(
        state, tuple(map(unescaped, name.split("/"))) if name else ()
    )


def host_value(array: Array, kind: str | None) -> Any:
    """Return a stored array as NumPy has it; of the kind ``"scalar"``, its value."""
    native = array.view(element_type(array.dtype).native)  # bfloat16 is passed as bits
    return native[()] if kind == "scalar" else native


def check_bits(array: Array, kind: str, where: str, known: Collection[str], framework: str) -> None:
    """Check that an array has the bits of a type of one byte, and that the framework knows that."""
    if kind not in known:
        raise ArgumentError(f"{where} is of type {kind}, which {framework} does not have: {WITHOUT_ADAPTER}")
    if array.dtype != np.uint8:
        raise FormatError(TYPES, where, f"{array.dtype} is noted as {kind}")


def from_outline(
    arrivals: Arrivals, leaf: ArrayLeaf, constructors: Constructors | None = None
) -> tuple[Any, dict[str, Any]]:
    """Return the state of a framework that the leaves of a chain form, before any is decoded.

    With keys, it is a dict by name. Also what `leaf` has made, by the first name of its array.
    """
    made: dict[str, Any] = {}

    def noted(array: Array, kind: str | None, name: str) -> Any:
        return made.setdefault(name, leaf(array, kind, name))

    state, metadata = arrivals.outline(), arrivals.metadata
    if arrivals.whole:
        return from_plain(state, metadata, "", noted, constructors), made
    leaves = {name: from_plain(child, metadata, name, noted, constructors) for name, child in state.items()}
    return leaves, made


class _FromPlain:
    def __init__(self, types: Mapping[str, str], leaf: ArrayLeaf, constructors: Constructors) -> None:
        self._made: dict[tuple[int, str | None], Any] = {}
        self._types, self._leaf, self._constructors = types, leaf, constructors

    def node(self, value: Any, keys: Keys) -> Any:
        kind = self._types.get(leaf_name(keys))
        if isinstance(value, dict):
            if not all(isinstance(key, str) for key in value):
                raise _refused(keys, "has keys that are not strings, so it is not from a checkpoint")
            inner = {key: self.node(child, (*keys, key)) for key, child in value.items()}
            # If the root has an empty key, both have the same name, and the note is about the entry
            # below.
            if kind is None or (not keys and "" in inner):
                return inner
            if kind == _INT_KEYS or kind.endswith(OF_INT):
                inner = {_integer(key, leaf_name(keys)): child for key, child in inner.items()}
            return inner if kind == _INT_KEYS else self._value(kind, inner, keys)
        if isinstance(value, list | tuple):
            items = type(value)(self.node(child, (*keys, str(i))) for i, child in enumerate(value))
            return items if kind is None else self._value(kind, items, keys)
        if not isinstance(value, np.ndarray):
            return value if kind is None else self._value(kind, value, keys)
        if (id(value), kind) not in self._made:
            self._made[id(value), kind] = self._leaf(in_host_order(value), kind, leaf_name(keys))
        return self._made[id(value), kind]

    def _value(self, kind: str, stored: Any, keys: Keys) -> Any:
        if kind not in self._constructors:
            try:
                return _decoded(kind, stored)
            except (ValueError, TypeError, KeyError, AttributeError, ArithmeticError) as error:
                message = f"is noted as {kind} but is not one: {error}"
                raise FormatError(_RULE, leaf_name(keys), message) from error
        try:
            return self._constructors[kind](stored)
        except (ValueError, TypeError, AttributeError, KeyError, RuntimeError) as error:
            raise FormatError(TYPES, leaf_name(keys), f"is noted as {kind} but is not one") from error


def _integer(key: str, name: str) -> int:
    try:
        if len(key) <= _MAX_KEY_DIGITS and str(int(key)) == key:
            return int(key)
    except ValueError:
        pass
    raise FormatError(TYPES, name, f"the key {key!r} is noted as an integer")


def read_types(metadata: Mapping[str, str]) -> Mapping[str, str]:
    """Return the type of each name in the note in the metadata of a checkpoint."""
    if not isinstance(metadata, Mapping):
        raise ArgumentError(f"metadata must be a dict of strings; got a {type(metadata).__name__}")
    text = metadata.get(TYPES, "{}")
    return _parse(text if isinstance(text, str) else "")


def names_by_type(types: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    """Return the names of each type, from pairs of a name and its type; the note has this form."""
    names: dict[str, list[str]] = {}
    for name, kind in types:
        names.setdefault(kind, []).append(name)
    return names


def with_types(metadata: Mapping[str, str], types: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """Return metadata with a note of the names of each type, or without it if there are none."""
    kept = {key: text for key, text in metadata.items() if key != TYPES}
    return {**kept, TYPES: json.dumps(types, separators=(",", ":"))} if types else kept


@functools.lru_cache(maxsize=8)
def _parse(text: str) -> Mapping[str, str]:
    """Return the type of each name in a note, which comes from a file and is not trusted."""
    try:
        note = json.loads(text)
        names = {name: kind for kind, group in note.items() for name in group}
        if all(type(group) is list for group in note.values()) and all(type(name) is str for name in names):
            return names
    except (ValueError, TypeError, AttributeError, RecursionError):
        pass
    raise FormatError(TYPES, "metadata", "not a JSON object of lists of names")


def make_up(shape: Sequence[int], shards: Iterable[tuple[Sequence[int], Sequence[int]]]) -> bool:
    """Return whether shards (offsets, sizes) make up an array of this shape.

    They lie inside it, apart, and add up: so no memory is taken without stored bytes for it.
    """
    starts, volume = [], 0
    for offsets, sizes in shards:
        if not len(offsets) == len(sizes) == len(shape):
            return False
        bounds = zip(offsets, sizes, shape, strict=True)
        if not all(start >= 0 and size >= 0 and start + size <= end for start, size, end in bounds):
            return False
        starts.append(tuple(offsets))
        volume += math.prod(sizes)
    return len(set(starts)) == len(starts) and volume == math.prod(shape)


class _Node(dict[Any, Any]):
    """A container that is being made; no leaf is one."""


def nested(leaves: Iterable[tuple[Sequence[str | int], Any]], rule: str, where: str) -> dict[Any, Any]:
    """Return leaves by their paths, of strings and integers, in a dict of dicts and lists."""
    root = _Node()
    for path, leaf in leaves:
        if not 0 < len(path) <= MAX_NESTING or {*map(type, path)} - {str, int}:
            raise FormatError(rule, where, f"the path {path!r:.100} is not one")
        node, words = root, repr("/".join(map(str, path)))
        for key in path[:-1]:
            node = node.setdefault(key, _Node())
            if not isinstance(node, _Node):
                raise FormatError(rule, where, f"{words} lies below another value")
        if path[-1] in node:
            raise FormatError(rule, where, f"two values lie at {words}")
        node[path[-1]] = leaf
    return {key: _made(value) for key, value in root.items()}


def _made(value: Any) -> Any:
    return listed({key: _made(child) for key, child in value.items()}) if isinstance(value, _Node) else value


def listed(made: dict[Any, Any]) -> Any:
    """Return a dict as a list if its keys are the indices of one, and it is not empty."""
    return [made[i] for i in range(len(made))] if made and made.keys() == set(range(len(made))) else made
