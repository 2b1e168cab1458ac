"""The admin channel: requests as JSON in a SEND to ``/radiator/admin``, answered to its ``reply-to``.

    {"do": "destinations.ls", "limit": 100}  ->  {"ok": true, "do": "destinations.ls", "destinations": [...], ...}

A verb is a row of ``VERBS``: a function of the broker and the request that returns the fields of the answer. A verb
that has to wait returns None and calls ``Request.answer`` later. A verb refuses a request with a ProtocolError, which
the client gets as JSON; the connection stays open. Only a request that cannot be answered at all is an ERROR.

This module knows the table, the rights and the way of an answer. It does not know the work of the verbs.

Invariants: every request is answered once or is an ERROR, also while ``limits.memory`` is used up; no request is
carried out without the ``admin`` right; every request is logged with user, time and arguments.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, NamedTuple

from radiator.broker.admin import clock_verbs, cursor_verbs, declared_verbs, delayed_verbs, lists, reload_verbs
from radiator.broker.admin.request import Answer, Request, Work, bad_request
from radiator.broker.headers.send import without_secret
from radiator.broker.subscribing import subscribing, temporary
from radiator.clock import Now
from radiator.errors import ProtocolError, printable
from radiator.routing.rules import TEMP_QUEUE_PREFIX, TEMPORARY

if TYPE_CHECKING:
    from radiator.broker.budget import Steps
    from radiator.broker.clients.session import Session
    from radiator.broker.services import Services
    from radiator.stomp.frames import Frame

log = logging.getLogger("radiator.admin")

DESTINATION = "/radiator/admin"
REQUEST_BYTES_MAX = 1024 * 1024  # requests carry arguments, at most a configuration
LOGGED_CHARS_MAX = 500


class Verb(NamedTuple):
    """A verb of the admin channel.

    Attributes:
        run: Carries out a request.
        of_names: The verb checks the right over each destination itself (``Request.require``), so the ``admin`` right
            over some names suffices. Other verbs need the right over everything.
    """

    run: Callable[[Services, Request], Answer | Work | None]
    of_names: bool = False


VERBS: dict[str, Verb] = {
    "destinations.ls": Verb(lists.destinations, of_names=True),
    "clients.ls": Verb(lists.clients),
    "stats": Verb(lists.stats),
    "clock": Verb(clock_verbs.show),
    "clock.accept": Verb(clock_verbs.accept),
    "config.reload": Verb(reload_verbs.reload),
    "cursors.ls": Verb(cursor_verbs.ls),
    "cursors.set": Verb(cursor_verbs.move),
    "cursors.rm": Verb(cursor_verbs.rm),
    "queues.settle_delayed": Verb(delayed_verbs.settle, of_names=True),
    "subscriptions.apply": Verb(declared_verbs.apply),
}


def ask(broker: Services, session: Session, frame: Frame, now: Now) -> Steps:
    """Process a SEND to the admin channel, in steps.

    Args:
        broker: The services of the broker.
        session: The session.
        frame: The SEND.
        now: The current time.

    Raises:
        ProtocolError: The session has no ``admin`` right, or the request has no queue for an answer.
    """
    headers = frame.head.headers
    session.require_some("admin")
    if "transaction" in headers:
        raise ProtocolError(
            "bad-transaction", f"{DESTINATION} cannot be part of a transaction", "Leave transaction out."
        )
    reply_to = headers.get("reply-to", "")
    if not reply_to.startswith(TEMPORARY):
        raise ProtocolError(
            "bad-header",
            f"a SEND to {DESTINATION} needs a header reply-to",
            f"Expected reply-to:{TEMP_QUEUE_PREFIX}<name>, the queue for the answer, got {reply_to[:200]!r}.",
        )
    reply_queue = temporary.reply_queue(broker, session, without_secret(reply_to))
    if not reply_queue:
        raise ProtocolError(
            "bad-header", "header reply-to: the queue of another connection", f"Expected {TEMP_QUEUE_PREFIX}<name>."
        )
    subscribing.take_replies(broker, session, reply_to, reply_queue)
    request = Request(broker, session, reply_queue, headers.get("correlation-id"), now)
    if frame.receipt is not None:
        session.receipts.now(frame.receipt)
    try:
        fields = yield from _run(broker, request, frame.body)
    except ProtocolError as error:
        broker.peer_log.line(
            logging.INFO,
            "refused admin requests",
            session.origin,
            "%s %s %s: refused: %s",
            _client_text(session),
            printable(request.verb) or "?",
            _args_text(request),
            printable(error.message),
            logger=log,
        )
        request.refuse(error)
    else:
        if fields is not None:
            yield from request.answer_steps(fields)


def _run(broker: Services, request: Request, body: bytes) -> Work:
    if len(body) > REQUEST_BYTES_MAX:
        raise bad_request(f"an admin request has at most {REQUEST_BYTES_MAX} bytes", f"got {len(body)}")
    try:
        parsed = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise bad_request("an admin request is one JSON object", f"got something else: {error}"[:300]) from None
    if not isinstance(parsed, dict) or not isinstance(parsed.get("do"), str):
        raise bad_request('an admin request is a JSON object with "do", the verb', f"got {parsed!r}"[:300])
    request.begin(parsed.pop("do")[:100], parsed)
    verb = VERBS.get(request.verb)
    if verb is None:
        raise ProtocolError(
            "unsupported", f"unknown verb {request.verb!r}", f"The verbs are {', '.join(sorted(VERBS))}."
        )
    if not verb.of_names:
        request.session.require_all("admin")
    log.info("%s %s %s", _client_text(request.session), request.verb, _args_text(request))
    done = verb.run(broker, request)
    return (yield from done) if isinstance(done, Generator) else done


def _client_text(session: Session) -> str:
    return f"{printable(session.user) or 'anonymous'} at {session.address} ({session.id}):"


def _args_text(request: Request) -> str:
    return printable(json.dumps(request.args)[:LOGGED_CHARS_MAX])
