"""What a framework has to bring along: an object is an adapter, or refused at once."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from lccodec import ArgumentError, Chain
from lccodec.chain.adapter import Room, check_adapter
from lccodec.policy.roles import Assignment
from lccodec.workers.memory import Arena

from ..support.far import Far, FarAdapter


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
        check_adapter(SimpleNamespace(**members))  # type: ignore[arg-type]


def test_an_adapter_stands_between_the_user_and_the_chain(tmp_path: Path) -> None:
    with Chain(tmp_path, adapter=Whole()) as chain:
        chain.save(0, (1, (2, 3)))
        assert chain.restore() == ("", "tuple", [1, (2, 3)])
    assert Chain(tmp_path).restore() == [1, (2, 3)]
    with pytest.raises(ArgumentError, match="adapter must have"):
        Chain(tmp_path, adapter=object())  # type: ignore[arg-type]


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
