"""A worker on the queue of late flights, with stomp.py: it does a job, writes it to its journal, and acknowledges it.

    python -m examples.flights.worker --port 61613 --name ann > ann.jsonl

With ``ack: client-individual`` and the rule's ``prefetch: 10`` it has up to ten jobs in flight. If it dies, the broker
delivers them to another worker, marked ``redelivered``. stdout is its journal: one line per job, written *before*
the acknowledgement. So no job is lost, and a job may be done twice after a crash, marked in the journal. Its name is
its client id, by which the table of deliveries calls it.

If the broker ends, the worker connects again. SIGTERM ends it after the current job.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import signal
import threading
import time

import stomp

from examples.flights.publisher import RETRY_SECONDS

QUEUE = "/queue/delays"


class Worker(stomp.ConnectionListener):
    """One connection of the worker; ``over`` is set when it is lost."""

    def __init__(self, connection: stomp.Connection12, seconds: float) -> None:
        self.connection = connection
        self.seconds = seconds
        self.over = threading.Event()

    def on_message(self, frame: stomp.utils.Frame) -> None:
        if self.over.is_set():
            return  # from a lost connection: the broker delivers it again
        flight = json.loads(frame.body)
        time.sleep(self.seconds)  # the job: rebook the passengers
        journal = {
            "message": frame.headers["message-id"],
            "id": flight["id"],
            "redelivered": frame.headers.get("redelivered") == "true",
            "count": int(frame.headers.get("delivery-count", 1)),
        }
        os.write(1, json.dumps(journal).encode() + b"\n")
        try:
            self.connection.ack(frame.headers["ack"])
        except (stomp.exception.StompException, OSError, AttributeError):
            self.over.set()  # the broker has ended; it will redeliver what is not acknowledged

    def on_disconnected(self) -> None:
        self.over.set()


def serve(port: int, name: str, seconds: float, stop: threading.Event) -> None:
    """Work on one connection until it is lost, or ``stop``."""
    connection = stomp.Connection12([("127.0.0.1", port)], reconnect_attempts_max=1)
    worker = Worker(connection, seconds)
    connection.set_listener("worker", worker)
    connection.connect(wait=True, headers={"client-id": name})
    connection.subscribe(QUEUE, id="1", ack="client-individual")
    while not worker.over.wait(RETRY_SECONDS):
        if stop.is_set():
            connection.disconnect()
            worker.over.wait(5)
            return


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port", type=int, default=61613)
    parser.add_argument("--name", default=f"worker-{os.getpid()}")
    parser.add_argument("--seconds", type=float, default=0.002, help="what a job takes")
    options = parser.parse_args()
    logging.getLogger("stomp.py").setLevel(logging.CRITICAL)

    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    while not stop.is_set():
        try:
            serve(options.port, options.name, options.seconds, stop)
        except (stomp.exception.StompException, OSError):
            stop.wait(RETRY_SECONDS)


if __name__ == "__main__":
    main()
