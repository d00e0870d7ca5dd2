"""Patterns of names: what matches, and the name that is filled in."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lccodec.exchange.patterns import SEPARATORS, Binding, fault, fill, match, wildcards


@pytest.mark.parametrize(
    ("pattern", "name", "binding"),
    [
        ("fc.weight", "fc.weight", ("", ())),
        ("fc.weight", "fc.weights", None),
        ("fc.weight", "fcxweight", None),
        ("**.weight", "a.b.weight", ("a.b", ())),
        ("**.weight", "weight", ("", ())),
        ("**.weight", "a.xweight", None),
        ("a.**", "a.b.c", ("b.c", ())),
        ("a.**", "a", ("", ())),
        ("a.**", "ab", None),
        ("a.**.w", "a.b.c.w", ("b.c", ())),
        ("a.**.w", "a.w", ("", ())),
        ("**", "a.b", ("a.b", ())),
        ("**", "", ("", ())),
        ("h.*.w", "h.3.w", ("", ("3",))),
        ("h.*.w", "h.3.4.w", None),
        ("**.weight_l*", "rnn.weight_l12", ("rnn", ("12",))),
        ("**.weight_l*", "rnn.weight_l", None),
        ("**.*.*.w", "a.b.c.d.w", ("a.b", ("c", "d"))),
        ("*.**.*", "a.b.c", ("b", ("a", "c"))),
        ("[a]*.w", "[a]b.w", ("", ("b",))),
        ("**.w", "a\nb.w", ("a\nb", ())),
    ],
)
def test_what_a_pattern_matches(pattern, name, binding):
    found = match(pattern, name, "torch")
    assert found == binding
    assert found is None or fill(pattern, found, "torch") == name


segments = st.text(st.sampled_from("ab*x0"), min_size=1, max_size=4).filter(lambda s: s.count("*") < 2)
words = st.text(st.sampled_from("abx0_"), min_size=1, max_size=3)


@given(st.lists(segments, min_size=1, max_size=4), st.data(), st.sampled_from(["torch", "flax"]))
def test_a_filled_pattern_matches_with_what_it_was_filled_with(parts, data, side):
    separator = SEPARATORS[side]
    at = data.draw(st.integers(0, len(parts)))
    pattern = separator.join([*parts[:at], "**", *parts[at:]])
    path = separator.join(data.draw(st.lists(words, max_size=3)))
    singles = tuple(data.draw(words) for part in parts if "*" in part)
    binding = Binding(path, singles)
    assert match(pattern, fill(pattern, binding, side), side) == binding


@pytest.mark.parametrize(
    ("pattern", "counts"),
    [("a.b", (0, 0)), ("**", (1, 0)), ("**.h.*.w*", (1, 2)), ("**.**", (2, 0)), ("a/**", (0, 2))],
)
def test_wildcards_are_counted(pattern, counts):
    assert wildcards(pattern, "torch") == counts


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("a.*.b*.**", None),
        ("a/b", None),
        ("", "has an empty segment"),
        ("a..b", "has an empty segment"),
        (".a", "has an empty segment"),
        ("a*b*", "has more than one * in a segment"),
        ("***", "has more than one * in a segment"),
    ],
)
def test_faults_of_a_pattern(pattern, message):
    assert fault(pattern, "torch") == message


def test_the_separator_is_that_of_the_side():
    assert match("a.*", "a.b", "torch") == ("", ("b",))
    assert match("a.*", "a.b/c", "flax") is None
    assert match("a/*", "a/b.c", "flax") == ("", ("b.c",))
