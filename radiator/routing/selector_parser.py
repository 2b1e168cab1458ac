"""Parse selectors (``docs/protocol.md``, "Selectors") to trees.

This module knows tokens, precedence and the types of operands. It does not know what a tree evaluates to, or which
headers exist. Invariant: every text gives a tree or a ProtocolError ``bad-selector`` with the place, what was expected
and what came, after work proportional to its length, which is limited.
"""

from __future__ import annotations

import math
import re
from typing import Final, NamedTuple, NoReturn

from radiator import limits
from radiator.errors import ProtocolError
from radiator.routing import selector_tree as tree
from radiator.routing.like import pattern_parts
from radiator.routing.selector_tree import KEYWORDS, NAME, Literal, Name, Node, is_value

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
        return tree.Or(tuple(operands)) if level == "or" else tree.And(tuple(operands))

    def _not(self) -> Node:
        if not self._take_if("NOT"):
            return self._predicate()
        self._nest()
        place = self._token.place
        operand = self._as_condition(self._not(), place)
        self._depth -= 1
        return tree.Not(operand)

    def _predicate(self) -> Node:
        place = self._token.place
        left = self._sum()
        comparison = self._take_if(*COMPARISONS)
        if comparison is not None:
            self._as_value(left, place, comparison.kind)
            place = self._token.place
            right = self._sum()
            self._as_value(right, place, comparison.kind)
            return tree.Compare(comparison.kind, left, right)  # type: ignore[arg-type]
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
        return tree.IsNull(left, negated)

    def _between(self, left: Node, negated: bool) -> Node:
        bounds: list[Node] = []
        for _ in range(2):
            if bounds:
                self._expect("AND", "AND and the upper bound")
            place = self._token.place
            bounds.append(self._sum())
            self._as_value(bounds[-1], place, "BETWEEN")
        return tree.Between(left, bounds[0], bounds[1], negated)

    def _in(self, left: Node, negated: bool) -> Node:
        self._expect("(", "( and a list of literals")
        literals = [self._literal()]
        while self._take_if(","):
            literals.append(self._literal())
        self._expect(")", ", or )")
        return tree.In(left, tuple(literals), negated)

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
        return tree.Like(left, token.text, escape, negated)

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
        return tree.Sum(first, tuple(rest)) if rest else first

    def _factor(self) -> Node:
        token = self._token
        if token.kind in ("+", "-"):
            self._take()
            self._nest()
            place = self._token.place
            operand = self._factor()
            self._as_value(operand, place, token.kind)
            self._depth -= 1
            return tree.Sign(token.kind, operand)  # type: ignore[arg-type]
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
            return tree.Truth(node)
        if is_value(node):
            self._fail(place, "a condition", "a value: compare it with something")
        return node

    def _as_value(self, node: Node, place: int, operator: str) -> None:
        if not is_value(node):
            self._fail(place, f"a value beside {operator}", "a condition")
        if isinstance(node, Literal) and operator not in ("=", "<>", "IN", "LIKE"):
            value = node.value
            if isinstance(value, bool) or (isinstance(value, str) and number(value) is None):
                self._fail(place, f"a number beside {operator}", tree.show(node)[:100])

    def _nest(self) -> None:
        self._depth += 1
        if self._depth > limits.SELECTOR_DEPTH_MAX:
            self._fail_here(f"at most {limits.SELECTOR_DEPTH_MAX} parentheses, NOTs and signs in one another")

    def _count(self) -> None:
        self._terms += 1
        if self._terms > limits.SELECTOR_TERMS_MAX:
            self._fail_here(f"at most {limits.SELECTOR_TERMS_MAX} names and literals")
