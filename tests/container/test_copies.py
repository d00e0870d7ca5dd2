"""The copies of a manifest. Vectors have each fault; here is what goes in and out."""

from __future__ import annotations

import pytest

from lccodec.container.copies import COPY_TYPES, Copy, parse_copies
from lccodec.errors import FormatError, UnsupportedError

HALF, BRAIN = COPY_TYPES[9], COPY_TYPES[10]


def test_there_and_back() -> None:
    copies = (Copy(3, BRAIN), Copy(1, HALF))
    arrays = (None, 1, None, 0)
    document = {"copies": [copy.to_json() for copy in copies]}
    assert document == {"copies": [[3, 10], [1, 9]]}
    assert parse_copies(document, arrays, "here") == copies
    assert parse_copies({}, (1, 2), "here") == ()


@pytest.mark.parametrize(
    ("copies", "message"),
    [
        ([], "not the sources of 1 copies"),
        ([[0]], "0: not the index"),
        ([[0, True]], "0: not the index"),
        ([[5, 9]], "0: 5 is no array"),
    ],
)
def test_what_is_refused(copies: list[object], message: str) -> None:
    with pytest.raises(FormatError, match=f"^here.*{message}") as caught:
        parse_copies({"copies": copies}, (1, None), "here")
    assert caught.value.rule == "LCC-CPY-01"


def test_other_types_are_not_known() -> None:
    for code in range(-1, 20):
        if code not in (9, 10):
            with pytest.raises(UnsupportedError, match=f"element type {code}"):
                parse_copies({"copies": [[0, code]]}, (1, None), "here")
