"""Selectors (``docs/protocol.md``, "Selectors"): text to a tree, a tree to its canonical text, and to a test.

    compile_selector(text) -> parse -> a tree of nodes -> Selector: names, test, canonical text, key

A ``Selector`` has the header names that it uses, and a test over their values, in that order, each a text or None if a
message does not have it. A test returns True, False or None for unknown, as in SQL. A message is selected if the test
returns True.

A node of the tree is either a *value* (``Name``, ``Literal``, ``Sum``, ``Sign``) or a *condition* (all others). The
*key* is a header and the text that every selected message has there.

This module knows three-valued logic, texts and numbers. It does not know messages, the stored form of headers, or the
broker. Invariants: every text gives a tree or a ProtocolError ``bad-selector`` with the place, what was expected and
what came, after work proportional to its length, which is limited. Nodes are frozen and compare by value; ``show``
writes a text that parses to the same  A test never raises, and its work is bounded by the limits of the grammar
and the length of the values.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, NoReturn
from typing import Literal as OneOf

import msgspec

from radiator import limits
from radiator.errors import ProtocolError
from radiator.routing.like import like, pattern_parts

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
KEYWORDS: Final = frozenset(
    ("AND", "OR", "NOT", "BETWEEN", "IN", "LIKE", "ESCAPE", "IS", "NULL", "TRUE", "FALSE"),
)
NAME: Final = r"(?:[^\W\d]|\$)(?:[\w.$]|-(?=[\w.$]))*"
_PLAIN_NAME: Final = re.compile(NAME)

Comparison = OneOf["=", "<>", "<", "<=", ">", ">="]
Constant = str | int | float | bool
NUMBER: Final = re.compile(r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?", re.ASCII)
NUMBER_CHARS_MAX: Final = 40
PREFIXES: Final = ("convert_string_expressions:", "hyphenated_props:")
COMPARISONS: Final = ("=", "<>", "<", "<=", ">", ">=")
_TOKEN: Final = re.compile(
    rf"(?P<name>{NAME})"
    r"|(?P<number>(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)"
    r"""|(?P<string>'(?:[^']|'')*')|(?P<quoted>"(?:[^"]|"")*")"""
    r"|(?P<sign><>|<=|>=|[=<>+\-*/(),])"
)
_BLANKS: Final = re.compile(r"\s*")
_END: Final = "the end of the selector"


class Selector:
    """A compiled selector.

    Attributes:
        text: Its canonical form: equal selectors in the same order have the same.
        names: The names whose values ``test`` takes, in that order.
        test: Returns True, False or None (unknown) for these values.
        key: A name and the text that it must have, or None (``key_of``).
        is_key: True if the selector consists of its key only.
    """

    __slots__ = ("is_key", "key", "names", "test", "text")

    def __init__(self, root: Node) -> None:
        names: Names = {}
        self.test: Test = _condition(root, names)
        self.text = show(root)
        self.names = tuple(names)
        self.key = key_of(root)
        self.is_key = self.key is not None and isinstance(root, Compare)

    def __repr__(self) -> str:
        return f"Selector({self.text!r})"


def compile_selector(text: str) -> Selector:
    """Compile a selector. Raises ProtocolError (bad-selector)."""
    return Selector(parse(text))


# --- the tree ---------------------------------------------------------------------------------------------------------


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


def key_of(root: Node) -> tuple[str, str] | None:
    """Return a header and its value, from ``name = 'text'`` as the whole condition or as an operand of its AND."""
    for node in root.operands if isinstance(root, And) else (root,):
        match node:
            case Compare("=", Name(name), Literal(str(text))) | Compare("=", Literal(str(text)), Name(name)):
                return name, text
            case And():
                key = key_of(node)
                if key is not None:
                    return key
    return None


# --- parsing ----------------------------------------------------------------------------------------------------------


class Token(NamedTuple):
    """``kind``: a keyword, a sign, ``name``, ``number``, ``string`` or ``end``; ``place`` counts characters from 0."""

    kind: str
    text: str
    place: int


def number(text: str) -> int | float | None:
    """Return the number that a text is, whole ones exactly; None if it is none."""
    if len(text) > NUMBER_CHARS_MAX or NUMBER.fullmatch(text) is None:
        return None
    try:
        return int(text)
    except ValueError:
        value = float(text)
        return value if math.isfinite(value) else None


def parse(text: str) -> Node:
    """Return the tree of a selector. Raises ProtocolError (bad-selector)."""
    if len(text) > limits.SELECTOR_CHARS_MAX:
        raise ProtocolError(
            "bad-selector", f"a selector has at most {limits.SELECTOR_CHARS_MAX} characters, got {len(text)}"
        )
    return _Parser(text).selector()


class _Parser:
    """A recursive descent parser; each method parses the rule of the grammar with its name."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = self._behind_prefixes()
        self._depth = 0
        self._terms = 0
        self._searches = 0
        self._token = self._next()

    def _behind_prefixes(self) -> int:
        at = 0
        while (prefix := next((each for each in PREFIXES if self._text.startswith(each, at)), None)) is not None:
            at += len(prefix)
        return at

    # --- tokens -----------------------------------------------------------------------------------------------------

    def _next(self) -> Token:
        place = _BLANKS.match(self._text, self._at).end()  # type: ignore[union-attr]
        if place == len(self._text):
            self._at = place
            return Token("end", "", place)
        match = _TOKEN.match(self._text, place)
        if match is None:
            came = self._text[place]
            if came in "'\"":
                self._fail(place, f"a closing {came}", _END)
            self._fail(place, "a name, a literal or an operator", repr(came))
        self._at = match.end()
        kind, text = match.lastgroup, match.group()
        if kind == "name":
            return Token(text.upper() if text.upper() in KEYWORDS else "name", text, place)
        if kind == "quoted":
            if text == '""':
                self._fail(place, "a name in the double quotes", '""')
            return Token("name", text[1:-1].replace('""', '"'), place)
        if kind == "string":
            return Token("string", text[1:-1].replace("''", "'"), place)
        return Token(text if kind == "sign" else "number", text, place)

    def _take(self) -> Token:
        token, self._token = self._token, self._next()
        return token

    def _take_if(self, *kinds: str) -> Token | None:
        """Take the next token, if it is of one of these kinds."""
        return self._take() if self._token.kind in kinds else None

    def _expect(self, kind: str, expected: str) -> Token:
        return self._take_if(kind) or self._fail_here(expected)

    def _fail_here(self, expected: str) -> NoReturn:
        token = self._token
        came = _END if token.kind == "end" else repr(self._text[token.place : self._at][:100])
        self._fail(token.place, expected, came)

    def _fail(self, place: int, expected: str, came: str) -> NoReturn:
        start = max(0, place - 60)
        shown = self._text[start : place + 60].replace("\n", " ").replace("\r", " ").replace("\t", " ")
        raise ProtocolError(
            "bad-selector",
            f"header selector: at character {place + 1} expected {expected}, got {came}",
            f"{shown}\n{' ' * (place - start)}^",
        )

    # --- conditions -------------------------------------------------------------------------------------------------

    def selector(self) -> Node:
        node = self._condition("or")
        if self._token.kind != "end":
            self._fail_here("AND, OR or the end" if not is_value(node) else "an operator")
        return self._as_condition(node, 0)

    def _condition(self, level: str) -> Node:
        """Parse ``or`` or ``and``: a chain of the next lower level, or one of it."""
        place = self._token.place
        first = self._condition("and") if level == "or" else self._not()
        word = level.upper()
        if self._token.kind != word:
            return first
        operands = [self._as_condition(first, place)]
        while self._take_if(word):
            place = self._token.place
            operand = self._condition("and") if level == "or" else self._not()
            operands.append(self._as_condition(operand, place))
        return Or(tuple(operands)) if level == "or" else And(tuple(operands))

    def _not(self) -> Node:
        if not self._take_if("NOT"):
            return self._predicate()
        self._nest()
        place = self._token.place
        operand = self._as_condition(self._not(), place)
        self._depth -= 1
        return Not(operand)

    def _predicate(self) -> Node:
        place = self._token.place
        left = self._sum()
        comparison = self._take_if(*COMPARISONS)
        if comparison is not None:
            self._as_value(left, place, comparison.kind)
            place = self._token.place
            right = self._sum()
            self._as_value(right, place, comparison.kind)
            return Compare(comparison.kind, left, right)  # type: ignore[arg-type]
        if self._token.kind == "IS":
            return self._is_null(left, place)
        negated = bool(self._take_if("NOT"))
        word = self._take_if("BETWEEN", "IN", "LIKE")
        if word is None:
            if negated:
                self._fail_here("BETWEEN, IN or LIKE")
            return left
        self._as_value(left, place, word.kind)
        if word.kind == "BETWEEN":
            return self._between(left, negated)
        return self._in(left, negated) if word.kind == "IN" else self._like(left, place, negated)

    def _is_null(self, left: Node, place: int) -> Node:
        if not isinstance(left, Name):
            self._fail(place, "the name of a header before IS", "something else")
        self._take()
        negated = bool(self._take_if("NOT"))
        self._expect("NULL", "NULL" if negated else "NULL or NOT NULL")
        return IsNull(left, negated)

    def _between(self, left: Node, negated: bool) -> Node:
        bounds: list[Node] = []
        for _ in range(2):
            if bounds:
                self._expect("AND", "AND and the upper bound")
            place = self._token.place
            bounds.append(self._sum())
            self._as_value(bounds[-1], place, "BETWEEN")
        return Between(left, bounds[0], bounds[1], negated)

    def _in(self, left: Node, negated: bool) -> Node:
        self._expect("(", "( and a list of literals")
        literals = [self._literal()]
        while self._take_if(","):
            literals.append(self._literal())
        self._expect(")", ", or )")
        return In(left, tuple(literals), negated)

    def _like(self, left: Node, place: int, negated: bool) -> Node:
        if not isinstance(left, Name):
            self._fail(place, "the name of a header before LIKE", "something else")
        token = self._expect("string", "a pattern in single quotes")
        escape, escape_place = "", token.place
        if self._take_if("ESCAPE"):
            escape_place = self._token.place
            escape = self._expect("string", "one character in single quotes").text
            if len(escape) != 1:
                self._fail(escape_place, "one character in single quotes", repr(escape[:100]))
        parts = pattern_parts(token.text, escape)
        if parts is None:
            self._fail(token.place, f"%, _ or {escape} after each {escape}", repr(token.text[:100]))
        self._searches += sum(None in part for part in parts[1:-1])
        if self._searches > limits.SELECTOR_SEARCHES_MAX:
            most = limits.SELECTOR_SEARCHES_MAX
            self._fail(token.place, f"at most {most} parts with _ between two % in all patterns", "one more")
        return Like(left, token.text, escape, negated)

    # --- values -----------------------------------------------------------------------------------------------------

    def _sum(self) -> Node:
        return self._chain("+", "-")

    def _chain(self, *operators: str) -> Node:
        """Parse ``sum`` or ``product``."""
        place = self._token.place
        first = self._chain("*", "/") if "+" in operators else self._factor()
        rest: list[tuple[str, Node]] = []
        while operator := self._take_if(*operators):
            if not rest:
                self._as_value(first, place, operator.kind)
            place = self._token.place
            operand = self._chain("*", "/") if "+" in operators else self._factor()
            self._as_value(operand, place, operator.kind)
            rest.append((operator.kind, operand))
        return Sum(first, tuple(rest)) if rest else first

    def _factor(self) -> Node:
        token = self._token
        if token.kind in ("+", "-"):
            self._take()
            self._nest()
            place = self._token.place
            operand = self._factor()
            self._as_value(operand, place, token.kind)
            self._depth -= 1
            return Sign(token.kind, operand)  # type: ignore[arg-type]
        if token.kind == "(":
            self._take()
            self._nest()
            node = self._condition("or")
            self._expect(")", ")")
            self._depth -= 1
            return node
        if token.kind == "name":
            self._count()
            return Name(self._take().text)
        return self._literal("a name, a literal or (", signed=False)

    def _literal(self, expected: str = "a string, a number, TRUE or FALSE", signed: bool = True) -> Literal:
        self._count()
        sign = self._take_if("+", "-") if signed else None
        token = self._token
        if sign is None and self._take_if("string"):
            return Literal(token.text)
        if sign is None and self._take_if("TRUE", "FALSE"):
            return Literal(token.kind == "TRUE")
        if token.kind != "number":
            self._fail_here(expected if sign is None else "a number")
        value = number(token.text)
        if value is None:
            most = NUMBER_CHARS_MAX
            self._fail(
                token.place, f"a number of at most {most} characters that fits double precision", token.text[:100]
            )
        self._take()
        return Literal(-value if sign is not None and sign.kind == "-" else value)

    # --- types of operands -------------------------------------------------------------------------------------------

    def _as_condition(self, node: Node, place: int) -> Node:
        if isinstance(node, Name) or (isinstance(node, Literal) and isinstance(node.value, bool)):
            return Truth(node)
        if is_value(node):
            self._fail(place, "a condition", "a value: compare it with something")
        return node

    def _as_value(self, node: Node, place: int, operator: str) -> None:
        if not is_value(node):
            self._fail(place, f"a value beside {operator}", "a condition")
        if isinstance(node, Literal) and operator not in ("=", "<>", "IN", "LIKE"):
            value = node.value
            if isinstance(value, bool) or (isinstance(value, str) and number(value) is None):
                self._fail(place, f"a number beside {operator}", show(node)[:100])

    def _nest(self) -> None:
        self._depth += 1
        if self._depth > limits.SELECTOR_DEPTH_MAX:
            self._fail_here(f"at most {limits.SELECTOR_DEPTH_MAX} parentheses, NOTs and signs in one another")

    def _count(self) -> None:
        self._terms += 1
        if self._terms > limits.SELECTOR_TERMS_MAX:
            self._fail_here(f"at most {limits.SELECTOR_TERMS_MAX} names and literals")


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
        case And(operands):
            return _all([_condition(each, names) for each in operands])
        case Or(operands):
            return _any([_condition(each, names) for each in operands])
        case Not(operand):
            test = _condition(operand, names)
            return lambda row: negate(test(row))
        case Truth(operand):
            value = _value(operand, names)
            return lambda row: equal(value(row), True)
        case Compare(comparison, left, right):
            return _compare(comparison, left, right, names)
        case Between(operand, low, high, negated):
            at_least = _compare(">=", operand, low, names)
            at_most = _compare("<=", operand, high, names)
            return _negated(_all([at_least, at_most]), negated)
        case In(operand, literals, negated):
            return _negated(_in(operand, literals, names), negated)
        case Like(operand, pattern, escape, negated):
            return _negated(_like(_index(operand, names), like(pattern, escape)), negated)
        case IsNull(operand, negated):
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
        case Sum(first, rest):
            begin = _number(first, names)
            steps = [(sign, _number(operand, names)) for sign, operand in rest]

            def calculated(row: Row) -> int | float | None:
                result = begin(row)
                for sign, operand in steps:
                    result = calculate(sign, result, operand(row))
                return result

            return calculated
        case Sign(sign, operand):
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
