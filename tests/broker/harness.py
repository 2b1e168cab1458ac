"""The broker without sockets, threads and clocks: what ``radiator.server`` does, one visible step at a time.

A ``World`` is a broker over a store, on a file system in memory that can fail (or the real one), and a clock that
stands still. A ``Client`` is both ends of one connection: bytes that it says go through the real ``ServerConnection``
into ``Broker.handle``; bytes that the broker sends come back through the real ``ClientConnection`` as frames.

    say -> [take -> write -> sync -> completed] -> reads -> pump -> flush -> heard

``settle()`` does all of it until nothing moves any more; tests that care about what happens in between take the steps
themselves. Nothing here decides anything: what is not a broker's business in ``server/transport`` is not here either.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache
from itertools import count
from typing import Any

from radiator.broker.broker import SETTLE_INTERVAL_NS, Broker
from radiator.broker.clients.identity import Identity
from radiator.broker.clients.session import Session
from radiator.broker.headers.send import identify
from radiator.broker.internal_errors import InternalErrors
from radiator.broker.queues.queue import is_exhausted
from radiator.clock import NS_PER_SECOND, MonoNs, Now, WallNs
from radiator.config import Config, LimitsConfig
from radiator.config.load import load_text
from radiator.memory import MemoryAccount
from radiator.routing.rights import EVERYTHING, Rights
from radiator.routing.rules import Rules
from radiator.stomp.connection import ClientConnection, ServerConnection
from radiator.stomp.encoder import encode
from radiator.stomp.frames import Frame
from radiator.stomp.parser import ParserLimits, new_caches
from radiator.storage.store import Store
from tests.clocks import both
from tests.storage.faults import FaultyFileSystem

NOW = 1_700_000_000 * NS_PER_SECOND
TURNS_MAX = 10_000  # more turns than any test needs: it does not come to rest


@cache
def _loaded(text: str) -> Config:
    """The configuration, which is frozen: most tests have the default one."""
    return load_text(text)


class Loud(InternalErrors):
    """What nobody foresaw fails the test, unless it is about that (``World.forgiving``)."""

    def found(self, error: Exception) -> None:
        raise error


class Client:
    """One connection, both ends of it. ``heard`` frames are kept in ``inbox`` until they are asked for."""

    def __init__(self, world: World, version: str = "1.2", **headers: str) -> None:
        self.world = world
        number = next(world.numbers)
        self.session: Session = world.broker.connect(f"s{number}", f"{number:032x}", "test")
        self.server = ServerConnection(world.parser_limits, world.caches, (0, 0))
        self.end = ClientConnection(versions=(version,))
        self.inbox: list[Frame] = []
        self.rest: list[Frame] = []
        self.wire = b""  # sent by the broker, not yet taken by the client
        self.raw = b""  # everything ever received
        world.clients.append(self)
        self.version = version
        self.connect_headers = headers

    # --- saying -------------------------------------------------------------------------------------------------------

    def say(self, command: str, body: bytes | str = b"", /, receipt: str | None = None, **headers: Any) -> None:
        """One frame; ``_`` in names of headers stands for ``-``."""
        pairs = [(name.rstrip("_").replace("_", "-"), str(value)) for name, value in headers.items()]
        if receipt is not None:
            pairs.append(("receipt", receipt))
        data = body.encode() if isinstance(body, str) else body
        self.say_bytes(encode(command, pairs, data, "1.0" if command in ("CONNECT", "STOMP") else self.version))

    def say_bytes(self, data: bytes) -> None:
        """Bytes as they come from a socket: what ``Transport`` does with them."""
        session = self.session
        frames = self.server.receive(data)
        if frames and not session.closing:
            if not session.connected and self.server.version is not None:
                session.version = self.server.version
            self.rest += frames
            self.go_on()
        if self.server.failed is not None and not session.closing and not self.rest:
            self.world.broker.refuse(session, self.server.failed, self.server.failed_receipt)

    def go_on(self) -> bool:
        """Frames whose turn had not come, because those before them were much work, or had to wait; False if there are
        none, or all still wait."""
        frames, self.rest = self.rest, []
        if frames and not self.session.closing:
            self.rest = self.world.broker.handle(self.session, frames, self.world.time)
            return self.session.closing or self.session.command.at_once or len(self.rest) < len(frames)
        return False

    def open(self) -> Client:
        """CONNECT, and take CONNECTED."""
        self.say("CONNECT", accept_version=self.version, host="test", **self.connect_headers)
        self.flush()
        assert self.take("CONNECTED")
        return self

    def subscribe(self, destination: str, id: str = "0", ack: str = "client-individual", **headers: Any) -> None:
        self.say("SUBSCRIBE", destination=destination, id=id, ack=ack, **headers)

    def publish(self, destination: str, *bodies: str | bytes, **headers: Any) -> None:
        for body in bodies:
            self.say("SEND", body, destination=destination, **headers)

    def ack(self, message: Frame, command: str = "ACK", **headers: Any) -> None:
        if self.version == "1.2":
            self.say(command, id=message.headers["ack"], **headers)
        else:
            named = {key.replace("-", "_"): message.headers[key] for key in ("message-id", "subscription")}
            self.say(command, **named, **headers)

    def nack(self, message: Frame, **headers: Any) -> None:
        self.ack(message, "NACK", **headers)

    def become(self, user: str = "", rights: Rights = EVERYTHING) -> None:
        """The client is this user from now on, whoever has logged in."""
        self.session.identify(Identity(user, rights, "users"))

    def drop(self) -> None:
        """The connection is gone, and what was under way to the client with it."""
        self.world.broker.disconnect(self.session)

    # --- hearing ------------------------------------------------------------------------------------------------------

    def flush(self, most: int | None = None) -> int:
        """The socket takes what the session has, or only ``most`` bytes of it."""
        self.wire += b"".join(self.session.outbox.take())
        data, self.wire = (self.wire, b"") if most is None else (self.wire[:most], self.wire[most:])
        if data:
            self.raw += data
            self.world.broker.flushed(self.session, len(data))
            self.inbox += self.end.receive(data)
            assert self.end.failed is None, self.end.failed
        return len(data)

    def take(self, command: str | None = None) -> list[Frame]:
        """The frames heard (of that command), which leave the inbox."""
        self.flush()
        taken = [frame for frame in self.inbox if command in (None, frame.command)]
        self.inbox = [frame for frame in self.inbox if command not in (None, frame.command)]
        return taken

    def messages(self) -> list[Frame]:
        return self.take("MESSAGE")

    def bodies(self) -> list[str]:
        """Bodies of the messages heard."""
        return [frame.body.decode() for frame in self.messages()]

    def receipts(self) -> list[str]:
        return [frame.headers["receipt-id"] for frame in self.take("RECEIPT")]

    def error(self) -> str:
        """The code of the ERROR that was heard; the connection must be on its way out."""
        (frame,) = self.take("ERROR")
        assert self.session.closing
        return frame.headers["error-code"]


class World:
    """A broker, its store and its clients, and the time."""

    def __init__(
        self,
        config: str = "",
        fs: Any = None,
        root: str = "/data",
        limits: LimitsConfig | None = None,
        **store_options: Any,
    ) -> None:
        self.config: Config = _loaded(config)
        self.fs: Any = fs if fs is not None else FaultyFileSystem()
        self.root = root
        self._time = both(NOW)
        self.numbers = count(1)
        self.clients: list[Client] = []
        self.jobs: list[Any] = []
        self.parser_limits = ParserLimits(
            body_bytes_max=self.config.limits.message,
            header_block_bytes_max=self.config.limits.headers,
            header_count_max=self.config.limits.header_count,
        )
        self.limits = limits
        self.store_options = store_options
        self.pump_hook: Callable[[], None] | None = None
        self.start()

    # --- time ---------------------------------------------------------------------------------------------------------

    @property
    def time(self) -> Now:
        """Both clocks."""
        return self._time

    @property
    def now(self) -> WallNs:
        """The wall clock. Set to a later moment, time has passed; set to an earlier one, the wall clock has stepped."""
        return self._time.wall

    @now.setter
    def now(self, wall_ns: int) -> None:
        passed_ns = max(0, wall_ns - self._time.wall)
        self._time = Now(WallNs(wall_ns), MonoNs(self._time.mono + passed_ns))

    def step(self, seconds: float) -> None:
        """The wall clock steps: no time passes."""
        self._time = Now(WallNs(self._time.wall + int(seconds * NS_PER_SECOND)), self._time.mono)

    def wall_at(self, mono_ns: int) -> int:
        """What the wall clock will show when the monotonic clock shows ``mono_ns``, if it does not step."""
        return self._time.wall + mono_ns - self._time.mono

    def until(self, mono_ns: int) -> None:
        """Time passes until the monotonic clock shows ``mono_ns``."""
        self.now = max(self.now, self.wall_at(mono_ns))

    # --- life and death -----------------------------------------------------------------------------------------------

    def start(self) -> None:
        """A broker starts over what is on the disk."""
        self.caches = new_caches()
        self.clients.clear()
        self.jobs.clear()
        memory = MemoryAccount(self.config.limits.memory)
        self.store = Store(self.root, self.fs, identify=identify, memory=memory, **self.store_options)
        self.notes = self.store.open(self.time)
        self.woken: dict[Session, None] = {}
        self.broker = Broker(Rules(self.config), self.store, lambda session: self._woken(session))
        self.broker.internal_errors = Loud(self.broker.stats)
        if self.limits is not None:
            self.broker.session_limits = self.limits

    def _woken(self, session: Session) -> None:
        self.woken[session] = None

    def forgiving(self) -> None:
        """Behave as in earnest towards exceptions that nobody foresaw."""
        self.broker.internal_errors = InternalErrors(self.broker.stats)

    def stop(self) -> None:
        """A clean stop."""
        self.settle()
        for client in list(self.clients):
            client.drop()
        self.settle()
        self.store.close()

    def restart(self) -> None:
        self.stop()
        self.start()

    def kill(self) -> None:
        """SIGKILL, then a start: what was written is there, synced or not."""
        self.fs.kill()
        self.start()

    def power_cut(self) -> None:
        """The machine loses power, then a start: only what was synced is sure to be there."""
        self.fs.power_cut()
        self.start()

    def connect(self, version: str = "1.2", **headers: str) -> Client:
        return Client(self, version, **headers).open()

    # --- the steps of a turn ------------------------------------------------------------------------------------------

    def take(self) -> list[Any]:
        """The group of disk work of this turn."""
        assert not self.jobs, "one group at a time"
        self.jobs = self.broker.take(self.time)
        return self.jobs

    def write(self) -> None:
        for job in self.jobs:
            job.write()

    def sync(self) -> None:
        for job in self.jobs:
            if job.needs_sync and job.error is None:
                job.sync()

    def completed(self) -> None:
        jobs, self.jobs = self.jobs, []
        self.broker.completed(jobs, self.time)

    def commit(self) -> bool:
        """Take, write, sync, completed; False if there was nothing."""
        self.take()
        worked = bool(self.jobs)
        self.write()
        self.sync()
        self.completed()
        return worked

    def reads(self) -> bool:
        """Run the cold reads that were asked for."""
        reads = self.broker.take_reads()
        for read in reads:
            if not read.job.finished:
                read.run()
            self.broker.read_done(read)
        return bool(reads)

    def checkpoint(self) -> bool:
        """Make the checkpoint that is due."""
        checkpoint = self.store.checkpoints.take()
        if checkpoint is not None:
            checkpoint.run(threads=1)
            self.store.checkpoints.done(checkpoint)
        return checkpoint is not None

    def pump(self) -> bool:
        busy: bool = self.broker.ready.busy
        self.broker.ready.pump()
        return busy

    def flush(self) -> bool:
        sent = [client.flush() for client in self.clients]
        return any(sent)

    def settle(self) -> None:
        """Turns, until nothing moves any more."""
        for _ in range(TURNS_MAX):
            worked = self.commit()
            worked |= self.broker.dead_letters.waiting or bool(self.broker.background.waiting)
            worked |= self.checkpoint()
            worked |= self.reads()
            worked |= self.pump()
            worked |= self.flush()
            worked |= sum(client.go_on() for client in self.clients if client.rest) > 0
            if not worked and self._waits_for_another():
                self.until(self.broker.timing.next_ns)
                self.broker.tick(self.time)
                continue
            if not worked and not self.broker.dirty_sources:
                self.nothing_is_overlooked()
                nobodys = self.check_states()  # a broker that stops returns nothing any more
                assert nobodys == 0 or self.broker.stopping, "a message is in flight, and no consumer has it"
                return
            if not worked:  # acks that are being gathered: the shell has a timer for them
                self.now += SETTLE_INTERVAL_NS
        raise AssertionError("the broker does not come to rest")

    def _waits_for_another(self) -> bool:
        """Whether a consumer is held back for a moment, for the sake of another: the shell has a timer for that."""
        return any(queue.shares is not None and queue.shares.waiting for queue in self._queues())

    def _queues(self) -> list[Any]:
        queues = [each.queue for each in self.broker.destinations.values() if each.queue is not None]
        return queues + [named.queue for named in self.broker.durable.by_key.values()]

    def tick(self, seconds: float = 1.0) -> None:
        """Time passes, and what that brings is done."""
        self.now += int(seconds * NS_PER_SECOND)
        self.broker.tick(self.time)
        self.settle()

    def maintain(self, seconds: float = 20) -> int:
        """Time passes, and the background work that it brings is done; how many jobs."""
        self.tick(seconds)
        jobs = 0
        while (job := self.store.maintenance.take()) is not None:
            job.run(lambda: True)
            self.broker.maintenance_done(job, self.time)
            self.settle()
            jobs += 1
        return jobs

    # --- looking ------------------------------------------------------------------------------------------------------

    def nothing_is_overlooked(self) -> None:
        """Whatever has something to hand out is where its queue looks."""
        for queue in self._queues():
            for source in queue.sources:
                others = source.idle and not source.returned and source.skipped is None
                assert is_exhausted(source) or others or source in queue.ready_list, queue.name

    def check_states(self) -> int:
        """Check that every message of every queue is in exactly one state.

        Returns the number of messages in flight that no consumer has: their answer is under way.
        """
        held: dict[Any, list[int]] = {}
        for session in self.broker.sessions.values():
            for subscription in session.subscriptions.by_id.values():
                for source, offset, _ in subscription.in_flight.values():
                    held.setdefault(source, []).append(offset)
            for run in session.outbox.auto_acks:
                held.setdefault(run.source, []).extend(run.offsets)
        return sum(source.check_states(held.get(source, ())) for queue in self._queues() for source in queue.sources)

    def holds_nothing(self) -> None:
        """What must be true when every client is gone: nobody is forgotten anywhere."""
        broker = self.broker
        assert not broker.sessions
        for destination in broker.destinations.values():
            names = sum(destination in named.destinations for named in broker.durable.by_key.values())
            assert destination.subscribers == names, destination.name
            for feed in destination.feeds:
                assert not feed.readers, destination.name
            if destination.queue is not None:
                assert not destination.queue.consumers, destination.name


def bodies(frames: Iterable[Frame]) -> list[str]:
    return [frame.body.decode() for frame in frames]
