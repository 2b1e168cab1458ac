"""A second copy of a store that follows a running broker by replay. ``docs/operations.md`` is the guide.

The parts: ``follow`` (the connection: start positions, messages, retries), ``copy`` (the store that is written).
"""
