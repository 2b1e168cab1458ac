"""Decode Avro bodies with the header of a schema registry: ``decoder: examples.decoders.avro:flight``.

Confluent's serializers put five bytes before the Avro data: a zero, and the id of the writer's schema as a big-endian
32-bit integer. ``schemas/<id>.avsc`` has the schemas by id, and Avro resolves each of them to the newest one. The
files are read when the module is imported: an error then stops the archiver, while an error of a call makes a reject.
"""

from __future__ import annotations

import json
import struct
from io import BytesIO
from pathlib import Path

from fastavro import parse_schema, schemaless_reader

from radiator.decoder import decoder

_FILES = Path(__file__).with_name("schemas").glob("*.avsc")
WRITERS = {int(path.stem): parse_schema(json.loads(path.read_text("utf-8"))) for path in _FILES}
NEWEST = WRITERS[max(WRITERS)]  # the schema that flight.json describes

_HEADER = struct.Struct(">BI")


@decoder
def flight(body: bytes, headers: dict[str, str]) -> object:
    """Return the document of a body, with the fields of the newest schema."""
    magic, schema_id = _HEADER.unpack_from(body)
    if magic != 0 or schema_id not in WRITERS:
        raise ValueError(f"expected a zero and the id of a schema in {sorted(WRITERS)}, got {magic} and {schema_id}")
    data = BytesIO(body)
    data.seek(_HEADER.size)
    document = schemaless_reader(data, WRITERS[schema_id], NEWEST)
    if data.tell() != len(body):
        raise ValueError(f"expected the end of the body at byte {data.tell()}, got {len(body)} bytes")
    return document
