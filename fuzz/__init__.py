"""Fuzzing of all code that reads bytes of a store or of a peer: see ``targets``, ``wire`` and ``run``."""
