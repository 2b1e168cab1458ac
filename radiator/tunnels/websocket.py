"""Run WebSocket without a socket, for either end: the opening handshake, then messages. wsproto parses the frames.

STOMP bytes are taken from messages as they arrive, whether these are text or binary and however they are split. So the
announced length of a frame costs nothing and needs no limit; the STOMP parser has one. Each STOMP frame is sent as one
message, because older clients expect this: as text if the peer sends text and the frame is UTF-8, else as binary.

No extension is offered, so compressed data cannot grow. Only the last of several unanswered pings is answered.

Source: RFC 6455.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
from abc import ABC, abstractmethod
from collections.abc import Iterator

from wsproto.connection import Connection, ConnectionState, ConnectionType
from wsproto.events import BytesMessage, CloseConnection, Ping, Pong, TextMessage
from wsproto.utilities import LocalProtocolError

from radiator.limits import TUNNEL_STEPS
from radiator.tunnels.http import HEAD_BYTES_MAX, Head, parse_head, response
from radiator.tunnels.origins import Origins, let_in
from radiator.tunnels.tunnel import SNIFF_BYTES, TLS_ALERT, Refusal, detect_protocol

SUBPROTOCOLS = ("v12.stomp", "v11.stomp", "v10.stomp", "stomp")  # in order of preference
GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
REASON_BYTES_MAX = 123
END = b"\r\n\r\n"

VISITOR = (
    "This is the WebSocket address of a STOMP broker (radiator), not a web page.\n\n"
    "Connect to it with a STOMP client over WebSocket, in a browser for instance with @stomp/stompjs:\n\n"
    '    new StompJs.Client({brokerURL: "%s"}).activate()'
)


class WebSocket(ABC):
    """The part that both ends share, after the connection is upgraded.

    Args:
        end: The end, as wsproto calls it.
    """

    def __init__(self, end: ConnectionType) -> None:
        self._end = end
        self._frames = Connection(end)
        self._is_server = end is ConnectionType.SERVER
        self._speaks_text = False  # the peer's last message was text
        self._said = b""  # bytes of the opening handshake to send
        self._ping: bytes | bytearray | None = None  # unanswered
        self._code = 0  # the close code that this end sends
        self._head = b""  # the incomplete head of the peer
        self._unseen_bytes = 0  # upper bound of the backlog
        self.ready = False
        self.ended = False
        self.has_backlog = False
        self.refusal: Refusal | None = None
        self.certificate_name = ""

    @abstractmethod
    def receive(self, data: bytes) -> bytes:
        """Return the STOMP bytes in received bytes. Afterwards check ``refusal`` and ``ended``."""

    @property
    def buffered_bytes(self) -> int:
        """The number of received bytes that are not processed."""
        return len(self._head) + self._unseen_bytes

    def outgoing(self) -> bytes:
        """Return bytes of the tunnel itself to send at once."""
        return b""

    def control(self) -> bytes:
        """Return bytes of the tunnel itself to send in line with the messages."""
        said, self._said = self._said, b""
        if self._ping is not None and self._frames.state is ConnectionState.OPEN:
            said += self._frames.send(Pong(payload=bytes(self._ping)))
        self._ping = None
        return said

    def wrap(self, data: bytes) -> bytes:
        """Return whole STOMP frames in the form that the tunnel carries."""
        send = self._frames.send
        return b"".join([send(self._message(frame)) for frame in frames_of(data)])

    def _message(self, frame: bytes) -> TextMessage | BytesMessage:
        if self._speaks_text:
            try:
                return TextMessage(data=frame.decode())
            except UnicodeDecodeError:
                pass
        return BytesMessage(data=frame)

    def seal(self, data: bytes | memoryview) -> bytes:
        """Return a piece of wrapped bytes in the form for the socket."""
        return bytes(data)

    def answer(self, data: bytes) -> bytes:
        """Return an answer to a refused peer in the protocol that it spoke."""
        return data

    def decline(self, status: int, text: str) -> bytes:
        """Return a refusal of a peer whose handshake is not complete; empty if none can be sent."""
        return response(status, text)

    def close(self, code: int, reason: str) -> bytes:
        """Return the last bytes of the tunnel."""
        if not self.ready or self._frames.state is not ConnectionState.OPEN:
            return b""
        short = reason.encode()[:REASON_BYTES_MAX].decode(errors="ignore")
        return self._frames.send(CloseConnection(code=code, reason=short or None))

    def _messages(self, data: bytes) -> bytes:
        """Return the STOMP bytes in received frames. Frames after the peer's Close are ignored."""
        frames = self._frames
        pieces: list[bytes | bytearray] = []
        self.has_backlog = False
        try:
            frames.receive_data(data)
            for steps, event in enumerate(frames.events(), 1):
                if isinstance(event, TextMessage):
                    self._speaks_text = True
                    pieces.append(event.data.encode())
                elif isinstance(event, BytesMessage):
                    self._speaks_text = False
                    pieces.append(event.data)
                elif isinstance(event, Ping):
                    self._ping = event.payload
                elif isinstance(event, CloseConnection):
                    if frames.state is ConnectionState.OPEN:  # wsproto reports an error in the peer's bytes
                        self._fault(int(event.code), event.reason or "")
                        break
                    if frames.state is ConnectionState.REMOTE_CLOSING:
                        self._frames = Connection(self._end)  # this end may still send, and wsproto would not
                    self.ended = True
                    break
                if steps >= TUNNEL_STEPS and self._is_server:
                    self.has_backlog = True
                    break
        except LocalProtocolError:
            pass  # the peer sends after its Close frame
        self._unseen_bytes = max(self._unseen_bytes, len(data)) if self.has_backlog else 0
        return b"".join(pieces)

    def _fault(self, code: int, words: str) -> None:
        last = self.control() + self.close(code, words)
        self.refusal = Refusal("websocket", "the frames of the WebSocket are invalid", words, last)


class ServerSocket(WebSocket):
    """The end of the broker.

    Args:
        path: The only path that is served; empty serves any.
        origins: The web pages that may connect.
        secure: True if the connection uses TLS.
    """

    def __init__(self, path: str, origins: Origins, *, secure: bool) -> None:
        super().__init__(ConnectionType.SERVER)
        self._path = path
        self._origins = origins
        self._secure = secure

    def receive(self, data: bytes) -> bytes:
        """Return the STOMP bytes in received bytes. Afterwards check ``refusal`` and ``ended``."""
        if self.refusal is not None or self.ended:
            return b""
        if self.ready:
            return self._messages(data)
        head = self._head + data
        end = head.find(END, max(0, len(self._head) - len(END)))
        if end < 0:
            self._head = head
            self._look(head)
            return b""
        self._head = b""
        self._look(head)
        if self.refusal is None:
            self._open(head[:end].lstrip(b"\r\n"))
        return self._messages(head[end + len(END) :]) if self.ready else b""

    def _look(self, head: bytes) -> None:
        """Refuse bytes that cannot become a valid request, before the request is complete."""
        language = detect_protocol(head)
        if language == "stomp":
            self.refusal = Refusal(
                "stomp",
                "this is a STOMP port over WebSocket",
                "Expected the HTTP request of a WebSocket, got STOMP on the bare connection. Connect to "
                f"{'wss' if self._secure else 'ws'}://..., or with this client to a stomp:// port.",
            )
        elif language == "tls":
            words = "Expected HTTP, got a TLS handshake. Use ws:// in the client, or connect to a wss:// port."
            self.refusal = Refusal("tls", "this is a WebSocket port without TLS", words, TLS_ALERT)
        elif language == "" or (language is None and len(head) > 8 * SNIFF_BYTES):
            self._refuse(400, "Expected the HTTP request of a WebSocket, got something else.")
        elif len(head) > HEAD_BYTES_MAX and (END not in head[:HEAD_BYTES_MAX]):
            self._refuse(431, f"Expected a request of at most {HEAD_BYTES_MAX} bytes before the blank line.")

    def _refuse(self, status: int, text: str, *more: str, method: str = "GET") -> None:
        reply = response(status, text, more, body=method != "HEAD")
        self.refusal = Refusal("http", f"no WebSocket was opened, HTTP {status}", text.split("\n", 1)[0], reply)

    def _open(self, data: bytes) -> None:
        try:
            head = parse_head(data)
        except ValueError as error:
            self._refuse(400, f"This is not a request of HTTP/1.1: {error}.")
            return
        method, target, version = head.first
        path = target.partition("?")[0]
        if version != "HTTP/1.1" or not path.startswith("/"):
            self._refuse(400, "Expected a request of HTTP/1.1, such as GET /stomp HTTP/1.1.")
        elif self._path and path.rstrip("/") != self._path.rstrip("/"):
            self._refuse(404, f"Not found; the WebSocket of this broker is at {self._path}", method=method)
        elif method not in ("GET", "HEAD"):
            self._refuse(405, f"Expected GET, got {method[:20]}.", "Allow: GET, HEAD")
        elif "websocket" not in [word.lower() for word in head.tokens("upgrade")]:
            scheme = "wss" if self._secure else "ws"
            address = f"{scheme}://{head.headers.get('host', 'HOST')}{path}"
            self._refuse(426, VISITOR % address, "Upgrade: websocket", method=method)
        elif "upgrade" not in [word.lower() for word in head.tokens("connection")]:
            self._refuse(400, "Expected the header Connection: Upgrade; does a proxy remove it?")
        elif head.headers.get("sec-websocket-version") != "13":
            self._refuse(426, "Expected version 13 of WebSocket.", "Sec-WebSocket-Version: 13", "Upgrade: websocket")
        elif not _is_key(head.headers.get("sec-websocket-key", "")):
            self._refuse(400, "Expected Sec-WebSocket-Key with 16 bytes in base64.")
        elif "transfer-encoding" in head.headers or head.headers.get("content-length", "0") != "0":
            self._refuse(400, "Expected a request without a body: frames of the WebSocket follow it.")
        elif not let_in(head, self._origins, self._secure):
            self._refuse(
                403,
                f"Pages of {head.headers['origin'][:200]} are not allowed to connect. The operator can allow them with "
                "origins: of this entry of listen: in the YAML file.",
            )
        else:
            self._upgrade(head)

    def _upgrade(self, head: Head) -> None:
        offered = head.tokens("sec-websocket-protocol")
        chosen = next((name for name in SUBPROTOCOLS if name in offered), None)
        if offered and chosen is None:
            expected = ", ".join(SUBPROTOCOLS)
            self._refuse(400, f"Expected one of {expected} in Sec-WebSocket-Protocol, or none, got {offered[0][:80]}.")
            return
        lines = ["HTTP/1.1 101 Switching Protocols", "Upgrade: websocket", "Connection: Upgrade"]
        lines.append(f"Sec-WebSocket-Accept: {accept_of(head.headers['sec-websocket-key'])}")
        if chosen is not None:
            lines.append(f"Sec-WebSocket-Protocol: {chosen}")
        self._said = "\r\n".join(lines).encode() + END
        self.ready = True


class ClientSocket(WebSocket):
    """The end of a client.

    Args:
        host: The host of the address, with its port.
        path: The path of the address.
        subprotocols: The subprotocols to offer.
    """

    def __init__(self, host: str, path: str, subprotocols: tuple[str, ...] = SUBPROTOCOLS[:3]) -> None:
        super().__init__(ConnectionType.CLIENT)
        self._key = base64.b64encode(os.urandom(16)).decode()
        self._said = (
            f"GET {path or '/'} HTTP/1.1\r\nHost: {host}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            f"Sec-WebSocket-Key: {self._key}\r\nSec-WebSocket-Version: 13\r\n"
            f"Sec-WebSocket-Protocol: {', '.join(subprotocols)}\r\n\r\n"
        ).encode()

    def receive(self, data: bytes) -> bytes:
        """Return the STOMP bytes in received bytes. Afterwards check ``refusal`` and ``ended``."""
        if self.refusal is not None or self.ended:
            return b""
        if self.ready:
            return self._messages(data)
        self._head += data
        head, end, rest = self._head.partition(END)
        if not end and len(head) <= HEAD_BYTES_MAX:
            return b""
        self._head = b""
        self._judge(head, rest)
        return self._messages(rest) if self.refusal is None else b""

    def wrap(self, data: bytes) -> bytes:
        """Return whole STOMP frames in the form that the tunnel carries."""
        return self._frames.send(BytesMessage(data=data))

    def _judge(self, data: bytes, rest: bytes) -> None:
        try:
            head = parse_head(data)
        except ValueError:
            self.refusal = Refusal("", "it does not answer in HTTP", repr(data[:80]))
            return
        if head.first[1] != "101":
            text = rest.decode(errors="replace").strip()
            self.refusal = Refusal("http", f"it opened no WebSocket: HTTP {head.first[1]}", text[:300])
        elif head.headers.get("sec-websocket-accept") != accept_of(self._key):
            self.refusal = Refusal("http", "it opened no WebSocket", "its Sec-WebSocket-Accept is wrong")
        else:
            self.ready = True


def accept_of(key: str) -> str:
    """Return the value of ``Sec-WebSocket-Accept`` for a key."""
    return base64.b64encode(hashlib.sha1(key.encode("latin-1") + GUID, usedforsecurity=False).digest()).decode()


def _is_key(key: str) -> bool:
    try:
        return len(base64.b64decode(key, validate=True)) == 16
    except (binascii.Error, ValueError):
        return False


def frames_of(data: bytes) -> Iterator[bytes]:
    """Yield STOMP frames and heart-beats one by one; other bytes stay in one piece."""
    start, end = 0, len(data)
    while start < end:
        if data[start] == 0x0A:
            yield b"\n"
            start += 1
            continue
        stop = data.find(b"\n\n", start)
        if stop < 0:
            yield data[start:]
            return
        length = data.find(b"\ncontent-length:", start, stop)
        if length < 0:
            stop = data.find(b"\0", stop) + 1
        else:
            begin = length + 16
            stop += 3 + int(data[begin : data.index(b"\n", begin)])
        if not start < stop <= end:
            stop = end
        if data[stop : stop + 1] == b"\n":
            stop += 1
        yield data[start:stop]
        start = stop
