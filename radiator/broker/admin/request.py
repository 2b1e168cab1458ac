"""A request to the admin channel: its arguments and its answer.

Invariant: every request is answered once, also while ``limits.memory`` is used up, unless its client is gone.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Generator, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from radiator import limits
from radiator.broker.admin import audit
from radiator.broker.admin.view import View
from radiator.errors import ProtocolError, StorageError
from radiator.stomp.headers import join

if TYPE_CHECKING:
    from radiator.broker.budget import Steps
    from radiator.broker.clients.session import Session
    from radiator.broker.services import Services
    from radiator.clock import Now
    from radiator.config.compare import Change

ENTRY_UNITS = 8  # per entry of a list, as JSON

Answer = dict[str, Any]  # a value that is a list or an iterator is encoded entry by entry
Work = Generator[bool, None, Answer | None]  # the steps of a verb (``broker.budget``)


class Request:
    """A request to the admin channel.

    Args:
        broker: The services of the broker.
        session: The session of the client.
        reply_to: The temporary queue for the answer.
        correlation: The header ``correlation-id``, or None.
        now: The time of the request.

    Attributes:
        verb: The verb.
        args: The arguments, without ``do``.
        audited: True if the end of the request is to be written to the audit log.
    """

    __slots__ = ("_broker", "_correlation", "_reply_to", "args", "audited", "now", "session", "verb")

    def __init__(self, broker: Services, session: Session, reply_to: str, correlation: str | None, now: Now) -> None:
        self._broker = broker
        self._reply_to = reply_to
        self._correlation = correlation
        self.session = session
        self.now = now
        self.verb = ""
        self.args: dict[str, Any] = {}
        self.audited = False

    def begin(self, verb: str, args: dict[str, Any], changes: bool) -> None:
        """Set the verb and the arguments.

        Args:
            verb: The verb.
            args: The arguments, without ``do``.
            changes: True if the verb changes something: its end is written to the audit log.
        """
        self.verb = verb
        self.args = args
        self.audited = changes

    @property
    def view(self) -> View:
        """The destinations that the client may see."""
        return View(self.session.rights)

    def word(self, name: str, default: str, words: Collection[str]) -> str:
        """Return an argument that is one of several words.

        Raises:
            ProtocolError: ``bad-request``, if it is another value.
        """
        value = self.text(name, default)
        if value not in words:
            raise bad_request(f"{name}: expected one of {', '.join(words)}", f"got {value!r}"[:200])
        return value

    def text(self, name: str, default: str | None = None) -> str:
        """Return an argument that is a text.

        Args:
            name: The name of the argument.
            default: The value if it is missing; None if it is required.

        Raises:
            ProtocolError: ``bad-request``, if it is required and missing or empty, or is no text.
        """
        value = self.args.get(name, default)
        if not isinstance(value, str) or (not value and default is None):
            raise bad_request(f"{self.verb} needs {name}, a text", f"got {value!r}"[:200])
        return value

    def number(self, name: str, default: int, least: int, most: int) -> int:
        """Return an argument that is a whole number from ``least`` to ``most``.

        Raises:
            ProtocolError: ``bad-request``, if it is another value.
        """
        value = self.args.get(name, default)
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            raise bad_request(f"{name}: expected a whole number, {least} to {most}", f"got {value!r}"[:200])
        return value

    def flag(self, name: str) -> bool:
        """Return an argument that is true or false; False if it is missing.

        Raises:
            ProtocolError: ``bad-request``, if it is another value.
        """
        value = self.args.get(name, False)
        if not isinstance(value, bool):
            raise bad_request(f"{name}: expected true or false", f"got {value!r}"[:200])
        return value

    def refuse(self, error: ProtocolError) -> None:
        """Answer with an error."""
        self.done(error)
        self._later({"error": {"code": error.code, "message": error.message, "detail": error.detail}}, ok=False)

    def done(self, error: ProtocolError | None) -> None:
        """Write the line of the audit log if the verb changes something. Only the first call has an effect."""
        if self.audited:
            self.audited = False
            audit.record(self._broker.peer_log, self.session, self.verb, self.args, error)

    def done_with(self, changes: Iterable[Change]) -> None:
        """Write the line of the audit log for changes that are made as a whole or not at all.

        Args:
            changes: The changes. If one is refused, none was made, and the line says so; but not if the request only
                compares (``check``).
        """
        refused = [change for change in changes if change.refused]
        if refused and not self.flag("check"):
            self.done(ProtocolError("unsupported", f"nothing has changed: {refused[0].path}: {refused[0].refused}"))
        else:
            self.done(None)

    def answer(self, fields: Answer) -> None:
        """Send the answer later, from a verb that has returned None."""
        self.done(None)
        self._later(fields, True)

    def _later(self, fields: Answer, ok: bool) -> None:
        self._broker.background.add(self.answer_steps(fields, ok))

    def answer_steps(self, fields: Answer, ok: bool = True) -> Steps:
        """Send the answer, in steps, without a line of the audit log. Nothing is sent if the client is gone.

        The JSON is ASCII, because a request may contain a lone surrogate, which UTF-8 cannot encode.
        """
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
            broker.stats.count(dropped_replies=1)  # the client does not read its answers


def _unread_bytes(broker: Services, session: Session) -> int:
    """Return the bytes in the temporary queues of a session."""
    found = [broker.destinations[name] for name in session.temporary.names if name in broker.destinations]
    return sum(feed.partition.held_bytes for destination in found for feed in destination.feeds)


def bad_request(message: str, detail: str) -> ProtocolError:
    """Return the error of a request that cannot be understood."""
    return ProtocolError("bad-request", message, detail)
