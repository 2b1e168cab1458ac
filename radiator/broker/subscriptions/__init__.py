"""From a SUBSCRIBE to readers: patterns, positions, windows, and the way from history into live."""
