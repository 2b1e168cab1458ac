"""Named subscriptions: whose they are, where they stand, what is kept of them."""
