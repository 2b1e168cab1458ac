"""What the broker knows of a stored log: its wire form, its readers, filters over its records."""
