"""radiator check-config refuses what a start would refuse, as far as that shows without starting."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from argon2 import PasswordHasher

from radiator.cli.main import run
from radiator.config import load
from radiator.server.hooks import register_schemas
from radiator.server.passwords import make_hash
from radiator.storage.files import FileSystem


class Done(NamedTuple):
    """What a command has printed and returned."""

    returncode: int
    stdout: str
    stderr: str


Check = Callable[..., Done]


@pytest.fixture
def check(capsys: pytest.CaptureFixture[str]) -> Check:
    """``check(path, text, *options)`` writes a configuration and checks it."""

    def write_and_check(path: Path, text: str, *options: str) -> Done:
        path.write_text(text)
        return Done(run(["check-config", str(path), *options]), *capsys.readouterr())

    return write_and_check


@pytest.mark.parametrize(
    ("listen", "told"),
    [
        ("unix:/tmp/" + "x" * 120, "expected a path of at most 107 bytes"),
        ("stomp://no.such.host.invalid:61613", "the host is unknown"),
    ],
)
def test_an_address_that_cannot_be_bound_is_refused(check: Check, tmp_path: Path, listen: str, told: str) -> None:
    done = check(tmp_path / "c.yaml", f"listen: ['{listen}']\n")
    assert done.returncode == 2, done.stdout
    assert told in done.stderr and listen in done.stderr


def test_a_pattern_that_is_probably_mistyped_is_a_warning(check: Check, tmp_path: Path) -> None:
    rules = "destinations: [{match: queue/a}, {match: '/topics/b,/topic/c'}, {match: '#'}]\n"
    done = check(tmp_path / "c.yaml", rules, "--json")
    slipped, plural = json.loads(done.stdout)["warnings"]
    assert slipped.startswith(f"{tmp_path}/c.yaml:1: match: queue/a is another destination than /queue/a")
    assert "/topics/b is another destination than /topic/b" in plural


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("tests.nowhere:x", "ModuleNotFoundError: No module named 'tests.nowhere'; expected a module that every"),
        ("os:nothing", "has no attribute 'nothing'"),
        ("os:system", "expected a function marked with @decoder"),
    ],
)
def test_a_decoder_that_cannot_be_imported_here_is_a_warning_because_the_broker_needs_none(
    check: Check, tmp_path: Path, name: str, told: str
) -> None:
    (tmp_path / "s.json").write_text('{"properties": {"a": {"type": "string"}}}')
    rules = f"[{{match: /a}}, {{match: /b, schema: '{tmp_path}/s.json', decoder: '{name}'}}]"
    done = check(tmp_path / "c.yaml", f"destinations: {rules}\n", "--json")
    (warning,) = json.loads(done.stdout)["warnings"]
    assert done.returncode == 0
    assert warning.startswith(f"{tmp_path}/c.yaml:1: destinations[1].decoder: {name}: ") and told in warning
    fine = rules.replace(name, "tests.columns.test_typed:marked")
    assert json.loads(check(tmp_path / "c.yaml", f"destinations: {fine}\n", "--json").stdout)["warnings"] == []


@pytest.mark.parametrize(
    ("keys", "told"),
    [
        (
            "listen: ['stomp://127.0.0.1:0', 'stomp://0.0.0.0:0']",
            "stomp://0.0.0.0:0 can be reached from other",
        ),
        (
            "listen: ['stomp://0.0.0.0:0']\nauth: {anonymous: always}",
            "reach stomp://0.0.0.0:0 may do everything",
        ),
    ],
)
def test_a_listener_for_other_machines_without_users_is_a_warning(
    check: Check, tmp_path: Path, keys: str, told: str
) -> None:
    done = check(tmp_path / "c.yaml", f"{keys}\n", "--json")
    (warning,) = json.loads(done.stdout)["warnings"]
    assert done.returncode == 0 and told in warning
    assert (
        json.loads(check(tmp_path / "d.yaml", "listen: ['stomp://127.0.0.1:0']\n", "--json").stdout)["warnings"] == []
    )


def test_the_schema_of_a_decoder_is_checked_like_any_other(check: Check, tmp_path: Path) -> None:
    pytest.importorskip("jsonschema_rs")
    (tmp_path / "s.json").write_text('{"type": 12}')
    rule = f"{{match: /b, schema: '{tmp_path}/s.json', decoder: 'tests.columns.test_typed:marked'}}"
    done = check(tmp_path / "c.yaml", f"destinations: [{rule}]\n")
    assert done.returncode == 2 and "destinations[0].schema" in done.stderr and "not a JSON Schema" in done.stderr


def test_a_schema_that_refuses_what_an_earlier_version_describes_is_refused_and_nothing_is_written(
    check: Check, tmp_path: Path
) -> None:
    schema, path, data = tmp_path / "s.json", tmp_path / "c.yaml", tmp_path / "data"
    text = f"data_dir: {data}\ndestinations:\n  - {{match: /topic/a, schema: '{schema}'}}\n"
    schema.write_text(json.dumps({"type": "object", "properties": {"a": {"type": "string"}}}))
    assert check(path, text).returncode == 0
    assert not data.exists()
    config = load(path)
    register_schemas(config.rules, config.source, FileSystem(), config.data_dir)
    kept = sorted(data.rglob("*"))
    schema.write_text(json.dumps({"type": "object", "properties": {"a": {"type": "integer"}}}))
    done = check(path, text)
    assert done.returncode == 2 and "version 1 allows" in done.stderr
    assert sorted(data.rglob("*")) == kept


def test_hashes_whose_cost_reveals_known_users_are_a_warning(check: Check, tmp_path: Path) -> None:
    users = tmp_path / "users.yaml"
    cheap = PasswordHasher(time_cost=1, memory_cost=64, parallelism=1).hash("x")
    users.write_text(
        f'users: {{a: {{password: "{make_hash("x")}", read: /a}}, old: {{password: "{cheap}", read: /a}}}}'
    )
    text = f"auth: {{users_file: {users}}}\n"
    done = check(tmp_path / "c.yaml", text)
    assert done.returncode == 0 and "warning: " in done.stdout and "old is known here" in done.stdout
    as_json = json.loads(check(tmp_path / "c.yaml", text, "--json").stdout)
    assert len(as_json["warnings"]) == 1


FAULTY = """
logging: {{file: {0}/no/such/directory/log}}
listen: ['unix:/tmp/{1}']
destinations: [{{match: '/queue/*x'}}]
archive: [{{match: '/topic/*y', to: /topic/a}}]
schedules: [{{name: a, cron: '99 * * * *', destination: /queue/a}}]
subscriptions: [{{name: n, destination: '/topic/a', selector: '='}}]
"""


def test_faults_of_all_sections_are_reported_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(FAULTY.format(tmp_path, "x" * 120))
    assert run(["check-config", str(path)]) == 2
    faults = capsys.readouterr().err
    for place in ("destinations[0].match", "archive[0].match", "schedules[0].cron", "subscriptions[0]"):
        assert place in faults, (place, faults)
    assert "there is no directory" in faults and "at most 107 bytes" in faults


def test_a_log_file_that_this_user_may_not_write_is_a_warning(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(f"logging: {{file: {tmp_path}/radiator.log}}\n")
    real = os.access
    monkeypatch.setattr(os, "access", lambda name, mode: real(name, mode) and name == str(path))
    assert run(["check-config", str(path), "--json"]) == 0
    assert "cannot be written by this user" in json.loads(capsys.readouterr().out)["warnings"][0]
    assert not (tmp_path / "radiator.log").exists(), "a check writes nothing"
