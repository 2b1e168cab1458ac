"""Decoders for bodies in Avro and Protobuf, for readers, Spark and the archiver."""
