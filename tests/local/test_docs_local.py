"""Every snippet of docs/local.md runs."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest

from radiator.local import home as homes

PAGE = (Path(__file__).parents[2] / "docs" / "local.md").read_text("utf-8")
SNIPPETS = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
WAIT_SECONDS = 40.0  # the broker that a snippet starts ends by itself, ten seconds after the last one has left


@pytest.mark.thorough
def test_the_snippets_of_the_guide_to_local_use_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(homes.ENVIRONMENT, str(tmp_path / "h"))
    assert len(SNIPPETS) >= 5
    for number, code in enumerate(SNIPPETS):
        exec(compile(code, f"docs/local.md, snippet {number}", "exec"), {})
    deadline = time.monotonic() + WAIT_SECONDS
    while homes.listens(str(tmp_path / "h")):
        assert time.monotonic() < deadline
        time.sleep(0.1)
