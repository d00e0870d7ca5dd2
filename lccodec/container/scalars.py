"""What the manifest has as JSON, each value written in only one way: scalars, and texts of bytes.

Plain scalars become the entries of a JSON list (SPEC 5.1, LCC-STA-04 to LCC-STA-06). JSON has a
canonical form (LCC-MAN-01), and so has base64 (LCC-MAN-08). Metadata are strings; their numbers
become texts here too.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
import reprlib
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any, Final, TypeAlias

from ..constants import MAX_INTEGER_DIGITS, MAX_NESTING
from ..errors import ArgumentError, DataError, FormatError, LimitError

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


def with_metrics(
    metadata: Mapping[str, Any] | None, metrics: Mapping[str, Any] | None
) -> Mapping[str, Any] | None:
    """Return metadata with metrics added: numbers, or what has one as its ``item()``.

    Raises ``ArgumentError`` for a metric that is no number, or is named in the metadata too.

    Examples
    --------
    >>> import numpy as np
    >>> with_metrics({"run": "first"}, {"loss": np.float32(0.25)})
    {'run': 'first', 'loss': 0.25}
    """
    if metrics is None:
        return metadata
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
    if _is_too_deep(data):  # the standard library's parser is recursive
        raise LimitError("LCC-LIM-05", where, f"nested deeper than {MAX_NESTING + 1}")

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


def _is_too_deep(data: bytes) -> bool:
    """Return whether JSON nests deeper than LCC-LIM-05 allows, or leaves too many brackets open."""
    brackets = data.translate(_CURLY_TO_SQUARE, delete=_NOT_BRACKETS)
    if len(brackets) <= MAX_NESTING:  # as in most manifests, with those in strings
        return False
    brackets = _JSON_STRING.sub(b"", data).translate(_CURLY_TO_SQUARE, delete=_NOT_BRACKETS)
    deepest = MAX_NESTING + 1
    for _ in range(deepest):  # each round removes the innermost pairs
        if b"[]" not in brackets:
            break
        brackets = brackets.replace(b"[]", b"")
    return b"[]" in brackets or len(brackets) > deepest


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
