"""Every sentence of docs/reliability.md names tests that exist."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parent.parent
TEXT = (ROOT / "docs" / "reliability.md").read_text("utf-8")
NAMED = sorted(set(re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", TEXT)))


@cache
def functions(path: str) -> set[str]:
    if not (ROOT / path).exists():
        return set()
    tree = ast.parse((ROOT / path).read_text("utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def test_each_test_in_the_document_exists() -> None:
    assert [f"{path}::{name}" for path, name in NAMED if name not in functions(path)] == []


def test_every_promise_names_a_test() -> None:
    inside = 0
    for line in TEXT.splitlines():
        if re.match(r"\| (promise|broken) \| (shown|caught) by \|", line):
            inside += 1
            continue
        if not line.startswith("|"):
            inside = 0 if not line else inside
        elif inside and not line.startswith("|--"):
            assert "::test_" in line, f"no test is named: {line}"
    assert len(NAMED) > 40
