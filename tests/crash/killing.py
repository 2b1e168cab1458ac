"""A real broker under the load of ``tests/crash/clients.py``, killed again and again over the same data.

After each kill the judge compares. The data and the records are kept if it finds something, and the error says where;
the seed reproduces what clients and killer decide, but not the timing of two processes.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.crash import clients
from tests.crash.judge import Judge
from tests.running import BrokerProcess

ROLES = ("producer1", "producer2", "consumer1", "consumer2", "gatherer1", "mover1", "mover2", "reader1")
LOAD_SECONDS = (0.05, 0.7)
ROUNDS_MAX = 100
START_SECONDS_MAX = 0.3  # in which a starting broker is killed
STOP_SECONDS_MAX = 0.05  # the same for one that is stopping
ROOT = Path(__file__).parent.parent.parent


def new_seed() -> int:
    """Another one each time, unless ``RADIATOR_SEED`` says which."""
    return int(os.environ.get("RADIATOR_SEED", 0)) or random.SystemRandom().randrange(1, 1 << 31)


class Kept(AssertionError):
    """What was found, and where the evidence is."""


class Killing:
    """One data directory from birth to its last comparison; a context manager. ``kills`` counts."""

    def __init__(self, policy: str, seed: int, program: Sequence[str] = ("radiator",)) -> None:
        self.policy, self.seed = policy, seed
        self.random = random.Random(f"{seed}{policy}")
        self.directory = Path(tempfile.mkdtemp(prefix="radiator-kill-"))
        self.broker = BrokerProcess(self.directory, clients.CONFIG.format(policy=policy))
        self.broker.program = list(program)
        self.judge = Judge(self.directory)
        self.kills = self.rounds = 0
        self.clients = subprocess.Popen(
            [sys.executable, "-m", "tests.crash.clients", str(self.directory), *ROLES],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
        )  # fmt: skip

    def __enter__(self) -> Killing:
        try:
            self.broker.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
        if not isinstance(error, Exception):
            shutil.rmtree(self.directory)
            return
        raise Kept(
            f"seed {self.seed}, fsync {self.policy}, after {self.kills} kills: {error}\n"
            f"data and records are kept in {self.directory}; the broker's log ends so:\n{self.broker.text()[-2_000:]}"
        ) from error

    def close(self) -> None:
        if self.broker.running:
            self.broker.kill()
        self.clients.kill()
        self.clients.communicate()

    # --- rounds -------------------------------------------------------------------------------------------------------

    def run(self, rounds: int) -> None:
        """So many rounds: load, kill, perhaps a kill of the start or of the stop, start, compare."""
        for _ in range(rounds):
            self.run_into_a_kill()
            if self.rounds % 3 == 0:
                self.kill_a_start()
            self.broker.start()
            self.judge.look(self.broker)

    def run_into_a_kill(self) -> None:
        """Load, and a kill under it; every fourth time while the broker stops."""
        self.rounds += 1
        self.begin_load()
        time.sleep(self.random.uniform(*LOAD_SECONDS))
        if self.rounds % 4 == 0:
            self.broker.process.terminate()  # type: ignore[union-attr]
            time.sleep(self.random.uniform(0, STOP_SECONDS_MAX))
        self.kill()
        self.end_load()

    def begin_load(self) -> None:
        command: dict[str, Any] = {"port": self.broker.port, "round": self.rounds, "seed": self.seed}
        assert self.clients.stdin is not None
        self.clients.stdin.write(json.dumps({**command, "ends": self.judge.ends}) + "\n")
        self.clients.stdin.flush()

    def end_load(self) -> None:
        assert self.clients.stdout is not None
        text = self.clients.stdout.readline().strip()
        assert text == "ended", text.replace("\r", "\n") or "the clients are gone"

    def kill(self) -> None:
        self.broker.kill()
        self.kills += 1

    def kill_a_start(self) -> None:
        """Somewhere in the first moments; every other time just when it has begun with the data."""
        self.broker.spawn()
        if self.rounds % 2:
            time.sleep(self.random.uniform(0, START_SECONDS_MAX))
        else:
            lock = self.broker.data / "LOCK"
            while lock.read_text().strip() != str(self.broker.pid):
                assert self.broker.running
            time.sleep(self.random.uniform(0, STOP_SECONDS_MAX))
        self.kill()

    def finish(self) -> None:
        """A clean stop and start, and everything compared once more; before that, more rounds if little happened."""
        while not self.eventful:
            assert self.rounds < ROUNDS_MAX, f"little happened: {self.judge.counts}"
            self.run(1)
        assert self.broker.stop() == 0
        self.broker.start()
        self.judge.finish(self.broker)
        assert self.broker.stop() == 0
        assert "Traceback" not in self.broker.text()
        checked = subprocess.run(
            [sys.executable, "-m", "radiator", "fsck", "--data", str(self.broker.data)],
            capture_output=True, text=True, cwd=ROOT,
        )  # fmt: skip
        assert checked.returncode == 0, checked.stdout + checked.stderr

    @property
    def eventful(self) -> bool:
        """Everything that clients do has been done, and logs were rolled: otherwise all this says little."""
        segments = len(list(self.broker.data.glob("partitions/*/*.rlog")))
        kinds = ("stored", "seen", "got", "acked", "back", "committed", "aborting")
        return segments > len(self.judge.logs) and all(self.judge.counts[kind] for kind in kinds)

    @property
    def summary(self) -> str:
        told = ", ".join(f"{count} {kind}" for kind, count in sorted(self.judge.counts.items()))
        return f"fsync {self.policy}: {self.kills} kills, {len(self.judge.places)} messages; {told}"
