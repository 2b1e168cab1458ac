"""Measurements of internals; ``make measure`` runs them. ``radiator bench`` measures a broker from outside."""
