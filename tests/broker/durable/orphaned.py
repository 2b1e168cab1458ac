"""Brokers that are started with other rules than before, and what is left then."""

from __future__ import annotations

from typing import Any

from radiator.broker.admin import cursor_verbs, gauges
from radiator.broker.admin.request import Request
from radiator.config.load import load_text
from tests.broker.harness import World

NAME = "/queue/a"


def rule(more: str, name: str = NAME, others: str = "") -> str:
    return f"destinations: [{{match: {name}{more}}}{others}]"


def change(world: World, config: str, how: str = "stop") -> None:
    """Start with other rules."""
    if how == "stop":
        world.stop()
    else:
        getattr(world.fs, how)()
    world.config = load_text(config)
    world.start()


def drained(world: World) -> bool:
    world.tick(11)
    return not world.broker.orphaned.ends


def figures(world: World) -> tuple[int, int]:
    now = gauges.now(world.broker)
    return now["orphaned_logs"], now["undelivered_logs"]


def take_all(world: World, name: str = NAME, **headers: str) -> list[str]:
    """A consumer that acknowledges everything."""
    client = world.connect()
    client.subscribe(name, ack="auto", **headers)
    world.settle()
    heard = client.bodies()
    client.drop()
    world.settle()
    return heard


def rows(world: World) -> list[dict[str, Any]]:
    """What ``cursors.ls`` says."""
    request = Request(world.broker, world.connect().session, "", None, world.time)
    steps = cursor_verbs.ls(world.broker, request)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            told: list[dict[str, Any]] = end.value["cursors"]
            return told
