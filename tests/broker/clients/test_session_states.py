"""A session's life is a table, and nothing else happens to a session."""

from __future__ import annotations

from radiator.broker.clients.session_states import State
from tests.broker.harness import World


def test_a_session_goes_through_its_states() -> None:
    world = World()
    client = world.connect()
    session = client.session
    assert session.state is State.CONNECTED
    client.say("NONSENSE")
    assert session.state is State.CLOSING and session.closing and not session.closed
    world.broker.disconnect(session)
    assert session.state is State.CLOSED and session.closed
