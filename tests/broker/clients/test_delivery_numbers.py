"""Numbers of deliveries: unique in a session, and enough to tell a late ACK from a wrong one."""

from __future__ import annotations

import pytest

from radiator.broker.clients.delivery_numbers import DeliveryNumbers

LOG = b"/queue/a@"


def test_no_number_is_given_out_twice() -> None:
    numbers = DeliveryNumbers("s1")
    assert [numbers.assign_run(3, LOG, 9), numbers.assign(), numbers.assign_run(1, LOG, 4)] == [0, 3, 4]
    assert numbers.next == 5
    assert [numbers.new_tag(), numbers.new_tag()] == ["s1-0", "s1-1"]


@pytest.mark.parametrize(
    ("name", "delivered"),
    [
        ("s1-0-0", True),
        ("s1-0-1", True),
        ("s1-0-2", False),  # not given out
        ("s1-1-0", False),  # no such tag
        ("s2-0-0", False),
        ("s1-0-01", False),
        ("s1-0-", False),
        ("/queue/a@7", True),
        ("/queue/a@5", True),
        ("/queue/a@8", False),
        ("/queue/b@0", False),
        ("/queue/a@-1", False),
        ("/queue/a@", False),
        ("", False),
    ],
)
def test_an_id_of_a_delivery_differs_from_one_that_was_never_sent(name: str, delivered: bool) -> None:
    numbers = DeliveryNumbers("s1")
    numbers.new_tag()
    numbers.assign_run(2, LOG, 7)
    assert numbers.was_delivered(name) is delivered


def test_a_redelivery_of_an_earlier_message_forgets_no_later_one() -> None:
    numbers = DeliveryNumbers("s1")
    numbers.assign_run(1, LOG, 7)
    numbers.assign_run(1, LOG, 3)
    assert numbers.was_delivered("/queue/a@7")


def test_what_may_have_been_returned_is_at_or_below_the_highest_lost_number() -> None:
    numbers = DeliveryNumbers("s1")
    assert not numbers.may_have_lost("s1-0-0") and not numbers.may_have_lost("/queue/a@7")
    numbers.note_lost(5)
    numbers.note_lost(2)
    assert numbers.may_have_lost("s1-0-5") and not numbers.may_have_lost("s1-0-6")
    assert numbers.may_have_lost("/queue/a@7")
