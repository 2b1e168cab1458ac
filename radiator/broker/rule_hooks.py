"""Hooks of a rule that run on each message before it is stored: middleware and a schema."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from radiator.middleware import Middleware

Validate = Callable[[bytes], str | None]  # returns the error of a body, or None


class RuleHooks(NamedTuple):
    """The hooks of one rule.

    Attributes:
        middleware: Pairs of a name, for messages and logs, and the function.
        validate: Checks a body against the schema of the rule.
    """

    middleware: tuple[tuple[str, Middleware], ...] = ()
    validate: Validate | None = None
