"""Queues: who gets which message, what becomes of it, and what waits for whom."""
