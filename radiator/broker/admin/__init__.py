"""Questions and orders of operators, over STOMP and HTTP."""
