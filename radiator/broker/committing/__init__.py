"""COMMIT: prepare the effects of a transaction, wait for the disk, apply everything in one turn."""
