"""The admin channel: requests of operators, the verbs, and their answers."""
