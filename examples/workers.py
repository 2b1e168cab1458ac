"""Workers share a queue, with stomp.py. One of them dies in the middle of a job, and no job is lost.

    python examples/workers.py [--url HOST:PORT] [--jobs N]

Each worker is a process that subscribes with ``ack: client-individual``, so it has one job in flight at a time. The
first one kills itself during a job. The broker detects the closed connection and requeues the job in its old place, and
another worker gets it, marked ``redelivered``.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import signal
import threading
from multiprocessing.connection import Connection as Pipe
from multiprocessing.connection import wait

import stomp

QUEUE = "/queue/jobs"


class Worker(stomp.ConnectionListener):
    """Does a job, reports it, acknowledges it."""

    def __init__(self, connection: stomp.Connection12, name: str, report: Pipe) -> None:
        self.connection = connection
        self.name = name
        self.report = report
        self.jobs = 0

    def on_message(self, frame: stomp.utils.Frame) -> None:
        self.jobs += 1
        if self.name == "unlucky" and self.jobs == 3:
            os.kill(os.getpid(), signal.SIGKILL)  # during the job, which is neither reported nor acknowledged
        self.report.send((self.name, frame.body, frame.headers.get("redelivered") == "true"))
        self.connection.ack(frame.headers["ack"])


def connect(url: str) -> stomp.Connection12:
    host, _, port = url.rpartition(":")
    connection = stomp.Connection12([(host, int(port))])
    connection.connect(wait=True)
    return connection


def work(url: str, name: str, report: Pipe) -> None:
    connection = connect(url)
    connection.set_listener("worker", Worker(connection, name, report))
    connection.subscribe(QUEUE, "1", "client-individual")
    threading.Event().wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", default="127.0.0.1:61613")
    parser.add_argument("--jobs", type=int, default=30)
    options = parser.parse_args()

    publisher = connect(options.url)
    for number in range(options.jobs):
        publisher.send(QUEUE, f"job {number}", headers={"persistent": "true"})

    context = multiprocessing.get_context("spawn")
    names = ("unlucky", "ann", "bob")
    workers, reports = [], []
    for name in names:
        receiver, sender = context.Pipe(duplex=False)
        workers.append(context.Process(target=work, args=(options.url, name, sender), daemon=True))
        workers[-1].start()
        sender.close()  # so that only the worker has that end of the pipe, and its death is detected here
        reports.append(receiver)
    done: dict[str, str] = {}
    again = 0
    while len(done) < options.jobs or len(reports) == len(names):
        if len(done) == options.jobs:  # the others were faster than the first one could start: give it work
            publisher.send(QUEUE, f"job {options.jobs}", headers={"persistent": "true"})
            options.jobs += 1
        ready = wait(reports, timeout=60)
        if not ready:
            raise SystemExit(f"{options.jobs - len(done)} jobs were not done within a minute")
        for report in ready:
            try:
                name, job, redelivered = report.recv()
            except EOFError:
                reports.remove(report)
                continue
            assert job not in done, f"{job} was done twice, by {done[job]} and {name}"
            done[job] = name
            again += redelivered
    for worker in workers[1:]:
        worker.kill()
    for worker in workers:
        worker.join()
    publisher.disconnect()
    shares = ", ".join(f"{name} {list(done.values()).count(name)}" for name in names)
    print(f"{len(done)} jobs done ({shares}); {again} was given to a second worker")


if __name__ == "__main__":
    main()
