"""The decoders of examples/decoders, with the packages that their users have: what is sent is in the struct column."""

from __future__ import annotations

import re
import struct
from datetime import UTC, datetime
from io import BytesIO
from pathlib import Path
from typing import Any

import deltalake
import pytest

from radiator.archive.opening import open_files
from radiator.archive.run import run
from radiator.config.load import load_text
from radiator.server.hooks import load_hooks, missing_decoders, register_schemas
from radiator.storage.files import FileSystem
from tests.archive.killing import EAGER
from tests.archive.stores import SEGMENT_BYTES, sealed_ends
from tests.spark.stores import START_NS, Message, Writer

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "decoders"
DEPARTED = datetime(2013, 1, 1, 10, 17, tzinfo=UTC)
FLIGHT = {
    "id": (1 << 53) + 1, "carrier": "UA", "destination": "IAH", "dep_delay": -2, "distance": 1400.5,
    "status": "DEPARTED", "departed": DEPARTED, "codeshares": ["NH7001", "LH7002"],
}  # fmt: skip
ZEROS = {
    "id": 0, "carrier": "", "destination": "", "dep_delay": 0, "distance": None, "status": "SCHEDULED",
    "departed": None, "codeshares": [],
}  # fmt: skip
OLD = {**FLIGHT, "distance": None, "status": "SCHEDULED", "codeshares": []}  # as version 1 of the Avro schema


def archived(tmp_path: Path, destination: str, bodies: list[bytes]) -> list[dict[str, Any]]:
    """Store bodies under the rules of the example, archive them, and return the rows of the first ones."""
    config = load_text((EXAMPLE / "radiator.yaml").read_text(), "radiator.yaml")
    load_hooks(config.rules, "radiator.yaml")
    used = destination.rpartition(".")[2]
    assert not [each for each in missing_decoders(config.rules, "radiator.yaml") if f"decoders.{used}" in each]
    writer = Writer(tmp_path / "data", SEGMENT_BYTES)
    register_schemas(config.rules, "radiator.yaml", FileSystem(), writer.root)
    count = 1_500  # several segments, the last of which is not archived
    messages = [Message(destination, bodies[i % len(bodies)], b"", START_NS + i) for i in range(count)]
    writer.write("flights", messages, per_batch=20)
    writer.close()
    out = run(writer.root, open_files(tmp_path / "archive"), EAGER)
    assert not out.problems and out.records == out.typed + out.rejected == sealed_ends(writer.root)["flights"] > 100
    rows = deltalake.DeltaTable(str(tmp_path / "archive")).to_pyarrow_table().sort_by("offset").to_pylist()
    assert [row["body"] for row in rows] == [bodies[i % len(bodies)] for i in range(len(rows))]
    return rows[: len(bodies)]


def test_protobuf_bodies_are_structs_with_zeros_and_exact_integers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("google.protobuf")
    monkeypatch.chdir(ROOT)
    from examples.decoders.protobuf import Flight

    message = Flight(**{name: value for name, value in FLIGHT.items() if name != "departed"})
    message.departed.FromDatetime(DEPARTED)
    unknown = Flight(id=1, status=7)  # a status of a newer definition
    bodies = [message.SerializeToString(), b"", message.SerializeToString()[:-1], unknown.SerializeToString()]
    full, empty, torn, newer = archived(tmp_path, "/topic/flights.protobuf", bodies)
    assert (full["flight"], full["rejected"]) == (FLIGHT, None)
    assert (empty["flight"], empty["rejected"]) == (ZEROS, None)
    assert torn["flight"] is None and "the decoder failed: DecodeError" in torn["rejected"]
    assert newer["flight"] is None and newer["rejected"] == "Expected `str`, got `int` at `status`"


def test_the_descriptors_of_the_protobuf_example_are_those_of_its_definition() -> None:
    pytest.importorskip("google.protobuf")
    from examples.decoders.protobuf import Flight

    lines = re.findall(
        r"^  (?:optional |repeated )?[\w.]+ (\w+) = (\d+);$", (EXAMPLE / "flight.proto").read_text(), re.M
    )
    assert len(lines) == len(FLIGHT)
    assert {(each.name, str(each.number)) for each in Flight.DESCRIPTOR.fields} == set(lines)


def test_avro_bodies_of_every_version_are_structs_of_the_newest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fastavro = pytest.importorskip("fastavro")
    monkeypatch.chdir(ROOT)
    from examples.decoders.avro import WRITERS

    def body(version: int, schema_id: int = 0) -> bytes:
        data = BytesIO()
        fastavro.schemaless_writer(data, WRITERS[version], FLIGHT)
        return struct.pack(">bI", 0, schema_id or version) + data.getvalue()

    bodies = [body(1), body(2), b"", body(2, schema_id=7), body(2)[:-1], body(1) + b"x", b'{"id": 1}']
    old, new, *others = archived(tmp_path, "/topic/flights.avro", bodies)
    assert (old["flight"], old["rejected"]) == (OLD, None)
    assert (new["flight"], new["rejected"]) == (FLIGHT, None)
    assert [row["flight"] for row in others] == [None] * 5
    assert all(row["rejected"].startswith("the decoder failed: ") for row in others)
    assert "schema in [1, 2], got 0 and 7" in others[1]["rejected"]
