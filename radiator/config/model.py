"""The values of a configuration: frozen, complete, without YAML.

Numbers are bytes or counts unless their name contains another unit. ``None`` means "no limit", "never" or "off" as the
name suggests; there is no "unset", since every default has been filled in.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import msgspec

from radiator.config.settings import LimitsConfig, Rule
from radiator.config.subscriptions import DeclaredSubscription


class Tls(msgspec.Struct, frozen=True, kw_only=True):
    """The PEM files of a TLS listener. With ``client_ca`` clients must have a certificate that it has signed."""

    cert: str
    key: str
    client_ca: str | None = None


class Listen(msgspec.Struct, frozen=True):
    """One address to listen on.

    A host with a port (0: any free one), or with ``unix`` a path. With ``ws`` and ``wss`` the path is that of the URL
    (empty: any), ``origins`` are the web pages that may connect: exactly these, or those of the broker's own host
    and of the loopback (``own``), or any; and ``deflate`` accepts permessage-deflate.
    """

    scheme: Literal["stomp", "stomp+tls", "ws", "wss", "unix"]
    host: str = ""
    port: int = 0
    path: str = ""
    tls: Tls | None = None  # None where there is none, and where the default of all is meant
    origins: tuple[str, ...] | Literal["own", "any"] = "own"
    deflate: bool = False

    @property
    def encrypted(self) -> bool:
        """Whether it uses TLS."""
        return self.scheme in ("stomp+tls", "wss")

    @property
    def web(self) -> bool:
        """Whether it uses WebSocket."""
        return self.scheme in ("ws", "wss")

    def __str__(self) -> str:
        if self.scheme == "unix":
            return f"unix:{self.path}"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}{self.path}"


class AdminAddress(msgspec.Struct, frozen=True, kw_only=True):
    """The address of the HTTP server for health and metrics; port 0: any free one."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"http://[{self.host}]:{self.port}" if ":" in self.host else f"http://{self.host}:{self.port}"


class HeartBeat(NamedTuple):
    """The heart-beats that the broker offers and expects, 0 = none; a peer is gone after ``expect_ms * grace``."""

    send_ms: int
    expect_ms: int
    grace: float


class JwtConfig(NamedTuple):
    """How tokens are verified (``auth.jwt``). One of ``key_file`` and ``jwks_url`` is None."""

    key_file: str | None
    jwks_url: str | None
    audience: tuple[str, ...]
    issuer: str
    algorithms: tuple[str, ...]
    user_from: str
    roles_from: str | None
    leeway_ns: int


class AuthConfig(NamedTuple):
    """How clients are authenticated. Without file and plug-in there are no users, and logins are ignored."""

    users_file: str | None
    anonymous: Literal["loopback", "never", "always"]
    plugin: str | None  # an entry point of the group radiator.auth, or module:name
    plugin_timeout_ns: int  # of one call, or of the verification of a token
    jwt: JwtConfig | None = None  # then there is a users file

    @property
    def has_users(self) -> bool:
        """Whether there is a users file or a plug-in."""
        return self.users_file is not None or self.plugin is not None


class ArchiveRule(NamedTuple):
    """Messages to destinations that match are also stored in the destination ``to``, a template."""

    match: str
    to: str
    line: int


class LoggingConfig(NamedTuple):
    """Where the log is written, and which lines: see *Logging* in ``docs/configuration.md``."""

    format: Literal["text", "json"] = "text"
    level: str = "info"
    levels: tuple[tuple[str, str], ...] = ()  # of loggers that differ: name and level
    file: str | None = None  # None: stderr
    rotate_bytes: int | None = None
    keep: int = 5  # older files that the broker's own rotation leaves


class ScheduleRule(NamedTuple):
    """A message that the broker sends by itself at the times of a cron expression."""

    name: str
    cron: str
    time_zone: str
    destination: str
    body: str
    headers: tuple[tuple[str, str], ...]
    missed: Literal["skip", "last"]  # what happens to times at which the broker did not run
    line: int


class Config(msgspec.Struct, frozen=True, kw_only=True):
    """A whole configuration. ``source`` is the file's path as given, None without a file."""

    source: str | None
    data_dir: str
    listen: tuple[Listen, ...]
    tls: Tls | None  # of listeners that have none of their own
    admin: AdminAddress | None
    admin_hosts: tuple[str, ...]
    auth: AuthConfig
    limits: LimitsConfig
    heart_beat: HeartBeat
    logging: LoggingConfig
    drain_on_stop_seconds: float | None  # None: no drain
    disk_min_free_bytes: int
    regex_subscriptions: bool
    defaults: Rule
    rules: tuple[Rule, ...]
    archive: tuple[ArchiveRule, ...]
    subscriptions: tuple[DeclaredSubscription, ...]
    schedules: tuple[ScheduleRule, ...]
