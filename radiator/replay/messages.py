"""Convert a record to a message to be sent again.

All headers of the sender are carried, with the times. Those about the first sending are left out: its identity, its
expiry, its delivery time, the address of a connection's own queue. Added are ``replayed-from`` (the ``message-id`` of
the record) and a ``dedup-id`` made of the replay's name and that.

This module knows headers and templates. It does not know files or connections. Its only state is a cache of names.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from radiator.client.sending import Outgoing
from radiator.errors import ConfigError
from radiator.export.rows import Row
from radiator.routing.pattern import PatternSet
from radiator.routing.template import PLACEHOLDER, expand

REPLAYED_FROM = "replayed-from"
LEFT_OUT = frozenset({"dedup-id", "producer-id", "sequence", "expires", "deliver-at"})
TEMP_QUEUE_PREFIX = "/temp-queue/"
_NUMBER = re.compile(r"[1-9][0-9]{0,3}")


class Targets:
    """``template``: a name, with ``{name}`` for the record's own and ``{1}``... for what the wildcards matched."""

    def __init__(self, template: str, patterns: PatternSet | None) -> None:
        self._template = template
        self._patterns = patterns
        self._known: dict[str, str] = {}

    def of(self, destination: str) -> str:
        """Return the new destination. Raises ConfigError if the template uses a wildcard that does not exist."""
        target = self._known.get(destination)
        if target is None:
            target = self._known[destination] = self._expand(destination)
        return target

    def _expand(self, destination: str) -> str:
        captures = (self._patterns.captures(destination) if self._patterns is not None else None) or ()
        for match in PLACEHOLDER.finditer(self._template):
            key = match[1]
            if key == "name" or (key and _NUMBER.fullmatch(key) and int(key) <= len(captures)):
                continue
            known = "".join(f", {{{number}}}" for number in range(1, len(captures) + 1))
            raise ConfigError(
                f"{self._template!r}: expected {{name}}{known} between braces, got {match[0]!r}; the numbers mean the "
                f"wildcards of the pattern of {destination}"
            )
        return expand(self._template, destination, captures)


def message(row: Row, target: str, replay: str, added: Mapping[str, str]) -> Outgoing:
    """Return the message of a record."""
    headers: dict[str, str | int] = {name: value for name, value in row.headers.items() if name not in LEFT_OUT}
    if row.headers.get("reply-to", "").startswith(TEMP_QUEUE_PREFIX):
        del headers["reply-to"]
    headers.update(added)
    headers[REPLAYED_FROM] = row.message_id
    headers["dedup-id"] = f"{replay}/{row.message_id}"
    return Outgoing(target, row.body, headers)
