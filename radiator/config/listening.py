"""The entries of ``listen:``: a URL, or a mapping with a URL and the keys of this listener.

Invariant: a listener with TLS has the files of its TLS, its own or those of the top level; a key that a listener cannot
use is a fault, never ignored.
"""

from __future__ import annotations

import re
from collections.abc import Mapping as MappingABC
from typing import Any, Final, Literal, Protocol

import msgspec

from radiator.config import schema
from radiator.config.keys import Key
from radiator.config.model import Listen, Tls
from radiator.config.nodes import Mapping, Node, Scalar, Sequence
from radiator.config.values import BOOLEAN, ValueType

EXPECTED: Final = (
    "expected stomp://HOST:PORT, stomp+tls://HOST:PORT, ws://HOST:PORT/PATH, wss://HOST:PORT/PATH or unix:PATH"
)
_HOST = r"\[[0-9a-fA-F:.]+\]|[A-Za-z0-9._*-]+"
_URL = re.compile(rf"([a-z+]+)://({_HOST})(?::([0-9]{{1,5}}))?(/[^\s?#]*)?")


def read_url(url: str) -> Listen:
    """Return the listener of a URL. Raises ValueError with what was expected."""
    scheme, _, rest = url.partition(":")
    if scheme == "unix" and rest:
        path = rest[2:] if rest.startswith("///") else rest
        if not path.startswith("//"):
            return Listen(scheme="unix", path=path)
    match = _URL.fullmatch(url)
    scheme = schema.SCHEME_ALIASES.get(scheme, scheme)
    if match is None or scheme not in schema.DEFAULT_PORTS:
        raise ValueError(EXPECTED)
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


class Loader(Protocol):
    """Reads keys of the file, and collects faults."""

    def fault(self, line: int, path: str, text: str) -> None:
        """Add a fault of the key ``path``."""

    def keys(
        self,
        node: Mapping,
        tree: MappingABC[str, Any],
        prefix: str,
        others: tuple[str, ...] = (),
    ) -> dict[str, Any]:
        """Return the values of the keys that ``node`` sets."""

    def scalar(self, key: Key, node: Node, path: str) -> Any:
        """Return the value of one key; None after a fault."""


class Listening:
    """Reads the list. ``values`` are those of the top level."""

    def __init__(self, loader: Loader, values: MappingABC[str, Any]) -> None:
        self._loader = loader
        self._values = values

    def entries(self, node: Node) -> list[Listen]:
        """Return the listeners of the list."""
        found: list[Listen] = []
        loader = self._loader
        if not isinstance(node, Sequence) or not node.items:
            loader.fault(node.line, "listen", f"expected a list such as - {schema.DEFAULT_LISTEN}, got {node}")
            return found
        for index, item in enumerate(node.items):
            path = f"listen[{index}]"
            value = self._mapping(item, path) if isinstance(item, Mapping) else self._url(item, path, {})
            if value is None:
                continue
            twice = any(str(value) == str(other) for other in found)
            if twice and (value.port or value.scheme == "unix"):
                loader.fault(item.line, path, f"{value} is in the list twice")
            found.append(value)
        return found

    def _mapping(self, node: Mapping, path: str) -> Listen | None:
        loader = self._loader
        own = loader.keys(node, schema.tree(schema.LISTEN), path + ".", ("url", "origins", "deflate"))
        url = node.items.get("url")
        if url is None:
            loader.fault(node.line, path, f"expected url: too, such as url: {schema.DEFAULT_LISTEN}")
            return None
        listen = self._url(url, path + ".url", own)
        if listen is not None and own and not listen.encrypted:
            loader.fault(node.key_lines["tls"], path + ".tls", f"{listen.scheme}: has no TLS; write stomp+tls or wss")
        if listen is None:
            return None
        if not listen.web:
            for name in ("origins", "deflate"):
                if name in node.items:
                    loader.fault(node.key_lines[name], f"{path}.{name}", "only ws:// and wss:// have this key")
            return listen
        if "origins" in node.items:
            listen = msgspec.structs.replace(listen, origins=self._origins(node.items["origins"], path + ".origins"))
        if "deflate" in node.items:
            key = Key(path="deflate", type=BOOLEAN)
            deflate = loader.scalar(key, node.items["deflate"], path + ".deflate")
            listen = msgspec.structs.replace(listen, deflate=bool(deflate))
        return listen

    def _url(self, node: Node, path: str, own: dict[str, Any]) -> Listen | None:
        loader = self._loader
        listen = loader.scalar(Key(path="listen", type=ValueType(read_url)), node, path)
        if not isinstance(listen, Listen):
            return None
        if not listen.encrypted:
            return listen
        tls = tls_of({**self._values, **own})
        if tls is None:
            wanted = "expected tls: {cert: FILE, key: FILE}, here or at the top level of the file"
            loader.fault(node.line, path, f"{listen.scheme}:// needs a certificate: {wanted}")
        return msgspec.structs.replace(listen, tls=tls)

    def _origins(self, node: Node, path: str) -> tuple[str, ...] | Literal["own", "any"]:
        if isinstance(node, Scalar) and node.text in ("own", "any"):
            return "own" if node.text == "own" else "any"
        loader = self._loader
        if not isinstance(node, Sequence):
            loader.fault(node.line, path, f"expected own, any, or a list such as - https://app.example, got {node}")
            return ()
        read = [loader.scalar(Key(path="origins", type=schema.ORIGIN), item, path) for item in node.items]
        return tuple(origin for origin in read if isinstance(origin, str))
