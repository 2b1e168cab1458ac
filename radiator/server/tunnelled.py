"""Connect a socket with a session through a tunnel: TLS, WebSocket or both (``radiator/tunnels``).

The tunnel is between the socket and the STOMP connection: received bytes are unwrapped before they are parsed. Sent
bytes are wrapped as whole frames, and encrypted in pieces of bounded size, each when the socket has accepted the one
before. So bytes that wait for a slow peer wait once, as STOMP.

Invariants: ``_backlog`` and ``_credits`` correspond: a piece, and how many bytes of the session are sent when the whole
piece is (a message under ``ack:auto`` counts as written then). ``_wire`` is being sent, and no other bytes come between
its bytes.
"""

from __future__ import annotations

import logging
import socket as std_socket
from typing import TYPE_CHECKING

import gevent

from radiator import clock, limits
from radiator.errors import ProtocolError, printable
from radiator.server.transport import WRITE, Transport
from radiator.stomp import encoder

if TYPE_CHECKING:
    from radiator.broker.clients.session import Session
    from radiator.server.driver import Driver
    from radiator.stomp.connection import ServerConnection
    from radiator.tunnels.tunnel import Refusal, Tunnel

log = logging.getLogger("radiator.server")

NORMAL, GOING_AWAY, PROTOCOL_ERROR = 1000, 1001, 1002  # close codes of WebSocket (RFC 6455, 7.4.1)
HTTP_TIMEOUT, HTTP_UNAVAILABLE = 408, 503


class TunnelledTransport(Transport):
    """The socket of one client, and the tunnel in it.

    Args:
        sock: The socket, non-blocking.
        session: The session of the client.
        connection: The STOMP state of the connection.
        driver: The driver.
        connect_timeout_seconds: The time limit for handshake, CONNECT and login.
        tunnel: The tunnel.
    """

    __slots__ = ("_credit", "_credits", "_close_sent", "_tunnel", "_turn_requested", "_wire")

    def __init__(
        self,
        sock: std_socket.socket,
        session: Session,
        connection: ServerConnection,
        driver: Driver,
        connect_timeout_seconds: float,
        tunnel: Tunnel,
    ) -> None:
        super().__init__(sock, session, connection, driver, connect_timeout_seconds)
        self._tunnel = tunnel
        self._credits: list[int] = []  # for each piece of the backlog
        self._wire: bytes | memoryview = b""  # the bytes to send next
        self._credit = 0  # of ``_wire``
        self._close_sent = False
        self._turn_requested = False  # waits for ``Handshakes`` to process more

    # --- reading ------------------------------------------------------------------------------------------------------

    def _readable(self) -> None:
        if self._tunnel.ready or self._driver.handshakes.admits(self):
            super()._readable()
        else:
            self._reader.stop()

    def continue_handshake(self) -> None:
        """Continue the handshake, or process more of the received bytes. Called by ``Handshakes``."""
        if self.closed:
            return
        if self._turn_requested:
            self._continue_reading()
            return
        self._driver.scheduler.begin(self.origin)
        self._read_slice()
        self._read_on()

    def begin_with(self, data: bytes) -> None:
        """Process the bytes that a listener has received before it made this transport."""
        self._driver.scheduler.begin(self.origin)
        try:
            self._received(data)
        except Exception as error:
            self.fail(error)
        finally:
            self._driver.scheduler.end()

    def _received(self, data: bytes) -> None:
        tunnel, session = self._tunnel, self.session
        if session.closing and tunnel.has_backlog:
            return
        if self.heart_beat is not None:
            self.heart_beat.received(clock.monotonic_ns())
        inner = tunnel.receive(data)
        if inner:
            if not session.connected:
                session.set_certificate_name(tunnel.certificate_name)
            super()._received(inner)
            if self.closed:
                return
        if tunnel.buffered_bytes or self._reported_bytes:
            self._report(finished=False)
        if tunnel.refusal is not None:
            self._refused(tunnel.refusal)
            return
        if self._writer is None:
            self._pump()
        if tunnel.has_backlog:
            self.pause()
            self._driver.wake()
        self._check_end()

    def _buffered_bytes(self) -> int:
        return super()._buffered_bytes() + self._tunnel.buffered_bytes

    def _may_read(self) -> bool:
        return not self._tunnel.has_backlog and super()._may_read()

    def resume(self) -> bool:
        """Process the frames that were left, and read on if no reason to pause is left.

        Frames that arrived before the peer's closing message are still processed.

        Returns:
            True if frames were processed.
        """
        acted = super().resume()
        if self._tunnel.has_backlog and self._paused and not self._turn_requested and super()._may_read():
            self._turn_requested = True
            self._driver.handshakes.wait(self)
        self._check_end()
        return acted

    def _continue_reading(self) -> None:
        """Process received bytes until the slice is over: one packet can contain ten thousand messages of one byte."""
        self._turn_requested = False
        scheduler = self._driver.scheduler
        scheduler.begin(self.origin, among=self._driver.handshakes.in_round)
        try:
            while self._tunnel.has_backlog and not self.session.closing and super()._may_read():
                self._received(b"")
                if scheduler.slice_over():
                    break
            self._driver.wake()
        except Exception as error:
            self.fail(error)
        finally:
            scheduler.end()

    def run_slice(self) -> None:
        """Read on after waiting in the queue. Frames before the peer's closing message may be processed then."""
        super().run_slice()
        try:
            self._check_end()
        except Exception as error:
            self.fail(error)

    def _check_end(self) -> None:
        if self._tunnel.ended and not (self._ended or self.closed or self._rest):
            self._peer_ended()

    def _refused(self, refusal: Refusal) -> None:
        """Reject a peer that does not speak the protocol of the tunnel, in its own protocol if that is known."""
        session = self.session
        if session.closing:
            self.close()
            return
        words = f"{refusal.message}: {refusal.detail}"
        self._driver.broker.stats.count(not_stomp=1)
        self._log("handshakes that failed", printable(words))
        answer = refusal.reply
        if refusal.protocol == "stomp":
            answer = encoder.error(ProtocolError("not-stomp", refusal.message, refusal.detail))
        self._end_with(self._tunnel.outgoing() + (self._tunnel.answer(answer) if answer else b""))

    def refuse(self, error: ProtocolError) -> None:
        """Answer ERROR and close; before the tunnel is established, answer in the tunnel's own protocol."""
        if self._tunnel.ready:
            super().refuse(error)
        elif not self.session.closing:
            self._driver.broker.stats.count(not_stomp=1)
            self._log(f"refused ({error.code})", error.message)
            status = HTTP_TIMEOUT if error.code == "timeout" else HTTP_UNAVAILABLE
            self._end_with(self._tunnel.decline(status, f"{error.message}. {error.detail}"))

    def _end_with(self, data: bytes) -> None:
        """Send these bytes as the last ones. Everything that waits is dropped, since it cannot follow them."""
        session = self.session
        session.begin_closing()
        self._driver.broker.release(session)
        session.outbox.take()
        self._backlog.clear()
        self._credits.clear()
        self._wire = bytes(self._wire) + data
        self._credit = 0
        self._close_sent = True
        self._start_closing()
        if self._writer is None:
            self._pump()

    # --- writing ------------------------------------------------------------------------------------------------------

    def flush(self) -> None:
        """Send the outbox of the session. What the socket does not accept now is sent when it does."""
        session, tunnel = self.session, self._tunnel
        pieces = session.outbox.take()
        if not pieces or self.closed:
            return
        if session.closing:
            self._start_closing()
        if not tunnel.ready or self._close_sent:
            return
        data = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        self._backlog.append(memoryview(tunnel.wrap(data)))
        self._credits.append(len(data))
        if self._writer is None:
            self._pump()

    def _writable(self) -> None:
        self._pump()

    def _pump(self) -> None:
        """Encrypt and send piece by piece, until all is sent or the socket accepts no more."""
        try:
            while self._wire or self._next():
                sent = self.sock.send(self._wire)
                if sent < len(self._wire):
                    self._wire = memoryview(self._wire)[sent:]
                    break
                self._wire = b""
                if self._credit:
                    credit, self._credit = self._credit, 0
                    self._flushed(credit)
        except (BlockingIOError, InterruptedError):
            pass
        except OSError:
            self.close()
            return
        if self._wire:
            if self._writer is None:
                self._writer = gevent.get_hub().loop.io(self.sock.fileno(), WRITE)
                self._writer.start(self._writable)
            return
        self._stop_writer()
        if self.session.closing:
            self._finish()

    def _next(self) -> bool:
        """Prepare the next piece; return False if there is none."""
        tunnel, backlog = self._tunnel, self._backlog
        self._wire = tunnel.outgoing()
        if self._wire:
            return True
        if not backlog:
            control = tunnel.control()
            if not control:
                return False
            backlog.append(memoryview(control))
            self._credits.append(0)
        piece = backlog[0]
        self._wire = tunnel.seal(piece[: limits.SEAL_BYTES])
        if len(piece) > limits.SEAL_BYTES:
            backlog[0] = piece[limits.SEAL_BYTES :]
        else:
            del backlog[0]
            self._credit = self._credits.pop(0)
        return True

    # --- closing ------------------------------------------------------------------------------------------------------

    def _finish(self) -> None:
        session = self.session
        if self._shut or self._backlog or self._wire or session.outbox.pieces or not session.receipts.empty:
            return
        if self._close_sent:
            super()._finish()
            return
        self._close_sent = True
        failed = self._connection.failed
        going = self._driver.stopping or self._driver.broker.draining.active
        code = GOING_AWAY if going else PROTOCOL_ERROR if failed is not None else NORMAL
        self._wire = self._tunnel.close(code, failed.message if failed is not None else "")
        self._pump()

    def close(self) -> None:
        """Release everything. A closing message of the peer is answered if nothing else is owed to it."""
        if self._tunnel.ended and not (self.closed or self._wire or self._close_sent):
            self._close_sent = True
            try:
                self.sock.send(self._tunnel.close(NORMAL, ""))
            except OSError as error:
                log.debug("session %s: %s", self.session.id, error)
        super().close()
