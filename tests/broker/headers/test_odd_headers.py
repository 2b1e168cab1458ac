"""Whatever headers a client puts together, the broker has an answer that it meant to give.

The world's broker raises what nobody foresaw (``tests.broker.harness.Loud``), so one KeyError over a header fails here.
"""

from __future__ import annotations

from random import Random

import pytest

from tests.broker.harness import Client, World

CONFIG = """
destinations:
  - {match: /queue/parts, partitions: 3, partition_by: 'header:key'}
  - {match: /topic/parts, partitions: 3}
  - {match: /queue/prio, priority: true}
  - {match: /queue/none, partitions: 2, dedup: {window: none}}
  - {match: /queue/fan, fan_out: [/queue/a, /queue/child]}
  - {match: /queue/timed, ack_timeout: 10s, redeliver: {max: 2}, dead_letter: /queue/dead, partitions: 2}
  - {match: /queue/few, max_messages: 2, on_full: drop_oldest}
  - {match: /topic/memory, store: memory}
"""
DESTINATIONS = (
    *("/queue/parts", "/topic/parts", "/queue/prio", "/queue/none", "/queue/fan", "/queue/timed", "/queue/few"),
    *("/topic/memory", "/queue/a", "/topic/a", "/queue/dead", "/queue/*", "/topic/>", "/queue/a,/topic/a", ""),
    *("/temp-queue/x", "/temp-queue/x@other", "/radiator/admin", "/radiator/touch", "/radiator/x", "%zz", "/queue/a b"),
)
VALUES = (
    *("", " ", "0", "1", "7", "-1", "9" * 30, "true", "false", "True", "x", "a=1", "auto", "client", "next", "first"),
    *("last:2", "offset:1", "end", "5s", "regex", "fsync", "/temp-queue/x", "é", "0-x@1", "@", "-", "%2Fqueue%2Fa@0"),
)
SEND = (
    *(
        "sequence",
        "producer-id",
        "dedup-id",
        "mandatory",
        "persistent",
        "partition",
        "partition-key",
        "key",
        "priority",
    ),
    *("delay", "delay-ms", "AMQ_SCHEDULED_DELAY", "deliver-at", "expires", "reply-to", "correlation-id", "durability"),
    *("event-time", "transmit-time", "transaction", "id", "message-id", "offset", "gap", "redelivered", "dlq-reason"),
)
SUBSCRIBE = (
    *("ack", "match", "prefetch-count", "activemq.prefetchSize", "credit", "start-position", "x-stream-offset"),
    *("start-at", "stop-position", "subscription-name", "durable", "durable-subscription-name", "group", "reset"),
    *("browser", "exclusive", "activemq.exclusive", "selector", "transaction"),
)
SETTLE = ("transaction", "touch", "requeue", "delay", "subscription", "message-id", "id", "destination")
COMMANDS = {
    "SEND": SEND,
    "SUBSCRIBE": SUBSCRIBE,
    "UNSUBSCRIBE": ("id", "subscription-name", "durable", "group"),
    "ACK": SETTLE,
    "NACK": SETTLE,
    "BEGIN": ("transaction",),
    "COMMIT": ("transaction",),
    "ABORT": ("transaction",),
}
FEW = ("t", "u")  # names of transactions and subscriptions: so few that they meet


def headers_of(random: Random, command: str, seen: list[str]) -> dict[str, str]:
    names = random.sample(COMMANDS[command], k=min(len(COMMANDS[command]), random.choice((0, 1, 1, 2, 2, 3, 4))))
    headers = {name: random.choice(VALUES) for name in names}
    if "transaction" in COMMANDS[command] and random.random() < 0.3:
        headers["transaction"] = random.choice(FEW)
    if command in ("SEND", "SUBSCRIBE"):
        headers["destination"] = random.choice(DESTINATIONS)
    if command in ("SUBSCRIBE", "UNSUBSCRIBE") and random.random() < 0.9:
        headers["id"] = random.choice(FEW)
    if command in ("ACK", "NACK") and seen and random.random() < 0.8:
        headers[random.choice(("id", "message-id"))] = random.choice(seen)
    return headers


@pytest.mark.parametrize("version", ["1.0", "1.1", "1.2"])
@pytest.mark.parametrize("seed", range(4))
def test_no_combination_of_headers_is_a_bug(seed: int, version: str) -> None:
    random = Random(f"{seed} {version}")
    world = World(CONFIG)
    client = world.connect(version)
    seen: list[str] = []
    commands = [*COMMANDS, "SEND", "SEND", "SUBSCRIBE", "ACK"]
    for _ in range(700):
        command = random.choice(commands)
        headers = headers_of(random, command, seen[-20:])
        client.say(command, random.choice(("", "x", "{}")), receipt=random.choice((None, "r")), **headers)
        if random.random() < 0.4:
            world.tick(random.choice((0, 0.1, 11)))
        for message in client.messages():
            seen += [message.headers[name] for name in ("ack", "message-id") if name in message.headers]
        if client.session.closing:
            client.drop()
            client = reconnected(world, version)
    assert world.broker.stats.internal_errors == 0 and world.broker.stats.messages_in > 20 and seen


def reconnected(world: World, version: str) -> Client:
    world.clients.clear()
    return world.connect(version)
