"""What is ready to be delivered, and the pump that delivers it.

Everything that can make a delivery possible (a commit, credit, room in an outbox, a finished cold read) puts the
reader, queue or session concerned in here; ``pump`` gives each of them one bounded run. So a turn costs what happened
in it and not how much exists. Sessions that share one window among their queues come first, so that a queue with new
messages cannot keep taking the window from one that has waited longer.

Order is that of insertion (dicts, not sets): the same input gives the same deliveries, whatever the hash seed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from radiator.broker.delivery import dispatch
from radiator.broker.logs.selection import Selection

if TYPE_CHECKING:
    from radiator.broker.budget import Budget
    from radiator.broker.clients.session import Reader, Session, Subscription
    from radiator.broker.logs.feed import Feed
    from radiator.broker.queues.queue import Queue, QueueSource

CHARS_A_UNIT = 8  # of selectors, evaluated for a record
RUNS_MAX = 16  # of one queue for one session, in which nothing for it was found: a few ms, then others have their turn


class Ready:
    """See the top of the file.

    Args:
        on_done: Called with each reader that has reached its stop position.
        on_error: Called with what nobody foresaw: who raised it has to wait for what comes next, and the others go on.
        budget: Where the evaluation of selectors is counted; once it is exhausted, the others come in the next turn.
    """

    __slots__ = (
        "_budget",
        "_counted",
        "_on_done",
        "_on_error",
        "_queues",
        "_readers",
        "_refused",
        "_selecting",
        "_shared",
    )

    def __init__(
        self, on_done: Callable[[Reader], None], on_error: Callable[[Exception], None], budget: Budget
    ) -> None:
        self._budget = budget
        self._counted = Selection.spent_chars
        self._selecting = False  # selectors were evaluated in this call of pump
        self._on_done = on_done
        self._on_error = on_error
        self._refused: dict[Queue, Session] = {}
        self._shared: dict[Session, None] = {}
        self._queues: dict[Queue, None] = {}
        self._readers: dict[Reader, None] = {}

    # --- what has become possible -----------------------------------------------------------------------------------

    def queue(self, queue: Queue) -> None:
        """A queue has a message or a consumer that it had not before."""
        self._queues[queue] = None

    def reader(self, reader: Reader) -> None:
        """What held a reader back is gone."""
        self._readers[reader] = None

    def feed(self, feed: Feed, sources: Iterable[QueueSource] | None = None) -> None:
        """A partition has more to read; of its sources these, or all."""
        readers = self._readers
        for reader in feed.readers:
            readers[reader] = None
        for source in feed.sources if sources is None else sources:
            source.queue.ready_list.wake(source)
            self._queues[source.queue] = None

    def refused(self, subscription: Subscription, queues: Iterable[Queue]) -> None:
        """NACK: the queue deals the message out again, to other consumers first; and to the refuser its other queues
        come first."""
        ring = subscription.session.queue_ring
        for queue in queues:
            self._refused[queue] = subscription.session
            ring.served(subscription, queue)
        self.credit(subscription)

    def credit(self, subscription: Subscription) -> None:
        """Something that held this subscription back is gone: let it be pumped."""
        if subscription.awaited:
            self.released(subscription)
        for reader in subscription.readers.values():
            self._readers[reader] = None
        if subscription.session.capped:
            self.credit_session(subscription.session)
        elif not subscription.queues:
            return
        elif subscription.window is None and subscription.ack != "auto":
            self._shared[subscription.session] = None
        else:
            for queue in subscription.queues:
                if queue.selectors is not None:
                    queue.credited(subscription)
                self._queues[queue] = None

    def released(self, subscription: Subscription) -> None:
        """This subscription holds less than before, or nothing: let the queues be pumped whose next owner waits for
        that. Its own window may be full of another queue's messages already."""
        self._queues.update(subscription.awaited)
        subscription.awaited.clear()

    def credit_session(self, session: Session) -> None:
        """The window that a session's subscriptions share may have room again."""
        if len(session.queue_ring) or session.capped:
            self._shared[session] = None
        if session.capped:
            for subscription in session.subscriptions.values():
                for queue in subscription.queues:
                    queue.credited(subscription)
                    self._queues[queue] = None
                for reader in subscription.readers.values():
                    self._readers[reader] = None

    def forget_session(self, session: Session) -> None:
        """A session holds nothing any more."""
        self._shared.pop(session, None)

    def forget_reader(self, reader: Reader) -> None:
        """A reader has ended."""
        self._readers.pop(reader, None)

    # --- the pump ---------------------------------------------------------------------------------------------------

    @property
    def busy(self) -> bool:
        """True if ``pump`` has something to do."""
        return bool(self._shared or self._queues or self._readers or self._refused)

    def pump(self) -> bool:
        """Deliver one bounded run to everything that is ready, or until selectors have used up the budget of this turn;
        True if there is more to do at once."""
        self._counted = Selection.spent_chars
        self._selecting = False
        if self._refused:
            refused, self._refused = self._refused, {}
            for queue, session in refused.items():
                self._queues[queue] = None
                try:
                    dispatch.pump(queue, but=session)
                except Exception as error:
                    self._on_error(error)
        if self._shared:
            shared, self._shared = self._shared, {}
            sessions = iter(shared)
            for session in sessions:
                try:
                    self._serve(session)
                except Exception as error:
                    self._on_error(error)
                if (self._selecting or Selection.spent_chars != self._counted) and self._exhausted():
                    self._shared = dict.fromkeys(sessions) | self._shared
                    return True
        if self._queues:
            queues, self._queues = iter(self._queues), {}
            for queue in queues:
                try:
                    if queue.consumers and dispatch.pump(queue):
                        self._queues[queue] = None
                except Exception as error:
                    self._on_error(error)
                if (self._selecting or Selection.spent_chars != self._counted) and self._exhausted():
                    self._queues = dict.fromkeys(queues) | self._queues  # the others come first the next time
                    break
        if self._readers:
            readers, self._readers = iter(self._readers), {}
            for reader in readers:
                try:
                    if reader.pump():
                        self._readers[reader] = None
                    elif reader.done:
                        self._on_done(reader)
                except Exception as error:
                    self._on_error(error)
                if (self._selecting or Selection.spent_chars != self._counted) and self._exhausted():
                    self._readers = dict.fromkeys(readers) | self._readers
                    break
        return self.busy

    def _exhausted(self) -> bool:
        """Count what selectors have been evaluated since this was asked last; True if others should have their turn.

        False if none was in this call of ``pump``: ``pump`` sees that without a call, as it asks behind each reader.
        """
        counted, self._counted = self._counted, Selection.spent_chars
        units = (self._counted - counted) // CHARS_A_UNIT
        if units:
            self._budget.spend(units)
            self._selecting = True
        return self._selecting and self._budget.exhausted

    def _serve(self, session: Session) -> None:
        """Fill the window that a session's queues share: one message from each in turn, none starves."""
        if session.capped:
            self._serve_topics(session)
        while session.held < session.window and not session.closing:
            entries = session.queue_ring.entries()
            if session.room() <= 0:
                for subscription, _ in entries:
                    session.waiting[subscription] = None
                return
            share = 1 if len(entries) > 1 else session.window
            for subscription, queue in entries:
                before = session.held
                for _ in range(RUNS_MAX):
                    if session.held != before or not dispatch.pump(queue, subscription, share):
                        break
                    if self._exhausted():
                        self._shared[session] = None
                        return
                else:
                    self._shared[session] = None
                if session.held > before:
                    break
            else:
                return

    def _serve_topics(self, session: Session) -> None:
        """Under max-in-flight topics and queues take from one window: every other time the topics come first, and of
        them the one behind that which had the last turn."""
        if not session.topics_first() and len(session.queue_ring):
            return
        readers = [
            reader
            for subscription in session.subscriptions.values()
            if subscription.ack != "auto"
            for reader in subscription.readers.values()
        ]
        last = session.topic_served
        first = readers.index(last) + 1 if last in readers else 0
        for reader in readers[first:] + readers[:first]:
            held = session.held
            if held >= session.window:
                return
            reader.pump()
            if session.held > held:
                session.note_topic_served(reader)
            self._readers[reader] = None  # whether it goes on, or has come to its end, is seen there
