"""The docstrings of the packages that users import are complete, and their examples run.

Ruff checks the form (rules D and D401 in pyproject.toml). These tests check what ruff does not: that a function with
parameters has a section Args, and a function that raises has a section Raises.
"""

from __future__ import annotations

import ast
import doctest
import importlib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = ("client", "local", "columns", "spark")
MODULES = [
    ROOT / "radiator" / "middleware.py",
    *(path for package in PACKAGES for path in sorted((ROOT / "radiator" / package).rglob("*.py"))),
]
INTERNAL = ("server", "tunnels", "kombu", "bench")  # errors are documented, parameters only where names do not suffice
INTERNAL_MODULES = [path for package in INTERNAL for path in sorted((ROOT / "radiator" / package).rglob("*.py"))]


def place(path: Path) -> str:
    return str(path.relative_to(ROOT))


@cache
def public_functions(path: Path) -> list[ast.FunctionDef]:
    def visit(node: ast.AST) -> Iterator[ast.FunctionDef]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.ClassDef | ast.FunctionDef) and child.name.startswith("_"):
                continue
            if isinstance(child, ast.FunctionDef):
                yield child
            elif isinstance(child, ast.ClassDef):
                yield from visit(child)

    return list(visit(ast.parse(path.read_text("utf-8"))))


def raises(function: ast.FunctionDef) -> bool:
    """True if the function itself, without its inner functions, raises an exception."""
    todo: list[ast.AST] = [*function.body]
    while todo:
        node = todo.pop()
        if isinstance(node, ast.FunctionDef | ast.Lambda):
            continue
        if isinstance(node, ast.Raise) and node.exc is not None:
            return True
        todo += ast.iter_child_nodes(node)
    return False


def lacks(function: ast.FunctionDef, section: str) -> bool:
    lines = (ast.get_docstring(function) or "").splitlines()
    return f"{section}:" not in lines


def has_parameters(function: ast.FunctionDef) -> bool:
    given = function.args
    names = [each.arg for each in (*given.posonlyargs, *given.args, *given.kwonlyargs)]
    return bool(set(names) - {"self", "cls"})


def test_a_public_function_with_parameters_documents_them() -> None:
    every = [(path, function) for path in MODULES for function in public_functions(path) if has_parameters(function)]
    assert len(every) > 50
    assert [f"{place(path)}: {function.name}" for path, function in every if lacks(function, "Args")] == []


def test_a_public_function_that_raises_documents_the_errors() -> None:
    modules = [*MODULES, *INTERNAL_MODULES]
    every = [(path, function) for path in modules for function in public_functions(path) if raises(function)]
    assert len(every) > 50
    assert [f"{place(path)}: {function.name}" for path, function in every if lacks(function, "Raises")] == []


@pytest.mark.parametrize("path", [path for path in MODULES if ">>>" in path.read_text("utf-8")], ids=place)
def test_the_examples_of_a_module_run(path: Path) -> None:
    if "spark" in path.parts:
        pytest.importorskip("pyspark")
    module = importlib.import_module(".".join(path.relative_to(ROOT).with_suffix("").parts))
    found = doctest.testmod(module)
    assert found.attempted and not found.failed
