"""Outcomes of messages that were not acknowledged: redelivery, dead letters, drops."""
