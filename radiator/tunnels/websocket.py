"""Run WebSocket without a socket, for either end: the opening handshake, then messages.

STOMP bytes are taken from messages as they arrive, whether these are text or binary and however they are split. So the
announced length of a frame costs nothing and needs no limit; the STOMP parser has one. Each STOMP frame is sent as one
message, because older clients expect this: as text if the peer sends text and the frame is UTF-8, else as binary.

Data frames without an extension are read and written here and in ``messages``. The library ``websockets`` has the
rest: the handshake, control frames, errors in frames, and all frames of a connection with permessage-deflate. A
message of such a connection has a limit before and after it is decompressed, so compressed data cannot grow without
bound.

Only the last of several unanswered pings is answered.

Source: RFC 6455, and RFC 7692 for permessage-deflate.
"""

from __future__ import annotations

import base64
import binascii
import codecs
import logging
from abc import ABC, abstractmethod
from collections.abc import Sequence

from websockets.client import ClientProtocol
from websockets.exceptions import NegotiationError
from websockets.extensions.permessage_deflate import ServerPerMessageDeflateFactory
from websockets.frames import Close, CloseCode, Frame, Opcode
from websockets.http11 import Request
from websockets.protocol import Protocol
from websockets.server import ServerProtocol
from websockets.typing import Subprotocol
from websockets.uri import parse_uri

from radiator.limits import WEBSOCKET_FRAME_STEPS, WEBSOCKET_STEPS
from radiator.tunnels.http import HEAD_BYTES_MAX, Head, parse_head, response
from radiator.tunnels.messages import (
    BINARY,
    CONTINUATION,
    FIN,
    FIRST_CONTROL,
    LENGTH_MAX,
    TEXT,
    FrameHead,
    as_messages,
    is_text,
    message_head,
    read_head,
    split_frames,
    take_messages,
    unmask,
)
from radiator.tunnels.origins import Origins, let_in
from radiator.tunnels.tunnel import SNIFF_BYTES, TLS_ALERT, Refusal, detect_protocol

SUBPROTOCOLS = ("v12.stomp", "v11.stomp", "v10.stomp", "stomp")  # in order of preference
CONTROL_BYTES_MAX = 125  # of the payload of a control frame
REASON_BYTES_MAX = 123
WINDOW_BITS, MEMORY_LEVEL = 12, 5  # of zlib: some 50 KiB of memory for each connection with permessage-deflate
END = b"\r\n\r\n"

# For the library: at lower levels it logs each connection, request headers such as cookies, and parts of messages.
_library_log = logging.getLogger("radiator.websockets")
_library_log.setLevel(logging.WARNING)
HANDSHAKE = (  # the headers of a request that the library reads
    "host",
    "upgrade",
    "connection",
    "sec-websocket-key",
    "sec-websocket-version",
    "sec-websocket-protocol",
    "sec-websocket-extensions",
)

VISITOR = (
    "This is the WebSocket address of a STOMP broker (radiator), not a web page.\n\n"
    "Connect to it with a STOMP client over WebSocket, in a browser for instance with @stomp/stompjs:\n\n"
    '    new StompJs.Client({brokerURL: "%s"}).activate()'
)


class MessageEncoder:
    """Encoder of STOMP frames as messages, which caches its last result.

    Messages of a topic go to its subscribers one after another, so those with the same subscription id share bytes.
    """

    __slots__ = ("_data", "_encoded", "_text")

    def __init__(self) -> None:
        self._data = self._encoded = b""
        self._text = False

    def encode(self, data: bytes, text: bool) -> bytes:
        """Return each STOMP frame in ``data`` as one message: with ``text`` as text where it is UTF-8, else binary."""
        if data is not self._data or text != self._text:
            self._data, self._text = data, text
            if not text or is_text(data):
                self._encoded = as_messages(data, TEXT if text else BINARY)
            else:
                self._encoded = b"".join(
                    [
                        message_head(TEXT if is_text(frame) else BINARY, len(frame)) + frame
                        for frame in split_frames(data)
                    ]
                )
        return self._encoded


class WebSocket(ABC):
    """The part that both ends share, after the connection is upgraded.

    Args:
        protocol: The protocol of the library, which gets one frame after the other.
        is_server: True for the end of the broker.
    """

    def __init__(self, protocol: Protocol, is_server: bool) -> None:
        self._protocol = protocol
        self._is_server = is_server
        self._received = b""  # received bytes that are not processed
        self._frame: FrameHead | None = None  # the data frame whose payload arrives
        self._payload_bytes = 0  # of it that have not arrived
        self._mask = b""  # for the next of them
        self._protocol_bytes = 0  # of the current frame that ``protocol`` has not received
        self._passed_bytes = 0  # of the current frame that it has
        self._message = CONTINUATION  # the opcode of the incomplete message
        self._decoder = codecs.getincrementaldecoder("utf-8")()  # checks text that arrives in parts
        self._speaks_text = False  # the peer's last message was text
        self._said = b""  # bytes of the opening handshake to send
        self._pong = b""  # the answer to the last ping
        self._close = b""  # the answer to the peer's Close frame
        self._close_sent = False
        self._head = b""  # the incomplete head of the peer
        self.ready = False
        self.ended = False
        self.has_backlog = False
        self.refusal: Refusal | None = None
        self.certificate_name = ""

    @abstractmethod
    def receive(self, data: bytes) -> bytes:
        """Return the STOMP bytes in received bytes. Afterwards check ``refusal`` and ``ended``."""

    @abstractmethod
    def wrap(self, data: bytes) -> bytes:
        """Return whole STOMP frames in the form that the tunnel carries."""

    @property
    def buffered_bytes(self) -> int:
        """The number of received bytes that are not processed."""
        return len(self._head) + len(self._received) + self._passed_bytes

    def outgoing(self) -> bytes:
        """Return bytes of the tunnel itself to send at once."""
        return b""

    def control(self) -> bytes:
        """Return bytes of the tunnel itself to send in line with the messages."""
        said = self._said + self._pong
        self._said = self._pong = b""
        return said

    def _write(self, opcode: Opcode, data: bytes) -> bytes:
        return Frame(opcode, data).serialize(mask=not self._is_server, extensions=self._protocol.extensions)

    def seal(self, data: bytes | memoryview) -> bytes | memoryview:
        """Return a piece of wrapped bytes in the form for the socket."""
        return data

    def answer(self, data: bytes) -> bytes:
        """Return an answer to a refused peer in the protocol that it spoke."""
        return data

    def decline(self, status: int, text: str) -> bytes:
        """Return a refusal of a peer whose handshake is not complete; empty if none can be sent."""
        return response(status, text)

    def close(self, code: int, reason: str) -> bytes:
        """Return the last bytes of the tunnel."""
        if not self.ready or self._close_sent:
            return b""
        self._close_sent = True
        short = reason.encode()[:REASON_BYTES_MAX].decode(errors="ignore")
        return self._close or self._write(Opcode.CLOSE, Close(code, short).serialize())

    # --- received frames ----------------------------------------------------------------------------------------------

    def _messages(self, data: bytes) -> bytes:
        """Return the STOMP bytes in received frames. Frames after the peer's Close are ignored."""
        data = self._received + data
        pieces: list[bytes | bytearray] = []
        at = steps = 0
        self.has_backlog = False
        while at < len(data) and not self.ended and self.refusal is None:
            if steps >= WEBSOCKET_STEPS and self._is_server:
                self.has_backlog = True
                break
            steps += WEBSOCKET_FRAME_STEPS
            if self._frame is not None:
                at = self._receive_payload(data, at, pieces)
            elif self._protocol_bytes:
                at = self._pass_on(data, at, pieces)
            else:
                count = 0
                if not (self._message or self._protocol.extensions):
                    most = WEBSOCKET_STEPS - steps + WEBSOCKET_FRAME_STEPS
                    payload, at, count, opcode = take_messages(data, at, most, self._is_server)
                if count:
                    pieces.append(payload)
                    self._speaks_text = opcode == TEXT
                    steps += count
                    continue
                head = read_head(data, at)
                if head is None:
                    break
                at = self._begin(head, data, at, pieces)
        self._received = b"" if self.ended or self.refusal is not None else data[at:]
        return b"".join(pieces)

    def _begin(self, head: FrameHead, data: bytes, at: int, pieces: list[bytes | bytearray]) -> int:
        """Begin with a frame that is not a whole plain message. Returns the index of the first byte not processed."""
        fault = self._fault_of(head)
        plain = not head.first & 0x70 and bool(head.mask) is self._is_server and not self._protocol.extensions
        if fault:
            self._fail(CloseCode.PROTOCOL_ERROR, fault)
            return at
        if plain and head.first & 0x0F in (CONTINUATION, TEXT, BINARY):
            self._frame, self._payload_bytes, self._mask = head, head.length, head.mask
            return self._receive_payload(data, at + head.size, pieces)
        self._protocol_bytes = head.size + head.length
        return self._pass_on(data, at, pieces)

    def _fault_of(self, head: FrameHead) -> str:
        """Return what is wrong with a frame at this place; empty if nothing is. The library checks the rest."""
        opcode = head.first & 0x0F
        if opcode >= FIRST_CONTROL:
            return "control frame too long" if head.length > CONTROL_BYTES_MAX else ""
        if head.length > LENGTH_MAX:
            return "invalid length"
        if opcode == CONTINUATION:
            return "" if self._message else "unexpected continuation frame"
        return "expected a continuation frame" if self._message else ""

    def _receive_payload(self, data: bytes, at: int, pieces: list[bytes | bytearray]) -> int:
        frame = self._frame
        assert frame is not None
        part = data[at : at + self._payload_bytes]
        size = len(part)
        self._payload_bytes -= size
        if self._mask:
            mask = self._mask
            part = unmask(part, mask)
            self._mask = mask[size % 4 :] + mask[: size % 4]
        if not self._payload_bytes:
            self._frame = None
        self._take(frame.first & 0x0F, part, bool(frame.first & FIN) and not self._payload_bytes, pieces)
        return at + size

    def _take(self, opcode: int, part: bytes | bytearray, last: bool, pieces: list[bytes | bytearray]) -> None:
        """Take a part of a message; ``last`` ends it."""
        if not self._message:
            self._message = opcode
            self._decoder.reset()
        if self._message == TEXT:
            try:
                self._decoder.decode(part, last)
            except UnicodeDecodeError:
                self._fail(CloseCode.INVALID_DATA, "text that is not UTF-8")
                return
        pieces.append(part)
        if last:
            self._speaks_text = self._message == TEXT
            self._message = CONTINUATION

    def _pass_on(self, data: bytes, at: int, pieces: list[bytes | bytearray]) -> int:
        """Give the library the bytes of its frame, and act on what it makes of them."""
        protocol = self._protocol
        part = data[at : at + self._protocol_bytes]
        self._protocol_bytes -= len(part)
        self._passed_bytes = self._passed_bytes + len(part) if self._protocol_bytes else 0
        protocol.receive_data(part)
        for event in protocol.events_received():
            assert isinstance(event, Frame)
            if event.opcode is Opcode.PING:
                self._pong = b"".join(protocol.data_to_send())
            elif event.opcode is Opcode.CLOSE:
                self._close = b"".join(protocol.data_to_send())
                self.ended = True
            elif event.opcode is not Opcode.PONG:
                self._take(event.opcode, bytes(event.data), event.fin, pieces)
        if protocol.parser_exc is not None and self.refusal is None:
            self._refuse_frames()
        return at + len(part)

    def _fail(self, code: CloseCode, reason: str) -> None:
        self._protocol.fail(code, reason)
        self._refuse_frames()

    def _refuse_frames(self) -> None:
        """Refuse the peer, with the Close frame that the library has made."""
        close = self._protocol.close_sent
        reason = close.reason if close is not None else ""
        last = self.control() + b"".join(self._protocol.data_to_send())
        self._close_sent = True
        self.refusal = Refusal("websocket", "the frames of the WebSocket are invalid", reason, last)


class ServerSocket(WebSocket):
    """The end of the broker.

    Args:
        path: The only path that is served; empty serves any.
        origins: The web pages that may connect.
        encoder: The encoder of messages, one for all connections of a listener.
        secure: True if the connection uses TLS.
        inflated_bytes_max: The limit for a message under permessage-deflate; None if the extension is not accepted.
    """

    def __init__(
        self,
        path: str,
        origins: Origins,
        encoder: MessageEncoder,
        *,
        secure: bool,
        inflated_bytes_max: int | None = None,
    ) -> None:
        deflate = ServerPerMessageDeflateFactory(
            server_max_window_bits=WINDOW_BITS,
            client_max_window_bits=WINDOW_BITS,
            compress_settings={"memLevel": MEMORY_LEVEL},
        )
        protocol = ServerProtocol(
            extensions=None if inflated_bytes_max is None else [deflate],
            select_subprotocol=_select_subprotocol,
            max_size=inflated_bytes_max or CONTROL_BYTES_MAX,
            logger=_library_log,
        )
        super().__init__(protocol, True)
        self._server = protocol
        self._encoder = encoder
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
        protocol = self._server
        lines = [f"{name}: {head.headers[name]}" for name in HANDSHAKE if name in head.headers]
        protocol.receive_data("\r\n".join(["GET / HTTP/1.1", *lines]).encode("latin-1") + END)
        requests = protocol.events_received()
        answer = protocol.accept(requests[0]) if requests and isinstance(requests[0], Request) else None
        if answer is None or answer.status_code != 101:
            self._refuse(400, f"The handshake of the WebSocket is wrong: {protocol.handshake_exc}.")
            return
        protocol.send_response(answer)
        self._said = b"".join(protocol.data_to_send())
        self.ready = True

    def wrap(self, data: bytes) -> bytes:
        """Return whole STOMP frames in the form that the tunnel carries."""
        if not self._protocol.extensions:
            return self._encoder.encode(data, self._speaks_text)
        return b"".join([self._deflated(frame) for frame in split_frames(data)])

    def _deflated(self, frame: bytes) -> bytes:
        return self._write(Opcode.TEXT if self._speaks_text and is_text(frame) else Opcode.BINARY, frame)


class ClientSocket(WebSocket):
    """The end of a client.

    Args:
        host: The host of the address, with its port.
        path: The path of the address.
        subprotocols: The subprotocols to offer.
    """

    def __init__(self, host: str, path: str, subprotocols: tuple[str, ...] = SUBPROTOCOLS[:3]) -> None:
        protocol = ClientProtocol(
            parse_uri(f"ws://{host}{path or '/'}"),
            subprotocols=[Subprotocol(name) for name in subprotocols],
            max_size=CONTROL_BYTES_MAX,
            logger=_library_log,
        )
        super().__init__(protocol, False)
        self._client = protocol
        protocol.send_request(protocol.connect())
        self._said = b"".join(protocol.data_to_send())

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
        return self._write(Opcode.BINARY, data)

    def _judge(self, data: bytes, rest: bytes) -> None:
        try:
            head = parse_head(data)
        except ValueError:
            self.refusal = Refusal("", "it does not answer in HTTP", repr(data[:80]))
            return
        if head.first[1] != "101":
            text = rest.decode(errors="replace").strip()
            self.refusal = Refusal("http", f"it opened no WebSocket: HTTP {head.first[1]}", text[:300])
            return
        self._client.receive_data(data + END)
        self._client.events_received()
        if self._client.handshake_exc is not None:
            self.refusal = Refusal("http", "it opened no WebSocket", str(self._client.handshake_exc))
        else:
            self.ready = True


def _select_subprotocol(protocol: ServerProtocol, offered: Sequence[Subprotocol]) -> Subprotocol | None:
    for name in SUBPROTOCOLS:
        if name in offered:
            return Subprotocol(name)
    if offered:
        expected = ", ".join(SUBPROTOCOLS)
        raise NegotiationError(
            f"expected one of {expected} in Sec-WebSocket-Protocol, or no such header, got {offered[0][:80]}"
        )
    return None


def _is_key(key: str) -> bool:
    try:
        return len(base64.b64decode(key, validate=True)) == 16
    except (binascii.Error, ValueError):
        return False
