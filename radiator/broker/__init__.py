"""The deterministic core of the broker: frames, disk results and the time go in; bytes and disk jobs come out.

The package opens no socket and starts no thread.
"""
