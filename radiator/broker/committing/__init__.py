"""COMMIT: what a transaction would do, what it waits for, and its happening at once."""
