"""No receipted message is lost, whatever queues share logs, whatever fan-outs exist, and whatever cursors are left.

Each seed draws names and their order, puts them into few logs, binds some of them with ``fan_out``, sends, consumes,
and ends the broker. It also draws what happens then to the files of the cursors, and to the rules. The model has only
what each queue must still deliver: receipted messages that were neither acknowledged nor, by a change of rules, given
to other queues.
"""

from __future__ import annotations

from random import Random

import pytest

from radiator.config import load_text
from tests.broker.harness import World
from tests.tiers import sampled

LOGS = ["one", "one", "two"]
TAILS = ["a", "b", "f", "f.a", "f.b", "in", "z"]


class Life:
    """One seed."""

    def __init__(self, seed: int) -> None:
        self.random = random = Random(seed)
        tails = random.sample(TAILS, len(TAILS))
        self.queues = [f"/queue/{tail}" for tail in tails[:5]]
        self.names = [*self.queues, *(f"/topic/{tail}" for tail in tails[5:])]
        self.logs = {name: random.choice([*LOGS, f"own{index}"]) for index, name in enumerate(self.names)}
        self.children: dict[str, list[str]] = {}
        self.owed: dict[str, set[str]] = {name: set() for name in self.queues}
        self.sent_to: dict[str, str] = {}
        self.told: list[str] = []
        self.change_rules()
        self.world = World(self.config)

    @property
    def config(self) -> str:
        rules = [
            f"{{match: '{name}', partition: {log}"
            + (f", fan_out: [{', '.join(self.children[name])}]" if name in self.children else "")
            + "}"
            for name, log in self.logs.items()
        ]
        return f"destinations: [{', '.join(rules)}]"

    def fed_by(self, name: str) -> list[str]:
        """The queues that owe their consumers what is sent there."""
        return self.children.get(name, [name] if name in self.queues else [])

    def change_rules(self) -> None:
        before, random = dict(self.children), self.random
        parents = random.sample(self.names, random.randrange(3))
        free = [name for name in self.queues if name not in parents]
        self.children = {parent: random.sample(free, random.randint(1, min(3, len(free)))) for parent in parents}
        owed: dict[str, set[str]] = {name: set() for name in self.queues}
        for queue, bodies in self.owed.items():
            for body in bodies:
                to = self.sent_to[body]
                if before.get(to) == self.children.get(to):
                    owed[queue].add(body)
                elif to in before and to in self.children:  # who is not in the list any more has nothing to come
                    owed[queue] |= {body} if queue in self.children[to] else set()
                else:
                    for heir in self.fed_by(to):
                        owed[heir].add(body)
        self.owed = owed
        self.told.append(f"rules {self.children}")

    def send(self) -> None:
        client = self.world.connect()
        for _ in range(self.random.randrange(4)):
            to, body = self.random.choice(self.names), f"m{len(self.sent_to)}"
            self.sent_to[body] = to
            client.publish(to, body, receipt=body)
            self.world.settle()
            assert client.receipts() == [body]
            self.told.append(f"{body} to {to}")
            for queue in self.fed_by(to):
                self.owed[queue].add(body)
        client.drop()

    def consume(self) -> None:
        queue = self.random.choice([name for name in self.queues if name not in self.children])
        client = self.world.connect()
        client.subscribe(queue, prefetch_count=self.random.randint(1, 5))
        self.world.settle()
        for message in client.messages():
            if self.random.random() < 0.6:
                client.ack(message, receipt="x")
                self.world.settle()
                self.owed[queue].discard(message.body.decode())
                self.told.append(f"{queue} is done with {message.body.decode()}")
        client.drop()
        self.world.settle()

    def end(self) -> None:
        world, how = self.world, self.random.choice(["stop", "stop", "kill", "power", "kill and loss", "stop and loss"])
        self.told.append(how)
        if "stop" in how:
            world.stop()
        if how == "power":
            world.fs.power_cut()
        else:
            world.fs.kill()
        if "loss" in how:
            lost = [["/cursors/"], ["/snapshot"]]
            if how == "stop and loss":  # else the journal has the latest cursors
                lost.append(["/cursors/", "/last_rules"])
            parts = self.random.choice(lost)
            self.told.append(f"without {parts}")
            for path in [each for each in world.fs.nodes if any(part in each for part in parts)]:
                del world.fs.nodes[path]
        if self.random.random() < 0.4:
            self.change_rules()
        world.config = load_text(self.config)
        world.start()

    def drain(self, queue: str) -> set[str]:
        client = self.world.connect()
        client.subscribe(queue, ack="auto", prefetch_count=100)
        self.world.settle()
        return set(client.bodies())


@pytest.mark.parametrize("seed", sampled(range(150), 20))
def test_what_is_owed_to_a_queue_comes(seed: int) -> None:
    life = Life(seed)
    for _ in range(life.random.randint(2, 4)):
        for _ in range(life.random.randint(1, 5)):
            life.random.choice([life.send, life.send, life.consume])()
        life.end()
    for queue in life.queues:
        if queue not in life.children:
            missing = life.owed[queue] - life.drain(queue)
            assert not missing, f"{queue} does not get {sorted(missing)}:\n" + "\n".join([str(life.logs), *life.told])
