"""ACK and NACK: which delivery is meant, and its settlement."""
