"""The users file and those beside it while a broker serves: when a change counts, and what does not."""

from __future__ import annotations

from pathlib import Path

import pytest

from radiator.broker.access import Decision
from radiator.broker.clients.identity import Identity
from radiator.server import passwords
from radiator.server.users_watch import LOOK_EVERY_NS
from tests.server.test_authenticator import ALICE, BOB, USERS, Logins, denied, user


@pytest.fixture
def users(tmp_path: Path) -> Path:
    path = tmp_path / "users.yaml"
    path.write_text(USERS)
    return path


def look(logins: Logins, times: int = 1) -> None:
    for _ in range(times):
        logins.threads.now += LOOK_EVERY_NS
        logins.authenticator.tick()
        logins.threads.read()


def test_a_changed_file_is_noticed_and_what_was_remembered_is_dropped(users: Path) -> None:
    logins = Logins(users)
    logins.try_("alice", "secret")
    look(logins, 3)
    assert logins.threads.changes == 0
    users.write_text(USERS.replace(ALICE, BOB))
    look(logins, 2)
    assert logins.threads.changes == 1
    denied(logins.try_("alice", "secret"))
    assert user(logins.try_("alice", "hidden")) == "alice"
    look(logins, 3)
    assert logins.threads.changes == 1


def test_a_file_that_is_still_being_written_does_not_count(users: Path) -> None:
    logins = Logins(users)
    text = USERS + "# the end\n"
    half = text.index("  bob:")
    for place in (half, half + 10, len(text) - 5):
        users.write_text(text[:place])
        look(logins)
    assert logins.threads.changes == 0
    users.write_text(text)
    look(logins, 2)
    assert logins.threads.changes == 1
    assert user(logins.try_("bob", "hidden")) == "bob"


def test_an_empty_users_file_removes_no_user_and_is_logged_once(users: Path, caplog: pytest.LogCaptureFixture) -> None:
    logins = Logins(users)
    users.write_text("")
    look(logins, 5)
    assert logins.threads.changes == 0
    assert caplog.text.count("the file is empty") == 1
    logins.authenticator.reload()
    logins.threads.read()
    assert user(logins.try_("alice", "secret")) == "alice"
    users.write_text("users:\n")
    look(logins, 2)
    denied(logins.try_("alice", "secret"))


def test_a_file_that_can_be_read_again_counts_though_it_was_reported_as_a_fault(users: Path) -> None:
    logins = Logins(users)
    users.write_text("users: {alice: ")
    look(logins, 3)
    users.write_text(USERS.replace(ALICE, BOB))
    look(logins, 2)
    assert user(logins.try_("alice", "hidden")) == "alice"


def test_another_passcode_in_a_password_file_takes_effect(tmp_path: Path) -> None:
    secret, path = tmp_path / "alice.hash", tmp_path / "users.yaml"
    secret.write_text(ALICE)
    path.write_text(f"users: {{alice: {{password_file: {secret}, read: /topic/a}}}}")
    logins = Logins(path)
    assert user(logins.try_("alice", "secret")) == "alice"
    secret.write_text(passwords.make_hash("rotated"))
    look(logins, 2)
    denied(logins.try_("alice", "secret"))
    assert user(logins.try_("alice", "rotated")) == "alice"


def test_a_login_that_hangs_in_a_plug_in_keeps_no_removed_user_connected(users: Path) -> None:
    logins = Logins(users, plugin="tests.server.test_authenticator:plugin")
    alice = logins.try_("alice", "secret")
    assert isinstance(alice, Identity)
    hanging = logins.ask("hangs", "open")
    assert len(logins.threads.calls) == 1 and not hanging
    users.write_text(USERS.replace("alice:", "dora:"))
    look(logins, 2)
    assert logins.threads.changes == 1
    session = logins.world.connect().session
    session.identity = alice
    assert denied(logins.authenticator.identity(session)).message == "this user may no longer connect"


def test_a_session_ends_when_the_passcode_that_it_has_logged_in_by_is_not_valid_any_more(users: Path) -> None:
    logins = Logins(users, plugin="tests.server.test_authenticator:plugin")
    session = logins.world.connect().session
    alice = logins.try_("alice", "secret")
    assert isinstance(alice, Identity)
    session.identity = alice

    def then(text: str) -> Decision:
        users.write_text(text)
        look(logins, 2)
        return logins.authenticator.identity(session)

    more = then(USERS.replace("write: /queue/a", "write: /queue/b"))
    assert isinstance(more, Identity) and more.rights.may("write", "/queue/b"), "the passcode is the same"
    session.identity = more
    assert denied(then(USERS.replace(ALICE, BOB))).message == "the passcode of this user has changed"
    assert denied(then(USERS.replace(f'password: "{ALICE}", ', ""))).message == "the passcode of this user has changed"
    assert isinstance(then(USERS), Identity)
    assert denied(then(USERS.replace("alice:", "dora:"))).message == "this user may no longer connect"


def test_a_session_that_a_plug_in_or_a_certificate_vouches_for_has_no_passcode_that_could_change(users: Path) -> None:
    logins = Logins(users, plugin="tests.server.test_authenticator:plugin")
    session = logins.world.connect().session
    for vouched in (logins.try_("eve", "open"), logins.try_("carol", "open"), logins.try_(certificate="sensor")):
        assert isinstance(vouched, Identity)
        session.identity = vouched
        users.write_text(USERS.replace(ALICE, BOB) + f"# {vouched.user}")
        look(logins, 2)
        now = logins.authenticator.identity(session)
        assert isinstance(now, Identity) and (now.user, now.source) == (vouched.user, vouched.source)
    users.write_text(USERS.replace("sensor:", "probe:"))
    look(logins, 2)
    denied(logins.authenticator.identity(session))


def test_a_sighup_while_the_file_is_being_read_is_not_lost(users: Path) -> None:
    logins = Logins(users)
    logins.authenticator.reload()
    work, then = logins.threads.looks.pop()
    found = work()
    users.write_text(USERS.replace(ALICE, BOB))
    logins.authenticator.reload()
    then(found)
    logins.threads.read()
    assert user(logins.try_("alice", "hidden")) == "alice"
