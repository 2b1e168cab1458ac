"""Clients: sessions, subscriptions, topic readers, receipts and open transactions."""
