"""What becomes of messages that come back unsettled, and of dead letters."""
