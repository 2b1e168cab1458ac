"""Decode JSON bodies to a struct column, and say why a body does not fit.

msgspec decodes each body to an object with the fields of the schema, and skips the rest of the document. The objects
become columns field by field. This takes about as long as Arrow's own JSON reader, which ends at the first bad body and
knows no maps.

A body fits if every field of the schema has a value of its type, is null, or is missing. Whole numbers are exact:
``2.0`` and ``1e3`` are integers, as in JSON Schema, as long as a double below 2^53 has them. Values of a field of any
type are JSON text, and strings are as they are.

Uses msgspec and pyarrow. Must not import files, rules or columns of the table.
Invariant: each body has either a struct or a reason.
"""

from __future__ import annotations

import datetime
from collections.abc import Collection, Mapping, Sequence
from operator import attrgetter
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa

from radiator.columns.json_schema import ANY, public
from radiator.decoder import Decode

REASON_CHARS_MAX: Final = 500
_EXACT: Final = 1 << 53  # every whole number below it is exact as a double
_WORDS: Final = (
    (" | null`", "`"),
    ("`int | float`", "`int`"),
    (" - at `$.", " at `"),
    (" - at `$", " at `$"),
    ("Invalid UTF-8 encoded string", "the body is not UTF-8"),  # before msgspec 0.23 a UnicodeDecodeError
)

Bad = dict[int, str]  # by row: the reason


class Decoded(NamedTuple):
    """The result of a batch.

    Attributes:
        column: A struct per body; null if the body does not fit.
        reasons: The reason per body that does not fit, by row.
    """

    column: pa.StructArray
    reasons: Bad


class BodyDecoder:
    """Decodes bodies of one schema.

    Args:
        kind: The fields, as ``json_schema.struct_of`` returns them.
        decode: Returns the document of a body that is not JSON, from the body and the headers.
        used: The fields that the caller uses; None means all. Others may be null. They are checked all the same.
    """

    def __init__(self, kind: pa.StructType, decode: Decode | None = None, used: Collection[str] | None = None) -> None:
        self._top = _Struct(kind, used)
        self._load = msgspec.json.Decoder(self._top.annotation).decode
        self._decode = decode
        self.needs_headers = decode is not None

    def decode(self, bodies: Sequence[bytes], headers: Sequence[Mapping[str, str]] | None = None) -> Decoded:
        """Return the structs of bodies, and the reasons of those that do not fit.

        Args:
            bodies: The bodies.
            headers: The headers of each; needed only by a decoder.
        """
        bad: Bad = {}
        found = self._documents(bodies, headers, bad)
        column = self._top.build(found, range(len(found)), "", bad)
        if bad:
            mask = np.zeros(len(found), bool)
            mask[list(bad)] = True
            children = [column.field(i) for i in range(column.type.num_fields)]
            column = pa.StructArray.from_arrays(children, fields=list(column.type), mask=pa.array(mask))
        return Decoded(column, bad)

    def _documents(self, bodies: Sequence[bytes], headers: Sequence[Mapping[str, str]] | None, bad: Bad) -> list[Any]:
        load = self._load
        if self._decode is None:
            try:
                return [load(body) for body in bodies]
            except (msgspec.MsgspecError, ValueError, RecursionError):
                pass  # again, with a place for each reason
        found: list[Any] = []
        for row, body in enumerate(bodies):
            try:
                found.append(load(body if self._decode is None else self._document(body, (headers or [{}])[row])))
            except (msgspec.MsgspecError, ValueError, RecursionError) as error:
                bad[row] = _reason(error)
                found.append(None)
        return found

    def _document(self, body: bytes, headers: Mapping[str, str]) -> bytes:
        """Return what the decoder makes of a body, as JSON. Raises ValueError for anything that goes wrong in it."""
        assert self._decode is not None
        try:
            found = self._decode(body, headers)
        except (Exception, SystemExit) as error:
            raise ValueError(f"the decoder failed: {type(error).__name__}: {error}") from None
        try:
            return msgspec.json.encode(found)
        except Exception as error:
            raise ValueError(f"the decoder returned a value that is not JSON: {error}") from None


def _reason(error: Exception) -> str:
    text = str(error) if not isinstance(error, RecursionError) else "the document is nested too deeply"
    if isinstance(error, UnicodeDecodeError):
        text = f"the body is not UTF-8: {error}"
    for of_msgspec, ours in _WORDS:
        text = text.replace(of_msgspec, ours)
    return text[:REASON_CHARS_MAX]


# --- a node for each type ---------------------------------------------------------------------------------------------


class _Node:
    """A type: what msgspec decodes, and how values become an array. ``rows`` has the row of each value."""

    annotation: Any

    def build(self, values: Sequence[Any], rows: Sequence[int], at: str, bad: Bad) -> pa.Array:
        raise NotImplementedError


class _Plain(_Node):
    """Values that Arrow takes as they are, so that ``build`` finds none that does not fit."""

    def __init__(self, kind: pa.DataType, annotation: Any) -> None:
        self.annotation, self.kind = annotation | None, kind

    def build(self, values: Sequence[Any], rows: Sequence[int], at: str, bad: Bad) -> pa.Array:
        return pa.array(values, self.kind)


class _Integer(_Node):
    def __init__(self, kind: pa.DataType) -> None:
        self.annotation, self._type = int | float | None, public(kind, wide=True)
        self._high = 10**kind.precision if pa.types.is_decimal(kind) else 1 << 63
        self._low = 1 - self._high if pa.types.is_decimal(kind) else -self._high

    def build(self, values: Sequence[Any], rows: Sequence[int], at: str, bad: Bad) -> pa.Array:
        if float not in set(map(type, values)):
            try:
                return pa.array(values, self._type)
            except (OverflowError, pa.ArrowInvalid):
                pass  # below, with a reason for each
        return pa.array([self._whole(value, row, at, bad) for value, row in zip(values, rows, strict=True)], self._type)

    def _whole(self, value: Any, row: int, at: str, bad: Bad) -> int | None:
        if value is None:
            return None
        if isinstance(value, float):
            if value % 1 == 0 and abs(value) < _EXACT:
                return int(value)
        elif self._low <= value < self._high:
            return int(value)
        bad.setdefault(row, f"Expected `int` that {self._type} can represent exactly, got {value!r:.60} at `{at}`")
        return None


class _Any(_Node):
    """Values of any type: strings, and the JSON text of others."""

    annotation = msgspec.Raw

    def build(self, values: Sequence[Any], rows: Sequence[int], at: str, bad: Bad) -> pa.Array:
        found: list[str | None] = []
        for value, row in zip(values, rows, strict=True):
            text = None
            if value is not None:
                try:
                    text = _text(bytes(value))
                except (msgspec.MsgspecError, ValueError) as error:
                    bad.setdefault(row, f"{_reason(error)} at `{at}`")
            found.append(text)
        return pa.array(found, pa.string())


def _text(raw: bytes) -> str | None:
    if raw[:1] == b'"':
        return msgspec.json.decode(raw, type=str)
    return None if raw == b"null" else raw.decode()


class _Struct(_Node):
    def __init__(self, kind: pa.StructType, used: Collection[str] | None = None) -> None:
        self._used = {field.name for field in kind} if used is None else used
        self._fields = [(field.name, attrgetter(f"f{i}"), _node(field.type)) for i, field in enumerate(kind)]
        self._type = public(kind, wide=True)
        missing: dict[type[_Node], Any] = {_Any: msgspec.Raw(b"null")}
        defined = [
            (f"f{i}", _optional(node), msgspec.field(default=missing.get(type(node)), name=name))
            for i, (name, _, node) in enumerate(self._fields)
        ]
        self.annotation = msgspec.defstruct("Body", defined, gc=False)

    def build(self, values: Sequence[Any], rows: Sequence[int], at: str, bad: Bad) -> pa.Array:
        absent = np.fromiter((value is None for value in values), bool, len(values))
        some = bool(absent.any())
        children = []
        for name, getter, node in self._fields:
            if name not in self._used and isinstance(node, _Plain):
                children.append(pa.nulls(len(values), node.kind))
                continue
            inner = [None if v is None else getter(v) for v in values] if some else list(map(getter, values))
            children.append(node.build(inner, rows, f"{at}.{name}" if at else name, bad))
        mask = pa.array(absent) if some else None
        return pa.StructArray.from_arrays(children, fields=list(self._type), mask=mask)


class _List(_Node):
    def __init__(self, kind: pa.ListType) -> None:
        self._item = _node(kind.value_type)
        self.annotation = list[_optional(self._item)] | None  # type: ignore[misc]

    def build(self, values: Sequence[Any], rows: Sequence[int], at: str, bad: Bad) -> pa.Array:
        items = [item for value in values if value is not None for item in value]
        counts = [0 if value is None else len(value) for value in values]
        of_items = np.repeat(np.asarray(rows), counts).tolist()
        built = self._item.build(items, of_items, f"{at}[]", bad)
        return pa.ListArray.from_arrays(_offsets(values, counts), built)


class _Map(_Node):
    def __init__(self, kind: pa.MapType) -> None:
        self._item = _node(kind.item_type)
        self.annotation = dict[str, _optional(self._item)] | None  # type: ignore[misc]

    def build(self, values: Sequence[Any], rows: Sequence[int], at: str, bad: Bad) -> pa.Array:
        there = [value for value in values if value is not None]
        keys = [key for value in there for key in value]
        items = [item for value in there for item in value.values()]
        counts = [0 if value is None else len(value) for value in values]
        of_items = np.repeat(np.asarray(rows), counts).tolist()
        built = self._item.build(items, of_items, f"{at}{{}}", bad)
        return pa.MapArray.from_arrays(_offsets(values, counts), pa.array(keys, pa.string()), built)


def _offsets(values: Sequence[Any], counts: list[int]) -> pa.Array:
    """Return offsets, null where a value is, as ``from_arrays`` of lists takes them."""
    offsets = [0, *np.cumsum(counts).tolist()]
    starts = (None if value is None else at for value, at in zip(values, offsets, strict=False))
    return pa.array([*starts, offsets[-1]], pa.int32())


def _optional(node: _Node) -> Any:
    return node.annotation | None if isinstance(node, _Struct) else node.annotation


def _node(kind: pa.DataType) -> _Node:
    if pa.types.is_struct(kind):
        return _Struct(kind)
    if pa.types.is_list(kind):
        return _List(kind)
    if pa.types.is_map(kind):
        return _Map(kind)
    if pa.types.is_integer(kind) or pa.types.is_decimal(kind):
        return _Integer(kind)
    if kind == ANY:
        return _Any()
    plain: dict[pa.DataType, Any] = {
        pa.string(): str,
        pa.float64(): float,
        pa.bool_(): bool,
        pa.date32(): datetime.date,
        pa.timestamp("us", tz="UTC"): datetime.datetime,
    }
    return _Plain(kind, plain[kind])
