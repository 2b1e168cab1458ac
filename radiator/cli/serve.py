"""``radiator serve``: run the broker in the foreground.

Options replace the addresses and the data directory of the configuration, so that a temporary broker needs no file. All
other settings come from the file.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

import click
import msgspec

from radiator import __version__
from radiator.cli.common import json_option, put_json

if TYPE_CHECKING:
    from radiator.config import Config

LEVELS = ("debug", "info", "warning", "error")


@click.command(short_help="Run the broker until SIGTERM or SIGINT.")
@click.option(
    "--config",
    metavar="FILE",
    type=click.Path(dir_okay=False),
    help="The YAML file. Default: none, all settings have defaults.",
)
@click.option(
    "--listen",
    metavar="URL",
    multiple=True,
    help="Listen here instead of the addresses in the file: HOST:PORT, unix:PATH or a URL (stomp, stomp+tls, ws, wss). "
    "May be repeated.",
)
@click.option("--data", metavar="DIR", help="Data directory instead of the one in the file.")
@click.option("--log-level", type=click.Choice(LEVELS), help="Lowest level to log, instead of the one in the file.")
@json_option
def serve(config: str | None, listen: tuple[str, ...], data: str | None, log_level: str | None, as_json: bool) -> int:
    """Run the broker until SIGTERM or SIGINT.

    Without options it listens on 127.0.0.1:61613, stores everything in ./data, and sends a receipt only when the
    message is synced to disk. With --json the log is JSON too.
    """
    from radiator.config import load, parse_listen
    from radiator.server.app import run

    given: dict[str, Any] = {"listen": tuple(parse_listen(url) for url in listen)} if listen else {}
    if data:
        given["data_dir"] = data

    def adjust(config: Config) -> Config:
        logging = config.logging
        logging = logging._replace(level=log_level or logging.level, format="json" if as_json else logging.format)
        return msgspec.structs.replace(config, logging=logging, **given)

    settings = adjust(load(config))

    def ready(addresses: list[str]) -> None:
        if as_json:
            put_json({"ready": True, "listen": addresses, "data_dir": settings.data_dir, "pid": os.getpid()})
        else:
            click.echo(f"radiator {__version__} is ready: {', '.join(addresses)}, data in {settings.data_dir}")
        sys.stdout.flush()

    return run(settings, adjust=adjust, on_ready=ready)
