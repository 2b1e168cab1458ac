"""Run the application: configuration, store, broker, driver and listeners, from the start to a clean stop."""

from __future__ import annotations

import gc
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial

import gevent

from radiator import __version__, clock, console, limits, speed
from radiator.broker.admin import by_rule, readiness
from radiator.broker.broker import Broker
from radiator.broker.durable import declared
from radiator.broker.headers.send import identify
from radiator.broker.reload import ReloadRequest
from radiator.config import AuthConfig, Config, LoggingConfig
from radiator.errors import ConfigError, ProtocolError, StorageError
from radiator.memory import MemoryAccount
from radiator.routing.rules import Rules
from radiator.server import descriptors, logs
from radiator.server.acceptor import Acceptor
from radiator.server.admin import Admin, Answer, Metrics
from radiator.server.auth import Authenticator, Submit
from radiator.server.certificates import LOOK_SECONDS, Certificates
from radiator.server.driver import Driver
from radiator.server.hooks import load_hooks, register_schemas
from radiator.server.listener import ConsoleListener, Listener, address_of, public_listeners
from radiator.server.loop_lag import LoopLag
from radiator.server.paced import Pace
from radiator.server.reload import ConfigReloader, Prepared
from radiator.server.stop_signal import StopSignal
from radiator.server.supervisor import Supervisor
from radiator.server.trimming import Trimming
from radiator.server.worker import Worker
from radiator.storage.copies import end_mirror
from radiator.storage.files import FileSystem
from radiator.storage.store import Store

log = logging.getLogger("radiator.server")

LOOK_NS = int(LOOK_SECONDS * clock.NS_PER_SECOND)
TICK_SECONDS = 0.25  # of the broker's periodic work
SWITCH_SECONDS = 0.001  # the disk thread waits so long for Python's lock; with 5 ms a group took 25 ms
# A broker creates few reference cycles, so Python's collector runs less often, and skips the objects of the start.
# Measured under load: the longest pause was 4 ms instead of 14 ms, and draining was a tenth faster.
GC_THRESHOLDS = (10_000, 20, 50)
HEARTBEAT_CHECK_SECONDS = 0.02  # between two checks of heart-beats; half of the shortest interval is 50 ms
DRAIN_CHECK_SECONDS = 0.05  # between two looks at the clients of a stop with drain.on_stop
# Limits of a stop, because docker kills the process after 10 s. Work that takes longer is dropped and logged.
STOP_SECONDS_MAX = 6.0  # to store open batches
NOTICE_SECONDS_MAX = 3.0  # of these, until clients get the ERROR
AUTH_STOP_SECONDS_MAX = 1.0  # for logins in progress, all threads together, because a plug-in may hang
LOGINS_END_SECONDS = 60.0  # for logins in progress when a reload has changed auth:
GOODBYE_SECONDS_MAX = 3.0  # for the last frames to slow readers


class App:
    """The broker of one process: call ``start``, let the event loop run, then call ``stop``.

    Args:
        config: The configuration.
        adjust: Applies the options of the command line to a configuration that a reload has read.
        reloading: Returns a context in which the service manager knows of a reload.

    Raises:
        ConfigError: The configuration, a plug-in, a schema or a users file cannot be used.
        StorageError: The store cannot be opened.
    """

    def __init__(
        self,
        config: Config,
        adjust: Callable[[Config], Config] = lambda config: config,
        reloading: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        self.config = config
        self.rules = Rules(config)
        declared.check(config)
        hooks = load_hooks(config.rules, config.source)
        available = descriptors.raise_limit(config.limits.connections)
        self.store = Store(
            config.data_dir,
            FileSystem(),
            tail_bytes_max=config.limits.tail,
            memory=MemoryAccount(config.limits.memory),
            open_logs_max=available.logs,
            identify=identify,
        )
        self.notes = self.store.open(clock.now())
        end_mirror(self.store.fs, config.data_dir)
        if self.store.restored:
            log.info("recovery: %d messages were in the journal and not in a segment", self.store.restored)
        for note in self.notes:
            log.warning("recovery: %s", note)
        try:
            for news in register_schemas(config.rules, config.source, self.store.fs, config.data_dir):
                log.info("schema: %s", news)
        except BaseException:
            self.store.close()
            raise
        self.driver = Driver()
        try:
            self.broker = Broker(
                self.rules, self.store, self.driver.outgoing, hooks=hooks, late=self.driver.scheduler.slice_over
            )
        except BaseException:
            self.driver.stop()
            self.store.close()
            raise
        self.broker.timing.see(clock.now())  # positions such as ago:1h count from now
        for _ in self.broker.declarations.apply(config.subscriptions):
            pass
        self.driver.attach(self.broker, TICK_SECONDS)
        self.listeners: list[Listener] = []
        self.admin: Admin | None = None
        self.certificates = Certificates()
        self.authenticator: Authenticator | None = None
        self._auth_threads: list[Worker] = []
        self._next_look_ns = 0
        self._trimming = Trimming(self.store.memory, self.driver.run_in_background)
        self._acceptor = Acceptor(config, self.broker, self.driver, available.connections)
        self._reloading = reloading
        self._reloader = ConfigReloader(self, adjust, reloading)
        self.broker.use_reloader(self._reloader)
        loop = gevent.get_hub().loop
        self._timer = loop.timer(TICK_SECONDS, TICK_SECONDS)
        self._heartbeat_timer = loop.timer(HEARTBEAT_CHECK_SECONDS, HEARTBEAT_CHECK_SECONDS)

    @property
    def connections(self) -> int:
        """The number of open connections."""
        return len(self.driver.transports)

    def serve(self, seconds: float) -> None:
        """Let the event loop run for ``seconds``; with 0, for one round."""
        gevent.sleep(seconds)

    def start(self) -> list[str]:
        """Listen, and return the URLs of the listeners, with the real port where the configuration has port 0.

        Raises:
            ConfigError: An address cannot be listened on, or a certificate cannot be used.
        """
        try:
            self._use(*self._new_authenticator(self.config.auth))
            admin = self._arrange_admin(self.config, None)
            try:
                self._arrange_listeners(self.config).put_in_place()
            except BaseException:
                admin.drop()
                raise
        except BaseException:
            self.stop()
            raise
        self._warn_of_public_listeners()
        admin.put_in_place()
        self._timer.start(self._tick)
        interval_ns = int(HEARTBEAT_CHECK_SECONDS * clock.NS_PER_SECOND)
        self._lag = LoopLag(self.broker.stats.histograms.event_loop_lag, interval_ns, clock.monotonic_ns())
        self._heartbeat_timer.start(self._check_heartbeats)
        return [listener.url for listener in self.listeners]

    def _arrange_listeners(self, config: Config) -> Prepared:
        """Open the addresses of ``listen:`` that are new.

        Raises:
            ConfigError: An address cannot be listened on, or a certificate cannot be used.
        """
        left, changed = list(self.listeners), []
        opened: list[Listener] = []

        def drop() -> None:
            for each in opened:
                each.stop()

        frame_bytes_max = config.limits.headers + config.limits.message
        try:
            for listen in config.listen:
                certificate = self.certificates.of(listen, config.tls)
                same = next((each for each in left if each.address == address_of(listen)), None)
                if same is None:
                    opened.append(Listener(listen, self._acceptor.accept, certificate, frame_bytes_max))
                else:
                    left.remove(same)
                    changed.append((same, listen, certificate))
        except BaseException:
            drop()
            raise

        def put_in_place() -> None:
            for listener in left:
                listener.stop()
            for listener, listen, certificate in changed:
                listener.configure(listen, certificate, frame_bytes_max)
            for listener in opened:
                listener.start()
            self.listeners = [*(listener for listener, _, _ in changed), *opened]

        return Prepared(put_in_place, drop)

    def _arrange_admin(self, config: Config, old: Config | None) -> Prepared:
        """Open the address of ``admin:`` if it is another one than before.

        Raises:
            ConfigError: The address cannot be listened on.
        """
        before = self.admin
        if old is not None and config.admin == old.admin:

            def allow() -> None:
                if before is not None and config.admin is not None:
                    before.allow(config.admin, config.admin_hosts)

            return Prepared(allow, lambda: None)
        opened: Admin | None = None
        if config.admin is not None:
            endpoints = {"/health": self._health, "/ready": self._ready, "/stats": self._stats}
            metrics = _metrics_of(self.broker, config.data_dir)
            upgrade = partial(self._accept_console, ConsoleListener(console.STOMP_PATH))
            opened = Admin(config.admin, config.admin_hosts, endpoints, metrics, upgrade)

        def drop() -> None:
            if opened is not None:
                opened.stop()

        def put_in_place() -> None:
            self.admin = opened
            if before is not None:
                before.stop()
            if opened is not None:
                opened.start()
                log.info("admin: %s", opened.url)

        return Prepared(put_in_place, drop)

    def _warn_of_public_listeners(self) -> None:
        for text in public_listeners(self.config):
            log.warning("%s", text)

    def _use(self, authenticator: Authenticator, threads: list[Worker]) -> None:
        """Use an authenticator with these threads. Those of an earlier one end once its logins are over."""
        for thread in self._auth_threads:
            _later(LOGINS_END_SECONDS, thread.end)
        self._auth_threads += threads
        self.authenticator = authenticator
        self.broker.access.use(authenticator)

    def _new_authenticator(self, auth: AuthConfig) -> tuple[Authenticator, list[Worker]]:
        """Return an authenticator, and threads of its own.

        Raises:
            ConfigError: The users file or the plug-in cannot be loaded.
        """
        running: list[Worker] = []

        def threads(name: str, count: int) -> list[Submit]:
            started = [Worker(f"radiator-{name}-{number}") for number in range(count)]
            running.extend(started)
            return [thread.submit for thread in started]

        verify = threads("auth", 1 if auth.has_users else 0)
        plugin = threads("plugin", 0 if auth.plugin is None and auth.jwt is None else limits.PLUGIN_CALLS_MAX)
        look = (
            threads("users", 1)[0] if auth.users_file is not None else None
        )  # a thread of its own, not delayed by logins
        changed, peer_log = self._users_changed, self.broker.peer_log
        try:
            authenticator = Authenticator(
                auth,
                verify,
                plugin,
                _later,
                clock.monotonic_ns,
                changed,
                look,
                peer_log=peer_log,
                wall_ns=lambda: self.broker.timing.now.wall,
            )
        except BaseException:
            for thread in running:
                thread.stop()
            raise
        return authenticator, running

    def _users_changed(self) -> None:
        assert self.authenticator is not None
        self.broker.access.changed(self.authenticator.identity)
        gevent.spawn(self._release_refused)

    def _release_refused(self) -> None:
        """Release the sessions that a change of the users file has ended, some in each round of the event loop."""
        more = True
        while more:
            with self.broker.internal_errors:
                more = self.broker.access.release_some()
            self.driver.wake()
            gevent.sleep(0)

    def _accept_console(self, listener: ConsoleListener, sock: socket.socket, address: str, received: bytes) -> None:
        """Accept a WebSocket of the console. The admin listener is open until the end of a stop; this one is not."""
        if self.driver.stopping:
            sock.close()
        else:
            self._acceptor.accept(listener, sock, address, received)

    def _health(self) -> Answer:
        return 200, {"healthy": True}

    def _ready(self) -> Answer:
        reasons = readiness.reasons(self.broker)
        if reasons:
            return 503, {"ready": False, "reasons": reasons}
        held_back = readiness.held_back(self.broker)
        return 200, {"ready": True, "held_back": held_back} if held_back else {"ready": True}

    def _stats(self) -> Answer:
        figures = readiness.figures(self.broker)
        return 200, {"version": __version__, **figures, "rules": Pace().run(by_rule.sums(self.broker))}

    def reload(self) -> None:
        """Read the configuration, the certificates and the users again, and reopen the log. Called in a greenlet."""
        logs.reopen()
        if self.authenticator is not None:
            self.authenticator.reload()
        self.driver.run_in_background(self.certificates.reload)
        if self.config.source is None:
            with self._reloading():
                log.info("SIGHUP: certificates and users are read again; there is no configuration file")
            return
        try:
            self._reloader.reload(ReloadRequest())
        except (ConfigError, StorageError) as error:
            log.error("reload: refused, nothing has changed: %s", error)

    def prepare(self, config: Config) -> Prepared:
        """Make what another configuration needs.

        Raises:
            ConfigError: An address cannot be listened on, the file of the log cannot be written, or a certificate, the
                users file or the plug-in cannot be used.
        """
        old = self.config
        made = None if config.auth == old.auth else self._new_authenticator(config.auth)
        prepared: list[Prepared] = []

        def drop() -> None:
            for thread in [] if made is None else made[1]:
                thread.stop()
            for each in prepared:
                each.drop()

        try:
            prepared.append(_arrange_log(config.logging, old.logging))
            prepared.append(self._arrange_admin(config, old))
            prepared.append(self._arrange_listeners(config))
        except BaseException:
            drop()
            raise

        def put_in_place() -> None:
            self.config = config
            if config.limits.connections != old.limits.connections:
                self._acceptor.limit(descriptors.raise_limit(config.limits.connections).connections)
            self._acceptor.use(config)
            for each in prepared:
                each.put_in_place()
            self.driver.partial_frames.use(config)
            logs.set_levels(config.logging.level, config.logging.levels)
            if made is not None:
                self._use(*made)
                self._users_changed()
            if (config.listen, config.admin, config.auth) != (old.listen, old.admin, old.auth):
                self._warn_of_public_listeners()

        return Prepared(put_in_place, drop)

    def _check_heartbeats(self) -> None:
        self._lag.fired(clock.monotonic_ns())
        self.driver.check_heartbeats()

    def _tick(self) -> None:
        with self.driver.measured():
            with self.broker.internal_errors:
                self.broker.tick(clock.now())
            self.driver.check_paused()
        self._trimming.check(clock.monotonic_ns())
        self._check_disk()
        self.broker.stats.set_log_lines_dropped(logs.lines_dropped())
        self.broker.peer_log.tick(clock.monotonic_ns())
        if self.authenticator is not None:
            self.authenticator.tick()
        if len(self.certificates) and clock.monotonic_ns() >= self._next_look_ns:
            self._next_look_ns = clock.monotonic_ns() + LOOK_NS
            self.driver.run_in_background(self.certificates.look)
        self.driver.wake()

    def _check_disk(self) -> None:
        """Refuse SENDs to files while the disk is too full, and all frames while the data directory is another one."""
        broker = self.broker
        before, now = (broker.displaced, broker.files_refused), (self._misplaced(), self._too_full())
        broker.set_disk_faults(*now)
        for was, is_now, what in zip(before, now, ("everything is", "messages are"), strict=True):
            if is_now is not None and was is None:
                log.error("disk: %s; %s refused. %s", is_now.message, what, is_now.detail)
            elif is_now is None and was is not None:
                log.warning("disk: %s accepted again", what)

    def _misplaced(self) -> ProtocolError | None:
        if self.store.in_place:
            return None
        path = self.config.data_dir
        return ProtocolError(
            "storage",
            "the data directory was moved, replaced or removed under the running broker",
            f"{path} is not the directory that this broker opened and has locked. Move that directory back, or "
            f"restart the broker to use the one at {path}.",
        )

    def _too_full(self) -> ProtocolError | None:
        least = self.config.disk_min_free_bytes
        try:
            facts = os.statvfs(self.config.data_dir)
        except OSError as error:
            log.debug("disk: %s", error)  # the next SEND reports the fault
            return self.broker.files_refused
        free, whole = facts.f_bavail * facts.f_frsize, facts.f_blocks * facts.f_frsize
        self.broker.monitor.set_disk(free, whole)
        if least > whole // 2:  # on a small disk this setting would refuse every message
            least = whole // 16
        if free >= least:
            return None
        return ProtocolError(
            "storage",
            "not enough free disk space to store the message",
            f"At least {least} bytes must be free (disk.min_free in the YAML file), and {free} are; free some space in "
            f"{self.config.data_dir}.",
        )

    @property
    def drain_seconds(self) -> float:
        """The period of ``drain.on_stop``; 0 without one, or without clients to disconnect."""
        return (self.config.drain_on_stop_seconds or 0.0) if self.broker.sessions else 0.0

    def drain(self, seconds: float) -> None:
        """Refuse new clients and disconnect the others. Return when all have left, at the latest after ``seconds``.

        With 0 it does nothing.
        """
        if not seconds:
            return
        draining, now_ns = self.broker.draining, clock.monotonic_ns()
        if draining.active:  # by a request, which may end sooner
            seconds = min(seconds, draining.seconds_left(now_ns))
        draining.begin(seconds, now_ns)
        log.info("%s", readiness.drain_reason(self.broker))
        over = False
        while draining.left and not over:
            gevent.sleep(DRAIN_CHECK_SECONDS)
            over = not draining.seconds_left(clock.monotonic_ns())
            with self.driver.measured(), self.broker.internal_errors:
                self.broker.tick(clock.now())
            self.driver.wake()

    def stop(self) -> None:
        """Stop accepting, sync open batches, send the last frames, and close.

        The time is bounded by STOP_SECONDS_MAX. Messages to new destinations that are not stored by then get no
        receipt.
        """
        start_ns = clock.monotonic_ns()
        notice_ns = clock.MonoNs(start_ns + int(NOTICE_SECONDS_MAX * clock.NS_PER_SECOND))
        end_ns = clock.MonoNs(start_ns + int(STOP_SECONDS_MAX * clock.NS_PER_SECOND))
        self._timer.stop()
        self._heartbeat_timer.stop()
        for listener in self.listeners:
            listener.stop()
        self.broker.begin_stop()
        self.driver.begin_stop()
        self._drain(notice_ns)
        goodbye = ProtocolError("shutting-down", "the broker is stopping", "Connect again in a moment.")
        for transport in list(self.driver.transports.values()):
            transport.refuse(goodbye)
        self._drain(end_ns)
        with gevent.Timeout(GOODBYE_SECONDS_MAX, False):  # type: ignore[arg-type]
            while any(transport.unsent for transport in self.driver.transports.values()):
                gevent.sleep(HEARTBEAT_CHECK_SECONDS)
        for transport in list(self.driver.transports.values()):
            transport.close()
        self._drain(end_ns)
        if self.admin is not None:
            self.admin.stop()
        auth_end_ns = clock.monotonic_ns() + int(AUTH_STOP_SECONDS_MAX * clock.NS_PER_SECOND)
        for thread in self._auth_threads:
            thread.end()
        for thread in self._auth_threads:
            thread.stop(max(auth_end_ns - clock.monotonic_ns(), 0) / clock.NS_PER_SECOND)
        self._acceptor.stop()
        self.driver.stop()
        self.broker.peer_log.summarise()
        given_up = self.store.close(lambda: clock.monotonic_ns() >= end_ns)
        if given_up:
            log.warning(
                "stop: %d messages to new destinations were not stored and got no RECEIPT: %.0f s are over",
                given_up,
                STOP_SECONDS_MAX,
            )

    def _drain(self, end_ns: clock.MonoNs) -> None:
        """Wait until all messages are committed and all acknowledgements are in the journal, or until ``end_ns``."""
        seconds = max(end_ns - clock.monotonic_ns(), 0) / clock.NS_PER_SECOND
        with gevent.Timeout(seconds + HEARTBEAT_CHECK_SECONDS, False):  # type: ignore[arg-type]
            while True:
                self.driver.idle.clear()
                self.driver.wake()
                self.driver.idle.wait()
                if self.broker.pending_bytes <= 0 and not (self.broker.dirty_sources or self.store.dirty):
                    return
                gevent.sleep(0)


def run(
    config: Config,
    *,
    adjust: Callable[[Config], Config] = lambda config: config,
    on_ready: Callable[[list[str]], None] | None = None,
) -> int:
    """Serve until SIGTERM or SIGINT, and return the exit code. A second signal ends the process at once.

    Args:
        config: The configuration.
        adjust: Applies the options of the command line to a configuration that a reload has read.
        on_ready: Called with the URLs of the listeners when clients can connect.

    Raises:
        ConfigError: The configuration cannot be used.
        StorageError: The store cannot be opened.
    """
    logs.install(config.logging)
    gc.set_threshold(*GC_THRESHOLDS)
    supervisor = Supervisor(os.environ)
    app = App(config, adjust, supervisor.reloading)
    with StopSignal() as stop:
        hangup = gevent.signal_handler(signal.SIGHUP, app.reload)
        try:
            addresses = app.start()
            where = ", ".join(addresses)
            log.info("radiator %s (%s) listens on %s, data in %s", __version__, speed.IN_USE, where, config.data_dir)
            gc.freeze()  # a start leaves no cycles; collecting first would take 11 ms, 50 ms with 2,000 partitions
            sys.setswitchinterval(SWITCH_SECONDS)
            if on_ready is not None:
                on_ready(addresses)
            supervisor.started(f"Serving {where}")
            logs.flush()  # write the addresses before the first client is answered
            stop.wait()
            log.info("stopping")
            drain_seconds = app.drain_seconds
            supervisor.stopping(drain_seconds, STOP_SECONDS_MAX + GOODBYE_SECONDS_MAX + AUTH_STOP_SECONDS_MAX)
            app.drain(drain_seconds)
            app.stop()
            counters = {name: count for name, count in app.broker.stats.as_dict().items() if count}
            text = ", ".join(f"{name} {count}" for name, count in counters.items())
            log.info("stopped%s", f": {text}" if text else "", extra={"counters": counters})
            gc.freeze()  # at exit Python would search all objects for cycles: seconds with 30,000 destinations
        finally:
            hangup.cancel()
            supervisor.close()
    return 0


def _arrange_log(config: LoggingConfig, old: LoggingConfig) -> Prepared:
    """Open the file of the log if the configuration of the log is another one, but for levels.

    Raises:
        ConfigError: The file cannot be written.
    """
    if not logs.is_installed() or config == old._replace(level=config.level, levels=config.levels):
        return Prepared(lambda: None, lambda: None)
    new = logs.NewLog(config)
    return Prepared(new.use, new.drop)


def _metrics_of(broker: Broker, data_dir: str) -> Metrics:
    """Return what answers ``/metrics``. A broker without ``admin:`` does not load its library."""
    from radiator.server.prometheus import Exposition

    return Exposition(broker, data_dir)


def _later(seconds: float, what: Callable[[], None]) -> None:
    gevent.spawn_later(seconds, what)
