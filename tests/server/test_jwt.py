"""Login with JSON Web Tokens: which are accepted, which rights they give, and what happens when they expire."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import logging
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from radiator.broker.access import Decision
from radiator.broker.clients.identity import Identity
from radiator.client import ClientError, connect
from radiator.clock import NS_PER_SECOND
from radiator.config import AuthConfig
from radiator.config.load import load_text
from radiator.config.model import JwtConfig
from radiator.errors import ConfigError, ProtocolError
from radiator.server.auth import Authenticator
from radiator.server.jwt import FETCH_EVERY_NS, REFRESH_NS, STALE_NS, Refusal, Token, TokenVerifier, fetch
from radiator.server.users_file import check
from tests.broker.harness import NOW, World
from tests.running import BrokerProcess
from tests.server.test_authenticator import Threads

SECONDS = NOW // NS_PER_SECOND
URL = "https://id.example/keys"
KEY, OTHER = (rsa.generate_private_key(public_exponent=65537, key_size=2048) for _ in range(2))
PEM = KEY.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
CLAIMS = {"sub": "alice", "aud": "radiator", "iss": "https://id.example", "exp": SECONDS + 300}
USERS = """
users:
  alice: {read: /topic/>, write: /queue/a}
roles:
  reader: {read: [/topic/>]}
  worker: {read: /queue/jobs, write: [/queue/done]}
  operator: {admin: true}
"""


def config(**changes: Any) -> JwtConfig:
    values: dict[str, Any] = {
        "key_file": None,
        "jwks_url": URL,
        "audience": ("radiator",),
        "issuer": "https://id.example",
        "algorithms": ("RS256", "ES256"),
        "user_from": "sub",
        "roles_from": None,
        "leeway_ns": 30 * NS_PER_SECOND,
    }
    return JwtConfig(**values | changes)


def token(key: Any = KEY, kid: str | None = "1", algorithm: str = "RS256", **claims: Any) -> str:
    whole = {name: value for name, value in (CLAIMS | claims).items() if value is not None}
    return str(jwt.encode(whole, key, algorithm, headers={} if kid is None else {"kid": kid}))


def handmade(header: dict[str, Any], claims: dict[str, Any], secret: bytes | None) -> str:
    """A token that no library would make."""

    def part(value: dict[str, Any]) -> bytes:
        return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=")

    signed = part(header) + b"." + part(claims)
    signature = b"" if secret is None else hmac.digest(secret, signed, hashlib.sha256)
    return (signed + b"." + base64.urlsafe_b64encode(signature).rstrip(b"=")).decode()


class Server:
    """A JWKS server, and both clocks."""

    def __init__(self, **keys: Any) -> None:
        self.keys = keys
        self.fetches = 0
        self.down = False
        self.mono = 5_000 * NS_PER_SECOND
        self.wall = NOW

    def fetch(self, url: str) -> bytes:
        assert url == URL
        self.fetches += 1
        if self.down:
            raise OSError("connection refused")
        listed = []
        for kid, key in self.keys.items():
            algorithm = "RS256" if isinstance(key, rsa.RSAPrivateKey) else "ES256"
            named = jwt.get_algorithm_by_name(algorithm).to_jwk(key.public_key(), as_dict=True)
            listed.append(named | {"kid": kid, "alg": algorithm, "use": "sig"})
        return json.dumps({"keys": [{"kty": "oct", "k": "AAAA", "kid": "secret"}, *listed]}).encode()

    def verifier(self, **changes: Any) -> TokenVerifier:
        return TokenVerifier(config(**changes), lambda: self.wall, lambda: self.mono, self.fetch)  # type: ignore


@pytest.fixture
def server() -> Server:
    return Server(**{"1": KEY})


@pytest.fixture(scope="module")
def key_file(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("jwt") / "issuer.pem"
    path.write_bytes(PEM)
    return str(path)


def reason(found: Token | Refusal) -> str:
    assert isinstance(found, Refusal), found
    return found.reason


# --- one token --------------------------------------------------------------------------------------------------------


def test_a_good_token_gives_its_user_and_its_end(server: Server, key_file: str) -> None:
    expected = Token("alice", (), (SECONDS + 330) * NS_PER_SECOND)  # type: ignore[arg-type]
    assert server.verifier()(token()) == expected
    assert server.verifier(key_file=key_file, jwks_url=None)(token(kid=None)) == expected
    assert server.verifier()(token(kid=None)) == expected  # the set has one key
    assert server.verifier()(token(aud=["other", "radiator"])) == expected


def test_a_token_of_an_elliptic_curve_is_accepted_if_the_key_is_one() -> None:
    curve = ec.generate_private_key(ec.SECP256R1())
    verifier = Server(**{"1": KEY, "2": curve}).verifier()
    assert isinstance(verifier(token(curve, "2", "ES256")), Token)
    assert "the key is for RS256" in reason(verifier(token(curve, "1", "ES256")))


@pytest.mark.parametrize(
    ("claims", "why"),
    [
        ({"exp": SECONDS - 31}, "has expired"),
        ({"exp": None}, "exp"),
        ({"exp": "soon"}, "claim exp"),
        ({"exp": True}, "claim exp"),
        ({"exp": 1e300}, "claim exp"),
        ({"nbf": SECONDS + 31}, "claim nbf"),
        ({"iat": SECONDS + 31}, "claim iat"),
        ({"aud": "other"}, "udience"),
        ({"aud": None}, "aud"),
        ({"iss": "https://evil.example"}, "ssuer"),
        ({"iss": None}, "iss"),
        ({"sub": None}, "sub"),
        ({"sub": ""}, "claim sub"),
        ({"sub": "a\nb"}, "claim sub"),
        ({"sub": "x" * 201}, "claim sub"),
    ],
)
def test_a_token_with_wrong_claims_is_refused_with_the_reason(claims: dict[str, Any], why: str, server: Server) -> None:
    assert why in reason(server.verifier()(token(**claims)))


@pytest.mark.parametrize("claims", [{"exp": SECONDS - 29}, {"nbf": SECONDS + 29}, {"iat": SECONDS + 29.5}])
def test_clocks_may_differ_by_the_leeway(claims: dict[str, Any], server: Server) -> None:
    assert isinstance(server.verifier()(token(**claims)), Token)


def test_a_token_of_another_key_is_refused(server: Server) -> None:
    assert "ignature" in reason(server.verifier()(token(OTHER)))


def test_algorithms_that_are_not_listed_are_refused(server: Server, key_file: str) -> None:
    for verifier in (server.verifier(), server.verifier(key_file=key_file, jwks_url=None)):
        assert "algorithm" in reason(verifier(handmade({"alg": "none", "kid": "1"}, CLAIMS, None)))
        assert "algorithm" in reason(verifier(handmade({"alg": "None", "kid": "1"}, CLAIMS, None)))
        assert "algorithm" in reason(verifier(handmade({"alg": "HS256", "kid": "1"}, CLAIMS, PEM)))
        assert "algorithm" in reason(verifier(handmade({"alg": "HS256", "kid": "secret"}, CLAIMS, bytes(3))))
        assert "algorithm" in reason(verifier(token(algorithm="RS384")))
        assert reason(verifier(handmade({"alg": "RS256", "kid": "1"}, CLAIMS, PEM)))
        assert reason(verifier("no token")) and reason(verifier("")) and reason(verifier("a.b.c"))


def test_unknown_critical_parameters_are_refused(server: Server) -> None:
    made = jwt.encode(CLAIMS, KEY, "RS256", headers={"kid": "1", "crit": ["b64"], "b64": True})
    assert reason(server.verifier()(made))


def test_roles_come_from_a_list_a_text_or_an_object(server: Server) -> None:
    verifier = server.verifier(roles_from="roles")
    found = verifier(token(roles=["worker", "reader", "worker"]))
    assert isinstance(found, Token) and found.roles == ("reader", "worker")
    found = verifier(token(roles="reader worker"))
    assert isinstance(found, Token) and found.roles == ("reader", "worker")
    found = server.verifier(roles_from="realm_access.roles")(token(realm_access={"roles": ["reader"]}))
    assert isinstance(found, Token) and found.roles == ("reader",)
    for wrong in (None, {"a": 1}, [1], [str(number) for number in range(201)]):
        assert "claim roles" in reason(verifier(token(roles=wrong)))


# --- the key set ------------------------------------------------------------------------------------------------------


def test_the_key_set_is_fetched_once_and_again_for_a_new_key(server: Server) -> None:
    verifier = server.verifier()
    for _ in range(3):
        assert isinstance(verifier(token()), Token)
    assert server.fetches == 1
    server.keys = {"2": OTHER}
    server.mono += FETCH_EVERY_NS
    assert isinstance(verifier(token(OTHER, "2")), Token)
    assert server.fetches == 2
    assert "no key '1'" in reason(verifier(token()))  # it is withdrawn
    for number in range(100):  # kids that a client makes up
        assert "no key" in reason(verifier(token(OTHER, f"x{number}")))
    assert server.fetches == 2


def test_a_withdrawn_key_is_noticed_after_a_while(server: Server) -> None:
    verifier = server.verifier()
    assert isinstance(verifier(token()), Token)
    server.keys = {"2": OTHER}
    server.mono += REFRESH_NS + 1
    assert "no key" in reason(verifier(token()))


def test_a_server_that_is_down_at_the_start_refuses_logins_until_it_is_up(server: Server) -> None:
    server.down = True
    verifier = server.verifier()
    assert "connection refused" in reason(verifier(token()))
    server.down = False
    assert "connection refused" in reason(verifier(token()))  # not asked again so soon
    server.mono += FETCH_EVERY_NS
    assert isinstance(verifier(token()), Token)


def test_a_server_that_is_down_later_lets_known_keys_work_for_a_day(server: Server) -> None:
    verifier = server.verifier()
    assert isinstance(verifier(token()), Token)
    server.down = True
    server.mono += REFRESH_NS + 1
    assert isinstance(verifier(token()), Token)
    server.mono += FETCH_EVERY_NS
    assert "no key '2'" in reason(verifier(token(OTHER, "2"))) and server.fetches == 3
    server.mono += STALE_NS
    assert "no key set" in reason(verifier(token()))


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"keys": 1}', b'{"keys": [1]}', b"<html>"])
def test_an_answer_that_is_no_key_set_changes_nothing(body: bytes, server: Server) -> None:
    verifier = server.verifier()
    assert isinstance(verifier(token()), Token)
    verifier._fetch = lambda _: body
    server.mono += REFRESH_NS + 1
    assert isinstance(verifier(token()), Token)


@pytest.fixture
def http() -> Iterator[tuple[HTTPServer, str]]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            where = {"/old": "/keys"}.get(self.path)
            self.send_response(200 if where is None else 302)
            if where is not None:
                self.send_header("Location", where)
            self.end_headers()
            if where is None:
                self.wfile.write(b"x" * (2 << 20) if self.path == "/large" else b"body")

        def log_message(self, *_: Any) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    yield server, f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


def test_a_fetch_follows_no_redirect_and_reads_no_endless_answer(http: tuple[HTTPServer, str]) -> None:
    _, url = http
    assert fetch(f"{url}/keys") == b"body"
    with pytest.raises(OSError, match="302"):
        fetch(f"{url}/old")
    with pytest.raises(OSError, match="more than"):
        fetch(f"{url}/large")


@pytest.mark.parametrize(
    "answer",
    [
        b"garbage\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 500 + b"\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 200000\r\n\r\n" + b"[" * 200_000,
        b'HTTP/1.1 200 OK\r\n\r\n{"keys": [null]}',
    ],
    ids=["no HTTP", "chunk", "headers", "nested", "null"],
)
def test_the_known_keys_are_used_while_the_server_sends_garbage(server: Server, answer: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            client, _ = listener.accept()
            with client:
                client.recv(65_536)
                client.sendall(answer)

        thread = threading.Thread(target=serve)
        verify = server.verifier()
        assert isinstance(verify(token()), Token)
        verify._fetch = lambda _: fetch(f"http://127.0.0.1:{listener.getsockname()[1]}/")
        server.mono += REFRESH_NS + 1
        thread.start()
        assert isinstance(verify(token()), Token)
        thread.join()
    assert isinstance(verify(token(kid="unknown")), Refusal)


def test_a_fetch_ends_when_its_time_is_over(http: tuple[HTTPServer, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("radiator.server.jwt.FETCH_NS_MAX", 0)
    with pytest.raises(OSError, match="took more than"):
        fetch(f"{http[1]}/keys")


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_server_that_sends_a_byte_now_and_then_holds_no_fetch(scheme: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("radiator.server.jwt.FETCH_NS_MAX", NS_PER_SECOND // 5)
    gone = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            client, _ = listener.accept()
            with client, suppress(OSError):
                client.sendall(b"HTTP/1.1 200 OK\r\n" if scheme == "http" else b"\x16\x03\x03\x3f\xff")
                while not gone.wait(0.02):
                    client.sendall(b"a")

        thread = threading.Thread(target=serve)
        thread.start()
        with pytest.raises(OSError, match="took more than"):
            fetch(f"{scheme}://127.0.0.1:{listener.getsockname()[1]}/")
        gone.set()
        thread.join()


@pytest.mark.parametrize(
    "bad",
    [
        {"kty": "RSA", "alg": "none"},
        {"kty": "RSA", "alg": ["RS256"]},
        {"kty": []},
        {"kty": "RSA", "n": 5, "e": "!", "kid": "1"},
        {"kty": "EC", "crv": "P-256", "x": "AA", "y": "AA", "kid": "2"},
    ],
)
def test_a_malformed_key_does_not_make_the_others_useless(server: Server, bad: dict[str, Any]) -> None:
    keys = json.loads(server.fetch(URL))["keys"]
    server.fetch = lambda _: json.dumps({"keys": [bad, *keys]}).encode()  # type: ignore[method-assign]
    assert isinstance(server.verifier()(token()), Token)


@pytest.mark.parametrize(
    "value", [10**400, -(10**400), float("inf"), float("nan"), "1", True, []], ids=lambda each: str(each)[:9]
)
@pytest.mark.parametrize("name", ["exp", "nbf"])
def test_a_time_that_no_clock_can_have_is_refused(server: Server, name: str, value: Any) -> None:
    whole = json.dumps({**CLAIMS, name: value}).encode()
    api = jwt.api_jws.PyJWS()
    assert isinstance(server.verifier()(api.encode(whole, KEY, "RS256", headers={"kid": "1"})), Refusal)


# --- the configuration ------------------------------------------------------------------------------------------------


WHOLE = (
    "auth: {users_file: u, jwt: {jwks_url: 'https://id.example/k', audience: a, issuer: i, algorithms: [RS256, ES256]}}"
)


def test_the_configuration_is_read() -> None:
    found = load_text(WHOLE).auth
    assert found.has_users and found.jwt == JwtConfig(
        None, "https://id.example/k", ("a",), "i", ("RS256", "ES256"), "sub", None, 30 * NS_PER_SECOND
    )
    assert load_text("").auth.jwt is None


@pytest.mark.parametrize(
    ("before", "after", "why"),
    [
        ("jwks_url: 'https://id.example/k'", "jwks_url: 'http://id.example/k'", "an https:// URL"),
        ("jwks_url: 'https://id.example/k'", "leeway: 1s", "expected key_file or jwks_url"),
        ("jwks_url", "key_file: k, jwks_url", "expected key_file or jwks_url"),
        ("audience: a, ", "", "expected audience"),
        ("issuer: i, ", "", "expected issuer"),
        (", algorithms: [RS256, ES256]", "", "expected algorithms"),
        ("ES256", "HS256", "HS256"),
        ("ES256", "none", "none"),
        ("users_file: u, ", "", "expected auth.users_file"),
        ("users_file: u", "users_file: u, plugin: p", "no auth.plugin"),
        ("audience: a", "audiences: a", "unknown key; did you mean audience?"),
    ],
)
def test_a_fault_of_the_configuration_is_reported(before: str, after: str, why: str) -> None:
    with pytest.raises(ConfigError, match="auth.jwt") as error:
        load_text(WHOLE.replace(before, after, 1))
    assert why in str(error.value)


def test_an_unknown_right_of_a_role_is_a_fault_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "users.yaml"
    path.write_text("roles:\n  reader: {reed: /topic/>}\n")
    with pytest.raises(ConfigError, match=r"users.yaml:2: roles.reader.reed: unknown key; did you mean read\?"):
        check(AuthConfig(str(path), "never", None, NS_PER_SECOND))
    path.write_text("roles:\n  reader: {read: /topic/>/b}\n")
    with pytest.raises(ConfigError, match=r"users.yaml:2: roles.reader"):
        check(AuthConfig(str(path), "never", None, NS_PER_SECOND))


@pytest.mark.parametrize("content", [None, b"", b"-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n"])
def test_a_key_file_that_has_no_key_is_a_fault(content: bytes | None, tmp_path: Path) -> None:
    path = tmp_path / "key.pem"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigError, match=r"auth.jwt.key_file: .*key.pem: (cannot be read|expected a public key)"):
        Server().verifier(key_file=str(path), jwks_url=None)


# --- logins -----------------------------------------------------------------------------------------------------------


class TokenLogins:
    """A broker whose authenticator verifies tokens; its threads are a list that the test works off."""

    def __init__(self, tmp_path: Path, server: Server, **changes: Any) -> None:
        self.users = tmp_path / "users.yaml"
        self.users.write_text(USERS)
        self.world = World()
        self.threads = Threads()
        auth = AuthConfig(str(self.users), "never", None, 5 * NS_PER_SECOND, config(**changes))
        self.authenticator = Authenticator(
            auth, [self.threads.submit], [self.threads.call], self.threads.later, lambda: self.threads.now,
            self.threads.changed, self.threads.look, peer_log=self.world.broker.peer_log,
            wall_ns=lambda: self.world.broker.timing.now.wall,
        )  # fmt: skip
        self.authenticator._tokens = TokenVerifier(
            config(**changes), lambda: self.world.broker.timing.now.wall, lambda: self.threads.now, server.fetch
        )  # type: ignore[arg-type]
        self.world.broker.access.use(self.authenticator)

    def connect(self, passcode: str, login: str = "jwt") -> Any:
        from tests.broker.harness import Client

        client = Client(self.world)
        client.say("CONNECT", accept_version="1.2", host="h", login=login, passcode=passcode)
        self.threads.run()
        client.flush()
        return client

    def decision(self, passcode: str, login: str = "jwt") -> Decision:
        client = self.connect(passcode, login)
        if client.session.connected:
            identity: Identity = client.session.identity
            return identity
        (frame,) = client.take("ERROR")
        return ProtocolError(frame.headers["error-code"], frame.headers["message"], frame.body.decode())


@pytest.fixture
def logins(tmp_path: Path, server: Server) -> TokenLogins:
    return TokenLogins(tmp_path, server)


@pytest.fixture
def role_logins(tmp_path: Path, server: Server) -> TokenLogins:
    return TokenLogins(tmp_path, server, roles_from="roles")


@pytest.mark.parametrize("login", ["", "jwt", "alice"])
def test_a_token_logs_its_user_in_with_the_rights_of_the_users_file(login: str, logins: TokenLogins) -> None:
    found = logins.decision(token(), login)
    assert isinstance(found, Identity) and found.user == "alice"
    assert found.rights.may("read", "/topic/x") and not found.rights.may("read", "/queue/a")


def test_the_reason_of_a_refusal_is_in_the_log_and_not_in_the_error(
    logins: TokenLogins, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    errors = []
    for passcode, login, why in (
        (token(OTHER), "jwt", "Signature verification failed"),
        (token(exp=SECONDS - 100), "jwt", "the token has expired"),
        (token(sub="mallory"), "jwt", "no user 'mallory' in the users file"),
        (token(), "bob", "the login is 'bob', and the token is of 'alice'"),
    ):
        caplog.clear()
        found = logins.decision(passcode, login)
        assert isinstance(found, ProtocolError) and found.code == "denied"
        errors.append((found.code, found.message, found.detail))
        assert why in caplog.text and passcode not in caplog.text
    assert len(set(errors)) == 1


def test_refused_tokens_delay_no_other_token_of_the_same_address(logins: TokenLogins) -> None:
    for number in range(30):
        assert isinstance(logins.decision(token(exp=SECONDS - 100 - number)), ProtocolError)
    assert isinstance(logins.decision(token()), Identity) and not logins.threads.timers


def test_roles_give_their_rights_together_and_unknown_ones_give_none(role_logins: TokenLogins) -> None:
    found = role_logins.decision(token(sub="any", roles=["reader", "worker", "unknown"]))
    assert isinstance(found, Identity)
    assert [found.rights.may("read", name) for name in ("/topic/a", "/queue/jobs", "/queue/x")] == [True, True, False]
    assert found.rights.may("write", "/queue/done") and not found.rights.has("admin")
    again = role_logins.decision(token(sub="other", roles=["worker", "reader"]))
    assert isinstance(again, Identity) and again.rights is found.rights
    assert isinstance(role_logins.decision(token(roles=["unknown"])), ProtocolError)


def test_a_changed_role_holds_for_open_connections(role_logins: TokenLogins) -> None:
    client = role_logins.connect(token(roles=["reader"]))
    identity = role_logins.authenticator.identity
    found = identity(client.session)
    assert isinstance(found, Identity) and found.rights is client.session.rights and found.expires_ns
    role_logins.users.write_text(USERS.replace("/topic/>]", "/topic/b]"))
    role_logins.authenticator.reload()
    role_logins.threads.run()
    found = identity(client.session)
    assert isinstance(found, Identity) and not found.rights.may("read", "/topic/a") and found.expires_ns
    role_logins.users.write_text("users: {}")
    role_logins.authenticator.reload()
    role_logins.threads.run()
    assert isinstance(identity(client.session), ProtocolError)


def test_a_verified_token_is_not_verified_again_for_a_minute_but_never_after_its_end(
    logins: TokenLogins, server: Server
) -> None:
    short = token(exp=SECONDS + 10)
    assert isinstance(logins.decision(short), Identity) and isinstance(logins.decision(short), Identity)
    assert logins.threads.done == 1
    logins.world.now += 41 * NS_PER_SECOND
    logins.world.broker.tick(logins.world.time)
    assert isinstance(logins.decision(short), ProtocolError)


def test_at_its_end_a_connection_is_closed_and_its_messages_go_back(logins: TokenLogins, tmp_path: Path) -> None:
    world = logins.world
    logins.users.write_text(USERS.replace("write: /queue/a", 'write: "#"').replace("/topic/>, write", '"#", write'))
    logins.authenticator.reload()
    logins.threads.run()
    first, second = logins.connect(token(exp=SECONDS + 10)), logins.connect(token(exp=SECONDS + 1_000))
    first.publish("/queue/a", "x")
    first.subscribe("/queue/a")
    world.settle()
    assert len(first.messages()) == 1
    timers = len(world.broker.timing)
    world.tick(39)
    assert not first.session.closing
    second.subscribe("/queue/a", ack="auto")
    world.settle()
    world.tick(1)
    (error,) = first.take("ERROR")
    assert error.headers["error-code"] == "denied" and "expired" in error.headers["message"]
    (message,) = second.messages()
    assert message.body == b"x" and message.headers["redelivered"] == "true"
    first.drop()
    second.drop()
    world.settle()
    assert len(world.broker.timing) < timers and not world.broker.access._expiries


def test_a_step_of_the_clock_that_is_not_confirmed_ends_no_connection(logins: TokenLogins) -> None:
    client = logins.connect(token(exp=SECONDS + 3_600))
    logins.world.step(86_400)
    logins.world.tick(1)
    assert not client.session.closing


def test_a_verification_that_takes_too_long_is_refused(logins: TokenLogins) -> None:
    client = logins.world.broker
    from tests.broker.harness import Client

    waiting = Client(logins.world)
    waiting.say("CONNECT", accept_version="1.2", host="h", login="jwt", passcode=token())
    logins.threads.read()
    logins.threads.now += 6 * NS_PER_SECOND
    logins.authenticator.tick()
    waiting.flush()
    (error,) = waiting.take("ERROR")
    assert error.headers["error-code"] == "timeout" and client.stats.logins_refused == 1


@pytest.mark.thorough
def test_a_broker_verifies_tokens_and_ends_a_connection_at_its_end(tmp_path: Path, key_file: str) -> None:
    users = tmp_path / "users.yaml"
    users.write_text('roles: {worker: {read: "#", write: "#"}}\nanonymous: {read: /topic/none}\n')
    broker = BrokerProcess(
        tmp_path,
        f"auth: {{users_file: {users}, jwt: {{key_file: {key_file}, audience: radiator, issuer: "
        "'https://id.example', algorithms: [RS256], roles_claim: roles, leeway: 0ms}}\n",
    )
    broker.start()
    try:

        def passcode(seconds: float, **claims: Any) -> str:
            return token(kid=None, exp=time.time() + seconds, **{"roles": ["worker"]} | claims)

        for wrong in (passcode(-1), passcode(60, roles=["other"]), passcode(60, aud="other"), "nothing"):
            with pytest.raises(ClientError, match="denied|refused"):
                connect(broker.address, login="jwt", passcode=wrong, timeout=20)
        with connect(broker.address, login="jwt", passcode=passcode(600), timeout=20) as sender:
            sender.send("/queue/a", b"x", receipt=True)
            worker = connect(broker.address, login="jwt", passcode=passcode(2), timeout=20)
            assert worker.subscribe("/queue/a", ack="client-individual").fetch(20) is not None
            with pytest.raises(ClientError, match="expired"):
                worker.subscribe("/queue/b").fetch(20)
            message = sender.subscribe("/queue/a").fetch(20)
            assert message is not None and message.body == b"x" and message.headers["redelivered"] == "true"
        assert broker.logs("token from", "the token has expired", "no role of 'other' in the users file")
    finally:
        broker.kill()
