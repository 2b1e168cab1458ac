"""Store which rule decodes the bodies of which destinations: ``<data_dir>/schemas/columns.json``.

Readers of a data directory have no configuration. The broker writes this file at the start and at a reload, beside the
versions of the schemas. It lists the rules in their order, up to the last one with a schema, because the first matching
rule decides. The file is JSON: ``{"format": 1, "rules": [{"match", "schema", "column", "decoder"}, ...]}``.

Uses files and JSON. Must not import configuration, patterns or pyarrow.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from radiator.errors import StorageError
from radiator.storage import layout
from radiator.storage.files import FileSystem, read_file

FORMAT: Final = 1
FILE: Final = "columns.json"
REJECTED: Final = "rejected"  # the column with the reason why a body has no typed column
REGEX: Final = "regex "  # the prefix of the expression of a rule with match_regex

# The columns of the table, in lower case, and those that the archive and other readers add. A test compares them.
TAKEN: Final = frozenset(
    (
        "destination", "partition", "offset", "message_id", "receive_time", "event_time", "transmit_time",
        "receive_ns", "event_ns", "transmit_ns", "tags", "headers", "body", "size", "date", REJECTED, "_corrupt_record",
    )
)  # fmt: skip


class TypedRule(NamedTuple):
    """A rule, as far as readers need it.

    Attributes:
        match: The match of the rule, or ``regex `` and its expression.
        schema: The file of the schema in the directory of schemas. None: bodies of this rule are not decoded.
        column: The name of the struct column.
        decoder: ``module:function`` that decodes a body. None: bodies are JSON.
    """

    match: str
    schema: str | None = None
    column: str | None = None
    decoder: str | None = None


def path(root: str) -> str:
    """Return the path of the file.

    Args:
        root: The data directory.
    """
    return f"{layout.schemas_path(root)}/{FILE}"


def derived_column(document: Any, schema_path: str) -> str:
    """Return the column name of a rule without ``schema_column``: the title of the schema, or the name of its file.

    Args:
        document: The JSON Schema.
        schema_path: The path of its file.

    Example:
        >>> derived_column({"title": "Flight, departed"}, "f.json")
        'flight_departed'
    """
    title = document.get("title") if isinstance(document, dict) else None
    stem = schema_path.rpartition("/")[2].rpartition(".")[0]
    for text in (title, stem):
        name = re.sub(r"[^a-z0-9]+", "_", text.lower()).strip("_")[:64] if isinstance(text, str) else ""
        if name:
            name = f"_{name}" if name[0].isdigit() else name
            return f"{name}_body" if name in TAKEN else name
    return "typed_body"


def encode(rules: Iterable[TypedRule]) -> bytes:
    """Return the contents of the file.

    Args:
        rules: The rules of the configuration, in order.
    """
    found = list(rules)
    while found and found[-1].schema is None:
        found.pop()
    listed = [{name: value for name, value in each._asdict().items() if value is not None} for each in found]
    return json.dumps({"format": FORMAT, "rules": listed}, indent=1, ensure_ascii=False).encode() + b"\n"


def read(fs: FileSystem, root: str) -> tuple[TypedRule, ...]:
    """Return the rules, or none if the broker has never had a rule with a schema.

    Args:
        fs: The file system of the store.
        root: The data directory.

    Raises:
        StorageError: The file is damaged, or is of a newer radiator.
        OSError: The file cannot be read.
    """
    data = read_file(fs, path(root))
    if data is None:
        return ()
    try:
        value = json.loads(data)
        if value["format"] != FORMAT:
            raise StorageError(
                f"{path(root)}: format {value['format']} is newer than this radiator: install another one"
            )
        return tuple(TypedRule(**each) for each in value["rules"])
    except (ValueError, TypeError, KeyError) as error:
        raise StorageError(
            f"{path(root)}: expected the rules with a schema, got damage: {error!r}; a start of the broker replaces it"
        ) from None
