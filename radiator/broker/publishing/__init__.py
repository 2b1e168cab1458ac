"""From a SEND to the log: plans, what may be refused or has to wait, hooks, ids, times."""
