"""Rules: which one wins, the policy it gives, and the files that cannot mean what they say."""

from __future__ import annotations

from dataclasses import replace

import pytest

from radiator.config import Settings, SyncPolicy, load, load_text
from radiator.config.keys import Key
from radiator.config.settings import SETTINGS
from radiator.errors import ConfigError, ProtocolError
from radiator.routing.rules import Rules, describe

EXAMPLE = """\
defaults: {prefetch: 3}
destinations:
  - match: /topic/weather.*
    partition: weather-{1}
    fsync: 1s
  - match: /topic/weather.>
    store: memory
    retention: {count: 1000}
  - match: /topic/clicks.>,/queue/clicks.>
    partitions: 4
    partition_by: header:user
  - match_regex: /(queue|topic)/v(\\d+)\\.(x)?.*
    kind: queue
    partition: v{2}-{1}{3}
  - match: /queue/closed
    create: deny
    max_bytes: 1MiB
"""


def rules(text: str) -> Rules:
    return Rules(load_text(text, "radiator.yaml", {}))


@pytest.fixture
def example() -> Rules:
    return rules(EXAMPLE)


# --- the winner -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "rule_index"),
    [
        ("/topic/weather.EWR", 0),
        ("/topic/weather.EWR.hourly", 1),
        ("/topic/weather", -1),
        ("/queue/clicks.a", 2),
        ("/topic/v1.a", 3),
        ("/topic/v1", -1),  # a regular expression matches the whole name
        ("/queue/closed", 4),
        ("/queue/open", -1),
    ],
)
def test_the_first_rule_that_matches_wins(example: Rules, name: str, rule_index: int) -> None:
    assert example.policy_for(name).rule_index == rule_index


def test_where_no_rule_matches_the_defaults_hold(example: Rules) -> None:
    policy = example.policy_for("/queue/open")
    assert policy.rule is example.config.defaults
    assert policy.settings is example.config.defaults.settings
    assert policy.settings.prefetch == 3
    assert policy.partitions == ("/queue/open",)


def test_a_policy_has_the_values_of_its_rule(example: Rules) -> None:
    weather = example.policy_for("/topic/weather.EWR")
    assert (weather.settings.store, weather.settings.sync.interval_ns, weather.settings.prefetch) == (
        "file",
        1_000_000_000,
        3,
    )
    closed = example.policy_for("/queue/closed")
    assert (closed.settings.create, closed.settings.max_bytes, closed.rule.line) == (False, 1 << 20, 15)
    live = example.policy_for("/topic/weather.EWR.hourly")
    assert (live.settings.store, live.settings.retention_count, live.settings.on_full) == ("memory", 1_000, "reject")


@pytest.mark.parametrize(
    ("name", "kind"),
    [("/queue/a", "queue"), ("/topic/a", "topic"), ("orders", "topic"), ("/queue", "topic"), ("/topic/v1.a", "queue")],
)
def test_the_kind_is_the_rules_or_the_names(example: Rules, name: str, kind: str) -> None:
    assert example.policy_for(name).kind == kind


def test_a_temporary_queue_has_the_values_of_the_table_whatever_the_defaults_are() -> None:
    defaults = """{retention: {age: 1d, size: 1MiB, count: 5, force: true, wait_for: archive}, compress: zstd,
    compact_by: header:k, create: deny, redeliver: {max: 3}, dead_letter: /queue/dead, on_unacked: delete,
    max_messages: 9, on_full: block, prefetch: 7}"""
    settings = rules(f"defaults: {defaults}").policy_for("/temp-queue/x").settings
    wanted = Settings(store="memory", sync=SyncPolicy(None), merge_commits=False)
    assert settings == replace(wanted, max_messages=9, on_full="drop_newest", prefetch=7)


def test_a_queue_of_dead_letters_has_the_values_of_the_table_whatever_its_rule_says() -> None:
    rule = (
        "{match: /queue/>, dead_letter: '/queue/dead.{name}', redeliver: {max: 3}, message_ttl: 1s, on_unacked: delete}"
    )
    found = rules(f"destinations: [{rule}]")
    own, dead = found.policy_for("/queue/a").settings, found.policy_for("/queue/dead./queue/a").settings
    assert dead == replace(own, redeliver_max=None, message_ttl_ns=None, on_unacked="requeue") != own


@pytest.mark.parametrize("key", SETTINGS, ids=lambda key: key.path)
def test_the_values_of_queues_of_their_own_kind_are_written_as_in_a_file(key: Key) -> None:
    for written in filter(None, (key.temporary, key.of_dead_letters)):
        assert key.type.show(key.type.read(written)) == written


def test_a_temporary_queue_is_kept_in_memory_whatever_the_rules_say() -> None:
    policy = rules("destinations: [{match: '#', create: deny}]").policy_for("/temp-queue/x")
    assert (policy.kind, policy.settings.store, policy.settings.create) == ("queue", "memory", True)


def test_a_policy_is_made_once(example: Rules) -> None:
    assert example.policy_for("/topic/weather.EWR") is example.policy_for("/topic/weather.EWR")


def test_the_memory_of_policies_is_bounded() -> None:
    few = rules("limits: {destinations: 10}")
    for number in range(100):
        few.policy_for(f"/queue/q{number}")
    assert len(few._policies) <= 10
    few.policy_for("/queue/known")
    for number in range(100):
        few.policy_for(f"/temp-queue/q@{number}")
    assert "/queue/known" in few._policies and not any(name.startswith("/temp-queue/") for name in few._policies)


# --- partitions -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "partitions"),
    [
        ("/topic/weather.EWR", ("weather-EWR",)),
        ("/topic/clicks.a", tuple(f"/topic/clicks.a-{number}" for number in range(4))),
        ("/topic/v12.a", ("v12-topic",)),
        ("/topic/v12.xa", ("v12-topicx",)),
    ],
)
def test_a_template_names_the_partitions(example: Rules, name: str, partitions: tuple[str, ...]) -> None:
    assert example.policy_for(name).partitions == partitions


def test_several_destinations_can_share_a_partition() -> None:
    shared = rules("destinations: [{match: /topic/>, partition: all-topics}]")
    assert shared.policy_for("/topic/a").partitions == shared.policy_for("/topic/b").partitions == ("all-topics",)


def test_a_name_that_gives_no_partition_is_refused() -> None:
    empty = rules("destinations: [{match: '/topic/a.#', partition: '{1}'}]")
    assert empty.policy_for("/topic/a.b").partitions == ("b",)
    with pytest.raises(ProtocolError) as caught:
        empty.policy_for("/topic/a")
    assert caught.value.code == "bad-destination"
    assert "the rule on line 1 makes '' of '/topic/a'" in caught.value.detail


def test_what_a_name_holds_is_never_taken_for_a_placeholder() -> None:
    assert rules("destinations: [{match: /topic/*, partition: 'p-{1}'}]").policy_for("/topic/{name}").partitions == (
        "p-{name}",
    )


# --- faults -----------------------------------------------------------------------------------------------------------

FAULTS = {
    "{match: /topic/pri*}": "destinations[0].match: a wildcard is a whole segment, got 'pri*' in '/topic/pri*'; "
    "write * for the segment, or use match_regex: with pri[^./]* for a part of it, pri\\* for the character itself",
    "{match: '/topic/a,/topic/c#.*'}": "match_regex: with c[^./]* for a part of it, c\\# for the character itself",
    "{match: /topic/a>b}": "match_regex: with a[^./]*b for a part of it, a>b for the character itself",
    "{match: /topic/**}": "got '**' in '/topic/**'; write * for the segment, or use match_regex: with [^./]* for",
    "{match: '/topic/>.a'}": "destinations[0].match: malformed pattern: > can only be the last segment",
    "{match: '/topic/a,'}": "destinations[0].match: malformed pattern: expected a pattern on each side of a comma",
    "{match_regex: '('}": "destinations[0].match_regex: expected a regular expression (missing ), ",
    "{match_regex: " + "x" * 1001 + "}": "destinations[0].match_regex: expected at most 1000 characters, got 1001",
    "{match: /topic/a.*, partition: 'w-{2}'}": "partition: expected {name}, {1} between braces, got '{2}' in 'w-{2}'",
    "{match: /topic/a, partition: 'w-{1}'}": "partition: expected {name} between braces, got '{1}' in 'w-{1}'",
    "{match: '/topic/a.*,/topic/b', partition: 'w-{1}'}": "partition: expected {name} between braces, got '{1}'",
    "{match: /topic/a, partition: 'w-{date}'}": "got '{date}' in 'w-{date}'",
    "{match: /topic/a, partition: 'w-{0}'}": "got '{0}'",
    "{match: /topic/a, partition: 'w-{'}": "got '{' in 'w-{'",
    "{match: /topic/a}, {match: /topic/a}": "destinations[1].match: '/topic/a' can never win: the rule on line 3 "
    "has the same pattern; put the keys of both into one rule",
    "{match: '#'}, {match: /topic/a}": "put it above that rule",
    "{match: a, partition: p, fsync: 1s}, {match: b, partition: p}": "radiator.yaml:3: destinations[1].partition: 'p' "
    "is also written by destinations[0] on line 3, with different settings (fsync)",
    "{match: a, partition: p, partitions: 2}, {match: b, partition: p-1, store: memory}": "(store)",
}


@pytest.mark.parametrize("text", FAULTS)
def test_a_rule_that_cannot_be_meant_is_refused(text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        rules(f"version: 1\ndestinations:\n  [{text}]\n")
    assert str(caught.value).startswith("radiator.yaml:3: destinations[")
    assert FAULTS[text] in str(caught.value)


def test_all_faults_of_the_rules_are_reported_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        rules("destinations:\n- match: a*\n- match: b\n- match_regex: '['\n")
    assert [line.split(" ")[0] for line in str(caught.value).splitlines()] == ["radiator.yaml:2:", "radiator.yaml:4:"]


def test_rules_that_share_a_partition_and_keep_it_alike_are_fine() -> None:
    rules("destinations: [{match: a, partition: p, prefetch: 2}, {match: b, partition: p}]")


def test_the_remedy_for_a_part_of_a_segment_works() -> None:
    some, itself = (
        rules(f"destinations: [{{match_regex: '{regex}'}}]") for regex in (r"/topic/pri[^./]*", r"/topic/pri\*")
    )
    assert [some.policy_for(name).rule_index for name in ("/topic/price", "/topic/pri*", "/topic/pri.a")] == [0, 0, -1]
    assert [itself.policy_for(name).rule_index for name in ("/topic/price", "/topic/pri*")] == [-1, 0]


# --- explaining -------------------------------------------------------------------------------------------------------


def test_steps_are_the_rules_tried_up_to_the_winner(example: Rules) -> None:
    steps = example.steps("/topic/weather.EWR.hourly")
    assert [(step.rule_index, step.line, step.matched) for step in steps] == [(0, 3, False), (1, 6, True)]
    assert steps[-1].why == "matches, {1}='EWR.hourly'"


def test_the_explanation_names_the_line_and_every_value(example: Rules) -> None:
    text = example.explain("/topic/weather.EWR")
    assert "=> radiator.yaml:3: /topic/weather.*: matches, {1}='EWR'" in text
    assert "fsync: 1s" in text
    assert "partition: weather-EWR" in text


def test_the_explanation_says_when_no_rule_matched() -> None:
    assert "no rule matches: the defaults apply" in Rules(load(None)).explain("/queue/a")
    assert "belongs to its connection" in Rules(load(None)).explain("/temp-queue/a")


def test_a_described_policy_reads_back_as_the_same_rule(example: Rules) -> None:
    for name in ("/topic/weather.EWR", "/topic/clicks.a", "/queue/closed", "/queue/open"):
        described = describe(example.policy_for(name))
        partitions = example.policy_for(name).partitions
        described["partition"] = partitions[0] if len(partitions) == 1 else partitions[0].removesuffix("-0")
        lines = [f"  - match: '{name}'"]
        for key, value in described.items():
            section, dot, inner = key.partition(".")
            if section == "on_full" and value == "reject":
                continue
            if not dot:
                lines.append(f"    {key}: '{value}'")
            elif f"    {section}:" in lines:
                lines.append(f"      {inner}: '{value}'")
            else:
                lines += [f"    {section}:", f"      {inner}: '{value}'"]
        again = rules("destinations:\n" + "\n".join(lines)).policy_for(name)
        assert describe(again) == describe(example.policy_for(name))


# --- dead letters in circles ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "circle"),
    [
        (
            "[{match: /queue/a, dead_letter: /queue/b}, {match: /queue/b, dead_letter: /queue/a}]",
            "/queue/a -> /queue/b -> /queue/a",
        ),
        (
            """[{match: /queue/*, dead_letter: /queue/b}, {match: /topic/t, dead_letter: /queue/c},
            {match: /other/a, kind: queue, dead_letter: /other/b},
            {match: /other/b, kind: queue, dead_letter: /other/c},
            {match: /other/c, kind: queue, dead_letter: /other/a}]""",
            "/other/a -> /other/b -> /other/c -> /other/a",
        ),
        (
            "[{match: /queue/p, fan_out: [/queue/a, /queue/b]}, {match: /queue/a, dead_letter: /queue/p}]",
            "/queue/p -> /queue/a -> /queue/p",
        ),
        (
            "[{match: '/queue/x.*', dead_letter: /queue/y.0}, {match: '/queue/y.*', dead_letter: /queue/x.1}]",
            "/queue/y.0 -> /queue/x.1 -> /queue/y.0",
        ),
        (
            """[{match: '/queue/x.>', dead_letter: '/queue/y.{1}'}, {match: '/queue/y.>', dead_letter: '/queue/x.{1}'},
            {match: /queue/z, dead_letter: /queue/x.1}]""",
            "/queue/x.1 -> /queue/y.1 -> /queue/x.1",
        ),
        (
            """[{match: '/queue/x.>', dead_letter: '/queue/y.{1}.1'}, {match: '/queue/z', dead_letter: /queue/x.1},
            {match: '/queue/y.>', dead_letter: '/queue/x.{1}.2'}]""",
            "/queue/z -> /queue/x.1 -> /queue/y.1.1 -> /queue/x.1.1.2 -> ...",
        ),
    ],
)
def test_dead_letters_that_would_go_in_a_circle_are_a_fault(text: str, circle: str) -> None:
    with pytest.raises(ConfigError) as caught:
        rules(f"destinations: {text}")
    (fault,) = str(caught.value).splitlines()
    assert "dead_letter: the dead-letter destinations form a cycle: " in fault
    ring = fault.partition("cycle: ")[2].split(" -> ")
    expected = circle.split(" -> ")
    assert ring == expected or (ring[0] == ring[-1] and sorted(ring[1:]) == sorted(expected[1:]))


@pytest.mark.parametrize(
    "text",
    [
        "[{match: /queue/a, dead_letter: /queue/b}, {match: /queue/b, dead_letter: /queue/c}]",
        "[{match: /queue/>, dead_letter: '/queue/dead.{name}'}]",
        "[{match: /queue/a, dead_letter: /queue/dead}, {match: /queue/b, dead_letter: /queue/dead}]",
        "[{match: /queue/p, fan_out: [/queue/a, /queue/b], dead_letter: /queue/a}]",
    ],
)
def test_dead_letters_that_come_to_rest_are_none(text: str) -> None:
    rules(f"destinations: {text}")


def test_destinations_of_one_rule_share_its_settings_and_its_dead_letter_queues_share_theirs() -> None:
    some = rules("destinations: [{match: '/queue/>', dead_letter: '/queue/dead.{name}', redeliver: {max: 3}}]")
    ones, others, letters, more = map(some.policy_for, ("/queue/a", "/queue/b", "/queue/dead.a", "/queue/dead.b"))
    assert ones.settings is others.settings is some.config.rules[0].settings
    assert letters.settings is more.settings
    assert (ones.settings.redeliver_max, letters.settings.redeliver_max) == (3, None)
