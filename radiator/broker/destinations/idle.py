"""The removal of destinations that are not used any more.

    a rule with ``expire: {idle: 10m}``    its destinations, after that time without a subscription and a message
    SUBSCRIBE with ``x-expires``           the same for a queue that it creates
    SUBSCRIBE with ``auto-delete:true``    a queue that it creates, when its last consumer has left

A message is noticed by the ends of the logs, so a SEND does nothing for it. What a SUBSCRIBE says is stored among the
definitions, because the queue outlives a restart.

This module knows destinations, their logs and timers. It does not know sessions or subscriptions.
Invariant: a destination with a subscription, a durable subscription or a message on its way to the disk stays.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from radiator.broker.logs import cursor_names
from radiator.clock import BEFORE, NS_PER_SECOND, MonoNs, Now
from radiator.routing.rules import TEMPORARY

if TYPE_CHECKING:
    from radiator.broker.destinations.destination import Destination
    from radiator.broker.destinations.registry import Registry
    from radiator.broker.timers.timing import Timing
    from radiator.errors import StorageError
    from radiator.storage.definitions import Definitions

log = logging.getLogger("radiator.broker")

STEP_NS: Final = NS_PER_SECOND  # the normal drift between two looks is far smaller
AGAIN_NS: Final = NS_PER_SECOND  # when a destination is checked again that something uses for a moment
GRACE_NS: Final = 60 * NS_PER_SECOND  # after a start: time for clients to reconnect to a queue with auto-delete


class Watch:
    """A destination that is removed when it is unused.

    Args:
        owner: The watched destinations.
        destination: The destination.
        now: The present time.

    Attributes:
        auto_delete: True if it is removed as soon as its last consumer has left.
        expires_ns: The time of its ``x-expires``, or None.
        since_ns: The monotonic time since which it is unused, as far as it is known.
    """

    __slots__ = ("_owner", "_seen", "_wall_ahead_ns", "auto_delete", "destination", "expires_ns", "since_ns")

    def __init__(self, owner: IdleDestinations, destination: Destination, now: Now) -> None:
        self._owner = owner
        self.destination = destination
        self.auto_delete = False
        self.expires_ns: int | None = None
        self.since_ns = now.mono
        self._seen = self._end
        self._wall_ahead_ns = now.wall - now.mono  # at the last look

    @property
    def _end(self) -> int:
        return sum(feed.partition.next_offset for feed in self.destination.feeds)

    @property
    def idle_ns(self) -> int | None:
        """The time without use after which the destination is removed; None: time alone does not remove it."""
        rule_ns, own_ns = self.destination.policy.settings.idle_ns, self.expires_ns
        return rule_ns if own_ns is None else own_ns if rule_ns is None else min(rule_ns, own_ns)

    def note_use(self, now: Now) -> None:
        """Note that the destination was in use until now."""
        self.since_ns, self._wall_ahead_ns = now.mono, now.wall - now.mono

    def ask(self, auto_delete: bool, expires_ns: int | None) -> None:
        """Set what the SUBSCRIBE that has created the destination says."""
        self.auto_delete, self.expires_ns = auto_delete, expires_ns

    def notice_messages(self, now: Now) -> None:
        """Note when the last message came, if one has come since the last call."""
        end, ahead_ns = self._end, now.wall - now.mono
        if end != self._seen:
            self._seen = end
            last_ns = max(feed.partition.last_receive_ns for feed in self.destination.feeds)
            # if the wall clock has stepped since the last look, the age of the message is not known
            stepped = abs(ahead_ns - self._wall_ahead_ns) > STEP_NS
            age_ns = 0 if stepped else max(0, now.wall - last_ns)
            self.since_ns = max(self.since_ns, MonoNs(now.mono - age_ns))
        self._wall_ahead_ns = ahead_ns

    def due(self, now: Now) -> None:
        """Remove the destination if it is unused for long enough."""
        self._owner.check(self, now)


class IdleDestinations:
    """The destinations of one broker that are removed when they are unused.

    Args:
        registry: The destinations.
        definitions: The stored definitions.
        timing: The present time and the timers.
        draining: Returns True while clients are disconnected by a drain: that does not make a destination unused.
        removed: Called when a removal has begun, with None, and when it is complete, with the number of messages that
            were unsettled.
    """

    __slots__ = ("_definitions", "_draining", "_registry", "_removed", "_timing", "_watched")

    def __init__(
        self,
        registry: Registry,
        definitions: Definitions,
        timing: Timing,
        draining: Callable[[], bool],
        removed: Callable[[int | None], None],
    ) -> None:
        self._registry = registry
        self._definitions = definitions
        self._timing = timing
        self._draining = draining
        self._removed = removed
        self._watched: dict[Destination, Watch] = {}
        registry.on_adopted(self.created)

    def __len__(self) -> int:
        return len(self._watched)

    def restart(self) -> None:
        """Watch the queues of the last run whose SUBSCRIBE said so. Called once all destinations are known."""
        for key, entry in list(self._definitions.entries.items()):
            if not key.startswith(cursor_names.EXPIRY):
                continue
            destination = self._registry.destinations.get(key.removeprefix(cursor_names.EXPIRY))
            if destination is None:
                self._definitions.put(key, None)
                continue
            expires_ns = entry.get("expires_ns")
            watch = self._watch(destination)
            watch.ask(entry.get("auto_delete") is True, expires_ns if isinstance(expires_ns, int) else None)
            self._set_timer(watch)

    def created(self, destination: Destination) -> None:
        """Watch a destination if its rule has ``expire``: a new one, or one with a new rule."""
        if destination.policy.settings.idle_ns is not None:
            self._set_timer(self._watch(destination))

    def ask(self, destination: Destination, auto_delete: bool, expires_ns: int | None) -> None:
        """Apply the headers of the SUBSCRIBE that has created a queue. Topics have no such headers."""
        if destination.queue is None or not (auto_delete or expires_ns) or destination.name.startswith(TEMPORARY):
            return
        watch = self._watch(destination)
        watch.ask(auto_delete, expires_ns)
        if destination.policy.settings.store == "file":
            entry = {"auto_delete": auto_delete, "expires_ns": expires_ns}
            self._definitions.update(cursor_names.EXPIRY + destination.name, entry, soon=True)
        self._set_timer(watch)

    def left(self, destination: Destination) -> None:
        """Note that a subscription has left a destination that stays."""
        watch = self._watched.get(destination)
        if watch is None or destination.subscribers:
            return
        watch.note_use(self._timing.now)
        if watch.auto_delete:
            self.check(watch, self._timing.now, at_once=True)
        else:
            self._set_timer(watch)

    def forget(self, destination: Destination) -> None:
        """Stop watching a destination that is gone."""
        watch = self._watched.pop(destination, None)
        if watch is None:
            return
        self._timing.forget(watch)
        key = cursor_names.EXPIRY + destination.name
        if key in self._definitions.entries:
            self._definitions.put(key, None)

    def check(self, watch: Watch, now: Now, at_once: bool = False) -> None:
        """Remove a destination if it is unused for long enough; else check it again when it may be.

        Args:
            watch: The destination.
            now: The present time.
            at_once: True if its last consumer has just left a queue with ``auto-delete``.
        """
        destination = watch.destination
        is_first = watch.since_ns == BEFORE.mono  # of a broker that has just started
        if destination.subscribers or is_first:
            watch.note_use(now)
            self._set_timer(watch, GRACE_NS if is_first and watch.auto_delete else 0)
            return
        is_paused = destination.queue is not None and destination.queue.paused
        if is_paused or self._draining():  # its consumers may come back afterwards, and have the whole time for that
            watch.note_use(now)
            self._set_timer(watch, GRACE_NS if watch.auto_delete else AGAIN_NS)
            return
        watch.notice_messages(now)
        idle_ns = watch.idle_ns
        if not (at_once or watch.auto_delete) and (idle_ns is None or now.mono - watch.since_ns < idle_ns):
            self._set_timer(watch)
        elif self._registry.removable(destination):
            self._remove(watch)
        else:
            self._timing.forget(watch)
            self._timing.after(AGAIN_NS, watch)

    def _watch(self, destination: Destination) -> Watch:
        watch = self._watched.get(destination)
        if watch is None:
            watch = self._watched[destination] = Watch(self, destination, self._timing.now)
        return watch

    def _set_timer(self, watch: Watch, pause_ns: int = 0) -> None:
        self._timing.forget(watch)
        idle_ns = watch.idle_ns
        if pause_ns or watch.since_ns == BEFORE.mono:
            self._timing.after(pause_ns, watch)
        elif idle_ns is not None:
            self._timing.at(MonoNs(max(watch.since_ns + idle_ns, self._timing.now.mono + 1)), watch)

    def _remove(self, watch: Watch) -> None:
        destination = watch.destination
        waiting = 0
        for source in () if destination.queue is None else destination.queue.sources:
            cursor = source.cursor
            settled = cursor.floor + cursor.settled_above + source.unflushed
            waiting += source.feed.partition.next_offset - settled
        del self._watched[destination]
        self._timing.forget(watch)
        self._registry.remove(destination, partial(self._ended, watch, waiting))
        self._removed(None)

    def _ended(self, watch: Watch, waiting: int, error: StorageError | None) -> None:
        """Process the end of a removal."""
        name = watch.destination.name
        key = cursor_names.EXPIRY + name
        if error is None:
            if key in self._definitions.entries:
                self._definitions.put(key, None)
            self._removed(waiting)
            log.info("%s is removed: it was unused; unsettled messages: %d", name, waiting)
            return
        log.warning("%s stays, although it is unused: %s", name, error)
        destination = self._registry.destinations[name]
        again = self._watch(destination)
        again.ask(watch.auto_delete, watch.expires_ns)
        self._set_timer(again, max(again.idle_ns or 0, 60 * AGAIN_NS))
