"""The names of what rollbacks set aside; what lies under them is tested with rollbacks."""

from __future__ import annotations

from lccodec.chain.store.directory import in_order, next_name, parse_name


def test_names_have_a_number_and_a_step() -> None:
    assert parse_name("0001-to-20") == (1, 20)
    assert parse_name("12345-to-0") == (12345, 0)
    assert [parse_name(name) for name in ("001-to-20", "0001-to-", "x0001-to-2", "0001-to-2.tmp")] == [
        None
    ] * 4


def test_a_further_name_comes_after_all_others() -> None:
    assert next_name([], 7) == "0001-to-7"
    assert next_name(["0002-to-5", "0010-to-5", "other"], 7) == "0011-to-7"
    assert in_order(["0010-to-5", "other", "0002-to-9", "0003-to-1"]) == [
        *(("0002-to-9", 9), ("0003-to-1", 1), ("0010-to-5", 5)),
    ]
