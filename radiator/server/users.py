"""Users as the broker asks for them: hashes by name, rights by name; and plug-ins that know users of their own.

A plug-in is an entry point of the group ``radiator.auth`` (or MODULE:NAME): a function, or a class that is called
without arguments for one. It is called on a thread as ``plugin(login, passcode, address)`` and answers None (not let
in) or a mapping: of rights (``read``, ``write``, ``browse``, ``admin``: lists of patterns), and ``user`` where the name
is another than the login. A mapping without rights leaves them to the users file. What it raises is a refusal.

Knows: entry points. Must not know: sessions, the form of the users file (``users_file``).
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
        files: The files that were read: the users file and those of ``password_file:``.
        blank: True if the users file is empty.
        dummy: The hash to verify for an unknown user, so that the answer takes as long as for a known one.
    """

    hashes: Mapping[str, str] = field(default_factory=dict)
    rights: Mapping[str, Rights] = field(default_factory=dict)
    anonymous: Rights = NOTHING
    certificates: Mapping[str, Rights] = field(default_factory=dict)
    files: tuple[str, ...] = ()
    blank: bool = False
    dummy: str = ""


def load_plugin(name: str) -> Plugin:
    """The plug-in of that name. Raises ConfigError."""
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
    """What a plug-in answered: the user's name, and the rights, None where the users file has them. Raises ValueError,
    TypeError or ProtocolError where it is no answer."""
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
