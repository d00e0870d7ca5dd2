"""Rules: one meaning each, the same in both directions, from Python and from a file."""

import json
import re
import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lccodec.errors import ArgumentError, StorageError
from lccodec.exchange import LAYOUTS, RULES, Rule, load_rules
from lccodec.exchange.rules import SEPARATORS, Binding, fault, fill, match, wildcards


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((None, None), "needs a pattern for torch or flax"),
        (("a..b", "a"), "'a..b' has an empty segment"),
        (("", "a"), "'' has an empty segment"),
        (("a", "/a"), "'/a' has an empty segment"),
        (("a*b*", "a"), r"has more than one \* in a segment"),
        (("a***", "a"), r"has more than one \* in a segment"),
        (("**.w", "w"), "same wildcards"),
        (("*.w", "**/w"), "same wildcards"),
        (("*.*.w", "*/w"), "same wildcards"),
        (("**.a.**", "**/a/**"), "at most once"),
        ((("*.a", "b"), "*/c", "tied"), "same wildcards"),
        (("a", "a", "transpose"), "layout must be one of same, tied, linear, .*; got 'transpose'"),
        (("a", "a", "same", 3), "layout 'same' does not take size 3"),
        (("a", "a", "flattened"), "layout 'flattened' needs a size"),
        (("a", "a", "heads", 0), "layout 'heads' does not take size 0"),
        ((("a", "b"), "a", "linear"), "does not map 2 arrays in torch to 1 in Flax"),
        (("a", ("a", "b")), "does not map 1 arrays in torch to 2 in Flax"),
        (("a", "a", "summed"), "does not map 1 arrays in torch"),
        (("a", None, "linear"), "a rule that leaves entries out takes no layout"),
        ((None, "a", "module"), "a rule that leaves entries out takes no layout"),
        ((("a", "b"), "a", "module"), "does not map 2 arrays"),
    ],
)
def test_a_rule_without_one_meaning(arguments, message):
    with pytest.raises(ArgumentError, match=message):
        Rule(*arguments)


def test_the_common_rules_have_every_layout_but_those_that_names_cannot_tell():
    assert {rule.layout for rule in RULES} == set(LAYOUTS) - {"tied", "flattened", "conv-transposed"}
    assert len(set(RULES)) == len(RULES)


TOML = """
[[rule]]
torch = "features.**"
flax = "features/layers/**"
layout = "module"

[[rule]]
torch = ["wte.weight", "head.weight"]
flax = "wte/embedding"
layout = "tied"

[[rule]]
torch = "fc.weight"
flax = "fc/kernel"
layout = "flattened"
size = 16

[[rule]] # left out
torch = "*.scale"
rank = 0
"""
FROM_TOML = (
    Rule("features.**", "features/layers/**", "module"),
    Rule(("wte.weight", "head.weight"), "wte/embedding", "tied"),
    Rule("fc.weight", "fc/kernel", "flattened", size=16),
    Rule("*.scale", None, rank=0),
)


def test_rules_from_a_file(tmp_path):
    (tmp_path / "rules.toml").write_text(TOML)
    assert load_rules(tmp_path / "rules.toml") == FROM_TOML
    entries = [
        {"torch": "features.**", "flax": "features/layers/**", "layout": "module"},
        {"torch": ["wte.weight", "head.weight"], "flax": "wte/embedding", "layout": "tied"},
        {"torch": "fc.weight", "flax": "fc/kernel", "layout": "flattened", "size": 16},
        {"torch": "*.scale", "rank": 0},
    ]
    (tmp_path / "rules.json").write_text(json.dumps({"rule": entries}))
    assert load_rules(tmp_path / "rules.json") == FROM_TOML


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.toml", "rule = ", r"a\.toml: "),
        ("a.json", "[", r"a\.json: "),
        ("a.json", "[" * 100_000, r"a\.json: "),
        ("a.toml", "\udcff", r"a\.toml: "),
        ("a.toml", "", "must hold a list of tables 'rule' and nothing else"),
        ("a.toml", "rule = 3", "must hold a list of tables 'rule'"),
        ("a.toml", "rule = []\nrules = []", "nothing else"),
        ("a.json", "[]", "must hold a list of tables 'rule'"),
        (
            "a.json",
            '{"rule": [3]}',
            "rule 1: must be a table with keys from torch, flax, layout, size, rank; got 3",
        ),
        (
            "a.json",
            '{"rule": [{"torch": "a"}, {"pattern": "a"}]}',
            "rule 2: must be a table with keys from .*; got {'pattern': 'a'}",
        ),
        ("a.json", '{"rule": [{"torch": 3}]}', "rule 1: torch must be a string or a list of strings; got 3"),
        (
            "a.json",
            '{"rule": [{"torch": "a", "flax": null}]}',
            "rule 1: flax must be a string or a list of strings; got None",
        ),
        ("a.json", '{"rule": [{"torch": ["a", 3]}]}', r"rule 1: torch must be .*; got \['a', 3\]"),
        ("a.json", '{"rule": [{"torch": []}]}', "rule 1: .*needs a pattern"),
        (
            "a.json",
            '{"rule": [{"torch": "a", "flax": "a", "size": "3"}]}',
            "rule 1: size must be an integer; got '3'",
        ),
        (
            "a.json",
            '{"rule": [{"torch": "a", "flax": "a", "size": true}]}',
            "rule 1: size must be an integer; got True",
        ),
        (
            "a.json",
            '{"rule": [{"torch": "a", "flax": "a", "layout": ["same"]}]}',
            "rule 1: layout must be a string; got",
        ),
        ("a.json", '{"rule": [{"torch": "a", "flax": "a", "layout": "x"}]}', "rule 1: .*; got 'x'"),
    ],
)
def test_a_file_that_has_no_rules(tmp_path, name, text, message):
    (tmp_path / name).write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(ArgumentError, match=message):
        load_rules(tmp_path / name)


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(StorageError, match="cannot read"):
        load_rules(tmp_path / "none.toml")


def test_the_documentation():
    """It names every layout and every common name, and its rules are rules."""
    text = (Path(__file__).parents[2] / "lccodec/exchange/README.md").read_text()
    table = text[text.index("| layer") : text.index("**Not exactly")]
    assert set(LAYOUTS) <= set(re.findall(r"`([a-z-]+)`", table))
    common = {
        pattern.rpartition("**.")[2].split(".")[0] for rule in RULES for pattern in rule.patterns("torch")
    }
    common = {
        re.sub(r"^[qkv]_proj_weight$", "q_", re.sub(r"_l[0*](_reverse)?$", "", name)) for name in common
    }
    assert common <= set(re.findall(r"`(\w+)`", table))
    (example,) = re.findall(r"```toml\n(.*?)```", text, re.DOTALL)
    assert [rule["layout"] for rule in tomllib.loads(example)["rule"]] == ["module", "flattened", "linear"]
    assert all(Rule(**rule) for rule in tomllib.loads(example)["rule"])


# --- patterns -------------------------------------------------------------------------------------


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
