"""Patterns over destination names.

    *   exactly one segment                 /topic/weather.*   matches  /topic/weather.EWR
    >   one or more, only as the last       /topic/clicks.>    matches  /topic/clicks.a.b    not  /topic/clicks
    #   zero or more, anywhere              /topic/clicks.#    matches  /topic/clicks  and  /topic/clicks.a.b

A segment is what stands between separators; "." and "/" both separate, so ``/topic/a.*`` also matches ``/topic/a/b``.
The slash a name begins with is a separator too: the first segment of ``/topic/a`` is empty, and ``*`` matches it like
any other. A wildcard is a whole segment: elsewhere ``*``, ``>`` and ``#`` are characters like any other, and
``/topic/a*b`` is a name. (In a file it is a slip more often than a name, so there ``rules`` refuses it.)

A pattern without a wildcard is a name and matches itself only, byte for byte: ``/topic/a.b`` and ``/topic/a/b`` are
two destinations. A comma list is several patterns; a name matches it once, whichever of them it matches. In the list of
a subscription a wildcard does not match the log of deliveries, unless ``/topic/radiator.`` is in front of it.

Matching looks back to the last ``#`` only, so it takes at most (segments of pattern) x (segments of name) steps
whatever a peer sends. Each wildcard captures what it stood for, as written in the name; where several ways exist,
earlier wildcards take as little as they can.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from radiator import limits
from radiator.errors import ProtocolError

ONE: Final = "*"
ONE_OR_MORE: Final = ">"
ANY: Final = "#"
WILDCARDS: Final = frozenset((ONE, ONE_OR_MORE, ANY))
DELIVERIES: Final = "/topic/radiator.deliveries"  # the broker writes it, for rules with ``record: deliveries``


def segments(name: str) -> list[str]:
    """``"/topic/a.b"`` -> ``["", "topic", "a", "b"]``."""
    return name.replace("/", ".").split(".")


def is_pattern(text: str) -> bool:
    """Return whether ``text`` cannot be a name: a segment is a wildcard, well placed or not, or it is a list."""
    return "," in text or _is_wild(text)


def has_wildcard_character(text: str) -> bool:
    """Return whether ``*``, ``>`` or ``#`` is in ``text``, as a wildcard or not."""
    return "*" in text or ">" in text or "#" in text


def _is_wild(text: str) -> bool:
    return has_wildcard_character(text) and not WILDCARDS.isdisjoint(segments(text))


def _bad(text: str, why: str) -> ProtocolError:
    return ProtocolError("bad-pattern", f"malformed pattern: {why}", f"got {text[:200]!r}")


class Pattern:
    """One pattern, or one name. Raises ProtocolError ``bad-pattern``."""

    __slots__ = ("_any", "_parts", "is_literal", "text", "wildcard_count")

    def __init__(self, text: str) -> None:
        if not text:
            raise _bad(text, "expected a name or a pattern, got nothing")
        if "\0" in text:
            raise _bad(text, "a name cannot contain NUL")
        self.text = text
        self.is_literal = not _is_wild(text)
        self._parts: list[str] = []
        self._any = False
        self.wildcard_count = 0
        if not self.is_literal:
            self._parse(segments(text))

    def _parse(self, parts: list[str]) -> None:
        if len(parts) > limits.PATTERN_SEGMENTS_MAX:
            raise _bad(self.text, f"expected at most {limits.PATTERN_SEGMENTS_MAX} segments, got {len(parts)}")
        if ONE_OR_MORE in parts[:-1]:
            raise _bad(self.text, "> can only be the last segment; # matches any number of segments anywhere")
        self._parts = parts
        self._any = parts[-1] == ONE_OR_MORE or ANY in parts
        self.wildcard_count = sum(part in WILDCARDS for part in parts)

    def __repr__(self) -> str:
        return f"Pattern({self.text!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Pattern) and other.text == self.text

    def __hash__(self) -> int:
        return hash(self.text)

    def matches(self, name: str) -> bool:
        """Return whether the pattern matches a name."""
        if self.is_literal:
            return name == self.text
        return self.matches_segments(segments(name))

    def matches_segments(self, names: list[str]) -> bool:
        """Return the same for a pattern that is not literal and a name that is already split."""
        parts = self._parts
        if not self._any:  # the common case: as many segments as parts, each equal or free
            return len(names) == len(parts) and all(
                part in (name, ONE) for part, name in zip(parts, names, strict=True)
            )
        return self._spans(names) is not None

    def captures(self, name: str) -> tuple[str, ...] | None:
        """Return what each wildcard matched, in order; ``()`` for an equal name, None if ``name`` does not match."""
        if self.is_literal:
            return () if name == self.text else None
        names = segments(name)
        spans = self._spans(names)
        if spans is None:
            return None
        starts, at = [], 0
        for segment in names:
            starts.append(at)
            at += len(segment) + 1
        return tuple(name[starts[a] : starts[b - 1] + len(names[b - 1])] if b > a else "" for a, b in spans)

    def _spans(self, names: list[str]) -> list[tuple[int, int]] | None:
        """Return the range of segments each wildcard matched, or None.

        This is the usual algorithm of a glob: on a mismatch the last ``#`` takes one segment more; earlier ones never
        need to, since what is between them has already been found as early as possible.
        """
        parts = self._parts
        spans: list[tuple[int, int]] = []
        part = at = 0
        retry: tuple[int, int, int] | None = None  # (part after the #, where it resumes, spans before it)
        while at < len(names) or part < len(parts):
            if part < len(parts):
                wanted = parts[part]
                if wanted == ANY:
                    retry = (part + 1, at, len(spans))
                    spans.append((at, at))
                    part += 1
                    continue
                if at < len(names):
                    if wanted == ONE_OR_MORE:
                        spans.append((at, len(names)))
                        return spans
                    if wanted == ONE:
                        spans.append((at, at + 1))
                        part, at = part + 1, at + 1
                        continue
                    if wanted == names[at]:
                        part, at = part + 1, at + 1
                        continue
            if retry is None or retry[1] >= len(names):
                return None
            part, resume, kept = retry
            at = resume + 1
            retry = (part, at, kept)
            start = spans[kept][0]
            del spans[kept:]
            spans.append((start, at))
        return spans


class PatternSet:
    """A comma list, which matches what any of its patterns matches."""

    __slots__ = ("_names", "_patterns", "patterns", "text")

    def __init__(self, text: str, patterns: tuple[Pattern, ...]) -> None:
        self.text = text
        self.patterns = patterns
        self._names = frozenset(pattern.text for pattern in patterns if pattern.is_literal)
        self._patterns = tuple(pattern for pattern in patterns if not pattern.is_literal)

    def __repr__(self) -> str:
        return f"PatternSet({self.text!r})"

    def __iter__(self) -> Iterator[Pattern]:
        return iter(self.patterns)

    @property
    def is_literal(self) -> bool:
        """Whether no pattern has a wildcard: it is a list of names."""
        return not self._patterns

    @property
    def names(self) -> tuple[str, ...]:
        """The members that are names, in order, each once; these destinations are wanted before they exist."""
        return tuple(dict.fromkeys(pattern.text for pattern in self.patterns if pattern.is_literal))

    def matches(self, name: str) -> bool:
        """Return whether any pattern matches a name."""
        if name in self._names:
            return True
        if not self._patterns:
            return False
        names = segments(name)
        return any(pattern.matches_segments(names) for pattern in self._patterns)

    def captures(self, name: str) -> tuple[str, ...] | None:
        """Return the captures of the first pattern that matches, or None."""
        for pattern in self.patterns:
            captures = pattern.captures(name)
            if captures is not None:
                return captures
        return None


class SubscribedPatterns(PatternSet):
    """The comma list of a subscription: a wildcard in place of ``radiator`` does not match ``DELIVERIES``.

    Otherwise a subscription to everything would get the rows about its own deliveries.
    """

    __slots__ = ("_has_deliveries",)

    def __init__(self, text: str, patterns: tuple[Pattern, ...]) -> None:
        super().__init__(text, patterns)
        top = segments(DELIVERIES)[:-1]
        self._has_deliveries = any(
            pattern.matches(DELIVERIES) and segments(pattern.text)[: len(top)] == top for pattern in patterns
        )

    def matches(self, name: str) -> bool:
        """Return whether any pattern matches a name."""
        return self._has_deliveries if name == DELIVERIES else super().matches(name)


def parse_subscribed(text: str) -> SubscribedPatterns:
    """Parse the comma list of a subscription. Raises ProtocolError ``bad-pattern``."""
    return SubscribedPatterns(text, parse_list(text).patterns)


def parse_list(text: str) -> PatternSet:
    """Parse a comma list: ``"/topic/a.>, /topic/b"`` has two patterns. Raises ProtocolError ``bad-pattern``."""
    if "," not in text:
        return PatternSet(text, (Pattern(text),))
    items = [item.strip(" ") for item in text.split(",")]
    if len(items) > limits.PATTERNS_PER_LIST_MAX:
        raise _bad(text, f"expected at most {limits.PATTERNS_PER_LIST_MAX} patterns in a list, got {len(items)}")
    if "" in items:
        raise _bad(text, "expected a pattern on each side of a comma")
    return PatternSet(text, tuple(dict.fromkeys(Pattern(item) for item in items)))
