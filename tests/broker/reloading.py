"""A reload of a World: what ``server.reload`` does, without files and threads."""

from __future__ import annotations

from typing import Any

from radiator.broker.reload import Reload
from radiator.config.compare import Change, compare, share_settings
from radiator.config.load import load_text
from radiator.routing.rules import Rules
from tests.broker.harness import World


def plan(world: World, text: str) -> tuple[Reload, list[Change]]:
    """Decide, and return the changes."""
    broker = world.broker
    config = share_settings(broker.config, load_text(text))
    reload = Reload(broker, broker.durable, broker.declarations, Rules(config))
    for _ in reload.decide():
        pass
    return reload, reload.refused(compare(broker.config, config))


def switch(world: World, text: str) -> Reload:
    """Decide and switch; the destinations have not taken their policies yet."""
    reload, changes = plan(world, text)
    assert not [change for change in changes if change.refused], changes
    reload.switch({})
    world.config = world.broker.config  # for the next start
    return reload


def reload(world: World, text: str) -> list[Change]:
    """Reload, and return the changes. If one is refused, nothing changes."""
    reload, changes = plan(world, text)
    if any(change.refused for change in changes):
        reload.cancel()
        return changes
    reload.switch({})
    world.config = world.broker.config
    for _ in reload.adopt():
        pass
    return changes


def refused(world: World, text: str) -> dict[str, str]:
    """The reasons of the changes that are refused, by path."""
    return {change.path: change.refused for change in reload(world, text) if change.refused}


def in_force(world: World) -> dict[str, Any]:
    """The values that each destination and each durable subscription works with."""
    broker = world.broker
    found: dict[str, Any] = {}
    for name, destination in broker.destinations.items():
        policy, queue = destination.policy, destination.queue
        facts = found[name] = {
            "explained": broker.rules.explain(name),
            "settings": policy.settings,
            "rule": (policy.rule_index, policy.rule.line),
            "dead letter": policy.dead_letter_name,
            "logs": [(feed.partition.name, log_values_of(feed.partition)) for feed in destination.feeds],
        }
        if queue is not None:
            facts["queue"] = (queue.policy, [source_facts(world, each) for each in queue.sources])
    for key, durable in broker.durable.by_key.items():
        for source in durable.queue.sources:
            found[f"{key} in {source.feed.partition.name}"] = source_facts(world, source)
    return found


def log_values_of(partition: Any) -> Any:
    from radiator.config.settings import log_values

    return log_values(partition.settings)


def source_facts(world: World, source: Any) -> Any:
    timeout = None if source.timeouts is None else source.timeouts.timeout_ns
    policy = source.policy._replace(line=0)  # of a durable subscription: the line of any of its topics
    return source.feed.partition.name, policy, timeout, world.store.cursors.sync_of(source.cursor)
