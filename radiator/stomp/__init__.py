"""STOMP 1.0, 1.1 and 1.2 without any I/O: bytes in, frames out, and the way back; server and client side."""
