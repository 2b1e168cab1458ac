"""Options as they are spelled: whose name is meant, and numbers. Reading and writing share it.

Names are compared without case and underscores. One option in two spellings is an error, as one of both values would be
passed over.

Knows: text. Must not know: which options there are.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping

from radiator.errors import ConfigError


def plain(name: str) -> str:
    return name.replace("_", "").lower()


def named(given: Mapping[str, str], names: Mapping[str, str], unknown: Callable[[str], str]) -> dict[str, str]:
    """The values by their names of ours; ``names`` has these by their plain ones. Raises ConfigError, of an option that
    is not among them with the words of ``unknown``."""
    values: dict[str, str] = {}
    spelled: dict[str, str] = {}
    for key, value in given.items():
        name = names.get(plain(key))
        if name is None:
            raise ConfigError(unknown(key))
        if name in spelled:
            raise ConfigError(f"options {spelled[name]} and {key} are two spellings of {name}: expected one of them")
        spelled[name] = key
        values[name] = str(value)
    return values


def did_you_mean(key: str, names: Mapping[str, str]) -> str:
    near = difflib.get_close_matches(plain(key), names, n=1)
    return f" (did you mean {names[near[0]]}?)" if near else ""


def number(values: Mapping[str, str], option: str, default: int) -> int:
    if option not in values:
        return default
    text = values[option].strip()
    if not (text.isascii() and text.isdigit() and int(text) > 0):
        raise ConfigError(f"option {option}: expected a whole number above 0, got {text!r}")
    return int(text)


def over(ours: Mapping[str, object], theirs: Mapping[str, object]) -> dict[str, str]:
    """``theirs``, and of ``ours`` what they do not say in any spelling."""
    said = {plain(name) for name in theirs}
    kept = {name: value for name, value in ours.items() if plain(name) not in said}
    return {name: str(value) for name, value in {**kept, **theirs}.items()}
