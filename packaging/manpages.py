"""Write the man pages of radiator from the help texts of its commands: ``python packaging/manpages.py DIRECTORY``."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import click

from radiator import __version__
from radiator.cli.main import COMMANDS, SECTIONS, cli


def escape(text: str) -> str:
    """Return text as roff: backslashes, hyphens and leading control characters are literal."""
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return re.sub(r"(?m)^([.'])", r"\\&\1", text)


def paragraphs(text: str) -> str:
    r"""Return a help text as roff paragraphs; those marked by ``\\b`` keep their lines."""
    parts = []
    for block in re.split(r"\n\s*\n", text.strip()):
        lines = [line.rstrip() for line in block.splitlines()]
        if lines[0].strip() == "\b":
            body = "\n".join(escape(line) for line in lines[1:])
            parts.append(f".PP\n.nf\n{body}\n.fi")
        else:
            parts.append(".PP\n" + escape(" ".join(line.strip() for line in lines)))
    return "\n".join(parts)


def page(command: click.Command, context: click.Context) -> str:
    """Return the man page of a command."""
    path = context.command_path
    name = path.replace(" ", "-")
    about = command.get_short_help_str(200).rstrip(".")
    usage = " ".join(command.collect_usage_pieces(context))
    lines = [
        f'.TH "{name.upper()}" 1 "" "radiator {__version__}" "User commands"',
        ".ad l",
        f".SH NAME\n{escape(name)} \\- {escape(about)}",
        f".SH SYNOPSIS\n.B {escape(path)}\n{escape(usage)}",
        ".SH DESCRIPTION",
        paragraphs(command.help or about),
    ]
    records = [
        record for option in command.get_params(context) if (record := option.get_help_record(context)) and record[1]
    ]
    if records:
        lines.append(".SH OPTIONS")
        lines += [f".TP\n.B {escape(names)}\n{escape(' '.join(text.split()))}" for names, text in records]
    if isinstance(command, click.Group):
        lines.append(".SH COMMANDS")
        for title, inner in sections(command, context):
            if title:
                lines.append(f".SS {escape(title)}")
            lines += [f".TP\n.BR {escape(name)}-{escape(each)} (1)\n{escape(text)}" for each, text in inner]
    lines.append(".SH SEE ALSO\n.BR radiator (1)" if context.parent else ".SH SEE ALSO\nThe documentation in docs/.")
    return "\n".join(lines) + "\n"


def sections(group: click.Group, context: click.Context) -> list[tuple[str, list[tuple[str, str]]]]:
    """Return the commands of a group by section, each with its description."""
    if group is cli:
        return [(title, [(name, text) for name, (_, text) in each.items()]) for title, each in SECTIONS.items()]
    inner = [(name, group.get_command(context, name)) for name in group.list_commands(context)]
    return [("", [(name, each.get_short_help_str(200)) for name, each in inner if each is not None])]


def write(directory: Path) -> list[Path]:
    """Write all pages to a directory, and return their paths."""
    directory.mkdir(parents=True, exist_ok=True)
    written = []

    def add(command: click.Command, context: click.Context) -> None:
        path = directory / f"{context.command_path.replace(' ', '-')}.1"
        path.write_text(page(command, context), "utf-8")
        written.append(path)
        if isinstance(command, click.Group):
            for name in command.list_commands(context):
                inner = command.get_command(context, name)
                if inner is not None:
                    add(inner, click.Context(inner, info_name=name, parent=context))

    add(cli, click.Context(cli, info_name="radiator"))
    assert len(written) > len(COMMANDS)
    return written


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("expected one argument: the directory to write to")
    for written in write(Path(sys.argv[1])):
        print(written)
