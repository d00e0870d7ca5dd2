"""Values of Python and NumPy that a checkpoint does not have, and how they are stored.

A scheduler counts milestones in a `collections.Counter`; hyperparameters hold paths, dates and
enums. The kinds are: the containers of `collections` (deque, Counter, OrderedDict, defaultdict with
a factory of Python), dicts with keys of any kind, sets, ranges, slices, named tuples, both kinds of
namespaces; complex, Decimal, Fraction, UUID, bytearray; paths, dates, times; enums; and NumPy's
dtypes, strings, dates and times.

Each value is stored as scalars, lists and dicts, with its kind in the note of
:mod:`lccodec.adapters.tree.plain` (SPEC 5.3). The list is fixed. No module is imported because a
file names it: an enum is looked up among the enums that the program has defined, and a named tuple
comes back as a new class with the same name and fields.
"""

from __future__ import annotations

import argparse
import collections
import datetime
import decimal
import enum
import fractions
import functools
import pathlib
import re
import types
import uuid
from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np

from ...errors import ArgumentError, FormatError, warn

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


def _list_decoder(make: Callable[..., Any], kinds: tuple[type, ...] = (int,)) -> Decode:
    """Return a decoder that takes lists of values of these types only."""

    def decode(stored: Any) -> Any:
        if type(stored) is not list or not all(type(item) in kinds for item in stored):
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
    """Return the kind of a value and its stored form; None if the value is not on the list.

    An ``ArgumentError`` says that a value on the list cannot be stored in full.
    """
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


def from_stored(kind: str, stored: Any, name: str) -> Any:
    """Return the value of a kind; the stored form if the kind is not on the list."""
    try:
        return _decoded(kind, stored)
    except (ValueError, TypeError, KeyError, AttributeError, ArithmeticError) as error:
        raise FormatError(_RULE, name, f"is noted as {kind} but is not one: {error}") from error


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
