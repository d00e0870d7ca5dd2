"""Every layout against the layers of both frameworks, and there and back bit for bit."""

import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
import torch
from flax import nnx
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from lccodec import BFLOAT16_BITS
from lccodec.errors import ArgumentError
from lccodec.exchange import LAYOUTS, Rule, to_flax, to_torch

from ..support.networks import bits, flax_state, torch_state
from ..support.strategies import bits_of

F4 = np.float32


def filled(module):
    """Fill a torch module, so that no bias is zero and no scale is one."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for leaf in module.state_dict().values():
            if leaf.is_floating_point():
                leaf.copy_(torch.rand(leaf.shape, generator=generator) + 0.1)
    return module.eval()


def exchanged(ours, theirs, rules=()):
    """Bring the state of a torch module into a Flax one; hold that it comes back as it was."""
    state, like = torch_state(ours), flax_state(theirs)
    made = to_flax(state, rules, like)
    back = to_torch(made, rules, state)
    assert bits(back) == bits(state)
    assert all(leaf.flags.c_contiguous for leaf in back.values())
    nnx.update(theirs, made)
    theirs.eval()


def assert_equal_outputs(ours, theirs, *inputs):
    with torch.no_grad():
        expected = ours(*map(torch.tensor, inputs)).numpy()
    channels_last = [np.moveaxis(x, 1, -1) if x.ndim > 2 else x for x in inputs]
    found = np.asarray(theirs(*channels_last))
    found = np.moveaxis(found, -1, 1) if found.ndim > 2 else found
    assert found.shape == expected.shape
    assert np.abs(found - expected).max() <= 1e-5 * np.abs(expected).max()


def image(*shape):
    return np.random.default_rng(0).normal(size=shape).astype(np.float32)


@pytest.mark.parametrize(("dimensions", "groups"), [(1, 1), (2, 2), (3, 1)])
def test_convolutions(dimensions, groups):
    window, size = (3, 2, 4)[:dimensions], (6, 5, 7)[:dimensions]
    ours = filled([nn.Conv1d, nn.Conv2d, nn.Conv3d][dimensions - 1](4, 6, window, groups=groups))
    theirs = nnx.Conv(4, 6, window, padding="VALID", feature_group_count=groups, rngs=nnx.Rngs(0))
    exchanged(ours, theirs)
    assert_equal_outputs(ours, theirs, image(2, 4, *size))


TURNED = [Rule("**.weight", "**/kernel", "conv-transposed")]


@pytest.mark.parametrize(("dimensions", "stride", "padding"), [(1, 1, 0), (2, 2, 1), (3, 2, 1)])
def test_transposed_convolutions(dimensions, stride, padding):
    window, size = (3, 2, 4)[:dimensions], (6, 5, 7)[:dimensions]
    layer = [nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d][dimensions - 1]
    ours = filled(layer(4, 6, window, stride, padding))
    around = [
        (length - 1 - padding,) * 2 for length in window
    ]  # of the input, where torch's is of the output
    theirs = nnx.ConvTranspose(4, 6, window, (stride,) * dimensions, padding=around, rngs=nnx.Rngs(0))
    exchanged(ours, theirs, TURNED)
    assert_equal_outputs(ours, theirs, image(2, 4, *size))


def test_transposed_convolutions_that_end_where_they_should_or_turn_the_kernel_themselves():
    ours = filled(nn.ConvTranspose2d(4, 6, (3, 2), 2))
    for rules, options in ((TURNED, {}), ([], {"transpose_kernel": True})):
        theirs = nnx.ConvTranspose(4, 6, (3, 2), (2, 2), padding="VALID", rngs=nnx.Rngs(0), **options)
        exchanged(ours, theirs, rules)
        assert_equal_outputs(ours, theirs, image(2, 4, 6, 5))


@pytest.mark.parametrize(
    ("ours", "theirs", "shape"),
    [
        (nn.Linear(4, 6), lambda rngs: nnx.Linear(4, 6, rngs=rngs), (3, 4)),
        (nn.BatchNorm1d(4), lambda rngs: nnx.BatchNorm(4, rngs=rngs), (3, 4)),
        (nn.BatchNorm2d(4), lambda rngs: nnx.BatchNorm(4, rngs=rngs), (3, 4, 5, 6)),
        (nn.LayerNorm(4), lambda rngs: nnx.LayerNorm(4, epsilon=1e-5, rngs=rngs), (3, 4)),
        (nn.GroupNorm(2, 4), lambda rngs: nnx.GroupNorm(4, 2, epsilon=1e-5, rngs=rngs), (3, 4, 5)),
        (nn.RMSNorm(4, eps=1e-6), lambda rngs: nnx.RMSNorm(4, rngs=rngs), (3, 4)),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, nn.Module) else "",
)
def test_other_layers(ours, theirs, shape):
    theirs = theirs(nnx.Rngs(0))
    exchanged(filled(ours), theirs)
    assert_equal_outputs(ours, theirs, image(*shape))


def test_an_embedding_that_could_be_a_linear():
    ours, theirs = filled(nn.Embedding(7, 7)), nnx.Embed(7, 7, rngs=nnx.Rngs(0))
    exchanged(ours, theirs)
    tokens = np.array([[3, 1], [6, 0]])
    assert np.array_equal(np.asarray(theirs(tokens)), ours(torch.tensor(tokens)).detach().numpy())


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("other", [8, 6])
def test_attention(bias, other):
    ours = filled(nn.MultiheadAttention(8, 2, kdim=other, vdim=other, bias=bias, batch_first=True))
    theirs = nnx.MultiHeadAttention(2, 8, in_kv_features=other, use_bias=bias, decode=False, rngs=nnx.Rngs(0))
    exchanged(ours, theirs)
    query, key, value = image(3, 4, 8), image(3, 5, other), image(3, 5, other)[::-1].copy()
    with torch.no_grad():
        expected = ours(*map(torch.tensor, (query, key, value)))[0].numpy()
    assert np.abs(np.asarray(theirs(query, key, value)) - expected).max() <= 1e-5 * np.abs(expected).max()


# --- recurrent layers -----------------------------------------------------------------------------


class Stacked(nnx.Module):
    """Two layers, in a List or in a Sequential."""

    def __init__(self, layers, listed):
        self.rnn = nnx.List(layers) if listed else nnx.Sequential(*layers)

    def __call__(self, x):
        for layer in getattr(self.rnn, "layers", self.rnn):
            x = layer(x)
        return x


class Named(nnx.Module):
    def __init__(self, rnn):
        self.rnn = rnn

    def __call__(self, x):
        return self.rnn(x)


def flax_cell(kind):
    return lambda *features: kind(*features, rngs=nnx.Rngs(0))


RECURRENT = {
    "lstm": (nn.LSTM, flax_cell(nnx.OptimizedLSTMCell)),
    "lstm, gate by gate": (nn.LSTM, flax_cell(nnx.LSTMCell)),
    "gru": (nn.GRU, flax_cell(nnx.GRUCell)),
}


def without_inner_bias(ours):
    """Take the bias from inside a GRU's reset gate, which Flax's does not have."""
    with torch.no_grad():
        for name, leaf in ours.state_dict().items():
            if "bias_hh" in name and len(leaf) == 12:
                leaf[8:] = 0
    return ours


@pytest.mark.parametrize(
    ("kind", "form", "both_ways"),
    [
        *((kind, "one layer", False) for kind in RECURRENT),
        ("gru", "one layer", True),
        ("lstm, gate by gate", "in a list", False),
        ("lstm", "in a list", True),
        ("gru", "in a sequential", False),
        ("lstm", "in a sequential", True),
    ],
)
def test_recurrent_layers(kind, form, both_ways):
    layer, cell = RECURRENT[kind]

    def flax_layer(features):
        if both_ways:
            ways = [nnx.RNN(cell(features, 4)) for _ in range(2)]
            return nnx.Bidirectional(*ways, rngs=nnx.Rngs(0))
        return nnx.RNN(cell(features, 4))

    if form == "one layer":
        ours, theirs = layer(3, 4, batch_first=True, bidirectional=both_ways), Named(flax_layer(3))
    else:
        ours = layer(3, 4, 2, batch_first=True, bidirectional=both_ways)
        theirs = Stacked([flax_layer(3), flax_layer(8 if both_ways else 4)], form == "in a list")
    ours = without_inner_bias(filled(ours))
    x = image(2, 5, 3)
    # From torch, whose two biases are one in Flax, and from there back again.
    state, like = torch_state(nn.ModuleDict({"rnn": ours})), flax_state(theirs)
    made = to_flax(state, like=like)
    nnx.update(theirs, made)
    with torch.no_grad():
        expected = ours(torch.tensor(x))[0].numpy()
    assert np.abs(np.asarray(theirs(x)) - expected).max() <= 1e-5 * np.abs(expected).max()
    back = to_torch(made, like=state)
    nn.ModuleDict({"rnn": ours}).load_state_dict({name: torch.tensor(leaf) for name, leaf in back.items()})
    with torch.no_grad():
        again = ours(torch.tensor(x))[0].numpy()
    assert np.abs(again - expected).max() <= 1e-5 * np.abs(expected).max()
    for name, leaf in back.items():
        assert np.array_equal(leaf, state[name]) != ("bias" in name)
        assert not ("bias_hh" in name and leaf.any())
    # From Flax there and back: every bit.
    twice = to_flax(back, like=like)
    assert bits(twice) == bits(made)


@pytest.mark.parametrize(
    ("ours", "kind"),
    [(nn.LSTMCell, nnx.OptimizedLSTMCell), (nn.LSTMCell, nnx.LSTMCell), (nn.GRUCell, nnx.GRUCell)],
)
def test_cells(ours, kind):
    ours, theirs = without_inner_bias(filled(ours(3, 4))), kind(3, 4, rngs=nnx.Rngs(0))
    nnx.update(theirs, to_flax(torch_state(ours), like=flax_state(theirs)))
    x, (h, c) = image(2, 3), image(2, 2, 4)
    with torch.no_grad():
        given = torch.tensor(h) if kind is nnx.GRUCell else (torch.tensor(h), torch.tensor(c))
        expected = ours(torch.tensor(x), given)
    expected = expected if kind is nnx.GRUCell else expected[0]
    found = np.asarray(theirs(h if kind is nnx.GRUCell else (c, h), x)[1])
    assert np.abs(found - expected.numpy()).max() <= 1e-5


def test_a_simple_recurrent_layer_by_a_rule():
    ours, theirs = filled(nn.RNN(3, 4, batch_first=True)), nnx.RNN(nnx.SimpleCell(3, 4, rngs=nnx.Rngs(0)))
    rules = [Rule(("**.bias_ih_l0", "**.bias_hh_l0"), "**/cell/dense_i/bias", "summed")]
    nnx.update(theirs, to_flax(torch_state(ours), rules, flax_state(theirs)))
    x = image(2, 5, 3)
    expected = ours(torch.tensor(x))[0].detach().numpy()
    assert np.abs(np.asarray(theirs(x)) - expected).max() <= 1e-5


def test_a_gru_that_flax_cannot_hold():
    ours, theirs = filled(nn.GRU(3, 4)), Named(nnx.RNN(nnx.GRUCell(3, 4, rngs=nnx.Rngs(0))))
    with pytest.raises(
        ArgumentError,
        match="the last third of bias_hh must be 0, because Flax's GRU has no bias inside the reset gate",
    ):
        to_flax(torch_state(nn.ModuleDict({"rnn": ours})), like=flax_state(theirs))


# --- layouts on their own -------------------------------------------------------------------------

#: For each layout: torch's shapes, how many arrays Flax has, and a size.
CASES = {
    "same": ([(3, 4)], 1, None),
    "tied": ([(3, 4)] * 2, 1, None),
    "linear": ([(6, 4)], 2, None),
    "flattened": ([(5, 12)], 1, 3),
    "conv": ([(2, 3, 4, 5)], 1, None),
    "conv-transposed": ([(2, 3, 4, 5)], 1, None),
    "heads": ([(12, 5)], 3, 2),
    "heads-out": ([(5, 12)], 1, 3),
    "summed": ([(8,)] * 2, 4, None),
    "summed-gru": ([(6,)] * 2, 1, None),
}


def test_every_layout_has_a_case():
    assert set(CASES) == set(LAYOUTS)


def values(shape, dtype, data):
    raw = data.draw(st.binary(min_size=(n := int(np.prod(shape)) * dtype.itemsize), max_size=n))
    return np.frombuffer(raw, dtype).reshape(shape)


@pytest.mark.parametrize("name", CASES)
@given(data=st.data(), dtype=st.sampled_from([np.dtype("f4"), np.dtype(ml_dtypes.bfloat16), np.dtype("i8")]))
def test_there_and_back(name, data, dtype):
    shapes, number, size = CASES[name]
    layout = LAYOUTS[name]
    arrays = [values(shape, dtype, data) for shape in shapes]
    if name == "tied":
        arrays[1] = arrays[0].copy()
    if name.startswith("summed"):
        numbers = st.floats(width=32, allow_nan=False).filter(bool)  # -0 + 0 is 0
        arrays = [np.array(data.draw(st.lists(numbers, min_size=n, max_size=n)), "f4") for (n,) in shapes[:1]]
        arrays.append(np.zeros(shapes[1], "f4"))
    there = layout.to_flax(arrays, [None] * number, size)
    back = layout.to_torch(there, [None] * len(arrays), size)
    assert [bits_of(a).tobytes() for a in back] == [bits_of(a).tobytes() for a in arrays]
    assert [a.shape for a in back] == [a.shape for a in arrays]
    again = layout.to_flax(back, [None] * number, size)
    assert [bits_of(a).tobytes() for a in again] == [bits_of(a).tobytes() for a in there]
    assert all(a.ndim == arrays[0].ndim + layout.extra_flax_dimensions for a in there)
    assert all(a.flags.c_contiguous for a in (*there, *back))


def test_sums_that_are_no_numbers():
    arrays = [np.array([np.inf, np.nan, 3e38, -0.0], F4), np.array([-np.inf, 1.0, 3e38, -0.0], F4)]
    assert np.array_equal(
        *LAYOUTS["summed"].to_flax(arrays, [None], None),
        np.array([np.nan, np.nan, np.inf, -0.0]),
        equal_nan=True,
    )


@pytest.mark.parametrize("name", ["summed", "summed-gru"])
def test_sums_of_bfloat16_with_and_without_ml_dtypes(name):
    first = np.array([1.0, 0.5, -3.0], ml_dtypes.bfloat16)
    second = np.array([2.0**-8, 3.0, 0.0], ml_dtypes.bfloat16)
    (found,) = LAYOUTS[name].to_flax([first, second], [None], None)
    assert bits_of(found).tobytes() == bits_of(first + second).tobytes()
    bits = [array.view(np.uint16).view(BFLOAT16_BITS) for array in (first, second)]
    (again,) = LAYOUTS[name].to_flax(bits, [None], None)
    assert (again.dtype, again.tobytes()) == (BFLOAT16_BITS, found.tobytes())


def test_bfloat16_as_bits_keeps_its_dtype():
    bits = np.arange(12, dtype=np.uint16).reshape(3, 4).view(BFLOAT16_BITS)
    made = to_flax({"fc.weight": bits}, [Rule("fc.weight", "fc/kernel", "linear")])["fc"]["kernel"]
    assert made.dtype == BFLOAT16_BITS
    assert np.array_equal(made["bfloat16"], bits["bfloat16"].T)
    like = {"fc": {"kernel": np.zeros((4, 3), ml_dtypes.bfloat16)}}
    assert to_flax({"fc.weight": bits}, like=like)["fc"]["kernel"].dtype == BFLOAT16_BITS


@pytest.mark.parametrize(
    ("name", "arrays", "number", "size", "message"),
    [
        (
            "tied",
            [np.zeros(2, F4), -np.zeros(2, F4)],
            1,
            None,
            "must be equal, because they are one array in Flax",
        ),
        (
            "tied",
            [np.zeros(2), np.zeros(2, F4)],
            1,
            None,
            "must be equal, because they are one array in Flax",
        ),
        ("linear", [np.zeros((4, 2))], 3, None, "4 cannot be split into 3 arrays"),
        ("flattened", [np.zeros((4, 10))], 1, 4, "10 cannot be split into 4 channels"),
        ("heads", [np.zeros((6, 4))], 3, 4, "2 cannot be split into 4 heads"),
        ("heads", [np.zeros((6, 4))], 3, None, "the number of heads is not known"),
        ("heads-out", [np.zeros((4, 6))], 1, 4, "6 cannot be split into 4 heads"),
        (
            "summed",
            [np.zeros(4), np.zeros(8)],
            1,
            None,
            "must have the same shape and dtype, because Flax has their sum",
        ),
        (
            "summed",
            [np.zeros(4, np.int64)] * 2,
            1,
            None,
            "must be floating point, because Flax has their sum, not int64",
        ),
        ("summed", [np.zeros(4, ml_dtypes.float8_e5m2)] * 2, 1, None, "float8_e5m2"),
        ("summed-gru", [np.zeros(4)] * 2, 1, None, "4 cannot be split into 3 gates"),
    ],
)
def test_arrays_of_another_form(name, arrays, number, size, message):
    with pytest.raises(ArgumentError, match=message):
        LAYOUTS[name].to_flax(arrays, [None] * number, size)


def test_blocks_that_are_not_alike():
    for name in ("linear", "heads"):
        with pytest.raises(
            ArgumentError, match="must have the same shape and dtype, because they are one array in torch"
        ):
            LAYOUTS[name].to_torch([np.zeros((2, 3, 4)), np.zeros((2, 3, 5))], [None], None)
    with pytest.raises(ArgumentError, match="10 cannot be split into 4 channels"):
        LAYOUTS["flattened"].to_torch([np.zeros((10, 4))], [None], 4)


def test_jax_arrays_are_no_numpy_arrays():
    with pytest.raises(ArgumentError, match="must be a NumPy array"):
        to_torch({"norm": {"scale": jnp.ones(3)}})
