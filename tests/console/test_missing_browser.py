"""A browser that is missing is a skipped test, or a failure where one is required."""

from __future__ import annotations

import pytest

from tests.console import browser


@pytest.mark.parametrize("required", [False, True])
def test_a_missing_browser_is_named(required: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(browser.shutil, "which", lambda program: None)
    monkeypatch.setattr(browser, "REQUIRED", required)
    wanted = pytest.fail.Exception if required else pytest.skip.Exception
    with pytest.raises(wanted, match="no chromium here; `make clients` installs it"):
        browser.must_be_here()
