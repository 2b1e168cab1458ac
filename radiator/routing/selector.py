"""Compile selectors to functions.

``compile_selector(text)`` returns a ``Selector``: the header names it uses, and a test over their values, in that
order, each a text or None if a message does not have it. A test returns True, False or None for unknown, as in SQL; a
message is selected if it is True.

This module knows three-valued logic, texts and numbers. It does not know messages, the stored form of headers, or the
broker. Invariant: a test never raises, and its work is bounded by the limits of the grammar and the length of the
values.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Final

from radiator.routing import selector_tree as tree
from radiator.routing.like import like
from radiator.routing.selector_key import key_of
from radiator.routing.selector_parser import number, parse
from radiator.routing.selector_tree import Literal, Name, Node

Row = Sequence[str | None]
Value = str | int | float | bool | None
ValueOf = Callable[[Row], Value]
Test = Callable[[Row], bool | None]
Names = dict[str, int]

ORDERS: Final[dict[str, Callable[[int | float, int | float], bool]]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
ARITHMETIC: Final[dict[str, Callable[[int | float, int | float], int | float]]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
}
BOOLEANS: Final = {"true": True, "false": False}


class Selector:
    """A compiled selector.

    Attributes:
        text: Its canonical form: equal selectors in the same order have the same.
        names: The names whose values ``test`` takes, in that order.
        test: Returns True, False or None (unknown) for these values.
        key: A name and the text that it must have, or None (``selector_key``).
        is_key: True if the selector consists of its key only.
        size: Characters of ``text``.
    """

    __slots__ = ("is_key", "key", "names", "size", "test", "text")

    def __init__(self, root: Node) -> None:
        names: Names = {}
        self.test: Test = _condition(root, names)
        self.text = tree.show(root)
        self.names = tuple(names)
        self.key = key_of(root)
        self.is_key = self.key is not None and isinstance(root, tree.Compare)
        self.size = len(self.text)

    def __repr__(self) -> str:
        return f"Selector({self.text!r})"


def compile_selector(text: str) -> Selector:
    """Compile a selector. Raises ProtocolError (bad-selector)."""
    return Selector(parse(text))


# --- comparing values -------------------------------------------------------------------------------------------------


def as_number(value: Value) -> int | float | None:
    """Return the number for a number or a text that is one, or None."""
    if isinstance(value, str):
        return number(value)
    return None if isinstance(value, bool) else value


def equal(left: Value, right: Value) -> bool | None:
    """Return ``left = right``, or None for unknown."""
    if left is None or right is None:
        return None
    if isinstance(left, str) and isinstance(right, str):
        return left == right
    if isinstance(left, bool) or isinstance(right, bool):
        first, second = (BOOLEANS.get(each) if isinstance(each, str) else each for each in (left, right))
        return first is second if isinstance(first, bool) and isinstance(second, bool) else None
    one, other = as_number(left), as_number(right)
    return None if one is None or other is None else one == other


def calculate(sign: str, left: int | float | None, right: int | float | None) -> int | float | None:
    """Return the result; None if an operand is unknown, or for a division by zero, or beyond double precision."""
    if left is None or right is None:
        return None
    try:
        result = ARITHMETIC[sign](left, right)
        return result if math.isfinite(result) else None
    except (ArithmeticError, ValueError):
        return None


def negate(result: bool | None) -> bool | None:
    """Return NOT ``result``."""
    return None if result is None else not result


# --- compiling --------------------------------------------------------------------------------------------------------


def _condition(node: Node, names: Names) -> Test:
    match node:
        case tree.And(operands):
            return _all([_condition(each, names) for each in operands])
        case tree.Or(operands):
            return _any([_condition(each, names) for each in operands])
        case tree.Not(operand):
            test = _condition(operand, names)
            return lambda row: negate(test(row))
        case tree.Truth(operand):
            value = _value(operand, names)
            return lambda row: equal(value(row), True)
        case tree.Compare(comparison, left, right):
            return _compare(comparison, left, right, names)
        case tree.Between(operand, low, high, negated):
            at_least = _compare(">=", operand, low, names)
            at_most = _compare("<=", operand, high, names)
            return _negated(_all([at_least, at_most]), negated)
        case tree.In(operand, literals, negated):
            return _negated(_in(operand, literals, names), negated)
        case tree.Like(operand, pattern, escape, negated):
            return _negated(_like(_index(operand, names), like(pattern, escape)), negated)
        case tree.IsNull(operand, negated):
            index = _index(operand, names)
            return lambda row: (row[index] is None) is not negated
    raise AssertionError(node)


def _index(node: Node, names: Names) -> int:
    assert isinstance(node, Name)
    return names.setdefault(node.name, len(names))


def _negated(test: Test, negated: bool) -> Test:
    return (lambda row: negate(test(row))) if negated else test


def _all(tests: list[Test]) -> Test:
    def test(row: Row) -> bool | None:
        result: bool | None = True
        for each in tests:
            one = each(row)
            if one is False:
                return False
            if one is None:
                result = None
        return result

    return test


def _any(tests: list[Test]) -> Test:
    def test(row: Row) -> bool | None:
        result: bool | None = False
        for each in tests:
            one = each(row)
            if one is True:
                return True
            if one is None:
                result = None
        return result

    return test


def _compare(comparison: str, left: Node, right: Node, names: Names) -> Test:
    if comparison == "=":
        return _equal(left, right, names)
    if comparison == "<>":
        return _negated(_equal(left, right, names), True)
    first, second, order = _number(left, names), _number(right, names), ORDERS[comparison]

    def test(row: Row) -> bool | None:
        one, other = first(row), second(row)
        return None if one is None or other is None else order(one, other)

    return test


def _equal(left: Node, right: Node, names: Names) -> Test:
    if isinstance(left, Name) and isinstance(right, Literal) and isinstance(right.value, str):
        index, text = _index(left, names), right.value  # by far the most frequent

        def same(row: Row) -> bool | None:
            value = row[index]
            return None if value is None else value == text

        return same
    first, second = _value(left, names), _value(right, names)
    return lambda row: equal(first(row), second(row))


def _in(operand: Node, literals: tuple[Literal, ...], names: Names) -> Test:
    value = _value(operand, names)
    texts = frozenset(each.value for each in literals if isinstance(each.value, str))
    if isinstance(operand, Name) and len(texts) == len({each.value for each in literals}):
        index = _index(operand, names)

        def among(row: Row) -> bool | None:
            text = row[index]
            return None if text is None else text in texts

        return among
    constants = [each.value for each in literals]

    def test(row: Row) -> bool | None:
        one = value(row)
        results = [equal(one, each) for each in constants]
        return True if True in results else None if None in results else False

    return test


def _like(index: int, matches: Callable[[str], bool]) -> Test:
    def test(row: Row) -> bool | None:
        text = row[index]
        return None if text is None else matches(text)

    return test


def _value(node: Node, names: Names) -> ValueOf:
    match node:
        case Name():
            return operator.itemgetter(_index(node, names))
        case Literal(value):
            return lambda row: value
    return _number(node, names)


def _number(node: Node, names: Names) -> Callable[[Row], int | float | None]:
    match node:
        case tree.Sum(first, rest):
            begin = _number(first, names)
            steps = [(sign, _number(operand, names)) for sign, operand in rest]

            def calculated(row: Row) -> int | float | None:
                result = begin(row)
                for sign, operand in steps:
                    result = calculate(sign, result, operand(row))
                return result

            return calculated
        case tree.Sign(sign, operand):
            inner = _number(operand, names)
            return lambda row: calculate(sign, 0, inner(row))
        case Literal(value):
            constant = as_number(value)
            return lambda row: constant
    index = _index(node, names)

    def read(row: Row) -> int | float | None:
        text = row[index]
        return None if text is None else number(text)

    return read
