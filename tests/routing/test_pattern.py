"""Patterns: the grammar by example, and every match against a matcher that simply tries everything."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from radiator import limits
from radiator.errors import ProtocolError
from radiator.routing.pattern import Pattern, is_pattern, parse_list, segments

MATCHES = [
    # * is exactly one segment
    ("/topic/weather.*", "/topic/weather.EWR", True),
    ("/topic/weather.*", "/topic/weather/EWR", True),
    ("/topic/weather.*", "/topic/weather", False),
    ("/topic/weather.*", "/topic/weather.EWR.x", False),
    ("/topic/*.EWR", "/topic/weather.EWR", True),
    ("/topic/*/*", "/topic/a.b", True),
    ("/*/a", "/topic/a", True),
    ("*", "orders", True),
    ("*", "/orders", False),  # two segments, the first of them empty
    ("/topic/*", "/topic/", True),  # an empty segment is one
    ("/topic/weather.*", "/topic/weatherx.EWR", False),
    ("/topic/weather.*", "/Topic/weather.EWR", False),
    # > is one or more, at the end
    ("/topic/clicks.>", "/topic/clicks.a", True),
    ("/topic/clicks.>", "/topic/clicks.a.b/c", True),
    ("/topic/clicks.>", "/topic/clicks", False),
    ("/topic/clicks.>", "/topic/clicksa", False),
    ("/topic/>", "/topic/a", True),
    ("/topic/>", "/queue/a", False),
    (">", "/topic/a", True),
    ("/topic/*.>", "/topic/a.b", True),
    ("/topic/*.>", "/topic/a", False),
    # # is zero or more, anywhere
    ("#", "/topic/a", True),
    ("/topic/clicks.#", "/topic/clicks", True),
    ("/topic/clicks.#", "/topic/clicks.a.b", True),
    ("/topic/#/EWR", "/topic/EWR", True),
    ("/topic/#/EWR", "/topic/a.b.EWR", True),
    ("/topic/#/EWR", "/topic/a.b.EWRx", False),
    ("#.a.#.b", "a.b", True),
    ("#.a.#.b", "x.a.a.y.b.b", True),
    ("#.a.#.b", "b.a", False),
    ("a.#.#.b", "a.b", True),
    ("#.>", "a", True),
    ("a.#.>", "a", False),
    # within a segment they are characters
    ("/topic/a*b", "/topic/a*b", True),
    ("/topic/a*b", "/topic/axb", False),
    ("/topic/pri*", "/topic/price", False),
    ("/topic/**", "/topic/a", False),
    ("/topic/c#", "/topic/c#", True),
    ("/topic/c#", "/topic/c", False),
    ("/topic/a>", "/topic/a.b", False),
    ("/topic/a*.*", "/topic/a*.b", True),
    ("/topic/a*.*", "/topic/ab.b", False),
    ("/topic/*", "/topic/a*b", True),
    # no wildcard: a name
    ("/topic/a.b", "/topic/a.b", True),
    ("/topic/a.b", "/topic/a/b", False),
    ("/queue/ü☃", "/queue/ü☃", True),
]


@pytest.mark.parametrize(("pattern", "name", "matches"), MATCHES)
def test_a_pattern_matches_whole_segments(pattern: str, name: str, matches: bool) -> None:
    assert Pattern(pattern).matches(name) is matches
    assert (Pattern(pattern).captures(name) is not None) is matches
    assert parse_list(pattern).matches(name) is matches


@pytest.mark.parametrize(
    ("pattern", "name", "captures"),
    [
        ("/topic/weather.*", "/topic/weather.EWR", ("EWR",)),
        ("/*/weather.*", "/topic/weather.EWR", ("topic", "EWR")),
        ("/topic/clicks.>", "/topic/clicks.a/b.c", ("a/b.c",)),
        ("/topic/clicks.#", "/topic/clicks", ("",)),
        ("/topic/#.EWR", "/topic/a.b/EWR", ("a.b",)),
        ("#", "/topic/a", ("/topic/a",)),
        ("#.a.#", "x.a.y.a.z", ("x", "y.a.z")),  # earlier wildcards take as little as they can
        ("#.#", "a.b", ("", "a.b")),
        ("/topic/*.>", "/topic/a.b.c", ("a", "b.c")),
        ("/topic/a", "/topic/a", ()),
        ("/topic/a", "/topic/b", None),
    ],
)
def test_a_wildcard_captures_what_it_stood_for(pattern: str, name: str, captures: tuple[str, ...] | None) -> None:
    assert Pattern(pattern).captures(name) == captures


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "got nothing"),
        ("/topic/>.a", "> can only be the last segment"),
        ("/topic/>.a*", "> can only be the last segment"),
        ("/topic/a\0", "a name cannot contain NUL"),
        ("*." * limits.PATTERN_SEGMENTS_MAX + "*", "at most 128 segments"),
    ],
)
def test_a_malformed_pattern_is_the_peers_fault(text: str, why: str) -> None:
    with pytest.raises(ProtocolError, match=r".") as caught:
        Pattern(text)
    assert caught.value.code == "bad-pattern"
    assert why in caught.value.message


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("/topic/a.*", True),
        ("/topic/>", True),
        ("#", True),
        ("/topic/>.a", True),
        ("/topic/*.a*b", True),
        ("/topic/a,b", True),
        ("/topic/a*b,c", True),
        ("/topic/a", False),
        ("/topic/pri*", False),
        ("/topic/*x", False),
        ("/topic/a>b", False),
        ("/topic/**", False),
        ("/topic/c#", False),
        ("/topic/c#.sharp", False),
    ],
)
def test_what_has_a_wildcard_for_a_segment_or_a_comma_is_no_name(text: str, expected: bool) -> None:
    assert is_pattern(text) is expected


# --- lists ------------------------------------------------------------------------------------------------------------


def test_a_list_matches_what_any_of_its_patterns_matches() -> None:
    patterns = parse_list("/topic/a.*, /topic/b,/queue/>")
    assert [pattern.text for pattern in patterns] == ["/topic/a.*", "/topic/b", "/queue/>"]
    assert [patterns.matches(name) for name in ("/topic/a.x", "/topic/b", "/queue/q", "/topic/c")] == [True] * 3 + [
        False
    ]


def test_a_list_knows_its_names() -> None:
    patterns = parse_list("/topic/b,/topic/a.*,/topic/c,/topic/b")
    assert patterns.names == ("/topic/b", "/topic/c")
    assert not patterns.is_literal
    assert parse_list("/topic/b,/topic/c").is_literal


def test_names_with_wildcard_characters_may_stand_in_a_list() -> None:
    assert parse_list("/topic/a*b,/topic/c#").names == ("/topic/a*b", "/topic/c#")
    assert parse_list("/topic/a*b,/topic/c#").is_literal


def test_a_list_captures_by_the_first_pattern_that_matches() -> None:
    assert parse_list("/topic/*.x,/topic/>").captures("/topic/a.x") == ("a",)
    assert parse_list("/topic/*.x,/topic/>").captures("/topic/a.y") == ("a.y",)
    assert parse_list("/topic/*.x,/topic/>").captures("/queue/a") is None


@pytest.mark.parametrize("text", [",", "a,", ",a", "a,,b", "a, ,b", "a,>.b"])
def test_a_list_with_an_empty_entry_is_malformed(text: str) -> None:
    with pytest.raises(ProtocolError) as caught:
        parse_list(text)
    assert caught.value.code == "bad-pattern"


def test_a_list_has_an_end() -> None:
    assert len(parse_list(",".join(f"a{n}" for n in range(limits.PATTERNS_PER_LIST_MAX))).patterns) == 100
    with pytest.raises(ProtocolError, match="at most 100 patterns"):
        parse_list(",".join(f"a{n}" for n in range(limits.PATTERNS_PER_LIST_MAX + 1)))


# --- against brute force ----------------------------------------------------------------------------------------------


def brute_force(parts: list[str], names: list[str]) -> bool:
    """The definition, word for word: try every number of segments for every wildcard."""
    if not parts:
        return not names
    if parts[0] == "#":
        return any(brute_force(parts[1:], names[taken:]) for taken in range(len(names) + 1))
    if parts[0] == ">":
        return bool(names)
    return bool(names) and parts[0] in ("*", names[0]) and brute_force(parts[1:], names[1:])


separators = st.sampled_from("./")
words = st.sampled_from(["a", "b", "", "a*", "#b"])


@st.composite
def joined(draw: st.DrawFn, items: st.SearchStrategy[str], size_max: int) -> str:
    """Segments with either separator between them."""
    parts = draw(st.lists(items, min_size=1, max_size=size_max))
    return parts[0] + "".join(draw(separators) + part for part in parts[1:])


@st.composite
def wild(draw: st.DrawFn) -> str:
    text = draw(joined(words | st.sampled_from(["*", "#", "#"]), 7))
    return text + draw(separators) + ">" if draw(st.booleans()) else text


@given(wild().filter(is_pattern), joined(words, 8))
def test_a_pattern_matches_exactly_what_its_definition_says(text: str, name: str) -> None:
    pattern = Pattern(text)
    expected = brute_force(segments(text), segments(name))
    assert pattern.matches(name) is expected
    assert (pattern.captures(name) is not None) is expected


@given(wild().filter(is_pattern), joined(words, 8))
def test_captures_put_back_give_the_name(text: str, name: str) -> None:
    pattern = Pattern(text)
    captures = pattern.captures(name)
    if captures is None:
        return
    assert len(captures) == pattern.wildcard_count
    rest = iter(captures)
    rebuilt: list[str] = []
    for part in segments(text):
        if part in ("*", "#", ">"):
            taken = next(rest)
            if part == "#" and taken == "":
                continue  # none, or one empty segment: both are written as nothing
            rebuilt += segments(taken)
        else:
            rebuilt.append(part)
    assert [part for part in rebuilt if part] == [part for part in segments(name) if part]


@given(st.text(max_size=40))
def test_no_text_raises_anything_but_a_protocol_error(text: str) -> None:
    try:
        patterns = parse_list(text)
    except ProtocolError as error:
        assert error.code == "bad-pattern"
    else:
        patterns.matches(text)


@given(st.text(min_size=1).filter(lambda text: not is_pattern(text) and "\0" not in text))
def test_a_name_matches_itself_and_the_pattern_for_everything(name: str) -> None:
    assert Pattern(name).matches(name)
    assert Pattern("#").captures(name) == (name,)
    assert Pattern(">").captures(name) == (name,)


def test_hostile_patterns_take_few_steps() -> None:
    """Each name is split into so many segments that a matcher with full backtracking would not end in a lifetime."""
    pattern = Pattern("#.a." * 60 + "#.b")
    assert not pattern.matches("a." * 119 + "a")
