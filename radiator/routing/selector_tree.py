"""A selector as a tree, and its text.

This module knows what can be expressed, and how. It does not know the meaning (``selector``) or the parser
(``selector_parser``). Invariants: nodes are frozen and compare by value; ``show`` writes a text that parses to the same
tree. A node is either a *value* (``Name``, ``Literal``, ``Sum``, ``Sign``) or a *condition* (all others).
"""

from __future__ import annotations

import re
from typing import Final
from typing import Literal as OneOf

import msgspec

KEYWORDS: Final = frozenset(
    ("AND", "OR", "NOT", "BETWEEN", "IN", "LIKE", "ESCAPE", "IS", "NULL", "TRUE", "FALSE"),
)
NAME: Final = r"(?:[^\W\d]|\$)(?:[\w.$]|-(?=[\w.$]))*"
_PLAIN_NAME: Final = re.compile(NAME)

Comparison = OneOf["=", "<>", "<", "<=", ">", ">="]
Constant = str | int | float | bool


class Node(msgspec.Struct, frozen=True):
    """The base of all nodes."""


class Name(Node, frozen=True):
    """The value of a header."""

    name: str


class Literal(Node, frozen=True):
    """A constant."""

    value: Constant

    def __eq__(self, other: object) -> bool:
        """``1``, ``1.0`` and ``TRUE`` are three literals, whatever Python holds of them."""
        if not isinstance(other, Literal):
            return NotImplemented
        return type(self.value) is type(other.value) and repr(self.value) == repr(other.value)

    def __hash__(self) -> int:
        return hash(self.value)


class Sum(Node, frozen=True):
    """``first + a - b`` or ``first * a / b``, from left to right."""

    first: Node
    rest: tuple[tuple[str, Node], ...]


class Sign(Node, frozen=True):
    """``-operand`` or ``+operand``."""

    sign: OneOf["+", "-"]
    operand: Node


class Truth(Node, frozen=True):
    """A name or a boolean literal as a condition."""

    operand: Node


class And(Node, frozen=True):
    """All operands."""

    operands: tuple[Node, ...]


class Or(Node, frozen=True):
    """Any operand."""

    operands: tuple[Node, ...]


class Not(Node, frozen=True):
    """The negated operand."""

    operand: Node


class Compare(Node, frozen=True):
    """``left comparison right``."""

    comparison: Comparison
    left: Node
    right: Node


class Between(Node, frozen=True):
    """``operand [NOT] BETWEEN low AND high``."""

    operand: Node
    low: Node
    high: Node
    negated: bool = False


class In(Node, frozen=True):
    """``operand [NOT] IN (literals)``."""

    operand: Node
    literals: tuple[Literal, ...]
    negated: bool = False


class Like(Node, frozen=True):
    """``operand [NOT] LIKE pattern [ESCAPE escape]``."""

    operand: Node
    pattern: str
    escape: str = ""
    negated: bool = False


class IsNull(Node, frozen=True):
    """``operand IS [NOT] NULL``."""

    operand: Name
    negated: bool = False


VALUES: Final = (Name, Literal, Sum, Sign)


def is_value(node: Node) -> bool:
    """Return whether a node is a value, not a condition."""
    return isinstance(node, VALUES)


def show(node: Node) -> str:
    """Return a selector as text, with nested operations in parentheses."""
    match node:
        case Name(name):
            if _PLAIN_NAME.fullmatch(name) and name.upper() not in KEYWORDS:
                return name
            return '"' + name.replace('"', '""') + '"'
        case Literal(value):
            return _literal(value)
        case Sum(first, rest):
            return _part(first) + "".join(f" {operator} {_part(operand)}" for operator, operand in rest)
        case Sign(sign, operand):
            return sign + _part(operand)
        case Truth(operand):
            return show(operand)
        case And(operands):
            return " AND ".join(map(_part, operands))
        case Or(operands):
            return " OR ".join(map(_part, operands))
        case Not(operand):
            return f"NOT {_part(operand)}"
        case Compare(comparison, left, right):
            return f"{_part(left)} {comparison} {_part(right)}"
        case Between(operand, low, high, negated):
            return f"{_part(operand)}{_not(negated)} BETWEEN {_part(low)} AND {_part(high)}"
        case In(operand, literals, negated):
            return f"{_part(operand)}{_not(negated)} IN ({', '.join(map(show, literals))})"
        case Like(operand, pattern, escape, negated):
            text = f"{_part(operand)}{_not(negated)} LIKE {_literal(pattern)}"
            return f"{text} ESCAPE {_literal(escape)}" if escape else text
        case IsNull(operand, negated):
            return f"{show(operand)} IS{_not(negated)} NULL"
    raise AssertionError(node)


def _part(node: Node) -> str:
    return show(node) if isinstance(node, Name | Literal | Truth) else f"({show(node)})"


def _not(negated: bool) -> str:
    return " NOT" if negated else ""


def _literal(value: Constant) -> str:
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    return repr(value)
