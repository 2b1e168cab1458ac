"""Reload the configuration: read the file on a thread, decide, switch, and log what has changed.

    SIGHUP or ``config.reload`` -> read, compile, compare (thread) -> decide (in steps) -> files (thread) -> switch

One reload runs at a time; the next one waits. A file with a fault, and a change that this broker refuses, change
nothing. The event loop serves clients meanwhile, except in the turn of the switch.

The file of the last rules (``storage.last_rules``) is removed before the switch if it will not hold any more, and
written after it. A start without it skips no message, so the process may end in between.

This module knows files and threads. What a reload means for destinations is in ``broker.reload``.
"""

from __future__ import annotations

import gc
import importlib
import logging
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, TypeVar

import gevent
from gevent.event import Event
from gevent.lock import BoundedSemaphore

from radiator.broker.durable import declared
from radiator.broker.reload import Outcome, Reload, ReloadRequest
from radiator.config import Config, load, load_text
from radiator.config.compare import Change, compare, describe, share_settings
from radiator.errors import ConfigError, ProtocolError, StorageError
from radiator.routing.previous_rules import entries_of
from radiator.routing.rules import Rules
from radiator.server.hooks import load_hooks, new_schemas, store_schemas
from radiator.server.worker import Worker
from radiator.storage import last_rules

if TYPE_CHECKING:
    from radiator.broker.broker import Broker
    from radiator.broker.budget import Steps
    from radiator.broker.rule_hooks import RuleHooks
    from radiator.server.driver import Driver
    from radiator.storage.store import Store

log = logging.getLogger("radiator.server")

LOGGED_MAX: Final = 100  # changes
PAUSE_SECONDS: Final = 0.001  # between two portions: with 0, gevent runs up to 50 of them before it reads a socket
T = TypeVar("T")


class Prepared(NamedTuple):
    """What another configuration needs: sockets, an authenticator.

    Attributes:
        put_in_place: Uses it from now on.
        drop: Closes it.
    """

    put_in_place: Callable[[], None]
    drop: Callable[[], None]


class Running(Protocol):
    """The parts of the application that a reload uses."""

    config: Config
    broker: Broker
    driver: Driver
    store: Store

    def prepare(self, config: Config) -> Prepared:
        """Make what another configuration needs.

        Raises:
            ConfigError: An address, a certificate, the users file or the plug-in cannot be used.
        """


@dataclass(frozen=True, slots=True)
class Loaded:
    """A configuration that was read, compiled and compared."""

    rules: Rules
    changes: list[Change]
    hooks: Mapping[int, RuleHooks]
    schemas: list[tuple[str, bytes, str]]


class ConfigReloader:
    """Reloads the configuration of one broker (``broker.reload.Reloader``).

    Args:
        running: The application.
        adjust: Applies the options of the command line to a configuration that was read.
        reloading: Returns a context in which the service manager knows of the reload.
    """

    def __init__(
        self,
        running: Running,
        adjust: Callable[[Config], Config],
        reloading: Callable[[], AbstractContextManager[None]],
    ) -> None:
        self._running = running
        self._adjust = adjust
        self._reloading = reloading
        self._one_at_a_time = BoundedSemaphore()

    def begin(self, request: ReloadRequest, done: Callable[[Outcome | ProtocolError], None]) -> None:
        """Begin a reload for a client, and call ``done`` at its end."""
        gevent.spawn(self._serve, request, done)

    def _serve(self, request: ReloadRequest, done: Callable[[Outcome | ProtocolError], None]) -> None:
        found: Outcome | ProtocolError
        try:
            found = self.reload(request)
        except (ConfigError, StorageError) as error:
            found = ProtocolError("bad-request", "the configuration cannot be used; nothing has changed", str(error))
        except Exception as error:
            self._running.broker.internal_errors.found(error)
            found = ProtocolError("internal", "the reload failed", "See the log of the broker.")
        with self._running.broker.internal_errors:
            done(found)
        self._running.driver.wake()

    def reload(self, request: ReloadRequest) -> Outcome:
        """Reload the configuration, or compare only. Called in a greenlet; others run meanwhile.

        Args:
            request: What to reload.

        Returns:
            The changes, and whether they are applied.

        Raises:
            ConfigError: The file cannot be used, or there is none. Nothing has changed.
            StorageError: The data directory cannot be written. Nothing has changed.
        """
        with self._one_at_a_time:
            gc.freeze()  # as after a start: a reload makes many objects, and the collector need not search all others
            worker = Worker("radiator-reload")
            try:
                if request.check:
                    return self._reload(worker, request)
                with self._reloading():
                    return self._reload(worker, request)
            finally:
                worker.stop()

    def _reload(self, worker: Worker, request: ReloadRequest) -> Outcome:
        running, broker = self._running, self._running.broker
        loaded = _on(worker, partial(self._load, running.config, request))
        config = loaded.rules.config
        plan = Reload(broker, broker.durable, broker.declarations, loaded.rules)
        try:
            self._run(plan.decide())
            outcome = Outcome(plan.refused(loaded.changes), False)
            same = not outcome.changes and config == running.config and not (loaded.hooks or broker.hooks)
            if not (request.check or outcome.refused or same):
                outcome = self._apply(worker, loaded, plan)
        finally:
            plan.cancel()
        if not request.check:
            _log(outcome)
        return outcome

    def _apply(self, worker: Worker, loaded: Loaded, plan: Reload) -> Outcome:
        running, config = self._running, loaded.rules.config
        store, before, after = running.store, entries_of(running.config), entries_of(config)
        prepared = running.prepare(config)
        switched = False
        try:
            if before != after:
                _on(worker, partial(last_rules.remove, store.fs, store.root))
            _on(worker, partial(store_schemas, loaded.schemas, store.fs, store.root))
            self._run(plan.decide_added())  # no other greenlet runs from its last step to the switch
            outcome = Outcome(plan.refused(loaded.changes), False)
            if outcome.refused:
                return outcome
            plan.switch(loaded.hooks)
            switched = True
            prepared.put_in_place()
            self._run(plan.adopt())
        finally:
            if not switched:
                prepared.drop()
            if before != after:
                _on(worker, partial(last_rules.replace, store.fs, store.root, after if switched else before))
        return Outcome(outcome.changes, True)

    def _load(self, old: Config, request: ReloadRequest) -> Loaded:
        """Read and compile the configuration, and compare it. Runs on a thread.

        Raises:
            ConfigError: The file cannot be used, or there is none.
        """
        if request.text is not None:
            new = load_text(request.text, request.source, request.environ)
        elif old.source is None:
            raise ConfigError("this broker runs without a configuration file")
        else:
            new = load(old.source)
        new = share_settings(old, self._adjust(new))
        rules = Rules(new)
        declared.check(new)
        if new.admin is not None:
            importlib.import_module("radiator.server.prometheus")  # so long that the event loop must not wait for it
        hooks: Mapping[int, RuleHooks] = {}
        schemas: list[tuple[str, bytes, str]] = []
        if request.text is None:  # a client must not decide which modules and files this process loads
            hooks = load_hooks(new.rules, new.source)
            schemas = new_schemas(new.rules, new.source, self._running.store.fs, new.data_dir)
            if new.auth != old.auth and new.auth.users_file is not None:
                from radiator.server.users_file import check  # loads PyYAML and argon2

                check(new.auth)
        return Loaded(rules, compare(old, new), hooks, schemas)

    def _run(self, steps: Steps) -> None:
        """Run steps, as many in each round of the event loop as the budget of a turn allows."""
        budget, more = self._running.broker.budget, True
        while more:
            more = False
            with self._running.driver.measured():
                budget.begin()
                for at_once in steps:
                    if budget.exhausted or not at_once:
                        more = True
                        break
            if more:
                self._running.driver.wake()
                gevent.sleep(PAUSE_SECONDS)


def _on(worker: Worker, work: Callable[[], T]) -> T:
    """Return the result of ``work``, which runs on a thread. Other greenlets run meanwhile."""
    done: list[T] = []
    failed: list[Exception] = []
    over = Event()

    def caught() -> None:
        try:
            done.append(work())
        except Exception as error:
            failed.append(error)

    worker.submit(caught, lambda _: over.set())
    over.wait()
    if failed:
        raise failed[0]
    return done[0]


def _log(outcome: Outcome) -> None:
    if not outcome.changes:
        log.info("reload: nothing has changed")
        return
    level = logging.INFO if outcome.applied else logging.WARNING
    for change in outcome.changes[:LOGGED_MAX]:
        log.log(level, "reload: %s", describe(change.row()))
    if len(outcome.changes) > LOGGED_MAX:
        log.log(level, "reload: and %d more changes", len(outcome.changes) - LOGGED_MAX)
    if outcome.applied:
        log.info("reload: the new configuration is in force")
    else:
        log.error("reload: refused, nothing has changed: %s", outcome.refused[0].refused)
