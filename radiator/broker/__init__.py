"""The deterministic core: frames, bytes of the log and the time go in, things to do come out. No sockets, no threads."""
