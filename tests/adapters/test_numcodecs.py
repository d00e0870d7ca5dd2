"""Arrays behind numcodecs, through the codec that its entry point finds."""

import json

import numcodecs
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from lccodec import ExponentBuckets, LogSteps, Lossless, Smooth, UniformDeadzone, encode
from lccodec.adapters.numcodecs import LCCodec as NumcodecsCodec
from lccodec.errors import ArgumentError
from lccodec.quantizers.clusters import Clusters

from ..support.strategies import bits_of


@given(arrays.arrays(st.sampled_from(["f4", "i2", "?", "c8"]), arrays.array_shapes()))
def test_numcodecs_round_trip(values):
    codec = NumcodecsCodec()
    frame = codec.encode(values)
    assert np.array_equal(bits_of(codec.decode(frame)), bits_of(values))
    out = np.empty_like(values)
    assert codec.decode(frame, out=out) is not None
    assert np.array_equal(bits_of(out), bits_of(values))


def test_numcodecs_takes_bytes_and_times_and_no_objects():
    codec = NumcodecsCodec()
    assert codec.decode(codec.encode(b"abc")).tobytes() == b"abc"
    times = np.array(["2020-01-01"], "M8[s]")
    assert codec.decode(codec.encode(times)).view("M8[s]") == times
    with pytest.raises(ArgumentError):
        codec.encode(np.array([object()]))
    with pytest.raises(ArgumentError):
        codec.encode(np.zeros((4, 4))[::2, ::2])
    with pytest.raises(ArgumentError, match="masked array"):
        codec.encode(np.ma.array([1.0, 2.0], mask=[False, True]))


@pytest.mark.parametrize(
    "quantizer", [Lossless(), ExponentBuckets(2), UniformDeadzone(max_error=1e-3), LogSteps(2.0), Clusters(7)]
)
def test_the_quantizer_is_in_the_configuration(quantizer):
    codec = NumcodecsCodec(quantizer)
    found = numcodecs.get_codec(json.loads(json.dumps(codec.get_config())))
    assert found == codec
    values = np.linspace(-1, 1, 4000, dtype=np.float32)
    assert found.encode(values) == codec.encode(values) == encode(values, quantizer)


def test_the_order_in_memory_is_that_of_the_frame():
    values = np.arange(12.0).reshape(3, 4)
    codec = NumcodecsCodec()
    assert codec.decode(codec.encode(np.asfortranarray(values))).tolist() == values.T.tolist()


@pytest.mark.parametrize("order", ["C", "F"])
def test_the_shape_is_that_of_the_frame(order):
    """All axes predict: flat, only the last one does."""
    field = np.sin(np.linspace(0, 6, 200))[:, None] * np.cos(np.linspace(0, 5, 200))
    codec = NumcodecsCodec(Smooth(max_error=1e-4))
    values = np.array(field, order=order)
    frame = codec.encode(values)
    assert len(frame) < 0.6 * len(codec.encode(values.ravel(order)))
    out = np.empty_like(values)
    codec.decode(frame, out)
    assert np.abs(out - field).max() <= 1e-4


def test_an_array_that_is_coded_once_takes_what_smooth_takes():
    x = np.linspace(0, 6, 400)
    field = np.sin(x)[:, None] * np.cos(x[::2])
    quantizer = Smooth(max_error=1e-4)
    once = NumcodecsCodec(quantizer, rewritten=False)
    assert once.encode(field) == encode(field, quantizer)
    assert 4 * len(once.encode(field)) < len(NumcodecsCodec(quantizer).encode(field))
    assert numcodecs.get_codec(once.get_config()) == once != NumcodecsCodec(quantizer)
    with pytest.raises(ArgumentError, match="rewritten must be True or False"):
        NumcodecsCodec(quantizer, rewritten=None)
