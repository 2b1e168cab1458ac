"""Every snippet of docs/client.md runs against a real broker, in the order of the page."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.running import BrokerProcess

PAGE = (Path(__file__).parent.parent / "docs" / "client.md").read_text("utf-8")
SNIPPETS = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("number", range(len(SNIPPETS)))
def test_a_snippet_of_the_client_guide_runs(number: int, shared_broker: BrokerProcess) -> None:
    names: dict[str, Any] = {}
    first = SNIPPETS[0].splitlines()[0]  # the import that the others take as given
    code = SNIPPETS[number].replace("127.0.0.1:61613", shared_broker.address)
    exec(compile(f"{first}\n{code}", f"docs/client.md, snippet {number}", "exec"), names)


def test_the_guide_has_snippets() -> None:
    assert len(SNIPPETS) >= 7
