"""The certificates of the listeners: read at the start, and again when their files change or SIGHUP says so.

New handshakes use the new one; connections that stand keep what they have, so nobody is cut off. What cannot be used is
told in the log, once, changes nothing, and is tried again. Files are looked at on a thread; a change counts once it has
been the same for two looks, since a certificate and its key are not replaced in one moment.

Invariants: ``context`` is always one that could be loaded; the loop does no I/O here but at the start.
"""

from __future__ import annotations

import logging
import os
import stat
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING

from radiator.config import Listen, Tls
from radiator.errors import ConfigError

if TYPE_CHECKING:
    import ssl

log = logging.getLogger("radiator.server")

LOOK_SECONDS = 5.0  # between two looks at the files
SOON_SECONDS = 14 * 86_400.0  # before its end a certificate is worth a warning

Stamp = tuple[tuple[int, ...], ...]


class Certificate:
    """One TLS configuration, shared by all listeners that have the same files. Raises ConfigError at the start."""

    def __init__(self, tls: Tls) -> None:
        self.tls = tls
        self._stamp = self._look()
        self._changed: Stamp | None = None
        self._fault = ""  # that was told
        self.context = self._load()

    def _load(self) -> ssl.SSLContext:
        from radiator.tunnels.certificates import server_context, validity  # OpenSSL: only with a certificate

        tls = self.tls
        context = server_context(tls.cert, tls.key, tls.client_ca)
        if os.stat(tls.key).st_mode & stat.S_IROTH:
            log.warning("tls.key: %s: everybody on this machine may read it; chmod 600 it", tls.key)
        dates = validity(tls.cert)
        if dates is not None:
            left = dates.ends_s - time.time()
            until = time.strftime("%Y-%m-%d %H:%M:%SZ", time.gmtime(dates.ends_s))
            if left < 0:
                log.warning("tls.cert: %s: the certificate expired on %s; clients will refuse it", tls.cert, until)
            elif dates.begins_s > time.time():
                log.warning("tls.cert: %s: the certificate is not valid yet; clients will refuse it", tls.cert)
            elif left < SOON_SECONDS:
                log.warning("tls.cert: %s: the certificate expires on %s", tls.cert, until)
        return context

    def _look(self) -> Stamp:
        found: list[tuple[int, ...]] = []
        for path in (self.tls.cert, self.tls.key, self.tls.client_ca or self.tls.cert):
            try:
                facts = os.stat(path)
                found.append((facts.st_ino, facts.st_mtime_ns, facts.st_ctime_ns, facts.st_size))
            except OSError as error:
                found.append((error.errno or 0,))
        return tuple(found)

    def look(self) -> None:
        """Load the files if they are others than before, and have been so for two looks."""
        now = self._look()
        if now == self._stamp and not self._fault:
            self._changed = None
        elif now == self._changed:
            self.reload()
        else:
            self._changed = now

    def reload(self) -> None:
        """Load the files now; if they cannot be used, what is in force stays."""
        self._stamp, self._changed = self._look(), None
        try:
            self.context = self._load()
        except (ConfigError, OSError) as error:
            if str(error) != self._fault:
                log.error("the new certificate cannot be used, the old one stays in force: %s", error)
            self._fault = str(error)
        else:
            self._fault = ""
            log.info("tls.cert: %s: loaded anew; it holds for connections from now on", self.tls.cert)


class Certificates:
    """All that the listeners use."""

    def __init__(self) -> None:
        self._kept: dict[Tls, Certificate] = {}

    def of(self, listen: Listen, default: Tls | None) -> Certificate | None:
        """The certificate of a listener; None if it needs none. Raises ConfigError."""
        if not listen.encrypted:
            return None
        tls = listen.tls or default
        if tls is None:
            raise ConfigError(
                f"listen: {listen}: needs a certificate: expected tls: {{cert: FILE, key: FILE}} in the YAML file"
            )
        if tls not in self._kept:
            self._kept[tls] = Certificate(tls)
        return self._kept[tls]

    def __len__(self) -> int:
        return len(self._kept)

    def look(self) -> Certificates:
        """On a thread, now and then."""
        for certificate in self._all():
            certificate.look()
        return self

    def reload(self) -> Certificates:
        """On a thread, when the operator says so."""
        for certificate in self._all():
            certificate.reload()
        return self

    def _all(self) -> Iterable[Certificate]:
        return list(self._kept.values())
