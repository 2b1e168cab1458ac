"""Guessing is slowed down where it comes from, and makes nobody else wait; origins take turns."""

from __future__ import annotations

from pathlib import Path

import pytest

from radiator.clock import NS_PER_SECOND
from radiator.errors import ProtocolError
from tests.server.test_authenticator import USERS, Logins, denied, user


@pytest.fixture
def users(tmp_path: Path) -> Path:
    path = tmp_path / "users.yaml"
    path.write_text(USERS)
    return path


def test_guessing_is_slowed_down_more_each_time_and_at_last_refused_unseen(users: Path) -> None:
    logins = Logins(users)
    waits: list[float] = []
    for number in range(12):
        decisions = logins.ask("alice", f"guess {number}")
        logins.threads.run()
        if not decisions:
            waits.append(logins.threads.wait())
            logins.threads.run()
        denied(decisions[0])
    assert waits == sorted(waits)
    assert len(waits) == 9 and waits[0] < 1 < waits[-1] <= 4
    side_by_side = [logins.ask("alice", f"guess {number}") for number in range(100, 120)]
    logins.threads.run()
    refused = [decision for decisions in side_by_side for decision in decisions]
    assert len(refused) >= 15  # they would have to wait for too long
    assert {each.code for each in refused if isinstance(each, ProtocolError)} == {
        "too-many"
    }  # and not: a wrong passcode
    assert max(seconds for seconds, _ in logins.threads.timers) <= 8


@pytest.mark.thorough
def test_wrong_logins_from_elsewhere_lock_no_user_out(users: Path) -> None:
    logins = Logins(users)
    for number in range(200):
        logins.ask("alice", f"guess {number}", address=f"10.6.6.{number % 50}:1")
        logins.threads.run()
    assert user(logins.try_("alice", "secret", address="10.0.0.9:1")) == "alice"


def test_a_subnet_of_ipv6_is_one_origin(users: Path) -> None:
    logins = Logins(users)
    for number in range(20):
        logins.ask(f"user {number}", "guess", address=f"2001:db8::{number:x}:1")
        logins.threads.run()
    assert logins.threads.timers
    assert user(logins.try_("alice", "secret", address="2001:db8:0:1::1:1")) == "alice"


def test_an_origin_with_many_logins_delays_only_itself(users: Path) -> None:
    logins = Logins(users)
    for number in range(100):
        logins.ask(f"user {number}", "guess", address=f"2001:db8::{number:x}:1")
    alice = logins.ask("alice", "secret", address="10.0.0.9:1")
    for _ in range(3):
        logins.threads.step()
    assert user(alice[0]) == "alice"


def test_an_origin_with_wrong_logins_delays_no_other(users: Path) -> None:
    logins = Logins(users)
    assert user(logins.try_("alice", "secret", address="10.0.0.9:1")) == "alice"
    for number in range(30):
        logins.ask("alice", f"guess {number}", address="10.6.6.6:1")
        logins.threads.run()
    assert user(logins.try_("bob", "hidden", address="10.0.0.2:1")) == "bob"
    assert user(logins.try_("alice", "secret", address="10.0.0.3:1")) == "alice"  # verified before: nothing to guess
    users.write_text(USERS.replace("carol", "dora"))
    logins.authenticator.reload()
    logins.threads.run()
    assert user(logins.try_("alice", "secret", address="10.0.0.9:1")) == "alice"  # at home there


def test_a_right_passcode_in_time_is_let_in_and_failures_are_forgotten(users: Path) -> None:
    logins = Logins(users)
    for number in range(5):
        logins.ask("alice", f"guess {number}")
        logins.threads.run()
    logins.threads.now += 700 * NS_PER_SECOND
    logins.threads.timers.clear()
    assert user(logins.try_("alice", "secret")) == "alice"
