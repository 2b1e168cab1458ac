"""The end of a history: after the last fault, consumers take all messages that are left in the queues.

``drain`` returns these. If consumers had selectors or were exclusive, so are the last ones. A message skipped by
selector goes to a consumer that selects it, and an exclusive queue delivers to the next consumer once the present one
has gone.
"""

from __future__ import annotations

from radiator.stomp.frames import Frame
from tests.broker.harness import Client, World
from tests.simulation.actors import PRIORITIES, PRIORITY_QUEUE
from tests.simulation.checkers import Checkers, Violation
from tests.simulation.pickers import OTHERS, RED, SELECTORS, SOLE

IDLE = 3  # times nothing has come
PAUSE_SECONDS = 40_000  # delays, of clocks that were set back since, too; dead letters that had no place


def drain(world: World, checkers: Checkers, most: int, choosy: bool) -> list[Frame]:
    """Take all messages. ``most``: an upper limit for their number; more would mean an endless loop."""
    if not choosy:
        return _all(world, checkers, [_consumer(world, "/queue/*", 20)], most)
    for _ in range(IDLE):
        world.tick(PAUSE_SECONDS)
    by_priority = _all(world, checkers, [_consumer(world, PRIORITY_QUEUE, 1)], most)
    _in_order(by_priority)
    wanted = _all(world, checkers, [_consumer(world, "/queue/*", 20, selector=each) for each in (RED, OTHERS)], most)
    rest = _all(world, checkers, [_consumer(world, "/queue/*", 20)], most)
    for frame in rest:
        if frame.headers["destination"] != SOLE or SELECTORS[RED](checkers.headers_of.get(frame.body, {})):
            raise Violation(f"{frame.body[:30]!r} was left, though somebody wanted it")
    return by_priority + wanted + rest


def _consumer(world: World, what: str, window: int, **headers: str) -> Client:
    client = world.connect()
    client.subscribe(what, prefetch_count=window, **headers)
    client.connect_headers = headers
    return client


def _all(world: World, checkers: Checkers, clients: list[Client], most: int) -> list[Frame]:
    """Return what these consumers receive until nothing more comes; then they disconnect."""
    drained: list[Frame] = []
    last: dict[tuple[int, str], int] = {}
    idle = 0
    while len(drained) <= most:
        world.settle()
        taken = [(number, message) for number, client in enumerate(clients) for message in client.messages()]
        if not taken and idle < IDLE:
            idle += 1
            world.tick(PAUSE_SECONDS)
            continue
        if not taken:
            break
        for number, message in taken:
            _fits(message, clients[number], world.now, checkers)
            log, offset = (number, message.headers["partition"]), int(message.headers["offset"])
            if idle == 0 and last.get(log, -1) > offset and not checkers.moments.waited(message.body):
                raise Violation(f"{log[1]}@{offset} came behind {last[log]} in the end")
            last[log] = offset
            drained.append(message)
            clients[number].ack(message)
    for client in clients:
        client.drop()
    return drained


def _fits(message: Frame, client: Client, now_ns: int, checkers: Checkers) -> None:
    fault = checkers.moments.fault(message, now_ns)
    if fault:
        raise Violation(f"{message.body[:30]!r} {fault}")
    selector = client.connect_headers.get("selector", "")
    if not SELECTORS[selector](checkers.headers_of.get(message.body, {})):
        raise Violation(f"{message.body[:30]!r} came to who wants {selector}")


def _in_order(frames: list[Frame]) -> None:
    """Check the order of a queue with priorities while nothing was sent to it."""
    priorities = [int(frame.headers["partition"].rpartition("-p")[2]) for frame in frames]
    assert set(priorities) <= set(PRIORITIES)
    places = [(-priority, int(frame.headers["offset"])) for priority, frame in zip(priorities, frames, strict=True)]
    if places != sorted(places):
        raise Violation(f"{PRIORITY_QUEUE} came in the order {places}")
