"""The deterministic core: frames, records and the time go in, things to do come out. No sockets, no threads."""
