"""The users file: logins, and the rights of each. It is read as strictly as the configuration, in the same way.

    users:
      alice:
        password: $argon2id$v=19$m=19456,t=2,p=1$...      # radiator passwd users.yaml alice
        read: [/topic/>, /queue/orders]
        write: /queue/orders
    anonymous: {read: /topic/public.>}                     # clients without a login, if auth.anonymous allows them
    certificates:
      sensor-7: {write: /topic/sensors.7}                  # by the name in a certificate that was verified

    roles:
      reader: {read: /topic/>}                             # by the roles in a token (auth.jwt)

This module knows the keys and the form of a hash. It does not know how a hash is verified, or what a pattern means.
Invariant: no message shows the value of a password, which may be a plain one.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping as MappingABC
from typing import Any, Final

import msgspec

from radiator.config.keys import Key
from radiator.config.load import FAULTY, Loader, read_text, read_whole
from radiator.config.nodes import Mapping, Node, Scalar
from radiator.config.schema import tree
from radiator.config.values import ValueType, text
from radiator.errors import ConfigError

HASH: Final = re.compile(r"\$argon2(?:id|i|d)\$v=[0-9]+\$m=([0-9]+),t=([0-9]+),p=([0-9]+)\$[\w+/]+\$[\w+/]+")
MEMORY_KIB_MAX: Final = 1 << 20  # of one verification: a slip in a file must not take the broker's memory
ROUNDS_MAX: Final = 100
LANES_MAX: Final = 64
NAME_CHARS_MAX: Final = 200

_PATTERN = text("a pattern such as /topic/weather.*")
RIGHT_KEYS: Final = (
    Key(path="read", field="read", type=_PATTERN, many=True),
    Key(path="write", field="write", type=_PATTERN, many=True),
    Key(path="browse", field="browse", type=_PATTERN, many=True),
    Key(path="monitor", field="monitor", type=_PATTERN, many=True),
    Key(path="admin", field="admin", type=_PATTERN, many=True),
)
USER_KEYS: Final = (
    Key(path="password", field="password", type=ValueType(str)),
    Key(path="password_file", field="password_file", type=text("the path of a file with a hash")),
    *RIGHT_KEYS,
)
TOP_KEYS: Final = ("users", "anonymous", "certificates", "roles")


class Grants(msgspec.Struct, frozen=True, kw_only=True):
    """The patterns of each right; ``line`` is their place in the file."""

    line: int = 0
    read: tuple[str, ...] = ()
    write: tuple[str, ...] = ()
    browse: tuple[str, ...] = ()
    monitor: tuple[str, ...] = ()
    admin: tuple[str, ...] = ()

    @property
    def rights(self) -> tuple[str, ...]:
        """The names of the rights that have patterns."""
        return tuple(key.path for key in RIGHT_KEYS if getattr(self, key.path))


class User(msgspec.Struct, frozen=True, kw_only=True):
    """``password`` is a hash; None if the user is verified in another way."""

    password: str | None = None
    grants: Grants


class Users(msgspec.Struct, frozen=True, kw_only=True):
    """A whole users file. ``source`` is its path."""

    source: str
    users: dict[str, User]
    anonymous: Grants | None
    certificates: dict[str, Grants]
    roles: dict[str, Grants] = {}
    password_files: tuple[str, ...] = ()
    blank: bool = False  # it says nothing at all


def load_users(path: str, environ: MappingABC[str, str] | None = None) -> Users:
    """Return the users in the file ``path``. Raises ConfigError with all its faults."""
    return load_users_text(read_text(path, "the users file"), path, environ)


def load_users_text(content: str, source: str, environ: MappingABC[str, str] | None = None) -> Users:
    """Return the users in a text; ``source`` is its name in messages. Raises ConfigError."""
    loader = _UsersLoader(os.environ if environ is None else environ)
    return read_whole(content, source, loader, lambda root: loader.users_file(root, source))


def check_hash(value: str) -> str:
    """Return a hash that may be verified. Raises ValueError."""
    match = HASH.fullmatch(value)
    if match is None:
        raise ValueError("expected a hash that begins with $argon2, as radiator passwd writes it")
    memory_kib, rounds, lanes = map(int, match.groups())
    if memory_kib > MEMORY_KIB_MAX or rounds > ROUNDS_MAX or lanes > LANES_MAX:
        raise ValueError(f"expected a hash of at most m={MEMORY_KIB_MAX}, t={ROUNDS_MAX}, p={LANES_MAX}")
    return value


class _UsersLoader(Loader):
    """Reads one users file."""

    password_files: tuple[str, ...] = ()

    def users_file(self, root: Node | None, source: str) -> Users:
        users: dict[str, User] = {}
        certificates: dict[str, Grants] = {}
        roles: dict[str, Grants] = {}
        anonymous = None
        if root is not None and not isinstance(root, Mapping):
            self.fault(root.line, "", f"expected keys such as users:, got {root}")
        elif root is not None:
            self.keys(root, {}, "", TOP_KEYS)
            for name, node in self.entries(root, "users"):
                values = self.entry(node, USER_KEYS, f"users.{name}")
                users[name] = User(password=self.password(node, values, name), grants=_grants(node, values))
            for name, node in self.entries(root, "certificates"):
                certificates[name] = _grants(node, self.entry(node, RIGHT_KEYS, f"certificates.{name}"))
            for name, node in self.entries(root, "roles"):
                roles[name] = _grants(node, self.entry(node, RIGHT_KEYS, f"roles.{name}"))
            if (entry := root.items.get("anonymous")) is not None:
                anonymous = _grants(entry, self.entry(entry, RIGHT_KEYS, "anonymous"))
        return Users(
            source=source,
            users=users,
            anonymous=anonymous,
            certificates=certificates,
            roles=roles,
            password_files=self.password_files,
            blank=root is None,
        )

    def entries(self, root: Mapping, section: str) -> list[tuple[str, Node]]:
        node = root.items.get(section)
        if node is None or (isinstance(node, Scalar) and node.reads_as == "null"):
            return []
        if not isinstance(node, Mapping):
            self.fault(node.line, section, f"expected names, each with its rights, got {node}")
            return []
        for name in node.items:
            if not name or len(name) > NAME_CHARS_MAX or not name.isprintable():
                wanted = f"expected a name of 1 to {NAME_CHARS_MAX} printable characters"
                self.fault(node.key_lines[name], section, f"{wanted}, got {name[:NAME_CHARS_MAX]!r}")
        return list(node.items.items())

    def entry(self, node: Node, keys: tuple[Key, ...], path: str) -> dict[str, Any]:
        if isinstance(node, Scalar) and node.reads_as == "null":
            return {}
        if not isinstance(node, Mapping):
            self.fault(node.line, path, "expected keys such as read:, got something else")
            return {}
        return self.keys(node, tree(keys), path + ".")

    def scalar(self, key: Key, node: Node, path: str) -> Any:
        """Return a value as for the configuration; two rights may be booleans, and a hash is never shown."""
        if key.path in ("admin", "monitor") and isinstance(node, Scalar) and node.reads_as == "bool":
            return "#" if node.text.lower() == "true" else ""
        if key.path != "password":
            return super().scalar(key, node, path)
        try:
            if not isinstance(node, Scalar) or node.block:
                raise ValueError("expected a hash on one line")
            return check_hash(self.expand(node.text))
        except ValueError as error:
            self.fault(node.line, path, str(error))
            return FAULTY

    def password(self, node: Node, values: dict[str, Any], name: str) -> str | None:
        found: str | None = values.get("password")
        path = values.get("password_file")
        if path is None:
            return found
        self.password_files += (path,)
        where = f"users.{name}.password_file"
        if found is not None:
            self.fault(node.line, where, "expected one of password: and password_file:")
        try:
            return check_hash(read_text(path, "the hash").strip())
        except (ValueError, ConfigError) as error:
            self.fault(node.line, where, str(error))
            return None


def _grants(node: Node, values: dict[str, Any]) -> Grants:
    rights = {key.field: tuple(filter(None, values.get(key.field, ()))) for key in RIGHT_KEYS}
    return Grants(line=node.line, **rights)
