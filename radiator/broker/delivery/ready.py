"""The ready list: readers, queues and sessions to which a delivery has become possible, and the pump that serves them.

Each event that can make a delivery possible (a commit, credit, room in an outbox, a finished cold read) adds the
reader, queue or session here. ``pump`` delivers one bounded run to each, so a turn costs in proportion to the events in
it and not to the number of destinations. Sessions with one window for several queues are served first, so that a busy
queue cannot keep the window from a queue that has waited longer. Consumers of one queue that got credit at about the
same time are served in one run.

The order is the order of insertion (dicts, not sets), so equal input gives equal deliveries for every hash seed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, TypeVar

from radiator.broker.delivery import dispatch
from radiator.broker.logs.selection import Selection

if TYPE_CHECKING:
    from radiator.broker.budget import Budget
    from radiator.broker.clients.session import Reader, Session, Subscription
    from radiator.broker.logs.feed import Feed
    from radiator.broker.queues.queue import Queue, QueueSource

Entry = TypeVar("Entry")

CHARS_A_UNIT = 8  # characters of selectors, evaluated for one record
RUNS_MAX = 16  # runs of one queue for one session without a message for it: a few ms, then others have their turn


class Ready:
    """The ready list of one broker.

    Args:
        on_done: Called with each reader that has reached its stop position.
        on_error: Called with an unexpected exception of one reader, queue or session. The others are served all the
            same.
        budget: The budget of the turn, for the evaluation of selectors. When it is exhausted the rest waits for the
            next turn.
    """

    __slots__ = (
        "_budget",
        "_counted",
        "_credited",
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
        self._credited: dict[Queue, dict[Subscription, None]] = {}  # consumers whose session has no other queue
        self._queues: dict[Queue, None] = {}
        self._readers: dict[Reader, None] = {}

    # --- adding -----------------------------------------------------------------------------------------------------

    def queue(self, queue: Queue) -> None:
        """Add a queue that has a new message or a new consumer."""
        self._queues[queue] = None

    def reader(self, reader: Reader) -> None:
        """Add a reader that may continue."""
        self._readers[reader] = None

    def feed(self, feed: Feed, sources: Iterable[QueueSource] | None = None) -> None:
        """Add the readers and queues of a partition with new records.

        Args:
            feed: The partition reader.
            sources: The sources of queues to add; None to add all.
        """
        readers = self._readers
        for reader in feed.readers:
            readers[reader] = None
        for source in feed.sources if sources is None else sources:
            queue = source.queue
            queue.ready_list.wake(source)
            if queue.consumers:
                self._queues[queue] = None

    def refused(self, subscription: Subscription, queues: Iterable[Queue]) -> None:
        """Add queues after a NACK.

        Each queue offers the message to other consumers first, and the session that refused it is served from its other
        queues first.
        """
        ring = subscription.session.window.queues
        for queue in queues:
            self._refused[queue] = subscription.session
            ring.served(subscription, queue)
        self.credit(subscription)

    def credit(self, subscription: Subscription) -> None:
        """Add everything that a subscription reads, after it got credit or room."""
        if subscription.awaited:
            self.released(subscription)
        if subscription.readers:
            self._readers.update(dict.fromkeys(subscription.readers.values()))
        window = subscription.session.window
        if window.capped:
            self.credit_session(subscription.session)
        elif not subscription.queues:
            return
        elif subscription.window is None and subscription.ack != "auto":
            queue = window.queues.only
            if queue is None or queue.selectors is not None:
                self._shared[subscription.session] = None
            else:
                self._credited.setdefault(queue, {})[subscription] = None
        else:
            for queue in subscription.queues:
                if queue.selectors is not None:
                    queue.credited(subscription)
                self._queues[queue] = None

    def released(self, subscription: Subscription) -> None:
        """Add the queues whose next single active consumer waits for this subscription to hold fewer messages.

        The subscription's own window may be full of another queue's messages already.
        """
        self._queues.update(subscription.awaited)
        subscription.awaited.clear()

    def credit_session(self, session: Session) -> None:
        """Add a session whose shared window may have room again."""
        if len(session.window.queues) or session.window.capped:
            self._shared[session] = None
        if session.window.capped:
            for subscription in session.subscriptions.by_id.values():
                for queue in subscription.queues:
                    queue.credited(subscription)
                    self._queues[queue] = None
                for reader in subscription.readers.values():
                    self._readers[reader] = None

    def forget_session(self, session: Session) -> None:
        """Remove a session that has ended."""
        self._shared.pop(session, None)

    def forget_reader(self, reader: Reader) -> None:
        """Remove a reader that has ended."""
        self._readers.pop(reader, None)

    # --- the pump ---------------------------------------------------------------------------------------------------

    @property
    def busy(self) -> bool:
        """True if ``pump`` has something to do."""
        return bool(self._shared or self._credited or self._queues or self._readers or self._refused)

    def pump(self) -> bool:
        """Deliver one bounded run to everything that is ready, within the budget for selectors.

        Returns:
            True if there is more to do at once.
        """
        self._counted = Selection.spent_chars
        self._selecting = False
        if self._refused:
            refused, self._refused = iter(self._refused.items()), {}
            while not self._each(refused, self._serve_refused):
                pass  # all have their turn: a session may refuse messages in each turn, and others must be served, too
        if self._shared:
            sessions, self._shared = iter(self._shared), {}
            if not self._each(sessions, self._serve):
                self._shared = dict.fromkeys(sessions) | self._shared
                return True
        if self._credited:
            credited, self._credited = iter(self._credited.items()), {}
            if not self._each(credited, self._serve_credited):
                for queue, consumers in credited:
                    self._credited.setdefault(queue, {}).update(consumers)
                return True
        if self._queues:
            queues, self._queues = iter(self._queues), {}
            if not self._each(queues, self._serve_queue):
                self._queues = dict.fromkeys(queues) | self._queues  # queues that had no turn come first next time
        if self._readers:
            readers, self._readers = iter(self._readers), {}
            if not self._each(readers, self._serve_reader):
                self._readers = dict.fromkeys(readers) | self._readers
        return self.busy

    def _each(self, entries: Iterator[Entry], serve: Callable[[Entry], None]) -> bool:
        """Serve entries in their order. Return False if the budget is exhausted; the iterator then has the rest."""
        for entry in entries:
            try:
                serve(entry)
            except Exception as error:
                self._on_error(error)
            if (self._selecting or Selection.spent_chars != self._counted) and self._exhausted():
                return False
        return True

    def _serve_refused(self, refused: tuple[Queue, Session]) -> None:
        queue, session = refused
        self._queues[queue] = None
        dispatch.pump(queue, but=session)

    def _serve_queue(self, queue: Queue) -> None:
        if queue.consumers and dispatch.pump(queue):
            self._queues[queue] = None

    def _serve_reader(self, reader: Reader) -> None:
        if reader.pump():
            self._readers[reader] = None
        elif reader.done:
            self._on_done(reader)

    def _exhausted(self) -> bool:
        """Charge the selectors evaluated since the last call, and return True if the budget of the turn is exhausted.

        Returns False if this call of ``pump`` has evaluated no selector. ``_each`` checks that inline, because it would
        call this once per reader.
        """
        counted, self._counted = self._counted, Selection.spent_chars
        units = (self._counted - counted) // CHARS_A_UNIT
        if units:
            self._budget.spend(units)
            self._selecting = True
        return self._selecting and self._budget.exhausted

    def _serve(self, session: Session) -> None:
        """Fill the window that the queues of a session share, one message from each queue in turn."""
        window, outbox = session.window, session.outbox
        if window.capped:
            self._serve_topics(session)
        while window.held < window.size and not session.closing:
            entries = window.queues.entries()
            if outbox.room() <= 0:
                for subscription, _ in entries:
                    outbox.waiting[subscription] = None
                return
            share = 1 if len(entries) > 1 else window.size
            for subscription, queue in entries:
                before = window.held
                for _ in range(RUNS_MAX):
                    if window.held != before or not dispatch.pump(queue, (subscription,), share):
                        break
                    if self._exhausted():
                        self._shared[session] = None
                        return
                else:
                    self._shared[session] = None
                if window.held > before:
                    break
            else:
                return

    def _serve_credited(self, credited: tuple[Queue, Iterable[Subscription]]) -> None:
        """Fill the windows of consumers of one queue, whose sessions have no other queue."""
        queue, consumers = credited
        for _ in range(RUNS_MAX):
            consumers = [each for each in consumers if each.queue_credit() > 0]
            if not consumers or not dispatch.pump(queue, consumers):
                return
        self._credited.setdefault(queue, {}).update(dict.fromkeys(consumers))

    def _serve_topics(self, session: Session) -> None:
        """Serve the topic readers of a session with ``max-in-flight``.

        Topics and queues share the window, so topics come first every other time. Among the topics, the one after the
        last served is first.
        """
        window = session.window
        if not window.topics_first() and len(window.queues):
            return
        readers = [
            reader
            for subscription in session.subscriptions.by_id.values()
            if subscription.ack != "auto"
            for reader in subscription.readers.values()
        ]
        for reader in window.in_turn(readers):
            held = window.held
            if held >= window.size:
                return
            reader.pump()
            if window.held > held:
                window.topic_served(reader)
            self._readers[reader] = None  # the pump then continues it, or ends it at its stop position
