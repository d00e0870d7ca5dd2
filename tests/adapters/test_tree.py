"""Plain values of schedulers and hyperparameters come back as what they are, without a pickle.

What a chain stores, every adapter of PyTorch stores: values and types come back.

Shards that make up an array, and leaves that are nested by their paths.
"""

import argparse
import collections
import datetime
import decimal
import enum
import fractions
import json
import pathlib
import random
import sys
import types
import uuid
import zoneinfo
from pathlib import Path
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import pytest
import torch
import torch.distributed.checkpoint as dcp
from hypothesis import given
from hypothesis import strategies as st

import lccodec
from lccodec import Chain
from lccodec.adapters import jax as in_jax
from lccodec.adapters import torch as adapter
from lccodec.adapters import torch as in_torch
from lccodec.adapters.dcp import LCStorageReader, LCStorageWriter
from lccodec.adapters.huggingface import pack, unpack
from lccodec.adapters.lightning import LCCheckpointIO
from lccodec.adapters.tree import listed, make_up, nested
from lccodec.errors import ArgumentError, FormatError, LccodecWarning

from ..support.programs import run_program


class Color(enum.Enum):
    RED = "r"
    BLUE = (1, 2)
    ROUGE = "r"


class Level(enum.IntEnum):
    LOW = 1


class Mode(enum.StrEnum):
    FAST = "fast"


class Perm(enum.Flag):
    R = 1
    W = 2


class Point(NamedTuple):
    x: float
    y: object


UTC = datetime.UTC

VALUES = [
    collections.Counter({30: 1, 80: 2}),
    collections.Counter("hello"),
    collections.Counter({(1, 2): 3, None: 1}),
    collections.Counter(),
    collections.OrderedDict(b=1, a=2),
    collections.OrderedDict({2: "x", 1: "y"}),
    collections.OrderedDict(),
    collections.defaultdict(list, {"a": [1]}),
    collections.defaultdict(None, {3: 4}),
    collections.defaultdict(collections.Counter, {"a": collections.Counter(a=1)}),
    collections.deque([1, 2], maxlen=3),
    collections.deque(),
    {1: 2, "a": 3},
    {1.5: 2, None: 3, (1, "x"): [4]},
    {True: 2},
    {Level.LOW: "low"},
    {"": 1},
    set(),
    {1, 2, 3},
    {"x", "y", 1, None},
    frozenset({(1, 2)}),
    range(3, 10, 2),
    slice(None, 5, None),
    1 + 2j,
    complex(-0.0, float("inf")),
    bytearray(b"\0\xff"),
    decimal.Decimal("1.10"),
    fractions.Fraction(1, 3),
    uuid.UUID(int=5),
    datetime.datetime(2026, 11, 22, 4, 5, 6, 7),
    datetime.datetime(2026, 11, 22, tzinfo=UTC),
    datetime.datetime(2026, 11, 22, tzinfo=datetime.timezone(datetime.timedelta(hours=-3))),
    datetime.date(2026, 11, 22),
    datetime.time(4, 5),
    datetime.timedelta(days=-1, microseconds=3),
    pathlib.Path("a/b"),
    pathlib.PurePosixPath("/x"),
    pathlib.PureWindowsPath("C:\\x"),
    types.SimpleNamespace(a=1, b=[None]),
    argparse.Namespace(lr=0.1, layers=(1, 2)),
    Color.RED,
    Color.BLUE,
    Level.LOW,
    Mode.FAST,
    Perm.R | Perm.W,
    Perm(0),
    Point(1.0, {"a": Point(2.0, None)}),
    np.float32(1.5),
    np.float64(0.1),
    np.int64(-3),
    np.bool_(True),
    np.complex128(1 + 2j),
    np.str_("text"),
    np.bytes_(b"x"),
    np.datetime64("2026-11-22T04:05", "s"),
    np.timedelta64(5, "ms"),
    np.dtype("float32"),
    np.dtype(">i4"),
    np.dtype(ml_dtypes.bfloat16),
]


def assert_same(left, right):
    if isinstance(right, Point):  # a named tuple comes back as one of a class of its own
        assert (type(left).__name__, left._fields) == ("Point", Point._fields)
        for a, b in zip(left, right, strict=True):
            assert_same(a, b)
        return
    assert type(left) is type(right)
    assert left == right
    if isinstance(left, set | frozenset):  # which have no order
        assert sorted(map(repr, left)) == sorted(map(repr, right))
    elif isinstance(left, dict):
        assert [*map(repr, left)] == [*map(repr, right)]
        for key in left:
            assert_same(left[key], right[key])
        if isinstance(left, collections.defaultdict):
            assert left.default_factory is right.default_factory
    elif isinstance(left, list | tuple | collections.deque):
        assert getattr(left, "maxlen", None) == getattr(right, "maxlen", None)
        for a, b in zip(left, right, strict=True):
            assert_same(a, b)
    else:
        assert repr(left) == repr(right)


def cases():
    for number, value in enumerate(VALUES):  # in the ids: the text of a set differs from process to process
        name = f"{number} {type(value).__name__}"
        yield pytest.param(in_torch, value, id=f"torch {name}")
        # To JAX a named tuple is a node of the tree, and has the type of the target.
        if not isinstance(value, Point):
            yield pytest.param(in_jax, value, id=f"jax {name}")


@pytest.mark.parametrize(("adapter", "value"), [*cases()])
def test_a_value_comes_back_as_what_it_is(adapter, value):
    for state in (value, {"a": [value, (value,)]}, {"": value}):
        back = adapter.load(adapter.save(state))
        assert_same(back, state) if isinstance(state, dict) or state is value else None
        if state is not value and "a" in state:
            assert_same(back["a"][0], value)
            assert_same(back["a"][1][0], value)
    assert adapter.save(value) == adapter.save(value)


def test_values_of_torch():
    state = {
        "size": torch.Size([2, 3]),
        "dtype": torch.bfloat16,
        "device": torch.device("cuda", 1),
        "rates": collections.defaultdict(list, {0: [torch.ones(2)]}),
    }
    back = in_torch.load(data := in_torch.save(state))
    assert repr(back) == repr(state)
    assert {name: type(value) for name, value in back.items()} == {n: type(v) for n, v in state.items()}
    assert in_jax.load(data)["size"] == (2, 3)
    assert lccodec.load(data)["dtype"] == "bfloat16"


@pytest.mark.parametrize("value", [{0: 1}, {"a": 1, "b": {"": 2}}])
def test_the_root_and_its_empty_key_are_not_mistaken_for_each_other(value):
    for kind in (collections.Counter, collections.OrderedDict):
        state = kind({"": kind(value), "x": 3})
        back = in_torch.load(in_torch.save(state))
        assert type(back) is type(back[""]) is kind
        assert back == state


def test_a_scheduler_with_milestones_goes_on(tmp_path):
    def parts():
        optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=1.0)
        return optimizer, torch.optim.lr_scheduler.MultiStepLR(optimizer, [2, 2, 5], gamma=0.5)

    def run(optimizer, scheduler, steps):
        rates = []
        for _ in range(steps):
            optimizer.step()
            scheduler.step()
            rates.append(optimizer.param_groups[0]["lr"])
        return rates

    whole = run(*parts(), 8)
    optimizer, scheduler = parts()
    run(optimizer, scheduler, 3)
    with lccodec.Chain(tmp_path, adapter=in_torch) as chain:
        chain.save(0, {"optimizer": optimizer.state_dict(), "scheduler": scheduler.state_dict()})
        state = chain.restore()
    assert type(state["scheduler"]["milestones"]) is collections.Counter
    optimizer, scheduler = parts()
    in_torch.load_into({"optimizer": optimizer, "scheduler": scheduler}, state)
    assert run(optimizer, scheduler, 5) == whole[3:]


REFUSED = [
    (lambda: print, "is a builtins.builtin_function"),
    (lambda: object(), "is a builtins.object"),  # noqa: PLW0108
    (lambda: {object(): 1}, "'x/0/0' is a builtins.object"),
    (lambda: collections.defaultdict(lambda: 0), "whose factory"),
    (lambda: datetime.datetime(2026, 1, 1, tzinfo=zoneinfo.ZoneInfo("UTC")), "time zones only offsets"),
    (lambda: np.dtype([("a", "i4")]), "has fields"),
    (lambda: {1: object()}, "'x/1' is a"),
    (lambda: torch.nn.ReLU(), "ReLU"),  # noqa: PLW0108
    (lambda: np.longdouble(1), "longdouble|float128|dtype"),
]


@pytest.mark.parametrize(("make", "message"), REFUSED)
def test_what_is_not_of_the_list_is_refused_by_name(make, message):
    with pytest.raises(ArgumentError, match=message):
        in_torch.save({"x": make()})


@pytest.mark.parametrize(
    ("kind", "stored"),
    [
        ("Counter", [1]),
        ("Counter of int", {"a": 1}),
        ("OrderedDict", 3),
        ("defaultdict<open>", {}),
        ("set", [[1]]),
        ("range", ["a"]),
        ("range", [0, 1, 0]),
        ("slice", 3),
        ("complex", "x"),
        ("complex", 3),
        ("Fraction", [1, 0]),
        ("Fraction", ["1e999999999", 1]),
        ("Decimal", "x"),
        ("UUID", "x"),
        ("datetime", "x"),
        ("datetime", 3),
        ("timedelta", [10**30, 0, 0]),
        ("Path", 3),
        ("bytearray", "x"),
        ("bytearray", 10**18),
        ("numpy.bytes", 10**18),
        ("deque", [1]),
        ("dict", [1]),
        ("dict", [[[], 1]]),
        ("namedtuple<P>", {"class": 1}),
        ("namedtuple<class>", {"a": 1}),
        ("namedtuple<P>", 3),
        ("enum", [1]),
        ("enum", "x"),
        ("numpy.dtype", "x"),
        ("numpy.datetime64", ["O", 1]),
        ("numpy.datetime64", ["<M8[s]", "x"]),
        ("numpy.str", 1),
        ("SimpleNamespace", [1]),
        ("torch.dtype", "nn"),
        ("torch.dtype", 3),
        ("torch.Size", "x"),
        ("torch.device", "moon"),
    ],
)
def test_a_note_that_does_not_fit_is_an_error_of_the_data(kind, stored):
    data = lccodec.save({"x": stored}, {"lccodec.types": json.dumps({kind: ["x"]})})
    with pytest.raises(FormatError) as caught:
        in_torch.load(data)
    assert caught.value.rule == "lccodec.types"


def test_nothing_is_imported_or_called_by_a_name_in_a_file():
    for name in ("os.system", "antigravity.X", "signal.Signals.SIGTERM", "builtins.print"):
        note = {"enum": ["x"], "system": ["y"], "os.system": ["z"]}
        state = {"x": [name, "M", 7], "y": "true", "z": ["true"]}
        data = lccodec.save(state, {"lccodec.types": json.dumps(note)})
        with pytest.warns(LccodecWarning, match="no enum of this program"):
            assert in_torch.load(data) == {"x": 7, "y": "true", "z": ["true"]}
    assert "antigravity" not in sys.modules


def test_an_enum_that_another_program_does_not_have(tmp_path):
    in_torch.save_file({"m": Level.LOW, "c": Color.BLUE, "w": torch.ones(1)}, tmp_path / "a.lcc.h5")
    code = (
        "import sys, warnings, lccodec.adapters.torch as adapter\n"
        "with warnings.catch_warnings(record=True) as told:\n"
        "    warnings.simplefilter('always')\n"
        "    state = adapter.load_file(sys.argv[1])\n"
        "print(state['m'], state['c'], len(told))"
    )
    done = run_program(code, tmp_path / "a.lcc.h5")
    assert done.stdout.split() == ["1", "BLUE", "2"]


plain = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=3)
    | st.binary(max_size=2) | st.dates() | st.timedeltas() | st.uuids() | st.complex_numbers(allow_nan=False)
    | st.fractions(max_denominator=9) | st.sampled_from([*Color, *Level, Perm.R, Perm.R | Perm.W])
)  # fmt: skip
keys = st.text("a/~0", max_size=2) | st.integers(-3, 3) | st.none() | st.sampled_from([*Level, (1, 2)])
states = st.recursive(
    plain,
    lambda inner: (
        st.dictionaries(keys, inner, max_size=3)
        | st.dictionaries(keys, inner, max_size=3).map(collections.OrderedDict)
        | st.dictionaries(keys, inner, max_size=3).map(lambda d: collections.defaultdict(int, d))
        | st.lists(inner, max_size=3).map(collections.deque)
        | st.lists(inner, max_size=3)
    ),
    max_leaves=8,
)


@given(states)
def test_any_state_comes_back(state):
    assert_same(in_torch.load(in_torch.save(state)), state)


class Paint(enum.Enum):
    RED = 1


Place = collections.namedtuple("Place", "x y")

#: Values that the weights-only loader of torch makes, too.
PLAIN: dict[str, Any] = {
    "none": None, "big": 2**80, "bytes": b"\0", "tuple": (1, "a", None), "complex": 1j,
    "ndarray": np.arange(3.0), "float64": np.float64(0.5), "bool": np.bool_(True), "int32": np.int32(3),
    "numpy": np.random.RandomState(1).get_state(), "python": random.Random(1).getstate(),
    "set": {1, 2}, "frozenset": frozenset({1}), "range": range(3), "slice": slice(1, None),
    "bytearray": bytearray(b"a"), "decimal": decimal.Decimal("1.5"), "fraction": fractions.Fraction(1, 3),
    "datetime": datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC), "date": datetime.date(2026, 1, 1),
    "time": datetime.time(3), "delta": datetime.timedelta(1), "path": pathlib.Path("a"),
    "posix": pathlib.PurePosixPath("a/b"), "windows": pathlib.PureWindowsPath("a"),
    "namespace": types.SimpleNamespace(a=1), "parsed": argparse.Namespace(a=1),
    "enum": Paint.RED, "ordered": collections.OrderedDict(a=1),
    "counter": collections.Counter("ab"), "size": torch.Size([2]), "dtype": torch.float16,
    "device": torch.device("cpu"), "integers": {3: 4}, "float8": torch.ones(2).to(torch.float8_e4m3fn),
    "generator": torch.Generator().get_state(),
}  # fmt: skip
#: Values that it does not make: those of a file of torch.save are refused by name.
OTHERS: dict[str, Any] = {
    "deque": collections.deque([1], 3), "uuid": uuid.UUID(int=3),
    "default": collections.defaultdict(int, a=1), "point": Place(1, 2),
    "datetime64": np.datetime64("2026-01-01"), "text": np.str_("a"), "kind": np.dtype("f4"),
    "mixed": {1: 1, "a": 2},
}  # fmt: skip
#: DCP flattens dicts before a storage sees them: it makes plain dicts, with strings as keys.
FLATTENED = {"ordered", "counter", "integers", "default", "mixed"}


def through_chain(state: Any, directory: Path) -> Any:
    with Chain(directory, "lossless", adapter=adapter) as chain:
        chain.save(0, state)
        return chain.restore()


def through_lightning(state: Any, directory: Path) -> Any:
    LCCheckpointIO().save_checkpoint(state, directory / "a.ckpt")
    return LCCheckpointIO().load_checkpoint(directory / "a.ckpt")


def through_dcp(state: Any, directory: Path) -> Any:
    state = {name: value for name, value in state.items() if name not in FLATTENED}
    dcp.save(state, storage_writer=LCStorageWriter(directory), no_dist=True)
    found = {name: torch.zeros_like(v) if torch.is_tensor(v) else None for name, v in state.items()}
    dcp.load(found, storage_reader=LCStorageReader(directory), no_dist=True)
    check(LCStorageReader(directory).state(), state)
    return found


def through_a_folder(state: Any, directory: Path) -> Any:
    """As accelerate and Trainer store it."""
    torch.save(state, directory / "optimizer.pt")
    pack(directory)
    unpack(directory)
    return torch.load(directory / "optimizer.pt", weights_only=False)


def check(found: Any, state: Any) -> None:
    for name, value in found.items():
        assert type(value).__name__ == type(state[name]).__name__, name
        assert repr(value) == repr(state[name]), name


@pytest.mark.parametrize("through", [through_chain, through_lightning, through_dcp, through_a_folder])
def test_every_value_comes_back(tmp_path: Path, through: Any) -> None:
    state = {"w": torch.ones(3), **PLAIN, **({} if through is through_a_folder else OTHERS)}
    found = through(state, tmp_path)
    assert len(found) >= len(state) - len(FLATTENED)
    check(found, state)


@pytest.mark.parametrize("name", sorted(OTHERS.keys() - {"mixed"}))
def test_what_the_loader_of_torch_refuses_stays_in_its_file(tmp_path: Path, name: str) -> None:
    torch.save({"w": torch.ones(3), "x": OTHERS[name]}, tmp_path / "optimizer.pt")
    with pytest.raises(ArgumentError, match=r"optimizer.pt.*|NumPy type"):
        pack(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["optimizer.pt"]


@pytest.mark.parametrize(
    ("shape", "shards", "whole"),
    [
        ([5, 2], [([0, 0], [3, 2]), ([3, 0], [2, 2])], True),
        ([], [([], [])], True),
        ([0, 3], [([0, 0], [0, 3])], True),
        ([0, 3], [], True),
        ([5, 2], [([0, 0], [3, 2])], False),
        ([4], [([0], [2]), ([0], [2])], False),
        ([4], [([0], [2]), ([3], [2])], False),
        ([4], [([-1], [4])], False),
        ([4], [([0], [4]), ([4], [-1])], False),
        ([4], [([0, 0], [4, 1])], False),
        ([1 << 40], [([0], [1])], False),
    ],
)
def test_what_makes_up_an_array(shape, shards, whole):
    assert make_up(shape, shards) is whole


def test_leaves_by_their_paths():
    leaves = [(("a", 0), 1), (("a", 1), {}), (("b", "x", 1), 2), ((0,), 3)]
    assert nested(leaves, "rule", "here") == {"a": [1, {}], "b": {"x": {1: 2}}, 0: 3}
    assert nested([], "rule", "here") == {}
    assert (listed({0: 1, 1: 2}), listed({1: 2}), listed({})) == ([1, 2], {1: 2}, {})


@pytest.mark.parametrize(
    ("leaves", "words"),
    [
        ([((), 1)], "is not one"),
        ([(("a", 1.5), 1)], "is not one"),
        ([(("a",) * 1000, 1)], "is not one"),
        ([(("a",), {}), (("a", "b"), 1)], "'a/b' lies below another value"),
        ([(("a", "b"), 1), (("a",), 1)], "two values lie at 'a'"),
    ],
)
def test_paths_that_contradict_each_other(leaves, words):
    with pytest.raises(FormatError, match=words):
        nested(leaves, "rule", "here")
