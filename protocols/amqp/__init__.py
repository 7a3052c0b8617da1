"""AMQP 1.0 for the gateway: an engine without I/O, and its introduction to the shell."""
