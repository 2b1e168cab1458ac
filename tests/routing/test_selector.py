"""Selectors by example: what is read, what it means, what is refused and how."""

from __future__ import annotations

import itertools

import pytest

from radiator import limits
from radiator.errors import ProtocolError
from radiator.routing.selector import compile_selector

MESSAGE = {"colour": "red", "size": "10", "half": "0.5", "yes": "true", "tag-shape": "round", "in": "1", "price-1": "7"}


def result(text: str, headers: dict[str, str] = MESSAGE) -> bool | None:
    selector = compile_selector(text)
    return selector.test([headers.get(name) for name in selector.names])


def refused(text: str) -> str:
    with pytest.raises(ProtocolError) as caught:
        compile_selector(text)
    assert caught.value.code == "bad-selector"
    return caught.value.message


@pytest.mark.parametrize(
    "text",
    [
        "colour = 'red'",
        "colour <> 'blue'",
        "size = 10",
        "size = '10'",
        "10 = size",
        "size = 10.0",
        "size = 1e1",
        "'10' = 10",
        "size > 9 AND size >= 10 AND size < 10.5 AND size <= '10'",
        "size BETWEEN 10 AND 11",
        "size NOT BETWEEN 11 AND 20",
        "size - 5 = 5 AND size -5 = 5",
        "size / 4 = 2.5",
        "size * half + 1 = 6",
        "1 + 2 * 3 = 7 AND (1 + 2) * 3 = 9 AND 8 - 4 - 2 = 2 AND 8 / 4 / 2 = 1",
        "- size = -10 AND --size = 10 AND +size = 10",
        "colour IN ('blue', 'red')",
        "size IN (1, 10)",
        "size IN ('ten', +10)",
        "colour NOT IN ('blue')",
        "colour LIKE 'r%' AND colour LIKE '%d' AND colour LIKE 'r_d' AND colour LIKE '%e%'",
        "colour NOT LIKE '%x%'",
        "missing IS NULL AND colour IS NOT NULL",
        "yes",
        "yes = TRUE AND NOT yes = FALSE AND (yes) AND TRUE",
        "NOT (colour = 'blue' OR FALSE)",
        "colour = 'blue' OR colour = 'red' AND size = 10",
        "tag-shape = 'round'",
        "\"tag-shape\" = 'round'",
        '"in" = 1 and Not False',
        "price-1 = 7",
        "convert_string_expressions:hyphenated_props:tag-shape = 'round'",
        "  colour\t=\n'red'  ",
    ],
)
def test_these_are_true(text: str) -> None:
    assert result(text) is True


@pytest.mark.parametrize(
    "text",
    [
        "missing = 'x'",
        "missing <> 'x'",
        "NOT missing = 'x'",
        "missing > 1",
        "missing BETWEEN 1 AND 2",
        "missing IN ('x')",
        "missing NOT LIKE 'x'",
        "missing",
        "colour",
        "colour > 1",
        "colour = 1",
        "colour <> 1",
        "colour = TRUE",
        "yes = 1",
        "size / 0 > 1",
        "size * 1e308 * 1e308 > 1",
        "colour + 1 = 1",
        "colour IN (1, 2)",
        "TRUE = 1",
    ],
)
def test_these_are_unknown(text: str) -> None:
    assert result(text) is None


def test_and_or_not_follow_the_truth_tables_of_sql() -> None:
    literals = {True: "TRUE", False: "FALSE", None: "missing"}
    rank = {False: 0, None: 1, True: 2}
    value = {number: truth for truth, number in rank.items()}
    for left, right in itertools.product(literals, repeat=2):
        one, other = literals[left], literals[right]
        assert result(f"{one} AND {other}") is value[min(rank[left], rank[right])]
        assert result(f"{one} OR {other}") is value[max(rank[left], rank[right])]
        assert result(f"NOT {one}") is value[2 - rank[left]]
        for third, text in literals.items():
            assert result(f"{one} AND {other} AND {text}") is value[min(rank[left], rank[right], rank[third])]
            assert result(f"{one} OR {other} OR {text}") is value[max(rank[left], rank[right], rank[third])]


def test_in_with_something_unknown_is_true_or_unknown() -> None:
    assert result("colour IN ('red', 1)") is True
    assert result("colour IN ('blue', 1)") is None
    assert result("size IN ('blue', 1)") is False
    assert result("colour NOT IN ('blue', 1)") is None


def test_whole_numbers_are_exact() -> None:
    assert result("n = 9007199254740993", {"n": "9007199254740992"}) is False
    assert result("n > 1732082400000000000", {"n": "1732082400000000001"}) is True


@pytest.mark.parametrize("text", ["1_0", "٣", "0x1", "1e999", " 1", "1" * 41, "nan", "inf", "", "1e", "."])
def test_what_is_no_decimal_number_is_unknown_beside_one(text: str) -> None:
    assert result("n = 1 OR n <> 1", {"n": text}) is None


def test_like_escapes_its_wildcards_and_is_about_the_whole_value() -> None:
    assert result("n LIKE '100!%' ESCAPE '!'", {"n": "100%"}) is True
    assert result("n LIKE '100!%' ESCAPE '!'", {"n": "1000"}) is False
    assert result("n LIKE 'a!!!_' ESCAPE '!'", {"n": "a!_"}) is True
    assert result("n LIKE 'b'", {"n": "abc"}) is False
    assert result("n LIKE '%a_b%c'", {"n": "aab-axb\nc"}) is True
    assert result("n LIKE ''", {"n": ""}) is True
    assert result("n LIKE '%%__%%'", {"n": "ab"}) is True
    assert result("n LIKE 'aa%aa'", {"n": "aaa"}) is False


def test_a_quote_in_a_string_or_a_name_is_written_twice() -> None:
    assert result("n = 'it''s'", {"n": "it's"}) is True
    assert result('"say ""a""" = 1', {'say "a"': "1"}) is True


def test_each_name_is_asked_once_in_the_order_of_its_first_use() -> None:
    assert compile_selector("b = 1 AND a = 2 OR b > a").names == ("b", "a")


def test_two_that_say_the_same_have_the_same_text() -> None:
    assert compile_selector("a='x'  and(b>1)").text == compile_selector("a = 'x' AND b > 1").text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "at character 1 expected a name, a literal or (, got the end of the selector"),
        ("a =", "at character 4 expected a name, a literal or (, got the end of the selector"),
        ("a = = b", "at character 5 expected a name, a literal or (, got '='"),
        ("a = 1 b = 2", "at character 7 expected AND, OR or the end, got 'b'"),
        ("a = b = c", "at character 7 expected AND, OR or the end, got '='"),
        ("(a = 1", "at character 7 expected ), got the end of the selector"),
        ("a = 'x", "at character 5 expected a closing ', got the end of the selector"),
        ('"a = 1', 'at character 1 expected a closing ", got the end of the selector'),
        ('"" = 1', 'at character 1 expected a name in the double quotes, got ""'),
        ("a # 1", "at character 3 expected a name, a literal or an operator, got '#'"),
        ("1", "at character 1 expected a condition, got a value: compare it with something"),
        ("a = 1 AND 'x'", "at character 11 expected a condition, got a value: compare it with something"),
        ("a 'x'", "at character 3 expected an operator, got \"'x'\""),
        ("(a = 1) = TRUE", "at character 1 expected a value beside =, got a condition"),
        ("a > 'soon'", "at character 5 expected a number beside >, got 'soon'"),
        ("a + TRUE = 1", "at character 5 expected a number beside +, got TRUE"),
        ("a BETWEEN 1 AND 'x'", "at character 17 expected a number beside BETWEEN, got 'x'"),
        ("a BETWEEN 1", "at character 12 expected AND and the upper bound, got the end of the selector"),
        ("a IN 'x'", "at character 6 expected ( and a list of literals, got \"'x'\""),
        ("a IN ()", "at character 7 expected a string, a number, TRUE or FALSE, got ')'"),
        ("a IN (b)", "at character 7 expected a string, a number, TRUE or FALSE, got 'b'"),
        ("a IN (-'x')", "at character 8 expected a number, got \"'x'\""),
        ("a IN (1 2)", "at character 9 expected , or ), got '2'"),
        ("a LIKE b", "at character 8 expected a pattern in single quotes, got 'b'"),
        ("'a' LIKE 'b'", "at character 1 expected the name of a header before LIKE, got something else"),
        ("a LIKE 'b' ESCAPE 'xx'", "at character 19 expected one character in single quotes, got 'xx'"),
        ("a LIKE 'b!' ESCAPE '!'", "at character 8 expected %, _ or ! after each !, got 'b!'"),
        ("a IS 1", "at character 6 expected NULL or NOT NULL, got '1'"),
        ("1 IS NULL", "at character 1 expected the name of a header before IS, got something else"),
        ("a NOT 1", "at character 7 expected BETWEEN, IN or LIKE, got '1'"),
    ],
)
def test_a_refusal_says_the_place_what_was_expected_and_what_came(text: str, message: str) -> None:
    assert refused(text) == f"header selector: {message}"


def test_a_number_that_is_too_large_is_refused() -> None:
    assert "at most 40 characters that fits double precision, got 1e999" in refused("a = 1e999")


@pytest.mark.parametrize(
    "text",
    ["a = 1" + "0" * 4_000, "a LIKE '" + "x" * 4_000 + "!' ESCAPE '!'", "a LIKE 'x' ESCAPE '" + "!" * 4_000 + "'"],
)
def test_a_refusal_is_one_line_however_long_the_literal_is(text: str) -> None:
    assert len(refused(text)) < 250


@pytest.mark.parametrize("text", ["((a)) = 1", "(a + 1) * 2 > 3", "((a = 1) AND (TRUE))", "(NOT (b))", "-(a) < 2"])
def test_parentheses_are_for_values_and_for_conditions(text: str) -> None:
    compile_selector(text)


def test_what_is_over_a_limit_is_refused() -> None:
    assert "at most 4096 characters" in refused("a = '" + "x" * limits.SELECTOR_CHARS_MAX + "'")
    terms = limits.SELECTOR_TERMS_MAX
    compile_selector("a IN (" + ",".join(["1"] * (terms - 1)) + ")")
    assert "at most 200 names and literals" in refused("a IN (" + ",".join(["1"] * terms) + ")")
    for opening, closing in (("(", ")"), ("NOT ", ""), ("- ", "")):
        inner = "a = 1" if opening == "(" else "a"
        rest = " = 1" if opening == "- " else ""
        depth = limits.SELECTOR_DEPTH_MAX
        compile_selector(opening * depth + inner + closing * depth + rest)
        message = refused(opening * (depth + 1) + inner + closing * (depth + 1) + rest)
        assert "at most 32 parentheses, NOTs and signs in one another" in message
    like = "a LIKE '%_x%'"
    compile_selector(" OR ".join([like] * limits.SELECTOR_SEARCHES_MAX))
    assert "at most 8 parts with _" in refused(" OR ".join([like] * (limits.SELECTOR_SEARCHES_MAX + 1)))


def test_a_pattern_made_to_be_slow_is_not() -> None:
    text = "n LIKE '" + "%a" * 30 + "%" + "_a" * 30 + "b%'"
    assert result(text, {"n": "a" * 60_000}) is False  # a backtracking matcher would not end
