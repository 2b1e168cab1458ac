"""Both ends of a STOMP connection: the opening, the version, the heart-beats, then frames in and bytes out.

ServerConnection parses what a client sends. The version is agreed inside ``receive``, between the opening frame and the
frames behind it in the same chunk, so those are parsed by the right rules. It refuses other protocols with a readable
message, and leaves everything after the opening (commands, headers) to the broker.

ClientConnection is the other end: it writes the frames of a client in the agreed version and parses the server's.

Neither does I/O or reads a clock. Errors are in ``failed``; nothing is raised for input.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from radiator.clock import MonoNs
from radiator.errors import ProtocolError
from radiator.stomp import encoder
from radiator.stomp.frames import Frame
from radiator.stomp.heartbeat import HeartBeat, negotiate
from radiator.stomp.parser import HeadCache, Parser, ParserLimits
from radiator.stomp.spec import VERSIONS

_SNIFF_BYTES = 8
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"  # written before UTF-8 by some editors and runtimes
HEART_BEAT_MS_MAX = 10**12 - 1  # thirty years
_OPENS = frozenset({"CONNECT", "STOMP"})

# Other protocols that end up on a STOMP port: first bytes, message, detail, the answer that they understand.
_HTTP_VERBS = (b"GET ", b"HEAD ", b"POST ", b"PUT ", b"PATCH ", b"DELETE ", b"OPTIONS ", b"CONNECT ", b"PRI ")
_HTTP_TEXT = (
    "Expected a STOMP client, got an HTTP request. Open this address with a STOMP client; "
    "this broker has no pages for a browser."
)
_HTTP_ANSWER = (
    f"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {len(_HTTP_TEXT) + 1}\r\n"
    f"Connection: close\r\n\r\n{_HTTP_TEXT}\n"
).encode()
_FOREIGN = (
    (_HTTP_VERBS, "this is a STOMP port, not an HTTP one", _HTTP_TEXT, _HTTP_ANSWER),
    (
        (b"\x16\x03",),
        "this is a STOMP port without TLS",
        "Expected a plain STOMP client, got a TLS handshake. Switch TLS off in the client, or connect to a TLS port.",
        b"\x15\x03\x01\x00\x02\x02\x28",  # alert: fatal, handshake failure
    ),
)

Headers = Mapping[str, str] | Iterable[tuple[str, str]]


def choose_version(accept: str | None) -> str | None:
    """Return the highest version that both sides speak, or None; no ``accept-version`` means 1.0."""
    if accept is None:
        return "1.0"
    offered = {part.strip() for part in accept.split(",")}
    common = [version for version in VERSIONS if version in offered]
    return common[-1] if common else None


def parse_heart_beat(value: str | None) -> tuple[int, int]:
    """Return the two numbers of a ``heart-beat`` header, in milliseconds.

    They are HEART_BEAT_MS_MAX at most, and 0 without a header.

    Raises:
        ProtocolError: The header is malformed.
    """
    if value is None:
        return 0, 0
    parts = [part.strip() for part in value.split(",")]
    if len(parts) != 2 or not all(part.isascii() and part.isdigit() for part in parts):
        raise ProtocolError(
            "bad-header",
            "heart-beat is malformed",
            f"expected 'heart-beat:<ms>,<ms>' with two whole numbers of milliseconds, got {value[:80]!r}",
        )
    send_ms, expect_ms = (int(part) if len(part) <= 12 else HEART_BEAT_MS_MAX for part in parts)
    return send_ms, expect_ms


class ServerConnection:
    """The server's end of one connection."""

    def __init__(
        self,
        limits: ParserLimits | None = None,
        caches: Mapping[str, HeadCache] | None = None,
        heart_beat: tuple[int, int] = (0, 0),
    ) -> None:
        self._parser = Parser(limits=limits, caches=caches)
        self._blank_bytes_max = (limits or ParserLimits()).header_block_bytes_max
        self._own_heart_beat = heart_beat
        self._first = b""
        self._blank_bytes = 0  # of line ends before the opening frame
        self.pending_bytes = 0  # how much of an unfinished frame is held
        self.version: str | None = None  # settled by CONNECT
        self.failed: ProtocolError | None = None
        self.failed_receipt: bytes | None = None  # of the frame that failed, for its ERROR
        self.heart_beat: tuple[int, int] = (0, 0)  # (send_ms, expect_ms) as agreed

    @property
    def offered_heart_beat(self) -> tuple[int, int]:
        """What CONNECTED offers: (send_ms, expect_ms)."""
        return self._own_heart_beat

    @property
    def connected(self) -> bool:
        """Whether the opening frame came and a version was agreed."""
        return self.version is not None

    @property
    def idle(self) -> bool:
        """Whether the stream is between two frames."""
        return self._parser.idle and not self._first

    def discard(self) -> None:
        """Drop the unfinished frame. Nothing may be received afterwards."""
        self._parser.discard()
        self.pending_bytes = len(self._first)

    def receive(self, data: bytes) -> list[Frame]:
        """Return the frames that ``data`` completes; the first one is CONNECT or STOMP. Check ``failed`` afterwards."""
        if self.failed is not None:
            return []
        parser = self._parser
        if self.version is None:
            frames = self._open(data)
            self.pending_bytes = parser.pending_bytes + len(self._first)
            return frames
        frames = parser.feed(data)
        self.pending_bytes = parser.pending_bytes
        return self._checked(frames) if parser.paused or parser.failed is not None else frames

    def connected_frame(self, headers: Iterable[tuple[str, str]] = ()) -> bytes:
        """Return the CONNECTED frame, with ``headers`` such as ``session`` and ``server``."""
        assert self.version is not None
        return encoder.connected(self.version, headers, self._own_heart_beat)

    def heart_beat_clock(self, grace: float, now_ns: MonoNs) -> HeartBeat:
        """Return the clock of the agreed heart-beats."""
        return HeartBeat(*self.heart_beat, grace, now_ns)

    def refusal(self) -> bytes:
        """Return the answer to the error in ``failed``: an ERROR, or an answer in the other protocol."""
        assert self.failed is not None
        if self.failed.code == "not-stomp":
            for first_bytes, _, _, answer in _FOREIGN:
                if self._first.startswith(first_bytes):
                    return answer
        return encoder.error(self.failed, self.failed_receipt, self.version)

    def _checked(self, frames: list[Frame]) -> list[Frame]:
        parser = self._parser
        if parser.paused:
            self.failed_receipt = frames.pop().receipt
            self.failed = ProtocolError(
                "bad-command",
                "already connected",
                "expected any frame but CONNECT and STOMP, which open a connection once",
            )
        else:
            self.failed, self.failed_receipt = parser.failed, parser.failed_receipt
        return frames

    def _open(self, data: bytes) -> list[Frame]:
        if self._parser.idle:  # the first bytes: is it STOMP at all?
            whole = self._first + data
            data = whole.lstrip(b"\r\n").removeprefix(_BYTE_ORDER_MARK).lstrip(b"\r\n")
            self._first = b""
            self._blank_bytes += len(whole) - len(data)
            if self._blank_bytes > self._blank_bytes_max:
                detail = (
                    f"expected CONNECT or STOMP after at most {self._blank_bytes_max} bytes of line ends "
                    "(limits.headers in the YAML file)"
                )
                self.failed = ProtocolError("too-large", "too much came before CONNECT", detail)
                return []
            for first_bytes, message, detail, _ in _FOREIGN:
                if data.startswith(first_bytes):
                    self._first = data[:_SNIFF_BYTES]
                    self.failed = ProtocolError("not-stomp", message, detail)
                    return []
            if data.startswith(b"\0"):  # NULs are skipped between frames, but STOMP does not begin with one
                detail = f"expected CONNECT or STOMP, got {data[:_SNIFF_BYTES]!r}"
                self.failed = ProtocolError("bad-frame", "expected a STOMP command", detail)
                return []
            if len(data) < _SNIFF_BYTES and b"\n" not in data:
                self._first = data
                return []
        parser = self._parser
        frames = parser.feed(data)
        head = frames[0].head if frames else parser.pending_head or parser.failed_head
        self.failed_receipt = frames[0].receipt if frames else parser.failed_receipt
        if head is not None and head.command not in _OPENS:  # refused before its body is waited for
            self.failed = ProtocolError(
                "bad-command",
                f"{head.command} came before CONNECT",
                f"expected CONNECT or STOMP, in capital letters, as the first frame, got {head.command}",
            )
            return []
        if not frames:
            self.failed = parser.failed
            return []
        headers = frames[0].headers
        version = choose_version(headers.get("accept-version"))
        if version is None:
            self.failed = ProtocolError(
                "bad-version",
                "no common STOMP version",
                f"expected one of {', '.join(VERSIONS)} in accept-version, got {headers['accept-version'][:200]!r}",
            )
            return []
        if version != "1.0":  # which has no heart-beats
            try:
                peer = parse_heart_beat(headers.get("heart-beat"))
            except ProtocolError as problem:
                self.failed = problem
                return []
            self.heart_beat = negotiate(self._own_heart_beat, peer)
        self.version = version
        self.failed_receipt = None
        return frames + self._checked(parser.resume(version))


class ClientConnection:
    """The client's end of one connection: encodes frames to send, parses received bytes."""

    def __init__(
        self,
        limits: ParserLimits | None = None,
        heart_beat: tuple[int, int] = (0, 0),
        versions: Iterable[str] = VERSIONS,
    ) -> None:
        self._parser = Parser(limits=limits)
        self._own_heart_beat = heart_beat
        self._versions = tuple(versions)
        self.version: str | None = None  # settled by CONNECTED
        self.failed: ProtocolError | None = None
        self.heart_beat: tuple[int, int] = (0, 0)  # (send_ms, expect_ms) as agreed

    @property
    def connected(self) -> bool:
        """Whether a version was agreed."""
        return self.version is not None

    @property
    def idle(self) -> bool:
        """Whether the stream is between two frames."""
        return self._parser.idle

    def heart_beat_clock(self, grace: float, now_ns: MonoNs) -> HeartBeat:
        """Return the clock of the agreed heart-beats."""
        return HeartBeat(*self.heart_beat, grace, now_ns)

    # --- in ---------------------------------------------------------------------------------------------------------

    def receive(self, data: bytes) -> list[Frame]:
        """Return the server's frames that ``data`` completes. Check ``failed`` afterwards."""
        if self.failed is not None:
            return []
        parser = self._parser
        frames = parser.feed(data)
        if parser.paused and self.version is None and frames[-1].command == "CONNECTED":
            try:
                version = self._accept_version(frames[-1].headers)
            except ProtocolError as problem:
                self.failed = problem
                return frames
            frames += parser.resume(version)
        if parser.paused:
            self.failed = ProtocolError("bad-command", f"the server sent an unexpected {frames.pop().command}")
        else:
            self.failed = parser.failed
        return frames

    def _accept_version(self, headers: Mapping[str, str]) -> str:
        version = headers.get("version", "1.0")
        if version not in self._versions:
            raise ProtocolError(
                "bad-version",
                "the server chose a version that was not offered",
                f"expected one of {', '.join(self._versions)}, got {version[:80]!r}",
            )
        if version != "1.0":
            self.heart_beat = negotiate(self._own_heart_beat, parse_heart_beat(headers.get("heart-beat")))
        self.version = version
        return version

    # --- out --------------------------------------------------------------------------------------------------------

    def connect_frame(
        self,
        host: str,
        *,
        login: str | None = None,
        passcode: str | None = None,
        headers: Headers = (),
    ) -> bytes:
        """Return a CONNECT frame."""
        lines = [("accept-version", ",".join(self._versions)), ("host", host)]
        if login is not None:
            lines.append(("login", login))
        if passcode is not None:
            lines.append(("passcode", passcode))
        if self._own_heart_beat != (0, 0):
            lines.append(("heart-beat", f"{self._own_heart_beat[0]},{self._own_heart_beat[1]}"))
        return encoder.encode("CONNECT", lines + _items(headers))

    def send(
        self,
        destination: str,
        body: bytes = b"",
        headers: Headers = (),
        *,
        receipt: str | None = None,
        transaction: str | None = None,
    ) -> bytes:
        """Return a SEND frame."""
        lines = [("destination", destination), *_items(headers)]
        return self._frame("SEND", lines, receipt, transaction, body)

    def subscribe(
        self, destination: str, id: str, ack: str = "auto", headers: Headers = (), *, receipt: str | None = None
    ) -> bytes:
        """Return a SUBSCRIBE frame."""
        lines = [("destination", destination), ("id", id), ("ack", ack), *_items(headers)]
        return self._frame("SUBSCRIBE", lines, receipt)

    def unsubscribe(self, id: str, headers: Headers = (), *, receipt: str | None = None) -> bytes:
        """Return an UNSUBSCRIBE frame."""
        return self._frame("UNSUBSCRIBE", [("id", id), *_items(headers)], receipt)

    def ack(
        self,
        message: Mapping[str, str],
        headers: Headers = (),
        *,
        receipt: str | None = None,
        transaction: str | None = None,
    ) -> bytes:
        """Return an ACK frame for a MESSAGE, given its headers; they differ between versions."""
        return self._frame("ACK", self._ack_headers(message) + _items(headers), receipt, transaction)

    def nack(
        self,
        message: Mapping[str, str],
        headers: Headers = (),
        *,
        receipt: str | None = None,
        transaction: str | None = None,
    ) -> bytes:
        """Return a NACK frame for a MESSAGE, given its headers."""
        return self._frame("NACK", self._ack_headers(message) + _items(headers), receipt, transaction)

    def begin(self, transaction: str, *, receipt: str | None = None) -> bytes:
        """Return a BEGIN frame."""
        return self._frame("BEGIN", [], receipt, transaction)

    def commit(
        self, transaction: str, headers: Mapping[str, str | int] | None = None, *, receipt: str | None = None
    ) -> bytes:
        """Return a COMMIT frame, with these further headers."""
        more = [(name, str(value)) for name, value in (headers or {}).items()]
        return self._frame("COMMIT", more, receipt, transaction)

    def abort(self, transaction: str, *, receipt: str | None = None) -> bytes:
        """Return an ABORT frame."""
        return self._frame("ABORT", [], receipt, transaction)

    def disconnect(self, *, receipt: str | None = None) -> bytes:
        """Return a DISCONNECT frame."""
        return self._frame("DISCONNECT", [], receipt)

    def _ack_headers(self, message: Mapping[str, str]) -> list[tuple[str, str]]:
        if self.version == "1.2":
            return [("id", message.get("ack") or message["message-id"])]
        lines = [("message-id", message["message-id"])]
        if "subscription" in message:
            lines.append(("subscription", message["subscription"]))
        return lines

    def _frame(
        self,
        command: str,
        lines: list[tuple[str, str]],
        receipt: str | None = None,
        transaction: str | None = None,
        body: bytes = b"",
    ) -> bytes:
        if transaction is not None:
            lines.append(("transaction", transaction))
        if receipt is not None:
            lines.append(("receipt", receipt))
        return encoder.encode(command, lines, body, self.version or "1.2")


def _items(headers: Headers) -> list[tuple[str, str]]:
    return list(headers.items()) if isinstance(headers, Mapping) else list(headers)
