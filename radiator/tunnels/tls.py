"""Run TLS without a socket, for either end: OpenSSL with two memory buffers.

The handshake proceeds as bytes arrive. OpenSSL bounds it (records of 16 KiB, certificates of 100 KiB). A peer whose
first byte does not begin a handshake is refused in its own protocol if that is known, since it cannot read TLS.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from typing import Any

from radiator.limits import RECV_BYTES, TLS_RECORD_BYTES, TUNNEL_STEPS
from radiator.tunnels.tunnel import SNIFF_BYTES, Refusal, detect_protocol

HTTP_TEXT = b"Expected TLS, got plain HTTP: this port is encrypted.\n"
HTTP_REPLY = (
    b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: %d\r\n"
    b"Connection: close\r\n\r\n%b" % (len(HTTP_TEXT), HTTP_TEXT)
)
PLAIN = {
    "stomp": Refusal(
        "stomp",
        "this is a STOMP port with TLS",
        "Expected a TLS handshake, got STOMP in plain text. Switch TLS on in the client, or connect to a plain port.",
    ),
    "http": Refusal("http", "this is a port with TLS", "Expected a TLS handshake, got plain HTTP.", HTTP_REPLY),
    "": Refusal("", "this is a port with TLS", "Expected a TLS handshake, got something else."),
}

ANSWERS_BYTES_MAX = 256 * 1024  # TLS's own bytes that the peer does not read


class Tls:
    """One end of an encrypted connection.

    Args:
        context: The TLS context.
        server_name: The host name that a client expects; None for the end of the server.
    """

    def __init__(self, context: ssl.SSLContext, server_name: str | None = None) -> None:
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        server_side = server_name is None
        self._tls = context.wrap_bio(self._in, self._out, server_side=server_side, server_hostname=server_name)
        self._first: bytes | None = b"" if server_side else None  # the first bytes, until TLS is detected
        self._context: ssl.SSLContext | None = context
        self.ready = False
        self._server_side = server_side
        self.ended = False
        self.has_backlog = False
        self.refusal: Refusal | None = None
        self.certificate_name = ""
        if not server_side:
            self._shake_hands()

    @property
    def buffered_bytes(self) -> int:
        """The number of received bytes that are not processed."""
        return self._in.pending + len(self._first or b"")

    def receive(self, data: bytes) -> bytes:
        """Return the STOMP bytes in received bytes. Afterwards check ``refusal`` and ``ended``."""
        if self.refusal is not None or self.ended:
            return b""
        if self._first is not None:
            data = self._first + data
            language = detect_protocol(data)
            if language != "tls":
                self._not_tls(data, language)
                return b""
            self._first = None
        self._in.write(data)
        if not self.ready:
            self._shake_hands()
        inner = self._read() if self.ready else b""
        if self._out.pending > ANSWERS_BYTES_MAX:
            self.refusal = Refusal("", "TLS failed", "the peer requests new keys again and again and reads no answer")
        return inner

    def outgoing(self) -> bytes:
        """Return bytes of the tunnel itself to send at once."""
        return self._out.read() if self._out.pending else b""

    def control(self) -> bytes:
        """Return bytes of the tunnel itself to send in line with the messages."""
        return b""

    def wrap(self, data: bytes) -> bytes:
        """Return whole STOMP frames in the form that the tunnel carries."""
        return data

    def seal(self, data: bytes | memoryview) -> bytes:
        """Return a piece of wrapped bytes in the form for the socket."""
        done = 0
        view = memoryview(data)
        while done < len(view):  # one record per write
            done += self._tls.write(view[done : done + TLS_RECORD_BYTES])
        return self._out.read()

    def answer(self, data: bytes) -> bytes:
        """Return an answer to a refused peer in the protocol that it spoke."""
        return data

    def decline(self, status: int, text: str) -> bytes:
        """Return a refusal of a peer whose handshake is not complete; empty if none can be sent."""
        return self.outgoing()

    def close(self, code: int, reason: str) -> bytes:
        """Return the last bytes of the tunnel."""
        if not self.ready:
            return self.outgoing()
        try:
            self._tls.unwrap()  # writes close_notify, without a wait for that of the peer
        except ssl.SSLError:
            pass
        return self._out.read()

    def _not_tls(self, data: bytes, language: str | None) -> None:
        if language is None and len(data) <= 8 * SNIFF_BYTES:
            self._first = data
        else:
            self.refusal = PLAIN[language or ""]

    def _shake_hands(self) -> None:
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return
        except (ssl.SSLError, ValueError) as error:
            self._failed(error)
            return
        self.ready = True
        self._context = None
        self.certificate_name = name_of(self._tls.getpeercert())

    def _read(self) -> bytes:
        pieces: list[bytes] = []
        self.has_backlog = False
        try:
            while True:
                if len(pieces) >= TUNNEL_STEPS and self._server_side:
                    self.has_backlog = True
                    break
                piece = self._tls.read(RECV_BYTES)
                if not piece:
                    self.ended = True
                    break
                pieces.append(piece)
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLZeroReturnError:
            self.ended = True
        except ssl.SSLError as error:
            self._failed(error)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def _failed(self, error: ssl.SSLError | ValueError) -> None:
        text = words(error)
        if not self._server_side and not self.ready and getattr(error, "reason", None) in NO_TLS:
            text += "; is it a port without TLS?"
        self.refusal = Refusal("", "the TLS handshake failed" if not self.ready else "TLS failed", text)


def words(error: ssl.SSLError | ValueError) -> str:
    """Return the message of an OpenSSL error without file names of its source code."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the certificate is not accepted: {error.verify_message}"
    reason = getattr(error, "reason", None)
    if not reason:
        return str(error)
    text = reason.lower().replace("_", " ")
    return HINTS.get(reason, text)


NO_TLS = frozenset(
    {"SSLV3_ALERT_HANDSHAKE_FAILURE", "WRONG_VERSION_NUMBER"}
)  # reported by radiator and by other servers
HINTS: Mapping[str, str] = {
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "the client sent no certificate, and tls.client_ca asks for one",
    "UNSUPPORTED_PROTOCOL": "the peer does not support TLS 1.2 or newer",
    "VERSION_TOO_LOW": "the peer does not support TLS 1.2 or newer",
    "TLSV1_ALERT_UNKNOWN_CA": "the peer does not trust the issuer of our certificate",
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": "the peer does not accept our certificate",
    "SSLV3_ALERT_BAD_CERTIFICATE": "the peer does not accept our certificate",
    "TLSV13_ALERT_CERTIFICATE_REQUIRED": "the broker asks for a certificate of the client (tls.client_ca)",
}


def name_of(certificate: Mapping[str, Any] | None) -> str:
    """Return the common name of a verified certificate, or else its first alternative name; empty without one."""
    if not certificate:
        return ""
    names = [value for part in certificate.get("subject", ()) for key, value in part if key == "commonName"]
    names += [value for _, value in certificate.get("subjectAltName", ())]
    return str(names[0]) if names else ""
