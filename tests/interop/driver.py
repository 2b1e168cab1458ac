"""A client of another make, moved from here: a small program around it takes orders and answers, a line of JSON each.

The programs stand in ``clients/``, one for each client, each in its language; they say everything by the client's own
functions, and judge nothing. An order is ``{"op": "stored", "c": "a", ...}``, ``c`` being the connection; an answer is
``{"ok": ...}`` or ``{"error": "words"}``. Bodies are in base64.

    hello                                          the client's name and version
    connect      endpoint, version, login, passcode, heart_beat      the negotiated version
    send         destination, body, text, headers, transaction
    stored       the same, and wait for the receipt
    subscribe    destination, id, ack, headers
    unsubscribe  destination, id
    receive      seconds                           the next message: handle, headers, body; or null
    ack, nack    handle, transaction
    begin, commit, abort    transaction
    failure      seconds                           the words of the ERROR that came
    rest         seconds                           do nothing but what the client does by itself
    back         seconds                           after a broken line: connected and subscribed again
    disconnect                                     politely, with a receipt where the client can
    forget                                         drop all connections, without a word
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import select
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tests.interop.tap import Tap

ANSWER_SECONDS_MAX = 40.0
RECEIVE_SECONDS = 20.0
NOTHING_SECONDS = 0.15  # long enough to see what should not be there, most of the time


class DriverError(Exception):
    """What the client, or the program around it, has against an order."""


class Message(NamedTuple):
    handle: int
    headers: dict[str, str]
    body: bytes


class Endpoint(NamedTuple):
    """Where the broker is, as a client sees it: through a tap."""

    transport: str  # tcp, tls, ws or wss
    tap: Tap
    ca_file: str = ""
    path: str = ""

    def as_json(self) -> dict[str, Any]:
        host = "localhost" if self.transport in ("tls", "wss") else "127.0.0.1"  # a name that a certificate has
        return {"transport": self.transport, "host": host, "port": self.tap.port, "ca": self.ca_file, "path": self.path}


class Driver:
    """One process with one client in it, and as many connections as a scenario wants."""

    def __init__(self, command: Sequence[str], folder: Path, environ: Mapping[str, str], log: Path) -> None:
        self._log = log
        self._buffer = b""
        with log.open("ab") as stderr:
            self._process = subprocess.Popen(
                command, cwd=folder, env={**os.environ, **environ},
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr, start_new_session=True,
            )  # fmt: skip

    def do(self, op: str, **arguments: Any) -> Any:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps({"op": op, **arguments}).encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise DriverError(f"{op}: the program has ended\n{self.complaints()}") from None
        answer = json.loads(self._line(op))
        if "error" in answer:
            raise DriverError(f"{op}: {answer['error']}")
        return answer["ok"]

    def _line(self, op: str) -> bytes:
        assert self._process.stdout is not None
        deadline = time.monotonic() + ANSWER_SECONDS_MAX
        while b"\n" not in self._buffer:
            left = deadline - time.monotonic()
            ready = select.select([self._process.stdout], [], [], max(0.0, left))[0]
            if not ready:
                self.kill()
                raise DriverError(f"{op}: no answer within {ANSWER_SECONDS_MAX} s\n{self.complaints()}")
            data = os.read(self._process.stdout.fileno(), 1 << 20)
            if not data:
                raise DriverError(f"{op}: the program has ended\n{self.complaints()}")
            self._buffer += data
        line, self._buffer = self._buffer.split(b"\n", 1)
        return line

    def complaints(self) -> str:
        return self._log.read_text("utf-8", "replace")[-4000:]

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            with contextlib.suppress(OSError):
                stream.close()


class Connection:
    """One connection of a client, in the words of the scenarios."""

    def __init__(self, driver: Driver, name: str) -> None:
        self._driver = driver
        self.name = name

    def do(self, op: str, **arguments: Any) -> Any:
        return self._driver.do(op, c=self.name, **arguments)

    def send(self, destination: str, body: bytes | str, *, stored: bool = True, **options: Any) -> None:
        raw = body.encode() if isinstance(body, str) else body
        self.do(
            "stored" if stored else "send",
            destination=destination, body=base64.b64encode(raw).decode(), text=isinstance(body, str),
            headers=options.get("headers", {}), transaction=options.get("transaction", ""),
        )  # fmt: skip

    def subscribe(self, destination: str, ack: str = "auto", id: str = "1", **headers: str) -> None:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        self.do("subscribe", destination=destination, id=id, ack=ack, headers=named)

    def receive(self, seconds: float = RECEIVE_SECONDS) -> Message:
        message = self.look(seconds)
        assert message is not None, f"no message within {seconds} s"
        return message

    def look(self, seconds: float = NOTHING_SECONDS) -> Message | None:
        got = self.do("receive", seconds=seconds)
        return got and Message(got["handle"], got["headers"], base64.b64decode(got["body"]))

    def bodies(self, count: int) -> list[str]:
        return [self.receive().body.decode() for _ in range(count)]

    def ack(self, message: Message, transaction: str = "") -> None:
        self.do("ack", handle=message.handle, transaction=transaction)

    def nack(self, message: Message, transaction: str = "") -> None:
        self.do("nack", handle=message.handle, transaction=transaction)
