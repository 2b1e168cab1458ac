"""Publishing: from a SEND to the log. Plans, checks, middleware and schemas, deduplication, delays."""
