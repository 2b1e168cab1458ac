"""The casts of the simulation: clients and rules. Each seed has a history with each cast.

plain     queues, topics and durable subscriptions of all kinds, with consumers that take all messages
choosy    selectors, exclusive consumers, groups, durable subscriptions that are taken over, priorities, times; over
          fewer destinations, so that they interact
repeating messages are sent again, alone and in transactions, under rules that change with each start
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import NamedTuple

from radiator import limits
from tests.broker.harness import World
from tests.simulation import pickers, repeaters
from tests.simulation.actors import Actor, Consumer, Producer, Reader
from tests.simulation.checkers import Checkers
from tests.simulation.followers import Follower, Rival
from tests.simulation.ledgers import Ledger
from tests.simulation.members import Group, Member
from tests.simulation.pickers import Picker, Sender, Turns
from tests.simulation.repeaters import Repeater, Worker


class Cast(NamedTuple):
    """The rules of the broker, and its clients. ``later``: rules of which each start after the first has some."""

    config: str
    meet: Callable[[World, Random, Checkers], list[Actor]]
    segment_commits: int = limits.SEGMENT_COMMITS
    later: Sequence[str] = ()


PLAIN_CONFIG = """
defaults: {segment: {size: 64KiB}, retention: {acked: keep}, dedup: {window: 36500d}}
destinations:
  - {match: '/queue/weak,/topic/weak', fsync: 2s, segment: {roll_at: "00:00"}}
  - {match: '/queue/memory,/topic/memory', store: memory}
  - {match: '/queue/strong,/queue/done', segment: {roll_at: "12:00"}, retention: {acked: reclaim}, compress: zstd}
  - {match: /topic/packed, segment: {roll_at: "06:00"}, compress: zstd}
  - {match: /topic/state, segment: {roll_at: "06:00"}, compact_by: 'header:key', compress: zstd}
  - {match: '/topic/shared.*', partition: shared}
  - {match: /queue/capped, redeliver: {max: 2, delay: 0ms}, dead_letter: /queue/dead}
  - {match: /queue/capped-weak, fsync: 2s, redeliver: {max: 1}, dead_letter: /queue/dead}
  - {match: /queue/dead, partitions: 1}
  - {match: /queue/lanes, priority: true}
  - {match: /topic/keyed, partitions: 2, partition_by: 'header:key'}
"""
CHOOSY_CONFIG = """
defaults:
  segment: {size: 64KiB}
  retention: {acked: keep}
  dedup: {window: 36500d}
  redeliver: {delay: 0ms}
destinations:
  - {match: '/queue/weak,/topic/weak', fsync: 2s, segment: {roll_at: "00:00"}}
  - {match: '/queue/strong,/queue/done', segment: {roll_at: "12:00"}, retention: {acked: reclaim}, compress: zstd}
  - {match: /queue/capped, redeliver: {max: 2, delay: 0ms}, dead_letter: /queue/dead}
  - {match: /queue/capped-weak, fsync: 2s, redeliver: {max: 1}, dead_letter: /queue/dead}
  - {match: /queue/lanes, priority: true}
  - {match: /queue/sole, exclusive: true, partitions: 2}
  - {match: /topic/parts, partitions: 3, partition_by: 'header:key', segment: {roll_at: "06:00"}}
  - {match: '/topic/shared.*', partition: shared}
"""
GROUPED = ["/topic/parts", "/topic/parts", "/topic/parts,/topic/one", "/topic/parts,/topic/shared.*"]
KINDS: list[type[Actor]] = [Producer, Consumer, Consumer, Consumer, Reader, Reader, Follower, Follower]


def _plain(world: World, random: Random, checkers: Checkers) -> list[Actor]:
    return [kind(f"{kind.__name__[0].lower()}{number}", world, random, checkers) for number, kind in enumerate(KINDS)]


def _choosy(world: World, random: Random, checkers: Checkers) -> list[Actor]:
    queues = random.sample(pickers.QUEUES, 3)
    turns = Turns()
    group = Group("crew", random.choice(GROUPED), checkers)
    ledger = Ledger("rivals", checkers)
    ledger.selector = random.choice(list(pickers.SELECTORS))
    topic = random.choice(["/topic/parts", "/topic/one", "/topic/shared.*", "/topic/shared.b"])
    return [
        Sender("p0", world, random, checkers, queues),
        Sender("p1", world, random, checkers, queues),
        *(Picker(f"c{number}", world, random, checkers, queues, turns) for number in range(3)),
        *(Member(f"m{number}", world, random, checkers, group) for number in range(3)),
        *(Rival(f"r{number}", world, random, checkers, ledger, topic) for number in range(2)),
    ]


def _repeating(world: World, random: Random, checkers: Checkers) -> list[Actor]:
    return [
        *(Repeater(f"p{number}", world, random, checkers) for number in range(3)),
        *(Worker(f"w{number}", world, random, checkers) for number in range(2)),
    ]


CASTS = {
    "plain": Cast(PLAIN_CONFIG, _plain),
    "choosy": Cast(CHOOSY_CONFIG, _choosy, segment_commits=20),
    "repeating": Cast(repeaters.CONFIGS[0], _repeating, later=repeaters.CONFIGS),
}
