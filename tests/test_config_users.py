"""The users file: what it comes down to, and that every way of getting it wrong is told with its line."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from radiator.config.users import load_users, load_users_text
from radiator.errors import ConfigError

HASH = "$argon2id$v=19$m=19456,t=2,p=1$c29tZXNhbHQ$LyVsBkIdwTU4JSqBbMjLHg"
CONFIGURATION = (Path(__file__).parent.parent / "docs" / "configuration.md").read_text("utf-8")


def fault(text: str, environ: dict[str, str] | None = None) -> str:
    with pytest.raises(ConfigError) as caught:
        load_users_text(text, "users.yaml", environ or {})
    return str(caught.value)


def test_rights_are_one_pattern_or_a_list_and_admin_and_monitor_may_be_true() -> None:
    found = load_users_text(
        f"users:\n  a: {{password: '{HASH}', read: /topic/a, write: [/queue/a, '/queue/b,/queue/c'], admin: true}}\n"
        "  b: {admin: [/queue/a], browse: '#', monitor: true}\n  c: {admin: false, monitor: /queue/c}\n  d:\n"
        "anonymous: {read: '>'}\ncertificates: {x: {write: /topic/x}}\n",
        "users.yaml",
        {},
    )
    a, b, c, d = found.users.values()
    assert a.password == HASH
    assert (a.grants.read, a.grants.write, a.grants.admin) == (
        ("/topic/a",),
        ("/queue/a", "/queue/b,/queue/c"),
        ("#",),
    )
    assert (b.password, b.grants.admin, b.grants.browse) == (None, ("/queue/a",), ("#",))
    assert c.grants.admin == d.grants.read == ()
    assert (b.grants.monitor, c.grants.monitor, d.grants.monitor) == (("#",), ("/queue/c",), ())
    assert found.anonymous is not None and found.anonymous.read == (">",)
    assert found.certificates["x"].write == ("/topic/x",)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("user: {}", "1: user: unknown key; did you mean users?"),
        ("users: [a]", "1: users: expected names"),
        ("users: {a: {reed: x}}", "1: users.a.reed: unknown key; did you mean read?"),
        ("users: {a: {read: {x: y}}}", "1: users.a.read[0]: expected one value"),
        ("users: {a: {read: }}", "1: users.a.read[0]: expected a value"),
        ("users:\n  a: {}\n  a: {}\n", "3: duplicate key 'a'"),
        ("users: {a: {password: [x]}}", "1: users.a.password: expected a hash on one line"),
        ("users: {a: {read: yes}}", "1: users.a.read[0]: expected a pattern such as /topic/weather.*; YAML reads yes"),
        ("users: {'': {}}", "1: users: expected a name of 1 to 200 printable characters"),
        ("anonymous: {password: x}", "1: anonymous.password: unknown key"),
        ("certificates: {a: [x]}", "1: certificates.a: expected keys such as read:"),
        ("- a", "1: expected keys such as users:"),
        ("users: {a: {password: '${NO}'}}", "1: users.a.password: expected the environment variable NO to be set"),
    ],
)
def test_a_fault_is_reported_with_its_place(text: str, told: str) -> None:
    assert f"users.yaml:{told}" in fault(text)


@pytest.mark.parametrize(
    "password", ["hunter2", "$2b$12$hunter2", HASH.replace("m=19456", "m=99999999"), HASH.replace("t=2", "t=999")]
)
def test_what_is_no_hash_or_too_dear_is_refused_and_not_shown(password: str) -> None:
    told = fault(f"users: {{a: {{password: '{password}'}}}}")
    assert "users.a.password: expected a hash" in told
    assert "hunter2" not in told and password not in told


def test_a_hash_may_come_from_the_environment_or_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "hash"
    file.write_text(HASH + "\n")
    text = f"users: {{a: {{password: '${{A}}'}}, b: {{password_file: {file}}}}}"
    found = load_users_text(text, "users.yaml", {"A": HASH})
    assert {each.password for each in found.users.values()} == {HASH}
    file.write_text("hunter2")
    told = fault(f"users: {{b: {{password_file: {file}}}}}")
    assert "users.b.password_file: expected a hash" in told and "hunter2" not in told
    both = f"users: {{b: {{password: '{HASH}', password_file: {file}}}}}"
    assert "one of password: and password_file:" in fault(both)
    assert "cannot read the hash" in fault("users: {b: {password_file: no/such/file}}")


def test_a_file_that_is_not_there_is_reported(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot read the users file"):
        load_users(str(tmp_path / "none.yaml"))


def test_the_documented_users_file_loads() -> None:
    (text,) = re.findall(r"```yaml users\n(.*?)```", CONFIGURATION, re.DOTALL)
    found = load_users_text(re.sub(r"password_file: [^,]*, ", "", text), "configuration.md", {})
    assert set(found.users) == {"alice", "operator", "dashboard"}
    entries = re.findall(r"(?m)^\| `(users|users\.NAME\.\w+|anonymous|certificates|roles)` \|", CONFIGURATION)
    assert entries == ["users", "users.NAME.password", "users.NAME.password_file", "anonymous", "certificates", "roles"]
