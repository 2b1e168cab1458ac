"""A second copy of a store that follows a running broker by replay. ``docs/operations.md`` is the guide.

The parts: ``follow`` (the connection: where to go on, what came, when to try again), ``copy`` (the store that is
written).
"""
