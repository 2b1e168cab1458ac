"""The admin channel: requests as JSON in a SEND to ``/radiator/admin``, answered to its ``reply-to``.

    {"do": "destinations.ls", "limit": 100}  ->  {"ok": true, "do": "destinations.ls", "destinations": [...], ...}

A verb is a row of ``VERBS``: a function of the broker and the request that returns the fields of the answer. A verb
that has to wait returns None and calls ``Request.answer`` later. A verb refuses a request with a ProtocolError, which
the client gets as JSON; the connection stays open. Only a request that cannot be answered at all is an ERROR.

A verb that only reads needs the right ``monitor`` and shows what the right covers. Every other verb needs ``admin``,
and its result is written to the audit log (``audit``).

This module knows the table, the rights and the way of an answer. It does not know the work of the verbs.

Invariants: every request is answered once or is an ERROR, also while ``limits.memory`` is used up; no request is
carried out without the right; every change is in the audit log.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, NamedTuple

from radiator.broker.admin import (
    audit,
    configuration_verbs,
    connection_verbs,
    cursor_verbs,
    details,
    lists,
    maintenance_verbs,
    overview,
    queue_verbs,
)
from radiator.broker.admin.request import Answer, Request, Work, bad_request
from radiator.broker.headers.send import DELAYS, DELIVER_AT, without_secret
from radiator.broker.headers.values import flag
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
NOT_ALLOWED = ("expected-offset", DELIVER_AT, *DELAYS, "audit-log")  # what they ask for does not happen


class Verb(NamedTuple):
    """A verb of the admin channel.

    Attributes:
        run: Carries out a request.
        of_names: The verb checks the right over each destination itself (``Identity.require``), so the ``admin`` right
            over some names suffices. Other verbs that change something need the right over everything.
        reads: The verb changes nothing. It needs the right ``monitor``, over some names, and shows only these.
    """

    run: Callable[[Services, Request], Answer | Work | None]
    of_names: bool = False
    reads: bool = False


VERBS: dict[str, Verb] = {
    "overview": Verb(overview.overview, reads=True),
    "rates": Verb(overview.rates, reads=True),
    "destinations.ls": Verb(lists.destinations, reads=True),
    "destinations.show": Verb(details.destination, reads=True),
    "clients.ls": Verb(lists.clients, reads=True),
    "clients.show": Verb(details.client, reads=True),
    "clients.disconnect": Verb(connection_verbs.disconnect),
    "stats": Verb(lists.stats, reads=True),
    "clock": Verb(maintenance_verbs.clock, reads=True),
    "clock.accept": Verb(maintenance_verbs.accept_clock),
    "config.reload": Verb(configuration_verbs.reload),
    "cursors.ls": Verb(cursor_verbs.ls, reads=True),
    "cursors.set": Verb(cursor_verbs.move),
    "cursors.rm": Verb(cursor_verbs.rm),
    "broker.drain": Verb(connection_verbs.drain),
    "maintenance.run": Verb(maintenance_verbs.run),
    "maintenance.status": Verb(maintenance_verbs.status, reads=True),
    "queues.pause": Verb(queue_verbs.pause, of_names=True),
    "queues.resume": Verb(queue_verbs.resume, of_names=True),
    "queues.purge": Verb(queue_verbs.purge, of_names=True),
    "subscriptions.apply": Verb(configuration_verbs.apply),
}


def ask(broker: Services, session: Session, frame: Frame, now: Now) -> Steps:
    """Process a SEND to the admin channel, in steps.

    Args:
        broker: The services of the broker.
        session: The session.
        frame: The SEND.
        now: The current time.

    Raises:
        ProtocolError: The request has no queue for an answer, or a header that only messages have.
    """
    headers = frame.head.headers
    if "transaction" in headers:
        raise ProtocolError(
            "bad-transaction", f"{DESTINATION} cannot be part of a transaction", "Leave transaction out."
        )
    for each in NOT_ALLOWED:
        if each in headers:
            raise ProtocolError("bad-header", f"header {each} is not allowed for {DESTINATION}", "Leave it out.")
    if flag(headers, "mandatory"):
        raise ProtocolError("bad-header", f"header mandatory is not allowed for {DESTINATION}", "Leave it out.")
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
        if not request.audited:
            broker.peer_log.line(
                logging.INFO,
                "refused admin requests",
                session.origin,
                "%s %s %s: refused: %s",
                audit.who(session),
                printable(request.verb) or "?",
                _args_text(request),
                printable(error.message),
                logger=log,
                peer=session,
            )
        request.refuse(error)
    except GeneratorExit:  # the connection is gone
        request.done(ProtocolError("timeout", audit.UNFINISHED))
        raise
    else:
        if fields is not None:
            request.done(None)
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
    name = parsed.pop("do")[:100]
    verb = VERBS.get(name)
    request.begin(name, parsed, verb is not None and not verb.reads)
    request.session.identity.require_some("monitor" if verb is None or verb.reads else "admin")
    if verb is None:
        raise ProtocolError(
            "unsupported", f"unknown verb {request.verb!r}", f"The verbs are {', '.join(sorted(VERBS))}."
        )
    if verb.reads:
        log.debug("%s %s %s", audit.who(request.session), request.verb, _args_text(request))
    elif not verb.of_names:
        request.session.identity.require_all("admin")
    done = verb.run(broker, request)
    return (yield from done) if isinstance(done, Generator) else done


def _args_text(request: Request) -> str:
    return json.dumps(audit.shortened(request.args))
