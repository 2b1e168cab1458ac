"""Disconnect a client."""

from __future__ import annotations

import pytest

from radiator.broker.admin import connection_verbs
from tests.broker.admin.asking import done, refused, user
from tests.broker.harness import Client, World


@pytest.fixture
def world() -> World:
    return World()


def consumer(world: World) -> Client:
    client = world.connect()
    client.subscribe("/queue/plain", prefetch_count=5)
    client.publish("/queue/plain", "1", "2")
    world.settle()
    assert len(client.messages()) == 2
    return client


def test_a_client_is_disconnected_with_the_reason_and_its_messages_return(world: World) -> None:
    client, worker = world.connect(), consumer(world)
    answer = done(client, "clients.disconnect", session=worker.session.id, reason="maintenance \x1b[31m")
    assert answer["disconnected"] == worker.session.id
    (frame,) = worker.take("ERROR")
    assert frame.headers["error-code"] == "disconnected"
    assert frame.body == b"maintenance \\x1b[31m"
    assert worker.session.closing
    other = world.connect()
    other.subscribe("/queue/plain", prefetch_count=5)
    world.settle()
    assert other.bodies() == ["1", "2"]
    assert refused(client, "clients.disconnect", session=worker.session.id)["code"] == "not-found"


def test_a_client_is_not_disconnected_by_itself_or_without_the_right_over_everything(world: World) -> None:
    client, worker = world.connect(), consumer(world)
    assert refused(client, "clients.disconnect", session=client.session.id)["code"] == "bad-request"
    limited = user(world, admin=["/queue/plain"])
    assert refused(limited, "clients.disconnect", session=worker.session.id)["code"] == "denied"
    assert not worker.session.closing
    assert len("x" * 900) > connection_verbs.REASON_CHARS_MAX
    done(client, "clients.disconnect", session=worker.session.id, reason="x" * 900)
    assert len(worker.take("ERROR")[0].body) == connection_verbs.REASON_CHARS_MAX
