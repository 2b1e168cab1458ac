"""Messages to consumers and subscribers: what is ready, and the pump that delivers it."""
