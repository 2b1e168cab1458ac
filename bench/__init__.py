"""Measurements that look inside: rerun them with ``make measure``. ``radiator bench`` measures what a user sees."""
