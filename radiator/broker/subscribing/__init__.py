"""Subscribing: from a SUBSCRIBE to readers and consumers, and the end of subscriptions."""
