"""A broker, a producer with receipts and a streaming query over the broker's files; query and broker are killed.

The next query is being started while one runs: a JVM takes seconds. Nothing may remain of a killed one: its processes
are those of its session. ``finish`` kills once more and lets a query read what is left, ``compare`` says what is wrong.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

from radiator.client import Outgoing, connect
from radiator.client.reliable import ReliableSender
from radiator.columns.decode import Counters
from radiator.columns.planning import plan
from radiator.columns.read import read
from radiator.spark.options import parse
from radiator.spark.schema import arrow_schema, select
from tests.running import BrokerProcess

ROOT = Path(__file__).parent.parent.parent
CONFIG = """
destinations:
  - match: /topic/shared.>
    partition: shared
  - match: /topic/>
    segment: {size: 64KiB}
    compress: zstd
"""
PER_RUN, PAUSE_SECONDS = 10, 0.1  # some 100 messages a second
BATCHES_MAX = 4  # of so many that a query begins, the last one is that in which,
BATCH_SECONDS = 1.5  # or behind which, it is killed: so long after its beginning, at most
START_SECONDS = 4.0  # or within this time of a query's
FINISH_SECONDS_MAX = 300.0


class Producer(threading.Thread):
    """Numbers, each to one of ever more destinations; ``stored`` of them have their receipt."""

    def __init__(self, broker: BrokerProcess) -> None:
        super().__init__(daemon=True)
        self.broker, self.stored, self.stopping = broker, 0, threading.Event()
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            sender = ReliableSender(
                lambda policy: connect(f"stomp://{self.broker.address}", reconnect=policy), patience_seconds=60.0
            )
            sent = 0
            while not self.stopping.wait(PAUSE_SECONDS):
                for number in range(sent, sent + PER_RUN):
                    name = f"/topic/shared.{number % 3}" if number % 2 else f"/topic/own.{number // 1000}"
                    sender.send(Outgoing(name, b"%d" % number, {"dedup-id": str(number)}))
                sent += PER_RUN
                sender.flush()
                self.stored = sent
            sender.close()
        except BaseException as error:
            self.error = error


class QueryProcess:
    def __init__(self, store: Path, directory: Path) -> None:
        self._log = (directory / "query.log").open("ab")
        arguments = [str(store), str(directory / "checkpoint"), str(directory / "sink")]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.spark.killed_query", *arguments],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log, text=True, cwd=ROOT,
            env=os.environ | {"PYTHONPATH": str(ROOT)}, start_new_session=True,
        )  # fmt: skip

    def go(self, mode: str = "go") -> None:
        self.wait_for("ready")
        assert self.process.stdin is not None
        self.process.stdin.write(f"{mode}\n")
        self.process.stdin.flush()

    def wait_for(self, word: str) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith(word):
                return
        raise AssertionError(f"the query ended by itself: {Path(self._log.name).read_text(errors='replace')[-3_000:]}")

    def kill(self) -> None:
        """Everything of its session: the JVM, and the Python processes that it has started."""
        while members := _session(self.process.pid):
            for pid in members:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            if self.process.poll() is None:
                self.process.wait()
        self.close()

    def close(self) -> None:
        for stream in (self.process.stdin, self.process.stdout, self._log):
            if stream is not None:
                with contextlib.suppress(BrokenPipeError):
                    stream.close()


def _session(leader: int) -> list[int]:
    """Its processes that are not dead yet."""
    found = []
    for each in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = each.read_text(errors="replace").rpartition(")")[2].split()
            if int(fields[3]) == leader and fields[0] not in "ZX":
                found.append(int(each.parent.name))
    return found


class QueryKilling:
    def __init__(self, directory: Path, seed: int) -> None:
        self.directory, self.random = directory, random.Random(seed)
        (directory / "sink").mkdir()
        self.broker = BrokerProcess(directory, CONFIG)
        self.producer = Producer(self.broker)
        self.query: QueryProcess | None = None
        self.standby: QueryProcess | None = None

    def start(self) -> None:
        self.broker.start()
        self.producer.start()
        self.standby = self._new()
        self._next()

    def _next(self) -> None:
        self.query, self.standby = self.standby, self._new()
        assert self.query is not None
        self.query.go()

    def _new(self) -> QueryProcess:
        return QueryProcess(self.broker.data, self.directory)

    def kill_query(self) -> None:
        self._kill_query()
        self._next()

    def _kill_query(self) -> None:
        assert self.query is not None
        if self.random.random() < 0.2:  # while it starts
            time.sleep(self.random.uniform(0, START_SECONDS))
        else:
            for _ in range(self.random.randint(1, BATCHES_MAX)):
                self.query.wait_for("batch")
            time.sleep(self.random.uniform(0, BATCH_SECONDS))
        self.query.kill()

    def kill_broker(self) -> None:
        assert self.query is not None
        self.query.wait_for("batch")
        time.sleep(self.random.uniform(0, BATCH_SECONDS))
        self.broker.kill()
        self.broker.start()

    def finish(self) -> None:
        """The query is killed once more; the last one reads what is left when all is stored, and ends."""
        self._kill_query()
        self.producer.stopping.set()
        self.producer.join(FINISH_SECONDS_MAX)
        assert self.producer.error is None, self.producer.error
        self.query, self.standby = self.standby, None
        assert self.query is not None
        self.query.go("now")
        self.query.process.communicate(timeout=FINISH_SECONDS_MAX)
        assert self.query.process.returncode == 0, (self.directory / "query.log").read_text(errors="replace")[-3_000:]

    def compare(self) -> dict[str, int]:
        """What the sink has, against the log and the producer. Figures of the run."""
        sink = self.directory / "sink"
        assert not list(sink.glob("different-*")), "a batch that was done again was another batch"
        rows = [json.loads(line) for path in sink.glob("batch-*") for line in path.read_text("utf-8").splitlines()]
        twice = [row for row, count in Counter((row[0], row[1]) for row in rows).items() if count > 1]
        assert not twice, f"doubled in the sink: {twice[:5]} and {len(twice)} in all"
        log = _log_of(str(self.broker.data))
        assert {(row[0], row[1]) for row in rows} == log, "the sink is not the log"
        assert sorted(int(row[2]) for row in rows) == list(range(self.producer.stored)), "not what was receipted"
        begun, done = ((sink / what).read_text().split() for what in ("begun", "done"))
        again = len(begun) - len(set(begun))
        return {"records": len(rows), "batches": len(set(done)), "begun again": again, "done": len(done)}

    def close_queries(self) -> None:
        for query in (self.query, self.standby):
            if query is not None:
                query.kill()
        self.query = self.standby = None

    def close(self) -> None:
        self.producer.stopping.set()
        self.close_queries()
        if self.broker.running:
            self.broker.kill()


def _log_of(store: str) -> set[tuple[str, int]]:
    options = parse({"path": store})
    found = set()
    for task in plan(options):
        for batch in read(task, options, arrow_schema(select(["partition", "offset"])), Counters()):
            found |= {(row["partition"], row["offset"]) for row in batch.to_pylist()}
    return found
