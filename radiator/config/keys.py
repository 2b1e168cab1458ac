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


class To(Enum):
    """What takes the changed value of a key in a reload."""

    ALL = "all"
    NEW_CONNECTIONS = "new connections"
    NEW_DESTINATIONS = "new destinations"
    NOTHING = "nothing"


@dataclass(frozen=True, slots=True)
class Applies:
    """What a changed value applies to in a reload.

    Attributes:
        reason: Why the rest cannot take another value; empty if everything can.
        to: What takes the value. With ``NEW_DESTINATIONS`` a reload that changes the value of a destination that exists
            is refused.
    """

    reason: str = ""
    to: To = To.ALL

    @property
    def at_run_time(self) -> bool:
        """Whether everything takes another value.

        For a key of ``Settings``, another object in its place is enough, because the broker reads the value at each
        use. The places are ``Destination.policy``, ``Queue.agree``, ``QueueSource.agree`` and ``Partition.configure``.
        The cached plans of SENDs must be made again.
        """
        return self.to is To.ALL

    def __str__(self) -> str:
        if self.to is To.ALL:
            return "yes"
        if self.to is To.NEW_CONNECTIONS:
            return "new connections"
        return f"new destinations: {self.reason}" if self.to is To.NEW_DESTINATIONS else f"no: {self.reason}"


class InMemory(Enum):
    """What the key means in a rule of its own with ``store: memory``."""

    USED = "used"
    ONLY_OFF = "only off"  # a value that switches something on is a fault
    REFUSED = "refused"  # every value is a fault, and so is the whole section


AT_RUN_TIME = Applies()
AT_START = Applies("the broker reads it when it starts", To.NOTHING)  # of keys that are not in a rule
AT_CONNECT = Applies("a connection has the values with which it was opened", To.NEW_CONNECTIONS)
ONLY_OFF, REFUSED = InMemory.ONLY_OFF, InMemory.REFUSED


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """One key of a file. ``path`` is dotted within its table; ``default`` is written as in a file."""

    path: str
    type: ValueType
    default: str = ""
    field: str = ""
    many: bool = False  # a list of such values, or one: the field is a tuple, by default an empty one
    by_name: bool = False  # a mapping of names to such values: the field is a tuple of pairs, by default an empty one
    applies: Applies = AT_START
    of_log: bool = False  # destinations that share a log must agree on it
    in_memory: InMemory = InMemory.USED
    temporary: str | None = None  # the value of all temporary queues, as in a file; None: that of ``defaults:``
    of_dead_letters: str | None = None  # the value of all queues of dead letters; None: that of their rule

    @property
    def section(self) -> str:
        """The first part of the path."""
        return self.path.partition(".")[0]

    @property
    def default_value(self) -> Any:
        """The default as a Python value."""
        if self.many or self.by_name:
            return ()
        return self.type.read(self.default) if self.default else None

    def show(self, owner: object) -> str:
        """Return the value that ``owner`` has in this field, as it would be written in the file."""
        return self.shown(getattr(owner, self.field))

    def shown(self, value: Any) -> str:
        """Return a value of this key as it would be written in the file."""
        if self.many:
            return ", ".join(map(self.type.show, value)) or "none"
        if self.by_name:
            return ", ".join(f"{name}: {self.type.show(each)}" for name, each in value) or "none"
        return self.type.show(value)


def setting(path: str, type: ValueType, default: str, applies: Applies = AT_START, **more: Any) -> Any:
    """Return a field of a settings class, with the default value and with its ``Key`` as metadata."""
    key = Key(path=path, type=type, default=default, applies=applies, **more)
    return field(default=key.default_value, metadata={"key": key})


def of_log(path: str, type: ValueType, default: str, applies: Applies, **more: Any) -> Any:
    """Return a setting of the log: destinations that share a log must agree on it."""
    return setting(path, type, default, applies, of_log=True, **more)


def keys_of(owner: type) -> tuple[Key, ...]:
    """Return the keys of a class whose fields were made by ``setting``, in the order of the class."""
    return tuple(replace(each.metadata["key"], field=each.name) for each in fields(owner) if "key" in each.metadata)
