"""From a SUBSCRIBE to readers and consumers, and the end of a subscription."""
