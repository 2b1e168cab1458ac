"""The tables of states: a pair that a table does not have is an error, and every state is reached."""

from __future__ import annotations

from typing import Any

import pytest

from radiator.broker.clients import session_states
from radiator.broker.queues import message_states
from radiator.storage import segment_states

TABLES: list[tuple[Any, Any, Any]] = [  # a module, its first state, and its last
    (session_states, session_states.State.NEW, session_states.State.CLOSED),
    (message_states, message_states.State.FRESH, message_states.State.SETTLED),
    (segment_states, segment_states.State.ACTIVE, segment_states.State.DELETED),
]
PAIRS = [(module, state, event) for module, _, _ in TABLES for state in module.State for event in module.Event]


@pytest.mark.parametrize(("module", "state", "event"), PAIRS)
def test_what_a_table_does_not_have_is_an_error(module: Any, state: Any, event: Any) -> None:
    table = module.TRANSITIONS
    if event in table[state]:
        assert table.after(state, event) is table[state][event]
    else:
        with pytest.raises(RuntimeError, match=f"{state.value}.*{event.value}"):
            table.after(state, event)


@pytest.mark.parametrize(("module", "first", "last"), TABLES)
def test_every_state_is_reached_and_the_last_one_is_never_left(module: Any, first: Any, last: Any) -> None:
    reached, todo = {first}, [first]
    while todo:
        new = set(module.TRANSITIONS[todo.pop()].values()) - reached
        reached |= new
        todo += new
    assert reached == set(module.State)
    assert set(module.TRANSITIONS[last].values()) <= {last}
