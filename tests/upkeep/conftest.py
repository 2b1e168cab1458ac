"""Fixtures of the tests of upkeep."""

from __future__ import annotations

import shutil
from copy import copy
from pathlib import Path

import pytest

from tests.upkeep.spoiled import Made


@pytest.fixture(scope="session")
def original(tmp_path_factory: pytest.TempPathFactory) -> Made:
    return Made(tmp_path_factory.mktemp("original"))


@pytest.fixture
def made(original: Made, tmp_path: Path) -> Made:
    """A copy of it, to be spoiled."""
    mine = copy(original)
    mine.root = str(tmp_path / "data")
    shutil.copytree(original.root, mine.root)
    mine.directory, mine.shared = (
        each.replace(original.root, mine.root) for each in (original.directory, original.shared)
    )
    return mine
