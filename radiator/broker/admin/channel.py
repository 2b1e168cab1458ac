"""The admin channel: questions and orders as JSON in a SEND to ``/radiator/admin``, answered to its ``reply-to``.

    {"do": "destinations.ls", "limit": 100}  ->  {"ok": true, "do": "destinations.ls", "destinations": [...], ...}

A verb is a row of ``VERBS``: a function of the broker and what was asked, which gives the answer's fields. One that has
to wait for something gives None and calls ``Ask.answer`` later. What it refuses it raises as ProtocolError; the client
gets that as JSON and keeps its connection. Only a request that cannot be answered at all is an ERROR.

Knows: the table, who may ask, how an answer travels. Must not know: what the verbs do.
Invariants: every request is answered once or is an ERROR, also while ``limits.memory`` is used up; none is carried out
without the ``admin`` right; every one is in the log, with who, when (the log's own time) and what.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Generator, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from radiator import limits
from radiator.broker.admin import clock_orders, cursor_orders, delayed_orders, lists
from radiator.broker.subscriptions import subscribing
from radiator.clock import Now
from radiator.errors import ProtocolError, StorageError, printable
from radiator.routing.rules import TEMP_QUEUE_PREFIX, TEMPORARY
from radiator.stomp.headers import join

if TYPE_CHECKING:
    from radiator.broker.broker import Broker
    from radiator.broker.budget import Steps
    from radiator.broker.session import Session
    from radiator.stomp.frames import Frame

log = logging.getLogger("radiator.admin")

DESTINATION = "/radiator/admin"
REQUEST_BYTES_MAX = 64 * 1024  # an order, not data
LOGGED_CHARS_MAX = 500
ENTRY_UNITS = 8  # of a list, as JSON

Answer = dict[str, Any]  # a list, or an iterator, is told entry by entry
Work = Generator[bool, None, Answer | None]  # what a verb does, in steps (``broker.budget``)


class Ask:
    """One request: who asks (``session``), when (``now``), for what (``args``, without ``do``)."""

    __slots__ = ("_broker", "_correlation", "_reply_to", "args", "now", "session", "verb")

    def __init__(self, broker: Broker, session: Session, reply_to: str, correlation: str | None, now: Now) -> None:
        self._broker = broker
        self._reply_to = reply_to
        self._correlation = correlation
        self.session = session
        self.now = now
        self.verb = ""
        self.args: dict[str, Any] = {}

    def text(self, name: str, default: str | None = None) -> str:
        """An argument that is a text. Raises ProtocolError if it is missing and has no default, or is none."""
        value = self.args.get(name, default)
        if not isinstance(value, str) or (not value and default is None):
            raise _bad(f"{self.verb} needs {name}, a text", f"got {value!r}"[:200])
        return value

    def number(self, name: str, default: int, least: int, most: int) -> int:
        """An argument that is a whole number within bounds."""
        value = self.args.get(name, default)
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            raise _bad(f"{name}: expected a whole number, {least} to {most}", f"got {value!r}"[:200])
        return value

    def flag(self, name: str) -> bool:
        """An argument that is true or false; false if it is not there."""
        value = self.args.get(name, False)
        if not isinstance(value, bool):
            raise _bad(f"{name}: expected true or false", f"got {value!r}"[:200])
        return value

    def require(self, name: str) -> None:
        """The asker must have the ``admin`` right over this destination. Raises ProtocolError ``denied``."""
        self.session.require("admin", name)

    def refuse(self, error: ProtocolError) -> None:
        """Answer that it was not done."""
        self.answer({"error": {"code": error.code, "message": error.message, "detail": error.detail}}, ok=False)

    def answer(self, fields: Answer, ok: bool = True) -> None:
        """Send the answer, from outside of the verb's steps."""
        self._broker.background.add(self.answering(fields, ok))

    def answering(self, fields: Answer, ok: bool = True) -> Steps:
        """Send the answer; nothing, if the asker is gone. In ASCII: a request may hold half a character."""
        broker, session = self._broker, self.session
        parts = [json.dumps({"ok": ok, "do": self.verb})[:-1]]
        for name, value in fields.items():
            parts.append(f", {json.dumps(name)}: ")
            if not isinstance(value, list | Iterator):
                parts.append(json.dumps(value))
                continue
            mark = "["
            for each in value:
                parts.append(mark + json.dumps(each))
                mark = ", "
                broker.budget.spend(ENTRY_UNITS)
                yield True
            parts.append("]" if mark == ", " else "[]")
        body = "".join([*parts, "}"]).encode()
        if session.closing or session.closed:
            return
        destination = broker.destinations.get(self._reply_to)
        if destination is None:
            return
        headers = [("content-type", "application/json")]
        if self._correlation is not None:
            headers.append(("correlation-id", self._correlation))
        block = join(headers, "1.2")[1:].encode()
        partition = destination.next_feed().partition
        append = partition.append
        if broker.store.memory_is_full and _unread_bytes(broker, session) < limits.ANSWERS_BYTES_MAX:
            append = partition.append_past_budget
        try:
            append(destination.name, block, body, self.now.wall)
        except StorageError:
            broker.stats.dropped_replies += 1  # the asker does not read what it asked for


class Verb(NamedTuple):
    """``of_names``: it concerns single destinations and asks for the right over each itself (``Ask.require``), so it
    takes the ``admin`` right over some names only; the others take the right over everything."""

    run: Callable[[Broker, Ask], Answer | Work]
    of_names: bool = False


VERBS: dict[str, Verb] = {
    "destinations.ls": Verb(lists.destinations, of_names=True),
    "clients.ls": Verb(lists.clients),
    "stats": Verb(lists.stats),
    "clock": Verb(clock_orders.show),
    "clock.accept": Verb(clock_orders.accept),
    "cursors.ls": Verb(cursor_orders.ls),
    "cursors.set": Verb(cursor_orders.move),
    "cursors.rm": Verb(cursor_orders.rm),
    "queues.settle_delayed": Verb(delayed_orders.settle, of_names=True),
}


def ask(broker: Broker, session: Session, frame: Frame, now: Now) -> Steps:
    """A SEND to the admin channel. Raises ProtocolError where there is nobody, or nowhere, to answer."""
    headers = frame.head.headers
    session.require_some("admin")
    if "transaction" in headers:
        raise ProtocolError("bad-transaction", f"{DESTINATION} takes part in no transaction", "Leave transaction out.")
    reply_to = headers.get("reply-to", "")
    if not reply_to.startswith(TEMPORARY):
        raise ProtocolError(
            "bad-header",
            f"a SEND to {DESTINATION} needs a header reply-to",
            f"Expected reply-to:{TEMP_QUEUE_PREFIX}<name>, where the answer is to go, got {reply_to[:200]!r}.",
        )
    reply_queue = subscribing.own_reply_queue(broker, session, reply_to)
    if not reply_queue:
        raise ProtocolError(
            "bad-header", "header reply-to: the queue of another connection", f"Expected {TEMP_QUEUE_PREFIX}<name>."
        )
    asked = Ask(broker, session, reply_queue, headers.get("correlation-id"), now)
    if frame.receipt is not None:
        session.receipts.now(frame.receipt)
    try:
        fields = yield from _run(broker, asked, frame.body)
    except ProtocolError as error:
        broker.peer_log.line(
            logging.INFO,
            "refused admin requests",
            session.origin,
            "%s %s %s: refused: %s",
            _who(session),
            printable(asked.verb) or "?",
            _what(asked),
            printable(error.message),
            logger=log,
        )
        asked.refuse(error)
    else:
        if fields is not None:
            yield from asked.answering(fields)


def _unread_bytes(broker: Broker, session: Session) -> int:
    """What the temporary queues of a session hold."""
    found = [broker.destinations[name] for name in session.temporary if name in broker.destinations]
    return sum(feed.partition.held_bytes for destination in found for feed in destination.feeds)


def _run(broker: Broker, asked: Ask, body: bytes) -> Work:
    if len(body) > REQUEST_BYTES_MAX:
        raise _bad(f"an admin request has at most {REQUEST_BYTES_MAX} bytes", f"got {len(body)}")
    try:
        request = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise _bad("an admin request is one JSON object", f"got something else: {error}"[:300]) from None
    if not isinstance(request, dict) or not isinstance(request.get("do"), str):
        raise _bad('an admin request is a JSON object with "do", the verb', f"got {request!r}"[:300])
    asked.verb = request.pop("do")[:100]
    asked.args = request
    verb = VERBS.get(asked.verb)
    if verb is None:
        raise ProtocolError("unsupported", f"unknown verb {asked.verb!r}", f"The verbs are {', '.join(sorted(VERBS))}.")
    if not verb.of_names:
        asked.session.require_all("admin")
    log.info("%s %s %s", _who(asked.session), asked.verb, _what(asked))
    done = verb.run(broker, asked)
    return (yield from done) if isinstance(done, Generator) else done


def _who(session: Session) -> str:
    return f"{printable(session.user) or 'anonymous'} at {session.address} ({session.id}):"


def _what(asked: Ask) -> str:
    return printable(json.dumps(asked.args)[:LOGGED_CHARS_MAX])


def _bad(message: str, detail: str) -> ProtocolError:
    return ProtocolError("bad-request", message, detail)
