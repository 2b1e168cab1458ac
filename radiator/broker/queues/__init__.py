"""Queues: which consumer gets which message, and which messages wait."""
