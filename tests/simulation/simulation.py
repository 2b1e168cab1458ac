"""One history from one seed: clients, a network, a broker over a failing disk, and the time.

Everything is drawn from ``Random(seed)``: which client acts, which bytes arrive, how far the broker's turn gets, what
fails and when. So a failing seed fails again, and ``trace`` lists the steps before.

    clients act                  network carries some bytes, cut anywhere, connection by connection in any order
    a connection breaks          the broker's turn goes one step on: take, write one job, sync one job, done, pump
    a checkpoint goes one step on, beside them
    a sync or a write fails      the broker is killed / the power fails / a clean restart, between any two steps
    time passes                  intervals end, segments roll
    a part of the disk fails or is full, clean pages are forgotten, starts end early (``disk_faults``)

In the end the faults stop, the broker starts once more, and last consumers drain the queues.
"""

from __future__ import annotations

import errno
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from random import Random
from unittest.mock import patch

from radiator import limits
from radiator.broker.timers.trusted import TrustedClock
from radiator.clock import NS_PER_SECOND
from radiator.config.load import load_text
from radiator.errors import StorageError
from tests.broker.harness import World
from tests.simulation import dead_letters, deliveries
from tests.simulation.broken import broken
from tests.simulation.casts import CASTS
from tests.simulation.checkers import Checkers, Violation
from tests.simulation.disk_faults import DiskFaults
from tests.simulation.endings import drain
from tests.storage.driving import read_all
from tests.storage.faults import Crash, FaultyFileSystem

STEPS = 1_500
EVENTS = {  # weights
    "act": 280,
    "carry out": 220,
    "turn": 330,
    "checkpoint": 100,
    "pump": 90,
    "memory": 40,
    "reads": 40,
    "maintain": 12,
    "carry in": 200,
    "break": 6,
    "fail": 2,
    "full": 2,
    "room": 4,
    "time": 10,
    "kill": 2,
    "power": 2,
    "restart": 1,
}
FAULTS = ["fdatasync", "fdatasync", "sync_all", "pwritev", "open", "sync_dir", "pread", "open_read"]


class Died(BaseException):
    """The broker was killed during its background maintenance."""


class Simulation:
    """A history. ``cast``: the clients (``casts``). ``broken``: a deliberate bug, for the test of the checkers."""

    def __init__(self, seed: int, broken: str = "", steps: int = STEPS, cast: str = "plain") -> None:
        self.cast = cast
        self.is_recording = seed % 4 == 3 and not CASTS[cast].later
        self.random = Random(seed)
        self.deaths = Random(seed + 2)
        self.power_in = -1  # this many steps
        self.power_after = 0  # this many checkpoints
        self.steps = steps
        self.broken = broken
        self.trace: deque[str] = deque(maxlen=60)
        self.counts: Counter[str] = Counter()
        self.deleted: set[str] = set()  # durable subscriptions, some time
        self.checkers = Checkers(lambda partition: "weak" not in partition and "memory" not in partition)
        fs = FaultyFileSystem(Random(seed + 1))
        fs.short_writes = self.random.random() < 0.2
        self.disk_faults = DiskFaults(fs, Random(seed + 3))
        self.world = World(
            deliveries.recording(CASTS[cast].config) if self.is_recording else CASTS[cast].config,
            fs,
            tail_bytes_max=self.random.choice([1, 20_000, 64 << 20]),
            journal_file_bytes=self.random.choice([1, 5_000, 50_000, 64 << 20]),
        )
        self.passed_bytes_min = self.random.choice([1, 20_000, 1 << 20])
        self.sync_all_logs_min = self.random.choice([1, 3, 256])
        self.clock = TrustedClock()  # what the broker's own has to say
        self.clock.see(self.world.time)
        self.turn: Iterator[str] | None = None
        self.checkpoint: Iterator[str] | None = None
        self.actors = CASTS[cast].meet(self.world, self.random, self.checkers)

    def run(self) -> None:
        """Run the history. Raises Violation with the trace."""
        happen: dict[str, Callable[[], None]] = {
            event: getattr(self, f"_{event.replace(' ', '_')}") for event in EVENTS
        }
        try:
            with (
                broken(self.broken),
                deliveries.noting_deletions(self.deleted),
                patch.object(limits, "SEGMENT_COMMITS", CASTS[self.cast].segment_commits),
                patch.object(limits, "JOURNAL_PASSED_BYTES_MIN", self.passed_bytes_min),
                patch.object(limits, "SYNC_ALL_LOGS_MIN", self.sync_all_logs_min),
                self.disk_faults.sizes(),
            ):
                for step, event in enumerate(self.random.choices(list(EVENTS), list(EVENTS.values()), k=self.steps)):
                    self.power_in -= 1
                    event = "power" if self.power_in == 0 else event
                    if fault := self.disk_faults.happen():
                        self.trace.append(fault)
                        self.counts["disk faults"] += 1
                    self.trace.append(f"{step} {event}")
                    self.counts[event] += 1
                    happen[event]()
                    self.world.check_states()
                self._end()
        except Violation as violation:
            raise Violation(f"{violation}\nbefore that:\n  " + "\n  ".join(self.trace)) from None

    # --- clients and the network --------------------------------------------------------------------------------------

    def _act(self) -> None:
        actor = self.random.choice(self.actors)
        if actor.client is None:
            actor.connect()
            if self.broken == "a window too wide" and actor.client is not None:
                actor.client.session.window.size = 2
        else:
            actor.act()

    def _carry_out(self) -> None:
        waiting = [actor for actor in self.actors if actor.out]
        if waiting:
            actor = self.random.choice(waiting)
            size = len(actor.out)
            actor.carry_out(self.random.choice([size, size, self.random.randrange(1, size + 1)]))

    def _carry_in(self) -> None:
        waiting = [actor for actor in self.actors if actor.expects]
        if waiting:
            self.random.choice(waiting).carry_in(self.random.choice([1 << 20, 1 << 20, 100, 5_000]))

    def _break(self) -> None:
        actor = self.random.choice(self.actors)
        self.trace[-1] += f" {actor}"
        actor.lose()

    # --- the broker ---------------------------------------------------------------------------------------------------

    def _turn(self) -> None:
        if self.turn is None:
            self.turn = self._steps_of_a_turn()
        step = next(self.turn, None)
        if step is None:
            self.turn = None
        else:
            self.trace[-1] += f": {step}"

    def _steps_of_a_turn(self) -> Iterator[str]:
        """Do the work of the driver and the disk thread, with a possible death between any two steps."""
        world = self.world
        jobs = world.take()
        yield f"take {len(jobs)}"
        for job in jobs:
            if self.broken == "acks forgotten" and job.partition is None:
                continue
            job.write()
            yield "write"
        for job in jobs:
            if job.needs_sync and job.error is None:
                job.sync()
                yield "sync"
        yield "told"
        world.completed()
        for client in [each for each in world.clients if each.rest]:
            client.go_on()
        yield "done"

    def _checkpoint(self) -> None:
        if self.checkpoint is None:
            self.checkpoint = self._steps_of_a_checkpoint()
        step = next(self.checkpoint, None)
        if step is None:
            self.checkpoint = None
        else:
            self.trace[-1] += f": {step}"

    def _steps_of_a_checkpoint(self) -> Iterator[str]:
        checkpoints = self.world.store.checkpoints
        checkpoint = checkpoints.take()
        if checkpoint is None:
            return
        self.counts["checkpoints"] += 1
        yield "taken"
        checkpoint.run(threads=1)
        yield "run"
        checkpoints.done(checkpoint)
        self.power_after -= 1
        if not self.power_after:
            self.power_in = 1

    def _finish_turn(self) -> None:
        for _ in self.turn or ():
            pass
        self.turn = None
        for _ in self.checkpoint or ():
            pass
        self.checkpoint = None

    def _memory(self) -> None:
        """Commit messages in memory while the disk is busy."""
        if self.world.jobs:
            self.world.broker.take_finished(self.world.time)

    def _pump(self) -> None:
        self.world.pump()

    def _reads(self) -> None:
        self.world.reads()

    def _maintain(self) -> None:
        """Rewrite a segment while the broker continues, or until it dies."""
        job = self.world.store.maintenance.take()
        if job is None:
            return
        self.counts["maintained"] += 1

        def breathe() -> bool:
            self.random.choice([self._turn, self._carry_out, self._pump, self._reads])()
            if self.random.random() < 0.01:
                raise Died
            return self.random.random() > 0.005

        try:
            job.run(breathe)
        except Died:
            self.random.choice([self._kill, self._power])()
        else:
            self.world.broker.maintenance_done(job, self.world.time)

    # --- what goes wrong ----------------------------------------------------------------------------------------------

    def _fail(self) -> None:
        verb = self.random.choice(FAULTS)
        self.trace[-1] += f" {verb}"
        error = self.random.choice([errno.EIO, errno.EIO, errno.ENOSPC]) if verb in ("pwritev", "open") else errno.EIO
        self.world.fs.fail(verb, self.random.randrange(1, 4), error)

    def _full(self) -> None:
        """Fill the disk, except for some bytes."""
        self.world.fs.fill(self.random.choice([0, 0, 50, 300, 20_000]))

    def _room(self) -> None:
        self.world.fs.capacity = None

    def _time(self) -> None:
        world = self.world
        self._shows()
        world.broker.timing.see(world.time)  # a broker ticks once a second, also one that has just started
        world.now += int(self.random.choice([0.01, 1, 5, 40_000, 400_000, -3_600]) * NS_PER_SECOND)
        step = self.random.choice([0, 0, 0, 0, 0.5, 120, 40_000, 365 * 86_400])
        world.step(step)
        self._shows()
        world.broker.tick(world.time)
        if step and self.random.random() < 0.5:  # the clock is put right soon
            world.now += NS_PER_SECOND
            self._shows()
            world.broker.tick(world.time)
            world.step(-step)
            self._shows()
            world.broker.tick(world.time)

    def _shows(self) -> None:
        self.checkers.moments.shows(self.world.now, self.clock.see(self.world.time).wall)

    def _kill(self) -> None:
        self._dies()
        self._starts()

    def _power(self) -> None:
        self._dies()
        self._room()  # a full disk is for those that go on
        self._starts(power_cut=True)

    def _restart(self) -> None:
        self._finish_turn()
        for actor in self.actors:
            actor.lose()
        self.world.settle()
        try:
            self.world.store.close()
        except StorageError as error:  # a log has failed: it says so, and what was promised is there all the same
            self.trace.append(str(error))
        self._dies()
        self._starts()

    def _starts(self, power_cut: bool = False) -> None:
        """Start the broker, after attempts that do not get so far. ``power_cut``: the power has failed."""
        self._other_rules()
        cuts = [power_cut]
        for _ in range(self.disk_faults.starts_that_end()):
            self._after(cuts[-1])
            self.trace.append(f"a start: {self.disk_faults.spoil_start()}")
            try:
                self.world.start()
            except Crash:
                self.counts["starts killed"] += 1
                cuts.append(self.disk_faults.power_fails_now())
            except StorageError as error:
                self.trace.append(str(error))
                cuts.append(False)
            else:
                cuts.append(False)
        self._after(cuts[-1])
        try:
            self.world.start()
        except StorageError as error:  # a start needs room
            self.trace.append(str(error))
            self._room()
            self._after(power_cut=False)
            self.world.start()
        self._started(any(cuts))

    def _after(self, power_cut: bool) -> None:
        if power_cut:
            self.world.fs.power_cut()
        else:
            self.world.fs.kill()

    def _other_rules(self) -> None:
        """Draw the rules of the next start."""
        if later := CASTS[self.cast].later:
            self.world.config = load_text(self.random.choice(later))

    def _started(self, power_cut: bool) -> None:
        if self.broken == "ids forgotten":
            for partition in self.world.store.partitions.values():
                partition.dedup = partition.dedup_file = None
        power_cut |= self.disk_faults.evicted  # which takes no more than that
        self.disk_faults.evicted = False
        self.checkers.died(power_cut)
        self.clock = TrustedClock()
        self._shows()
        self.checkers.started(self.world.store, power_cut)
        dead_letters.check(self.world.store, self.checkers)
        if self.is_recording:
            self.counts["rows"] = deliveries.check(self.world.store, self.checkers, self.deleted)

    def _dies(self) -> None:
        """Kill the broker, between two steps or in the middle of one."""
        steps = self.random.choice([self.turn, self.turn, self.checkpoint, None])
        if self.deaths.random() < 0.3:
            self._dies_of_a_sync()
        elif steps is not None:
            self.world.fs.crash_at(self.random.randrange(1, 6))
            with suppress(Crash):
                self.trace[-1] += f": in the middle of {next(steps, 'the last step')}"
        self.turn = self.checkpoint = None
        for actor in self.actors:
            actor.broker_died()

    def _dies_of_a_sync(self) -> None:
        """A sync fails, and the broker is killed before it learns of it. The power fails soon."""
        verb, under = self.deaths.choice([("fdatasync", "/journal/"), ("fdatasync", ".rlog"), ("sync_all", "")])
        self.world.fs.fail(verb, under=under, fatal=True)
        with suppress(Crash):
            self._finish_turn()
            for _ in self._steps_of_a_checkpoint():
                pass
            self.trace[-1] += f": before {verb} could fail"
        self.power_after = self.deaths.choice([0, 0, 1, 2, 3])
        self.power_in = -1 if self.power_after else self.deaths.randrange(1, 60)

    # --- the end ------------------------------------------------------------------------------------------------------

    def _end(self) -> None:
        self.trace.append("the end")
        self._room()
        self.random.choice([self._kill, self._power, self._restart])()
        world, checkers = self.world, self.checkers
        waiting = {
            checkers.known_by(name, offset, body)
            for name, partition in world.store.partitions.items()
            if name.startswith("/queue/")
            for offset, body in read_all(partition).items()
        }
        self.counts["buried"] = dead_letters.check(world.store, checkers)
        self.counts["messages"] = sum(partition.high_watermark for partition in world.store.partitions.values())
        self.counts["segments"] = sum(len(partition.segments) for partition in world.store.partitions.values())
        self.counts["settled"] = len(checkers.settled)
        self.counts["promised"] = sum(map(len, checkers.promised.values())) + len(checkers.kept)
        drained = drain(world, checkers, len(waiting), choosy=self.cast == "choosy")
        self._shows()
        checkers.at_the_end([checkers.of(message) for message in drained], waiting)
        for actor in self.actors:
            actor.at_the_end()
        self.counts += checkers.counts
        world.holds_nothing()
