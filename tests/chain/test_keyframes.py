"""When a chain writes a keyframe."""

from __future__ import annotations

from lccodec.chain.keyframes import wants_keyframe


def test_keyframe_rule() -> None:
    assert not wants_keyframe(31, 10, 10, 32)
    assert wants_keyframe(32, 0, 10, 32)
    assert wants_keyframe(1, 11, 10, 32)
    assert wants_keyframe(0, 0, 10, 0)
