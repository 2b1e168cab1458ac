"""``radiator cursors sample``: record the lag of cursors over time, as messages of a topic.

A sample has one message per cursor and log, all with the same time, published in one transaction. The values are those
of the admin channel. A sample that takes long does not shift later ones, and missed samples are skipped.
"""

from __future__ import annotations

import itertools
import json
import time
from typing import TYPE_CHECKING, Any

import click

from radiator.client.admin import ask_all
from radiator.clock import NS_PER_SECOND

if TYPE_CHECKING:
    from radiator.client import Connection

FIELDS = ("cursor", "destination", "partition", "position", "end", "lag", "in_flight", "members")
STDOUT = "-"


def sample_cursors(
    connection: Connection, match: str, target: str, every_ns: int, count: int | None
) -> tuple[int, int]:
    """Take ``count`` samples, or continue until interrupted.

    Returns:
        The number of samples and of messages.
    """
    started, published = time.monotonic_ns(), 0
    for taken in itertools.count(1):
        now_ns = time.time_ns()
        rows = [_record(row, now_ns) for row in ask_all(connection, "cursors.ls", "cursors", match=match)]
        if target == STDOUT:
            for row in rows:
                click.echo(row)
        elif rows:
            headers = {"content-type": "application/json", "event-time": str(now_ns)}
            connection.send_many([(target, row.encode(), headers) for row in rows], transaction=True)
        published += len(rows)
        if taken == count:
            break
        passed = time.monotonic_ns() - started
        time.sleep((every_ns - passed % every_ns) / NS_PER_SECOND)
    return taken, published


def _record(row: dict[str, Any], now_ns: int) -> str:
    return json.dumps({"time_ns": now_ns, **{name: row[name] for name in FIELDS}}, ensure_ascii=False)
