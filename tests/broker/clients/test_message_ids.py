"""Deliveries in flight are found by message id, whatever was delivered and settled before."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from radiator.broker.clients import session as module
from radiator.broker.clients.session import MESSAGE_IDS_SPARE, InFlight, MessageIds
from radiator.broker.queues.consumer import Number

LOGS = [b"a@", b"b@"]
STEPS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(LOGS), st.lists(st.integers(0, 5), min_size=1, max_size=4, unique=True)),
        st.integers(0, 20),  # which of those in flight is settled
    ),
    max_size=40,
)


@given(STEPS, st.booleans(), st.integers(0, 3))
def test_it_finds_what_is_in_flight(steps: list[tuple[bytes, list[int]] | int], late: bool, spare: int) -> None:
    in_flight: dict[Number, InFlight] = {}
    message_ids = None if late else MessageIds(in_flight)
    number = 0
    before, module.MESSAGE_IDS_SPARE = module.MESSAGE_IDS_SPARE, spare
    try:
        for step in steps:
            if isinstance(step, int):
                if in_flight:
                    del in_flight[list(in_flight)[step % len(in_flight)]]
                continue
            log, offsets = step
            numbers = [str(number + each) for each in range(len(offsets))]
            number += len(offsets)
            in_flight.update({each: (None, offset, log) for each, offset in zip(numbers, offsets, strict=True)})
            if message_ids is not None:
                message_ids.add(log, offsets, numbers)
    finally:
        module.MESSAGE_IDS_SPARE = before
    message_ids = message_ids or MessageIds(in_flight)
    for log in LOGS:
        for offset in range(6):
            name = f"{log.decode()}{offset}"
            expected = [each for each, (_, found, there) in in_flight.items() if (there, found) == (log, offset)]
            found = [message_ids.first.get(name, ""), *message_ids.more.get(name, ())]
            assert [each for each in found if each in in_flight] == expected


def test_what_is_not_in_flight_any_more_takes_bounded_space() -> None:
    in_flight: dict[Number, InFlight] = {}
    message_ids = MessageIds(in_flight)
    for number in range(10_000):
        in_flight[str(number)] = (None, number, LOGS[0])
        message_ids.add(LOGS[0], [number], [str(number)])
        in_flight.pop(str(number - 3), None)
        assert len(message_ids.first) <= 2 * 4 + MESSAGE_IDS_SPARE + 1
