"""Arrays of a frame as views of its components: taken apart, and joined again."""

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lccodec
from lccodec import Chain, ChecksumError, ExponentBuckets, FormatError, Lossless, UniformDeadzone
from lccodec.chain.read import replay as replay_module
from lccodec.chain.read.links import array_heads
from lccodec.chain.read.replay import (
    Decoded,
    DecodedArray,
    interpolated,
    joined,
    next_decoded,
    replay,
    replay_each,
    split,
)
from lccodec.element_types import components, element_type
from lccodec.frame.content import MAX_SHARED_COMPONENTS

from ...support.links import Arrays, FakeLink, drift, linked, links_of
from ...support.strategies import ALL_DTYPES, bits_of, installed, random_array


def restored(links: list[FakeLink]) -> Arrays:
    arrays = dict(replay(links, range(len(links[-1].index_names))))
    return {name: arrays[index].array() for name, index in links[-1].names.items()}


def assert_equal(left: Arrays, right: Arrays) -> None:
    assert list(left) == list(right)
    for name in left:
        assert (left[name].dtype, left[name].shape) == (right[name].dtype, right[name].shape)
        np.testing.assert_array_equal(bits_of(left[name]), bits_of(right[name]))


QUANTIZERS = [
    Lossless(),
    ExponentBuckets(2),
    UniformDeadzone(relative_step=1),
    UniformDeadzone(max_error=0.1),
]
MANY = ((300,), (), (7, 3), (1,), (50, 20))


@pytest.mark.parametrize("quantizer", QUANTIZERS)
@pytest.mark.parametrize("shapes", [((300,),), MANY, ((MAX_SHARED_COMPONENTS + 1,), (3,), (4,))])
def test_replay_gives_what_the_writer_had(quantizer: object, shapes: tuple[tuple[int, ...], ...]) -> None:
    links, decoded = links_of(drift(6, shapes), quantizer)
    for step in range(6):
        assert_equal(restored(links[: step + 1]), decoded[step])
    part = list(replay(links, [1] if len(shapes) > 1 else [0]))
    assert len(part) == 1  # others of its run are decoded, and not handed out


@pytest.mark.parametrize("step", [0, 3])
def test_an_array_is_decoded_into_memory_that_is_given(step: int) -> None:
    links, decoded = links_of(drift(4, ((MAX_SHARED_COMPONENTS + 1,), (3,), (4,))), ExponentBuckets(2))
    large, small = np.zeros(MAX_SHARED_COMPONENTS + 1, np.uint32), np.zeros(3, np.uint32)
    found = dict(replay(links[: step + 1], range(3), into={0: large, 1: small}))
    assert found[0].bits is large
    assert found[1].bits is not small  # it shares a frame
    assert_equal({n: found[i].array() for n, i in links[-1].names.items()}, decoded[step])
    for wrong in (large[1:], large.astype(np.uint64)):
        (found,) = replay(links[: step + 1], [0], into={0: wrong})
        np.testing.assert_array_equal(found[1].bits, large)


@pytest.mark.parametrize("quantizer", QUANTIZERS)
@pytest.mark.parametrize("places", [(0, 2, 5), (3,), (1, 2), ()])
def test_several_links_are_replayed_in_one_walk(quantizer: object, places: tuple[int, ...]) -> None:
    links, decoded = links_of(drift(6, MANY), quantizer)
    names = links[-1].index_names[::2]
    found = []
    for place, arrays in replay_each(links, dict.fromkeys(places, names)):
        found.append(place)
        assert_equal({n: arrays[n].array() for n in arrays}, {n: decoded[place][n] for n in names})
    assert found == list(places)


def test_arrays_come_in_the_order_asked_for_each_with_its_group(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three groups: two arrays with frames of their own, and between them three that share one."""
    alone = (MAX_SHARED_COMPONENTS + 1,)
    links, decoded = links_of(drift(4, ((30,), alone, (40,), alone, (50,))), ExponentBuckets(3))
    for order in ([4, 1, 0, 3, 2], [1, 3], [2, 2, 0], []):
        found = list(replay(links, order))
        assert [index for index, _ in found] == list(dict.fromkeys(order))
        for index, array in found:
            np.testing.assert_array_equal(bits_of(array.array()), bits_of(decoded[3][f"w{index}"]))
    frames: list[int] = []
    decode = replay_module.decode_components
    monkeypatch.setattr(
        replay_module, "decode_components", lambda *a, **o: frames.append(1) or decode(*a, **o)
    )
    assert [len(frames) for _ in replay(links, range(5))] == [4, 8, 8, 12, 12]
    frames.clear()
    next(walk := replay(links, [3, 0]))
    walk.close()
    assert len(frames) == 4


def test_the_work_beside_decoding_grows_with_the_arrays(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each array of each link is looked up once, however many groups there are."""
    counts = []
    find = FakeLink.frame_of
    for arrays in (6, 12):
        links, _ = links_of(drift(3, ((MAX_SHARED_COMPONENTS + 1,),) * arrays), ExponentBuckets(3))
        found: list[int] = []
        monkeypatch.setattr(
            FakeLink, "frame_of", lambda link, index, found=found: found.append(index) or find(link, index)
        )
        assert len(list(replay(links, range(arrays)))) == arrays
        counts.append(len(found))
    assert counts == [3 * 6, 3 * 12]


@pytest.mark.parametrize("bits", [1, 3, 8])
def test_each_array_of_a_run_has_its_own_buckets(bits: int) -> None:
    """In a run and alone, an array is decoded to the same bits."""
    states = drift(3, MANY)
    states[1]["w0"] *= 1e6  # it would take every promoted bucket of a common codebook
    links, decoded = links_of(states, ExponentBuckets(bits))
    assert len(links[1].frames) == 1
    for name in states[0]:
        alone = links_of([{name: state[name]} for state in states], ExponentBuckets(bits))[1]
        for step in range(3):
            np.testing.assert_array_equal(bits_of(decoded[step][name]), bits_of(alone[step][name]))


@pytest.mark.parametrize("size", [1, 700])
@pytest.mark.parametrize("quantizer", [ExponentBuckets(3), UniformDeadzone(relative_step=1.0)])
def test_each_array_of_a_long_run_is_coded_as_in_a_short_one(size: int, quantizer: object) -> None:
    """More arrays and values than are handled at a time: first and last are not special."""
    states = drift(2, tuple((size,) for _ in range(600)))
    states[1]["w599"][0] = np.nan
    whole = links_of(states, quantizer)[1][1]
    for first in (0, 250, 590):
        part = [{name: state[name] for name in list(state)[first : first + 10]} for state in states]
        assert_equal(links_of(part, quantizer)[1][1], {name: whole[name] for name in part[0]})


def test_bounds_and_exact_values_hold_in_a_run() -> None:
    states = drift(2, MANY)
    states[1]["w0"][:3] = [np.nan, np.inf, -np.inf]
    states[0]["w2"][0, 0] = np.nan
    states[1]["w4"][0, 0] = 1e30
    _, decoded = links_of(states, UniformDeadzone(max_error=0.05))
    for name, array in states[1].items():
        finite = np.isfinite(array)
        assert np.abs(decoded[1][name][finite].astype(np.float64) - array[finite]).max() <= 0.05
        np.testing.assert_array_equal(bits_of(decoded[1][name][~finite]), bits_of(array[~finite]))


@pytest.mark.slow
def test_runs_of_every_dtype() -> None:
    states = [
        {
            f"{name} {i}": random_array(name, (i, 5), step + i)
            for name in installed(ALL_DTYPES)
            for i in (1, 2, 3)
        }
        for step in range(3)
    ]
    for quantizer in QUANTIZERS:
        links, decoded = links_of(states, quantizer)
        assert len(links[1].frames) == len(installed(ALL_DTYPES))
        assert_equal(restored(links), decoded[2])
    assert_equal(links_of(states, Lossless())[1][2], states[2])


def test_an_array_that_did_not_change_has_no_frame() -> None:
    (state,) = drift(1, ((300,), (20,)))
    moved = {"w0": state["w0"] + 1, "w1": state["w1"]}
    links, _ = links_of([state, state, moved, moved], Lossless())
    assert [list(link.numbers.values()) for link in links] == [[0, 0], [None, None], [0, None], [None, None]]
    assert_equal(restored(links), moved)
    assert array_heads(links[:2])["w1"].shape == (20,)


def test_arrays_are_found_by_name() -> None:
    first, second = drift(2, ((300,), (20,)))
    swapped = {"w1": second["w1"], "new": second["w0"], "w0": second["w0"]}
    links, _ = links_of([first, swapped, {"w0": second["w0"] * 2}], Lossless())
    assert_equal(restored(links[:2]), swapped)
    assert_equal(restored(links), {"w0": second["w0"] * 2})


def test_a_new_shape_or_dtype_is_stored_anew() -> None:
    states: list[Arrays] = [{"w": np.zeros(3)}, {"w": np.zeros(4)}, {"w": np.zeros(4, np.float32)}]
    links, _ = links_of(states, ExponentBuckets(3))
    for n in range(3):
        assert_equal(restored(links[: n + 1]), states[n])
    assert not array_heads(links)["w"].header.relative


def test_what_a_chain_lacks_is_named() -> None:
    links, _ = links_of(drift(3), Lossless())
    with pytest.raises(FormatError, match="step 2: array 'w0': a keyframe's array needs a parent"):
        list(replay(linked(links[2]), [0]))
    with pytest.raises(FormatError, match="step 2: array 'w0': link, its parent, has no such array"):
        list(replay(linked(links[0], FakeLink({"v": None}, []), links[2]), [0]))
    with pytest.raises(ChecksumError, match="step 2: array 'w0'"):
        list(replay(linked(links[0], links[2]), [0]))


def test_a_frame_of_another_form_than_its_parent_is_refused() -> None:
    links, _ = links_of(drift(2), Lossless())
    other = links_of(drift(2, ((299,),)), Lossless())[0]
    with pytest.raises(FormatError, match="step 1: array 'w0': not of the type and shape"):
        list(replay(linked(links[0], other[1]), [0]))


def test_a_frame_of_a_wrong_form_for_its_parent_is_refused(tmp_path: Path) -> None:
    """A hostile delta with right hashes: its frame has another shape than the parent's array."""
    from lccodec.container.checkpoint import CheckpointWriter, open_checkpoint
    from lccodec.container.manifest import Manifest, Parent

    with Chain(tmp_path, policy="lossless") as chain:
        chain.save(0, {"w": np.zeros(4, np.float32)})
    with open_checkpoint(tmp_path / "000000000000.lcc.h5") as reader:
        root = reader.root
    other = np.zeros(5, np.float32)
    with CheckpointWriter(tmp_path / "000000000001.lcc.h5") as writer:
        entry = writer.write_frame(lccodec.encode(other + 1, lccodec.Lossless(), other))
        writer.commit(Manifest(1, Parent(0, root), "lossless", {}, {"w": 0}, [], (1,), (entry,)))
    with pytest.raises(FormatError) as caught:
        chain.restore(1)
    assert caught.value.rule == "LCC-CHN-03"


def test_an_array_that_a_parent_lacks_has_its_error_in_between() -> None:
    kind = element_type(np.dtype("float32"))
    low, high = (DecodedArray(kind, (2,), np.full(2, value, np.uint32)) for value in (0, 1))
    early, late = (FormatError("LCC-FRM-01", where, "damaged") for where in ("early", "late"))
    before = {"both": low, "first": early, "second": low, "each": early, "gone": low}
    after = {"both": high, "first": high, "second": late, "each": late}
    found = interpolated(0.5, Decoded(before, {"gone"}), Decoded(after, set()), [*before, "new"]).arrays
    assert {name: found[name] for name in ("first", "second", "each", "gone")} == {
        "first": early,
        "second": late,
        "each": early,
        "gone": low,
    }
    assert isinstance(found["both"], DecodedArray)
    assert found.keys() == before.keys()


def test_a_walk_interpolates_what_lies_between_two_parents() -> None:
    states = drift(2)
    low, high = (links_of([state], Lossless())[0][0] for state in states)
    middle = FakeLink({"w0": None}, [], "middle", low, high)
    parents = [next_decoded(link, [], overwrite=False) for link in (low, high)]
    found = next_decoded(middle, parents, overwrite=False).arrays["w0"]
    assert isinstance(found, DecodedArray)
    values, bounds = found.array(), [state["w0"] for state in states]
    assert np.all((np.minimum(*bounds) <= values) & (values <= np.maximum(*bounds)))
    assert np.any(values != bounds[0])


shapes_of = st.lists(st.lists(st.integers(0, 4), max_size=3).map(tuple), min_size=1, max_size=5)


@given(shapes_of, st.sampled_from(installed(ALL_DTYPES)))
def test_arrays_are_joined_as_they_were_split(shapes: list[tuple[int, ...]], name: str) -> None:
    whole = random_array(name, (sum(map(math.prod, shapes)),), 0)
    kind, bits = components(whole)
    bits = bits.copy()  # a buffer of its own, as frames are decoded into
    parts = split(bits, kind, shapes)
    assert [part.shape for part in parts] == shapes
    assert all(part.kind is kind for part in parts)
    np.testing.assert_array_equal(joined(parts), bits)
    arrays = [part.array() for part in parts]
    assert [(array.dtype, array.shape) for array in arrays] == [(whole.dtype, shape) for shape in shapes]
    np.testing.assert_array_equal(np.concatenate([bits_of(array) for array in arrays]), bits_of(whole))


@pytest.mark.parametrize("sizes", [(5,), (3, 4), (1, 1, 1)])
def test_what_is_of_one_buffer_is_not_copied(sizes: tuple[int, ...]) -> None:
    kind, _ = components(np.zeros(1, np.float32))
    bits = np.arange(sum(sizes), dtype=np.uint32)
    assert joined(split(bits, kind, [(size,) for size in sizes])) is bits


@pytest.mark.parametrize("order", [(1, 0), (0, 0), (0,), (0, 2)])
def test_what_is_not_the_whole_buffer_in_its_order_is_copied(order: tuple[int, ...]) -> None:
    kind, _ = components(np.zeros(1, np.float32))
    bits = np.arange(9, dtype=np.uint32)
    parts = split(bits, kind, [(2,), (3,), (4,)])
    chosen = [parts[index] for index in order]
    np.testing.assert_array_equal(joined(chosen), np.concatenate([part.bits for part in chosen]))
    other = split(bits.copy(), kind, [(2,), (3,), (4,)])
    mixed = joined([parts[0], other[1], parts[2]])
    assert not np.shares_memory(mixed, bits)
    np.testing.assert_array_equal(mixed, bits)
