"""Add the struct columns of rules with a schema to batches of the log.

The broker stores which rule has which schema (``storage.typed_rules``). A rule has a struct column; several rules may
share one if they have the same schema. A record has a struct in the column of its rule if its body fits the schema. If
not, the column ``rejected`` has the reason. In all other columns, and for records of other rules, it has null. So the
records of a rule are those with a struct and those that are rejected.

The newest version of a schema applies to the whole log.

Uses the stored rules, ``json_schema`` and ``bodies``. Must not import configuration or Spark.
Invariant: rows are neither added nor removed, and the other columns are unchanged.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa

from radiator.columns import schema as columns
from radiator.columns.bodies import BodyDecoder
from radiator.columns.files import Place
from radiator.columns.json_schema import public, struct_of
from radiator.decoder import load
from radiator.errors import ConfigError, ProtocolError
from radiator.routing.pattern import PatternSet, parse_list
from radiator.routing.rule_index import Matcher, RuleIndex
from radiator.storage import layout, typed_rules
from radiator.storage.files import read_file
from radiator.storage.typed_rules import REGEX, REJECTED, TypedRule

_TEMPORARY: Final = ("/temp-queue/", "/temp-topic/")  # no rule applies to them
_NAMES_MAX: Final = 10_000  # cached
_RESTORE: Final = "restore the file, or remove it and start the broker, which writes it again"


@dataclass(frozen=True)
class TypedColumns:
    """The struct columns of a store.

    Attributes:
        rules: The rules, in order.
        kinds: The type of each column as ``json_schema.struct_of`` returns it.
        refused: Why a column cannot be read or written, by its name. A batch with a record of its rules raises
            ConfigError.
    """

    rules: tuple[TypedRule, ...] = ()
    kinds: Mapping[str, pa.StructType] = field(default_factory=dict)
    refused: Mapping[str, str] = field(default_factory=dict)

    def fields(self) -> list[pa.Field]:
        """Return the columns: a struct per schema that can be read, and ``rejected``. None if no rule has a schema."""
        if not self.kinds and not self.refused:
            return []
        structs = [pa.field(name, public(kind, wide=True)) for name, kind in self.kinds.items()]
        return [*structs, pa.field(REJECTED, pa.string())]


UNTYPED: Final = TypedColumns()


def typed_columns(place: Place) -> TypedColumns:
    """Return the struct columns of a store. A schema without named properties has none.

    Args:
        place: The store.

    Raises:
        ConfigError: A schema is missing or is no JSON, or two schemas have one column.
        StorageError: The list of rules is damaged.
        OSError: The list of rules cannot be read.
    """
    found = readable_columns(place)
    if found.refused:
        raise ConfigError("; ".join(dict.fromkeys(found.refused.values())))
    return found


def readable_columns(place: Place) -> TypedColumns:
    """Return the struct columns of a store like ``typed_columns``, and refuse those whose schemas cannot be read.

    Args:
        place: The store.

    Raises:
        StorageError: The list of rules is damaged.
        OSError: The list of rules cannot be read.
    """
    rules, kinds = typed_rules.read(place.fs, place.root), dict[str, Any]()
    refused = dict[str, str]()
    for rule in rules:
        if rule.schema is None or rule.column is None:
            continue
        path = f"{layout.schemas_path(place.root)}/{rule.schema}"
        try:
            document = read_schema(place, path)
        except ConfigError as error:
            refused[rule.column] = f"column {rule.column} of {rule.match}: {error}; {_RESTORE}"
            continue
        try:
            kind = struct_of(document)
        except ConfigError:
            continue  # a document without names: its rule has no column
        if kinds.setdefault(rule.column, kind) != kind:
            refused[rule.column] = (
                f"{path}: expected one schema for column {rule.column}, and another rule has another one; {_RESTORE}"
            )
    return TypedColumns(rules, {name: kind for name, kind in kinds.items() if name not in refused}, refused)


def read_schema(place: Place, path: str) -> Any:
    """Return the JSON document of a schema file.

    Args:
        place: The store, for its file system.
        path: The path of the file.

    Raises:
        ConfigError: The file does not exist, or is not JSON.
    """
    try:
        data = read_file(place.fs, path)
        if data is None:
            raise ConfigError(f"{path}: expected a JSON Schema, and there is no such file")
        return json.loads(data)
    except (ValueError, RecursionError, OSError) as error:
        raise ConfigError(f"{path}: expected a JSON Schema: {error}") from None


def needed(names: Iterable[str], typed: TypedColumns) -> list[str]:
    """Return the columns of the log to read for the given columns, in the order of the table.

    Args:
        names: Columns of the log, and struct columns.
        typed: The struct columns of the store.
    """
    wanted = set(names)
    if not wanted <= columns.BY_NAME.keys():
        wanted |= {"destination", "body"}
        if any(rule.decoder for rule in typed.rules):
            wanted.add("headers")
    return [name for name in columns.BY_NAME if name in wanted]


class Typing:
    """Adds struct columns to batches.

    Args:
        typed: The struct columns of the store.
        schema: The columns to return. Structs may have a part of the fields, or others, which are null.
    """

    def __init__(self, typed: TypedColumns, schema: pa.Schema) -> None:
        self._schema = schema
        used = {each.name: _fields_of(each.type) for each in schema}
        self._rules: list[tuple[str, BodyDecoder] | ConfigError | None] = []
        for rule in typed.rules:
            known = rule.column in typed.kinds or rule.column in typed.refused
            wanted = known and (rule.column in used or REJECTED in used)
            self._rules.append(_decoder_of(rule, typed, used.get(rule.column or "", [])) if wanted else None)
        self._index = RuleIndex(_matcher(rule.match) for rule in typed.rules)
        self._known: dict[str, int] = {}

    def check(self, names: Iterable[str]) -> None:
        """Check that the records of destinations can be decoded.

        Args:
            names: The destinations.

        Raises:
            ConfigError: The decoder of a rule cannot be imported, or its column is refused.
        """
        for name in names:
            number = self._rule_of(name)
            rule = self._rules[number] if number >= 0 else None
            if isinstance(rule, ConfigError):
                raise rule

    def extend(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield each batch with the columns of the schema.

        Args:
            batches: Batches with the columns of ``needed``.

        Raises:
            ConfigError: A batch has a record of a rule whose decoder cannot be imported, or whose column is refused.
        """
        for batch in batches:
            yield self.add(batch)

    def add(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return a batch with the columns of the schema.

        Args:
            batch: A batch with the columns of ``needed``.
        """
        pieces, reasons = self._decoded(batch)
        found = []
        for each in self._schema:
            if each.name == REJECTED:
                found.append(pa.array(reasons, pa.string()))
            elif each.name in columns.BY_NAME:
                found.append(batch.column(each.name))
            else:
                found.append(_scattered(pieces.get(each.name, []), batch.num_rows, each.type))
        return pa.RecordBatch.from_arrays(found, schema=self._schema)

    def _decoded(self, batch: pa.RecordBatch) -> tuple[dict[str, list[tuple[Any, pa.StructArray]]], Any]:
        """Return rows and structs by column, and the reason of each row."""
        coded = batch.column("destination").dictionary_encode()
        of_name = np.array([self._rule_of(name) for name in coded.dictionary.to_pylist()], np.int64)
        of_row = of_name[coded.indices.to_numpy()]
        reasons = np.full(batch.num_rows, None, object)
        pieces: dict[str, list[tuple[Any, pa.StructArray]]] = {}
        for number in np.unique(of_row).tolist():
            rule = self._rules[number] if number >= 0 else None
            if rule is None:
                continue
            if isinstance(rule, ConfigError):
                raise rule
            column, decoder = rule
            rows = np.flatnonzero(of_row == number)
            part = batch if len(rows) == batch.num_rows else batch.take(pa.array(rows))
            headers = [dict(each) for each in part.column("headers").to_pylist()] if decoder.needs_headers else None
            found = decoder.decode(part.column("body").to_pylist(), headers)
            for row, reason in found.reasons.items():
                reasons[rows[row]] = reason
            pieces.setdefault(column, []).append((rows, found.column))
        return pieces, reasons

    def _rule_of(self, name: str) -> int:
        number = self._known.get(name)
        if number is None:
            first = None if name.startswith(_TEMPORARY) else self._index.first(name)
            if len(self._known) >= _NAMES_MAX:
                self._known.clear()
            number = self._known[name] = -1 if first is None else first[0]
        return number


def _scattered(pieces: list[tuple[Any, pa.StructArray]], count: int, kind: pa.DataType) -> pa.Array:
    """Return an array with the structs at their rows, and nulls elsewhere."""
    if not pieces:
        return pa.nulls(count, kind)
    structs = [conform(structs, kind) for _, structs in pieces]
    whole = structs[0] if len(structs) == 1 else pa.concat_arrays(structs)
    if len(whole) == count and len(structs) == 1:
        return whole
    places = np.full(count, -1, np.int64)
    places[np.concatenate([rows for rows, _ in pieces])] = np.arange(len(whole))
    return whole.take(pa.array(places, mask=places < 0))


def conform(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return an array with a type that has other fields in its structs: missing ones are null, others are left out.

    Args:
        array: The array.
        kind: The type, in which fields of a name have the same type.
    """
    if array.type == kind and not pa.types.is_nested(kind):
        return array
    if pa.types.is_struct(kind):
        own = {each.name: place for place, each in enumerate(array.type)}
        children = [
            conform(array.field(own[each.name]), each.type) if each.name in own else pa.nulls(len(array), each.type)
            for each in kind
        ]
        return pa.StructArray.from_arrays(children, fields=list(kind), mask=array.is_null())
    if pa.types.is_list(kind):
        values = conform(array.values, kind.value_type)
        return pa.ListArray.from_arrays(_offsets(array), values, type=kind)
    if pa.types.is_map(kind):
        items = conform(array.items, kind.item_type)
        return pa.MapArray.from_arrays(_offsets(array), array.keys, items, type=kind)
    return array.cast(kind)


def _offsets(array: pa.Array) -> pa.Array:
    if not array.null_count:
        return array.offsets
    nulls = np.append(array.is_null().to_numpy(zero_copy_only=False), False)
    return pa.array(array.offsets.to_numpy(), pa.int32(), mask=nulls)


def _matcher(match: str) -> Matcher:
    try:
        return re.compile(match.removeprefix(REGEX)) if match.startswith(REGEX) else parse_list(match)
    except (re.error, ProtocolError):
        return PatternSet(match, ())  # a rule of another version


def _fields_of(kind: pa.DataType) -> list[str]:
    return [each.name for each in kind] if pa.types.is_struct(kind) else []


def _decoder_of(rule: TypedRule, typed: TypedColumns, used: Collection[str]) -> tuple[str, BodyDecoder] | ConfigError:
    """Return the column of a rule and a decoder of the used fields, or why its records cannot be decoded."""
    assert rule.column is not None
    if rule.column in typed.refused:
        return ConfigError(typed.refused[rule.column])
    try:
        decode = None if rule.decoder is None else load(rule.decoder)
    except ConfigError as error:
        return ConfigError(f"decoder {error}; or read columns= without the struct columns")
    return rule.column, BodyDecoder(typed.kinds[rule.column], decode, used)
