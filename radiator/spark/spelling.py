"""Options as they are spelled: whose name is meant, and numbers. Reading and writing share it.

Names are compared without case and underscores. One option in two spellings is an error, as one of both values would be
passed over.

Spark hands names over in lower case. So errors call an option what its user has written as far as that can be told:
with underscores where he has put any, else with capitals, as Spark and its Kafka source write theirs.

Knows: text. Must not know: which options there are.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping

from radiator.errors import ConfigError

INT_MAX, LONG_MAX = (1 << 31) - 1, (1 << 63) - 1  # as in Java
SHOWN = 200  # characters of a value that does not fit


def plain(name: str) -> str:
    return name.replace("_", "").lower()


def camel(name: str) -> str:
    """``starting_offsets`` as ``startingOffsets``."""
    first, *others = name.split("_")
    return first + "".join(map(str.capitalize, others))


def like(key: str, name: str) -> str:
    """Our ``name`` in the way in which ``key`` is written. An underscore says that no capitals are meant."""
    return name if "_" in key else camel(name)


class Values(dict[str, str]):
    """Values of options by their names of ours. ``called``: what errors call these."""

    def __init__(self) -> None:
        super().__init__()
        self._keys: dict[str, str] = {}

    def take(self, key: str, name: str, value: str) -> None:
        """Raises ConfigError where there is one."""
        said = like(key, name)
        if name in self:
            raise ConfigError(f"options {self.called(name)} and {said} are two spellings of one: expected one of them")
        self._keys[name] = said
        self[name] = value

    def called(self, name: str) -> str:
        return self._keys.get(name, camel(name))


def named(given: Mapping[str, str], names: Mapping[str, str], unknown: Callable[[str], str]) -> Values:
    """The values by their names of ours; ``names`` has these by their plain ones. Raises ConfigError, of an option that
    is not among them with the words of ``unknown``."""
    values = Values()
    for key, value in given.items():
        name = names.get(plain(key))
        if name is None:
            raise ConfigError(unknown(key))
        values.take(key, name, str(value))
    return values


def expected(key: str, names: Mapping[str, str]) -> str:
    """What there is instead of ``key``, the likely one first."""
    near = difflib.get_close_matches(plain(key), names, n=1)
    hint = f" (did you mean {like(key, names[near[0]])}?)" if near else ""
    return f"{hint}: expected {', '.join(like(key, name) for name in names.values())}"


def number(values: Values, option: str, default: int, most: int = INT_MAX) -> int:
    if option not in values:
        return default
    text = values[option].strip()
    found = whole(text)
    if not found:
        raise ConfigError(f"option {values.called(option)}: expected a whole number above 0, got {short(text)!r}")
    if found > most:
        raise ConfigError(
            f"option {values.called(option)}: expected a whole number from 1 to {most}, got {short(text)!r}"
        )
    return found


def whole(text: str) -> int | None:
    """A number of digits, or None. Of more than 64 bits it is ``LONG_MAX + 1``: ``int`` has a limit of its own."""
    if not (text.isascii() and text.isdigit()):
        return None
    digits = text.lstrip("0")
    return int(digits or "0") if len(digits) <= len(str(LONG_MAX)) else LONG_MAX + 1


def short(text: str) -> str:
    """For messages: what was given, which may be pages of it."""
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}... ({len(text)} characters)"


def over(ours: Mapping[str, object], theirs: Mapping[str, object]) -> dict[str, str]:
    """``theirs``, and of ``ours`` what they do not say in any spelling."""
    said = {plain(name) for name in theirs}
    kept = {name: value for name, value in ours.items() if plain(name) not in said}
    return {name: str(value) for name, value in {**kept, **theirs}.items()}
