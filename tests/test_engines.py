"""The example engines: each has the trainer's weights, bit for bit, at each step that it serves."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch

from contrib.engines import node, vllm_patches
from contrib.engines.threaded import Engine
from lccodec import Chain, follow
from lccodec.adapters import torch as adapter

from .support.models import bytes_of, read_model, small_model, trained, write_model
from .support.torch_states import assert_same


class Trainer:
    """A model whose weights are saved after each step of an optimizer."""

    def __init__(self, directory: Path) -> None:
        torch.manual_seed(0)
        self.model = torch.nn.Sequential(torch.nn.Linear(60, 50), torch.nn.Linear(50, 20)).bfloat16()
        self.optimizer = torch.optim.SGD(self.model.parameters(), 1e-4)
        self.chain = Chain(directory, "lossless", adapter=adapter)
        self.saved: list[dict[str, torch.Tensor]] = []

    def step(self) -> None:
        self.optimizer.zero_grad()
        self.model(torch.ones(3, 60).bfloat16()).square().sum().backward()
        self.optimizer.step()
        state = {name: tensor.clone() for name, tensor in self.model.state_dict().items()}
        self.chain.save(len(self.saved), {"model": state})
        self.saved.append(state)


def test_threaded(tmp_path: Path) -> None:
    trainer = Trainer(tmp_path)
    served = torch.nn.Sequential(torch.nn.Linear(60, 50), torch.nn.Linear(50, 20)).bfloat16()
    engine = Engine(served, str(tmp_path), poll=0.01)

    def requests() -> Iterator[int]:
        for step in range(5):
            trainer.step()
            end = time.monotonic() + 60
            while engine.step < step and time.monotonic() < end:
                yield step
                time.sleep(0.005)

    def answer(_: int) -> int:
        if engine.step >= 0:
            assert_same(dict(served.state_dict()), trainer.saved[engine.step])
        return engine.step

    answers = list(engine.serve(requests(), answer))
    engine.close()
    assert not engine._thread.is_alive()
    assert answers[-1] == 4
    assert answers == sorted(answers)


class CheckpointWeightPatch(NamedTuple):
    """As vLLM has it."""

    name: str
    shape: tuple[int, ...]
    dtype: torch.dtype
    values: torch.Tensor
    indices: torch.Tensor | None = None


class Packed(torch.nn.Module):
    """A model that has the first two checkpoint tensors in one parameter, as vLLM packs q and k."""

    def __init__(self, shapes: dict[str, tuple[int, ...]], dtypes: dict[str, torch.dtype]) -> None:
        super().__init__()
        q, k, *self.others = shapes
        rows = shapes[q][0]
        self.packed = torch.zeros(rows + shapes[k][0], shapes[q][1], dtype=dtypes[q])
        self.targets = {q: self.packed[:rows], k: self.packed[rows:]}
        self.targets.update({name: torch.zeros(shapes[name], dtype=dtypes[name]) for name in self.others})

    def load_weights(self, weights: list[tuple[str, torch.Tensor]]) -> None:
        for name, tensor in weights:
            self.targets[name].copy_(tensor)


def load_checkpoint_weight_patches(model: Packed, patches: list[CheckpointWeightPatch]) -> None:
    """What vLLM's function of that name does, by its documentation and its checks."""
    sparse = {patch.indices is not None for patch in patches}
    assert len(sparse) == 1, "dense and sparse patches cannot be mixed"
    for patch in patches:
        assert patch.values.ndim == 1
        size = torch.Size(patch.shape).numel()
        if patch.indices is None:
            assert patch.values.numel() == size
            model.load_weights([(patch.name, patch.values.to(patch.dtype).view(patch.shape))])
            continue
        assert patch.dtype.is_floating_point
        assert patch.indices.dtype in (torch.int32, torch.int64)
        assert patch.indices.shape == patch.values.shape
        assert not patch.values.isnan().any()
        assert patch.indices.unique().numel() == patch.indices.numel()
        assert 0 <= int(patch.indices.min()) <= int(patch.indices.max()) < size
        flat = torch.full((size,), float("nan"), dtype=patch.dtype)
        flat.index_copy_(0, patch.indices.long(), patch.values)
        there = model.targets[patch.name]
        full = flat.view(patch.shape)
        model.load_weights([(patch.name, torch.where(full.isnan(), there, full))])


def test_vllm(tmp_path: Path) -> None:
    torch.manual_seed(0)
    state = {
        "q": torch.randn(50, 40).bfloat16(),
        "k": torch.randn(30, 40).bfloat16(),
        "counts": torch.arange(3000),
        "with nan": torch.randn(2000),
        "gate": torch.randn(70, 30).to(torch.float8_e4m3fn),
        "moe/up": torch.randn(4),
    }
    model = Packed({n: tuple(t.shape) for n, t in state.items()}, {n: t.dtype for n, t in state.items()})
    seen: set[tuple[bool, str]] = set()
    with (
        Chain(tmp_path, "lossless", adapter=adapter) as chain,
        follow(tmp_path, keys="model", timeout=0) as follower,
    ):
        for step in range(3):
            chain.save(step, {"model": state, "other": torch.zeros(2) + step})
            for update in follower:
                found = vllm_patches.patches_of(update, follower, CheckpointWeightPatch, prefix="model")
                for patches in found:
                    seen.update((patch.indices is not None, patch.name) for patch in patches)
                    load_checkpoint_weight_patches(model, patches)
            assert_same({name: model.targets[name].clone() for name in state}, state)
            state = {name: tensor.clone() for name, tensor in state.items()}
            for name in ("q", "k"):
                state[name][3, 5] = state[name][29, 39] = step
            state["counts"][7] += 1
            state["with nan"][9] = float("nan")
            state["gate"].view(torch.uint8)[5, 5] ^= 1
    assert {name for sparse, name in seen if sparse} == {"q", "k"}


@pytest.fixture
def engine() -> Iterator[Any]:
    """A server that loads a model as SGLang does when it is told to."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            size = int(self.headers["Content-Length"])
            document = json.loads(self.rfile.read(size))
            assert self.path == "/update_weights_from_disk"
            server.loaded = (document["weight_version"], read_model(Path(document["model_path"])))
            server.loads += 1
            answer = json.dumps({"success": server.willing, "message": "no room"}).encode()
            self.send_response(200)
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_: Any) -> None:
            pass

    server: Any = HTTPServer(("127.0.0.1", 0), Handler)
    server.loaded, server.loads, server.willing = None, 0, True
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def test_node(tmp_path: Path, engine: Any, capsys: pytest.CaptureFixture[str]) -> None:
    run, model = tmp_path / "run", tmp_path / "model"
    url = f"http://127.0.0.1:{engine.server_port}/"
    state = small_model()
    write_model(model, state)
    steps = iter(range(4))

    def wait(_: float) -> None:
        """Save another step instead."""
        nonlocal state
        step = next(steps, None)
        if step is None:
            raise KeyboardInterrupt
        if step:
            state = trained(state, step)
        with Chain(run, "lossless") as chain:
            chain.save(step, {"model": state})

    run.mkdir()
    with pytest.raises(KeyboardInterrupt):
        node.main([str(run), str(model), "--engine", url], wait)
    assert engine.loaded == ("3", bytes_of(state))
    assert engine.loads == 3  # step 0 is what it had
    told = capsys.readouterr()
    assert [line.partition(":")[0] for line in told.out.splitlines()] == ["step 1", "step 2", "step 3"]
    assert "has no step to pull" in told.err
    engine.willing = False
    with pytest.raises(RuntimeError, match="no room"):
        node.reload(url, str(model), 3)
    with pytest.raises(ValueError, match="not the address"):
        node.reload("file:///etc", str(model), 3)
