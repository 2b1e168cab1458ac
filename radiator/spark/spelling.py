"""Match option names in any spelling, and parse numbers. Reading and writing share this module.

Names are compared without case and underscores. One option in two spellings is an error, because one of the two values
would be ignored.

Spark passes names in lower case. So error messages write an option as its user did, as far as that is known: with
underscores if the user wrote one, else with capitals, as Spark and its Kafka source do.

Must not depend on the list of options.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping

from radiator.errors import ConfigError

INT_MAX, LONG_MAX = (1 << 31) - 1, (1 << 63) - 1  # as in Java
SHOWN = 200  # characters of a wrong value in an error message


def plain(name: str) -> str:
    """Return a name without case and underscores, for comparisons.

    Args:
        name: The name of an option.
    """
    return name.replace("_", "").lower()


def camel(name: str) -> str:
    """Return a name with capitals instead of underscores.

    Args:
        name: The name of an option, with underscores.

    Example:
        >>> camel("starting_offsets")
        'startingOffsets'
    """
    first, *others = name.split("_")
    return first + "".join(map(str.capitalize, others))


def like(key: str, name: str) -> str:
    """Return ``name`` in the style of ``key``: with underscores if ``key`` has one, else with capitals.

    Args:
        key: The option as the user wrote it.
        name: The name of an option, with underscores.
    """
    return name if "_" in key else camel(name)


class Values(dict[str, str]):
    """The values of options, by their names with underscores."""

    def __init__(self) -> None:
        super().__init__()
        self._keys: dict[str, str] = {}

    def take(self, key: str, name: str, value: str) -> None:
        """Add a value.

        Args:
            key: The option as the user wrote it.
            name: The name of the option, with underscores.
            value: The value.

        Raises:
            ConfigError: The option was given before in another spelling.
        """
        said = like(key, name)
        if name in self:
            raise ConfigError(
                f"options {self.called(name)} and {said} are two spellings of one option: expected one of them"
            )
        self._keys[name] = said
        self[name] = value

    def called(self, name: str) -> str:
        """Return the name of an option as the user wrote it, for error messages.

        Args:
            name: The name of the option, with underscores.
        """
        return self._keys.get(name, camel(name))


def named(given: Mapping[str, str], names: Mapping[str, str], unknown: Callable[[str], str]) -> Values:
    """Return the values of options, by their names with underscores.

    Args:
        given: The options as the user wrote them.
        names: The names with underscores, by their ``plain`` form.
        unknown: Returns the error message for an option that is not in ``names``.

    Raises:
        ConfigError: An option is unknown, or given in two spellings.
    """
    values = Values()
    for key, value in given.items():
        name = names.get(plain(key))
        if name is None:
            raise ConfigError(unknown(key))
        values.take(key, name, str(value))
    return values


def expected(key: str, names: Mapping[str, str]) -> str:
    """Return the end of an error message about an unknown option: the closest name, and all names.

    Args:
        key: The option as the user wrote it.
        names: The names with underscores, by their ``plain`` form.
    """
    near = difflib.get_close_matches(plain(key), names, n=1)
    hint = f" (did you mean {like(key, names[near[0]])}?)" if near else ""
    return f"{hint}: expected {', '.join(like(key, name) for name in names.values())}"


def number(values: Values, option: str, default: int, most: int = INT_MAX) -> int:
    """Return the value of an option as a positive whole number.

    Args:
        values: The values of the options.
        option: The name of the option.
        default: The result if the option was not given.
        most: The largest allowed number.

    Raises:
        ConfigError: The value is not a whole number from 1 to ``most``.
    """
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
    """Return a text of digits as a number, or None. Numbers of more than 64 bits become ``LONG_MAX + 1``.

    Args:
        text: The text.
    """
    if not (text.isascii() and text.isdigit()):
        return None
    digits = text.lstrip("0")
    return int(digits or "0") if len(digits) <= len(str(LONG_MAX)) else LONG_MAX + 1


def short(text: str) -> str:
    """Return a value for an error message, truncated to SHOWN characters.

    Args:
        text: The value.
    """
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}... ({len(text)} characters)"


def over(ours: Mapping[str, object], theirs: Mapping[str, object]) -> dict[str, str]:
    """Return the options of ``theirs``, and those of ``ours`` that ``theirs`` does not have in any spelling.

    Args:
        ours: The defaults.
        theirs: The options that the user gave.
    """
    said = {plain(name) for name in theirs}
    defaults = {name: value for name, value in ours.items() if plain(name) not in said}
    return {name: str(value) for name, value in {**defaults, **theirs}.items()}
