"""Destinations: names, the feeds of their partitions, priority levels, fan-out, and the creation of cursors."""
