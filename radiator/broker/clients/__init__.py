"""A client as the broker sees it: its session, subscriptions, readers, receipts and transactions."""
