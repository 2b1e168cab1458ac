"""Who is let in: users file, wrong logins, storms, plug-ins. The threads here are a list that the test works off."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import gevent
import pytest
from argon2 import PasswordHasher
from argon2.exceptions import VerifyMismatchError

from radiator.broker.access import Decision, Login
from radiator.broker.clients.identity import Identity
from radiator.clock import NS_PER_SECOND
from radiator.config import AuthConfig
from radiator.errors import ConfigError, ProtocolError
from radiator.server import passwords
from radiator.server.auth import Authenticator
from radiator.server.users import granted
from radiator.server.users_file import check
from tests.broker.harness import World

ALICE = passwords.make_hash("secret")
BOB = passwords.make_hash("hidden")
USERS = f"""\
users:
  alice: {{password: "{ALICE}", read: ["/topic/>"], write: /queue/a}}
  bob: {{password: "{BOB}", admin: true}}
  carol: {{read: /topic/c}}
anonymous: {{read: /topic/public}}
certificates:
  sensor: {{write: /topic/s}}
"""
PLUGIN_TIMEOUT_NS = 5 * NS_PER_SECOND


class Threads:
    """What an Authenticator has submitted, and what it wants to be called back for."""

    def __init__(self) -> None:
        self.work: list[tuple[Callable[[], Any], Callable[[Any], None]]] = []
        self.calls: list[tuple[Callable[[], Any], Callable[[Any], None]]] = []  # of the plug-in
        self.looks: list[tuple[Callable[[], Any], Callable[[Any], None]]] = []
        self.timers: list[tuple[float, Callable[[], None]]] = []
        self.now = 1_000 * NS_PER_SECOND
        self.done = 0
        self.changes = 0

    def submit(self, work: Callable[[], Any], then: Callable[[Any], None]) -> None:
        self.work.append((work, then))

    def call(self, work: Callable[[], Any], then: Callable[[Any], None]) -> None:
        """The threads of the plug-in are others."""
        self.calls.append((work, then))

    def look(self, work: Callable[[], Any], then: Callable[[Any], None]) -> None:
        """The thread that reads users is another one."""
        self.looks.append((work, then))

    def read(self) -> None:
        while self.looks:
            work, then = self.looks.pop(0)
            then(work())

    def later(self, seconds: float, what: Callable[[], None]) -> None:
        self.timers.append((seconds, what))

    def step(self) -> None:
        work, then = (self.work or self.calls).pop(0)
        self.done += 1
        then(work())

    def run(self) -> None:
        self.read()
        while self.work or self.calls:
            self.step()

    def wait(self) -> float:
        """The time of the first timer passes; how long that was."""
        seconds, what = self.timers.pop(0)
        self.now += int(seconds * NS_PER_SECOND)
        what()
        return seconds

    def changed(self) -> None:
        self.changes += 1


class Logins:
    """An Authenticator and those who ask."""

    def __init__(
        self, users: Path | None = None, anonymous: Any = "loopback", plugin: str | None = None, plugin_calls: int = 1
    ) -> None:
        self.threads = Threads()
        self.world = World()
        config = AuthConfig(None if users is None else str(users), anonymous, plugin, PLUGIN_TIMEOUT_NS)
        threads = self.threads
        calls = [] if plugin is None else [threads.call] * plugin_calls
        self.authenticator = Authenticator(
            config, [threads.submit], calls, threads.later, lambda: threads.now, threads.changed, threads.look,
            peer_log=self.world.broker.peer_log,
        )  # fmt: skip

    def ask(
        self, login: str = "", passcode: str = "", address: str = "10.0.0.1:5", certificate: str = ""
    ) -> list[Decision]:
        """What is decided, once it is."""
        session = self.world.broker.connect(f"s{next(self.world.numbers)}", "secret", address)
        session.certificate_name = certificate
        session.begin_login()
        decisions: list[Decision] = []
        self.authenticator(Login(session, login, passcode, decisions.append))
        return decisions

    def try_(self, *args: str, **more: str) -> Decision:
        """The same, with all the work done and no waiting."""
        decisions = self.ask(*args, **more)
        self.threads.run()
        (decision,) = decisions
        return decision


@pytest.fixture
def users(tmp_path: Path) -> Path:
    path = tmp_path / "users.yaml"
    path.write_text(USERS)
    return path


def user(decision: Decision) -> str:
    assert isinstance(decision, Identity), decision
    return decision.user


def denied(decision: Decision) -> ProtocolError:
    assert isinstance(decision, ProtocolError)
    assert decision.code == "denied"
    return decision


# --- without users ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("login", ["", "guest", "admin"])
def test_without_users_every_local_client_is_accepted_whatever_the_login(login: str) -> None:
    logins = Logins()
    for address in ("127.0.0.1:50000", "::1:50000", "./run/radiator.sock", "::ffff:127.0.0.1:7"):
        decision = logins.try_(login, login, address=address)
        assert user(decision) == ""
        assert isinstance(decision, Identity) and decision.rights.everything


def test_without_users_remote_clients_are_refused_with_the_key() -> None:
    logins = Logins()
    for login in ("", "guest"):
        error = denied(logins.try_(login, login))
        assert "auth.anonymous" in error.detail and "auth.users_file" in error.detail


def test_anonymous_may_be_let_in_from_anywhere_or_from_nowhere() -> None:
    assert user(Logins(anonymous="always").try_()) == ""
    denied(Logins(anonymous="never").try_(address="127.0.0.1:1"))


def test_without_users_a_verified_certificate_is_enough() -> None:
    assert user(Logins(anonymous="never").try_(certificate="sensor")) == "sensor"


# --- logins -----------------------------------------------------------------------------------------------------------


def test_a_right_passcode_gives_the_rights_of_the_user(users: Path) -> None:
    decision = Logins(users).try_("alice", "secret")
    assert user(decision) == "alice"
    assert isinstance(decision, Identity)
    assert decision.rights.may("read", "/topic/x") and decision.rights.may("write", "/queue/a")
    assert not decision.rights.may("write", "/queue/b")


def test_a_wrong_passcode_and_an_unknown_user_get_the_same_answer_after_the_same_work(
    users: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    verified: list[str] = []
    verify = passwords.verify
    monkeypatch.setattr(passwords, "verify", lambda hash_, code: verified.append(hash_) or verify(hash_, code))
    answers = [denied(Logins(users).try_(login, "wrong")) for login in ("alice", "mallory", "carol")]
    assert len({(each.message, each.detail) for each in answers}) == 1
    assert len({hash_.rsplit("$", 2)[0] for hash_ in verified}) == 1  # same kind, same parameters
    assert len(verified) == 3


def test_an_unknown_user_takes_as_long_as_the_dearest_of_the_file(users: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dear = PasswordHasher(time_cost=3, memory_cost=1024, parallelism=2).hash("x")
    dearest = PasswordHasher(time_cost=2, memory_cost=20_480, parallelism=1).hash("x")
    impossible = "$argon2id$v=19$m=1,t=99,p=9$c29tZXNhbHQ$b2xk"
    known = zip("abc", (dear, dearest, ALICE), strict=True)
    users.write_text("users:\n" + "".join(f'  {name}: {{password: "{code}", read: /a}}\n' for name, code in known))
    verified: list[str] = []
    monkeypatch.setattr(passwords, "verify", lambda hash_, code: bool(verified.append(hash_)))
    denied(Logins(users).try_("nobody", "x"))
    assert passwords.cost_of(verified[0]) == passwords.cost_of(dearest)
    assert passwords.cost_of(impossible) == passwords.cost_of("no hash") == ()
    (warning,) = check(AuthConfig(str(users), "loopback", None, PLUGIN_TIMEOUT_NS))
    assert "a, c are known here" in warning
    users.write_text(USERS)
    assert check(AuthConfig(str(users), "loopback", None, PLUGIN_TIMEOUT_NS)) == []


@pytest.mark.parametrize(
    "hash_", [None, "no hash", ALICE, PasswordHasher(3, 1_024, 2).hash("x")], ids=["none", "no hash", "ours", "theirs"]
)
def test_the_hash_for_unknown_users_is_verified_to_its_end(hash_: str | None) -> None:
    """It is made of random bytes: argon2 has to do all the work before it finds that they do not match."""
    dummy = passwords.dummy_like(hash_)
    assert passwords.cost_of(dummy) == (passwords.cost_of(hash_ or "") or passwords.cost_of(ALICE))
    with pytest.raises(VerifyMismatchError):
        PasswordHasher().verify(dummy, "x")


def test_a_wrong_login_is_refused_also_on_this_machine(users: Path) -> None:
    denied(Logins(users, anonymous="always").try_("guest", "guest", address="127.0.0.1:1"))


def test_no_login_means_the_rights_of_anonymous_where_it_may_come_in(users: Path) -> None:
    logins = Logins(users)
    local = logins.try_(address="127.0.0.1:1")
    assert isinstance(local, Identity)
    assert local.rights.may("read", "/topic/public") and not local.rights.may("write", "/topic/public")
    denied(logins.try_(address="10.0.0.1:1"))


def test_without_rights_anonymous_is_not_let_in(tmp_path: Path) -> None:
    path = tmp_path / "users.yaml"
    path.write_text("users:\n")
    assert "anonymous:" in denied(Logins(path).try_(address="127.0.0.1:1")).detail


def test_a_certificate_gives_the_rights_under_its_name(users: Path) -> None:
    logins = Logins(users)
    decision = logins.try_(certificate="sensor")
    assert isinstance(decision, Identity) and decision.rights.may("write", "/topic/s")
    assert "certificates:" in denied(logins.try_(certificate="stranger")).detail
    assert user(logins.try_("alice", "secret", certificate="stranger")) == "alice"


# --- storms -----------------------------------------------------------------------------------------------------------


def test_a_thousand_clients_of_one_user_cost_one_verification(users: Path) -> None:
    logins = Logins(users)
    waiting = [logins.ask("alice", "secret") for _ in range(1_000)]
    logins.threads.run()
    assert {user(decision) for (decision,) in waiting} == {"alice"}
    again = [logins.ask("alice", "secret", address=f"10.0.{number}.1:9") for number in range(200)]
    assert {user(decision) for (decision,) in again} == {"alice"}  # at once
    assert logins.threads.done == 1
    denied(logins.try_("alice", "Secret"))


def test_one_verification_runs_at_a_time_and_the_others_wait_their_turn(users: Path) -> None:
    logins = Logins(users)
    first, second = logins.ask("alice", "secret"), logins.ask("bob", "hidden")
    assert len(logins.threads.work) == 1
    logins.threads.step()
    assert user(first[0]) == "alice" and not second
    logins.threads.step()
    assert user(second[0]) == "bob"


def test_a_client_that_left_during_its_login_costs_nothing(users: Path) -> None:
    logins = Logins(users)
    logins.ask("alice", "secret")
    logins.ask("bob", "hidden")
    for session in list(logins.world.broker.sessions.values()):
        session.begin_closing()
    logins.threads.run()
    assert logins.threads.done == 1


# --- the file changes -------------------------------------------------------------------------------------------------


def test_a_login_that_was_right_once_is_not_logged_as_a_guess(users: Path) -> None:
    logins = Logins(users)
    assert user(logins.try_("alice", "secret")) == "alice"
    for number in range(8):
        logins.ask("alice", f"guess {number}")
        logins.threads.run()
    logins.threads.timers.clear()
    verified = logins.threads.done
    among = logins.ask("alice", "secret")
    logins.threads.run()
    assert among == []
    assert user(logins.try_("alice", "secret", address="10.9.9.9:5")) == "alice"
    logins.threads.wait()
    assert [user(each) for each in among] == ["alice"]
    assert logins.threads.done == verified, "it was known, and had only to wait"
    assert user(logins.try_("alice", "secret")) == "alice"


def test_a_reconnect_after_a_slip_or_two_is_not_held_up(users: Path) -> None:
    logins = Logins(users)
    assert user(logins.try_("alice", "secret")) == "alice"
    for _ in range(2):
        denied(logins.try_("alice", "slip"))
    assert user(logins.try_("alice", "secret")) == "alice"
    assert logins.threads.timers == []


def test_a_broken_file_leaves_the_users_as_they_were(users: Path, caplog: pytest.LogCaptureFixture) -> None:
    logins = Logins(users)
    users.write_text("users: {alice: {pasword: x}}")
    logins.authenticator.reload()
    logins.threads.run()
    assert f"{users}:1: users.alice.pasword: unknown key; did you mean password?" in caplog.text
    assert user(logins.try_("alice", "secret")) == "alice"
    users.unlink()
    logins.authenticator.reload()
    logins.threads.run()
    assert user(logins.try_("bob", "hidden")) == "bob"


def test_an_unusable_hash_accepts_no_login_and_affects_no_other_user(users: Path) -> None:
    impossible = "$argon2id$v=19$m=1,t=1,p=9$c29tZXNhbHQ$b2xk"
    users.write_text(f'users: {{x: {{password: "{impossible}"}}, bob: {{password: "{BOB}"}}}}')
    logins = Logins(users)
    denied(logins.try_("x", "x"))
    denied(logins.try_("nobody", "x"))
    assert user(logins.try_("bob", "hidden")) == "bob"


def test_a_login_under_way_while_the_file_changes_is_judged_by_the_new_one(users: Path) -> None:
    logins = Logins(users)
    decisions = logins.ask("alice", "secret")
    work, then = logins.threads.work.pop()
    verified = work()
    users.write_text(USERS.replace(ALICE, BOB))
    logins.authenticator.reload()
    logins.threads.read()
    then(verified)
    logins.threads.run()
    denied(decisions[0])


# --- plug-ins ---------------------------------------------------------------------------------------------------------


def plugin(login: str, passcode: str, address: str) -> Mapping[str, object] | None:
    if login == "boom":
        raise RuntimeError("no directory today")
    if login == "cancelled":
        raise asyncio.CancelledError
    if login == "late":
        raise gevent.Timeout(1)
    if passcode != "open":
        return None
    answers: dict[str, Mapping[str, object]] = {
        "eve": {"user": "eva", "read": ["/topic/e"]},
        "carol": {},
        "stranger": {},
        "wrong": {"reads": []},
        "text": {"read": "/topic/e"},
    }
    return answers[login]


class Directory:
    def __call__(self, login: str, passcode: str, address: str) -> Mapping[str, object] | None:
        return plugin(login, passcode, address)


class FakeEntryPoint:
    def __init__(self, found: object) -> None:
        self._found = found

    def load(self) -> object:
        return self._found


class FakeEntryPoints(dict[str, FakeEntryPoint]):
    @property
    def names(self) -> set[str]:
        return set(self)


@pytest.fixture(params=[plugin, Directory])
def installed(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    points = FakeEntryPoints(directory=FakeEntryPoint(request.param))
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: points)


@pytest.mark.usefixtures("installed")
def test_a_plug_in_vouches_for_users_of_its_own(users: Path) -> None:
    logins = Logins(users, plugin="directory")
    eve = logins.try_("eve", "open")
    assert isinstance(eve, Identity) and eve.user == "eva"
    assert eve.rights.may("read", "/topic/e") and not eve.rights.may("read", "/topic/x")
    carol = logins.try_("carol", "open")
    assert isinstance(carol, Identity) and carol.rights.may("read", "/topic/c")  # by the users file
    assert user(logins.try_("alice", "secret")) == "alice"  # the users file comes first
    denied(logins.try_("eve", "shut"))
    denied(logins.try_("stranger", "open"))  # no rights anywhere


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize("login", ["boom", "wrong", "text", "cancelled", "late"])
def test_a_plug_in_that_fails_refuses_and_the_log_says_why(login: str, caplog: pytest.LogCaptureFixture) -> None:
    logins = Logins(plugin="directory")
    assert "directory" not in denied(logins.try_(login, "open")).detail
    assert "the plug-in failed" in caplog.text and "open" not in caplog.text
    assert user(logins.try_("eve", "open")) == "eva"


@pytest.mark.usefixtures("installed")
def test_a_plug_in_is_asked_again_after_a_minute() -> None:
    logins = Logins(plugin="directory")
    for _ in range(3):
        logins.try_("eve", "open")
    assert logins.threads.done == 1
    logins.threads.now += 61 * NS_PER_SECOND
    logins.try_("eve", "open")
    assert logins.threads.done == 2


@pytest.mark.usefixtures("installed")
def test_a_plug_in_that_is_not_there_is_reported_with_those_that_are() -> None:
    with pytest.raises(ConfigError, match=r"auth\.plugin: ldap: .*directory"):
        Logins(plugin="ldap")
    with pytest.raises(ConfigError, match=r"cannot be loaded: ModuleNotFoundError"):
        Logins(plugin="no_such_module:thing")
    Logins(plugin="tests.server.test_authenticator:plugin")


# --- a plug-in that hangs ---------------------------------------------------------------------------------------------

OURS = "tests.server.test_authenticator:plugin"


def expire(logins: Logins) -> None:
    """The time of a call of the plug-in passes, and is noticed."""
    logins.threads.now += PLUGIN_TIMEOUT_NS
    logins.authenticator.tick()


def late(decision: Decision) -> str:
    assert isinstance(decision, ProtocolError)
    assert decision.code == "timeout" and "auth.plugin_timeout" in decision.detail
    return decision.message


def test_calls_of_a_plug_in_that_hang_hold_up_no_user_of_the_file(users: Path) -> None:
    logins = Logins(users, plugin=OURS, plugin_calls=4)
    hanging = [logins.ask(f"hangs{number}", "open") for number in range(6)]
    assert len(logins.threads.calls) == 4
    alice = logins.ask("alice", "secret")
    logins.threads.step()
    assert user(alice[0]) == "alice"
    assert not any(hanging)


def test_a_call_that_takes_too_long_is_refused_and_keeps_only_its_own_thread(
    users: Path, caplog: pytest.LogCaptureFixture
) -> None:
    logins = Logins(users, plugin=OURS, plugin_calls=2)
    slow = logins.ask("hangs", "open")
    logins.threads.now += 1
    expire(logins)
    assert late(slow[0]) == "the login could not be verified in time"
    eve = logins.ask("eve", "open")
    work, then = logins.threads.calls.pop(1)
    then(work())
    assert user(eve[0]) == "eva"
    again = logins.ask("hangs", "open")
    assert late(again[0]) and len(logins.threads.calls) == 1, "the same login takes no second thread"
    assert caplog.text.count("auth.plugin_timeout") == 1


def test_while_no_call_returns_logins_of_the_plug_in_are_refused_at_once(
    users: Path, caplog: pytest.LogCaptureFixture
) -> None:
    logins = Logins(users, plugin=OURS, plugin_calls=2)
    hanging = [logins.ask(f"hangs{number}", "open") for number in range(3)]
    expire(logins)
    assert [len(each) for each in hanging] == [1, 1, 1], "also the one that waited for a thread"
    for number in range(20):
        (decision,) = logins.ask(f"other{number}", "open")
        assert "earlier logins" in late(decision)
        logins.authenticator.tick()
    alice = logins.ask("alice", "secret")
    logins.threads.step()
    assert user(alice[0]) == "alice"
    assert caplog.text.count("no call of the plug-in returns") == 1
    assert len(logins.threads.calls) == 2


def test_a_plug_in_that_answers_again_is_asked_again(users: Path) -> None:
    logins = Logins(users, plugin=OURS)
    hanging = logins.ask("eve", "open")
    expire(logins)
    assert late(hanging[0])
    assert late(logins.ask("stranger", "open")[0])
    logins.threads.step()
    (decision,) = logins.ask("eve", "open")
    assert user(decision) == "eva", "what the late call has found out holds"
    denied(logins.try_("stranger", "open"))


def test_a_wrong_login_whose_call_is_late_counts_as_a_guess(users: Path) -> None:
    logins = Logins(users, plugin=OURS)
    for number in range(3):
        logins.ask("eve", f"guess {number}")
        expire(logins)
        logins.threads.step()
    guess = logins.ask("eve", "open")
    assert not guess and not logins.threads.calls, "it has to wait, as after any wrong logins"
    assert logins.threads.timers


def test_logins_that_wait_are_bounded_for_the_file_and_for_the_plug_in_apart(
    users: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("radiator.limits.LOGINS_WAITING_MAX", 3)
    logins = Logins(users, plugin=OURS)
    waiting = [logins.ask(f"user{number}", "open") for number in range(4)]
    (error,) = waiting.pop()
    assert isinstance(error, ProtocolError) and error.code == "too-many"
    assert not any(waiting)
    alice = logins.ask("alice", "secret")
    logins.threads.step()
    assert user(alice[0]) == "alice"


def test_clients_that_have_gone_make_room_for_others(users: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("radiator.limits.LOGINS_WAITING_MAX", 3)
    logins = Logins(users)
    for number in range(3):
        logins.ask(f"user{number}", "guess")
    assert isinstance(logins.ask("bob", "hidden")[0], ProtocolError)
    for session in logins.world.broker.sessions.values():
        session.begin_closing()
    logins.authenticator.tick()
    bob = logins.ask("bob", "hidden")
    logins.threads.run()
    assert user(bob[0]) == "bob"
    assert logins.threads.done == 2, "one that was under way, and bob"


def test_a_login_that_the_users_file_has_a_hash_of_now_is_verified_by_it(users: Path) -> None:
    logins = Logins(users, plugin=OURS)
    logins.ask("hangs", "open")
    frank = logins.ask("frank", "secret")
    users.write_text(USERS.replace("  bob:", f'  frank: {{password: "{ALICE}", read: "#"}}\n  bob:'))
    logins.authenticator.reload()
    logins.threads.read()
    logins.threads.run()
    (decision,) = frank
    assert user(decision) == "frank"


def test_a_plugin_may_give_every_right() -> None:
    user, rights = granted({"monitor": ["/queue/a"], "read": ["/topic/>"]}, "alice")
    assert user == "alice" and rights is not None
    assert rights.may("monitor", "/queue/a") and not rights.may("monitor", "/queue/b")
    assert not rights.may("admin", "/queue/a")
    _, rights = granted({"admin": ["/queue/*"]}, "alice")
    assert rights is not None and rights.may("monitor", "/queue/a")
