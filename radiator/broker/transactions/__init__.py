"""BEGIN and ABORT, the frames that wait for COMMIT, and the deliveries that they answer."""
