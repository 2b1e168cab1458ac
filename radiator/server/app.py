"""Run the application: configuration, store, broker, driver and listeners, from the start to a clean stop."""

from __future__ import annotations

import gc
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable
from functools import partial

import gevent

from radiator import __version__, clock, console, limits, speed
from radiator.broker.admin import readiness
from radiator.broker.broker import Broker
from radiator.broker.headers.send import identify
from radiator.config import Config
from radiator.errors import ProtocolError
from radiator.memory import MemoryAccount
from radiator.routing.rules import Rules
from radiator.server import descriptors, logs
from radiator.server.acceptor import Acceptor
from radiator.server.addresses import is_public
from radiator.server.admin import Admin, Answer, Render
from radiator.server.auth import Authenticator, Submit
from radiator.server.certificates import LOOK_SECONDS, Certificates
from radiator.server.driver import Driver
from radiator.server.hooks import load_hooks, register_schemas
from radiator.server.listener import ConsoleListener, Listener
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
# Limits of a stop, because docker kills the process after 10 s. Work that takes longer is dropped and logged.
STOP_SECONDS_MAX = 6.0  # to store open batches
NOTICE_SECONDS_MAX = 3.0  # of these, until clients get the ERROR
AUTH_STOP_SECONDS_MAX = 1.0  # for logins in progress, all threads together, because a plug-in may hang
GOODBYE_SECONDS_MAX = 3.0  # for the last frames to slow readers


class App:
    """The broker of one process: call ``start``, let the event loop run, then call ``stop``.

    Args:
        config: The configuration.

    Raises:
        ConfigError: The configuration, a plug-in, a schema or a users file cannot be used.
        StorageError: The store cannot be opened.
    """

    def __init__(self, config: Config) -> None:
        self.config = config
        self.rules = Rules(config)
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
        self.driver.attach(self.broker, TICK_SECONDS)
        self.listeners: list[Listener] = []
        self.admin: Admin | None = None
        self.certificates = Certificates()
        self.authenticator: Authenticator | None = None
        self._auth_threads: list[Worker] = []
        self._next_look_ns = 0
        self._trimming = Trimming(self.store.memory, self.driver.run_in_background)
        self._acceptor = Acceptor(config, self.broker, self.driver, available.connections)
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
            self._start_authentication()
            for listen in self.config.listen:
                certificate = self.certificates.of(listen, self.config.tls)
                limits = self.config.limits
                frame_bytes_max = limits.headers + limits.message
                self.listeners.append(Listener(listen, self._acceptor.accept, certificate, frame_bytes_max))
            if self.config.admin is not None:
                endpoints = {"/health": self._health, "/ready": self._ready, "/stats": self._stats}
                metrics = _metrics_of(self.broker, self.config.data_dir)
                upgrade = partial(self._accept_console, ConsoleListener(console.STOMP_PATH))
                self.admin = Admin(self.config.admin, self.config.admin_hosts, endpoints, metrics, upgrade)
        except BaseException:
            self.stop()
            raise
        for listener in self.listeners:
            listener.start()
        if self.admin is not None:
            self.admin.start()
            log.info("admin: %s", self.admin.url)
        self._timer.start(self._tick)
        self._heartbeat_timer.start(self.driver.check_heartbeats)
        return [listener.url for listener in self.listeners]

    def _start_authentication(self) -> None:
        """Create the authenticator from ``auth:``, and warn about listeners that other machines can reach.

        Raises:
            ConfigError: The users file or the plug-in cannot be loaded.
        """
        auth = self.config.auth

        def threads(name: str, count: int) -> list[Submit]:
            started = [Worker(f"radiator-{name}-{number}") for number in range(count)]
            self._auth_threads += started
            return [thread.submit for thread in started]

        verify = threads("auth", 1 if auth.has_users else 0)
        plugin = threads("plugin", 0 if auth.plugin is None else limits.PLUGIN_CALLS_MAX)
        look = (
            threads("users", 1)[0] if auth.users_file is not None else None
        )  # a thread of its own, not delayed by logins
        changed, peer_log = self._users_changed, self.broker.peer_log
        authenticator = Authenticator(
            auth, verify, plugin, _later, clock.monotonic_ns, changed, look, peer_log=peer_log
        )
        self.authenticator = authenticator
        self.broker.access.use(authenticator)
        public = [str(each) for each in self.config.listen if each.host and is_public(each.host)]
        if self.config.admin is not None and is_public(self.config.admin.host):
            public.append(str(self.config.admin))
        if public and auth.anonymous == "always":
            log.warning(
                "auth.anonymous is always: without a login, clients that reach %s may do %s",
                ", ".join(public),
                "what the users file grants to anonymous" if auth.has_users else "everything",
            )
        elif public and not auth.has_users:
            log.warning(
                "%s can be reached from other machines, but there are no users: clients from other machines are "
                "refused (set auth.users_file; auth.anonymous: always gives every client all rights)",
                ", ".join(public),
            )

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
        return 200, {"version": __version__, **readiness.figures(self.broker)}

    def reload(self) -> None:
        """Read certificates and users again (SIGHUP). The rest of the configuration is read at the start only."""
        if self.authenticator is not None:
            self.authenticator.reload()
        log.warning(
            "SIGHUP: %d certificates, and the users, are read again; the rest of the configuration is read at a start "
            "only",
            len(self.certificates),
        )
        self.driver.run_in_background(self.certificates.reload)

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
    log_level: str = "info",
    log_json: bool = False,
    on_ready: Callable[[list[str]], None] | None = None,
) -> int:
    """Serve until SIGTERM or SIGINT, and return the exit code. A second signal ends the process at once.

    Args:
        config: The configuration.
        log_level: The lowest level that is logged.
        log_json: Log a JSON object per line instead of text.
        on_ready: Called with the URLs of the listeners when clients can connect.

    Raises:
        ConfigError: The configuration cannot be used.
        StorageError: The store cannot be opened.
    """
    logs.install(log_level, as_json=log_json)
    gc.set_threshold(*GC_THRESHOLDS)
    supervisor = Supervisor(os.environ)
    app = App(config)

    def reload() -> None:
        with supervisor.reloading():
            app.reload()

    with StopSignal() as stop:
        hangup = gevent.signal_handler(signal.SIGHUP, reload)
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
            supervisor.stopping()
            app.stop()
            counters = {name: count for name, count in app.broker.stats.as_dict().items() if count}
            log.info("stopped%s", f": {counters}" if counters else "", extra={"counters": counters})
            gc.freeze()  # at exit Python would search all objects for cycles: seconds with 30,000 destinations
        finally:
            hangup.cancel()
            supervisor.close()
    return 0


def _metrics_of(broker: Broker, data_dir: str) -> Render:
    """Return the function that renders ``/metrics``. A broker without ``admin:`` does not load its library."""
    from radiator.server.prometheus import Exposition

    return Exposition(broker, data_dir).render


def _later(seconds: float, what: Callable[[], None]) -> None:
    gevent.spawn_later(seconds, what)
