"""The docstrings of the packages that users import are complete, and their examples run.

Ruff checks the form (rules D and D401 in pyproject.toml). These tests check what ruff does not: that a function with
parameters has a section Args, that one with a result says what it returns, and that one that raises has a section
Raises.
"""

from __future__ import annotations

import ast
import doctest
import importlib
import re
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


Function = ast.FunctionDef | ast.AsyncFunctionDef


def place(path: Path) -> str:
    return str(path.relative_to(ROOT))


@cache
def public_functions(path: Path) -> list[Function]:
    def visit(node: ast.AST) -> Iterator[Function]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.ClassDef | Function) and child.name.startswith("_"):
                continue
            if isinstance(child, Function):
                yield child
            elif isinstance(child, ast.ClassDef):
                yield from visit(child)

    return list(visit(ast.parse(path.read_text("utf-8"))))


def raises(function: Function) -> bool:
    """True if the function itself, without its inner functions, raises an exception."""
    todo: list[ast.AST] = [*function.body]
    while todo:
        node = todo.pop()
        if isinstance(node, Function | ast.Lambda):
            continue
        if isinstance(node, ast.Raise) and node.exc is not None:
            return True
        todo += ast.iter_child_nodes(node)
    return False


def lacks(function: Function, section: str) -> bool:
    lines = (ast.get_docstring(function) or "").splitlines()
    return f"{section}:" not in lines


def has_parameters(function: Function) -> bool:
    given = function.args
    names = [each.arg for each in (*given.posonlyargs, *given.args, *given.kwonlyargs)]
    return bool(set(names) - {"self", "cls"})


def has_result(function: Function) -> bool:
    """True if the function returns a value, and is no property, whose docstring is a noun or a sentence about it."""
    returned = ast.unparse(function.returns) if function.returns else "None"
    is_property = any("property" in ast.unparse(each) for each in function.decorator_list)
    return returned not in ("None", "NoReturn", "Iterator[None]") and not is_property


def names_result(function: Function) -> bool:
    summary = (ast.get_docstring(function) or "").partition("\n\n")[0]
    named = re.search(r"\b(return|yield)s?\b", summary, re.IGNORECASE)
    return named is not None or not all(lacks(function, section) for section in ("Returns", "Yields"))


def test_a_public_function_with_parameters_documents_them() -> None:
    every = [(path, function) for path in MODULES for function in public_functions(path) if has_parameters(function)]
    assert len(every) > 50
    assert [f"{place(path)}: {function.name}" for path, function in every if lacks(function, "Args")] == []


def test_a_public_function_with_a_result_says_what_it_returns() -> None:
    every = [(path, function) for path in MODULES for function in public_functions(path) if has_result(function)]
    assert len(every) > 50
    assert [f"{place(path)}: {function.name}" for path, function in every if not names_result(function)] == []


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
