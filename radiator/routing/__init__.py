"""Which destination is kept how: patterns over names, and the policy that the first matching rule gives a name."""
