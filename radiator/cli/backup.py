"""``radiator backup``: copy a data directory so that it can be restored, with or without a running broker."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

import click

from radiator.cli.common import NOT_FOUND, OK, CommandFailed, json_option, parsed, progress, put_result, say, size
from radiator.cli.selection import check_store
from radiator.config.units import parse_size
from radiator.words import counted

PAUSE_SECONDS = 0.005  # about a group commit


def pacer(bytes_per_second: int | None) -> Callable[[int], None] | None:
    """Return a function that sleeps so that at most ``rate`` bytes a second are read."""
    if not bytes_per_second:
        return None
    begun, asked = time.monotonic(), 0

    def pace(size: int) -> None:
        nonlocal asked
        due = begun + asked / bytes_per_second
        asked += size
        time.sleep(max(0.0, due - time.monotonic()))

    return pace


def parse_rate(text: str) -> int:
    """Return the value of ``--rate`` in bytes a second.

    Raises:
        ValueError: The text is not a size of at least one byte.
    """
    size = parse_size(text)
    if not size:
        raise ValueError("expected at least 1B a second")
    return size


@click.command(short_help="Copy a data directory, also while the broker runs.")
@click.option("--data", metavar="DIR", default="./data", show_default=True, help="The data directory.")
@click.option("--to", "target", metavar="TARGET", required=True, help="The new directory of the backup.")
@click.option("--since", metavar="BACKUP", help="An earlier backup: unchanged files are hard-linked, not copied.")
@click.option(
    "--rate", metavar="SIZE", callback=parsed(parse_rate), help="Read at most so much per second, such as 50MiB."
)
@json_option
def backup(data: str, target: str, since: str | None, rate: int | None, as_json: bool) -> int:
    """Copy a data directory into the new directory TARGET, with a manifest of checksums.

    The broker may be running: the copy is an exact prefix of each of its logs. `radiator restore` reads it.
    """
    from radiator import __version__
    from radiator.clock import now_ns
    from radiator.storage.files import FileSystem
    from radiator.upkeep.backup import back_up

    root, whole = os.path.realpath(data), os.path.realpath(target)
    check_store(data)
    if not os.path.isdir(os.path.dirname(whole)):
        raise CommandFailed(NOT_FOUND, f"{os.path.dirname(whole)}: no such directory; make it, and then back up")
    begun = time.monotonic()
    with progress() as bar:
        task = bar.add_task("backing up", total=None, note="")
        made = back_up(
            FileSystem(),
            root,
            whole,
            now_ns=now_ns(),
            version=__version__,
            since=os.path.realpath(since) if since is not None else None,
            pace=pacer(rate),
            pause=lambda: time.sleep(PAUSE_SECONDS),
            planned=lambda total: bar.update(task, total=total),
            progress=lambda done: bar.update(task, advance=done),
        )
    seconds = time.monotonic() - begun
    offsets = sum(each.next_offset - each.first_offset for each in made.manifest.partitions)
    if not made.manifest.whole_transactions:
        say(f"{target}: a COMMIT over several logs may be in it in part: there was no moment between two of them")
    fields = {
        "backup": whole,
        "time_ns": made.manifest.time_ns,
        "partitions": [
            {"partition": each.name, "first_offset": each.first_offset, "next_offset": each.next_offset}
            for each in made.manifest.partitions
        ],
        "offsets": offsets,
        "files": len(made.manifest.files),
        "bytes": made.manifest.size_bytes,
        "copied_bytes": made.copied_bytes,
        "linked_bytes": made.linked_bytes,
        "whole_transactions": made.manifest.whole_transactions,
        "left_out": made.manifest.left_out,
        "seconds": seconds,
    }
    linked = f", {size(made.linked_bytes)} of it shared with {since}" if made.linked_bytes else ""
    copied = f"{counted(offsets, 'offset')} of {counted(len(made.manifest.partitions), 'partition')}"
    put_result(as_json, fields, f"{target}: {copied}, {size(made.manifest.size_bytes)}{linked}, in {seconds:.1f} s")
    return OK
