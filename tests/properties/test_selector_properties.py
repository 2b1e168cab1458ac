"""Compare selectors with a simple implementation of docs/protocol.md, "Selectors", for any tree and any headers.

The reference walks the tree for each message, with fractions for whole numbers and a regular expression for LIKE. It
shares only the tree with the code under test.
"""

from __future__ import annotations

import math
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from radiator.errors import ProtocolError
from radiator.routing import selector as tree
from radiator.routing.like import like
from radiator.routing.selector import Selector, compile_selector, key_of, parse, show

NAMES = ["a", "b", "tag-x", "in", "x y", 'q"', "é", "$v.1"]
texts = st.one_of(
    st.sampled_from(["true", "false", "TRUE", "1", "2", "-1", "1.5", "1e3", "", "x", "it's", "1e999"]),
    st.text("ab%_!'\"1 ", max_size=6),
)
names = st.sampled_from(NAMES).map(tree.Name)
numbers = st.one_of(st.integers(0, 12), st.floats(0, 1e6, allow_nan=False), st.just(2**60))
numeric = numbers.map(tree.Literal)
literals = st.one_of(texts, numbers, st.booleans()).map(tree.Literal)
signed = st.one_of(literals, st.integers(-5, -1).map(tree.Literal))


def sums(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    def chain(signs: str) -> st.SearchStrategy[Any]:
        rest = st.lists(st.tuples(st.sampled_from(signs), inner), min_size=1, max_size=3).map(tuple)
        return st.builds(tree.Sum, inner, rest)

    return st.one_of(chain("+-"), chain("*/"), st.builds(tree.Sign, st.sampled_from("+-"), inner))


calculated = st.recursive(st.one_of(names, numeric), sums, max_leaves=4)
operands = st.one_of(names, literals, calculated)
patterns = st.text("ab%_", max_size=6)
predicates = st.one_of(
    st.one_of(names, st.booleans().map(tree.Literal)).map(tree.Truth),
    st.builds(tree.Compare, st.sampled_from(["=", "<>"]), operands, operands),
    st.builds(tree.Compare, st.sampled_from(["<", "<=", ">", ">="]), calculated, calculated),
    st.builds(tree.Between, calculated, calculated, calculated, st.booleans()),
    st.builds(tree.In, operands, st.lists(signed, min_size=1, max_size=4).map(tuple), st.booleans()),
    st.builds(tree.Like, names, patterns, st.just(""), st.booleans()),
    st.builds(tree.Like, names, st.sampled_from(["a!%b", "!!%", "!_%!%", "%!_"]), st.just("!"), st.booleans()),
    st.builds(tree.IsNull, names, st.booleans()),
)


def logic(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    several = st.lists(inner, min_size=2, max_size=3).map(tuple)
    return st.one_of(st.builds(tree.And, several), st.builds(tree.Or, several), st.builds(tree.Not, inner))


conditions = st.recursive(predicates, logic, max_leaves=8)
headers = st.dictionaries(st.sampled_from(NAMES), texts)

_DECIMAL = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?")


def naive_number(value: Any) -> Any:
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, str):
        if not _DECIMAL.fullmatch(value) or len(value) > 40:
            return None
        if set(value) <= set("+-0123456789"):
            return int(value)
        return float(value) if math.isfinite(float(value)) else None
    return value


def naive_value(node: Any, message: dict[str, str]) -> Any:
    if isinstance(node, tree.Name):
        return message.get(node.name)
    if isinstance(node, tree.Literal):
        return node.value
    if isinstance(node, tree.Sign):
        value = naive_number(naive_value(node.operand, message))
        return value if value is None or node.sign == "+" else -value
    value = naive_number(naive_value(node.first, message))
    for sign, operand in node.rest:
        other = naive_number(naive_value(operand, message))
        if value is None or other is None or (sign == "/" and other == 0):
            return None
        if sign == "/":
            try:
                value = value / other
            except OverflowError:
                return None
        else:
            value = value + other if sign == "+" else value - other if sign == "-" else value * other
        if not math.isfinite(value):
            return None
    return value


def naive_equal(left: Any, right: Any) -> bool | None:
    if left is None or right is None:
        return None
    if type(left) is bool or type(right) is bool:
        words = {"true": True, "false": False, True: True, False: False}
        known = [
            each if type(each) is bool else words.get(each) if type(each) is str else None for each in (left, right)
        ]
        return None if None in known else known[0] == known[1]
    if type(left) is str and type(right) is str:
        return left == right
    left, right = naive_number(left), naive_number(right)
    return None if left is None or right is None else left == right


def naive_like(pattern: str, escape: str, text: str) -> bool:
    regex, quoted = "", False
    for each in pattern:
        if quoted or each not in ("%", "_", escape):
            regex, quoted = regex + re.escape(each), False
        elif each == escape:
            quoted = True
        else:
            regex += ".*" if each == "%" else "."
    return re.fullmatch(regex, text, re.DOTALL) is not None


def naive(node: Any, message: dict[str, str]) -> bool | None:
    """SQL's logic by min and max over false < unknown < true."""
    rank = {False: 0, None: 1, True: 2}
    back = [False, None, True]
    match node:
        case tree.Truth(operand):
            return naive_equal(naive_value(operand, message), True)
        case tree.And(several):
            return back[min(rank[naive(each, message)] for each in several)]
        case tree.Or(several):
            return back[max(rank[naive(each, message)] for each in several)]
        case tree.Not(operand):
            return back[2 - rank[naive(operand, message)]]
        case tree.Compare(sign, left, right):
            one, other = naive_value(left, message), naive_value(right, message)
            if sign in ("=", "<>"):
                result = naive_equal(one, other)
                return result if result is None else result == (sign == "=")
            one, other = naive_number(one), naive_number(other)
            if one is None or other is None:
                return None
            return {"<": one < other, "<=": one <= other, ">": one > other, ">=": one >= other}[sign]
        case tree.Between(operand, low, high, negated):
            both = tree.And((tree.Compare(">=", operand, low), tree.Compare("<=", operand, high)))
            return naive(tree.Not(both) if negated else both, message)
        case tree.In(operand, several, negated):
            value = naive_value(operand, message)
            result = back[max(rank[naive_equal(value, each.value)] for each in several)]
        case tree.Like(operand, pattern, escape, negated):
            value = naive_value(operand, message)
            result = None if value is None else naive_like(pattern, escape, value)
        case tree.IsNull(operand, negated):
            result = naive_value(operand, message) is None
    return back[2 - rank[result]] if negated else result


@pytest.mark.thorough
@settings(max_examples=600)
@given(conditions, st.lists(headers, min_size=1, max_size=4))
def test_a_selector_means_what_the_document_says(root: Any, messages: list[dict[str, str]]) -> None:
    selector = Selector(root)
    for message in messages:
        row = [message.get(name) for name in selector.names]
        assert selector.test(row) is naive(root, message), (selector, message)


@pytest.mark.thorough
@settings(max_examples=600)
@given(conditions)
def test_what_is_written_is_read_as_the_same_tree(root: Any) -> None:
    assert parse(show(root)) == root


@given(st.one_of(st.text(max_size=40), st.text("ab1'\"()=<>+-*/%_., \n", max_size=40)))
def test_any_text_is_a_selector_or_refused_with_the_reason(text: str) -> None:
    try:
        selector = compile_selector(text)
    except ProtocolError as error:
        assert error.code == "bad-selector"
        assert "expected" in error.message
    else:
        assert compile_selector(selector.text).text == selector.text


words = st.sampled_from(
    [
        "AND",
        "or",
        "NOT",
        "BETWEEN",
        "IN",
        "LIKE",
        "ESCAPE",
        "IS",
        "NULL",
        "TRUE",
        "a",
        "b-c",
        "'x'",
        "'%'",
        "1",
        "2.5",
        "(",
        ")",
        "=",
        "<",
        ">",
        "+",
        "-",
        "*",
        "/",
        ",",
    ]
)


@settings(max_examples=600)
@given(st.lists(words, max_size=14).map(" ".join), headers)
def test_tokens_in_any_order_never_raise_anything_else(text: str, message: dict[str, str]) -> None:
    try:
        selector = compile_selector(text)
    except ProtocolError as error:
        assert error.code == "bad-selector"
    else:
        assert selector.test([message.get(name) for name in selector.names]) in (True, False, None)


@settings(max_examples=600)
@given(st.text("ab%_", max_size=10), st.text("ab\n", max_size=16))
def test_like_is_what_a_regular_expression_finds(pattern: str, text: str) -> None:
    assert like(pattern)(text) is naive_like(pattern, "", text)


@given(conditions, headers, st.sampled_from(NAMES), texts)
def test_where_the_header_is_not_what_the_key_says_nothing_is_selected(
    condition: Any, message: dict[str, str], name: str, text: str
) -> None:
    for node in (condition, tree.And((condition, tree.Compare("=", tree.Name(name), tree.Literal(text))))):
        key = key_of(node)
        if key is not None and naive(node, message) is True:
            assert message.get(key[0]) == key[1]
