"""Delivery: which readers and queues are ready, and the pump that sends messages to consumers."""
