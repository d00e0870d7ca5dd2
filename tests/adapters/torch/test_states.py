"""A state of PyTorch comes back as it was saved: every type, bit and layout.

Tensors of other devices go to shared memory in one copy; this process has no other device.
"""

import contextlib
import gc
import tracemalloc
import weakref
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import lccodec
from lccodec.adapters import torch as adapter
from lccodec.adapters.torch import states as module
from lccodec.adapters.torch.states import copy_out, is_elsewhere
from lccodec.chain.save import background
from lccodec.errors import ArgumentError, FormatError
from lccodec.workers.process import Arena, place_of

from ...support.programs import run_program
from ...support.torch_states import DTYPES, assert_same, network, random_tensor, train, trained
from ...support.walks import save_all


@pytest.mark.parametrize("name", DTYPES)
@pytest.mark.parametrize("shape", [(), (0, 3), (4, 5)])
def test_every_dtype_keeps_every_bit(name, shape):
    tensor = random_tensor(name, shape)
    assert_same(adapter.load(adapter.save({"x": tensor})), {"x": tensor})


def test_every_dtype_through_a_chain_of_deltas(tmp_path):
    states = [{name: random_tensor(name, (30, 7), seed) for name in DTYPES} for seed in range(3)]
    with lccodec.Chain(tmp_path, policy="lossless", adapter=adapter) as chain:
        save_all(chain, states)
        for step, state in enumerate(states):
            assert_same(chain.restore(step), state)
        part = chain.restore(1, keys=["float8_e5m2", "bfloat16"])
    assert_same(part, {name: states[1][name] for name in ("bfloat16", "float8_e5m2")})


@pytest.mark.parametrize("background", [False, True])
def test_some_arrays_over_the_step_before(tmp_path, background):
    """The note of types has the types of what is saved, and those of the rest."""
    states = [
        {
            "model": {name: random_tensor(name, (30, 7), seed) for name in DTYPES},
            "optimizer": {"state": {0: {"step": torch.tensor(seed)}}, "betas": (0.9, 0.99)},
            "path": Path(f"run{seed}"),
            "counted": Counter(a=seed, b=1),
        }
        for seed in range(2)
    ]
    before, after = states
    with lccodec.Chain(tmp_path, policy="lossless", adapter=adapter) as chain:
        chain.save(0, before)
        names = [f"model/{name}" for name in ("bfloat16", "float8_e4m3fn")]
        some = {"model": {name: after["model"][name] for name in ("float8_e4m3fn", "bfloat16")}}
        part = {"path": after["path"], "counted": Counter(a=7), "optimizer": {"state": {}}, **some}
        if background:
            chain.save_async(1, part, only=names).result()
        else:
            chain.save(1, part, only=names)
        expected = {**before, "model": {**before["model"], **some["model"]}, "path": after["path"]}
        assert_same(chain.restore(), {**expected, "counted": Counter(a=7, b=1)})


def test_integers_of_a_lossy_chain_are_exact_and_float8_is_stored_as_them(tmp_path):
    states = [{"w": random_tensor("float8_e4m3fn", (500,), seed)} for seed in range(2)]
    with lccodec.Chain(tmp_path, policy="lc-2", adapter=adapter) as chain:
        save_all(chain, states)
        assert_same(chain.restore(1), states[1])


def test_a_lossy_delta_in_memory():
    """Roles are those of the optimizer: its names say nothing."""
    model = torch.nn.Linear(100, 100)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    sizes, held = [], None
    for _ in range(3):
        model(torch.randn(1, 100)).square().sum().backward()
        optimizer.step()
        state = {"a": model.state_dict(), "b": optimizer.state_dict(), "bfloat16": torch.ones(3).bfloat16()}
        data = adapter.save(state, policy="balanced", reference=held)
        with pytest.raises(lccodec.ChainError) if held else contextlib.nullcontext():
            adapter.load(data)
        held = adapter.load(data, reference=held)
        assert (held["a"]["weight"] - state["a"]["weight"]).abs().max() < 2e-3
        assert held["bfloat16"].dtype == torch.bfloat16
        sizes.append(len(data))
    assert sizes[1] < sizes[0] < len(adapter.save(state))
    moments = held["b"]["state"][0]["exp_avg"], state["b"]["state"][0]["exp_avg"]
    assert not torch.equal(*moments)
    with pytest.raises(ArgumentError, match="role"):
        adapter.save(state, policy="balanced", roles={"a": "heavy"})


def test_schedulers_scalers_and_random_states():
    optimizer = torch.optim.SGD(network().parameters(), lr=0.1)
    schedulers = [
        torch.optim.lr_scheduler.MultiStepLR(optimizer, [3, 8]),
        torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer),
        torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=5),
    ]
    state = {
        "schedulers": [scheduler.state_dict() for scheduler in schedulers],
        "scaler": torch.amp.GradScaler("cpu").state_dict(),
        "torch": torch.get_rng_state(),
        "numpy": np.random.default_rng(0).bit_generator.state,
        "legacy": np.random.RandomState(0).get_state(),
        "size": torch.Size([2, 3]),
    }
    back = adapter.load(adapter.save(state))
    assert_same(back, state)
    np.random.RandomState(1).set_state(back["legacy"])
    adapter.load_into(dict(enumerate(schedulers)), dict(enumerate(back["schedulers"])))


def test_tied_tensors_are_stored_once_and_restored_as_one(tmp_path):
    model = torch.nn.Module()
    model.embedding = torch.nn.Embedding(100, 50)
    model.head = torch.nn.Linear(50, 100, bias=False)
    model.head.weight = model.embedding.weight
    adapter.save_file(model.state_dict(), tmp_path / "a.lcc.h5")
    with lccodec.open(tmp_path / "a.lcc.h5") as file:
        assert [array.nbytes for array in file.info().arrays] == [20000]
    back = adapter.load_file(tmp_path / "a.lcc.h5")
    assert back["embedding.weight"] is back["head.weight"]
    assert torch.equal(back["head.weight"], model.head.weight)


def test_views_that_differ_are_not_mistaken_for_one_tensor():
    base = torch.arange(16, dtype=torch.float32).reshape(4, 4)
    state = {"a": base, "t": base.T, "bits": base.view(torch.int32), "row": base[0], "empty": base[:0]}
    assert_same(adapter.load(adapter.save(state)), state)


def test_tensors_of_any_layout():
    base = torch.arange(240, dtype=torch.float32).reshape(2, 3, 8, 5)
    z = torch.view_as_complex(base.reshape(-1, 2))
    state = {
        "transposed": base.transpose(1, 3),
        "strided": base[:, ::2, 1::3],
        "expanded": base[:1].expand(3, 3, 8, 5),
        "channels_last": base.to(memory_format=torch.channels_last),
        "conjugate": z.conj(),
        "negative": z.conj().imag,
        "bfloat16": base.bfloat16().transpose(0, 1),
        "float8": base.to(torch.float8_e5m2).transpose(0, 2),
        "half": torch.view_as_complex(base.half().reshape(-1, 2))[::3],
        "parameter": torch.nn.Parameter(base),
        "buffer": torch.nn.Buffer(base + 1),
        "graph": torch.ones(3, requires_grad=True) * 2,
    }
    assert_same(
        adapter.load(adapter.save(state)), {key: t.detach().resolve_conj() for key, t in state.items()}
    )


@pytest.mark.parametrize("name", DTYPES)
def test_a_cpu_tensor_is_not_copied(name):
    tensor = random_tensor(name, (64, 32))
    array = adapter.to_numpy({"x": tensor})[0]["x"]
    assert array.__array_interface__["data"][0] == tensor.data_ptr()
    plain, metadata = adapter.to_numpy({"x": tensor})
    back = adapter.from_numpy(plain, metadata)["x"]
    assert (back.dtype, back.data_ptr()) == (tensor.dtype, tensor.data_ptr())


def test_saving_tensors_takes_no_more_memory_than_saving_arrays():
    tensors = {
        f"layer{i}": torch.randn(1 << 18).to(dtype) for i, dtype in enumerate([torch.float32, torch.bfloat16])
    }
    arrays, _ = adapter.to_numpy(tensors)

    def peak(save: Any, state: Any) -> int:
        tracemalloc.start()
        save(state)
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return most

    lccodec.save(arrays)  # what is made once is made here
    assert peak(adapter.save, tensors) < peak(lccodec.save, arrays) + (1 << 16)


def test_nothing_is_kept_that_the_caller_lets_go(tmp_path):
    chain = lccodec.Chain(tmp_path, adapter=adapter)
    state = {"x": torch.ones(5000), "y": [{"z": torch.ones(10)}]}
    data = lccodec.save({"x": np.ones(5000)})
    gc.collect()
    gc.disable()  # what would only be found as garbage is kept
    try:
        chain.save(0, state)
        held = [weakref.ref(make()["x"]) for make in (chain.restore, lambda: lccodec.load(data))]
        held += [weakref.ref(adapter.load(data)["x"]), weakref.ref(state.pop("x"))]
        assert [reference() for reference in held] == [None] * 4
    finally:
        gc.enable()


def test_results_are_writable_and_can_be_assigned(tmp_path):
    model, other = network(), network(1)
    with lccodec.Chain(tmp_path, adapter=adapter) as chain:
        chain.save(0, model.state_dict())
        state = chain.restore()
        other.load_state_dict(state, assign=True)
        with torch.no_grad():
            for parameter in other.parameters():
                parameter.zero_()
        assert_same(chain.restore(), dict(model.state_dict()))
    train(other, torch.optim.SGD(other.parameters(), 0.1), range(1))
    raw = adapter.load(adapter.save({"x": random_tensor("float32", (1000,)), "n": torch.tensor(3)}))
    raw["x"].zero_()
    raw["n"] += 1


def test_metadata_is_kept_and_the_note_is_not_stale(tmp_path):
    path = tmp_path / "a.lcc.h5"
    adapter.save_file({1: torch.ones(2)}, path, {"run": "7"})
    with lccodec.open(path) as file:
        metadata = file.metadata()
        assert metadata == {"run": "7", "lccodec.types": '{"int":[""]}'}
        assert file.keys() == ["1"]
    adapter.save_file({"a": torch.ones(2)}, path, metadata)
    with lccodec.open(path) as file:
        assert file.metadata() == {"run": "7"}


def test_without_the_adapter_a_state_is_numpy(tmp_path):
    adapter.save_file(
        {"m": {0: torch.ones(2), 1: torch.ones(2).to(torch.float8_e5m2)}}, tmp_path / "a.lcc.h5"
    )
    plain = lccodec.load_file(tmp_path / "a.lcc.h5")
    assert plain["m"]["0"].tolist() == [1, 1]
    assert plain["m"]["1"].tolist() == [0x3C, 0x3C]


@pytest.mark.parametrize("noted", [False, True])
def test_numpy_arrays_of_the_other_byte_order(noted):
    values = np.linspace(-1, 1, 5, dtype="f4")
    state = {"x": values.astype(values.dtype.newbyteorder("S"))}
    assert adapter.load(adapter.save(state))["x"].tolist() == values.tolist()
    metadata = adapter.to_numpy(state)[1] if noted else {}
    assert adapter.from_numpy(state, metadata)["x"].tolist() == values.tolist()


def test_devices():
    data = adapter.save({"a": torch.ones(2), "b": {"c": torch.ones(3)}})
    state = adapter.load(data, device="meta")
    assert state["b"]["c"].device.type == "meta"
    for device in (f"cuda:{torch.cuda.device_count()}", "nonsense", 1.5):
        with pytest.raises(ArgumentError, match="device"):
            adapter.load(data, device=device)


def test_a_chain_restores_to_a_device(tmp_path):
    with lccodec.Chain(tmp_path, adapter=adapter.OnDevice("meta")) as chain:
        chain.save(0, {"a": [torch.ones(2, 3)], "optimizer": trained()[2]["optimizer"]})
        back = chain.restore()
    assert (back["a"][0].device.type, back["a"][0].shape) == ("meta", (2, 3))


class _Subclass(torch.Tensor):
    pass


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: torch.ones(2, device="meta"), "'m/x' is on the meta device"),
        (lambda: torch.eye(2).to_sparse(), "'m/x' has the layout torch.sparse_coo"),
        (lambda: torch.eye(2).to_sparse_csr(), "'m/x' has the layout torch.sparse_csr"),
        (lambda: torch.ones(2).to_mkldnn(), "'m/x' has the layout torch._mkldnn"),
        (lambda: torch.nested.as_nested_tensor([torch.ones(2)], layout=torch.strided), "is a nested tensor"),
        (lambda: torch.ones(2).as_subclass(_Subclass), "'m/x' is a .*_Subclass.*: save the tensors that it"),
        (
            lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged),
            r"'m/x' is a .*, a jagged tensor: save its values\(\) and offsets\(\)",
        ),
        (lambda: torch.empty(2, dtype=torch.bits8), "'m/x' has dtype torch.bits8"),
        (torch.nn.UninitializedParameter, "'m/x' is a .*UninitializedParameter, .*: run the module once"),
        (torch.Generator, r"'m/x' is a torch._C.Generator.*; save its get_state\(\), and give that to set_"),
        (lambda: np.random.default_rng(0), "; save its bit_generator.state$"),
        (lambda: torch.utils.data.DataLoader([1]), "; save what the loop needs to find its place again"),
        (lambda: torch.strided, "'m/x' is a torch.layout"),
        (lambda: {print}, "'m/x/0' is a builtins.builtin_function"),
        (lambda: np.array([None]), "'m/x' has dtype object"),
        (lambda: print, "'m/x' is a builtins.builtin_function.*; leave functions out"),
    ],
)  # fmt: skip
@pytest.mark.filterwarnings("ignore:.*:UserWarning")  # PyTorch, of its beta features
def test_what_cannot_be_stored_is_refused_by_name(tmp_path, make, message):
    value = make()
    with pytest.raises(ArgumentError, match=message):
        adapter.save({"m": {"x": value}})
    with lccodec.Chain(tmp_path, adapter=adapter) as chain, pytest.raises(ArgumentError, match=message):
        chain.save(0, {"m": {"x": value}})
    assert not list(tmp_path.iterdir())


@pytest.mark.filterwarnings("ignore:.*:UserWarning", "ignore:.*:DeprecationWarning")
def test_a_quantized_tensor_is_refused():
    with pytest.raises(ArgumentError, match="'x' is quantized"):
        adapter.save({"x": torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.qint8)})


def test_a_state_that_contains_itself_is_refused(tmp_path):
    state: dict[str, Any] = {"model": torch.ones(2)}
    state["state"] = state
    with lccodec.Chain(tmp_path, adapter=adapter) as chain, pytest.raises(ArgumentError, match="deeper"):
        chain.save(0, state)


@pytest.mark.parametrize(
    ("note", "state"),
    [
        ("no json", {"x": np.ones(2, np.uint8)}),
        ("[]", {"x": np.ones(2, np.uint8)}),
        ('{"int": 3}', {"x": np.ones(2, np.uint8)}),
        ('{"int": "x"}', {"x": np.ones(2, np.uint8)}),
        ('{"int": [["x"]]}', {"x": np.ones(2, np.uint8)}),
        ('{"int": [1]}', {"x": np.ones(2, np.uint8)}),
        ("[" * 100000, {"x": np.ones(2, np.uint8)}),
        ('{"float8_e5m2": ["x"]}', {"x": np.ones(2, np.float32)}),
        ('{"complex32": ["x"]}', {"x": np.ones(3, np.float16)}),
        ('{"complex32": ["x"]}', {"x": np.ones(2, np.float32)}),
        ('{"complex32": ["x"]}', {"x": np.ones((), np.float16)}),
        ('{"int": ["x"]}', {"x": {"1": 2, "01": 3}}),
        ('{"int": ["x"]}', {"x": {"a": 2}}),
        ('{"int": ["x"]}', {"x": {"1" * 10000: 2}}),
        ('{"int": ["x"]}', {"x": {"٣": 2}}),
    ],
)
def test_a_note_that_does_not_fit_is_an_error_of_the_data(note, state):
    with pytest.raises(FormatError) as caught:
        adapter.load(lccodec.save(state, {"lccodec.types": note}))
    assert caught.value.rule == "lccodec.types"


@pytest.mark.parametrize("kind", ["float8_e3m4", "int4", "qint8", "key<threefry2x32>", "load"])
def test_a_type_that_pytorch_does_not_have(kind):
    data = lccodec.save({"x": np.ones(2, np.uint8)}, {"lccodec.types": f'{{"{kind}": ["x"]}}'})
    with pytest.raises(ArgumentError, match=f"array 'x' is of type {kind}, which PyTorch does not have"):
        adapter.load(data)


def test_what_pytorch_has_of_a_state_with_random_keys_of_jax(tmp_path):
    state = {"key": np.ones(2, np.uint32), "w": np.ones(3)}
    with lccodec.Chain(tmp_path, "lossless") as plain:
        plain.save(0, state, {"lccodec.types": '{"key<threefry2x32>": ["key"]}'})
    with pytest.raises(ArgumentError, match="choose others by keys=, or load it without the adapter"):
        lccodec.Chain(tmp_path, adapter=adapter).restore()
    assert lccodec.Chain(tmp_path, adapter=adapter).restore(keys=["w"])["w"].tolist() == [1, 1, 1]
    assert plain.restore()["key"].tolist() == [1, 1]


leaves = (
    st.builds(random_tensor, st.sampled_from(DTYPES), st.sampled_from([(), (3,), (2, 2)]), st.integers(0, 9))
    | st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=3)
    | st.binary(max_size=3) | st.builds(np.arange, st.integers(0, 3))
)  # fmt: skip
states = st.recursive(
    leaves,
    lambda inner: (
        st.dictionaries(st.text("a/~0", max_size=2), inner, max_size=3)
        | st.dictionaries(st.integers(-3, 3), inner, max_size=3)
        | st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
    ),
    max_leaves=8,
)


@given(states)
def test_any_state_comes_back(state):
    plain, metadata = adapter.to_numpy(state)
    assert_same(adapter.from_numpy(plain, metadata), state)


RESUME = """
import sys, torch, lccodec
from lccodec.adapters import torch as adapter
from tests.support.torch_states import network, train
model = network(5)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 20)
chain = lccodec.Chain(sys.argv[1], policy="lossless", adapter=adapter)
adapter.load_into({"model": model, "optimizer": optimizer, "scheduler": scheduler}, chain.restore())
for step in range(6, 12):
    train(model, optimizer, range(step, step + 1))
    scheduler.step()
adapter.save_file({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, sys.argv[2])
"""


@pytest.mark.slow
def test_a_run_that_is_resumed_in_a_new_process_is_the_run_that_was_not_interrupted(tmp_path):
    model = network()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 20)
    with lccodec.Chain(tmp_path / "run", policy="lossless", adapter=adapter) as chain:
        for step in range(12):
            train(model, optimizer, range(step, step + 1))
            scheduler.step()
            if step < 6:
                state = {"model": model, "optimizer": optimizer, "scheduler": scheduler}
                chain.save(step, {name: thing.state_dict() for name, thing in state.items()})
    run_program(RESUME, tmp_path / "run", tmp_path / "end.lcc.h5")
    end = adapter.load_file(tmp_path / "end.lcc.h5")
    assert_same(end, {"model": model.state_dict(), "optimizer": optimizer.state_dict()})


def test_the_error_says_what_to_write_instead(tmp_path):
    module = torch.nn.Linear(2, 2)
    optimizer = torch.optim.Adam(module.parameters())
    plain, chain = lccodec.Chain(tmp_path / "a"), lccodec.Chain(tmp_path / "b", adapter=adapter)
    with pytest.raises(
        ArgumentError, match=r"Chain\(\.\.\., adapter=lccodec\.adapters\.torch\), or for one file"
    ):
        plain.save(0, {"model": module.state_dict()})
    for each in (plain, chain):
        for value in (module, optimizer):
            with pytest.raises(ArgumentError, match=r"'model' is a torch.*; save its state_dict\(\)"):
                each.save(0, {"model": value})
        with pytest.raises(ArgumentError, match=r"metadata 'loss'.*; give a number, as of its item\(\)"):
            each.save(0, {}, {"loss": torch.tensor(0.5)})


KINDS = [
    torch.float32, torch.bfloat16, torch.float16, torch.float8_e4m3fn, torch.int64, torch.uint16,
    torch.complex64, torch.complex32, torch.bool,
]  # fmt: skip


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let all tensors be of another device, except those of one value."""
    monkeypatch.setattr(module, "is_elsewhere", lambda tensor: tensor.numel() > 1)


complex_half = pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental")


def everything() -> dict[str, torch.Tensor]:
    """Tensors of all types, views among them."""
    base = torch.arange(48, dtype=torch.float32).reshape(6, 8)
    found = {str(dtype): (base % 2 if dtype == torch.bool else base).to(dtype) for dtype in KINDS}
    turned = {"turned": base.t(), "some": base[::2, 1::3], "conj": found["torch.complex64"].conj()}
    return {**found, **turned, "tied": base, "again": base, "one": torch.tensor(3.0), "none": base[:0]}


@complex_half
def test_a_tensor_of_the_cpu_is_here() -> None:
    assert not is_elsewhere(torch.ones(2))
    assert is_elsewhere(torch.ones(2, device="meta"))


@complex_half
def test_copies_are_bytes_in_one_segment() -> None:
    arena, tensors = Arena(), [torch.randn(700_000), torch.arange(6).reshape(2, 3).t()]
    copies = copy_out(tensors, arena)
    assert [copy.dtype for copy in copies] == [np.uint8, np.uint8]
    for tensor, copy in zip(tensors, copies, strict=True):
        assert copy.tobytes() == tensor.contiguous().numpy().tobytes()
    places = [place_of(copy) for copy in copies]
    assert places[0] is not None and places[1] is not None
    assert places[0][0] is places[1][0]


@complex_half
@pytest.mark.usefixtures("elsewhere")
def test_states_of_other_devices_are_the_same_states() -> None:
    state = {"tensors": everything(), "n": 1, "x": {3: np.arange(3)}}
    plain, metadata = adapter.to_numpy(state)
    staged, noted = adapter.to_numpy(state, None, Arena())
    assert noted == metadata
    assert lccodec.save(staged, noted) == lccodec.save(plain, metadata)
    assert staged["tensors"]["tied"] is staged["tensors"]["again"]


@complex_half
@pytest.mark.usefixtures("elsewhere")
def test_what_is_in_shared_memory_is_not_copied_again(
    tmp_path: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    class Counted(Arena):
        def empty(self, count: int, dtype: np.dtype, more: int = 0) -> np.ndarray:
            asked.append(count * dtype.itemsize)
            return super().empty(count, dtype, more)

    monkeypatch.setattr(background, "Arena", Counted)
    state = {"a": torch.randn(500, 3), "b": torch.arange(7), "one": torch.tensor(2.0), "c": np.arange(5)}
    with lccodec.Chain(f"{tmp_path}/chain", "lossless", adapter=adapter) as chain:
        for step in range(3):
            state["a"] += 1
            chain.save_async(step, state)
            expected = state["a"].clone()
            state["a"] -= 1  # while the save runs
            chain.wait()
            assert torch.equal(chain.restore()["a"], expected)
            state["a"] += 1
    assert asked == 3 * [6000, 56, 4, 40]


@complex_half
@pytest.mark.usefixtures("elsewhere")
def test_restored_tensors_are_copied(tmp_path: object) -> None:
    """They lie in shared memory too, of their own."""
    with lccodec.Chain(f"{tmp_path}/chain", "lossless", adapter=adapter, workers=1) as chain:
        chain.save(0, {"w": torch.randn(300_000), "one": torch.tensor(1.0)})
        state = chain.restore()
        future = chain.save_async(1, state)
        expected = {name: tensor.clone() for name, tensor in state.items()}
        for tensor in state.values():
            tensor.add_(1)
        future.result()
        restored = chain.restore()
    assert all(torch.equal(restored[name], tensor) for name, tensor in expected.items())


@complex_half
@pytest.mark.parametrize("background", [False, True])
@pytest.mark.usefixtures("elsewhere")
def test_what_a_save_leaves_out_stays_where_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, background: bool
) -> None:
    """The base of a model on a GPU is not copied for the few arrays that change."""
    copied: list[int] = []
    host, out = module.host_array, module.copy_out
    monkeypatch.setattr(module, "host_array", lambda tensor: [copied.append(tensor.numel()), host(tensor)][1])
    monkeypatch.setattr(
        module, "copy_out", lambda ts, r: [copied.extend(t.numel() for t in ts), out(ts, r)][1]
    )
    tied = torch.zeros(3000, dtype=torch.float8_e4m3fn)
    state = {"base": tied, "tied": tied, "half": torch.zeros(40).bfloat16(), "lora": {3: torch.zeros(30)}}
    with lccodec.Chain(tmp_path, "lossless", adapter=adapter) as chain:
        chain.save(0, state)
        assert copied == [3000, 40, 30]
        state["lora"][3] += 1
        if background:
            chain.save_async(1, state, only=["lora/*"]).result()
        else:
            chain.save(1, state, only=["lora/*"])
        assert copied == [3000, 40, 30, 30]
        found = chain.restore()
    assert found["base"] is found["tied"]
    assert found["base"].dtype == torch.float8_e4m3fn
    assert torch.equal(found["half"], state["half"])
    assert torch.equal(found["lora"][3], state["lora"][3])
