"""Durable subscriptions and consumer groups."""
