"""Regular expressions over destination names, as clients may send them (``match:regex`` on SUBSCRIBE).

RE2 runs them (an extra, ``radiator-broker[regex]``). It has no backtracking: a match takes time proportional to the
name and to the size of the compiled expression, and that size is bounded here. What RE2 does not support (look-around,
back references) is an error.

Invariants: the whole name must match; a bounded number of results is cached.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

from radiator import limits
from radiator.errors import ProtocolError
from radiator.routing.pattern import DELIVERIES, Pattern, PatternSet

DECISIONS_MAX: Final = 1_000  # remembered, of one expression: shared logs ask for the same names again and again
_MEMORY_BYTES: Final = 256 * limits.KIB  # of one compiled expression, its automaton included


class Regex(Pattern):
    """One expression. Raises ProtocolError ``bad-pattern``."""

    __slots__ = ("_decided", "_fullmatch")

    def __init__(self, text: str) -> None:
        self.text = text
        self.is_literal = False
        self._fullmatch = _compile(text)
        self._decided: dict[str, bool] = {}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Regex) and other.text == self.text

    def __hash__(self) -> int:
        return hash(("regex", self.text))

    def matches(self, name: str) -> bool:
        """Return whether the expression matches a name."""
        decided = self._decided.get(name)
        if decided is None:
            if len(self._decided) >= DECISIONS_MAX:
                self._decided.clear()
            decided = self._decided[name] = self._fullmatch(name.encode()) is not None
        return decided


class RegexSet(PatternSet):
    """A regular expression, which replaces the list of patterns of a subscription.

    It matches ``DELIVERIES`` only if it begins with ``/topic/radiator``.
    """

    __slots__ = ()

    def __init__(self, text: str) -> None:
        super().__init__(text, (Regex(text),))

    def matches(self, name: str) -> bool:
        """Return whether the expression matches a name."""
        if name == DELIVERIES and not self.text.startswith("/topic/radiator"):
            return False
        return self.patterns[0].matches(name)


def is_installed() -> bool:
    """Return whether RE2 is installed."""
    try:
        import re2  # noqa: F401
    except ModuleNotFoundError:
        return False
    return True


@lru_cache(maxsize=64)
def _compile(text: str) -> Any:
    import re2

    if len(text) > limits.REGEX_CHARS_MAX:
        raise _bad(f"expected at most {limits.REGEX_CHARS_MAX} characters, got {len(text)}", text)
    if "\0" in text:
        raise _bad("a name cannot contain NUL", text)
    options = re2.Options()
    options.log_errors = False
    options.max_mem = _MEMORY_BYTES
    options.never_capture = True
    try:
        found = re2.compile(text.encode(), options)
    except re2.error as error:
        why = error.args[0] if error.args else b""
        raise _bad(why.decode(errors="replace") if isinstance(why, bytes) else str(why), text) from None
    if found.programsize > limits.REGEX_STEPS_MAX:
        raise _bad(f"expected at most {limits.REGEX_STEPS_MAX} steps when compiled, got {found.programsize}", text)
    return found.fullmatch


def _bad(why: str, text: str) -> ProtocolError:
    detail = f"Expected an expression as RE2 has it, for the whole name, got {text[:200]!r}"
    return ProtocolError("bad-pattern", f"malformed regular expression: {why}"[:500], detail)
