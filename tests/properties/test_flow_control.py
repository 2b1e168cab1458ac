"""Compare flow control with a model, for random sends, acks, nacks, subscriptions and lost connections over several
queues and clients, with the broker's turn cut into its steps. The model uses only what clients have seen.

    no client has more messages in flight than its window
    a message is in flight at one client at most, and a settled message is not delivered again
    every other message waits in the queue, once, and is delivered in the order of the log
    a delivery count only increases
    in the end every sent message has been settled exactly once
"""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from radiator.stomp.frames import Frame
from tests.broker.harness import Client, World

QUEUES = ["/queue/a", "/queue/b", "/queue/c"]
PATTERNS = [*QUEUES, "/queue/*", "/queue/a,/queue/b"]
CLIENTS = 3
MODES = ["client-individual", "client-individual", "client", "auto"]

WHO = st.integers(0, CLIENTS - 1)
CAPS = st.sampled_from([None, None, 1, 3])
SUBSCRIPTIONS = st.tuples(st.sampled_from(PATTERNS), st.sampled_from(MODES), st.sampled_from([None, None, 1, 2, 5]))
ANSWERS = st.tuples(st.sampled_from(["ack", "ack", "ack twice", "nack"]), st.integers(0, 20))

Key = tuple[str, int]  # queue, offset


def key_of(message: Frame) -> Key:
    return message.headers["destination"], int(message.headers["offset"])


class Hands:
    """What one client has been sent and not answered, per subscription, in order."""

    def __init__(self, client: Client, window: int | None) -> None:
        self.client = client
        self.capped = window
        self.held: dict[str, list[Frame]] = {}
        self.windows: dict[str, int] = {}
        self.modes: dict[str, str] = {}
        self.serial = 0

    @property
    def messages(self) -> list[Frame]:
        return [message for held in self.held.values() for message in held]


class FlowControl(RuleBasedStateMachine):
    @initialize(shared=st.booleans(), caps=st.lists(CAPS, min_size=CLIENTS, max_size=CLIENTS), subscribe=st.data())
    def start(self, shared: bool, caps: list[int | None], subscribe: st.DataObject) -> None:
        # In one log for all queues everybody reads past the others' messages.
        # Refused messages come back at once: by default they wait from the fourth time on, and no time passes here.
        partition = "partition: all, " if shared else ""
        self.world = World(f"destinations: [{{match: '/queue/*', {partition}redeliver: {{delay: 0ms}}}}]")
        self.sender = self.world.connect()
        self.sent: dict[bytes, str] = {}
        self.settled: set[Key] = set()
        self.bodies: dict[Key, bytes] = {}
        self.counts: dict[Key, int] = {}
        self.hands: list[Hands] = [self._new_hands(cap) for cap in caps]
        for hands in self.hands:
            self._subscribe(hands, *subscribe.draw(SUBSCRIPTIONS))

    def _new_hands(self, cap: int | None) -> Hands:
        return Hands(self.world.connect(**({} if cap is None else {"max_in_flight": str(cap)})), cap)

    # --- what clients do ----------------------------------------------------------------------------------------------

    @rule(queue=st.sampled_from(QUEUES), count=st.integers(1, 6), settle=st.booleans())
    def send(self, queue: str, count: int, settle: bool) -> None:
        for _ in range(count):
            body = b"%d" % len(self.sent)
            self.sent[body] = queue
            self.sender.publish(queue, body)
        if settle:
            self.everybody_hears()

    @rule(who=WHO, subscription=SUBSCRIPTIONS)
    def subscribe(self, who: int, subscription: tuple[str, str, int | None]) -> None:
        if len(self.hands[who].held) < 3:
            self._subscribe(self.hands[who], *subscription)

    def _subscribe(self, hands: Hands, what: str, mode: str, window: int | None) -> None:
        name = str(hands.serial)
        hands.serial += 1
        hands.held[name] = []
        hands.windows[name] = window or hands.capped or 1
        hands.modes[name] = mode
        hands.client.subscribe(what, name, mode, **({} if window is None else {"prefetch_count": window}))

    @rule(who=WHO, answers=st.lists(ANSWERS, min_size=1, max_size=5), settle=st.booleans())
    def answer(self, who: int, answers: list[tuple[str, int]], settle: bool) -> None:
        hands = self.hands[who]
        for how, which in answers:
            if not hands.messages:
                break
            message = hands.messages[which % len(hands.messages)]
            covered = self._answered(hands, message)
            if how != "nack":
                self.settled.update(map(key_of, covered))
            hands.client.ack(message, "NACK" if how == "nack" else "ACK")
            if how == "ack twice":
                hands.client.ack(message)
        if settle:
            self.everybody_hears()

    def _answered(self, hands: Hands, message: Frame) -> list[Frame]:
        """The deliveries that an answer to ``message`` covers; they leave the hands."""
        name = message.headers["subscription"]
        held = hands.held[name]
        place = held.index(message)
        if hands.modes[name] == "client":
            covered, hands.held[name] = held[: place + 1], held[place + 1 :]
        else:
            covered = [held.pop(place)]
        return covered

    @rule(who=WHO, which=st.integers(0, 3))
    def unsubscribe(self, who: int, which: int) -> None:
        hands = self.hands[who]
        if not hands.held:
            return
        name = list(hands.held)[which % len(hands.held)]
        self._hear(hands, hands.client.messages())  # what is under way is heard before it is given back
        del hands.held[name], hands.windows[name], hands.modes[name]
        hands.client.say("UNSUBSCRIBE", id=name)

    @rule(who=WHO, how=st.sampled_from(["drop", "DISCONNECT", "error"]), cap=CAPS, subscription=SUBSCRIPTIONS)
    def leave_and_come_back(
        self, who: int, how: str, cap: int | None, subscription: tuple[str, str, int | None]
    ) -> None:
        self._leave(self.hands[who], how)
        self.hands[who] = self._new_hands(cap)
        self._subscribe(self.hands[who], *subscription)

    def _leave(self, hands: Hands, how: str) -> None:
        client = hands.client
        if how == "drop":  # what was written to the socket has left; the rest is lost
            self._hear(hands, [frame for frame in client.inbox if frame.command == "MESSAGE"], leaving=True)
        else:
            client.say("DISCONNECT" if how == "DISCONNECT" else "NONSENSE")
            self._hear(hands, client.messages(), leaving=True)
        client.drop()
        self.world.clients.remove(client)

    # --- what the broker does, step by step ---------------------------------------------------------------------------

    @rule()
    def everybody_hears(self) -> None:
        self._finish()
        self.world.settle()
        for hands in self.hands:
            self._hear(hands, hands.client.messages())

    @rule(step=st.sampled_from(["commit", "take", "finish", "pump", "pump", "reads"]))
    def turn(self, step: str) -> None:
        world = self.world
        if step == "take":
            if not world.jobs:
                world.take()
        elif step == "finish":
            self._finish()
        else:
            if step == "commit":
                self._finish()
            getattr(world, step)()

    def _finish(self) -> None:
        self.world.write()
        self.world.sync()
        self.world.completed()

    @rule(who=WHO)
    def hear(self, who: int) -> None:
        self._hear(self.hands[who], self.hands[who].client.messages())

    def _hear(self, hands: Hands, messages: list[Frame], leaving: bool = False) -> None:
        for message in messages:
            key = key_of(message)
            name = message.headers["subscription"]
            assert key not in self.settled, f"{key} was settled and came back"
            assert self.sent[message.body] == key[0]
            assert self.bodies.setdefault(key, message.body) == message.body
            count = int(message.headers.get("delivery-count", 1))
            assert count > self.counts.get(key, 0), f"{key}: delivery {count} after {self.counts.get(key)}"
            assert ("redelivered" in message.headers) == (count > 1)
            self.counts[key] = count
            if hands.modes[name] == "auto":
                self.settled.add(key)
            elif not leaving:
                for other in self.hands:
                    assert key not in map(key_of, other.messages), f"{key} is in two hands"
                hands.held[name].append(message)

    # --- what must always hold ----------------------------------------------------------------------------------------

    @invariant()
    def nobody_holds_more_than_its_window(self) -> None:
        for hands in getattr(self, "hands", ()):
            shared = 0
            for name, held in hands.held.items():
                assert len(held) <= hands.windows[name], f"subscription {name} holds {len(held)}"
                if hands.windows[name] == 1:
                    shared += len(held)
            if hands.capped is not None:
                assert len(hands.messages) <= hands.capped
            else:
                assert shared <= 1, f"{shared} messages held through windows of one"

    @invariant()
    def the_broker_counts_as_the_clients_do(self) -> None:
        for hands in getattr(self, "hands", ()):
            session = hands.client.session
            sharing = [each for each in session.subscriptions.by_id.values() if each.shares_window]
            assert session.window.held == sum(len(each.in_flight) for each in sharing) <= session.window.size

    @invariant()
    def every_message_is_somewhere(self) -> None:
        """Below the place where fresh messages begin: settled, in flight to one, or waiting to be given out again."""
        if not hasattr(self, "world"):
            return
        flying: dict[object, list[int]] = {}
        for session in self.world.broker.sessions.values():
            for subscription in session.subscriptions.by_id.values():
                for source, offset, _ in subscription.in_flight.values():
                    flying.setdefault(source, []).append(offset)
            for run in session.outbox.auto_acks:
                flying.setdefault(run.source, []).extend(run.offsets)
        for destination in self.world.broker.destinations.values():
            for source in destination.queue.sources:
                done = {*source.settled, *(o for o in range(source.next_offset) if source.cursor.is_acked(o))}
                places = sorted([*done, *flying.get(source, []), *(o for o in source.returned if o not in done)])
                assert places == list(range(source.next_offset)), (destination.name, places, source.next_offset)

    def teardown(self) -> None:
        """Everybody leaves; one client takes what is left. Nothing is missing, nothing comes twice, all in order."""
        if not hasattr(self, "world"):
            return
        self.everybody_hears()
        for hands in self.hands:
            self._leave(hands, "drop")
        last = self.world.connect()
        last.subscribe("/queue/*", prefetch_count=7)
        order: dict[str, int] = {}
        for _ in range(len(self.sent) + 1):
            self.world.settle()
            messages = last.messages()
            if not messages:
                break
            for message in messages:
                key = key_of(message)
                assert key not in self.settled, f"{key} was settled and came back"
                assert key[1] > order.get(key[0], -1), f"{key} out of order"
                order[key[0]] = key[1]
                self.settled.add(key)
                self.bodies.setdefault(key, message.body)
                last.ack(message)
        assert sorted(self.bodies[key] for key in self.settled) == sorted(self.sent)
        last.drop()
        self.sender.drop()
        self.world.holds_nothing()


FlowControl.TestCase.settings = settings(stateful_step_count=40)
TestFlowControl = FlowControl.TestCase
