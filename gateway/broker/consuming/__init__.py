"""Consumers and browsers: their holds on queues, and what their settlements do."""
