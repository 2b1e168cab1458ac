"""The numbers of a session's deliveries, and which ids of messages it may have been sent.

Each delivery under a client ack mode has a number, which is counted per session and never used again
(``docs/adr/0036-delivery-numbers.md``). A message that is delivered twice has two numbers. An ack id is the tag of the
subscription and the number. So no memory of past deliveries is necessary to tell a late ACK from a wrong one: a number
that was given out and is not in flight was settled or returned. Of message ids, only the highest offset of each log is
stored.

Invariants: ``next`` only grows, and ``lost`` is below it.
"""

from __future__ import annotations

REACHED_MAX = 10_000  # logs whose highest delivered offset is stored
OFFSET_DIGITS_MAX = 19  # of 63 bits


class DeliveryNumbers:
    """The delivery numbers of one session.

    Args:
        session_id: The id of the session, with which every tag begins. Ack ids of other connections have other tags.

    Attributes:
        next: The number of the next delivery.
        lost: The highest number of a queue's delivery that was returned without an answer.
    """

    __slots__ = ("_next_tag", "_reached", "_session_id", "lost", "next")

    def __init__(self, session_id: str) -> None:
        self._session_id = session_id
        self._next_tag = 0
        self._reached: dict[bytes, int] | None = {}  # the highest offset of each log; None if there are too many logs
        self.next = 0
        self.lost = -1

    def new_tag(self) -> str:
        """Return the tag of a new subscription."""
        tag = f"{self._session_id}-{self._next_tag}"
        self._next_tag += 1
        return tag

    def assign(self) -> int:
        """Return the number of a delivery that is not a message of a log."""
        number = self.next
        self.next += 1
        return number

    def assign_run(self, count: int, log: bytes, last_offset: int) -> int:
        """Return the first of the consecutive numbers of a run of messages.

        Args:
            count: The number of messages.
            log: The prefix of the log's message ids.
            last_offset: The highest offset of the run.
        """
        first = self.next
        self.next += count
        reached = self._reached
        if reached is not None and reached.get(log, -1) < last_offset:
            reached[log] = last_offset
            if len(reached) > REACHED_MAX:
                self._reached = None
        return first

    def note_lost(self, number: int) -> None:
        """Note that a delivery of a queue was returned without an answer."""
        self.lost = max(self.lost, number)

    def may_have_lost(self, name: str) -> bool:
        """Return True if the delivery with a late ack id or message id may have been returned without an answer.

        Returns:
            False if the delivery was acknowledged, or was one of a topic.
        """
        return self.lost >= (0 if "@" in name else int(name.rpartition("-")[2]))

    def was_delivered(self, name: str) -> bool:
        """Return True if ``name`` is the ack id of a delivery of this session, or the message id of a message.

        Every message id up to the highest delivered one of its log counts.
        """
        log, at, offset = name.rpartition("@")
        if at:
            most = None if self._reached is None else self._reached.get(f"{log}@".encode(), -1)
            return _is_decimal(offset) and (most is None or int(offset) <= most)
        tag, _, number = name.rpartition("-")
        session_id, _, tag_number = tag.rpartition("-")
        numbers = ((tag_number, self._next_tag), (number, self.next))
        return session_id == self._session_id and all(_is_decimal(each) and int(each) < stop for each, stop in numbers)


def _is_decimal(text: str) -> bool:
    """Return True if ``text`` is a number as ids have it: ASCII digits without leading zeros."""
    return text.isascii() and text.isdigit() and len(text) <= OFFSET_DIGITS_MAX and (text == "0" or text[0] != "0")
