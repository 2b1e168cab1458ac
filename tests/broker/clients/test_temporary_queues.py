"""The three spellings of a temporary queue."""

from __future__ import annotations

from radiator.broker.clients.temporary_queues import TemporaryQueues, owner_of

NAME = "/temp-queue/a"


def test_a_queue_belongs_to_the_session_that_its_name_ends_with() -> None:
    own, other = TemporaryQueues("s1", "one"), TemporaryQueues("s2", "two")
    name = own.name_of(NAME)
    assert name == own.name_of(name) == other.name_of(name) == "/temp-queue/a@s1"
    assert own.owns(name) and not other.owns(name)
    assert owner_of(name) == "s1"


def test_only_the_address_has_the_secret() -> None:
    own = TemporaryQueues("s1", "one")
    name = own.name_of(NAME)
    assert own.address_of(name) == f"{name}~one" and "one" not in name
    assert own.is_secret("one")
    assert not own.is_secret("") and not own.is_secret("two") and not own.is_secret("ö")
