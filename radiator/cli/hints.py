"""Print hints about destinations that are probably mistyped. The broker accepts any name, so a hint forbids nothing."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable

from radiator.cli.common import say
from radiator.routing.pattern import WILDCARDS, has_wildcard_character, segments

KINDS = ("queue", "topic")
ADDRESS = re.compile(r"[\w.-]+:\d{2,5}|[\w+]+://.*")  # as --url takes it
ALIKE = 0.85  # of difflib: `topics`, `queues`, `queu`
TOPIC = "; it is a topic, as the names of queues begin with /queue/"


def warn_of_slips(names: Iterable[str]) -> None:
    """Print a hint to stderr for each name that is probably mistyped."""
    for name in names:
        if meant := suggestion(name):
            say(f"hint: {meant}")


def suggestion(name: str) -> str | None:
    """Return a hint for a name that is probably mistyped, or None.

    Such a name has no prefix, is like ``/queue/NAME``, ``/topic/NAME`` or an address, or has a wildcard character
    inside a segment.
    """
    if ADDRESS.fullmatch(name):
        return f"{name} is a destination here; give the broker with --url"
    for part in segments(name.replace(",", "/")):
        if part not in WILDCARDS and has_wildcard_character(part):
            return f"{part} in {name} is a plain name: a wildcard is a whole segment"
    first, _, rest = name.lstrip("/").partition("/")
    close = difflib.get_close_matches(first.lower(), KINDS, n=1, cutoff=ALIKE)
    if not close and name[:1].isalnum():
        return f"{name} is another destination than /queue/{name} and /topic/{name}{TOPIC}"
    if not close:
        return None
    prefix = f"/{close[0]}/"
    if not rest:
        return f"{name} has no name after the prefix {prefix}; did you mean {prefix}NAME?"
    if name.startswith(prefix):
        return None
    kind = TOPIC if close[0] == "queue" else ""
    return f"{name} is another destination than {prefix}{rest}{kind}"
