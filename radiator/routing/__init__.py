"""Match destination names to rules: patterns over names, and the policy that the first matching rule gives a name."""
