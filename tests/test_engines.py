"""The example engines: each has the trainer's weights, bit for bit, at each step that it serves."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import random
import subprocess
import sys
import threading
import time
import types
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch

from contrib.engines import node, vllm_patches
from contrib.engines.threaded import Engine
from lccodec import Chain, follow
from lccodec.adapters import torch as adapter

from .support import pages, weight_versions
from .support.models import bytes_of, read_model, small_model, trained, write_model
from .support.torch_states import assert_same

#: Processes and steps of the fleet; ``LCCODEC_FLEET=8x200`` is as large as a node of many engines.
FLEET_PROCESSES, FLEET_STEPS = map(int, os.environ.get("LCCODEC_FLEET", "3x20").split("x"))


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
        self.reloading = False
        self.targets = {q: self.packed[:rows], k: self.packed[rows:]}
        self.targets.update({name: torch.zeros(shapes[name], dtype=dtypes[name]) for name in self.others})

    def load_weights(self, weights: list[tuple[str, torch.Tensor]]) -> None:
        for name, tensor in weights:
            self.targets[name].copy_(tensor)


def load_checkpoint_weight_patches(model: Packed, patches: list[CheckpointWeightPatch]) -> None:
    """What vLLM's function of that name does, by its documentation and its checks."""
    sparse = {patch.indices is not None for patch in patches}
    assert len(sparse) == 1, "dense and sparse patches cannot be mixed"
    assert model.reloading == (sparse == {False}), "the caller manages the reload of dense patches"
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


def initialize_layerwise_reload(model: Packed) -> None:
    """What a layer had is gone until all of its tensors are loaded."""
    model.reloading = True
    for tensor in model.targets.values():
        tensor.view(torch.uint8).fill_(0xAA)


def finalize_layerwise_reload(model: Packed, model_config: object) -> None:
    assert model_config == "config"
    model.reloading = False


def patching_of_vllm() -> Any:
    """Return the module of vLLM that reads patches, alone; without vLLM, what stands in for it."""
    package = importlib.util.find_spec("vllm")
    name = Path("model_executor", "model_loader", "checkpoint_weight_patch.py")
    for folder in (package and package.submodule_search_locations) or ():
        if (place := Path(folder) / name).exists():
            spec = importlib.util.spec_from_file_location(place.stem, place)
            assert spec is not None and spec.loader is not None
            module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
            return module
    return types.SimpleNamespace(
        CheckpointWeightPatch=CheckpointWeightPatch,
        load_checkpoint_weight_patches=load_checkpoint_weight_patches,
    )


@pytest.fixture
def vllm(monkeypatch: pytest.MonkeyPatch) -> None:
    """The modules of vLLM that an engine has."""
    modules = {
        name: types.ModuleType(name)
        for name in ("vllm", "vllm.model_executor", "vllm.model_executor.model_loader")
    }
    loader = modules["vllm.model_executor.model_loader"]
    vars(loader).update(
        checkpoint_weight_patch=patching_of_vllm(),
        reload=types.SimpleNamespace(
            initialize_layerwise_reload=initialize_layerwise_reload,
            finalize_layerwise_reload=finalize_layerwise_reload,
        ),
    )
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)


@pytest.mark.usefixtures("vllm")
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
    whole: list[bool] = []
    with (
        Chain(tmp_path, "lossless", adapter=adapter) as chain,
        follow(tmp_path, keys="model", timeout=0) as follower,
    ):
        # First all; floats alone; a NaN among them; floats; integers; nothing of the model.
        for step, changed in enumerate(["", "qk", "with nan", "qk", "counts", ""]):
            state = {name: tensor.clone() for name, tensor in state.items()}
            for name in changed if changed == "qk" else [changed] if changed else []:
                state[name].view(-1)[[5, 99]] = float("nan") if name == "with nan" else step
            chain.save(step, {"model": state, "other": torch.zeros(2) + step})
            for update in follower:
                loaded = vllm_patches.load_update(model, "config", update, follower, prefix="model")
                whole.append(loaded)
            assert_same({name: model.targets[name].clone() for name in state}, state)
    assert whole == [True, False, True, False, True, False]


class Server(HTTPServer):
    """An engine that loads a model as SGLang does when it is told to.

    It refuses the calls whose number, from 0, is in `refused`, and any that cannot read a model.
    """

    def __init__(self, refused: Callable[[int], bool] = lambda _: False, port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), _Handler)
        self.refused, self.calls = refused, 0
        self.version, self.model = "default", dict[str, bytes]()  # as they were when it was started
        self.versions: list[str] = []
        self.shown: str | None = None  # what it says that it has, whatever it has
        self._thread = threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.02})
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self._thread.join()
        self.server_close()

    def load(self, document: Any) -> tuple[int, Any]:
        number, self.calls = self.calls, self.calls + 1
        if self.refused(number):
            return 503, {}
        try:
            self.model = read_model(Path(document["model_path"]))
        except (OSError, AssertionError, ValueError):  # another process has just replaced it
            return 200, {"success": False, "message": "cannot be read"}
        self.version = document["weight_version"]
        self.versions.append(self.version)
        return 200, {"success": True, "message": "", "num_paused_requests": 0}


class _Handler(BaseHTTPRequestHandler):
    server: Server

    def do_POST(self) -> None:
        document = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        assert self.path == "/update_weights_from_disk"
        self.answer(*self.server.load(document))

    def do_GET(self) -> None:
        assert self.path == "/model_info"
        self.answer(200, {"weight_version": self.server.shown or self.server.version})

    def answer(self, status: int, document: Any) -> None:
        self.send_response(status)
        self.end_headers()
        self.wfile.write(json.dumps(document).encode())

    def log_message(self, *_: Any) -> None:
        pass


class Fleet:
    """A run and a local model, and the processes of a node, played one round after the other."""

    def __init__(self, directory: Path) -> None:
        self.run, self.model = directory / "run", directory / "model"
        self.state = small_model()
        write_model(self.model, self.state)
        self.chain = Chain(self.run, "lossless")
        self.step = -1

    def save(self) -> None:
        self.step += 1
        if self.step:
            self.state = trained(self.state, self.step)
        self.chain.save(self.step, {"model": self.state})

    def process(self, *servers: Server) -> tuple[node.Puller, list[node.Engine], dict[str, str]]:
        engines = [node.Engine(server.url, self.model) for server in servers]
        return node.Puller(self.run, self.model, prefix="model"), engines, {}

    def check(self, server: Server) -> None:
        assert (server.version, server.model) == (str(self.step), bytes_of(self.state))


def test_node(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fleet = Fleet(tmp_path)

    def wait(_: float) -> None:
        """Save another step instead."""
        if fleet.step == 3:
            raise KeyboardInterrupt
        fleet.save()

    with Server() as server:
        with pytest.raises(KeyboardInterrupt):
            node.main([str(fleet.run), str(fleet.model), "--engine", f"{server.url}/"], wait)
        fleet.check(server)
        assert server.versions == ["0", "1", "2", "3"]
        told = capsys.readouterr()
        lines = [line.partition(":")[0] for line in told.out.splitlines() if line.startswith("step")]
        assert lines == ["step 1", "step 2", "step 3"]
        assert "cannot open" in told.err  # the run, before its first step
    with pytest.raises(ValueError, match="not the address"):
        node.Engine("file:///etc", fleet.model)


def test_every_engine_of_a_node_gets_every_step(tmp_path: Path) -> None:
    """Whichever process patches the model, each tells its own engines."""
    fleet = Fleet(tmp_path)
    with Server() as one, Server() as other:
        processes = [fleet.process(one), fleet.process(other)]
        for step in range(6):
            fleet.save()
            for process in processes if step % 2 else processes[::-1]:
                node.round_of(*process)
            for server in (one, other):
                fleet.check(server)
        assert one.versions == other.versions == [str(step) for step in range(6)]


def test_an_engine_that_refuses_is_told_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fleet = Fleet(tmp_path)
    fleet.save()
    with Server(lambda number: number in (0, 1)) as server:
        process = fleet.process(server)
        for told in (False, False, True, False):
            before = len(server.versions)
            node.round_of(*process)
            assert (len(server.versions) > before) == told
        fleet.check(server)
        assert capsys.readouterr().err.count("is told again: HTTP Error 503") == 1
        server.refused = lambda _: True
        fleet.save()
        node.round_of(*process)  # the model is patched, and the process ends before the engine knows
        server.refused = lambda _: False
        node.round_of(*fleet.process(server))
        fleet.check(server)


def test_an_engine_that_was_started_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has what it was started with, whatever was confirmed before."""
    fleet = Fleet(tmp_path)
    fleet.save()
    with Server() as server:
        process = fleet.process(server)
        node.round_of(*process)
        server.version, server.model = "default", {}
        node.round_of(*process)
        assert server.version == "default"  # it is not asked at every look
        monkeypatch.setattr(node, "LOOK_SECONDS", 0.0)
        node.round_of(*process)
        fleet.check(server)
        server.version, server.model = "default", {}
        node.round_of(*fleet.process(server))  # a process that begins tells all
        fleet.check(server)


def test_an_engine_that_says_one_version_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is told each step once: what it says does not tell whether it was started again."""
    fleet = Fleet(tmp_path)
    monkeypatch.setattr(node, "LOOK_SECONDS", 0.0)
    with Server() as server:
        server.shown = "default"
        process = fleet.process(server)
        for _ in range(2):
            fleet.save()
            for _ in range(3):
                node.round_of(*process)
        assert server.versions == ["0", "1"]


@pytest.mark.slow
@pytest.mark.usefixtures("vllm")
def test_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """RL loop, end to end: each engine has the trainer's weights, rounded, at the end of each step.

    Two load a directory, and one of them is killed; SGLang reads versions, vLLM takes patches.
    """
    torch.manual_seed(0)
    (program,) = pages.programs(pages.DOCS / "weightsync.md")
    network = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Tanh(), torch.nn.Linear(64, 8))
    base = {name: adapter.to_numpy(tensor)[0] for name, tensor in network.bfloat16().state_dict().items()}
    monkeypatch.setattr(node, "LOOK_SECONDS", 0.0)
    monkeypatch.chdir(tmp_path)
    nodes = [tmp_path / "node-1", tmp_path / "node-2"]
    for place in (tmp_path / "base", *nodes):
        write_model(place, base)
    followed = {name: torch.zeros_like(tensor) for name, tensor in network.state_dict().items()}
    packed = Packed({n: t.shape for n, t in followed.items()}, {n: t.dtype for n, t in followed.items()})
    packed.targets = followed

    def started(place: Path, server: Server) -> tuple[node.Puller, list[node.Engine], dict[str, str]]:
        return node.Puller("weights", place, prefix="model", start=0), [node.Engine(server.url, place)], {}

    with ExitStack() as stack:
        servers = [stack.enter_context(Server()) for _ in nodes]
        processes = [started(*each) for each in zip(nodes, servers, strict=True)]
        updates = stack.enter_context(follow("weights", keys="model", timeout=0))

        def reported(step: int) -> None:
            if step == 4:  # an engine is killed, and its process with it
                servers[1].version, servers[1].model = "default", read_model(tmp_path / "base")
                processes[1] = started(nodes[1], servers[1])
            for process in processes:
                node.round_of(*process)
            for update in updates:
                vllm_patches.load_update(packed, "config", update, updates, prefix="model")
            with Chain("weights", adapter=adapter) as chain:
                expected = chain.restore(step)["model"]
            found = bytes_of({name: adapter.to_numpy(tensor)[0] for name, tensor in expected.items()})
            for server in servers:
                assert (server.version, server.model) == (str(step), found)
            assert weight_versions.pulled(tmp_path / "versions", bytes_of(base), step) == found
            assert_same(followed, expected)
            if step % 4 == 0:
                with Chain("training", adapter=adapter) as chain:
                    resumed = chain.restore()["model"]
                assert_same({name: tensor.bfloat16() for name, tensor in resumed.items()}, expected)
                assert {tensor.dtype for tensor in resumed.values()} == {torch.float32}

        with contextlib.closing(updates):
            pages.run(program, reported)
    assert sorted(path.name for path in (tmp_path / "versions").glob("weight*"))[-1] == "weight_v000008"


@pytest.mark.slow
def test_a_fleet(tmp_path: Path) -> None:
    """Processes are killed, engines refuse every third call: all end at the newest step."""
    fleet, rng = Fleet(tmp_path), random.Random(0)
    fleet.save()
    with ExitStack() as stack:
        servers = [stack.enter_context(Server(lambda _: rng.random() < 1 / 3)) for _ in range(4)]
        place = Path(node.__file__).parent.parent.parent

        def started(number: int) -> subprocess.Popen[bytes]:
            words = [str(fleet.run), str(fleet.model)]
            for server in (servers[number % 4], servers[(number + 1) % 4]):
                words += ["--engine", server.url]
            command = [sys.executable, "-m", "contrib.engines.node", *words]
            quiet = subprocess.DEVNULL
            return subprocess.Popen(command, cwd=place, stdout=quiet, stderr=quiet)

        processes = [started(number) for number in range(FLEET_PROCESSES)]
        try:
            for step in range(1, FLEET_STEPS):
                fleet.save()
                time.sleep(0.1)
                if step % 5 == 0:
                    number = rng.randrange(len(processes))
                    processes[number].kill()
                    processes[number].wait()
                    processes[number] = started(number)
            end = time.monotonic() + 120
            while time.monotonic() < end and any(s.version != str(fleet.step) for s in servers):
                time.sleep(0.1)
        finally:
            for process in processes:
                process.kill()
                process.wait()
        counts = [(server.calls, len(server.versions)) for server in servers]
        print(f"calls of each engine, and those that it confirmed: {counts}")
        older = [server for server in servers if server.version != str(fleet.step)]
        assert not older, f"{len(older)} of {len(servers)} engines end at an older step"
        for server in servers:
            fleet.check(server)
