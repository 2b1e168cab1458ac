"""``radiator maintain``: run maintenance of a running broker now, over its admin channel."""

from __future__ import annotations

import time

import click

from radiator.cli.common import FAILED, OK, BrokerOptions, connection_options, json_option, progress, put_json
from radiator.words import counted

LOOK_SECONDS = 0.2
SHOWN = {"retention": "removed", "compaction": "rewritten"}  # segments


@click.command(short_help="Run retention, compaction and a checkpoint now.")
@click.option("--retention", is_flag=True, help="Remove sealed segments that the rules do not keep.")
@click.option("--compact", is_flag=True, help="Rewrite sealed segments: compact_by, acknowledged messages, compress.")
@click.option("--checkpoint", is_flag=True, help="Sync the segments of all logs, and free the journal.")
@click.option("--match", metavar="PATTERN", help="Only logs with messages of these destinations, as in SUBSCRIBE.")
@connection_options
@json_option
def maintain(
    retention: bool, compact: bool, checkpoint: bool, match: str | None, broker: BrokerOptions, as_json: bool
) -> int:
    """Run retention, compaction and a checkpoint of a running broker now, and wait for the end.

    Without options it does everything. Needs the admin right over everything. If this command is interrupted, the
    broker continues.
    """
    from radiator.client.admin import ask

    wanted = {"retention": retention, "compaction": compact, "checkpoint": checkpoint}
    tasks = [name for name, asked in wanted.items() if asked] or list(wanted)
    args = {} if match is None else {"match": match}
    with broker.connect_admin() as connection, progress() as bar:
        task = bar.add_task("maintaining", total=None, note="")
        found = ask(connection, "maintenance.run", tasks=tasks, background=True, **args)
        while found["running"]:
            bar.update(task, total=found["logs"] or None, completed=found["logs_done"], note=_text(found["done"]))
            time.sleep(LOOK_SECONDS)
            found = ask(connection, "maintenance.status")
    if as_json:
        put_json({"done": found["done"], "failed": found["failed"]})
    else:
        click.echo(_text(found["done"]))
    if found["failed"]:
        click.echo(f"{counted(found['failed'], 'job')} failed; see the log of the broker", err=True)
        return FAILED
    return OK


def _text(done: dict[str, int]) -> str:
    parts = [f"{counted(done[name], 'segment')} {what}" for name, what in SHOWN.items() if name in done]
    if "checkpoint" in done:
        parts.append(counted(done["checkpoint"], "checkpoint"))
    return ", ".join(parts)
