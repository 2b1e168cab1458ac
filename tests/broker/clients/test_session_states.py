"""A session's life is a table, and nothing else happens to a session."""

from __future__ import annotations

import pytest

from radiator.broker.clients.session_states import TRANSITIONS, Event, State
from tests.broker.harness import World


@pytest.mark.parametrize("state", State)
@pytest.mark.parametrize("event", Event)
def test_what_the_table_does_not_have_is_an_error(state: State, event: Event) -> None:
    if event in TRANSITIONS[state]:
        assert TRANSITIONS.after(state, event) is TRANSITIONS[state][event]
    else:
        with pytest.raises(RuntimeError, match=f"{state.value}.*{event.value}"):
            TRANSITIONS.after(state, event)


def test_every_state_is_reached_and_the_last_one_is_never_left() -> None:
    reached, todo = {State.NEW}, [State.NEW]
    while todo:
        new = set(TRANSITIONS[todo.pop()].values()) - reached
        reached |= new
        todo += new
    assert reached == set(State)
    assert set(TRANSITIONS[State.CLOSED].values()) == {State.CLOSED}


def test_a_session_goes_through_its_states() -> None:
    world = World()
    client = world.connect()
    session = client.session
    assert session.state is State.CONNECTED
    client.say("NONSENSE")
    assert session.state is State.CLOSING and session.closing and not session.closed
    world.broker.disconnect(session)
    assert session.state is State.CLOSED and session.closed
