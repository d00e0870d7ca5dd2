"""What a framework has to bring along: an object is an adapter, or refused at once."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lccodec import ArgumentError, Chain
from lccodec.chain.adapter import check_adapter
from lccodec.policy.roles import Assignment


class Whole:
    """Makes lists of tuples, and says where they came from."""

    def to_numpy(
        self, state: Any, metadata: Mapping[str, str] | None = None, /
    ) -> tuple[Any, dict[str, str]]:
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
    with pytest.raises(ArgumentError, match=r"adapter is to be one as lccodec\.adapters\.torch"):
        check_adapter(SimpleNamespace(**members))  # type: ignore[arg-type]


def test_an_adapter_stands_between_the_user_and_the_chain(tmp_path: Path) -> None:
    with Chain(tmp_path, adapter=Whole()) as chain:
        chain.save(0, (1, (2, 3)))
        assert chain.restore() == ("", "tuple", [1, (2, 3)])
    assert Chain(tmp_path).restore() == [1, (2, 3)]
    with pytest.raises(ArgumentError, match="adapter is to be one"):
        Chain(tmp_path, adapter=object())  # type: ignore[arg-type]
