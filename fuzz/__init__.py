"""Bytes from nowhere, for everything that reads bytes of a store: see ``targets`` and ``run``."""
