"""One request to the admin channel: its arguments, and how it is answered.

Invariant: every request is answered once, also while ``limits.memory`` is used up, unless the asker is gone.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING, Any

from radiator import limits
from radiator.errors import ProtocolError, StorageError
from radiator.stomp.headers import join

if TYPE_CHECKING:
    from radiator.broker.budget import Steps
    from radiator.broker.clients.session import Session
    from radiator.broker.services import Services
    from radiator.clock import Now

ENTRY_UNITS = 8  # of a list, as JSON

Answer = dict[str, Any]  # a list, or an iterator, is sent entry by entry
Work = Generator[bool, None, Answer | None]  # what a verb does, in steps (``broker.budget``)


class Request:
    """One request: who asks (``session``), when (``now``), for what (``args``, without ``do``)."""

    __slots__ = ("_broker", "_correlation", "_reply_to", "args", "now", "session", "verb")

    def __init__(self, broker: Services, session: Session, reply_to: str, correlation: str | None, now: Now) -> None:
        self._broker = broker
        self._reply_to = reply_to
        self._correlation = correlation
        self.session = session
        self.now = now
        self.verb = ""
        self.args: dict[str, Any] = {}

    def begin(self, verb: str, args: dict[str, Any]) -> None:
        """Set what is asked for."""
        self.verb = verb
        self.args = args

    def text(self, name: str, default: str | None = None) -> str:
        """An argument that is a text. Raises ProtocolError if it is missing and has no default, or is none."""
        value = self.args.get(name, default)
        if not isinstance(value, str) or (not value and default is None):
            raise bad_request(f"{self.verb} needs {name}, a text", f"got {value!r}"[:200])
        return value

    def number(self, name: str, default: int, least: int, most: int) -> int:
        """An argument that is a whole number within bounds."""
        value = self.args.get(name, default)
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            raise bad_request(f"{name}: expected a whole number, {least} to {most}", f"got {value!r}"[:200])
        return value

    def flag(self, name: str) -> bool:
        """An argument that is true or false; false if it is not there."""
        value = self.args.get(name, False)
        if not isinstance(value, bool):
            raise bad_request(f"{name}: expected true or false", f"got {value!r}"[:200])
        return value

    def require(self, name: str) -> None:
        """The asker must have the ``admin`` right over this destination. Raises ProtocolError ``denied``."""
        self.session.require("admin", name)

    def refuse(self, error: ProtocolError) -> None:
        """Answer that it was not done."""
        self.answer({"error": {"code": error.code, "message": error.message, "detail": error.detail}}, ok=False)

    def answer(self, fields: Answer, ok: bool = True) -> None:
        """Send the answer, from outside of the verb's steps."""
        self._broker.background.add(self.answer_steps(fields, ok))

    def answer_steps(self, fields: Answer, ok: bool = True) -> Steps:
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
            broker.stats.count(dropped_replies=1)  # the asker does not read what it asked for


def _unread_bytes(broker: Services, session: Session) -> int:
    """What the temporary queues of a session hold."""
    found = [broker.destinations[name] for name in session.temporary if name in broker.destinations]
    return sum(feed.partition.held_bytes for destination in found for feed in destination.feeds)


def bad_request(message: str, detail: str) -> ProtocolError:
    """Return the error of a request that cannot be understood."""
    return ProtocolError("bad-request", message, detail)
