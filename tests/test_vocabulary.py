"""Discarded words do not come back: in names and documents those of docs/architecture.md, in texts literary ones."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
ARCHITECTURE = (ROOT / "docs" / "architecture.md").read_text("utf-8")
TABLE = ARCHITECTURE.split("| not | but |\n|---|---|\n")[1].split("\n\n")[0]
DISCARDED = [word for row in TABLE.splitlines() for word in row.split("|")[1].strip().split(", ")]

# A sentence with one of these has no subject with a name, or an odd word where there is a plain one.
LITERARY = (
    "nobody", "somebody", "everybody", "whoever", "told", "anew", "goes on", "wants", "lies ahead", "is asked",
    "stranded", "caretaker", "sheet", "sheets",
)  # fmt: skip
OTHER_MEANINGS = ("claim", "tell", "tells")  # in prose: of a token (JWT); to distinguish
DOCUMENTS = [*sorted(ROOT.glob("*.md")), ROOT / "TODO", *sorted((ROOT / "docs").rglob("*.md"))]


def names(path: Path) -> Iterator[tuple[str, int]]:
    """The names that a module gives: its own, of classes, functions, parameters and attributes."""
    yield path.stem, 1
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
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
        if found := re.match(r" *(?:class|(?:async )?def) (\w+)", line):
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


def prose(document: str) -> str:
    """A document without code, links and the table of discarded words."""
    text = document.replace(TABLE, "")
    text = re.sub(r"^```.*?^```$", lambda block: "\n" * block[0].count("\n"), text, flags=re.MULTILINE | re.DOTALL)
    return re.sub(r"`[^`\n]*`|\]\([^)\n]*\)", " ", text)


def texts(path: Path) -> Iterator[tuple[int, str]]:
    """The texts of a module that a user may see: its strings of several words, without docstrings."""
    tree = ast.parse(path.read_text("utf-8"))
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and id(node) not in docstrings and " " in str(node.value):
            yield node.lineno, str(node.value)


def found_in(text: str, words: Iterable[str]) -> list[str]:
    return re.findall(rf"\b(?:{'|'.join(words)})\b", text, re.IGNORECASE)


def literary(text: str) -> list[str]:
    return found_in(text, LITERARY)


def test_the_table_has_words() -> None:
    assert {"care", "lane", "claim", "hub", "told", "stranded"} <= set(DISCARDED)


@pytest.mark.parametrize("word", [word for word in DISCARDED if " " not in word])
def test_no_name_has_a_discarded_word(word: str) -> None:
    assert words().get(word, []) == []


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_document_has_a_literary_or_discarded_word(path: Path) -> None:
    words = {*LITERARY, *DISCARDED} - {*OTHER_MEANINGS}
    lines = prose(path.read_text("utf-8")).splitlines()
    assert [(number, found) for number, line in enumerate(lines, 1) if (found := found_in(line, words))] == []


def test_no_text_of_the_program_has_a_literary_word() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}: {text}"
        for path in sorted((ROOT / "radiator").rglob("*.py"))
        for line, text in texts(path)
        if literary(text)
    ]
    assert found == []


def test_a_literary_word_is_found_in_prose_and_not_in_code() -> None:
    assert literary(prose("What lies ahead is told to nobody.\n")) == ["lies ahead", "told", "nobody"]
    assert literary(prose("`nobody` [it](told.md)\n```\nanew\n```\n")) == []
