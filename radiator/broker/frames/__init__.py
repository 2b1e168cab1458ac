"""What each client frame does."""
