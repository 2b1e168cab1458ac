"""Find dead peers among the connections that are not read: reading is what normally detects the end of a connection.

A producer that is held back (``on_full: block``, ``rate_limit``, a slow disk) is not read, perhaps for ever. Once a
second poll(2) reports the state of its socket:

    error     reset, or the peer's kernel does not answer any more    close the connection
    hang-up   of a unix socket: the peer has closed it                close the connection if it has subscriptions
    end       of TCP: the peer sends no more, and may still read      leave it open

So messages that were delivered to a dead client go to other consumers. A client that only sends is left open, because
frames that it sent before its end (``printf ... | nc -N``) are still to be handled. Over TCP a dead process looks the
same, until its kernel forgets the connection after a minute and answers the keep-alive probe with a reset
(``listener``). A peer with heart-beats that has ended its side is closed when its heart-beats are overdue.

Uses sockets. Must not know why connections are not read.
"""

from __future__ import annotations

import logging
import select
import socket
from collections.abc import Iterable
from typing import Protocol

from radiator.broker.broker import Broker
from radiator.broker.clients.session import Session

log = logging.getLogger("radiator.server")


class PausedConnection(Protocol):
    """A connection that is not read."""

    sock: socket.socket
    session: Session
    closed: bool

    def close(self) -> None:
        """Close the connection."""

    def note_peer_ended(self) -> None:
        """Note that the peer has ended its side."""


def close_dead(broker: Broker, paused: Iterable[PausedConnection]) -> None:
    """Close the dead connections among ``paused``."""
    transports = {transport.sock.fileno(): transport for transport in paused}
    if not transports:
        return
    poll = select.poll()
    for descriptor in transports:
        poll.register(descriptor, select.POLLRDHUP)
    for descriptor, events in poll.poll(0):
        transport = transports[descriptor]
        session = transport.session
        if session.closing or transport.closed:
            continue  # closing has timers of its own
        if events & select.POLLERR or (events & select.POLLHUP and session.subscriptions.by_id):
            broker.stats.count(gone_unread=1)
            broker.peer_log.line(
                logging.INFO,
                "connections closed by the client while they were not read",
                session.origin,
                "session %s %s: closed by the client while it was not read",
                session.id,
                session.address,
                logger=log,
                peer=session,
            )
            transport.close()
        else:
            transport.note_peer_ended()
