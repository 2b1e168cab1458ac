"""Conversations in plain text, and the stages on which they are played. ``README.md`` has the format.

A *stage* is a broker with clients: ``MemoryStage`` is the core in memory, ``TcpStage`` a real broker. Both give
*actors* that send bytes and hear frames; everything else (parsing, variables, what counts as a match) is here, once.
"""

from __future__ import annotations

import re
import shlex
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from radiator.stomp.connection import ClientConnection
from radiator.stomp.encoder import encode
from radiator.stomp.frames import Frame
from tests.broker.harness import Client, World
from tests.running import BrokerProcess

WAIT_SECONDS = 20.0
_ESCAPE = re.compile(r"\\(?:x([0-9a-fA-F]{2})|(.))")
_ESCAPES = {"0": b"\0", "n": b"\n", "r": b"\r", "t": b"\t", "\\": b"\\"}
_VARIABLE = re.compile(r"\$([a-z][a-z0-9]*)")
MEMORY_ONLY = ("the power fails", "seconds pass", "second passes")


@dataclass
class Conversation:
    """``lines`` are (line number, text)."""

    title: str
    path: Path
    config: str = ""
    lines: list[tuple[int, str]] = field(default_factory=list)

    @property
    def memory_only(self) -> bool:
        return any(text.endswith(MEMORY_ONLY) for _, text in self.lines)

    @property
    def restarts(self) -> bool:
        return any(text.startswith("broker ") for _, text in self.lines)

    def __str__(self) -> str:
        return f"{self.path.stem}: {self.title}"


def read(path: Path) -> list[Conversation]:
    found: list[Conversation] = []
    in_config = False
    for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
        if line.startswith("== "):
            found.append(Conversation(line[3:].strip(), path))
        elif not found or not line.strip() or line.startswith("#"):
            pass
        elif line.rstrip() == "config:":
            in_config = True
            continue
        elif in_config and line.startswith(" "):
            found[-1].config += line + "\n"
            continue
        else:
            found[-1].lines.append((number, line.rstrip()))
        in_config = in_config and not line.strip()
    return found


def unescaped(text: str) -> bytes:
    found, at = b"", 0
    for match in _ESCAPE.finditer(text):
        found += text[at : match.start()].encode()
        found += bytes.fromhex(match[1]) if match[1] else _ESCAPES[match[2]]
        at = match.end()
    return found + text[at:].encode()


class Actor(Protocol):
    """One client on a stage."""

    @property
    def version(self) -> str:
        """As agreed."""

    def send(self, data: bytes) -> None: ...

    def hear(self, command: str, subscription: str | None = None) -> Frame | None:
        """The first frame of this command (and subscription) that was not asked for; None if none comes."""

    def rest(self) -> list[Frame]:
        """Everything heard and not asked for, once everything that can come has come."""

    def closed(self) -> bool:
        """True once the broker has closed the connection."""

    def drop(self) -> None: ...


class Stage(Protocol):
    def actor(self) -> Actor: ...

    def event(self, text: str) -> None:
        """Restarts, power cuts, time."""


# --- the stages -------------------------------------------------------------------------------------------------------


def _taken(inbox: list[Frame], command: str, subscription: str | None) -> Frame | None:
    for frame in inbox:
        if frame.command == command and subscription in (None, frame.headers.get("subscription")):
            inbox.remove(frame)
            return frame
    return None


class MemoryActor:
    def __init__(self, world: World) -> None:
        self._world = world
        self._client = Client(world)
        self._client.end = ClientConnection()

    @property
    def version(self) -> str:
        return self._client.end.version or "1.2"

    def send(self, data: bytes) -> None:
        self._client.say_bytes(data)

    def hear(self, command: str, subscription: str | None = None) -> Frame | None:
        self._client.flush()
        frame = _taken(self._client.inbox, command, subscription)
        if frame is None:
            self._world.settle()
            frame = _taken(self._client.inbox, command, subscription)
        return frame

    def rest(self) -> list[Frame]:
        self._world.settle()
        return self._client.take()

    def closed(self) -> bool:
        self._world.settle()
        return self._client.session.closing and not self._client.session.outbox.pieces

    def drop(self) -> None:
        self._client.drop()


class MemoryStage:
    def __init__(self, config: str) -> None:
        self.world = World(config)

    def actor(self) -> MemoryActor:
        return MemoryActor(self.world)

    def event(self, text: str) -> None:
        if text == "broker restarts":
            self.world.restart()
        elif text == "broker is killed":
            self.world.kill()
        elif text == "the power fails":
            self.world.power_cut()
        else:
            self.world.tick(float(text.split()[0]))


class TcpActor:
    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=WAIT_SECONDS)
        self._end = ClientConnection()
        self._inbox: list[Frame] = []
        self._eof = False
        self._barriers = 0

    @property
    def version(self) -> str:
        return self._end.version or "1.2"

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def _receive(self) -> bool:
        """One more recv; False at the end of the stream."""
        if not self._eof:
            try:
                data = self._socket.recv(65_536)
            except ConnectionResetError:
                data = b""
            self._eof = not data
            self._inbox += self._end.receive(data)
        return not self._eof

    def hear(self, command: str, subscription: str | None = None) -> Frame | None:
        while True:
            frame = _taken(self._inbox, command, subscription)
            if frame is not None:
                return frame
            try:
                if not self._receive():
                    return None
            except TimeoutError:
                return None

    def rest(self) -> list[Frame]:
        """Twice a message is sent and its receipt awaited: what could come because of earlier frames has come then."""
        for _ in range(2):
            self._barriers += 1
            receipt = f"barrier-{self._barriers}"
            headers = [("destination", "/topic/barrier"), ("receipt", receipt)]
            try:
                self.send(encode("SEND", headers, b"", self.version))
            except OSError:
                pass
            while not any(frame.headers.get("receipt-id") == receipt for frame in self._inbox):
                if not self._receive():
                    break
        rest = [frame for frame in self._inbox if not frame.headers.get("receipt-id", "").startswith("barrier-")]
        self._inbox.clear()
        return rest

    def closed(self) -> bool:
        while self._receive():
            pass
        return not self._inbox

    def drop(self) -> None:
        self._socket.close()


class TcpStage:
    def __init__(self, broker: BrokerProcess) -> None:
        self.broker = broker

    def actor(self) -> TcpActor:
        return TcpActor(self.broker.port)

    def event(self, text: str) -> None:
        if text == "broker restarts":
            assert self.broker.stop() == 0
        else:
            assert text == "broker is killed"
            self.broker.kill()
        self.broker.start()


# --- playing ----------------------------------------------------------------------------------------------------------


class Play:
    """One conversation on one stage. Every failure names the line."""

    def __init__(self, conversation: Conversation, stage: Stage) -> None:
        self.conversation = conversation
        self.stage = stage
        self.actors: dict[str, Actor] = {}
        self.variables: dict[str, str] = {}

    def run(self) -> None:
        where = self.conversation.path.name
        try:
            for number, line in self.conversation.lines:
                where = f"{self.conversation.path.name}:{number}: {line}"
                self._line(line)
            where = f"{self.conversation.path.name}: {self.conversation.title}: at the end"
            for name, actor in self.actors.items():
                assert actor.rest() == [], f"{name} heard more than was asked for"
        except AssertionError as error:
            raise AssertionError(f"{where}\n{error}") from error
        finally:
            for actor in self.actors.values():
                actor.drop()

    def _line(self, line: str) -> None:
        if line.startswith(("broker ", "the power")) or line.endswith(("seconds pass", "second passes")):
            self.stage.event(line)
            if not line.endswith(("pass", "passes")):
                self.actors.clear()
            return
        name, verb, rest = [*line.split(" ", 2), ""][:3]
        if verb == "connects":
            version, *headers = shlex.split(rest)
            self.actors[name] = self.stage.actor()
            pairs = [("accept-version", version), ("host", "test"), *map(_pair, headers)]
            self.actors[name].send(encode("CONNECT", pairs))
            assert self.actors[name].hear("CONNECTED") is not None, "no CONNECTED was heard"
            return
        if name not in self.actors:
            self.actors[name] = self.stage.actor()
        actor = self.actors[name]
        if verb == ">":
            command, pairs, body = self._frame(rest)
            actor.send(encode(command, pairs, body or b"", "1.0" if command in ("CONNECT", "STOMP") else actor.version))
        elif verb == ">>":
            actor.send(unescaped(self._filled(rest)))
        elif verb == "drops":
            actor.drop()
            del self.actors[name]
        elif rest == "nothing":
            assert actor.rest() == []
        elif rest == "closed":
            assert actor.closed(), f"not closed, or not all that was heard was asked for: {actor.rest()}"
            del self.actors[name]
        else:
            assert verb == "<", "not a line of a conversation"
            self._expect(actor, rest)

    def _filled(self, text: str) -> str:
        return _VARIABLE.sub(lambda match: self.variables[match[1]], text)

    def _frame(self, text: str) -> tuple[str, list[tuple[str, str]], bytes | None]:
        head, body = self._split(text)
        command, *headers = shlex.split(self._filled(head))
        return command, [_pair(header) for header in headers], body

    def _split(self, text: str) -> tuple[str, bytes | None]:
        head, bar, body = f"{text} ".partition(" | ")
        return head, unescaped(self._filled(body.removesuffix(" "))) if bar else None

    def _expect(self, actor: Actor, text: str) -> None:
        head, body = self._split(text)
        command, *headers = shlex.split(head)
        subscriptions = [header.partition(":")[2] for header in headers if header.startswith("subscription:")]
        frame = actor.hear(command, *subscriptions)
        assert frame is not None, f"no {command} was heard, but {actor.rest()}"
        found = frame.headers
        for header in headers:
            if header.startswith("!"):
                assert header[1:] not in found, f"unexpected {header[1:]}: {found}"
                continue
            name, value = _pair(header)
            assert name in found, f"no header {name}: {found}"
            variable = _VARIABLE.fullmatch(value)
            if variable and variable[1] not in self.variables:
                self.variables[variable[1]] = found[name]
            elif value != "*":
                assert found[name] == self._filled(value), f"{name}: {found[name]!r}"
        if body is not None:
            assert frame.body == body, f"body: {frame.body[:200]!r}"


def _pair(text: str) -> tuple[str, str]:
    name, colon, value = text.partition(":")
    assert colon, f"not header:value: {text}"
    return name, value


def conversations() -> Iterator[Conversation]:
    for path in sorted(Path(__file__).parent.glob("*.txt")):
        yield from read(path)


StartBroker = Callable[..., BrokerProcess]
