"""The script of the demo: two acts of publishing, with a killed process in each.

Act one, the first 60 % of the messages. Three publishers send at once. `radiator tail` follows from the first message
on; a late subscriber joins when a third is through; two workers share the queue, and one of them is killed.

Act two, the rest. The broker is killed under load and started again; publishers, worker and tail continue.

Each act waits for a state, then takes the next step. ``checks`` compares the results with the claims.
"""

from __future__ import annotations

import json
import signal
import time
from collections import defaultdict

from examples.flights import checks
from examples.flights.children import ChildFailed
from examples.flights.data import DELAYS
from examples.flights.stage import Stage, count, read_lines

LATECOMER_JOINS = 0.35  # of the first act
WORKERS_START = 0.5
BROKER_DIES = 0.4  # of the second
WORK_SECONDS = 4.0  # all jobs of one worker together: enough to be killed in the middle
JOB_SECONDS_MAX = 0.01
SURVIVOR, VICTIM = "ann", "bob"
UNREACHABLE, INTERRUPTED = 3, 130  # exit codes of `radiator tail`


def act_one(stage: Stage) -> None:
    publishers, subscriber, (tail,) = stage.publishers, stage.subscriber, stage.followers
    everybody = [stage.broker, *publishers, subscriber, tail.child]
    messages = sum(stage.splits)
    flights = stage.first_act
    late = sum(len(load.ids(DELAYS, split)) for load, split in zip(stage.loads, stage.splits, strict=True))

    for publisher in publishers:
        publisher.say()
    stage.until("a third of act one", lambda: stage.published() >= messages * LATECOMER_JOINS, everybody)
    joined_at = stage.published()
    subscriber.say()
    stage.until("the late subscriber", lambda: subscriber.state.get("seen"), everybody)
    for publisher in publishers:
        publisher.say()  # release the held messages

    stage.until("half of act one", lambda: stage.published() >= messages * WORKERS_START, everybody)
    for name in (SURVIVOR, VICTIM):
        stage.start_worker(name, min(WORK_SECONDS / max(stage.late, 1), JOB_SECONDS_MAX))
    stage.until("half of the jobs", lambda: stage.jobs_done() >= late / 2, [*everybody, *stage.workers.values()])
    stage.workers[VICTIM].kill()

    gates = list(zip(publishers, stage.splits, strict=True))
    stage.until(
        "the end of act one", lambda: all(publisher.state.get("gate") == split for publisher, split in gates), everybody
    )
    whole = count(flights)
    stage.until("the followers", lambda: tail.read() >= whole and subscriber.state["seen"] >= whole, everybody)
    subscriber.say()
    subscriber.wait_for("finished")

    ends = {f"flights-{load.origin}": len(flights[load.topic]) for load in stage.loads}
    text = "radiator tail, live from the first message on: every flight once, in order"
    stage.claim(checks.follower(text, [tail.seen], ends))
    seen = json.loads((stage.out / "seen.json").read_text())
    stage.claim(checks.latecomer(seen, flights, joined_at))


def act_two(stage: Stage) -> None:
    publishers, worker, tail = stage.publishers, stage.workers[SURVIVOR], stage.followers[0]
    already = stage.published()
    rest = sum(len(load.sent) for load in stage.loads) - already

    for publisher in publishers:
        publisher.say()
    stage.until(
        "some of act two",
        lambda: stage.published() >= already + rest * BROKER_DIES,
        [stage.broker, *publishers, worker, tail.child],
    )
    stage.broker.kill()
    stage.killed_ns = time.time_ns()  # before this no other broker runs
    if tail.child.process.wait() != UNREACHABLE:
        raise ChildFailed(tail.child.story(f"should have ended with {UNREACHABLE}, cannot connect"))
    tail.read()
    before = time.monotonic()
    stage.broker = stage.start_broker()
    stage.show.say(f"the broker was killed (SIGKILL) under load, and is there again {_ms(before)} after its restart")

    # the earliest of the last times of all partitions: each partition continues there, with a few repeats
    stage.follow(f"@{min(tail.last_ns.values())}")
    again = stage.followers[1]
    stage.until(
        "the publishers",
        lambda: all("finished" in p.state for p in publishers),
        [stage.broker, *publishers, worker, again.child],
    )
    ends = ends_of(stage)
    stage.until(
        "the second tail",
        lambda: again.read() and all(again.next_offset.get(name, 0) >= end for name, end in ends.items()),
        [stage.broker, again.child],
    )
    late = {number for load in stage.loads for number in load.ids(DELAYS)}
    stage.until(
        "the workers", lambda: stage.jobs_done() >= len(late) and not stage.jobs_waiting(), [stage.broker, worker]
    )

    if worker.stop() or again.child.stop(signal.SIGINT) != INTERRUPTED:
        raise ChildFailed("a worker or the tail did not end as it should")
    text = "radiator tail, resumed at the time it had reached: nothing missed over the crash"
    stage.claim(checks.follower(text, [tail.seen, again.seen], ends))
    stage.claim(checks.workers(stage.journals(), late, VICTIM))


def ends_of(stage: Stage) -> dict[str, int]:
    """Return the end offset of each partition of flights. The last record has a receipt, since repeats are in order."""
    ends: dict[str, int] = defaultdict(int)
    for load in stage.loads:
        for line in read_lines(stage.receipts / f"{load.origin}.jsonl"):
            if line["destination"] == load.topic:
                ends[line["partition"]] = max(ends[line["partition"]], line["offset"] + 1)
    return dict(ends)


def _ms(since: float) -> str:
    return f"{(time.monotonic() - since) * 1000:.0f} ms"
