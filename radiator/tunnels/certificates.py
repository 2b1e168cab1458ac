"""Create TLS contexts from files, with errors that name the file, what was expected, and what is wrong.

These functions read files, so they run at the start, in a client, or on a thread that may block. The dates of a
certificate are parsed from its DER encoding, because the standard library returns those of peer certificates only.

Source: RFC 5280 (X.509).
"""

from __future__ import annotations

import ssl
from datetime import UTC, datetime
from typing import NamedTuple

from radiator.errors import ConfigError
from radiator.tunnels.tls import words

PEM_BYTES_MAX = 4 * 1024 * 1024  # more than certificate chains and collections of CAs have


class Validity(NamedTuple):
    """The validity period of a certificate.

    Attributes:
        begins_s: The begin, in seconds since the epoch.
        ends_s: The end, in seconds since the epoch.
    """

    begins_s: float
    ends_s: float


def server_context(cert: str, key: str, client_ca: str | None) -> ssl.SSLContext:
    """Return the TLS context of a server: TLS 1.2 and newer, without renegotiation.

    Args:
        cert: The path of the certificate.
        key: The path of its key.
        client_ca: The path of the authorities for client certificates, or None if clients need none.

    Raises:
        ConfigError: A file cannot be used.
    """
    if "-----BEGIN CERTIFICATE-----" not in _read(cert, "tls.cert"):
        raise ConfigError(f"tls.cert: {cert}: expected a certificate in PEM (-----BEGIN CERTIFICATE-----)")
    if "PRIVATE KEY-----" not in _read(key, "tls.key"):
        raise ConfigError(f"tls.key: {key}: expected a private key in PEM (-----BEGIN PRIVATE KEY-----)")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION | ssl.OP_CIPHER_SERVER_PREFERENCE
    load_own(context, cert, key)
    if client_ca is not None:
        load_trusted(context, client_ca, "tls.client_ca")
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def client_context(ca: str | None, cert: str | None = None, key: str | None = None) -> ssl.SSLContext:
    """Return the TLS context of a client, which checks the host name of the server.

    Args:
        ca: The path of the authorities to trust, or None for those of the system.
        cert: The path of the client's certificate, or None.
        key: The path of its key, or None if ``cert`` contains it.

    Raises:
        ConfigError: A file cannot be used.
    """
    context = ssl.create_default_context()
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if ca is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        load_trusted(context, ca, "the CA file")
    if cert is not None:
        _read(cert, "the file of our own certificate")
        _read(key or cert, "the file of its key")
        load_own(context, cert, key or cert, "the file of its key")
    return context


def load_trusted(context: ssl.SSLContext, path: str, key: str) -> None:
    """Trust the certificates in a file.

    Args:
        context: The context.
        path: The path of the file.
        key: The configuration key that names the file, for error messages.

    Raises:
        ConfigError: The file cannot be used.
    """
    _read(path, key)
    try:
        context.load_verify_locations(cafile=path)
    except ssl.SSLError:
        raise ConfigError(f"{key}: {path}: expected certificates in PEM (-----BEGIN CERTIFICATE-----)") from None


def load_own(context: ssl.SSLContext, cert: str, key: str, called: str = "tls.key") -> None:
    """Use a certificate and its key.

    Args:
        context: The context.
        cert: The path of the certificate.
        key: The path of its key.
        called: The configuration key that names ``key``, for error messages.

    Raises:
        ConfigError: A file cannot be used.
    """

    def no_password() -> str:
        raise ConfigError(
            f"{called}: {key}: the key is encrypted, and the broker cannot ask for its password: store it "
            f"unencrypted, readable by its owner only (openssl pkey -in {key} -out plain.key)"
        )

    try:
        context.load_cert_chain(cert, key, no_password)
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            raise ConfigError(f"{called}: {key}: expected the key of the certificate in {cert}, got another") from None
        raise ConfigError(f"tls: {cert} and {key}: cannot be used: {words(error)}") from None


def _read(path: str, key: str) -> str:
    try:
        with open(path, "rb") as file:
            data = file.read(PEM_BYTES_MAX + 1)
    except OSError as error:
        raise ConfigError(f"{key}: {path}: cannot read the file: {error.strerror}") from None
    if len(data) > PEM_BYTES_MAX:
        raise ConfigError(f"{key}: {path}: expected a PEM file of at most 4MiB, got a larger one")
    return data.decode("latin-1")


# --- dates ------------------------------------------------------------------------------------------------------------


def validity(cert: str) -> Validity | None:
    """Return the validity of the first certificate in a PEM file, or None if it cannot be read."""
    try:
        text = _read(cert, "tls.cert")
        end = "-----END CERTIFICATE-----"
        first = text[text.index("-----BEGIN CERTIFICATE-----") : text.index(end) + len(end)]
        body = _content(_content(ssl.PEM_cert_to_DER_cert(first)))
        if body[0] == 0xA0:  # the version, which version 1 omits
            body = _rest(body)
        dates = _content(_rest(_rest(_rest(body))))  # after serial number, algorithm and issuer
        return Validity(_time(dates), _time(_rest(dates)))
    except (ConfigError, ValueError, IndexError):
        return None


def _span(der: bytes) -> tuple[int, int]:
    """Return where the content of the first element begins and ends."""
    length, start = der[1], 2
    if length & 0x80:
        start += length & 0x7F
        length = int.from_bytes(der[2:start])
    return start, start + length


def _content(der: bytes) -> bytes:
    start, end = _span(der)
    return der[start:end]


def _rest(der: bytes) -> bytes:
    return der[_span(der)[1] :]


def _time(der: bytes) -> float:
    form = "%y%m%d%H%M%SZ" if der[0] == 0x17 else "%Y%m%d%H%M%SZ"  # UTCTime until 2049, GeneralizedTime
    return datetime.strptime(_content(der).decode("ascii"), form).replace(tzinfo=UTC).timestamp()
