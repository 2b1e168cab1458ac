"""Compare the search trees for patterns with the plain matcher: any patterns, any names, added and removed."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from radiator.routing.index import NameIndex, PatternIndex
from radiator.routing.pattern import Pattern, parse_list
from radiator.routing.rule_index import Matcher, RuleIndex, captures_of

segment = st.sampled_from(["a", "b", "", "*x", "c"])
names = st.builds(
    lambda parts, separators: "".join(f"{s}{p}" for p, s in zip(parts, separators, strict=False)).lstrip(" ") or "a",
    st.lists(segment, min_size=1, max_size=5),
    st.lists(st.sampled_from("./"), min_size=5, max_size=5),
)
wild = st.builds(
    lambda parts, end, separator: separator.join([*parts, *end]),
    st.lists(st.one_of(segment, st.sampled_from(["*", "#"])), min_size=1, max_size=5),
    st.sampled_from([[], [">"], ["#"]]),
    st.sampled_from("./"),
).filter(bool)
lists = st.lists(st.one_of(wild, names), min_size=1, max_size=3).map(lambda each: parse_list(",".join(each)))


def _expression(parts: list[str]) -> re.Pattern[str] | None:
    try:
        return re.compile("".join(parts))
    except re.error:
        return None


PIECES = r"/ \. /a a b \*x \* # > * ? + {0,1} { . .* ([^./]*) [./] ^ | ( ) (a|b) (?:b)? (?i) (?x) (?#a|b) \w"
pieces = st.sampled_from([*PIECES.split(), " "])
expressions = st.lists(pieces, min_size=1, max_size=8).map(_expression).filter(lambda each: each is not None)
hard_names = st.one_of(names, st.text("ab*#>./, A{é", min_size=1, max_size=6))


@pytest.mark.thorough
@settings(max_examples=1_000)
@given(st.lists(st.one_of(lists, expressions), max_size=8), st.lists(hard_names, min_size=1, max_size=6))
def test_the_first_rule_is_that_of_a_walk_over_all(matchers: list[Matcher], wanted: list[str]) -> None:
    index = RuleIndex(matchers)
    for name in wanted:
        walked = ((number, captures_of(matcher)(name)) for number, matcher in enumerate(matchers))
        assert index.first(name) == next((each for each in walked if each[1] is not None), None)


@pytest.mark.thorough
@settings(max_examples=500)
@given(st.lists(lists, max_size=8), st.lists(st.integers(0, 7)), st.lists(names, min_size=1, max_size=6))
def test_a_name_finds_the_patterns_that_match_it(sets: list, removed: list[int], wanted: list[str]) -> None:
    index: PatternIndex[int] = PatternIndex()
    for number, patterns in enumerate(sets):
        index.add(number, patterns.patterns)
    for number in removed:
        if number < len(sets):
            index.remove(number, sets[number].patterns)
    left = [number for number in range(len(sets)) if number not in removed]
    assert len(index) == len(left)
    for name in wanted:
        assert index.find(name) == [number for number in left if sets[number].matches(name)]
    for number in left:
        index.remove(number, sets[number].patterns)
    assert not index._root.next
    assert not index._exact


@pytest.mark.thorough
@settings(max_examples=500)
@given(st.lists(names, unique=True, max_size=12), st.lists(st.integers(0, 11)), st.lists(wild, min_size=1, max_size=4))
def test_a_pattern_finds_the_names_that_it_matches(
    all_names: list[str], removed: list[int], patterns: list[str]
) -> None:
    index = NameIndex()
    for name in all_names:
        index.add(name)
    gone = {all_names[number] for number in removed if number < len(all_names)}
    for name in gone:
        index.remove(name)
    left = [name for name in all_names if name not in gone]
    for text in patterns:
        pattern = Pattern(text)
        if pattern.is_literal:
            continue
        found, looked = index.find(pattern, 10_000)
        assert found is not None
        assert index.find(pattern, looked - 1)[0] is None or looked == 0
        assert len(found) == len(set(found))
        assert set(found) == {name for name in left if pattern.matches(name)}
    for name in left:
        index.remove(name)
    assert not index._root.next


@pytest.mark.parametrize(
    "text", ["/topic/a.*,/topic/a/*", "/topic/a.>,/topic/a/>,/topic/a/>", "/topic/a,/topic/a,/topic/b.*"]
)
def test_patterns_that_are_the_same_path_are_removed_together(text: str) -> None:
    index: PatternIndex[int] = PatternIndex()
    for number in (1, 2):
        index.add(number, [Pattern(each) for each in text.split(",")])
    index.remove(1, [Pattern(each) for each in text.split(",")])
    assert index.find("/topic/a.b") == ([2] if "a.>" in text or "a.*" in text else [])
    index.remove(2, [Pattern(each) for each in text.split(",")])
    assert not index._root.next
    assert not index._exact


def test_what_does_not_match_is_not_looked_at() -> None:
    index = NameIndex()
    for number in range(1_000):
        index.add(f"/topic/many.{number}.x")
        index.add(f"/queue/other.{number}")
    found, looked = index.find(Pattern("/topic/many.7.*"), 100)
    assert found == ["/topic/many.7.x"]
    assert looked < 10
