"""Decode Protobuf bodies: ``decoder: examples.decoders.protobuf:flight``.

The message is defined in ``flight.proto``. This module reads its descriptors from ``flight.desc``, so it works with
every version of the package ``protobuf``. After a change of ``flight.proto``::

    protoc --include_imports --descriptor_set_out=flight.desc flight.proto

With classes that protoc has generated (``--python_out=.``), import ``Flight`` from ``flight_pb2`` instead.
"""

from __future__ import annotations

from pathlib import Path

from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.json_format import MessageToDict
from google.protobuf.message_factory import GetMessageClass

from radiator.decoder import decoder

_POOL = DescriptorPool()
for _file in FileDescriptorSet.FromString(Path(__file__).with_name("flight.desc").read_bytes()).file:
    _POOL.Add(_file)
Flight = GetMessageClass(_POOL.FindMessageTypeByName("flights.Flight"))


@decoder
def flight(body: bytes, headers: dict[str, str]) -> object:
    """Return the document of a body: names as in the definition, zeros and empty lists too."""
    message = Flight.FromString(body)
    document = MessageToDict(message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True)
    document["id"] = message.id  # MessageToDict makes text of 64-bit integers
    return document
