"""The users file as the broker asks it: hashes by name, rights by name; and plug-ins that know users of their own.

A plug-in is an entry point of the group ``radiator.auth`` (or MODULE:NAME): a function, or a class that is called
without arguments for one. It is called on a thread as ``plugin(login, passcode, address)`` and answers None (not let
in) or a mapping: of rights (``read``, ``write``, ``browse``, ``admin``: lists of patterns), and ``user`` where the name
is another than the login. A mapping without rights leaves them to the users file. What it raises is a refusal.

Knows: files, entry points. Must not know: sessions. No I/O but in ``load``, which belongs on a thread once the broker
serves.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Mapping
from importlib.metadata import entry_points
from typing import Any, Final

from radiator.config import AuthConfig
from radiator.config.users import Grants, load_users
from radiator.errors import ConfigError, ProtocolError
from radiator.routing.rights import NOTHING, RIGHTS, Rights
from radiator.server.passwords import cost_of, dummy_like

GROUP: Final = "radiator.auth"

Plugin = Callable[[str, str, str], Any]


class UserTable:
    """One reading of a users file."""

    def __init__(self) -> None:
        self.hashes: dict[str, str] = {}
        self.rights: dict[str, Rights] = {}
        self.anonymous: Rights = NOTHING
        self.certificates: dict[str, Rights] = {}
        self.files: tuple[str, ...] = ()  # that were read
        self.blank = False  # the file says nothing at all
        self.dummy = ""  # to be verified for who is no user, so that the answer takes as long


def load(path: str | None) -> UserTable:
    """Read the users file. Raises ConfigError."""
    table = UserTable()
    if path is not None:
        users = load_users(path)
        table.files, table.blank = (path, *users.password_files), users.blank
        faults: list[str] = []

        def rights(where: str, grants: Grants) -> Rights:
            try:
                return Rights({right: getattr(grants, right) for right in RIGHTS})
            except ProtocolError as error:
                faults.append(f"{path}:{grants.line}: {where}: {error.message}, {error.detail}")
                return NOTHING

        for name, user in users.users.items():
            table.rights[name] = rights(f"users.{name}", user.grants)
            if user.password is not None:
                table.hashes[name] = user.password
        table.certificates = {name: rights(f"certificates.{name}", each) for name, each in users.certificates.items()}
        if users.anonymous is not None:
            table.anonymous = rights("anonymous", users.anonymous)
        if faults:
            raise ConfigError("\n".join(faults))
    table.dummy = dummy_like(max(table.hashes.values(), key=cost_of, default=None))
    return table


def load_plugin(name: str) -> Plugin:
    """The plug-in of that name. Raises ConfigError."""
    try:
        if ":" in name:
            module, _, path = name.partition(":")
            found: Any = importlib.import_module(module)
            for part in path.split("."):
                found = getattr(found, part)
        else:
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


def check(auth: AuthConfig) -> list[str]:
    """Whether a broker could start with this, and what would be better. Raises ConfigError."""
    table = load(auth.users_file)
    costs = {cost for name in table.hashes if (cost := cost_of(table.hashes[name]))}
    warnings = []
    if len(costs) > 1:
        cheap = sorted(name for name in table.hashes if cost_of(table.hashes[name]) not in ((), max(costs)))
        warnings.append(
            f"{auth.users_file}: hashes of several costs: by the time of an answer it shows that {', '.join(cheap[:5])}"
            f"{' and others are' if len(cheap) > 5 else ' is' if len(cheap) == 1 else ' are'} known here; "
            "make them anew with radiator passwd"
        )
    if auth.plugin is not None:
        load_plugin(auth.plugin)
    return warnings


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
