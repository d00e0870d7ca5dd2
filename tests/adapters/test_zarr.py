"""Arrays in zarr and behind numcodecs, through the codecs that their entry points find."""

import json

import numcodecs
import numpy as np
import pytest
import zarr

from lccodec import ExponentBuckets, Lossless, Smooth, UniformDeadzone
from lccodec.adapters.numcodecs import LCCodec as NumcodecsCodec
from lccodec.adapters.zarr import LCCodec as ZarrCodec
from lccodec.adapters.zarr import encoding
from lccodec.errors import ArgumentError, DataError, FormatError
from lccodec.frame import decode
from lccodec.parallel import PIECE

from ..support.strategies import ALL_DTYPES, bits_of, random_array
from ..support.tuning import tune

QUANTIZERS = [Lossless(), ExponentBuckets(2), ExponentBuckets(3, "mean"), UniformDeadzone(max_error=1e-3)]
DTYPES = [name for name in ALL_DTYPES if name != "bfloat16"]  # zarr has no such type


def make(store, quantizer=Lossless(), **options):  # noqa: B008
    return zarr.create_array(store, serializer=ZarrCodec(quantizer), compressors=None, **options)


@pytest.mark.parametrize("name", DTYPES)
@pytest.mark.parametrize("shape", [(), (7, 5)])
def test_every_dtype_in_zarr(tmp_path, name, shape):
    values = random_array(name, shape, seed=1)
    make(tmp_path, shape=shape, dtype=values.dtype)[...] = values
    back = np.asarray(zarr.open_array(tmp_path, mode="r")[...])
    assert (back.dtype, back.shape) == (values.dtype, values.shape)
    assert np.array_equal(bits_of(back), bits_of(values))


@pytest.mark.parametrize("quantizer", QUANTIZERS, ids=str)
def test_an_array_is_found_again_by_its_metadata_alone(tmp_path, quantizer):
    values = np.random.default_rng(0).standard_normal((250, 130), np.float32)
    array = make(tmp_path, quantizer, shape=values.shape, chunks=(100, 60), dtype="f4", fill_value=0)
    array[:, :100] = values[:, :100]
    again = zarr.open_array(tmp_path, mode="r+")
    assert again.metadata.codecs == (ZarrCodec(quantizer),)
    again[:, 100:] = values[:, 100:]
    assert np.array_equal(array[:], again[:])
    error = np.abs(again[:] - values)
    if isinstance(quantizer, ExponentBuckets):
        assert 0 < np.mean(error**2) < 0.6  # of a variance of 1
    else:
        assert error.max() <= (quantizer.max_error if isinstance(quantizer, UniformDeadzone) else 0)
    metadata = json.loads((tmp_path / "zarr.json").read_text())
    assert metadata["codecs"][0]["name"] == "lccodec"


SELECTIONS = [
    np.s_[3:5],
    np.s_[-1],
    np.s_[1000:1900:7, 5],
    np.s_[2990:, ::3],
    np.s_[...],
    np.s_[:, 3],
]


@pytest.mark.parametrize("quantizer", QUANTIZERS, ids=str)
@pytest.mark.parametrize("fortran", [False, True])
def test_parts_of_a_chunk(monkeypatch, quantizer, fortran):
    """Only the blocks of the rows are decoded, whatever selects them."""
    tune(monkeypatch, block_log2=PIECE.bit_length() - 1)
    values = np.random.default_rng(0).standard_normal((3000, 200)).astype("f4")
    values = np.asfortranarray(values) if fortran else values
    array = make({}, quantizer, shape=values.shape, chunks=(2000, 200), dtype="f4")
    array[:] = values
    whole = array[:]
    for selection in SELECTIONS:
        assert np.array_equal(array[selection], whole[selection]), selection
    rows, columns = np.array([1, 1999, 2000, 7]), np.array([4, 0, 2, 2])
    assert np.array_equal(array.oindex[rows, 2:9], whole[rows, 2:9])
    assert np.array_equal(array.oindex[rows, columns], whole[np.ix_(rows, columns)])
    assert np.array_equal(array.vindex[rows, columns], whole[rows, columns])
    assert np.array_equal(array.oindex[whole[:, 0] > 1.5], whole[whole[:, 0] > 1.5])
    decoded = []
    find = decode.decode_range
    monkeypatch.setattr(
        decode, "decode_range", lambda frame, part, *rest: decoded.append(part) or find(frame, part, *rest)
    )
    assert np.array_equal(array[5:9, 1], whole[5:9, 1])
    assert decoded == [slice(0, PIECE)]


@pytest.mark.parametrize("quantizer", QUANTIZERS, ids=str)
def test_configurations_round_trip(quantizer):
    codec = ZarrCodec(quantizer)
    assert ZarrCodec.from_dict(json.loads(json.dumps(codec.to_dict()))) == codec
    assert zarr.registry.get_codec_class("lccodec") is ZarrCodec
    other = NumcodecsCodec(quantizer)
    found = numcodecs.get_codec(json.loads(json.dumps(other.get_config())))
    assert type(found) is NumcodecsCodec
    assert found == other
    assert found.quantizer == quantizer


def test_exact_without_a_configuration():
    assert ZarrCodec.from_dict({"name": "lccodec"}) == ZarrCodec(Lossless())
    assert numcodecs.get_codec({"id": "lccodec"}).quantizer == Lossless()


@pytest.mark.parametrize(
    "configuration",
    [
        {"quantizer": "None"},
        {"quantizer": "UniformDeadzone"},
        {"quantizer": "Lossless", "bits": 3},
        {"bits": 3},
        {"quantizer": "Lossless", "rewritten": "no"},
        7,
    ],
)
def test_a_configuration_that_is_none(configuration):
    with pytest.raises(ArgumentError):
        ZarrCodec.from_dict({"name": "lccodec", "configuration": configuration})
    if isinstance(configuration, dict):
        with pytest.raises(ArgumentError):
            numcodecs.get_codec({"id": "lccodec", **configuration})


@pytest.mark.parametrize("codec", [ZarrCodec, NumcodecsCodec])
def test_what_is_no_quantizer(codec):
    with pytest.raises(ArgumentError, match="not a quantizer"):
        codec(3)


def test_a_dtype_that_cannot_be_stored_is_refused_when_the_array_is_made(tmp_path):
    with pytest.raises(ArgumentError, match="datetime64"):
        make(tmp_path, shape=3, dtype="datetime64[s]")


@pytest.mark.parametrize("order", ["C", "F"])
def test_zarr_version_2(tmp_path, order):
    values = np.asarray(np.random.default_rng(0).standard_normal((25, 13)), order=order)
    array = zarr.create_array(
        tmp_path, shape=values.shape, dtype="f8", zarr_format=2, compressors=NumcodecsCodec(), order=order
    )
    array[:] = values
    assert np.array_equal(zarr.open_array(tmp_path, mode="r")[:], values)


def test_the_byte_order_of_zarr_version_3_is_kept(tmp_path):
    values = np.arange(20, dtype=">f4")
    make(tmp_path, shape=values.shape, dtype=">f4")[:] = values
    assert np.array_equal(zarr.open_array(tmp_path, mode="r")[:], values)


def test_version_2_and_numcodecs_refuse_big_endian_arrays(tmp_path):
    """A codec does not learn the dtype of its bytes; these were restored as other numbers."""
    values = np.arange(20, dtype=">f4")
    options = {"shape": 20, "dtype": ">f4", "zarr_format": 2}
    for place, kept in (("filter", {"filters": [NumcodecsCodec()], "compressors": None}),
                        ("compressor", {"compressors": NumcodecsCodec()})):  # fmt: skip
        array = zarr.create_array(tmp_path / place, **options, **kept)
        with pytest.raises(ArgumentError, match=">f4 is big-endian"):
            array[:] = values
    codec = NumcodecsCodec()
    with pytest.raises(ArgumentError, match=">f4 is big-endian"):
        codec.encode(values)
    frame = codec.encode(values.astype("<f4"))
    assert codec.decode(frame).dtype == np.dtype("<f4")
    with pytest.raises(ArgumentError, match=">f4 is big-endian"):
        codec.decode(frame, out=np.empty_like(values))


def test_damaged_chunks_and_chunks_of_another_array(tmp_path):
    one = make(tmp_path / "one", shape=100, dtype="f4")
    one[:] = np.arange(100)
    other = make(tmp_path / "other", shape=90, dtype="f4")
    other[:] = np.arange(90)
    chunk = tmp_path / "one" / "c" / "0"
    chunk.write_bytes((tmp_path / "other" / "c" / "0").read_bytes())
    with pytest.raises(FormatError, match=r"\(90,\), the array says float32 \(100,\)"):
        one[:]
    chunk.write_bytes(chunk.read_bytes()[:-3])
    with pytest.raises(DataError):
        one[:]
    with pytest.raises(DataError):
        NumcodecsCodec().decode(b"no frame")


@pytest.mark.parametrize("conserve", [None, "sum"])
def test_hours_that_are_added_to_a_chunk(conserve):
    """zarr decodes a chunk that is written in part, and codes it again."""
    x = np.linspace(0, 6, 30)
    hours = [np.sin(x + 0.05 * h)[:, None] * np.cos(1.3 * x - 0.1 * h) for h in range(24)]
    quantizer = Smooth(max_error=1e-3, conserve=conserve)
    array = make({}, quantizer, shape=(24, 30, 30), chunks=(24, 30, 30), dtype="f8", fill_value=0)
    for hour, field in enumerate(hours):
        array[hour] = field
        assert not array[hour + 1 :].any()
    assert abs(array[:] - np.stack(hours)).max() <= 1e-3
    assert ZarrCodec(quantizer).to_dict()["configuration"].keys() <= {"quantizer", "max_error", "conserve"}


def test_chunks_that_are_written_once():
    """On a very smooth field, to be repeatable takes many times as much."""
    x = np.linspace(0, 6, 400)
    field = np.sin(x)[:, None] * np.cos(x[::2] * 5 / 6)
    sizes = []
    for rewritten in (True, False):
        codec = ZarrCodec(Smooth(max_error=1e-4), rewritten)
        assert ZarrCodec.from_dict(json.loads(json.dumps(codec.to_dict()))) == codec
        whole = {"shape": field.shape, "chunks": field.shape, "dtype": "f8", "compressors": None}
        array = zarr.create_array({}, serializer=codec, **whole)
        array[:] = field
        assert abs(array[:] - field).max() <= 1e-4
        sizes.append(array.nbytes_stored())
    assert 4 * sizes[1] < sizes[0]


def _elevation():
    y, x = np.meshgrid(np.linspace(0, 6, 60), np.linspace(0, 9, 75), indexing="ij")
    values = 4000 + 4000 * np.sin(y) * np.cos(x)
    values[np.hypot(y - 3, x - 4) < 1.5] = np.nan
    values[5, 5] = np.nan  # alone in its chunk
    return values.astype("f4")


STEPS = UniformDeadzone(max_error=0.5)


@pytest.mark.parametrize("quantizer", [Smooth(max_error=0.5), Smooth(relative_error=1e-3), STEPS], ids=str)
@pytest.mark.parametrize("fill", [-9999.0, 0.0, 1e20])
def test_the_fill_value_is_exact(quantizer, fill):
    """It lies less than four ranges from the numbers, so that nobody can guess it."""
    values = np.nan_to_num(_elevation(), nan=fill)
    array = make({}, quantizer, shape=(80, 75), chunks=(20, 25), dtype="f4", fill_value=np.float32(fill))
    array[:60] = values
    back = np.asarray(array[:])
    filled = values == np.float32(fill)
    assert (back[:60][filled] == np.float32(fill)).all()
    assert (back[60:] == np.float32(fill)).all()
    assert np.abs(back[:60] - values).max() <= (8 if quantizer.max_error is None else 0.5)


def test_what_xarray_declares_is_obeyed(tmp_path):
    import xarray

    values, time = _elevation(), np.arange(60) / 24
    bounds = np.stack([time, time + 1 / 24], 1)
    data = xarray.Dataset(
        {
            "height": (("time", "x"), values, {"valid_range": np.array([500, 7500], "f4")}),
            "depth": (("time", "x"), np.nan_to_num(values), {"missing_value": np.float32(-1)}),
            "time_bnds": (("time", "nv"), bounds),
            "count": ("time", np.arange(60)),
            "packed": (("time", "x"), values),
        },
        {"time": ("time", time, {"bounds": "time_bnds"}), "lat": (("time", "x"), values / 100)},
    )
    data["height"].encoding["_FillValue"] = np.float32(-9999)
    data["packed"].encoding = {"dtype": "i2", "scale_factor": 1.0, "_FillValue": np.int16(-1)}
    chosen = encoding(data, Smooth(max_error=0.5))
    assert {name: each["serializer"].quantizer for name, each in chosen.items()} == {
        "height": Smooth(max_error=0.5, minimum=500, maximum=7500, fill=-9999),
        "depth": Smooth(max_error=0.5, fill=(-1,)),
    }
    assert chosen["height"]["_FillValue"] == -9999
    data.to_zarr(tmp_path, zarr_format=3, consolidated=False, encoding=chosen)
    back = xarray.open_zarr(tmp_path, consolidated=False).load()
    assert np.array_equal(back["height"].isnull(), data["height"].isnull())
    assert 0 < np.nanmax(np.abs(back["height"] - data["height"])) <= 0.5
    for name in ("time", "time_bnds", "lat", "count"):
        assert np.array_equal(back[name], data[name], equal_nan=True)
    lossless = encoding(data, STEPS)["height"]["serializer"].quantizer
    assert lossless == Lossless()  # steps know no limits
