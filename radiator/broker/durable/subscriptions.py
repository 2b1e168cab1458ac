"""All named subscriptions of a broker: who may use a name, what comes of it, what is kept of it.

    subscribe()   a name is made, used by one more member, taken over, moved, or made to be about other topics
    delete()      for good: its cursors, and what stands in the file
    born()        a topic joins the names that match it: once somebody sends to it, or if they say what it is called
    tick()        names that nobody has used for too long go (``cursor_expiry``)

What is written, and when, is ``radiator.storage.definitions``; a SUBSCRIBE is receipted once that and the cursors are.

Knows: sessions and names. Must not know: headers (``naming``), cursors (``named``).
Invariants: a name has one user; a durable name that is no group has one subscription at a time; what stands in the
file is what holds, or will be written; nothing is deleted because a file could not be read.
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
from radiator.broker.durable.subscription_names import SubscriptionName
from radiator.broker.headers.positions import NEXT, Position
from radiator.broker.logs import cursor_names
from radiator.broker.logs.selection import Selection, text_of
from radiator.clock import NS_PER_SECOND, MonoNs, Now, WallNs
from radiator.errors import ProtocolError, StorageError
from radiator.memory import SUBSCRIPTIONS
from radiator.routing.index import PatternIndex
from radiator.routing.pattern import PatternSet, parse_list

if TYPE_CHECKING:
    from radiator.broker.budget import Steps
    from radiator.broker.clients.session import Session, Subscription
    from radiator.broker.core import Core
    from radiator.broker.destinations.destination import Destination

log = logging.getLogger("radiator.broker")

LOOK_EVERY_NS = 60 * NS_PER_SECOND
FORGET_UNITS = 2  # of a topic that a name has left
GRACE_NS = 3_600 * NS_PER_SECOND  # after a start: time for those who use a name to come back


class DefinitionWaiters:
    """Receipts that wait for a new name to stand in the file, which is gone if it cannot."""

    def __init__(self, names: DurableSubscriptions, durable: DurableSubscription, waiters: list[Any]) -> None:
        self._names = names
        self._durable = durable
        self._waiters = waiters

    def settle(self, failure: ProtocolError | None = None) -> None:
        """The file was written, or could not be."""
        for each in self._waiters:
            each.settle(failure)
        if failure is not None:
            self._names.give_up(self._durable)


class DurableSubscriptions:
    """See the top of the file."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._definitions = core.store.definitions
        self._started_ns: MonoNs | None = None  # at the first look of this run
        self._looked_ns = MonoNs(0)
        self.by_key: dict[str, DurableSubscription] = {}
        self._counts: Counter[str] = Counter()  # of each user
        self._busy: Counter[str] = Counter()  # keys of names that are being changed or deleted, in several turns
        self._index: PatternIndex[DurableSubscription] = PatternIndex()

    # --- a start ----------------------------------------------------------------------------------------------------

    def load(self) -> None:
        """What the file says, before any topic is known: each of them joins as it is found."""
        for key, entry in self._definitions.entries.items():
            prefix = next(
                (each for each in (cursor_names.SUBSCRIPTION, cursor_names.GROUP) if key.startswith(each)), None
            )
            try:
                assert prefix is not None
                asked = SubscriptionName(prefix, key.removeprefix(prefix))
                durable = self._new(
                    asked, str(entry["user"]), parse_list(entry["destination"]), WallNs(entry["made_ns"])
                )
                durable.note_use(WallNs(entry["used_ns"]))
                durable.queue.select_by(Selection(entry["selector"]) if "selector" in entry else None)
                durable.filter.want_since(int(entry.get("since_ns", 0)))
                for topic, since_ns in dict(entry.get("since", {})).items():
                    durable.filter.want_since(int(since_ns), [topic])
                durable.remember(entry.get("starts", {}), entry.get("wished", {}))
            except (AssertionError, KeyError, TypeError, ValueError, ProtocolError) as error:
                log.error("subscription %s: its definition cannot be used: %r", key, error)
                continue
            for where, starts in durable.starts.items():
                partition = self._core.store.partitions.get(where)
                end = partition.next_offset if partition is not None else 0  # what was there may be gone: a power cut
                durable.filter.want_from(where, {name: min(start, end) for name, start in starts.items()})
            for where, starts in durable.requested.items():
                durable.filter.want_from(where, starts)
            self._add(durable)

    def loaded(self) -> None:
        """All topics are known: cursors of names that are not are what a crash has left of making or deleting one."""
        cursors = self._core.store.cursors
        if self._definitions.whole:
            for name, where in cursors.names():
                if name.startswith((cursor_names.SUBSCRIPTION, cursor_names.GROUP)) and name not in self.by_key:
                    cursors.delete(name, where)

    def created(self, destination: Destination) -> int:
        """A topic is there: an old one at a start, or a new one before its first message. Returns how many names want
        it, about. One that others are subscribed to, and nobody sends to, is nothing to a pattern."""
        if destination.policy.kind != "topic":
            return 0
        found, silent = self._index.find(destination.name), destination.silent
        for durable in found:
            if durable.filter.has(destination.name) and not (silent and destination.name not in durable.patterns.names):
                try:
                    durable.revive(destination)
                except (StorageError, ProtocolError) as error:  # the sender is not at fault
                    self._core.stats.count(cursors_refused=1)
                    self._core.peer_log.line(
                        logging.ERROR,
                        "durable subscriptions without a cursor",
                        durable.key,
                        "%s gets nothing of %s: %s",
                        durable.key,
                        destination.name,
                        error,
                        logger=log,
                    )
        return len(found)

    # --- using a name -----------------------------------------------------------------------------------------------

    def subscribe(
        self,
        subscription: Subscription,
        asked: SubscriptionName,
        topics: list[Destination],
        position: Position | None,
        reset: bool,
        now_ns: WallNs,
    ) -> Generator[bool, None, DurableSubscription]:
        """Let a subscription that takes part in nothing yet use the name. ``check`` was called before. Returns what
        stands behind the name, once all steps are done; nobody else changes it meanwhile. Raises ProtocolError."""
        patterns, session = subscription.asked, subscription.session
        yield from self.free(asked.key)
        self.check(session, asked, patterns, subscription.selection, reset)
        durable = self.by_key.get(asked.key)
        with self.changing(asked.key):
            if durable is None:
                durable = self._add(self._new(asked, session.user, patterns, now_ns))
                try:
                    yield from durable.join(topics, position or NEXT, now_ns, anew=True)
                except BaseException:  # refused, or the client is gone: it was not receipted
                    self.delete(durable)
                    raise
            else:
                if not asked.is_group:
                    yield from self._take_over(durable)
                if durable.patterns.text != patterns.text:
                    self._index.remove(durable, durable.patterns.patterns)
                    durable.ask(patterns)
                    self._index.add(durable, patterns.patterns)
                    yield from self._drop_topics_except(durable, topics)
                    if not reset:
                        more = [each for each in topics if each not in durable.destinations]
                        yield from durable.join(more, position or NEXT, now_ns)
                elif not reset:
                    yield from self._drop_topics_except(durable, topics)
                    yield from durable.join([each for each in topics if each not in durable.destinations], NEXT, now_ns)
                if reset:
                    yield from durable.move([*durable.destinations, *topics], position or NEXT, now_ns)
        durable.queue.select_by(subscription.take_selection())
        durable.note_use(now_ns)
        durable.permit(subscription.patterns)
        self._core.take_part(subscription, durable.queue, subscription.alone)
        return durable

    def check(
        self, session: Session, asked: SubscriptionName, patterns: PatternSet, selection: Selection | None, reset: bool
    ) -> None:
        """What could refuse it, before anything is changed. Raises ProtocolError."""
        durable = self.by_key.get(asked.key)
        if durable is None:
            if len(self.by_key) >= limits.SUBSCRIPTION_NAMES_MAX:
                raise ProtocolError(
                    "too-many",
                    f"there are {len(self.by_key)} named subscriptions",
                    "Delete some: UNSUBSCRIBE with their name, or `radiator cursors rm`; or set cursor_expiry.",
                )
            most = limits.SUBSCRIPTION_NAMES_PER_USER_MAX
            if self._counts[session.user] >= most and not session.rights.everything:
                raise ProtocolError(
                    "too-many",
                    f"this user has {self._counts[session.user]} named subscriptions, and may have {most}",
                    "Delete some: UNSUBSCRIBE with their name. Who may do everything may have more.",
                )
            return
        self._check_user(session, durable)
        if any(each.session is session and not each.closed for each in subscriptions_of(durable.queue)):
            raise ProtocolError("bad-subscription", f"{asked} is in use on this connection", "Expected it once.")
        if asked.is_group and durable.active and (reset or patterns.text != durable.patterns.text):
            raise ProtocolError(
                "bad-subscription",
                f"{asked} has members, who are subscribed to {durable.patterns.text[:300]!r}",
                "All members say the same destination; to change it, or to reset the group, let them go first.",
            )
        if asked.is_group and durable.active and text_of(selection) != text_of(durable.queue.selection):
            raise ProtocolError(
                "bad-subscription",
                f"{asked} has members, whose selector is {text_of(durable.queue.selection)[:300]!r}",
                "All members say the same selector; to change it, let them go first.",
            )

    def keep(self, durable: DurableSubscription, waiters: Iterable[Any] = ()) -> None:
        """Write down what it is about; ``waiters`` are told when that is done. If it is known already nothing is
        written: who comes back on a full disk must be let in."""
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

    def give_up(self, durable: DurableSubscription) -> None:
        """Whoever made it was told that it could not be: it goes, unless it was there before or others use it."""
        if not durable.active and not durable.gone and durable.key not in self._definitions.stored:
            self.delete(durable)

    def keep_once_settled(self, durable: DurableSubscription) -> None:
        """What it is about has changed, though a look-up has failed: written down when its places are known."""

        def settled(error: StorageError | None) -> None:
            if error is not None and not durable.gone:
                self.keep_once_settled(durable)
            elif not durable.gone:
                self.keep(durable)

        durable.position_lookups.settled(settled)

    def permit(self, subscription: Subscription) -> None:
        """Its user may read other topics now than before."""
        durable = self.used_by(subscription)
        if durable is not None:
            durable.permit(subscription.patterns)

    def free(self, key: str) -> Steps:
        """Wait until the name is not being changed or deleted, which may take several turns."""
        return self._core.background.until(lambda: key not in self._busy)

    def used_by(self, subscription: Subscription) -> DurableSubscription | None:
        """The name that a subscription uses; None if it has none."""
        queues = subscription.queues
        durable = self.by_key.get(queues[0].name) if len(queues) == 1 else None
        return durable if durable is not None and durable.queue is queues[0] else None

    @property
    def waiters(self) -> list[list[Any]]:
        """Where a receipt waits for what was changed or deleted until now."""
        return [self._definitions.waiters, self._core.store.cursors.waiters]

    @contextmanager
    def changing(self, key: str) -> Iterator[None]:
        """The name of that key is changed meanwhile, by nobody else."""
        self._busy[key] += 1
        try:
            yield
        finally:
            self._busy[key] -= 1
            if not self._busy[key]:
                del self._busy[key]

    def delete(self, durable: DurableSubscription) -> None:
        """For good; whoever uses it has gone before. ``free`` waits until nothing is left of it."""
        durable.note_gone()
        del self.by_key[durable.key]
        self._counts[durable.user] -= 1
        if not self._counts[durable.user]:
            del self._counts[durable.user]
        self._index.remove(durable, durable.patterns.patterns)
        self._definitions.put(durable.key, None)  # first: a definition without its cursors would begin anew
        self._core.background.add(self._deleting(durable))

    def _deleting(self, durable: DurableSubscription) -> Steps:
        with self.changing(durable.key):
            while durable.queue.consumers:
                yield False
            yield from self._drop_unused_destinations((yield from durable.end()))

    def find(self, session: Session, asked: SubscriptionName) -> DurableSubscription:
        """An existing one that this session may use. Raises ProtocolError."""
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
                "A name belongs to the user who made it; `radiator cursors rm` deletes it.",
            )

    def _take_over(self, durable: DurableSubscription) -> Steps:
        older_ones = [each for each in subscriptions_of(durable.queue) if not each.closed]
        for older in older_ones:
            self._core.stats.count(taken_over=1)
            self._core.refuse(
                older.session,
                ProtocolError(
                    "taken-over",
                    f"another connection goes on with {durable.asked}",
                    "A durable name has one subscription at a time. For several, say group:<name> in its place.",
                ),
            )
        yield from self._core.background.until(lambda: all(each.left for each in older_ones))

    def _drop_topics_except(self, durable: DurableSubscription, topics: list[Destination]) -> Steps:
        """It lets go of what is not among these: it does not match any more, or its user may not read it."""
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
        return DurableSubscription(dependencies, asked, user, patterns, now_ns)

    def _matches(self, patterns: PatternSet, name: str) -> bool:
        if not patterns.matches(name):
            return False
        try:
            return self._core.rules.policy_for(name).kind == "topic"
        except ProtocolError:
            return False

    def _drop_unused_destinations(self, destinations: list[Destination]) -> Steps:
        """Of those that only this name was about nothing may be left."""
        for destination in destinations:
            self._core.budget.spend(FORGET_UNITS)
            yield True
            self._core.drop_unused(destination)

    # --- time -------------------------------------------------------------------------------------------------------

    def tick(self, now: Now) -> None:
        """Names that are in use are used now; others may have waited for too long."""
        if self._started_ns is None:
            self._started_ns = self._looked_ns = now.mono
        if now.mono - self._looked_ns < LOOK_EVERY_NS:
            return
        self._looked_ns = now.mono
        for durable in list(self.by_key.values()):
            expiry_ns = self._expiry_ns(durable)
            used = (
                durable.active or durable.used_ns > now.wall
            )  # by a clock that was ahead: it would not expire for as long
            if used:
                durable.note_use(now.wall)
            if expiry_ns is None or durable.key in self._busy:
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
                    "%s of user %s is deleted: nobody has used it for %d s, and cursor_expiry is %d s",
                    durable.key,
                    durable.user or "anonymous",
                    unused_ns // NS_PER_SECOND,
                    expiry_ns // NS_PER_SECOND,
                    logger=log,
                )
                self.delete(durable)

    def _expiry_ns(self, durable: DurableSubscription) -> int | None:
        """The longest that the rules of its topics say; None, which is never, counts as longer than all."""
        said = [each.policy.settings.cursor_expiry_ns for each in durable.destinations]
        if not said:
            return self._core.config.defaults.settings.cursor_expiry_ns
        known = [each for each in said if each is not None]
        return max(known) if len(known) == len(said) else None
