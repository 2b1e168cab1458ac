"""A plug-in for tests: it lets nobody in who is called slow before a file appears."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping


def ask(login: str, passcode: str, address: str) -> Mapping[str, object] | None:
    """Everybody may do everything; ``slow`` waits for the file that its passcode names."""
    while login == "slow" and not os.path.exists(passcode):
        time.sleep(0.01)
    return {"read": ["#"], "write": ["#"]}
