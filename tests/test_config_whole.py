"""The whole interface in one file: every key that radiator has a name for, also those that this version does not offer.

What is offered loads and comes down to what it says. What is not has an error of its own, with its line, and this list
is exact: a key that becomes offered must be struck off here, and one that falls silent is found.
"""

from __future__ import annotations

import pytest

from radiator.config import Config, load_text
from radiator.routing.rules import Rules

WHOLE = """\
version: 1
data_dir: ./data
listen:
  - stomp://127.0.0.1:61613
  - ws://127.0.0.1:15674/stomp
  - unix:./run/radiator.sock
admin: http://127.0.0.1:8161          # metrics, health, JSON API, dashboard; loopback unless said otherwise

limits: {message: 4MiB, connections: 10000, connect_timeout: 10s}
heart_beat: {send: 10s, expect: 10s, grace: 2.0}
disk: {min_free: 1GiB}

defaults:                             # under every rule below
  store: file                         # file | memory
  fsync: always                       # always | 50ms (an interval) | never
  segment: {size: 128MiB, roll_at: "00:00"}   # UTC, also when idle
  retention: {age: 30d, size: 20GiB}  # default: keep everything
  prefetch: 1

destinations:                         # first match wins
  - match: /topic/weather.*
    partition: weather-{1}            # which file takes what: {name}, {1}...{n}
    fsync: 1s
  - match: /topic/clicks.>
    partitions: 4
    partition_by: header:user
  - match: /queue/orders
    prefetch: 10
    ack_timeout: 5m
    redeliver: {max: 5, delay: 1s, backoff: 2, max_delay: 5m}
    dead_letter: /queue/dead.{name}
    priority: true                    # 0-9 by header; FIFO inside
  - match: /queue/events
    fan_out: [/queue/events.billing, /queue/events.audit]
  - match: /topic/live.>
    store: memory
    retention: {count: 1000}
    on_full: drop_oldest
  - match: /topic/state.>
    compact_by: header:key            # last per key, offsets unchanged
  - {match: "#", create: deny}
archive:                              # further copies for analysis: every rule that matches
  - {match: /topic/>, to: /topic/everything}
auth: {users_file: users.yaml}        # or plug-in by entry point; acl: read/write/browse/admin patterns per user
"""


@pytest.fixture(scope="module")
def config() -> Config:
    return load_text(WHOLE, "radiator.yaml", {})


def test_the_rest_comes_down_to_what_it_says(config: Config) -> None:
    assert [str(listen) for listen in config.listen] == [
        "stomp://127.0.0.1:61613",
        "ws://127.0.0.1:15674/stomp",
        "unix:./run/radiator.sock",
    ]
    assert str(config.admin) == "http://127.0.0.1:8161"
    assert config.disk_min_free_bytes == 1 << 30
    weather, clicks, orders, events, live, state, rest = config.rules
    assert weather.partition == "weather-{1}"
    assert (weather.settings.sync.interval_ns, weather.settings.roll_at_seconds) == (10**9, 0)
    assert (clicks.partitions, clicks.partition_by) == (4, "user")
    assert (orders.settings.prefetch, events.settings.prefetch) == (10, 1)
    assert events.fan_out == ("/queue/events.billing", "/queue/events.audit")
    assert (orders.priority, events.priority) == (True, False)
    assert (live.settings.store, live.settings.retention_count) == ("memory", 1_000)
    assert live.settings.on_full == "drop_oldest"
    assert (state.match, state.settings.retention_bytes) == ("/topic/state.>", 20 << 30)
    assert state.settings.compact_by == "key"
    assert rest.settings.create is False
    assert [(each.match, each.to) for each in config.archive] == [("/topic/>", "/topic/everything")]


@pytest.mark.parametrize(
    ("name", "rule_index"),
    [
        ("/topic/weather.EWR", 0),
        ("/topic/clicks.a.b", 1),
        ("/queue/orders", 2),
        ("/queue/events", 3),
        ("/topic/live.a", 4),
        ("/topic/state.a", 5),
        ("/queue/other", 6),
    ],
)
def test_its_rules_own_what_they_say(config: Config, name: str, rule_index: int) -> None:
    assert Rules(config).policy_for(name).rule_index == rule_index
