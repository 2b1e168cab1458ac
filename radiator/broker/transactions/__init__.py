"""Transactions before COMMIT: BEGIN, ABORT, stored frames, transactional acknowledgements."""
