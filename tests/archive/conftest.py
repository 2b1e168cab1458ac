"""Runs here commit by bytes alone, however busy the machine is; tests of the limit by time set it themselves."""

from __future__ import annotations

import pytest

from radiator.archive import jobs, run


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "ARCHIVE_COMMIT_SECONDS", float("inf"))
    monkeypatch.setattr(run, "ARCHIVE_COMMIT_SECONDS", float("inf"))
