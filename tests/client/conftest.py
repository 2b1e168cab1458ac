from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.client.fake import FakeBroker


@pytest.fixture
def fake() -> Iterator[FakeBroker]:
    broker = FakeBroker()
    yield broker
    broker.close()
