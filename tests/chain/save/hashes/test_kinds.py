from __future__ import annotations

from pathlib import Path

import pytest

from lccodec import ArgumentError, Chain


def test_an_unknown_reference_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="reference must be one of values, hashes"):
        Chain(tmp_path, "lossless", reference="tree")  # type: ignore[arg-type]


def test_groups_of_a_history_are_refused(tmp_path: Path) -> None:
    """Also with a policy that may lose something, but nothing of small arrays."""
    with pytest.raises(ArgumentError, match="hindsight= cannot be used with reference='hashes'"):
        Chain(tmp_path, "balanced", reference="hashes", newest="exact", hindsight=2)
