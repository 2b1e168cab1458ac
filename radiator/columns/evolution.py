"""Decide what becomes of a stored struct column when the schema of its rule changes, by the rules of Delta.

A new field is added to the struct, and older files read null there. A field that the schema no longer has stays, and
new records have null there. A field of another type is refused, because stored files cannot be read with both. That
includes wider types: a Delta table takes them only with its feature ``typeWidening``, which deltalake and polars cannot
read. Integers have 64 bits from the start, so other bounds in a schema change nothing.

Uses Arrow types. All functions are pure.
Source: Delta Transaction Log Protocol, "Type Widening".
"""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from radiator.errors import ConfigError


def evolve(stored: Iterable[pa.Field], wanted: Iterable[pa.Field]) -> list[pa.Field]:
    """Return the struct columns of a table that has stored records, and gets records with other columns.

    Args:
        stored: The columns of the stored records.
        wanted: The columns of the new records.

    Raises:
        ConfigError: A field has another type, or a name that differs from another one in case only.
    """
    return _merged("", list(stored), list(wanted))


def _merged(at: str, stored: list[pa.Field], wanted: list[pa.Field]) -> list[pa.Field]:
    fields = {field.name: field for field in stored}
    lower = {field.name.lower(): field.name for field in stored}
    for field in wanted:
        path = f"{at}.{field.name}" if at else field.name
        known = fields.get(field.name)
        if known is not None:
            fields[field.name] = known.with_type(_both(path, known.type, field.type))
        elif field.name.lower() in lower:
            raise ConfigError(
                f"column {path}: the stored records have {lower[field.name.lower()]}, and names of columns must differ "
                f"in more than case; {_remedy(path)}"
            )
        else:
            fields[field.name] = field
    return list(fields.values())


def _both(path: str, stored: pa.DataType, wanted: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(stored) and pa.types.is_struct(wanted):
        return pa.struct(_merged(path, list(stored), list(wanted)))
    if pa.types.is_list(stored) and pa.types.is_list(wanted):
        return pa.list_(_both(f"{path}[]", stored.value_type, wanted.value_type))
    if pa.types.is_map(stored) and pa.types.is_map(wanted):
        return pa.map_(pa.string(), _both(f"{path}{{}}", stored.item_type, wanted.item_type))
    if stored != wanted:
        raise ConfigError(
            f"column {path}: the stored records have type {stored}, and the schema now says {wanted}; {_remedy(path)}"
        )
    return stored


def _remedy(path: str) -> str:
    column = path.partition(".")[0]
    return (
        f"give the rule another schema_column (such as {column}_2), in which the history begins again, or restore "
        f"what the schema said, and reload the broker"
    )
