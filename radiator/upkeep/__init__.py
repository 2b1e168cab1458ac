"""Provide tools for the files of a store: check, repair, back up, restore, purge, and show."""
