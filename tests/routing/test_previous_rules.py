"""Who was fed to whom, as it is kept from run to run."""

from __future__ import annotations

import json

import pytest

from radiator.config import load_text
from radiator.routing.previous_rules import PreviousRules, entries_of
from radiator.routing.rules import Rules

CONFIG = """
destinations:
  - {match: /topic/private.*}
  - {match: "/topic/a.*,/topic/b.*", fan_out: ["/queue/{1}", "{name}.log"]}
  - {match_regex: "/x/([a-z]+)(-[0-9]+)?", kind: queue, fan_out: ["/queue/{1}{2}"]}
  - {match: "/late/>", kind: queue}
  - {match: "#", prefetch: 3}
"""
NAMES = ["/topic/private.x", "/topic/a.x", "/topic/b.y", "/topic/c", "/queue/q", "/x/abc", "/x/abc-7", "/late/one", "z"]


@pytest.mark.parametrize("name", NAMES)
def test_what_is_read_again_says_the_same_as_the_rules(name: str) -> None:
    config = load_text(CONFIG)
    kept = json.loads(json.dumps(entries_of(config)))
    policy = Rules(config).policy_for(name)
    assert PreviousRules(kept).of(name) == (policy.kind, policy.fan_out)


def test_more_than_ten_rules_keep_their_order() -> None:
    rules = [f"{{match: /topic/{number}, fan_out: [/queue/{number}]}}" for number in range(11)]
    config = load_text(f"destinations: [{', '.join(rules)}, {{match: '/topic/*', fan_out: [/queue/rest]}}]")
    kept = dict(sorted(entries_of(config).items()))
    assert PreviousRules(kept).of("/topic/2").children == ("/queue/2",)


def test_rules_without_fan_out_take_no_room() -> None:
    assert entries_of(load_text("destinations: [{match: /queue/a}, {match: '#'}]")) == {}


@pytest.mark.parametrize(
    "entry",
    [
        {},
        {"match": "/a/>/b", "kind": None, "fan_out": []},
        {"match": None, "match_regex": "(", "kind": None, "fan_out": []},
        {"match": None, "match_regex": None, "kind": None, "fan_out": []},
        {"match": "/a", "kind": "table", "fan_out": []},
        {"match": "/a", "kind": None, "fan_out": None},
    ],
)
def test_nonsense_is_refused(entry: dict[str, object]) -> None:
    with pytest.raises(ValueError):
        PreviousRules({"0": entry})
