"""What happens at a moment: delays, expiry, answers that do not come."""
