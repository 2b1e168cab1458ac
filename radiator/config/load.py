"""Read a YAML file to a Config, by the tables of ``schema``.

A file is read to its end and all its faults are reported in one ConfigError, a line each:

    radiator.yaml:14: destinations[1].fsnc: unknown key; did you mean fsync?

``${NAME}`` in a value is replaced by an environment variable (``$${`` by the two characters); messages show the value
as written, so that a secret is never printed. Relative paths are relative to the working directory.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Callable, Iterable
from collections.abc import Mapping as MappingABC
from typing import Any, Final, Literal, TypeAlias, TypeVar

import msgspec

from radiator.config import rule_checks, schema
from radiator.config.keys import Key
from radiator.config.model import (
    ArchiveRule,
    AuthConfig,
    Config,
    HeartBeat,
    JwtConfig,
    Listen,
    LoggingConfig,
    ScheduleRule,
    Tls,
)
from radiator.config.nodes import Mapping, Node, Scalar, Sequence, YamlError
from radiator.config.rule_checks import RuleKeys
from radiator.config.settings import LIMITS, SETTINGS, LimitsConfig, Rule, Settings
from radiator.config.subscriptions import SUBSCRIPTION, DeclaredSubscription
from radiator.config.values import BOOLEAN, ValueType
from radiator.errors import ConfigError

T = TypeVar("T")
Tree: TypeAlias = "MappingABC[str, Key | MappingABC[str, Key]]"

FAULTY: Final = object()  # in place of a value that could not be read
FILE_BYTES_MAX: Final = 4 * 1024 * 1024  # a larger file is not a configuration

RULE_KEYS: Final = frozenset(key.section for key in schema.RULE)
JWT_FIELDS: Final = ("key_file", "jwks_url", "audience", "issuer", "algorithms")  # tokens are accepted with these
SETTINGS_FIELDS: Final = frozenset(key.field for key in SETTINGS)

VARIABLE = re.compile(r"\$(\$?)\{([^}]*)\}")
LISTEN_EXPECTED: Final = (
    "expected HOST:PORT, stomp://HOST:PORT, stomp+tls://HOST:PORT, ws://HOST:PORT/PATH, wss://HOST:PORT/PATH "
    "or unix:PATH"
)
_HOST = r"\[[0-9a-fA-F:.]+\]|[A-Za-z0-9._*-]+"
_HOST_AND_PORT = re.compile(rf"({_HOST}):[0-9]{{1,5}}")
_URL = re.compile(rf"([a-z+]+)://({_HOST})(?::([0-9]{{1,5}}))?(/[^\s?#]*)?")


def load(path: str | os.PathLike[str] | None, environ: MappingABC[str, str] | None = None) -> Config:
    """Return the configuration in the file ``path``; the defaults without a file. Raises ConfigError."""
    if path is None:
        return Loader(os.environ if environ is None else environ).config(None, None)
    source = os.fspath(path)
    return load_text(read_text(source, "the configuration"), source, environ)


def read_text(path: str, what: str) -> str:
    """Return the text of a settings file. Raises ConfigError."""
    try:
        with open(path, "rb") as file:
            data = file.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise ConfigError(f"{path}: cannot read {what}: {error.strerror}") from None
    if len(data) > FILE_BYTES_MAX:
        raise ConfigError(f"{path}: expected {what} of at most 4MiB, got a larger file")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"{path}:{line}: expected UTF-8, got byte 0x{data[error.start]:02x}") from None


def load_text(content: str, source: str | None = None, environ: MappingABC[str, str] | None = None) -> Config:
    """Return the configuration in a text; ``source`` is its name in messages. Raises ConfigError."""
    loader = Loader(os.environ if environ is None else environ)
    return read_whole(content, source or "configuration", loader, lambda root: loader.config(root, source))


def read_whole(content: str, name: str, loader: Loader, read: Callable[[Node | None], T]) -> T:
    """Return what ``read`` makes of a text. Raises ConfigError with all faults that ``loader`` has found."""
    from radiator.config.yaml_lines import compose  # loads PyYAML, which only a file needs

    try:
        root = compose(content)
    except YamlError as error:
        raise ConfigError(f"{name}:{error.line}: {error}") from None
    found = read(root)
    if loader.faults:
        raise ConfigError("\n".join(f"{name}:{line}: {fault}" for line, fault in sorted(loader.faults)))
    return found


def parse_listen(url: str) -> Listen:
    """Return the listener of a URL of ``listen:``. Raises ConfigError."""
    try:
        return read_url(url)
    except ValueError as error:
        raise ConfigError(f"{error}, got {url!r}") from None


def read_url(url: str) -> Listen:
    """Return the listener of a URL; ``HOST:PORT`` is STOMP. Raises ValueError with what was expected."""
    scheme, _, rest = url.partition(":")
    if scheme == "unix" and rest:
        path = rest[2:] if rest.startswith("///") else rest
        if not path.startswith("//"):
            return Listen(scheme="unix", path=path)
    plain = _HOST_AND_PORT.fullmatch(url)
    if plain is not None and plain[1] not in (*schema.DEFAULT_PORTS, *schema.SCHEME_ALIASES):
        scheme, url = "stomp", f"stomp://{url}"
    match = _URL.fullmatch(url)
    scheme = schema.SCHEME_ALIASES.get(scheme, scheme)
    if match is None or scheme not in schema.DEFAULT_PORTS:
        raise ValueError(LISTEN_EXPECTED)
    port = schema.DEFAULT_PORTS[scheme] if match[3] is None else int(match[3])
    if port > 65_535:
        raise ValueError("expected a port of 0 to 65535")
    host = "0.0.0.0" if match[2] == "*" else match[2].strip("[]")
    path = "" if match[4] in (None, "/") else match[4]
    if path and scheme not in ("ws", "wss"):
        raise ValueError("expected no path: only ws:// and wss:// have one")
    return Listen(scheme=scheme, host=host, port=port, path=path)  # type: ignore[arg-type]


def tls_of(values: MappingABC[str, Any]) -> Tls | None:
    """Return the files that the fields of ``schema.TLS`` name; the key may be in the file of the certificate."""
    cert = values.get("tls_cert")
    if cert is None:
        return None
    return Tls(cert=cert, key=values.get("tls_key") or cert, client_ca=values.get("tls_client_ca"))


class Loader:
    """Reads one file. Faults are collected; a value with a fault is replaced by its default."""

    def __init__(self, environ: MappingABC[str, str]) -> None:
        self.environ = environ
        self.in_flight_max = 0  # limits.in_flight, once it is read: no prefetch may be above it
        self.faults: list[tuple[int, str]] = []

    def fault(self, line: int, path: str, text: str) -> None:
        """Add a fault."""
        self.faults.append((line, f"{path}: {text}" if path else text))

    def config(self, root: Node | None, source: str | None) -> Config:
        """Return the configuration of a file's root node."""
        values = _defaults(schema.TOP)
        default_rule = _defaults(SETTINGS)
        listen: list[Listen] = [read_url(schema.DEFAULT_LISTEN)]
        rules: list[Rule] = []
        archive: list[ArchiveRule] = []
        subscriptions: list[DeclaredSubscription] = []
        schedules: list[ScheduleRule] = []
        if root is not None and not isinstance(root, Mapping):
            self.fault(root.line, "", f"expected keys such as data_dir: or destinations:, got {root}")
        elif root is not None:
            values.update(self.keys(root, schema.tree(schema.TOP), "", schema.OTHERS))
            self.in_flight_max = values["in_flight"]
            if (node := root.items.get("defaults")) is not None:
                own = self.table(node, SETTINGS, "defaults")
                default_rule.update(own)
                if isinstance(node, Mapping):
                    keys = RuleKeys(node.items, own, default_rule)
                    self.report(node, "defaults", rule_checks.unacked_faults(keys))
            if (node := root.items.get("listen")) is not None:
                listen = self.listeners(node, values)
            if (node := root.items.get("destinations")) is not None:
                rules = self.rules(node, default_rule)
            if (node := root.items.get("archive")) is not None:
                archive = self.archive(node)
            if (node := root.items.get("subscriptions")) is not None:
                subscriptions = self.subscriptions(node)
            if (node := root.items.get("schedules")) is not None:
                schedules = self.schedules(node)
        return Config(
            source=source,
            data_dir=values["data_dir"],
            listen=tuple(listen),
            tls=tls_of(values),
            admin=values["admin"],
            admin_hosts=values["admin_hosts"],
            limits=LimitsConfig(**{key.field: values[key.field] for key in LIMITS}),
            auth=AuthConfig(
                values["users_file"],
                values["anonymous"],
                values["plugin"],
                values["plugin_timeout_ns"],
                self.jwt(root, values),
            ),
            heart_beat=HeartBeat(values["send_ms"], values["expect_ms"], values["grace"]),
            logging=LoggingConfig(
                values["log_format"],
                values["log_level"],
                values["log_levels"],
                values["log_file"],
                values["log_rotate_bytes"],
                values["log_keep"],
            ),
            drain_on_stop_seconds=values["drain_on_stop_seconds"],
            disk_min_free_bytes=values["min_free_bytes"],
            regex_subscriptions=values["regex_subscriptions"],
            defaults=_rule(default_rule),
            rules=tuple(rules),
            archive=tuple(archive),
            subscriptions=tuple(subscriptions),
            schedules=tuple(schedules),
        )

    def listeners(self, node: Node, values: dict[str, Any]) -> list[Listen]:
        """Return the entries of ``listen:``. ``values`` are those of the top level."""
        found: list[Listen] = []
        if not isinstance(node, Sequence) or not node.items:
            self.fault(node.line, "listen", f"expected a list such as - {schema.DEFAULT_LISTEN}, got {node}")
            return found
        for index, item in enumerate(node.items):
            path = f"listen[{index}]"
            value = (
                self.listener(item, path, values)
                if isinstance(item, Mapping)
                else self.listener_url(item, path, values)
            )
            if value is None:
                continue
            twice = any(str(value) == str(other) for other in found)
            if twice and (value.port or value.scheme == "unix"):
                self.fault(item.line, path, f"{value} is in the list twice")
            found.append(value)
        return found

    def listener(self, node: Mapping, path: str, values: dict[str, Any]) -> Listen | None:
        """Return the listener of an entry with keys of its own, or None after a fault."""
        own = self.keys(node, schema.tree(schema.LISTEN), path + ".", ("url", "origins", "deflate"))
        url = node.items.get("url")
        if url is None:
            self.fault(node.line, path, f"expected url: too, such as url: {schema.DEFAULT_LISTEN}")
            return None
        listen = self.listener_url(url, path + ".url", {**values, **own})
        if listen is not None and own and not listen.encrypted:
            self.fault(node.key_lines["tls"], path + ".tls", f"{listen.scheme}: has no TLS; write stomp+tls or wss")
        if listen is None:
            return None
        if not listen.web:
            for name in ("origins", "deflate"):
                if name in node.items:
                    self.fault(node.key_lines[name], f"{path}.{name}", "only ws:// and wss:// have this key")
            return listen
        if "origins" in node.items:
            listen = msgspec.structs.replace(listen, origins=self.origins(node.items["origins"], path + ".origins"))
        if "deflate" in node.items:
            key = Key(path="deflate", type=BOOLEAN)
            deflate = self.scalar(key, node.items["deflate"], path + ".deflate")
            listen = msgspec.structs.replace(listen, deflate=bool(deflate))
        return listen

    def listener_url(self, node: Node, path: str, values: dict[str, Any]) -> Listen | None:
        """Return the listener of a URL, with the files of its TLS in ``values``; None after a fault."""
        listen = self.scalar(Key(path="listen", type=ValueType(read_url)), node, path)
        if not isinstance(listen, Listen):
            return None
        if not listen.encrypted:
            return listen
        tls = tls_of(values)
        if tls is None:
            wanted = "expected tls: {cert: FILE, key: FILE}, here or at the top level of the file"
            self.fault(node.line, path, f"{listen.scheme}:// needs a certificate: {wanted}")
        return msgspec.structs.replace(listen, tls=tls)

    def origins(self, node: Node, path: str) -> tuple[str, ...] | Literal["own", "any"]:
        """Return the pages that may connect to a WebSocket listener."""
        if isinstance(node, Scalar) and node.text in ("own", "any"):
            return "own" if node.text == "own" else "any"
        if not isinstance(node, Sequence):
            self.fault(node.line, path, f"expected own, any, or a list such as - https://app.example, got {node}")
            return ()
        read = [self.scalar(Key(path="origins", type=schema.ORIGIN), item, path) for item in node.items]
        return tuple(origin for origin in read if isinstance(origin, str))

    def subscriptions(self, node: Node) -> list[DeclaredSubscription]:
        """Return the entries of ``subscriptions:``."""
        found: dict[str, DeclaredSubscription] = {}
        wanted = "a list such as - {name: billing, destination: /topic/orders}"
        for path, item in self.items(node, "subscriptions", wanted):
            own = self.table(item, SUBSCRIPTION, path)
            if not isinstance(item, Mapping):
                continue
            if ("name" in item.items) == ("group" in item.items):
                self.fault(item.line, path, "expected one of name: and group:")
            elif "destination" not in item.items:
                self.fault(item.line, path, "expected destination: too, such as destination: /topic/orders")
            elif own.keys() >= {"destination"} and own.keys() & {"name", "group"}:
                entry = DeclaredSubscription(line=item.line, **own)
                if found.setdefault(entry.title, entry) is not entry:
                    self.fault(item.line, path, f"{entry.title} is in the list twice")
        return list(found.values())

    def jwt(self, root: Node | None, values: dict[str, Any]) -> JwtConfig | None:
        """Return how tokens are verified; None without ``auth.jwt:``."""
        auth = root.items.get("auth") if isinstance(root, Mapping) else None
        node = auth.items.get("jwt") if isinstance(auth, Mapping) else None
        found = {field: values[f"jwt_{field}"] for field in JwtConfig._fields}
        if node is None or not any(found[field] for field in JWT_FIELDS):
            return None
        missing = [name for name in JWT_FIELDS[2:] if not found[name]]
        if (found["key_file"] is None) == (found["jwks_url"] is None):
            missing.insert(0, "key_file or jwks_url")
        if missing:
            self.fault(node.line, "auth.jwt", f"expected {', '.join(missing)}")
        if values["users_file"] is None:
            self.fault(node.line, "auth.jwt", "expected auth.users_file too: it has the rights of users and roles")
        if values["plugin"] is not None:
            self.fault(node.line, "auth.jwt", "expected no auth.plugin beside it")
        return JwtConfig(**found)

    def rules(self, node: Node, default_rule: dict[str, Any]) -> list[Rule]:
        """Return the rules of ``destinations:``."""
        rules: list[Rule] = []
        for path, item in self.items(node, "destinations", "a list of rules such as - match: /topic/>"):
            own = self.table(item, schema.RULE, path)
            if isinstance(item, Mapping):
                whole = {**default_rule, **own}
                self.report(item, path, rule_checks.faults(RuleKeys(item.items, own, whole)))
                rules.append(_rule(whole, item.line))
        return rules

    def archive(self, node: Node) -> list[ArchiveRule]:
        """Return the rules of ``archive:``."""
        rules = []
        for path, item in self.items(node, "archive", "a list of rules such as - {match: /topic/>, to: /topic/all}"):
            own = self.table(item, schema.ARCHIVE, path)
            if isinstance(item, Mapping) and self.has(item, own, path, ("match", "to")):
                rules.append(ArchiveRule(**own, line=item.line))
        return rules

    def schedules(self, node: Node) -> list[ScheduleRule]:
        """Return the entries of ``schedules:``."""
        found = []
        for path, item in self.items(node, "schedules", "a list of entries with name: and cron:"):
            if not isinstance(item, Mapping):
                self.fault(item.line, path, f"expected keys such as name:, got {item}")
                continue
            own = self.keys(item, schema.tree(schema.SCHEDULE), f"{path}.", ("headers",))
            headers = self.headers(item.items.get("headers"), f"{path}.headers")
            if self.has(item, own, path, ("name", "cron", "destination")):
                values = {**_defaults(schema.SCHEDULE), "body": "", **own}
                found.append(ScheduleRule(**values, headers=headers, line=item.line))
        return found

    def items(self, node: Node, name: str, wanted: str) -> list[tuple[str, Node]]:
        """Return the entries of a list with their paths; none after a fault."""
        if not isinstance(node, Sequence):
            self.fault(node.line, name, f"expected {wanted}, got {node}")
            return []
        return [(f"{name}[{index}]", item) for index, item in enumerate(node.items)]

    def has(self, node: Mapping, own: dict[str, Any], path: str, names: tuple[str, ...]) -> bool:
        """Return whether an entry has the values of these keys. A value that cannot be used has a fault already."""
        absent = [name for name in names if name not in node.items]
        if absent:
            self.fault(node.line, path, f"expected the key {absent[0]}:")
        return all(name in own for name in names)

    def headers(self, node: Node | None, path: str) -> tuple[tuple[str, str], ...]:
        """Return the headers of a message: a mapping of names to texts."""
        if node is None:
            return ()
        if not isinstance(node, Mapping):
            self.fault(node.line, path, f"expected names and values such as {{content-type: text/plain}}, got {node}")
            return ()
        found = []
        for name, value in node.items.items():
            if not isinstance(value, Scalar) or value.reads_as == "null":
                self.fault(node.key_lines[name], f"{path}.{name}", f"expected one value, got {value}")
                continue
            try:
                found.append((name, self.expand(value.text)))
            except ValueError as error:
                self.fault(value.line, f"{path}.{name}", str(error))
        return tuple(found)

    def report(self, node: Mapping, path: str, faults: Iterable[rule_checks.Fault]) -> None:
        """Add the faults of a rule, each with the line of its key."""
        for key, text in faults:
            line = node.key_lines[key.partition(".")[0]] if key else node.line
            self.fault(line, f"{path}.{key}" if key else path, text)

    def table(self, node: Node, keys: tuple[Key, ...], path: str) -> dict[str, Any]:
        """Return the values of a table of settings."""
        if not isinstance(node, Mapping):
            self.fault(node.line, path, f"expected keys such as {keys[0].path}:, got {node}")
            return {}
        values = self.keys(node, schema.tree(keys), path + ".")
        if (values.get("prefetch") or 1) > self.in_flight_max:
            wanted = f"expected at most limits.in_flight, which is {self.in_flight_max}, got {values['prefetch']}"
            self.fault(node.key_lines["prefetch"], f"{path}.prefetch", wanted)
        return values

    def keys(
        self,
        node: Mapping,
        tree: Tree,
        prefix: str,
        others: tuple[str, ...] = (),
    ) -> dict[str, Any]:
        """Return the fields that ``node`` sets. ``others`` are keys that the caller reads itself."""
        values: dict[str, Any] = {}
        for name, value in node.items.items():
            line, path, known = node.key_lines[name], prefix + name, tree.get(name)
            if isinstance(known, Key):
                reader = self.many if known.many else self.by_name if known.by_name else self.scalar
                read = reader(known, value, path)
                if read is not FAULTY:
                    values[known.field] = read
            elif known is not None and isinstance(value, Mapping) and value.items:
                values.update(self.keys(value, known, path + "."))
            elif known is not None:
                self.fault(line, path, f"expected {{{', '.join(f'{inner}: ...' for inner in known)}}}, got {value}")
            elif name not in others:
                self.fault(line, path, "unknown key" + _nearest(name, [*tree, *others], prefix))
        return values

    def many(self, key: Key, node: Node, path: str) -> Any:
        """Return the values of a list, as a tuple, or FAULTY after a fault.

        One value is a list of one, and ``none`` an empty one.
        """
        if isinstance(node, Scalar) and node.text == "none":
            return ()
        items = node.items if isinstance(node, Sequence) else [node]
        values = [self.scalar(key, item, f"{path}[{index}]") for index, item in enumerate(items)]
        return FAULTY if FAULTY in values else tuple(values)

    def by_name(self, key: Key, node: Node, path: str) -> Any:
        """Return the pairs of a mapping of names to values, or FAULTY after a fault. ``none`` is an empty one."""
        if isinstance(node, Scalar) and node.text == "none":
            return ()
        if not isinstance(node, Mapping):
            self.fault(node.line, path, f"expected NAME: VALUE for each name, got {node}")
            return FAULTY
        pairs = [(name, self.scalar(key, value, f"{path}.{name}")) for name, value in node.items.items()]
        return FAULTY if any(value is FAULTY for _, value in pairs) else tuple(pairs)

    def scalar(self, key: Key, node: Node, path: str) -> Any:
        """Return the value of one key, or FAULTY after a fault."""
        try:
            if not isinstance(node, Scalar):
                hint = "; a text that begins with { or [ must be quoted" if key.path in ("match", "partition") else ""
                raise ValueError(f"expected one value{hint}")
            if node.reads_as == "null":
                hint = '; # begins a comment unless quoted: "#"' if key.path == "match" else ""
                raise ValueError(f"expected a value (none switches an optional setting off){hint}")
            if node.block:
                raise ValueError('expected a value on one line; a text that begins with > or | must be quoted: ">"')
            if node.reads_as == "bool" and key.type is not BOOLEAN:
                raise ValueError(_boolean(key, node.text))
            return key.type.read(self.expand(node.text))
        except ValueError as error:
            self.fault(node.line, path, f"{error}, got {node}")
            return FAULTY

    def expand(self, text: str) -> str:
        """Replace environment variables in a value. Raises ValueError."""
        if "${" not in text:
            return text

        def replace(match: re.Match[str]) -> str:
            if match[1]:
                return match[0][1:]
            value = self.environ.get(match[2])
            if value is None:
                raise ValueError(f"expected the environment variable {match[2]} to be set")
            return value

        return VARIABLE.sub(replace, text)


def _boolean(key: Key, text: str) -> str:
    """Return the fault of a bare yes, no, on or off, which YAML 1.1 reads as a boolean."""
    try:
        key.type.read("")
        expected = "expected a text"
    except ValueError as error:
        expected = str(error)
    meant = schema.MEANT.get(key.path)
    if meant is not None:
        return f"{expected}; YAML reads {text} as a boolean, write {meant[text.lower() in ('no', 'off', 'false')]}"
    return f"{expected}; YAML reads {text} as a boolean, quote it to use the word"


def _nearest(name: str, known: list[str], prefix: str) -> str:
    plain = name.replace("-", "_").lower()
    if not prefix and plain in RULE_KEYS:
        return "; it belongs under defaults: or in a rule of destinations:"
    other = schema.ELSEWHERE.get(plain)
    if other in known:
        return f"; did you mean {other}?"
    close = difflib.get_close_matches(plain, known, n=1, cutoff=0.6)
    if close:
        return f"; did you mean {close[0]}?"
    return f"; the keys here are {', '.join(sorted(known))}"


def _defaults(keys: tuple[Key, ...]) -> dict[str, Any]:
    return {key.field: key.default_value for key in keys}


def _rule(values: dict[str, Any], line: int = 0) -> Rule:
    """Return a rule and its settings, made of the values of both by field."""
    settings = {field: value for field, value in values.items() if field in SETTINGS_FIELDS}
    own = {field: value for field, value in values.items() if field not in SETTINGS_FIELDS}
    return Rule(line=line, settings=Settings(**settings), **own)
