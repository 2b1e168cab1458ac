"""The destinations of the histories: their configuration, and its meaning for the model.

Time passes in steps that are much longer than a turn of the broker, which takes milliseconds. Every duration here is
between two multiples of a step, so it is always certain whether it is over.
"""

from __future__ import annotations

from dataclasses import dataclass

NS_PER_MINUTE = 60 * 10**9
WHILE_NS = 40 * NS_PER_MINUTE
CONFIG = """
limits: {transaction_timeout: none}
defaults: {redeliver: {delay: 0ms}}
destinations:
  - {match: /queue/wide, prefetch: 5, ack_timeout: 60m}
  - {match: '/queue/parts,/topic/parts', partitions: 2}
  - {match: /queue/lanes, priority: true}
  - {match: '/queue/shared.*,/topic/shared', partition: shared}
  - {match: '/queue/memory,/topic/memory,/queue/dead.2', store: memory}
  - match: /queue/thrice
    redeliver: {max: 3}
    dead_letter: /queue/dead.1
    dead_letter_expired: true
    message_ttl: 100m
  - {match: /queue/twice, redeliver: {max: 2}, partition: shared}
  - {match: /queue/watched, on_unacked: dead_letter, dead_letter: /queue/dead.2, prefetch: 3}
  - {match: /queue/once, on_unacked: delete}
  - {match: /queue/timed, ack_timeout: 60m, redeliver: {delay: 30m, max: 4}, dead_letter: /queue/dead.1}
  - {match: /queue/first, exclusive: true}
  - {match: /queue/parent, fan_out: [/queue/kid.1, /queue/kid.2]}
  - {match: /queue/pair, fan_out: [/queue/twin.1, /queue/twin.2]}
  - {match: /topic/parent, fan_out: [/queue/kid.3]}
  - {match: /queue/kid.2, redeliver: {max: 2}, dead_letter: /queue/dead.1, prefetch: 2}
  - {match: /topic/named, redeliver: {max: 3}, ack_timeout: 60m, dead_letter: /queue/dead.3}
"""


NEVER = "/queue/never"
OTHER_CONFIG = CONFIG.replace(
    "defaults: {redeliver: {delay: 0ms}}",
    "defaults: {redeliver: {delay: 0ms}, max_messages: 1000000, segment: {size: 64MiB}, fsync: 50ms}",
).replace("destinations:\n", f"destinations:\n  - {{match: {NEVER}, prefetch: 7}}\n")


@dataclass(frozen=True)
class Rule:
    """The settings of a destination, and of a topic's messages in a durable subscription. Times are in steps."""

    prefetch: int = 1
    deliveries_max: int | None = None
    dead_letter: str | None = None
    keeps_expired: bool = False
    on_unacked: str = "requeue"
    pause: int = 0
    ack_timeout: int | None = None
    ttl: int | None = None
    exclusive: bool = False
    children: tuple[str, ...] = ()
    partitions: int = 1
    is_twin: bool = False  # its consumers consume the other one too


PLAIN = Rule()
RULES = {
    "/queue/wide": Rule(prefetch=5, ack_timeout=2),
    "/queue/parts": Rule(partitions=2),
    "/topic/parts": Rule(partitions=2),
    "/queue/thrice": Rule(deliveries_max=3, dead_letter="/queue/dead.1", keeps_expired=True, ttl=3),
    "/queue/twice": Rule(deliveries_max=2),
    "/queue/watched": Rule(on_unacked="dead_letter", dead_letter="/queue/dead.2", prefetch=3),
    "/queue/once": Rule(on_unacked="delete"),
    "/queue/timed": Rule(ack_timeout=2, pause=1, deliveries_max=4, dead_letter="/queue/dead.1"),
    "/queue/first": Rule(exclusive=True),
    "/queue/parent": Rule(children=("/queue/kid.1", "/queue/kid.2")),
    "/queue/pair": Rule(children=("/queue/twin.1", "/queue/twin.2")),
    "/queue/twin.1": Rule(is_twin=True),
    "/queue/twin.2": Rule(is_twin=True),
    "/topic/parent": Rule(children=("/queue/kid.3",)),
    "/queue/kid.2": Rule(deliveries_max=2, dead_letter="/queue/dead.1", prefetch=2),
    "/topic/named": Rule(deliveries_max=3, ack_timeout=2, dead_letter="/queue/dead.3"),
}
FORGOTTEN = {"/queue/memory", "/topic/memory", "/queue/dead.2"}  # by a restart
GRAVES = {rule.dead_letter for rule in RULES.values()} - {None}


def rule_of(destination: str) -> Rule:
    return RULES.get(destination, PLAIN)


QUEUES = ["a", "b", "wide", "parts", "lanes", "memory", "shared.x", "shared.y", "late.1", "late.2"]
ENDING = ["thrice", "twice", "watched", "once", "timed"]
QUEUES += [*ENDING, "first", "parent", "pair", "kid.1", "kid.2", "kid.3"]
TOPICS = ["a", "parts", "memory", "shared", "late.1", "parent", "named"]
NAMES = [*(f"/queue/{each}" for each in QUEUES), *(f"/topic/{each}" for each in TOPICS)]
TWINS = "/queue/twin.*"
PATTERNS = [  # none has two bound queues of one fan-out source, except twins
    *(name for name in NAMES if name not in ("/queue/parent", "/queue/pair")),
    TWINS,
    TWINS,
    "/queue/*",
    "/queue/shared.*",
    "/queue/late.*",
    "/queue/dead.1",
    "/queue/dead.*",
    "/topic/*",
    "/queue/a,/queue/b",
    "/queue/wide,/topic/a",
    "/queue/kid.1,/queue/kid.3,/queue/a",
    "/queue/shared.*,/topic/*",
]
EVERYTHING = [
    "/queue/*,/queue/shared.*,/queue/late.*,/queue/dead.*",
    "/queue/kid.1",
    "/queue/kid.2",
    "/queue/kid.3",
    TWINS,
]
DELAYS = {1: "30m", 2: "70m"}  # steps, and the text for a rule
EXPIRES_NS, EXPIRES = 60 * NS_PER_MINUTE, 2
PRIORITIES = [0, 4, 4, 9]
COLOURS = [None, None, "red", "blue"]


def red(colour: str | None) -> bool:
    return colour == "red"


def not_red(colour: str | None) -> bool:
    return colour is not None and colour != "red"


def not_known_to_be_red(colour: str | None) -> bool:
    return colour != "red"


SELECTORS = {
    "colour = 'red'": red,
    "colour <> 'red'": not_red,
    "colour IS NULL OR colour <> 'red'": not_known_to_be_red,
}


@dataclass(frozen=True)
class Naming:
    """A durable subscription or a consumer group; all clients subscribe to it in the same way."""

    name: str
    destinations: str
    is_group: bool = False
    selector: str | None = None

    @property
    def topics(self) -> list[str]:
        return self.destinations.split(",")

    @property
    def headers(self) -> dict[str, str]:
        return {"group" if self.is_group else "subscription_name": self.name}


NAMED = [
    Naming("n1", "/topic/a,/topic/parts"),
    Naming("n2", "/topic/named"),  # alone: a dead letter has the name of the topic, and not that of the subscription
    Naming("n3", "/topic/a,/topic/shared", selector="colour = 'red'"),
    Naming("g1", "/topic/parts", is_group=True),
    Naming("g2", "/topic/shared,/topic/memory,/topic/parent", is_group=True),
]
