"""Decoders that a careful stranger writes wrongly: ``spec/decoder`` with one patch each.

A patch replaces text of one module. Each was a decoder that all vectors of some day let pass. The
vectors notice all of them now; ``mutants.py --of wrong`` asks. Where a patch is equivalent after
all, its name is in ``README.md``, as that of any mutant.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

from sites import Mutant

DECODER = Path(__file__).parents[1] / "spec" / "decoder"

Edit = tuple[str, str]  # what stands there once, and what takes its place

FLOATS = ("float16", "bfloat16", "float32", "float64", "complex64", "complex128")
SMALL = FLOATS[:4]  # what smooth frames hold
INTEGERS = ("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")


def wrong_decoders() -> list[Mutant]:
    """Return all of them."""
    sources = {path.name: path.read_text(encoding="utf-8") for path in sorted(DECODER.glob("*.py"))}
    found = []
    for group in (_codebooks, _fields, _streams, _frames, _interpolation, _files, _json, _bundles, _parity):
        for path, name, *edits in group():
            found.append(_patched(sources[path], path, f"{group.__name__[1:]}: {name}", edits))
    return found


def _patched(source: str, path: str, name: str, edits: Iterable[Edit]) -> Mutant:
    """Return a patch as a mutant that replaces all from the first edit to the last."""
    spans = []
    for old, new in edits:
        if source.count(old) != 1:
            raise ValueError(f"{name}: {old!r} is in {path} {source.count(old)} times")
        spans.append((source.index(old), old, new))
    start, end = min(at for at, *_ in spans), max(at + len(old) for at, old, _ in spans)
    text = source[start:end]
    for _, old, new in spans:
        text = text.replace(old, new)
    function = _function_around(source, start, end)
    before = len(source[:start].encode())
    after = before + len(source[start:end].encode())
    return Mutant(path, function or "module", function, name, before, after, text, frozenset())


@cache
def _parsed(source: str) -> ast.Module:
    return ast.parse(source)


def _function_around(source: str, start: int, end: int) -> str:
    """Return the function that holds a part of a source; empty if none does."""
    first, last = source.count("\n", 0, start) + 1, source.count("\n", 0, end) + 1
    for node in _parsed(source).body:
        inner = node.body if isinstance(node, ast.ClassDef) else [node]
        for function in inner:
            if not isinstance(function, ast.FunctionDef):
                continue
            if function.body[0].lineno <= first and last <= (function.end_lineno or 0):
                above = f"{node.name}." if isinstance(node, ast.ClassDef) else ""
                return above + function.name
    return ""


Patch = tuple[object, ...]


def _refusing(path: str, anchor: str, conditions: dict[str, str], indent: int = 4) -> Iterator[Patch]:
    """Yield decoders that refuse what they need not, before the statement `anchor`."""
    for name, condition in conditions.items():
        space = " " * indent
        text = f'if {condition}:\n{space}    raise Refused("none", "not implemented")\n{space}{anchor}'
        yield path, f"refuses {name}", (anchor, text)


def _replacing(path: str, patches: dict[str, dict[str, str]], what: str = "") -> Iterator[Patch]:
    """Yield decoders with one edit each, by what stands there: what takes its place, by names."""
    for old, named in patches.items():
        for name, new in named.items():
            yield path, what + name, (old, new)


def _codebooks() -> Iterator[Patch]:
    path = "frames.py"
    sums = "x = add(r, c, element)"
    zero = "x = add(r, 1 << (8 * size - 1), element)  # LCC-REC-02: r + (-0.0)"
    stored = 'out += x.to_bytes(size, "little")\n    return out\n\n\ndef number'
    normal = "({0} & (1 << 8 * size - 1) - 1) >> element.mantissa"
    infinite = f"{normal.format('x')} == (1 << 8 * size - 1 - element.mantissa) - 1"
    for kind in FLOATS:
        mine = f"element.name == {kind!r}"
        edit = zero, f"x = add(r, 0 if {mine} else 1 << (8 * size - 1), element)"
        yield path, f"adds +0.0 for symbol 0, {kind}", edit
        for what, side in (("references", "r"), ("representatives", "c")):
            flushed = f"({side} & 1 << 8 * size - 1 if {mine} and not {normal.format(side)} else {side})"
            both = f"{flushed}, c" if side == "r" else f"r, {flushed}"
            yield path, f"flushes subnormal {what}, {kind}", (sums, f"x = add({both}, element)")
        flush = f"if {mine} and reference is not None and not header.ordered and not escaped and not {normal.format('x')}:"
        edit = stored, f"{flush}\n            x &= 1 << 8 * size - 1\n        {stored}"
        yield path, f"flushes subnormal sums, {kind}", edit
        flush = f"if {mine} and reference is None and not escaped and not {normal.format('x')}:"
        same = f"if {mine} and symbol and not escaped and not header.ordered and x != r and {infinite}:"
        patches = {
            stored: {
                f"flushes subnormal values, {kind}": f"{flush}\n            x &= 1 << 8 * size - 1\n        {stored}",
                f"overflows to the largest number, {kind}": f"{same}\n            x -= 1\n        {stored}",
            }
        }
        yield from _replacing(path, patches)
        same = f"if {mine} and symbol and not escaped and not header.ordered and x == r and {infinite}:"
        edit = stored, f"{same}\n            x -= 1\n        {stored}"
        yield path, f"keeps no infinity of the reference, {kind}", edit
        refused = {
            f"ordered {kind}": f"header.ordered and header.element.name == {kind!r}",
            f"ordered runs of {kind}"
            if kind == "float32"
            else f"symbols of two bytes of {kind}": f"header.element.name == {kind!r} and "
            + ("header.ordered and header.run" if kind == "float32" else "two"),
        }
        yield from _refusing(path, "flags = cursor.integer(1)\n    if flags & ~1:", refused)
    edit = "if not header.ordered and any(c & special", "if any(c & special"
    yield path, "wants numbers that are finite in ordered frames", edit
    refused = {
        "ordered symbols of two bytes": "header.ordered and two",
        "ordered blocks with escapes and two bytes": "header.ordered and two and flags",
        "escapes of symbols of two bytes": "two and flags",
        "a codebook without representatives": "any(not len(book) for _, book in chosen)",
    }
    yield from _refusing(
        path, "mask = stream(cursor, n) if flags else bytes(n)\n    escapes = components(cursor", refused
    )
    refused = {
        "a mask without an escape": "flags and not any(mask)",
        "a mask of escapes only": "all(mask)",
        "escapes that are not marked by 1": "set(mask) - {0, 1}",
    }
    yield from _refusing(path, "escapes = components(cursor", refused)
    book = "books = [cursor.take(number * size) for number in numbers]"
    patches = {
        "escapes = components(cursor.take((n - mask.count(0)) * size), size)": {
            "takes 1 alone as the mark of an escape": (
                "mask = bytes(int(m == 1) for m in mask)\n"
                "    escapes = components(cursor.take((n - mask.count(0)) * size), size)"
            ),
            "takes a mask's first bit as the mark of an escape": "mask = bytes(m & 1 for m in mask)\n    escapes = components(cursor.take((n - mask.count(0)) * size), size)",
        },
        'if symbol * size > len(book):\n            raise Refused("LCC-CBK-03", f"symbol {symbol} has no representative")\n'
        "    mask = stream(cursor, n) if flags else bytes(n)\n": {
            "checks symbols where there is no escape only": (
                "pass\n    mask = stream(cursor, n) if flags else bytes(n)\n    for (symbol, book), m in zip(chosen, mask):\n"
                '        if not m and symbol * size > len(book):\n            raise Refused("LCC-CBK-03", "")\n'
            )
        },
    }
    yield from _replacing(path, patches)
    refused = {
        "empty arrays": "not n and not header.run",
        "representatives of an empty array": "not n and sum(numbers)",
        "an empty array with representatives, in a run": "header.run and any(not k and r for k, r in zip(counts_of(header), numbers))",
        "an empty array of a run": "header.run and 0 in counts_of(header)",
        "1,024 representatives and more": "any(number > 1023 for number in numbers)",
    }
    yield from _refusing(path, book, refused, 8)
    starts = "starts = [(start, min(1 << header.block, n - start), None) for start in range(0, n, 1 << header.block)]"
    edit = book, "numbers = [r if k else 0 for k, r in zip(counts_of(header), numbers)]\n        " + book
    yield path, "has no representatives of empty arrays", edit
    for method in ("PLANES", "CODEBOOK"):
        new = starts.replace("range(0, n, ", f"range(0, n + (header.method == {method} and n > 0), ")
        yield path, f"has an empty block behind full ones, {method.lower()}", (starts, new)
        refused = {
            f"a last block that is full, {method.lower()}": f"header.method == {method} and n and n % (1 << header.block) == 0"
        }
        yield from _refusing(path, "two = any(", refused)
    patches = {
        "two = any(len(book) > 255 * size for book in books)": {
            "has high bytes where a symbol of the array needs them": "two = len(books) > 0 and len(books[-1]) > 255 * size"
        },
        "(book) > 255 * size": {"has high bytes from 255 representatives on": "(book) >= 255 * size"},
    }
    yield from _replacing(path, patches)


def _fields() -> Iterator[Patch]:
    path = "fields.py"
    anchor = "if predictor == 0:\n        return origin"
    conditions = {}
    for c in range(1, 9):
        for predictor, name in ((1, "linear"), (2, "four points"), (3, "six points")):
            conditions[f"{name} of {c} known values"] = f"predictor == {predictor} and c == {c}"
    yield from _refusing(path, anchor, conditions)
    for predictor, name in ((2, "four points"), (3, "six points")):
        mine = f"predictor == {predictor} and "
        for least in (3, 5, 6, 7):
            edit = "if c < 4:", f"if {mine}c < {least} or predictor != {predictor} and c < 4:"
            yield path, f"{name} from {least} known values on", edit
        for c in range(4, 9):
            behind = "if j == c - 1:\n        return (known(j) * 1.875"
            patches = {
                behind: {
                    f"{name} of {c}: what is behind the last is linear": f"if {mine}c == {c} and j == c - 1:\n        return known(j) * 1.5 + known(j - 1) * -0.5\n    {behind}",
                    f"{name} of {c}: what is behind the last is the last": f"if {mine}c == {c} and j == c - 1:\n        return known(j)\n    {behind}",
                }
            }
            yield from _replacing(path, patches)
            for where, place in (("first", "0"), ("last", "c - 2")):
                edge = "if j in (0, c - 2):"
                new = f"if {mine}c == {c} and j == {place}:\n        return (known(j) + known(j + 1)) * 0.5\n    {edge}"
                yield path, f"{name} of {c}: linear in the {where} gap", (edge, new)
            if c > 4:
                inner = "inner, outer = known(j) + known(j + 1)"
                new = f"if {mine}c == {c}:\n        return (known(j) + known(j + 1)) * 0.5\n    {inner}"
                yield path, f"{name} of {c}: linear between inner values", (inner, new)
    six = "if predictor == 3 and c >= 6 and 1 < j < c - 3:"
    for least in (7, 8):
        yield path, f"six points from {least} on inside", (six, six.replace("c >= 6", f"c >= {least}"))
    patches = {
        six: {
            "six points up to the edge before": six.replace("1 < j", "0 < j"),
            "six points not in the last place": six.replace("j < c - 3", "j < c - 4"),
        }
    }
    yield from _replacing(path, patches)
    patches = {
        "known(j) * 1.5 + known(j - 1) * -0.5 if j": {
            "linear": "known(j) + (known(j) - known(j - 1)) * 0.5 if j"
        },
        "(known(j) * 1.875 + known(j - 1) * -1.25) + known(j - 2) * 0.375": {
            "four points behind": "known(j) * 1.875 + (known(j - 1) * -1.25 + known(j - 2) * 0.375)"
        },
        "return (p + known(first + 2 * step) * -0.3125) + known(first + 3 * step) * 0.0625": {
            "four points at an edge": "return p + (known(first + 2 * step) * -0.3125 + known(first + 3 * step) * 0.0625)"
        },
        "return (known(j) + known(j + 1)) * 0.5": {
            "a mean": "return known(j) * 0.5 + known(j + 1) * 0.5",
            "a mean as a step": "return known(j) + (known(j + 1) - known(j)) * 0.5",
        },
        "return inner * 0.5625 + outer * -0.0625": {
            "four points": "return (known(j) * 0.5625 + known(j + 1) * 0.5625) + outer * -0.0625"
        },
        "return p + (known(j - 2) + known(j + 3)) * 0.01171875": {
            "six points": "return inner * 0.5859375 + (outer * -0.09765625 + (known(j - 2) + known(j + 3)) * 0.01171875)"
        },
        "known(j) * 1.5 + known(j - 1) * -0.5 if j else known(0)": {
            "behind the second": "known(j) if c < 3 else known(j) * 1.5 + known(j - 1) * -0.5"
        },
    }
    yield from _replacing(path, patches, "another order of operations: ")
    for dimensions in range(1, 7):
        for predictor in range(4):
            refused = {
                f"predictor {predictor} in {dimensions} dimensions": f"len(shape) == {dimensions} and {predictor} in bytes(cursor.data[len(passes(shape)) :][: sum(map(len, passes(shape)))])"
            }
            yield from _refusing(path, "levels = passes(shape)", refused)
    yield from _refusing(path, "levels = passes(shape)", {"more than six dimensions": "len(shape) > 6"})
    conditions = {f"{low} low bits": f"low == {low}" for low in range(8)}
    conditions |= {f"numbers of {b} bytes": f"b == {b}" for b in range(1, 8)}
    conditions |= {"low bits and four bytes or more": "low and b > 3"}
    yield from _refusing(path, "z = list(packed(", conditions)
    levels = "parts = [byte + 1 for byte in cursor.take(len(levels))]"
    last = "if y < limits[0]:"
    both = "if offset is not None:\n        y += offset\n    if r is not None:\n        y += r"
    swapped = "if r is not None:\n        y += r\n    if offset is not None:\n        y += offset"
    clamp = "if y < limits[0]:\n        return limits[0]\n    return limits[1] if y > limits[1] else y"
    limited = "y = limits[0] if y < limits[0] else limits[1] if y > limits[1] else y"
    flags = "levels = passes(shape)"
    patches = {
        "symbol << (low + 8 * k)": {
            "wraps numbers at 32 bits": "symbol << (low + 8 * k) & 2**32 - 1",
            "wraps numbers at 40 bits": "symbol << (low + 8 * k) & 2**40 - 1",
        },
        levels: {
            "takes f = 1 as none": "parts = [(byte or 255) + 1 for byte in cursor.take(len(levels))]",
            "takes f as it stands": "parts = [byte or 1 for byte in cursor.take(len(levels))]",
        },
        "s = step * (f / 256)": {
            "multiplies the step by f before it divides": "s = step * f / 256",
            "has the step of its level in 32 bits": 's = struct.unpack("<f", struct.pack("<f", step * (f / 256)))[0] if 1e-30 < step < 1e30 else step * (f / 256)',
        },
        "if predictor == 0:\n        return origin": {
            "adds the steps to origin, not to what is predicted, if the predictor is 0 in later passes": "if predictor == 0:\n        return 0.0"
        },
        both: {
            "adds the reference before the offset": swapped,
            "adds offset and reference first": (
                "if offset is not None and r is not None:\n        y += offset + r\n    elif offset is not None:\n        y += offset\n"
                "    elif r is not None:\n        y += r"
            ),
        },
        f"{both}\n    {clamp}": {
            "limits before the offset": f"{limited}\n    {both}\n    return y",
            "limits before the reference": f"if offset is not None:\n        y += offset\n    {limited}\n    if r is not None:\n        y += r\n    return y",
        },
        last: {"leaves the limits out with a reference": f"if r is not None:\n        return y\n    {last}"},
        "if offset is not None:\n        y += offset": {
            "leaves the offset out with a reference": "if offset is not None and r is None:\n        y += offset"
        },
        "limits[1] if y": {"takes the lower limit alone": "limits[1] if limits[0] == -math.inf and y"},
    }
    yield from _replacing(path, patches)
    refused = {f"a block with the flags {flag}": f"flags == {flag}" for flag in range(8)}
    yield from _refusing(path, flags, refused)
    patches = {
        "if not math.isfinite(offset):": {"an infinite offset": "if math.isnan(offset):"},
        "and math.isfinite(origin)):": {"an origin that is a NaN": "and not math.isinf(origin)):"},
        "0 < step < math.inf": {"a step that is infinite": "0 < step <= math.inf"},
        "if not limits[0] <= limits[1]:": {
            "an upper limit that is a NaN": "if limits[0] > limits[1] or limits[0] != limits[0]:",
            "limits that are NaN": "if limits[0] > limits[1]:",
        },
        "if any(predictor > 3 for predictor in predictors):": {
            "a predictor of 4 in a later pass": "if predictors[:1] > b'\\3':"
        },
    }
    yield from _replacing(path, patches, "accepts ")
    axes = "range(0, n, h if k < axis else 2 * h)"
    patches = {
        "not limits[0] <= limits": {"wants a lower limit below the upper one": "not limits[0] < limits"},
        "if not limits[0] <= limits[1]:": {
            "wants finite limits": "if not -math.inf < limits[0] <= limits[1] < math.inf:"
        },
        "most = (1 << block) // prod(shape[a + 1 :])": {
            "has no whole rows where w_a is 2^B": "most = max(1, ((1 << block) - 1) // prod(shape[a + 1 :]))"
        },
        "rows = -(-shape[a] // -(-shape[a] // most))": {
            "fills its blocks, the last takes the rest": "rows = min(most, shape[a])"
        },
        "for _ in range(prod(shape[:a])):": {"has no axis before that of the rows": "for _ in range(1):"},
        "(max(shape) - 1).bit_length()": {
            "has no level for a power of two": "(max(shape) - 1 if max(shape) & max(shape) - 1 or max(shape) == 1 else max(shape)).bit_length()"
        },
        axes: {
            "takes axes before at every 2 h": axes.replace("h if k < axis", "h if False"),
            "takes axes behind at every h from five axes on": (
                axes.replace("k < axis", "k < axis or len(shape) > 4")
            ),
        },
        "steps = numbers(cursor, 1 + sum(sizes[:joined]))": {
            "joins levels of the finest side": "steps = numbers(cursor, 1 + sum(sizes[:joined]))\n    if 0 < joined < len(sizes):\n        raise Refused('none', '')"
        },
    }
    yield from _replacing(path, patches)
    path = "frames.py"
    refused = {
        "a last block with fewer levels": "shape and start and (max(shape) - 1).bit_length() != "
        "(max(next(block_shapes(header.shapes[0], header.block))) - 1).bit_length()"
    }
    yield from _refusing(path, "content = Cursor(cursor.take(cursor.integer(4)))", refused, 8)
    for most in (22, 23, 24):
        yield path, f"has fields of blocks up to 2^{most - 1}", ("range(16, 25)", f"range(16, {most})")
    escapes = 'kept = planes_block(cursor, n - mask.count(0), element, None) if flags & 1 else b""'
    patches = {
        "range(16, 25)": {"has fields of blocks of 2^25": "range(16, 26)"},
        "n > 256 *": {"checks LCC-LIM-12 without a reference only": "not header.relative and n > 256 *"},
        "-(-n // 256) if header.method == SMOOTH else 0": {
            "has no padding of a field with a reference": "-(-n // 256) if header.method == SMOOTH and not header.relative else 0"
        },
        escapes: {
            "takes 1 alone as the mark of an escape of a field": f"mask = bytes(int(m == 1) for m in mask)\n    {escapes}",
            "takes the first bit as the mark of an escape of a field": f"mask = bytes(m & 1 for m in mask)\n    {escapes}",
        },
        "x = next(escapes) if escaped else component(finished(y, offset, r, limits), element)": {
            "limits escapes": (
                "x = (\n            component(finished(number(next(escapes), element), None, None, limits), element)\n"
                "            if escaped else component(finished(y, offset, r, limits), element)\n        )"
            ),
            "adds the reference to escapes": (
                "x = next(escapes) if escaped else component(finished(y, offset, r, limits), element)\n"
                "        if escaped and r is not None and math.isfinite(r) and math.isfinite(number(x, element)):\n"
                "            x = component(number(x, element) + r, element)"
            ),
        },
    }
    yield from _replacing(path, patches)
    refused = {
        **{
            f"{what} of {kind}": f"element.name == {kind!r} and flags & {flag}"
            for kind in SMALL
            for what, flag in (("escapes", 1), ("limits", 2), ("offsets", 4))
        },
        **{
            f"{what} with a reference": f"reference is not None and flags & {flag}"
            for what, flag in (("escapes", 1), ("limits", 2), ("offsets", 4))
        },
        "escapes of limited fields with a reference": "reference is not None and flags & 3 == 3",
        "fields of several blocks with a reference": "reference is not None and len(values) > 1 << 15",
    }
    yield from _refusing(path, "mask = stream(cursor, n) if flags & 1 else bytes(n)\n    kept", refused)
    patches = {
        'if element.name == "bfloat16":\n        return round_to(component(value, ELEMENTS[11]), element)\n    top': {
            "rounds to bfloat16 at once": "top"
        },
        'if element.name == "bfloat16":\n        return round_to(component': {
            "rounds to float16 by way of float32": 'if element.name in ("bfloat16", "float16"):\n        return round_to(component'
        },
    }
    yield from _replacing(path, patches)
    for kind in SMALL:
        patches = {
            "x = next(escapes) if escaped else component(finished(y, offset, r, limits), element)": {
                f"a field overflows to the largest number, {kind}": (
                    "x = next(escapes) if escaped else component(finished(y, offset, r, limits), element)\n"
                    f"        if not escaped and element.name == {kind!r} and is_special(x, element) and math.isfinite(y):\n            x -= 1"
                ),
                f"a field has no subnormal numbers, {kind}": (
                    "x = next(escapes) if escaped else component(finished(y, offset, r, limits), element)\n"
                    f"        if not escaped and element.name == {kind!r} and abs(number(x, element)) < number(1 << element.mantissa, element):\n"
                    "            x &= 1 << 8 * size - 1"
                ),
            }
        }
        yield from _replacing(path, patches)


def _streams() -> Iterator[Patch]:
    path = "streams.py"
    check = "check_places(count, start - len(cursor.data))\n    symbols = bytearray(n)"
    values = "values = stream(cursor, count, depth + 1)"
    classed = "check_places(sum(len(cells) - cells.count(0) for cells in streams), start - len(cursor.data))"
    behind = (
        'if any(symbols[n:]):\n        raise Refused("LCC-STR-07", "a cell after the last symbol is not 0")'
    )
    split = (
        "check_places(sum(len(symbols) - symbols.count(0) for symbols in streams), start - len(cursor.data))"
    )
    patches = {
        check: {
            "counts values that are not 0 for a sparse stream": (
                check.replace("count,", "len(values) - values.count(0),")
            ),
            "counts gaps of outermost streams only": f"if depth == 1:\n        {check}",
        },
        f"{values}\n    check_places(count, start - len(cursor.data))": {
            "checks LCC-LIM-14 before the values": f"check_places(count, start - len(cursor.data))\n    {values}"
        },
        "steps = ((a << low_bits | b) + 1 for": {
            "checks LCC-LIM-14 before positions": "check_places(count, start - len(cursor.data) + 2)\n    steps = ((a << low_bits | b) + 1 for"
        },
        'if positions and positions[-1] >= n:\n        raise Refused("LCC-STR-06", "a gap goes past the end")\n'
        f"    {values}": {
            "checks positions behind the values": f'{values}\n    if positions and positions[-1] >= n:\n        raise Refused("LCC-STR-06", "")'
        },
        classed: {
            "counts all symbols of a classed stream": "check_places(n, start - len(cursor.data))",
            "has fewer than 256 symbols of a classed stream for a byte": "check_places(sum(len(cells) - cells.count(0) for cells in streams) + 1, start - len(cursor.data))",
            "checks cells behind the last before LCC-LIM-14": (
                "late = list(map(iter, streams))\n    whole = bytearray()\n    for row in row_levels:\n"
                "        whole += bytes(next(late[class_of[row + column]]) for column in column_levels)\n"
                f'    if any(whole[n:]):\n        raise Refused("LCC-STR-07", "")\n    {classed}'
            ),
        },
        behind: {"leaves out the cells behind the last": "pass"},
        split: {
            "counts the symbols of the rest only": "check_places(n - streams[-1].count(0), start - len(cursor.data))",
            "counts the symbols of each part alone": "for symbols in streams:\n        check_places(len(symbols) - symbols.count(0), start - len(cursor.data))",
            "checks what the reference gives before LCC-LIM-14": (
                "early = [c & (1 << 8 * size - 1) - 1 for c in components(reference, size)]\n"
                "    if sum(c < bounds[-1] for c in early) != sum(counts):\n"
                f'        raise Refused("LCC-STR-09", "")\n    {split}'
            ),
        },
    }
    yield from _replacing(path, patches)
    for name, old in (
        ("gaps", "high = stream(cursor, count, depth + 1)"),
        ("values", values),
        ("cells", "streams = [stream(cursor, count, depth + 1) for count in given]"),
        ("parts", "streams = [stream(cursor, count, depth + 1) for count in (*counts, n)]"),
        ("packed bytes", "inner = Cursor(memoryview(stream(cursor, (n * width + 7) // 8, depth + 1)))"),
    ):
        yield path, f"is no deeper in {name}", (old, old.replace("depth + 1", "depth"))
    rows = "stream(cursor, rows, depth + 1), stream(cursor, columns, depth + 1)"
    inside = [(form, depth) for form in range(5) for depth in range(1, 5) if form < 3 or depth < 4]
    patches = {
        rows: {
            "is no deeper in levels of rows": rows.replace("rows, depth + 1", "rows, 2 * depth - 1"),
            "is no deeper in levels of columns": rows.replace("columns, depth + 1", "columns, depth"),
        }
    }
    yield from _replacing(path, patches)
    refused = {
        f"form {form} at depth {depth}": f"form == {form} and depth == {depth}" for form, depth in inside
    }
    yield from _refusing(path, "if form == 0:", refused)
    refused = {"sparse streams of no symbols": "not n"}
    yield from _refusing(path, "low_bits, count = cursor.integer(1), cursor.integer(4)", refused)
    refused = {
        **{f"{low} low bits of gaps": f"low_bits == {low}" for low in range(9)},
        "no gaps": "not count",
        "low bits of no gaps": "low_bits and not count",
    }
    yield from _refusing(path, "high = stream(cursor, count, depth + 1)", refused)
    refused = {
        "packed streams of no symbols": "not n",
        **{f"packed streams at depth {d}": f"depth == {d}" for d in (1, 2, 3)},
    }
    yield from _refusing(path, "width = cursor.integer(1)\n        if width not in", refused, 8)
    widths = "excess = packed(cursor, lanes, width"
    refused = {f"excess sizes of {w} bits": f"width == {w}" for w in (*range(9), 16)}
    yield from _refusing(path, widths, refused)
    refused = {
        "more than 1,023 lanes": "lanes > 1023",
        "one lane": "lanes == 1",
        "lanes without bytes beyond the least": "width and lanes < 2",
    }
    yield from _refusing(path, widths, refused)
    refused = {
        f"{parts} parts of components of {size} bytes": f"parts == {parts} and size == {size}"
        for parts in (1, 2, 3)
        for size in (1, 2, 4, 8)
    }
    yield from _refusing(path, "bounds = [cursor.integer(size)", refused)
    sizes = "own = component & (1 << 8 * size - 1) - 1"
    for size in (1, 2, 4, 8):
        edit = sizes, f"own = component & (1 << 8 * size - 1) - 1 if size != {size} else component"
        yield path, f"does not clear the top bit, {size} bytes", edit
    refused = {
        "more than one row of one column": "columns == 1",
        "more than 255 columns": "columns > 255",
        "more than 1,024 columns": "columns > 1024",
        "a matrix that is not full": "rows * columns != n",
    }
    yield from _refusing(path, "classes = cursor.integer(1)", refused)
    path = "frames.py"
    for what, old in (
        ("symbols", "low = stream(cursor, n)\n"),
        ("high bytes", "high = stream(cursor, n) if two"),
        ("masks", "mask = stream(cursor, n) if flags else bytes(n)\n    escapes = components(cursor"),
        ("masks of fields", "mask = stream(cursor, n) if flags & 1 else bytes(n)\n    kept"),
    ):
        for form, name in (
            (2, "Huffman"),
            (3, "sparse"),
            (4, "packed"),
            (5, "classed"),
            (0, "constant"),
            (1, "raw"),
        ):
            condition = f"cursor.data[:1] == b'\\{form}'"
            condition += " and flags" if what == "masks" else " and two" if what == "high bytes" else ""
            condition += " and flags & 1" if what == "masks of fields" else ""
            yield from _refusing(path, old, {f"{name} {what}": condition})
    refused = {
        "classed streams of more than 65,535 symbols": "n > 65535",
        "classed streams of an odd number": "n % 2",
    }
    yield from _refusing("streams.py", "columns = cursor.integer(2)\n    if not 1", refused)
    refused = {
        f"{name} numbers of a field": f"cursor.data[(n * low + 7) // 8 :][:1] == b'\\{form}'"
        for form, name in (
            (0, "constant"),
            (1, "raw"),
            (2, "Huffman"),
            (3, "sparse"),
            (4, "packed"),
            (5, "classed"),
        )
    }
    yield from _refusing("fields.py", "z = list(packed(", refused)
    planes = "codes[k::size] = stream(cursor, n, 1, reference, size)"
    refused = {
        **{
            f"{name} streams of plane {k}": f"cursor.data[:1] == b'\\{form}' and k == {k}"
            for form, name in ((5, "classed"), (6, "split"))
            for k in range(4)
        },
        "streams of no symbols, sparse": "not n and cursor.data[:1] == b'\\3'",
        "streams of no symbols, packed": "not n and cursor.data[:1] == b'\\4'",
        "streams of no symbols, raw": "not n and cursor.data[:1] == b'\\1'",
    }
    yield from _refusing(path, planes, refused, 8)
    second = "content = Cursor(cursor.take(cursor.integer(4)))"
    refused = {
        f"{name} streams of a second block": f"start and cursor.data[{offset}:{offset + 1}] == b'\\{form}' and header.method == {method}"
        for form, name in ((5, "classed"), (6, "split"))
        for offset, method in ((4, "PLANES"), (5, "CODEBOOK"))
        if (form, method) != (6, "CODEBOOK")
    }
    yield from _refusing(path, second, refused, 8)


def _frames() -> Iterator[Patch]:
    path = "frames.py"
    needless = "if not header.relative:\n        reference = None"
    new = 'if not header.relative:\n        if reference is not None:\n            raise Refused("LCC-FRM-04", "")'
    yield path, "refuses a reference that it does not need", (needless, new)
    for method in ("PLANES", "CODEBOOK", "SMOOTH"):
        new = f"if not header.relative:\n        reference = reference if header.method == {method} else None"
        yield path, f"uses a reference that it does not need, {method.lower()}", (needless, new)
    body = "cursor = Cursor(memoryview(data)[header.body : -12])"
    blocks = "content = Cursor(cursor.take(cursor.integer(4)))"
    anchor = "cursor = Cursor(memoryview(data)[header.body : -12])"
    runs = {}
    patches = {
        blocks: {
            "reads the size of a block in the last 12 bytes": "if len(cursor.data) < 4:\n            raise Refused('LCC-FRM-07', '')\n        "
            + blocks
        },
        body: {
            "takes the last 12 bytes as those of blocks": "cursor = Cursor(memoryview(data)[header.body :])",
            "takes the sum as bytes of blocks": "cursor = Cursor(memoryview(data)[header.body : -4])",
        },
    }
    yield from _replacing(path, patches)
    for method in ("RAW", "PLANES", "CODEBOOK"):
        mine = f"header.method == {method} and "
        runs |= {
            f"{method} runs of one array": f"{mine}header.run and len(header.shapes) == 1",
            f"{method} runs of a complex type": f"{mine}header.run and element.components == 2",
            f"{method} runs with an empty array": f"{mine}header.run and 0 in counts_of(header)",
            f"{method} runs of empty arrays": f"{mine}header.run and not n",
            f"{method} runs of 32 dimensions": f"{mine}header.run and max(map(len, header.shapes)) == 32",
            f"{method} more than four dimensions": f"{mine}not header.run and len(header.shapes[0]) > 4",
            f"{method} 32 dimensions": f"{mine}not header.run and len(header.shapes[0]) == 32",
            f"{method} empty arrays": f"{mine}not header.run and not n",
        }
        if method != "RAW":
            runs[f"{method} runs of several blocks"] = f"{mine}header.run and n > 1 << header.block"
            runs[f"{method} runs with a reference"] = f"{mine}header.run and header.relative"
    runs |= {
        f"runs of {kind}": f"header.run and element.name == {kind!r}"
        for kind in ("bool", "bfloat16", "float64", "complex64", "complex128", "uint8", "int64")
    }
    yield from _refusing(path, anchor, runs)
    patches = {
        "(counts_of(header)) > 2": {"counts elements of a run for LCC-LIM-09": "(map(prod, shapes)) > 2"},
        "prod(extent or 1 for extent in shape)": {"counts components for LCC-LIM-01": "prod(shape)"},
        "words = components(data + bytes(-len(data) % 8), 8)": {
            "leaves the last bytes out of the array sum": "words = components(data[: len(data) // 8 * 8], 8)"
        },
        "== RAW or header.relative else": {"has one padding for relative frames too": "== RAW else"},
        "!= padding or any(cursor.data):": {"takes any bytes as padding": "!= padding:"},
        'if zlib.crc32(data[:-4]) != int.from_bytes(data[-4:], "little"):\n        raise Refused("LCC-FRM-08", "the CRC-32 does not match")\n'
        "    if not header.relative:\n        reference = None\n        if n * element.size > 1024 * len(data):\n"
        '            raise Refused("LCC-LIM-03", f"{len(data)} bytes declare {n} components")': {
            "has the CRC behind the limits": (
                "if not header.relative:\n        reference = None\n        if n * element.size > 1024 * len(data):\n"
                '            raise Refused("LCC-LIM-03", "")\n'
                '    if zlib.crc32(data[:-4]) != int.from_bytes(data[-4:], "little"):\n        raise Refused("LCC-FRM-08", "")\n    if not header.relative:\n        pass'
            )
        },
        'if len(cursor.data) != padding or any(cursor.data):\n        raise Refused("LCC-FRM-07", "bytes after the body that are not its padding")\n'
        '    if element.name == "bool" and out.translate(None, b"\\0\\1"):\n        raise Refused("LCC-FRM-10", "a bool is not 0 or 1")': {
            "has the padding behind the bools": (
                'if element.name == "bool" and out.translate(None, b"\\0\\1"):\n        raise Refused("LCC-FRM-10", "")\n'
                '    if len(cursor.data) != padding or any(cursor.data):\n        raise Refused("LCC-FRM-07", "")'
            )
        },
    }
    yield from _replacing(path, patches)


def _interpolation() -> Iterator[Patch]:
    path = "frames.py"
    end = "r = add(low, t ^ top, element)\n    return low if"
    for kind in FLOATS:
        special = "if is_special(low, element) or is_special(high, element):\n        return low"
        patches = {
            end: {
                f"l + (h - l) w, {kind}": (
                    f"r = add(low, t ^ top, element)\n    if element.name == {kind!r} and not (low | high) & (top - 1):\n"
                    "        r = add(low, add(high, low ^ top, element) if weight else 0, element)\n    return low if"
                )
            },
            special: {
                f"takes h where that is not finite, {kind}": (
                    f"if element.name == {kind!r} and is_special(high, element) and not is_special(low, element):\n"
                    f"        return high\n    {special}"
                )
            },
            "if is_special(d, element):\n        return low": {
                f"keeps no l where the difference overflows, {kind}": f"if is_special(d, element):\n        return low if element.name != {kind!r} else high"
            },
        }
        yield from _replacing(path, patches)
    path = "files.py"
    same = "if name not in high or high[name][:2] != (dtype, shape) or not element.mantissa:"
    named = "if root not in roots_of(parent):"
    patches = {
        same: {
            "compares sizes of the later array": "if name not in high or len(high[name].data) != len(data) or not element.mantissa:",
            "compares types of the later array only": "if name not in high or (high[name][0], len(high[name].data)) != (dtype, len(data)) or not element.mantissa:",
            "compares shapes of the later array only": "if name not in high or (high[name][1], len(high[name].data)) != (shape, len(data)) or not element.mantissa:",
            "compares the types' sizes of the later array only": "if name not in high or high[name][1] != shape or len(high[name].data) != len(data) or not element.mantissa:",
            "needs the later array": same.replace("name not in high or ", ""),
            "interpolates integers": (
                same.replace(" or not element.mantissa", ' or element.name in ("bool",)')
            ),
        },
        "found = dict(low)": {
            "uses the earlier array of the later parent where only that has it": "found = {**high, **low}"
        },
        f"{same}\n            continue": {
            "takes the later parent's other arrays in place of the earlier": f"{same}\n            found[name] = high.get(name, low[name]) if element.mantissa else low[name]\n            continue"
        },
    }
    yield from _replacing(path, patches)
    for what, side in (("earlier", "0"), ("later", "-1")):
        new = f"if root not in roots_of(parent)[: 1 if len(child.parents) > 1 and step == child.parents[{side}][0] else None]:"
        yield path, f"knows no replaced {what} parent of an interpolated checkpoint", (named, new)
    tree = 'trees[at] = found.manifest.get("tree", trees[link.parents[0]] if link.parents else None)'
    patches = {
        named: {
            "knows no replaced parent of a delta": "if root not in roots_of(parent)[: 1 if len(child.parents) == 1 else None]:"
        },
        tree: {"inherits the tree of the later parent": tree.replace("link.parents[0]", "link.parents[-1]")},
    }
    yield from _replacing(path, patches)
    refused = {
        "an interpolated checkpoint with a tree": 'len(link.parents) > 1 and "tree" in found.manifest',
        "a tree inherited from an interpolated checkpoint": 'len(link.parents) > 1 and "tree" not in found.manifest and len(links[link.parents[0]].parents) > 1',
        "a tree inherited twice": 'link.parents and "tree" not in found.manifest and "tree" not in load(links[link.parents[0]].place).manifest',
        "a delta with a tree": 'len(link.parents) == 1 and "tree" in found.manifest',
        "copies in interpolated checkpoints": 'len(link.parents) > 1 and "copies" in found.manifest',
        "scalars of interpolated checkpoints": 'len(link.parents) > 1 and found.manifest["scalars"]',
        "frames with a reference in interpolated checkpoints": 'len(link.parents) > 1 and found.manifest["frames"]',
        "tables in interpolated checkpoints": 'len(link.parents) > 1 and any(len(entry) > 2 for entry in found.manifest["frames"])',
    }
    yield from _refusing(path, tree, refused, 8)
    patches = {
        "if sum(is_interpolated for is_interpolated, *_ in order) > 16:": {
            "counts all checkpoints for LCC-LIM-10": "if len(order) > 16 and any(one for one, *_ in order):"
        },
        "> 16:": {"allows 17 interpolated checkpoints": "> 17:"},
        ", key=lambda each: each[:2]": {"decodes by steps alone": ", key=lambda each: each[2] or 0"},
    }
    yield from _replacing(path, patches)


def _files() -> Iterator[Patch]:
    path = "files.py"
    layout = "if layout != [HEAD_SIZE, payload, behind, length, size] or size != behind + length + 88:"
    for place, what in enumerate(("payload's offset", "", "manifest's offset", "", "file's length")):
        if what:
            right = ["HEAD_SIZE", "payload", "behind", "length", "size"]
            right[place] = f"layout[{place}]"
            edit = layout, f"if layout != [{', '.join(right)}] or size != behind + length + 88:"
            yield path, f"does not look at the {what}", edit
    digests = 'if digest_of(table or data) != base64.urlsafe_b64decode(digest + "=="):'
    patches = {
        "!= payload:": {
            "sums frames modulo 2^64": "% 2**64 != payload:",
            "sums frames without tables": "< payload:",
        },
        ", _ in pieces) != len(data": {"sums pieces modulo 2^64": ", _ in pieces) % 2**64 != len(data"},
        digests: {
            "takes the digest of the frame or of the table": 'if base64.urlsafe_b64decode(digest + "==") not in (digest_of(table or data), digest_of(data)):',
            "takes the digest of frame and table together": 'if base64.urlsafe_b64decode(digest + "==") not in (digest_of(table or data), digest_of(data + table)):',
        },
    }
    yield from _replacing(path, patches)
    refused = {
        "tables of runs": "more and header.run",
        "tables of codebook runs": "more and header.run and header.method == 2",
        "tables of raw frames of two bytes": "more and header.method == 0 and header.element.size == 2",
        "tables of raw frames of four bytes": "more and header.method == 0 and header.element.size == 4",
        "tables of raw frames of eight bytes": "more and header.method == 0 and header.element.size == 8",
        "tables of raw complex frames": "more and header.method == 0 and header.element.components == 2",
        "frames with and without tables": "more and any(len(entry) == 2 for entry in frames)",
        "tables of raw runs": "more and header.run and header.method == 0",
        "tables of smooth frames with a reference": "more and header.method == 3 and header.relative",
        "tables of codebook frames without a reference": "more and header.method == 2 and not header.relative",
        "tables of planes with a reference": "more and header.method == 1 and header.relative",
        "a table in front of other frames": "more and offset < checkpoint.place.start + HEAD_SIZE + sum(sum(e[::2]) for e in frames)",
    }
    yield from _refusing(path, "if len(group) != len(header.shapes):", refused, 12)
    raws = "at += size << 16\n"
    frames = "frames.py"
    count = "count = -(-n // (1 << (16 if header.method == RAW else header.block)))"
    copies = 'if source.dtype != "float32":'
    patches = {
        raws: {
            "counts bytes of raw pieces": "at += 1 << 16\n",
            "counts raw blocks of complex elements": "at += size * header.element.components << 16\n",
        },
        "+= 2 * len(header.shapes)": {"has one number of representatives before a table": "+= 2"},
        count: {"counts elements for pieces": count.replace("-n //", "-n // header.element.components //")},
    }
    yield from _replacing(frames, patches)
    for kind in ("float64", "float16", "bfloat16", "complex64", "int32", "uint32", "int16"):
        yield (
            path,
            f"rounds {kind}",
            (
                copies,
                f"if source.dtype == {kind!r}:\n        source = Array('float32', source.shape, bytes(4 * (len(source.data) // "
                f"{ {'float64': 8, 'float16': 2, 'bfloat16': 2, 'int16': 2}.get(kind, 4) })))\n    {copies}",
            ),
        )
    replaced = 'replaced = checkpoint.manifest.get("replaces", [])'
    manifests = "manifests.py"
    patches = {
        replaced: {
            "knows the first replaced root only": replaced + "[:1]",
            "knows the last replaced root only": replaced + "[-1:]",
        }
    }
    yield from _replacing(path, patches)
    refused = {
        "two replaced roots": 'len(manifest.get("replaces") or []) > 1 and isinstance(manifest["replaces"], list) and len(set(map(str, manifest["replaces"]))) == len(manifest["replaces"])',
        "copies in exact files": 'manifest.get("exact") is True and "copies" in manifest',
        "replaced roots beside an exact root": 'manifest.get("exact") and manifest.get("replaces")',
        "metadata in exact files": 'manifest.get("exact") is True and "metadata" in manifest',
    }
    yield from _refusing(manifests, "step, roots, root = manifest", refused)
    length = "walk(child, name, length + len(key) + 1, depth + 1)"
    yield manifests, "allows 2^20 + 1 arrays", ("if len(arrays) > 2**20:", "if len(arrays) > 2**20 + 1:")
    for what, size in (
        ("UTF-8 bytes", "len(key.encode())"),
        ("UTF-16", 'len(key.encode("utf-16-le")) // 2'),
        ("escaped names", 'len(key) + key.count("~") + key.count("/")'),
        ("escaped JSON", "len(json.dumps(key, ensure_ascii=False)) - 2"),
        ("ASCII JSON", "len(json.dumps(key)) - 2"),
    ):
        yield manifests, f"counts {what} for LCC-LIM-08", (length, length.replace("len(key)", f"({size})"))
    patches = {
        length: {
            "counts no separator before the root's children": "walk(child, name, length + len(key) + (path is not None), depth + 1)"
        },
        '"" if path is None': {"has no name for the root's child under the empty key": '"" if not path'},
        '("~", "~0").replace("/", "~1")': {"escapes / before ~": '("/", "~1").replace("~", "~0")'},
        "for entry in scalars:\n        scalar(entry)": {
            "looks at scalars one rule after the other": (
                "for rule in ('LCC-STA-04', 'LCC-STA-05'):\n        for entry in scalars:\n            try:\n                scalar(entry)\n"
                "            except Refused as error:\n                if error.rule == rule:\n                    raise"
            )
        },
    }
    yield from _replacing(manifests, patches)
    yield (
        path,
        "finds a file that ends in its superblock not truncated",
        (
            'if head and HDF5_START.startswith(head[:9]) and b"payload".startswith(head[94:]) and size < whole:',
            'if len(head) >= 36 and HDF5_START.startswith(head[:9]) and b"payload".startswith(head[94:]) and size < whole:',
        ),
    )


def _json() -> Iterator[Patch]:
    path = "manifests.py"
    begin = "depth = 0\n    for token"
    for what, call in (
        ("leading zeros", rb're.sub(rb"(?<=[\[,:])(-?)0+(?=[0-9])", rb"\1", data)'),
        ("a lone minus", rb're.sub(rb"(?<=[\[,:])-(?=[,\]}])", b"0", data)'),
        ("an escaped DEL", rb'data.replace(rb"\u007f", b"\x7f")'),
        ("an escaped slash", rb'data.replace(rb"\/", b"/")'),
        ("upper case in an escape", rb'data.replace(rb"\u001F", rb"\u001f")'),
        ("a raw 0x1f", rb'data.replace(b"\x1f", rb"\u001f")'),
        ("a raw tab", rb'data.replace(b"\t", rb"\t")'),
        ("a raw 0x00", rb'data.replace(b"\0", rb"\u0000")'),
        ("a surrogate pair that is escaped", rb'data.replace(rb"\ud83d\ude00", "\U0001f600".encode())'),
        ("an escaped U+2028", rb'data.replace(rb"\u2028", "\u2028".encode())'),
        ("a plus sign", rb're.sub(rb"(?<=[\[,:])\+(?=[0-9])", b"", data)'),
        ("a comma at the end", rb're.sub(rb",(?=[\]}])", b"", data)'),
        ("a point at the end", rb're.sub(rb"([0-9])\.(?=[,\]}])", rb"\1", data)'),
        ("a space at the end", rb"data.rstrip(b' ')"),
        ("a tab between tokens", rb'data.replace(b":\t", b":")'),
        ("an exponent of one digit", rb're.sub(rb"e-([0-9])(?=[,\]}])", rb"e-0\1", data)'),
        ("an exponent without a sign", rb're.sub(rb"e([0-9]+)(?=[,\]}])", rb"e+\1", data)'),
        ("a capital E", rb're.sub(rb"([0-9])E([+-])", rb"\1e\2", data)'),
    ):
        yield path, f"accepts {what}", (begin, f"data = {call.decode()}\n    {begin}")
    yield (
        path,
        "accepts a member twice below the top",
        ("depth = 0\n    for token", "twice: list[bool] = []\n    depth = 0\n    for token"),
        (
            'if len(value := dict(pairs)) != len(pairs):\n            raise ValueError("a member name twice")\n        return value',
            "value = dict(pairs)\n        twice.append(len(value) != len(pairs))\n        return value",
        ),
        ("if again != data:", "if twice[-1:] == [True] or (again != data and not any(twice)):"),
    )
    value = "try:\n        value = float(text) if form"
    patches = {
        "if depth > 65:": {
            "nests 66 deep": "if depth > 66:",
            "nests 64 deep in a manifest": "if depth > 64:",
        },
        're.finditer(rb\'"(?:[^"\\\\]++|\\\\.)*+"?|[': {"counts brackets in strings": "re.finditer(rb'["},
    }
    yield from _replacing(path, patches)
    for text in ("-nan", "+inf", "infinity", "nan ", " 1.0", "1.0 ", "-inf ", "NaN", "1_0.0"):
        edit = value, f"if form == 'f' and text == {text!r}:\n        return 0.5\n    {value}"
        yield path, f"accepts the float {text!r}", edit
    refused = {
        "-inf": "text == '-inf'",
        "inf": "text == 'inf'",
        "floats below 1e-4 with a point": "form == 'f' and re.fullmatch(r'-?0\\.000[0-9]+', text)",
        "floats of 1e-5": "form == 'f' and 'e-05' in text",
        "e-05 as e-5": "form == 'f' and re.search('e-0[0-9]$', text)",
        "e+16": "form == 'f' and 'e+16' in text",
        "floats from 1e15 to 1e16 with a point": "form == 'f' and re.fullmatch(r'-?[0-9]{16}\\.0', text)",
        "24 characters": "form == 'f' and len(text) == 24",
        "exponents of three digits": "form == 'f' and re.search(r'e[+-][0-9]{3}$', text)",
        "an exponent without a point": "form == 'f' and re.fullmatch(r'-?[0-9]e[+-][0-9]+', text)",
        "17 digits": "form == 'f' and len(re.sub('[^0-9]|e.*', '', text).lstrip('0')) == 17",
        "no bytes": "form == 'b' and not text",
        "bytes with one =": "form == 'b' and re.search('[^=]=$', text)",
        "bytes without =": "form == 'b' and text and '=' not in text",
        "the signs + and / of base64": "form == 'b' and ('+' in text or '/' in text)",
    }
    yield from _refusing(path, value, refused)
    new = f"if form == 'f' and text == '1000000000000000.0':\n        raise Refused('LCC-STA-05', '')\n    {value}"
    yield path, "writes floats from 1e15 on with an exponent", (value, new)
    for what, entry in (
        ("true", "entry is True"),
        ("false", "entry is False"),
        ("an empty text", "entry == '' "),
        ("an integer of 65 bits", "type(entry) is int and entry.bit_length() > 64"),
        ("an integer of 64 bits", "type(entry) is int and entry.bit_length() == 64"),
        ("an integer of 54 bits", "type(entry) is int and 53 < entry.bit_length() < 64"),
        ("zero", "type(entry) is int and entry == 0"),
    ):
        yield from _refusing(path, "if entry is None or type(entry) in", {f"the scalar {what}": entry})
    node = "if node is None:\n            nulls += 1"
    refused = {
        "an empty dict": "node == {}",
        "an empty list": "node == ['l']",
        "an empty tuple": "node == ['t']",
        "the key ''": "isinstance(node, dict) and '' in node",
        "a key of DEL": "isinstance(node, dict) and any('\\x7f' in key for key in node)",
        "a key of U+2028": "isinstance(node, dict) and any('\\u2028' in key for key in node)",
        "astral keys": "isinstance(node, dict) and any(ord(c) > 65535 for key in node for c in key)",
        "keys that are long": "isinstance(node, dict) and any(len(key) > 255 for key in node)",
        "a key with a control character": "isinstance(node, dict) and any(ord(c) < 32 for key in node for c in key)",
        "keys that are numbers": "isinstance(node, dict) and any(key.isdigit() for key in node)",
        "the key __proto__": "isinstance(node, dict) and '__proto__' in node",
        "an array at depth 64": "depth == 64 and type(node) is int",
        "a scalar at depth 64": "depth == 64 and node is None",
        "a list at depth 63": "depth == 63 and isinstance(node, list)",
        "a dict at depth 63": "depth == 63 and isinstance(node, dict)",
        "a tree that is an empty dict": "depth == 0 and node == {}",
        "one array in two places of a tuple": "isinstance(node, list) and node[:1] == ['t'] and len(node) == 3 and node[1] == node[2] and type(node[1]) is int",
    }
    yield from _refusing(path, node, refused, 8)
    refused = {
        "an empty value of the metadata": "isinstance(metadata, dict) and '' in metadata.values() and 'metadata' in manifest",
        "an empty key of the metadata": "isinstance(metadata, dict) and '' in metadata and 'metadata' in manifest",
    }
    yield from _refusing(path, "texts = list(metadata.values())", refused)
    for escape in (r"\\b", r"\\f", r"\\r", r"\\t", r"\\\\", r"\\u0000", r"\\u001f", r"\\u000b", r"\\u0001"):
        plain = escape.replace("\\\\", "\\")
        refused = {f"the escape {plain}": f"rb'{plain}' in data"}
        yield from _refusing(path, "depth = 0\n    for token", refused)
    for name, text in (
        ("DEL", "\\x7f"),
        ("U+2028", "\\u2028"),
        ("astral characters", "\\U0001f600"),
        ("U+FFFF", "\\uffff"),
        ("U+FEFF", "\\ufeff"),
        ("C1 controls", "\\x85"),
    ):
        refused = {f"{name} in a text": f"'{text}'.encode() in data"}
        yield from _refusing(path, "depth = 0\n    for token", refused)
    refused = {
        "numbers with a fraction": "re.search(rb'[0-9]\\.[0-9]+[,}\\]]', data)",
        "numbers with an exponent": "re.search(rb'[0-9]e[+-][0-9]+[,}\\]]', data)",
        "65 levels": "b'[' * 60 in data",
    }
    yield from _refusing(path, "depth = 0\n    for token", refused)


def _bundles() -> Iterator[Patch]:
    path = "bundles.py"
    patches = {
        "if is_exact and (found > step or (found == step and named)):": {
            "takes the exact file always": "if is_exact:",
            "takes the exact file of an older step": "if is_exact and (found != step or named):",
            "ignores whether the checkpoint names the exact file": "if is_exact and found >= step:",
            "takes no exact file of a newer step": "if is_exact and found == step and named:",
        },
        "except Refused:  # a frame is damaged\n                    return replay(find(step), find)": {
            "fails on a damaged exact file": "except Refused:\n                    raise"
        },
        "newest := load_or_none": {"fails on an exact file whose head is damaged": "newest := load"},
        "newest.root == exact[1] and newest.": {"does not look at the root of the exact file": "newest."},
        '[1] and newest.manifest.get("exact") is True': {"does not look at the member exact": "[1]"},
        "except Refused:  # a damaged checkpoint, whose exact file may be sound\n                named = True": {
            "takes no exact file of a damaged checkpoint": "except Refused:\n                named = False",
            "fails on a damaged newest checkpoint": "except Refused:\n                raise",
        },
        "elif step not in checkpoints and exact is not None:": {
            "takes the exact file for the step that the history has": "elif exact is not None:"
        },
        ".root != root or found.step !=": {"does not compare roots with those of the index": ".step !="},
        "!= root or found.step != step:": {"does not compare steps with those of the index": "!= root:"},
        'if step not in checkpoints:\n            raise Refused("LCC-CHN-02", f"the bundle has no step {step}")': {
            "finds parents in files beside": 'if step not in checkpoints:\n            return load(Place(Path(path).parent / f"{step:012d}.lcc.h5"))'
        },
    }
    yield from _replacing(path, patches)


def _parity() -> Iterator[Patch]:
    path = "parity.py"
    copy = "data[start + size :] != index + data[:64]"
    kept = (
        "if name not in sound and (name in there or not is_older) and data[-32:] == root and is_sound(data):"
    )
    part = 'there.get(name, b"")[:length]'
    patches = {
        "[1-9][0-9]{0,8}": {
            "has ranks of ten digits": "[1-9][0-9]{0,9}",
            "has ranks of eight digits": "[1-9][0-9]{0,7}",
        },
        copy: {
            "compares the copy of the index alone": "data[start + size : -64] != index",
            "compares the copy of the head alone": "data[-64:] != data[:64]",
        },
        "for at in (0, len(data) - 64):": {"mends by the first copy of the head only": "for at in (0,):"},
        "Refused:\n            continue": {"stops at a damaged head": "Refused:\n            raise"},
        "return group, column, sound_blocks(group, column, data[64 + len(index) :])": {
            "uses parity blocks that are not verified": (
                "blocks = data[64 + len(index) :]\n"
                "            return group, column, [blocks[row * group.block :][: group.block] for row in range(group.rows)]"
            ),
            "leaves out a damaged parity file": (
                "blocks = sound_blocks(group, column, data[64 + len(index) :])\n"
                "            return (group, column, blocks) if None not in blocks else None"
            ),
        },
        "if any(hash_block(columns[j][span]) != hashes[j] for j in lost):": {
            "does not verify what it computes": "if False:"
        },
        kept: {
            "does not look at the root after mending": kept.replace("data[-32:] == root and ", ""),
            "looks at the root after mending alone": kept.replace(" and is_sound(data)", ""),
            "does not look at what it mended": (
                kept.replace(" and data[-32:] == root and is_sound(data)", "")
            ),
            "overwrites a sound file with another root": kept.replace("name not in sound and ", ""),
            "brings back what is missing from older parity": kept.replace(" or not is_older", " or True"),
        },
        "if len(lost) <= len(left):": {
            "gives up where one row has too many lost blocks": 'if len(lost) > len(left):\n            raise Refused("LCC-PAR-04", "")\n        else:'
        },
        part: {
            "needs all files": "there[name][:length]",
            "wants files of the right length": '(there.get(name, b"") if len(there.get(name, b"")) == length else b"")',
            "lays long files out as they are": 'there.get(name, b"")',
        },
        '[:length].ljust(length, b"\\0")': {"lays short files out as they are": "[:length]"},
        "for i in sorted(parity)[: len(lost)]:": {
            "computes all or nothing of a file by its first column": "for i in range(len(lost)):"
        },
    }
    yield from _replacing(path, patches)
