from __future__ import annotations

import dataclasses
import gc
import subprocess
import sys
import tracemalloc
import weakref
from collections import OrderedDict
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import lccodec
from lccodec.adapters import torch as adapter
from lccodec.errors import ArgumentError, FormatError
from lccodec.policy.roles import assign_roles, check_matches

torch.set_num_threads(1)

FLOAT8 = ["float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu"]
INTEGERS = ["bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
FLOATS = ["float16", "bfloat16", "float32", "float64", "complex32", "complex64", "complex128"]
DTYPES = [*INTEGERS, *FLOATS, *FLOAT8, "float4_e2m1fn_x2"]


def random_tensor(name: str, shape: tuple[int, ...], seed: int = 0) -> torch.Tensor:
    """A tensor of arbitrary bit patterns: NaN payloads, -0.0 and subnormals among them."""
    dtype = getattr(torch, name)
    rng = np.random.default_rng(seed)
    if name == "bool":
        return torch.from_numpy(np.asarray(rng.random(shape) < 0.5))
    size = int(np.prod(shape))
    patterns = rng.integers(0, 256, max(size, 1) * dtype.itemsize, np.uint8)
    return torch.from_numpy(patterns).view(dtype)[:size].reshape(shape)


def bits(tensor: torch.Tensor) -> bytes:
    tensor = torch.view_as_real(tensor) if tensor.dtype == torch.complex32 else tensor.resolve_neg()
    return tensor.reshape(-1).view(torch.uint8).numpy().tobytes() if tensor.numel() else b""


def assert_same(left: Any, right: Any) -> None:
    """The same structure, types and bits; an OrderedDict counts as a dict."""
    if isinstance(left, torch.Tensor):
        assert (left.dtype, left.shape, left.device) == (right.dtype, right.shape, right.device)
        assert bits(left) == bits(right)
    elif isinstance(left, np.ndarray):
        assert type(right) is np.ndarray
        assert (left.dtype, left.shape, left.tobytes()) == (right.dtype, right.shape, right.tobytes())
    elif isinstance(left, dict):
        assert [(type(key), key) for key in left] == [(type(key), key) for key in right]
        for key in left:
            assert_same(left[key], right[key])
    elif isinstance(left, list | tuple):
        assert len(left) == len(right)
        assert isinstance(right, tuple if isinstance(left, tuple) else list)
        for a, b in zip(left, right, strict=True):
            assert_same(a, b)
    else:
        assert type(left) is type(right)
        assert left == right


def network(seed: int = 0) -> torch.nn.Module:
    torch.manual_seed(seed)
    return torch.nn.Sequential(
        torch.nn.Linear(6, 8), torch.nn.BatchNorm1d(8), torch.nn.ReLU(), torch.nn.Linear(8, 3)
    )


def train(model: torch.nn.Module, optimizer: torch.optim.Optimizer, steps: range) -> None:
    for step in steps:
        generator = torch.Generator().manual_seed(step)
        x = torch.randn(16, 6, generator=generator)
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()


@pytest.mark.parametrize("name", DTYPES)
@pytest.mark.parametrize("shape", [(), (0, 3), (4, 5)])
def test_every_dtype_keeps_every_bit(name, shape):
    tensor = random_tensor(name, shape)
    assert_same(adapter.load(adapter.save({"x": tensor})), {"x": tensor})


def test_every_dtype_through_a_chain_of_deltas(tmp_path):
    states = [{name: random_tensor(name, (30, 7), seed) for name in DTYPES} for seed in range(3)]
    with lccodec.Chain(tmp_path, policy="lossless", adapter=adapter) as chain:
        for step, state in enumerate(states):
            chain.save(step, state)
        for step, state in enumerate(states):
            assert_same(chain.restore(step), state)
        part = chain.restore(1, keys=["float8_e5m2", "bfloat16"])
    assert_same(part, {name: states[1][name] for name in ("bfloat16", "float8_e5m2")})


def test_integers_of_a_lossy_chain_are_exact_and_float8_is_stored_as_them(tmp_path):
    states = [{"w": random_tensor("float8_e4m3fn", (500,), seed)} for seed in range(2)]
    with lccodec.Chain(tmp_path, policy="lc-2", adapter=adapter) as chain:
        for step, state in enumerate(states):
            chain.save(step, state)
        assert_same(chain.restore(1), states[1])


OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1),
    "momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True),
    "adamw": lambda p: torch.optim.AdamW(p, amsgrad=True),
    "rmsprop": lambda p: torch.optim.RMSprop(p, centered=True, momentum=0.9),
    "adagrad": torch.optim.Adagrad,
    "adadelta": torch.optim.Adadelta,
    "adamax": torch.optim.Adamax,
    "asgd": torch.optim.ASGD,
    "rprop": torch.optim.Rprop,
    "adafactor": torch.optim.Adafactor,
    "lbfgs": torch.optim.LBFGS,
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_the_state_of_an_optimizer_comes_back_as_it_is(name):
    model = network()
    optimizer = OPTIMIZERS[name](model.parameters())
    if name == "lbfgs":
        optimizer.step(
            lambda: (optimizer.zero_grad(), loss := model(torch.ones(4, 6)).sum(), loss.backward())[1]
        )
    else:
        train(model, optimizer, range(3))
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
    back = adapter.load(adapter.save(state))
    assert_same(back, state)
    resumed = network(1)
    again = OPTIMIZERS[name](resumed.parameters())
    adapter.load_into({"model": resumed, "optimizer": again}, back)
    assert_same({"model": resumed.state_dict(), "optimizer": again.state_dict()}, state)


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
    for device in ("cuda:0", "nonsense", 1.5):
        with pytest.raises(ArgumentError, match="device"):
            adapter.load(data, device=device)


def test_a_chain_restores_to_a_device_and_takes_adapters_only(tmp_path):
    with lccodec.Chain(tmp_path, adapter=adapter.OnDevice("meta")) as chain:
        chain.save(0, {"a": [torch.ones(2, 3)], "optimizer": trained()[2]["optimizer"]})
        back = chain.restore()
    assert (back["a"][0].device.type, back["a"][0].shape) == ("meta", (2, 3))
    with pytest.raises(ArgumentError, match=r"adapter is to be one as .*, not 'torch'"):
        lccodec.Chain(tmp_path, adapter="torch")


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
        (lambda: torch.ones(2).as_subclass(_Subclass), "'m/x' is a .*_Subclass"),
        (lambda: torch.empty(2, dtype=torch.bits8), "'m/x' has dtype torch.bits8"),
        (torch.nn.UninitializedParameter, "'m/x' is a .*UninitializedParameter"),
        (lambda: torch.strided, "'m/x' is a torch.layout"),
        (lambda: {print}, "'m/x/0' is a builtins.builtin_function"),
        (lambda: np.array([None]), "'m/x' has dtype object"),
        (lambda: print, "'m/x' is a builtins.builtin_function"),
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


def trained() -> tuple[torch.nn.Module, torch.optim.Optimizer, dict[str, Any]]:
    model = network()
    optimizer = torch.optim.AdamW(model.parameters())
    train(model, optimizer, range(2))
    return (
        model,
        optimizer,
        adapter.load(
            adapter.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": 2})
        ),
    )


def test_all_mismatches_are_listed_and_the_target_is_untouched():
    _, _, state = trained()
    model = network(1)
    model.append(torch.nn.Linear(3, 1))
    model[0] = torch.nn.Linear(6, 9)
    model[1].half()
    model[3] = torch.nn.Linear(8, 3, bias=False)
    optimizer = torch.optim.AdamW(model.parameters())
    before = {key: t.clone() for key, t in model.state_dict().items()}
    with pytest.raises(ArgumentError) as caught:
        adapter.load_into({"model": model, "optimizer": optimizer, "epoch": 1}, state)
    message = str(caught.value)
    for line in (
        "missing: model/4.weight (float32 (1, 3))",
        "missing: epoch (int)",
        "unexpected: model/3.bias (float32 (3,))",
        "unexpected: step (int)",
        "model/0.weight: float32 (8, 6), where the target has float32 (9, 6)",
        "model/1.running_var: float32 (8,), where the target has float16 (8,)",
        "optimizer: groups of [6] parameters, where the target has groups of [7]",
    ):
        assert f"  {line}" in message.splitlines()
    assert_same(dict(model.state_dict()), before)
    assert not optimizer.state


@pytest.mark.parametrize(
    ("make", "line"),
    [
        (lambda m: torch.optim.SGD(m.parameters(), 0.1), "missing: param_groups/0/momentum"),
        (
            lambda m: torch.optim.AdamW([{"params": m[0].parameters()}, {"params": m[1:].parameters()}]),
            "the state: groups of [6] parameters, where the target has groups of [2, 4]",
        ),
        (
            lambda m: torch.optim.AdamW(list(m.parameters())[::-1]),
            "state/0/exp_avg: float32 (8, 6), where the target has float32 (3,)",
        ),
        (
            lambda m: torch.optim.AdamW(m.bfloat16().parameters()),
            "state/1/exp_avg_sq: float32 (8,), where the target has bfloat16 (8,)",
        ),
    ],
)
def test_the_state_of_another_optimizer(make, line):
    _, _, state = trained()
    optimizer = make(network())
    with pytest.raises(ArgumentError) as caught:
        adapter.load_into(optimizer, state["optimizer"])
    assert f"  {line}" in str(caught.value).splitlines()
    assert not optimizer.state


def test_an_optimizer_that_has_a_state_wants_the_same_entries():
    _, optimizer, state = trained()
    entries = state["optimizer"]["state"]
    del entries[0]["exp_avg"]
    entries[1]["extra"] = torch.ones(1)
    entries[2]["step"] = 3
    entries[17] = {}
    with pytest.raises(ArgumentError) as caught:
        adapter.load_into(optimizer, state["optimizer"])
    assert str(caught.value).splitlines()[1:] == [
        "  missing: state/0/exp_avg",
        "  unexpected: state/1/extra",
        "  state/2/step: no tensor, where the target has float32 ()",
        "  unexpected: state/17",
    ]
    for wrong in (None, {}, {"state": [], "param_groups": []}, {"state": {}, "param_groups": [1]}):
        with pytest.raises(ArgumentError, match="not the state of an optimizer"):
            adapter.load_into(optimizer, wrong)


def test_loading_into_tensors_and_containers():
    weight, pair = torch.zeros(3), (torch.zeros(1), 5)
    target = OrderedDict(w=weight, items=[torch.zeros(2), "a"], pair=pair, meta=torch.empty(2, device="meta"))
    state = {
        "w": torch.ones(3),
        "items": [torch.ones(2), "b"],
        "pair": (torch.ones(1), 6),
        "meta": torch.ones(2),
    }
    assert adapter.load_into(target, state) is target
    assert target["w"] is weight
    assert_same(dict(target), state)
    for wrong in ({**state, "items": [1]}, {**state, "items": 3}, {**state, "w": 1}, [1]):
        with pytest.raises(ArgumentError):
            adapter.load_into(target, wrong)


def test_a_module_on_the_meta_device_takes_the_tensors():
    model, _, state = trained()
    with torch.device("meta"):
        empty = network()
    adapter.load_into(empty, state["model"])
    assert_same(dict(empty.state_dict()), dict(model.state_dict()))


def role_of(state: Any) -> dict[str, str]:
    return {name: assignment.role for name, assignment in adapter.roles(state).items()}


def every_role(state: Any) -> dict[str, str]:
    """Roles by structure, and by name where that does not tell."""
    names = lccodec.container.tree.flatten(adapter.to_numpy(state)[0]).names
    return {name: found.role for name, found in assign_roles(names, None, adapter.roles(state)).items()}


def test_roles_come_from_the_structure_whatever_the_names_are(tmp_path):
    model = torch.nn.Linear(40, 40)
    optimizer = torch.optim.Adagrad(model.parameters())
    train_state = {"net": model.state_dict(), "trainer": {"inner": optimizer.state_dict()}}
    assert role_of(train_state) == {
        "trainer/inner/state/0/step": "other", "trainer/inner/state/0/sum": "second_moment",
        "trainer/inner/state/1/step": "other", "trainer/inner/state/1/sum": "second_moment",
        "net/weight": "weight", "net/bias": "weight",
    }  # fmt: skip
    exact = {}
    policy = lccodec.Policy("p", {"weight": lccodec.ExponentBuckets(bits=2)})
    with lccodec.Chain(tmp_path, policy=policy, adapter=adapter) as chain:
        for step in range(2):
            chain.save(step, train_state)
            with torch.no_grad():
                for state in optimizer.state.values():
                    state["sum"] += torch.rand_like(state["sum"])
                model.weight += torch.rand_like(model.weight)
            exact = {name: t.clone() for name, t in optimizer.state[model.weight].items()}
        chain.save(2, train_state)
        back = chain.restore()
    assert_same(back["trainer"]["inner"]["state"][0], exact)
    assert not torch.equal(back["net"]["weight"], model.weight)


class Quantized(torch.nn.Module):
    """A codebook that is a running mean, as VQ-VAEs have; its parameters have names of their own."""

    def __init__(self) -> None:
        super().__init__()
        self.theta = torch.nn.Parameter(torch.randn(8, 40))
        self.norm = torch.nn.BatchNorm1d(40)
        self.register_buffer("embed", torch.randn(16, 40))
        self.register_buffer("embed_avg", self.embed.clone())
        self.register_buffer("cluster_size", torch.ones(16))
        self.usage = torch.nn.Parameter(torch.ones(300), requires_grad=False)

    def forward(self, x):
        x = self.norm(x @ self.theta)
        with torch.no_grad():
            chosen = torch.nn.functional.one_hot(torch.cdist(x, self.embed).argmin(1), 16).float()
            self.cluster_size.lerp_(chosen.sum(0), 0.1)
            self.embed_avg.lerp_(chosen.T @ x, 0.1)
            self.embed.copy_(self.embed_avg / (self.cluster_size + 1e-5)[:, None])
            self.usage += chosen.sum()
        return (x - self.embed[chosen.argmax(1)]).square().mean()


def quantized_states(optimizer_of, keep_vars: bool = False):
    torch.manual_seed(0)
    model = Quantized()
    optimizer = optimizer_of([p for p in model.parameters() if p.requires_grad])
    for step in range(9):
        optimizer.zero_grad()
        model(torch.randn(32, 8, generator=torch.Generator().manual_seed(step))).backward()
        optimizer.step()
        if step % 3 == 2:
            state = {"net": model.state_dict(keep_vars=keep_vars), "optimizer": optimizer.state_dict()}
            yield model, state


@pytest.mark.parametrize("policy", ["balanced", "lc-3"])
@pytest.mark.parametrize("keep_vars", [False, True])
def test_statistics_and_codebooks_are_exact(tmp_path, policy, keep_vars):
    policy = dataclasses.replace(lccodec.POLICIES[policy], smallest=0)
    with lccodec.Chain(tmp_path, policy, adapter=adapter) as chain:
        for step, (_, state) in enumerate(quantized_states(torch.optim.AdamW, keep_vars)):
            chain.save(step, state)
        back = chain.restore()
    differ = {name for name, tensor in state["net"].items() if not torch.equal(tensor, back["net"][name])}
    assert differ == {"theta", "norm.weight", "norm.bias"}
    assert not torch.equal(
        back["optimizer"]["state"][0]["exp_avg"], state["optimizer"]["state"][0]["exp_avg"]
    )


def test_parameters_are_told_by_their_shapes_only_where_the_numbers_are_the_same():
    *_, (_, state) = quantized_states(torch.optim.Adam)
    assert role_of(state)["net/theta"] == "weight"
    assert "net/embed" not in role_of(state)
    assert adapter.roles(state)["net/theta"].why == "a parameter of the optimizer, by shape"
    more = {**state, "spare": torch.ones(8, 40)}  # two of the shape, and one parameter
    assert every_role(more)["net/theta"] == every_role(more)["spare"] == "other"
    assert every_role(more)["net/norm.weight"] == "weight"  # by its name
    two = {**state, "net_ema": {"theta": state["net"]["theta"] + 1}}
    assert (every_role(two)["net/theta"], every_role(two)["net_ema/theta"]) == ("weight", "other")
    # A parameter that is not in the state: buffers of its shape could be taken for it.
    del state["net"]["theta"]
    state["net"]["other"] = torch.ones(40)
    assert set(role_of(state).values()) == {"first_moment", "second_moment", "other"}


def test_parameters_are_told_by_the_names_that_an_optimizer_has():
    torch.manual_seed(0)
    model = Quantized()
    trained = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
    optimizer = torch.optim.SGD(trained, lr=0.1)  # without momentum there is no entry of any shape
    wrapped = {f"module.{name}": tensor for name, tensor in model.state_dict().items()}
    for net in (model.state_dict(), wrapped):
        found = role_of({"a": {"b": net}, "sgd": optimizer.state_dict()})
        names = [name.removeprefix("a/b/").removeprefix("module.") for name in found]
        assert names == [name for name, _ in trained]
        assert set(found.values()) == {"weight"}


def test_a_state_of_parameters_tells_their_types():
    found = {
        name: (a.role, a.why) for name, a in adapter.roles(Quantized().state_dict(keep_vars=True)).items()
    }
    buffer = ("other", "a buffer beside torch.nn.Parameter")
    assert found == {
        "theta": ("weight", "torch.nn.Parameter"),
        "norm.weight": ("weight", "torch.nn.Parameter"),
        "norm.bias": ("weight", "torch.nn.Parameter"),
        "usage": ("other", "a torch.nn.Parameter without gradient"),
        **dict.fromkeys(["embed", "embed_avg", "cluster_size"], buffer),
        **dict.fromkeys(["norm.running_mean", "norm.running_var"], buffer),
    }
    state = {"a": torch.nn.Parameter(torch.ones(2)), "b": torch.nn.Buffer(torch.ones(2))}
    assert role_of(state) == {"a": "weight", "b": "other"}
    assert role_of([state["b"], torch.nn.Parameter(torch.ones(2))]) == {"0": "other", "1": "weight"}
    named = torch.nn.ParameterDict({"cluster_size": torch.ones(3), "w": torch.ones(3)})
    assert role_of(named.state_dict(keep_vars=True)) == {"cluster_size": "other", "w": "weight"}


def test_a_module_tells_the_roles_for_a_chain(tmp_path):
    *_, (model, state) = quantized_states(torch.optim.SGD)
    roles = adapter.roles_of(model, "net")
    assert roles["net/theta"] == "weight"
    assert {roles[f"net/{name}"] for name in ("embed", "usage", "norm.running_var")} == {"other"}
    check_matches("roles", roles, lccodec.container.tree.flatten(adapter.to_numpy(state)[0]).names)
    policy = dataclasses.replace(lccodec.POLICIES["lc-3"], smallest=0)
    with lccodec.Chain(tmp_path, policy, roles=roles, adapter=adapter) as chain:
        for step in range(2):
            state["net"] = {name: tensor * (1 + step) for name, tensor in state["net"].items()}
            chain.save(step, state)
        back = chain.restore()["net"]
    assert {n for n, t in state["net"].items() if not torch.equal(t, back[n])} == {
        "theta", "norm.weight", "norm.bias",
    }  # fmt: skip


def test_tied_tensors_have_one_role():
    model = torch.nn.Sequential(torch.nn.Linear(4, 4, bias=False), torch.nn.Linear(4, 4, bias=False))
    model[1].weight = model[0].weight
    assert adapter.roles_of(model) == {"0.weight": "weight"}
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(1, 4)).sum().backward()
    optimizer.step()
    state = {"net": {"x": model[0].weight.data, "y": model[0].weight.data}, "adam": optimizer.state_dict()}
    assert role_of(state)["net/x"] == "weight"


def test_adafactor_has_second_moments_of_rows_and_columns():
    model = network()
    optimizer = torch.optim.Adafactor(model.parameters())
    train(model, optimizer, range(2))
    found = role_of({"net": model.state_dict(), "optimizer": optimizer.state_dict()})
    assert [found[f"optimizer/state/0/{n}"] for n in ("step", "row_var", "col_var")] == [
        "other", "second_moment", "second_moment",
    ]  # fmt: skip
    assert found["optimizer/state/1/variance"] == "second_moment"


def test_the_optimizers_of_a_gan():
    parts, state = {}, {}
    for name in ("G", "D"):
        model = parts[name] = network()
        optimizer = torch.optim.Adam(model.parameters())
        train(model, optimizer, range(2))
        state[f"net_{name}"] = model.state_dict()
        state[f"optimizer_{name}"] = optimizer.state_dict()
    found = every_role(state)
    for name, role in found.items():
        assert name.startswith("optimizer_") or "running" in name or "num_b" in name or role == "weight", name
    assert found["optimizer_G/state/0/exp_avg"] == "first_moment"
    assert found["optimizer_D/state/0/step"] == "other"
    # The same without what is known of states: names alone.
    names = list(found)
    assert {name: a.role for name, a in assign_roles(names).items()} == found


def test_states_that_only_look_like_an_optimizers():
    odd = {"state": {0: torch.ones(3), 1: {"exp_avg": None, "x": [torch.ones(2)]}}, "param_groups": 3}
    assert role_of(odd) == {"state/0": "other", "state/1/x/0": "other"}
    assert role_of({"state": {"sum": torch.ones(2)}, "model.state.fc.sum": torch.ones(2)}) == {}
    flat = {"optimizer.state.fc.table.sum": torch.ones(2), "model.fc.table": torch.ones(2)}
    assert role_of(flat) == {"optimizer.state.fc.table.sum": "second_moment", "model.fc.table": "weight"}


RESUME = """
import sys, torch, lccodec
from lccodec.adapters import torch as adapter
from tests.adapters.test_torch import network, train
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
    command = [sys.executable, "-c", RESUME, str(tmp_path / "run"), str(tmp_path / "end.lcc.h5")]
    subprocess.run(command, check=True)
    end = adapter.load_file(tmp_path / "end.lcc.h5")
    assert_same(end, {"model": model.state_dict(), "optimizer": optimizer.state_dict()})


def test_without_pytorch_the_error_names_the_extra():
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "try: import lccodec.adapters.torch\n"
        "except Exception as error: print(type(error).__name__, error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("DependencyError")
    assert "lccodec[torch]" in done.stdout
