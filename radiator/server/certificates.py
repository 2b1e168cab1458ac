"""Load the TLS certificates of the listeners, and load them again when their files change or on SIGHUP.

New handshakes use the new certificate; open connections keep theirs. A certificate that cannot be used is reported in
the log once; the old one stays in use, and each check tries again. A thread checks the files. A change counts when two
checks in a row find the same files, because certificate and key are not replaced at the same moment.

Invariants: ``context`` always is one that could be loaded. The event loop does I/O here only at the start.
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
from radiator.server.users_watch import Stamp, stamp_of

if TYPE_CHECKING:
    import ssl

log = logging.getLogger("radiator.server")

LOOK_SECONDS = 5.0  # between two checks of the files
SOON_SECONDS = 14 * 86_400.0  # warn so long before a certificate expires


class Certificate:
    """One TLS configuration, shared by all listeners with the same files.

    Args:
        tls: The paths of the files.

    Attributes:
        context: The TLS context for new connections.

    Raises:
        ConfigError: A file cannot be used.
    """

    def __init__(self, tls: Tls) -> None:
        self.tls = tls
        self._stamp = self._look()
        self._changed: Stamp | None = None
        self._fault = ""  # the fault that was logged last
        self.context = self._load()

    def _load(self) -> ssl.SSLContext:
        from radiator.tunnels.certificates import server_context, validity  # OpenSSL: only with a certificate

        tls = self.tls
        context = server_context(tls.cert, tls.key, tls.client_ca)
        if os.stat(tls.key).st_mode & stat.S_IROTH:
            log.warning("tls.key: %s: every user of this machine can read it; chmod 600 it", tls.key)
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
        return stamp_of((self.tls.cert, self.tls.key, self.tls.client_ca or self.tls.cert))

    def look(self) -> None:
        """Load the files if they have changed, and two checks in a row found the same change."""
        now = self._look()
        if now == self._stamp and not self._fault:
            self._changed = None
        elif now == self._changed:
            self.reload()
        else:
            self._changed = now

    def reload(self) -> None:
        """Load the files now; if they cannot be used, the present certificate stays in use."""
        self._stamp, self._changed = self._look(), None
        try:
            self.context = self._load()
        except (ConfigError, OSError) as error:
            if str(error) != self._fault:
                log.error("the new certificate cannot be used, the old one stays in use: %s", error)
            self._fault = str(error)
        else:
            self._fault = ""
            log.info("tls.cert: %s: loaded again; new connections use it", self.tls.cert)


class Certificates:
    """The certificates of all listeners."""

    def __init__(self) -> None:
        self._kept: dict[Tls, Certificate] = {}

    def of(self, listen: Listen, default: Tls | None) -> Certificate | None:
        """Return the certificate of a listener, or None if it needs none.

        Raises:
            ConfigError: The listener needs a certificate and has none, or its files cannot be used.
        """
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
        """Check the files of all certificates. Runs on a thread."""
        for certificate in self._all():
            certificate.look()
        return self

    def reload(self) -> Certificates:
        """Load the files of all certificates. Runs on a thread."""
        for certificate in self._all():
            certificate.reload()
        return self

    def _all(self) -> Iterable[Certificate]:
        return list(self._kept.values())
