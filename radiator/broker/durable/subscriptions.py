"""All durable subscriptions and consumer groups of a broker: creation, use, changes, deletion, expiry.

    subscribe()   create a name, add a group member, take a name over, set its position, or change its topics
    delete()      delete the cursors and the stored definition
    created()     add a new topic to the subscriptions that match it, with its first message or if they name it
    tick()        delete subscriptions that are unused for too long (``cursor_expiry``)

``radiator.storage.definitions`` stores the definitions. The RECEIPT of a SUBSCRIBE is sent once definition and cursors
are stored.

This module knows sessions and names. It knows neither frames (``headers.subscribe``) nor cursors (``subscription``).

Invariants: a name has one user. A durable subscription that is no group has one subscriber at a time. A stored
definition is current, or about to be rewritten. Nothing is deleted because a file could not be read.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from radiator import limits
from radiator.broker.clients.session import subscriptions_of
from radiator.broker.durable.subscription import Dependencies, DurableSubscription
from radiator.broker.headers.positions import NEXT
from radiator.broker.headers.subscribe import SubscriptionName
from radiator.broker.logs import cursor_names
from radiator.broker.logs.selection import Selection, text_of
from radiator.clock import NS_PER_SECOND, MonoNs, Now, WallNs
from radiator.errors import ProtocolError, StorageError
from radiator.memory import SUBSCRIPTIONS
from radiator.routing.index import PatternIndex
from radiator.routing.pattern import PatternSet, parse_subscribed

if TYPE_CHECKING:
    from radiator.broker.budget import Steps
    from radiator.broker.clients.session import Session, Subscription
    from radiator.broker.core import Core
    from radiator.broker.destinations.destination import Destination
    from radiator.broker.headers.positions import Position
    from radiator.broker.headers.subscribe import SubscribeHeaders

log = logging.getLogger("radiator.broker")

LOOK_EVERY_NS = 60 * NS_PER_SECOND
MATCH_UNITS = 2  # per destination that is compared with the patterns of a declared subscription
FORGET_UNITS = 2  # per topic that a subscription has left
GRACE_NS = 3_600 * NS_PER_SECOND  # after a start: time for clients to reconnect before a subscription expires


class DefinitionWaiters:
    """Receipts that wait until a new definition is stored. If that fails, the new subscription is deleted."""

    def __init__(self, names: DurableSubscriptions, durable: DurableSubscription, waiters: list[Any]) -> None:
        self._subscriptions = names
        self._durable = durable
        self._waiters = waiters

    def settle(self, failure: ProtocolError | None = None) -> None:
        """Settle the receipts: the definition is stored, or storing it has failed."""
        for each in self._waiters:
            each.settle(failure)
        if failure is not None:
            self._subscriptions.delete_if_new(self._durable)


class DurableSubscriptions:
    """The durable subscriptions and consumer groups of one broker.

    Args:
        core: The core of the broker.

    Attributes:
        by_key: The subscriptions by the name of their cursors.
    """

    def __init__(self, core: Core) -> None:
        self._core = core
        self._definitions = core.store.definitions
        self._started_ns: MonoNs | None = None  # at the first look of this run
        self._looked_ns = MonoNs(0)
        self.by_key: dict[str, DurableSubscription] = {}
        self._counts: Counter[str] = Counter()  # subscriptions by user
        self._locked: Counter[str] = Counter()  # keys of subscriptions that a change or deletion is in progress for
        self._index: PatternIndex[DurableSubscription] = PatternIndex()

    # --- loading at a start -----------------------------------------------------------------------------------------

    def load(self) -> None:
        """Load all definitions at a start, before any topic is known. Topics join them later (``created``).

        A definition that cannot be used is logged and left as it is.
        """
        for key, entry in [*self._definitions.entries.items()]:
            if key.startswith((cursor_names.PAUSED, cursor_names.EXPIRY, cursor_names.SCHEDULE)):
                continue
            prefix = next(
                (each for each in (cursor_names.SUBSCRIPTION, cursor_names.GROUP) if key.startswith(each)), None
            )
            try:
                assert prefix is not None
                asked = SubscriptionName(prefix, key.removeprefix(prefix))
                durable = self._new(
                    asked, str(entry["user"]), parse_subscribed(entry["destination"]), WallNs(entry["made_ns"])
                )
                durable.note_use(WallNs(entry["used_ns"]))
                durable.queue.select_by(Selection(entry["selector"]) if "selector" in entry else None)
                durable.filter.want_since(int(entry.get("since_ns", 0)))
                for topic, since_ns in dict(entry.get("since", {})).items():
                    durable.filter.want_since(int(since_ns), [topic])
                if entry.get("declared"):
                    durable.note_declared()
                durable.restore_starts(entry.get("starts", {}), entry.get("wished", {}))
            except (AssertionError, KeyError, TypeError, ValueError, ProtocolError) as error:
                log.error("subscription %s: the stored definition cannot be used: %r", key, error)
                continue
            lowered = False
            for where, starts in durable.starts.items():
                partition = self._core.store.partitions.get(where)
                # A power cut may have removed the end of the log.
                end = partition.next_offset if partition is not None else 0
                lowered |= max(starts.values(), default=0) > end
                starts.update({name: min(start, end) for name, start in starts.items()})
                durable.filter.want_from(where, starts)
            for where, starts in durable.requested.items():
                durable.filter.want_from(where, starts)
            self._add(durable)
            if lowered:  # stored with, or before, the first message at one of those offsets
                self.store(durable)

    def loaded(self) -> None:
        """Delete cursors without a definition, which a crash has left. Called once all topics are known."""
        cursors = self._core.store.cursors
        if self._definitions.whole:
            for name, where in cursors.names():
                if name.startswith((cursor_names.SUBSCRIPTION, cursor_names.GROUP)) and name not in self.by_key:
                    cursors.delete(name, where)

    def created(self, destination: Destination) -> int:
        """Add a topic to the subscriptions that match it, at a start or before its first message.

        A silent topic, which has subscribers and no messages yet, joins only those that name it.

        Args:
            destination: The destination; queues are ignored.

        Returns:
            The number of subscriptions that were considered.
        """
        if destination.policy.kind != "topic":
            return 0
        found, silent = self._index.find(destination.name), destination.silent
        for durable in found:
            if durable.filter.has(destination.name) and not (silent and destination.name not in durable.patterns.names):
                try:
                    durable.add_topic(destination)
                except (StorageError, ProtocolError) as error:  # the sender is not at fault
                    self._core.stats.count(cursors_refused=1)
                    self._core.peer_log.line(
                        logging.ERROR,
                        "durable subscriptions without a cursor",
                        durable.key,
                        "%s gets no messages of %s: %s",
                        durable.key,
                        destination.name,
                        error,
                        logger=log,
                    )
        return len(found)

    # --- use and changes --------------------------------------------------------------------------------------------

    def subscribe(
        self, subscription: Subscription, headers: SubscribeHeaders, topics: list[Destination], now_ns: WallNs
    ) -> Generator[bool, None, DurableSubscription]:
        """Let a new subscription of a session use a durable subscription, in steps. The caller has called ``check``.

        Args:
            subscription: The subscription of the session; it has joined nothing yet.
            headers: The headers of the SUBSCRIBE, with a name.
            topics: The topics that exist, match and are permitted.
            now_ns: The current time, in nanoseconds since 1970.

        Returns:
            The durable subscription, once all steps are done. Nothing else changes it meanwhile.

        Raises:
            ProtocolError: ``check`` refuses it by now, or too many destinations are joined.
        """
        session, asked, patterns = subscription.session, headers.name, headers.patterns
        position, reset = headers.start or NEXT, headers.reset
        assert asked is not None
        yield from self.wait_unlocked(asked.key)
        self.check(session, headers)
        if asked.is_group and headers.prefetch == 0:
            subscription.check_unlimited(topics)
        most = session.limits.in_flight
        window = subscription.window_over(topics) if asked.is_group else subscription.prefetch or most
        if window is not None:
            subscription.widen(window)
        durable = self.by_key.get(asked.key)
        with self.lock(asked.key):
            if durable is None:
                durable = self._add(self._new(asked, session.user, patterns, now_ns))
                try:
                    yield from durable.join(topics, position, now_ns, is_new=True)
                except BaseException:  # refused, or the client is gone: it was not receipted
                    self.delete(durable)
                    raise
            else:
                if not asked.is_group:
                    yield from self._take_over(durable)
                if durable.patterns.text != patterns.text:
                    self._index.remove(durable, durable.patterns.patterns)
                    durable.set_patterns(patterns)
                    self._index.add(durable, patterns.patterns)
                    yield from self._drop_topics_except(durable, topics)
                    if not reset:
                        more = [each for each in topics if each not in durable.destinations]
                        yield from durable.join(more, position, now_ns)
                elif not reset:
                    yield from self._drop_topics_except(durable, topics)
                    yield from durable.join([each for each in topics if each not in durable.destinations], NEXT, now_ns)
                if reset:
                    yield from durable.seek([*durable.destinations, *topics], position, now_ns)
        durable.queue.select_by(subscription.take_selection())
        durable.note_use(now_ns)
        durable.permit(subscription.patterns)
        self._core.take_part(subscription, durable.queue, subscription.alone)
        return durable

    def declare(
        self,
        asked: SubscriptionName,
        patterns: PatternSet,
        selection: Selection | None,
        position: Position,
        user: str,
        now_ns: WallNs,
    ) -> Steps:
        """Create a durable subscription without a subscriber, or change one that nobody uses, in steps.

        Args:
            asked: Its name.
            patterns: Its topics.
            selection: Its selector, or None.
            position: Where it begins in topics that it has not joined.
            user: The user who owns it.
            now_ns: The current time, in nanoseconds since 1970.

        Raises:
            ProtocolError: It belongs to another user, or too many destinations are joined.
        """
        durable, core = self.by_key.get(asked.key), self._core
        if durable is not None and durable.user != user:
            raise ProtocolError("denied", f"{asked} belongs to another user", "`radiator cursors rm` deletes it.")
        is_new, moves = durable is None, False
        with self.lock(asked.key):
            if durable is None:
                durable = self._add(self._new(asked, user, patterns, now_ns))
            elif not durable.active and durable.patterns.text != patterns.text:
                moves = True
                self._index.remove(durable, durable.patterns.patterns)
                durable.set_patterns(patterns)
                self._index.add(durable, patterns.patterns)
            if is_new or moves:
                topics = []
                for name in patterns.names if patterns.is_literal else list(core.destinations):
                    core.budget.spend(MATCH_UNITS)
                    each = core.destinations.get(name)
                    if each is not None and each.policy.kind == "topic" and patterns.matches(name):
                        topics.append(each)
                    yield True
                try:
                    if moves:
                        yield from self._drop_topics_except(durable, topics)
                    more = [each for each in topics if each not in durable.destinations]
                    yield from durable.join(more, position, now_ns, is_new=is_new)
                except ProtocolError:
                    if is_new:
                        self.delete(durable)
                    raise
            if not durable.active:
                durable.queue.select_by(selection)
        durable.note_declared()
        self.store_once_settled(durable)

    def check(self, session: Session, headers: SubscribeHeaders) -> None:
        """Check whether a SUBSCRIBE may use a name. Changes nothing.

        Args:
            session: The session.
            headers: The headers of the SUBSCRIBE, with a name.

        Raises:
            ProtocolError: Too many names exist, another user owns the name, it is in use on this connection, or the
                members of the group have other destinations or another selector.
        """
        asked, patterns = headers.name, headers.patterns
        assert asked is not None
        durable = self.by_key.get(asked.key)
        if durable is None:
            if len(self.by_key) >= limits.SUBSCRIPTION_NAMES_MAX:
                raise ProtocolError(
                    "too-many",
                    f"there are {len(self.by_key)} durable subscriptions",
                    "Delete some: UNSUBSCRIBE with their name, or `radiator cursors rm`; or set cursor_expiry.",
                )
            most = limits.SUBSCRIPTION_NAMES_PER_USER_MAX
            if self._counts[session.user] >= most and not session.rights.everything:
                raise ProtocolError(
                    "too-many",
                    f"this user has {self._counts[session.user]} durable subscriptions, and may have {most}",
                    "Delete some: UNSUBSCRIBE with their name. Users with all rights may have more.",
                )
            return
        self._check_user(session, durable)
        if any(each.session is session and not each.closed for each in subscriptions_of(durable.queue)):
            raise ProtocolError(
                "bad-subscription", f"{asked} is in use on this connection", "Expected one subscription with it."
            )
        if asked.is_group and durable.active and (headers.reset or patterns.text != durable.patterns.text):
            raise ProtocolError(
                "bad-subscription",
                f"the members of {asked} are subscribed to {durable.patterns.text[:300]!r}",
                "All members must use the same destination; to change it, or to reset the group, unsubscribe first.",
            )
        if asked.is_group and durable.active and text_of(headers.selection) != text_of(durable.queue.selection):
            raise ProtocolError(
                "bad-subscription",
                f"the members of {asked} use the selector {text_of(durable.queue.selection)[:300]!r}",
                "All members must use the same selector; to change it, unsubscribe them first.",
            )

    def store(self, durable: DurableSubscription, waiters: Iterable[Any] = ()) -> None:
        """Store the definition of a subscription.

        An unchanged definition is not written again, so that a subscriber can return while the disk is full.

        Args:
            durable: The subscription.
            waiters: Receipts; they are settled once the definition is stored.
        """
        entry: dict[str, Any] = {
            "user": durable.user,
            "destination": durable.patterns.text,
            "made_ns": durable.made_ns,
            "used_ns": durable.used_ns,
        }
        for field, kept in (("starts", durable.starts), ("wished", durable.requested)):
            if kept:
                entry[field] = {where: dict(starts) for where, starts in kept.items()}
        if durable.filter.since_ns:
            entry["since_ns"] = durable.filter.since_ns
        if durable.filter.since:
            entry["since"] = dict(durable.filter.since)
        if durable.declared:
            entry["declared"] = True
        if durable.queue.selection is not None:
            entry["selector"] = durable.queue.selection.given
        old = self._definitions.entries.get(durable.key)
        if old is None or entry != old | {"used_ns": durable.used_ns}:
            self._definitions.put(durable.key, entry)
        else:
            self._definitions.update(durable.key, entry)
        if not self._definitions.is_stored(durable.key):
            waiting = list(waiters)
            made = durable.key not in self._definitions.stored
            self._definitions.wait([DefinitionWaiters(self, durable, waiting)] if made and waiting else waiting)
            return
        for group in waiters:
            group.settle()

    def delete_if_new(self, durable: DurableSubscription) -> None:
        """Delete a subscription after a failed creation, unless it existed before or is in use."""
        if not durable.active and not durable.deleted and durable.key not in self._definitions.stored:
            self.delete(durable)

    def store_once_placed(self, durable: DurableSubscription, session: Session, waiters: list[Any]) -> None:
        """Store a definition once all its positions are known. If a look-up fails, refuse the session.

        Args:
            durable: The subscription.
            session: The session that uses it.
            waiters: Receipts; they are settled once the definition is stored or a look-up has failed.
        """

        def settled(error: StorageError | None) -> None:
            if durable.deleted:
                for group in waiters:
                    group.settle()
                return
            if error is None:
                self.store(durable, waiters)
                return
            failure = ProtocolError("storage", "the position could not be looked up", str(error))
            for group in waiters:
                group.settle(failure)
            if not session.closing:
                self._core.refuse(session, failure)
            self.delete_if_new(durable)
            if not durable.deleted:
                self.store_once_settled(durable)

        durable.position_lookups.settled(settled)

    def store_once_settled(self, durable: DurableSubscription) -> None:
        """Store a changed definition once all its positions are known, after a look-up has failed."""

        def settled(error: StorageError | None) -> None:
            if error is not None and not durable.deleted:
                self.store_once_settled(durable)
            elif not durable.deleted:
                self.store(durable)

        durable.position_lookups.settled(settled)

    def permit(self, subscription: Subscription) -> None:
        """Apply the changed rights of a subscription's user to its durable subscription."""
        durable = self.used_by(subscription)
        if durable is not None:
            durable.permit(subscription.patterns)

    def wait_unlocked(self, key: str) -> Steps:
        """Wait until no change or deletion of a name is in progress, in steps."""
        return self._core.background.until(lambda: key not in self._locked)

    def used_by(self, subscription: Subscription) -> DurableSubscription | None:
        """Return the durable subscription that a subscription of a session uses; None if there is none."""
        queues = subscription.queues
        durable = self.by_key.get(queues[0].name) if len(queues) == 1 else None
        return durable if durable is not None and durable.queue is queues[0] else None

    @property
    def waiters(self) -> list[list[Any]]:
        """The lists to which a receipt adds itself to wait for all changes and deletions up to now."""
        return [self._definitions.waiters, self._core.store.cursors.waiters]

    @contextmanager
    def lock(self, key: str) -> Iterator[None]:
        """Lock the name with this key in this block, so that ``wait_unlocked`` waits."""
        self._locked[key] += 1
        try:
            yield
        finally:
            self._locked[key] -= 1
            if not self._locked[key]:
                del self._locked[key]

    def delete(self, durable: DurableSubscription) -> None:
        """Delete a subscription for ever. The caller has ended its subscribers.

        ``wait_unlocked`` waits until the deletion is complete.
        """
        durable.note_deleted()
        del self.by_key[durable.key]
        self._counts[durable.user] -= 1
        if not self._counts[durable.user]:
            del self._counts[durable.user]
        self._index.remove(durable, durable.patterns.patterns)
        self._core.registry.pauses.remove(durable.key)
        self._definitions.put(durable.key, None)  # first: after a crash, a definition without cursors would begin again
        self._core.background.add(self._deleting(durable))

    def _deleting(self, durable: DurableSubscription) -> Steps:
        with self.lock(durable.key):
            while durable.queue.consumers:
                yield False
            yield from self._drop_unused_destinations((yield from durable.end()))

    def find(self, session: Session, asked: SubscriptionName) -> DurableSubscription:
        """Return an existing subscription that this session may use.

        Raises:
            ProtocolError: The name does not exist, or belongs to another user.
        """
        durable = self.by_key.get(asked.key)
        if durable is None:
            raise ProtocolError("bad-subscription", f"there is no {asked}")
        self._check_user(session, durable)
        return durable

    def _check_user(self, session: Session, durable: DurableSubscription) -> None:
        if durable.user != session.user:
            raise ProtocolError(
                "denied",
                f"{durable.asked} belongs to another user",
                "A durable subscription belongs to the user that created it; `radiator cursors rm` deletes it.",
            )

    def _take_over(self, durable: DurableSubscription) -> Steps:
        older_ones = [each for each in subscriptions_of(durable.queue) if not each.closed]
        for older in older_ones:
            self._core.stats.count(taken_over=1)
            self._core.refuse(
                older.session,
                ProtocolError(
                    "taken-over",
                    f"another connection took over {durable.asked}",
                    "A durable subscription has one consumer at a time. For several consumers, use group:<name>.",
                ),
            )
        yield from self._core.background.until(lambda: all(each.left for each in older_ones))

    def _drop_topics_except(self, durable: DurableSubscription, topics: list[Destination]) -> Steps:
        """Leave the topics that do not match any more or that the user may no longer read."""
        kept = set(topics)
        gone = [each for each in durable.destinations if each not in kept]
        if gone:
            yield from self._drop_unused_destinations((yield from durable.leave(gone)))

    def _add(self, durable: DurableSubscription) -> DurableSubscription:
        self.by_key[durable.key] = durable
        self._counts[durable.user] += 1
        self._index.add(durable, durable.patterns.patterns)
        return durable

    def _new(self, asked: SubscriptionName, user: str, patterns: PatternSet, now_ns: WallNs) -> DurableSubscription:
        core = self._core
        dependencies = Dependencies(
            core.registry,
            core.budget,
            core.store.end_offsets,
            core.joined,
            core.config.limits.joined,
            core.memory.shares[SUBSCRIPTIONS],
            core.timing,
            core.lost,
            core.reading,
            self._matches,
        )
        durable = DurableSubscription(dependencies, asked, user, patterns, now_ns)
        core.registry.pauses.apply(durable.key, durable.queue)
        return durable

    def _matches(self, patterns: PatternSet, name: str) -> bool:
        if not patterns.matches(name):
            return False
        try:
            return self._core.rules.policy_for(name).kind == "topic"
        except ProtocolError:
            return False

    def _drop_unused_destinations(self, destinations: list[Destination]) -> Steps:
        """Remove destinations that only this subscription used."""
        for destination in destinations:
            self._core.budget.spend(FORGET_UNITS)
            yield True
            self._core.drop_unused(destination)

    # --- expiry -----------------------------------------------------------------------------------------------------

    def tick(self, now: Now) -> None:
        """Note which subscriptions are in use, and delete those that are unused for longer than ``cursor_expiry``."""
        if self._started_ns is None:
            self._started_ns = self._looked_ns = now.mono
        if now.mono - self._looked_ns < LOOK_EVERY_NS:
            return
        self._looked_ns = now.mono
        for durable in list(self.by_key.values()):
            expiry_ns = self._expiry_ns(durable)
            # A time in the future comes from a clock that was ahead. It would put off expiry for as long.
            used = durable.active or durable.used_ns > now.wall
            if used:
                durable.note_use(now.wall)
            if expiry_ns is None or durable.key in self._locked:
                continue
            if used:
                entry = self._definitions.entries.get(durable.key)
                if entry is not None:
                    self._definitions.update(durable.key, entry | {"used_ns": now.wall}, soon=True)
                continue
            unused_ns, up_ns = now.wall - durable.used_ns, now.mono - self._started_ns
            if unused_ns > expiry_ns and up_ns > min(expiry_ns, GRACE_NS):
                self._core.stats.count(names_expired=1)
                self._core.peer_log.line(
                    logging.WARNING,
                    "durable subscriptions that expired",
                    durable.user or "anonymous",
                    "%s of user %s is deleted: it was unused for %d s, and cursor_expiry is %d s",
                    durable.key,
                    durable.user or "anonymous",
                    unused_ns // NS_PER_SECOND,
                    expiry_ns // NS_PER_SECOND,
                    logger=log,
                )
                self.delete(durable)

    def _expiry_ns(self, durable: DurableSubscription) -> int | None:
        """Return the longest ``cursor_expiry`` of the topics' rules, in nanoseconds; None if one has no limit.

        What the configuration declares does not expire.
        """
        if durable.declared:
            return None
        expiries = [each.policy.settings.cursor_expiry_ns for each in durable.destinations]
        if not expiries:
            return self._core.config.defaults.settings.cursor_expiry_ns
        limited = [each for each in expiries if each is not None]
        return max(limited) if len(limited) == len(expiries) else None
