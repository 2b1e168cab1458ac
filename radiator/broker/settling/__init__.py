"""Settlement of ACK and NACK."""
