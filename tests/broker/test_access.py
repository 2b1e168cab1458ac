"""Rights: what a session may send to, subscribe to and see; who is let in."""

from __future__ import annotations

import pytest

from radiator.broker.access import Decision, Login
from radiator.broker.clients.identity import Identity
from radiator.errors import ProtocolError
from radiator.routing.rights import EVERYTHING, Rights
from tests.broker.harness import Client, World


def user(world: World, **rights: str) -> Client:
    """A client with these rights; each a list of patterns with commas."""
    client = world.connect()
    client.become("alice", Rights({right: [text] for right, text in rights.items()}))
    return client


# --- SEND -------------------------------------------------------------------------------------------------------------


def test_a_user_without_the_right_does_not_profit_from_the_plan_that_another_has_made(world: World) -> None:
    allowed, forbidden = user(world, write="/queue/a"), user(world, write="/queue/b")
    allowed.publish("/queue/a", "1")
    forbidden.publish("/queue/a", "2")
    assert forbidden.error() == "denied"
    allowed.publish("/queue/a", "3")
    everybody = world.connect()
    everybody.publish("/queue/a", "4")
    again = user(world, write="/queue/b")
    again.publish("/queue/a", "5")
    assert again.error() == "denied"
    everybody.subscribe("/queue/a", ack="auto")
    world.settle()
    assert everybody.bodies() == ["1", "3", "4"]


def test_a_right_that_is_taken_away_holds_for_the_next_message(world: World) -> None:
    client = user(world, write="/queue/a")
    client.publish("/queue/a", "1")
    client.become(rights=Rights({}))
    client.publish("/queue/a", "2")
    assert client.error() == "denied"


def test_a_refusal_names_the_right_and_the_destination_and_no_others(world: World) -> None:
    client = user(world, write="/queue/secret.x")
    client.publish("/queue/a", "1")
    (error,) = client.take("ERROR")
    assert error.headers["message"] == "user 'alice' has no write right over '/queue/a'"
    assert b"secret" not in error.body
    assert "/queue/a" not in world.broker.destinations


def test_every_client_may_answer_to_a_reply_queue_and_only_its_owner_may_read_it(world: World) -> None:
    asker, server = user(world, write="/queue/ask"), user(world, read="/queue/ask")
    server.subscribe("/queue/ask", ack="auto")
    asker.publish("/queue/ask", "?", reply_to="/temp-queue/r")
    world.settle()
    (question,) = server.messages()
    server.publish(question.headers["reply-to"], "!")
    world.settle()
    assert asker.bodies() == ["!"]
    server.subscribe(question.headers["reply-to"], id="spy")
    assert server.error() == "denied"


def test_a_transaction_is_checked_when_a_message_joins_it_and_again_at_commit(world: World) -> None:
    client = user(world, write="/queue/a")
    client.say("BEGIN", transaction="t")
    client.publish("/queue/b", "1", transaction="t")
    assert client.error() == "denied"
    other = user(world, write="/queue/a")
    other.say("BEGIN", transaction="t")
    other.publish("/queue/a", "1", transaction="t")
    other.become(rights=Rights({}))
    other.say("COMMIT", transaction="t")
    assert other.error() == "denied"
    reader = world.connect()
    reader.subscribe("/queue/a", ack="auto")
    world.settle()
    assert reader.bodies() == []


# --- SUBSCRIBE --------------------------------------------------------------------------------------------------------


def test_a_name_without_the_right_is_refused_and_not_created(world: World) -> None:
    client = user(world, read="/queue/a, /topic/>")
    client.subscribe("/queue/a, /queue/b")
    (error,) = client.take("ERROR")
    assert error.headers["error-code"] == "denied"
    assert "'/queue/b'" in error.headers["message"]
    assert not world.broker.destinations


def test_a_wildcard_delivers_what_is_permitted_and_keeps_silent_about_the_rest(world: World) -> None:
    sender, client = world.connect(), user(world, read="/topic/open.>")
    sender.publish("/topic/open.a", "before")
    sender.publish("/topic/shut.a", "before")
    client.subscribe("/topic/>", ack="auto")
    for name in ("/topic/open.a", "/topic/shut.a", "/topic/open.born", "/topic/shut.born"):
        sender.publish(name, name)
    world.settle()
    assert client.bodies() == ["/topic/open.a", "/topic/open.born"]
    assert world.broker.destinations["/topic/shut.a"].subscribers == 0


def test_a_wildcard_consumes_from_permitted_queues_only(world: World) -> None:
    sender, client = world.connect(), user(world, read="/queue/mine.*")
    client.subscribe("/queue/#", ack="auto")
    sender.publish("/queue/mine.a", "m")
    sender.publish("/queue/theirs.a", "t")
    world.settle()
    assert client.bodies() == ["m"]


def test_a_shared_log_shows_a_user_only_what_is_permitted() -> None:
    world = World("destinations: [{match: '/topic/>', partition: all}]")
    sender = world.connect()
    for number in range(6):
        sender.publish(f"/topic/{'ab'[number % 2]}", str(number))
    world.settle()
    client = user(world, read="/topic/a", browse="/topic/b")
    client.subscribe("/topic/*", ack="auto", start_position="first")
    world.settle()
    assert client.bodies() == ["1", "3", "5"]  # history takes the browse right
    client.subscribe("/topic/#", id="live", ack="auto")
    sender.publish("/topic/a", "new")
    world.settle()
    assert client.bodies() == ["new"]


@pytest.mark.parametrize("how", [{"browser": "true"}, {"start_position": "first"}, {"stop_position": "end"}])
def test_looking_takes_another_right_than_consuming(world: World, how: dict[str, str]) -> None:
    sender = world.connect()
    sender.publish("/queue/a", "x")
    world.settle()
    reader, looker = user(world, read="/queue/a"), user(world, browse="/queue/a")
    reader.subscribe("/queue/a", **how)
    assert reader.error() == "denied"
    looker.subscribe("/queue/a", ack="auto", **how)
    world.settle()
    looker.take("RECEIPT")
    if "stop_position" not in how:
        assert looker.bodies()[0] == "x"
    looker.subscribe("/queue/a", id="take")
    assert looker.error() == "denied"


def test_to_begin_with_what_comes_next_is_to_read(world: World) -> None:
    client, looker = user(world, read="#"), user(world, browse="#")
    client.subscribe("/topic/a", ack="auto", start_position="next")
    client.subscribe("/queue/a", id="1", ack="auto", start_position="next")
    sender = world.connect()
    sender.publish("/topic/a", "t")
    sender.publish("/queue/a", "q")
    world.settle()
    assert sorted(client.bodies()) == ["q", "t"]
    looker.subscribe("/topic/a", start_position="next")
    assert looker.error() == "denied"
    client.subscribe("/topic/b", id="2", start_position="next", stop_position="end")
    assert client.error() == "denied"


def test_a_name_follows_only_what_its_user_may_read_and_history_takes_the_right_to_browse(world: World) -> None:
    sender = world.connect()
    for name in ("/topic/open.a", "/topic/shut.a"):
        sender.publish(name, "before")
    world.settle()
    greedy = user(world, read="/topic/open.>")
    greedy.subscribe("/topic/>", ack="auto", subscription_name="me", start_position="first")
    assert greedy.error() == "denied"
    client = user(world, read="/topic/open.>", browse="#")
    client.subscribe("/topic/>", ack="auto", subscription_name="me", start_position="first")
    for name in ("/topic/open.a", "/topic/shut.a", "/topic/open.born", "/topic/shut.born"):
        sender.publish(name, name)
    world.settle()
    assert sorted(client.bodies()) == ["/topic/open.a", "/topic/open.born", "before"]  # of two logs
    client.drop()
    for name in ("/topic/open.a", "/topic/shut.a"):
        sender.publish(name, "away")
    world.settle()
    again = user(world, read="/topic/open.>, /topic/shut.born")
    again.subscribe("/topic/>", ack="auto", subscription_name="me")
    world.settle()
    assert again.bodies() == ["away"]
    less = Rights({"read": ["/topic/open.born"]})
    world.broker.access.changed(
        lambda session: Identity("", EVERYTHING if session is sender.session else less, "users")
    )
    for name in ("/topic/open.a", "/topic/open.born"):
        sender.publish(name, name)
    world.settle()
    assert again.bodies() == ["/topic/open.born"]
    assert not again.session.closing


def test_a_durable_subscription_belongs_to_the_user_who_created_it(world: World) -> None:
    owner, other = user(world, read="#"), user(world, read="#", admin="#")
    owner.subscribe("/topic/a", ack="auto", subscription_name="mine")
    owner.drop()
    other.become("mallory", other.session.rights)
    other.say("UNSUBSCRIBE", id="mine", subscription_name="mine")
    assert other.error() == "denied"


def test_a_dead_letter_needs_no_right_of_the_consumer_and_is_delivered_only_with_the_right() -> None:
    world = World("destinations: [{match: /queue/a, dead_letter: /queue/dead}]")
    sender, worker = world.connect(), user(world, read="/queue/a")
    sender.publish("/queue/a", "x")
    worker.subscribe("/queue/a")
    world.settle()
    worker.nack(worker.messages()[0], requeue="false")
    world.settle()
    worker.subscribe("/queue/dead", id="dead")
    assert worker.error() == "denied"
    sender.subscribe("/queue/dead", ack="auto")
    world.settle()
    assert sender.bodies() == ["x"]


def test_subscribing_to_a_bound_queue_needs_the_right_over_that_queue_only() -> None:
    world = World("destinations: [{match: /queue/all, fan_out: [/queue/all.a, /queue/all.b]}]")
    sender, worker = world.connect(), user(world, read="/queue/all.a")
    worker.subscribe("/queue/all.a", ack="auto")
    sender.publish("/queue/all", "1")
    world.settle()
    assert worker.bodies() == ["1"]
    same = Rights({"read": ["/queue/all.a"]})
    world.broker.access.changed(
        lambda session: Identity("", EVERYTHING if session is sender.session else same, "users")
    )
    sender.publish("/queue/all", "2")
    world.settle()
    assert worker.bodies() == ["2"]
    worker.subscribe("/queue/all.b", id="b")
    assert worker.error() == "denied"


# --- CONNECT ----------------------------------------------------------------------------------------------------------


class Authenticator:
    """An entrance that decides when it is told to."""

    def __init__(self, world: World) -> None:
        self.waiting: list[Login] = []
        world.broker.access.authenticator = self.waiting.append

    def decide(self, decision: Decision) -> None:
        self.waiting.pop(0).decide(decision)


def test_nothing_behind_connect_is_acted_upon_before_it_is_known_whose_it_is(world: World) -> None:
    authenticator = Authenticator(world)
    client = Client(world)
    client.say("CONNECT", accept_version="1.2", host="test", login="alice", passcode="secret")
    client.publish("/queue/a", "1", receipt="r")
    client.say("SUBSCRIBE", destination="/queue/a", id="0", ack="auto")
    world.broker.handle(client.session, [], world.time)
    assert not client.take()
    assert not world.broker.destinations
    asking = authenticator.waiting[0]
    assert (asking.login, asking.passcode, asking.address, asking.wanted) == ("alice", "secret", "test", True)
    authenticator.decide(Identity("alice", EVERYTHING, "users"))
    world.settle()
    assert [frame.command for frame in client.take()] == ["CONNECTED", "RECEIPT", "MESSAGE"]
    assert client.session.user == "alice"


def test_a_refused_client_gets_an_error_and_its_later_frames_are_dropped(world: World) -> None:
    authenticator = Authenticator(world)
    client = Client(world)
    client.say("CONNECT", accept_version="1.2", host="test", login="alice", passcode="wrong")
    client.publish("/queue/a", "1")
    authenticator.decide(ProtocolError("denied", "login or passcode is wrong"))
    assert client.error() == "denied"
    assert not world.broker.destinations
    assert world.broker.stats.logins_refused == 1


def test_a_decision_for_a_client_that_is_gone_does_nothing(world: World) -> None:
    authenticator = Authenticator(world)
    client = Client(world)
    client.say("CONNECT", accept_version="1.2", host="test", login="alice", passcode="x")
    client.drop()
    assert not authenticator.waiting[0].wanted
    authenticator.decide(Identity("alice", EVERYTHING, "users"))
    assert not client.session.connected
    world.holds_nothing()


# --- what changes while connected -------------------------------------------------------------------------------------


def test_new_rights_hold_at_once_also_for_what_is_subscribed(world: World) -> None:
    sender, client = world.connect(), user(world, read="/topic/a", write="/topic/a")
    client.subscribe("/topic/*", ack="auto")
    more = Rights({"read": ["/topic/a", "/topic/b"]})
    world.broker.access.changed(
        lambda session: Identity("", EVERYTHING if session is sender.session else more, "users")
    )
    sender.publish("/topic/b", "born now")
    world.settle()
    assert client.bodies() == ["born now"]
    client.publish("/topic/a", "x")
    assert client.error() == "denied"


def test_a_client_that_loses_the_right_to_its_subscription_is_disconnected(world: World) -> None:
    client, other = user(world, read="/topic/>"), user(world, read="/topic/>")
    client.subscribe("/topic/a", ack="auto")
    other.subscribe("/topic/b", ack="auto")
    less = Rights({"read": ["/topic/b"]})
    world.broker.access.changed(lambda session: Identity("alice", less, "users"))
    assert client.error() == "denied"
    assert not other.session.closing


def test_a_removed_user_is_disconnected(world: World) -> None:
    client = user(world, read="#")
    world.broker.access.changed(lambda session: ProtocolError("denied", "gone"))
    assert client.error() == "denied"


def test_many_removed_users_get_nothing_more_and_their_messages_are_requeued_in_portions(
    world: World,
) -> None:
    clients = [user(world, read="#", write="#") for _ in range(100)]
    for client in clients:
        client.subscribe("/topic/a", ack="auto")
        client.subscribe("/topic/b", id="b", ack="auto")
    access, budget = world.broker.access, world.broker.budget
    access.changed(lambda session: ProtocolError("denied", "gone"))
    world.connect().publish("/topic/a", "secret")
    world.settle()
    assert not any(client.messages() for client in clients)
    assert {client.error() for client in clients} == {"denied"}
    turns = 1
    while access.release_some():
        turns += 1
        assert budget.spent <= budget.most + 100, "and one step"
    assert turns > 3
    assert not any(client.session.subscriptions.by_id for client in clients)
