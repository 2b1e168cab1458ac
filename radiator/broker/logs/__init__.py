"""One stored log in the broker: its wire form, its readers, filters over its records."""
