"""Recurring messages: the broker sends a message by itself at the times of a cron expression (``schedules:``).

Each time is sent once, also over restarts and crashes. The time up to which a schedule is done is stored with the
definitions of durable subscriptions, in the same entry of the journal as the message. If the disk refuses the message,
the time is set back. The message also has a ``dedup-id`` of the schedule's name and the time.

A reload recognises a schedule by its name. With the same expression and time zone it continues where it was. With
others it begins anew, as after a restart.

A time that comes more than a minute late is *missed*: the broker did not run, or its clock was not trusted. The rule
says whether the last missed time is sent. Times are those of the trusted clock (``timers.trusted``).

This module knows schedules and SENDs. It does not know cron expressions (``routing.cron``).
"""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from radiator.broker.admission import Dropped, Wait
from radiator.broker.clients.identity import Identity
from radiator.broker.clients.session import Session
from radiator.broker.logs import cursor_names
from radiator.broker.publishing import hooks, sending
from radiator.clock import NS_PER_SECOND, Now, WallNs
from radiator.errors import ProtocolError, StorageError
from radiator.routing.cron import CronTimes
from radiator.routing.rights import EVERYTHING
from radiator.stomp.frames import Frame, Head
from radiator.stomp.headers import join
from radiator.storage.partition import IDLE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from radiator.broker.services import Services
    from radiator.config.model import ScheduleRule

log = logging.getLogger("radiator.broker")

LATE_NS: Final = 60 * NS_PER_SECOND  # a time that comes later is missed
RETRY_NS: Final = 5 * NS_PER_SECOND  # after a disk error, or while the destination has no room
FUTURE_NS_MAX: Final = 86_400 * NS_PER_SECOND  # a stored time further ahead is that of a wrong clock


class Schedule:
    """One recurring message.

    Args:
        broker: The services of the broker.
        rule: The entry of the configuration.
        session: The session in whose name it is sent.
    """

    def __init__(self, broker: Services, rule: ScheduleRule, session: Session) -> None:
        self._broker = broker
        self._rule = rule
        self._next: ScheduleRule | None = rule  # the entry after a reload; None if it is gone
        self._session = session
        self._key = cursor_names.SCHEDULE + rule.name
        self._times = CronTimes(rule.cron, rule.time_zone)
        self._stored: dict[str, Any] | None = broker.store.definitions.entries.get(self._key)
        self._done_ns: WallNs | None = None  # all times up to here are sent or skipped; None: not looked at yet
        self._before_ns: WallNs | None = None  # the same before the last change
        self._tried_ns: WallNs | None = None  # a time that could not be sent yet, and so is not missed
        self._storing = False
        self._refused = False  # the message of the last change was not stored
        broker.timing.after(0, self)

    def change(self, rule: ScheduleRule | None) -> None:
        """Use another entry of the configuration, or none: at once, or when the present message is stored."""
        self._next = rule
        self._broker.timing.after(0, self)

    def _take_change(self) -> None:
        old, new = self._rule, self._next
        self._broker.timing.forget(self)
        if new is None:
            self._stored = self._done_ns = None
            if self._key in self._broker.store.definitions.entries:
                self._broker.store.definitions.put(self._key, None)
            return
        self._rule = new
        if (new.cron, new.time_zone) != (old.cron, old.time_zone):
            self._times = CronTimes(new.cron, new.time_zone)
            self._stored = self._done_ns = self._tried_ns = None

    def due(self, now: Now) -> None:
        """Send what is due, and set the timer for the next time."""
        if self._storing or self._broker.stopping:
            return  # ``settle`` looks again
        if self._next is not self._rule:
            self._take_change()
            if self._next is None:
                return
        if self._done_ns is None:
            self._done_ns = self._begin(now.wall)
        last = self._times.last_between(self._done_ns, now.wall)
        if last is None:
            self._wait(now.wall)
        elif now.wall - last <= LATE_NS or self._rule.missed == "last" or last == self._tried_ns:
            self._send(last, now)
        else:
            log.warning("schedule %s: %s was missed, and is skipped", self._rule.name, _text(last))
            self._note(last)

    def _begin(self, wall_ns: WallNs) -> WallNs:
        """Return the time from which on this run sends."""
        stored = self._stored
        if stored is not None and (stored.get("cron"), stored.get("time_zone")) == (
            self._rule.cron,
            self._rule.time_zone,
        ):
            done_ns = WallNs(int(stored["done_ns"]))
            if done_ns <= wall_ns + FUTURE_NS_MAX:
                return done_ns
            log.warning("schedule %s: was sent up to %s, which is in the future", self._rule.name, _text(done_ns))
        self._broker.store.definitions.put(self._key, self._entry(wall_ns))
        return wall_ns

    def _wait(self, wall_ns: WallNs) -> None:
        assert self._done_ns is not None
        next_ns = self._times.next_after(max(wall_ns, self._done_ns))
        if next_ns is not None:
            self._broker.timing.at_wall(next_ns, self)

    def _send(self, time_ns: WallNs, now: Now) -> None:
        broker, rule, session = self._broker, self._rule, self._session
        self._tried_ns = time_ns
        when = _text(time_ns)
        headers = {**dict(rule.headers), "destination": rule.destination, "scheduled-time": when}
        headers["dedup-id"] = f"schedule {rule.name} {when}"
        raw = join(headers.items(), "1.2")[1:].encode()
        frame = Frame(Head("SEND", headers, raw, "1.2", -1), None, rule.body.encode())
        try:
            fields = sending.read_headers(broker, session, frame.head)
            if broker.hooks:
                frame = hooks.pass_through(broker, session, frame)
                fields = sending.read_headers(broker, session, frame.head)
            plan = sending.plan_for(broker, session, frame.head, fields)
            sending.send(broker, session, plan, frame, now)
        except Wait as wait:
            log.warning("schedule %s: %s waits: %s", rule.name, when, wait.refusal.message)
            broker.timing.after(RETRY_NS, self)
            return
        except Dropped as dropped:
            broker.stats.count(**{dropped.counter: 1})
            self._note(time_ns)
            return
        except (StorageError, ProtocolError) as error:
            if isinstance(error, StorageError) or error.code == "storage":
                log.warning("schedule %s: %s could not be stored, and is tried again: %s", rule.name, when, error)
                broker.timing.after(RETRY_NS, self)
                return
            log.error("schedule %s: %s was refused, and is not sent: %s", rule.name, when, error)
            self._note(time_ns)
            return
        opened = [feed.partition for feed in plan.destination.feeds if feed.partition.open_batch is not IDLE]
        stored = [partition for partition in opened if sending.is_stored(partition)]
        self._note(time_ns)
        if stored:
            broker.store.together(stored, [], self._decided)

    def _decided(self, holds: bool) -> None:
        """Note whether the message is stored. The store calls this before ``settle``."""
        self._refused = not holds

    def _note(self, time_ns: WallNs) -> None:
        """Note that a time is done, and look again once that is stored."""
        self._before_ns, self._done_ns = self._done_ns, time_ns
        self._storing, self._refused = True, False
        definitions = self._broker.store.definitions
        definitions.put(self._key, self._entry(time_ns))
        definitions.wait([self])

    def settle(self, failure: ProtocolError | None = None) -> None:
        """Look again: the time and its message are stored, or could not be."""
        self._storing = False
        if failure is None and not self._refused:
            self._broker.timing.after(0, self)
            return
        assert self._before_ns is not None
        self._done_ns = self._before_ns
        self._broker.store.definitions.put(self._key, self._entry(self._done_ns))
        log.warning("schedule %s: a message could not be stored, and is tried again", self._rule.name)
        self._broker.timing.after(RETRY_NS, self)

    def _entry(self, done_ns: WallNs) -> dict[str, Any]:
        return {"cron": self._rule.cron, "time_zone": self._rule.time_zone, "done_ns": done_ns}


class Schedules:
    """The recurring messages of one broker.

    Args:
        broker: The services of the broker.
    """

    def __init__(self, broker: Services) -> None:
        self._broker = broker
        self._session = Session("schedules", "", broker.session_limits, lambda _: None, broker.refuse, "schedules")
        self._session.identify(Identity("", EVERYTHING, "schedules"))
        self._by_name: dict[str, Schedule] = {}  # those that a reload has removed included
        self.use(broker.config.schedules)
        names = {cursor_names.SCHEDULE + name for name in self._by_name}
        definitions = broker.store.definitions
        for key in [each for each in definitions.entries if each.startswith(cursor_names.SCHEDULE)]:
            if key not in names:
                definitions.put(key, None)

    def use(self, rules: Sequence[ScheduleRule]) -> None:
        """Use these entries of the configuration from now on."""
        entries = {rule.name: rule for rule in rules}
        for name, schedule in self._by_name.items():
            schedule.change(entries.pop(name, None))
        for name, rule in entries.items():
            self._by_name[name] = Schedule(self._broker, rule, self._session)


def _text(time_ns: int) -> str:
    return datetime.fromtimestamp(time_ns // NS_PER_SECOND, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
