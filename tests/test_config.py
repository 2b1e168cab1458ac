"""The operator's file: what it comes down to, and that every way of getting it wrong is told with its line."""

from __future__ import annotations

import ast
import re
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from radiator import limits
from radiator.config import Config, HeartBeat, Listen, Tls, load, load_text, parse_listen, schema, settings
from radiator.config.keys import Key
from radiator.config.settings import LIMITS, RULE_ONLY, SETTINGS
from radiator.config.units import (
    format_duration_ns,
    format_size,
    format_time_of_day,
    parse_duration_ns,
    parse_size,
    parse_time_of_day,
)
from radiator.errors import ConfigError

SECOND = 1_000_000_000
DAY = 86_400 * SECOND


def faults(text: str, environ: dict[str, str] | None = None) -> list[str]:
    """The lines of the ConfigError that ``text`` deserves."""
    with pytest.raises(ConfigError) as caught:
        load_text(text, "radiator.yaml", environ or {})
    return str(caught.value).splitlines()


def fault(text: str, environ: dict[str, str] | None = None) -> str:
    lines = faults(text, environ)
    assert len(lines) == 1, lines
    return lines[0]


# --- without a file ---------------------------------------------------------------------------------------------------


def test_without_a_file_it_listens_on_loopback_and_syncs_always() -> None:
    config = load(None)
    assert config.source is None
    assert config.data_dir == "./data"
    assert [str(listen) for listen in config.listen] == ["stomp://127.0.0.1:61613"]
    assert config.rules == ()
    assert config.defaults.settings.store == "file"
    assert config.defaults.settings.sync.interval_ns == 0
    assert config.defaults.partition == "{name}"
    assert config.defaults.settings.prefetch == 1
    assert config.defaults.settings.create is True


def test_defaults_are_those_of_the_limits_module() -> None:
    config = load(None)
    assert config.limits.message == limits.FRAME_BODY_BYTES_MAX
    assert config.limits.headers == limits.HEADER_BLOCK_BYTES_MAX
    assert config.limits.header_count == limits.HEADER_COUNT_MAX
    assert config.limits.connections == limits.CONNECTIONS_MAX
    assert config.limits.connect_timeout_seconds == limits.CONNECT_TIMEOUT_SECONDS
    assert config.limits.outbox == limits.OUTBOX_BYTES_MAX
    assert config.limits.in_flight == limits.IN_FLIGHT_MAX
    assert config.limits.subscriptions == limits.SUBSCRIPTIONS_PER_SESSION_MAX
    assert config.limits.transactions == limits.TRANSACTIONS_PER_SESSION_MAX
    assert config.limits.transaction == limits.TRANSACTION_BYTES_MAX
    assert config.limits.destinations == limits.DESTINATIONS_MAX
    assert config.limits.tail == limits.TAIL_BYTES_MAX
    assert config.defaults.settings.segment_bytes == limits.SEGMENT_BYTES


@pytest.mark.parametrize("text", ["", "\n", "# nothing but a comment\n", "---\n", "{}\n", "version: 1\n"])
def test_an_empty_file_is_the_defaults(text: str) -> None:
    assert load_text(text) == load(None)


# --- what a file comes down to ----------------------------------------------------------------------------------------

FULL = """\
version: 1
data_dir: /srv/radiator
listen:
  - stomp://0.0.0.0:61613
  - stomp://[::1]
  - unix:./run/radiator.sock
limits: {message: 1MiB, connections: 500, connect_timeout: 1500ms, outbox: 64KiB, in_flight: 100, subscriptions: 7,
  transactions: 3, transaction: 2MiB, destinations: 50}
heart_beat: {send: 5s, expect: none, grace: 3}
disk: {min_free: none}
defaults:
  fsync: 50ms
  segment: {size: 64MiB, roll_at: 00:00}
  retention: {age: 30d, size: 20GiB}
destinations:
  - match: /topic/weather.*
    partition: weather-{1}
    fsync: never
    retention: {size: none}
  - match_regex: /queue/(a|b)
    kind: topic
    partitions: 4
    partition_by: header:user
    prefetch: 10
    create: deny
    segment: {roll_at: none}
  - match: /topic/live.>
    store: memory
    retention: {count: 1_000}
    on_full: drop_oldest
  - match: /queue/bounded
    on_full: drop_newest
    max_bytes: 1GiB
"""


@pytest.fixture
def full() -> Config:
    return load_text(FULL, "radiator.yaml", {})


def test_the_top_level_comes_down_to_plain_values(full: Config) -> None:
    assert full.source == "radiator.yaml"
    assert full.data_dir == "/srv/radiator"
    assert full.listen == (
        Listen(scheme="stomp", host="0.0.0.0", port=61613),
        Listen(scheme="stomp", host="::1", port=61613),
        Listen(scheme="unix", path="./run/radiator.sock"),
    )
    assert (full.limits.message, full.limits.connections) == (1 << 20, 500)
    assert full.limits.connect_timeout_seconds == 1.5
    assert (full.limits.outbox, full.limits.in_flight, full.limits.subscriptions) == (64 << 10, 100, 7)
    assert (full.limits.transactions, full.limits.transaction, full.limits.destinations) == (3, 2 << 20, 50)
    assert full.heart_beat == HeartBeat(5_000, 0, 3.0)
    assert full.disk_min_free_bytes == 0


def test_a_rule_has_the_defaults_under_it_key_by_key(full: Config) -> None:
    weather, regex, live, _ = full.rules
    assert weather.match == "/topic/weather.*"
    assert weather.settings.sync.interval_ns is None
    assert weather.settings.retention_age_ns == 30 * DAY  # from defaults:, though the rule has a retention: of its own
    assert weather.settings.retention_bytes is None  # switched off by the rule
    assert weather.settings.roll_at_seconds == 0
    assert regex.settings.sync.interval_ns == 50_000_000
    assert regex.settings.segment_bytes == 64 << 20
    assert regex.settings.roll_at_seconds is None
    assert live.settings.retention_count == 1_000


def test_a_rule_has_its_line(full: Config) -> None:
    assert [rule.line for rule in full.rules] == [16, 20, 27, 31]


def test_a_rules_own_keys_are_read(full: Config) -> None:
    weather, regex, live, bounded = full.rules
    assert weather.partition == "weather-{1}"
    assert (regex.match, regex.match_regex, regex.kind) == (None, "/queue/(a|b)", "topic")
    assert (regex.partitions, regex.partition_by) == (4, "user")
    assert (regex.settings.prefetch, regex.settings.create) == (10, False)
    assert (live.settings.store, live.settings.on_full) == ("memory", "drop_oldest")
    limited = bounded.settings
    assert (limited.on_full, limited.max_bytes, limited.max_messages) == ("drop_newest", 1 << 30, None)


def test_a_config_can_be_written_as_json_for_the_command_line(full: Config) -> None:
    assert msgspec.json.decode(msgspec.json.encode(full))["rules"][0]["partition"] == "weather-{1}"


def test_aliases_save_typing() -> None:
    config = load_text("destinations:\n  - {match: a, retention: &keep {age: 1d}}\n  - {match: b, retention: *keep}\n")
    assert [rule.settings.retention_age_ns for rule in config.rules] == [DAY, DAY]


def test_aliases_of_aliases_take_no_time() -> None:
    lines = "".join(f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 9)}]\n" for level in range(1, 40))
    with pytest.raises(ConfigError, match="a39: unknown key"):
        load_text(f"a0: &a0 x\n{lines}")


def test_a_byte_order_mark_is_no_fault(tmp_path: Path) -> None:
    path = tmp_path / "radiator.yaml"
    path.write_bytes(b"\xef\xbb\xbfdata_dir: x\n")
    assert load(path).data_dir == "x"


# --- faults -----------------------------------------------------------------------------------------------------------

ON_FULL_OF_A_TOPIC = (
    "a topic is never full; for a topic only drop_oldest is allowed, with store: memory and a retention:"
)

FAULTS = {
    # unknown, misplaced, repeated
    "data_dri: x": "radiator.yaml:1: data_dri: unknown key; did you mean data_dir?",
    "limits: {mesage: 1MiB}": "radiator.yaml:1: limits.mesage: unknown key; did you mean message?",
    "data-dir: x": "radiator.yaml:1: data-dir: unknown key; did you mean data_dir?",
    "fsync: always": "radiator.yaml:1: fsync: unknown key; it belongs under defaults: or in a rule of destinations:",
    "data_dir: a\n\ndata_dir: b": "radiator.yaml:3: duplicate key 'data_dir', first on line 1",
    "limits: {message: 1MiB, message: 2MiB}": "radiator.yaml:1: duplicate key 'message', first on line 1",
    "defaults: {match: a}": "radiator.yaml:1: defaults.match: unknown key; the keys here are",
    "<<: {data_dir: a}": "radiator.yaml:1: merge keys (<<) are not supported here",
    "{a: b}: c": "radiator.yaml:1: a key that is not a word",
    # units
    "limits: {message: 4MB}": "MB is ambiguous (1000 or 1024): write MiB, got '4MB'",
    "limits: {message: 4M}": "expected a size such as 64KiB, 4MiB or 1GiB; write MiB, got '4M'",
    "limits: {message: 4194304}": "add a unit, one of B KiB MiB GiB TiB, got '4194304'",
    "limits: {message: 1.00001KiB}": "1.00001KiB is not a whole number of bytes",
    "limits: {message: -4MiB}": "expected a size such as 64KiB, 4MiB or 1GiB, got '-4MiB'",
    "limits: {message: 1GiB}": "limits.message: expected 1B to 8MiB, got '1GiB'",
    "limits: {transaction: 17MiB}": "limits.transaction: expected 1KiB to 16MiB, got '17MiB'",
    "limits: {outbox: 0B}": "limits.outbox: expected 4KiB to 1GiB, got '0B'",
    "limits: {destinations: none}": "limits.destinations: expected a whole number, 1 to 1000000, got 'none'",
    "limits: {connect_timeout: 10}": "expected a duration such as 50ms, 10s or 1h30m; add a unit, one of ms s m h d",
    "limits: {connect_timeout: 10sec}": "write s, got '10sec'",
    "limits: {connect_timeout: 5m1h}": "the largest unit comes first, and each only once, got '5m1h'",
    "limits: {connect_timeout: 30d}": "expected 100ms to 1h, got '30d'",
    "limits: {connections: 1e3}": "expected a whole number, 1 to 1000000, got '1e3'",
    "limits: {connections: 0}": "expected a whole number, 1 to 1000000, got '0'",
    "limits: {connections: 010}": "expected a whole number, 1 to 1000000, got '010'",
    "heart_beat: {grace: 0.5}": "heart_beat.grace: expected a number, 1.0 to 100.0, got '0.5'",
    "defaults: {segment: {roll_at: 24:00}}": 'expected none or a time of day in UTC, "00:00" to "23:59"',
    "defaults: {segment: {size: 1KiB}}": "defaults.segment.size: expected 64KiB to 2GiB, got '1KiB'",
    "defaults: {fsync: 2h}": "defaults.fsync: expected always, never or an interval of 1ms to 1h, got '2h'",
    # what YAML makes of it
    "defaults: {fsync: off}": "YAML reads off as a boolean, write never, got 'off'",
    "defaults: {fsync: yes}": "YAML reads yes as a boolean, write always, got 'yes'",
    "defaults: {create: no}": "defaults.create: expected allow or deny; YAML reads no as a boolean, write deny",
    "defaults: {retention: {force: yes}}": "defaults.retention.force: expected true or false, got 'yes'",
    "defaults: {retention: {acked: drop}}": "defaults.retention.acked: expected reclaim or keep, got 'drop'",
    "defaults: {compress: gzip}": "defaults.compress: expected none or zstd, got 'gzip'",
    "defaults: {merge_commits: yes}": "defaults.merge_commits: expected true or false, got 'yes'",
    "defaults: {compact_by: key}": "expected none or header:NAME, the header whose value is the key of a message",
    "destinations: [{match: /queue/a, compact_by: header:k}]": "is for topics; for the",
    "destinations: [{match: a, store: memory, compress: zstd}]": "has no effect with store: memory; leave it out",
    "destinations: [{match: a, store: memory, merge_commits: false}]": "has no effect with store: memory; leave it out",
    "destinations: [{match: a, store: memory, retention: {force: true}}]": "destinations[0].retention.force: has no",
    "data_dir: on": "YAML reads on as a boolean, quote it to use the word",
    "data_dir:": "data_dir: expected a value (none switches an optional setting off), got nothing",
    "data_dir: ~": "data_dir: expected a value (none switches an optional setting off), got '~'",
    "data_dir: |\n  a\n": "data_dir: expected a value on one line",
    "data_dir: [a]": "data_dir: expected one value, got a list",
    "data_dir: !!python/name:os.system x": "the tag !!python/name:os.system is not supported here",
    "limits: 3": "limits: expected {message: ..., headers: ...,",
    "defaults: {retention: 30d}": "expected {age: ..., size: ..., count: ..., acked: ..., force: ..., wait_for: ...}",
    "defaults: {retention: {}}": "force: ..., wait_for: ...}, got an empty mapping",
    "defaults: [a]": "defaults: expected keys such as store:, got a list",
    "- a": "radiator.yaml:1: expected keys such as data_dir: or destinations:, got a list",
    "just words": "radiator.yaml:1: expected keys such as data_dir: or destinations:, got 'just words'",
    "a: [1, 2": "radiator.yaml:1: expected ',' or ']'",
    "\tdata_dir: x": "radiator.yaml:1: a tab: YAML needs spaces for indentation",
    "a: 1\n---\nb: 2": "radiator.yaml:2: a second document (---)",
    "a: \n\0": "radiator.yaml:2: expected text, got the character U+0000",
    'data_dir: "\\ud800"': "radiator.yaml:1: expected text, got the half character U+D800",
    '"\\ud800": 1': "radiator.yaml:1: expected text, got the half character U+D800",
    "[" * 5_000: "radiator.yaml:1: nested too deeply",
    "&a [*a]": "radiator.yaml:1: an alias inside its own anchor",
    # what this version does not offer
    "admin: 127.0.0.1:8161": "admin: expected none or http://HOST:PORT such as http://127.0.0.1:8161, got",
    "admin: http://h:65536": "admin: expected none or http://HOST:PORT",
    "admin: https://h:1": "admin: expected none or http://HOST:PORT",
    "auth: {user_file: u}": "radiator.yaml:1: auth.user_file: unknown key; did you mean users_file?",
    "auth: {anonymous: no}": "radiator.yaml:1: auth.anonymous: expected loopback, never or always; YAML reads no as "
    "a boolean, write never, got 'no'",
    "auth: {plugin: 'a b'}": "radiator.yaml:1: auth.plugin: expected none or the name of an entry point of the group "
    "radiator.auth, or MODULE:NAME, got 'a b'",
    "archive: /topic/a": "archive: expected a list of rules such as - {match: /topic/>, to: /topic/all}, got '/topic/",
    "destinations: [{match: a, redeliver: {delay: fast}}]": "redeliver.delay: expected auto or a duration",
    "destinations: [{match: a, redeliver: {max: 0}}]": "redeliver.max: expected none or a whole number, 1 to 1000000",
    "destinations: [{match: a, redeliver: {delay: 10m, max_delay: 1m}}]": "redeliver: expected a max_delay that is",
    "version: 2": "version: expected 1, got '2'",
    # listen
    "listen: stomp://127.0.0.1:1": "listen: expected a list such as - stomp://127.0.0.1:61613, got 'stomp://127.0.0.1:1'",
    "listen: []": "listen: expected a list such as",
    "listen: [stomp://h:1, stomp://h:1]": "listen[1]: stomp://h:1 is in the list twice",
    "listen: [stomp://h:65536]": "listen[0]: expected a port of 0 to 65535",
    "listen: ['http://h:1']": "listen[0]: expected HOST:PORT, stomp://HOST:PORT, stomp+tls://HOST:PORT,",
    "listen: [stomp://h:1/x]": "listen[0]: expected no path: only ws:// and wss:// have one, got",
    "listen: [stomp+tls://h]": "listen[0]: stomp+tls:// needs a certificate: expected tls: {cert: FILE, key: FILE}",
    "listen: [{tls: {cert: a}}]": "listen[0]: expected url: too",
    "listen: [{url: stomp://h, tls: {cert: a}}]": "listen[0].tls: stomp: has no TLS; write stomp+tls or wss",
    "listen: [{url: stomp://h, origins: any}]": "listen[0].origins: only ws:// and wss:// have this key",
    "listen: [{url: stomp://h, deflate: true}]": "listen[0].deflate: only ws:// and wss:// have this key",
    "listen: [{url: ws://h, deflate: yes}]": "listen[0].deflate: expected true or false",
    "listen: [{url: ws://h, origins: [app.example]}]": "listen[0].origins: expected the origin of a web page such as",
    "listen: [{url: ws://h, origins: some}]": "listen[0].origins: expected own, any, or a list such as",
    "listen: [{url: ws://h, orgins: any}]": "listen[0].orgins: unknown key; did you mean origins?",
    "listen: [ws://h/a, {url: ws://h/a, origins: any}]": "listen[1]: ws://h:15674/a is in the list twice",
    "tls: some.pem": "tls: expected {cert: ..., key: ..., client_ca: ...}, got 'some.pem'",
    # rules
    "port: 61613": "port: unknown key; did you mean listen?",
    "destinations: [{match: a, max_length: 3}]": "max_length: unknown key; did you mean max_messages?",
    "destinations: [{match: a, max_messages: 10k}]": "expected none or a whole number, 1 or more, got '10k'",
    "destinations: [{match: a, on_full: drop_head}]": "expected reject, block, drop_oldest or drop_newest, got",
    "destinations: {match: a}": "destinations: expected a list of rules such as - match: /topic/>, got a mapping",
    "destinations: [a]": "destinations[0]: expected keys such as match:, got 'a'",
    "destinations: [{store: file}]": "destinations[0]: expected one of match: and match_regex:",
    "destinations: [{match: a, match_regex: b}]": "destinations[0]: expected one of match: and match_regex:",
    "destinations:\n- match: #": "radiator.yaml:2: destinations[0].match: expected a value (none switches an "
    'optional setting off); # begins a comment unless quoted: "#", got nothing',
    "destinations:\n- match: *": 'a text that begins with * must be quoted, as in match: "*"',
    "destinations:\n- match: >\n": 'a text that begins with > or | must be quoted: ">"',
    "destinations: [{match: a, partition: {1}}]": "a text that begins with { or [ must be quoted, got a mapping",
    "destinations: [{match: a, store: memory, fsync: 1s}]": "destinations[0].fsync: has no effect with store: memory",
    "destinations: [{match: a, on_full: reject}]": "expected max_messages: or max_bytes: too; without",
    "destinations: [{match: a, on_full: drop_oldest, store: memory, retention: {count: 1}}]": "expected max_messages:",
    "destinations: [{match: /topic/a, on_full: drop_oldest, retention: {count: 1}}]": ON_FULL_OF_A_TOPIC,
    "destinations: [{match: /topic/a, on_full: drop_oldest, store: memory}]": ON_FULL_OF_A_TOPIC,
    "destinations: [{match: a, on_unacked: drop}]": "expected requeue, dead_letter or delete, got 'drop'",
    "destinations: [{match: a, on_unacked: dead_letter}]": "on_unacked: expected the name of a queue in dead_letter:",
    "defaults: {on_unacked: dead_letter}": "defaults.on_unacked: expected the name of a queue in",
    "{defaults: {on_unacked: dead_letter, dead_letter: /queue/d}, destinations: [{match: a, dead_letter: none}]}": (
        "destinations[0].dead_letter: expected the name of a queue in dead_letter:"
    ),
    "destinations: [{match: /topic/a, on_full: reject, store: memory, retention: {count: 1}}]": ON_FULL_OF_A_TOPIC,
    "defaults: {max_messages: 1}\ndestinations: [{match: /topic/a, on_full: drop_newest}]": ON_FULL_OF_A_TOPIC,
    "destinations: [{match: a, on_full: block}]": "expected max_messages: or max_bytes: too; without",
    "destinations: [{match: a, rate_limit: {messages: 5 apples}}]": "expected none or messages a second such as 100",
    "destinations: [{match: a, rate_limit: {messages: 0/s}}]": "expected none or messages a second such as 100",
    "destinations: [{match: a, max_bytes: 1GiB, on_full: spill}]": "or drop_newest, got 'spill'",
    "destinations: [{match: '/topic/a,/topic/b.*', max_bytes: 1GiB}]": "max_bytes: limits a queue; for a topic use",
    "destinations: [{match: a, kind: topic, max_messages: 3}]": "max_messages: limits a queue; for a topic use",
    "destinations: [{match: a, partition_by: user}]": "expected none or header:NAME",
    "limits: {in_flight: 9}\ndestinations: [{match: a, prefetch: 10}]": "destinations[0].prefetch: expected at most",
    "destinations: [{match: a, prefetch: 0}]": "prefetch: expected none or a whole number, 1 to 1000000, got '0'",
    "limits: {in_flight: 9}\ndefaults: {prefetch: 10}": "radiator.yaml:2: defaults.prefetch: expected at most "
    "limits.in_flight, which is 9, got 10",
    "destinations: [{match: a, prefetch: 70_000}]": "prefetch: expected at most limits.in_flight, which is 65536, "
    "got 70000",
    "destinations: [{match: a, kind: stack}]": "destinations[0].kind: expected queue or topic, got 'stack'",
    "destinations: [{match: a, retentoin: 1}]": "destinations[0].retentoin: unknown key; did you mean retention",
}


@pytest.mark.parametrize("text", FAULTS)
def test_a_fault_is_reported_with_its_place_and_remedy(text: str) -> None:
    told = fault(text)
    assert told.startswith("radiator.yaml:")
    assert FAULTS[text] in told


def test_all_faults_are_reported_at_once_in_the_order_of_the_file() -> None:
    text = "data_dri: x\nlimits:\n  message: 4MB\ndestinations:\n  - match: a\n    prefech: 3\n"
    assert [line.split(" ")[0] for line in faults(text)] == ["radiator.yaml:1:", "radiator.yaml:3:", "radiator.yaml:6:"]


def test_a_missing_file_is_named() -> None:
    with pytest.raises(ConfigError, match=r"^/nowhere/radiator\.yaml: cannot read the configuration: No such file"):
        load("/nowhere/radiator.yaml")


def test_a_directory_is_not_a_configuration(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot read the configuration"):
        load(tmp_path)


def test_bytes_that_are_not_utf8_are_reported_by_line(tmp_path: Path) -> None:
    path = tmp_path / "radiator.yaml"
    path.write_bytes(b"data_dir: x\n# caf\xe9\n")
    with pytest.raises(ConfigError, match=r"radiator\.yaml:2: expected UTF-8, got byte 0xe9"):
        load(path)


def test_a_huge_file_is_refused_unread(tmp_path: Path) -> None:
    path = tmp_path / "radiator.yaml"
    with path.open("wb") as file:
        file.truncate(1 << 30)
    with pytest.raises(ConfigError, match="at most 4MiB"):
        load(path)


@given(st.text(alphabet=st.sampled_from("abd_:{}[]-,*&!>|'\"#%@~ \n\tversionlimts1")) | st.text())
def test_no_text_raises_anything_but_a_config_error(text: str) -> None:
    try:
        load_text(text, "radiator.yaml", {})
    except ConfigError as error:
        assert str(error).startswith("radiator.yaml:")


# --- environment ------------------------------------------------------------------------------------------------------


def test_a_variable_of_the_environment_is_replaced_by_its_value() -> None:
    config = load_text("data_dir: ${BASE}/data\nlimits: {message: '${SIZE}'}", None, {"BASE": "/srv", "SIZE": "1MiB"})
    assert (config.data_dir, config.limits.message) == ("/srv/data", 1 << 20)


def test_a_missing_variable_is_named() -> None:
    assert fault("\ndata_dir: ${BASE}/data") == (
        "radiator.yaml:2: data_dir: expected the environment variable BASE to be set, got '${BASE}/data'"
    )


def test_a_doubled_dollar_is_no_variable() -> None:
    assert load_text("data_dir: a$${b}", None, {}).data_dir == "a${b}"


def test_the_value_of_a_variable_is_never_shown() -> None:
    assert "hunter2" not in fault("limits: {message: '${SECRET}'}", {"SECRET": "hunter2"})


# --- listen -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "listen"),
    [
        ("stomp://127.0.0.1:61613", Listen(scheme="stomp", host="127.0.0.1", port=61613)),
        ("127.0.0.1:61614", Listen(scheme="stomp", host="127.0.0.1", port=61614)),
        ("*:0", Listen(scheme="stomp", host="0.0.0.0", port=0)),
        ("[::1]:7", Listen(scheme="stomp", host="::1", port=7)),
        ("stomp://localhost", Listen(scheme="stomp", host="localhost", port=61613)),
        ("stomp://*:0", Listen(scheme="stomp", host="0.0.0.0", port=0)),
        ("stomp+tls://h", Listen(scheme="stomp+tls", host="h", port=61614)),
        ("stomp+ssl://h:7", Listen(scheme="stomp+tls", host="h", port=7)),
        ("ws://h", Listen(scheme="ws", host="h", port=15674)),
        ("wss://[::1]:7/stomp/x", Listen(scheme="wss", host="::1", port=7, path="/stomp/x")),
        ("stomp://[::1]:7", Listen(scheme="stomp", host="::1", port=7)),
        ("unix:run/radiator.sock", Listen(scheme="unix", path="run/radiator.sock")),
        ("unix:/run/radiator.sock", Listen(scheme="unix", path="/run/radiator.sock")),
        ("unix:///run/radiator.sock", Listen(scheme="unix", path="/run/radiator.sock")),
    ],
)
def test_a_listen_url_is_read_and_written(url: str, listen: Listen) -> None:
    assert parse_listen(url) == listen
    assert parse_listen(str(listen)) == listen


@pytest.mark.parametrize(
    "url",
    [
        "",
        "stomp:",
        "stomp://",
        "stomp://:1",
        "stomp:61613",
        "wss:15673",
        "localhost",
        "unix:",
        "unix://host/x",
        "61613",
        "wss://",
        "wss://h:1/a b",
        "stomp+tsl://h",
    ],
)
def test_what_is_no_listen_url_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match=r"expected HOST:PORT, stomp://HOST:PORT, .* or unix:PATH, got"):
        parse_listen(url)


# --- units ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [("0B", 0), ("1B", 1), ("64KiB", 65_536), ("1.5MiB", 1_572_864), ("4 MiB", 4 << 20), ("2TiB", 2 << 40)],
)
def test_a_size_is_bytes(text: str, size_bytes: int) -> None:
    assert parse_size(text) == size_bytes


@pytest.mark.parametrize(
    ("text", "duration_ns"),
    [("50ms", 50_000_000), ("1.5s", 1_500_000_000), ("1h30m", 5_400 * SECOND), ("1d2h3m4s5ms", 93_784_005_000_000)],
)
def test_a_duration_is_nanoseconds(text: str, duration_ns: int) -> None:
    assert parse_duration_ns(text) == duration_ns


@pytest.mark.parametrize("text", ["", "s", "1", "1S", "1 s", "1m1m", "1s1m", "-1s", "1h30", "٣s", "9" * 30 + "s"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="expected a duration such as"):
        parse_duration_ns(text)


@pytest.mark.parametrize("text", ["", "MiB", "1", "1mib", "1 KB", "1  KiB", "١KiB", "1KiB1B", "9" * 30 + "B", "1e3B"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="expected a size such as"):
        parse_size(text)


@given(st.integers(0, 1 << 60))
def test_a_written_size_reads_back(size_bytes: int) -> None:
    assert parse_size(format_size(size_bytes)) == size_bytes


@given(st.integers(0, 10**7).map(lambda ms: ms * 1_000_000))
def test_a_written_duration_reads_back(duration_ns: int) -> None:
    assert parse_duration_ns(format_duration_ns(duration_ns)) == duration_ns


@given(st.integers(0, 1439).map(lambda minutes: minutes * 60))
def test_a_written_time_of_day_reads_back(seconds: int) -> None:
    assert parse_time_of_day(format_time_of_day(seconds)) == seconds


# --- the table itself -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", [*schema.TOP, *schema.RULE], ids=lambda key: key.path)
def test_a_default_is_written_as_a_user_would(key: Key) -> None:
    if key.default:
        key.type.read(key.default)


@pytest.mark.parametrize("key", schema.RULE, ids=lambda key: key.path)
def test_a_value_that_is_shown_reads_back(key: Key) -> None:
    defaults = load(None).defaults
    owner = defaults.settings if key in SETTINGS else defaults
    value = getattr(owner, key.field)
    if value not in (None, ()) or key.default:
        assert key.type.read(key.show(owner)) == value


def test_every_setting_has_one_line_of_documentation() -> None:
    module = ast.parse(Path(settings.__file__).read_text("utf-8"))
    for table, keys in (("Settings", SETTINGS), ("Rule", RULE_ONLY), ("LimitsConfig", LIMITS)):
        (body,) = (node.body for node in module.body if isinstance(node, ast.ClassDef) and node.name == table)
        documented = {
            field.target.id
            for field, text in pairwise(body)
            if isinstance(field, ast.AnnAssign)
            and isinstance(field.target, ast.Name)
            and isinstance(text, ast.Expr)
            and re.fullmatch(r"[A-Z].*\.", ast.literal_eval(text.value))
        }
        assert {key.field for key in keys} <= documented


def test_a_listener_has_the_certificate_of_all_unless_it_has_its_own() -> None:
    config = load_text(
        "tls: {cert: a.pem, key: a.key, client_ca: ca.pem}\n"
        "listen:\n"
        "  - stomp://h:1\n"
        "  - stomp+tls://h:2\n"
        "  - {url: wss://h:3/x, tls: {cert: b.pem, key: b.key}, origins: ['https://App.example:443', 'http://x:80']}\n"
        "  - {url: stomp+tls://h:4, tls: {client_ca: none}}\n"
        "  - {url: ws://h:5, origins: any, deflate: true}\n"
    )
    plain, default, own, open_, any_origin = config.listen
    assert plain.tls is None and config.tls == default.tls == Tls(cert="a.pem", key="a.key", client_ca="ca.pem")
    assert own.tls == Tls(cert="b.pem", key="b.key", client_ca="ca.pem")
    assert own.origins == ("https://app.example", "http://x")
    assert open_.tls == Tls(cert="a.pem", key="a.key")
    assert any_origin.origins == "any" and any_origin.deflate and not own.deflate


def test_a_key_may_stand_in_the_file_of_its_certificate() -> None:
    assert load_text("tls: {cert: both.pem}").tls == Tls(cert="both.pem", key="both.pem")


@pytest.mark.parametrize(
    ("rule", "key"),
    [
        ("{match: /queue/a, priority: true, partitions: 4}", "partitions"),
        ("{match: /queue/a, priority: true, partition_by: 'header:x'}", "partition_by"),
        ("{match: /queue/a, priority: true, fan_out: [/queue/b]}", "fan_out"),
        ("{match: /topic/a, kind: topic, priority: true}", "priority"),
        ("{match: /queue/a, priority: high}", "priority"),
    ],
)
def test_priorities_are_a_queues_and_choose_its_log_alone(rule: str, key: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_text(f"destinations: [{rule}]", "radiator.yaml", {})
    assert f"destinations[0].{key}: " in str(caught.value)


def test_the_names_of_other_brokers_lead_to_keys_and_are_none_themselves() -> None:
    keys = {key.section for key in (*schema.TOP, *schema.RULE)} | set(schema.OTHERS)
    assert set(schema.ELSEWHERE.values()) <= keys
    assert not set(schema.ELSEWHERE) & keys


def test_no_constructor_copies_a_setting_that_can_change_at_run_time() -> None:
    """A copy would keep the old value after a reload."""
    fields = {key.field for key in SETTINGS if key.applies.at_run_time}
    copied = set()
    for path in (Path(settings.__file__).parents[1]).glob("**/*.py"):
        for owner in ast.walk(ast.parse(path.read_text("utf-8"))):
            for function in owner.body if isinstance(owner, ast.ClassDef) else ():
                if isinstance(function, ast.FunctionDef) and function.name == "__init__":
                    nodes = [node for node in ast.walk(function) if isinstance(node, ast.Attribute)]
                    read = {node.attr for node in nodes if ast.unparse(node.value).split(".")[-1] == "settings"}
                    copied |= {f"{owner.name}: {field}" for field in fields & read}
    plans = {"Plan: max_messages", "Plan: max_bytes", "Plan: rate_messages", "Plan: dedup_window_ns"}  # made again
    others = {"MemoryPartition: retention_bytes", "SegmentJob: compress"}  # ``configure`` sets it again; one rewrite
    others.add("Rules: dead_letter")  # made again
    assert copied == plans | others
