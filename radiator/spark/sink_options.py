"""Parse the options of writing to a broker (``.option(...)``).

Names are compared as those of reading (``radiator.spark.options``). Options that Spark itself adds to a stream (its
checkpoint, its name) are ignored. Any other option is an error that shows the closest name. No error and no ``repr``
contains a passcode, because Spark prints options in plans.

Uses the file of a passcode. Must not import pyspark or sockets.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from radiator.client.address import Address
from radiator.client.address import parse as parse_address
from radiator.client.errors import BadAddress
from radiator.client.reliable import RUN_MESSAGES
from radiator.errors import ConfigError
from radiator.spark import kafka
from radiator.spark.options import Option
from radiator.spark.spelling import Values, expected, named, number, plain

TIMEOUT_SECONDS = 60.0  # longer than a broker needs to restart
BATCH = "batch"  # used instead of the number of an epoch
DEDUP_WORDS = {"row": "row", "true": "row", "number": "number", "none": "none", "false": "none"}

WRITE_OPTIONS: tuple[Option, ...] = (
    Option("url", "required", "the broker: stomp://[login:passcode@]host[:port], stomp+tls://, ws://, wss:// or unix:"),
    Option("destination", "the column", "the destination of all rows; replaces a column destination"),
    Option("login", "none", "the login name"),
    Option("passcode", "none", "its passcode"),
    Option("passcode_file", "none", "a file with the passcode in its first line, read by the driver"),
    Option("ca", "the system's", "with TLS: a file with trusted authorities, on every executor"),
    Option("cert", "none", "with TLS: a file with our own certificate, on every executor"),
    Option("key", "none", "with TLS: a file with its key, on every executor"),
    Option("dedup", "row", "what tells repeats: row (its content), number (its place in the task), none"),
    Option("dedup_by", "none", "columns that identify a row in every task and run, a comma list"),
    Option("query", "that of the checkpoint", "the name in front of the ids, for those that other runs are to meet"),
    Option("epoch", "from Spark", "with query: the number that foreachBatch gives, or batch; for Spark Connect"),
    Option("messages_per_receipt", str(RUN_MESSAGES), "messages between two receipts; a task ends with one"),
    Option("timeout", f"{TIMEOUT_SECONDS:g}s", "how long to wait for an unreachable broker, and for a receipt"),
)
SPARKS_OWN = frozenset({"checkpointlocation", "queryname"})
_BY_PLAIN = {plain(option.name): option.name for option in WRITE_OPTIONS}


@dataclass(frozen=True)
class SinkOptions:
    """The options of writing.

    Attributes:
        address: The address of the broker, without login and passcode.
        destination: The destination of all rows, or None to use the column.
        login: The login, or None.
        passcode: The passcode, or None; never shown.
        ca: The file with the certificate authorities to trust, or None.
        cert: The file with the certificate of the client, or None.
        key: The file with the key of that certificate, or None.
        dedup: How repeated rows are recognised: ``row``, ``number`` or ``none``.
        dedup_by: The columns that identify a row, or empty.
        query: The name at the start of the ids, or None for the id of the query.
        epoch: The number of the epoch as digits, BATCH, or None for the one that Spark passes.
        messages_per_receipt: The number of messages per receipt.
        timeout_seconds: How long a broker may be unavailable, and a receipt may take, in seconds.
    """

    address: str
    destination: str | None = None
    login: str | None = None
    passcode: str | None = field(default=None, repr=False)
    ca: str | None = None
    cert: str | None = None
    key: str | None = None
    dedup: str = "row"
    dedup_by: tuple[str, ...] = ()
    query: str | None = None
    epoch: str | None = None
    messages_per_receipt: int = RUN_MESSAGES
    timeout_seconds: float = TIMEOUT_SECONDS

    @property
    def ids_have_epochs(self) -> bool:
        """True if the ids of messages contain the epoch."""
        return self.dedup != "none" and not self.dedup_by


def parse(given: Mapping[str, str]) -> SinkOptions:
    """Parse the options of a write.

    Args:
        given: The options as Spark passes them.

    Returns:
        The options as values.

    Raises:
        ConfigError: An option is unknown, missing, or has a wrong value; the passcode file cannot be read.
    """
    values = named({key: value for key, value in given.items() if plain(key) not in SPARKS_OWN}, _BY_PLAIN, _unknown)
    place = _place(values.get("url", ""))
    _tls_alone(values, place)
    destination = values.get("destination")
    if destination is not None and not destination.strip():
        raise ConfigError("option destination: expected a name such as /topic/results, got nothing")
    return SinkOptions(
        address=str(place),
        destination=destination,
        login=values.get("login", place.login),
        passcode=_passcode(values, place),
        ca=values.get("ca"),
        cert=values.get("cert"),
        key=values.get("key"),
        dedup=_dedup(values),
        dedup_by=_columns(values),
        query=_query(values),
        epoch=_epoch(values),
        messages_per_receipt=number(values, "messages_per_receipt", RUN_MESSAGES),
        timeout_seconds=_seconds(values, "timeout", TIMEOUT_SECONDS),
    )


def _unknown(key: str) -> str:
    if plain(key) == "path":
        return (
            "option 'path' has no meaning for writing, because only the broker writes its log: expected "
            '.option("url", "stomp://host:61613"), and .save() or .start() without a path'
        )
    kafkas = kafka.instead_of_writing(plain(key))
    if kafkas is not None:
        return f"option {kafka.called(key)!r} of Spark's Kafka sink has no meaning here: {kafkas}"
    return f"option {key!r} is not known for writing{expected(key, _BY_PLAIN)}"


def _place(url: str) -> Address:
    if not url.strip():
        raise ConfigError(
            "option 'url' is missing: expected the address of the broker, "
            'as in df.write.format("radiator").option("url", "stomp://localhost:61613")'
        )
    try:
        return parse_address(url)
    except BadAddress as error:
        raise ConfigError(f"option url: {error}") from None


def _tls_alone(values: Values, place: Address) -> None:
    """Raise if a TLS file is given for an address without TLS, because the user expects encryption."""
    given = [name for name in ("ca", "cert", "key") if name in values]
    if given and not place.encrypted:
        raise ConfigError(
            f"option {given[0]}: expected an address with TLS (stomp+tls:// or wss://) in option url, got {place}; "
            f"change it, or drop {given[0]}"
        )


def _passcode(values: Values, place: Address) -> str | None:
    if "passcode" in values and "passcode_file" in values:
        said = values.called("passcode_file")
        raise ConfigError(f"options passcode and {said}: expected one of the two, got both")
    if "passcode_file" not in values:
        return values.get("passcode", place.passcode)
    path = values["passcode_file"]
    try:
        with open(path, encoding="utf-8") as file:
            return file.readline().rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        said = values.called("passcode_file")
        raise ConfigError(f"option {said}: {path!r} cannot be read by the driver: {error}") from None


def _dedup(values: Values) -> str:
    text = values.get("dedup", "row").strip().lower()
    word = DEDUP_WORDS.get(text)
    if word is None:
        raise ConfigError(f"option dedup: expected row (or true), number, none (or false), got {text!r}")
    if word != "row" and "dedup_by" in values:
        said = values.called("dedup_by")
        raise ConfigError(f"options dedup and {said}: expected dedup=row or no dedup with {said}, got dedup={text}")
    return word


def _columns(values: Values) -> tuple[str, ...]:
    if "dedup_by" not in values:
        return ()
    names = tuple(name.strip() for name in values["dedup_by"].split(","))
    if not all(names):
        said = values.called("dedup_by")
        raise ConfigError(f"option {said}: expected names of columns, a comma list, got {values['dedup_by']!r}")
    return names


def _query(values: Values) -> str | None:
    query = values.get("query")
    if query is not None and not query.strip():
        raise ConfigError("option query: expected a name, got nothing")
    return query


def _epoch(values: Values) -> str | None:
    text = values.get("epoch")
    if text is None:
        return None
    text = text.strip().lower()
    if text != BATCH and not (text.isascii() and text.isdigit()):
        raise ConfigError(f"option epoch: expected the number that foreachBatch gives, or {BATCH}, got {text!r}")
    if "query" not in values:
        raise ConfigError("option epoch: expected the option query too: without a name no other run meets these ids")
    return text


def _seconds(values: Values, option: str, default: float) -> float:
    text = values.get(option, f"{default}").strip().lower().removesuffix("s").strip()
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < 1e6:
        raise ConfigError(f"option {option}: expected seconds above 0, such as 30 or 30s, got {values[option]!r}")
    return seconds
