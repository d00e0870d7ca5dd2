"""What a chain stores, every adapter of PyTorch stores: values and types come back."""

from __future__ import annotations

import argparse
import collections
import datetime
import decimal
import enum
import fractions
import pathlib
import random
import types
import uuid
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed.checkpoint as dcp

from lccodec import ArgumentError, Chain
from lccodec.adapters import torch as adapter
from lccodec.adapters.dcp import LCStorageReader, LCStorageWriter
from lccodec.adapters.huggingface import pack, unpack
from lccodec.adapters.lightning import LCCheckpointIO


class Color(enum.Enum):
    RED = 1


Point = collections.namedtuple("Point", "x y")

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
    "enum": Color.RED, "ordered": collections.OrderedDict(a=1),
    "counter": collections.Counter("ab"), "size": torch.Size([2]), "dtype": torch.float16,
    "device": torch.device("cpu"), "integers": {3: 4}, "float8": torch.ones(2).to(torch.float8_e4m3fn),
    "generator": torch.Generator().get_state(),
}  # fmt: skip
#: Values that it does not make: those of a file of torch.save are refused by name.
OTHERS: dict[str, Any] = {
    "deque": collections.deque([1], 3), "uuid": uuid.UUID(int=3),
    "default": collections.defaultdict(int, a=1), "point": Point(1, 2),
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
