"""Elements as bits, types and numbers, and places in masks: as NumPy has them.

No byte depends on the host's byte order: a check of syntax trees, and of arrays in both orders.

`.ci/big-endian` runs the tests of the format on an emulated big-endian host.
"""

import ast
import itertools
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lccodec
from lccodec import BFLOAT16_BITS, DependencyError
from lccodec.constants import ELEMENT_TYPES
from lccodec.element_types import (
    components,
    from_components,
    in_host_order,
    little_endian,
    narrow,
    read_numbers,
    rounded_copy,
    scattered,
    stored_bytes,
    stored_view,
    stretches,
    subtract,
    widen,
)
from lccodec.frame import content
from lccodec.inspect.difference import summarize
from lccodec.loops.search import bit_places, true_places
from lccodec.quantizers.clusters import Clusters

from .support.folders import PACKAGE, modules
from .support.strategies import ALL_DTYPES, Pair, array_and_reference, bits_of, random_array
from .support.walks import save_all

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)


def test_codes_are_the_positions_in_the_table() -> None:
    assert [kind.code for kind in ELEMENT_TYPES] == list(range(len(ELEMENT_TYPES)))


def test_each_type_has_its_significand() -> None:
    stored = {kind.name: kind.mantissa for kind in ELEMENT_TYPES if kind.is_float}
    assert stored.pop("bfloat16") == 7
    assert stored == {name: np.finfo(name).nmant for name in stored}
    assert len(stored) == 5


@pytest.mark.parametrize("name", ALL_DTYPES)
def test_components_and_back(name: str) -> None:
    array = random_array(name, (3, 4, 5), 1)
    kind, bits = components(array)
    assert kind.name == name
    assert bits.shape == (60 * kind.components,)
    np.testing.assert_array_equal(bits_of(from_components(bits, kind, (3, 4, 5), None)), bits_of(array))


@pytest.mark.parametrize("name", ALL_DTYPES)
def test_layout_and_byte_order_do_not_matter(name: str) -> None:
    array = random_array(name, (4, 6), 2)
    expected = components(array)[1]
    same = [np.asfortranarray(array), np.repeat(array, 2, axis=0)[::2], array[::-1][::-1]]
    if name not in ("bool", "bfloat16", "int8", "uint8"):
        same.append(array.astype(array.dtype.newbyteorder("S")))
    for other in same:
        np.testing.assert_array_equal(components(other)[1], expected)


def test_a_bool_of_any_true_byte_is_one() -> None:
    odd = np.array([0, 1, 2, 255], np.uint8).view(np.bool_)
    assert components(odd)[1].tolist() == [0, 1, 1, 1]


@given(st.lists(st.floats(width=32), max_size=50))
def test_narrow_rounds_as_ml_dtypes_does(values: list[float]) -> None:
    array = np.array(values, np.float32)
    finite = ~np.isnan(array)
    with np.errstate(all="ignore"):
        expected = array.astype(BFLOAT16).view(np.uint16)
    np.testing.assert_array_equal(narrow(array)[finite], expected[finite])
    assert np.isnan(narrow(array)[~finite].view(BFLOAT16).astype(np.float32)).all()


def test_every_bfloat16_survives_widening() -> None:
    every = np.arange(65536, dtype=np.uint16)
    number = ~np.isnan(widen(every))
    np.testing.assert_array_equal(narrow(widen(every))[number], every[number])
    np.testing.assert_array_equal(
        widen(every).view(np.uint32)[number], every.view(BFLOAT16).astype(np.float32).view(np.uint32)[number]
    )


@given(array_and_reference(["bfloat16", "float16"], special=0.0))
def test_differences_are_those_of_the_type(pair: Pair) -> None:
    array, reference = pair
    kind, x = components(array)
    r = None if reference is None else components(reference)[1]
    with np.errstate(all="ignore"):
        expected = array if reference is None else array - reference
    np.testing.assert_array_equal(
        subtract(x, r, kind).astype(np.float64), expected.astype(np.float64).reshape(-1)
    )


def test_bfloat16_without_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    bits = np.array([0x3F80, 0xC000], np.uint16)
    kind, stored = components(bits.view(BFLOAT16_BITS))
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    with pytest.raises(DependencyError, match=r"lccodec\[bfloat16\]"):
        from_components(stored, kind, (2,), None)
    assert from_components(stored, kind, (2,), "float32").tolist() == [1.0, -2.0]
    assert from_components(stored, kind, (2,), "bits").dtype == BFLOAT16_BITS


@given(st.lists(st.integers(0, 2**32 - 1), min_size=1), st.sampled_from(["float16", "bfloat16"]))
def test_a_copy_is_rounded_once_to_nearest_even(patterns: list[int], name: str) -> None:
    bits = np.array(patterns, np.uint32)
    kind = next(kind for kind in ELEMENT_TYPES if kind.name == name)
    out = np.empty(bits.size, np.uint16)
    rounded_copy(bits, kind, out)
    values = bits.view(np.float32)
    with np.errstate(all="ignore"):
        expected = values.astype(np.float16 if name == "float16" else BFLOAT16).view(np.uint16)
    number = ~np.isnan(values)
    np.testing.assert_array_equal(out[number], expected[number])
    own, made = bits[~number], out[~number].astype(np.uint32)
    top = 23 - kind.mantissa
    assert (made >> 15 == own >> 31).all()
    assert (
        made & 0x7FFF
        == own >> top & (1 << kind.mantissa) - 1 | 0x7FFF >> kind.mantissa - 1 << kind.mantissa - 1
    ).all()


@pytest.mark.parametrize("size", [0, 1, 7, 8, 9, 40_000, 40_001, 40_007, 1 << 17])
@pytest.mark.parametrize("share", [0, 0.0005, 0.01, 0.05, 0.099, 0.101, 0.5, 1])
def test_the_places_are_numpys(size: int, share: float) -> None:
    mask = np.random.default_rng(size).random(size) < share
    found = true_places(mask)
    assert found.dtype == np.int64
    np.testing.assert_array_equal(found, np.flatnonzero(mask))


@pytest.mark.parametrize("place", [0, 7, 8, 40_000, 40_006])
def test_one_place(place: int) -> None:
    mask = np.zeros(40_007, bool)
    mask[place] = True
    assert true_places(mask).tolist() == [place]


def test_a_part_of_a_mask_that_begins_anywhere() -> None:
    mask = np.random.default_rng(0).random(50_000) < 0.03
    for start in range(9):
        np.testing.assert_array_equal(true_places(mask[start:]), np.flatnonzero(mask[start:]))


@pytest.mark.parametrize("size", [0, 1, 8, 9, 16, 17, 40_000, 40_001])
@pytest.mark.parametrize("share", [0, 0.0005, 0.01, 0.04, 0.3, 1])
def test_the_places_of_bits_are_those_of_their_mask(size: int, share: float) -> None:
    mask = np.random.default_rng(size).random(size) < share
    found = bit_places(np.packbits(mask, bitorder="little"))
    assert found.dtype == np.int64
    np.testing.assert_array_equal(found, np.flatnonzero(mask))


#: Expressions that the rules below would forbid, and why each does not depend on the host's order.
ALLOWED = {
    "adapters/weights/layout": {"np.memmap": "uint8"},
    "adapters/weights/local": {
        "np.frombuffer(data, dtype)": "little-endian, as the file is",
        "patch.values[part].astype(dtype, copy=False).view('u1')": "the same",
        "patch.values[part].astype(dtype, copy=False).view('u1').data": "the same",
    },
    "adapters/weights/versions": {
        **dict.fromkeys(("data.data", "out.data", "out[part].data", "room.data"), "uint8"),
        "places.view('u1')": "little-endian, as the type says",
        "np.array([places.size], '<u4').view('u1')": "the same",
    },
    "adapters/weights/publish": {
        "data.data": "uint8",
        "data.tobytes()": "uint8",
        "stored[name][2].tobytes()": "uint8",
    },
    "chain/save/hash_reference": {"stored_view(bits).data": "uint8"},
    "chain/store/bucket/source": {
        "found.data": "what was read, no array",
        "entry.data": "what an entry has, no array",
        "each.entry.data": "the same",
        "self.entry.data": "the same",
        "wanted.entry.data": "the same",
    },
    "chain/store/bucket/store": {
        "entry.data": "the same",
        "e.data": "the same",
        "int.from_bytes(entry.data.root, 'big')": "a name for a root, in this process",
    },
    "workers/process": {
        "np.frombuffer(self, dtype, count, offset)": "memory of this host",
        "array.view(np.uint8)": "the same",
        "np.frombuffer(data, dtype, count, start)": "from a process of this host",
        "own.view(np.uint8)": "to a process of this host",
        "own.view(np.uint8).data": "the same",
    },
    "chain/save/plan": {
        "c.bits.tobytes()": "compared with the bytes of another array of the host's order",
        "c.reference.tobytes()": "the same",
    },
    "exchange/rules": {
        "other.tobytes()": "compared with the bytes of another array of the host's order",
        "first.tobytes()": "the same",
    },
    "adapters/hdf5": {
        "filled.tobytes()": "compared with the bytes of another value of the file's order",
        "block.tobytes()": "the same",
        "value.tobytes()": "opaque bytes, as the file has them",
    },
    "adapters/torch/target": {"now.data": "a tensor's", "tensor.data": "the same"},
    "adapters/dcp": {"array.tobytes()": "a pickle: uint8"},
    "adapters/npz": {"array.view(np.uint8)": "read as the header of the member says"},
    "adapters/torch/archive": {"np.frombuffer(data, kind.dtype)": "in the order that the file says"},
    "chain/save/background": {
        "np.concatenate(arrays, axis=None).view(np.uint8)": "of bool",
        "np.fromiter": "numbers, of no bytes",
    },
    "frame/encode": {"stored_view(own).data": "uint8"},
    "frame/decode": {"out.reshape(-1).view(np.uint8)": "of bool"},
    "chain/mend/protect": {"band.data": "uint8"},
    "chain/mend/parity_folder": {
        "band.data": "uint8",
        "block.data": "uint8",
        "data[column].data": "uint8",
    },
    "chain/mend/ranks": {"stripe.data": "uint8"},
    "frame/codebook": {"fits.view(np.uint8)": "of bool"},
    "frame/content": {"data[8 * count:].tobytes()": "uint8"},
    "loops/sums": {
        "np.frombuffer(data, np.uint64, size // 8)": "compiled on little-endian hosts alone",
        "last.data": "the same",
    },
    "loops/partitions": {"index.view(np.uint8)": "of int8"},
    "loops/search": {
        "np.logical_not(inside, out=inside).view(np.uint8)": "of bool",
        "mask.view(np.uint8)": "the same",
    },
    "entropy/stream_writer": {"symbols.data": "uint8", "numbers.data": "uint8"},
    "entropy/lanes": {"stored_view(store).data": "uint8", "stored.data": "uint8"},
    "cursor": {
        "struct.unpack(form, self.take(struct.calcsize(form), what))": "'<' is put before the form",
        "struct.calcsize(form)": "the same",
    },
    "chain/save/measurement": {
        "np.ndarray((rows + (rest > 0), _ROW), bounds.dtype, bounds, shift * step, steps)": "a view"
    },
    "adapters/jax": {"array.view(np.uint8)": "of a type of one byte"},
    "adapters/orbax": {
        "array.view(np.uint8)": "of a type of one byte",
        "shard.data": "an array of JAX",
    },
    "adapters/numcodecs": {
        "ensure_contiguous_ndarray(buf).view(np.uint8)": "of a frame",
        "ensure_contiguous_ndarray(buf).view(np.uint8).data": "uint8",
    },
}
#: What NumPy reads or writes in the host's order unless it is told otherwise.
HOST_ORDER = {"tofile", "fromfile", "fromstring", "fromiter", "memmap"}
BYTES = {"np.uint8", "'u1'", "'B'"}
#: What a module has in its text if it has such an expression: most have none, and are not walked.
NAMED = re.compile(
    rf"\.(?:{'|'.join(sorted(HOST_ORDER))}|tobytes|frombuffer|ndarray|from_bytes|to_bytes|data)\b"
    r"|\bstruct\.|\.view\(\s*(?:np\.uint8|['\"](?:u1|B)['\"])"
)


def is_little(node: ast.expr) -> bool:
    """Whether a format of struct or a dtype says that it is little-endian."""
    if isinstance(node, ast.JoinedStr):
        node = node.values[0]
    return isinstance(node, ast.Constant) and str(node.value).startswith("<")


def of_the_host(tree: ast.Module) -> Iterator[str]:
    """The expressions whose bytes may be in the order of the host."""
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Attribute(attr="tobytes")):
                yield ast.unparse(node)
            case ast.Call(func=ast.Attribute(attr="view"), args=[kind]) if ast.unparse(kind) in BYTES:
                yield ast.unparse(node)
            case ast.Call(func=ast.Attribute(attr="frombuffer"), args=[_, kind, *_]):
                if ast.unparse(kind) not in BYTES:
                    yield ast.unparse(node)
            case ast.Call(func=ast.Attribute(attr="frombuffer")):
                yield ast.unparse(node)  # of float64, or with the type by its name
            case ast.Call(func=ast.Attribute(value=ast.Name(id="np"), attr="ndarray"), args=[_, kind, *_]):
                if not is_little(kind):
                    yield ast.unparse(node)
            case ast.Call(func=ast.Attribute(value=ast.Name(id="struct")), args=[form, *_]):
                if not is_little(form):
                    yield ast.unparse(node)
            case ast.Call(func=ast.Attribute(attr="from_bytes" | "to_bytes"), args=[_, order]):
                if ast.unparse(order) != "'little'":
                    yield ast.unparse(node)
            case ast.Call(func=ast.Attribute(value=ast.Name(id="int"), attr="from_bytes"), args=[_]):
                yield ast.unparse(node)  # 'big'
            case ast.Attribute(attr="data", value=ast.Attribute(attr="ctypes")):
                pass  # an address
            case ast.Attribute(attr="data", value=value) if ast.unparse(value) != "self":
                yield ast.unparse(node)
            case ast.Attribute(attr=attr) if attr in HOST_ORDER:
                yield ast.unparse(node)


def test_no_module_but_one_takes_bytes_of_numbers() -> None:
    found = {
        module: set(of_the_host(tree))
        for module, tree in modules().items()
        if module != "element_types" and NAMED.search((PACKAGE / f"{module}.py").read_text())
    }
    assert {module: places for module, places in found.items() if places} == {
        module: set(places) for module, places in ALLOWED.items()
    }


@pytest.mark.parametrize(
    "source",
    [
        *("bits.tobytes()", "codes.view(np.uint8)", "codes.view('u1')", "np.frombuffer(data, kind.bits)"),
        *("np.frombuffer(data, dtype=np.uint16)", "np.frombuffer(data)"),
        *("np.ndarray(8, np.uint64, padded, strides=(2,))", "struct.pack('H', 1)"),
        *("struct.Struct(f'{count}Q')", "int.from_bytes(data, sys.byteorder)", "int.from_bytes(data)"),
        *("store.data", "store.tofile(file)"),
    ],
)
def test_the_rule_finds_what_it_is_for(source: str) -> None:
    assert list(of_the_host(ast.parse(source))) in ([source], [source.removesuffix("(file)")])
    assert NAMED.search(source)


# --- the functions --------------------------------------------------------------------------------


def swapped(array: np.ndarray) -> np.ndarray:
    """The same numbers in the other byte order."""
    return array.astype(array.dtype.newbyteorder("S"))


@given(array_and_reference())
def test_stored_bytes_are_little_endian(pair: tuple[np.ndarray, Any]) -> None:
    kind, bits = components(pair[0])
    expected = b"".join(int(value).to_bytes(kind.size, "little") for value in bits)
    for numbers in (bits, swapped(bits)):
        assert stored_bytes(numbers) == expected
        assert stored_view(numbers).tobytes() == expected
        assert little_endian(numbers).tobytes() == expected
    read = read_numbers(expected, swapped(bits).dtype)
    assert read.dtype == kind.bits
    np.testing.assert_array_equal(read, bits)


@pytest.mark.skipif(sys.byteorder == "big", reason="about little-endian hosts")
def test_nothing_is_copied_here() -> None:
    numbers, data = np.arange(5), bytes(16)
    assert little_endian(numbers) is numbers
    assert np.shares_memory(stored_view(numbers), numbers)
    assert np.shares_memory(read_numbers(data, np.uint64), np.frombuffer(data, np.uint8))
    assert in_host_order(numbers) is numbers


@pytest.mark.parametrize("dtype", ["u1", "u2", "u4", "u8"])
def test_the_array_sum_is_the_same_in_pieces(monkeypatch: pytest.MonkeyPatch, dtype: str) -> None:
    """On a big-endian host it is taken piece by piece, so that no array is copied as a whole."""
    bits = np.random.default_rng(0).integers(0, 256, (200_003, np.dtype(dtype).itemsize), np.uint8)
    numbers = np.ascontiguousarray(bits).view(dtype)[:, 0]
    expected = content.array_sum(numbers, 7)
    monkeypatch.setattr(content, "sys", SimpleNamespace(byteorder="big"))
    assert content.array_sum(numbers, 7) == expected


# --- arrays in the other byte order ---------------------------------------------------------------

QUANTIZERS = [
    lccodec.Lossless(),
    lccodec.ExponentBuckets(3),
    lccodec.UniformDeadzone(max_error=1e-2),
    lccodec.LogSteps(step=0.1),
    Clusters(),
]


@given(array_and_reference(), st.sampled_from(QUANTIZERS))
def test_frames_do_not_tell_the_byte_order(pair: Pair, quantizer: lccodec.Quantizer) -> None:
    array, reference = pair
    frame = lccodec.encode(array, quantizer, reference)
    other = None if reference is None else swapped(reference)
    assert lccodec.encode(swapped(array), quantizer, other) == frame
    expected = lccodec.decode(frame, reference)
    found = lccodec.decode(frame, other)
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(bits_of(found), bits_of(expected))


@given(array_and_reference(), st.booleans())
def test_decode_into_the_other_byte_order(pair: Pair, in_place: bool) -> None:
    array, reference = pair
    frame = lccodec.encode(array, lccodec.Lossless(), reference)
    other = None if reference is None else swapped(np.array(reference))  # of no dimensions it is a scalar
    out = other if in_place and other is not None else np.zeros_like(swapped(np.array(array)))
    assert lccodec.decode(frame, other, out) is out
    assert out.dtype == swapped(array).dtype
    np.testing.assert_array_equal(bits_of(out), bits_of(swapped(array)))


def test_decode_into_bfloat16_bits_of_the_other_byte_order() -> None:
    bits = np.arange(5, dtype=np.uint16).view(lccodec.BFLOAT16_BITS)
    out = np.zeros_like(swapped(bits))
    lccodec.decode(lccodec.encode(bits, lccodec.Lossless()), out=out)
    assert bits_of(out).tolist() == bits_of(swapped(bits)).tolist()
    assert lccodec.encode(swapped(bits), lccodec.Lossless()) == lccodec.encode(bits, lccodec.Lossless())


def test_bfloat16_bits_are_in_the_host_order() -> None:
    assert np.array([0x3F80], np.uint16).view(lccodec.BFLOAT16_BITS)["bfloat16"].tolist() == [0x3F80]


def states(swap: Any) -> list[dict[str, Any]]:
    """States of a run, with large arrays and small ones, of every type; every array by `swap`."""
    rng, found = np.random.default_rng(5), []
    weight, second = rng.standard_normal((80, 70)).astype("f4"), np.full((80, 70), 1e-4, "f4")
    exact = {name: random_array(name, (3, 4), 7) for name in ALL_DTYPES}
    for _ in range(3):
        found.append(
            {
                "model": {"w": swap(weight), "b": swap(weight[0])},
                "m": {"w": swap(weight / 10), "b": swap(weight[1])},
                "v": {"w": swap(second), "b": swap(second[0])},
                "exact": {name: swap(array) for name, array in exact.items()},
                "half": swap(weight.astype(ml_dtypes.bfloat16)),
            }
        )
        weight = weight + np.float32(1e-3) * rng.standard_normal(weight.shape).astype("f4")
        second = second * np.exp(0.1 * rng.standard_normal(second.shape)).astype("f4")
    return found


UNIFORM = lccodec.Policy("uniform", {"weight": lccodec.UniformDeadzone(max_error=1e-3)})
TRIGGERED = lccodec.Policy(
    "triggered", {"weight": lccodec.Triggered(lccodec.UniformDeadzone(max_error=1e-3), 0.1)}
)


@pytest.mark.parametrize("policy", ["lossless", "lc-3", "balanced", "small", UNIFORM, TRIGGERED], ids=str)
def test_chains_do_not_tell_the_byte_order(tmp_path: Path, policy: str | lccodec.Policy) -> None:
    roles: Any = {"model/*": "weight", "m/*": "first_moment", "v/*": "second_moment"}
    for name, swap in (("plain", np.asarray), ("swapped", swapped)):
        with lccodec.Chain(tmp_path / name, policy=policy, roles=roles) as chain:
            save_all(chain, states(swap))
    files = sorted((tmp_path / "plain").glob("*.lcc.h5"))
    assert len(files) == 3 + (policy != "lossless")  # with the exact file
    for file in files:
        assert (tmp_path / "swapped" / file.name).read_bytes() == file.read_bytes()


def test_files_and_summaries_do_not_tell_the_byte_order() -> None:
    plain, other = states(np.asarray)[0], states(swapped)[0]
    assert lccodec.save(other) == lccodec.save(plain)
    for name in ("exact", "v"):
        for key, array in plain[name].items():
            assert summarize(other[name][key]) == summarize(array)


def test_every_element_type_is_known_in_both_byte_orders() -> None:
    for kind in ELEMENT_TYPES:
        found = components(swapped(np.zeros(2, kind.native)))[0]
        assert found is kind


@given(st.integers(0, 50_000), st.integers(1, 70), st.integers(1, 70))
def test_stretches_are_of_all_parts_of_an_array(size: int, count: int, length: int) -> None:
    parts = list(stretches(size, count, length))
    assert all(part.start < size and part.stop - part.start == length for part in parts)
    assert all(left.stop <= right.start for left, right in itertools.pairwise(parts))
    if size <= count * length:
        assert sum(min(part.stop, size) - part.start for part in parts) == size  # all of a small one
    else:
        assert len(parts) == count
        assert all(
            i * (size // count) <= part.start < (i + 1) * (size // count) for i, part in enumerate(parts)
        )


@given(st.integers(0, 5000), st.integers(1, 700))
def test_a_scattered_sample_has_a_place_in_each_part(size: int, count: int) -> None:
    places = scattered(size, count)
    number = count if size >= 2 * count else size
    assert places.tolist() == sorted(set(places.tolist()))
    assert [place // max(size // max(number, 1), 1) for place in places.tolist()] == list(range(number))


@pytest.mark.parametrize("columns", [48, 1024, 11_008, 1 << 16])
def test_samples_see_all_columns_of_a_matrix(columns: int) -> None:
    size, third = columns * 1024, columns / 3
    sampled = np.concatenate([np.arange(part.start, part.stop) for part in stretches(size, 64, 16)])
    for places in (scattered(size, 1024), sampled):
        assert np.bincount((places % columns // third).astype(int), minlength=3).min() > places.size / 4
