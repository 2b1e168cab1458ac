"""A world for each test: a broker in memory, as it starts with the default configuration."""

from __future__ import annotations

import pytest

from tests.broker.harness import World


@pytest.fixture
def world() -> World:
    return World()
