"""What a rule wants done with each message before it is stored: the operator's middleware, and a schema."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from radiator.middleware import Middleware

Validate = Callable[[bytes], str | None]  # what is wrong with a body, in words; None: nothing


class RuleHooks(NamedTuple):
    """What one rule wants done. ``middleware`` pairs a name for messages and logs with each function."""

    middleware: tuple[tuple[str, Middleware], ...] = ()
    validate: Validate | None = None
