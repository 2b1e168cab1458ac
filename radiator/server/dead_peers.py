"""Peers that are gone although nothing tells it: a socket that is not read does not say that its other end has closed.

A producer that is held back (``on_full: block``, ``rate_limit``, a disk that is behind) is not read, for ever perhaps.
Its socket is asked once a second:

    broken    reset, or the peer's kernel does not answer any more     closed at once
    gone      of a unix socket: the peer has closed it                 closed, if it has subscriptions
    ended     of TCP: the peer sends no more, and may still read       left alone

So what a dead client was delivered goes to others. Who has only sent is waited for: what it sent before it ended its
side, as ``printf ... | nc -N`` does, is done in its turn. A process that has died looks just the same over TCP, until
its kernel forgets the connection, a minute later: from then on it answers by a reset when ours asks
(``listener``).
Whoever has agreed to beat and has ended its side is given up by that rule.

Knows: sockets. Must not know: why they are not read.
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
        """End the connection."""

    def note_peer_ended(self) -> None:
        """Note that the peer has ended its side."""


def close_dead(broker: Broker, paused: Iterable[PausedConnection]) -> None:
    """Close those that are gone."""
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
            continue  # that has timers of its own
        if events & select.POLLERR or (events & select.POLLHUP and session.subscriptions):
            broker.stats.count(gone_unread=1)
            broker.peer_log.line(
                logging.INFO,
                "connections gone while they were not read",
                session.origin,
                "session %s %s: gone while it was not read",
                session.id,
                session.address,
                logger=log,
            )
            transport.close()
        else:
            transport.note_peer_ended()
