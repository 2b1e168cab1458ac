"""What the broker observes about itself: the last hour of rates, and what is wrong with queues and consumers."""
