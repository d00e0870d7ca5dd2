"""What a checkpoint records of policy and roles comes back; unknown records are refused."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lccodec import POLICIES, ROLES, ArgumentError, Balanced, ExponentBuckets, LogSteps, Policy
from lccodec.policy.record import Record, read_record, write_record

MINE = Policy("mine", {"weight": ExponentBuckets(1)}, {"*/m": LogSteps(2.0)}, smallest=100)
records = st.builds(
    Record,
    st.sampled_from([*POLICIES.values(), MINE, Balanced("mine", ratio=50.0)]),
    st.dictionaries(st.text(st.sampled_from("abc/*"), min_size=1), st.sampled_from(ROLES), max_size=3),
    st.dictionaries(st.integers(0, 2**53), st.sampled_from(ROLES), max_size=5),
)


@given(records)
def test_a_record_comes_back_through_json(record: Record) -> None:
    assert read_record(json.loads(json.dumps(write_record(record)))) == record


@pytest.mark.parametrize("name", POLICIES)
def test_a_preset_is_recorded_by_its_name_alone(name: str) -> None:
    assert write_record(Record(POLICIES[name])) == name


def test_another_policy_of_the_name_of_a_preset_is_recorded_whole() -> None:
    other = Policy("lc-3", smallest=1)
    written = write_record(Record(other))
    assert written == other.to_json()
    assert read_record(written).policy == other


def test_roles_are_grouped_by_role() -> None:
    record = Record(POLICIES["lc-3"], {"*.x": "weight"}, {4: "other", 1: "weight", 2: "other"})
    assert write_record(record) == {
        "policy": "lc-3",
        "roles": {"*.x": "weight"},
        "known": {"other": [4, 2], "weight": [1]},
    }


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("lc-9", "policy must be .* got 'lc-9'"),
        (None, "policy must be .* got None"),
        ({"policy": "lc-9"}, "policy must be .* got 'lc-9'"),
        *(
            ({"policy": "lc-3", "known": known}, "not a record of roles")
            for known in ([], {"weights": [1]}, {"weight": 1}, {"weight": [True]}, {"weight": ["1"]})
        ),
        ({"policy": "lc-3", "roles": {"x": "weights"}}, "weights"),
        ({"policy": "lc-3", "roles": [1]}, "roles"),
    ],
)
def test_what_is_no_record(value: Any, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        read_record(value)
