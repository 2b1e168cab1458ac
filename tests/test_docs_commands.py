"""Command lines in the documents: each `radiator ...` is one that the parser takes, with values that fit."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest

from radiator.cli.live import live
from radiator.cli.main import cli

ROOT = Path(__file__).parent.parent
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/**/*.md")])
ELLIPSIS = re.compile(r"\.\.\.|…|[A-Z]{3,}\b|<")  # a line that stands for many is no command


def commands(text: str) -> list[list[str]]:
    """Those in fenced and indented blocks."""
    blocks = [match[1] for match in re.finditer(r"^```[^\n]*\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)]
    blocks += [line for line in text.splitlines() if line.startswith("    ")]
    found = []
    for line in "\n".join(blocks).replace("\\\n", " ").splitlines():
        match = re.search(r"(?:^|[|(]|&& |\d  )\s*(?:sudo )?(radiator [a-z].*?)(?:\s2?>.*)?$", line)
        if match is None or ELLIPSIS.search(match[1]):
            continue
        words = shlex.shlex(match[1], posix=True, punctuation_chars="|&;<>()")
        words.whitespace_split = True
        try:
            parts = list(words)
        except ValueError:
            continue  # a quotation that ends on another line
        end = next((place for place, word in enumerate(parts) if set(word) <= set("|&;<>()")), len(parts))
        found.append(parts[1:end])
    return found


def check(command: click.Command, name: str, args: list[str]) -> None:
    """Raises UsageError. Nothing is run, opened or asked for."""
    if args[:1] == ["live"] and name == "report":
        command, name, args = live, "report live", args[1:]
    with click.Context(command, info_name=name) as context:
        values, rest, _ = command.make_parser(context).parse_args(args=list(args))
        if isinstance(command, click.Group) and (rest or not command.invoke_without_command):
            inner = command.get_command(context, rest[0]) if rest else None
            assert inner is not None, f"{name} has no command {rest[:1]}"
            check(inner, rest[0], rest[1:])
            return
        assert not rest, f"{name}: what is {rest}?"
        for parameter in command.params:
            value = values.get(parameter.name or "")
            assert value is not None or not parameter.required, f"{name}: {parameter.opts} is missing"
            if isinstance(value, str) and isinstance(parameter.type, click.Choice | click.IntRange | click.FloatRange):
                parameter.type_cast_value(context, value)


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_command_line_in_a_document_is_one(path: Path) -> None:
    for args in commands(path.read_text("utf-8")):
        try:
            check(cli, "radiator", args)
        except click.UsageError as error:
            raise AssertionError(f"radiator {shlex.join(args)}: {error.format_message()}") from None


def test_most_of_them_are_found_and_a_wrong_one_is_reported() -> None:
    assert sum(len(commands(path.read_text("utf-8"))) for path in DOCUMENTS) > 80
    (found,) = commands("```\nradiator export --formt csv --to x | head\n```\n")
    with pytest.raises(click.UsageError, match="No such option"):
        check(cli, "radiator", found)
    with pytest.raises(click.UsageError, match="is not one of"):
        check(cli, "radiator", ["export", "--format", "xml", "--to", "x"])
