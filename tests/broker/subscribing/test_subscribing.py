"""SUBSCRIBE: what a look at history may take, how many look-ups it costs, and what it counts for."""

from __future__ import annotations

import pytest

from radiator.broker.clients.joined import JOINED_BYTES
from radiator.config import LimitsConfig
from tests.broker.harness import Client, World

SHARED = "destinations: [{match: '/topic/w.>', partition: shared}, {match: '/queue/w.>', partition: shared}]"
LOOKS = [{"start_position": "first"}, {"start_position": "next"}, {"start_position": "last:2"}]
STOPS = [{"stop_position": "end"}, {"stop_position": "offset:100"}, {"start_position": "first", "stop_position": "end"}]


# --- looking at queues ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ack", ["auto", "client"])
@pytest.mark.parametrize("pattern", ["/queue/>", "#", "/queue/new,/queue/*"])
@pytest.mark.parametrize("headers", [*LOOKS, *STOPS])
def test_a_replay_never_consumes_a_queue_that_is_created_later(
    world: World, headers: dict[str, str], pattern: str, ack: str
) -> None:
    sender, looker, worker = world.connect(), world.connect(), world.connect()
    looker.subscribe(pattern, ack=ack, **headers)
    world.settle()
    sender.publish("/queue/new", "m1")
    sender.publish("/queue/other", "m2")
    world.settle()
    seen = [message for message in looker.messages() if message.body]
    for name in ("/queue/new", "/queue/other"):
        queue = world.broker.destinations[name].queue
        assert queue is not None and not queue.consumers and len(queue.ready_list)
    if "stop_position" not in headers:
        assert sorted(message.body for message in seen) == [b"m1", b"m2"]
    worker.subscribe("/queue/new", id="1")
    worker.subscribe("/queue/other", id="2", prefetch_count=2)
    world.settle()
    assert sorted(worker.bodies()) == ["m1", "m2"]


def test_a_pattern_without_a_position_consumes_queues_that_are_created_later(world: World) -> None:
    client = world.connect()
    client.subscribe("/queue/>")
    client.publish("/queue/new", "m")
    world.settle()
    assert client.bodies() == ["m"]
    queue = world.broker.destinations["/queue/new"].queue
    assert queue is not None and not any(source.ready for source in queue.sources)


def test_what_a_looker_acknowledges_stays_in_the_queue(world: World) -> None:
    sender, looker = world.connect(), world.connect()
    looker.subscribe("/queue/>", start_position="first")
    sender.publish("/queue/new", "m")
    world.settle()
    (message,) = looker.messages()
    looker.ack(message, receipt="r")
    world.settle()
    assert looker.receipts() == ["r"]
    worker = world.connect()
    worker.subscribe("/queue/new")
    world.settle()
    assert worker.bodies() == ["m"]


# --- last:N -----------------------------------------------------------------------------------------------------------


def shared_world(topics: int, each: int = 5, cold: bool = False) -> World:
    world = World(SHARED, tail_bytes_max=1) if cold else World(SHARED)
    sender = world.connect()
    for round_ in range(each):
        for topic in range(topics):
            sender.publish(f"/topic/w.{topic}", f"{topic}:{round_}")
        world.settle()
    return world


@pytest.mark.parametrize("number", [1, 3, 100])
@pytest.mark.parametrize("cold", [False, True], ids=["memory", "files"])
def test_each_topic_of_a_shared_log_gives_its_own_last_n_with_one_look_up(cold: bool, number: int) -> None:
    world = shared_world(40, cold=cold)
    sender = world.connect()
    for round_ in range(5, 25):
        sender.publish("/topic/w.busy", f"busy:{round_}")
        world.settle()
    client = world.connect()
    client.subscribe("/topic/w.>", ack="auto", start_position=f"last:{number}")
    reads = world.broker.take_reads()
    assert len(reads) == 1  # and not one per topic
    for read in reads:
        if not read.job.finished:
            read.run()
        world.broker.read_done(read)
    world.settle()
    found: dict[str, list[int]] = {}
    for message in client.messages():
        topic, _, round_ = message.body.decode().partition(":")
        found.setdefault(topic, []).append(int(round_))
    expected = {str(topic): list(range(5))[-number:] for topic in range(40)}
    expected["busy"] = list(range(5, 25))[-number:]
    assert found == expected
    sender.publish("/topic/w.7", "7:new")
    world.settle()
    assert client.bodies() == ["7:new"]


def test_last_n_of_some_topics_does_not_stop_at_those_of_others() -> None:
    world = shared_world(6)
    client = world.connect()
    client.subscribe("/topic/w.1,/topic/w.4", ack="auto", start_position="last:2")
    world.settle()
    assert sorted(client.bodies()) == ["1:3", "1:4", "4:3", "4:4"]


def test_last_n_over_several_logs_looks_each_of_them_up_once() -> None:
    world = World("destinations: [{match: '/topic/*.*', partition: 'p-{1}'}]")
    sender = world.connect()
    for log in "xyz":
        for topic in range(5):
            sender.publish(f"/topic/{log}.{topic}", *[f"{log}{topic}:{number}" for number in range(4)])
    world.settle()
    client = world.connect()
    client.subscribe("/topic/>", ack="auto", start_position="last:2")
    assert len(world.broker.take_reads()) == 3
    again = world.connect()
    again.subscribe("/topic/>", ack="auto", start_position="last:2")
    world.settle()
    assert sorted(again.bodies()) == sorted(f"{log}{topic}:{n}" for log in "xyz" for topic in range(5) for n in (2, 3))


def test_a_look_up_of_last_n_ends_as_soon_as_each_topic_of_its_log_has_n() -> None:
    """The topics of other logs are not looked for in this one: it would be read to its very beginning for them."""
    world = World("destinations: [{match: '/topic/*.*', partition: 'p-{1}', segment: {size: 64KiB}}]", tail_bytes_max=1)
    sender = world.connect()
    for log in "xy":
        for _ in range(40):
            for topic in range(2):
                sender.publish(f"/topic/{log}.{topic}", "m" * 5_000)
            world.settle()
    assert len(world.store.partitions["p-x"].segments) > 4
    client = world.connect()
    client.subscribe("/topic/>", ack="auto", start_position="last:1")
    opened = world.fs.calls["open_read"]
    for read in world.broker.take_reads():
        read.run()
        world.broker.read_done(read)
    assert world.fs.calls["open_read"] - opened <= 4  # the last segment of each, and its index
    world.settle()
    assert len(client.messages()) == 4


@pytest.mark.parametrize("position", [{"start_position": "last:3"}, {"start_position": "time:2001-01-01T00:00:00Z"}])
@pytest.mark.parametrize("ending", ["UNSUBSCRIBE", "drop"])
def test_a_look_up_of_a_subscription_that_has_ended_does_not_run(ending: str, position: dict[str, str]) -> None:
    world = shared_world(5, cold=True)
    world.restart()
    client = world.connect()
    client.subscribe("/topic/w.>", ack="auto", **position)
    reads = [read for read in world.broker.take_reads() if not read.job.finished]
    client.drop() if ending == "drop" else client.say("UNSUBSCRIBE", id="0")
    opened = world.fs.calls["open_read"]
    for read in reads:
        read.run()
        world.broker.read_done(read)
    assert world.fs.calls["open_read"] == opened
    world.settle()
    assert client.session.subscriptions.by_id == {}
    assert not world.broker.ready.busy


# --- what counts as a subscription ------------------------------------------------------------------------------------


def limited(most: int) -> tuple[World, Client]:
    world = World(limits=LimitsConfig(subscriptions=most))
    return world, world.connect()


def test_each_pattern_of_a_list_counts() -> None:
    _, client = limited(5)
    client.subscribe("/topic/a,/topic/b.*,/topic/c.>", id="1")
    client.subscribe("/topic/d,/topic/e", id="2")
    assert not client.take("ERROR")
    client.subscribe("/topic/f", id="3")
    assert client.error() == "too-many"


def test_a_list_that_does_not_fit_is_refused_as_a_whole() -> None:
    world, client = limited(2)
    client.subscribe("/topic/a,/topic/b,/topic/c", id="1")
    assert client.error() == "too-many"
    assert not world.broker.destinations


def test_patterns_count_no_more_when_their_subscription_has_ended() -> None:
    world, client = limited(3)
    for _ in range(10):
        client.subscribe("/topic/a,/topic/b,/topic/c", id="1")
        client.say("UNSUBSCRIBE", id="1")
        client.subscribe("/topic/a,/topic/b", id="2", ack="auto", stop_position="end")  # ends by itself
        world.settle()
    assert not client.take("ERROR")
    assert client.session.subscriptions.patterns == 0


def test_the_own_queue_of_a_reply_to_counts() -> None:
    world, client = limited(3)
    for number in range(3):
        client.publish("/topic/x", "m", reply_to=f"/temp-queue/{number}")
        client.publish("/topic/x", "m", reply_to=f"/temp-queue/{number}")
    world.settle()
    assert not client.take("ERROR")
    client.publish("/topic/x", "m", reply_to="/temp-queue/one-too-many")
    assert client.error() == "too-many"
    assert len(world.broker.destinations) == 1


def test_reply_to_and_subscriptions_count_together() -> None:
    _, client = limited(3)
    client.subscribe("/topic/a,/topic/b", id="1")
    client.publish("/topic/x", "m", reply_to="/temp-queue/1")
    assert not client.take("ERROR")
    client.subscribe("/topic/c", id="2")
    assert client.error() == "too-many"


# --- start-at ---------------------------------------------------------------------------------------------------------


def test_start_at_goes_on_in_each_log_where_it_says_and_elsewhere_at_start_position(world: World) -> None:
    client = world.connect()
    for name in ("/topic/a", "/queue/b", "/topic/c"):
        client.publish(name, *(f"{name}{number}" for number in range(4)))
    world.settle()
    at = "%2Ftopic%2Fa@2, %2Fqueue%2Fb@3"
    client.subscribe("#", ack="auto", start_position="first", start_at=at)
    client.publish("/topic/a", "/topic/a4")
    world.settle()
    found = [body for body in client.bodies() if "/c" not in body]
    assert sorted(found) == ["/queue/b3", "/topic/a2", "/topic/a3", "/topic/a4"]
    assert len(world.broker.destinations["/queue/b"].queue.ready_list)  # type: ignore[union-attr]


def test_start_at_alone_is_only_what_comes_elsewhere() -> None:
    world = World(SHARED)
    client = world.connect()
    client.publish("/topic/w.a", "0")
    client.publish("/queue/w.b", "1")
    client.publish("/topic/other", "old")
    world.settle()
    client.subscribe("#", ack="auto", start_at="shared@1")
    client.publish("/topic/other", "new")
    world.settle()
    assert sorted(client.bodies()) == ["1", "new"]


@pytest.mark.parametrize(
    ("at", "words"),
    [
        ("%2Ftopic%2Fa@1", "has no offset 1, its log ends at 1"),
        ("%2Ftopic%2Fnew@0", "has no offset 0, its log ends at 0"),
        ("nonsense", "not a message-id"),
    ],
)
def test_a_log_that_ends_before_start_at_is_refused(world: World, at: str, words: str) -> None:
    client = world.connect()
    client.publish("/topic/a", "0")
    world.settle()
    client.subscribe("#,/topic/new", start_at=at)
    world.settle()
    (error,) = client.take("ERROR")
    assert error.headers["error-code"] == "bad-position"
    assert words in error.headers["message"]


def test_a_log_that_is_not_read_may_be_named_in_start_at(world: World) -> None:
    client = world.connect()
    client.publish("/topic/a", "0", "1")
    client.publish("/topic/b", "0")
    world.settle()
    client.subscribe("/topic/a", ack="auto", start_at="%2Ftopic%2Fa@1,%2Ftopic%2Fb@7,%2Ftopic%2Fnone@7")
    world.settle()
    assert client.bodies() == ["1"]


def test_a_pattern_over_a_queue_and_a_topic_of_one_log_gets_the_queues_messages_once() -> None:
    world = World("destinations: [{match: '#', partition: all}]")
    sender, client, other = world.connect(), world.connect(), world.connect()
    client.subscribe("/queue/a,/topic/a", ack="auto")
    sender.publish("/queue/a", "job")
    sender.publish("/topic/a", "news")
    world.settle()
    assert sorted(client.bodies()) == ["job", "news"]
    other.subscribe("/queue/a", ack="auto")
    sender.publish("/queue/a", "1", "2")
    world.settle()
    assert sorted(client.bodies() + other.bodies()) == ["1", "2"]


def test_a_client_whose_patterns_say_the_same_twice_leaves_nothing_behind(world: World) -> None:
    client = world.connect()
    client.subscribe("/topic/a.*,/topic/a/*", id="0")
    client.subscribe("/queue/q", id="1")
    world.connect().publish("/queue/q", "m")
    world.settle()
    assert client.bodies() == ["m"]
    client.drop()
    other = world.connect()
    other.subscribe("/queue/q", id="1")
    world.settle()
    assert other.bodies() == ["m"]
    assert client.session.id not in world.broker.sessions


# --- temporary queues -------------------------------------------------------------------------------------------------


def test_the_temporary_queues_of_a_connection_are_counted_however_they_are_made() -> None:
    world, client = limited(3)
    for number in range(3):
        client.publish(f"/temp-queue/{number}", "m")
    world.settle()
    assert not client.take("ERROR")
    assert len(world.broker.destinations) == 3
    client.publish("/temp-queue/one-too-many", "m")
    assert client.error() == "too-many"


def test_a_queue_of_its_own_for_each_request_can_go_on_for_ever() -> None:
    world, client = limited(3)
    for number in range(20):
        name = f"/temp-queue/{number}"
        client.subscribe(name, id="r", ack="auto")
        client.publish(name, "answer")
        world.settle()
        assert client.bodies() == ["answer"]
        client.say("UNSUBSCRIBE", id="r")
    assert not client.take("ERROR")
    assert len(world.broker.destinations) <= 3


def test_a_temporary_queue_that_holds_a_message_or_is_looked_at_makes_no_room() -> None:
    world, client = limited(3)
    client.publish("/temp-queue/held", "kept")
    client.subscribe("/temp-queue/looked-at", id="look", ack="auto", start_position="next")
    for number in range(5):
        client.subscribe(f"/temp-queue/{number}", id="r", ack="auto")
        client.say("UNSUBSCRIBE", id="r")
    client.publish("/temp-queue/looked-at", "seen")
    client.subscribe("/temp-queue/held", id="h", ack="auto")
    world.settle()
    assert sorted(client.bodies()) == ["kept", "seen"]


# --- limits.memory ----------------------------------------------------------------------------------------------------


def test_subscriptions_of_all_clients_are_bounded_by_limits_memory() -> None:
    world = World("limits: {memory: 1MiB}")
    selector = " OR ".join(f"h{number} = 'zzzzzzzzzz'" for number in range(90))
    quiet = world.connect()
    quiet.subscribe("/topic/a", ack="auto")
    clients: list[Client] = []
    while not clients or not clients[-1].session.closing:
        clients.append(world.connect())
        for number in range(10):
            if not clients[-1].session.closing:
                clients[-1].subscribe("/topic/a", id=str(number), ack="auto", selector=selector)
    (error,) = clients[-1].take("ERROR")
    assert error.headers["error-code"] == "full" and b"limits.memory" in error.body
    account = world.broker.memory
    assert account.bytes <= account.bytes_max and len(clients) < 5
    quiet.publish("/topic/a", "goes on")
    world.settle()
    assert quiet.bodies() == ["goes on"]
    for client in clients:
        client.drop()
    quiet.say("UNSUBSCRIBE", id="0")
    world.settle()
    assert account.bytes == 0


def test_destinations_that_a_wildcard_takes_part_in_are_counted_until_it_ends() -> None:
    world = World("limits: {memory: 1MiB}")
    client, sender = world.connect(), world.connect()
    sender.publish("/topic/w.0", "x")
    client.subscribe("/topic/w.*", ack="auto")
    before = world.broker.memory.bytes
    for number in range(1, 100):
        sender.publish(f"/topic/w.{number}", "x")
    world.settle()
    assert world.broker.memory.bytes == before + 99 * JOINED_BYTES
    client.say("UNSUBSCRIBE", id="0")
    world.settle()
    assert world.broker.memory.bytes == 0


def test_what_a_subscription_half_joined_has_counted_is_given_back_when_its_session_dies() -> None:
    world = World(f"limits: {{memory: 4MiB}}\n{SHARED}")
    sender, client = world.connect(), world.connect()
    for number in range(2_500):
        sender.publish(f"/topic/w.{number}", "x")
    world.settle()
    assert world.broker.memory.bytes == 0
    world.broker.budget.most = 100
    client.subscribe("/topic/w.*", ack="auto")
    (subscription,) = client.session.subscriptions.by_id.values()
    assert subscription.joining and 0 < len(subscription.destinations) < 2_500
    assert world.broker.memory.bytes > JOINED_BYTES * len(subscription.destinations)
    client.drop()
    assert subscription.closed and not subscription.left and world.broker.memory.bytes > 0
    world.settle()
    assert subscription.left and world.broker.memory.bytes == 0


def test_a_wildcard_that_there_is_no_memory_for_is_refused_and_leaves_nothing_behind() -> None:
    world = World(f"limits: {{memory: 1MiB}}\n{SHARED}")
    sender, client = world.connect(), world.connect()
    for number in range(2_500):
        sender.publish(f"/topic/w.{number}", "x")
    client.subscribe("/topic/w.*", ack="auto")
    world.settle()
    (error,) = client.take("ERROR")
    assert error.headers["error-code"] == "full" and b"limits.memory" in error.body
    assert world.broker.memory.bytes == 0 and world.broker.joined.count == 0
    assert all(each.subscribers == 0 for each in world.broker.destinations.values())


def test_topics_of_a_durable_name_are_counted_until_it_is_deleted() -> None:
    world = World()
    sender, client = world.connect(), world.connect(**{"client-id": "c"})
    for number in range(10):
        sender.publish(f"/topic/w.{number}", "x")
    client.subscribe("/topic/w.*", **{"activemq.subscriptionName": "name"})
    world.settle()
    client.drop()
    world.settle()
    assert world.broker.memory.bytes == 10 * JOINED_BYTES
    again = world.connect(**{"client-id": "c"})
    again.say("UNSUBSCRIBE", id="0", **{"activemq.subscriptionName": "name"})
    world.settle()
    assert world.broker.memory.bytes == 0
