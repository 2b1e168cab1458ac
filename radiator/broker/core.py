"""The core of a broker: its data, and the basic operations on it.

The core has the configuration, the store, the sessions and destinations, the present time, the ready list and the
totals. The services of a broker (``services``) and the handlers of frames (``frames``) work on it. The core imports
none of them.

Invariant: a refused session gets an ERROR, and its unacknowledged messages return to their queues at once.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from radiator import __version__
from radiator.broker.budget import Background, Budget
from radiator.broker.clients.held_back import Throttle
from radiator.broker.clients.joined import JoinedOfAll
from radiator.broker.delivery.cold_reads import ColdReads
from radiator.broker.delivery.ready import Ready
from radiator.broker.delivery.slow_subscribers import SlowSubscribers
from radiator.broker.destinations.idle import IdleDestinations
from radiator.broker.destinations.registry import Registry
from radiator.broker.draining import Draining
from radiator.broker.internal_errors import InternalErrors
from radiator.broker.logs.header_values import header_value
from radiator.broker.memory_watch import MemoryWatch
from radiator.broker.peer_log import PeerLog
from radiator.broker.queues.recorder import Recorder
from radiator.broker.skipping import SkippedTotals
from radiator.broker.stats import Stats
from radiator.broker.storage_failures import StorageFailures
from radiator.broker.timers.future_logs import FutureLogs
from radiator.broker.timers.timing import Timing
from radiator.config.compare import same_rules
from radiator.errors import ProtocolError, printable

if TYPE_CHECKING:
    from radiator.broker.budget import Steps
    from radiator.broker.clients.session import Reader, Session, Subscription
    from radiator.broker.destinations.destination import Destination
    from radiator.broker.logs.feed import Feed
    from radiator.broker.queues.queue import Queue
    from radiator.broker.rule_hooks import RuleHooks
    from radiator.clock import WallNs
    from radiator.routing.policy import Policy
    from radiator.routing.rules import Rules
    from radiator.storage.store import Store

log = logging.getLogger("radiator.broker")

SERVER_NAME = f"radiator/{__version__}"


class Core(ABC):
    """The core of one broker.

    Args:
        rules: The rules, which give each destination its policy, with their configuration.
        store: The logs and cursors.
        wake: Called with a session when it has bytes to send.
        hooks: The middleware and schemas of rules, by the index of the rule.
        late: Returns True when the remaining frames should wait because other connections are to be served.
    """

    def __init__(
        self,
        rules: Rules,
        store: Store,
        wake: Callable[[Session], None],
        hooks: Mapping[int, RuleHooks],
        late: Callable[[], bool],
    ) -> None:
        self.config = config = rules.config
        self.rules = rules
        self.store = store
        self.server_name = SERVER_NAME
        self.session_limits = config.limits
        self.stats = Stats()
        self.internal_errors = InternalErrors(self.stats)
        self.memory = store.memory
        self.memory_watch = MemoryWatch(self.memory, self.stats)
        self.peer_log = PeerLog()
        self.throttle = Throttle(self.stats)
        self.slow = SlowSubscribers(self.stats, self.peer_log)
        self.generation = 0  # of the rules; a SEND plan of an older generation is made again
        self.sessions: dict[str, Session] = {}
        self.pending_bytes = 0  # appended and not committed
        self.budget = Budget()
        self.joined = JoinedOfAll(config.limits.joined_total, config.limits.subscriptions)
        self.background = Background(self.budget, self.internal_errors)
        self.stopping = False
        self.draining = Draining(self.sessions, self.background, self.budget, self.refuse, self._credit)
        self.late = late
        self.hooks = hooks
        self.files_refused: ProtocolError | None = None  # the ERROR for messages that are stored in files, if any
        self.displaced: ProtocolError | None = None  # the ERROR for all frames, if any
        self.storage_failures = StorageFailures()
        self.ready = Ready(self.reader_done, self.internal_errors.found, self.budget)
        self.recorder = Recorder()
        self.timing = Timing(
            self.ready.queue,
            self.internal_errors.found,
            SkippedTotals(self.stats, self.peer_log),
            self.stats.traffic,
            self.recorder,
        )
        self.reading = ColdReads(self.ready, self.stats, self.peer_log, self.refuse)
        self.future_logs = FutureLogs(store)
        self.registry = Registry(rules, store, self.reading.start, self.lost, self.timing)
        self.destinations = self.registry.destinations
        self.dirty_sources = self.registry.dirty_sources
        self.idle = IdleDestinations(
            self.registry, store.definitions, self.timing, lambda: self.draining.active, self._removed
        )
        self.timed_stops: list[tuple[WallNs, Reader]] = []
        self._wake = wake
        store.maintenance.use_keys(header_value)

    @abstractmethod
    def release(self, session: Session) -> None:
        """Return everything that a session holds. The session may still have bytes to send."""

    @abstractmethod
    def reader_done(self, reader: Reader) -> None:
        """Handle the end of a reader that has reached its stop position."""

    def begin_stop(self) -> None:
        """Stop returning messages to queues: they are delivered again after the next start anyway."""
        self.stopping = True

    def set_disk_faults(self, displaced: ProtocolError | None, files_refused: ProtocolError | None) -> None:
        """Refuse commands while the disk has a fault.

        Args:
            displaced: The ERROR for all frames because the data directory was moved or replaced; None if it was not.
            files_refused: The ERROR for messages that are stored in files because the disk is too full; None if it is
                not.
        """
        self.displaced, self.files_refused = displaced, files_refused

    def use(self, rules: Rules, hooks: Mapping[int, RuleHooks], policies: dict[Destination, Policy]) -> None:
        """Use another configuration from now on: the switch of a reload.

        Args:
            rules: The rules, with their configuration.
            hooks: The middleware and schemas of its rules.
            policies: The policies of the destinations that exist.
        """
        limits = rules.config.limits
        numbers = same_rules(self.config, rules.config)
        if any(old != new for old, new in numbers.items()):
            for session in self.sessions.values():
                session.renumber_rules(numbers)
        self.config, self.rules, self.hooks = rules.config, rules, hooks
        self.session_limits = limits
        self.joined.limit(limits.joined_total, limits.subscriptions)
        if limits.memory != self.memory.bytes_max:
            self.memory.resize(limits.memory)
        self.store.limit_tail(limits.tail)
        self.registry.use(rules, policies)
        self.throttle.retry_all(self.timing.now.mono)
        self.generation += 1

    # --- destinations -----------------------------------------------------------------------------------------------

    def destination(self, name: str) -> Destination:
        """Return the destination ``name``; create it if its rule allows that.

        Raises:
            ProtocolError: The destination does not exist and cannot be created.
        """
        found = self.destinations.get(name)
        if found is None:
            return self.registry.create(name)
        self.registry.adopt(found)
        return found

    def until_removed(self, name: str) -> Steps:
        """Wait, in steps, until an earlier destination of this name is gone, if it is being removed."""
        return self.background.until(lambda: not self.registry.being_removed(name))

    def drop_unused(self, destination: Destination) -> bool:
        """Remove a destination without users and messages. Return False if it stays."""
        if not (destination.unused and self.registry.drop_unused(destination)):
            self.idle.left(destination)
            return False
        self.idle.forget(destination)
        self.generation += 1  # SEND plans may refer to it
        return True

    def _removed(self, messages: int | None) -> None:
        """Note that an unused destination was removed.

        Args:
            messages: The number of its unsettled messages; None if its removal has only begun.
        """
        self.generation += 1  # SEND plans may refer to it
        if messages is not None:
            self.stats.count(destinations_removed=1, lost_with_destination=messages)

    def lost(self, what: str, count: int) -> None:
        """Count and log messages that were removed from the log before a queue could deliver them.

        Args:
            what: A description that begins with the name of the queue and a colon.
            count: The number of messages.
        """
        self.stats.count(lost_to_retention=count)
        queue = what.partition(": ")[0]
        kind = "messages that were removed before they were settled"
        self.peer_log.line(logging.WARNING, kind, queue, "%s", what, logger=log)

    def cursor_waiters(self, late: bool) -> list[list[Any]]:
        """Return the waiter lists for the receipt of an ACK: the cursors', and that of the rows of deliveries.

        Args:
            late: True if an earlier ACK has settled the message. That ACK may not be stored yet, so the receipt waits
                although no cursor changes in this turn.
        """
        found = []
        if late or any(source.cursor.stored for source in self.dirty_sources):
            found.append(self.store.cursors.waiters)
        if any(source.record is not None for source in self.dirty_sources) or (late and self.recorder.unsettled):
            found.append(self.recorder.waiters)
        return found

    def count_pending(self, size_bytes: int) -> None:
        """Count bytes that were appended and are not committed."""
        self.pending_bytes += size_bytes

    # --- sessions ---------------------------------------------------------------------------------------------------

    def refuse(self, session: Session, error: ProtocolError, receipt: bytes | None = None) -> None:
        """Log the error, send ERROR and end the session: its messages return to their queues at once."""
        self.peer_log.line(
            logging.INFO,
            f"refused ({error.code})",
            session.origin,
            "session %s %s: %s: %s",
            session.id,
            session.address,
            error.code,
            printable(error.message),
            logger=log,
            peer=session,
        )
        self.end(session, error, receipt)

    def end(self, session: Session, error: ProtocolError, receipt: bytes | None = None) -> None:
        """Send ERROR and end the session; the caller has logged the error."""
        self.stats.count(refused=1)
        session.fail(error, receipt)
        self.release(session)

    def _credit(self, subscription: Subscription) -> None:
        self.ready.credit(subscription)

    # --- readers and consumers --------------------------------------------------------------------------------------

    def consume(self, subscription: Subscription, destination: Destination) -> None:
        """Make a subscription a consumer of a queue, with the window that the rule of the queue sets.

        Raises:
            ProtocolError: The queue's consumers have too many selectors.
        """
        self.registry.adopt(destination)
        if destination.queue is not None:
            destination.queue.check(subscription.selection)
        window = subscription.window_over([destination])
        if window is not None and window > (subscription.window or 1):
            subscription.widen(window)
            if not subscription.joining:
                self.ready.credit(subscription)
                self.ready.credit_session(subscription.session)
        self.take_all(subscription, destination)

    def take_all(self, subscription: Subscription, destination: Destination) -> None:
        """Make a subscription a consumer of a queue, with the window that it has."""
        queue = destination.queue
        assert queue is not None
        for each in (destination, *destination.parents):
            subscription.enter(each)
        self.take_part(subscription, queue, subscription.alone or destination.policy.settings.exclusive)

    def take_part(self, subscription: Subscription, queue: Queue, alone: bool) -> None:
        """Add a subscription to the consumers of a queue."""
        queue.join(subscription, alone, partial(self.ready.queue, queue))
        subscription.consume(queue)
        self.ready.queue(queue)

    def read(self, subscription: Subscription, feed: Feed, reader: Reader) -> None:
        """Start a reader."""
        subscription.begin(reader)
        feed.readers[reader] = None
        if not subscription.joining:
            self.ready.reader(reader)

    def stop_at(self, time_ns: WallNs, reader: Reader) -> None:
        """Stop a reader at a wall time in the future."""
        self.timed_stops.append((time_ns, reader))

    def stop_as(self, reader: Reader, new: Reader) -> None:
        """Stop ``new`` at the same time as ``reader``, if ``reader`` has a stop time in the future."""
        self.timed_stops += [(time_ns, new) for time_ns, each in self.timed_stops if each is reader]

    def take_timed_stops(self, now_ns: WallNs) -> list[tuple[WallNs, Reader]]:
        """Remove and return the readers whose stop time has come, and those that have ended."""
        due = [pair for pair in self.timed_stops if pair[0] <= now_ns or pair[1].subscription.closed]
        if due:
            self.timed_stops = [pair for pair in self.timed_stops if pair not in due]
        return due
