"""Arrays that change type or shape on the way: rows are those of the whole."""

from collections.abc import Iterator
from functools import cache
from itertools import permutations, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.vendor.pretty import pretty

import lccodec
from lccodec import Chain, DataError, FormatError
from lccodec.chain.read.checkpoint import open_path
from lccodec.chain.read.links import array_heads, form_of
from lccodec.chain.read.replay import replay
from lccodec.chain.read.rows import Span, decode_span, replay_rows
from lccodec.chain.save.hindsight import StepBetween
from lccodec.container.manifest import COPY_TYPES
from lccodec.container.piece_table import FramePart, PieceTable, hashed
from lccodec.frame.header import FrameHeader
from lccodec.parallel import PIECE

from ...support.links import FakeLink
from ...support.profiles import examples
from ...support.strategies import bits_of, random_array
from ...support.tuning import tuned

SIZE = PIECE + 1000  # components of the large arrays: two of the smallest blocks
FORMS = [("float32", (SIZE,)), ("float32", (SIZE // 8, 8)), ("float32", (90,)), ("float16", (SIZE,))]
FORMS += [("int32", (SIZE,)), ("int32", (90,)), ("complex64", (SIZE // 2,))]
ROWS = [slice(-7, None), slice(-50, -1), slice(-90, None), slice(-20, -10), slice(3), slice(-(10**6), -9)]
Form = tuple[str, tuple[int, ...]]


@pytest.fixture(autouse=True, scope="module")
def _small_blocks() -> Iterator[None]:
    with tuned(block_log2=PIECE.bit_length() - 1):
        yield


# --- links whose frames need not fit --------------------------------------------------------------


class Pieced(FakeLink):
    """A link in memory whose frames have tables of pieces."""

    def part(self, number: int, header: FrameHeader, start: int, stop: int) -> FramePart | None:
        frame = self.frames[number]
        table = table_of(frame)
        if not table:
            return None
        pieces = PieceTable.parse(table, len(frame), self.place)
        read = lambda at, size: frame[at : at + size]  # noqa: E731
        return pieces.part(read, header, start, stop, self.place)


@cache
def table_of(frame: bytes) -> bytes:
    return hashed(frame)[1]


@cache
def frame_of(form: Form, relative: bool) -> bytes:
    """A frame of an array of this form; a relative one is decoded against any array of the form."""
    name, shape = form
    array, reference = (random_array(name, shape, seed, 0.01) for seed in (1, 2))
    quantizer: Any = "lossless" if name == "int32" else lccodec.UniformDeadzone(relative_step=1)
    return lccodec.encode(array, quantizer, reference if relative else None)


#: How a link has an array: as its parents, in a frame with or without a reference, or as a copy.
KEPT, ALONE, DELTA, COPY = range(4)
WAYS = {"w": [KEPT, KEPT, ALONE, DELTA], "half": [COPY, COPY, KEPT, ALONE, DELTA]}


@st.composite
def any_links(draw: st.DrawFn) -> list[FakeLink]:
    """A keyframe and links with one or two parents each; "half" may be a copy of "w"."""
    links: list[FakeLink] = []
    forms = draw(st.sampled_from(list(permutations(FORMS, 2))))
    for number in range(draw(st.integers(2, 6))):
        frames, numbers, copies = list[bytes](), dict[str, int | None](), {}
        for name, ways in WAYS.items():
            way = draw(st.sampled_from(ways)) if number else ALONE
            numbers[name] = len(frames) if way in (ALONE, DELTA) else None
            if way in (ALONE, DELTA):
                frames.append(frame_of(draw(st.sampled_from(forms)), way == DELTA))
            elif way == COPY:
                copies[name] = "w", COPY_TYPES[9]
        above = [draw(st.sampled_from(links)) for _ in range(draw(st.integers(1, 2)))] if links else []
        links.append(Pieced(numbers, frames, f"link {number}", *above, copies=copies))
    return links


@pytest.mark.slow
@examples(2)
@given(any_links(), st.sampled_from(ROWS), st.sampled_from(list(WAYS)))
def test_rows_of_any_links_are_those_of_the_whole(links: list[Any], rows: slice, name: str) -> None:
    assert_as_the_whole(links, rows, name)


def test_links_of_an_example_that_fails_can_be_read() -> None:
    low, high = link_of(FORMS[0]), link_of(FORMS[1])
    links = [low, high, Pieced({"w": None}, [], "link", low, high, copies={"half": ("w", COPY_TYPES[9])})]
    assert len(pretty(links)) < 400
    assert "{'half': 'w as float16'}" in pretty(links)


@pytest.mark.parametrize("low", FORMS)
def test_rows_of_every_two_parents_are_those_of_the_whole(low: Form) -> None:
    for high, (child, relative) in product(FORMS, [(None, False), (low, True), (FORMS[0], True)]):
        links: list[Any] = [link_of(low), link_of(high)]
        frames = [] if child is None else [frame_of(child, relative)]
        numbers = {"w": None if child is None else 0, "half": None}
        links.append(Pieced(numbers, frames, "link", *links, copies={"half": ("w", COPY_TYPES[9])}))
        for name in numbers:
            assert_as_the_whole(links, slice(-5, None), name)


def assert_as_the_whole(links: list[Any], rows: slice, name: str) -> None:
    """Rows have the values of the whole array, or neither can be decoded."""
    index = links[-1].names[name]

    def whole() -> np.ndarray:
        ((_, found),) = replay(links, [index])
        return found.array()[rows]

    with pytest.MonkeyPatch.context() as patch:  # frames are on top of other values
        patch.setattr("lccodec.frame.decode.check_array_sum", lambda *_: None)
        expected, found = outcome(whole), outcome(lambda: replay_rows(links, index, rows, name).array())
    if isinstance(expected, np.ndarray):
        assert isinstance(found, np.ndarray), found
        assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
        np.testing.assert_array_equal(bits_of(found), bits_of(expected))
    elif isinstance(found, DataError):
        # Rows look at all headers first, as SPEC 12 allows, and so at the types of sources.
        assert found.rule in (expected.rule, "LCC-CHN-03", "LCC-CPY-02")
    else:  # the whole decodes later parents that are not needed
        assert any(link.later is not None for link in links)


def outcome(decode: Any) -> np.ndarray | DataError:
    try:
        return decode()
    except DataError as error:
        return error


def link_of(form: Form, relative: bool = False, *parents: FakeLink) -> Any:
    return Pieced({"w": 0}, [frame_of(form, relative)], "link", *parents)


def test_a_delta_to_an_array_of_another_shape() -> None:
    links = [link_of(FORMS[2]), None]
    links[1] = link_of(FORMS[0], True, links[0])
    with pytest.raises(FormatError, match="not of the type and shape") as caught:
        decode_span(links, "w", Span(SIZE - 5, SIZE))
    assert (caught.value.rule, caught.value.where) == ("LCC-CHN-03", "link: array 'w'")


def test_components_that_an_array_does_not_have() -> None:
    with pytest.raises(FormatError, match=f"{SIZE} components, but {SIZE + 1} are needed") as caught:
        decode_span([link_of(FORMS[0])], "w", Span(SIZE, SIZE + 1))
    assert caught.value.rule == "LCC-CHN-03"


def test_an_interpolated_parent_whose_other_parent_has_another_shape() -> None:
    """The values are its own, which are interpolated; what comes after it does not change that."""
    low, high, short = link_of(FORMS[0]), link_of(FORMS[0]), link_of(FORMS[2])
    middle = Pieced({"w": None}, [], "middle", low, high)
    after = Pieced({"w": None}, [], "after", middle, short)
    links: list[Any] = [low, high, short, middle, after]
    assert array_heads(links)["w"].interpolated
    assert form_of(links[-1], "w") == array_heads(links)["w"].form


# --- chains ---------------------------------------------------------------------------------------


@cache
def started(form: Form) -> tuple[np.ndarray, np.ndarray]:
    name, shape = form
    start, way = (random_array(name, shape, seed, 0.0) for seed in (3, 4))
    return start, way if name == "int32" else way / 100


def drifted(form: Form, step: int) -> np.ndarray:
    """The array of this form at a step: it moves in the same way all the time."""
    start, way = started(form)
    return (start + way * step).astype(start.dtype)


#: The forms of arrays before and after they change.
CHANGES = [(FORMS[0], FORMS[2]), (FORMS[0], FORMS[3]), (FORMS[2], FORMS[0])]


@pytest.mark.slow
@pytest.mark.parametrize(("policy", "hindsight"), [("balanced", 2), ("balanced", 0), ("lossless", 0)])
@pytest.mark.filterwarnings("ignore:.*is lossy for")
def test_rows_of_a_chain_are_those_of_the_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, policy: str, hindsight: int
) -> None:
    monkeypatch.setattr(StepBetween, "sizes", (1, 0))  # or such small steps stay as they were saved
    with Chain(tmp_path, policy, hindsight=hindsight) as chain:
        for step in range(6):
            forms = [change[step > 1] for change in CHANGES]
            chain.save(step, {f"{i}.weight": drifted(form, step) for i, form in enumerate(forms)})
    later = set()
    for step in range(5):
        with open_path(tmp_path, step=step, exact=False) as file:
            later.add(file.links[-1].later is not None)
            for name in file.links[-1].names:
                whole = file.get(name)
                for rows in (slice(-9, None), slice(3)):
                    np.testing.assert_array_equal(bits_of(file.get(name, rows=rows)), bits_of(whole[rows]))
    assert (True in later) == bool(hindsight)
