"""Read the users file into a ``UserTable``.

Only a broker with a users file imports this module, because it loads PyYAML and argon2. It does I/O, so a running
broker calls it on a thread.
"""

from __future__ import annotations

from radiator import clock
from radiator.config import AuthConfig
from radiator.config.users import Grants, load_users
from radiator.errors import ConfigError, ProtocolError
from radiator.routing.rights import NOTHING, RIGHTS, Rights
from radiator.server.jwt import TokenVerifier
from radiator.server.passwords import cost_of, dummy_like
from radiator.server.users import UserTable, load_plugin


def load(path: str) -> UserTable:
    """Read the users file.

    Raises:
        ConfigError: The file cannot be read, or is not valid; the message names the lines.
    """
    users = load_users(path)
    faults: list[str] = []

    def rights(where: str, grants: Grants) -> Rights:
        try:
            return Rights({right: getattr(grants, right) for right in RIGHTS})
        except ProtocolError as error:
            faults.append(f"{path}:{grants.line}: {where}: {error.message}, {error.detail}")
            return NOTHING

    def role(where: str, grants: Grants) -> dict[str, tuple[str, ...]]:
        rights(where, grants)
        return {right: getattr(grants, right) for right in RIGHTS}

    hashes = {name: user.password for name, user in users.users.items() if user.password is not None}
    table = UserTable(
        hashes=hashes,
        rights={name: rights(f"users.{name}", user.grants) for name, user in users.users.items()},
        anonymous=NOTHING if users.anonymous is None else rights("anonymous", users.anonymous),
        certificates={name: rights(f"certificates.{name}", each) for name, each in users.certificates.items()},
        roles={name: role(f"roles.{name}", each) for name, each in users.roles.items()},
        files=(path, *users.password_files),
        blank=users.blank,
        dummy=dummy_like(max(hashes.values(), key=cost_of, default=None)),
    )
    if faults:
        raise ConfigError("\n".join(faults))
    return table


def check(auth: AuthConfig) -> list[str]:
    """Return warnings about the users of a configuration.

    Raises:
        ConfigError: A broker could not start with these users or this plug-in.
    """
    table = UserTable() if auth.users_file is None else load(auth.users_file)
    costs = {cost for name in table.hashes if (cost := cost_of(table.hashes[name]))}
    warnings = []
    if len(costs) > 1:
        cheap = sorted(name for name in table.hashes if cost_of(table.hashes[name]) not in ((), max(costs)))
        warnings.append(
            f"{auth.users_file}: hashes with different costs: the time of an answer reveals that {', '.join(cheap[:5])}"
            f"{' and others are' if len(cheap) > 5 else ' is' if len(cheap) == 1 else ' are'} known here; create them "
            f"again with radiator passwd"
        )
    if helpless := sorted(name for name in table.hashes if table.rights[name].nothing):
        warnings.append(
            f"{auth.users_file}: users without rights, who can only log in: {', '.join(helpless[:5])}"
            f"{' and others' if len(helpless) > 5 else ''}"
        )
    if auth.plugin is not None:
        load_plugin(auth.plugin)
    if auth.jwt is not None:
        TokenVerifier(auth.jwt, clock.now_ns, clock.monotonic_ns)
    return warnings
