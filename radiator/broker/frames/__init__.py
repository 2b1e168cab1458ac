"""Client frames: one function per STOMP command."""
