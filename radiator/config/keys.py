"""The parts of a table of keys: a ``Key`` for each key, in the metadata of the fields of a settings class.

    class Settings:
        retention_count: int | None = of_log("retention.count", or_none(count(1, EXA)), "none", AT_RUN_TIME)

This module knows types of values. It does not know which keys exist.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from enum import Enum
from typing import Any

from radiator.config.values import ValueType


class Applies(Enum):
    """When a changed value applies."""

    AT_RUN_TIME = "at run time"  # the broker reads it at each use; only the cached plans of SENDs must be made again
    AT_START = "at the next start"  # the broker builds something from it: a log, a cursor, a window, an index of times


class InMemory(Enum):
    """What the key means in a rule of its own with ``store: memory``."""

    USED = "used"
    ONLY_OFF = "only off"  # a value that switches something on is a fault
    REFUSED = "refused"  # every value is a fault, and so is the whole section


AT_RUN_TIME, AT_START = Applies.AT_RUN_TIME, Applies.AT_START
ONLY_OFF, REFUSED = InMemory.ONLY_OFF, InMemory.REFUSED


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """One key of a file. ``path`` is dotted within its table; ``default`` is written as in a file."""

    path: str
    type: ValueType
    default: str = ""
    field: str = ""
    many: bool = False  # a list of such values, or one: the field is a tuple, by default an empty one
    applies: Applies = AT_START
    of_log: bool = False  # destinations that share a log must agree on it
    in_memory: InMemory = InMemory.USED

    @property
    def section(self) -> str:
        """The first part of the path."""
        return self.path.partition(".")[0]

    @property
    def default_value(self) -> Any:
        """The default as a Python value."""
        if self.many:
            return ()
        return self.type.read(self.default) if self.default else None

    def show(self, owner: object) -> str:
        """Return the value that ``owner`` has in this field, as it would be written in the file."""
        value = getattr(owner, self.field)
        if self.many:
            return ", ".join(map(self.type.show, value)) or "none"
        return self.type.show(value)


def setting(path: str, type: ValueType, default: str, applies: Applies = AT_START, **more: Any) -> Any:
    """Return a field of a settings class, with the default value and with its ``Key`` as metadata."""
    key = Key(path=path, type=type, default=default, applies=applies, **more)
    return field(default=key.default_value, metadata={"key": key})


def of_log(path: str, type: ValueType, default: str, applies: Applies, in_memory: InMemory = InMemory.USED) -> Any:
    """Return a setting of the log: destinations that share a log must agree on it."""
    return setting(path, type, default, applies, of_log=True, in_memory=in_memory)


def keys_of(owner: type) -> tuple[Key, ...]:
    """Return the keys of a class whose fields were made by ``setting``, in the order of the class."""
    return tuple(replace(each.metadata["key"], field=each.name) for each in fields(owner) if "key" in each.metadata)
