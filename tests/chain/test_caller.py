"""What a framework has to bring along: an object is an adapter, or refused at once.

How far a call is: what is done is counted, in a function or in a bar on a terminal.

What a caller allows a checkpoint to ask for is checked before anything is decoded.

A writer refuses what no reader would take, before the first byte.
"""

import sys
import types
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import lccodec
from lccodec import (
    ROLES,
    ArgumentError,
    Chain,
    Keep,
    LccodecWarning,
    LimitError,
    Lossless,
    UniformDeadzone,
    decode,
    encode,
)
from lccodec.chain.read.links import Bounds
from lccodec.chain.save.plan import candidates
from lccodec.constants import EXACT_NAME, MAX_DIMENSIONS, MAX_ELEMENTS
from lccodec.container.tree import Room, check_adapter, flatten
from lccodec.frame.header import check_shape
from lccodec.policy.roles import Assignment
from lccodec.workers.process import Arena

from ..support.far import Far, FarAdapter
from ..support.tuning import tune, tuned
from ..support.walks import assert_same


def moved(array: np.ndarray[Any, Any], room: Room) -> np.ndarray[Any, Any]:
    copy = room.empty(array.size, array.dtype, array.nbytes)
    copy[:] = array.reshape(-1)
    return copy.reshape(array.shape)


class Whole:
    """Makes lists of tuples, and says where they came from."""

    def to_numpy(
        self, state: Any, metadata: Mapping[str, str] | None = None, room: Room | None = None, /
    ) -> tuple[Any, dict[str, str]]:
        if room is not None:
            state = [moved(value, room) if isinstance(value, np.ndarray) else value for value in state]
        return list(state), {**(metadata or {}), "was": "tuple"}

    def from_numpy(self, state: Any, metadata: Mapping[str, str], name: str = "", /) -> Any:
        return (name, metadata["was"], state)

    def roles(self, state: Any, /) -> Mapping[str, Assignment]:  # noqa: ARG002
        return {}


def test_an_adapter_stays_as_it_is() -> None:
    adapter = Whole()
    assert check_adapter(adapter) is adapter
    assert check_adapter(None) is None


@pytest.mark.parametrize("missing", ["to_numpy", "from_numpy", "roles"])
def test_what_lacks_a_member_is_no_adapter(missing: str) -> None:
    members = {
        name: getattr(Whole(), name) for name in ("to_numpy", "from_numpy", "roles") if name != missing
    }
    with pytest.raises(
        ArgumentError,
        match=r"adapter must have to_numpy, from_numpy and roles, like lccodec\.adapters\.torch",
    ):
        check_adapter(SimpleNamespace(**members))


def test_an_adapter_stands_between_the_user_and_the_chain(tmp_path: Path) -> None:
    with Chain(tmp_path, adapter=Whole()) as chain:
        chain.save(0, (1, (2, 3)))
        assert chain.restore() == ("", "tuple", [1, (2, 3)])
    assert Chain(tmp_path).restore() == [1, (2, 3)]
    with pytest.raises(ArgumentError, match="adapter must have"):
        Chain(tmp_path, adapter="torch")


@pytest.mark.slow
def test_what_an_adapter_copies_to_the_room_is_not_copied_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[int] = []
    empty = Arena.empty

    def counted(arena: Arena, count: int, dtype: np.dtype[Any], more: int = 0) -> Any:
        given.append(count)
        return empty(arena, count, dtype, more)

    monkeypatch.setattr(Arena, "empty", counted)
    with Chain(tmp_path, adapter=Whole()) as chain:
        array = np.arange(6.0).reshape(2, 3)
        turned, flags = array.copy().T, np.array([True, False, True, True])
        for step in range(2):
            future = chain.save_async(step, (array, turned, flags, 3))
            array += 1
            future.result()
        # Rooms are of the bytes that are stored, but for booleans, which are made 0 and 1.
        assert given == 2 * [6, 6, 4, 4]
        stored = chain.restore()[2]
    np.testing.assert_array_equal(stored[0], array - 1)
    np.testing.assert_array_equal(stored[1], turned)
    assert stored[2].tolist() == flags.tolist()


@pytest.mark.parametrize("background", [False, True])
def test_what_a_save_leaves_out_is_not_copied(tmp_path: Path, background: bool) -> None:
    base, lora = Far(np.zeros(3000)), Far(np.zeros(30))
    with Chain(tmp_path, adapter=FarAdapter()) as chain:
        chain.save(0, {"base": base, "lora": lora})
        lora.values += 1
        if background:
            chain.save_async(1, {"base": base, "lora": lora}, only=["lo*"]).result()
        else:
            chain.save(1, {"base": base, "lora": lora}, only=["lo*"])
        assert (base.copies, lora.copies) == (1, 2)
        plan = chain.plan({"base": base, "lora": lora}, only=["lo*"])
        assert [array.name for array in plan] == ["base", "lora"]
        assert base.copies == 1
        found = chain.restore()
    assert found["base"].tolist() == base.values.tolist()
    assert found["lora"].tolist() == lora.values.tolist()


NAMES = ["a", "b", "c"]


@pytest.fixture
def chain(tmp_path: Path) -> Chain:
    (tmp_path / "to").mkdir()
    chain = Chain(tmp_path / "run", "lossless", newest="exact")
    for step in range(3):
        chain.save(step, {name: np.full(5, step, np.float32) for name in NAMES} | {"epoch": step})
    return chain


@pytest.mark.parametrize("step", [0, 1, 2])  # a keyframe, a delta, the exact file
def test_a_function_is_told(chain: Chain, step: int) -> None:
    told: list[tuple[int, int]] = []
    state = chain.restore(step, progress=lambda done, total: told.append((done, total)))
    assert (state["a"] == step).all()
    assert told == [(1, 3), (2, 3), (3, 3)]
    told.clear()
    chain.restore(step, keys=["b"], progress=lambda *numbers: told.append(numbers))
    assert told == [(1, 1)]


def test_it_is_told_array_by_array(chain: Chain) -> None:
    told: list[int] = []
    for name, _ in chain.restore_iter(progress=lambda done, _: told.append(done)):
        assert name == "epoch" or told == [*range(1, NAMES.index(name) + 2)]


@pytest.fixture
def bars(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The bars that are drawn, on a standard error that is a terminal."""
    drawn: list[Any] = []

    class Bar:
        def __init__(self, **options: object) -> None:
            self.options, self.n, self.total, self.closed = options, 0, 0, False
            drawn.append(self)

        def update(self, more: int) -> None:
            self.n += more

        def close(self) -> None:
            self.closed = True

    monkeypatch.setitem(sys.modules, "tqdm", types.SimpleNamespace(tqdm=Bar))
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    return drawn


def seen(bars: list[Any]) -> list[tuple[str, str, int, int, bool]]:
    return [(bar.options["desc"], bar.options["unit"], bar.total, bar.n, bar.closed) for bar in bars]


def test_a_bar_on_a_terminal(chain: Chain, bars: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    chain.restore(progress=True)
    with chain.restore_iter(progress=True) as leaves:
        next(leaves)
    chain.save(3, {name: np.full(5, 3, np.float32) for name in NAMES}, progress=True)
    assert seen(bars) == [
        ("restore", " arrays", 3, 3, True),
        ("restore", " arrays", 3, 1, True),
        ("save", " arrays", 3, 3, True),
    ]
    bars.clear()
    monkeypatch.setattr(sys.stderr, "isatty", lambda: False)
    chain.restore(progress=True)
    assert bars == []


#: The long calls, each with how it is named on a bar, what is counted, and how many there are.
LONG = {
    "prune": (lambda chain, _, p: chain.prune(Keep(latest=1), rewrite=True, progress=p), "checkpoints", 3),
    "compact": (lambda chain, _, p: chain.compact(keyframe_every=0, progress=p), "checkpoints", 3),
    "compact to": (
        lambda chain, to, p: chain.compact(directory=to / "new", keyframe_every=0, progress=p),
        *("checkpoints", 3),
    ),
    "compact with a policy": (
        lambda chain, to, p: chain.compact("lc-2", directory=to / "new", progress=p),
        *("checkpoints", 3),
    ),
    "compact with hindsight": (
        lambda chain, to, p: chain.compact("balanced", hindsight=2, directory=to / "new", progress=p),
        *("checkpoints", 3),
    ),
    "average": (lambda chain, _, p: chain.average(last=2, roles=["other"], progress=p), "arrays", 3),
    "bundle": (lambda chain, to, p: lccodec.bundle(chain.directory, to / "run.lcc", progress=p), "files", 4),
    "save": (
        lambda chain, to, p: lccodec.save_file(chain.restore(), to / "new.lcc.h5", progress=p),
        *("arrays", 3),
    ),
    "restore": (
        lambda chain, _, p: lccodec.load_file(chain.directory / "exact.lcc.h5", progress=p),
        *("arrays", 3),
    ),
}


@pytest.mark.parametrize("name", LONG)
def test_a_long_call_tells_a_function(chain: Chain, tmp_path: Path, name: str) -> None:
    call, unit, total = LONG[name]
    told: list[tuple[int, int]] = []
    call(chain, tmp_path / "to", lambda *numbers: told.append(numbers))
    assert told == sorted(set(told))
    assert {number for _, number in told} == {total}
    assert told[-1] == (total, total)
    assert len(told) > 1 or unit == "arrays"  # small ones are in one frame


@pytest.mark.parametrize("name", LONG)
def test_a_long_call_draws_a_bar(chain: Chain, bars: list[Any], tmp_path: Path, name: str) -> None:
    call, unit, total = LONG[name]
    call(chain, tmp_path / "to", True)
    assert seen(bars) == [(name.partition(" ")[0], f" {unit}", total, total, True)]


@pytest.mark.parametrize("name", LONG)
def test_a_long_call_refuses_what_is_neither(chain: Chain, tmp_path: Path, name: str) -> None:
    before = sorted(path.name for path in chain.directory.iterdir())
    with pytest.raises(ArgumentError, match="progress must be True, False or a function"):
        LONG[name][0](chain, tmp_path / "to", "bar")
    assert sorted(path.name for path in chain.directory.iterdir()) == before


@pytest.mark.slow
@pytest.mark.parametrize("terminal", [True, False])
def test_without_tqdm_a_warning_says_what_to_install(
    chain: Chain, terminal: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "tqdm", None)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal)
    folders = [tmp_path / "to" / str(place) for place in range(len(LONG))]
    for folder in folders:
        folder.mkdir()
    calls = [
        *(partial(call, chain, folder) for folder, (call, *_) in zip(folders, LONG.values(), strict=True)),
        lambda progress: chain.restore(progress=progress),
        lambda progress: chain.save(9, {"epoch": 4, "a": np.ones(2)}, progress=progress),
        lambda progress: chain.save_async(10, {"epoch": 5, "a": np.ones(2)}, progress=progress).result(),
    ]
    for call in calls:
        with pytest.warns(LccodecWarning) as warned:
            call(True)
        (message,) = [str(each.message) for each in warned]
        assert "tqdm is not installed: pip install 'lccodec[progress]'" in message
    chain.close()
    assert chain.restore()["epoch"] == 5


def test_unbundling_tells_too(chain: Chain, bars: list[Any], tmp_path: Path) -> None:
    lccodec.bundle(chain.directory, tmp_path / "to" / "run.lcc")
    told: list[tuple[int, int]] = []
    for _ in range(2):  # the second time, all files are there
        told.clear()
        progress = lambda *numbers: told.append(numbers)  # noqa: E731
        lccodec.unbundle(tmp_path / "to" / "run.lcc", tmp_path / "to" / "back", progress=progress)
        assert told == [(1, 4), (2, 4), (3, 4), (4, 4)]
    lccodec.unbundle(tmp_path / "to" / "run.lcc", tmp_path / "to" / "again", progress=True)
    assert seen(bars) == [("unbundle", " files", 4, 4, True)]


def test_an_error_of_the_function_leaves_a_chain_that_can_be_restored(chain: Chain, tmp_path: Path) -> None:
    def fail(*_: int) -> None:
        raise ValueError("enough")

    for call in (LONG["prune"][0], LONG["compact"][0], LONG["bundle"][0]):
        with pytest.raises(ValueError, match="enough"):
            call(chain, tmp_path / "to", fail)
        assert lccodec.validate(chain.directory, deep=True) == []
    assert not (tmp_path / "to" / "run.lcc").exists()


def test_what_is_neither_is_refused(chain: Chain) -> None:
    with pytest.raises(ArgumentError, match="progress must be True, False or a function"):
        chain.restore(progress="bar")
    with pytest.raises(ArgumentError, match="progress must be True, False or a function"):
        chain.save(3, {}, progress=3)
    with pytest.raises(ArgumentError, match="progress must be True, False or a function"):
        chain.save_async(3, {}, progress=3)
    assert chain.steps == [0, 1, 2]


# --- saves ----------------------------------------------------------------------------------------


def state(step: int) -> dict[str, np.ndarray]:
    """Two arrays with a frame of their own, and three of one frame."""
    large = {f"large{i}": np.full(70_000, step + i, np.float32) for i in range(2)}
    return large | {f"small{i}": np.full(7, step + i, np.float32) for i in range(3)}


def save(chain: Chain, how: str, step: int, progress: Callable[[int, int], object] | bool) -> int | None:
    if how == "async":
        return chain.save_async(step, state(step), progress=progress).result()
    return chain.save(step, state(step), progress=progress)


@pytest.mark.slow
@pytest.mark.parametrize(("how", "workers"), [("here", None), ("async", None), ("worker", 2)])
def test_a_save_tells_how_many_arrays_are_coded(tmp_path: Path, how: str, workers: int | None) -> None:
    told: list[tuple[int, int]] = []
    with Chain(tmp_path, "lossless", workers=workers) as chain:
        for step in range(2):
            told.clear()
            save(chain, how, step, lambda *numbers: told.append(numbers))
            assert told[-1] == (5, 5)
            assert told == sorted(set(told))
            assert how != "here" or told == [(1, 5), (2, 5), (5, 5)]
        told.clear()
        chain.save(2, state(1), progress=lambda *numbers: told.append(numbers))
        assert told == []  # nothing is coded
    assert chain.steps == [0, 1, 2]


@pytest.mark.slow
@pytest.mark.parametrize(("how", "workers"), [("here", None), ("async", None), ("worker", 2)])
def test_an_error_of_the_function_stops_no_save(tmp_path: Path, how: str, workers: int | None) -> None:
    told = []

    def fail(done: int, total: int) -> None:
        told.append((done, total))
        raise ValueError("enough")

    with Chain(tmp_path, "lossless", workers=workers) as chain:
        with pytest.warns(LccodecWarning, match="goes on, but not its progress: ValueError: enough"):
            assert save(chain, how, 0, fail)
            chain.wait()
        assert len(told) == 1
    assert_same(chain.restore(), state(0))


@pytest.mark.slow
def test_an_interrupt_of_the_function(tmp_path: Path) -> None:
    """Whether the worker was faster or not."""

    def interrupt(*_: int) -> None:
        raise KeyboardInterrupt

    with Chain(tmp_path, "lossless") as chain:
        save(chain, "async", 0, progress=False)
        with pytest.raises(KeyboardInterrupt):
            save(chain, "async", 1, interrupt)
        with pytest.raises(KeyboardInterrupt):
            chain.wait()
        save(chain, "async", 2, progress=False)
    assert chain.steps in ([0, 2], [0, 1, 2])
    assert_same(chain.restore(), state(2))


STATE = {"w": np.arange(1000.0), "v": [np.zeros(10, np.int8), 3], "empty": np.zeros((0, 1 << 30))}
NBYTES = 8010


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    path = tmp_path_factory.mktemp("bounds") / "run"
    with Chain(path, "lossless") as run:
        for step in range(4):
            run.save(step, {**STATE, "w": STATE["w"] + step})
    lccodec.bundle(path, path.parent / "run.lcc")
    yield path


def restored(path: Path, **bounds: Any) -> Any:
    with Chain(path) as run:
        return run.restore(keys="w", **bounds)


def iterated(path: Path, **bounds: Any) -> Any:
    with Chain(path) as run:
        return dict(run.restore_iter(**bounds))


def averaged(path: Path, **bounds: Any) -> Any:
    with Chain(path) as run:
        return run.average([2, 3], roles=ROLES, **bounds)


def followed(path: Path, **bounds: Any) -> Any:
    with lccodec.follow(path, step=3, exact=False, timeout=0, **bounds) as follower:
        return next(follower).step


READ: dict[str, Callable[..., Any]] = {
    "open": lambda path, **bounds: lccodec.open(path, **bounds).close(),
    "open a step": lambda path, **bounds: lccodec.open(path, step=3, exact=False, **bounds).close(),
    "open a bundle": lambda path, **bounds: lccodec.open(path.parent / "run.lcc", **bounds).close(),
    "load_file": lambda path, **bounds: lccodec.load_file(path / "000000000003.lcc.h5", **bounds),
    "restore": restored,
    "restore_iter": iterated,
    "average": averaged,
    "follow": followed,
    "validate": lambda path, **bounds: lccodec.validate(path, deep=True, **bounds),
    "validate a file": lambda path, **bounds: lccodec.validate(path / "000000000003.lcc.h5", **bounds),
    "validate a bundle": lambda path, **bounds: lccodec.validate(path.parent / "run.lcc", **bounds),
}


@pytest.mark.parametrize("read", READ.values(), ids=READ)
def test_what_asks_for_more_is_refused_before_it_is_decoded(
    run: Path, read: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    read(run, max_bytes=NBYTES, max_deltas=3)
    tune(monkeypatch, decode_part=None)
    for bounds, message in (
        ({"max_bytes": NBYTES - 1}, "its arrays have 8,010 bytes, and max_bytes is 8,009"),
        ({"max_deltas": 2}, "it needs 3 other checkpoints, and max_deltas is 2"),
    ):
        with pytest.raises(LimitError, match=message) as caught:
            read(run, **bounds)
        assert caught.value.rule == next(iter(bounds))
        assert caught.value.where.endswith(".lcc.h5")


def test_what_only_the_parent_has_counts_where_it_is_decoded(tmp_path: Path) -> None:
    with Chain(tmp_path, "lossless") as run:
        run.save(1, {"w": np.zeros(10), "run": np.zeros(1000), "alone": np.zeros(1 << 15)})
        run.save(2, {"w": np.zeros(10)})
    path = tmp_path / "000000000002.lcc.h5"
    assert lccodec.load_file(path, max_bytes=8080)["w"].size == 10  # it shares a frame with `run`
    with pytest.raises(LimitError, match="its arrays have 8,080 bytes, and max_bytes is 8,079"):
        lccodec.load_file(path, max_bytes=8079)
    assert lccodec.validate(path, deep=True, max_bytes=8080 + (8 << 15)) == []
    with pytest.raises(LimitError, match="its arrays have 270,224 bytes, and max_bytes is 270,223"):
        lccodec.validate(path, deep=True, max_bytes=270223)


def test_bytes_in_memory() -> None:
    data = lccodec.save(STATE)
    assert lccodec.load(data, max_bytes=NBYTES)["v"][1] == 3
    with pytest.raises(LimitError, match="max_bytes is 0"):
        lccodec.load(data, max_bytes=0)


def test_an_older_step_that_fits_is_restored(run: Path) -> None:
    with Chain(run) as opened, pytest.warns(lccodec.LccodecWarning, match="max_deltas"):
        assert opened.restore(fallback=True, max_deltas=1)["w"][0] == 1


def test_a_follower_passes_over_what_asks_for_more(run: Path) -> None:
    with lccodec.follow(run, exact=False, timeout=0, max_deltas=2) as follower:
        with pytest.warns(lccodec.LccodecWarning, match="step 3 cannot be read.*max_deltas is 2"):
            assert next(follower).step == 2
        assert list(follower.refused) == [3]


@pytest.mark.parametrize("bounds", [{"max_bytes": NBYTES - 1}, {"max_deltas": 0}])
def test_a_repair_decodes_nothing_that_asks_for_more(tmp_path: Path, bounds: dict[str, int]) -> None:
    with Chain(tmp_path, "lossless", newest="exact") as run:
        for step in range(2):
            run.save(step, {**STATE, "w": STATE["w"] + step})
        (tmp_path / EXACT_NAME).write_bytes(b"")
        with tuned(decode_part=None):
            for dry_run in (True, False):
                (lost,) = run.repair(dry_run=dry_run, **bounds).lost.values()
                assert f"{next(iter(bounds))} is {next(iter(bounds.values()))}" in lost.replace(",", "")
        assert (tmp_path / EXACT_NAME).read_bytes() == b""
        assert list(run.repair(max_bytes=NBYTES, max_deltas=1).remade) == [EXACT_NAME]


def test_a_repair_says_nothing_of_a_whole_checkpoint_that_asks_for_more(tmp_path: Path) -> None:
    with Chain(tmp_path, "lossless", newest="exact", keyframe_every=0) as run:
        for step in range(2):
            run.save(step, STATE)
        (tmp_path / "000000000000.lcc.h5").write_bytes(b"")
        found = run.repair(max_bytes=0)
    assert (list(found.lost), found.mended) == (["000000000000.lcc.h5"], ())


@pytest.mark.parametrize("bound", [-1, 1.5, "1"])
def test_arguments(bound: Any) -> None:
    for name in ("max_bytes", "max_deltas"):
        with pytest.raises(ArgumentError, match=f"{name} must be a non-negative integer"):
            Bounds(**{name: bound})


BEYOND = {
    "more than 1099511627776 elements": [
        np.zeros((0, 2 * MAX_ELEMENTS), np.float32),
        np.zeros((MAX_ELEMENTS, 0, 3), np.uint8),
        np.broadcast_to(np.float32(1), (MAX_ELEMENTS + 1,)),
    ]
}
if np.lib.NumpyVersion(np.__version__) >= "2.0.0":  # which has 64 dimensions, and the first one 32
    BEYOND["dimensions, more than 32"] = [np.zeros((1,) * 33, np.float32), np.zeros((0,) * 64)]
CASES = [(limit, array) for limit, arrays in BEYOND.items() for array in arrays]


@pytest.mark.parametrize(("limit", "array"), CASES)
def test_one_array(limit: str, array: np.ndarray) -> None:
    for quantizer in (Lossless(), UniformDeadzone(step=1)):
        with pytest.raises(ArgumentError, match=limit):
            encode(array, quantizer)


@pytest.mark.parametrize(("limit", "array"), CASES)
def test_the_plan_names_the_array(limit: str, array: np.ndarray) -> None:
    with pytest.raises(ArgumentError, match=rf"array 'model/w': .*{limit}"):
        candidates(flatten({"first": np.ones(3), "model": {"w": array}}), {})


@pytest.mark.parametrize(("limit", "array"), CASES)
def test_nothing_is_written(limit: str, array: np.ndarray, tmp_path: Path) -> None:
    with Chain(tmp_path) as chain, pytest.raises(ArgumentError, match=limit):
        chain.save(1, {"a": np.ones(3), "w": array})
    assert list(tmp_path.iterdir()) == []


def test_what_is_just_within() -> None:
    check_shape((MAX_ELEMENTS,))
    check_shape((1,) * MAX_DIMENSIONS)
    for shape in ((0, MAX_ELEMENTS), (1,) * MAX_DIMENSIONS):
        array = np.zeros(shape, np.int16)
        assert decode(encode(array, Lossless())).shape == shape


@pytest.mark.parametrize("shape", [(MAX_ELEMENTS + 1,), (2, MAX_ELEMENTS), (1,) * 33])
def test_shapes(shape: tuple[int, ...]) -> None:
    with pytest.raises(ArgumentError, match="cannot be stored"):
        check_shape(shape)
