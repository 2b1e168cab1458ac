"""Durable subscriptions and consumer groups: definitions, cursors, start positions."""
