"""The benchmark: a cheap load generator, the brokers it drives, and the table of what is measured.

``load`` runs in a process of its own and imports only the standard library; ``target`` knows brokers as processes;
``cells`` is the table of measurements; ``run`` walks the table. ``radiator bench`` is the face of it.
"""
