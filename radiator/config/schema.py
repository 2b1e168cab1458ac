"""The tables of keys: the top level, an entry of ``listen:``, and a rule, whose keys are those of ``settings``.

The loader reads a file by these tables and the tests compare the documents with them, so every key is read, documented
and shown in conf/radiator.yaml.
"""

from __future__ import annotations

import re
from typing import Any, Final

from radiator import limits
from radiator.clock import NS_PER_MS, NS_PER_SECOND
from radiator.config.keys import AT_CONNECT, AT_RUN_TIME, AT_START, Applies, Key, To
from radiator.config.model import AdminAddress
from radiator.config.settings import EXA, LIMITS, RULE_ONLY, SETTINGS
from radiator.config.values import BOOLEAN, FUNCTION, ValueType, choice, count, duration, number, or_none, size, text

DEFAULT_LISTEN: Final = "stomp://127.0.0.1:61613"
DEFAULT_PORTS: Final = {"stomp": 61613, "stomp+tls": 61614, "ws": 15674, "wss": 15673}
SCHEME_ALIASES: Final = {"stomps": "stomp+tls", "stomp+ssl": "stomp+tls"}  # as other brokers have it


def _read_plugin(value: str) -> str:
    if re.fullmatch(r"[A-Za-z0-9_.-]+", value):
        return value
    try:
        return str(FUNCTION.read(value))
    except ValueError:
        raise ValueError("expected the name of an entry point of the group radiator.auth, or MODULE:NAME") from None


def _read_jwks_url(value: str) -> str:
    host = re.fullmatch(r"(https://[^\s/?#@]+|http://(?:127\.0\.0\.1|\[::1\]|localhost)(?::[0-9]+)?)(?:/\S*)?", value)
    if host is None:
        raise ValueError("expected an https:// URL (http:// only of this machine)")
    return value


def _read_http_address(value: str) -> AdminAddress:
    match = re.fullmatch(r"http://([A-Za-z0-9._-]+|\*|\[[0-9A-Fa-f:.]+\]):([0-9]{1,5})/?", value)
    if match is None or int(match[2]) > 65_535:
        raise ValueError("expected http://HOST:PORT such as http://127.0.0.1:8161")
    return AdminAddress(host="0.0.0.0" if match[1] == "*" else match[1].strip("[]"), port=int(match[2]))


def _read_origin(value: str) -> str:
    """Return the ``Origin`` that a browser sends: scheme, host, port if it is not the default, in lower case."""
    if value == "null":  # of pages that are files
        return value
    found = re.fullmatch(r"(https?)://([a-z0-9._-]+|\[[0-9a-f:.]+\])(?::([0-9]{1,5}))?/?", value.lower())
    if found is None:
        raise ValueError("expected the origin of a web page such as https://app.example or http://localhost:8080")
    port = found[3] if found[3] != {"http": "80", "https": "443"}[found[1]] else None
    return f"{found[1]}://{found[2]}" + (f":{port}" if port else "")


# --- the tables -------------------------------------------------------------------------------------------------------

HTTP_ADDRESS: Final = ValueType(_read_http_address)
ORIGIN: Final = ValueType(_read_origin)
LEVEL: Final = choice(("debug", "info", "warning", "error"))
PLUGIN: Final = ValueType(_read_plugin)
JWKS_URL: Final = ValueType(_read_jwks_url)
# Asymmetric ones only: who can verify a token must not be able to sign one.
JWT_ALGORITHMS: Final = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")


LOCKED: Final = Applies("the broker opens and locks it when it starts", To.NOTHING)


def _key(
    path: str, field: str, type: ValueType, default: str, applies: Applies = AT_RUN_TIME, many: bool = False
) -> Key:
    return Key(path=path, field=field, type=type, default=default, applies=applies, many=many)


# At the top level, and in an entry of ``listen:``.
TLS: Final[tuple[Key, ...]] = (
    _key("tls.cert", "tls_cert", or_none(text("a file")), "none", AT_CONNECT),
    _key("tls.key", "tls_key", or_none(text("a file")), "none", AT_CONNECT),
    _key("tls.client_ca", "tls_client_ca", or_none(text("a file")), "none", AT_CONNECT),
)

TOP: Final[tuple[Key, ...]] = (
    _key("version", "version", choice({"1": 1}), "1", AT_START),
    _key("data_dir", "data_dir", text("a directory"), "./data", LOCKED),
    _key("admin", "admin", or_none(HTTP_ADDRESS), "none"),
    _key(
        "admin_hosts",
        "admin_hosts",
        text("a host name such as broker.example", r"[A-Za-z0-9._-]+"),
        "",
        many=True,
    ),
    *TLS,
    _key("auth.users_file", "users_file", or_none(text("the path of a users file")), "none"),
    _key("auth.anonymous", "anonymous", choice(("loopback", "never", "always")), "loopback"),
    _key("auth.plugin", "plugin", or_none(PLUGIN), "none"),
    _key("auth.plugin_timeout", "plugin_timeout_ns", duration("100ms", "1h"), f"{limits.PLUGIN_SECONDS_MAX:.0f}s"),
    _key("auth.jwt.key_file", "jwt_key_file", or_none(text("a file with a public key")), "none"),
    _key("auth.jwt.jwks_url", "jwt_jwks_url", or_none(JWKS_URL), "none"),
    _key("auth.jwt.audience", "jwt_audience", text("the name of this broker in tokens"), "", many=True),
    _key("auth.jwt.issuer", "jwt_issuer", or_none(text("the issuer of the tokens")), "none"),
    _key("auth.jwt.algorithms", "jwt_algorithms", choice(JWT_ALGORITHMS), "", many=True),
    _key("auth.jwt.user_claim", "jwt_user_from", text("the name of a claim"), "sub"),
    _key("auth.jwt.roles_claim", "jwt_roles_from", or_none(text("the name of a claim")), "none"),
    _key("auth.jwt.leeway", "jwt_leeway_ns", duration("0ms", "10m"), "30s"),
    _key("regex_subscriptions", "regex_subscriptions", BOOLEAN, "false"),
    *LIMITS,
    _key("heart_beat.send", "send_ms", or_none(duration("100ms", "1d", NS_PER_MS), 0), "10s", AT_CONNECT),
    _key("heart_beat.expect", "expect_ms", or_none(duration("100ms", "1d", NS_PER_MS), 0), "10s", AT_CONNECT),
    _key("heart_beat.grace", "grace", number(1.0, 100.0), "2.0", AT_CONNECT),
    _key("drain.on_stop", "drain_on_stop_seconds", or_none(duration("100ms", "1h", NS_PER_SECOND)), "none"),
    _key("logging.format", "log_format", choice(("text", "json")), "text"),
    _key("logging.level", "log_level", LEVEL, "info"),
    Key(path="logging.levels", field="log_levels", type=LEVEL, by_name=True, applies=AT_RUN_TIME),
    _key("logging.file", "log_file", or_none(text("the path of a file")), "none"),
    _key("logging.rotate_bytes", "log_rotate_bytes", or_none(size(limits.LOG_ROTATE_BYTES_MIN, EXA)), "none"),
    _key("logging.keep", "log_keep", count(0, limits.LOG_KEEP_MAX), "5"),
    _key("disk.min_free", "min_free_bytes", or_none(size(0, EXA), 0), "1GiB"),
)

# In an entry of ``listen:`` that is a mapping, beside ``url``, ``origins`` and ``deflate``.
LISTEN: Final[tuple[Key, ...]] = TLS

# In an entry of ``schedules:``, beside ``headers``.
SCHEDULE: Final[tuple[Key, ...]] = (
    _key("name", "name", text("a name without blanks, of at most 100 characters", r"[^\x00-\x20]{1,100}"), ""),
    _key("cron", "cron", text("a cron expression such as 0 2 * * *"), ""),
    _key("time_zone", "time_zone", text("a time zone such as Europe/Berlin"), "UTC"),
    _key("destination", "destination", text("the name of a destination"), ""),
    _key("body", "body", text("a text", r"[^\x00]*"), ""),
    _key("missed", "missed", choice(("skip", "last")), "skip"),
)

RULE: Final[tuple[Key, ...]] = RULE_ONLY + SETTINGS

# Keys of the top level whose value is a list or a table; the loader reads each by its own function.
OTHERS: Final = ("listen", "defaults", "destinations", "archive", "schedules", "subscriptions")

# In an entry of ``archive:``.
ARCHIVE: Final[tuple[Key, ...]] = (
    _key("match", "match", text("a pattern such as /topic/>"), ""),
    _key("to", "to", text("the name of a destination"), ""),
)

# What a bare yes/no/on/off/true/false most likely meant, by key.
MEANT: Final[dict[str, tuple[str, str]]] = {  # (for the affirmative, for the negative)
    "fsync": ("always", "never"),
    "create": ("allow", "deny"),
    "auth.anonymous": ("always", "never"),
}

# Names that configurations of other brokers have, for the error about an unknown key.
ELSEWHERE: Final[dict[str, str]] = {
    **dict.fromkeys(("port", "host", "bind", "address", "listeners"), "listen"),
    **dict.fromkeys(("queues", "topics", "rules", "policies"), "destinations"),
    **dict.fromkeys(("name", "pattern", "queue", "topic", "destination"), "match"),
    **dict.fromkeys(("max_length", "max_len"), "max_messages"),
    **dict.fromkeys(("dlq", "dlx", "dead_letter_exchange"), "dead_letter"),
    **dict.fromkeys(("delivery_limit", "max_deliveries", "max_delivery_attempts"), "redeliver"),
    **dict.fromkeys(("consumer_timeout", "visibility_timeout"), "ack_timeout"),
    "cleanup_policy": "compact_by",
    "durable": "store",
    "management": "admin",
    "max_length_bytes": "max_bytes",
    "overflow": "on_full",
    "single_active_consumer": "exclusive",
    "ssl": "tls",
    "ttl": "message_ttl",
    "users": "auth",
}


def tree(keys: tuple[Key, ...]) -> dict[str, Any]:
    """Return the keys by section: ``limits.message`` becomes ``{"limits": {"message": ...}}``."""
    found: dict[str, Any] = {}
    for key in keys:
        *sections, name = key.path.split(".")
        place = found
        for section in sections:
            place = place.setdefault(section, {})
        place[name] = key
    return found
