"""The present time of the broker, and its timers."""
