"""The words that docs/architecture.md has replaced do not come back in names, nor in the documents for users."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
ARCHITECTURE = (ROOT / "docs" / "architecture.md").read_text("utf-8")
TABLE = ARCHITECTURE.split("| not | but |\n|---|---|\n")[1].split("\n\n")[0]
DISCARDED = [word for row in TABLE.splitlines() for word in row.split("|")[1].strip().split(", ")]


def names(path: Path) -> Iterator[tuple[str, int]]:
    """The names that a module gives: its own, of classes, functions, parameters and attributes."""
    yield path.stem, 1
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        match node:
            case ast.FunctionDef() | ast.ClassDef():
                yield node.name, node.lineno
            case ast.arg():
                yield node.arg, node.lineno
            case ast.Name(ctx=ast.Store()):
                yield node.id, node.lineno
            case ast.Attribute(ctx=ast.Store()):
                yield node.attr, node.lineno


def parts(name: str) -> list[str]:
    """``_openLane_of`` -> open, lane, of."""
    return [part.lower() for part in re.findall(r"[A-Z]?[a-z]+|[A-Z]+", name)]


def names_of_tests(path: Path) -> Iterator[tuple[str, int]]:
    """The names that a module of tests gives to files, classes and functions."""
    yield path.stem, 1
    for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
        if found := re.match(r" *(?:class|def) (\w+)", line):
            yield found[1], number


@cache
def words() -> dict[str, list[str]]:
    """The words of all names, and where each is."""
    found: dict[str, list[str]] = {}
    for path in sorted((ROOT / "radiator").rglob("*.py")):
        for name, line in names(path):
            for word in parts(name):
                found.setdefault(word, []).append(f"{path.relative_to(ROOT)}:{line}: {name}")
    for path in sorted((ROOT / "tests").rglob("*.py")):
        for name, line in names_of_tests(path):
            for word in parts(name):
                found.setdefault(word, []).append(f"{path.relative_to(ROOT)}:{line}: {name}")
    return found


def test_the_table_has_words() -> None:
    assert {"care", "lane", "claim", "hub"} <= set(DISCARDED)


@pytest.mark.parametrize("word", [word for word in DISCARDED if " " not in word])
def test_no_name_has_a_discarded_word(word: str) -> None:
    assert words().get(word, []) == []
