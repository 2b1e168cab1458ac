"""Represent the users of the broker, and load plug-ins that authenticate users.

A plug-in is an entry point of the group ``radiator.auth`` (or MODULE:NAME): a function, or a class that is called
without arguments to create one. A thread calls it as ``plugin(login, passcode, address)``. It returns None to refuse
the login, or a mapping of rights (``read``, ``write``, ``browse``, ``monitor``, ``admin``: lists of patterns) and
``user``, if the name differs from the login. Without rights in the mapping, those of the users file apply. An exception
refuses the login.

Must not import sessions. The form of the users file is in ``users_file``.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from radiator.errors import ConfigError
from radiator.routing.rights import NOTHING, RIGHTS, Rights

GROUP: Final = "radiator.auth"

Plugin = Callable[[str, str, str], Any]


@dataclass(frozen=True)
class UserTable:
    """The contents of a users file. The default is a table without users.

    Attributes:
        hashes: The hash of the passcode, by user.
        rights: The rights, by user.
        anonymous: The rights of clients without a login.
        certificates: The rights of clients with a certificate, by the name in it.
        roles: The patterns of each right, by role.
        files: The files that were read: the users file and those of ``password_file:``.
        blank: True if the users file is empty.
        dummy: The hash to verify for an unknown user, so that the answer takes as long as for a known one.
    """

    hashes: Mapping[str, str] = field(default_factory=dict)
    rights: Mapping[str, Rights] = field(default_factory=dict)
    anonymous: Rights = NOTHING
    certificates: Mapping[str, Rights] = field(default_factory=dict)
    roles: Mapping[str, Mapping[str, tuple[str, ...]]] = field(default_factory=dict)
    files: tuple[str, ...] = ()
    blank: bool = False
    dummy: str = ""


def load_plugin(name: str) -> Plugin:
    """Return the plug-in of that name.

    Raises:
        ConfigError: There is no such plug-in, or it cannot be loaded.
    """
    try:
        if ":" in name:
            module, _, path = name.partition(":")
            found: Any = importlib.import_module(module)
            for part in path.split("."):
                found = getattr(found, part)
        else:
            from importlib.metadata import entry_points  # slow to load, and few plug-ins need it

            known = entry_points(group=GROUP)
            if name not in known.names:
                there = ", ".join(sorted(known.names)) or "none is installed"
                raise ConfigError(f"auth.plugin: {name}: no entry point of the group {GROUP}: {there}")
            found = known[name].load()
        if inspect.isclass(found):
            found = found()
    except ConfigError:
        raise
    except Exception as error:
        raise ConfigError(f"auth.plugin: {name}: cannot be loaded: {type(error).__name__}: {error}") from None
    if not callable(found):
        raise ConfigError(f"auth.plugin: {name}: expected a function or a class of callable objects, got {found!r}")
    plugin: Plugin = found
    return plugin


def granted(answer: Mapping[str, Any], login: str) -> tuple[str, Rights | None]:
    """Return the user name and the rights in the answer of a plug-in; the rights are None if the users file has them.

    Raises:
        ValueError: The answer has unknown keys.
        TypeError: A value has the wrong type.
        ProtocolError: A pattern is not valid.
    """
    unknown = set(answer) - {"user", *RIGHTS}
    if unknown:
        raise ValueError(f"expected user, {', '.join(RIGHTS)}, got {sorted(map(str, unknown))}")
    user = answer.get("user", login)
    if not isinstance(user, str) or not user:
        raise TypeError(f"user: expected a text, got {user!r}")
    given = {right: answer[right] for right in RIGHTS if right in answer}
    for right, patterns in given.items():
        if isinstance(patterns, str) or not all(isinstance(pattern, str) for pattern in patterns):
            raise TypeError(f"{right}: expected a list of patterns, got {patterns!r}")
    return user, Rights(given) if given else None
